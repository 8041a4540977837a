// This machine and others in view, as they are now and were in the last minutes.
import { ask, catalog } from "./api.js";
import { Axis, keep } from "./axis.js";
import { ChartBox } from "./chart.js";
import { choice, h, pairs, section, show, table } from "./dom.js";

const PERIOD_MILLISECONDS = 2000;
const WINDOWS = [[120, "last 2 min"], [900, "last 15 min"], [7200, "last 2 h"], [86400, "last day"]];

export async function open(page) {
  document.title = "Machine · pulsetrain";
  const { colors, fleet: hasFleet } = await catalog();
  const query = new URLSearchParams(location.search);
  let seconds = WINDOWS.some(([one]) => String(one) === query.get("seconds")) ? Number(query.get("seconds")) : 900;
  let stopped = false;
  const parts = new Map();
  const picker = choice("Window", WINDOWS, seconds, (value) => {
    seconds = Number(value);
    keep("seconds", "", [value]);
    refresh();
  });
  const body = h("div", {});
  const fleet = hasFleet ? new (await import("./fleet.js")).FleetPart(colors) : null;
  if (fleet) body.append(fleet.element);
  show(page, h("div", { class: "bar" }, h("h1", {}, "Machine"), picker), body);

  async function refresh() {
    const [machines] = await Promise.all([ask("/machine", { seconds }), fleet?.refresh(seconds)]);
    if (stopped) return;
    if (!machines.length && !fleet) { show(body, h("p", {}, "This server shows runs only.")); return; }
    for (const machine of machines) {
      if (!parts.has(machine.title)) { parts.set(machine.title, new MachinePart(machine, colors)); body.append(parts.get(machine.title).element); }
      parts.get(machine.title).update(machine);
    }
  }

  await refresh();
  const timer = setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, PERIOD_MILLISECONDS);
  return () => { stopped = true; clearInterval(timer); for (const part of parts.values()) part.clear(); fleet?.clear(); };
}

// Charts of the last so many seconds, whose lines come whole each time.
export class LastCharts {
  constructor(colors, sync) {
    Object.assign(this, { colors, sync, boxes: new Map(), element: h("div", { class: "charts" }) });
    this.axis = new Axis(0, { seconds: [], steps: [] });
    this.axis.mode = "time";
    this.axis.start = 0;
  }

  update({ time, seconds, charts }, heat = null) {
    this.axis.origin = time - seconds;
    this.axis.end = this.axis.length = seconds;
    for (const key of this.boxes.keys()) if (!charts.some((chart) => chart.key === key)) this.remove(key);
    for (const chart of charts) {
      let box = this.boxes.get(chart.key);
      if (!box) {
        box = new ChartBox(chart, this.axis, this.colors, { sync: this.sync, height: 140 });
        box.visible = true;
        box.heat = heat;
        this.boxes.set(chart.key, box);
        this.element.append(box.element);
      }
      const x = chart.lines[0].last.map((_, index, all) => (index + 0.5) * seconds / all.length);
      box.setLines(chart.lines.map((line) => ({ ...line, x })));
    }
  }

  remove(key) {
    this.boxes.get(key).plot?.destroy();
    this.boxes.get(key).element.remove();
    this.boxes.delete(key);
  }

  clear() {
    for (const key of this.boxes.keys()) this.remove(key);
  }
}

class MachinePart {
  constructor(machine, colors) {
    this.figures = h("div", {});
    this.gpus = h("div", { class: "gpus" });
    this.charts = new LastCharts(colors, "machine");
    this.rest = h("div", {});
    this.element = h("section", { class: "machine" }, h("h2", {}, machine.title), this.figures, this.gpus, this.charts.element, this.rest);
  }

  clear() {
    this.charts.clear();
  }

  update(machine) {
    show(this.figures, pairs(Object.entries(machine.host), "figures"));
    show(this.gpus, machine.gpus.map((gpu) => h("article", { class: "gpu" }, h("h3", {}, gpu.name),
      meter("utilization", gpu.utilization, gpu.utilization_text), meter("memory", gpu.memory_percent, gpu.memory), h("p", { class: "soft" }, [gpu.power, gpu.temperature].filter((text) => text !== "-").join(" · ")))));
    if (machine.time !== null) this.charts.update(machine);
    const processes = machine.processes.map((one) => [String(one.pid), one.user ?? "", one.gpu_index === null ? "" : String(one.gpu_index), one.gpu_memory, one.cpu, one.memory, one.command ?? ""]);
    show(this.rest,
      processes.length ? section("Processes", table(["pid", "user", "GPU", "GPU memory", "cores", "memory", "command"], processes, "rlrrrrl", "Processes")) : null,
      machine.events.length ? section("Events", table(["when", "severity", "what happened"], machine.events.slice(0, 50).map((event) => [new Date(event.seconds * 1000).toLocaleTimeString("en-GB"), event.severity, event.message]), "lll", "Events")) : null);
  }
}

function meter(name, percent, text) {
  return h("div", { class: "meter" }, h("span", {}, name), h("meter", { min: "0", max: "100", value: String(percent ?? 0), "aria-label": name }), h("b", {}, text));
}
