"""Attacks on workers and databases, and their results."""

import asyncio
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import psycopg

from benchmarks.scale.world import CHARGES, Charges, WorkerProcess, agent_on, goal, until
from tests.kit.storage.servers import stopped


@dataclass(frozen=True)
class Outcome:
    """Runs under attack."""

    runs: int
    completed: int
    charged: int
    """Different charges made, of `runs × 10`."""
    doubled: int
    forked: int
    """Checkpoints that two others follow."""
    seconds: float
    taken_over: float | None = None
    """Seconds until the first of the runs that a worker left was at work again; None where none was left."""

    @property
    def right(self) -> bool:
        return (self.completed, self.charged, self.doubled, self.forked) == (self.runs, self.runs * CHARGES, 0, 0)


def run_attack(
    url: str, folder: Path, runs: int, attack: Callable[[list[WorkerProcess], Path], float | None]
) -> Outcome:
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
        with suppress(TimeoutError):
            until(lambda: asyncio.run(_completed(url, ledger)) == runs, 900, 0.5)
        seconds, completed = monotonic() - begun, asyncio.run(_completed(url, ledger))
        charges = Charges.read(ledger)
    return Outcome(runs, completed, len(set(charges.lines)), charges.doubled, _forked(url), seconds, taken_over)


def _forked(url: str) -> int:
    query = (
        "SELECT count(*) FROM (SELECT 1 FROM checkpoints WHERE parent_checkpoint_id IS NOT NULL"
        " GROUP BY thread_id, checkpoint_ns, parent_checkpoint_id HAVING count(*) > 1) AS forked"
    )
    with closing(sqlite3.connect(url[10:]) if url.startswith("sqlite") else psycopg.connect(url)) as connection:
        return int(connection.execute(query).fetchone()[0])


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
    return _taken_over(*workers)


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
        seconds = _taken_over(*workers)
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


def _taken_over(gone: WorkerProcess, other: WorkerProcess) -> float | None:
    """Return when the other worker took over, by its own output; all charges may be made already."""
    left, before = gone.held - other.held, len(other.said)
    if not left:
        return None
    try:
        return until(lambda: any(thread in left and said == "taken up" for thread, said in other.said[before:]), 60)
    except TimeoutError:  # whether all end is seen later; what the workers said is gone by then
        print(*(each.log.read_text()[-3000:] for each in (gone, other)), sep="\n\n", file=sys.stderr)
        return None


def terminating(url: str) -> Callable[[], None]:
    """Ends all connections of the first worker."""

    def terminate() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'worker 0'"
            )

    return terminate


def restarting(url: str) -> Callable[[], None]:
    """Stops the server at once and starts it again."""

    def restart() -> None:
        with stopped(url):
            pass

    return restart
