"""A real Temporal server, and workers on it as processes: killed, frozen, of another version."""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from langchain_core.tools import StructuredTool
from temporalio.client import Client

from donewhen import Agent, AgentOptions
from donewhen.temporal import run_worker
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan
from tests.kit.forking import forks
from tests.kit.runs import last_seen
from tests.kit.serving import free_port

BINARY = Path(sys.executable).with_name("temporal")
QUEUE = "on-temporal"
SETTINGS: dict[str, Any] = {"confirm": "never", "approvals": "never", "when_busy": "next_round"}
DEAD_AFTER = 4.0


class Server:
    """Temporal's own server, with its state in a file, so that it can be restarted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        words = [BINARY, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self.port)]
        words += ["--db-filename", self.folder / "temporal.db", "--log-level", "error"]
        words += ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60"]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen([*map(str, words)], stdout=log, stderr=log)

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(30)

    async def connect(self) -> Client:
        """A client, as soon as the server answers."""
        for _ in range(200):
            try:
                client = await Client.connect(self.address)
                await client.count_workflows()
            except Exception:
                await asyncio.sleep(0.1)
            else:
                return client
        raise TimeoutError((self.folder / "server.log").read_text()[-2000:])


class Bank:
    """A storage, and a ledger in which each charge is a line; a charge of the number `held` waits after its line."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.ledger, self.hold = url, folder / "ledger", folder / "hold"
        self.ledger.touch()

    def agent(self) -> Agent:
        """An agent whose runs charge an account as often as the goal says, and look up what was cut off."""

        def charge(account: str, number: int) -> str:
            """Charge an account."""
            with open(self.ledger, "a", buffering=1) as file:
                file.write(f"{account} {number}\n")
            while self.hold.exists() and self.hold.read_text() == f"{account} {number}":
                time.sleep(0.02)
            return f"charged {account} {number}"

        def probe(arguments: dict[str, Any]) -> str | bool:
            line = f"{arguments['account']} {arguments['number']}"
            return f"charged {line}" if line in self.lines else False

        def execute(messages: list[Any], _: list[Any]) -> Any:
            text = next(m.text for m in messages if re.search(r"account-\w+, \d", m.text))
            account, times = re.search(r"(account-\w+), (\d+) times", text).groups()  # type: ignore[union-attr]
            if "ask first" in text and "Which one?" not in str(messages):
                return ask_user("Which one?")
            made = sum(message.type == "tool" and message.text.count("charged account") for message in messages)
            return (
                call("charge", account=account, number=made)
                if made < int(times)
                else finish_step("charged", last_seen(messages))
            )

        def triage(messages: list[Any], _: list[Any]) -> Any:
            every = {"every_minutes": 1} if "every minute" in messages[-1].text else None
            return submit_plan([{"content": "charge the account", "tools": ["charge"]}], schedule=every)

        tool = StructuredTool.from_function(charge, metadata={"effect": "write", "probe": probe})
        roles: dict[str, Any] = {"triage": triage, "execute": execute, "deliver": lambda *_: "Done."}
        model = ScriptedModel(roles=roles, strict=False)
        return Agent(model, [tool], storage=self.url, settings=SETTINGS, options=AgentOptions(queue=QUEUE))

    @property
    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines()

    @property
    def logged(self) -> str:
        """What its workers warned of."""
        return (self.ledger.parent / "log").read_text()

    @property
    def doubled(self) -> int:
        """Charges made more than once."""
        return sum(count - 1 for count in Counter(self.lines).values())

    @contextmanager
    def held(self, line: str) -> Iterator[None]:
        """Let this charge take its time, inside."""
        self.hold.write_text(line)
        try:
            yield
        finally:
            self.hold.unlink(missing_ok=True)


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, bank: Bank, address: str, task_queue: str, version: str = "") -> None:
        self._process = forks.Process(
            target=_work, args=(bank.url, str(bank.ledger.parent), address, task_queue, version)
        )
        self._process.start()

    def send(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """Send a signal, and return the exit code when the process has ended."""
        if self._process.is_alive():
            self.send(signal.SIGCONT)
            self.send(number)
        self._process.join(40)
        return self._process.exitcode


def _work(url: str, folder: str, address: str, task_queue: str, version: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    logging.basicConfig(filename=Path(folder) / "log", level=logging.WARNING)

    async def work() -> None:
        client = await Client.connect(address)
        await run_worker(Bank(url, Path(folder)).agent, client, task_queue, version=version, dead_after=DEAD_AFTER)

    asyncio.run(work())


@asynccontextmanager
async def working(*workers: WorkerProcess) -> AsyncIterator[None]:
    """End the workers, however they are, when the block ends."""
    try:
        yield
    finally:
        for worker in workers:
            await asyncio.to_thread(worker.end)


async def until(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until something is true, and return it; it may be awaitable."""
    ends = time.monotonic() + seconds
    while True:
        found = true()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        if time.monotonic() > ends:
            raise TimeoutError
        await asyncio.sleep(0.05)
