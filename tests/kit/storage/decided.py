"""Threads that died between a person's answer about a call and the call, as the present version stores them.

`python -m tests.kit.storage.decided` writes them to tests/data, once for each version of the state.
"""

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from langchain_core.tools import StructuredTool

from donewhen import Agent
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.state.channels import VERSION
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.runs import last_seen, scripted, step
from tests.kit.storage.release import keep

ANSWERS: dict[str, Any] = {
    "approved": "approve",
    "edited": {"type": "edit", "arguments": {"to": "eve", "text": "hi"}},
    "refused": "reject: not today",
    "answered": {"type": "respond", "message": "she knows"},
    "known": "it happened",
    "unanswered": None,
}
"""Thread → the answer after which its process died; None for one that waits at an effect."""
ABOUT_EFFECTS = ("known", "unanswered")
SEND = [call("send", to=to, text="hi") for to in ("ann", "bob")]


def script() -> ScriptedModel:
    """Send both messages in one reply; a message whose outcome is unknown is sent once more."""

    def work(messages: Sequence[Any], _: Any) -> Any:
        seen = [message.text for message in messages if message.type == "tool"]
        if not seen:
            return SEND
        return SEND[:1] if "unknown" in seen[-2] else finish_step("sent", evidence=last_seen(messages))

    return scripted(submit_plan([step("s1", "send", tools=["send"])], title="Send"), {"s1": work})


class Post:
    """A tool that sends messages; of `losing`, the answer to the first message is lost."""

    def __init__(self, *, losing: bool = False) -> None:
        self.sent: list[str] = []
        self.losing = losing

    def tool(self) -> StructuredTool:
        """The tool, whose every call a person approves unless answers are lost."""

        def send(to: str, text: str) -> str:
            """Send a message."""
            self.sent.append(to)
            if self.losing and len(self.sent) == 1:
                raise RuntimeError("the line is dead")
            return f"sent to {to}"

        return StructuredTool.from_function(send, metadata={"effect": "write", "asks": not self.losing})


def opened(path: Path, post: Post, crash: Crash | None = None) -> Agent:
    """The agent of these threads."""
    storage = open_storage(f"sqlite:///{path}")
    return Agent(script(), [post.tool()], storage=crashing(storage, crash) if crash else storage)


async def write(folder: Path) -> Path:
    """Store the threads; each process dies at the first operation after which its answer is stored."""
    path = folder / "donewhen.sqlite"
    for thread, answer in ANSWERS.items():
        async with opened(path, Post(losing=thread in ABOUT_EFFECTS)) as agent:
            run = await agent.start("write to them", thread_id=thread)
            run = await agent.resume(run, "approve")
            assert run.pending[0]["kind"] == ("effect" if thread in ABOUT_EFFECTS else "tool"), run
        for number in range(1, 60):
            if answer is None or await _dies(path, folder / "try.sqlite", thread, answer, number):
                break
        else:
            raise AssertionError(f"the answer to {thread} was never stored alone")
    return path


async def _dies(path: Path, attempt: Path, thread: str, answer: Any, number: int) -> bool:
    """Answer in a copy and fail at operation `number`; keep the copy if the answer is stored and nothing else."""
    shutil.copy(path, attempt)
    async with opened(attempt, Post(), Crash(number, only=["put", "put_writes", "store"])) as agent:
        with suppress(Exception):
            await agent.resume(await agent.get(thread), answer)
    async with opened(attempt, Post()) as agent:
        values = (await agent.graph.aget_state({"configurable": {"thread_id": thread}})).values
        stored = values["pending"] is None and values["steps"]["s1"]["status"] == "ready"
    if stored:
        shutil.copy(attempt, path)
    return stored


if __name__ == "__main__":
    asyncio.run(keep(write, f"decided-{VERSION}"))
