// All charts of a page: those in view are read, together, and again when the axis moves.
import { ChartBox } from "./chart.js";
import { h } from "./dom.js";

const SETTLE_MILLISECONDS = 60;

export class Charts {
  // `read(keys, points)` gives the lines of these charts by key.
  constructor(axis, colors, read, failed) {
    this.axis = axis;
    this.colors = colors;
    this.read = read;
    this.failed = failed;
    this.boxes = new Map();
    this.reading = null;
    this.timer = 0;
    this.seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const box = this.boxes.get(target.dataset.chart);
        if (!box) continue;
        const shown = isIntersecting && !box.visible;
        box.visible = isIntersecting;
        if (shown && !box.dirty) box.draw();
      }
      this.settle(0);
    }, { rootMargin: "200px" });
    this.sized = new ResizeObserver((entries) => {
      for (const { target } of entries) {
        const box = this.boxes.get(target.closest("figure")?.dataset.chart);
        if (box && box.drawnWidth !== box.width) { box.drawnWidth = box.width; box.resize(); }
      }
    });
    let drawnAs = "";
    axis.listeners.push((reread) => {
      const drawAs = `${axis.mode} ${axis.log}`;
      for (const box of this.boxes.values()) {
        if (drawAs === drawnAs) box.rescale(); else box.draw();
        if (reread) box.dirty = true;
      }
      drawnAs = drawAs;
      if (reread) this.settle();
    });
  }

  // Figures for these charts, kept from before where they are the same.
  place(container, charts, options = {}) {
    const figures = charts.map((about) => {
      let box = this.boxes.get(about.key);
      if (!box) {
        box = new ChartBox(about, this.axis, this.colors, options);
        this.boxes.set(about.key, box);
        this.seen.observe(box.element);
        this.sized.observe(box.canvas);
      }
      return box.element;
    });
    container.append(h("div", { class: "charts" }, figures));
  }

  clear() {
    for (const box of this.boxes.values()) { this.seen.unobserve(box.element); box.plot?.destroy(); }
    this.boxes.clear();
    this.sized.disconnect();
  }

  settle(milliseconds = SETTLE_MILLISECONDS) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), milliseconds);
  }

  reread() {
    for (const box of this.boxes.values()) box.dirty = true;
    this.settle(0);
  }

  async load() {
    const wanted = [...this.boxes.values()].filter((box) => box.visible && box.dirty);
    if (!wanted.length) return;
    this.reading?.abort();
    const reading = this.reading = new AbortController();
    for (const box of wanted) box.element.setAttribute("aria-busy", "true");
    try {
      const points = Math.max(...wanted.map((box) => box.points));
      const found = await this.read(wanted.map((box) => box.about.key), points, reading.signal);
      for (const box of wanted) if (found[box.about.key]) box.setLines(found[box.about.key]);
      this.failed(null);
    } catch (error) {
      if (error.name !== "AbortError") { this.failed(error); setTimeout(() => this.settle(), 2000); }
    } finally {
      for (const box of wanted) box.element.removeAttribute("aria-busy");
    }
  }

  append(points) {
    for (const [key, lines] of Object.entries(points)) this.boxes.get(key)?.append(lines);
  }
}
