"""The engines of storage, and the URLs that name them. A new engine is a row of `ENGINES`."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.storage import Storage
from donewhen.state.errors import ConfigError


@dataclass(frozen=True)
class Location:
    """A parsed storage URL."""

    kind: str
    """The name of its engine."""
    url: str
    """As given; may contain a password."""
    display: str
    """Safe for logs and errors."""
    path: Path | None = None
    """The file of a database in one file: absolute, symbolic links followed; the first session creates it."""

    @property
    def engine(self) -> "Engine":
        """Return the engine that this URL names."""
        return ENGINES[self.kind]

    def exists(self) -> bool:
        """Return whether the database exists already, as far as can be known without connecting to it."""
        return self.path is None or self.path.exists()


@dataclass(frozen=True)
class Engine:
    """A kind of storage: the URLs that name it, and how it is opened."""

    schemes: tuple[str, ...]
    forms: tuple[str, ...]
    """What its URLs look like, for people."""
    shared: bool
    """True if other processes can reach it, such as a worker, and later commands."""
    locate: Callable[[str], Location]
    """Reads its URL. Raises ConfigError for an invalid one."""
    open: Callable[[Location, Cipher | None], Storage]
    """Makes the storage, without opening it; what only this engine needs is imported here."""


def open_storage(url: str | os.PathLike[str], *, key: bytes | None = None) -> Storage:
    """Return the storage for `url`; nothing is opened before the first session.

    `memory:` lasts as long as the returned object. `sqlite:///runs.db` (relative), `sqlite:////var/runs.db`
    (absolute) and a plain path name a SQLite file; `postgresql://user@host/database` names a PostgreSQL
    database. With `key` (16, 24 or 32 bytes) everything that is stored is encrypted and bound to its place;
    `memory:` writes nothing and ignores it. Raises ConfigError for a URL, a key or a missing extra.
    """
    if not isinstance(url, str | os.PathLike):
        raise ConfigError(f"storage is {url!r}; it must be a URL such as sqlite:///runs.db, or a path")
    location = parse_url(os.fspath(url))
    return location.engine.open(location, None if key is None else Cipher(key))


def parse_url(url: str) -> Location:
    """Return the location of `url`. Raises ConfigError for an invalid one."""
    *forms, last = (form for engine in ENGINES.values() for form in engine.forms)
    use = f"use {', '.join(forms)}, or {last}"
    if not url.strip() or "\0" in url:
        raise ConfigError(f"storage {url!r} is not a storage URL: {use}")
    match = _SCHEME.match(url)
    scheme = match.group(1).lower() if match else ""
    for engine in ENGINES.values():
        if scheme in engine.schemes:
            return engine.locate(url)
    if scheme and (url[len(scheme) + 1 :].startswith("/") or not Path(url).exists()):
        raise ConfigError(f"storage {without_password(url)!r} is of an unknown kind: {use}")
    return _locate_sqlite(url)


def without_password(url: str) -> str:
    """Return `url` with every password replaced by `***`."""
    url = re.sub(r"^([^:/?#]+://[^:@/?#]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    return re.sub(r"(?i)([?&][^=&]*password=)[^&]*", r"\1***", url)


def _locate_memory(url: str) -> Location:
    if url.split(":", 1)[1].strip("/"):
        raise ConfigError(f"storage {url!r}: memory: takes nothing after it")
    return Location("memory", url, "memory:")


def _open_memory(location: Location, cipher: Cipher | None) -> Storage:
    from donewhen.agent.storage.memory import MemoryDatabase

    return Storage(MemoryDatabase())


def _locate_sqlite(url: str) -> Location:
    path = url
    if url.lower().startswith("sqlite:"):
        rest = url.split(":", 1)[1]
        path = rest[3:] if rest.startswith("///") else rest
        path = "" if path.startswith("//") else path
    if not path.strip("/") or path.endswith(":memory:"):
        raise ConfigError(
            f"storage {url!r} names no file: use sqlite:///runs.db, sqlite:////absolute/runs.db or memory:"
        )
    try:
        resolved = Path(path).expanduser().resolve()
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"storage {url!r}: {error}") from error
    return Location("sqlite", url, f"sqlite:///{resolved}", resolved)


def _open_sqlite(location: Location, cipher: Cipher | None) -> Storage:
    try:
        from donewhen.agent.storage.sqlite import SqliteDatabase
    except ModuleNotFoundError as error:
        if error.name != "fcntl":
            raise
        raise ConfigError(
            f"{location.display} needs POSIX locks, which this system lacks ({error}): use postgresql:// or memory:; "
            "on Windows, WSL has them"
        ) from error
    assert location.path is not None
    return Storage(SqliteDatabase(location.path, cipher), cipher)


def _locate_postgres(url: str) -> Location:
    return Location("postgres", url, without_password(url))


def _open_postgres(location: Location, cipher: Cipher | None) -> Storage:
    try:
        from donewhen.agent.storage.postgres import PostgresDatabase
    except ImportError as error:
        raise ConfigError(
            f"{location.display} needs the postgres extra ({error}): pip install 'donewhen[postgres]'"
        ) from error
    return Storage(PostgresDatabase(location.url, location.display, cipher), cipher)


ENGINES: dict[str, Engine] = {
    "memory": Engine(("memory",), ("memory:",), False, _locate_memory, _open_memory),
    "sqlite": Engine(("sqlite",), ("sqlite:///runs.db", "a path such as runs.db"), True, _locate_sqlite, _open_sqlite),
    "postgres": Engine(
        ("postgresql", "postgres"), ("postgresql://user@host/database",), True, _locate_postgres, _open_postgres
    ),
}
"""All engines by name. A plain path is SQLite's."""
_SCHEME = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]+):")
