"""F5: databases that fail in the middle of a run. A fault is a StorageError, and every run goes on from there; a run
whose server only closed its connection goes on by itself."""

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from langgraph.store.base import PutOp

from benchmarks.faults.figures import Figure, Measured, none, of
from benchmarks.faults.world import World, agent_for, carry, perfect, shop
from donewhen.agent.storage.sqlite import SqliteDatabase
from donewhen.agent.storage.storage import Database, SaverAndRows, Storage
from donewhen.state.errors import StorageError, UnknownThread
from tests.kit.storage.servers import fresh_postgres_url

Kind = Literal["error before", "error after", "disk full", "locked", "connection lost"]
SQLITE_KINDS: tuple[Kind, ...] = ("error before", "error after", "disk full", "locked")
THREAD = "faulty"


@dataclass
class FailingDatabase:
    """A database whose `at`-th write meets a fault; a full disk and a lock last until `mended`."""

    inner: Database
    kind: Kind
    at: int
    path: Path | None = None
    writes: int = 0
    fired: bool = False
    """A write failed, or its connection was lost; what fits into the pages that a full disk has left does not."""
    mended: bool = False
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool, working: bool) -> AsyncIterator[SaverAndRows]:
        async with self.inner.open(thread_id, writes=writes, working=working) as (saver, store):
            for owner, name in ((saver, "aput"), (saver, "aput_writes"), (store, "abatch"), (store, "put_row")):
                setattr(owner, name, self._failing(getattr(owner, name), (saver, store)))
            yield saver, store

    def _failing(self, write: Callable[..., Any], opened: SaverAndRows) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            reads = args and isinstance(args[0], list | tuple) and not any(isinstance(op, PutOp) for op in args[0])
            if reads and write.__name__ == "abatch":
                return await write(*args, **options)
            self.writes += 1
            struck = self.writes == self.at
            try:
                if struck:
                    await self._strike(opened)
                result = await write(*args, **options)
                if struck and self.kind == "error after":
                    raise sqlite3.OperationalError("disk I/O error")
            except BaseException:
                self.fired = True
                raise
            return result

        return call

    async def _strike(self, opened: SaverAndRows) -> None:
        saver: Any = opened[0]
        if self.kind == "error before":
            raise sqlite3.OperationalError("disk I/O error")
        if self.kind == "disk full":
            least = "PRAGMA max_page_count = 1"  # as small as what is there
            await saver.session.file.call(lambda file: file.connection.execute(least).fetchall())
        if self.kind == "locked":
            other = sqlite3.connect(str(self.path), isolation_level=None)
            self.stack.callback(other.close)
            other.execute("BEGIN IMMEDIATE")
        if self.kind == "connection lost":
            self.fired = True
            await _terminate(saver.session.connection)

    async def mend(self) -> None:
        """The disk has room again, the other process lets go."""
        await self.stack.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def fault(self, error: BaseException) -> StorageError | None:
        return self.inner.fault(error) or (
            StorageError(f"{self.display} failed ({error})") if isinstance(error, sqlite3.Error) else None
        )


async def _terminate(connection: Any) -> None:
    """The server ends this connection, as a restart or an administrator does."""
    import psycopg

    async with await psycopg.AsyncConnection.connect(
        connection.info.dsn, host=connection.info.host, autocommit=True
    ) as other:
        await other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))


@dataclass
class Tally:
    """The results of the runs."""

    runs: int = 0
    fired: int = 0
    silent: int = 0
    """Faults after which the run went on as if nothing had happened."""
    strange: list[str] = field(default_factory=list)
    """Anything else than a StorageError."""
    went_on: int = 0
    """Faults that the run itself overcame, and ended right."""
    recovered: int = 0
    doubled: int = 0
    asked: int = 0
    """Effects about which a person had to be asked."""
    kinds: Counter[str] = field(default_factory=Counter)


async def count_writes(make: Callable[[], Database], seed: int) -> int:
    """Return the number of writes of a clean run."""
    database = FailingDatabase(make(), "error before", 0)
    world = shop(seed, 2)
    run = await carry(agent_for(world, perfect(world), storage=Storage(cast(Database, database))), world, THREAD)
    assert run.status == "completed"
    assert world.right
    return database.writes


async def strike(make: Callable[[], Database], kind: Kind, at: int, seed: int, tally: Tally) -> None:
    """One run whose `at`-th write fails, and its recovery by another agent."""
    inner, world = make(), shop(seed, 2)
    database = FailingDatabase(inner, kind, at, getattr(inner, "_path", None))
    tally.runs += 1
    try:
        run = await carry(agent_for(world, perfect(world), storage=Storage(cast(Database, database))), world, THREAD)
        right = run.status == "completed" and world.right
        tally.went_on += database.fired and right
        tally.silent += database.fired and not right
    except StorageError:
        tally.kinds[kind] += 1
        database.fired = True  # also where it is told by what comes later, as what waited goes with that
    except Exception as error:
        tally.strange.append(f"{kind} at {at}: {type(error).__name__}: {str(error)[:200]}")
    tally.fired += database.fired
    await database.mend()
    await _recover(inner, world, tally)


async def _recover(inner: Database, world: World, tally: Tally) -> None:
    agent = agent_for(world, perfect(world), storage=Storage(inner))
    try:
        run = await agent.resume(THREAD)
    except UnknownThread:  # it failed before anything was stored: there is nothing to resume
        run = await agent.start(world.goal, thread_id=THREAD)
    tally.asked += run.status == "waiting"
    if run.status == "waiting":
        run = await carry(agent, world, THREAD, resume=True)
    tally.recovered += run.status == "completed" and world.right
    tally.doubled += world.doubled
    if not (run.status == "completed" and world.right):
        tally.strange.append(f"not recovered: {run.status} {run.outcome and run.outcome['reason']} {world.changes}")


async def sqlite_faults(folder: Path, seeds: Sequence[int], every: int, kinds: Sequence[Kind] = SQLITE_KINDS) -> Tally:
    """Every `every`-th write of a run fails, in each way that SQLite's may."""
    tally, number = Tally(), 0

    def make() -> Database:
        return SqliteDatabase(folder / f"runs{number}.db", patience=0.05)

    for seed in seeds:
        number += 1
        total = await count_writes(make, seed)
        for kind in kinds:
            for at in range(1 + seed % every, total + 1, every):
                number += 1
                await strike(make, kind, at, seed, tally)
                _forget(folder, f"runs{number}.db")
    return tally


async def postgres_faults(seeds: Sequence[int], every: int) -> Tally:
    """The server closes the connection before every `every`-th write."""
    from donewhen.agent.storage.postgres import PostgresDatabase

    tally = Tally()
    for seed in seeds:
        url = fresh_postgres_url()
        total = await count_writes(lambda url=url: PostgresDatabase(url, "postgres"), seed)  # type: ignore[misc]
        for at in range(1 + seed % every, total + 1, every):
            url = fresh_postgres_url()
            await strike(lambda url=url: PostgresDatabase(url, "postgres"), "connection lost", at, seed, tally)  # type: ignore[misc]
    return tally


def _forget(folder: Path, name: str) -> None:
    for file in folder.glob(f"{name}*"):
        if file.is_file():
            file.unlink()


async def collect(folder: Path) -> Measured:
    """F5."""
    found = {
        "SQLite": await sqlite_faults(folder, (0, 1), 2),
        "PostgreSQL": await postgres_faults((0,), 4),
    }
    sqlite, postgres = found["SQLite"], found["PostgreSQL"]
    told = sum(sqlite.kinds.values())
    figures: list[Figure] = [
        of("F5", "SQLite: failed writes that surface as a StorageError", sqlite.fired, told),
        of("F5", "PostgreSQL: runs that go on by themselves after a lost connection", postgres.fired, postgres.went_on),
    ]
    for name, tally in found.items():
        figures += [
            of("F5", f"{name}: runs that then recover, and end right", tally.runs, tally.recovered),
            none("F5", f"{name}: doubled changes", tally.runs, tally.doubled),
        ]
    asked = ", ".join(f"{tally.asked} of {tally.runs} runs on {name}" for name, tally in found.items())
    strange = "\n".join(f"- {each}" for tally in found.values() for each in tally.strange)
    return Measured(figures, f"A person was asked about an effect in {asked}.\n\n{strange}".rstrip())
