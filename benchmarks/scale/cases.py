"""What is done to workers and databases, and what came of it."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

from benchmarks.scale.world import CHARGES, Charges, WorkerProcess, agent_on, goal, until
from donewhen.agent.storage import open_storage
from donewhen.agent.work.engine import QUEUE
from donewhen.agent.work.threads import now_text
from donewhen.agent.work.worker import Worker

Json = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Runs under attack."""

    runs: int
    completed: int
    charged: int
    """Different charges made, of `runs × 10`."""
    doubled: int
    seconds: float
    taken_over: float | None = None
    """Seconds until the first of the runs that a worker left was at work again; None where none was left."""

    @property
    def right(self) -> bool:
        return (self.completed, self.charged, self.doubled) == (self.runs, self.runs * CHARGES, 0)


def attacked(url: str, folder: Path, runs: int, attack: Callable[[list[WorkerProcess], Path], float | None]) -> Outcome:
    """Submit runs, work on them with two workers, attack when two fifths of the charges are made, wait for the end."""
    ledger = folder / "ledger.txt"
    ledger.touch()
    asyncio.run(_submit(url, ledger, runs))
    begun = monotonic()
    with ExitStack() as stack:
        named = [url if url.startswith("sqlite") else f"{url}&application_name=worker%20{n}" for n in range(2)]
        workers = [stack.enter_context(WorkerProcess(each, ledger)) for each in named]
        until(lambda: len(Charges.read(ledger).lines) >= runs * CHARGES * 0.4)
        taken_over = attack(workers, ledger)
        until(lambda: asyncio.run(_completed(url, ledger)) == runs, 300)
        seconds = monotonic() - begun
        charges = Charges.read(ledger)
    return Outcome(runs, runs, len(set(charges.lines)), charges.doubled, seconds, taken_over)


async def _submit(url: str, ledger: Path, runs: int) -> None:
    async with agent_on(url, ledger) as agent:
        for number in range(runs):
            await agent.submit(goal(number), thread_id=f"run-{number}")


async def _completed(url: str, ledger: Path) -> int:
    async with agent_on(url, ledger) as agent:
        try:
            return int((await agent.status())["threads"].get("completed", 0))
        except Exception:  # a database that is just being restarted
            return -1


def killed(workers: list[WorkerProcess], ledger: Path) -> float | None:
    """SIGKILL for one of the workers; seconds until another goes on with what it had."""
    workers[0].send(signal.SIGKILL)
    workers[0].process.wait()
    return _taken_over(workers[0], ledger)


def frozen(workers: list[WorkerProcess], ledger: Path) -> float | None:
    """SIGSTOP for 12 seconds: nobody may take what it holds; thawed, it goes on."""
    workers[0].send(signal.SIGSTOP)
    sleep(12)
    workers[0].send(signal.SIGCONT)
    return None


def cut_off(terminate: Callable[[], None]) -> Callable[[list[WorkerProcess], Path], float | None]:
    """Frozen, its connections cut, so that another worker takes over; then thawed, unaware of that."""

    def attack(workers: list[WorkerProcess], ledger: Path) -> float | None:
        workers[0].send(signal.SIGSTOP)
        terminate()
        seconds = _taken_over(workers[0], ledger)
        sleep(2)
        workers[0].send(signal.SIGCONT)
        return seconds

    return attack


def restarted(restart: Callable[[], None]) -> Callable[[list[WorkerProcess], Path], float | None]:
    """The database goes away under load, and comes back."""

    def attack(workers: list[WorkerProcess], ledger: Path) -> float | None:
        restart()
        return None

    return attack


def _taken_over(worker: WorkerProcess, ledger: Path) -> float | None:
    left = {thread.replace("run-", "account-") for thread in worker.held}
    before = len(Charges.read(ledger).lines)
    if not left:
        return None
    return until(lambda: any(line.split()[0] in left for line in Charges.read(ledger).lines[before:]), 60)


async def look_seconds(url: str, times: int = 20) -> float:
    """Seconds that a look of an idle worker takes, on average."""
    async with open_storage(url) as storage:
        worker = Worker(storage, QUEUE, lambda info: _never())
        await worker._look()
        begun = perf_counter()
        for _ in range(times):
            await worker._look()
        return (perf_counter() - begun) / times


async def _never() -> Any:
    raise AssertionError("there is nothing to do")


async def with_waiting(url: str, count: int) -> None:
    """So many threads that wait for a person, as rows of the table that workers look at."""
    async with open_storage(url) as storage, storage.unlocked() as (_, store):
        row = {"goal": "wait", "status": "waiting", "queue": QUEUE, "due": "never", "updated": now_text()}
        for number in range(count):
            await store.threads.put(f"waits-{number}", row)


async def verbs(url: str, ledger: Path) -> dict[str, float]:
    """Milliseconds of what people do, the best of five."""
    async with agent_on(url, ledger) as agent:

        async def start() -> None:
            run = await agent.start(goal(1), settings={"confirm": "always"})
            marks.append(run.thread_id)

        marks: list[str] = []
        done: dict[str, Callable[[], Any]] = {
            "start": start,
            "resume": lambda: agent.resume(marks[-1], {"type": "cancel"}),
            "threads": agent.threads,
            "pending": agent.pending,
            "get": lambda: agent.get(marks[-1]),
        }
        found: dict[str, float] = {}
        for _ in range(5):
            for name, verb in done.items():
                begun = perf_counter()
                await verb()
                took = 1000 * (perf_counter() - begun)
                found[name] = min(found.get(name, took), took)
        return found


TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "writes", "store", "donewhen_threads")


def multiply(execute: Callable[[str], list[Any]], columns: Callable[[str], list[str]], first: int, last: int) -> None:
    """Copies of the thread `seed` in all tables, numbered: as many real threads as wanted, without running them."""
    for table in TABLES:
        names = columns(table)
        if not names:
            continue
        key = "prefix" if "prefix" in names else "thread_id"
        picked = ", ".join(f"replace({name}, 'seed', 'copy-' || n)" if name == key else name for name in names)
        numbers = f"WITH RECURSIVE k(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM k WHERE n < {last - 1})"
        where = f"{key} LIKE '%seed%'" if key == "prefix" else "thread_id = 'seed'"
        into = f"INSERT INTO {table} ({', '.join(names)})"
        execute(f"{into} {numbers} SELECT {picked} FROM {table}, k WHERE {where}")
