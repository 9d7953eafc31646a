"""What is said when a storage cannot be used: URLs, files, servers, disks, versions."""

import asyncio
import os
import re
import resource
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import psycopg
import pytest

from donewhen import Agent, ConfigError, StorageError
from donewhen.agent.storage import Storage, parse_url
from donewhen.agent.storage.sqlite import FileSaver, FileSession, SqliteDatabase, open_shared
from donewhen.agent.storage.table import TABLES
from donewhen.testing import call
from tests.kit.runs import sending
from tests.kit.storage.cases import open_storage
from tests.kit.storage.servers import fresh_postgres_url

# URLs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///runs.db", "{cwd}/runs.db"),
        ("sqlite:////var/runs.db", "/var/runs.db"),
        ("sqlite:///~/runs.db", "{home}/runs.db"),
        ("runs.db", "{cwd}/runs.db"),
        ("./a/../runs.db", "{cwd}/runs.db"),
        ("~/runs.db", "{home}/runs.db"),
        ("/var/runs.db", "/var/runs.db"),
        ("sqlite:///with space & ü.db", "{cwd}/with space & ü.db"),
    ],
)
def test_urls_of_files(url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = path.format(cwd=tmp_path.resolve(), home=Path.home().resolve())
    assert parse_url(url).path == Path(expected)
    assert open_storage(url).url_for_display == f"sqlite:///{expected}"


NO_URLS = ["", " ", "a\0b", "memory:x", "sqlite://", "sqlite:///", ":memory:", "sqlite:///:memory:", "sqlite://host/x"]
NO_URLS += ["mysql://host/db", "redis://:secret@host", "http://x", "postgresql://host:port:port/x?what=1"]


@pytest.mark.parametrize("url", NO_URLS)
def test_urls_that_name_nothing(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgres://me:s3cret@a:1,b:2/db?sslmode=prefer", "postgres://me:***@a:1,b:2/db?sslmode=prefer"),
        ("postgresql://me:s3c@ret@host/db", "postgresql://me:***@host/db"),
        ("postgresql:///db?user=me&password=s3cret&host=h", "postgresql:///db?user=me&password=***&host=h"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("memory:", "memory:"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert open_storage(url).url_for_display == shown
    assert "s3c" not in repr(open_storage(url))


@pytest.mark.parametrize(("module", "words"), [("psycopg", "postgres"), ("Crypto.Cipher", "encryption")])
def test_a_missing_extra_says_what_to_install(module: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("donewhen.agent.storage.postgres", module))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"pip install 'donewhen\[{words}\]'"):
        open_storage("postgresql://host/db", key=None if words == "postgres" else b"x" * 32)


# Files --------------------------------------------------------------------------------------------------------


async def _refusal(url: str | Path) -> str:
    storage = open_storage(str(url))
    with pytest.raises(StorageError) as caught:
        await storage.check_health()
    for opened in (storage.session("t"), storage.reader()):
        with pytest.raises(StorageError):
            async with opened:
                pass
    return str(caught.value)


@pytest.mark.parametrize("folder", ["donewhen", ".donewhen", "state/donewhen"])
async def test_a_folder_of_our_own_is_made(tmp_path: Path, folder: str) -> None:
    """The default place needs no preparation, and others cannot read it."""
    path = tmp_path / folder / "runs.db"
    await open_storage(str(path)).check_health()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_what_cannot_be_a_database_is_said(tmp_path: Path) -> None:
    """F5: a folder that is not there, a folder, another file, a damaged and a cut one; nothing is written over."""
    assert "the folder" in await _refusal(tmp_path / "nowhere" / "runs.db")
    assert "is a folder" in await _refusal(tmp_path)
    notes, path = tmp_path / "notes.txt", tmp_path / "runs.db"
    notes.write_text("not a database, " * 100)
    assert "is not a SQLite database" in await _refusal(notes)
    assert notes.read_text() == "not a database, " * 100
    async with open_storage(str(path)).session("t") as (_, store):
        for number in range(50):
            await store.aput(("a",), str(number), {"text": "x" * 1000})
    whole = path.read_bytes()
    for spoilt in (whole[: 4096 * 3] + os.urandom(len(whole) - 4096 * 3), whole[:5000]):
        path.write_bytes(spoilt)
        with pytest.raises(StorageError, match="is damaged"):
            await open_storage(str(path)).check_health()


@pytest.mark.parametrize(
    ("pragma", "words"), [("user_version = 99", "upgrade donewhen"), ("application_id = 1", "another app")]
)
async def test_a_file_of_a_newer_version_or_of_others(tmp_path: Path, pragma: str, words: str) -> None:
    """R06: refused with both versions named, and left as it was."""
    path = tmp_path / "runs.db"
    await open_storage(str(path)).check_health()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA {pragma}")
    message = await _refusal(path)
    assert words in message
    assert "99" in message or "another" in message


@pytest.mark.parametrize(
    ("table", "id"), [("customers", 0), ("checkpoints", 0), ("customers", 77)], ids=["plain", "LangGraph", "with an id"]
)
async def test_the_database_of_another_application_is_left_alone(tmp_path: Path, table: str, id: int) -> None:
    """N32, R06: said what it is, in every way to open it; not a byte of it and no file beside it changes."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {table} (a TEXT)")
        connection.executemany(f"INSERT INTO {table} VALUES (?)", [("x" * 99,)] * 999)
        connection.commit()
        connection.execute(f"DELETE FROM {table}")
        connection.execute(f"PRAGMA application_id = {id}")
        connection.commit()
    before, said = path.read_bytes(), r"is the database of another application.*: name another file"
    with pytest.raises(StorageError, match=said):
        await open_storage(str(path)).delete_threads(["t"])
    assert re.search(said, await _refusal(path))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["other.db"]


async def test_a_file_of_the_version_before_is_migrated_and_older_ones_are_refused(tmp_path: Path) -> None:
    """R06: the tables that were first released are changed when they are opened, and nothing in them is lost."""
    path = tmp_path / "runs.db"
    async with open_storage(path).writer() as (_, store):
        await store.threads.put("t", {"status": "waiting"})
    with closing(sqlite3.connect(path)) as connection:
        for (index,) in connection.execute("SELECT name FROM sqlite_master WHERE name LIKE '%asked%'").fetchall():
            connection.execute(f"DROP INDEX {index}")
        connection.execute("ALTER TABLE donewhen_threads DROP COLUMN asked")
        connection.execute("UPDATE donewhen_meta SET value = '2' WHERE name = 'tables'")
        connection.commit()
    async with open_storage(path).writer() as (_, store):
        assert await store.threads.get("t") == {"status": "waiting"}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT value FROM donewhen_meta WHERE name = 'tables'").fetchone() == (str(TABLES),)
        connection.execute("UPDATE donewhen_meta SET value = '1' WHERE name = 'tables'")
        connection.commit()
    assert "before the first release and cannot be read: use a new database" in await _refusal(path)


async def test_a_migration_that_fails_is_said_and_leaves_the_file_free(tmp_path: Path) -> None:
    """R06, F5: to all who open the file at once, who share its connection; another process waits for nothing."""
    path = tmp_path / "runs.db"
    await open_storage(path).check_health()
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        other.execute("UPDATE donewhen_meta SET value = '2' WHERE name = 'tables'")  # but `asked` is there already
        database = SqliteDatabase(path)
        async with open_shared(path, database._prepare_place(), 1) as file:
            failures = await asyncio.gather(*(_refusal(path) for _ in range(2)))
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
            assert await file.call(lambda file: [*file.connection.execute("PRAGMA synchronous")]) == [(2,)]
    assert [re.search("duplicate column name: asked", each) is not None for each in failures] == [True, True], failures


async def test_a_file_whose_making_was_cut_off_is_made_whole(tmp_path: Path) -> None:
    """N32, R02: the first thing that is written says whose it is."""
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA application_id = 0x446E5768")
        connection.execute(
            "CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '',"
            " checkpoint_id TEXT NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB,"
            " metadata BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))"
        )
    async with open_storage(str(path)).session("t") as (_, store):
        await store.aput(("a",), "k", {"v": 1})


async def test_commits_are_on_disk(tmp_path: Path) -> None:
    """A power cut loses nothing that was recorded: WAL with full synchronisation, on the one connection."""
    async with SqliteDatabase(tmp_path / "runs.db").open("t", writes=True) as (saver, _):
        for pragma, value in (("synchronous", 2), ("journal_mode", "wal"), ("busy_timeout", 30_000)):
            asked = f"PRAGMA {pragma}"
            file = cast(FileSession, cast(FileSaver, saver).session).file
            found = await file.call(lambda file, asked=asked: [*file.connection.execute(asked)])
            assert found == [(value,)]


async def test_a_locked_file(tmp_path: Path) -> None:
    """F5: said after a while, not waited for without end."""
    path = tmp_path / "runs.db"
    await open_storage(str(path)).check_health()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        storage = Storage(SqliteDatabase(path, patience=0.05))
        with pytest.raises(StorageError, match="is locked by another process"):
            await storage.check_health()
        with pytest.raises(StorageError, match="is locked by another process"):
            async with storage.session("t") as (_, store):
                await store.aput(("a",), "k", {"v": 1})
        other.execute("ROLLBACK")
    await storage.check_health()


async def test_a_full_disk(tmp_path: Path) -> None:
    """F5: surfaced; what was stored before is there; with space again, work goes on."""
    path = tmp_path / "runs.db"
    storage = open_storage(str(path))
    async with storage.session("t") as (_, store):
        await store.aput(("a",), "before", {"v": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(StorageError, match="disk is full"):
            async with storage.session("t") as (_, store):
                await store.aput(("a",), "large", {"text": "x" * 1_000_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    async with storage.session("t") as (_, store):
        assert await store.aget(("a",), "large") is None
        await store.aput(("a",), "large", {"text": "x" * 1_000_000})
        assert await store.aget(("a",), "before") is not None


def _removed(path: Path) -> None:
    path.unlink()


def _replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").replace(path)


def _unlocked(path: Path) -> None:
    shutil.rmtree(path.with_name(path.name + ".locks"))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", [_removed, _replaced, _unlocked])
async def test_what_is_taken_away_under_a_run_is_noticed(
    change: Callable[[Path], None], when: str, tmp_path: Path
) -> None:
    """Q109: a file that is removed or replaced, or its locks, ends the run with an error that says so; nothing more is
    paid, and this agent does not begin anew on what is there now."""
    path, paid = tmp_path / "runs.db", list[str]()

    async def pay(to: str) -> str:
        """Pay."""
        if to == "ann" and when == "before":
            change(path)
        paid.append(to)
        if to == "ann" and when == "after":
            change(path)
        return f"paid {to}"

    model = sending(call("pay", to="ann"), call("pay", to="bob"), tools=["pay"])
    settings = {"confirm": "never", "approvals": "never"}
    async with Agent(model, [pay], storage=f"sqlite:///{path}", settings=settings) as agent:
        said = "lost the lock of the thread" if change is _unlocked else "was removed or replaced"
        with pytest.raises(StorageError, match=said):
            await agent.start("Pay both", thread_id="t")
        assert paid == ["ann"]
        if change is not _unlocked:
            for look_up in (agent.get("t"), agent.threads(), agent.start("Pay both", thread_id="t")):
                with pytest.raises(StorageError, match="put it back, or start the process again"):
                    await look_up
    assert paid == ["ann"]


# Servers ------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_not_there() -> None:
    message = await _refusal("postgresql://me:s3cret@127.0.0.1:1/db")
    assert "127.0.0.1" in message
    assert "s3cret" not in message


async def _spoilt(*statements: str) -> str:
    """Return the URL of a database of ours in which somebody ran these statements."""
    url = fresh_postgres_url()
    await open_storage(url).check_health()
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
    return url


async def test_a_server_database_of_a_newer_version() -> None:
    """R06: refused with both versions named."""
    url = await _spoilt("UPDATE donewhen_meta SET value = '99' WHERE name = 'version'")
    assert "storage version 99, this DoneWhen knows 1" in await _refusal(url)


async def test_rights_on_the_tables_are_needed_and_enough() -> None:
    """Once the tables are there, a role that may not create any can work; one without rights on them is told so."""
    url = await _spoilt("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    assert "permission denied" in await _refusal(url.replace("postgres:", "guest:"))
    rights = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker"
    url = await _spoilt("DROP ROLE IF EXISTS worker", "CREATE ROLE worker LOGIN", rights)
    storage = open_storage(url.replace("postgres:", "worker:"))
    await storage.check_health()
    async with storage.session("t") as (_, store):
        await store.aput(("a",), "k", {"v": 1})
