"""One SQLite file in this process: one connection in one thread, at which all runs take turns, fairly.

What waits together is committed together, so many runs at once cost fewer commits, not more. No call is cut in two by a
cancelled task: it is carried out, or was not begun.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.sqlite import SqliteStore

from donewhen.agent.storage.cipher import StrictSerializer

MOST_FREE = 0.25
"""Of a file's pages, when the last user closes it; what is free is used again, by whichever run."""
TOGETHER = 64
"""Calls that are committed together at most."""
Returned = TypeVar("Returned")


class _Connection(sqlite3.Connection):
    """Transactions are the file's business; those of LangGraph's saver and store are left out."""

    def commit(self) -> None:
        return

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        return super().execute("SELECT 1" if sql in ("BEGIN", "COMMIT") else sql, *arguments)

    def say(self, sql: str) -> None:
        """A statement of the file's own."""
        super().execute(sql).close()


@dataclass
class _Work:
    """Something to be done with the file, and who waits for it."""

    work: Callable[["SqliteFile"], Any]
    writes: bool
    alone: bool
    """Outside of any transaction."""
    future: Future[Any] = field(default_factory=Future)
    outcome: tuple[Any, BaseException | None] = (None, None)


class SqliteFile:
    """The connection, its thread, and LangGraph's saver and store on it. Opened by the first user, closed by the last.

    `patience`: seconds to wait while another process writes.
    """

    saver: SqliteSaver
    store: SqliteStore
    connection: _Connection

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._calls: SimpleQueue[_Work | None] = SimpleQueue()
        self._closed: Future[None] = Future()
        self.users = 0
        self.has_threads = False
        """Whether the table of threads is there."""
        threading.Thread(target=self._work, name=f"donewhen {path.name}", daemon=True).start()

    def begin(self, work: Callable[["SqliteFile"], Returned], *, writes: bool, alone: bool = False) -> Future[Returned]:
        """Put a call in line."""
        call = _Work(work, writes, alone)
        self._calls.put(call)
        return call.future

    async def call(
        self, work: Callable[["SqliteFile"], Returned], *, writes: bool = True, alone: bool = False
    ) -> Returned:
        """Put a call in line and wait for its answer."""
        return await asyncio.wrap_future(self.begin(work, writes=writes, alone=alone))

    async def settled(self) -> None:
        """Wait until all that is in line now is done."""
        await surely(self.begin(lambda _: None, writes=False, alone=True))

    async def close(self) -> None:
        """Close the connection when everything in line is done, and wait for that."""
        self._calls.put(None)
        await surely(self._closed)

    def _work(self) -> None:
        opened = False
        while (call := self._calls.get()) is not None:
            if not call.future.set_running_or_notify_cancel():
                continue
            try:
                if not opened:
                    self._open()
                    opened = True
            except BaseException as error:
                call.future.set_exception(error)
                continue
            if call.alone:
                self._answer([self._tried(call, "")])
                continue
            together, following = self._in_line(call)
            self._commit(together)
            if following is not None:
                self._answer([self._tried(following, "")])
        if opened:
            with suppress(sqlite3.Error):
                self._give_back()
            with suppress(sqlite3.Error):
                self.connection.close()
        self._closed.set_result(None)

    def _open(self) -> None:
        self.connection = sqlite3.connect(
            self._path, timeout=self._patience, isolation_level=None, check_same_thread=False, factory=_Connection
        )
        self.connection.say("PRAGMA auto_vacuum = INCREMENTAL")
        self.connection.say("PRAGMA synchronous = FULL")
        self.saver = SqliteSaver(self.connection, serde=StrictSerializer())
        self.store = SqliteStore(self.connection)

    def _give_back(self) -> None:
        """To the disk, if much of the file is free, and nobody else is writing."""
        names = ("freelist_count", "page_count")
        free, pages = (self.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        if free > pages * MOST_FREE:
            self.connection.say("PRAGMA busy_timeout = 0")
            self.connection.executescript("PRAGMA incremental_vacuum")

    def _in_line(self, first: _Work) -> tuple[list[_Work], _Work | None]:
        """What can be committed with the first call, and a call after these that has to be made alone."""
        together = [first]
        while len(together) < TOGETHER:
            try:
                call = self._calls.get_nowait()
            except Empty:
                break
            if call is None:
                self._calls.put(None)
                break
            if not call.future.set_running_or_notify_cancel():
                continue
            if call.alone:
                return together, call
            together.append(call)
        return together, None

    def _commit(self, calls: list[_Work]) -> None:
        """One transaction for all; a call that fails is undone alone."""
        try:
            self.connection.say("BEGIN IMMEDIATE" if any(call.writes for call in calls) else "BEGIN")
            done = [self._tried(call, "SAVEPOINT one" if len(calls) > 1 and call.writes else "") for call in calls]
            failed = len(calls) == 1 and done[0].outcome[1] is not None
            self.connection.say("ROLLBACK" if failed else "COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self.connection.say("ROLLBACK")
            for call in calls:
                call.outcome = (None, error)
        self._answer(calls)

    def _tried(self, call: _Work, savepoint: str) -> _Work:
        try:
            if savepoint:
                self.connection.say(savepoint)
            call.outcome = (call.work(self), None)
        except BaseException as error:
            call.outcome = (None, error)
            if savepoint:
                self.connection.say("ROLLBACK TO one")
        if savepoint:
            self.connection.say("RELEASE one")
        return call

    @staticmethod
    def _answer(calls: list[_Work]) -> None:
        for call in calls:
            answer, error = call.outcome
            if error is not None:
                call.future.set_exception(error)
            else:
                call.future.set_result(answer)


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
        try:
            await file.settled()
        finally:
            with _lock:
                file.users -= 1
                last = not file.users
                if last:
                    del _files[key]
            if last:
                await file.close()


async def surely(future: Future[Any]) -> None:
    """Wait for it, even where the task that waits is cancelled meanwhile. Raises what it came to."""
    done, cancelled = asyncio.wrap_future(future), False
    while not done.done():
        try:
            await asyncio.wait({done})
        except asyncio.CancelledError:
            cancelled = True
    failed = done.exception()
    if failed or cancelled:
        raise failed or asyncio.CancelledError
