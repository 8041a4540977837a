// Where the time went, over the whole run: a band of classes, and the part of the run that the charts show.
import { keep, kept } from "./axis.js";
import { button, css, h, isDark, show, swatch } from "./dom.js";
import { duration } from "./format.js";

const HEIGHT = 34;
const OF_CLASS = 0.3; // a part of the run with at least this share of a class belongs to it

export class Band {
  constructor(axis, colors) {
    this.axis = axis;
    this.colors = colors;
    this.ledger = null;
    this.band = null;
    [this.chosen = null] = kept("class");
    this.stretches = [];
    this.canvas = h("canvas", { class: "band", role: "img", "aria-label": "The whole run; drag to zoom" });
    this.legend = h("ul", { class: "legend" });
    this.element = h("section", { class: "ledger", "aria-label": "Where the time went" }, this.canvas, this.legend);
    let from = null;
    const at = (event) => {
      const bounds = this.canvas.getBoundingClientRect();
      return this.axis.length * Math.min(1, Math.max(0, (event.clientX - bounds.left) / bounds.width));
    };
    this.canvas.addEventListener("pointerdown", (event) => { from = at(event); this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const to = at(event);
      if (Math.abs(to - from) > this.axis.length / 200) this.axis.zoom(Math.min(from, to), Math.max(from, to));
      from = null;
    });
    this.canvas.addEventListener("dblclick", () => this.axis.all());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  setLedger(ledger, band) {
    this.ledger = ledger;
    this.band = band;
    this.find();
    show(this.legend, ledger ? Object.entries(ledger.classes).map(([name, own]) => h("li", {},
      button({ class: "key", "aria-pressed": String(this.chosen === name), title: `${duration(own.seconds)}: show it alone`, onclick: () => this.choose(name) }, swatch(classColor(name)), words(name)),
      h("b", {}, share(own.share)))) : []);
    this.draw();
  }

  choose(name) {
    this.chosen = this.chosen === name ? null : name;
    keep("class", "", this.chosen ? [name] : []);
    this.setLedger(this.ledger, this.band);
    this.axis.changed(false);
  }

  // The stretches of the run in which the chosen class has its time.
  find() {
    const shares = (this.chosen && this.band?.[this.chosen]) || [];
    const width = this.axis.length / (shares.length || 1);
    this.stretches = [];
    for (const [place, own] of shares.entries()) {
      if (own < OF_CLASS) continue;
      const before = this.stretches.at(-1);
      if (before && before[1] >= place * width - 1e-9) before[1] = (place + 1) * width;
      else this.stretches.push([place * width, (place + 1) * width]);
    }
  }

  draw() {
    const width = this.element.clientWidth, ratio = devicePixelRatio;
    if (!width) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = HEIGHT * ratio;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = css("--panel");
    context.fillRect(0, 0, width, HEIGHT);
    const x = (seconds) => width * seconds / this.axis.length;
    const sums = [];
    for (const [name, shares] of Object.entries(this.band ?? {})) {
      context.fillStyle = classColor(name);
      context.globalAlpha = this.chosen && this.chosen !== name ? 0.25 : 1;
      const part = width / shares.length;
      for (const [place, own] of shares.entries()) {
        const below = sums[place] ?? 0;
        if (own > 0) context.fillRect(place * part, (HEIGHT - 4) * (1 - below - own) + 2, part + 0.5, (HEIGHT - 4) * own);
        sums[place] = below + own;
      }
    }
    context.globalAlpha = 1;
    const [start, end] = this.axis.range;
    context.fillStyle = isDark() ? "rgb(0 0 0 / 55%)" : "rgb(255 255 255 / 65%)";
    context.fillRect(0, 0, x(start), HEIGHT);
    context.fillRect(x(end), 0, width - x(end), HEIGHT);
    context.strokeStyle = css("--ink");
    context.strokeRect(x(start) + 0.5, 0.5, Math.max(2, x(end) - x(start) - 1), HEIGHT - 1);
    this.canvas.setAttribute("aria-label", `The whole run, ${duration(this.axis.length)}; showing ${duration(start)} to ${duration(end)}. Drag to zoom.`);
  }
}

// The classes as shares of one bar, for a comparison.
export function bar(ledger) {
  const element = h("div", { class: "shares", role: "img", "aria-label": Object.entries(ledger.classes).map(([name, own]) => `${words(name)} ${share(own.share)}`).join(", ") });
  for (const [name, own] of Object.entries(ledger.classes)) {
    const part = h("span", { title: `${words(name)} ${share(own.share)}, ${duration(own.seconds)}` });
    part.style.width = `${100 * own.share}%`;
    part.style.background = classColor(name);
    element.append(part);
  }
  return element;
}

let classes = new Map();
// As the server declares them: the classes of time, what they are called, and their colors.
export function setClasses(declared) {
  classes = new Map(declared.map((one) => [one.key, one]));
}

const words = (name) => classes.get(name)?.title ?? name;
const classColor = (name) => classes.get(name)?.[isDark() ? "dark" : "light"] ?? css("--soft");
const share = (value) => (value < 0.005 ? "< 1 %" : `${Math.round(100 * value)} %`);
