// The time axis that all charts share: which part of a run is in view, in which unit it is shown, and how it is kept in
// the address. Everything is in elapsed seconds; only what is drawn is translated.

import { clock, duration, plain } from "./format.js";

export const SMOOTHING = [[0, "raw"], [0.01, "smooth 1 %"], [0.03, "smooth 3 %"], [0.1, "smooth 10 %"]];
const MODES = ["relative", "time", "step"];

export class Axis {
  constructor(start, steps, query = new URLSearchParams(location.search)) {
    this.origin = start; // seconds since the epoch
    this.steps = steps; // { seconds, steps }: which step was when
    this.length = 1;
    this.past = []; // views to go back to
    const number = (name) => (query.has(name) && Number.isFinite(Number(query.get(name))) ? Number(query.get(name)) : null);
    this.start = number("start");
    this.end = number("end");
    this.window = number("last"); // seconds that a moving view shows
    this.mode = MODES.includes(query.get("x")) ? query.get("x") : "relative";
    this.smooth = Math.min(0.5, Math.max(0, number("smooth") ?? 0));
    this.log = query.get("log") === "1";
    if (this.mode === "step" && !this.hasSteps) this.mode = "relative";
    this.unit = ""; // where the axis counts something else than seconds: "step", "%"
    this.listeners = [];
  }

  get hasSteps() { return this.steps.seconds.length > 1; }
  get zoomed() { return this.start !== null; }
  // What is shown now: all of it, the last stretch, or a part that stays.
  get range() {
    if (this.zoomed) return [this.start, this.end];
    return this.window ? [Math.max(0, this.length - this.window), this.length] : [0, this.length];
  }

  toX(seconds) {
    if (this.mode === "time") return this.origin + seconds;
    return this.mode === "step" ? between(this.steps.seconds, this.steps.steps, seconds) : seconds;
  }

  toSeconds(x) {
    if (this.mode === "time") return x - this.origin;
    return this.mode === "step" ? between(this.steps.steps, this.steps.seconds, x) : x;
  }

  // A moment in words.
  label(seconds) {
    if (this.unit) return `${plain(seconds)} ${this.unit}`;
    if (this.mode === "time") return clock(this.origin + seconds);
    return this.mode === "step" ? `step ${plain(Math.round(this.toX(seconds)))}` : duration(seconds);
  }

  get xRange() { return this.range.map((seconds) => this.toX(seconds)); }

  zoom(start, end) {
    const least = Math.max(1e-3, this.length * 1e-7);
    if (!(end - start > least)) return;
    this.past.push([this.start, this.end, this.window]);
    this.start = Math.max(0, start);
    this.end = Math.min(Math.max(this.length, start + least), end);
    this.changed(true);
  }

  back() {
    const before = this.past.pop();
    if (!before && !this.zoomed && !this.window) return;
    [this.start, this.end, this.window] = before ?? [null, null, null];
    this.changed(true);
  }

  all() {
    if (!this.zoomed && !this.window) return;
    this.past.push([this.start, this.end, this.window]);
    this.start = this.end = this.window = null;
    this.changed(true);
  }

  last(seconds) {
    this.past.push([this.start, this.end, this.window]);
    this.start = this.end = null;
    this.window = seconds;
    this.changed(true);
  }

  by(factor) {
    const [start, end] = this.range;
    const middle = (start + end) / 2, half = (end - start) * factor / 2;
    if (2 * half >= this.length) this.all();
    else this.zoom(Math.max(0, middle - half), Math.min(this.length, middle + half));
  }

  pan(share) {
    const [start, end] = this.range;
    const width = end - start;
    const moved = Math.min(Math.max(0, start + share * width), Math.max(0, this.length - width));
    if (moved === start && this.zoomed) return;
    this.start = moved;
    this.end = moved + width;
    this.changed(true);
  }

  set(name, value) {
    this[name] = value;
    this.changed(true);
  }

  changed(reread) {
    this.write();
    for (const listener of this.listeners) listener(reread);
  }

  write() {
    const query = new URLSearchParams(location.search);
    const put = (name, value) => (value == null ? query.delete(name) : query.set(name, value));
    const digits = (value) => (value === null ? null : String(Number(value.toPrecision(9))));
    put("start", digits(this.start));
    put("end", digits(this.end));
    put("last", digits(this.window));
    put("x", this.mode === "relative" ? null : this.mode);
    put("smooth", this.smooth || null);
    put("log", this.log ? "1" : null);
    const text = query.toString();
    history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  }
}

// More of the view in the address: values by a name, those of one chart after its key.
export const kept = (name, key = "") => new URLSearchParams(location.search).getAll(name).filter((one) => one.startsWith(key)).map((one) => one.slice(key.length));
export function keep(name, key, values) {
  const query = new URLSearchParams(location.search), others = query.getAll(name).filter((one) => !key || !one.startsWith(key));
  query.delete(name);
  for (const one of [...(key ? others : []), ...values.map((value) => key + value)]) query.append(name, one);
  history.replaceState(null, "", `${location.pathname}?${query}`);
}

export function between(from, to, value) {
  if (from.length < 2) return NaN;
  let low = 0, high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= value) low = middle; else high = middle;
  }
  const width = from[high] - from[low];
  return width > 0 ? to[low] + (to[high] - to[low]) * (value - from[low]) / width : to[low];
}
