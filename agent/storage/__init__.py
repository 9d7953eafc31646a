"""Storage of runs: checkpointer and store behind one URL, and one worker per thread."""

import os

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.storage import Storage, parse_url
from donewhen.state.errors import ConfigError

__all__ = ["Storage", "open_storage"]


def open_storage(url: str | os.PathLike[str], *, key: bytes | None = None) -> Storage:
    """Return the storage for `url`; nothing is opened before the first session.

    `memory:` lasts as long as the returned object. `sqlite:///runs.db` (relative), `sqlite:////var/runs.db`
    (absolute) and a plain path name a SQLite file; `postgresql://user@host/database` names a PostgreSQL
    database. With `key` (16, 24 or 32 bytes) everything that is stored is encrypted and bound to its place;
    `memory:` writes nothing and ignores it. Raises ConfigError for a URL, a key or a missing extra.
    """
    location, cipher = parse_url(os.fspath(url)), None if key is None else Cipher(key)
    if location.kind == "memory":
        from donewhen.agent.storage.memory import MemoryDatabase

        return Storage(MemoryDatabase())
    if location.kind == "sqlite":
        from donewhen.agent.storage.sqlite import SqliteDatabase

        return Storage(SqliteDatabase(location.path, cipher), cipher)
    try:
        from donewhen.agent.storage.postgres import PostgresDatabase
    except ImportError as error:
        raise ConfigError(
            f"{location.display} needs the postgres extra ({error}): pip install 'donewhen[postgres]'"
        ) from error
    return Storage(PostgresDatabase(location.url, location.display, cipher), cipher)
