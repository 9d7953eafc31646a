"""Machines whose clocks differ: what one of them does is done in a process with a clock that is wrong by some seconds.

What the project orders, it reads from `time.time_ns`, and so do the checkpoint ids of LangGraph.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from donewhen import Agent
from donewhen.agent.storage import Storage
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.everywhere import ProcessEnd, run_forked
from tests.kit.runs import last_seen, say_done, scripted, step

HOUR = 3600.0
FREE: dict[str, Any] = {"confirm": "never", "approvals": "never", "when_busy": "next_round"}


_RIGHT = time.time_ns, time.time


def set_wrong(seconds: float) -> None:
    """Let this process's clock be wrong by so many seconds from now on."""
    right_ns, right = _RIGHT
    time.time_ns = lambda: right_ns() + int(seconds * 1_000_000_000)
    time.time = lambda: right() + seconds


@contextmanager
def wrong_by(seconds: float) -> Iterator[None]:
    """Let this process's clock be wrong by so many seconds meanwhile."""
    before = time.time_ns, time.time
    set_wrong(seconds)
    try:
        yield
    finally:
        time.time_ns, time.time = before


def writing() -> ScriptedModel:
    """Writes a file in the first step; asks in the second, and writes the same file again."""
    plan = submit_plan([step("s1", tools=["write_file"]), step("s2", tools=["write_file"], depends_on=["s1"])])
    done: Any = lambda messages, _: finish_step("written", evidence=last_seen(messages))  # noqa: E731
    first = [call("write_file", path="note.txt", content="one"), done]
    return scripted(
        plan, {"s1": first, "s2": [ask_user("Go on?"), call("write_file", path="note.txt", content="two"), done]}
    )


def working(calls: int = 1) -> ScriptedModel:
    """Calls the tool `work` so often, in the only step of every run, however many there are at once."""

    def work(messages: Sequence[Any], _: Any) -> Any:
        made = sum(message.text.startswith("[s1.") for message in messages)
        if made < calls:
            return call("work", part=str(made))
        return finish_step("worked", evidence=last_seen(messages))

    plan = submit_plan([step("s1", tools=["work"])])
    return ScriptedModel(roles={"triage": lambda *_: plan, "execute": {"s1": work}, "deliver": say_done})


async def elsewhere(storage: str | Storage, folder: Path, seconds: float, verb: str, *words: str, **named: str) -> Any:
    """Return what comes of a verb of an agent on a machine whose clock is wrong; in memory, in this process."""
    if isinstance(storage, Storage):
        with wrong_by(seconds):
            return await _act(storage, folder, verb, words, named)
    given: dict[str, Any] = {"url": storage, "folder": str(folder), "seconds": seconds}
    given |= {"verb": verb, "words": words, "named": named}
    name = f"{verb} {time.monotonic_ns()}"
    ended: ProcessEnd = await asyncio.to_thread(run_forked, f"{__name__}:act", given, folder, name=name)
    assert ended.code in (0, DEAD), ended.output
    return ended.result


DEAD = 9
"""The exit code of a worker that dies at work."""


async def act(url: str, folder: str, seconds: float, verb: str, words: list[str], named: dict[str, str]) -> Any:
    """Be the process."""
    with wrong_by(seconds):
        return await _act(url, Path(folder), verb, words, named)


async def _act(storage: str | Storage, folder: Path, verb: str, words: Sequence[str], named: dict[str, str]) -> Any:
    def work(part: str) -> None:
        """Work, and die at it."""
        os._exit(DEAD)

    tools = [work] if verb == "die" else workspace_tools(folder / "work")
    effects: dict[str, Any] = {"work": "read"} if verb == "die" else {}
    model = working() if verb == "die" else writing()
    async with Agent(model, tools, storage=storage, effects=effects, settings=FREE) as agent:
        if verb == "die":
            return await agent.run_submitted(await agent.submit("Work", **named))
        return getattr(await getattr(agent, verb)(*words, **named), "status", None)
