"""Threads as a release stores them: `python -m tests.kit.storage.release` writes them to tests/data, once a release."""

import asyncio
import gzip
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.runs import Outbox, last_seen, scripted, step

DATA = Path(__file__).parents[2] / "data"
SEND = call("send", to="ann", text="hi")
PLAN = submit_plan([step("s1", "write"), step("s2", "check", depends_on=["s1"])], title="Two")


def script() -> ScriptedModel:
    """The model of every thread. Its replies depend on the messages alone, so a new process continues anywhere."""

    def send_once(messages: Sequence[Any], _: Any) -> Any:
        sent = any("sent to ann" in message.text for message in messages)
        return finish_step("sent", evidence=last_seen(messages)) if sent else SEND

    return scripted(PLAN, {"s1": send_once, "s2": [finish_step("ok", evidence="s2.result")]})


async def write(folder: Path) -> Path:
    """Store one thread that waits with its plan, one that waits with a call, one that ended, and one that is queued."""
    path = folder / "donewhen.sqlite"
    for thread, answers in (("plan", 0), ("call", 1), ("ended", 2)):
        async with Agent(script(), [Outbox().tool()], storage=f"sqlite:///{path}") as agent:
            run = await agent.start("write to ann", thread_id=thread)
            for _ in range(answers):
                run = await agent.resume(run, "approve")
    async with Agent(script(), [Outbox().tool()], storage=f"sqlite:///{path}") as agent:
        await agent.submit("write to ann", thread_id="queued")
    return path


async def keep(write: Callable[[Path], Awaitable[Path]], name: str) -> None:
    """Keep a database that `write` makes in a folder, compressed, with the data of tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = await write(Path(folder))
        target = DATA / f"{name}.sqlite.gz"
        with path.open("rb") as plain, gzip.GzipFile(target, "wb", mtime=0) as packed:
            shutil.copyfileobj(plain, packed)
    print(target, target.stat().st_size)


if __name__ == "__main__":
    asyncio.run(keep(write, f"stored-{version('donewhen')}"))
