// Rows of a thread: a part of the meter, a criterion with its evidence, a call, the receipt. `observe(id, quote)` opens an observation.
import { argumentsOf, button, callLine, el, name, words } from "/draw.js";

export const MARKS = { pending: "☐", ready: "☐", running: "◐", waiting: "◐", done: "☑", failed: "✗", blocked: "✗", exhausted: "✗", skipped: "–" };

export function meterPart(text, spent, limit, key = "") {
  const share = limit ? spent / limit : 0;
  return el("span", { className: `${key} ${share >= 1 ? "full" : share >= 0.8 ? "near" : ""}` }, text, limit ? el("progress", { max: 1, value: Math.min(1, share) }) : null);
}

const VERDICTS = () => ({ passed: words.passed, supported: words.supported, unverified: words.unverified, failed: words.failed_verdict });

export function criterionNode(text, verdict, row = {}, observe = null) {
  const evidence = (row.evidence ?? []).map((each) => evidenceButton(each, observe));
  return el("div", { className: `criterion ${verdict}` }, el("span", { className: "verdict" }, verdict ? VERDICTS()[verdict] ?? verdict : words.done_when),
    el("div", {}, text, ...evidence.map((each) => el("div", {}, each)), row.note ? el("div", { className: "about" }, row.note) : null));
}

function evidenceButton(evidence, observe) {
  const said = evidence.quote ? `[${evidence.observation}] “${evidence.quote}”` : `[${evidence.observation}]`;
  return button(said, () => observe(evidence.observation, evidence.quote), "evidence");
}

export function callNode(event, observe) {
  const line = el("span", { className: "line" }, el("b", {}, event.tool ?? ""), " ", callLine(event));
  const time = el("span", { className: "time" });
  const body = el("div", { className: "body" }, ...argumentsOf(event));
  const node = el("details", { className: "call" }, el("summary", {}, line, time), body);
  node.tool = event.tool;
  node.finish = (answer) => {
    node.done = true;
    node.classList.toggle("wrong", !answer.ok);
    time.className = "time";
    time.textContent = `${answer.ok ? "" : "✗ "}${answer.id}${answer.seconds >= 0.05 ? ` · ${answer.seconds.toFixed(1)} s` : ""}`;
    body.append(el("div", { className: "about" }, words.result), el("pre", {}, answer.text));
    if (answer.text.length >= 300) body.append(button(words.show_all, () => observe(answer.id), "quiet"));
  };
  if (event.id && event.text !== undefined) node.finish(event);
  else time.className = "time spin";
  return node;
}

export function receiptNode(receipt, run, observe) {
  const steps = receipt.steps ?? [];
  const criteria = steps.flatMap((step) => step.criteria ?? []);
  const good = criteria.filter((each) => ["passed", "supported"].includes(each.verdict)).length;
  const done = steps.filter((step) => step.status === "done").length;
  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, key) => values[key]);
  const seconds = run.spent?.active_seconds;
  const parts = [steps.length && fill(words.steps_done, { done, all: steps.length }), criteria.length && fill(words.criteria_proven, { good, all: criteria.length }), seconds !== undefined && `${seconds.toFixed(1)} s`].filter(Boolean);
  const summary = el("summary", { className: `outcome ${run.status}` }, el("b", {}, words[run.status] ?? run.status), ...parts.map((part) => el("span", {}, part)), el("span", {}, `▸ ${words.receipt}`));
  const rows = steps.map((step) => el("div", { className: "receipt-step" }, el("div", {}, `${MARKS[step.status] ?? ""} ${step.id} ${step.content}`),
    ...(step.criteria ?? []).map((each) => criterionNode(each.text, each.verdict, each, observe)),
    step.unconfirmed?.length ? el("div", { className: "criterion unverified" }, el("span", { className: "verdict" }, words.unconfirmed), step.unconfirmed.join(", ")) : null));
  const effects = (receipt.effects ?? []).map((each) => el("div", {}, button(`[${each.id}] ${each.tool}`, () => observe(each.id), "evidence"), each.ok ? "" : " ✗"));
  const decisions = [...(receipt.approvals ?? []).map((each) => `${each.decision}${each.text ? `: ${each.text}` : ""} (${each.by})`), ...(receipt.questions ?? []).map((each) => `${each.question ?? ""} → ${each.answer} (${each.by})`)];
  const list = (title, items) => (items.length ? [el("div", { className: "about" }, title), ...items.map((each) => (typeof each === "string" ? el("div", {}, each) : each))] : []);
  return el("details", { className: "card receipt" }, summary, ...rows, el("div", { className: "receipt-step" }, ...list(words.effects, effects), ...list(words.decisions, decisions)));
}
