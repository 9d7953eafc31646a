"""The commands about this installation: doctor, graph and events. Nothing is changed."""

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from langchain_core.tools import BaseTool, StructuredTool

from donewhen import Agent, AgentOptions, DoneWhenError
from donewhen.agent.cli.exits import Exit
from donewhen.agent.cli.screen.terminal import clean
from donewhen.agent.cli.standalone import NOT_INSTALLED
from donewhen.agent.cli.storage_view import StorageView
from donewhen.agent.config import Config
from donewhen.agent.storage import open_storage
from donewhen.agent.workspace.box import look_for_box
from donewhen.clients import DEMO
from donewhen.types import event_schema

PACKAGES = ("langgraph", "langchain-core", "langchain-openai", "pydantic")
EXTRAS = {
    "mcp": ("mcp", "MCP servers as tools"),
    "ui": ("starlette", "the page of `donewhen chat`"),
    "acp": ("acp", "an agent in an editor"),
    "a2a": ("a2a", "agents of other programs"),
    "postgres": ("psycopg", "PostgreSQL storage"),
    "studio": ("langgraph_api", "LangGraph Studio and server"),
    "encryption": ("Crypto", "encrypted storage"),
    "receipts": ("rfc8785", "signed receipts"),
    "programs": ("pydantic_monty", "steps that run programs"),
    "inspect": ("inspect_ai", "evaluations with Inspect"),
    "temporal": ("temporalio", "runs as Temporal workflows"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "traces"),
    "anthropic": ("langchain_anthropic", "models of Anthropic"),
    "google": ("langchain_google_genai", "models of Google"),
    "ollama": ("langchain_ollama", "models of Ollama"),
}
"""Extra → the module that it installs, and what it is for."""
DECLARING = ("effect", "readOnlyHint", "idempotentHint", "destructiveHint")
"""The metadata by which a tool's effect is known."""
MOST_NAMES = 8
_FIRST_WORD = re.compile(r"[^_.-]*?(?:[_.-]+|(?<=[a-z])(?=[A-Z])|$)", re.DOTALL)
TRIAL = "Call the tool report_ready now, without arguments. Do nothing else."
ONE_REQUEST: dict[str, Any] = {
    "limits": {"model_calls": 1}, "on_exhausted": "stop", "model_retries": 0, "model_seconds": 30,
}  # fmt: skip
"""The settings of the run with which `doctor` tries the model."""


def print_graph() -> int:
    """Print the graph as Mermaid."""
    print(Agent(DEMO, storage="memory:").graph.get_graph(xray=1).draw_mermaid())
    return Exit.COMPLETED


def print_events() -> int:
    """Print the JSON schema of the events."""
    print(json.dumps(event_schema(), indent=2))
    return Exit.COMPLETED


@dataclass(frozen=True)
class Finding:
    """One examined thing. `broken` must be repaired before a run can work; `note` need not."""

    name: str
    state: Literal["ok", "note", "broken"]
    text: str


def run_doctor(view: StorageView, mcp: Path | None = None) -> int:
    """Print the findings, also about the MCP servers of a file; FAILED if anything is broken."""

    async def look() -> list[Finding]:
        servers = await _servers(mcp, view.config) if mcp else []
        return [*[finding async for finding in _examine(view)], *servers]

    findings = asyncio.run(look())
    broken = any(finding.state == "broken" for finding in findings)
    lines = [f"{finding.state:6}  {finding.name:18}  {clean(finding.text)}" for finding in findings]
    view.finish({"ok": not broken, "findings": [asdict(each) for each in findings]}, lines)
    return Exit.FAILED if broken else Exit.COMPLETED


async def _examine(view: StorageView) -> AsyncIterator[Finding]:
    """Yield the findings, cheapest first."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding("python", "ok" if sys.version_info >= (3, 11) else "broken", version)
    for name in ("donewhen", *PACKAGES):
        yield _package(name)
    for extra, (module, purpose) in EXTRAS.items():
        is_there = _is_installed(module)
        hint = "installed" if is_there else f"not installed: pip install 'donewhen[{extra}]'"
        yield Finding(f"extra {extra}", "ok" if is_there else "note", f"{purpose}, {hint}")
    _, problem = look_for_box()
    text = (
        f"programs run with your rights, without a box: {problem}" if problem else "programs run in one, by bubblewrap"
    )
    yield Finding("box", "note" if problem else "ok", text)
    yield await _storage(view)
    yield await _model(view.config)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package around it is missing
        return False


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        if name == "donewhen":
            return Finding(name, "note", NOT_INSTALLED)
        return Finding(name, "broken", "not installed")


async def _storage(view: StorageView) -> Finding:
    config = view.config
    try:
        storage = open_storage(config.storage, key=config.key)
        if (path := view.location.path) and not path.exists():
            folder = next(each for each in path.parents if each.exists())
            if not os.access(folder, os.W_OK | os.X_OK):
                return Finding("storage", "broken", f"{storage.url_for_display}: {folder} cannot be written")
            return Finding("storage", "ok", f"{storage.url_for_display}, made by the first run")
        note = await storage.check_health()
        text = storage.url_for_display + (", encrypted" if config.key else "")
        return Finding("storage", "note", f"{text}: {note}") if note else Finding("storage", "ok", text)
    except DoneWhenError as error:
        return Finding("storage", "broken", str(error))


async def _servers(file: Path, config: Config) -> list[Finding]:
    """Start the MCP servers of a file, and say what the effects of their tools are known from."""
    from donewhen import McpServers

    try:
        async with McpServers(file, environment=config.variables, optional=True) as servers:
            findings = [Finding("mcp", "broken", problem) for problem in servers.missing]
            findings += [Finding("mcp", "note", f"{name} is left out: {why}") for name, why in servers.unusable.items()]
            tools = groupby(servers.tools, lambda tool: str((tool.metadata or {})["server"]))
            return [*findings, *(_effects_of(name, [*those]) for name, those in tools)]
    except DoneWhenError as error:
        return [Finding("mcp", "broken", str(error))]


def _effects_of(server: str, tools: list[BaseTool]) -> Finding:
    """Return a finding about a server's tools: without a declared effect, each call counts as a write."""
    silent = [
        getattr(tool, "original_name", tool.name) for tool in tools if not {*DECLARING} & {*(tool.metadata or {})}
    ]
    count = f"{len(tools)} tool{'s' * (len(tools) != 1)}"
    if not silent:
        return Finding(f"mcp {server}", "ok", count)
    begun = Counter(_FIRST_WORD.match(name)[0] for name in silent)  # type: ignore[index]
    alone = {_FIRST_WORD.match(name)[0]: name for name in silent}  # type: ignore[index]
    names = [f"{word}* ({number})" if number > 1 else alone[word] for word, number in begun.most_common(MOST_NAMES)]
    text = (
        f"{count}; {len(silent)} of them do not say whether they only read: {', '.join(names)}"
        f"{', …' * (len(begun) > MOST_NAMES)}. These are not used for planning, and each call of them counts as a "
        'change. If NAME only reads, say so in the file: "effects": {"NAME": "read"}'
    )
    return Finding(f"mcp {server}", "note", text)


def _report_ready(**_: Any) -> str:
    return "ready"


REPORT_READY = StructuredTool.from_function(
    _report_ready,
    name="report_ready",
    description="Report that you can call tools.",
    args_schema={"type": "object", "properties": {}, "additionalProperties": True},
    metadata={"effect": "read"},
)
"""The tool that a model has to call; it takes any arguments."""


async def _model(config: Config) -> Finding:
    """Try the model with one request. Its reply has to be a call, of the tool or of a decision, or print one."""
    if not config.model or config.model == DEMO:
        return Finding(
            "model", "note", "demo, which follows rules; set OPENAI_API_KEY or DONEWHEN_MODEL for a real one"
        )
    try:
        options = AgentOptions(config=config)
        async with Agent(config.model, [REPORT_READY], storage="memory:", options=options) as agent:
            agent.models("triage")
            events = [event async for event in agent.stream(TRIAL, settings=ONE_REQUEST)]
    except DoneWhenError as error:
        return Finding("model", "broken", str(error))
    if (end := events[-1])["type"] == "outcome" and end["code"] == "model_error":
        return Finding("model", "broken", f"{config.model}: {end['text']}")
    # A reply in words is never a decision here: where there are tools, the first one is sent back.
    if not any(event["type"] == "decision" and event["kind"] != "speak" for event in events):
        return Finding("model", "broken", f"{config.model} replies without a tool call, so no step can work")
    where = f" at {config.base_url}" if config.base_url else ""
    return Finding("model", "ok", f"{config.model} answers and calls tools{where}")
