"""Database errors in words for users: what is wrong with which database, and what to do."""

import sqlite3
from collections.abc import Iterator

from donewhen.state.errors import StorageError

_SQLITE = {
    "file is not a database": "is not a SQLite database (or it is encrypted by something else)",
    "malformed": "is damaged: restore a copy, or name another file",
    "unable to open database file": "cannot be opened: is its folder there, and may you write to it?",
    "readonly database": "cannot be written: no permission, or opened for reading only",
    "is locked": "is locked by another process",
    "disk is full": "cannot be written: the disk is full",
    "disk i/o error": "cannot be read or written: the disk is full or failing",
}


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it, outermost first."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__


def sqlite_fault(error: BaseException, display: str) -> StorageError | None:
    """A StorageError if SQLite is at the bottom of `error`, else None."""
    for cause in causes(error):
        if isinstance(cause, sqlite3.Error):
            text = str(cause)
            words = next((words for part, words in _SQLITE.items() if part in text.lower()), "failed")
            return StorageError(f"{display} {words} ({text})")
    return None
