// The fields of a form that a tool or a server asks with, and what was filled in. The browser says what is wrong with a
// field, beside it; what only the schema knows, the server says.
import { el, fill, words } from "./draw.js";

const STEPS = { integer: 1, number: "any" }; // of the kinds that are numbers
const FORMATS = { email: "email", uri: "url", date: "date", "date-time": "datetime-local", time: "time" };
let made = 0;

// `kept`: what was filled in before, by field; `changed()` is called when something is typed or chosen.
export class Fields {
  constructor(fields, kept, changed) {
    this.rows = fields.map((field) => new Field(field, kept?.[field.name], changed));
    this.nodes = this.rows.map((row) => row.node);
  }

  // What is filled in, as it stands in the form.
  raw() {
    return Object.fromEntries(this.rows.map((row) => [row.field.name, row.raw()]));
  }

  // What is filled in, as a person reads it: a line for each field.
  lines() {
    return this.rows.map((row) => `${row.field.title}: ${row.shownText()}`);
  }

  // The answer; null where a field is wrong: then it says so, and the first of them has the focus.
  read() {
    const wrong = this.rows.filter((row) => !row.check());
    wrong[0]?.focus();
    if (wrong.length) return null;
    return Object.fromEntries(this.rows.map((row) => [row.field.name, row.value()]).filter(([, value]) => value !== undefined));
  }
}

// A number as JSON or the browser's language writes it: {value}, or {problem}. Three digits after the only point or comma
// may be thousands where the language has the other one before decimals; that is asked back, not guessed.
export function readNumber(text) {
  const given = text.trim().replace(/^[−‐]/, "-").replace(/\s/g, "").replaceAll("’", "'");
  const own = new Intl.NumberFormat(navigator.language, { numberingSystem: "latn" });
  const parts = own.formatToParts(-1234567.8);
  const part = (type) => parts.find((each) => each.type === type)?.value.trim().replace("’", "'") ?? "";
  const [group, decimal] = [part("group"), part("decimal")];
  const other = decimal === "," ? "." : ",";
  if (/^-?[1-9]\d{0,2}[.,]\d{3}$/.test(given) && given.includes(other)) {
    return { problem: fill(words.which_number, { text: given, whole: given.replace(other, ""), decimal: given.replace(other, decimal) }) };
  }
  if (/^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(given)) return { value: Number(given) };
  const [whole, fraction, ...others] = given.replace("-", "").split(decimal);
  const digits = group ? whole.replaceAll(group, "") : whole;
  const plain = `${given.startsWith("-") ? "-" : ""}${digits}${fraction === undefined ? "" : `.${fraction}`}`;
  if (others.length || !/^-?\d+(\.\d+)?$/.test(plain)) return { problem: words.not_a_number };
  const [first, ...groups] = group ? whole.split(group) : [whole];
  const threes = /^[1-9]\d{0,2}$/.test(first) && groups.every((each) => /^\d{3}$/.test(each));
  const fits = !groups.length || threes || own.format(BigInt(digits)).replaceAll("’", "'") === whole; // as in 12,34,567
  return fits ? { value: Number(plain) } : { problem: words.not_a_number };
}

class Field {
  constructor(field, kept, changed) {
    this.field = field;
    const id = `field-${made += 1}`;
    const label = [field.title, field.required ? el("span", { className: "about", title: words.required, "aria-hidden": "true" }, " *") : null];
    const about = field.about ? el("div", { className: "about", id: `${id}-about`, dir: "auto" }, field.about) : null;
    this.problem = el("div", { className: "wrong", id: `${id}-wrong`, role: "alert", hidden: true });
    const common = { id, "aria-describedby": `${id}-about ${id}-wrong`, oninput: () => { this.problem.hidden || this.check(); changed(); } };
    const given = kept ?? field.default;
    if (field.kind === "boolean") {
      this.input = el("input", { ...common, type: "checkbox", checked: given === true });
      this.node = el("div", { className: "field" }, el("label", { className: "tick", dir: "auto" }, this.input, " ", field.title), about, this.problem);
    } else if (field.kind === "choices") {
      const chosen = kept ?? (field.default ?? []).map((value) => this.at(value));
      this.boxes = field.options.map((option, at) => el("input", { type: "checkbox", checked: chosen.includes(at), oninput: common.oninput }));
      const ticks = this.boxes.map((box, at) => el("label", { className: "tick", dir: "auto" }, box, " ", field.options[at].label));
      this.node = el("fieldset", { className: "field", "aria-describedby": common["aria-describedby"] }, el("legend", { dir: "auto" }, ...label), about, ...ticks, this.problem);
    } else {
      this.input = field.kind === "choice" ? this.select(common, kept) : el("input", { ...common, ...this.limits(), value: given === undefined ? "" : this.shown(given, kept) });
      this.input.required = field.required;
      this.node = el("div", { className: "field" }, el("label", { htmlFor: id, dir: "auto" }, ...label), about, this.input, this.problem);
    }
  }

  at(value) {
    return this.field.options.findIndex((option) => JSON.stringify(option.value) === JSON.stringify(value));
  }

  select(common, kept) {
    const { options, required, default: usual } = this.field;
    const chosen = kept ?? (usual === undefined ? "" : String(this.at(usual)));
    const none = required && usual === undefined && !chosen ? words.choose : "";
    const blank = usual === undefined || !required ? [el("option", { value: "" }, none)] : [];
    const made = el("select", common, ...blank, ...options.map((option, at) => el("option", { value: String(at) }, option.label)));
    made.value = chosen;
    return made;
  }

  limits() {
    const { kind, limits } = this.field;
    const type = kind === "text" ? FORMATS[limits.format] ?? "text" : "text";
    return { type, inputMode: kind in STEPS ? "decimal" : null, minLength: limits.minLength, maxLength: limits.maxLength, dir: "auto" };
  }

  // What was typed into a number: {value}, or {problem}; the default, as it stands there, is read as it was given.
  number() {
    const { kind, default: usual, limits } = this.field;
    const { value, problem } = usual !== undefined && this.input.value === this.shown(usual) ? { value: usual } : readNumber(this.input.value);
    if (problem) return { problem };
    const within = el("input", { type: "number", step: STEPS[kind], min: limits.minimum, max: limits.maximum, value }); // the browser's words
    return { value, problem: within.validationMessage };
  }

  shown(value, kept) {
    return kept === undefined && this.field.kind === "json" ? JSON.stringify(value) : String(value);
  }

  raw() {
    if (this.boxes) return this.boxes.flatMap((box, at) => (box.checked ? [at] : []));
    return this.field.kind === "boolean" ? this.input.checked : this.input.value;
  }

  shownText() {
    const { options } = this.field, raw = this.raw();
    if (this.boxes) return raw.map((at) => options[at].label).join(", ");
    return this.field.kind === "boolean" ? (raw ? "✓" : "–") : this.field.kind === "choice" ? options[raw]?.label ?? "" : raw;
  }

  value() {
    const { kind, options, required } = this.field;
    const raw = this.raw();
    if (kind === "boolean") return raw;
    if (kind === "choices") return raw.length || required || this.field.default ? raw.map((at) => options[at].value) : undefined;
    if (raw === "" && !(kind === "text" && this.field.default !== undefined)) return undefined;
    if (kind === "choice") return options[Number(raw)].value;
    if (kind in STEPS) return this.number().value;
    if (kind === "json") try { return JSON.parse(raw); } catch { return raw; }
    return this.input.type === "datetime-local" ? new Date(raw).toISOString() : raw;
  }

  check() {
    const why = this.boxes ? this.checkBoxes() : this.checkText();
    this.problem.textContent = why;
    this.problem.hidden = !why;
    for (const each of this.boxes ?? [this.input]) each.setAttribute("aria-invalid", String(Boolean(why)));
    return !why;
  }

  checkBoxes() {
    const { minItems = this.field.required ? 1 : 0, maxItems = this.boxes.length } = this.field.limits;
    const chosen = this.raw().length;
    return (chosen || this.field.required) && (chosen < minItems || chosen > maxItems) ? fill(words.choose_between, { least: minItems, most: maxItems }) : "";
  }

  checkText() {
    const { pattern } = this.field.limits;
    const { value } = this.input;
    let fits = true;
    try { fits = !pattern || !value || new RegExp(pattern, "u").test(value); } catch { /* the server knows */ }
    const problem = this.field.kind in STEPS && value ? this.number().problem ?? "" : "";
    this.input.setCustomValidity(fits ? problem : fill(words.no_match, { pattern }));
    return this.input.validationMessage;
  }

  focus() {
    (this.boxes?.[0] ?? this.input).focus();
  }
}
