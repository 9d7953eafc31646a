"""The marks of a database: its version, the tables it has, and the key it was written with."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version

from donewhen.agent.storage.cipher import Cipher
from donewhen.state.errors import StorageError

STORAGE_VERSION = 1
"""Raised whenever older versions of this project could no longer read what is written."""
TABLES = 4
"""Raised whenever tables change; databases of `OLDEST_TABLES` and later are migrated when they are opened.

2: the first that was released. 3: since when a thread asks. 4: leases; on PostgreSQL texts are compared by bytes."""
OLDEST_TABLES = 2
version_of: Callable[[str], str] = functools.cache(version)
"""Return the version of an installed package; looking it up takes a millisecond."""


def migration(found: Mapping[str, str], steps: Mapping[int, Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yield the statements, one transaction each, that bring the tables of a database to the present version.

    `steps` has, by version, what makes the next version of it. For a database that is new there is nothing to do.
    """
    for tables in range(int(found.get("tables", TABLES)), TABLES):
        yield *steps.get(tables, ()), f"UPDATE donewhen_meta SET value = '{tables + 1}' WHERE name = 'tables'"


def missing_marks(
    found: Mapping[str, str], *, library: str, cipher: Cipher | None, used: bool, name: str
) -> dict[str, str]:
    """Return the marks to write before the database can be used: none when it is set up.

    `library` is the version of the saver that creates the tables, `used` whether any run is stored. Raises
    StorageError when the database is too new or too old, or when it and the key do not go together.
    """
    version = found.get("version", "0")
    if not version.isdecimal() or int(version) > STORAGE_VERSION:
        raise StorageError(
            f"{name} has storage version {version}, this DoneWhen knows {STORAGE_VERSION}: upgrade donewhen"
        )
    if version != "0" and int(found.get("tables", 1)) < OLDEST_TABLES:
        raise StorageError(f"{name} is of a version before the first release and cannot be read: use a new database")
    wanted = {"version": str(STORAGE_VERSION), "library": library, "tables": str(TABLES)}
    if token := found.get("key"):
        _check_key(token, cipher, name)
    elif cipher is not None:
        if used:
            raise StorageError(f"{name} holds runs that are not encrypted: leave out the key, or use a new database")
        wanted["key"] = cipher.seal_text("donewhen", "key")
    return {mark: value for mark, value in wanted.items() if found.get(mark) != value}


def _check_key(token: str, cipher: Cipher | None, name: str) -> None:
    if cipher is None:
        raise StorageError(f"{name} is encrypted: its storage key is needed")
    try:
        cipher.unseal_text(token, "key")
    except StorageError as error:
        raise StorageError(f"{name} is encrypted with another storage key") from error
