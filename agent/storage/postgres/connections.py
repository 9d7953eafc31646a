"""Connections to PostgreSQL: pools of psycopg_pool for each event loop, and what is known of each connection."""

import asyncio
import logging
import random
import re
import select
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from functools import lru_cache
from itertools import count
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakSet, finalize

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed

from donewhen.agent.storage.postgres.locks import Lease
from donewhen.agent.storage.storage import locks, wait_unnotified

# Without a handler Python prints each connection that was lost on stderr, where the command draws.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

SESSIONS, LOOKS = 16, 4
"""Connections at most, in each event loop: for sessions, and for all else."""
FULL_PATIENCE = 60.0
"""Seconds to wait for other processes to leave the server a connection."""
IDLE = 10.0
"""Seconds after which connections that nobody used are closed, one after the other."""
_ENDLESS = 1e9


class _Cursor(psycopg.AsyncRawCursor[DictRow]):
    """Numbers the values of a statement once: psycopg would look for each `%s` again and again where they are many."""

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        return await super().execute(query if params is None else _numbered(query), params, **options)


@lru_cache(512)
def _numbered(query: str | bytes) -> bytes:
    numbers = count(1)
    text = query.decode() if isinstance(query, bytes) else query
    return re.sub("%s", lambda _: f"${next(numbers)}", text).encode()


class PgConnection(psycopg.AsyncConnection[DictRow]):
    """A connection to the database, in autocommit mode."""

    pooled = False
    """Whether a pooler stands between: each transaction may be given to another session of the server, so that
    nothing may be left in a session, and locks of sessions hold nothing."""
    lease: Lease | None = None
    """What has to be held while something is written."""
    used = False
    """Whether somebody has it from its pool."""
    store: Any = None
    """LangGraph's store on it, made once for all who use it one after the other."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.fit: set[Any] = set()
        """Of whom it is known that the database is set up for them."""

    @classmethod
    async def connect(cls, conninfo: str = "", **_: Any) -> Self:
        """Connect, and wait for a while if the server has no connection left."""
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
            row = await (await connection.execute("SELECT pg_backend_pid() AS pid")).fetchone()
        except BaseException:
            await connection.close()
            raise
        # A server tells its clients the id of the process that serves them; a pooler tells its own clients its own.
        connection.pooled = row is None or row["pid"] != connection.info.backend_pid
        if not connection.pooled:
            connection.prepare_threshold = 0
        locks.add(connection)
        return connection

    @asynccontextmanager
    async def operation(self) -> AsyncIterator[None]:
        """Do one thing: in a transaction if it may only read, or may only write while a lease is held."""
        if self.lease is None and not self.read_only:
            yield
            return
        async with self.transaction():
            if self.lease:
                await self.lease.renew(self)
            yield


_holding: ContextVar[bool] = ContextVar("donewhen_holding", default=False)
"""Whether a session is open around this one, as where a tool starts a run; it must not wait for itself."""


@contextmanager
def mark_session(session: bool) -> Iterator[None]:
    """Mark what is opened meanwhile as opened inside of a session, if this is one."""
    before = _holding.get()
    _holding.set(before or session)
    try:
        yield
    finally:
        _holding.set(before)


class _Pools:
    """The pools of one event loop to one database, for all who use it there.

    They are closed with the loop, when their last user leaves, or when no connection can be made.
    """

    def __init__(self, conninfo: str) -> None:
        self.users = set[object]()
        self.closing = asyncio.Event()
        self._connections = WeakSet[PgConnection]()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sessions, self.looks = (
            AsyncConnectionPool(
                conninfo,
                connection_class=PgConnection,
                min_size=0,
                max_size=size,
                open=False,
                configure=self._know,
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
        """Forget a user. Without any, close what is not in use, and the rest when it is given back."""
        self.users.discard(user)
        if not self.users:
            self.closing.set()

    async def wait_closed(self) -> None:
        """Wait until they are closed, if they are being closed."""
        if self.closing.is_set():
            await asyncio.wait({self._keeper})

    async def _know(self, connection: PgConnection) -> None:
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
    """At most 16 for sessions and 4 for all else at once, in each event loop; others wait for their turn."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._conninfo = make_conninfo(**options)
        self._user = object()

    @asynccontextmanager
    async def borrow(self, *, session: bool) -> AsyncIterator[PgConnection]:
        """Lend a connection of a pool when it is our turn."""
        if _holding.get():
            async with self.connect_beside() as connection:
                yield connection
            return
        pool, connection = await self._take(session)
        connection.used = True
        try:
            yield connection
        finally:
            connection.used = False
            await pool.putconn(connection)

    @asynccontextmanager
    async def connect_beside(self) -> AsyncIterator[PgConnection]:
        """Open a connection beside the pools."""
        connection = await PgConnection.connect(self._conninfo)
        try:
            yield connection
        finally:
            await connection.close()

    async def aclose(self) -> None:
        """Close the pools of this event loop if nobody else uses them; asking for a connection opens new ones."""
        if pools := _pools.get(asyncio.get_running_loop(), {}).get(self._conninfo):
            pools.leave(self._user)
            await pools.wait_closed()

    async def _take(self, session: bool) -> tuple[AsyncConnectionPool[PgConnection], PgConnection]:
        while True:
            pools = await self._open_pools()
            pool = pools.sessions if session else pools.looks
            try:
                while _has_ended(connection := await pool.getconn(_ENDLESS)):
                    await connection.close()
                    await pool.putconn(connection)
                return pool, connection
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


def _leave_soon(loop: asyncio.AbstractEventLoop, pools: _Pools, user: object) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(pools.leave, user)


def _has_ended(connection: PgConnection) -> bool:
    """Return whether the server has closed the connection. Nothing was asked of it, so it has nothing else to say."""
    said = select.poll()
    said.register(connection.fileno(), select.POLLIN)
    return bool(said.poll(0))


async def wait_for_notice(connection: PgConnection, event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, the server says something, or the time is over. Nobody else uses the connection."""
    loop, came = asyncio.get_running_loop(), connection.fileno()
    loop.add_reader(came, event.set)
    try:
        await wait_unnotified(event, seconds)
    finally:
        loop.remove_reader(came)
    connection.pgconn.consume_input()
    while connection.pgconn.notifies():
        pass
