"""F12: thread ids, filter keys and paths that lead elsewhere: another thread, another file, the database itself."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.figures import Figure, Measured, none
from donewhen import Agent
from donewhen.agent.workspace import workspace_tools
from donewhen.graph.tools.call import ToolCall, call_tool
from donewhen.state.errors import ConfigError, DoneWhenError
from donewhen.testing import ScriptedModel, answer
from tests.kit.storage.servers import fresh_postgres_url

THREAD_IDS = (
    "../../etc/x", "../runs.db", "a/b", "..", ".", "/tmp/x", "~", "x'; DROP TABLE checkpoints;--", "%2e%2e", "a.b",
    "a%2Eb", "line\nbreak", "y" * 255, "*", "donewhen.observations", "donewhen", "\u202egnp", "CON", "a|b", "-", " ",
    "\x1b[31m", "$(id)", "{}", "__proto__", "%", "_", "é", "e\u0301", "A.B",
)  # fmt: skip
BAD_THREAD_IDS = ("a\0b", "\ud800", "y" * 256)
FILTER_KEYS = (
    "x') OR 1=1 --", "a' = 'a", "$.source", "'||(SELECT 1)||'", '"x"', "x\0", "source') OR ('1'='1", "a b",
    "step') UNION SELECT * FROM checkpoints --", "source'; DROP TABLE writes; --",
    "source' OR json_extract(metadata,'$",
)  # fmt: skip


async def thread_escapes(storage: str, folder: Path, ids: Sequence[str] = THREAD_IDS) -> list[str]:
    """Runs under hostile thread ids: whatever reached another thread, or another place."""
    escaped = []
    agent = Agent(ScriptedModel([answer("hi")], strict=False), storage=storage)
    for thread in ids:
        run = await agent.start(f"goal of {thread!r}", thread_id=thread)
        escaped += [] if run.status == "answered" else [thread]
    for thread in BAD_THREAD_IDS:
        with contextlib.suppress(ConfigError):
            await agent.start("goal", thread_id=thread)
            escaped.append(thread)
    for number, thread in enumerate(ids):
        left = ids[number:]
        kept = {info.thread_id: info.goal for info in await agent.threads()}
        escaped += [thread] if kept != {each: f"goal of {each!r}" for each in left} else []
        await agent.delete(thread)
    return [*escaped, *(name for name in os.listdir(folder) if not name.startswith("runs.db"))]


async def filter_escapes(storage: str) -> tuple[int, list[str]]:
    """Searches whose keys hold SQL: how many were made, and those that found or changed what they must not."""
    agent = Agent(ScriptedModel([answer("hi")], strict=False), storage=storage)
    await agent.start("goal", thread_id="t")
    saver: Any = agent.graph.checkpointer
    before = len([found async for found in saver.alist(None)])
    made, escaped = 0, []
    for key in FILTER_KEYS:
        for value in ("input", 1, "' OR 1=1 --", {"$gt": ""}, True):
            made += 1
            with contextlib.suppress(ValueError, DoneWhenError):
                found = [found async for found in saver.alist(None, filter={key: value})]
                escaped += [key] if found else []
    after = len([found async for found in saver.alist(None)])
    return made, escaped if before == after else [*escaped, "rows are missing"]


PATHS = (
    "../secret.txt", "/etc/passwd", "a/../../secret.txt", "link/secret.txt", "link", "secret\0.txt", "~/x", "..",
    "./../secret.txt", "//etc/passwd", "file:///etc/passwd", "a/./../../secret.txt", "link/../secret.txt", "\ud800",
    "..\\secret.txt", "%2e%2e/secret.txt", "/proc/self/environ", "/dev/stdin", "x" * 5000, "hard/../../secret.txt",
)  # fmt: skip


async def path_escapes(folder: Path) -> tuple[int, list[str]]:
    """Every workspace tool that takes a path, with paths that lead out of its root."""
    root, outside = folder / "root", folder / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.txt").write_text("TOP SECRET")
    (folder / "secret.txt").write_text("TOP SECRET")
    (root / "link").symlink_to(outside, target_is_directory=True)
    (root / "hard").mkdir()
    made, escaped = 0, []
    for tool in workspace_tools(root):
        if "path" not in tool.args:
            continue
        rest = {name: "x" for name, about in tool.args.items() if name != "path" and "default" not in about}
        for path in PATHS:
            made += 1
            result = await call_tool(ToolCall(tool, {**rest, "path": path}, timeout=10))
            whole = {file.read_text() for file in (outside / "secret.txt", folder / "secret.txt")} == {"TOP SECRET"}
            if "TOP SECRET" in result.text or "root:x:" in result.text or not whole:
                escaped.append(f"{tool.name} {path}")
    there = {*os.listdir(folder), *os.listdir(outside)}
    return made, escaped if there == {"root", "outside", "secret.txt"} else [*escaped, *there]


async def collect(folder: Path) -> Measured:
    """F12."""
    figures: list[Figure] = []
    for name, storage in (("SQLite", f"sqlite:///{folder}/runs.db"), ("PostgreSQL", fresh_postgres_url())):
        escaped = await thread_escapes(storage, folder)
        figures.append(none("F12", f"thread ids, {name}", len(THREAD_IDS) + len(BAD_THREAD_IDS), len(escaped)))
        made, found = await filter_escapes(storage)
        figures.append(none("F12", f"filters whose keys hold SQL, {name}", made, len(found)))
    places = folder / "places"
    places.mkdir()
    made, found = await path_escapes(places)
    return Measured([*figures, none("F12", "paths × workspace tools", made, len(found))])
