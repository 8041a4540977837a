// All runs: searched, sorted, compared, deleted. Rows in view alone are drawn, so that thousands stay smooth.
import { ask, catalog, runPath } from "./api.js";
import { button, h, show } from "./dom.js";
import { durations, when } from "./format.js";
import { go } from "./main.js";

const ROW = 37;
const REFRESH_MILLISECONDS = 3000;
const COLUMNS = [
  ["name", "Run", (run) => run.name.toLowerCase()],
  ["status", "Status", (run) => run.status],
  ["start", "Started", (run) => run.start],
  ["seconds", "Took", seconds],
  ["hosts", "Host", (run) => run.hosts.join(" ")],
  ["gpus", "GPUs", (run) => run.gpus],
  ["steps", "Steps", figure("steps")],
  ["loss", "Loss", figure("loss")],
  ["best", "Best", figure("best")],
  ["shape", "Trend", null],
  ["step_seconds", "Step time", figure("step_seconds")],
  ["utilization", "GPU util", figure("utilization")],
  ["joules", "Energy", figure("joules")],
  ["cost", "Cost", figure("cost")],
  ["verdict", "Verdict", figure("verdict")],
];
// Which columns are left out where the page is narrow is in style.css.
const FIGURES = ["steps", "loss", "best", "step_seconds", "utilization", "joules", "cost"];
const RIGHT = new Set(["seconds", ...FIGURES]);
const figures = new Map();

function seconds(run) {
  return run.seconds ?? Math.max(0, Date.now() / 1000 - run.start);
}

const tagsOf = (run) => Object.entries(run.tags).map(([key, value]) => `${key}=${value}`);

function figure(name) {
  return (run) => figures.get(run.id)?.[name]?.value ?? null;
}

export async function open(page) {
  document.title = "Runs · pulsetrain";
  const query = new URLSearchParams(location.search);
  const state = { search: query.get("search") ?? "", sort: query.get("sort") ?? "", down: query.get("down") === "1", chosen: new Set() };
  const { delete: canDelete } = await catalog();
  let runs = await ask("/runs"), shown = [], stopped = false, took;

  const search = h("input", { type: "search", placeholder: "name, tag, host, status", "aria-label": "Search runs", value: state.search });
  const count = h("span", { class: "soft", role: "status" });
  const compare = button({ disabled: true, onclick: () => {
    go(`/compare?${new URLSearchParams([...state.chosen].map((id) => ["run", id]))}`);
  } }, "Compare");
  const remove = canDelete ? button({ disabled: true, onclick: deleteChosen }, "Delete") : null;
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const head = h("tr", {});
  const body = h("tbody", {});
  const scroller = h("div", { class: "list", tabindex: "0", role: "region", "aria-label": "Runs" },
    h("table", { class: "runs" }, h("thead", {}, head), body));
  show(page, h("div", { class: "bar" }, h("h1", {}, "Runs"), search, count, compare, remove), problem, scroller);

  function chosen() {
    const { size } = state.chosen;
    compare.disabled = size < 2;
    compare.textContent = size > 1 ? `Compare ${size}` : "Compare";
    if (remove) remove.disabled = !size;
  }

  async function deleteChosen() {
    const wanted = runs.filter((run) => state.chosen.has(run.id));
    if (!confirm(`Delete ${wanted.map((run) => run.name).join(", ")}, with all files? This cannot be undone.`)) return;
    const failed = [];
    for (const { id } of wanted) {
      try {
        await ask(runPath(id), {}, { method: "DELETE" });
        state.chosen.delete(id);
      } catch (error) { failed.push(error.message); }
    }
    problem.textContent = failed.join(" ");
    problem.hidden = !failed.length;
    runs = await ask("/runs");
    chosen();
    arrange();
  }

  function write() {
    const now = new URLSearchParams();
    if (state.search) now.set("search", state.search);
    if (state.sort) { now.set("sort", state.sort); if (state.down) now.set("down", "1"); }
    history.replaceState(null, "", `/${now.toString() ? `?${now}` : ""}`);
  }

  function arrange() {
    const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (run) => [run.id, run.name, run.status, run.note, ...run.hosts, ...run.gpu_names, ...tagsOf(run)].join(" ").toLowerCase();
    shown = runs.filter((run) => words.every((word) => text(run).includes(word)));
    const key = COLUMNS.find(([name]) => name === state.sort)?.[2];
    if (key) {
      const order = (a, b) => (a === null ? 1 : b === null ? -1 : (a < b ? -1 : a > b ? 1 : 0) * (state.down ? -1 : 1));
      shown = shown.map((run) => [key(run), run]).sort(([a], [b]) => order(a, b)).map(([, run]) => run);
    }
    count.textContent = shown.length === runs.length ? `${runs.length}` : `${shown.length} of ${runs.length}`;
    show(head, h("th", { scope: "col" }, h("span", { class: "unseen" }, "Choose")), COLUMNS.map(([name, title, sortable]) => {
      const sorted = state.sort === name ? (state.down ? "descending" : "ascending") : null;
      return h("th", { scope: "col", class: classes(name), "aria-sort": sorted }, sortable
        ? button({ class: "plain", onclick: () => {
          state.down = state.sort === name ? !state.down : RIGHT.has(name) && name !== "loss" && name !== "best";
          state.sort = name;
          write();
          readAll().then(arrange);
        } }, title, sorted ? (state.down ? " ↓" : " ↑") : "")
        : title);
    }));
    drawRows();
  }

  // Figures of all runs are read when a column of them is sorted by.
  async function readAll() {
    if (![...FIGURES, "verdict"].includes(state.sort)) return;
    for (let first = 0; first < runs.length; first += 60) await readFigures(runs.slice(first, first + 60));
  }

  async function readFigures(wanted) {
    const missing = wanted.filter((run) => !figures.has(run.id) || run.status === "running");
    if (!missing.length) return;
    const found = await ask("/figures", { run: missing.map((run) => run.id) });
    for (const [id, own] of Object.entries(found)) figures.set(id, own);
  }

  let reading = 0;
  function drawRows() {
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - 5);
    const inView = shown.slice(first, first + Math.ceil(scroller.clientHeight / ROW) + 12);
    const space = (rows) => (rows > 0 ? spacer(rows * ROW) : null);
    took = durations(runs.map(seconds));
    show(body, space(first), inView.map(row), space(shown.length - first - inView.length));
    if (!shown.length) show(body, h("tr", {}, h("td", { colspan: String(COLUMNS.length + 1), class: "soft" }, runs.length ? "No run matches." : "No runs yet: pulsetrain run -- python train.py")));
    clearTimeout(reading);
    reading = setTimeout(async () => {
      const before = inView.map((run) => JSON.stringify(figures.get(run.id)));
      await readFigures(inView.slice(0, 60)).catch(() => {});
      if (!stopped && inView.some((run, place) => JSON.stringify(figures.get(run.id)) !== before[place])) drawRows();
    }, 80);
  }

  function row(run) {
    const own = figures.get(run.id) ?? {};
    const cell = (name, content, title = null) => h("td", { class: classes(name), title }, content);
    const text = (name) => cell(name, own[name]?.text ?? "", own[name]?.title);
    const choose = h("input", { type: "checkbox", checked: state.chosen.has(run.id), "aria-label": `Choose ${run.name}`, onchange: (event) => {
      if (event.target.checked) state.chosen.add(run.id); else state.chosen.delete(run.id);
      chosen();
    } });
    const tags = tagsOf(run).slice(0, 3).map((tag) => h("span", { class: "tag" }, tag));
    return h("tr", {},
      h("td", {}, choose),
      cell("name", [h("a", { href: `/run/${encodeURIComponent(run.id)}`, title: run.id }, run.name), tags]),
      cell("status", status(run, run.status)),
      cell("start", when(run.start).replace(`${new Date().getFullYear()}-`, "")),
      cell("seconds", took(seconds(run))),
      cell("hosts", run.hosts.join(", "), run.hosts.join(", ")),
      cell("gpus", run.gpus ? `${run.gpus} × ${run.gpu_names.map((name) => name.replace(/ \d+ ?GB.*| \(sim.*/, "")).join(", ")}` : "", run.gpu_names.join(", ")),
      text("steps"), text("loss"), text("best"),
      cell("shape", own.shape ? sparkline(own.shape) : ""),
      text("step_seconds"), text("utilization"), text("joules"), text("cost"), text("verdict"));
  }

  search.addEventListener("input", () => { state.search = search.value; write(); arrange(); });
  scroller.addEventListener("scroll", () => requestAnimationFrame(drawRows));
  addEventListener("resize", drawRows);
  arrange();
  readAll().then(arrange);
  const timer = setInterval(async () => {
    if (document.hidden) return;
    const now = await ask("/runs").catch(() => null);
    if (now && !stopped && JSON.stringify(now) !== JSON.stringify(runs)) { runs = now; arrange(); } else if (now && runs.some((run) => run.status === "running")) drawRows();
  }, REFRESH_MILLISECONDS);
  return () => { stopped = true; clearInterval(timer); removeEventListener("resize", drawRows); };
}

function classes(name) {
  return `c-${name}${RIGHT.has(name) ? " r" : ""}`;
}

function spacer(height) {
  const row = h("tr", { "aria-hidden": "true" }, h("td", { colspan: String(COLUMNS.length + 1), class: "spacer" }));
  row.firstChild.style.height = `${height}px`;
  return row;
}

export function status(run, text = run.outcome) {
  const kind = run.status === "running" ? "live" : run.good ? "good" : "bad";
  return h("span", { class: `chip ${kind}`, title: run.outcome }, text);
}

export function sparkline(values) {
  const width = 96, height = 22;
  const low = Math.min(...values), high = Math.max(...values);
  const points = values.map((value, place) => `${(width * place / (values.length - 1)).toFixed(1)},${(height - 2 - (height - 4) * (value - low) / (high - low || 1)).toFixed(1)}`);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("class", "sparkline");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  return svg;
}
