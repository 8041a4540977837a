// Runs side by side: their curves over each other, and the words and figures of `pulsetrain compare`.
import { ask, catalog, runPath } from "./api.js";
import { Axis, SMOOTHING, between } from "./axis.js";
import { bar, setClasses } from "./band.js";
import { Charts } from "./charts.js";
import { button, choice, h, section, show, soft, table } from "./dom.js";
import { status } from "./runs.js";

const ALIGNMENTS = [["relative", "elapsed time"], ["step", "steps"], ["progress", "progress"]];
const MOST_CHARTS = 24;

export async function open(page) {
  const ids = [...new Set(new URLSearchParams(location.search).getAll("run"))];
  if (ids.length < 2) { show(page, h("h1", {}, "Compare"), h("p", {}, "Choose two or more runs in the ", h("a", { href: "/" }, "list of runs"), ".")); return null; }
  const [{ colors, time_classes: classes }, ...runs] = await Promise.all([catalog(), ...ids.map((id) => ask(runPath(id)))]);
  setClasses(classes);
  document.title = `${runs.map((one) => one.run.name).join(", ")} · pulsetrain`;
  const labels = label(runs);
  const query = new URLSearchParams(location.search);
  let alignment = ALIGNMENTS.some(([key]) => key === query.get("align")) ? query.get("align") : "relative";
  if (alignment === "step" && !runs.some((one) => one.steps.seconds.length > 1)) alignment = "relative";

  // The shared axis is in the unit of the alignment; each run has its own way from there to its seconds.
  const axis = new Axis(0, { seconds: [], steps: [] });
  axis.mode = "relative";
  const ends = () => runs.map((one) => (alignment === "progress" ? 100 : alignment === "step" ? one.steps.steps.at(-1) ?? 0 : one.elapsed_seconds));
  const own = runs.map((one) => ({
    to: (seconds) => (alignment === "progress" ? 100 * seconds / one.elapsed_seconds : alignment === "step" ? between(one.steps.seconds, one.steps.steps, seconds) : seconds),
    from: (x) => (alignment === "progress" ? x * one.elapsed_seconds / 100 : alignment === "step" ? between(one.steps.steps, one.steps.seconds, x) : x),
  }));
  const align = () => {
    axis.unit = { step: "steps", progress: "%" }[alignment] ?? "";
    axis.length = Math.max(...ends(), 1e-3);
  };
  align();

  const shared = new Map();
  for (const one of runs) for (const chart of one.charts) shared.set(chart.key, chart);
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const charts = new Charts(axis, colors, read, (error) => { problem.hidden = !error; problem.textContent = error?.message ?? ""; });

  async function read(keys, points, signal) {
    const [start, end] = axis.range;
    const answers = await Promise.all(runs.map(async (one, place) => {
      const known = keys.filter((key) => one.charts.some((chart) => chart.key === key));
      const from = Math.max(0, own[place].from(start)), until = Math.max(from + 1e-3, own[place].from(end));
      if (!known.length || !Number.isFinite(until)) return {};
      return (await ask(`${runPath(one.run.id)}/series`, { chart: known, start: from, end: until, points, smooth: axis.smooth }, { signal })).charts;
    }));
    return Object.fromEntries(keys.map((key) => [key, answers.map((found, place) => {
      const line = combined(found[key] ?? [], shared.get(key));
      return { ...line, label: labels[place], x: line.x.map((seconds) => own[place].to(seconds)) };
    })]));
  }

  const toolbar = h("div", { class: "toolbar", role: "toolbar", "aria-label": "Axis" },
    choice("Alignment", ALIGNMENTS.map(([key, name]) => [key, `aligned by ${name}`]), alignment, (value) => {
      alignment = value;
      axis.start = axis.end = null;
      align();
      const now = new URLSearchParams(location.search);
      now.set("align", alignment);
      history.replaceState(null, "", `/compare?${now}`);
      axis.changed(true);
    }),
    choice("Smoothing", SMOOTHING, axis.smooth, (value) => axis.set("smooth", Number(value))),
    h("label", {}, h("input", { type: "checkbox", checked: axis.log, onchange: (event) => axis.set("log", event.target.checked) }), " log"),
    button({ onclick: () => axis.back() }, "back"), button({ onclick: () => axis.all() }, "all"));
  const words = h("section", { class: "verdict", "aria-label": "Comparison" }, soft("comparing"));
  const rest = h("div", {});
  const panel = h("div", {});
  show(page, h("section", { class: "head" }, h("h1", {}, "Compare"),
    h("ul", { class: "sides" }, runs.map((one, place) => h("li", {}, h("a", { href: `/run/${encodeURIComponent(one.run.id)}` }, labels[place]), " ", status(one.run))))),
  words, toolbar, problem, panel, rest);
  const several = [...shared.values()].filter((chart) => runs.filter((one) => one.charts.some((other) => other.key === chart.key)).length > 1);
  charts.place(panel, several.slice(0, MOST_CHARTS).map((chart) => ({
    ...chart,
    kind: chart.kind === "stack" ? "lines" : chart.kind,
    title: chart.kind !== "stack" && chart.labels.length > 1 ? `${chart.title}, ${chart.labels[0]}` : chart.title,
  })));

  ask("/compare", { run: ids }).then((found) => {
    show(words, found.verdicts.map((text) => h("h2", {}, text)),
      found.explanations.map((one) => h("div", {}, one.sentences.map((text) => h("p", {}, text)), one.question ? h("p", {}, one.question) : null,
        one.causes.length ? h("ul", {}, one.causes.map((cause) => h("li", {}, cause.text))) : null)));
    const sections = [...new Set(found.figures.map((figure) => figure.section))];
    show(rest,
      found.ledgers.some(Boolean) ? section("Where the time went", found.ledgers.map((ledger, place) => (ledger ? h("div", { class: "ledger" }, h("b", {}, found.runs[place].label), bar(ledger)) : null))) : null,
      found.settings.length ? section("Settings that differ", table(["", ...found.runs.map((one) => one.label)], found.settings.map((row) => [row.name, ...row.values]), "", "Settings that differ")) : null,
      sections.map((one) => section(one, figures(found, one))),
      h("ul", { class: "remarks" }, [...found.notes, found.legend].map((note) => h("li", {}, note))));
  }).catch((error) => show(words, h("p", { class: "problem" }, error.message)));
  return () => charts.clear();
}

function figures(found, section) {
  const own = found.figures.filter((figure) => figure.section === section);
  const element = table(["", ...found.runs.map((one) => one.label)], own.map((figure) => [figure.name, ...figure.cells.map((cell) => [cell.value, cell.change].filter(Boolean).join("  "))]), `l${"r".repeat(found.runs.length)}`, section);
  const rows = element.querySelectorAll("tbody tr");
  for (const [number, figure] of own.entries()) {
    if (figure.how) rows[number].title = figure.how;
    for (const [place, cell] of figure.cells.entries()) if (cell.mood) rows[number].children[place + 1].classList.add(cell.mood);
  }
  return element;
}

function label(runs) {
  const names = runs.map((one) => one.run.name);
  return names.map((name, place) => (names.filter((other) => other === name).length > 1 ? `${name} (${place + 1})` : name));
}

// One curve for a run: of parts of a step their sum, of several GPUs or hosts the mean of what the chart has first.
function combined(lines, chart) {
  let x = [];
  for (const line of lines) x = line.x ??= x;
  const sum = chart.kind === "stack";
  if (!sum && chart.labels.length > 1) lines = lines.filter((line) => line.label.endsWith(chart.labels[0]));
  if (lines.length <= 1) return lines[0] ?? { x: [], last: [] };
  if (lines.some((line) => line.x.length !== lines[0].x.length)) return { x: lines[0].x, last: lines[0].last };
  return { x: lines[0].x, last: lines[0].x.map((_, index) => {
    const known = lines.map((line) => line.last[index]).filter((value) => value != null);
    return known.length ? known.reduce((a, b) => a + b, 0) / (sum ? 1 : known.length) : null;
  }) };
}
