"""A client with people behind it that never gives up: brings a thread to its end from wherever it is."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from donewhen.agent.agent import Agent
from donewhen.agent.run import Run
from donewhen.agent.testing.crash import Crash, note
from donewhen.agent.testing.script import Policy
from donewhen.state.errors import ThreadBusy, UnknownThread

Answers = Callable[[Mapping[str, Any]], Any]
"""From a pause (`{id, kind, question, options, step, tool, arguments, …}`) to the answer to it."""


async def drive(
    agent: Agent,
    goal: str,
    thread_id: str,
    answers: Answers,
    *,
    diary: Path | None = None,
    crash: Crash | None = None,
    patience: float = 10.0,
) -> Run:
    """Start the thread, or go on with it after a crash, and answer what it asks until it has ended.

    Every question goes into `diary` before it is answered; `asked_again` reads it. A thread that is busy (the database
    has not noticed yet that its worker died) is tried for `patience` seconds.
    """
    deadline = monotonic() + patience
    run: Run | None = None
    while True:
        try:
            run = await _step(agent, goal, thread_id, run, answers, diary, crash)
        except ThreadBusy:
            if monotonic() > deadline:
                raise
            run = None
            await asyncio.sleep(0.01)
            continue
        if run.status not in ("waiting", "running"):
            return run
        if run.problem:
            raise AssertionError(f"the answer to {run.pending[0]['id']} was not understood: {run.problem}")


async def _step(
    agent: Agent,
    goal: str,
    thread_id: str,
    run: Run | None,
    answers: Answers,
    diary: Path | None,
    crash: Crash | None,
) -> Run:
    """One call of the agent, from what the last one returned or from what is stored."""
    try:
        run = run or await agent.get(thread_id)
    except UnknownThread:
        return await agent.start(goal, thread_id=thread_id)
    if run.status != "waiting":
        return await agent.resume(thread_id)
    pause = run.pending[0]
    if diary is not None:
        asked = {key: pause.get(key) for key in ("id", "kind", "step", "question")}
        note(diary, {"asked": asked, "written": crash.written if crash else 0})
    return await agent.resume(thread_id, {pause["id"]: answers(pause)})


def playing(replies: Sequence[Any]) -> Policy:
    """A policy that plays a list of replies by how far the conversation has come.

    A list in a ScriptedModel starts anew with every process; this one finds its place by the replies it sees, so that
    any process can go on with it.
    """

    def reply(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> Any:
        place = sum(isinstance(message, AIMessage) for message in messages)
        assert place < len(replies), f"asked for reply {place + 1} of {len(replies)}: {messages[-1].text[:300]}"
        return replies[place]

    return reply
