"""The databases behind the savers' backs, for tests that change what is stored."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

Change = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]


@contextmanager
def database(url: str) -> Iterator[Change]:
    """SQL on the database itself, with `?` for parameters."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            yield lambda query, values: connection.execute(query, values).fetchall()
        return
    with psycopg.connect(url, autocommit=True) as server:

        def run(query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            cursor = server.execute(query.replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []

        yield run


def cells(url: str) -> list[tuple[str, str, str]]:
    """Every place where something is stored: table, column, and the column as text or bytes."""
    if url.startswith("sqlite"):
        columns = "checkpoints.type checkpoints.checkpoint checkpoints.metadata writes.type writes.value store.value"
        return [(*name.split(".")[:2], name.split(".")[1]) for name in columns.split()]
    columns = "checkpoint_blobs.type checkpoint_blobs.blob checkpoint_writes.type checkpoint_writes.blob"
    json = "checkpoints.checkpoint checkpoints.metadata store.value"
    return [
        *((*name.split(".")[:2], name.split(".")[1]) for name in columns.split()),
        *((*name.split(".")[:2], name.split(".")[1] + "::text") for name in json.split()),
    ]


def values(url: str) -> list[tuple[str, str]]:
    """Tables of serialised values: beside the column, each has the kind in `type`."""
    return [(table, column) for table, column, _ in cells(url) if column in ("checkpoint", "value", "blob")][:2]


def row(url: str) -> str:
    return "rowid" if url.startswith("sqlite") else "ctid"
