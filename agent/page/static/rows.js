// Rows of a thread: a part of the meter, a criterion with its evidence, a call, a step, the receipt.
// `observe(id, quote)` opens an observation.
import { argumentsOf, button, callLine, el, fill, name, plainText, words } from "./draw.js";
import { markdown } from "./markdown.js";

export const MARKS = { pending: "☐", ready: "☐", running: "◐", waiting: "◐", done: "☑", failed: "✗", blocked: "✗", exhausted: "✗", skipped: "–" };
export const ENDED = ["done", "failed", "blocked", "skipped", "exhausted"];
const SHORTENED = 300; // characters of a result that comes with the event

export function meterPart(text, spent, limit, key = "", title = null) {
  const share = limit ? spent / limit : 0;
  const level = share >= 1 ? "full" : share >= 0.8 ? "near" : "";
  const bar = limit ? el("progress", { max: 1, value: Math.min(1, share), "aria-label": text }) : null;
  return el("span", { className: `${key} ${level}`, title }, text, bar);
}

export function criterionNode(text, verdict, row = {}, observe = null) {
  const verdicts = { proven: words.proven, cited: words.cited, unverified: words.unverified, failed: words.failed_verdict };
  const evidence = (row.evidence ?? []).map((each) => el("div", {}, evidenceButton(each, observe)));
  const note = row.note ? el("div", { className: "about", dir: "auto" }, row.note) : null;
  return el("div", { className: `criterion ${verdict}` },
    el("span", { className: "verdict" }, verdict ? verdicts[verdict] ?? verdict : words.done_when),
    el("div", { dir: "auto" }, text, ...evidence, note));
}

function evidenceButton(evidence, observe) {
  const said = evidence.quote ? `[${evidence.observation}] “${evidence.quote}”` : `[${evidence.observation}]`;
  return button(said, () => observe(evidence.observation, evidence.quote), "evidence");
}

// The way back, beside a change.
function wayBack(tag) {
  const node = el(tag, { className: "buttons" });
  node.offer = (row, undo) => node.replaceChildren(row.result === "unchanged" ? el("span", { className: "note" }, words.undone) : button(words.undo, undo, "quiet"));
  return node;
}

export function callNode(event, observe) {
  const line = el("span", { className: "line" }, el("b", {}, event.tool ?? ""), " ", callLine(event));
  const time = el("span", { className: "time" });
  const body = el("div", { className: "body" });
  const node = el("details", { className: "call" }, el("summary", {}, line, time), body);
  const way = wayBack("div");
  let drawn = false;
  let result = [];
  const draw = () => { // what nobody opens is not drawn
    if (!node.open) return;
    if (!drawn) body.append(...argumentsOf(event, observe));
    drawn = true;
    body.append(...result);
    result = [];
  };
  node.addEventListener("toggle", draw);
  node.tool = event.tool;
  node.finish = (answer) => {
    node.classList.toggle("wrong", !answer.ok);
    time.className = "time";
    time.textContent = `${answer.ok ? "" : "✗ "}${answer.id}${answer.seconds >= 0.05 ? ` · ${answer.seconds.toFixed(1)} s` : ""}`;
    const whole = answer.text.length >= SHORTENED && button(words.show_all, () => observe(answer.id), "quiet");
    result = [el("div", { className: "about" }, words.result), plainText(answer.text), whole, way].filter(Boolean);
    draw();
  };
  node.rest = () => { time.className = "time"; };
  node.offer = way.offer;
  if (event.id && event.text !== undefined) node.finish(event);
  else time.className = "time spin";
  return node;
}

export class Step {
  constructor(id, observe) {
    this.id = id;
    this.observe = observe;
    this.status = "pending";
    this.calls = 0;
    this.result = "";
    this.mark = el("span", { className: "mark", "aria-hidden": "true" });
    this.what = el("span", { className: "what", dir: "auto" });
    this.state = el("span", { className: "hidden" });
    this.count = el("span", { className: "count" });
    this.criteria = el("div");
    this.about = el("div", { className: "about" });
    this.log = el("div", { className: "work" });
    this.end = el("div", { className: "about said" });
    this.details = el("details", {},
      el("summary", {}, this.mark, this.state, this.what, this.count),
      el("div", { className: "inside" }, this.criteria, this.about, this.log, this.end));
    this.node = el("li", { className: "step" }, this.details);
  }

  update({ content, status, criteria, verdicts, reason, result, step }) {
    if (content !== undefined) this.what.textContent = content;
    if (status && status !== this.status) {
      if (status === "running") this.details.open = true;
      else if (ENDED.includes(status)) this.details.open = false;
      this.status = status;
    }
    this.node.className = `step ${this.status}`;
    this.mark.textContent = MARKS[this.status] ?? "☐";
    this.state.textContent = words[`step_${this.status}`] ?? "";
    if (step) this.about.textContent = stepAbout(step, this.observe.number);
    if (criteria && !verdicts) this.criteria.replaceChildren(...criteria.map((each) => criterionNode(each.text ?? each, "")));
    if (verdicts?.length) this.criteria.replaceChildren(...verdicts.map((each) => criterionNode(each.text, each.verdict, each, this.observe)));
    if (result && result !== this.result) {
      this.result = result;
      this.end.replaceChildren(markdown(result));
    } else if (reason && !this.result) this.end.replaceChildren(reason);
  }

  // It works no more, and may go on: `update` says so again.
  rest() {
    if (this.status !== "running") return;
    this.mark.textContent = MARKS.pending;
    this.state.textContent = "";
  }

  add(node) {
    this.log.append(node);
    if (!node.classList.contains("call")) return;
    this.calls += 1;
    this.count.textContent = `${this.calls} ${name("tool_calls", this.calls)}`;
  }
}

// The number by which people know a step of these ids; its id if it is none of them.
export const numberOf = (ids, id) => ids.indexOf(id) + 1 || id;

// What is to be said of a step beside its content and its criteria.
export function stepAbout(step, number, { tools = true } = {}) {
  return [
    tools && step.tools?.length && `${words.tools}: ${step.tools.join(", ")}`,
    step.depends_on?.length && `${words.after}: ${step.depends_on.map(number).join(", ")}`,
    step.executor && `${words.executor}: ${step.executor}`,
  ].filter(Boolean).join(" · ");
}

// A short text of a model among others: its Markdown drawn, in one block.
const inline = (text) => {
  const node = markdown(text);
  node.classList.add("inline");
  return node;
};

// A decision in a person's words: what it was about, what it was, and who made it.
function decisionText(row) {
  const about = row.kind === "plan" ? words.title : row.tool ?? words[`about_${row.kind}`] ?? "";
  const by = row.name ?? { user: words.by_you, policy: words.by_policy }[row.by] ?? row.by;
  const decided = row.again ? words.once_more[row.decision] : words[`decided_${row.decision}`];
  return `${about ? `${about}: ` : ""}${decided ?? row.decision}${row.text ? ` – ${row.text}` : ""} (${by})`;
}

const doubted = (audit) => (audit?.sentences ?? []).filter((each) => each.shown !== "yes");

function auditParts(receipt) {
  const audit = receipt.audit, sentences = audit?.sentences ?? [];
  if (!audit) return receipt.looked === false && receipt.changed === false ? [words.no_look] : [];
  const shown = sentences.filter((each) => each.shown === "yes").length;
  return [sentences.length ? fill(words.audited, { shown, all: sentences.length }) : words.not_audited];
}

// Every sentence of the answer with the judge's mark; the observations that it rests on are a click away.
function auditNode(audit, observe) {
  if (!audit) return null;
  const missing = audit.missing.map((each) => el("div", { className: "sentence no", dir: "auto" }, el("span", { className: "verdict" }, words.missing), each));
  const problem = audit.problem ? el("div", { className: "sentence no", dir: "auto" }, el("span", { className: "verdict" }, words.unaudited), audit.problem) : null;
  const rows = audit.sentences.map((each) => el("div", { className: `sentence ${each.shown}`, dir: "auto" },
    el("span", { className: "verdict" }, each.shown === "yes" ? "✓" : each.shown === "contradicted" ? words.contradicted : words.not_shown),
    inline(each.text), each.why ? el("span", { className: "about" }, ` ${each.why}`) : "", ...each.by.map((id) => evidenceButton({ observation: id }, observe))));
  return el("div", { className: "audit" }, problem, ...missing, ...rows);
}

// The arguments of a call that names no path, with their names, in one line.
const valuesOf = (given) => Object.entries(given ?? {}).map(([name, each]) => `${name}: ${typeof each === "string" ? each : JSON.stringify(each)}`).join(", ").replace(/\s+/g, " ").slice(0, 120);

// What became of a call with effects, and who or what says so.
function effectResult(row) {
  const result = row.result ?? (row.unknown ? "unknown" : row.ok ? "done" : "failed");
  return `${words[`effect_${result}`]}${row.by ? `, ${words.effect_said}` : ""}${row.why ? `: ${row.why}` : ""}${(row.settled ?? []).map((id) => ` [${id}]`).join("")}`;
}

function download(name, text, type) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href, download: name }).click();
  URL.revokeObjectURL(href);
}

// A receipt as a file: saved, or checked, with what was found. Beside it the conversation: `talk` returns its Markdown.
export function receiptFile(run, { saveReceipt, checkReceipt }, talk) {
  const found = el("div", { className: "note", role: "status" });
  const tell = ({ ok, line, lines, key }, name) => {
    const problem = line ? fill(words.line_wrong, { line }) : words.not_intact;
    found.className = ok ? "note" : "wrong";
    found.textContent = `${name}: ${ok ? `${fill(words.verified, { lines })}; ${key ? fill(words.signed_with, { key }) : words.not_signed}` : problem}`;
  };
  const chosen = el("input", { type: "file", accept: ".json", hidden: true, onchange: async ({ target }) => {
    const [file] = target.files;
    try { tell(await checkReceipt(file), file.name); } catch { /* said on the page */ }
    target.value = "";
  } });
  const save = async () => {
    const { text, ...verification } = await saveReceipt().catch(() => ({}));
    if (text === undefined) return;
    const name = `receipt-${run.thread_id.slice(0, 8)}.json`;
    download(name, text, "application/json");
    tell(verification, name);
  };
  return el("div", {}, el("div", { className: "buttons" }, button(words.save_receipt, save, "quiet"), button(words.check_receipt, () => chosen.click(), "quiet"), chosen,
    button(words.save_conversation, () => download(`conversation-${run.thread_id.slice(0, 8)}.md`, `${talk()}\n`, "text/markdown"), "quiet")), found);
}

export function receiptNode(receipt, run, observe, file) {
  const steps = receipt.steps ?? [];
  const criteria = steps.flatMap((step) => step.criteria ?? []);
  const done = steps.filter((step) => step.status === "done").length;
  const seconds = run.spent?.active_seconds;
  const parts = [
    steps.length && fill(words.steps_done, { done, all: steps.length }),
    ["cited", "proven"].map((each) => [each, criteria.filter((row) => row.verdict === each).length]).filter(([, n]) => n).map(([each, n]) => fill(words[`${each}_count`], { [each]: n })).join(", "),
    ...auditParts(receipt),
    seconds !== undefined && `${seconds.toFixed(1)} s`,
  ].filter(Boolean);
  const summary = el("summary", { className: `outcome ${run.status}` },
    el("b", {}, words[run.status] ?? run.status), ...parts.map((part) => el("span", {}, part)), el("span", { className: "more" }, words.receipt));
  const rows = steps.map((step) => el("div", { className: "receipt-step" },
    el("div", { dir: "auto" }, `${MARKS[step.status] ?? ""} `, inline(step.content)),
    ...(step.criteria ?? []).map((each) => criterionNode(each.text, each.verdict, each, observe)),
    step.unchanged ? el("div", { className: "criterion", dir: "auto" }, `${words.unchanged} ${step.unchanged}`) : null));
  const effectText = (each) => ` ${each.arguments?.path ?? each.arguments?.destination ?? valuesOf(each.arguments)} → ${effectResult(each)}`;
  const ways = new Map();
  const effects = (receipt.effects ?? []).map((each) => {
    ways.set(each.id, wayBack("span"));
    return el("div", { className: "effect" }, button(`[${each.id}] ${each.tool}`, () => observe(each.id), "evidence"), effectText(each), ways.get(each.id));
  });
  const earlier = (receipt.earlier ?? []).map((each) => el("div", {}, el("b", {}, `[${each.id}] ${each.tool}`), effectText(each)));
  const approvals = (receipt.approvals ?? []).map(decisionText);
  const questions = (receipt.questions ?? []).map((each) => el("span", {}, each.question ? inline(each.question) : "", each.question ? " → " : "", `${each.answer}${each.by === "user" ? (each.name ? ` (${each.name})` : "") : ` (${words.by_policy})`}`));
  const heard = (receipt.heard ?? []).map((each) => `${each.text} (${each.step ? fill(words.heard_step, { step: observe.number(each.step) }) : words.heard})`)
    .concat((receipt.late ?? []).map((each) => `${each.text} (${words.late})`));
  const background = (receipt.background ?? []).map((each) => (each === "agents_md" ? "AGENTS.md" : each)).join(", ");
  const lines = [...(background ? [fill(words.background, { names: background })] : []), ...approvals, ...questions, ...heard].map((each) => el("div", { dir: "auto" }, each));
  const list = (title, items) => (items.length ? [el("div", { className: "about" }, title), ...items] : []);
  const node = el("details", { className: "card receipt", open: doubted(receipt.audit).length > 0 }, summary, auditNode(receipt.audit, observe), ...rows,
    el("div", { className: "receipt-step" }, ...list(words.effects, effects), ...list(words.earlier, earlier), el("div", { className: "buttons back" }), ...list(words.decisions, lines), file));
  return Object.assign(node, { ways });
}

// What would come of undoing changes, or came of it; `carryOut` is asked for where all of it can be undone.
export function undoNodes(report, carryOut) {
  const row = (each) => el("div", { className: `criterion ${each.result}`, title: each.why },
    el("span", { className: "verdict" }, words[each.removes && each.result === "restored" ? "undo_removed" : `undo_${each.result}`]), el("div", { dir: "auto" }, each.to ? `${each.to} → ${each.path}` : each.path));
  const beyond = report.beyond.map((each) => el("div", { className: "about" }, `${words.undo_beyond}: [${each.id}] ${each.tool}`));
  const sure = report.status === "undone" && carryOut ? [button(words.undo, carryOut)] : [];
  const stays = report.status === "refused" ? [el("p", { role: "alert" }, words.undo_stays)] : [];
  return [...report.changes.map(row), ...stays, ...beyond, el("div", { className: "buttons" }, ...sure)];
}
