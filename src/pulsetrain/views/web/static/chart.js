// One chart: lines over the shared axis, their legend with the numbers under the cursor, and a summary in words.
/* global uPlot */
import { button, css, download, h, isDark, show, soft, swatch } from "./dom.js";
import { keep, kept } from "./axis.js";
import { clock, duration, plain } from "./format.js";

const isWall = () => innerWidth >= 3000;
const plotHeight = () => (isWall() ? 290 : 170);
const MANY_LINES = 8; // beyond these, rows of heat are easier to read
const STEPS = [1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800,
  21600, 43200, 86400, 172800, 432000, 864000, 2592000];

export function lineColors(count, colors) {
  const own = isDark() ? colors.dark : colors.light;
  if (count <= own.length) return own.slice(0, count);
  return Array.from({ length: count }, (_, place) => `hsl(${Math.round(260 - 200 * place / (count - 1))} 62% ${isDark() ? 62 : 42}%)`);
}

const faint = (color, share) => `color-mix(in srgb, ${color} ${Math.round(100 * share)}%, transparent)`;

export class ChartBox {
  constructor(about, axis, colors, options = {}) {
    this.about = about;
    this.axis = axis;
    this.colors = colors;
    this.options = options;
    this.lines = [];
    this.hidden = new Set(kept("hide", `${about.key}/`)); // lines, by their labels
    this.dirty = true;
    this.visible = false;
    this.heat = null; // decided when the lines are known
    this.plot = null;
    const unit = about.unit ? h("span", { class: "unit" }, about.unit) : null;
    this.legend = h("ul", { class: "legend" });
    this.canvas = h("div", { class: "plot", role: "img", "aria-label": about.title });
    this.summary = h("p", { class: "unseen" });
    this.mode = button({ class: "small", hidden: true, onclick: () => this.toggleHeat() }, "rows");
    const tools = h("span", { class: "tools" }, this.mode,
      button({ class: "small", title: "Save as PNG", onclick: () => this.png() }, "PNG"),
      options.csv ? h("a", { class: "small", href: "#", title: "All readings in view as CSV", onclick: (event) => this.csv(event) }, "CSV") : null);
    this.element = h("figure", { class: "chart", "data-chart": about.key },
      h("figcaption", { title: about.help || null }, h("span", { class: "name" }, about.title), unit, tools),
      this.canvas, this.legend, this.summary);
  }

  get width() { return Math.max(120, this.canvas.clientWidth); }
  get points() { return Math.min(2000, Math.round((this.width - 56) * Math.min(2, devicePixelRatio))); }

  setLines(lines) {
    let x = [];
    for (const line of lines) { x = line.x ??= x; line.last ??= []; }
    this.lines = lines;
    this.dirty = false;
    if (this.heat === null && lines.length > MANY_LINES && this.about.kind !== "stack") this.heat = true;
    this.mode.hidden = lines.length <= 3 || this.about.kind === "stack";
    this.mode.textContent = this.heat ? "lines" : "rows";
    this.draw();
  }

  // What came since. Lines that share their times grow together; what does not fit is read again.
  append(points) {
    if (!this.lines.length || points.length !== this.lines.length) { this.dirty = true; return; }
    const fresh = new Map(); // by the times of a group of lines: which of the points are new
    for (const [place, line] of this.lines.entries()) {
      const { x, last } = points[place];
      if (!fresh.has(line.x)) {
        const newest = line.x.length ? line.x.at(-1) : -Infinity;
        fresh.set(line.x, x.map((one, index) => index).filter((index) => x[index] > newest));
        for (const index of fresh.get(line.x)) line.x.push(x[index]);
      }
      for (const index of fresh.get(line.x)) {
        const value = last[index] ?? null;
        line.last.push(value);
        line.low?.push(value);
        line.high?.push(value);
        line.smooth?.push(value);
      }
    }
    this.draw();
  }

  toggleHeat() {
    this.heat = !this.heat;
    this.mode.textContent = this.heat ? "lines" : "rows";
    this.draw();
  }

  draw() {
    if (!this.visible) return;
    this.strokes = lineColors(this.lines.length, this.colors);
    if (this.heat || !this.lines.length) {
      this.plot?.destroy();
      this.plot = null;
      show(this.legend);
      if (this.heat) drawHeat(this); else show(this.canvas, soft("no data"));
      this.describe();
      return;
    }
    const { data, series, bands } = this.about.kind === "stack" ? this.stacked() : this.layered();
    this.data = data;
    const { mode, log, unit } = this.axis;
    const form = JSON.stringify([this.lines.map((line) => line.label), series.length, [...this.hidden], mode, log, unit]);
    if (this.plot && this.form === form) this.plot.setData(data); // the cursor stays where it is
    else {
      this.form = form;
      this.plot?.destroy();
      show(this.canvas);
      this.plot = new uPlot(this.plotOptions(series, bands), data, this.canvas);
      this.drawLegend();
    }
    this.showValues(this.plot.cursor.idx);
    this.describe();
  }

  // Series for uPlot: for each line its raw course, the smoothed one above, and the band from least to most.
  layered() {
    const series = [{}], bands = [], tables = [];
    const log = this.axis.log;
    const fit = (values) => (log ? values.map((value) => (value > 0 ? value : null)) : values);
    this.places = [];
    for (const [place, line] of this.lines.entries()) {
      const color = this.strokes[place];
      const shown = !this.hidden.has(line.label);
      const columns = [fit(line.last)];
      const smooth = line.smooth?.length === line.last.length ? fit(line.smooth) : null;
      this.places.push(series.length);
      series.push({ show: shown, stroke: smooth ? faint(color, 0.35) : color, width: smooth ? 1 : 1.25, points: { show: line.x.length < 3 },
        paths: this.about.kind === "steps" ? uPlot.paths.stepped({ align: 1 }) : undefined });
      if (smooth) { columns.push(smooth); series.push({ show: shown, stroke: color, width: 2, points: { show: false } }); }
      if (line.low) {
        columns.push(fit(line.high), fit(line.low));
        bands.push({ series: [series.length, series.length + 1], fill: faint(color, 0.18) });
        series.push({ show: shown, stroke: null, width: 0, points: { show: false } }, { show: shown, stroke: null, width: 0, points: { show: false } });
      }
      tables.push([line.x.map((x) => this.axis.toX(x)), ...columns]);
    }
    return { data: tables.length === 1 ? tables[0] : uPlot.join(tables), series, bands };
  }

  stacked() {
    const x = this.lines[0].x;
    const series = [{}], bands = [], data = [x.map((one) => this.axis.toX(one))];
    const sums = x.map(() => 0);
    this.places = [];
    for (const [place, line] of this.lines.entries()) {
      const shown = !this.hidden.has(line.label);
      data.push(x.map((_, index) => {
        if (this.lines[0].last[index] === null) return null;
        sums[index] += shown ? line.last[index] ?? 0 : 0;
        return sums[index];
      }));
      this.places.push(series.length);
      series.push({ stroke: this.strokes[place], width: 0.5, fill: place ? undefined : faint(this.strokes[place], 0.75), points: { show: false } });
      if (place) bands.push({ series: [place + 1, place], fill: faint(this.strokes[place], 0.75) });
    }
    return { data, series, bands };
  }

  plotOptions(series, bands) {
    const { axis, about } = this;
    const ink = css("--soft"), rule = css("--rule");
    const time = axis.mode === "time";
    const counted = axis.mode === "step" || axis.unit;
    const labels = (u, splits) => splits.map((value) => (counted ? plain(value) : duration(value)));
    const font = `${isWall() ? 15 : 11}px system-ui, sans-serif`;
    return {
      width: this.width,
      height: this.options.height ?? plotHeight(),
      legend: { show: false },
      padding: [8, 16, 0, 0],
      scales: {
        x: { time, range: () => axis.xRange },
        y: axis.log && about.kind !== "stack" ? { distr: 3 } : { range: (u, low, high) => this.yRange(low, high) },
      },
      axes: [
        { stroke: ink, font, grid: { show: false }, ticks: { stroke: rule, size: 4 }, size: 28, space: 80,
          values: time ? (u, splits) => splits.map((value) => clock(value, axis.range[1] - axis.range[0])) : labels, ...(time || counted ? {} : { incrs: STEPS }) },
        { stroke: ink, font, grid: { stroke: rule, width: 1 }, ticks: { show: false }, size: isWall() ? 76 : 52, space: 34,
          values: (u, splits) => splits.map((value) => (value === null ? "" : plain(value))) },
      ],
      series,
      bands,
      cursor: {
        y: false,
        // The cursor is everywhere, but the chart that is dragged over zooms all: else each would zoom again.
        sync: { key: this.options.sync ?? "run", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        drag: { x: true, y: false, setScale: false },
        points: { size: 5 },
        bind: { dblclick: () => () => { axis.back(); return null; } },
      },
      hooks: {
        setCursor: [(u) => this.showValues(u.cursor.idx)],
        setSelect: [(u) => {
          if (u.select.width > 4) {
            const ends = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")].map((x) => axis.toSeconds(x));
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            (this.options.marking?.() ? this.options.mark : (a, b) => axis.zoom(a, b))(...ends);
          }
        }],
        draw: [(u) => this.drawMarks(u)],
      },
    };
  }

  yRange(low, high) {
    const { zero, top } = this.about;
    if (low == null) return [0, top ?? 1];
    let from = zero && low >= 0 ? 0 : low, to = Math.max(high, top ?? -Infinity);
    if (this.about.key === "step_time" || this.about.key === "step_seconds") to = Math.min(to, this.usualTop() ?? to);
    const room = (to - from || Math.abs(to) || 1) * 0.05;
    return [zero && low >= 0 ? 0 : from - room, top != null && to === top ? top * 1.02 : to + room];
  }

  // A few slow steps would make all others flat.
  usualTop() {
    const sums = this.data?.[this.places.at(-1)]?.filter((value) => value !== null).sort((a, b) => a - b);
    if (!sums?.length) return null;
    const usual = sums[Math.floor(0.95 * (sums.length - 1))];
    return sums.at(-1) > 3 * usual ? 2 * usual : null;
  }

  drawMarks(u) {
    const marks = this.options.marks?.() ?? [];
    const { ctx, bbox } = u;
    ctx.save();
    // A class of time is chosen: what is outside of its stretches fades.
    const stretches = this.options.stretches?.() ?? [];
    ctx.fillStyle = css("--page");
    ctx.globalAlpha = 0.8;
    let from = bbox.left;
    for (const [start, end] of stretches.length ? [...stretches, [Infinity, Infinity]] : []) {
      const [left, right] = [start, end].map((seconds) => Math.min(bbox.left + bbox.width, Math.max(bbox.left, seconds === Infinity ? seconds : u.valToPos(this.axis.toX(seconds), "x", true))));
      if (left > from) ctx.fillRect(from, bbox.top, left - from, bbox.height);
      from = right;
    }
    for (const mark of marks) {
      const x = u.valToPos(this.axis.toX(mark.seconds), "x", true);
      if (mark.until) { // a phase: a bar along the top
        const left = Math.max(x, bbox.left), right = Math.min(u.valToPos(this.axis.toX(mark.until), "x", true), bbox.left + bbox.width);
        ctx.globalAlpha = 0.8;
        ctx.fillStyle = css("--soft");
        if (right >= left) ctx.fillRect(left, bbox.top, Math.max(devicePixelRatio, right - left), 3 * devicePixelRatio);
        if (ctx.measureText(mark.message).width < right - left) ctx.fillText(mark.message, left + 2, bbox.top + 14 * devicePixelRatio);
        continue;
      }
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = css(mark.severity === "critical" ? "--bad" : mark.severity === "warning" ? "--warn" : "--soft");
      ctx.globalAlpha = mark.severity === "info" ? 0.3 : 0.7;
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  drawLegend() {
    this.values = this.lines.map(() => h("b", {}));
    show(this.legend, this.lines.map((line, place) => h("li", {},
      button({
        class: "key", "aria-pressed": String(!this.hidden.has(line.label)),
        onclick: () => { if (!this.hidden.delete(line.label)) this.hidden.add(line.label); keep("hide", `${this.about.key}/`, [...this.hidden]); this.draw(); },
      }, swatch(this.strokes[place]), line.label), this.values[place])));
    this.showValues(null);
  }

  showValues(index) {
    if (!this.values || !this.plot) return;
    for (const [place, line] of this.lines.entries()) {
      let value = line.last.at(-1);
      if (index != null) {
        const column = this.about.kind === "stack" ? line.last : this.data[this.places[place]];
        value = column[index];
        for (let near = index - 1; (value == null) && near >= 0 && near > index - 50; near--) value = column[near];
      }
      this.values[place].textContent = plain(value);
    }
  }

  // For who cannot see the drawing.
  describe() {
    const unit = this.about.unit ? ` ${this.about.unit}` : "";
    const parts = this.lines.slice(0, 16).map((line) => {
      const known = line.last.filter((value) => value != null);
      if (!known.length) return `${line.label}: no data`;
      const low = (line.low ?? known).reduce((a, b) => (b !== null && b < a ? b : a), Infinity);
      const high = (line.high ?? known).reduce((a, b) => (b !== null && b > a ? b : a), -Infinity);
      return `${line.label}: last ${plain(known.at(-1))}${unit}, from ${plain(low)} to ${plain(high)}${unit}`;
    });
    const [start, end] = this.axis.range;
    this.summary.textContent = `${this.about.title}, ${this.axis.label(start)} to ${this.axis.label(end)}. ${parts.join("; ")}.`;
    this.canvas.setAttribute("aria-label", this.summary.textContent);
  }

  resize() {
    if (this.heat) this.draw();
    else this.plot?.setSize({ width: this.width, height: this.options.height ?? plotHeight() });
  }

  // At once, with the readings that are here; finer ones follow.
  rescale() {
    if (this.heat) { if (this.visible) this.draw(); return; }
    this.plot?.setData(this.data);
  }

  png() {
    const drawn = this.canvas.querySelector("canvas");
    if (!drawn) return;
    const scale = devicePixelRatio, head = 30 * scale;
    const picture = h("canvas", { width: drawn.width, height: drawn.height + 2 * head });
    const context = picture.getContext("2d");
    context.fillStyle = css("--page");
    context.fillRect(0, 0, picture.width, picture.height);
    context.drawImage(drawn, 0, head);
    context.fillStyle = css("--ink");
    context.font = `600 ${13 * scale}px system-ui, sans-serif`;
    context.fillText(`${this.about.title}${this.about.unit ? ` (${this.about.unit})` : ""}`, 10 * scale, 20 * scale);
    context.font = `${11 * scale}px system-ui, sans-serif`;
    let left = 10 * scale;
    for (const [place, line] of this.heat ? [] : [...this.lines.entries()]) {
      context.fillStyle = this.strokes[place];
      context.fillRect(left, drawn.height + 1.35 * head, 10 * scale, 3 * scale);
      context.fillStyle = css("--ink");
      context.fillText(line.label, left + 14 * scale, drawn.height + 1.5 * head);
      left += 28 * scale + context.measureText(line.label).width;
    }
    picture.toBlob((blob) => download(blob, `${this.about.key.replace(/[^\w.-]+/g, "-")}.png`));
  }

  csv(event) {
    const [start, end] = this.axis.range;
    const query = new URLSearchParams({ chart: this.about.key, start, end });
    event.currentTarget.href = `/api/v1${this.options.csv}?${query}`;
  }
}

// Many GPUs: a row for each, time from left to right, the stronger the more.
function drawHeat(box) {
  const { lines, axis, about } = box;
  const row = lines.length > 24 ? 8 : 14, left = 56;
  const width = box.width, height = row * lines.length + 22;
  const ratio = devicePixelRatio;
  const canvas = h("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio), class: "heat" });
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const known = lines.flatMap((line) => [...(line.high ?? line.last), ...(line.low ?? [])]).filter((value) => value != null);
  const least = about.zero ? 0 : known.reduce((a, b) => Math.min(a, b), Infinity);
  const most = Math.max(about.top ?? -Infinity, known.reduce((a, b) => Math.max(a, b), -Infinity));
  const [from, to] = axis.xRange;
  const place = (x) => Math.round(left + (width - left - 8) * (axis.toX(x) - from) / (to - from || 1));
  const base = box.colors[isDark() ? "dark" : "light"][0];
  context.font = "10px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const [number, line] of lines.entries()) {
    context.fillStyle = css("--soft");
    if (row > 10 || number % 2 === 0) context.fillText(line.label.slice(-9), 2, number * row + row / 2);
    for (const [index, x] of line.x.entries()) {
      const value = line.last[index];
      if (value == null) continue;
      const begin = Math.max(left, place(x)), end = Math.min(width - 8, index + 1 < line.x.length ? place(line.x[index + 1]) : place(x) + 2);
      if (end <= left || begin >= width - 8) continue;
      context.globalAlpha = 0.06 + 0.94 * Math.max(0, Math.min(1, (value - least) / (most - least || 1)));
      context.fillStyle = base;
      context.fillRect(begin, number * row + 1, Math.max(1, end - begin), row - 2);
      context.globalAlpha = 1;
    }
  }
  context.fillStyle = css("--soft");
  context.fillText(`${plain(least)} (faint) to ${plain(most)} ${about.unit} (strong)`, left, height - 10);
  canvas.addEventListener("mousemove", (event) => {
    const bounds = canvas.getBoundingClientRect();
    const line = lines[Math.floor((event.clientY - bounds.top) / row)];
    const x = axis.toSeconds(from + (to - from) * (event.clientX - bounds.left - left) / (width - left - 8));
    if (!line) return;
    let index = line.x.findIndex((one) => one > x) - 1;
    if (index < 0) index = line.x.length - 1;
    canvas.title = `${line.label}: ${plain(line.last[index])} ${about.unit} at ${duration(line.x[index])}`;
  });
  show(box.canvas, canvas);
}
