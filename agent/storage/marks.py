"""What a database says of itself (version, owner, encryption), and its errors in words for users."""

import base64
import sqlite3
from collections.abc import Iterator, Mapping

from donewhen.agent.storage.cipher import Cipher, StrictSerializer
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


STORAGE_VERSION = 1
"""Raised whenever older versions of this project could no longer read what is written."""


def missing_marks(
    found: Mapping[str, str], *, library: str, cipher: Cipher | None, used: bool, name: str
) -> dict[str, str]:
    """The marks to write before the database can be used; empty when it is set up.

    `library` is the version of the saver that creates the tables, `used` whether any run is stored. Raises
    StorageError when the database is of a newer version, or when it and the key do not go together.
    """
    version = found.get("version", "0")
    if not version.isdecimal() or int(version) > STORAGE_VERSION:
        raise StorageError(
            f"{name} has storage version {version}, this DoneWhen knows {STORAGE_VERSION}: upgrade donewhen"
        )
    wanted = {"version": str(STORAGE_VERSION), "library": library}
    if token := found.get("key"):
        _check_key(token, cipher, name)
    elif cipher is not None:
        if used:
            raise StorageError(f"{name} holds runs that are not encrypted: leave out the key, or use a new database")
        wanted["key"] = base64.b64encode(cipher.seal(StrictSerializer(), "donewhen", "key")).decode()
    return {mark: value for mark, value in wanted.items() if found.get(mark) != value}


def _check_key(token: str, cipher: Cipher | None, name: str) -> None:
    if cipher is None:
        raise StorageError(f"{name} is encrypted: its storage key is needed")
    try:
        cipher.unseal(StrictSerializer(), base64.b64decode(token, validate=True), "key")
    except (StorageError, ValueError) as error:
        raise StorageError(f"{name} is encrypted with another storage key") from error
