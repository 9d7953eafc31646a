// Half-typed text and half-made edits, kept in this browser until they are sent: a reload, a look at another thread, or
// an edit that is refused loses none of them.

const PREFIX = "donewhen-draft:";
const MOST = 60;

export function draft(key) {
  return entry(key)?.value ?? null;
}

// `sent`: it is kept only in case that it is refused.
export function keep(key, value, sent = false) {
  try {
    if (value === null || value === "") return localStorage.removeItem(PREFIX + key);
    localStorage.setItem(PREFIX + key, JSON.stringify({ at: Date.now(), value, sent }));
    prune();
  } catch { /* the browser keeps nothing: what is typed stays on the page */ }
}

export const wasSent = (key) => Boolean(entry(key)?.sent);

// Drop the drafts whose keys begin so, but those of `still`.
export function dropOthers(start, still) {
  for (const key of keys()) if (key.startsWith(start) && !still.has(key)) keep(key, null);
}

function prune() {
  const kept = keys();
  if (kept.length <= MOST) return;
  const age = (key) => entry(key)?.at ?? 0;
  kept.sort((one, other) => age(one) - age(other));
  for (const key of kept.slice(0, kept.length - MOST)) localStorage.removeItem(PREFIX + key);
}

function entry(key) {
  try { return JSON.parse(localStorage.getItem(PREFIX + key)); } catch { return null; }
}

const keys = () => Object.keys(localStorage).filter((key) => key.startsWith(PREFIX)).map((key) => key.slice(PREFIX.length));
