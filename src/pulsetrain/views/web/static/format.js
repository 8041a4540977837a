// Numbers on axes and in legends. Figures in sentences and tables come from the server as text.

export function plain(value) {
  if (value == null || Number.isNaN(value)) return "-";
  const size = Math.abs(value);
  if (size >= 1e6 || (size < 1e-3 && size > 0)) return value.toExponential(2).replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

export function duration(seconds) {
  const sign = seconds < 0 ? "-" : "";
  let rest = Math.abs(seconds);
  if (rest < 60) return `${sign}${Number(rest.toPrecision(3))} s`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const parts = [];
  rest = Math.round(rest);
  for (const [unit, size] of units) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count} ${unit}`);
  }
  return sign + parts.slice(0, 2).join(" ");
}

// How to write the durations of a column: all with a clock, where one is a minute or more.
export function durations(column) {
  if (!column.some((seconds) => seconds >= 60)) return (seconds) => `${seconds.toFixed(1)} s`;
  return (seconds) => `${Math.floor(Math.round(seconds) / 3600)}:${new Date(1000 * Math.round(seconds)).toISOString().slice(14, 19)}`;
}

export function when(seconds) {
  return new Date(seconds * 1000).toLocaleString("en-CA", { dateStyle: "short", timeStyle: "short", hour12: false });
}

// The time of day, as finely as the stretch around it needs.
export function clock(seconds, span = 0) {
  const moment = new Date(seconds * 1000);
  const time = moment.toLocaleTimeString("en-GB");
  if (span > 2 * 86400) return `${moment.toLocaleDateString("en-CA").slice(5)} ${time.slice(0, 5)}`;
  return span > 600 ? time.slice(0, 5) : time;
}
