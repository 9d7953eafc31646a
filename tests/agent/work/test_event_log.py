"""One log of a thread's events: the same numbers for whoever listens, wherever and whenever."""

import asyncio
import os
import sqlite3
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import id as ids
from langgraph.types import Command

from donewhen import Agent, StorageError
from donewhen.agent.storage.events import READ_AT_ONCE
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.graph.events import PASSING
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, give_up, reply, submit_plan
from tests.kit.clocks import HOUR, wrong_by
from tests.kit.flows import FREE
from tests.kit.storage.cases import fresh_url, key_of, open_storage

ALL = ["memory", "sqlite", "postgres", "postgres-sealed"]
WRITES = ("put", "put.done", "put_writes", "put_writes.done", "store", "store.done")
LASTING = ["sqlite", "postgres"]
TOKEN = "tk-4711-secret-4711"
Told = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", TOKEN)
    monkeypatch.setattr(ids, "_last_v6_timestamp", ids._last_v6_timestamp)  # else it stays with a clock that was ahead


def open_kind(kind: str, folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    return open_storage(fresh_url(kind, folder), key=key_of(kind))


async def look(part: str) -> str:
    """Look."""
    await asyncio.sleep(0)
    return f"seen {part} with {TOKEN}"


def model(steps: int = 2, rounds: int = 3) -> ScriptedModel:
    """Steps that read side by side, one of which asks."""

    def work(n: int) -> list[Any]:
        calls = [reply(f"Looking, {n}.", [call("look", part=f"{n}.{each}")]) for each in range(rounds)]
        return [*calls, *([ask_user("Which?")] if n == 1 else []), finish_step("seen", f"s{n}.1")]

    planned: list[Any] = [{"content": f"look {n}", "tools": ["look"], "depends_on": []} for n in range(1, steps + 1)]
    script: dict[str, Any] = {f"s{n}": work(n) for n in range(1, steps + 1)}
    again = [answer("Once more."), answer("And again.")]
    return ScriptedModel(roles={"triage": [submit_plan(planned), *again], "execute": script, "deliver": ["Seen."]})


def agent(storage: Any, of: ScriptedModel) -> Agent:
    return Agent(of, [look], storage=storage, effects={"look": "read"}, settings=FREE)


async def listen(stream: Any, begun: asyncio.Event | None = None, *, fails: bool = False) -> Told:
    told: Told = []
    with suppress(StorageError) if fails else nullcontext():
        async for event in stream:
            told.append(dict(event))
            if begun:
                begun.set()
    return told


async def watched(by: Agent, begun: asyncio.Event | None = None, **given: Any) -> Told:
    """What a watcher is told up to the next pause or the end."""
    told: Told = []
    if begun:
        await begun.wait()
    async for event, _ in by.watch("t", **given):
        told.append(dict(event))
        if event["type"] == "waiting":
            break
    return told


def kept(events: Told) -> Told:
    """Events that stand in the log."""
    return [each for each in events if each["type"] not in (*PASSING, "started", "waiting", "outcome", "error")]


def plain(events: Told) -> Told:
    """Events that streams and watchers have, with the ends but without what they say of the run's time."""
    return [
        {key: value for key, value in each.items() if key != "run"} for each in events if each["type"] not in PASSING
    ] + [{"type": each["type"], "seq": each["seq"]} for each in events if each["type"] == "outcome"]


@pytest.mark.parametrize("kind", ALL)
async def test_whoever_listens_has_the_same_events_under_the_same_numbers(kind: str, tmp_path: Path) -> None:
    """Q59, S01, R04: a stream, two watchers at once while steps read side by side, and who comes after any event, also
    in another process; over a pause and a second request. No known secret stands in the log."""
    storage, of, begun = open_kind(kind, tmp_path), model(rounds=1), asyncio.Event()
    async with agent(storage, of) as one, agent(storage, of) as two:
        live, *others = await asyncio.gather(
            listen(one.stream("look", thread_id="t"), begun), *(watched(each, begun) for each in (one, two))
        )
        for other in others:
            assert plain(other) == plain(live)
        assert {each["step"] for each in live if each["type"] == "tool_started"} == {"s1", "s2"}
        more = await listen(two.stream_resume("t", "this one"))
        last = await listen(one.stream("again", thread_id="t"))
        everything = kept(live + more + last)
        whole = await watched(two, after=0)
        assert kept(whole) == everything
        seqs = [each["seq"] for each in live + more + last]
        assert seqs == sorted(set(seqs))
        for at in (seqs[len(seqs) // 2], live[-1]["seq"], more[0]["seq"]):
            assert kept(await watched(one, after=at)) == [each for each in everything if each["seq"] > at]
        assert plain(await watched(two)) == plain(last)
        assert [each["after"] for each in everything] == [0, *(each["seq"] for each in everything[:-1])]
        said = [each for each in whole if each["type"] == "speech"]
        assert sorted(each["text"] for each in said) == sorted(f"Looking, {n}.\n" for n in (1, 2))
        assert TOKEN not in str([live, everything, said])
        assert any("seen 1.0 with" in each["text"] for each in everything if each["type"] == "observation")


async def everything(by: Agent) -> Told:
    """What stands in the log of the thread."""
    async with by.storage.reader() as (_, store):
        return await store.events.read("t")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_work_that_outlives_a_run_does_not_turn_its_numbers_back(kind: str, tmp_path: Path) -> None:
    """Q59: two tasks that a tool began while the first request worked submit answers in later ones; the events go on
    where they stood, and each names the one before it."""
    asked, left = asyncio.Queue[str](), list[asyncio.Task[Any]]()

    async def answer_later() -> None:
        await one.submit_answer("t", await asked.get())

    async def look() -> str:
        """Look."""
        left.append(asyncio.create_task(answer_later()))
        return "seen"

    plan = submit_plan([{"content": "look", "tools": ["look"]}])
    of = ScriptedModel(
        roles={
            "triage": [plan, ask_user("Which?"), answer("It."), ask_user("And which?"), answer("That.")],
            "execute": [reply("", [call("look"), call("look")]), finish_step("seen", "s1.1")],
            "deliver": ["Seen."],
        }
    )
    async with Agent(of, [look], storage=open_kind(kind, tmp_path), effects={"look": "read"}, settings=FREE) as one:
        await one.start("look", thread_id="t")
        for goal, task in zip(("which", "and which"), left, strict=True):
            assert (await one.start(goal, thread_id="t")).status == "waiting"
            asked.put_nowait("this one")
            await task
            assert (await one.run_submitted("t")).status == "answered"
        told = [each for each in await everything(one) if each["type"] != "speech"]
    assert [each["text"] for each in told if each["type"] == "goal"] == ["look", "which", "and which"]
    assert sum(each["type"] == "question" for each in told) == 2
    assert [each["after"] for each in told] == [0, *(each["seq"] for each in told[:-1])]


async def test_a_graph_may_be_driven_from_task_to_task(tmp_path: Path) -> None:
    """Q59, S01: each part of two requests is asked for by another task, as web servers do; the end stands after the
    last event."""
    async with agent(open_kind("sqlite", tmp_path), model(steps=1, rounds=1)) as one:
        for given in ({"messages": [("user", "look")]}, Command(resume="this one")):
            parts = one.graph.astream(given, {"configurable": {"thread_id": "t"}}, stream_mode="values")
            while await asyncio.create_task(anext(parts, None)):  # type: ignore[arg-type]
                pass
            last, end = (await watched(one))[-2:]
            assert end["after"] == last["seq"]


@pytest.mark.parametrize("kind", ["memory", *LASTING])
async def test_a_number_is_of_one_event_whatever_dies(kind: str, tmp_path: Path) -> None:
    """Q59, Q14, R01: a listener of a process that dies at any write (without EVERY at a few), and whose clock is ahead,
    goes on in the next one with the number that it has: it misses nothing, no number comes again, and nothing is
    missing in between."""
    for point in range(1, 300, 1 if os.environ.get("EVERY") else 27):
        thread_storage, of = open_kind(kind, tmp_path / str(point)), model(rounds=1)
        with wrong_by(HOUR):
            dying = agent(crashing(thread_storage, crash := Crash(point, only=WRITES)), of)
            lost = await listen(dying.stream("look", thread_id="t"), fails=True)
        if not lost:
            continue  # nothing was sent
        if lost[-1]["type"] != "error":
            break
        async with agent(thread_storage, of) as next_one:
            more = await listen(next_one.stream("look", thread_id="t", restart=True))
            seqs = [each["seq"] for each in lost + more]
            assert seqs == sorted(set(seqs)), (point, crash)
            seen = lost[-1]["seq"]
            stored, missed = [kept(await watched(next_one, after=at)) for at in (0, seen)]
            told = [each for each in stored if each["seq"] <= seen]
            assert told == kept(lost)[: len(told)]
            assert missed[-len(kept(more)) :] == kept(more)
            assert not [each for each in missed if each in lost]
            assert [each["after"] for each in stored] == [0, *(each["seq"] for each in stored[:-1])]
    else:
        raise AssertionError("no run was long enough to end")


async def test_threads_of_other_databases_and_of_one_database_do_not_mix(tmp_path: Path) -> None:
    """Q59: two agents at work on two databases, with one thread id, and two threads of one of them."""
    urls = [open_kind("sqlite", tmp_path / name) for name in ("a", "b")]
    runs = [(urls[0], "t"), (urls[1], "t"), (urls[1], "u")]
    told = await asyncio.gather(*(listen(agent(url, model()).stream("look", thread_id=id)) for url, id in runs))
    for (url, id), live in zip(runs, told, strict=True):
        async for event, _ in agent(url, model()).watch(id, after=0):
            if event["type"] == "waiting":
                break
            if event["type"] != "started" and event["type"] not in PASSING:
                assert dict(event) in live
        assert {each["thread_id"] for each in live} == {id}


@pytest.mark.parametrize("kind", ["memory", *LASTING])
async def test_events_go_with_their_thread(kind: str, tmp_path: Path) -> None:
    """R15: `delete` and `prune` leave no event; a new thread of the same id has none of the old one's."""
    storage = open_kind(kind, tmp_path)
    async with Agent(ScriptedModel(roles={"triage": [answer("One.") for _ in range(4)]}), storage=storage) as one:
        for end in ("delete", "prune"):
            live = await listen(one.stream(end, thread_id="t"))
            await (one.delete("t") if end == "delete" else one.prune(timedelta(seconds=-5)))
            async with storage.reader() as (_, store):
                assert await store.events.read("t") == []
            assert kept(live)
        live = await listen(one.stream("anew", thread_id="t"))
        assert plain(await watched(one, after=0)) == plain(live)


async def test_what_is_sealed_names_its_place(tmp_path: Path) -> None:
    """N05: with a key, an event cannot be read in the file, and one that was moved is refused."""
    storage = open_kind("sqlite-sealed", tmp_path)
    async with Agent(ScriptedModel([answer("Hi.")]), storage=storage) as one:
        await one.start("a goal of mine", thread_id="t")
        with sqlite3.connect(tmp_path / "runs.db") as file:
            rows = file.execute("SELECT n, event FROM donewhen_events").fetchall()
            assert rows
            assert not [text for _, text in rows if "goal" in text]
            file.execute("UPDATE donewhen_events SET event = ? WHERE n = ?", (rows[1][1], rows[0][0]))
        with pytest.raises(StorageError, match=r"event \d+ .* is damaged"):
            await watched(one)


def forget_events(folder: Path) -> None:
    """Make the database one of before there were rows of events."""
    with sqlite3.connect(folder / "runs.db") as file:
        file.execute("DROP TABLE donewhen_events")
        file.execute("UPDATE donewhen_meta SET value = '5' WHERE name = 'tables'")
        file.execute("UPDATE donewhen_threads SET info = json_remove(info, '$.events')")


@pytest.mark.parametrize("at", ["waiting", "ended"])
async def test_a_thread_of_before_is_told_from_its_state(at: str, tmp_path: Path) -> None:
    """R18: of a request that an older version began there are no events: a watcher is told what the state says of it,
    once, and what happens from then on, with greater numbers than any that the older version gave."""
    storage, of = open_kind("sqlite", tmp_path), model()
    async with agent(storage, of) as one:
        await one.start("look", thread_id="t")
        if at == "ended":
            await one.resume("t", "this one")
    forget_events(tmp_path)
    async with agent(storage, of) as one:
        told = await watched(one)
        kinds = [each["type"] for each in told]
        assert kinds[:2] == ["started", "plan"]
        assert kinds.count("step_finished") == (2 if at == "ended" else 1)
        assert kinds[-1] == ("outcome" if at == "ended" else "waiting")
        if at == "ended":
            assert [await watched(one, after=each["seq"]) for each in told[-2:]] == [told[-1:], []]
            return
        more = await listen(one.stream_resume("t", "this one"))
        assert more[0]["seq"] > 1_600_000_000_000_000
        assert plain(await watched(one, after=told[-1]["seq"]))[:-2] == plain(more)[1:-2]
        again = await watched(one)
        assert [each["type"] for each in again[:2]] == ["started", "plan"]
        seqs = [each["seq"] for each in again]
        assert seqs == sorted(set(seqs))
        assert [each for each in kept(again) if each["seq"] >= more[0]["seq"]] == kept(more)


async def test_a_thread_of_before_that_went_on_for_long_is_told_whole(tmp_path: Path) -> None:
    """R18: more events since than are read at once; two watchers are told what the run's stream said, and the end."""
    storage, parts = open_kind("sqlite", tmp_path), [f"{n}" for n in range(256)]
    rounds = [reply("", [call("look", part=part) for part in parts[n : n + 32]]) for n in range(0, len(parts), 32)]
    plan = submit_plan([{"content": "look", "tools": ["look"]}])
    work = [ask_user("Which?"), *rounds, finish_step("seen", "s1.2")]
    of = ScriptedModel(roles={"triage": [plan], "execute": work})
    async with agent(storage, of) as one:
        await one.start("look", thread_id="t")
    forget_events(tmp_path)
    async with agent(storage, of) as one:
        said = await listen(one.stream_resume("t", "this one"))
        async with asyncio.timeout(10):
            first, second = await asyncio.gather(watched(one), watched(one))
    assert first == second
    assert len(kept(said)) > READ_AT_ONCE
    assert [each for each in kept(first) if each["seq"] >= kept(said)[0]["seq"]] == kept(said)
    assert first[-1]["type"] == "outcome"


@pytest.mark.parametrize("rounds", [40, 1])
async def test_a_thread_of_before_tells_of_the_steps_that_began(rounds: int, tmp_path: Path) -> None:
    """R18: of a step that is blocked by what it says itself, and not of one that it holds up, or of those that a limit
    ends before they begin."""
    planned: list[Any] = [
        {"content": f"look {n}", "tools": ["look"], "depends_on": needs} for n, needs in ((1, []), (2, ["s1"]), (3, []))
    ]
    work = {"s1": [give_up("no", "blocked")], "s3": [call("look", part="3"), finish_step("seen", "s3.1")]}
    of = ScriptedModel(roles={"triage": [submit_plan(planned)], "execute": work, "deliver": ["Seen."]})
    limits = {"limits": {"rounds": rounds, "replans": 0}, "max_parallel": 1}
    async with Agent(of, [look], storage=open_kind("sqlite", tmp_path), settings={**FREE, **limits}) as one:
        live = await listen(one.stream("look", thread_id="t"))
        if rounds == 1:
            live += await listen(one.stream_resume("t", "deliver what there is"))
        forget_events(tmp_path)
        began = [
            [each["step"] for each in told if each["type"] == "step_started"] for told in (live, await watched(one))
        ]
    assert began[0] == began[1]
