// A run in the output of a notebook's cell: its head, where its time went, and its charts, as on the web page.
import { Axis } from "./axis.js";
import { Band, setClasses } from "./band.js";
import { Charts } from "./charts.js";
import { h, setTheme, show } from "./dom.js";
import { duration } from "./format.js";

const hosts = new Set(); // of all views in this notebook: they have one theme
let views = 0;
const STYLES_HERE = `
:host { display: block; background: none; }
.toolbar { position: static; border: 0; padding: 4px 0; background: none; }
.charts { grid-template-columns: repeat(auto-fill, minmax(min(340px, 100%), 1fr)); }`;

// The text of a notebook is light where its theme is dark, whatever the system's choice is.
function isDark() {
  const around = [...hosts].find((host) => host.isConnected)?.parentElement;
  const [red, green, blue] = (around ? getComputedStyle(around).color.match(/[\d.]+/g) ?? [] : []).map(Number);
  return (red + green + blue) / 3 > 127;
}
setTheme(() => [...hosts].find((host) => host.isConnected) ?? document.documentElement, isDark);

// The address belongs to the notebook.
class NotebookAxis extends Axis {
  write() {}
}

class RunPanel {
  constructor(root, host) {
    this.host = host;
    this.state = null;
    this.head = h("section", { class: "head", "aria-label": "Run" });
    this.toolbar = h("div", { class: "toolbar", role: "toolbar", "aria-label": "Time axis" });
    this.panel = h("div", { class: "panel" });
    this.axis = new NotebookAxis(0, { seconds: [], steps: [] }, new URLSearchParams());
    this.options = { sync: `notebook-${++views}`, stretches: () => this.band.stretches };
    this.band = null;
    this.charts = null;
    this.rest = h("div");
    root.append(h("style", {}, STYLES, STYLES_HERE), this.head, this.rest);
    this.axis.listeners.push(() => { this.showState(); this.band?.draw(); });
  }

  // All of it.
  take(state) {
    const same = this.state && JSON.stringify(state.charts) === JSON.stringify(this.state.charts);
    this.state = state;
    this.host.classList.toggle("dark", isDark());
    this.axis.length = Math.max(state.elapsed_seconds, 1e-3);
    setClasses(state.time_classes);
    if (!this.charts) {
      this.charts = new Charts(this.axis, state.colors, async () => this.state.lines, () => {});
      this.band = new Band(this.axis, state.colors);
      this.showToolbar();
      show(this.rest, this.band.element, this.toolbar, this.panel);
    }
    if (!same) {
      this.charts.clear();
      show(this.panel);
      this.charts.place(this.panel, state.charts, this.options);
    }
    this.charts.reread();
    this.band.element.hidden = !state.ledger;
    this.band.setLedger(state.ledger, state.band);
    this.showHead();
    this.showState();
  }

  // What came since.
  add(tick) {
    if (!this.state) return;
    this.axis.length = Math.max(this.axis.length, tick.elapsed_seconds);
    this.state.figures = tick.figures;
    this.charts.append(tick.points);
    if (!this.axis.zoomed) this.charts.boxes.forEach((box) => box.rescale());
    this.band.draw();
    this.showHead();
  }

  showHead() {
    const { run, figures, in_progress: live, verdict } = this.state;
    show(this.head,
      h("p", {}, h("b", {}, run.name), " ", h("span", { class: `chip ${live ? "live" : run.good ? "good" : "bad"}` }, live ? "running" : run.outcome),
        h("span", { class: "soft" }, ` ${duration(Math.round(this.axis.length))}`), run.gpus ? h("span", { class: "soft" }, ` · ${run.gpus} × ${run.gpu_names.join(", ")}`) : null,
        run.simulated ? h("span", { class: "soft" }, " · simulated GPUs") : null),
      h("dl", { class: "figures" }, figures.map((one) => h("div", {}, h("dt", {}, one.name), h("dd", {}, one.value)))),
      verdict ? h("p", { class: "verdict" }, verdict) : null);
  }

  showToolbar() {
    const button = (name, title, act) => h("button", { type: "button", class: "small", title, onclick: act }, name);
    this.shown = h("span", { class: "state", role: "status" });
    show(this.toolbar, this.shown, button("back", "Previous view (double click)", () => this.axis.back()), button("all", "Whole run", () => this.axis.all()));
  }

  showState() {
    const [start, end] = this.axis.range;
    this.shown.textContent = this.axis.zoomed ? `${this.axis.label(start)} to ${this.axis.label(end)}` : "drag over a chart to zoom";
  }

  stop() {
    this.charts?.clear();
  }
}

export default {
  render({ model, el }) {
    const host = h("div", { class: "pulsetrain" });
    el.append(host);
    hosts.add(host);
    const panel = new RunPanel(host.attachShadow({ mode: "open" }), host);
    const state = () => model.get("state") && panel.take(JSON.parse(model.get("state")));
    const tick = () => model.get("tick") && panel.add(JSON.parse(model.get("tick")));
    model.on("change:state", state);
    model.on("change:tick", tick);
    state();
    return () => {
      model.off("change:state", state);
      model.off("change:tick", tick);
      panel.stop();
      hosts.delete(host);
    };
  },
};
