// One run: its head, its verdict, where its time went, and all its charts on one axis.
import { ask, catalog, runPath } from "./api.js";
import { Axis, SMOOTHING } from "./axis.js";
import { Band, setClasses } from "./band.js";
import { Charts } from "./charts.js";
import { button, choice, h, pairs, section, show, soft, table } from "./dom.js";
import { duration, plain, when } from "./format.js";
import { status } from "./runs.js";
import { follow } from "./stream.js";

const REPORT_MILLISECONDS = 15000;
const REREAD_MILLISECONDS = 20000;
const WINDOWS = [[60, "last minute"], [300, "last 5 min"], [3600, "last hour"], [86400, "last day"]];

export async function open(page, id) {
  const [about, { colors, groups, time_classes: classes }] = await Promise.all([ask(runPath(id)), catalog()]);
  setClasses(classes);
  const view = new RunView(page, id, about, colors, groups);
  view.start();
  return () => view.stop();
}

const tabsOf = (about, groups) => ["Overview", ...groups.filter((group) => about.charts.some((chart) => chart.group === group)), "Processes", "Events", "Configuration"];

class RunView {
  constructor(page, id, about, colors, groups) {
    Object.assign(this, { page, id, about, colors, groups });
    this.events = [];
    this.report = null;
    this.stopped = false;
    this.axis = new Axis(about.run.start, about.steps);
    this.axis.length = Math.max(about.elapsed_seconds, 1e-3);
    this.charts = new Charts(this.axis, colors, (keys, points, signal) => this.read(keys, points, signal), (error) => this.fail(error));
    this.tabs = tabsOf(about, groups);
    const wanted = new URLSearchParams(location.search).get("tab");
    this.tab = this.tabs.includes(wanted) ? wanted : "Overview";
    this.marking = false;
    this.axis.listeners.push(() => this.showState());
  }

  start() {
    document.title = `${this.about.run.name} · pulsetrain`;
    this.head = h("section", { class: "head", "aria-label": "Run" });
    this.verdict = h("section", { class: "verdict", "aria-label": "Verdict", hidden: true });
    this.band = new Band(this.axis, this.colors);
    this.toolbar = h("div", { class: "toolbar", role: "toolbar", "aria-label": "Time axis" });
    this.changes = h("section", { class: "changes", "aria-label": "What else changed here", hidden: true });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.tablist = h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the run" });
    this.panel = h("div", { role: "tabpanel", id: "panel", class: "panel", tabindex: "0" });
    show(this.page, this.head, this.verdict, this.tablist, this.band.element, this.toolbar, this.problem, this.changes, this.panel);
    this.showHead();
    this.showToolbar();
    this.showTabs();
    this.showPanel();
    this.keys = (event) => this.key(event);
    addEventListener("keydown", this.keys);
    follow([`run:${this.id}`], (kind, data) => this.heard(kind, data));
    this.readRest();
    this.timers = [
      setInterval(() => this.about.in_progress && !document.hidden && this.readRest(), REPORT_MILLISECONDS),
      setInterval(() => this.about.in_progress && !document.hidden && !this.axis.zoomed && this.charts.reread(), REREAD_MILLISECONDS),
    ];
  }

  stop() {
    this.stopped = true;
    this.timers.forEach(clearInterval);
    removeEventListener("keydown", this.keys);
    follow([], () => {});
    this.charts.clear();
  }

  async read(keys, points, signal) {
    const [start, end] = this.axis.range;
    const found = await ask(`${runPath(this.id)}/series`, { chart: keys, start: Math.max(0, start), end, points, smooth: this.axis.smooth }, { signal });
    return found.charts;
  }

  fail(error) {
    this.problem.hidden = !error;
    this.problem.textContent = error?.message ?? "";
  }

  // What takes longer than the first charts: events, and the report with verdict and ledger.
  async readRest() {
    try {
      this.events = await ask(`${runPath(this.id)}/events`);
      if (this.stopped) return;
      this.charts.boxes.forEach((box) => box.rescale());
      this.report = await ask(`${runPath(this.id)}/report`);
      if (this.stopped) return;
      this.showHead();
      this.showVerdict();
      this.band.setLedger(this.report.ledger, this.report.band);
      if (!["Training", "GPUs", "Host"].includes(this.tab) || !this.panel.querySelector(".section")) this.showTexts();
    } catch (error) {
      if (!this.stopped) this.fail(error);
    }
  }

  heard(kind, data) {
    if (kind === "tick") {
      this.axis.length = Math.max(this.axis.length, data.elapsed_seconds);
      this.about.figures = data.figures;
      this.events.push(...data.events);
      this.showHead();
      this.charts.append(data.points);
      if (!this.axis.zoomed) this.charts.boxes.forEach((box) => box.rescale());
      this.band.draw();
    } else if (kind === "ended" || kind === "charts" || kind === "reset" || kind === "shown") this.reopen();
  }

  // Something is new that cannot be appended: other charts, the end, a server that was restarted.
  async reopen() {
    try {
      const about = await ask(runPath(this.id));
      if (this.stopped) return;
      const same = JSON.stringify(about.charts) === JSON.stringify(this.about.charts);
      this.about = about;
      this.axis.steps = about.steps;
      this.axis.length = Math.max(about.elapsed_seconds, 1e-3);
      this.tabs = tabsOf(about, this.groups);
      this.fail(null);
      this.showHead();
      this.showToolbar();
      if (!same) { this.showTabs(); this.showPanel(); }
      this.charts.reread();
      this.readRest();
    } catch (error) {
      this.fail(error);
      setTimeout(() => !this.stopped && this.reopen(), 2000);
    }
  }

  showHead() {
    const { run } = this.about;
    const figures = this.about.in_progress ? this.about.figures : this.report?.figures ?? [];
    const done = this.about.in_progress && this.about.figures.find((one) => one.name === "done");
    const took = this.about.in_progress ? duration(this.axis.length) : run.took || duration(this.axis.length);
    show(this.head,
      h("h1", {}, run.name, " ", status(run)),
      h("p", { class: "soft" }, [`started ${when(run.start)}`, took, run.hosts.join(", "), run.gpus ? `${run.gpus} × ${run.gpu_names.join(", ")}` : "",
        run.simulated ? "simulated GPUs" : "", ...Object.entries(run.tags).map(([key, value]) => `${key}=${value}`)].filter(Boolean).join(" · ")),
      done ? h("progress", { max: "100", value: String(parseFloat(done.value)), "aria-label": "Steps done" }) : null,
      pairs(figures.map((one) => [one.name, one.value]), "figures"));
  }

  showVerdict() {
    const { verdict } = this.report;
    this.verdict.hidden = !verdict?.headline;
    if (this.verdict.hidden) return;
    show(this.verdict, h("h2", {}, verdict.headline), (verdict.findings ?? []).length
      ? h("details", {}, h("summary", {}, `${verdict.findings.length} finding${verdict.findings.length > 1 ? "s" : ""}`),
        verdict.findings.map((finding) => h("article", { class: `finding ${finding.severity}` },
          h("h3", {}, `${finding.rule}: ${finding.summary}`),
          line("evidence", finding.evidence), line("cost", finding.cost), line("do", finding.advice), line("confidence", finding.confidence),
          finding.stretches.slice(0, 3).map(([start, end]) => button({ class: "small", onclick: () => this.axis.zoom(start - (end - start) / 2, end + (end - start) / 2) }, `show ${this.axis.label(start)}`)))))
      : null);
  }

  showToolbar() {
    const { axis } = this;
    this.state = h("span", { class: "state", role: "status" });
    const modes = [["relative", "elapsed time"], ["time", "time of day"], ...(axis.hasSteps ? [["step", "steps"]] : [])];
    const key = (name, title, act) => button({ title, "aria-label": /^\w/.test(name) ? null : title, onclick: act }, name);
    show(this.toolbar, this.state,
      this.about.in_progress ? choice("Follow", [["", "follow all"], ...WINDOWS.map(([seconds, name]) => [seconds, `follow ${name}`])], axis.window ?? "", (value) => (value ? axis.last(Number(value)) : axis.all())) : null,
      key("←", "Earlier (arrow left)", () => axis.pan(-0.5)), key("→", "Later (arrow right)", () => axis.pan(0.5)),
      key("+", "Zoom in (+)", () => axis.by(0.5)), key("−", "Zoom out (-)", () => axis.by(2)),
      key("back", "Previous view (Backspace, double click)", () => axis.back()), key("all", "Whole run (0)", () => axis.all()),
      choice("Axis", modes, axis.mode, (value) => axis.set("mode", value)),
      choice("Smoothing", SMOOTHING, axis.smooth, (value) => axis.set("smooth", Number(value))),
      h("label", {}, h("input", { type: "checkbox", checked: axis.log, onchange: (event) => axis.set("log", event.target.checked) }), " log"),
      this.markButton = button({ "aria-pressed": String(this.marking), title: "Then select part of a chart: what else changed there?", onclick: () => this.setMarking(!this.marking) }, "what else changed?"));
    this.showState();
  }

  setMarking(on) {
    this.marking = on;
    this.markButton.setAttribute("aria-pressed", String(on));
    this.markButton.textContent = on ? "select part of a chart" : "what else changed?";
  }

  showState() {
    const [start, end] = this.axis.range;
    const part = `${this.axis.label(start)} to ${this.axis.label(end)}`;
    const live = this.about.in_progress;
    this.state.textContent = this.axis.zoomed ? `${live ? "frozen at " : ""}${part}` : live ? (this.axis.window ? `live: last ${duration(this.axis.window)}` : "live: all of it") : `all of it, ${duration(end)}`;
    this.band.draw();
  }

  async mark(start, end) {
    this.setMarking(false);
    this.changes.hidden = false;
    show(this.changes, soft("comparing"));
    try {
      const found = await ask(`${runPath(this.id)}/changes`, { start: Math.max(0, start), end });
      const close = button({ class: "small", onclick: () => { this.changes.hidden = true; } }, "close");
      const goTo = button({ class: "small", onclick: () => this.axis.zoom(start, end) }, "zoom there");
      show(this.changes, h("h2", {}, `What changed from ${this.axis.label(start)} to ${this.axis.label(end)}, against the time before `, goTo, close),
        found.length ? table(["", "before", "there", "difference"], found.map((one) => [one.name, one.before, one.there, one.change]), "lrrr", "Changes")
          : h("p", {}, "Nothing beyond chance."));
    } catch (error) {
      show(this.changes, h("p", { class: "problem" }, error.message));
    }
  }

  showTabs() {
    show(this.tablist, this.tabs.map((name) => button({
      role: "tab", id: `tab-${name}`, "aria-controls": "panel", "aria-selected": String(name === this.tab), tabindex: name === this.tab ? "0" : "-1",
      onclick: () => this.choose(name),
      onkeydown: (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.stopPropagation();
        this.choose(this.tabs[(this.tabs.indexOf(this.tab) + step + this.tabs.length) % this.tabs.length]);
        this.tablist.querySelector("[aria-selected=true]").focus();
      },
    }, name)));
  }

  choose(name) {
    this.tab = name;
    const query = new URLSearchParams(location.search);
    if (name === "Overview") query.delete("tab"); else query.set("tab", name);
    history.replaceState(null, "", `${location.pathname}${query.toString() ? `?${query}` : ""}`);
    this.showTabs();
    this.showPanel();
  }

  showPanel() {
    this.panel.setAttribute("aria-labelledby", `tab-${this.tab}`);
    this.charts.clear();
    show(this.panel);
    const options = { csv: `${runPath(this.id)}/csv`, marks: () => this.events.filter((event) => event.until || event.severity !== "info"), stretches: () => this.band.stretches, marking: () => this.marking, mark: (a, b) => this.mark(a, b) };
    const of = (group) => this.about.charts.filter((chart) => chart.group === group);
    const groups = this.tab === "Overview" ? this.groups : this.groups.filter((group) => group === this.tab);
    for (const group of groups) {
      const charts = this.tab === "Overview" ? of(group).slice(0, group === "GPUs" ? 4 : 6) : of(group);
      if (!charts.length) continue;
      if (this.tab === "Overview") this.panel.append(h("h2", {}, group));
      else if (charts.length > 12) this.panel.append(this.finder());
      this.charts.place(this.panel, charts, options);
    }
    if (!this.about.charts.length) this.panel.append(soft("No readings yet."));
    this.texts = h("div", { class: "texts" });
    this.panel.append(this.texts);
    this.showTexts();
  }

  // A program may log hundreds of names.
  finder() {
    return h("input", { type: "search", class: "finder", placeholder: "find a chart", "aria-label": "Find a chart", oninput: (event) => {
      const words = event.target.value.toLowerCase().split(/\s+/);
      for (const figure of this.panel.querySelectorAll("figure")) figure.hidden = !words.every((word) => figure.dataset.chart.toLowerCase().includes(word));
    } });
  }

  async showTexts() {
    const part = (one) => section(one.title, one.facts.length ? pairs(one.facts) : null,
      one.table ? table(one.table.head, one.table.rows, one.table.align, one.title) : null,
      one.remarks.length ? h("ul", { class: "remarks" }, one.remarks.map((remark) => h("li", {}, remark))) : null);
    const titled = (...titles) => (this.report?.sections ?? []).filter((one) => titles.includes(one.title)).map(part);
    const target = this.texts;
    if (this.tab === "Processes") {
      const found = await ask(`${runPath(this.id)}/processes`).catch(() => []);
      const rows = found.map((one) => [String(one.pid), one.host, one.user ?? "", (one.gpus ?? []).filter((gpu) => gpu !== null).join(", "), one.cpu_cores === null ? "" : plain(one.cpu_cores),
        one.memory_bytes === null ? "" : `${plain(one.memory_bytes / 2 ** 30)} GiB`, `${duration(one.first_seconds)} to ${duration(one.last_seconds)}`, one.command ?? ""]);
      show(target, rows.length ? table(["pid", "host", "user", "GPUs", "cores", "memory", "seen", "command"], rows, "rlllrrll", "Processes") : soft("No processes recorded."));
    } else if (this.tab === "Events") {
      const rows = this.events.map((event) => [duration(event.seconds), event.until ? "phase" : event.severity, event.host, event.message]).reverse();
      show(target, rows.length ? table(["when", "severity", "host", "what happened"], rows, "rlll", "Events") : soft("Nothing happened."));
    } else if (this.tab === "Configuration") show(target, this.about.facts.map(([title, facts]) => section(title, pairs(facts))));
    else if (this.tab === "Overview") show(target, titled("Run", "GPUs", "Training", "Energy", "Record"));
    else show(target, titled({ Training: "Training", "Logged by the program": "Logged by the program", GPUs: "GPUs", Host: "Machine" }[this.tab], ...(this.tab === "Energy" ? ["Energy", "Carbon and cost", "Carbon", "Cost", "Phases", "Epochs"] : [])));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const act = { "+": () => this.axis.by(0.5), "=": () => this.axis.by(0.5), "-": () => this.axis.by(2), 0: () => this.axis.all(), Backspace: () => this.axis.back(),
      ArrowLeft: () => this.axis.pan(-0.25), ArrowRight: () => this.axis.pan(0.25) }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

const line = (name, value) => (value ? h("p", {}, h("span", { class: "soft" }, `${name}: `), value) : null);
