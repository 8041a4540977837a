// Elements of the page. Text is always text: nothing that a run says is ever read as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...given(children));
  return element;
}

const given = (children) => children.flat(Infinity).filter((child) => child != null && child !== false);

export function show(element, ...children) {
  element.replaceChildren(...given(children));
  return element;
}

const theme = { root: () => document.documentElement, dark: () => matchMedia("(prefers-color-scheme: dark)").matches };
// In a notebook, colors are those of an element of ours, and the notebook says whether it is dark.
export function setTheme(root, dark) {
  Object.assign(theme, { root, dark });
}
export const isDark = () => theme.dark();
export const css = (name) => getComputedStyle(theme.root()).getPropertyValue(name).trim();

export const button = (attributes, ...children) => h("button", { type: "button", ...attributes }, ...children);
export const soft = (text) => h("p", { class: "soft" }, text);
export const section = (title, ...children) => h("section", { class: "section" }, h("h2", {}, title), ...children);
// Names and their values.
export const pairs = (found, kind = "facts") => h("dl", { class: kind }, found.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

// A table from rows of text; `align` has a letter for each column, l or r.
export function table(head, rows, align = "", caption = "") {
  const cell = (tag, text, place) => h(tag, { class: align[place] === "r" ? "r" : null, scope: tag === "th" ? "col" : null }, text);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "Table" },
    h("table", {},
      caption ? h("caption", { class: "unseen" }, caption) : null,
      h("thead", {}, h("tr", {}, head.map((text, place) => cell("th", text, place)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((text, place) => cell("td", text, place)))))));
}

// A list to choose from: [value, name] of each.
export const choice = (label, options, value, chosen) => h("select", { "aria-label": label, onchange: (event) => chosen(event.target.value) },
  options.map(([key, name]) => h("option", { value: String(key), selected: String(key) === String(value) }, name)));

export function swatch(color) {
  const element = h("i", { class: "swatch" });
  element.style.background = color;
  return element;
}

export function download(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
