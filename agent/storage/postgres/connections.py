"""Connections to PostgreSQL: so many at once in a process, and each handed on to whoever waits for one."""

import asyncio
import random
import re
import select
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any, Self
from weakref import WeakKeyDictionary

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row

from donewhen.agent.storage.storage import deaf


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
    """One to the database."""

    prepared: Any = None
    """What whoever uses it makes of it once, also for those to whom it is handed on."""


FULL_PATIENCE = 60.0
"""Seconds to wait for other processes to leave the server a connection."""
SESSIONS, LOOKS = 16, 4


@dataclass
class _Line:
    """Where sessions of one event loop wait for a connection, and what a session hands on to the next one."""

    sessions: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SESSIONS))
    looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOOKS))
    handed: list[PgConnection] = field(default_factory=list)
    open: int = 0
    """Sessions that wait for a connection or work with one, and workers, for the next of which one is kept."""


_holding: ContextVar[bool] = ContextVar("donewhen_holding", default=False)
"""Whether a session is open around this one, as where a tool starts a run; it must not wait for itself."""


@contextmanager
def holding(session: bool) -> Iterator[None]:
    """What is opened meanwhile is opened inside of a session, if this is one."""
    before = _holding.get()
    _holding.set(before or session)
    try:
        yield
    finally:
        _holding.set(before)


class Connections:
    """At most 16 for sessions and 4 for reading at once, in each event loop; others wait for their turn."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    @property
    def _line(self) -> _Line:
        return self._lines.setdefault(asyncio.get_running_loop(), _Line())

    async def turn(self, stack: AsyncExitStack, *, session: bool) -> PgConnection:
        """A connection, when it is our turn to have one."""
        line = self._line
        if _holding.get():
            return await self.connect(stack)
        if not session:
            await stack.enter_async_context(line.looks)
            return await self.connect(stack)
        await stack.enter_async_context(_counted(line))
        await stack.enter_async_context(line.sessions)
        connection = await _handed(line) or await self._new()
        stack.push_async_callback(_hand_on, connection, line)
        return connection

    async def keep(self, stack: AsyncExitStack) -> None:
        """Keep a connection for the next session meanwhile, also where none is open."""
        await stack.enter_async_context(_counted(self._line))

    async def connect(self, stack: AsyncExitStack) -> PgConnection:
        """A connection beside all others."""
        connection = await self._new()
        stack.push_async_callback(connection.close)
        return connection

    async def _new(self) -> PgConnection:
        deadline = asyncio.get_running_loop().time() + FULL_PATIENCE
        while True:
            try:
                return await PgConnection.connect(
                    make_conninfo(**self._options),
                    autocommit=True,
                    prepare_threshold=0,
                    row_factory=dict_row,
                    cursor_factory=_Cursor,
                )
            except psycopg.OperationalError as error:
                full = "too many clients" in str(error) or "remaining connection slots" in str(error)
                if not full or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(random.uniform(0.05, 0.5))


@asynccontextmanager
async def _counted(line: _Line) -> AsyncIterator[None]:
    """For each session that is open another connection may wait for its next one; when none is, none stays open."""
    line.open += 1
    try:
        yield
    finally:
        line.open -= 1
        while len(line.handed) > line.open:
            await line.handed.pop().close()


async def _handed(line: _Line) -> PgConnection | None:
    """One that waits. Nothing was asked of it, so all it can have to say is that the server has closed it."""
    while line.handed:
        connection, said = line.handed.pop(), select.poll()
        said.register(connection.fileno(), select.POLLIN)
        if not said.poll(0):
            return connection
        await connection.close()
    return None


async def _hand_on(connection: PgConnection, line: _Line) -> None:
    """Leave a connection that is as good as new to the next one."""
    if connection.info.transaction_status == TransactionStatus.IDLE:
        line.handed.append(connection)
    else:
        await connection.close()


async def hear(connection: PgConnection, event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, the server says something, or the time is over. Nobody else uses the connection."""
    loop, came = asyncio.get_running_loop(), connection.fileno()
    loop.add_reader(came, event.set)
    try:
        await deaf(event, seconds)
    finally:
        loop.remove_reader(came)
    connection.pgconn.consume_input()
    while connection.pgconn.notifies():
        pass
