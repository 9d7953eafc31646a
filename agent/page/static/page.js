// The page: the list of conversations, one of them, and the box in which words are typed. conversations.py says what arrives.
import { Composer } from "./composer.js";
import { $, about, button, el, fill, words } from "./draw.js";
import { draft, dropOthers, keep, wasSent } from "./drafts.js";
import { ask, follow, get, post, thread as at } from "./server.js";
import { Threads, titleOf } from "./threads.js";
import { View } from "./view.js";

let thread = null; // the id of the one that is open
let follows = null; // what ends following it
let view = null;
let composer = null;
let threads = null;

// What is asked of the server, and said on the page where it fails.
async function said(asking) {
  try {
    return await asking;
  } catch (error) {
    if (error.status) view.problem(error.message);
    else view.notSent(words.not_sent);
    throw error;
  }
}

const acts = {
  answer: (id, value) => answer(id, value).catch(() => {}),
  reply: (id, how) => composer.reply(id, how),
  goOn: () => goOn("").catch(() => {}),
  retry: (id, text) => send({ kind: "instead", id }, text).catch(() => {}),
  instead: (id, text) => { write(text); composer.reply(id, "instead"); },
  observation: (id) => said(get(at(thread, `observations/${encodeURIComponent(id)}`))),
  undo: (step, dry) => said(post(at(thread, "undo"), { step, dry_run: dry })),
  undoable: () => post(at(thread, "undo"), { step: null, dry_run: true }),
  planText: async (id, edited) => (await said(post(at(thread, "plan-text"), { id, ...edited }))).text,
  saveReceipt: () => said(get(at(thread, "receipt"))),
  checkReceipt: async (file) => (await said(ask("receipts", { method: "POST", body: file }))).json(),
  draft: (id) => ({ read: () => draft(formKey(id)), keep: (value) => keep(formKey(id), value), wasSent: () => wasSent(formKey(id)) }),
};

const formKey = (id) => `form:${thread}:${id}`;

// --- one thread

function open(id) {
  follows?.abort();
  follows = new AbortController();
  thread = id;
  threads.current = id;
  place = null;
  atEnd = true;
  $("meter").replaceChildren();
  history.replaceState(null, "", id ? `#thread=${encodeURIComponent(id)}` : location.pathname);
  menu(false);
  begin();
  if (id) follow(id, follows.signal, take, (error) => view.problem(error.status ? error.message : words.lost));
  else $("log").append(empty());
  threads.refresh().then(title);
  $("text").focus();
}

function begin() {
  view = new View($("log"), acts);
  composer.open(thread, view);
  busy();
}

// Where in the forms somebody types: drawn anew, as after a lost connection, they go on there.
function typing() {
  const field = document.activeElement;
  const at = fields().indexOf(field);
  return at < 0 ? null : { at, start: field.selectionStart, end: field.selectionEnd };
}

const fields = () => [...document.querySelectorAll(".asks textarea, .asks input, .asks select")];

function typeOn(place) {
  const field = fields()[place.at];
  field?.focus();
  if (field && typeof place.start === "number") field.setSelectionRange(place.start, place.end);
}

let place = null;

function take(event) {
  if (event.n === 1) {
    place ??= typing();
    const { unsent, answering } = view;
    begin();
    if (!answering) view.unsent = unsent;
  }
  view.take(event);
  if (place && view.parts.ask) {
    typeOn(place);
    place = null;
  }
  if (event.type === "gone") follows.abort();
  if (view.isAtRest(event)) dropOthers(`form:${thread}:`, new Set(view.pending.map((each) => formKey(each.id))));
  if (["waiting", "outcome"].includes(event.type)) hold();
  if (["started", "waiting", "outcome", "error", "gone"].includes(event.type)) threads.refresh().then(title);
  composer.show();
  busy();
}

function title() {
  const row = threads.now;
  const mark = view.working ? "◐ " : view.mine.length ? "● " : "";
  document.title = row ? `${mark}${titleOf(row).slice(0, 60)} · DoneWhen` : "DoneWhen";
}

function busy() {
  $("busy").hidden = !view.working;
  $("busy").textContent = view.stopping ? words.stopping : view.stalled ? fill(words.silent, { seconds: view.stalled }) : words.working;
}

// The focus goes to the box when nothing else has it: not away from a form, and on a phone not at all.
function hold() {
  const nowhere = !document.activeElement || document.activeElement === document.body;
  if (nowhere && matchMedia("(hover: hover)").matches) $("text").focus();
}

async function answer(id, value) {
  const asked = view, key = formKey(id);
  if (value.type === "cancel") asked.unsent.clear(); // whoever ends the run wants none of it said again
  asked.working = true;
  asked.answering = true;
  asked.disable(true);
  composer.show();
  busy();
  try {
    await said(post(at(thread, "answer"), { id, answer: value }));
    keep(key, draft(key), true);
    threads.refresh();
    hold();
    toEnd();
  } catch (error) {
    asked.working = false;
    asked.answering = false;
    asked.disable(false);
    composer.show();
    busy();
    throw error;
  }
}

// Put a text into the box, to be changed and sent.
function write(text) {
  $("text").value = text;
  composer.save();
  composer.show();
  $("text").focus();
}

const goOn = (steer) => said(post(at(thread, "go-on"), { steer }));

async function send({ kind, id }, text) {
  if (kind === "tell") return said(post(at(thread, "tell"), { text }));
  if (kind === "steer") return goOn(text);
  if (kind === "answer") return answer(id, text);
  if (kind === "changes" || kind === "refusal") return answer(id, { type: "reject", message: text });
  const asked = view;
  asked.answering = true; // an edit of what this takes the place of is not wanted any more
  const pictures = composer.pictures.filter((name) => text.includes(name));
  const begin = post("threads", { goal: text, thread, model: model(), instead_of: kind === "instead" ? id : null, pictures });
  const { thread: begun } = await said(begin).catch((error) => { asked.answering = false; throw error; });
  if (begun === thread) return threads.refresh();
  keep("box:", null);
  $("text").value = "";
  return open(begun);
}

// --- the frame

// Whoever reads at the end stays there as it grows; whoever has scrolled up is left alone.
let atEnd = true;

function toEnd() {
  atEnd = true;
  $("main").scrollTop = $("main").scrollHeight;
}

function keepPlace() {
  $("main").addEventListener("scroll", () => { atEnd = $("main").scrollHeight - $("main").scrollTop - $("main").clientHeight < 120; });
  new ResizeObserver(() => {
    if (!atEnd) return;
    const news = view?.news; // what is asked is read from its beginning
    if (view && !news?.querySelector(".md:not([data-drawn])")) view.news = null; // until then it grows
    if (news?.isConnected) news.scrollIntoView({ block: news.clientHeight > $("main").clientHeight ? "start" : "nearest" });
    else if (!view?.parts.ask) toEnd();
  }).observe($("log"));
}

function empty() {
  const goals = about.examples?.length ? about.examples : [words.example_1, words.example_2, words.example_3];
  const examples = goals.map((goal) => button(goal, () => write(goal), "quiet example"));
  const place = [about.folder && `${words.folder}: ${about.folder}`, about.model && `${words.model}: ${about.model}`].filter(Boolean);
  return el("div", { className: "empty" }, el("h2", {}, words.goal), ...place.map((each) => el("div", { className: "about" }, each)), el("div", { className: "examples" }, ...examples));
}

function menu(show) {
  $("side").classList.toggle("open", show);
  $("menu").setAttribute("aria-expanded", String(show));
}

// --- the colours: those of the system, or what was chosen in this browser

const THEMES = { system: "◐", light: "☀", dark: "☾" };

function theme(chosen) {
  const now = chosen in THEMES ? chosen : "system";
  document.documentElement.dataset.theme = now;
  const label = `${words.theme}: ${words[`theme_${now}`]}`;
  Object.assign($("theme"), { textContent: THEMES[now], title: label, ariaLabel: label });
  $("theme").onclick = () => {
    const names = Object.keys(THEMES), next = names[(names.indexOf(now) + 1) % names.length];
    keep("theme", next === "system" ? null : next);
    theme(next);
  };
}

// --- the models that a request may have, where there are several: the one that was chosen last in this browser

function models() {
  const select = $("model");
  select.append(...[about.model ?? "", ...about.also].map((each) => el("option", { value: each }, each)));
  select.value = about.also.includes(draft("model")) ? draft("model") : about.model ?? "";
  select.addEventListener("change", () => keep("model", select.value));
  Object.assign(select, { hidden: false, title: words.model, ariaLabel: words.model });
}

// The one for the next request; null for that of the agent.
const model = () => (about.also.includes($("model").value) ? $("model").value : null);

// --- files that are dropped, or chosen, are put into the folder

async function put(files) {
  for (const file of files) {
    try {
      const { name, picture } = await (await said(ask(`files?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file }))).json();
      const text = $("text");
      text.value = `${text.value}${text.value && !/\s$/.test(text.value) ? " " : ""}${name} `;
      if (picture) composer.pictures.push(name);
      composer.save();
      composer.show();
      view.add(el("div", { className: "note", role: "status" }, fill(picture ? words.put_picture : words.put, { name })));
    } catch { /* said on the page */ }
  }
  $("text").focus();
}

function takeFiles() {
  if (!about.folder) return;
  $("attach").hidden = false;
  $("attach").addEventListener("click", () => $("files").click());
  $("files").addEventListener("change", () => { put([...$("files").files]); $("files").value = ""; });
  let over = 0; // elements that the pointer is in, with files
  const show = (by) => { over += by; $("drop").hidden = over <= 0; };
  const has = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => { if (has(event)) show(1); });
  addEventListener("dragleave", (event) => { if (has(event)) show(-1); });
  addEventListener("dragover", (event) => { if (has(event)) event.preventDefault(); });
  addEventListener("drop", (event) => {
    if (!has(event)) return;
    event.preventDefault();
    show(-over);
    put([...event.dataTransfer.files]);
  });
}

// --- the beginning

async function start() {
  try {
    // A POST has the page's origin: where that is refused, as behind a proxy, it is said now and not at the first answer.
    Object.assign(words, await post(`words?languages=${encodeURIComponent(navigator.languages.join(","))}`, {}));
    Object.assign(about, await get("about"));
  } catch (error) {
    return $("log").append(el("div", { className: "empty" }, error.message));
  }
  document.documentElement.lang = words.language;
  const folder = (about.folder ?? "").split("/").filter(Boolean).at(-1);
  if (about.also.length) models();
  $("place").textContent = [folder, about.also.length ? "" : about.model].filter(Boolean).join(" · ");
  $("place").title = [about.folder, about.model].filter(Boolean).join(" · ");
  $("new").textContent = `+ ${words.new}`;
  $("stop").textContent = words.stop;
  $("drop").textContent = words.drop;
  for (const [id, label] of [["menu", words.menu], ["attach", words.attach], ["use-no", words.close], ["text", words.message], ["side", words.conversations], ["composer", words.message]]) {
    $(id).setAttribute("aria-label", label);
    if ($(id).tagName === "BUTTON") $(id).title = label;
  }
  theme(draft("theme"));
  composer = new Composer(send);
  threads = new Threads(open, (error) => view.problem(error.message), () => view.drop("not_sent"));
  $("menu").addEventListener("click", () => menu(!$("side").classList.contains("open")));
  addEventListener("keydown", (event) => { if (event.key === "Escape") menu(false); });
  addEventListener("online", () => threads.refresh());
  $("new").addEventListener("click", () => open(null));
  $("stop").addEventListener("click", () => {
    $("stop").disabled = true;
    said(post(at(thread, "stop"), {})).catch(() => { $("stop").disabled = false; });
  });
  takeFiles();
  keepPlace();
  const linked = (name = "thread") => new URLSearchParams(location.hash.slice(1)).get(name);
  addEventListener("hashchange", () => {
    if (linked("token")) location.reload(); // server.js takes it
    else if (linked() !== thread) open(linked());
  });
  open(linked());
}

start();
