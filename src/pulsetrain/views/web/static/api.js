// Questions to the server.

export class Problem extends Error {}

export async function ask(path, parameters = {}, options = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one != null) query.append(name, one);
    }
  }
  const text = query.toString();
  const response = await fetch(`/api/v1${path}${text ? `?${text}` : ""}`, options);
  if (response.status === 401) throw new Problem("The token is missing or has changed: open the link that pulsetrain printed.");
  const found = await response.json();
  if (!response.ok) throw new Problem([found.error, found.hint].filter(Boolean).join(" "));
  return found;
}

let known = null;
// Colors and groups of charts: declared in Python, read once.
export const catalog = () => (known ??= ask("/catalog").catch((error) => { known = null; throw error; }));

export const runPath = (id) => `/runs/${encodeURIComponent(id)}`;
