// The list of conversations: to find, open, rename and delete them.
import { $, button, confirm, el, fill, sign, words } from "./draw.js";
import { ask, get, post, thread as at } from "./server.js";
import { stateOf } from "./view.js";

const PAGE = 50;
const POLL = 10_000; // milliseconds; other processes work on threads too
const PAUSE = 200; // after a letter of a search

export class Threads {
  // `open(id)` shows a thread, null a new one; `failed(error)` says what went wrong; `reached()`: the server answers.
  constructor(open, failed, reached) {
    this.open = open;
    this.failed = failed;
    this.reached = reached;
    this.limit = PAGE;
    this.current = null;
    this.rows = [];
    const search = $("search");
    search.placeholder = words.search;
    search.setAttribute("aria-label", words.search);
    search.addEventListener("input", () => { clearTimeout(this.soon); this.soon = setTimeout(() => { this.limit = PAGE; this.refresh(); }, PAUSE); });
    setInterval(() => { if (!document.hidden && !this.busy()) this.refresh(); }, POLL);
    document.addEventListener("visibilitychange", () => { if (!document.hidden && !this.busy()) this.refresh(); });
  }

  busy() {
    return Boolean($("threads").querySelector("input"));
  }

  async refresh() {
    const asked = (this.asked = (this.asked ?? 0) + 1);
    const search = $("search").value.trim();
    let found;
    try {
      found = await get(`threads?search=${encodeURIComponent(search)}&limit=${this.limit}`);
    } catch (error) {
      if (error.status) this.failed(error);
      return;
    }
    this.reached();
    if (asked !== this.asked) return; // a later one was asked for
    const drawn = JSON.stringify([found, search, this.current]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.rows = found.threads;
    this.draw(found.more, search);
  }

  draw(more, search) {
    const focused = document.activeElement?.closest?.("#threads li")?.dataset.thread;
    const rows = this.rows.map((row) => this.row(row));
    if (!rows.length && search) rows.push(el("li", { className: "note" }, words.nothing_found));
    if (more) rows.push(el("li", {}, button(words.more, () => { this.limit += PAGE; this.refresh(); }, "quiet")));
    $("threads").replaceChildren(...rows);
    if (focused) $("threads").querySelector(`[data-thread="${CSS.escape(focused)}"] button`)?.focus();
  }

  row(row) {
    const current = row.thread_id === this.current;
    const when = row.updated ? new Date(row.updated).toLocaleString([], { dateStyle: "short", timeStyle: "short" }) : "";
    const open = el("button", { type: "button", className: "open", "aria-current": String(current), onclick: () => this.open(row.thread_id) },
      el("div", { className: "goal", dir: "auto" }, titleOf(row)),
      el("div", { className: "status" }, [stateOf(row), when].filter(Boolean).join(" · ")),
      row.folder ? el("div", { className: "status" }, fill(words.of_folder, row)) : null);
    const tools = el("span", { className: "tools" },
      sign("✎", words.rename, () => this.rename(row, item)), sign("✕", words.delete, () => this.remove(row)));
    const item = el("li", { className: row.at_work ? "at_work" : row.status, "data-thread": row.thread_id }, open, tools);
    return item;
  }

  rename(row, item) {
    const field = el("input", { type: "text", value: titleOf(row), "aria-label": words.rename, maxLength: 200, dir: "auto" });
    const back = () => { this.drawn = ""; item.replaceWith(this.row(row)); this.refresh(); };
    const done = async () => {
      try { await post(at(row.thread_id, "title"), { title: field.value }); } catch (error) { this.failed(error); }
      back();
    };
    field.addEventListener("keydown", (event) => { if (event.key === "Enter") done(); if (event.key === "Escape") back(); });
    item.replaceChildren(field, el("span", { className: "tools" }, sign("✓", words.rename, done), sign("✕", words.close, back)));
    field.select();
  }

  remove(row) {
    confirm(words.delete, words.delete_this, words.delete, async () => {
      try { await ask(at(row.thread_id), { method: "DELETE" }); } catch (error) { return this.failed(error); }
      if (row.thread_id === this.current) this.open(null);
      else this.refresh();
    }, el("p", { className: "about", dir: "auto" }, titleOf(row)));
  }

  // The row of the thread that is open, if it is in the list.
  get now() {
    return this.rows.find((row) => row.thread_id === this.current);
  }
}

export const titleOf = (row) => row.title || row.goals?.[0] || row.goal || row.thread_id;
