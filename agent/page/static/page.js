// The page: a list of threads, and one of them as its events tell it. See conversations.py for what arrives.
import { el, words } from "/draw.js";
import { View } from "/view.js";

const $ = (id) => document.getElementById(id);
const KEPT = "donewhen-token";
let thread = null; // the id of the one that is open
let follows = null; // what ends following it
let view = null;

// --- the server

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  localStorage.setItem(KEPT, given);
  history.replaceState(null, "", location.pathname);
}

async function ask(path, body, signal) {
  const headers = { authorization: `Bearer ${localStorage.getItem(KEPT) ?? ""}` };
  const options = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const answer = await fetch(`/api/${path}`, { ...options, headers, signal });
  if (answer.ok) return answer;
  const said = await answer.text();
  let text = said;
  try { text = JSON.parse(said).error.text; } catch { /* not ours: shown as it is */ }
  throw Object.assign(new Error(text), { status: answer.status });
}

const tell = async (path, body) => {
  try {
    return await (await ask(path, body)).json();
  } catch (error) {
    view?.problem(error.message);
    throw error;
  }
};

async function follow(id, signal) {
  while (!signal.aborted) {
    try {
      const reader = (await ask(`threads/${encodeURIComponent(id)}/events`, null, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) if (line.trim()) take(JSON.parse(line));
      }
    } catch (error) {
      if (signal.aborted) return;
      view?.problem(error.status ? error.message : words.lost);
      if (error.status) return;
    }
    await new Promise((go) => setTimeout(go, 1000));
  }
}

// --- events

function take(event) {
  const atEnd = $("main").scrollHeight - $("main").scrollTop - $("main").clientHeight < 120;
  if (event.n === 1) view = new View($("log"), acts);
  const step = view.stepOf(event.step);
  switch (event.type) {
    case "picture": view.picture(event); break;
    case "started": view.working = true; view.answered(); break;
    case "goal": view.part("goal", () => el("div", { className: "user said" }, event.text)); break;
    case "answered": if (event.question) view.add(el("div", { className: "note" }, event.question)); view.person(event.text); break;
    case "note": view.add(el("div", { className: "note" }, event.text)); break;
    case "plan": view.showPlan(event.plan); break;
    case "todos": view.todos(event.todos ?? []); break;
    case "step_started": step?.update({ status: "running", content: event.content }); break;
    case "step_finished": step?.update({ status: event.status, reason: event.reason, result: event.result }); view.said.delete(event.step); break;
    case "tool_started": view.said.delete(event.step ?? ""); (view.calls ??= []).push([event.step ?? "", view.call(event)]); break;
    case "observation": view.finishCall(event); break;
    case "speech": view.speak(event); break;
    case "speech_restarted": view.restart(event); break;
    case "charged": view.charge(event.spent ?? {}); break;
    case "spent": for (const row of event.meter ?? []) view.meter.set(row.key, row); view.drawMeter(); break;
    case "waiting": settle(event); view.ask(event.pending ?? [], event.problem); break;
    case "outcome": view.ended = true; settle(event); view.end(event); break;
    case "error": view.working = false; view.problem(event.text); break;
  }
  controls();
  if (atEnd) $("main").scrollTop = $("main").scrollHeight;
  if (atEnd && view.parts.ask) view.parts.ask.scrollIntoView({ block: "nearest" });
}

function settle(event) {
  view.working = false;
  view.calls = [];
  for (const node of view.log.querySelectorAll(".time.spin")) node.className = "time";
  if (event.run) view.takeRun(event.run);
  refresh();
}

// --- the frame

const acts = {
  answer: (id, value) => answer(id, value),
  goOn: (steer) => goOn(steer),
  observation: (id) => tell(`threads/${encodeURIComponent(thread)}/observations/${encodeURIComponent(id)}`),
};

function controls() {
  const pending = view?.pending;
  $("stop").hidden = !view?.working;
  $("send").hidden = Boolean(view?.working);
  $("text").disabled = Boolean(view?.working);
  $("text").placeholder = view?.working ? words.working : pending || view?.parts.stopped ? words.reply : words.goal;
}

async function answer(id, value) {
  const asked = view;
  asked.working = true;
  asked.parts.ask?.querySelectorAll("button").forEach((each) => { each.disabled = true; });
  controls();
  try {
    await tell(`threads/${encodeURIComponent(thread)}/answer`, { id, answer: value });
  } catch {
    asked.working = false;
    asked.parts.ask?.querySelectorAll("button").forEach((each) => { each.disabled = false; });
    controls();
  }
}

async function goOn(steer = "") {
  await tell(`threads/${encodeURIComponent(thread)}/go-on`, { steer });
}

async function refresh() {
  const rows = await tell("threads");
  $("threads").replaceChildren(...rows.map((row) => {
    const status = row.at_work ? words.at_work : row.status === "waiting" ? words.waiting_status : words[row.status] ?? row.status;
    return el("li", { className: row.at_work ? "" : row.status }, el("button", { type: "button", "aria-current": String(row.thread_id === thread), onclick: () => open(row.thread_id) }, el("div", { className: "goal" }, row.goal || row.thread_id), el("div", { className: "status" }, `${status} · ${new Date(row.updated).toLocaleString([], { dateStyle: "short", timeStyle: "short" })}`)));
  }));
}

function open(id) {
  follows?.abort();
  follows = new AbortController();
  thread = id;
  view = new View($("log"), acts);
  $("meter").replaceChildren();
  history.replaceState(null, "", id ? `#thread=${encodeURIComponent(id)}` : location.pathname);
  document.body.querySelector("nav").classList.remove("open");
  if (id) follow(id, follows.signal);
  else $("log").append(el("div", { className: "empty" }, words.goal));
  controls();
  refresh();
  $("text").focus();
}

async function submit(event) {
  event?.preventDefault();
  const text = $("text").value.trim();
  if (!text || view.working) return;
  if (view.pending || view.parts.stopped) {
    $("text").value = "";
    return view.pending ? answer(view.pending.id, text) : goOn(text);
  }
  view.working = true;
  controls();
  try {
    const { thread: id } = await tell("threads", { goal: text, thread });
    $("text").value = "";
    if (id !== thread) open(id);
    else refresh();
  } catch {
    view.working = false;
    controls();
  }
}

async function begin() {
  try {
    Object.assign(words, await (await ask(`words?languages=${encodeURIComponent(navigator.languages.join(","))}`)).json());
  } catch (error) {
    return $("log").append(el("div", { className: "empty" }, error.message));
  }
  document.documentElement.lang = words.language;
  $("new").textContent = `+ ${words.new}`;
  $("send").textContent = words.send;
  $("stop").textContent = words.stop;
  $("menu").title = words.menu;
  $("menu").addEventListener("click", () => document.querySelector("nav").classList.toggle("open"));
  $("new").addEventListener("click", () => open(null));
  $("composer").addEventListener("submit", submit);
  $("stop").addEventListener("click", () => tell(`threads/${encodeURIComponent(thread)}/stop`, {}));
  $("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event); });
  open(new URLSearchParams(location.hash.slice(1)).get("thread"));
}

begin();
