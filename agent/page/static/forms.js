// What a person is asked, as forms: a plan edited in place, a call, a question. Words are typed in the box at the bottom.
//
// A form is given `send(value)`, which answers; `reply(how)`, which lets the box answer it; `draft`, which reads and keeps
// what was changed and not sent; `planText(edited)`, the text of a plan; and `observe(id, quote)`, which opens a result.
// `shut`: the question is only shown, because it is not for whoever sits here; without `send` the run is not ended either.
import { about, argumentsOf, button, confirm, el, fill, name, sign, words } from "./draw.js";
import { Fields, readNumber } from "./fields.js";
import { markdown } from "./markdown.js";
import { numberOf, stepAbout } from "./rows.js";

export function formOf(pending, form) {
  if (form.shut) return shownOnly(pending, form);
  const make = { plan: planForm, tool: callForm }[pending.kind] ?? (pending.fields ? fieldsForm : questionForm);
  return make(pending, form);
}

// The words of a form's draft, for whoever has to say them again.
export function draftText(pending, draft) {
  if (draft.asText) return draft.text;
  if (pending.fields) return new Fields(pending.fields, draft, () => {}).lines().join("\n");
  if (!draft.plan) return Object.entries(draft).map(([name, value]) => `${name}: ${value}`).join("\n");
  const steps = draft.plan.steps.flatMap((step, at) => [`${at + 1}. ${step.content}`,
    ...(step.done_when ?? []).map((each) => `   ${words.done_when}: ${each.text ?? each}`),
    ...(step.tools?.length ? [`   ${words.tools}: ${step.tools.join(", ")}`] : [])]);
  const limits = Object.entries(draft.limits ?? {}).filter(([key, amount]) => amount !== pending.limits?.[key]);
  const changed = limits.map(([key, amount]) => `${amount} ${limitName(key)}`);
  return [...steps, ...(changed.length ? [`${words.limits}: ${changed.join(", ")}`] : [])].join("\n");
}

const area = (value, label, oninput, more = {}) => el("textarea", { value, rows: 1, dir: "auto", "aria-label": label, oninput, ...more });

// Ends the whole run: apart from the other buttons, and asked about, because nothing brings it back.
const endRun = (send) => button(words.end_run, () => confirm(words.end_run, words.end_this, words.end_run, () => send({ type: "cancel" })), "quiet apart");

function shownOnly(pending, { send, observe }) {
  const call = pending.tool ? [el("b", {}, pending.tool), ...argumentsOf(pending, observe)] : [];
  return [markdown(pending.question ?? ""), ...call, send ? el("div", { className: "buttons" }, endRun(send)) : null];
}

// --- a plan

function planForm(pending, { send, reply, draft, planText }) {
  const given = { plan: pending.plan ?? {}, limits: limitsOf(pending), text: pending.written ?? "", asText: Boolean(pending.draft) };
  const now = { ...structuredClone(given), ...draft.read() };
  for (const step of now.plan.steps) step.done_when = (step.done_when ?? []).map((each) => (typeof each === "string" ? { text: each } : each));
  const proposed = listed(given);
  now.written ??= proposed; // the list that the text says
  const rows = el("div");
  const may = el("div", { className: "about may-change", dir: "auto" });
  const text = area(now.text, words.edit_text, () => { now.text = text.value; changed(); }, { className: "plan-text" });
  const run = button(words.run_it, () => send(now.asText ? asText() : listed(now) === proposed ? { type: "approve" } : asList()));
  const swap = button("", async () => {
    if (!now.asText && listed(now) !== now.written) { // the text follows the list, unless it is the later one
      try { now.text = text.value = await planText({ plan: withoutBlanks(now.plan), limits: now.limits }); } catch { return; }
      now.written = listed(now);
    }
    now.asText = !now.asText;
    show();
    changed();
  }, "quiet");

  const asText = () => (now.text === pending.written && !pending.draft ? { type: "approve" } : { type: "edit", edited_action: { name: "confirm_plan", args: { plan: now.text } } });
  const asList = () => ({ type: "edit", plan: { ...withoutBlanks(now.plan), limits: now.limits } });
  const changed = () => {
    const same = now.asText ? now.text === pending.written && !pending.draft : listed(now) === proposed;
    run.textContent = same ? words.run_it : words.run_edited;
    const what = same ? pending.may_change : words.changes_edited; // known once the edit is read
    may.replaceChildren(...(what ? [el("b", {}, `${words.changes}: `), what] : []));
    draft.keep(same && now.asText === given.asText ? null : now);
  };
  const show = () => {
    text.hidden = !now.asText;
    rows.hidden = now.asText;
    edit.hidden = now.asText;
    swap.textContent = now.asText ? words.edit_list : words.edit_text;
  };
  const redraw = (focus) => {
    rows.replaceChildren(...now.plan.steps.map((step, at) => stepRow(now.plan.steps, at, pending, redraw, changed)), below());
    changed();
    reach();
    rows.querySelector(focus)?.focus();
  };
  const below = () => el("div", {},
    el("div", { className: "buttons" }, button(`+ ${words.add_step}`, () => { now.plan.steps.push({ content: "", done_when: [] }); redraw(`.row:nth-child(${now.plan.steps.length}) > textarea`); }, "plain")),
    limitFields(now.limits, pending.chosen ?? [], changed));
  // Until it is edited, Tab goes past its many fields to the buttons; a pointer edits any field at once.
  let editing = Boolean(draft.read());
  const reach = () => rows.querySelectorAll("textarea, input, button, summary").forEach((each) => { each.tabIndex = editing ? 0 : -1; });
  const edit = button(words.edit_plan, () => { editing = true; reach(); rows.querySelector("textarea")?.focus(); }, "quiet");
  rows.addEventListener("focusin", () => { if (!editing) { editing = true; reach(); } });
  redraw(null);
  show();

  const note = el("div", { className: "note" }, (pending.question ?? "").split("\n")[0]);
  const changes = (pending.changes ?? []).map((each) => el("div", { className: "about", dir: "auto" }, `• ${each}`));
  const goal = (now.plan.done_when ?? []).map((each) => el("div", { className: "about", dir: "auto" }, `${words.in_the_end}: ${each.text ?? each}`));
  const ask = button(words.ask_changes, () => reply("changes"), "quiet");
  const spoken = [pending.reply, given.plan.speak].filter(Boolean).map((each) => markdown(each));
  return [...spoken, note, ...changes, el("h2", { dir: "auto" }, now.plan.title || words.title), el("div", { className: "edit" }, rows, text), ...goal, may,
    el("div", { className: "buttons" }, run, ask, edit, swap, endRun(send))];
}

const listed = ({ plan, limits }) => JSON.stringify([withoutBlanks(plan), limits]);
const limitsOf = (pending) => Object.fromEntries(Object.entries(pending.limits ?? {}).filter(([, amount]) => amount !== null));

function withoutBlanks(plan) {
  const steps = (plan.steps ?? []).map((step) => {
    const criteria = (step.done_when ?? []).map((each) => (typeof each === "string" ? { text: each } : each));
    return { ...step, done_when: criteria.filter((each) => each.text?.trim()) };
  });
  return { ...plan, steps };
}

const PEOPLES = { rounds: "turns", replans: "new_plans" }; // what people call these amounts

const limitName = (key) => (key === "cost_usd" ? "$" : name(PEOPLES[key] ?? key, 2));

function limitFields(limits, chosen, changed) {
  const field = ([key, amount]) => el("label", {},
    el("input", { type: "number", min: 0, step: "any", value: amount, oninput: ({ target }) => { if (target.value !== "") limits[key] = Number(target.value); changed(); } }),
    ` ${limitName(key)}`);
  const fields = (known) => Object.entries(limits).filter(([key]) => chosen.includes(key) === known).map(field);
  const shown = fields(true), others = fields(false); // what nobody chose is folded away
  return el("div", { className: "limits" }, shown.length ? words.at_most : "", ...shown,
    others.length ? el("details", {}, el("summary", {}, words.limits), ...others) : "");
}

function stepRow(steps, at, pending, redraw, changed) {
  const step = steps[at];
  const row = (number) => `.row:nth-child(${number + 1})`;
  const move = (by, focus) => { steps.splice(at + by, 0, ...steps.splice(at, 1)); redraw(`${row(at + by)} ${focus}`); };
  const remove = () => { steps.splice(at, 1); redraw(`${row(Math.min(at, steps.length - 1))} > textarea`); };
  const label = fill(words.step, { step: at + 1 });
  const criteria = step.done_when.map((each, number) => el("div", { className: "crit" },
    el("span", { className: "tick", "aria-hidden": "true" }, "•"),
    area(each.text, words.done_when, ({ target }) => { each.text = target.value; changed(); }),
    each.check ? el("span", { className: "about" }, words.checked) : null,
    sign("✕", words.remove, () => { step.done_when.splice(number, 1); redraw(`${row(at)} .add`); })));
  const add = button(`+ ${words.add_criterion}`, () => { step.done_when.push({ text: "" }); redraw(`${row(at)} .crit:nth-child(${step.done_when.length}) textarea`); }, "plain add");
  return el("div", { className: "row", role: "group", "aria-label": label },
    el("span", { className: "number", "aria-hidden": "true" }, `${at + 1}`),
    area(step.content, label, ({ target }) => { step.content = target.value; changed(); }),
    el("span", { className: "moves" },
      sign("↑", words.up, () => move(-1, "[data-move=up]"), { disabled: at === 0, "data-move": "up", "data-off": String(at === 0) }),
      sign("↓", words.down, () => move(1, "[data-move=down]"), { disabled: at === steps.length - 1, "data-move": "down", "data-off": String(at === steps.length - 1) }),
      sign("✕", words.remove, remove, { disabled: steps.length === 1, "data-off": String(steps.length === 1) })),
    el("div", { className: "below" }, ...criteria,
      el("div", { className: "foot" }, toolsOf(step, pending, changed), el("span", { className: "about" }, stepAbout(step, (id) => numberOf(steps.map((each) => each.id), id), { tools: false })), add)));
}

const MANY = 10; // tools from which on there is a field to find one

// The tools of a step; opened, all there are, to be ticked. Those of another executor are its own, and only shown.
function toolsOf(step, pending, changed) {
  const known = about.tools ?? [];
  const flagged = (tool) => {
    const notes = [pending.plan?.providers?.[tool]?.replace(/ \w+$/, ""), (pending.writes ?? []).includes(tool) && words.granted_writes].filter(Boolean);
    return notes.length ? `${tool} (${notes.join(", ")})` : tool;
  };
  const chosen = () => `${words.tools}: ${step.tools?.length ? step.tools.map(flagged).join(", ") : words.nothing}`;
  if (step.executor || !known.length) return el("span", { className: "about" }, step.tools?.length ? chosen() : "");
  const title = el("summary", {}, chosen());
  const others = (step.tools ?? []).filter((tool) => !known.some((each) => each.name === tool)).map((tool) => ({ name: tool, about: "" }));
  const box = (tool) => el("label", { title: tool.about },
    el("input", { type: "checkbox", checked: (step.tools ?? []).includes(tool.name), onchange: ({ target }) => choose(tool.name, target.checked) }),
    el("span", {}, tool.name), tool.writes ? el("span", { className: "about" }, words.writes) : null);
  const choose = (tool, wanted) => {
    step.tools = [...(step.tools ?? []).filter((each) => each !== tool), ...(wanted ? [tool] : [])];
    title.textContent = chosen();
    changed();
  };
  const all = [...known, ...others];
  const open = ({ target }) => { // the first time
    if (!target.open || target.childElementCount > 1) return;
    const boxes = all.map((tool) => [`${tool.name} ${tool.about}`.toLowerCase(), box(tool)]);
    const find = ({ target: { value } }) => { for (const [text, node] of boxes) node.hidden = !text.includes(value.toLowerCase()); };
    if (all.length > MANY) target.append(el("input", { type: "text", placeholder: words.find, "aria-label": words.find, oninput: find }));
    target.append(el("div", { className: "choice" }, ...boxes.map(([, node]) => node)));
  };
  return el("details", { className: "tools", ontoggle: open }, title);
}

// --- a call

function callForm(pending, { send, reply, draft, observe }) {
  const given = pending.arguments ?? {};
  const calls = 1 + (pending.batch?.length ?? 0); // one answer is for all of them
  const fields = new Arguments(given, draft.read() ?? argumentsIn(pending.draft), () => { draft.keep(fields.values); label(); });
  fields.node.hidden = !fields.changed;
  const run = button("", () => {
    if (fields.node.hidden || !fields.changed) return send({ type: "approve" });
    const edited = fields.read();
    if (edited) send({ type: "edit", edited_action: { name: "approve_tool", args: { arguments: JSON.stringify(edited) } } });
  });
  const label = () => { // an edited call of a list is decided alone
    const edited = !fields.node.hidden && fields.changed;
    run.textContent = calls === 1 ? words.allow : edited ? words.run_first : fill(words.allow_all, { calls });
  };
  const edit = button(calls > 1 ? words.edit_first : words.edit_arguments, () => {
    fields.node.hidden = !fields.node.hidden;
    if (fields.node.hidden) draft.keep(null);
    else fields.node.querySelector("textarea, input")?.focus();
    label();
  }, "quiet");
  label();
  const question = markdown(pending.question ?? ""), own = argumentsOf(pending, observe);
  const list = () => el("div", { className: "calls", tabIndex: 0, role: "group", "aria-label": fill(words.all_calls, { calls }) }, question);
  const shown = calls > 1 ? [...own, list()] : [question, ...own]; // the list goes on from the first of them
  return [el("h2", {}, pending.tool), ...shown, fields.node,
    el("div", { className: "buttons" }, run, button(calls > 1 ? words.refuse_all : words.refuse, () => reply("refusal"), "quiet"), edit, endRun(send))];
}

// What a person had written before, of a refused edit: an object, or nothing that can be read.
function argumentsIn(text) {
  try { return JSON.parse(text ?? "null"); } catch { return null; }
}

// The arguments of a call, a field each: a text as it is, with its line breaks; yes or no as a box; a number as the
// browser's language writes it, or with a point; all else as JSON.
class Arguments {
  constructor(given, kept, changed) {
    this.given = given;
    this.texts = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, asField(value)]));
    this.values = { ...this.texts, ...Object.fromEntries(Object.entries(kept ?? {}).map(([name, value]) => [name, asField(value)])) };
    this.wrong = {};
    const rows = Object.keys(this.values).map((name) => this.row(name, changed));
    this.node = el("div", { className: "fields" }, ...rows);
  }

  row(name, changed) {
    const id = `argument-${name}`;
    const keep = (value) => { this.values[name] = value; changed(); };
    if (typeof this.given[name] === "boolean") {
      const box = el("input", { type: "checkbox", checked: this.values[name] === "true", onchange: () => keep(String(box.checked)) });
      return el("div", { className: "field" }, el("label", { className: "tick" }, box, name));
    }
    this.wrong[name] = el("div", { className: "wrong", role: "alert", hidden: true });
    return el("div", { className: "field" }, el("label", { htmlFor: id }, name),
      el("textarea", { id, rows: 1, dir: "auto", value: this.values[name], oninput: ({ target }) => keep(target.value) }), this.wrong[name]);
  }

  get changed() {
    return Object.entries(this.values).some(([name, value]) => value !== this.texts[name]);
  }

  // The edited arguments; null if a field cannot be read, which is said beside it.
  read() {
    let whole = true;
    const read = Object.entries(this.values).map(([name, text]) => {
      if (text === this.texts[name]) return [name, this.given[name]];
      if (typeof this.given[name] === "string") return [name, text];
      const { value, problem } = typeof this.given[name] === "number" ? readNumber(text) : readJson(text);
      if (this.wrong[name]) Object.assign(this.wrong[name], { hidden: !problem, textContent: problem ?? "" });
      if (problem) whole = false;
      return [name, value];
    });
    return whole ? Object.fromEntries(read) : null;
  }
}

function readJson(text) {
  try { return { value: JSON.parse(text) }; } catch { return { problem: words.not_a_value }; }
}

const asField = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

// --- a question

function questionForm(pending, { send, reply, several, observe }) {
  const choices = (pending.options ?? []).map((each) => button(each, () => send(each), "quiet"));
  const call = pending.kind === "effect" ? [el("b", {}, pending.tool), ...argumentsOf(pending, observe)] : [];
  const typed = several ? [button(words.in_words, () => reply("answer"), "quiet")] : [];
  const skip = pending.kind === "question" && !pending.about // what the run itself asks would end at a “Skip”
    ? [button(words.skip, () => send({ type: "reject" }), "quiet")]
    : [];
  return [markdown(pending.question ?? ""), ...call, pending.hint ? el("div", { className: "note", dir: "auto" }, pending.hint) : null,
    el("div", { className: "options" }, ...choices), el("div", { className: "buttons" }, ...typed, ...skip, endRun(send))];
}

// --- a question with fields

function fieldsForm(pending, { send, reply, several, draft }) {
  const fields = new Fields(pending.fields, draft.read(), () => draft.keep(fields.raw()));
  const submit = (event) => {
    event.preventDefault();
    const filled = fields.read();
    if (filled) send(filled);
  };
  const typed = several ? [button(words.in_words, () => reply("answer"), "quiet")] : [];
  const decline = button(words.decline, () => send({ type: "reject" }), "quiet");
  return [markdown(pending.question ?? ""), el("form", { className: "fields", noValidate: true, onsubmit: submit }, ...fields.nodes,
    el("div", { className: "buttons" }, el("button", {}, words.submit), decline, ...typed, endRun(send)))];
}
