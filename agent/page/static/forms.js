// What a person is asked, as forms: a plan edited in place, a call, a question. `send` is given the answer.
import { argumentsOf, button, el, markdown, name, words } from "/draw.js";

export function formOf(pending, send) {
  const form = { plan: planForm, tool: callForm }[pending.kind] ?? questionForm;
  return form(pending, send);
}

const area = (value, label, oninput, className = "") => el("textarea", { value, rows: 1, "aria-label": label, oninput, className });

function planForm(pending, send) {
  const plan = structuredClone(pending.plan ?? {});
  const limits = Object.fromEntries(Object.entries(pending.limits ?? {}).filter(([, amount]) => amount !== null));
  const shown = JSON.stringify([plan, limits]);
  const rows = el("div");
  const run = button(words.run_it, () => go());
  const text = area(pending.text ?? "", words.edit_text, null, "plan-text");
  text.hidden = !pending.draft;
  rows.hidden = !text.hidden;
  const changed = () => { run.textContent = (text.hidden ? JSON.stringify([plan, limits]) !== shown : text.value !== pending.text || pending.draft) ? words.run_edited : words.run_it; };
  text.addEventListener("input", changed);
  const go = () => {
    if (!text.hidden) send({ type: "edit", edited_action: { name: "confirm_plan", args: { plan: text.value } } });
    else if (JSON.stringify([plan, limits]) === shown) send({ type: "approve" });
    else send({ type: "edit", plan: { ...plan, steps: plan.steps.map(({ ...step }) => ({ ...step, done_when: (step.done_when ?? []).filter((each) => each.text?.trim()) })), limits } });
  };
  const draw = () => {
    rows.replaceChildren(...plan.steps.map((step, at) => planRow(step, at)), el("div", { className: "buttons" }, button(`+ ${words.add_step}`, () => { plan.steps.push({ content: "", done_when: [] }); draw(); rows.querySelectorAll(".row > textarea")[plan.steps.length - 1].focus(); }, "plain")), el("div", { className: "limits" }, Object.keys(limits).length ? words.at_most : "", ...Object.entries(limits).map(([key, amount]) => el("label", {}, el("input", { type: "number", min: 0, step: "any", value: amount, oninput: (event) => { if (event.target.value !== "") limits[key] = Number(event.target.value); changed(); } }), ` ${key === "cost_usd" ? "$" : name(key, 2)}`))));
    changed();
  };
  const move = (at, by) => { const [step] = plan.steps.splice(at, 1); plan.steps.splice(at + by, 0, step); draw(); };
  const planRow = (step, at) => {
    const criteria = (step.done_when ??= []).map((each) => (typeof each === "string" ? { text: each } : each));
    step.done_when = criteria;
    const lines = criteria.map((each, number) => el("div", { className: "crit" }, el("span", { className: "tick" }, "✓"), area(each.text, words.done_when, (event) => { each.text = event.target.value; changed(); }), each.check ? el("span", { className: "about" }, `${words.check}: ${each.check.tool}`) : null, button("✕", () => { criteria.splice(number, 1); draw(); }, "plain")));
    const about = [step.tools?.length && `${words.tools}: ${step.tools.map((tool) => ((pending.writes ?? []).includes(tool) ? `${tool} (${words.granted_writes})` : tool)).join(", ")}`, step.depends_on?.length && `${words.after}: ${step.depends_on.join(", ")}`, step.executor && `${words.executor}: ${step.executor}`].filter(Boolean).join(" · ");
    const tool = (sign, label, act, off) => el("button", { type: "button", className: "plain", title: label, "aria-label": label, onclick: act, disabled: off }, sign);
    return el("div", { className: "row" }, el("span", { className: "number" }, `${at + 1}`), area(step.content, `${words.step?.replace("{step}", at + 1) ?? at + 1}`, (event) => { step.content = event.target.value; changed(); }),
      el("span", { className: "tools" }, tool("↑", words.up, () => move(at, -1), at === 0), tool("↓", words.down, () => move(at, 1), at === plan.steps.length - 1), tool("✕", words.remove, () => { plan.steps.splice(at, 1); draw(); }, plan.steps.length === 1)),
      el("div", { className: "below" }, ...lines, el("div", {}, el("span", { className: "about" }, about), " ", button(`+ ${words.add_criterion}`, () => { criteria.push({ text: "" }); draw(); }, "plain"))));
  };
  draw();
  const as = button(text.hidden ? words.edit_text : words.edit_list, () => { text.hidden = !text.hidden; rows.hidden = !text.hidden; as.textContent = text.hidden ? words.edit_text : words.edit_list; changed(); }, "quiet");
  const title = el("h2", {}, plan.title ?? words.title);
  const changes = (pending.changes ?? []).map((each) => el("div", { className: "about" }, `• ${each}`));
  const goal = (plan.done_when ?? []).map((each) => el("div", { className: "about" }, `${words.in_the_end}: ${each.text ?? each}`));
  return [el("div", { className: "note" }, (pending.question ?? "").split("\n")[0]), ...changes, title, el("div", { className: "edit" }, rows, text), ...goal,
    reasons(run, words.ask_changes, words.what_changes, (why) => why && send({ type: "reject", message: why }), [as, button(words.cancel, () => send({ type: "cancel" }), "quiet bad")])];
}

// A row of buttons: yes, no with a reason, others.
function reasons(yes, no, question, refuse, others) {
  const why = el("textarea", { rows: 1, placeholder: question, "aria-label": question, hidden: true });
  const refusing = button(no, () => {
    if (why.hidden) { why.hidden = false; why.focus(); } else refuse(why.value.trim());
  }, "quiet");
  why.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); refuse(why.value.trim()); } });
  return el("div", {}, el("div", { className: "buttons" }, yes, refusing, ...others), el("div", { className: "options" }, why));
}

function callForm(pending, send) {
  const text = area(JSON.stringify(pending.arguments ?? {}, null, 2), words.edit_arguments, null, "plan-text");
  text.hidden = true;
  if (pending.draft) { text.value = pending.draft; text.hidden = false; }
  const run = button(words.allow, () => send(text.hidden ? { type: "approve" } : { type: "edit", edited_action: { name: "approve_tool", args: { arguments: text.value } } }));
  const edit = button(words.edit_arguments, () => { text.hidden = !text.hidden; }, "quiet");
  return [el("h2", {}, pending.tool), ...markdown(pending.question ?? ""), ...argumentsOf(pending), text,
    reasons(run, words.refuse, words.why, (why) => send({ type: "reject", message: why }), [edit, button(words.cancel, () => send({ type: "cancel" }), "quiet bad")])];
}

function questionForm(pending, send) {
  const text = el("textarea", { rows: 1, placeholder: words.reply, "aria-label": words.reply });
  const go = () => text.value.trim() && send(text.value.trim());
  text.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); go(); } });
  const choices = (pending.options ?? []).map((each) => button(each, () => send(each), "quiet"));
  const skip = pending.kind === "question" ? [button(words.skip, () => send({ type: "reject" }), "quiet")] : [];
  return [el("div", { className: "answer" }, ...markdown(pending.question ?? "")), ...(pending.kind === "effect" ? [el("b", {}, pending.tool), ...argumentsOf(pending)] : []),
    pending.hint ? el("div", { className: "note" }, pending.hint) : null, el("div", { className: "options" }, ...choices), el("div", { className: "buttons" }, text, button(words.send, go), ...skip, button(words.cancel, () => send({ type: "cancel" }), "quiet bad"))];
}
