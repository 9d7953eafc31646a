"""A bank whose every charge is a line in a file, a model that charges ten times, and workers as processes."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self

from langchain_core.tools import StructuredTool

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

CHARGES = 10
SETTINGS: dict[str, Any] = {"confirm": "never", "approvals": "never", "on_exhausted": "deliver"}


def agent_on(url: str, ledger: Path) -> Agent:
    """An agent whose runs charge an account ten times each; what a crash cut off is looked up in the ledger."""

    def charge(account: str, number: int) -> str:
        """Charge an account."""
        with open(ledger, "a", buffering=1) as file:
            file.write(f"{account} {number}\n")
        return f"charged {account} {number}"

    def probe(arguments: dict[str, Any]) -> str | bool:
        line = f"{arguments['account']} {arguments['number']}"
        return f"charged {line}" if line in ledger.read_text().splitlines() else False

    tool = StructuredTool.from_function(charge, metadata={"effect": "write", "probe": probe})
    plan = submit_plan([{"content": "charge the account", "tools": ["charge"]}])
    model = ScriptedModel(
        roles={"triage": lambda *_: plan, "execute": _execute, "deliver": lambda *_: "Done."}, strict=False
    )
    return Agent(model, [tool], storage=url, settings=SETTINGS)


def _execute(messages: list[Any], _: list[Any]) -> Any:
    account = next(found[0] for m in messages if (found := re.search(r"account-\d+", str(m.content))))
    made = sum(message.type == "tool" for message in messages)
    return call("charge", account=account, number=made) if made < CHARGES else finish_step("charged", "s1.1")


def goal(number: int) -> str:
    """What run number so-and-so is to do."""
    return f"charge account-{number}"


@dataclass
class Charges:
    """What the ledger says."""

    lines: list[str]

    @classmethod
    def read(cls, ledger: Path) -> Self:
        return cls(ledger.read_text().splitlines() if ledger.exists() else [])

    @property
    def doubled(self) -> int:
        """Charges made more than once."""
        return sum(count - 1 for count in Counter(self.lines).values())


@dataclass
class WorkerProcess:
    """A worker in a process of its own, and what it says."""

    url: str
    ledger: Path
    concurrency: int = 8
    log: Path = field(init=False)
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __enter__(self) -> Self:
        self.log = self.ledger.with_name(f"worker-{os.urandom(3).hex()}.log")
        words = [sys.executable, "-m", "benchmarks.scale.world", self.url, str(self.ledger), str(self.concurrency)]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=out)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        self.process.wait(60)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    @property
    def held(self) -> set[str]:
        """Threads that it took up and has not ended."""
        rows = [line.split(": ", 1) for line in self.log.read_text().splitlines() if ": " in line]
        taken, ended = ({thread for thread, said in rows if (said == "taken up") is which} for which in (True, False))
        return taken - ended


def until(true: Callable[[], bool], seconds: float = 120.0) -> float:
    """Seconds until it is true. Raises TimeoutError."""
    begun = monotonic()
    while not true():
        if monotonic() - begun > seconds:
            raise TimeoutError
        sleep(0.05)
    return monotonic() - begun


async def _main(url: str, ledger: str, concurrency: int) -> None:
    import asyncio

    async with agent_on(url, Path(ledger)) as agent:
        worker = agent.worker(concurrency=concurrency)
        worker.tell = lambda thread, said: print(f"{thread}: {said}", flush=True)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
        await worker.run()


if __name__ == "__main__":
    import asyncio

    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
