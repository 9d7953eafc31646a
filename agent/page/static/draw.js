// Elements from data. Text is only ever set as text: nothing that a model or a tool wrote is read as HTML.

export const $ = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// The page's own words in the person's language, by key; what has a form for one and for several is parted by "|".
export const words = {};

// What the server says of itself: folder, model, tools.
export const about = {};

export const name = (key, amount) => {
  const [one, several] = (words[key] ?? key).split("|");
  return amount === 1 ? one : several ?? one;
};

export const fill = (text, values) => (text ?? "").replace(/\{(\w+)\}/g, (whole, key) => values[key] ?? whole);

// Where a conversation goes on that was begun elsewhere.
export const placeText = (place) => fill(place.folder ? words.elsewhere : words.by_code, place);

export const button = (text, onclick, className = "") => el("button", { type: "button", className, onclick }, text);

// A button of one sign, with its meaning in words.
export const sign = (text, label, onclick, more = {}) =>
  el("button", { type: "button", className: "plain", title: label, "aria-label": label, onclick, ...more }, text);

export function copyButton(text) {
  const made = button(words.copy, async () => {
    await navigator.clipboard.writeText(text());
    made.textContent = words.copied;
    setTimeout(() => { made.textContent = words.copy; }, 1500);
  }, "copy plain");
  return made;
}

// A dialog with this title; closing it gives the focus back to where it was.
export function dialog(title, ...inside) {
  const close = button(words.close, () => $("dialog").close(), "quiet");
  const top = el("div", { className: "top" }, el("h2", { id: "dialog-title" }, title), close);
  $("dialog").replaceChildren(top, ...inside);
  $("dialog").showModal();
}

// Ask before something that cannot be taken back.
export function confirm(title, text, yes, carryOut, ...more) {
  const sure = button(yes, () => { $("dialog").close(); carryOut(); }, "bad");
  dialog(title, el("p", {}, text), ...more, el("div", { className: "buttons" }, sure));
}

// --- long texts

const CHUNK = 5000; // characters that stand in an element of their own, which is laid out when it is looked at

function chunks(text) {
  const found = [];
  for (let at = 0; at < text.length;) {
    const line = text.indexOf("\n", at + CHUNK);
    const end = line >= 0 && line < at + 2 * CHUNK ? line + 1 : Math.min(at + CHUNK, text.length);
    found.push(el("span", { className: "later" }, text.slice(at, end)));
    at = end;
  }
  return found;
}

// A whole text, however long, the passage that reads like the quote marked.
export function wholeText(text, quote) {
  const [before, mark, after] = marked(text, quote);
  const long = text.length > 2 * CHUNK ? chunks : (part) => (part ? [part] : []);
  return el("pre", { tabIndex: 0, dir: "auto" }, ...long(before), mark, ...long(after ?? ""));
}

const MOST_LINES = 400;
const MOST_CHARACTERS = 20_000;

// A text as `part` draws its lines, its beginning first; a button shows the rest.
function shortened(text, part) {
  const lines = text.slice(0, MOST_CHARACTERS).split("\n").slice(0, MOST_LINES);
  const node = el("pre", { tabIndex: 0 }, ...part(lines));
  const shown = lines.join("\n");
  if (shown.length === text.length) return node;
  const more = button(words.show_all, () => { node.replaceChildren(...part(text.split("\n"))); more.remove(); }, "quiet");
  return el("div", {}, node, more);
}

export const plainText = (text) => shortened(text, (lines) => {
  const shown = lines.join("\n");
  return shown.length > MOST_CHARACTERS ? chunks(shown) : [shown];
});

export function difference(text) {
  const kind = (line) => (line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : line.startsWith("@@") ? "at" : "");
  const drawn = shortened(text, (lines) => lines.map((line) => el("span", { className: kind(line) }, line || " ")));
  drawn.classList.add("diff");
  return drawn;
}

// --- calls

// The arguments of a call, and beside each where it comes from, as far as that was looked for; `observe` opens a result.
export function argumentsOf(call, observe) {
  const rows = Object.entries(call.shown ?? {});
  const of = (name) => (call.sources ?? []).filter((each) => each.argument === name || [".", "["].includes(each.argument.slice(name.length)[0]) && each.argument.startsWith(name));
  const row = ([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { dir: "auto" }, value),
    of(name).length ? el("td", {}, ...of(name).map((each) => sourceOf(each, name, observe))) : null);
  const table = rows.length ? el("table", { className: "args" }, ...rows.map(row)) : null;
  const texts = (call.changes ?? []).flatMap((change) => [
    el("div", { className: "about" }, change.name),
    change.is_diff ? difference(change.text) : plainText(change.text),
  ]);
  return [table, ...texts].filter(Boolean);
}

function sourceOf({ argument, value, source }, name, observe) {
  const inside = argument === name ? "" : `${argument.slice(name.length)} `;
  if (!source) return el("div", { className: "source none" }, "← ", inside, fill(words.source.none, { value }));
  const ofStep = source.kind === "plan" && source.at;
  const text = fill(words.source[ofStep ? "step" : source.kind] ?? source.kind, ofStep ? { at: observe.number(source.at) } : source).trim();
  const result = ["result", "expression"].includes(source.kind);
  return el("div", { className: "source" }, "← ", inside, result ? button(text, () => observe(source.at, source.kind === "result" ? value : ""), "evidence") : text);
}

const LINE = 200;

export function callLine(call) {
  const short = Object.entries(call.shown ?? {}).map(([name, value]) => `${name}=${value.slice(0, LINE).replace(/\s+/g, " ")}`);
  return [...short, ...(call.changes ?? []).map((change) => `${change.name}…`)].join("  ").slice(0, LINE);
}

// The text with the first passage that reads like the quote marked, however it is spaced.
export function marked(text, quote) {
  const said = (quote ?? "").match(/[\p{L}\p{N}]+/gu);
  if (!said) return [text];
  const found = new RegExp(said.join("[^\\p{L}\\p{N}]*"), "iu").exec(text);
  if (!found) return [text];
  return [text.slice(0, found.index), el("mark", {}, found[0]), text.slice(found.index + found[0].length)];
}
