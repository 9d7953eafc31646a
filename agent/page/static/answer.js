// The answer of a run: its text as it comes, and the place beside it for what was found about it.
import { copyButton, el, words } from "./draw.js";
import { Markdown } from "./markdown.js";

export class Answer {
  constructor() {
    this.text = "";
    this.markdown = new Markdown();
    this.beside = el("aside", { className: "beside", hidden: true });
    this.buttons = el("div", { className: "under" }, copyButton(() => this.text));
    this.node = el("section", { className: "card answer said", "aria-label": words.the_answer }, this.markdown.node, this.beside, this.buttons);
  }

  // A piece of it, as it is written.
  add(piece) {
    this.write(this.text + piece, false);
  }

  // All of it. When it is drawn, `markdown.drawn` is called: marks beside its sentences begin there.
  write(text, done = true) {
    this.text = text;
    this.node.hidden = !text;
    this.markdown.write(text, done);
  }
}
