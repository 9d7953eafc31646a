"""One suite for every storage: memory, a SQLite file, a real PostgreSQL server, and both sealed with a key."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.store.base import BaseStore, GetOp
from langgraph.types import Command

from donewhen import ConfigError, StorageError, ThreadBusy
from donewhen.agent.storage.rounds import SOON
from donewhen.graph.binding import TaskSaver
from donewhen.state.values import store_label
from tests.kit.storage.cases import (
    DATABASES,
    JOURNAL,
    STORAGES,
    Storage,
    config,
    fresh_url,
    graph,
    key_of,
    open_storage,
)

THREAD_IDS = [
    "plain",
    "..",
    "../../etc/passwd",
    "a.b.c",
    "a%2Eb%2Ec",
    "*",
    "100%25.*",
    "_",
    "'; DROP TABLE checkpoints; --",
    '"quoted" \\ and\nlines',
    "目標 🚀 ﷺ",
    " ",
    "x" * 255,
]
TOP: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
"""Where the first checkpoint of a thread is put."""


async def put_checkpoint(saver: Any, place: RunnableConfig, id: str, source: str = "loop", **more: Any) -> Any:
    """Put an empty checkpoint behind a place and return where it stands; `more` is its content."""
    metadata = {"source": source, **({"parents": more.pop("parents")} if "parents" in more else {})}
    return await saver.aput(place, cast("Checkpoint", {**empty_checkpoint(), "id": id, **more}), metadata, {})


@pytest.fixture(params=STORAGES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def storage(kind: str, tmp_path: Path) -> Storage:
    return open_storage(fresh_url(kind, tmp_path), key=key_of(kind))


async def test_the_checkpointer_conforms(storage: Storage) -> None:
    """LangGraph's own conformance suite passes, sealed or not."""
    kit = pytest.importorskip("langgraph.checkpoint.conformance")

    @kit.checkpointer_test(name=repr(storage))
    async def checkpointer():  # type: ignore[no-untyped-def]
        async with storage.session("conformance") as (saver, _):
            yield saver

    report = await kit.validate(checkpointer)
    failures = {name: result.failures for name, result in report.results.items() if result.passed is False}
    assert failures == {}
    assert sum(result.tests_passed for result in report.results.values()) >= 58


async def test_a_run_goes_on_in_another_session(storage: Storage) -> None:
    """C06, R02: state, delta channels, subgraphs and the open question are all there for the next session."""
    async with storage.session("t") as (saver, store):
        compiled = graph().compile(checkpointer=saver, store=store)
        await compiled.ainvoke({"goal": "count"}, config("t"), durability="sync")
    async with storage.session("t") as (saver, store):
        compiled = graph().compile(checkpointer=saver, store=store)
        state = await compiled.aget_state(config("t"))
        assert state.values["journal"] == JOURNAL
        (question,) = state.interrupts
        await compiled.ainvoke(Command(resume={question.id: "yes"}), config("t"), durability="sync")
    async with storage.reader() as (saver, store):
        compiled = graph().compile(checkpointer=saver, store=store)
        state = await compiled.aget_state(config("t"))
        history = [snapshot async for snapshot in compiled.aget_state_history(config("t"))]
    assert not state.tasks
    assert state.values["journal"] == [*JOURNAL, "answer yes"]
    assert [message.text for message in state.values["messages"]] == [f"round {n}" for n in range(1, 4)]
    assert len(history) == 8


@pytest.mark.parametrize("durability", ["async", "exit"])
async def test_other_durabilities_and_forks_read_back(storage: Storage, durability: str) -> None:
    """What LangGraph stores in its other modes, and through update_state, is read back whole."""
    async with storage.session("t") as (saver, store):
        compiled = graph().compile(checkpointer=saver, store=store)
        await compiled.ainvoke({"goal": "count"}, config("t"), durability=durability)
        await compiled.aupdate_state(config("t"), {"journal": ["by hand"]}, as_node="step")
    async with storage.session("t") as (saver, store):
        compiled = graph().compile(checkpointer=saver, store=store)
        await compiled.ainvoke(None, config("t"), durability=durability)
        state = await compiled.aget_state(config("t"))
        history = [snapshot async for snapshot in compiled.aget_state_history(config("t"))]
    assert state.values["journal"] == [*JOURNAL, "by hand", "plan 4"]
    assert history[0].values == state.values


async def test_any_text_is_a_thread_id(storage: Storage) -> None:
    """F12: ids are data. Each thread has its own state, and deleting one leaves the others alone."""
    for thread_id in THREAD_IDS:
        async with storage.session(thread_id) as (saver, store):
            compiled = graph().compile(checkpointer=saver, store=store)
            await compiled.ainvoke({"goal": thread_id}, config(thread_id), durability="exit")
            await store.aput(("donewhen", "observations", store_label(thread_id)), "1:s1.1", {"text": thread_id})
            effects = ("donewhen", "effects", store_label(thread_id))
            await store.aput(effects, "k", {"text": thread_id})
            await store.aput((*effects, "0c0ffee"), "k.1", {"key": "k", "turn": 1})
    for thread_id in THREAD_IDS[1::2]:
        await storage.delete_thread(thread_id)
    async with storage.reader() as (saver, store):
        for number, thread_id in enumerate(THREAD_IDS):
            found = await saver.aget_tuple(config(thread_id))
            items = await store.asearch(("donewhen", "observations", store_label(thread_id)))
            effects = await store.asearch(("donewhen", "effects", store_label(thread_id)))
            items += [item for item in effects if "text" in item.value]
            expected = [] if number % 2 else [thread_id]
            assert len(effects) == 2 * len(expected)
            assert [item.value["text"] for item in items] == expected * 2
            assert [item.namespace[-1] for item in items] == [store_label(thread_id) for _ in expected * 2]
            assert (found.checkpoint["channel_values"]["goal"] if found else None) == next(iter(expected), None)
    for thread_id in THREAD_IDS[::2]:
        await storage.delete_thread(thread_id)
    async with storage.reader() as (saver, _):
        assert [found async for found in saver.alist(None)] == []


@pytest.mark.parametrize("thread_id", ["", "x" * 256, "a\0b", "\ud800", 7, None])
async def test_what_is_no_thread_id_is_refused(thread_id: str) -> None:
    """F12: ids that some database could not hold are refused everywhere."""
    storage = open_storage("memory:")
    with pytest.raises(ConfigError, match="thread id"):
        async with storage.session(thread_id):
            pass
    with pytest.raises(ConfigError, match="thread id"):
        await storage.delete_thread(thread_id)


async def test_many_are_deleted_but_not_what_is_being_worked_on(storage: Storage) -> None:
    """M11, R09: threads are deleted together; one that somebody works on stays, and is named."""
    ids = ["a.1", "b%", "c", "d"]
    for thread_id in ids:
        async with storage.session(thread_id) as (_, store):
            await store.aput(("donewhen", "told", store_label(thread_id)), "k", {"text": "x"})
            await store.threads.put(thread_id, {"status": "completed"})
    async with storage.session("c"):
        assert await storage.find_free(ids) == [thread_id for thread_id in ids if thread_id != "c"]
        assert await storage.delete_threads(["a.1", "b%", "c"]) == ["c"]
    assert await storage.delete_threads([]) == []
    async with storage.reader() as (_, store):
        assert [thread_id for thread_id, _ in await store.threads.find(9)] == ["d", "c"]
        assert await store.alist_namespaces() == [("donewhen", "told", "c"), ("donewhen", "told", "d")]


async def test_names_of_users_are_data(storage: Storage) -> None:
    """Q111: deleting a thread called like a queue or an owner leaves their entries; no thread holds a lock of ours."""
    ours = [("donewhen", "news", "agents"), ("donewhen", "a2a", "tasks", "ann"), ("donewhen", "a2a", "pushes", "-")]
    async with storage.writer() as (_, store):
        for namespace in ours:
            await store.aput(namespace, "k", {"text": "x"})
    for thread_id in ("agents", "ann", "-", "tasks"):
        async with storage.session(thread_id) as (_, store):
            await store.aput(("donewhen", "told", store_label(thread_id)), "k", {"text": "x"})
    async with storage.session("kept plans"), storage.lock("kept plans"):
        with pytest.raises(ThreadBusy, match=r"^kept plans"):
            async with storage.lock("kept plans"):
                pass
    await storage.delete_threads(["agents", "ann", "-", "tasks"])
    async with storage.reader() as (_, store):
        assert sorted(await store.alist_namespaces()) == sorted(ours)
    assert len({store_label(each) for each in ("", "-", "%2D", "%", ".", "%2E")}) == 6


async def test_one_worker_per_thread(storage: Storage) -> None:
    """R04, F4: the second session is refused at once, whoever opens it; readers and other threads are not."""
    async with storage.session("t"):
        with pytest.raises(ThreadBusy, match="'t'"):
            async with storage.session("t"):
                pass
        with pytest.raises(ThreadBusy):
            await storage.delete_thread("t")
        async with storage.session("T"), storage.reader():
            pass
    with pytest.raises(LookupError):
        async with storage.session("t"):
            raise LookupError
    async with storage.session("t"):
        pass


async def test_who_is_patient_takes_turns(storage: Storage) -> None:
    """For short operations on one thread from several places."""
    running = 0

    async def work() -> int:
        nonlocal running
        async with storage.session("t", patience=20):
            running += 1
            await asyncio.sleep(0)
            together = running
            running -= 1
            return together

    assert await asyncio.gather(*(work() for _ in range(4))) == [1] * 4
    async with storage.session("t"):
        with pytest.raises(ThreadBusy):
            async with storage.session("t", patience=0.05):
                pass


def test_one_object_serves_several_loops(storage: Storage) -> None:
    """Nothing is bound to the loop that was first."""

    async def put(number: int) -> None:
        async with storage.session(f"t{number}") as (_, store):
            await store.aput(("numbers",), str(number), {"number": number})

    async def count() -> int:
        async with storage.reader() as (_, store):
            return len(await store.asearch(("numbers",)))

    asyncio.run(put(1))
    asyncio.run(put(2))
    assert asyncio.run(count()) == 2


@pytest.mark.parametrize("kind", [*DATABASES, "sqlite-sealed", "postgres-sealed"], indirect=False)
async def test_readers_cannot_write(kind: str, tmp_path: Path) -> None:
    """R04: only who holds a thread's lock can change it."""
    storage = open_storage(fresh_url(kind, tmp_path), key=key_of(kind))
    with pytest.raises(StorageError, match=r"read.?only"):
        async with storage.reader() as (_, store):
            await store.aput(("a",), "k", {"v": 1})
    with pytest.raises(StorageError, match=r"read.?only"):
        async with storage.reader() as (saver, _):
            await graph().compile(checkpointer=saver).ainvoke({"goal": "x"}, config("t"), durability="sync")


async def test_the_store_takes_any_text(storage: Storage) -> None:
    """F8: what tools return can be stored; what no database can hold is replaced, the same everywhere."""
    value = {"text": "a\0b \ud800 é🚀", "numbers": [1, 2.5, float("nan")], "nested": {"none": None}}
    async with storage.session("t") as (_, store):
        await store.aput(("tool.output", "50%"), "k.1", value)
        item = await store.aget(("tool.output", "50%"), "k.1")
        assert item is not None
        assert item.value == {"text": "a\ufffdb \ufffd é🚀", "numbers": [1, 2.5, None], "nested": {"none": None}}
        assert item.namespace == ("tool.output", "50%")
        assert await store.abatch([GetOp(("tool.output", "50%"), "k.1"), GetOp(("tool", "output"), "k.1")]) == [
            item,
            None,
        ]
        assert await store.alist_namespaces(prefix=("tool.output",)) == [("tool.output", "50%")]
        assert await store.alist_namespaces(suffix=("*", "50%")) == [("tool.output", "50%")]
        await store.adelete(("tool.output", "50%"), "k.1")
        assert await store.aget(("tool.output", "50%"), "k.1") is None


async def test_the_store_serves_synchronous_tools(storage: Storage) -> None:
    """X07: they run in threads, and have the store's synchronous methods."""

    def remember(store: BaseStore) -> dict[str, str] | None:
        store.put(("users", "ann@example.org"), "colour", {"is": "red"})
        found = store.get(("users", "ann@example.org"), "colour")
        return found and found.value

    async with storage.session("t") as (_, store):
        assert await asyncio.to_thread(remember, store) == {"is": "red"}


async def test_the_store_filters_sealed_values_too(storage: Storage) -> None:
    async with storage.session("t") as (_, store):
        for number in range(5):
            await store.aput(("items",), str(number), {"number": number, "odd": number % 2 == 1})
        odd = await store.asearch(("items",), filter={"odd": True})
        large = await store.asearch(("items",), filter={"number": {"$gte": 2}}, limit=2)
    assert sorted(item.key for item in odd) == ["1", "3"]
    assert len(large) == 2
    assert all(item.value["number"] >= 2 for item in large)


async def test_metadata_is_filtered_and_filter_keys_are_data(storage: Storage) -> None:
    """F12: a filter key never becomes SQL (CVE-2025-67644)."""
    async with storage.session("t") as (saver, _):
        settings = {**config("t"), "metadata": {"tenant": "a"}}
        await graph().compile(checkpointer=saver).ainvoke({"goal": "x"}, settings, durability="sync")
        loops = [found async for found in saver.alist(config("t"), filter={"source": "loop", "tenant": "a"}, limit=3)]
        assert [found.metadata["source"] for found in loops] == ["loop"] * 3
        assert [found async for found in saver.alist(None, filter={"tenant": "b"})] == []
        try:
            found = [found async for found in saver.alist(None, filter={"x') = '' OR 1=1 --": ""})]
        except ValueError:
            found = []  # refused is as good
        assert found == []


async def test_what_a_node_wrote_is_on_the_disk_at_once(tmp_path: Path) -> None:
    """R05, T: it is read at once by whoever asks, is on the disk before its checkpoint, and what fails is said."""
    storage = open_storage(f"sqlite:///{tmp_path}/runs.db")
    async with storage.session("t") as (saver, _), storage.reader() as (reader, _):
        place = await put_checkpoint(saver, TOP, "1", "")
        await saver.aput_writes(place, [("first", 1)], "task")
        found = await reader.aget_tuple(place)
        assert found is not None
        assert found.pending_writes == [("task", "first", 1)]
        await saver.aput_writes(place, [("second", 2)], "other")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as file:
        assert file.execute("SELECT count(*) FROM writes").fetchone() == (2,)
    with pytest.raises(TypeError):
        async with storage.session("t") as (saver, _):
            await saver.aput_writes(place, [("third", object())], "third")


@pytest.mark.parametrize("kind", DATABASES)
async def test_what_can_be_had_again_goes_with_what_comes_next(kind: str, tmp_path: Path) -> None:
    """R05: an input, and what the graph lets wait, as of a task whose reply is in the store; never less than when the
    session ends.
    """
    storage = open_storage(fresh_url(kind, tmp_path))
    async with storage.session("t") as (saver, _), storage.reader() as (reader, _):
        assert isinstance(saver, TaskSaver)
        first = await put_checkpoint(saver, TOP, "1", "input")
        assert first == {"configurable": {**TOP["configurable"], "checkpoint_id": "1"}}
        await saver.aput_writes(first, [("begin", 1)], "begin", "~__pregel_pull, __start__")
        assert await reader.aget_tuple(first) is None
        found = await saver.aget_tuple(first)
        assert found is not None
        assert found.pending_writes == [("begin", "begin", 1)]
        second = await put_checkpoint(saver, first, "2")
        saver.let_wait("round 1", checkpoint=False)
        await saver.aput_writes(second, [("seen", 1)], "round 1")
        await saver.aput_writes(second, [("said", 1)], "round 2")
        found = await reader.aget_tuple(second)
        assert found is not None
        assert found.pending_writes == [("round 1", "seen", 1), ("round 2", "said", 1)]
        saver.let_wait("round 3", checkpoint=False)
        await saver.aput_writes(second, [("seen", 2)], "round 3")
        assert (await reader.aget_tuple(second)) == found
    async with storage.reader() as (reader, _):
        found = await reader.aget_tuple(second)
        assert found is not None
        assert found.pending_writes is not None
        assert found.pending_writes[2:] == [("round 3", "seen", 2)]


@pytest.mark.parametrize("kind", DATABASES)
async def test_what_waits_is_seen_soon(kind: str, tmp_path: Path) -> None:
    """R05: a model may take its time, and others want to see where the thread is; what fails late is said, too."""
    storage = open_storage(fresh_url(kind, tmp_path))
    async with storage.session("t") as (saver, _), storage.reader() as (reader, _):
        await put_checkpoint(saver, TOP, "1")
        for _ in range(500):
            if found := await reader.aget_tuple(TOP):
                break
            await asyncio.sleep(0.01)
        assert found is not None


@asynccontextmanager
async def _busy(saver: Any) -> AsyncIterator[None]:
    """The connection is at work for somebody else."""
    if not hasattr(saver.session, "file"):
        async with saver.session.turn:
            yield
        return
    over = threading.Event()
    working = saver.session.file.call(lambda _: over.wait(10))
    try:
        yield
    finally:
        over.set()
        await working


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", DATABASES)
async def test_who_waits_for_a_commit_may_be_cancelled(kind: str, late: bool, tmp_path: Path) -> None:
    """R05, F5: a tool that puts something into the store and is cut off loses neither that nor a checkpoint."""
    storage = open_storage(fresh_url(kind, tmp_path))
    async with storage.session("t") as (saver, store):
        async with _busy(saver):
            first = await put_checkpoint(saver, TOP, "1")
            soon = asyncio.Event()
            asyncio.get_running_loop().call_later(2 * SOON if late else 0, soon.set)
            await soon.wait()
            putting = asyncio.ensure_future(store.aput(("mine",), "key", {"value": 1}, index=False))
            asyncio.get_running_loop().call_later(SOON / 5, putting.cancel)
            with pytest.raises(asyncio.CancelledError):
                await putting
        await saver.aput_writes(first, [("seen", 1)], "task")
    async with storage.reader() as (reader, store):
        found = await reader.aget_tuple(first)
        assert found is not None
        assert found.pending_writes == [("task", "seen", 1)]
        assert await store.aget(("mine",), "key")


async def test_a_checkpoint_that_cannot_be_stored_deletes_no_rounds(tmp_path: Path) -> None:
    """R05: they go in the transaction of the run's next checkpoint or not at all."""
    storage = open_storage(f"sqlite:///{tmp_path}/runs.db")
    async with storage.session("t") as (saver, store):
        first = await put_checkpoint(saver, TOP, "1")
        inside: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": "execute:s1"}}
        assert isinstance(saver, TaskSaver)
        saver.let_go("execute:s1")
        inner = await put_checkpoint(saver, inside, "2", parents={"": "1"})
        with pytest.raises(TypeError):
            await put_checkpoint(saver, first, "3", channel_values={"it": object()})
        await store.aput(("mine",), "key", {"value": 1}, index=False)
        assert await saver.aget_tuple(inner) is not None
