"""PostgreSQL as people run it: made with any locale, behind a transaction pooler, and looked at often."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psycopg
import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from donewhen import Agent, Executor, StorageError, ThreadBusy
from donewhen.agent.storage.postgres import database, locks
from donewhen.agent.storage.table import TABLES
from donewhen.testing import ScriptedModel, answer, call
from tests.kit.runs import sending
from tests.kit.screens.shell import scripted, user_in
from tests.kit.storage.cases import Storage, config, open_storage
from tests.kit.storage.servers import LOCALES, fresh_postgres_url, pooled, postgres_url
from tests.kit.storage.workers import working

IDS = ["a", "B", "_", "Ä", "z", "-a", "10", "9", "ab", "a-b", "a b", "Order-17 é", "订单-9", "zz"]


def greeting() -> ScriptedModel:
    return ScriptedModel(roles={"triage": lambda *_: answer("Hello.")})


def ask(url: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """What the server says, on a connection beside all others."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode(), values)
        return cursor.fetchall() if cursor.description else []


# Locales -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("locale", LOCALES)
async def test_short_ids_are_found_and_lists_are_ordered_whatever_the_locale(locale: str) -> None:
    """N27, R12: the beginning of an id finds its thread and no other; owners take turns; lists go by time."""
    storage = open_storage(fresh_postgres_url(locale))
    async with storage.writer() as (_, store):
        for number, thread_id in enumerate(IDS):
            at = f"2026-01-{number + 1:02}T00:00:00+00:00"
            row = {"status": "queued", "owner": thread_id, "queue": "q", "due": at, "updated": at}
            await store.threads.put(thread_id, row)
        for prefix in ("a", "A", "Order", "订", "-", "1", "_", "Ä", "zz", "b"):
            found = await store.threads.find(99, prefix=prefix)
            assert sorted(thread_id for thread_id, _ in found) == sorted(i for i in IDS if i.startswith(prefix)), prefix
        assert [thread_id for thread_id, _ in await store.threads.find(99)] == IDS[::-1]
        assert [owner for _, _, owner in await store.threads.find_due("q", "2027", 99)] == IDS
        before = await store.threads.find(99, before="2026-01-03T00:00:00+00:00")
        assert [thread_id for thread_id, _ in before] == IDS[2::-1]


def test_the_command_finds_what_it_printed(tmp_path: Path) -> None:
    """N27: eight letters of an id, as the command prints it, are enough for it."""
    shell, storage = user_in(tmp_path), ("--storage", fresh_postgres_url())
    with scripted(shell, triage=[answer("Hello.")]):
        assert shell.run("--yes", *storage).exit_code == 0
    (thread,) = json.loads(shell("threads", "--json", *storage).stdout)["threads"]
    shown = shell("show", thread["thread_id"][:8], *storage)
    assert shown.exit_code == 0, shown.stderr
    assert "Hello." in shown.stdout


async def test_a_database_of_the_version_before_is_migrated_and_older_ones_are_refused() -> None:
    """R06: the tables that were first released are changed when they are opened, and nothing in them is lost."""
    url = fresh_postgres_url("en_US.UTF-8")
    storage = open_storage(url)
    async with storage.writer() as (_, store):
        await store.threads.put("a1", {"status": "queued"})
    await storage.aclose()
    columns = ("thread_id", "status", "owner", "queue", "due", "updated")
    ask(url, "ALTER TABLE donewhen_threads DROP COLUMN asked")
    ask(url, "ALTER TABLE donewhen_threads " + ", ".join(f"ALTER COLUMN {name} TYPE text" for name in columns))
    ask(url, "DROP TABLE donewhen_leases")
    ask(url, "UPDATE donewhen_meta SET value = '2' WHERE name = 'tables'")
    async with storage.writer() as (_, store):
        assert await store.threads.find(9, prefix="a") == [("a1", {"status": "queued"})]
    await storage.aclose()
    collations = (
        "SELECT DISTINCT collation_name FROM information_schema.columns"
        " WHERE table_name = 'donewhen_threads' AND column_name <> 'info'"
    )
    assert ask(url, collations) == [("C",)]
    assert ask(url, "SELECT value FROM donewhen_meta WHERE name = 'tables'") == [(str(TABLES),)]
    ask(url, "UPDATE donewhen_meta SET value = '1' WHERE name = 'tables'")
    with pytest.raises(StorageError, match="before the first release and cannot be read: use a new database"):
        await storage.check_health()


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
@pytest.mark.parametrize("through", [lambda url: url, pooled], ids=["direct", "pooled"])
async def test_an_empty_database_is_set_up_at_once(isolation: str, through: Callable[[str], str]) -> None:
    """Q13, R12: whatever its default isolation, while others hold old snapshots, and by several at once; then agents
    that work side by side do not disturb each other, and no index is missing."""
    url = fresh_postgres_url()
    name = str(ask(url, "SELECT current_database()")[0][0])
    ask(url, f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    with psycopg.connect(url) as backup:
        backup.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        backup.execute("SELECT 1")
        agents = [Agent(greeting(), storage=through(url)) for _ in range(2)]
        async with asyncio.timeout(30), agents[0], agents[1], agents[0].worker(), agents[1].worker():
            await asyncio.gather(*(agents[n % 2].submit(f"greet {n}", thread_id=f"t{n}") for n in range(6)))
            for n in range(6):
                assert [event["type"] async for event, _ in agents[n % 2].watch(f"t{n}")][-1] == "outcome"
    assert ask(url, "SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid") == []
    indexes = {name for (name,) in ask(url, "SELECT indexname FROM pg_indexes WHERE schemaname = 'public'")}
    assert {"checkpoints_thread_id_idx", "store_prefix_idx", "donewhen_threads_work"} <= indexes


async def test_a_migration_that_others_hold_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q13: tables that have to be changed while somebody reads them are an error that names them, not a wait; nothing
    is changed by halves, and afterwards it works."""
    monkeypatch.setattr(database, "_SETUP_PATIENCE", 0.3)
    url = fresh_postgres_url()
    storage = open_storage(url)
    await storage.check_health()
    await storage.aclose()
    ask(url, "ALTER TABLE donewhen_threads DROP COLUMN asked")
    ask(url, "DROP TABLE donewhen_leases")
    ask(url, "UPDATE donewhen_meta SET value = '2' WHERE name = 'tables'")
    with psycopg.connect(url, application_name="nightly backup") as backup:
        backup.execute("SELECT * FROM donewhen_threads")
        with pytest.raises(StorageError, match=r"changed, and are in use by nightly backup \(pid \d+\): end that"):
            await storage.check_health()
        assert ask(url, "SELECT value FROM donewhen_meta WHERE name = 'tables'") == [("2",)]
    async with storage.reader() as (_, store):
        assert await store.threads.find(9) == []
    await storage.aclose()


# A pooler ------------------------------------------------------------------------------------------------------


async def test_runs_go_on_behind_a_transaction_pooler(tmp_path: Path) -> None:
    """N28, R12: alone and at once, answered later, watched, queued, deleted; one thread has one worker."""
    url, sent = pooled(fresh_postgres_url()), list[str]()
    assert "reached through a connection pooler" in await open_storage(url).check_health()

    def send(to: str, text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    def model(number: int) -> Any:
        return sending(call("send", to="ann", text=str(number)), tools=["send"])

    agents = [Agent(model(number), [send], storage=url, settings={"approvals": "plan"}) for number in range(10)]
    runs = await asyncio.gather(*(agent.start("do it", thread_id=f"t{n}") for n, agent in enumerate(agents)))
    assert {run.status for run in runs} == {"waiting"}
    runs = await asyncio.gather(*(agent.resume(run, "approve") for agent, run in zip(agents, runs, strict=True)))
    assert {run.status for run in runs} == {"completed"}
    assert sorted(map(int, sent)) == [*range(10)]
    async with Agent(greeting(), storage=url) as agent:
        same = await asyncio.gather(*(agent.start("hi", thread_id="same") for _ in range(6)), return_exceptions=True)
        assert sum(getattr(run, "status", "") == "answered" for run in same) == 1
        assert sum(isinstance(run, ThreadBusy) for run in same) == 5
        thread = await agent.submit("greet")
        async with agent.worker():
            assert [event["type"] async for event, _ in agent.watch(thread)][-1] == "outcome"
        await agent.delete("t0")
        assert len(await agent.threads()) == 11
    assert await agents[1].storage.find_free(["t1", "same"]) == ["t1", "same"]


async def test_nothing_is_left_in_sessions_that_others_use() -> None:
    """N28: no setting, no prepared statement, no lock, no channel, in any session of the server; others can write."""
    direct = fresh_postgres_url()
    url = pooled(direct)
    storage = open_storage(url)
    async with storage.session("held") as (_, store), storage.listen() as (listening, _):
        await store.aput(("a",), "k", {"v": 1})
        assert await listening.aget(("a",), "k")
        for _ in range(3):
            async with storage.reader() as (_, reader):
                assert await reader.aget(("a",), "k")
        others = [psycopg.connect(url, prepare_threshold=None) for _ in range(4)]  # all that the pooler has
        try:
            for other in others:
                settings = (
                    "SELECT current_setting('default_transaction_read_only'), count(*) FROM pg_prepared_statements"
                )
                assert other.execute(settings).fetchone() == ("off", 0)
                assert other.execute("SELECT count(*) FROM pg_listening_channels()").fetchone() == (0,)
                other.execute("CREATE TEMP TABLE mine (a int) ON COMMIT DROP")
        finally:
            for other in others:
                other.close()
    assert ask(direct, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    assert ask(direct, "SELECT count(*) FROM donewhen_leases") == [(0,)]


@pytest.mark.parametrize("first", ["direct", "pooled"])
async def test_workers_on_both_sides_of_a_pooler_exclude_each_other(first: str) -> None:
    """N28, R04: whoever comes second is refused, may not delete, and sees that it is held."""
    direct = fresh_postgres_url()
    urls = {"direct": direct, "pooled": pooled(direct)}
    with working(urls[first], "t") as [(_, pipe)]:
        pipe.send("go")
        assert pipe.recv() == "works"
        for url in urls.values():
            with pytest.raises(ThreadBusy):
                async with open_storage(url).session("t"):
                    pass
            assert await open_storage(url).find_free(["t", "u"]) == ["u"]
            assert await open_storage(url).delete_threads(["t", "u"]) == ["t"]
        pipe.send("stop")
        assert pipe.recv() == "left"
    for url in urls.values():
        async with open_storage(url).session("t") as (_, store):
            assert await store.aget(("worker",), "last")


async def test_a_killed_holder_behind_a_pooler_leaves_the_thread_when_its_lease_ends() -> None:
    """N28, R02: nothing tells that it was killed, so the thread is busy until the lease has run out."""
    direct = fresh_postgres_url()
    url = pooled(direct)
    with working(url, "t") as [(process, pipe)]:
        pipe.send("go")
        assert pipe.recv() == "works"
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with pytest.raises(ThreadBusy):
            async with open_storage(url).session("t"):
                pass
        ((left,),) = ask(direct, "SELECT extract(epoch FROM until - clock_timestamp())::float FROM donewhen_leases")
        assert 0 < left <= 20
        ask(direct, "UPDATE donewhen_leases SET until = clock_timestamp()")  # so much time has passed
        async with open_storage(url).session("t") as (_, store):
            assert await store.aget(("worker",), "last")


async def test_who_lost_the_lease_cannot_write() -> None:
    """N28, F4: a worker that was frozen for longer than its lease wakes up beside another one."""
    direct = fresh_postgres_url()
    storage, url = open_storage(pooled(direct)), pooled(direct)

    async def wake_up_late() -> None:
        async with storage.session("t") as (_, frozen):
            await frozen.aput(("a",), "k", {"v": 1})
            ask(direct, "UPDATE donewhen_leases SET until = clock_timestamp() - interval '1 s'")
            async with open_storage(url).session("t") as (_, new):
                await new.aput(("a",), "k", {"v": 2})
                await frozen.aput(("a",), "k", {"v": 3})

    with pytest.raises(StorageError, match="another worker took it over"):
        await wake_up_late()
    async with storage.reader() as (_, store):
        item = await store.aget(("a",), "k")
    assert item is not None
    assert item.value == {"v": 2}


async def test_a_lease_is_renewed_by_what_is_written_and_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """N28: a step that works for minutes without a word keeps its thread."""
    monkeypatch.setattr(locks, "BEAT", 0.2)
    direct = fresh_postgres_url()
    ended = "UPDATE donewhen_leases SET until = clock_timestamp()"
    left = "SELECT until > clock_timestamp() + interval '15 s' FROM donewhen_leases"
    async with open_storage(pooled(direct)).session("t") as (_, store):
        ask(direct, ended)
        await store.aput(("a",), "k", {"v": 1})
        assert ask(direct, left) == [(True,)]
        ask(direct, ended)
        async with asyncio.timeout(30):
            while ask(direct, left) != [(True,)]:  # noqa: ASYNC110 - it is the server that says so
                await asyncio.sleep(0.05)


# Looks ---------------------------------------------------------------------------------------------------------


def opened_so_far(url: str) -> int:
    """How many sessions the server has had in this database."""
    ask(url, "SELECT pg_stat_force_next_flush()")
    ((sessions,),) = ask(url, "SELECT sessions FROM pg_stat_database WHERE datname = current_database()")
    return int(sessions)


async def test_looks_share_connections() -> None:
    """N29: of a hundred looks, twenty at once, none opens a connection of its own; at most four are open."""
    url = fresh_postgres_url()
    async with Agent(greeting(), storage=url) as agent:
        run = await agent.start("hi")
        before = opened_so_far(url)
        for _ in range(5):
            await asyncio.gather(*(agent.get(run.thread_id) for _ in range(20)))
        assert opened_so_far(url) - before <= 4 + 2  # and those that ask
        count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        assert ask(url, f"{count} AND application_name = 'donewhen'")[0][0] <= 6  # not of the server's own, nor of this


async def test_what_the_server_has_closed_is_not_used() -> None:
    """N29, F5: after a restart of the server, looks and sessions go on, each on a new connection."""
    url = fresh_postgres_url()
    storage = open_storage(url)
    for _ in range(3):
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(put(storage, number))
        ask(
            url,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'donewhen' AND datname = current_database()",
        )
        async with storage.reader() as (_, store):
            assert len(await store.asearch(("n",))) == 6
    await storage.aclose()


async def put(storage: Storage, number: int) -> None:
    async with storage.session(f"t{number}") as (_, store), storage.reader() as (_, reader):
        await store.aput(("n",), str(number), {"n": number})
        assert await reader.aget(("n",), str(number))


async def test_who_cannot_connect_is_told_why_at_once() -> None:
    """N29: everybody who waits for a connection hears what the server says, and later ones try again."""
    storage = open_storage(postgres_url().replace("/postgres?", "/nowhere?"))
    async with asyncio.timeout(20):
        for _ in range(2):
            refused = await asyncio.gather(*(put(storage, n) for n in range(6)), return_exceptions=True)
            assert all(isinstance(error, StorageError) for error in refused), refused
            assert all('database "nowhere" does not exist' in str(error) for error in refused)


def test_servers_of_tests_end_with_whoever_started_them() -> None:
    """Q116: however that ended: here it is killed, and its servers are gone, both of two, with what they wrote."""
    script = (
        "import os; from tests.kit.storage.servers import pooled, postgres_url\n"
        "print(postgres_url().partition('host=')[2], pooled(postgres_url()).split(':')[2].split('/')[0], flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    data, port = ended.stdout.split()
    folder = Path(data).parent
    deadline = time.monotonic() + 20
    while folder.exists():
        assert time.monotonic() < deadline, [*folder.iterdir()]
        time.sleep(0.05)
    for place in (f"host={data}", f"host=127.0.0.1 port={port}"):
        with pytest.raises(psycopg.OperationalError, match=r"[Nn]o such file|refused"):
            psycopg.connect(f"user=postgres {place}")


async def test_storages_of_one_database_share_their_connections() -> None:
    """N29: an agent for each request costs no connection each, and the last that is closed leaves none."""
    url = fresh_postgres_url()
    storages = [open_storage(url) for _ in range(10)]
    for number, storage in enumerate(storages):
        await put(storage, number)
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'donewhen' AND datname = current_database()"
    assert ask(url, mine)[0][0] <= 2
    for storage in storages[1:]:
        await storage.aclose()
    assert ask(url, mine)[0][0] >= 1
    await storages[0].aclose()
    assert any(ask(url, mine) == [(0,)] for _ in range(200))  # the server notices a moment later
    await put(storages[0], 1)
    await storages[0].aclose()


async def test_a_task_may_write_any_number_of_values() -> None:
    """R05: more than a statement takes, and of two tasks at once."""
    storage, place = open_storage(fresh_postgres_url()), config("t")
    writes = [(f"channel {n}", n) for n in range(1_200)]
    async with storage.session("t") as (saver, _):
        place["configurable"] |= {"checkpoint_ns": "", "checkpoint_id": "1"}
        await asyncio.gather(*(saver.aput_writes(place, writes, task) for task in ("one", "two")))
    async with storage.reader() as (_, store):
        query = "SELECT task_id, count(*) FROM checkpoint_writes GROUP BY task_id ORDER BY task_id"
        assert await store.threads.store.read_rows(query, []) == [("one", 1_200), ("two", 1_200)]


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    score: float
    note: str


async def test_no_text_or_number_ends_a_run() -> None:
    """R02: what PostgreSQL does not take in JSON, in metadata or an executor's state, is stored without."""
    odd: dict[str, Any] = {"score": float("nan"), "note": "half \ud83d, none \0"}
    executor = StateGraph(State)
    executor.add_node("work", lambda _: {"messages": [AIMessage("done")], **odd})
    executor.add_edge(START, "work")
    executors = {"own": Executor(graph=executor.compile(), passthrough=True)}
    settings: dict[str, Any] = {"executor": "own", "confirm": "never"}
    model = ScriptedModel([])
    async with Agent(model, storage=fresh_postgres_url(), executors=executors, settings=settings) as agent:
        runs = [agent.start("Say it", thread_id=each, config={"metadata": odd}) for each in ("t", "u")]
        assert [run.status for run in await asyncio.gather(*runs)] == ["completed"] * 2


async def test_what_cannot_be_stored_is_said_at_once_and_what_waits_is_kept_as_it_was() -> None:
    """R02, R05: it takes no other write of the session with it, and a value that is changed later changes nothing."""
    storage = open_storage(fresh_postgres_url())
    place: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    metadata: Any = {"source": "input", "seen": {"n": [1]}}
    async with storage.session("t") as (saver, _):
        first = await saver.aput(place, {**empty_checkpoint(), "id": "1"}, metadata, {})
        metadata["seen"]["n"].append(2)
        with pytest.raises(ValueError, match="digits"):
            await saver.aput(first, {**empty_checkpoint(), "channel_values": {"n": 10**5000}}, metadata, {})
        await saver.aput_writes(first, [("kept", 1)], "task")
    async with storage.reader() as (saver, _):
        found = await saver.aget_tuple(place)
        assert found is not None
        assert (found.metadata["seen"], found.pending_writes) == ({"n": [1]}, [("task", "kept", 1)])
