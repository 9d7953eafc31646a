// The server of this page. Who asks has the token of the link that the command printed; it is kept for this origin.
import { placeText, words } from "./draw.js";

const KEPT = "donewhen-token";
const TURN = 20; // milliseconds that events are taken for at a time; then the page may draw, and hear the person

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  localStorage.setItem(KEPT, given);
  history.replaceState(null, "", location.pathname);
}

// The answer to a request; raises an Error with the server's words and its `status`.
export async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = { authorization: `Bearer ${localStorage.getItem(KEPT) ?? ""}` };
  const answer = await fetch(`api/${path}`, { method, body, headers, signal });
  if (answer.ok) return answer;
  const said = await answer.text();
  let text = said;
  try {
    const { error } = JSON.parse(said);
    text = error.place ? placeText(error.place) : words[`error_${error.kind}`] ?? error.text;
  } catch { /* not ours: shown as it is */ }
  throw Object.assign(new Error(text), { status: answer.status });
}

export const get = async (path) => (await ask(path)).json();
export const post = async (path, body) => (await ask(path, { method: "POST", body: JSON.stringify(body) })).json();
export const thread = (id, what = "") => `threads/${encodeURIComponent(id)}${what && `/${what}`}`;

// Follow a thread until `signal`: `take` is given each event, `lost` the error of a connection that is gone.
export async function follow(id, signal, take, lost) {
  while (!signal.aborted) {
    try {
      const answer = await ask(thread(id, "events"), { signal });
      await lines(answer.body.pipeThrough(new TextDecoderStream()).getReader(), signal, take);
    } catch (error) {
      if (signal.aborted) return;
      lost(error);
      if (error.status) return;
    }
    await new Promise((go) => setTimeout(go, 1000));
  }
}

async function lines(reader, signal, take) {
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    let until = performance.now() + TURN;
    for (const line of whole) {
      if (line.trim()) take(JSON.parse(line));
      if (performance.now() < until) continue;
      await new Promise((go) => setTimeout(go));
      if (signal.aborted) return;
      until = performance.now() + TURN;
    }
  }
}
