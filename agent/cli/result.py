"""What a command says at the end: the answer and the JSON object on stdout, everything else on stderr."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from donewhen.agent.cli.meter import meter_text
from donewhen.agent.cli.progress import call_text
from donewhen.agent.cli.terminal import STYLES, Terminal, clean, shorten
from donewhen.agent.run import Run
from donewhen.state.people.payloads import question_text
from donewhen.state.plan.steps import SILENT_ROUNDS

SCHEMA_VERSION = 1
PROVEN = ("passed", "supported")


def program() -> str:
    """How to call this command again: by name if it is on the PATH, else the way it was called now."""
    called = sys.argv[0]
    if shutil.which("donewhen") or not called.endswith("donewhen"):
        return "donewhen"
    return os.path.relpath(called) if os.path.isabs(called) else called


def resume_words(thread_id: str, storage: str | None, answer: tuple[str, ...] = ()) -> str:
    """The command line that goes on with a thread; `storage` is named if it was given by hand."""
    words = [program(), "resume", thread_id, *(["--storage", storage] if storage else []), *answer]
    return shlex.join(words).replace("'…'", '"…"')


def resume_command(run: Run, storage: str | None) -> str | None:
    """The command that goes on with the run; None when nothing is left to do.

    It names the question, so that whoever runs it twice does not answer the next one, unseen.
    """
    if run.status == "running":
        return resume_words(run.thread_id, storage)
    if run.status != "waiting":
        return None
    first = run.pending[0]
    answer = ("--approve",) if first["kind"] in ("plan", "tool") else ("--answer", "…")
    return resume_words(run.thread_id, storage, ("--id", first["id"], *answer))


def run_object(run: Run, storage: str | None) -> dict[str, Any]:
    """The run as the one object of `--json`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "thread_id": run.thread_id,
        "status": run.status,
        "goal": run.goal,
        "pending": list(run.pending),
        "answer": run.answer,
        "outcome": run.outcome,
        "receipt": run.receipt,
        "spent": run.spent,
        "problem": run.problem,
        "resume": resume_command(run, storage),
    }


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout, on one line."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write(json.dumps(value, ensure_ascii=not unicode, default=str) + "\n")
    sys.stdout.flush()


def print_answer(text: str) -> None:
    """The answer on stdout: byte for byte into a pipe, made safe on a terminal."""
    if text:
        sys.stdout.write((clean(text) if sys.stdout.isatty() else text).rstrip("\n") + "\n")
        sys.stdout.flush()


def show_run(run: Run, terminal: Terminal, storage: str | None) -> None:
    """The end of a leg for people: what came out, or what is asked and how to answer."""
    print_answer(run.answer)
    if run.status == "waiting":
        _show_waiting(run, terminal, storage)
        return
    receipt: Mapping[str, Any] = run.receipt or {}
    for text, style in receipt_lines(receipt, terminal, details=False):
        terminal.line(text, style)
    why = "" if run.status == "completed" else shorten(run.outcome["reason"] if run.outcome else "", 300)
    if why and why[:40] in shorten(run.answer, len(run.answer)):
        why = ""  # the answer says it already
    meter = meter_text(run.spent, {}, terminal.marks["dot"])
    parts = [f"{run.status}{f' ({why})' if why else ''}", proof_text(receipt), meter, f"thread {run.thread_id}"]
    terminal.line(f" {terminal.marks['dot']} ".join(part for part in parts if part), _style(run.status))
    if hint := resume_command(run, storage):
        terminal.line(f"Go on with: {hint}")


def _style(status: str) -> str:
    return {"completed": "green", "partial": "yellow", "exhausted": "yellow"}.get(status, "red")


def _show_waiting(run: Run, terminal: Terminal, storage: str | None) -> None:
    for pending in run.pending:
        terminal.line("")
        where = f" (step {pending['step']})" if pending.get("step") else ""
        terminal.line(f"Waiting for you: {pending['id']}{where}", "bold")
        terminal.line(question_text(pending))
        if pending.get("problem"):
            terminal.line(f"The last answer was not understood: {pending['problem']}", "yellow")
    terminal.line("")
    if hint := resume_command(run, storage):
        terminal.line(f"Answer with: {hint}")
    if len(run.pending) > 1:
        terminal.line("Add --id ID to answer another question than the first.")


def proof_text(receipt: Mapping[str, Any]) -> str:
    """How many steps are done and how many criteria proven; "" for a run without steps."""
    rows = receipt.get("steps") or []
    criteria = [item for row in rows for item in row.get("criteria") or []]
    if not rows:
        return ""
    done, good = sum(row["status"] == "done" for row in rows), sum(item["verdict"] in PROVEN for item in criteria)
    return f"{done}/{len(rows)} steps done, {good}/{len(criteria)} criteria proven"


def receipt_lines(receipt: Mapping[str, Any], terminal: Terminal, *, details: bool) -> Iterator[tuple[str, str]]:
    """What is not done, as (text, style); with `details` every step, its criteria, their verdicts and evidence."""
    dots = terminal.marks["dots"]
    for row in receipt.get("steps") or []:
        status = row["status"]
        if status == "done" and not details:
            continue
        reason = f" ({status}{': ' + row['reason'] if row['reason'] else ''})" if status != "done" else ""
        text = f"{terminal.mark(status)} {row['id']} {shorten(row['content'], 90, dots)}{reason}"
        yield text, STYLES.get(status, "")
        if details:
            yield from _detail_lines(row, terminal)


def _detail_lines(row: Mapping[str, Any], terminal: Terminal) -> Iterator[tuple[str, str]]:
    dots = terminal.marks["dots"]
    if row.get("result"):
        yield f"    {terminal.marks['arrow']} {shorten(str(row['result']), 200, dots)}", ""
    if row.get("silent_rounds", 0) >= SILENT_ROUNDS:
        yield f"    nothing new in {row['silent_rounds']} rounds", "yellow"
    for call in row.get("repeated") or []:
        text = shorten(call_text(call["tool"], call["arguments"]), 100, dots)
        yield f"    {text} {call['times']} times, with the same result", "yellow"
    for item in row.get("criteria") or []:
        yield (
            f"    {item['verdict']}: {shorten(item['text'], 120, dots)}",
            "" if item["verdict"] in PROVEN else "yellow",
        )
        for evidence in item.get("evidence") or []:
            quote = f": “{shorten(str(evidence['quote']), 100, dots)}”" if evidence.get("quote") else ""
            yield f"      [{evidence.get('observation')}]{quote}", "dim"
        if item.get("note"):
            yield f"      {shorten(str(item['note']), 120, dots)}", "dim"
