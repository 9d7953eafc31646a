"""`donewhen threads`, `show`, `graph` and `doctor`: print information. Nothing is started or changed."""

import asyncio
import importlib.metadata
import importlib.resources
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size

from donewhen.agent.agent import Agent
from donewhen.agent.cli.archive import Archive
from donewhen.agent.cli.options import NOT_OURS
from donewhen.agent.cli.result import Exit, local_time, proof_texts, receipt_lines, resume_command, run_object, short_id
from donewhen.agent.cli.screen.drawing import AnswerText, draw_pause
from donewhen.agent.cli.screen.meter import table
from donewhen.agent.cli.screen.terminal import Terminal, Text, clean, open_terminal, shorten
from donewhen.agent.cli.screen.views import Progress, heard_text, mode_text
from donewhen.agent.config import DEMO, Config
from donewhen.agent.run import Run
from donewhen.agent.storage import open_storage, parse_url
from donewhen.agent.work.queue import ThreadInfo
from donewhen.agent.work.recorder import collect_rows, save_rows
from donewhen.state.errors import DoneWhenError
from donewhen.state.events import event_schema
from donewhen.state.run import Json

PACKAGES = ("langgraph", "langchain-core", "langchain-openai", "pydantic")
EXTRAS = {
    "mcp": ("mcp", "MCP servers as tools"),
    "acp": ("acp", "an agent in an editor"),
    "postgres": ("psycopg", "PostgreSQL storage"),
    "studio": ("langgraph_api", "LangGraph Studio and server"),
    "encryption": ("Crypto", "encrypted storage"),
}
BACKGROUND = {"agents_md": "AGENTS.md"}
"""How people call what a receipt has under `background`."""
TRY: dict[str, Any] = {"limits": {"model_calls": 3}, "on_exhausted": "stop", "model_retries": 0, "model_seconds": 30}
"""The goal with which `doctor` tries the model."""


def list_runs(archive: Archive, owner: str | None, status: Collection[str]) -> int:
    """Print one line per run, the latest first."""

    async def look(agent: Agent) -> tuple[list[ThreadInfo], list[str]]:
        found = await agent.threads(owner=owner, status=status)
        return found, await agent.storage.find_free([info.thread_id for info in found if info.status == "running"])

    infos, cut_off = archive.look(look) or ([], [])
    names = {info.thread_id: clean(short_id(info.thread_id)) for info in infos}
    width = max(map(len, names.values()), default=0)
    states = {info.thread_id: "interrupted" if info.thread_id in cut_off else info.status for info in infos}
    lines = [
        f"{names[id]:{width}}  {states[id]:11}  {local_time(info.updated):16}  {shorten(info.goal, 68)}"
        for id, info in ((info.thread_id, info) for info in infos)
    ]
    nothing = "No such runs." if owner or status else "No runs yet."
    return archive.finish({"threads": [asdict(info) for info in infos]}, lines, nothing)


def show_thread(archive: Archive, thread: str) -> int:
    """Print a run with all its evidence."""
    info = archive.thread(thread)

    async def look(agent: Agent) -> tuple[Run, bool]:
        return await agent.get(info.thread_id), not await agent.storage.find_free([info.thread_id])

    run, held = archive.ask(look)
    if archive.json:
        return archive.finish(run_object(run, archive.storage))
    terminal = open_terminal(plain=archive.config.plain, stream=sys.stdout, language=run.language)
    ours = isinstance(info.metadata.get("dir"), str) or info.queue
    at_work = held and run.status == "running"
    hint = resume_command(run, archive.storage) if ours and not at_work else None
    _show(run, terminal, at_work=at_work, hint=hint)
    if not ours and run.status in ("waiting", "running") and not at_work:
        terminal.line(f"This thread {NOT_OURS}.")
    return Exit.COMPLETED


def _show(run: Run, terminal: Terminal, *, at_work: bool, hint: str | None) -> None:
    say = terminal.say
    why = run.outcome["reason"] if run.outcome else run.problem if run.status != "waiting" else ""
    reason = f" ({shorten(why, 500)})" if why else ""
    states = {"waiting": ("waiting_status", "page"), "queued": ("queued", "show")}
    status = say("at_work", "page") if at_work else say(*states.get(run.status, (run.status,)))
    terminal.line(say("goal", "show", goal=shorten(run.goal, 500)), "bold")
    terminal.line(say("status", "show", status=f"{status}{reason}"))
    if run.receipt and (texts := proof_texts(run.receipt, terminal)):
        terminal.line(f" {terminal.marks['dot']} ".join(texts))
    for chosen in run.receipt.get("modes", ()) if run.receipt else ():
        terminal.line(mode_text(chosen, terminal))
    for text, style in _steps(run, terminal):
        terminal.line(text, style)
    for asked in run.receipt["questions"] if run.receipt else ():
        terminal.line(*_question_line(asked, terminal))
    if given := run.receipt.get("background") if run.receipt else ():
        names = ", ".join(BACKGROUND.get(name, name) for name in given)
        terminal.line(say("background", "page", names=names))
    for said in run.receipt.get("heard", ()) if run.receipt else ():
        terminal.line(heard_text(said, terminal))
    for pending in run.pending:
        terminal.line(f"\n{say('waiting')} {pending['id']}", "bold")
        terminal.show(draw_pause(pending, terminal))
    if run.answer:
        terminal.line("")
        terminal.show(AnswerText(run.answer) if terminal.console.is_terminal else Text(clean(run.answer)))
    if rows := table(run.spent, run.limits, terminal.language):
        terminal.line(f"\n{say('spent', 'show')}", "bold")
        room = max(cell_len(row.name) for row in rows)
        for row in rows:
            terminal.line(f"  {set_cell_size(row.name, room)} {row.text}", row.style)
    if hint:
        terminal.line(say("go_on_with", command=hint), whole=True)


def _steps(run: Run, terminal: Terminal) -> Iterator[tuple[str, str]]:
    if run.receipt:
        yield from receipt_lines(run.receipt, terminal, details=True)
        return
    progress = Progress()
    progress.take(run)
    for id, row in progress.rows.items():
        yield f"{terminal.mark(row.status)} {id} {row.content}", ""


def _question_line(row: Mapping[str, Any], terminal: Terminal) -> tuple[str, str]:
    """Return a question and its answer; unanswered ones are highlighted."""
    question, answer = shorten(str(row["question"]), 100), shorten(str(row["answer"]), 100)
    if row.get("assumed"):
        assumed = shorten(str(row.get("assumption") or ""), 100)
        said = terminal.say("assumed", "summary", question=question)
        return f"? {said}{f' – {assumed}' if assumed else ''}", "yellow"
    if row["by"] == "user":
        return f"? {question}  {answer}", ""
    return f"? {terminal.say('by_default', 'summary', question=question)} – {answer}", "yellow"


def print_graph() -> int:
    """Return the graph as Mermaid."""
    print(Agent(DEMO, storage="memory:").graph.get_graph(xray=1).draw_mermaid())
    return Exit.COMPLETED


def print_version() -> int:
    """Return the version, as `doctor` says it."""
    print(_package("donewhen").text)
    return Exit.COMPLETED


def print_events() -> int:
    """Return the JSON schema of the events."""
    print(json.dumps(event_schema(), indent=2))
    return Exit.COMPLETED


def save_recording(archive: Archive, thread: str, out: Path) -> int:
    """Write the recording of a run, without credentials."""
    info = archive.thread(thread)

    async def collect(agent: Agent) -> list[Json]:
        snapshot = await agent.graph.aget_state({"configurable": {"thread_id": info.thread_id}})
        return await collect_rows(agent.storage, info.thread_id, snapshot)

    rows = archive.ask(collect)
    save_rows(rows, out)
    replies = sum(row["kind"] == "reply" for row in rows)
    return archive.finish({"recording": str(out), "replies": replies}, [f"{out}: {replies} replies"])


def print_skill() -> int:
    """Print the skill that comes with the package."""
    print(importlib.resources.files("donewhen").joinpath("skills", "donewhen", "SKILL.md").read_text("utf-8"), end="")
    return Exit.COMPLETED


# --- doctor


@dataclass(frozen=True)
class Finding:
    """One examined thing. `broken` must be repaired before a run can work; `note` need not."""

    name: str
    state: Literal["ok", "note", "broken"]
    text: str


def run_doctor(archive: Archive) -> int:
    """Print the findings; FAILED if anything is broken."""

    async def look() -> list[Finding]:
        return [finding async for finding in _examine(archive)]

    findings = asyncio.run(look())
    broken = any(finding.state == "broken" for finding in findings)
    lines = [f"{finding.state:6}  {finding.name:18}  {clean(finding.text)}" for finding in findings]
    archive.finish({"ok": not broken, "findings": [asdict(each) for each in findings]}, lines)
    return Exit.FAILED if broken else Exit.COMPLETED


async def _examine(archive: Archive) -> AsyncIterator[Finding]:
    """Yield the findings, cheapest first."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding("python", "ok" if sys.version_info >= (3, 11) else "broken", version)
    for name in ("donewhen", *PACKAGES):
        yield _package(name)
    for extra, (module, purpose) in EXTRAS.items():
        found = importlib.util.find_spec(module) is not None
        hint = "installed" if found else f"not installed: pip install 'donewhen[{extra}]'"
        yield Finding(f"extra {extra}", "ok" if found else "note", f"{purpose}, {hint}")
    yield await _storage(archive)
    yield await _model(archive.config)


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        if name == "donewhen":
            return Finding(name, "note", "runs from its source folder, not installed")
        return Finding(name, "broken", "not installed")


async def _storage(archive: Archive) -> Finding:
    config = archive.config
    try:
        storage = open_storage(config.storage, key=config.key)
        if not archive.exists():
            folder = next(each for each in parse_url(config.storage).path.parents if each.exists())
            if not os.access(folder, os.W_OK | os.X_OK):
                return Finding("storage", "broken", f"{storage.url_for_display}: {folder} cannot be written")
            return Finding("storage", "ok", f"{storage.url_for_display}, made by the first run")
        note = await storage.check_health()
        text = storage.url_for_display + (", encrypted" if config.key else "")
        return Finding("storage", "note", f"{text}: {note}") if note else Finding("storage", "ok", text)
    except DoneWhenError as error:
        return Finding("storage", "broken", str(error))


async def _model(config: Config) -> Finding:
    """Try the model with a run of one call."""
    if not config.model or config.model == DEMO:
        return Finding(
            "model", "note", "demo, which follows rules; set OPENAI_API_KEY or DONEWHEN_MODEL for a real one"
        )
    try:
        async with Agent(config.model, storage="memory:", config=config) as agent:
            agent.models("triage")
            run = await agent.start("Say hello.", settings=TRY)
    except DoneWhenError as error:
        return Finding("model", "broken", str(error))
    if run.outcome and run.outcome["code"] == "model_error":
        return Finding("model", "broken", f"{config.model}: {run.answer}")
    return Finding("model", "ok", f"{config.model} answers" + (f" at {config.base_url}" if config.base_url else ""))
