// One stream of the server for all tabs: a browser has six connections to a server, and a seventh tab would hang.
// A tab that can be seen holds a lock and the stream, and passes messages on to the others; hidden tabs hold none.
// Where there are no locks (plain http from elsewhere), every tab that can be seen has a stream of its own.

const KINDS = ["tick", "charts", "ended", "reset", "hello"];
const channel = "BroadcastChannel" in window ? new BroadcastChannel("pulsetrain") : null;

let wanted = new Set(); // our own topics
let listener = () => {};
let others = new Map(); // topics of other tabs, by tab
let source = null;
let release = null;
let lastId = null;
const tab = Math.random().toString(36).slice(2);

export function follow(topics, heard) {
  wanted = new Set(topics);
  listener = heard;
  announce();
  if (source) restart();
  else if (!document.hidden) acquire();
}

function announce() {
  channel?.postMessage({ tab, topics: document.hidden ? [] : [...wanted] });
}

function deliver(kind, data, topic) {
  if (kind === "reset" || wanted.has(topic)) listener(kind, data);
}

channel?.addEventListener("message", ({ data }) => {
  if (data.kind) deliver(data.kind, data.data, data.topic);
  if (data.connection !== undefined) document.getElementById("connection").textContent = data.connection;
  if (!data.tab) return;
  const before = JSON.stringify([...(others.get(data.tab) ?? [])]);
  others.set(data.tab, data.topics);
  if (source && before !== JSON.stringify(data.topics)) restart();
  if (data.hello && !document.hidden) announce();
});

// Shown in all tabs, whichever holds the stream.
function tell(connection) {
  document.getElementById("connection").textContent = connection;
  channel?.postMessage({ connection });
}

function allTopics() {
  return [...new Set([...wanted, ...[...others.values()].flat()])].sort();
}

function acquire() {
  if (release) return;
  if (!navigator.locks) { restart(); release = () => {}; return; }
  const giveUp = new AbortController();
  release = () => giveUp.abort();
  navigator.locks.request("pulsetrain-stream", { signal: giveUp.signal }, () => new Promise((done) => {
    release = done;
    channel?.postMessage({ tab, topics: [...wanted], hello: true });
    restart();
  })).catch(() => {});
}

function restart() {
  source?.close();
  source = null;
  const topics = allTopics();
  if (!topics.length) { tell(""); return; }
  const query = new URLSearchParams(topics.map((topic) => ["topic", topic]));
  if (lastId) query.append("since", lastId);
  const opened = source = new EventSource(`/api/v1/stream?${query}`);
  opened.onopen = () => tell("");
  opened.onerror = () => {
    tell("disconnected, retrying");
    if (opened.readyState === EventSource.CLOSED && source === opened) setTimeout(() => source === opened && restart(), 2000);
  };
  for (const kind of KINDS) {
    opened.addEventListener(kind, (event) => {
      lastId = event.lastEventId || lastId;
      if (kind === "hello") return;
      const data = JSON.parse(event.data);
      const topic = data.run ? `run:${data.run}` : "";
      channel?.postMessage({ kind, data, topic });
      deliver(kind, data, topic);
    });
  }
}

function stop() {
  source?.close();
  source = null;
  release?.();
  release = null;
}

document.addEventListener("visibilitychange", () => {
  announce();
  if (document.hidden) stop();
  else if (wanted.size) { acquire(); listener("shown", {}); }
});
addEventListener("pagehide", () => { channel?.postMessage({ tab, topics: [] }); stop(); });
