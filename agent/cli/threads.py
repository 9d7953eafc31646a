"""The commands about runs: list, show, watch, tell, cancel, undo, record and delete them, and their open questions."""

import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, get_args

from rich.cells import cell_len, set_cell_size

from donewhen import Agent, ConfigError, Run, UnknownThread
from donewhen.agent.cli.exits import Exit, print_json
from donewhen.agent.cli.result import (
    NOT_OURS,
    STATUSES,
    effect_line,
    is_ours,
    proof_texts,
    receipt_lines,
    report,
    resume_command,
    run_again_words,
    run_object,
    short_id,
)
from donewhen.agent.cli.screen.asking import UNASKED, ask_consent, is_meant
from donewhen.agent.cli.screen.drawing import AnswerText, draw_pause
from donewhen.agent.cli.screen.meter import MeterText
from donewhen.agent.cli.screen.terminal import ShownText, Terminal, clean, open_terminal, shorten
from donewhen.agent.cli.screen.views import (
    Progress,
    View,
    call_text,
    failure_lines,
    failure_text,
    heard_text,
    mode_text,
)
from donewhen.agent.cli.storage_view import QUEUE, StorageView
from donewhen.agent.storage import CUT_OFF
from donewhen.clients import RunStatus, closing_lines, is_failure, load_pause, say
from donewhen.types import Conversation, Page, ThreadInfo, UndoneChange

BACKGROUND = {"agents_md": "AGENTS.md"}
"""The names, for people, of the keys under `background` in a receipt."""
STATES = (*get_args(RunStatus), CUT_OFF)


def list_runs(view: StorageView, owner: str | None, status: Collection[str], prefix: str, limit: int) -> int:
    """Print one line per run, the latest first, and how many more there are.

    Raises ConfigError for a status that no run has.
    """
    if unknown := [each for each in status if each not in STATES]:
        raise ConfigError(f"--status {unknown[0]!r} is none; a run is {', '.join(STATES)}")

    async def look(agent: Agent) -> tuple[list[ThreadInfo], list[str], int]:
        filters: Any = {"owner": owner, "status": status, "prefix": prefix}
        infos = await agent.threads(limit, **filters)
        left = await agent.storage.find_unsettled_left()
        async with agent.storage.reader() as (_, store):
            more = await store.threads.count(**filters, left=left) - len(infos) if len(infos) == limit else 0
        free = await agent.storage.find_free([info.thread_id for info in infos if info.status == "running"])
        return infos, free, more

    infos, cut_off, more = view.look(look) or ([], [], 0)
    names = {info.thread_id: clean(short_id(info.thread_id)) for info in infos}
    width = max(map(len, names.values()), default=0)
    states = {info.thread_id: CUT_OFF if info.thread_id in cut_off else info.status for info in infos}
    lines = [
        f"{names[id]:{width}}  {states[id]:11}  {view.time(info.updated)}  {_row_text(info)}"
        for id, info in ((info.thread_id, info) for info in infos)
    ]
    nothing = "No such runs." if owner or status or prefix else "No runs yet."
    ended = view.finish({"threads": [asdict(info) for info in infos], "more": more}, lines, nothing)
    if more and not view.json:
        options = {"--owner": owner, "--status": status, "--prefix": prefix, "--limit": str(limit + more)}
        print(f"{more} more: {_command('threads', view, options)}", file=sys.stderr)
    return ended


def _command(name: str, view: StorageView, options: Mapping[str, str | Collection[str] | None]) -> str:
    """Return the command that lists more, with the options that were given and the storage."""
    given = {**options, "--storage": view.storage_option}
    each = [(option, [value] if isinstance(value, str) else value) for option, value in given.items() if value]
    return " ".join(["donewhen", name, *(f"{option} {quote(one)}" for option, values in each for one in values)])


def _row_text(info: ThreadInfo) -> str:
    """Return a run's goal, why it did not succeed, and what it cost, if that is known."""
    cost = f"  ${info.spent['cost_usd']:.4f}" if info.spent.get("cost_usd") else ""
    return " – ".join(filter(None, (shorten(_goal_text(info), 68), shorten(info.problem, 80)))) + cost


def _goal_text(info: ThreadInfo) -> str:
    """Return the goal of a run; that of a scheduled one without the last paragraph, which says for when it is."""
    return info.goal.rpartition("\n\n")[0] or info.goal if info.schedule else info.goal


def show_thread(view: StorageView, thread: str | None, observation: str | None = None) -> int:
    """Print a run, by default the latest, with all its evidence; or one of its observations, whole."""
    info = view.thread(thread)
    if observation is not None:
        entry = view.ask(lambda agent: agent.observation(info.thread_id, observation))
        return view.finish(entry, [clean(_readable(entry["text"]))])

    async def look(agent: Agent) -> tuple[Conversation, bool]:
        return await agent.conversation(info.thread_id), not await agent.storage.find_free([info.thread_id])

    conversation, is_held = view.ask(look)
    run = conversation.run
    at_work = is_held and run.status == "running"
    hint = None if at_work else resume_command(run, view.storage, info)
    if view.json:
        steps = {id: {"status": step["status"], "reason": step["reason"]} for id, step in run.steps.items()}
        so_far = {} if run.receipt else {"steps": steps, "observations": conversation.observations}
        return view.finish({**run_object(run, hint), **so_far})
    terminal = open_terminal(plain=view.config.plain, stream=sys.stdout, language=run.language)
    hint = hint or run_again_words(info, run.status, view.storage)
    _show(conversation, terminal, at_work=at_work, hint=hint)
    if run.status in ("waiting", "running") and not (at_work or info.queue or is_ours(run, info)):
        terminal.line(f"This thread {NOT_OURS}.")
    return Exit.COMPLETED


def _readable(text: str) -> str:
    """Return a result as lines: those of an object of texts, such as a program's output, under their names."""
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(parts, dict) or not any("\n" in each for each in parts.values() if isinstance(each, str)):
        return text
    texts = {
        name: each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for name, each in parts.items()
    }
    return "\n".join(f"{name}:\n{each.rstrip()}" if "\n" in each else f"{name}: {each}" for name, each in texts.items())


def _show(conversation: Conversation, terminal: Terminal, *, at_work: bool, hint: str | None) -> None:
    run = conversation.run
    speak = partial(say, terminal.language)
    why = run.outcome["reason"] if run.outcome else run.problem if run.status != "waiting" else ""
    reason = f" ({shorten(why, 500)})" if why else ""
    states = {"waiting": ("page", "waiting_status"), "queued": ("show", "queued")}
    status = speak("page", "at_work") if at_work else speak(*states.get(run.status, ("terminal", run.status)))
    terminal.line(speak("show", "goal", goal=shorten(run.goal, 500)), "bold")
    terminal.line(speak("show", "status", status=f"{status}{reason}"))
    if run.receipt and (texts := proof_texts(run.receipt, terminal)):
        terminal.line(f" {terminal.marks['dot']} ".join(texts))
    for mode in run.receipt.get("modes", ()) if run.receipt else ():
        terminal.line(mode_text(mode, terminal))
    for text, style in (*_steps(run, terminal), *_failures(conversation, terminal)):
        terminal.line(text, style)
    for question in run.receipt["questions"] if run.receipt else ():
        terminal.line(*_question_line(question, terminal))
    if background := run.receipt.get("background") if run.receipt else ():
        names = ", ".join(BACKGROUND.get(name, name) for name in background)
        terminal.line(speak("page", "background", names=names))
    for words in (*run.receipt.get("heard", ()), *run.receipt.get("late", ())) if run.receipt else ():
        terminal.line(heard_text(words, terminal))
    if conversation.displaced and not run.receipt:
        terminal.line(shorten(conversation.displaced, 500), "yellow")
    for pending in run.pending:
        terminal.line(f"\n{terminal.say('waiting')} {pending['id']}", "bold")
        terminal.show(draw_pause(load_pause(pending), terminal))
    if run.answer:
        terminal.line("")
        terminal.show(AnswerText(run.answer) if terminal.console.is_terminal else ShownText(clean(run.answer)))
    if rows := MeterText(run.spent, run.limits, terminal.language).rows():
        terminal.line(f"\n{terminal.texts('show')['spent']}", "bold")
        room = max(cell_len(row.name) for row in rows)
        for row in rows:
            terminal.line(f"  {set_cell_size(row.name, room)} {row.text}", row.style)
    if hint:
        terminal.line(terminal.say("go_on_with", command=hint), whole=True)


def _steps(run: Run, terminal: Terminal) -> Iterator[tuple[str, str]]:
    if run.receipt:
        yield from receipt_lines(run.receipt, terminal, details=True)
        return
    progress = Progress()
    progress.take(run)
    for id, row in progress.rows.items():
        why = f" ({shorten(row.reason, 200)})" if row.reason and row.status != "done" else ""
        yield f"{terminal.mark(row.status)} {id} {row.content}{why}", ""


def _failures(conversation: Conversation, terminal: Terminal) -> Iterator[tuple[str, str]]:
    """Yield the last lines of the last call of each step that is not done, if that failed.

    As long as there is no receipt, also all calls that changed something, or were to do so.
    """
    calls = [entry for entry in conversation.observations if entry["source"] == "tool"]
    last = {entry["step"]: entry["id"] for entry in calls}
    for entry in calls:
        record: Mapping[str, Any] = conversation.run.steps.get(entry["step"], {})
        is_last = last[entry["step"]] == entry["id"] and record.get("status") != "done"
        if not conversation.run.receipt and entry["effect"] != "read" and not (is_last and is_failure(entry)):
            ok, result = not is_failure(entry), None if entry.get("made", True) else "refused"
            row = {**entry, "ok": ok, "result": result, "why": "" if ok else entry["text"]}
            yield effect_line(row, terminal)
        if is_last and is_failure(entry) and not entry.get("unknown"):
            call = f"[{entry['id']}] {terminal.shorten(call_text(entry), 100)} {terminal.marks['arrow']} "
            lines = closing_lines(entry["text"])
            yield f"    {call}{failure_text(entry, terminal) or terminal.shorten(entry['text'], 200)}", "yellow"
            yield from failure_lines(lines, terminal)


def _question_line(row: Mapping[str, Any], terminal: Terminal) -> tuple[str, str]:
    """Return a question and its answer; unanswered ones are highlighted."""
    question, answer = shorten(str(row["question"]), 100), shorten(str(row["answer"]), 100)
    if row.get("assumed"):
        assumption = shorten(str(row.get("assumption") or ""), 100)
        words = say(terminal.language, "summary", "assumed", question=question)
        return f"? {words}{f' – {assumption}' if assumption else ''}", "yellow"
    if row["by"] == "user":
        return f"? {question}  {answer}{f' ({name})' if (name := row.get('name')) else ''}", ""
    return f"? {say(terminal.language, 'summary', 'by_default', question=question)} – {answer}", "yellow"


def show_status(view: StorageView) -> Exit:
    """Print the queue, the workers, and the oldest waiting work."""
    status: Any = view.look(lambda agent: agent.status()) or {}
    lines = [f"{name:10} {count}" for name, count in (status.get("threads") or {}).items()]
    for each in status.get("workers") or ():
        load = f"{each['active']}/{each['concurrency']} runs  seen {view.time(each['seen'], exact=True)}"
        lines.append(f"worker     {each['id']}  {each['queue']:7}  {load}")
    lines += [
        f"oldest     {name} since {view.time(since, exact=True)}"
        for name, since in (status.get("oldest") or {}).items()
    ]
    view.finish(status, lines)
    served = {each["queue"] for each in status.get("workers") or ()}
    idle = [queue for queue in status.get("queues") or () if queue not in served]
    for queue in () if view.json else idle:
        start = "donewhen worker" if queue == QUEUE else "agent.worker(), where the agent is made that submitted it"
        print(f"No worker serves {queue!r}; start one with: {start}", file=sys.stderr)
    return Exit.COMPLETED


def show_budgets(view: StorageView, day: str | None) -> Exit:
    """Print what owners and queues spent in a day or month, those that are closest to a limit first."""
    rows = view.look(lambda agent: agent.budgets(day)) or []
    lines = []
    for row in rows:
        spent = {each["key"]: each["spent"] for each in row["meter"]}
        limits = {each["key"]: each["limit"] for each in row["meter"] if each["limit"] is not None}
        lines.append(f"{row['scope']:5}  {row['name'] or '–'}  {MeterText(spent, limits).line()}")
    return view.finish(
        {"budgets": rows},
        lines,
        "Nothing was spent then, in the zone of DONEWHEN_BUDGETS (by default UTC), by agents with budgets.",
    )


def show_pending(view: StorageView, owner: str | None, prefix: str, limit: int, cursor: str | None) -> Exit:
    """Print the open questions of all threads, and how to see more."""
    more: Any = {"owner": owner, "prefix": prefix, "limit": limit, "cursor": cursor}
    rows = view.look(lambda agent: agent.pending(**more)) or Page[Any]()
    lines = []
    for row in rows:
        since, who = view.time(row["asked_at"] or ""), f"  {row['owner']}" if row["owner"] else ""
        who += f"  for {row['answered_by']}" if row.get("answered_by") else ""
        thread = clean(short_id(row["thread_id"]))
        question, goal = shorten(row["question"], 80), shorten(row["goal"], 50)
        lines.append(f"{thread}  {row['kind']:8}  {since}{who}  {'  –  '.join(filter(None, (goal, question)))}")
    shown = {"pending": rows, "cursor": rows.cursor, **({"damaged": dict(rows.damaged)} if rows.damaged else {})}
    ended = view.finish(shown, lines, "Nothing waits for anybody.")
    for thread, problem in rows.damaged.items() if not view.json else ():
        print(f"Thread {clean(short_id(thread))} waits, and {problem}", file=sys.stderr)
    if rows.cursor and not view.json:
        options = {"--owner": owner, "--prefix": prefix, "--limit": str(limit), "--cursor": rows.cursor}
        print(f"More questions wait: {_command('pending', view, options)}", file=sys.stderr)
    return ended


def watch_thread(view: StorageView, thread: str, cursor: str | None) -> Exit:
    """Print events as they come; end like `show`, at a pause or the end."""
    info, terminal = view.thread(thread), open_terminal(plain=view.config.plain, may_ask=False)

    async def follow(agent: Agent) -> Run:
        with View(terminal, Progress(), quiet=view.json) as screen:
            async for event, after in agent.watch(info.thread_id, cursor):
                if view.json:
                    print_json({"event": event, "cursor": after})
                screen.show(event)
                if event["type"] == "waiting":
                    break
        return await agent.get(info.thread_id)

    run = view.ask(follow)
    return STATUSES[run.status] if view.json else report(run, terminal, view.storage, json=False, info=info)


def cancel_thread(view: StorageView, thread: str, by: str = "") -> Exit:
    """End a run, and print its state."""
    info = view.thread(thread)
    run = view.ask(lambda agent: agent.cancel(info.thread_id, by=by), tells=True)
    return view.finish(run_object(run, resume_command(run, view.storage, info)), [run.status])


def undo_thread(view: StorageView, thread: str | None, step: str | None, *, dry_run: bool) -> Exit:
    """Put back what a run changed, and print what became of each change. Ask whether the latest is meant."""
    info = view.thread(thread)
    if thread is None and not dry_run:
        terminal = open_terminal(plain=view.config.plain, may_ask=not view.json)
        if not is_meant(terminal, info, "[y] put back what it changed  [n] leave it"):
            return Exit.FAILED
    elif thread is None and not view.json:
        print(f"Thread {clean(short_id(info.thread_id))}: {shorten(info.goal, 68)}", file=sys.stderr)
    report = view.ask(lambda agent: agent.undo(info.thread_id, step, dry_run=dry_run))
    lines = [_change_line(change, dry_run=dry_run) for change in report.changes]
    if report.status == "refused":
        lines.append("Take back what was changed since, and undo again, or keep the file.")
    if report.status == "nothing" and report.earlier:
        lines.append(f"No file was changed. An earlier request has changes: --step {report.earlier}")
    lines += [f"not undone    {row['id']}  {row['tool']}: {row['why']}" for row in report.beyond]
    view.finish(report.to_dict(), lines, "No file was changed.")
    if report.status == "refused":
        return Exit.FAILED
    return Exit.PARTIAL if any(change.result == "lost" for change in report.changes) else Exit.COMPLETED


def _change_line(change: UndoneChange, *, dry_run: bool) -> str:
    words = {"restored": "would return" if dry_run else "put back", "refused": "REFUSED", "left": "left as it is"}
    words |= {"unchanged": "nothing to do", "lost": "not undone"}
    words |= {"restored": "would go" if dry_run else "deleted"} if change.removes else {}
    path = f"{change.to} → {change.path}" if change.to else change.path
    why = f": {change.why}" if change.why else ""
    return f"{words[change.result]:13} {change.id}  {path}{why}"


def tell_thread(view: StorageView, thread: str, text: str, by: str = "") -> Exit:
    """Say something to a run, which need not work."""
    info = view.thread(thread)
    view.ask(lambda agent: agent.tell(info.thread_id, text, by=by), tells=True)
    return view.finish({"told": info.thread_id}, ["told"])


def save_recording(view: StorageView, thread: str, out: Path) -> int:
    """Write the recording of a run, without credentials."""
    from donewhen.testing import Recording

    info = view.thread(thread)
    recording = view.ask(lambda agent: Recording.of(agent, info.thread_id))
    try:
        recording.save(out)
    except OSError as error:
        raise ConfigError(f"the recording cannot be written to {str(out)!r}: {error.strerror}") from None
    replies = sum(row["kind"] == "reply" for row in recording.rows)
    return view.finish({"recording": str(out), "replies": replies}, [f"{out}: {replies} replies"])


def write_receipt(view: StorageView, thread: str, out: Path | None, key: Path | None) -> int:
    """Write the receipt of a finished run, or print it."""
    from donewhen.receipts import export_receipt

    info = view.thread(thread)
    text = view.ask(lambda agent: export_receipt(agent, info.thread_id, key))
    if out is None:
        print(text, end="")
        return Exit.COMPLETED
    try:
        out.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"the receipt cannot be written to {str(out)!r}: {error.strerror}") from None
    return view.finish({"receipt": str(out)}, [str(out)])


def delete_thread(view: StorageView, thread: str, *, yes: bool) -> Exit:
    """Delete a thread if the person agrees; with `yes` nobody is asked, and a beginning of its id is not enough."""
    info, terminal = view.thread(thread), open_terminal(plain=view.config.plain, may_ask=not view.json)
    if yes and info.thread_id != thread:
        raise UnknownThread(
            f"there is no thread {thread!r}; to delete {info.thread_id!r}, give the whole id with --yes"
        )
    about, unasked = f"Thread {info.thread_id}: {shorten(info.goal, 68)}", UNASKED.format("a thread is")
    if not (yes or ask_consent(terminal, about, "[y] delete it with all its data  [n] keep it", unasked)):
        return Exit.FAILED
    ids = view.ask(lambda agent: agent.delete(info.thread_id))
    also = f", with its schedule{'s' * (len(ids) > 1)} {', '.join(ids)}" if ids else ""
    return view.finish({"deleted": [info.thread_id], "schedules": ids}, [f"{info.thread_id} deleted{also}"])


def prune_threads(view: StorageView, older: str) -> Exit:
    """Delete threads that ended long ago."""
    match = re.fullmatch(r"(\d+)([dhm])", older.strip())
    if match is None:
        raise ConfigError(f"--older {older!r} is no time; write 30d, 12h or 45m")
    age = timedelta(**{{"d": "days", "h": "hours", "m": "minutes"}[match[2]]: int(match[1])})
    deleted = view.look(lambda agent: agent.prune(age)) or []
    return view.finish({"deleted": deleted}, [f"{len(deleted)} threads deleted"])
