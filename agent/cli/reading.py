"""`donewhen threads`, `show` and `graph`: what there is, on stdout. Nothing is started or changed."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from donewhen.agent.agent import Agent
from donewhen.agent.cli.exits import Exit
from donewhen.agent.cli.meter import table
from donewhen.agent.cli.progress import Progress
from donewhen.agent.cli.result import SCHEMA_VERSION, print_json, receipt_lines, resume_command, run_object
from donewhen.agent.cli.running import configured
from donewhen.agent.cli.session import reader
from donewhen.agent.cli.terminal import Terminal, clean, open_terminal, shorten
from donewhen.agent.config import DEMO
from donewhen.agent.run import Run, ThreadInfo
from donewhen.state.people.payloads import question_text


def list_threads(*, storage: str | None, json: bool) -> int:
    """One line per run, the latest first."""
    config = configured(storage)

    async def read() -> list[ThreadInfo]:
        async with reader(config) as agent:
            return await agent.threads()

    infos = asyncio.run(read())
    if json:
        print_json({"schema_version": SCHEMA_VERSION, "threads": [asdict(info) for info in infos]})
        return Exit.COMPLETED
    width = max((len(clean(info.thread_id)) for info in infos), default=0)
    for info in infos:
        print(f"{clean(info.thread_id):{width}}  {info.status:9}  {info.updated[:16]:16}  {shorten(info.goal, 70)}")
    if not infos:
        print("No runs yet.", file=sys.stderr)
    return Exit.COMPLETED


def show_thread(thread: str, *, storage: str | None, json: bool) -> int:
    """A run with everything that proves it."""
    config = configured(storage)

    async def read() -> Run:
        async with reader(config) as agent:
            return await agent.get(thread)

    run = asyncio.run(read())
    if json:
        print_json(run_object(run, storage))
        return Exit.COMPLETED
    terminal = open_terminal(plain=config.plain, stream=sys.stdout)
    for text, style in _lines(run, terminal, storage):
        terminal.line(text, style)
    return Exit.COMPLETED


def _lines(run: Run, terminal: Terminal, storage: str | None) -> list[tuple[str, str]]:
    reason = run.outcome["reason"] if run.outcome else ""
    lines = [
        (f"Goal: {shorten(run.goal, 500)}", "bold"),
        (f"Status: {run.status}{f' ({reason})' if reason else ''}", ""),
    ]
    if run.receipt:
        lines += receipt_lines(run.receipt, terminal, details=True)
    else:
        progress = Progress()
        progress.take(run)
        lines += [
            (f"{terminal.mark(row.status)} {id} {shorten(row.content, 100)}", "") for id, row in progress.rows.items()
        ]
    lines += [_question_line(row) for row in (run.receipt["questions"] if run.receipt else ())]
    for pending in run.pending:
        lines += [("", ""), (f"Waiting for you: {pending['id']}", "bold"), (question_text(pending), "")]
    if run.answer:
        lines += [("", ""), (run.answer, "")]
    if rows := table(run.spent, run.limits):
        lines += [("", ""), ("Spent", "bold")]
        lines += [(f"  {row.name:11} {row.text}", row.style) for row in rows]
    if hint := resume_command(run, storage):
        lines.append((f"Go on with: {hint}", ""))
    return lines


def _question_line(row: Mapping[str, Any]) -> tuple[str, str]:
    """A question and its answer; what no person answered stands out."""
    asked = f"? {shorten(str(row['question']), 100)}"
    if row.get("assumed"):
        assumed = shorten(str(row.get("assumption") or ""), 100)
        return f"{asked}  (nobody answered; assumed{': ' if assumed else ''}{assumed})", "yellow"
    said = f"{asked}  {shorten(str(row['answer']), 100)}"
    return (said, "") if row["by"] == "user" else (f"{said}  (by default)", "yellow")


def print_graph() -> int:
    """The graph as Mermaid."""
    agent = Agent(DEMO, storage="memory:")
    print(agent.graph.get_graph(xray=1).draw_mermaid())
    return Exit.COMPLETED
