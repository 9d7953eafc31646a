// A worker that reads Markdown into trees, so that no text, however odd or long, holds up the page.
//
// Takes {id, text, done}; answers, as JSON, [path, keep, trees]. A tree is a text, or [tag, attributes,
// ...trees]. Of the node at the end of the path, counted from the top, the first `keep` children stay, and
// the trees follow. What was given for an id before is known here, so a text that grows costs what it grew by.
import { MarkdownIt, colours } from "./libraries.js";

const MOST_COLOURED = 20_000; // characters of one block of code
const TASK = /^\[([ xX])\]\s/;
const outline = new MarkdownIt();
outline.core.ruler.enableOnly(["normalize", "block"]);
const markdown = new MarkdownIt({ linkify: true, breaks: true });
markdown.linkify.set({ fuzzyEmail: false });
markdown.inline.ruler.before("emphasis", "times", (state, silent) => {
  if (!/^\d\*\d/.test(state.src.slice(state.pos - 1, state.pos + 2))) return false; // 2*3*4 is a product
  if (!silent) state.pending += "*";
  state.pos += 1;
  return true;
});
const CHUNK = 40; // lines of code that stand in an element of their own, so that code that grows is not laid out whole
const given = new Map(); // id → [key, tree] of its blocks

onmessage = ({ data: { id, text, done } }) => {
  const { blocks, references } = blocksOf(text);
  const known = references ? JSON.parse(references) : undefined;
  const before = given.get(id) ?? [];
  let same = true;
  const now = blocks.map((block, at) => {
    const closed = done || at < blocks.length - 1;
    const key = `${block}\n${references}${closed}`;
    same &&= before[at]?.[0] === key;
    return same ? before[at] : [key, treeOf(markdown.parse(block, { references: known }), closed)];
  });
  given.set(id, now);
  if (done) given.delete(id);
  postMessage(JSON.stringify(patch([], before.map(([, tree]) => tree), now.map(([, tree]) => tree))));
};

// What makes these children of those: all from the first that differs, or only what differs inside of it.
function patch(path, before, now) {
  let at = 0;
  while (at < now.length && at < before.length && equal(before[at], now[at])) at += 1;
  const [old, next] = [before[at], now[at]];
  const inside = Array.isArray(old) && Array.isArray(next) && old[0] === next[0] && equal(old[1], next[1]);
  if (inside && at === before.length - 1 && at === now.length - 1) return patch([...path, at], old.slice(2), next.slice(2));
  return [path, at, now.slice(at)];
}

function equal(one, other) {
  return one === other || (typeof one === "object" && typeof other === "object" && JSON.stringify(one) === JSON.stringify(other));
}

// The blocks of a text at its top level, each of which reads the same by itself, and the addresses that they refer to.
function blocksOf(text) {
  const found = {};
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const tops = outline.parse(lines.join("\n"), found).filter((token) => token.level === 0 && token.map);
  const blocks = tops.map(({ map: [first, end] }) => lines.slice(first, end).join("\n"));
  return { blocks, references: found.references ? JSON.stringify(found.references) : "" };
}

function treeOf(tokens, closed) {
  const trees = treesOf(tokens, closed);
  return trees.length === 1 ? trees[0] : ["div", {}, ...trees];
}

function treesOf(tokens, closed) {
  const top = [];
  const open = [top];
  tokens.forEach((token, at) => {
    const into = open.at(-1);
    if (token.hidden) return; // the paragraph of a tight list
    if (token.nesting < 0) open.pop();
    else if (token.nesting > 0) {
      const node = [token.tag, attributesOf(token)];
      into.push(node);
      open.push(node);
    } else if (token.type === "inline") {
      const task = tokens[at - 2]?.type === "list_item_open" && TASK.exec(token.children[0]?.content ?? "");
      if (task) {
        token.children[0].content = token.children[0].content.slice(task[0].length);
        into.push(["span", { class: "task" }, task[1] === " " ? "☐" : "☑"]);
      }
      into.push(...treesOf(token.children, closed));
    } else into.push(leafOf(token, closed));
  });
  return top;
}

function attributesOf(token) {
  if (token.type === "link_open") return { href: token.attrGet("href") };
  if (token.type === "ordered_list_open") return { start: token.attrGet("start") ?? 1 };
  const align = token.attrGet("style")?.match(/right|center/)?.[0];
  return align ? { class: align } : {};
}

function leafOf(token, closed) {
  switch (token.type) {
    case "softbreak":
    case "hardbreak": return ["br", {}];
    case "hr": return ["hr", {}];
    case "code_inline": return ["code", {}, token.content];
    case "fence":
    case "code_block": return ["pre", {}, ["code", {}, ...coloured(token, closed)]];
    case "image": return ["img", { src: token.attrGet("src") }, token.content];
    default: return token.content;
  }
}

function coloured({ info, content }, closed) {
  const code = content.replace(/\n$/, "");
  const language = info.trim().split(/\s/)[0].toLowerCase();
  if (!closed || code.length > MOST_COLOURED || !colours.registered(language)) return chunks(code);
  const plain = (node) => (node.type === "text" ? node.value : ["span", { class: node.properties.className.join(" ") }, ...node.children.map(plain)]);
  return colours.highlight(language, code).children.map(plain);
}

function chunks(code) {
  const lines = code.split("\n");
  const found = [];
  for (let at = 0; at < lines.length; at += CHUNK) found.push(["span", { class: "chunk" }, `${lines.slice(at, at + CHUNK).join("\n")}\n`]);
  return found;
}
