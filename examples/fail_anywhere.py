"""A failure anywhere: the storage fails after each entry of its store, and the letter is sent once all the same.

Runs without a key, from a script. Without `only`, it tries every operation of the storage, which takes a minute.
"""

import asyncio
from typing import Any

from donewhen import Agent, Run, UnknownThread
from donewhen.testing import ScriptedModel, call, crash_points, finish_step, playing, submit_plan

SENT: list[str] = []


def send(to: str) -> str:
    """Send a letter."""
    SENT.append(to)
    return f"sent to {to}"


def model() -> ScriptedModel:
    """Plan to send a letter to Ann, and send it."""
    plan = submit_plan([{"content": "Send it to Ann", "done_when": "It is sent", "tools": ["send"]}])
    work = [call("send", to="Ann"), finish_step("Sent.", "s1.1")]
    return ScriptedModel(roles={"triage": playing([plan]), "execute": playing(work)})


async def work(storage: Any) -> Run:
    """Start the run, or go on with it, to its end."""
    agent = Agent(model(), [send], effects={"send": "write"}, storage=storage)
    try:
        run = await agent.resume("letter")
    except UnknownThread:
        run = await agent.start("Send it to Ann", thread_id="letter")
    while run.status == "waiting":
        if run.pending[0]["kind"] == "effect":  # may it have happened?
            run = await agent.resume("letter", "it happened" if SENT else "it did not")
        else:
            run = await agent.resume("letter", "approve")
    return run


async def main() -> None:
    """Try the points, and count them."""
    tried = 0
    async for point, run in crash_points(work, only=["store.done"]):
        assert (run.status, SENT) == ("completed", ["Ann"]), point
        SENT.clear()
        tried += 1
    print("failed at", tried - 1, "points, and sent one letter each time")


if __name__ == "__main__":
    asyncio.run(main())
