// What models write, as elements. reader.js reads the Markdown; here its trees become elements of a few allowed kinds.
import { button, el, words } from "./draw.js";

const FRAME = 10; // milliseconds of a frame that are spent on drawing
const PATIENCE = 5000; // milliseconds that a text may take to read; then it is shown as it is
const LONGEST_REST = 1000;
const LARGE = 60; // parts of an element that is drawn piece by piece
const TAGS = new Set(["div", "p", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "strong", "em", "s", "code", "pre", "br", "hr", "span"]);
const TURNS = new Set(["p", "ul", "ol", "blockquote", "table"]); // reads from the right where its text does
const trusted = globalThis.trustedTypes?.createPolicy("page", { createScriptURL: (address) => address === "reader.js" && address });

let reader = start(); // before the first text comes: a question is not to wait for it
let reading = null; // the text that is with the reader, and the timer of its patience
let ids = 0;
const waiting = new Set(); // texts to be read
const ready = []; // what draws a block each

// One text: write it as often as it grows, the last time as `done`. `drawn` is called when all of it is on the page.
export class Markdown {
  constructor() {
    this.node = el("div", { className: "md" });
    this.id = ids += 1;
  }

  write(text, done = true) {
    Object.assign(this, { text, done });
    waiting.add(this);
    read();
  }

  take([path, keep, trees], done) {
    this.drawing = true;
    let node = this.node;
    ready.push(() => {
      for (const at of path) node = inside(node.childNodes[at]);
      while (node.childNodes.length > keep) node.lastChild.remove();
    });
    for (const tree of trees) draws(tree, () => node);
    ready.push(() => {
      this.drawing = false;
      this.node.dataset.drawn = done ? "whole" : "part";
      this.drawn?.();
    });
  }
}

export function markdown(text) {
  const made = new Markdown();
  made.write(text);
  return made.node;
}

// --- reading: one text at a time, and none anew before it is drawn

function read() {
  if (reading) return;
  const next = [...waiting].find((each) => !each.drawing);
  if (!next) return;
  waiting.delete(next);
  reader ??= start();
  reading = { next, done: next.done, late: setTimeout(giveUp, PATIENCE) };
  reader.postMessage({ id: next.id, text: next.text, done: next.done });
}

function start() {
  const made = new Worker(trusted ? trusted.createScriptURL("reader.js") : "reader.js", { type: "module" });
  made.onmessage = ({ data }) => {
    const { next, done } = over();
    next.take(JSON.parse(data), done);
    frame();
    read();
  };
  made.onerror = giveUp;
  return made;
}

function over() {
  const was = reading;
  clearTimeout(was.late);
  reading = null;
  return was;
}

function giveUp() {
  reader?.terminate();
  reader = null;
  if (!reading) return;
  const { node, text } = over().next;
  node.dataset.drawn = "text";
  node.replaceChildren(el("pre", {}, text));
  read();
}

// --- drawing, by animation frame

let asked = false;
let rest = 0; // until when nothing is read anew, so that most of the time is the person's

function frame() {
  if (asked) return;
  asked = true;
  if (document.hidden) setTimeout(draw);
  else requestAnimationFrame(draw);
}

function draw() {
  asked = false;
  const began = performance.now();
  do ready.shift()?.(); while (ready.length && performance.now() < began + FRAME);
  setTimeout(() => { // when it was laid out
    rest = Math.min(3 * (performance.now() - began), LONGEST_REST);
    if (ready.length) frame();
    setTimeout(read, rest);
  });
}

// The children of a large element are drawn one after the other, as time allows.
function draws(tree, into) {
  if (parts(tree) < LARGE) return ready.push(() => into().append(elementOf(tree)));
  const [tag, attributes, ...children] = tree;
  let node = null;
  ready.push(() => {
    const made = elementOf([tag, attributes]);
    into().append(made);
    node = inside(made);
  });
  for (const child of children) draws(child, () => node);
}

const parts = (tree) => (Array.isArray(tree) ? tree.slice(2).reduce((sum, child) => sum + parts(child), 1) : 1);

// Where the children of a tree stand in what was made of it.
const inside = (node) => node.inside ?? node;

function elementOf(tree) {
  if (!Array.isArray(tree)) return String(tree);
  const [tag, attributes, ...children] = tree;
  const made = children.map(elementOf);
  if (/^h[1-6]$/.test(tag)) return el(`h${Math.min(Number(tag[1]) + 2, 6)}`, { dir: "auto" }, ...made);
  if (tag === "a") return link(attributes.href, made);
  if (tag === "img") return picture(attributes.src, String(children[0] ?? ""));
  if (tag === "pre") return code(made);
  if (!TAGS.has(tag)) return el("span", {}, ...made);
  const node = el(tag, TURNS.has(tag) ? { dir: "auto" } : {}, ...made);
  if (attributes.class) node.className = attributes.class;
  if (tag === "ol" && attributes.start !== 1) node.start = attributes.start;
  return tag === "table" ? within(el("div", { className: "wide", tabIndex: 0 }, node), node) : node;
}

function within(outer, inner) {
  outer.inside = inner;
  return outer;
}

const OUTSIDE = { target: "_blank", rel: "noopener noreferrer" };
const allowed = (address) => /^(https?|mailto):/i.test(address ?? "");
const host = (address) => { try { return new URL(address).host; } catch { return ""; } };

// Where the words of a link name a place, and it leads to another, that one is said.
function link(address, parts) {
  if (!allowed(address)) return el("span", {}, ...parts);
  const node = el("a", { href: address, title: address, ...OUTSIDE }, ...parts);
  const named = host(node.textContent) || host(`https://${node.textContent.trim()}`);
  if (named.includes(".") && !/\s/.test(node.textContent.trim()) && host(address) && named !== host(address)) node.append(` (${host(address)})`);
  return node;
}

// A picture from elsewhere would tell that this is read, and by whom: it is a link, which nobody has to follow.
function picture(address, about) {
  if (/^data:image\/(png|jpeg|gif|webp);/.test(address)) return el("img", { src: address, alt: about });
  if (!allowed(address)) return el("span", {}, about);
  return el("a", { href: address, title: address, className: "picture", ...OUTSIDE }, `▣ ${about || words.picture} (${host(address)})`);
}

function code(parts) {
  const node = el("pre", { dir: "ltr", tabIndex: 0 }, ...parts);
  const copy = button(words.copy, async () => {
    await navigator.clipboard.writeText(node.textContent.replace(/\n$/, ""));
    copy.textContent = words.copied;
    setTimeout(() => { copy.textContent = words.copy; }, 1500);
  }, "copy plain");
  return within(el("div", { className: "code" }, node, copy), node);
}
