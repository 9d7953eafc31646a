"""The end of a run: an exit code, the answer or one JSON object on stdout, everything else on stderr."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from donewhen import Run
from donewhen.agent.cli.exits import SCHEMA_VERSION, Exit, print_json
from donewhen.agent.cli.screen.drawing import AnswerText, draw_pause
from donewhen.agent.cli.screen.meter import MeterText
from donewhen.agent.cli.screen.terminal import STYLES, Terminal, clean, shorten
from donewhen.agent.cli.screen.views import call_text
from donewhen.clients import SILENT_ROUNDS, catalogue, load_pause, say, sources_text
from donewhen.types import ThreadInfo

MEMORY = "memory:"
"""The storage that ends with the command."""
NOT_OURS = "was not started by the command; answer it from the code that started it: agent.submit_answer, agent.resume"
GENERATED_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
"""The form of a generated id."""
GOOD = ("proven", "cited")
STATUSES: Mapping[str, Exit] = {
    "completed": Exit.COMPLETED,
    "answered": Exit.COMPLETED,
    "failed": Exit.FAILED,
    "cancelled": Exit.FAILED,
    "waiting": Exit.WAITING,
    "partial": Exit.PARTIAL,
    "exhausted": Exit.PARTIAL,
    "running": Exit.FAILED,
    "queued": Exit.FAILED,
}


def short_id(thread_id: str) -> str:
    """Return a thread's id as shown to people: the first part of a generated one, by which it can be found."""
    return thread_id[:8] if GENERATED_ID.fullmatch(thread_id) else thread_id


def run_again_words(info: ThreadInfo, status: str, storage: str | None) -> str | None:
    """Return the command that makes a scheduled run again for its own time, if it ended without success; else None."""
    if not info.schedule or status not in ("failed", "partial", "exhausted", "cancelled"):
        return None
    return command_line(storage, "schedules", "run", info.schedule, "--for", info.moment)


def command_line(storage: str | None, *words: str) -> str:
    """Return a command line of ours, by its path if PATH has none; it names a `storage` given on the command line."""
    command = sys.argv[0]
    by_path = command.endswith("donewhen") and not shutil.which("donewhen")
    near = os.path.relpath(command) if by_path else "donewhen"
    near = near if os.sep in near or not by_path else os.path.join(os.curdir, near)  # else a shell looks in PATH
    program = os.path.abspath(command) if near.startswith("..") else near
    return shlex.join([program, *words, *(["--storage", storage] if storage else [])])


def resume_words(thread_id: str, storage: str | None, *answer: str) -> str | None:
    """Return the command line that continues a thread, or None if it was in memory."""
    if storage == MEMORY:
        return None
    return command_line(storage, "resume", short_id(thread_id), *answer).replace("'…'", '"…"')


def is_ours(run: Run, info: ThreadInfo) -> bool:
    """Return whether the command can continue the run: it started the thread, or a queue takes its answers."""
    return isinstance(info.metadata.get("dir"), str) or (run.status == "waiting" and bool(info.queue))


def resume_command(run: Run, storage: str | None, info: ThreadInfo | None = None) -> str | None:
    """Return the command that continues the run; None if nothing is left to do or it is impossible.

    It names the question, so that running it twice cannot answer the next question. `info` is the row of a thread that
    other code may have started.
    """
    if info and not is_ours(run, info):
        return None
    if run.status == "running":
        return resume_words(run.thread_id, storage)
    if run.status != "waiting":
        return None
    first = run.pending[0]
    answer = ("--approve",) if load_pause(first).approves else ("--answer", "…")
    by = ("--by", first["answered_by"]) if first.get("answered_by") else ()
    return resume_words(run.thread_id, storage, "--id", first["id"], *answer, *by)


def next_text(terminal: Terminal, key: str, command: str | None) -> str:
    """Return how to continue, or that it is impossible."""
    return terminal.say(key, command=command) if command else terminal.say("forgotten")


def run_object(run: Run, resume: str | None) -> dict[str, Any]:
    """Return the run, and the command that continues it, as the object of `--json`."""
    names = ("thread_id", "status", "goal", "pending", "answer", "outcome", "receipt", "spent", "problem")
    row = {name: getattr(run, name) for name in names}
    row["outcome"] = run.outcome and {key: item for key, item in run.outcome.items() if key != "receipt"}
    row["output"] = run.outcome.get("output") if run.outcome else None
    return {"schema_version": SCHEMA_VERSION, **row, "resume": resume}


def report(
    run: Run,
    terminal: Terminal,
    storage: str | None,
    *,
    json: bool,
    quiet: bool = False,
    shown: str = "",
    info: ThreadInfo | None = None,
) -> Exit:
    """Print the final state of a run: the object of --json, its answer, or the question and how to answer.

    `shown` is the part of the answer that the terminal shows already; `info` the row of a thread that other code may
    have started.
    """
    resume = resume_command(run, storage, info)
    if json:
        print_json(run_object(run, resume))
        return STATUSES[run.status]
    if run.answer:
        _write_answer(run.answer, terminal, shown)
    if run.status == "waiting":
        _report_waiting(run, terminal)
        if info and not is_ours(run, info):
            terminal.line(f"This thread {NOT_OURS}.")
        else:
            terminal.line(next_text(terminal, "answer_with", resume), whole=True)
        if resume and len(run.pending) > 1:
            terminal.line(terminal.say("answer_other"))
    elif not quiet:
        _report_end(run, terminal, resume)
    return STATUSES[run.status]


def _write_answer(answer: str, terminal: Terminal, shown: str) -> None:
    """Print the answer without control sequences; on a terminal drawn, and only the part not shown yet.

    A pipe may end at a terminal too, as with `| tail`, so control sequences are removed there as well.
    """
    if not terminal.answers_here:
        sys.stdout.write(clean(answer).rstrip("\n") + "\n")
        sys.stdout.flush()
    elif rest := answer[len(shown) :] if answer.startswith(shown) else answer:
        terminal.line("")
        terminal.show(AnswerText(rest))


def _report_end(run: Run, terminal: Terminal, resume: str | None) -> None:
    receipt: Mapping[str, Any] = run.receipt or {}
    for text, style in receipt_lines(receipt, terminal, details=False):
        terminal.line(text, style)
    has_reason = run.outcome is not None and run.outcome["code"] != "declined"  # that reason is for the log
    reason = run.outcome["reason"] if run.outcome and has_reason else run.problem
    is_shown = run.status in ("completed", "answered") or reason[:40] in shorten(run.answer, len(run.answer))
    why = "" if is_shown else f" ({shorten(reason, 300)})"
    meter = MeterText(run.spent, {}, terminal.language).line(terminal.marks["dot"])
    thread = terminal.say("thread", id=short_id(run.thread_id))
    parts = [f"{terminal.say(run.status)}{why}", *proof_texts(receipt, terminal), meter, thread]
    if terminal.answers_here:
        terminal.line("")
    style = {"completed": "green", "answered": "green", "partial": "yellow", "exhausted": "yellow"}.get(
        run.status, "red"
    )
    terminal.line(f" {terminal.marks['dot']} ".join(part for part in parts if part), style)
    if run.outcome and run.outcome["code"] == "scheduled":
        terminal.line(terminal.say("scheduled_by"))
    if run.outcome and run.problem:
        terminal.line(shorten(run.problem, 500), "yellow")
    if run.status == "running":
        terminal.line(next_text(terminal, "go_on_with", resume), whole=True)


def _report_waiting(run: Run, terminal: Terminal) -> None:
    for pending in run.pending:
        where = f" ({terminal.say('step', step=pending['step'])})" if pending.get("step") else ""
        terminal.line("")
        terminal.line(f"{terminal.say('waiting')} {pending['id']}{where}", "bold")
        terminal.show(draw_pause(load_pause(pending), terminal))
        if notice := load_pause(pending).notice:
            terminal.line(notice, "yellow")
    terminal.line("")


def proof_texts(receipt: Mapping[str, Any], terminal: Terminal) -> list[str]:
    """Return how many steps are done, how many criteria are cited and proven, and the judge's findings."""
    rows = receipt.get("steps") or []
    verdicts = [item["verdict"] for row in (*rows, receipt) for item in row.get("criteria") or []]
    texts = []
    if rows:
        done = sum(row["status"] == "done" for row in rows)
        counts = [_count(name, verdicts, terminal) for name in GOOD[::-1] if name in verdicts]
        texts = [terminal.say("steps_done", done=done, all=len(rows)), *([", ".join(counts)] if counts else [])]
    if not receipt.get("looked", True) and not receipt.get("changed", True):
        texts.append(terminal.say("no_look"))
    if (audit := receipt.get("audit")) is None:
        return texts
    sentences = audit["sentences"]
    shown = sum(row["shown"] == "yes" for row in sentences)
    findings = terminal.say("audited", shown=shown, all=len(sentences)) if sentences else terminal.say("not_audited")
    return [*texts, findings]


def _count(verdict: str, verdicts: list[str], terminal: Terminal) -> str:
    return terminal.say(f"{verdict}_count", **{verdict: str(verdicts.count(verdict))})


def receipt_lines(receipt: Mapping[str, Any], terminal: Terminal, *, details: bool) -> Iterator[tuple[str, str]]:
    """Yield the unfinished work as (text, style); with `details` every step, its criteria, verdicts and evidence."""
    for row in receipt.get("steps") or []:
        status = row["status"]
        if status == "done" and not details:
            continue
        word = terminal.texts("summary").get(status, status)
        reason = f" ({word}{': ' + row['reason'] if row['reason'] else ''})" if status != "done" else ""
        yield f"{terminal.mark(status)} {row['id']} {row['content']}{reason}", STYLES.get(status, "")
        if details:
            yield from _detail_lines(row, terminal)
    for row in receipt.get("effects", ()) if details else ():
        yield effect_line(row, terminal)
    for row in receipt.get("earlier", ()) if details else ():
        text, style = effect_line(row, terminal)
        yield f"{text} ({terminal.texts('page')['earlier']})", style
    for row in receipt.get("approvals", ()) if details else ():
        if row["kind"] == "effect":
            yield _doubt_line(row, terminal)
    if details and receipt.get("output"):
        yield from _data_lines(receipt["output"], terminal)
    if details and receipt.get("audit"):
        yield from _audit_lines(receipt["audit"], terminal)


def effect_line(row: Mapping[str, Any], terminal: Terminal) -> tuple[str, str]:
    """Return a call with effects: what became of it, who or what says so, and where its arguments come from."""
    words = terminal.texts("page")
    result = row.get("result") or ("unknown" if row.get("unknown") else "done" if row["ok"] else "failed")
    said = f", {words['effect_said']}" if row.get("by") else ""
    why = f": {terminal.shorten(row['why'], 200)}" if row.get("why") else ""
    settled = "".join(f" [{id}]" for id in row.get("settled") or ())
    sources = terminal.shorten(sources_text(row.get("sources", ()), terminal.language).replace("`", ""), 300)
    line = f"    [{row['id']}] {terminal.shorten(call_text(row), 100)} {terminal.marks['arrow']} "
    line += f"{words[f'effect_{result}']}{said}{why}{settled}{'  ' if sources else ''}{sources}"
    return line, "dim" if result == "done" else "yellow"


def _doubt_line(row: Mapping[str, Any], terminal: Terminal) -> tuple[str, str]:
    """Return what a person, or the settings, said about a call of which nobody knew whether it took effect."""
    words = terminal.texts("page")
    by = row.get("name") or words["by_you" if row["by"] == "user" else "by_policy"]
    again = catalogue(terminal.language)["options"]["once_more"] if row.get("again") else {}
    decided = again.get(row["decision"]) or words.get(f"decided_{row['decision']}", row["decision"])
    text = f" – {terminal.shorten(row['text'], 200)}" if row.get("text") else ""
    call = f"{terminal.shorten(call_text(row), 100)} {terminal.marks['arrow']} " if row.get("tool") else ""
    return f"    {words['about_effect']}: {call}{decided}{text} ({by})", "dim"


def _audit_lines(audit: Mapping[str, Any], terminal: Terminal) -> Iterator[tuple[str, str]]:
    """Yield a judge's findings on each sentence, and what is missing."""
    verdicts = terminal.texts("page")
    for text in audit["missing"]:
        yield f"{verdicts['missing']}: {text}", "yellow"
    for row in audit["sentences"]:
        source = "".join(f" [{id}]" for id in row["by"])
        if row["shown"] == "yes":
            yield f"    {terminal.marks['done']} {terminal.shorten(row['text'], 120)}{source}", "dim"
        else:
            verdict = verdicts["contradicted" if row["shown"] == "contradicted" else "not_shown"]
            yield f"    {verdict}: {terminal.shorten(row['text'], 200)}{source} {row['why']}".rstrip(), "yellow"
    if audit["problem"]:
        yield f"    {verdicts['unaudited']}: {terminal.shorten(audit['problem'], 200)}", "yellow"


def _data_lines(row: Mapping[str, Any], terminal: Terminal) -> Iterator[tuple[str, str]]:
    """Yield the structured result: its problem, or the source of each value."""
    name, nowhere = terminal.texts("show")["output"], terminal.texts("show")["unsourced"]
    yield (f"{name}: {row['problem']}", "yellow") if row["problem"] else (name, "")
    for field in row["fields"]:
        source = "".join(f" [{item['observation']}]" for item in field["evidence"])
        if field["path"] in row.get("unsourced", ()):
            yield f"    {field['path']}{source} ({nowhere})", "yellow"
        else:
            yield f"    {field['path']}{source}", "dim"


def _detail_lines(row: Mapping[str, Any], terminal: Terminal) -> Iterator[tuple[str, str]]:
    verdicts = terminal.texts("page")
    if row.get("result"):
        yield f"    {terminal.marks['arrow']} {terminal.shorten(str(row['result']), 200)}", ""
    if row.get("silent_rounds", 0) >= SILENT_ROUNDS:
        yield f"    {say(terminal.language, 'show', 'silent', rounds=row['silent_rounds'])}", "yellow"
    for repeated in row.get("repeated") or []:
        call = terminal.shorten(call_text(repeated), 100)
        yield f"    {say(terminal.language, 'show', 'repeated', call=call, times=repeated['times'])}", "yellow"
    for item in row.get("criteria") or []:
        verdict = verdicts["failed_verdict" if item["verdict"] == "failed" else item["verdict"]]
        yield f"    {verdict}: {item['text']}", "" if item["verdict"] in GOOD else "yellow"
        for evidence in item.get("evidence") or []:
            quote = f": “{terminal.shorten(str(evidence['quote']), 100)}”" if evidence.get("quote") else ""
            yield f"      [{evidence.get('observation')}]{quote}", "dim"
        if item.get("note"):
            yield f"      {terminal.shorten(str(item['note']), 120)}", "dim"
