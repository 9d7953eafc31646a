"""A bank whose every charge is a line in a file, a model that charges so often, and workers as processes."""

import os
import re
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from json import dumps, loads
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any, Self

from langchain_core.tools import StructuredTool

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

CHARGES = 10
SETTINGS: dict[str, Any] = {"confirm": "never", "approvals": "never", "on_exhausted": "deliver"}


def agent_on(url: str, ledger: Path, rounds: list[float] | None = None) -> Agent:
    """An agent whose runs charge an account as often as the goal says; what a crash cut off is looked up in the ledger.

    `rounds` gets the milliseconds between a reply of the model and its next request: all that is ours of a round.
    """
    replied: dict[str, float] = {}

    def charge(account: str, number: int) -> str:
        """Charge an account."""
        with open(ledger, "a", buffering=1) as file:
            file.write(f"{account} {number}\n")
        return f"charged {account} {number}"

    def probe(arguments: dict[str, Any]) -> str | bool:
        line = f"{arguments['account']} {arguments['number']}"
        return f"charged {line}" if line in ledger.read_text().splitlines() else False

    def execute(messages: list[Any], _: list[Any]) -> Any:
        text = next(m.content for m in messages if re.search(r"account-\d+", str(m.content)))
        account, times = re.search(r"(account-\d+), (\d+) times", str(text)).groups()  # type: ignore[union-attr]
        if rounds is not None and account in replied:
            rounds.append(1000 * (perf_counter() - replied[account]))
        replied[account] = perf_counter()
        made = sum(message.type == "tool" for message in messages)
        return call("charge", account=account, number=made) if made < int(times) else finish_step("charged", "s1.1")

    tool = StructuredTool.from_function(charge, metadata={"effect": "write", "probe": probe})
    plan = submit_plan([{"content": "charge the account", "tools": ["charge"]}])
    roles: dict[str, Any] = {"triage": lambda *_: plan, "execute": execute, "deliver": lambda *_: "Done."}
    return Agent(ScriptedModel(roles=roles, strict=False), [tool], storage=url, settings=SETTINGS)


def goal(number: int, charges: int = CHARGES) -> str:
    """Return the goal of a run, by its number."""
    return f"charge account-{number}, {charges} times"


@dataclass
class Charges:
    """The ledger of charges."""

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
    def said(self) -> list[list[str]]:
        """What it said of threads, in order: [thread, taken up | let go | how it ended]."""
        return [line.split(": ", 1) for line in self.log.read_text().splitlines() if ": " in line]

    @property
    def held(self) -> set[str]:
        """Threads that it took up and has not ended."""
        last = dict(self.said)
        return {thread for thread, said in last.items() if said == "taken up"}

    def measured(self) -> dict[str, Any]:
        """Drain it: `mb` (the most it had), `cpu` seconds of its work, `rounds` in ms, `tries` to take a run."""
        self.process.terminate()
        self.process.wait(60)
        lines = self.log.read_text().splitlines()
        return {**loads(lines[-1]), "tries": sum(line.endswith(": taken up") for line in lines)}


def until(true: Callable[[], bool], seconds: float = 120.0, pause: float = 0.05) -> float:
    """Seconds until it is true. Raises TimeoutError."""
    begun = monotonic()
    while not true():
        if monotonic() - begun > seconds:
            raise TimeoutError
        sleep(pause)
    return monotonic() - begun


async def _main(url: str, ledger: str, concurrency: int) -> None:
    rounds: list[float] = []
    begun = _used().ru_utime + _used().ru_stime
    async with agent_on(url, Path(ledger), rounds) as agent:
        worker = agent.worker(concurrency=concurrency)
        worker.report = lambda thread, event: print(f"{thread}: {event}", flush=True)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
        await worker.run()
    cpu = _used().ru_utime + _used().ru_stime - begun
    print(dumps({"mb": _used().ru_maxrss / 1024, "cpu": cpu, "rounds": rounds}), flush=True)


def _used() -> resource.struct_rusage:
    return resource.getrusage(resource.RUSAGE_SELF)


if __name__ == "__main__":
    import asyncio

    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
