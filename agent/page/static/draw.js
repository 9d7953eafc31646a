// Elements from data. Text is only ever set as text: nothing that a model or a tool wrote is read as HTML.

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

export const name = (key, amount) => {
  const [one, several] = (words[key] ?? key).split("|");
  return amount === 1 ? one : several ?? one;
};

export const button = (text, onclick, className = "") => el("button", { type: "button", className, onclick }, text);

// --- Markdown, the part of it that answers use

const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)|(https?:\/\/[^\s<>()"']+[^\s<>()"'.,;:!?])/g;

function inline(text) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) found.push(text.slice(at, match.index));
    const [whole, , code, strong, emphasis, label, target, address] = match;
    if (code !== undefined) found.push(el("code", {}, code.trim()));
    else if (strong !== undefined) found.push(el("strong", {}, ...inline(strong)));
    else if (emphasis !== undefined) found.push(el("em", {}, ...inline(emphasis)));
    else found.push(el("a", { href: target ?? address, target: "_blank", rel: "noopener noreferrer", title: target ?? address }, label ?? address));
    at = match.index + whole.length;
  }
  if (at < text.length) found.push(text.slice(at));
  return found;
}

const ITEM = /^(\s*)([-*•+]|\d+[.)])\s+(.*)$/;
const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function list(lines) {
  const first = lines[0].match(ITEM);
  const ordered = /\d/.test(first[2]);
  const node = el(ordered ? "ol" : "ul", ordered ? { start: parseInt(first[2], 10) } : {});
  let inner = [];
  const close = () => {
    if (inner.length && node.lastChild) node.lastChild.append(...(ITEM.test(inner[0]) ? [list(inner)] : [" ", ...inline(inner.join(" "))]));
    inner = [];
  };
  for (const line of lines) {
    const item = line.match(ITEM);
    if (item && item[1].length <= first[1].length) {
      close();
      node.append(el("li", {}, ...inline(item[3])));
    } else inner.push(line);
  }
  close();
  return node;
}

export function markdown(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const found = [];
  const take = (test) => {
    const taken = [];
    while (lines.length && test(lines[0])) taken.push(lines.shift());
    return taken;
  };
  while (lines.length) {
    const line = lines[0];
    const fence = line.match(/^\s*(```+|~~~+)/);
    const heading = line.match(/^(#{1,6})\s+(.*)$/);
    if (!line.trim()) lines.shift();
    else if (fence) {
      lines.shift();
      const body = take((each) => !each.trim().startsWith(fence[1]));
      lines.shift();
      found.push(el("pre", {}, el("code", {}, body.join("\n"))));
    } else if (heading) {
      lines.shift();
      found.push(el(`h${Math.min(heading[1].length + 1, 4)}`, {}, ...inline(heading[2])));
    } else if (line.includes("|") && /^[\s|:-]+$/.test(lines[1] ?? "") && (lines[1] ?? "").includes("-")) {
      const [head, , ...rows] = take((each) => each.includes("|"));
      found.push(el("table", {}, el("tr", {}, ...cells(head).map((cell) => el("th", {}, ...inline(cell)))),
        ...rows.map((row) => el("tr", {}, ...cells(row).map((cell) => el("td", {}, ...inline(cell)))))));
    } else if (ITEM.test(line)) found.push(list(take((each) => ITEM.test(each) || /^\s+\S/.test(each))));
    else if (/^>/.test(line)) found.push(el("blockquote", {}, ...markdown(take((each) => /^>/.test(each)).map((each) => each.replace(/^>\s?/, "")).join("\n"))));
    else {
      const text = take((each) => each.trim() && !ITEM.test(each) && !/^(#{1,6}\s|>|\s*(```|~~~))/.test(each));
      found.push(el("p", {}, ...text.flatMap((each, number) => [number ? el("br") : "", ...inline(each)])));
    }
  }
  return found;
}

// --- calls

export function difference(text) {
  const kind = (line) => (line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : line.startsWith("@@") ? "at" : "");
  return el("pre", { className: "diff" }, ...text.split("\n").map((line) => el("span", { className: kind(line) }, line || " ")));
}

export function argumentsOf(call) {
  const rows = Object.entries(call.shown ?? {});
  const table = rows.length ? el("table", { className: "args" }, ...rows.map(([name, value]) => el("tr", {}, el("td", {}, name), el("td", {}, value)))) : null;
  const texts = (call.changes ?? []).flatMap((change) => [
    el("div", { className: "about" }, change.name),
    change.is_diff ? difference(change.text) : el("pre", {}, change.text),
  ]);
  return [table, ...texts];
}

export function callLine(call) {
  const short = Object.entries(call.shown ?? {}).map(([name, value]) => `${name}=${value.replace(/\s+/g, " ")}`);
  return [...short, ...(call.changes ?? []).map((change) => `${change.name}…`)].join("  ");
}

// The text with the first passage that reads like the quote marked, however it is spaced.
export function marked(text, quote) {
  const words = (quote ?? "").match(/[\p{L}\p{N}]+/gu);
  if (!words) return [text];
  const found = new RegExp(words.join("[^\\p{L}\\p{N}]*"), "iu").exec(text);
  if (!found) return [text];
  return [text.slice(0, found.index), el("mark", {}, found[0]), text.slice(found.index + found[0].length)];
}
