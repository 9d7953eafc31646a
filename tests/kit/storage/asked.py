"""Threads that wait at every kind of pause, as the present version stores them.

`python -m tests.kit.storage.asked` writes them to tests/data, once for each version of the state.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.tools import StructuredTool
from langgraph.types import interrupt

from donewhen import Agent, Run
from donewhen.state.channels import VERSION
from donewhen.testing import ScriptedModel, call, finish_step, finish_task, give_up, submit_plan
from tests.kit.flows import FREE
from tests.kit.runs import last_seen, said, step
from tests.kit.storage.release import keep

FORM = {"question": "Which size?", "schema": {"type": "object", "properties": {"size": {"type": "string"}}}}
SEND = call("send", to="ann")
ASKS: dict[str, Any] = {**FREE, "approvals": "each"}
Case = tuple[Any, dict[str, Any], Any, str, str]

CASES: dict[str, Case] = {
    "plan": (call("look"), {}, "approve", "plan", "completed"),
    "question": (call("ask_user", question="Which year?"), FREE, "2022", "question", "answered"),
    "form": (call("ask", form=True), FREE, {"size": "L"}, "question", "completed"),
    "interrupt": (call("ask", form=False), FREE, {"deep": [1]}, "question", "completed"),
    "tool": (SEND, ASKS, {"type": "edit", "arguments": {"to": "bob"}}, "tool", "completed"),
    "effect": (SEND, FREE, "it happened", "effect", "completed"),
    "budget": (
        call("look"),
        {**FREE, "limits": {"rounds": 1}, "on_exhausted": "ask"},
        "extend 5",
        "budget",
        "completed",
    ),
    "failure": (give_up("blocked"), {"confirm": "never", "on_failure": "ask"}, "stop", "question", "cancelled"),
    "early": (
        finish_task("found", "s1.result", reason="enough"),
        {"confirm": "always", "approvals": "each"},
        "leave it out",
        "question",
        "partial",
    ),
}
"""Thread → what its step does first, its settings, its answer, the kind of its pause, and how it ends."""


def script(first: Any) -> ScriptedModel:
    """Do something, and finish with what came of it. Replies depend on the messages alone."""

    def work(messages: Sequence[Any], _: Any) -> Any:
        seen = [message.text for message in messages if message.type == "tool"]
        if not seen or "unknown" in seen[-1]:
            return first
        return finish_step("done", evidence=last_seen(messages))

    used = [first["name"]] if first["name"] in ("send", "ask", "look") else []
    plan = submit_plan([step("s1", tools=used), step("s2", depends_on=["s1"])], title="Two")
    roles: Any = {"triage": lambda *_: plan, "deliver": lambda *_: "Done."}
    roles["execute"] = {"s1": work, "s2": lambda *_: said("s2")}
    return ScriptedModel(roles=roles, strict=False)


def tools(*, losing: bool) -> list[StructuredTool]:
    """The tools of the steps; of `send`, the answer is lost where it is `losing`."""

    def send(to: str) -> str:
        """Send a message."""
        if losing:
            raise RuntimeError("the line is dead")
        return f"sent to {to}"

    def ask(form: bool) -> str:
        """Ask a person."""
        return f"they said {interrupt(FORM if form else 'What?')}"

    def look() -> str:
        """Look."""
        return "seen"

    made = [(send, "write"), (ask, "read"), (look, "read")]
    return [StructuredTool.from_function(each, metadata={"effect": effect}) for each, effect in made]


async def asked(storage: Any, thread: str) -> Run:
    """The run of a thread, which waits at its pause."""
    first, settings, _, kind, _ = CASES[thread]
    async with Agent(script(first), tools(losing=thread == "effect"), storage=storage, settings=settings) as agent:
        run = await agent.start("do the work", thread_id=thread)
        if thread == "early":
            run = await agent.resume(run, "approve")
    assert run.status == "waiting", run
    assert run.pending[0]["kind"] == kind, run.pending
    return run


async def answered(storage: Any, thread: str, answer: Callable[[Any], Any] = lambda given: given) -> Run:
    """The run after its answer, in another process."""
    first, settings, given, _, _ = CASES[thread]
    async with Agent(script(first), tools(losing=False), storage=storage, settings=settings) as agent:
        return await agent.resume(thread, answer(given))


async def write(folder: Path) -> Path:
    """Store all threads."""
    path = folder / "donewhen.sqlite"
    for thread in CASES:
        await asked(f"sqlite:///{path}", thread)
    return path


if __name__ == "__main__":
    asyncio.run(keep(write, f"asked-{VERSION}"))
