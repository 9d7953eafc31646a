// The box at the bottom: the one place where words are typed. What they are for follows from how the thread stands, and
// is said beside it; a form may ask for words of its own (`reply`).
import { $, fill, words } from "./draw.js";
import { draft, keep } from "./drafts.js";

export class Composer {
  // `send(use, text)` carries out what was typed; it is kept until that has worked.
  constructor(send) {
    this.send = send;
    this.view = null;
    this.key = "box:";
    this.pictures = []; // those that go with the request, as long as it names them
    this.wanted = null; // what a form, or a message that is changed, asked for: {id, how}
    $("text").addEventListener("input", () => { this.save(); this.show(); });
    $("text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.submit(event);
      if (event.key === "Escape" && this.wanted) this.reply(null);
    });
    $("composer").addEventListener("submit", (event) => this.submit(event));
    $("use-no").addEventListener("click", () => this.reply(null));
  }

  // Turn to a thread (null: a new one), with what was typed there before.
  open(thread, view) {
    this.key = `box:${thread ?? ""}`;
    this.view = view;
    const kept = draft(this.key);
    if ($("text").value !== (kept?.text ?? "")) $("text").value = kept?.text ?? "";
    this.wanted = kept?.wanted ?? null;
    this.pictures = kept?.pictures ?? [];
    this.sending = false;
    this.show();
  }

  reply(id, how) {
    this.wanted = id && { id, how };
    this.save();
    this.show();
    $("text").focus();
  }

  save() {
    const text = $("text").value;
    keep(this.key, text || this.wanted ? { text, wanted: this.wanted, pictures: this.pictures } : null);
  }

  // What the words are for: {kind, id}.
  use() {
    const { mine = [], working, parts, audited } = this.view ?? {};
    const asked = this.wanted && mine.find((each) => each.id === this.wanted.id);
    if (asked) return { kind: this.wanted.how, id: asked.id, asked };
    if (working) return { kind: "tell" };
    if (mine.length) return { kind: "answer", id: mine[0].id, asked: mine[0] };
    if (this.wanted?.how === "instead") return { kind: "instead", id: this.wanted.id };
    return { kind: parts?.stopped && !audited ? "steer" : "goal" };
  }

  show() {
    const use = this.use();
    const closed = this.view?.closed ?? "";
    const shown = closed || { goal: words.goal, tell: words.tell, answer: words.reply, steer: words.what_changes, instead: words.instead, changes: words.what_changes, refusal: words.why }[use.kind];
    $("log").classList.toggle("at-rest", ["goal", "instead"].includes(use.kind));
    if ($("text").placeholder !== shown) $("text").placeholder = shown;
    const several = use.kind === "answer" && this.view.mine.length > 1;
    const question = (use.asked?.question ?? "").split("\n")[0];
    $("use").hidden = !(several || ["changes", "refusal", "instead"].includes(use.kind));
    $("use-text").textContent = use.kind === "answer" ? fill(words.answering, { question }) : shown;
    $("use-no").hidden = !this.wanted;
    $("send").textContent = use.kind === "refusal" ? words.refuse : words.send;
    $("text").disabled = Boolean(closed);
    $("send").disabled = Boolean(this.sending || closed) || (!$("text").value.trim() && use.kind !== "refusal");
    $("stop").hidden = !this.view?.working;
    $("stop").disabled = Boolean(this.view?.stopping);
  }

  async submit(event) {
    event?.preventDefault();
    const use = this.use();
    const text = $("text").value.trim();
    if (this.sending || this.view?.closed || (!text && use.kind !== "refusal")) return;
    const { key, view } = this;
    this.sending = true;
    this.show();
    try {
      await this.send(use, text);
      keep(key, null);
      if (this.key === key && $("text").value.trim() === text) {
        $("text").value = "";
        this.wanted = null;
        this.pictures = [];
      }
    } catch { /* said on the page; what was typed stays */ }
    if (this.view === view || this.key === key) this.sending = false;
    this.show();
  }
}
