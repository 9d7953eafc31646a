"""A thousand runs at once on four workers, from one who has most of them and many who have a few."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from time import monotonic, sleep

import psycopg

from benchmarks.scale.world import Charges, WorkerProcess, agent_on, goal

WORKERS, CHARGES, FEW = 4, 3, 10
ROUNDS = CHARGES + 3
"""The rounds of a run: triage, one per charge, finish_step, and the answer."""
Row = dict[str, str]


def crowd(url: str, folder: Path, runs: int, concurrency: int) -> Row:
    """Submit them all, then let four workers loose; a row of the table."""
    ledger = folder / "ledger.txt"
    ledger.touch()
    asyncio.run(_submit(url, ledger, runs))
    connections, begun = [0], monotonic()
    with ExitStack() as stack:
        name = "" if url.startswith("sqlite") else "&application_name=crowd"
        made = [WorkerProcess(url + name, ledger, concurrency) for _ in range(WORKERS)]
        workers = [stack.enter_context(each) for each in made]
        while (completed := _completed(url, ledger)) < runs and monotonic() - begun < 1500:
            connections.append(_connections(url) if name else 0)
            sleep(1)
        seconds = monotonic() - begun
        measured = [worker.measured() for worker in workers]
    charges = Charges.read(ledger)
    rounds = sorted(ms for each in measured for ms in each["rounds"])
    cuts = quantiles(rounds, n=100)
    cpu = 1000 * sum(each["cpu"] for each in measured) / (runs * ROUNDS)
    few, most = asyncio.run(_waits(url, ledger, runs))
    return {
        "completed": f"{completed} of {runs}",
        "charges, doubled": f"{len(set(charges.lines))} of {CHARGES * runs}, {charges.doubled}",
        "runs, rounds a second": f"{completed / seconds:.1f}, {completed * ROUNDS / seconds:.0f}",
        "a round, p50 and p99": f"{cuts[49]:.0f}, {cuts[98]:.0f} ms",
        "CPU of a round": f"{cpu:.1f} ms",
        "connections, most": str(max(connections)) if name else "–",
        "memory of a worker, most": f"{max(each['mb'] for each in measured):.0f} MB",
        "taken up": str(sum(each["tries"] for each in measured)),
        "ten with ten each done after": f"{few / most:.0%} of the time",
    }


async def _submit(url: str, ledger: Path, runs: int) -> None:
    """One owner has submitted nine tenths before the others come, with ten each."""
    async with agent_on(url, ledger) as agent:
        for number in range(runs):
            late = number - (runs - runs // 10)
            owner = "one" if late < 0 else f"few-{late // FEW}"
            await agent.submit(goal(number, CHARGES), thread_id=f"run-{number}", owner=owner)


def _completed(url: str, ledger: Path) -> int:
    async def count() -> int:
        async with agent_on(url, ledger) as agent:
            return int((await agent.status())["threads"].get("completed", 0))

    return asyncio.run(count())


def _connections(url: str) -> int:
    with psycopg.connect(url) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crowd'"
        return int((connection.execute(query).fetchone() or (0,))[0])


async def _waits(url: str, ledger: Path, runs: int) -> tuple[float, float]:
    """Seconds until the last run of the small owners was done, and of all, from the first that was done."""
    from datetime import datetime

    async with agent_on(url, ledger) as agent:
        ends = [(info.owner, datetime.fromisoformat(info.updated)) for info in await agent.threads(runs)]
    first = min(end for _, end in ends)
    last: Callable[[str], float] = lambda start: max(  # noqa: E731
        (end - first).total_seconds() for owner, end in ends if owner.startswith(start)
    )
    return last("few"), last("")
