// One thread as its events tell it: the talk, the plan that fills, calls, the answer and its receipt.
import { button, el, markdown, marked, name, words } from "/draw.js";
import { formOf } from "/forms.js";
import { MARKS, callNode, criterionNode, meterPart, receiptNode } from "/rows.js";

const ENDED = ["done", "failed", "blocked", "skipped", "exhausted"];
const $ = (id) => document.getElementById(id);

export class View {
  // `acts`: answer(id, value), goOn() and observation(id), which ask the server.
  constructor(log, acts) {
    this.log = log;
    this.acts = acts;
    log.replaceChildren();
    this.steps = new Map();
    this.meter = new Map();
    this.said = new Map(); // step → element of what it says now
    this.pending = null;
    this.working = false;
    this.answer = "";
    this.parts = {};
  }

  add(node) {
    this.log.append(node);
    return node;
  }

  // A part that keeps its place in the order it first came in.
  part(name, make) {
    this.parts[name] ??= this.add(make());
    return this.parts[name];
  }

  problem(text) {
    this.part("problem", () => el("div", { className: "problem", role: "alert" })).replaceChildren(text);
    this.log.append(this.parts.problem);
  }

  person(text) {
    this.add(el("div", { className: "user said" }, text));
  }

  agent(text) {
    this.add(el("div", { className: "card answer said" }, ...markdown(text)));
  }

  // What is looked at before there is a plan.
  planning() {
    return this.part("planning", () => {
      this.planningBody = el("div", { className: "inside" });
      return el("details", { className: "card", open: true }, el("summary", { className: "note" }, words.planning), this.planningBody);
    });
  }

  showPlan(plan, records = {}) {
    const list = el("ol", { className: "steps" });
    const before = this.steps;
    this.steps = new Map();
    for (const step of plan.steps ?? []) {
      const known = before.get(step.id);
      const record = records[step.id] ?? {};
      const row = known ?? new Step(step, (id, quote) => this.observe(id, quote));
      row.update({ content: step.content, status: record.status ?? known?.status, criteria: step.done_when, verdicts: record.verdicts, reason: record.reason, result: record.result, step });
      this.steps.set(step.id, row);
      list.append(row.node);
    }
    const card = this.part("plan", () => el("section", { className: "card", "aria-label": words.title }));
    const goal = (plan.done_when ?? []).map((each) => el("div", { className: "about" }, `${words.in_the_end}: ${each.text ?? each}`));
    card.replaceChildren(el("h2", {}, plan.title ?? words.title), list, ...goal);
    if (this.parts.planning) this.parts.planning.open = false;
  }

  stepOf(id) {
    return this.steps.get(id);
  }

  call(event) {
    const line = callNode(event, (id, quote) => this.observe(id, quote));
    const step = this.stepOf(event.step);
    if (step) step.add(line);
    else { this.planning(); this.planningBody.append(line); }
    return line;
  }

  speak(event) {
    if (event.answer) {
      this.answer += event.text;
      this.drawAnswer(this.answer);
      return;
    }
    if (event.argument) return; // told in its place
    const key = event.step ?? "";
    let node = this.said.get(key);
    if (!node) {
      node = el("div", { className: "thinking" });
      this.said.set(key, node);
      const step = this.stepOf(event.step);
      if (step) step.add(node);
      else { this.planning(); this.planningBody.append(node); }
    }
    node.append(event.text);
  }

  drawAnswer(text) {
    this.part("answer", () => el("section", { className: "card answer said" })).replaceChildren(...markdown(text));
  }

  drawMeter() {
    const tokens = this.amount("input_tokens") + this.amount("output_tokens");
    const shown = [];
    for (const key of ["rounds", "tool_calls"]) {
      const { spent = 0, limit } = this.meter.get(key) ?? {};
      if (spent || limit) shown.push(meterPart(`${spent}${limit ? `/${limit}` : ""} ${name(key, limit ? 2 : spent)}`, spent, limit, key));
    }
    if (tokens) shown.push(meterPart(`${tokens >= 1000 ? `${(tokens / 1000).toFixed(1)}k` : tokens} ${name("tokens", tokens)}`));
    const money = this.meter.get("cost_usd");
    if (money?.spent || money?.limit) shown.push(meterPart(`$${(money.spent ?? 0).toFixed(4)}${money.limit ? `/$${money.limit}` : ""}`, money.spent, money.limit));
    else if (this.ended && this.amount("unpriced_calls")) shown.push(meterPart(words.no_price));
    $("meter").replaceChildren(...shown);
  }

  amount(key) {
    return this.meter.get(key)?.spent ?? 0;
  }

  takeRun(run) {
    for (const [key, spent] of Object.entries(run.spent ?? {})) this.meter.set(key, { spent, limit: run.limits?.[key] });
    for (const [key, limit] of Object.entries(run.limits ?? {})) this.meter.set(key, { spent: run.spent?.[key] ?? 0, limit });
    this.drawMeter();
  }

  // Every open question has a form of its own, the one asked now first; the box at the bottom answers that one.
  ask(pending, problem) {
    this.parts.ask?.remove();
    delete this.parts.ask;
    this.pending = pending[0] ?? null;
    if (!this.pending) return;
    if (this.pending.kind === "plan" && this.parts.plan && ![...this.steps.values()].some((step) => step.status !== "pending")) this.parts.plan.hidden = true;
    const cards = pending.map((each, at) => {
      const why = (at === 0 && problem) || each.problem;
      const step = each.step && this.stepOf(each.step);
      return el("section", { className: "card ask" }, why && el("div", { className: "problem", role: "alert" }, el("b", {}, `${words.not_taken}: `), why),
        step && el("div", { className: "note" }, step.what.textContent), ...formOf(each, (value) => this.acts.answer(each.id, value)));
    });
    this.part("ask", () => el("div", { className: "asks" }, ...cards));
  }

  answered() {
    this.parts.ask?.remove();
    delete this.parts.ask;
    this.parts.problem?.remove();
    delete this.parts.problem;
    this.parts.stopped?.remove();
    delete this.parts.stopped;
    if (this.parts.plan) this.parts.plan.hidden = false;
    this.pending = null;
  }

  picture(event) {
    const { run } = event;
    const messages = [...event.messages];
    if (run?.answer && messages.at(-1)?.by === "agent") messages.pop();
    const last = run ? messages.map((each) => each.by).lastIndexOf("user") : -1;
    for (const [at, message] of messages.entries()) {
      if (message.by !== "user") this.agent(message.text);
      else if (at === last) this.part("goal", () => el("div", { className: "user said" }, message.text));
      else this.person(message.text);
    }
    if (!run) return;
    this.takeRun(run);
    if (run.plan?.steps?.length) this.showPlan(run.plan, run.steps);
    for (const entry of event.journal) this.call(entry);
    if (run.status === "waiting") this.ask(run.pending, run.problem);
    else if (run.status === "running") this.stopped(words.cut_off);
    else this.end({ status: run.status, run });
  }

  todos(rows) {
    for (const row of rows) {
      const step = this.stepOf(row.id);
      const status = { completed: "done", in_progress: "running" }[row.status];
      if (step?.status === "pending" && status !== "done") step.update({ content: row.content });
      else if (step && !ENDED.includes(step.status) && status === "done") step.update({ status });
    }
    const ids = rows.map((row) => row.id);
    for (const [id, step] of this.steps) if (!ids.includes(id)) { step.node.remove(); this.steps.delete(id); }
    const list = this.parts.plan?.querySelector(".steps");
    for (const row of rows) if (list && !this.steps.has(row.id) && row.id && !String(row.id).includes("answer")) {
      const step = new Step(row, (id, quote) => this.observe(id, quote));
      step.update({ content: row.content, status: row.status === "completed" ? "done" : "pending" });
      this.steps.set(row.id, step);
      list.append(step.node);
    }
  }

  finishCall(event) {
    const calls = (this.calls ??= []);
    const at = calls.findIndex(([step, node]) => step === (event.step ?? "") && node.tool === event.tool);
    const found = at >= 0 ? at : calls.findIndex(([, node]) => node.tool === event.tool);
    if (found >= 0) calls.splice(found, 1)[0][1].finish(event);
    else this.call({ ...event, shown: {}, changes: [] });
  }

  restart(event) {
    if (event.argument === "answer.text" || (!event.argument && this.answer)) { this.answer = ""; this.parts.answer?.replaceChildren(); }
    if (!event.argument) { this.said.get(event.step ?? "")?.remove(); this.said.delete(event.step ?? ""); }
  }

  charge(spent) {
    for (const [key, amount] of Object.entries(spent)) {
      const row = this.meter.get(key) ?? { spent: 0 };
      this.meter.set(key, { ...row, spent: row.spent + amount });
    }
    this.drawMeter();
  }

  // The whole of what a call returned, the quoted words in it marked.
  async observe(id, quote) {
    const result = /\.result$/.test(id);
    const found = result ? { id, tool: words.result, text: this.stepOf(id.replace(/\.result$/, ""))?.end.textContent ?? "" } : await this.acts.observation(id);
    const close = button(words.close, () => $("dialog").close(), "quiet");
    const given = JSON.stringify(found.arguments ?? {}, null, 1);
    $("dialog").replaceChildren(el("div", { className: "top" }, el("h2", {}, `${found.id} ${found.tool ?? ""}`), close), given === "{}" ? "" : el("pre", {}, given), el("pre", { className: "observed" }, ...marked(found.text ?? "", quote)));
    $("dialog").showModal();
    $("dialog").querySelector("mark")?.scrollIntoView({ block: "center" });
  }

  stopped(text) {
    this.part("stopped", () => el("div", { className: "card" }, text, el("div", { className: "buttons" }, button(words.go_on, () => this.acts.goOn()))));
  }

  end(event) {
    const { run } = event;
    for (const step of this.steps.values()) if (step.status === "running" && event.status !== "running") step.update({ status: "skipped" });
    const receipt = run?.receipt;
    for (const row of receipt?.steps ?? []) this.stepOf(row.id)?.update({ status: row.status, verdicts: row.criteria, reason: row.reason, result: row.result });
    if (event.status === "running") {
      this.stopped(words.stopped);
      return;
    }
    if (run?.answer) this.drawAnswer(run.answer);
    if (receipt) this.part("receipt", () => receiptNode(receipt, run, (id, quote) => this.observe(id, quote)));
  }
}

class Step {
  constructor(step, observe) {
    this.id = step.id;
    this.observe = observe;
    this.status = "pending";
    this.calls = 0;
    this.mark = el("span", { className: "mark", "aria-hidden": "true" });
    this.what = el("span", { className: "what" });
    this.count = el("span", { className: "count" });
    this.criteria = el("div");
    this.about = el("div", { className: "about" });
    this.log = el("div", { className: "inside", style: "padding:0" });
    this.end = el("div", { className: "about said" });
    this.details = el("details", {}, el("summary", {}, this.mark, this.what, this.count), el("div", { className: "inside" }, this.criteria, this.about, this.log, this.end));
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
    this.node.dataset.status = this.status;
    this.mark.textContent = MARKS[this.status] ?? "☐";
    if (step) this.about.textContent = [step.tools?.length && `${words.tools}: ${step.tools.join(", ")}`, step.depends_on?.length && `${words.after}: ${step.depends_on.join(", ")}`, step.executor && `${words.executor}: ${step.executor}`].filter(Boolean).join(" · ");
    if (criteria && !verdicts) this.criteria.replaceChildren(...criteria.map((each) => criterionNode(each.text ?? each, "")));
    if (verdicts?.length) this.criteria.replaceChildren(...verdicts.map((each) => criterionNode(each.text, each.verdict, each, this.observe)));
    const ended = [reason, result].filter(Boolean).join("\n");
    if (ended) this.end.replaceChildren(...(result ? markdown(result) : [reason]));
  }

  add(node) {
    this.log.append(node);
    if (node.classList.contains("call")) {
      this.calls += 1;
      this.count.textContent = `${this.calls} ${name("tool_calls", this.calls)}`;
    }
  }
}
