// Which page is shown: by the address. Links within are followed without reloading.
import { Problem } from "./api.js";
import { button, h, show } from "./dom.js";

const PAGES = [
  [/^\/$/, () => import("./runs.js")],
  [/^\/run\/([^/]+)$/, () => import("./run.js")],
  [/^\/compare$/, () => import("./compare.js")],
  [/^\/machine$/, () => import("./machine.js")],
  [/^\/api$/, () => import("./reference.js")],
];
const page = document.getElementById("page");
let leave = () => {};
let shown = 0;

async function open() {
  const turn = ++shown;
  leave();
  leave = () => {};
  const [pattern, load] = PAGES.find(([one]) => one.test(location.pathname)) ?? [];
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  show(page, h("p", { class: "soft wait" }, "reading"));
  try {
    if (!load) throw new Problem("Page not found.");
    const module = await load();
    const left = await module.open(page, ...location.pathname.match(pattern).slice(1).map(decodeURIComponent));
    if (turn === shown) leave = left ?? (() => {});
    else left?.();
  } catch (error) {
    if (turn !== shown) return;
    const text = error instanceof Problem ? error.message : `Cannot reach the server, or the page failed: ${error.message}`;
    show(page, h("p", { class: "problem", role: "alert" }, text), h("p", {}, button({ onclick: open }, "Try again")));
  }
}

export function go(address) {
  history.pushState(null, "", address);
  open();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.target || link.download) return;
  const url = new URL(link.href, location);
  if (url.origin !== location.origin || url.pathname.startsWith("/api/v1") || link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
addEventListener("popstate", open);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", open);
open();
