// One thread as its events tell it: the talk, the plan that fills, calls, questions, the answer and its receipt.
import { Answer } from "./answer.js";
import { $, argumentsOf, button, confirm, copyButton, dialog, el, fill, name, placeText, sign, wholeText, words } from "./draw.js";
import { draftText, formOf } from "./forms.js";
import { markdown } from "./markdown.js";
import { ENDED, Step, callNode, meterPart, numberOf, receiptFile, receiptNode, undoNodes } from "./rows.js";

export class View {
  // `acts`: what asks or tells the rest of the page; see page.js.
  // `meter`: where costs are shown.
  constructor(log, acts, meter = $("meter")) {
    this.log = log;
    this.acts = acts;
    this.meterNode = meter;
    log.replaceChildren();
    this.observe = Object.assign(this.observe.bind(this), { number: (id) => this.number(id) });
    this.parts = {}; // what there is one of, by name
    this.steps = new Map();
    this.calls = []; // [id, element] of calls at work
    this.made = new Map(); // observation → element of the call that is over
    this.places = new Map(); // id of an earlier request → what its work is put behind
    this.talk = new Map(); // step → element of what it says now
    this.meter = new Map();
    this.said = []; // the talk as Markdown, a person's words as quotes
    this.told = []; // [text, note] of what was said and is not heard yet
    this.pending = []; // open questions, the one asked now first
    this.unsent = new Map(); // id of a question → it, and what was changed in its form here and is not sent
    this.answering = false; // an answer of this window is on its way
    this.elsewhere = ""; // where it goes on, if not here
    this.working = false;
    this.stalled = 0;
  }

  take(event) {
    const step = this.steps.get(event.step);
    this.stalled = event.type === "stalled" ? Math.round(event.seconds) : 0;
    switch (event.type) {
      case "picture": this.picture(event); break;
      case "earlier": this.places.get(event.message)?.after(this.earlier(event.done, event.cut)); break;
      case "started":
        this.working = true;
        this.stopping = false;
        for (const each of this.steps.values()) each.update({});
        this.answered();
        break;
      case "stopping": this.stopping = true; break;
      case "goal": this.goal(event.text, event.message); break;
      case "answered":
        this.showUnsent((id) => id === event.id);
        if (event.text) this.exchange(event.question, event.text);
        break;
      case "told": this.told.push([event.text, this.person(event.text, words.heard_next)]); break;
      case "heard": this.heard(event.text, event.step ? fill(words.heard_step, { step: this.number(event.step) }) : words.heard); break;
      case "late": this.heard(event.text, words.late); break;
      case "unseen": this.add(el("div", { className: "note" }, fill(words.unseen, event))); break;
      case "note": this.add(el("div", { className: "note", dir: "auto" }, event.text)); break;
      case "plan": this.showPlan(event.plan); this.last("plan"); break;
      case "revision": this.showPlan(event.plan); break;
      case "todos": this.todos(event.todos ?? []); break;
      case "step_started": step?.update({ status: "running", content: event.content }); break;
      case "step_finished":
        step?.update({ status: event.status, reason: event.reason, result: event.result });
        this.talk.delete(event.step);
        break;
      case "verdicts": if (event.accepted) step?.update({ verdicts: event.verdicts }); break;
      case "tool_started":
        this.talk.delete(event.step ?? "");
        if (!this.calls.some(([id]) => id === event.id)) this.calls.push([event.id, this.call(event)]); // not one that goes on
        break;
      case "observation": this.finishCall(event); break;
      case "speech": this.speak(event); break;
      case "speech_restarted": this.restart(event); break;
      case "charged": this.charge(event.spent ?? {}); break;
      case "spent": for (const row of event.meter ?? []) this.meter.set(row.key, row); this.drawMeter(); break;
      case "waiting": this.rest(event.run); this.ask(event.pending ?? []); break;
      case "outcome": this.ended = true; this.rest(event.run); this.end(event); break;
      case "undone": this.undone(event.run); break;
      case "error": this.working = false; this.problem(event.text); break;
      case "gone": this.working = false; this.pending = []; this.log.replaceChildren(el("div", { className: "empty" }, words.gone)); break;
    }
    if (this.isAtRest(event)) this.showUnsent((id) => !this.pending.some((each) => each.id === id));
  }

  // Whether this event says how the thread stands now: what it asks, or that it ended.
  isAtRest(event) {
    return !event.past && Boolean(event.run) && event.run.status !== "running";
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

  // A plan that comes after words about the one before stands after them, while nothing of it is done.
  last(name) {
    if (this.untouched()) this.log.append(this.parts[name]);
  }

  untouched() {
    return [...this.steps.values()].every((step) => step.status === "pending");
  }

  drop(name) {
    this.parts[name]?.remove();
    delete this.parts[name];
  }

  problem(text, name = "problem") {
    this.part(name, () => el("div", { className: "problem", role: "alert" })).replaceChildren(text);
    this.log.append(this.parts[name]);
  }

  // What was typed did not reach the server; this stays until it is reached again.
  notSent(text) {
    this.problem(text, "not_sent");
  }

  // --- the talk

  goal(text, id) {
    this.goalText = text;
    this.requestId = id;
    this.part("goal", () => this.user(text));
  }

  user(text) {
    this.said.push(text.replace(/^/gm, "> "));
    return el("div", { className: "user said", dir: "auto" }, text);
  }

  person(text, note = "") {
    this.add(this.user(text));
    return note && this.add(el("div", { className: "note end", role: "status" }, note));
  }

  // An earlier request: put into the box, to be changed and asked in its place, where the box takes a request.
  request({ text, id }) {
    const edit = !this.elsewhere && sign("✎", words.edit_request, () => this.acts.instead(id, text), { className: "plain edit-request" });
    this.add(el("div", { className: "asked-before" }, edit, this.user(text)));
  }

  // What was said to the working run, here or elsewhere, is in one of its rounds now, or came too late.
  heard(text, note) {
    const at = this.told.findIndex(([said]) => said === text);
    if (at < 0) this.person(text, note);
    else this.told.splice(at, 1)[0][1].textContent = note;
  }

  // A question that was answered: it stays as it was asked, and the answer follows.
  exchange(question, text) {
    if (question) {
      this.said.push(question);
      this.add(el("div", { className: "asked said" }, markdown(question)));
    }
    this.person(text);
  }

  // What planner and steps say as they work.
  speak(event) {
    if (event.answer) {
      this.answer().add(event.text);
      return;
    }
    if (event.argument) return; // told in its place
    const key = event.step ?? "";
    let node = this.talk.get(key);
    if (!node) {
      node = el("div", { className: "thinking said", dir: "auto" }, document.createTextNode(""));
      this.talk.set(key, node);
      this.at(event.step, node);
    }
    node.firstChild.appendData(event.text);
  }

  restart(event) {
    if (event.argument === "answer.text" || (!event.argument && this.parts.answer)) this.shown?.write("", false);
    if (event.argument) return;
    this.talk.get(event.step ?? "")?.remove();
    this.talk.delete(event.step ?? "");
  }

  answer() {
    this.shown ??= new Answer();
    this.part("answer", () => this.shown.node);
    return this.shown;
  }

  // --- the plan and its work

  // The number by which people know a step; its id if the plan has it no more.
  number(id) {
    return numberOf([...this.steps.keys()], id);
  }

  // What is looked at before there is a plan.
  planning() {
    this.part("planning", () => {
      this.planned = el("div", { className: "inside" });
      return el("details", { className: "card", open: true }, el("summary", { className: "note" }, words.planning), this.planned);
    });
    return this.planned;
  }

  // Put into the step that it is of, or into planning.
  at(id, node) {
    const step = this.steps.get(id);
    if (step) step.add(node);
    else this.planning().append(node);
  }

  showPlan(plan, records = {}) {
    const before = this.steps;
    this.steps = new Map();
    for (const step of plan.steps ?? []) {
      const record = records[step.id] ?? {};
      const row = before.get(step.id) ?? new Step(step.id, this.observe);
      row.update({ content: step.content, criteria: step.done_when, step, status: record.status ?? row.status, verdicts: record.verdicts, reason: record.reason, result: record.result });
      this.steps.set(step.id, row);
    }
    const list = el("ol", { className: "steps" }, ...[...this.steps.values()].map((row) => row.node));
    const goal = (plan.done_when ?? []).map((each) => el("div", { className: "about", dir: "auto" }, `${words.in_the_end}: ${each.text ?? each}`));
    const title = el("h2", { dir: "auto" }, plan.title || words.title);
    this.part("plan", () => el("section", { className: "card", "aria-label": words.title })).replaceChildren(title, list, ...goal);
    if (this.parts.planning) this.parts.planning.open = false;
  }

  // The checklist: its order and its words hold, whatever was there before.
  todos(rows) {
    if (!this.parts.plan) return;
    const steps = rows.filter((row) => row.id && (this.steps.has(row.id) || !String(row.id).includes("answer")));
    const before = this.steps;
    this.steps = new Map();
    for (const row of steps) {
      const step = before.get(row.id) ?? new Step(row.id, this.observe);
      const done = row.status === "completed" && !ENDED.includes(step.status);
      step.update({ content: row.content, status: done ? "done" : step.status });
      this.steps.set(row.id, step);
    }
    this.parts.plan.querySelector(".steps").replaceChildren(...[...this.steps.values()].map((step) => step.node));
  }

  call(event) {
    const line = callNode(event, this.observe);
    if (event.id && event.text !== undefined) this.made.set(event.id, line);
    this.at(event.step, line);
    return line;
  }

  finishCall(event) {
    const found = this.calls.findIndex(([id]) => id === event.id); // one that was refused never began
    if (found >= 0) {
      const [[, node]] = this.calls.splice(found, 1);
      node.finish(event);
      this.made.set(event.id, node);
    } else this.call({ ...event, shown: {}, changes: [] });
  }

  // --- what a person is asked

  // The open questions that can be answered here: not those that only somebody named may answer.
  get mine() {
    return this.elsewhere ? [] : this.pending.filter((each) => !each.answered_by);
  }

  // Why nothing can be typed here; "" if something can.
  get closed() {
    return this.elsewhere || (this.pending.length && !this.mine.length ? waitsFor(this.pending) : "");
  }

  // Every open question has a card of its own, the one asked now first; the box at the bottom answers one of them.
  ask(pending) {
    this.drop("ask");
    this.pending = pending;
    if (!pending.length) return;
    if (this.mine.includes(pending[0]) && pending[0].kind === "plan" && this.parts.plan && this.untouched()) this.parts.plan.hidden = true;
    const cards = pending.map((each) => {
      const step = each.step && this.steps.get(each.step);
      const form = formOf(each, {
        several: this.mine.length > 1,
        shut: !this.mine.includes(each),
        send: this.elsewhere ? null : (value) => this.acts.answer(each.id, value),
        reply: (how) => this.acts.reply(each.id, how),
        draft: this.draft(each),
        planText: (edited) => this.acts.planText(each.id, edited),
        observe: this.observe,
      });
      return el("section", { className: "card ask", "aria-label": words.waiting_status },
        each.notice && el("div", { className: "problem", role: "alert" }, each.notice),
        step && el("div", { className: "note", dir: "auto" }, step.what.textContent), ...form);
    });
    this.part("ask", () => el("div", { className: "asks" }, ...cards));
    this.news = this.parts.ask;
  }

  // The draft of a form, which is known here as long as it is not sent.
  draft(asked) {
    const { id } = asked;
    const { read, keep, wasSent } = this.acts.draft(id);
    if (read() && !wasSent()) this.unsent.set(id, [asked, read()]);
    return { read, keep: (value) => {
      if (value) this.unsent.set(id, [asked, value]);
      else this.unsent.delete(id);
      keep(value);
    } };
  }

  // Another window answered: what was changed here and not sent is shown, so that it can be said again.
  showUnsent(isOver) {
    for (const [id, [asked, value]] of this.unsent) {
      if (!isOver(id)) continue;
      this.unsent.delete(id);
      if (!this.answering) this.add(el("div", { className: "problem unsent", role: "alert" }, words.answered_elsewhere, el("pre", { dir: "auto" }, draftText(asked, value))));
    }
  }

  answered() {
    this.answering = false;
    for (const name of ["ask", "problem", "stopped", "again"]) this.drop(name);
    if (this.parts.plan) this.parts.plan.hidden = false;
    this.pending = [];
  }

  disable(off) {
    this.parts.ask?.querySelectorAll("button").forEach((each) => { each.disabled = off || each.dataset.off === "true"; });
  }

  stopped(text) {
    for (const step of this.steps.values()) step.rest();
    if (this.elsewhere) return;
    const go = button(words.go_on, () => this.acts.goOn());
    this.part("stopped", () => el("div", { className: "card" }, text, el("div", { className: "buttons" }, go)));
  }

  // --- where it rests

  rest(run) {
    this.working = false;
    for (const [, node] of this.calls) node.rest();
    this.calls = [];
    if (run) this.takeRun(run);
  }

  end(event) {
    const { run } = event;
    const stopped = event.status === "running";
    for (const step of this.steps.values()) if (step.status === "running" && !stopped) step.update({ status: "skipped" });
    for (const row of run?.receipt?.steps ?? []) {
      this.steps.get(row.id)?.update({ status: row.status, verdicts: row.criteria, reason: row.reason, result: row.result });
    }
    if (stopped) return this.stopped(words.stopped);
    if (run?.answer) {
      this.unaudited?.remove(); // the same answer, as it stood before its audit went on
      this.answer().write(run.answer);
    }
    if (!run?.receipt) return;
    this.part("receipt", () => receiptNode(run.receipt, run, this.observe, receiptFile(run, this.acts, () => [...this.said, run.answer ?? ""].join("\n\n"))));
    if (this.elsewhere) return;
    this.offerAgain(run);
    if (run.receipt.changed) this.offerUndo();
  }

  // What a person does with an answer that is not what they wanted: ask once more, or word the request differently. As
  // with an earlier request, what comes takes its place: a change that was made is asked about before it is made again.
  offerAgain(run) {
    const goal = run.goal || this.goalText, id = this.requestId;
    if (!goal || !id) return;
    const retry = () => this.acts.retry(id, goal);
    const again = run.receipt.changed ? () => confirm(words.try_again, words.instead, words.try_again, retry) : retry;
    this.drop("again");
    this.part("again", () => el("div", { className: "under again" },
      button(words.try_again, again, "plain"), button(words.edit_request, () => this.acts.instead(id, goal), "plain")));
  }

  // --- the way back from what a run changed: beside each change, and for all of them in the receipt

  async offerUndo() {
    const { receipt } = this.parts;
    const { changes } = await this.acts.undoable().catch(() => ({ changes: [] })); // nobody asked for it
    for (const row of changes) for (const made of [this.made, receipt.ways]) made.get(row.id)?.offer(row, () => this.undo(row.id));
    const some = changes.some((row) => row.result !== "unchanged");
    receipt.querySelector(".back").replaceChildren(...(some ? [button(words.undo_all, () => this.undo(null), "quiet")] : []));
  }

  undone(run) {
    const { open } = this.parts.receipt ?? {};
    this.drop("receipt");
    this.end({ status: run.status, run });
    if (open) this.parts.receipt.open = true;
  }

  async undo(step) {
    const show = (report, carryOut) => dialog(words.undo, ...undoNodes(report, carryOut));
    show(await this.acts.undo(step, true), async () => {
      const report = await this.acts.undo(step, false);
      $("dialog").close();
      if (report.status !== "undone") show(report);
    });
  }

  // What an earlier request did, and what it cost: folded, below its answer. `cut`: only the latest part of it is known.
  earlier(events, cut) {
    const inside = el("div", { className: "inside" }), meter = el("span", { className: "meter" });
    const acts = { ...this.acts, observation: (id) => this.acts.observation(`${events[0].turn}:${id}`) };
    const view = new View(inside, acts, meter);
    for (const event of events) {
      view.take(event.type === "spent" ? { ...event, meter: event.meter.map(({ key, spent }) => ({ key, spent })) } : event);
    }
    view.rest();
    if (cut) inside.prepend(el("div", { className: "note" }, words.work_cut));
    if (!inside.childElementCount) return el("div", { className: "earlier note" }, meter);
    return el("details", { className: "card earlier" }, el("summary", { className: "note" }, words.was_done, " ", meter), inside);
  }

  // A thread as it stands, of which no events are known.
  picture({ messages, run, request, journal, said = [], place, displaced }) {
    this.elsewhere = place ? placeText(place) : "";
    const talk = [...messages];
    this.audited = run?.status === "running" && Boolean(run.answer); // it ended, and an audit of its answer was cut off
    if (run?.answer && !this.audited && talk.at(-1)?.by === "agent") talk.pop(); // it is drawn with the receipt
    let asker = "";
    const asked = talk.map((each) => each.by === "user" && !each.steers);
    const found = talk.findIndex((each) => each.id === request); // older versions kept no id
    const last = !run ? -1 : found >= 0 ? found : asked.lastIndexOf(true);
    for (const [at, message] of talk.entries()) {
      if (message.by !== "user") {
        const said = this.add(el("section", { className: "card said" }, markdown(message.text), el("div", { className: "under" }, copyButton(() => message.text))));
        if (this.audited && message === talk.at(-1)) this.unaudited = said;
        else this.said.push(message.text);
      }
      else if (at === last) this.goal(message.text, message.id);
      else if (asked[at] && (last < 0 || at < last)) this.request(message);
      else this.person(message.text);
      if (asked[at]) asker = message.id;
      this.places.set(asker, this.log.lastElementChild);
    }
    if (!run) return;
    this.takeRun(run);
    if (run.plan?.steps?.length) this.showPlan(run.plan, run.steps);
    for (const entry of journal) this.call(entry);
    for (const { question, text } of said) this.exchange(question, text);
    if (this.elsewhere) this.add(el("div", { className: "note", role: "status", dir: "auto" }, this.elsewhere));
    if (displaced) this.add(el("div", { className: "note", dir: "auto" }, displaced));
    if (run.status === "waiting") this.ask(run.pending);
    else if (run.status === "running") this.stopped(words.cut_off);
    else this.end({ status: run.status, run });
  }

  // --- the meter

  takeRun(run) {
    for (const key of new Set([...Object.keys(run.spent ?? {}), ...Object.keys(run.limits ?? {})])) {
      this.meter.set(key, { spent: run.spent?.[key] ?? 0, limit: run.limits?.[key] });
    }
    this.drawMeter();
  }

  charge(spent) {
    for (const [key, amount] of Object.entries(spent)) {
      const row = this.meter.get(key) ?? { spent: 0 };
      this.meter.set(key, { ...row, spent: row.spent + amount });
    }
    this.drawMeter();
  }

  amount(key) {
    return this.meter.get(key)?.spent ?? 0;
  }

  drawMeter() {
    const tokens = this.amount("input_tokens") + this.amount("output_tokens");
    const shown = [];
    for (const [key, word] of [["rounds", "turns"], ["tool_calls", "tool_calls"]]) {
      const { spent = 0, limit } = this.meter.get(key) ?? {};
      const text = `${spent}${limit ? `/${limit}` : ""} ${name(word, limit ? 2 : spent)}`;
      if (spent || limit) shown.push(meterPart(text, spent, limit, key, limit ? fill(words.of_at_most, { spent, limit }) : null));
    }
    if (tokens) shown.push(meterPart(`${tokens >= 1000 ? `${(tokens / 1000).toFixed(1)}k` : tokens} ${name("tokens", tokens)}`));
    const money = this.meter.get("cost_usd");
    if (money?.spent || money?.limit) {
      shown.push(meterPart(`$${(money.spent ?? 0).toFixed(4)}${money.limit ? `/$${money.limit}` : ""}`, money.spent, money.limit));
    } else if (this.ended && this.amount("unpriced_calls")) shown.push(meterPart(words.no_price));
    this.meterNode.replaceChildren(...shown);
  }

  // The whole of what a call returned, the quoted words in it marked; or the result of a step.
  async observe(id, quote) {
    const step = /\.result$/.test(id) && this.steps.get(id.replace(/\.result$/, ""));
    const found = step ? { id, tool: words.result, text: step.result } : await this.acts.observation(id);
    const text = wholeText(found.text ?? "", quote);
    text.classList.add("observed");
    dialog(`${found.id} ${found.tool ?? ""}`, ...argumentsOf(found, this.observe), el("div", { className: "code" }, text, copyButton(() => found.text ?? "")));
    $("dialog").querySelector("mark")?.scrollIntoView({ block: "center" });
  }
}

// What stands in a list, and in the tab's title, of how a thread stands.
export const stateOf = (row) => (row.at_work ? words.at_work : row.status === "waiting" ? waitsFor(row.pending) : words[row.status] ?? row.status);

// For whom questions wait: for you, unless somebody else alone may answer each of them.
function waitsFor(pending) {
  const others = [...new Set(pending.map((each) => each.answered_by))];
  return others.length && others.every(Boolean) ? fill(words.waits_for, { who: others.join(", ") }) : words.waiting_status;
}
