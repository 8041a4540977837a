// A fleet, from a Prometheus-compatible server: its nodes as a heat map, GPUs that are held and idle, its runs.
import { ask } from "./api.js";
import { button, css, h, section, show, soft, table } from "./dom.js";
import { LastCharts } from "./machine.js";
import { go } from "./main.js";

export class FleetPart {
  constructor(colors) {
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.nodes = h("div", { class: "nodes" });
    this.charts = new LastCharts(colors, "fleet");
    this.rest = h("div", {});
    this.title = h("h2", {}, "Fleet");
    this.element = h("section", { class: "machine" }, this.title, this.problem, this.nodes, this.charts.element, this.rest);
  }

  async refresh(seconds) {
    const host = new URLSearchParams(location.search).get("host") ?? "";
    const found = await ask("/fleet", { seconds: Math.max(60, seconds), host });
    this.problem.hidden = !found.problem;
    this.problem.textContent = found.problem ? `${found.problem} Data below is missing or old.` : "";
    if (found.problem) return;
    const all = found.host ? button({ class: "small", onclick: () => go(`/machine?seconds=${seconds}`) }, "all nodes") : null;
    show(this.title, found.host ? `${found.host}, at ${found.server} ` : `Fleet at ${found.server} `, all);
    show(this.nodes, found.nodes.length ? found.nodes.map((node) => this.node(node, seconds)) : soft("No node seen in the last hour. pulsetrain must push there, or be scraped."));
    this.charts.update(found, found.host ? null : true);
    const runs = found.runs.map((run) => [run.name, run.hosts.join(", "), run.took, run.progress, run.left, run.step_time, run.loss, run.idle, run.cost, run.alerts.map((alert) => alert.name).join(", ")]);
    const idle = found.idle.map((one) => [one.host, one.gpu, one.user, one.idle, one.cost, one.memory, one.run, one.command]);
    const part = (title, rows, head, align, none) => section(title, rows.length ? table(head, rows, align, title) : soft(none));
    show(this.rest, found.host ? null : [
      part("Idle but held", idle, ["node", "GPU", "user", "idle for", "cost", "memory", "run", "command"], "lrlrrrll", "No held GPU has been idle for 5 minutes."),
      part("Training", runs, ["run", "nodes", "time", "done", "left", "step time", "loss", "GPUs idle", "cost", "alerts"], "llrrrrrrrl", "No run is in progress.")]);
  }

  node(node, seconds) {
    const cells = node.gpus.map((gpu) => {
      const share = (gpu.utilization ?? 0) / 100;
      const cell = h("span", { class: gpu.lost ? "cell bad" : "cell", title: `GPU ${gpu.gpu} ${gpu.name}: ${gpu.lost ? "lost" : gpu.text || "away"}` }, gpu.lost ? "lost" : gpu.utilization === null ? "-" : String(Math.round(gpu.utilization)));
      if (!gpu.lost && gpu.utilization !== null) cell.style.background = `color-mix(in srgb, ${css("--live")} ${Math.round(8 + 42 * share)}%, transparent)`;
      return cell;
    });
    return h("div", { class: node.away ? "node away" : "node" },
      h("a", { href: `/machine?${new URLSearchParams({ seconds, host: node.host })}` }, node.host), node.away ? h("span", { class: "soft" }, `not seen for ${node.away}`) : h("span", { class: "cells" }, cells));
  }

  clear() {
    this.charts.clear();
  }
}
