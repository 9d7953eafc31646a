"""Connections to PostgreSQL: pools of psycopg_pool for each event loop, and the state of each connection."""

import asyncio
import logging
import random
import re
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakSet, finalize

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout
from typing_extensions import override

from donewhen.agent.storage.storage import lock_holders, wait_unnotified
from donewhen.state.errors import StorageError

# Without a handler Python prints each lost connection, and each commit on one, on stderr, where the command draws.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

SESSIONS, LOOKS = 16, 4
"""The most connections in each event loop: for runs at work, and for everything else."""
LOOK_PATIENCE = 60.0
"""Seconds in which at least one of those for everything else comes back, or there is an error. Runs wait their turn."""
FULL_PATIENCE = 60.0
"""Seconds to wait for a free connection of the server."""
IDLE = 10.0
"""Seconds after which unused connections are closed, one after the other."""
_ENDLESS = 1e9
_ABOUT = (
    "SELECT pg_backend_pid() AS pid, current_setting('default_transaction_isolation') AS isolation,"
    " (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS time"
)


class _Cursor(psycopg.AsyncRawCursor[DictRow]):
    """Numbers a statement's placeholders once; psycopg would search for each `%s` repeatedly."""

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        return await super().execute(query if params is None else _number_placeholders(query), params, **options)


@lru_cache(512)
def _number_placeholders(query: str | bytes) -> bytes:
    numbers = count(1)
    text = query.decode() if isinstance(query, bytes) else query
    return re.sub("%s", lambda _: f"${next(numbers)}", text).encode()


class PgConnection(psycopg.AsyncConnection[DictRow]):
    """A connection to the database, in autocommit mode."""

    pooled = False
    """True behind a pooler: each transaction may use another server session, so nothing may be left in a session, and
    session locks are useless.
    """
    ahead = 0
    """The nanoseconds by which the server's clock is ahead of this machine's."""
    isolates = False
    """True if each statement needs a transaction of its own, because the server's default isolation is not ours."""
    renew_lease: "Callable[[PgConnection], Awaitable[None]] | None" = None
    """Extends the lease that writes require."""
    used = False
    """True while it is taken from its pool."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.ready_for: set[Any] = set()
        """The ciphers (or None) for which the database was checked and set up."""
        self.turn: asyncio.Lock = asyncio.Lock()
        """Held by the one of the sharing sessions that uses the connection now."""

    @classmethod
    async def connect(cls, conninfo: str = "", **_: Any) -> Self:
        """Connect, and wait for a while if the server has no free connection."""
        deadline = asyncio.get_running_loop().time() + FULL_PATIENCE
        while True:
            try:
                connection = await super().connect(
                    conninfo, autocommit=True, prepare_threshold=None, row_factory=dict_row, cursor_factory=_Cursor
                )
                break
            except psycopg.OperationalError as error:
                full = "too many clients" in str(error) or "remaining connection slots" in str(error)
                if not full or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(random.uniform(0.05, 0.5))
        try:
            await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            asked, row = time.time_ns(), await (await connection.execute(_ABOUT)).fetchone() or {}
            answered, server_time = time.time_ns(), int(row["time"]) * 1000
            # 0 if the server's time lies between the two readings of our clock: then the clocks may agree.
            connection.ahead = min(server_time - asked, 0) + max(server_time - answered, 0)
            # A server tells its clients the id of the process that serves them; a pooler tells its own clients its own.
            connection.pooled = row["pid"] != connection.info.backend_pid
            other = row["isolation"] != "read committed"
            if not connection.pooled:
                connection.prepare_threshold = 0
            if other and not connection.pooled:
                await connection.execute("SET default_transaction_isolation TO 'read committed'")
            connection.isolates = other and connection.pooled
        except BaseException:
            await connection.close()
            raise
        lock_holders.add(connection)
        return connection

    @override
    async def execute(self, *args: Any, **options: Any) -> psycopg.AsyncCursor[DictRow]:
        if not self.isolates or self.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            return await super().execute(*args, **options)
        async with self.transaction():
            return await super().execute(*args, **options)

    @asynccontextmanager
    async def operation(self, *, reads: bool = False) -> AsyncIterator[None]:
        """Run one operation: in a transaction if it may write only under a lease, or has to be kept from writing.

        `reads`: its statements only read.
        """
        if self.renew_lease is None and (reads or not self.read_only) and not self.isolates:
            yield
            return
        async with self.transaction():
            if self.renew_lease:
                await self.renew_lease(self)
            yield


@dataclass
class _Loan:
    """A connection that is lent, in the context of the task that borrowed it."""

    connection: PgConnection
    conninfo: str
    owner: asyncio.Task[Any] | None
    working: bool
    """True for a connection of a run at work; its task may also borrow one of those for everything else."""
    shared: bool
    """True if its task gets it again for the next thing that it borrows; False if a lock is held on it."""
    open: bool = True


_current_loan: ContextVar[_Loan | None] = ContextVar("donewhen_loan", default=None)
"""The innermost loan. A task that has a connection never waits for another of the same pool, or tasks could wait for
each other: it gets the same one again, or one beside the pools."""


class _Pools:
    """The pools of one event loop to one database, shared by all users there.

    They are closed with the loop, when their last user leaves, or when no connection can be made.
    """

    def __init__(self, conninfo: str) -> None:
        self.users = set[object]()
        self.closing = asyncio.Event()
        self.last_loan = asyncio.get_running_loop().time()
        """When the last connection for everything else was lent, on the clock of the loop."""
        self._connections = WeakSet[PgConnection]()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sessions, self.looks = (
            AsyncConnectionPool(
                conninfo,
                connection_class=PgConnection,
                min_size=0,
                max_size=size,
                open=False,
                configure=self._remember,
                max_idle=IDLE,
                reconnect_timeout=0,  # whoever waits is told at once, not when it has been tried for minutes
                reconnect_failed=lambda _: self.closing.set(),
            )
            for size in (SESSIONS, LOOKS)
        )
        # In a context of its own: its tasks outlive the run that opens it.
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), context=Context())

    async def wait_open(self) -> Self:
        """Wait until connections can be asked for."""
        await asyncio.shield(self._opened)
        return self

    def leave(self, user: object) -> None:
        """Remove a user. After the last one, close unused connections now and the others when they are returned."""
        self.users.discard(user)
        if not self.users:
            self.closing.set()

    async def wait_closed(self) -> None:
        """Wait until they are closed, if they are being closed."""
        if self.closing.is_set():
            await asyncio.wait({self._keeper})

    async def _remember(self, connection: PgConnection) -> None:
        self._connections.add(connection)

    async def _keep(self) -> None:
        try:
            async with self.sessions, self.looks:
                self._opened.set_result(None)
                await self.closing.wait()
        finally:  # a loop that ends cancels the tasks of the pools before these have closed what is idle
            for connection in [*self._connections]:
                if not connection.used:
                    await connection.close()


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Pools]] = WeakKeyDictionary()


class Connections:
    """At most 16 connections for runs at work and 4 for everything else per event loop; others wait their turn."""

    def __init__(self, options: dict[str, Any], display: str) -> None:
        self._conninfo = make_conninfo(**options)
        self._display = display
        self._user = object()

    @asynccontextmanager
    async def borrow(self, *, working: bool = False, locks: bool = False) -> AsyncIterator[PgConnection]:
        """Lend a connection: the one that this task has already, one of a pool when it is its turn, or one beside them.

        `working`: one of those for runs at work. `locks`: a lock is held on it, so it is not shared. Raises
        StorageError if none comes free in time.
        """
        before, task = _current_loan.get(), asyncio.current_task()
        if before is not None and not before.open:
            before = None
        async with AsyncExitStack() as stack:
            if before and before.shared and before.owner is task and before.conninfo == self._conninfo:
                stack.push_async_callback(_set_back, before.connection, before.connection.read_only)
                connection, working = before.connection, before.working
            elif before and (working or not before.working):
                connection = await stack.enter_async_context(self.connect_beside())
            else:
                connection = await stack.enter_async_context(self._lend(working))
            loan = _Loan(connection, self._conninfo, task, working, shared=not locks)
            _current_loan.set(loan)
            try:
                yield connection
            finally:
                loan.open = False
                _current_loan.set(before)

    @asynccontextmanager
    async def _lend(self, working: bool) -> AsyncIterator[PgConnection]:
        pool, connection = await self._take(working)
        connection.used = True
        try:
            yield connection
        finally:
            connection.used = False
            await pool.putconn(connection)

    def all_at_work(self) -> bool:
        """Return whether a run would have to wait for its turn."""
        pools = _pools.get(asyncio.get_running_loop(), {}).get(self._conninfo)
        figures = pools.sessions.get_stats() if pools else {}
        return figures.get("pool_size", 0) - figures.get("pool_available", 0) >= SESSIONS

    @asynccontextmanager
    async def connect_beside(self) -> AsyncIterator[PgConnection]:
        """Open a connection beside the pools."""
        connection = await self.connect()
        try:
            yield connection
        finally:
            await connection.close()

    async def connect(self) -> PgConnection:
        """Open a connection beside the pools, which the caller closes."""
        return await PgConnection.connect(self._conninfo)

    async def aclose(self) -> None:
        """Close the pools of this event loop if nobody else uses them; asking for a connection opens new ones."""
        if pools := _pools.get(asyncio.get_running_loop(), {}).get(self._conninfo):
            pools.leave(self._user)
            await pools.wait_closed()

    async def _take(self, working: bool) -> tuple[AsyncConnectionPool[PgConnection], PgConnection]:
        clock = asyncio.get_running_loop().time
        while True:
            pools = await self._open_pools()
            pool, patience = (pools.sessions, _ENDLESS) if working else (pools.looks, LOOK_PATIENCE)
            try:
                while has_ended(connection := await pool.getconn(patience)):
                    await connection.close()
                    await pool.putconn(connection)
                if not working:
                    pools.last_loan = clock()
                return pool, connection
            except PoolTimeout:
                if clock() - pools.last_loan < patience:
                    continue  # many wait, but connections come free
                raise StorageError(
                    f"{self._display} cannot be used now: none of the {LOOKS} connections of this process for look-ups"
                    f" came free for {patience:g} seconds; look again later, or in another process"
                ) from None
            except PoolClosed:  # by whoever closed it, or because no connection could be made: this one says why
                async with self.connect_beside():
                    pass

    async def _open_pools(self) -> _Pools:
        loop = asyncio.get_running_loop()
        here = _pools.setdefault(loop, {})
        pools = here.get(self._conninfo)
        if pools is None or pools.closing.is_set():
            pools = here[self._conninfo] = _Pools(self._conninfo)
        if self._user not in pools.users:
            pools.users.add(self._user)
            finalize(self, _leave_soon, loop, pools, self._user).atexit = False
        return await pools.wait_open()


async def _set_back(connection: PgConnection, read_only: bool | None) -> None:
    """Make a shared connection read-only again, or not, as it was before the loan."""
    if not connection.closed:
        await connection.set_read_only(read_only)


def _leave_soon(loop: asyncio.AbstractEventLoop, pools: _Pools, user: object) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(pools.leave, user)


def has_ended(connection: PgConnection) -> bool:
    """Return whether the server closed the connection; an idle connection has nothing else to read."""
    if connection.closed:
        return True
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return bool(poller.poll(0))


async def wait_for_notice(
    connection: PgConnection, noticed: asyncio.Event, event: asyncio.Event, seconds: float
) -> None:
    """Wait until the event is set, the server sends something, or the time is over. The connection must be idle.

    If `noticed` is set, a notice came together with an answer since the last call; then this returns at once.
    """
    if noticed.is_set():
        noticed.clear()
        return
    loop, descriptor = asyncio.get_running_loop(), connection.fileno()
    loop.add_reader(descriptor, event.set)
    try:
        await wait_unnotified(event, seconds)
    finally:
        loop.remove_reader(descriptor)
    connection.pgconn.consume_input()
    while connection.pgconn.notifies():
        pass
