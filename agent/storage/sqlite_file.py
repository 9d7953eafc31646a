"""One SQLite file in this process: one connection in one thread, at which all runs take turns, fairly.

What waits together is committed together, so many runs at once cost fewer commits, not more. What is in line to be
written is written, even where the task that waits for it is cancelled.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.sqlite import SqliteStore

from donewhen.agent.storage.cipher import StrictSerializer
from donewhen.agent.storage.rounds import surely

MOST_FREE = 0.25
"""Of a file's pages, when the last user closes it; what is free is used again, by whichever run."""
TOGETHER = 64
"""Calls that are committed together at most."""
Returned = TypeVar("Returned")
Statement = tuple[str, Sequence[Sequence[Any]]]
"""SQL that changes something, and the rows of values that it is said with, once for each."""


class _Connection(sqlite3.Connection):
    """Transactions are the file's business; those of LangGraph's saver and store are left out."""

    def commit(self) -> None:
        return

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        return self.cursor() if sql in ("BEGIN", "COMMIT") else super().execute(sql, *arguments)

    def say(self, sql: str) -> None:
        """A statement of the file's own."""
        super().execute(sql).close()


@dataclass(slots=True)
class _Work:
    """Something to be done with the file, and who waits for it, in which loop."""

    work: Callable[["SqliteFile"], Any]
    writes: bool
    alone: bool
    """Outside of any transaction."""
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    answer: Any = None
    error: BaseException | None = None

    def done(self, file: "SqliteFile") -> bool:
        """Do it; whether it went well."""
        try:
            self.answer, self.error = self.work(file), None
        except BaseException as error:
            self.error = error
        return self.error is None

    def tell(self) -> None:
        """What it came to, if anybody still waits for it."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.answer)


class SqliteFile:
    """The connection, its thread, and LangGraph's saver and store on it. Opened by the first user, closed by the last.

    `patience`: seconds to wait while another process writes.
    """

    def __init__(self, path: Path, patience: float) -> None:
        self.connection: _Connection = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False, factory=_Connection
        )
        self.saver = SqliteSaver(self.connection, serde=StrictSerializer())
        self.store = SqliteStore(self.connection)
        self.users = 0
        self.fit: set[Any] = set()
        """Of whom it is known that the file is set up for them."""
        self._calls: SimpleQueue[_Work] = SimpleQueue()
        self._closed = False
        threading.Thread(target=self._live, name=f"donewhen {path.name}", daemon=True).start()

    def begin(
        self, work: Callable[["SqliteFile"], Returned], *, writes: bool = True, alone: bool = False
    ) -> asyncio.Future[Returned]:
        """Put a call in line."""
        loop = asyncio.get_running_loop()
        call = _Work(work, writes, alone, loop, loop.create_future())
        self._calls.put(call)
        return call.future

    async def call(
        self, work: Callable[["SqliteFile"], Returned], *, writes: bool = True, alone: bool = False
    ) -> Returned:
        """Put a call in line and wait for its answer."""
        return await self.begin(work, writes=writes, alone=alone)

    def say(self, statements: Iterable[Statement]) -> None:
        """Carry out statements, in a call."""
        for sql, rows in statements:
            self.connection.executemany(sql, rows)

    async def settled(self) -> None:
        """Wait until all that is in line now is done."""
        await surely(self.begin(lambda _: None, alone=True))

    async def close(self) -> None:
        """Close the connection when everything in line is done, and wait for that."""
        await surely(self.begin(SqliteFile._close, alone=True))

    def _live(self) -> None:
        while not self._closed:
            together, following = self._in_line()
            if together:
                self._commit(together)
            if following:
                following.done(self)
                _answer([following])

    def _in_line(self) -> tuple[list[_Work], _Work | None]:
        """What can be committed together, and a call after these that has to be made alone."""
        together: list[_Work] = []
        call = self._calls.get()
        while not call.alone:
            if call.writes or not call.future.cancelled():
                together.append(call)
            if len(together) == TOGETHER:
                return together, None
            try:
                call = self._calls.get_nowait()
            except Empty:
                return together, None
        return together, call

    def _commit(self, calls: list[_Work]) -> None:
        """One transaction for all, or, where one of them fails, one for each, so that only that one is undone."""
        failed = False
        try:
            self.connection.say("BEGIN IMMEDIATE" if any(call.writes for call in calls) else "BEGIN")
            failed = not all(call.done(self) for call in calls)
            if not failed:
                self.connection.say("COMMIT")
        except BaseException as error:
            for call in calls:
                call.error = error
        if self.connection.in_transaction:
            with suppress(sqlite3.Error):
                self.connection.say("ROLLBACK")
        if failed and len(calls) > 1:
            for call in calls:
                self._commit([call])
        else:
            _answer(calls)

    def _close(self) -> None:
        self._closed = True
        with suppress(sqlite3.Error):
            self._give_back()
        with suppress(sqlite3.Error):
            self.connection.close()

    def _give_back(self) -> None:
        """To the disk, if much of the file is free, and nobody else is writing; never in a file that is not ours."""
        if not self.fit:
            return
        names = ("freelist_count", "page_count")
        free, pages = (self.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        if free > pages * MOST_FREE:
            self.connection.say("PRAGMA busy_timeout = 0")
            self.connection.executescript("PRAGMA incremental_vacuum")


def _answer(calls: list[_Work]) -> None:
    """Tell who waits; his loop may be closed by now."""
    for loop in {call.loop for call in calls}:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_tell, [call for call in calls if call.loop is loop])


def _tell(calls: list[_Work]) -> None:
    for call in calls:
        call.tell()


_files: dict[tuple[int, Path, int], SqliteFile] = {}
"""By process (a child must not touch its parent's connection, nor close it), path, and the file that is there now."""
_lock = threading.Lock()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


@asynccontextmanager
async def shared(path: Path, patience: float) -> AsyncIterator[SqliteFile]:
    """The file's one connection in this process. At the end everything that was put in line is done."""
    key = (os.getpid(), path, os.stat(path).st_ino)
    with _lock:
        file = _files.get(key) or _files.setdefault(key, SqliteFile(path, patience))
        file.users += 1
    try:
        yield file
    finally:
        with _lock:
            file.users -= 1
            last = not file.users
            if last:
                del _files[key]
        await (file.close() if last else file.settled())
