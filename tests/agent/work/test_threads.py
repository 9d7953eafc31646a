"""What there is over all threads: filters, open questions, times of steps, cancelling from anywhere, pruning."""

import asyncio
import itertools
import shlex
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count, groupby
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.messages import messages_to_dict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import Op, Result
from langgraph.types import Command, StateSnapshot

from donewhen import (
    Agent,
    AgentOptions,
    ConfigError,
    GoalError,
    Run,
    StaleAnswer,
    StorageError,
    ThreadBusy,
    ToolError,
    UnknownThread,
    wait,
)
from donewhen.agent import agent as agent_module
from donewhen.agent import runner
from donewhen.agent.mcp.server import describe_run
from donewhen.agent.storage.memory import MemoryStore
from donewhen.agent.storage.store import ThreadStore
from donewhen.agent.testing.crash import WRITTEN, Crash, Crashed, crashing
from donewhen.agent.work import thread_rows
from donewhen.agent.work.thread_rows import CANCEL, Cancellation, CancelListener, request_cancel, update_row
from donewhen.hooks import Hooks
from donewhen.testing import ScriptedModel, answer, ask_user, audit, call, criterion, finish_step, give_up, submit_plan
from tests.kit.painting import Painting
from tests.kit.runs import config
from tests.kit.screens.shell import user_in
from tests.kit.storage.cases import fresh_url, key_of, open_storage


def look() -> str:
    """Look."""
    return "seen"


def asking(*questions: str) -> ScriptedModel:
    return ScriptedModel(roles={"triage": [ask_user(question) for question in questions]})


async def test_owners_filters_and_open_questions(storage: Any) -> None:
    """M11: threads by owner and status, and everything that is asked, over all threads, asked longest ago first."""
    model = ScriptedModel(roles={"triage": [ask_user("One?"), ask_user("Two?", options=["a", "b"]), answer("ok")]})
    async with Agent(model, storage=storage) as agent:
        one = await agent.start("first", owner="ann")
        two = await agent.start("second", owner="bob")
        await agent.start("third", owner="ann")
        assert [info.goal for info in await agent.threads(owner="ann")] == ["third", "first"]
        assert [info.goal for info in await agent.threads(status="waiting")] == ["second", "first"]
        assert [info.goal for info in await agent.threads(owner="ann", status=["waiting"])] == ["first"]
        assert [info.goal for info in await agent.threads(2)] == ["third", "second"]
        assert await agent.threads(before=datetime.now(UTC) - timedelta(hours=1)) == []
        asked = await agent.pending()
        assert [(row["thread_id"], row["question"], row["options"]) for row in asked] == [
            (one.thread_id, "One?", []),
            (two.thread_id, "Two?", ["a", "b"]),
        ]
        assert [row["text"] for row in asked] == [one.pending[0]["text"], two.pending[0]["text"]]
        assert asked[1]["text"] == "Two?\n\n1. a\n2. b"
        assert [row["goal"] for row in await agent.pending(owner="bob")] == ["second"]
        assert all(row["id"] == "plan.q1" for row in asked) or all(row["asked_at"] for row in asked)


async def test_a_list_tells_what_failed_from_what_a_model_asks(storage: Any) -> None:
    """M11: by `about`, as the question itself does; a program answers the one and leaves the other to people."""
    plan = submit_plan([{"content": "Pay", "done_when": "It is paid"}])
    roles = {"triage": [plan, ask_user("Which?")], "execute": [give_up("the account is closed")]}
    settings = {"confirm": "never", "on_failure": "ask"}
    async with Agent(ScriptedModel(roles=roles), storage=storage, settings=settings) as agent:
        await agent.start("Pay", thread_id="a")
        await agent.start("What?", thread_id="b")
        assert [(row["thread_id"], row.get("about")) for row in await agent.pending()] == [
            ("a", "failure"),
            ("b", None),
        ]


async def test_a_long_goal_is_whole_everywhere_but_in_lists(storage: Any) -> None:
    """M11: a run has the whole goal, before it begins as well as after its end; a list marks that it cut one."""
    async with Agent(asking("Which?"), storage=storage) as agent:
        goal = "a" * 300 + " " + "b" * 500
        for thread in [await agent.submit(goal), (await agent.start(goal)).thread_id]:
            assert (await agent.get(thread)).goal == goal
            assert (await agent.info(thread)).goal == goal[:499] + "…"
            assert (await agent.cancel(thread)).goal == goal


async def test_the_goals_of_a_thread_are_there_once_after_any_crash() -> None:
    """N76: the list of a thread's requests has each once, in order, wherever the process of the second one died."""

    def agent(storage: Any) -> Agent:
        return Agent(ScriptedModel(roles={"triage": lambda *_: answer("ok")}), storage=storage)

    for at in count(1):
        crash, storage = Crash(at, only=WRITTEN), open_storage("memory:")
        owner = agent(storage)
        await owner.start("first", thread_id="t")
        with suppress(StorageError, Crashed):
            await agent(crashing(storage, crash)).start("second", thread_id="t")
        for _ in range(2):
            info = await owner.info("t")
            assert (info.goal, info.goals) == ("second", ("first", "second")), crash.trace[-1:]
            await owner.resume("t")
        if len(crash.trace) < at:
            return


async def test_a_queued_run_that_has_begun_says_what_it_spent() -> None:
    """M11: so that after a drain it is told apart from one that never began, with nothing of the request before."""
    storage = open_storage("memory:")

    def work(*_: Any) -> Any:
        agent.drain()
        return call("look")

    plan = submit_plan([{"content": "Look", "tools": ["look"]}])
    model = ScriptedModel(roles={"triage": [answer("ok"), plan], "execute": work})
    async with Agent(model, [look], storage=storage, settings={"confirm": "never"}) as agent:
        await agent.start("first", thread_id="t")
        await agent.submit("second", thread_id="t")
        assert (await agent.info("t")).spent == {}
        run = await agent.run_submitted("t")
        info = await agent.info("t")
    assert (run.status, info.status, info.spent) == ("queued", "queued", run.spent)
    assert info.spent["model_calls"] == 2


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_all_that_reads_a_thread_agrees_at_every_moment(kind: str, tmp_path: Path) -> None:
    """M11: at each write around a worker, `get`, `info`, `threads` and `pending` say the same; nothing comes back."""
    storage, seen = open_storage(fresh_url(kind, tmp_path)), list[Any]()
    reader = Agent(asking(), storage=storage)

    async def look() -> None:
        try:
            run = await reader.get("t")
        except UnknownThread:
            return
        infos, listed = [await reader.info("t"), *await reader.threads()], await reader.pending()
        asked = [[pause["id"] for pause in each.pending] for each in (run, *infos)]
        assert {each.status for each in (run, *infos)} == {run.status}, (run.status, infos)
        assert asked == [[pause["id"] for pause in listed]] * 3, (asked, listed)
        seen.append((run.status, *asked[0], run.answer))

    class Looks(Crash):
        def reach(self, boundary: str) -> None:
            wait(look())

    model = ScriptedModel(roles={"triage": [ask_user("One?"), ask_user("Two?"), answer("so")]})
    async with Agent(model, storage=crashing(storage, Looks())) as agent:
        await agent.submit("report", thread_id="t")
        for words in ("1", "2", ""):
            await agent.run_submitted("t")
            if words:
                await agent.submit_answer("t", words)
    one, two = (("waiting", f"plan.q{n}", "") for n in (1, 2))
    phases = [key for key, _ in groupby(seen)]
    queued, running = ("queued", ""), ("running", "")
    assert phases == [queued, running, one, queued, running, two, queued, running, ("answered", "so")]


async def test_many_long_goals_are_all_listed(storage: Any) -> None:
    """N76: a hundred requests of a thread are in its row, the beginning of each."""
    goals = [f"request {number} " + "word " * 100 for number in range(100)]
    async with Agent(ScriptedModel(roles={"triage": lambda *_: answer("ok")}), storage=storage) as agent:
        await agent.start(goals[0], thread_id="t")
        async with agent.storage.writer() as (_, store):
            for goal in goals[1:]:
                await update_row(store, "t", goal=goal, status="answered")
        info = await agent.info("t")
    assert [goal[:30] for goal in info.goals] == [goal[:30] for goal in goals]
    assert {len(goal) for goal in info.goals} == {200}
    assert info.goal.startswith(goals[-1][:400])


async def test_a_list_says_how_each_run_ended_and_what_it_spent(storage: Any) -> None:
    """M11: without reading the threads; of a run that waits what it spent so far, and of a new request no old end."""
    model = ScriptedModel(roles={"triage": [answer("ok"), ask_user("One?"), answer("so")]})
    async with Agent(model, storage=storage) as agent:
        ended, asks = await agent.start("first", thread_id="t1"), await agent.start("second", thread_id="t2")
        rows = {row.thread_id: (row.status, row.code, row.spent) for row in await agent.threads(prefix="t")}
        assert rows == {"t1": ("answered", "answered", ended.spent), "t2": ("waiting", "", asks.spent)}
        assert asks.spent["model_calls"] == 1
        await agent.submit("third", thread_id="t1")
        info = await agent.info("t1")
        assert (info.status, info.code) == ("queued", "")
        again = await agent.resume("t1")
        assert (await agent.info("t1")).spent == again.spent


async def test_what_a_request_spent_is_not_shown_for_the_next_one_of_its_thread(storage: Any) -> None:
    """M11: a row has the spending of the request whose goal and metadata it has: nothing while that one is queued,
    also after a cancel; its own while it waits, and while its answer is queued."""
    replies = [answer("ok"), answer("so"), ask_user("One?"), ask_user("Two?"), answer("yes")]
    async with Agent(ScriptedModel(roles={"triage": replies}), storage=storage) as agent:

        async def spent() -> list[float]:
            """What the list, the row and the run of each thread say."""
            rows = [*await agent.threads(prefix="t"), await agent.info("t1"), await agent.info("t2")]
            runs = [await agent.get("t1"), await agent.get("t2")]
            return [each.spent.get("model_calls", 0) for each in (*rows, *runs)]

        for name in ("t1", "t2"):
            await agent.start("first", thread_id=name)
        assert await spent() == [1] * 6
        for name in ("t1", "t2"):
            await agent.submit("second", thread_id=name, metadata={"before": 1})
        assert await spent() == [0] * 6
        await agent.cancel("t1")
        await agent.cancel("t2")
        assert await spent() == [0] * 6
        for name in ("t1", "t2"):
            await agent.submit("third", thread_id=name)
            assert (await agent.resume(name)).status == "waiting"
        assert await spent() == [1] * 6
        for name in ("t1", "t2"):
            await agent.submit_answer(name, "this")
        assert await spent() == [1] * 6
        await agent.submit("fourth", thread_id="t2", restart=True)
        assert [(await agent.info(name)).spent.get("model_calls", 0) for name in ("t1", "t2")] == [1, 0]
        assert (await agent.resume("t1")).spent["model_calls"] == 2
        assert (await agent.info("t1")).spent["model_calls"] == 2


async def test_a_thread_keeps_its_owner(storage: Any) -> None:
    """M11: nobody takes over or reads the thread of another owner by naming it, or by the id of a request of it; who
    names no owner keeps it."""
    async with Agent(ScriptedModel(roles={"triage": lambda *_: answer("ok")}), storage=storage) as agent:
        await agent.start("first", thread_id="t", owner="ann", request_id="r")
        for verb in (agent.start, agent.submit):
            for more in ({}, {"restart": True}, {"request_id": "r"}):
                with pytest.raises(ConfigError, match="owner 'bob': thread 't' has another owner; take another"):
                    await verb("mine now", thread_id="t", owner="bob", **more)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="'r' was given before: ") as refused:
            await agent.submit("something else", thread_id="t", request_id="r")
        assert "first" not in str(refused.value), "only its owner reads the goal"
        again = await agent.start("first", thread_id="t", request_id="r")  # who names no owner drives for all of them
        assert (again.answer, (await agent.info("t")).owner) == ("ok", "ann")
        await agent.start("second", thread_id="t")
        await agent.submit("third", thread_id="t", owner="ann")
        assert [(each.owner, each.goal) for each in await agent.threads()] == [("ann", "third")]
        await agent.start("nobody's", thread_id="u")
        await agent.start("first", thread_id="u", owner="bob")
        assert (await agent.info("u")).owner == "bob"


def looking(storage: Any, begun: asyncio.Event, may_end: asyncio.Event) -> Agent:
    """An agent whose run works from `begun` until it `may_end`."""

    async def look() -> str:
        """Look."""
        begun.set()
        await may_end.wait()
        return "seen"

    model = ScriptedModel(roles={"triage": [call("look"), answer("ok")], "judge": lambda *_: audit()})
    return Agent(model, [look], effects={"look": "read"}, storage=storage)


async def test_a_thread_at_work_is_not_shown_to_another_owner(storage: Any) -> None:
    """M11: by the id of a request that is at work, only its owner gets the run."""
    begun, may_end = asyncio.Event(), asyncio.Event()
    async with looking(storage, begun, may_end) as agent:
        work = asyncio.ensure_future(agent.start("first", thread_id="t", owner="ann", request_id="r"))
        await begun.wait()
        for verb in (agent.start, agent.submit):
            with pytest.raises(ConfigError, match="thread 't' has another owner"):
                await verb("mine now", thread_id="t", owner="bob", request_id="r")
        assert (await agent.start("first", thread_id="t", owner="ann", request_id="r")).status == "running"
        may_end.set()
        assert (await work).goal == "first"


async def test_another_request_to_a_thread_at_work_is_refused_at_once(
    storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C06: its row says what it works on; only while that is unknown may a second delivery have to wait for it."""
    monkeypatch.setattr(runner, "SUBMIT_PATIENCE", 600.0)
    begun, may_end = asyncio.Event(), asyncio.Event()
    async with looking(storage, begun, may_end) as agent, asyncio.timeout(60):
        work = asyncio.ensure_future(agent.start("first", thread_id="t", request_id="r"))
        await begun.wait()
        for verb in (agent.start, agent.submit):
            with pytest.raises(ThreadBusy):
                await verb("second", thread_id="t", request_id="s")
            await verb("first", thread_id="t", request_id="r")
        may_end.set()
        assert (await work).answer == "ok"


async def every_page(agent: Agent, limit: int, owner: str | None = None) -> list[dict[str, Any]]:
    """All open questions, page by page."""
    rows, cursor = list[dict[str, Any]](), None
    while True:
        page = await agent.pending(limit=limit, cursor=cursor, owner=owner)
        assert 0 < len(page) <= max(limit, 2)
        rows, cursor = [*rows, *page], page.cursor
        if cursor is None:
            return rows


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres-sealed"])
async def test_open_questions_come_oldest_first_page_by_page(kind: str, tmp_path: Path) -> None:
    """N22: none is missed and none comes twice, whatever is asked meanwhile; a question that is older than the last
    answer on its thread keeps its place."""
    url = fresh_url(kind, tmp_path)
    plan = submit_plan([{"content": text, "tools": [], "depends_on": []} for text in ("paint", "frame")])
    work = {"s1": [ask_user("Which colour?"), ask_user("Which shade?")], "s2": [ask_user("Which wood?")]}
    two = ScriptedModel(roles={"triage": [plan], "execute": work}, strict=False)
    async with Agent(two, storage=(opened := open_storage(url, key=key_of(kind)))) as agent:
        run = await agent.start("hang it", thread_id="two", settings={"confirm": "never"})
    asks = ScriptedModel(roles={"triage": [ask_user("Which?")] * 12}, strict=False)
    async with Agent(asks, storage=opened) as agent:
        for number in range(11):
            await agent.start(f"goal {number}", thread_id=f"t{10 - number}", owner=f"o{number % 2}")
        async with Agent(two, storage=opened) as other:
            run = await other.resume(run, {run.pending[0]["id"]: "red"})
            assert len(run.pending) == 2
        for limit in (1, 4, 5, 100):
            rows = await every_page(agent, limit)
            assert [row["thread_id"] for row in rows if row["thread_id"] != "two"] == [f"t{10 - n}" for n in range(11)]
            assert rows[0]["thread_id"] == "two"
            assert len({(row["thread_id"], row["id"]) for row in rows}) == len(rows) == 13
        assert len(await every_page(agent, 2, owner="o0")) == 6
        first = await agent.pending(limit=3)
        await agent.start("one more", thread_id="a")
        assert (await agent.pending(limit=100, cursor=first.cursor))[-1]["thread_id"] == "a"
        for wrong in ({"cursor": "x"}, {"cursor": "[1, 2]"}, {"limit": 0}):
            with pytest.raises(ConfigError):
                await agent.pending(**wrong)  # type: ignore[arg-type]


async def test_threads_come_page_by_page(storage: Any) -> None:
    """Q31, M11: every thread once, the last changed first, within its filter, also beside those of another owner."""
    async with Agent(ScriptedModel([]), storage=storage) as agent:
        for number in range(5):
            await agent.submit("go", thread_id=f"a{number}", owner="ann")
            await agent.submit("go", thread_id=f"b{number}", owner="bob")
        for owner in ("ann", None):
            whole, cursor, paged = await agent.threads(owner=owner), None, list[str]()
            while paged == [] or cursor:
                page = await agent.threads(3, owner=owner, cursor=cursor)
                paged, cursor = [*paged, *(info.thread_id for info in page)], page.cursor
            assert whole.cursor is None
            assert paged == [info.thread_id for info in whole]
            assert len(paged) == (5 if owner else 10)
        for begin in ("a", "b", "a3", "%", "a_"):
            ids = {info.thread_id for info in await agent.threads(owner="ann", prefix=begin)}
            assert ids == {f"a{n}" for n in range(5) if f"a{n}".startswith(begin)}
        first = await agent.threads(3, prefix="b")
        assert len({info.thread_id for info in [*first, *await agent.threads(3, prefix="b", cursor=first.cursor)]}) == 5
        with pytest.raises(ConfigError, match="is no cursor of a list"):
            await agent.threads(cursor="{")


async def test_an_input_that_no_graph_can_take_leaves_nothing(storage: Any) -> None:
    """R17: what cannot be read or stored is refused, twice, and the thread is none: lists and other threads go on, and
    so does a later request on it; the state of a thread is given no such messages either."""
    none = {"messages": [{"role": "nobody", "content": "hi"}]}
    wrong: list[Any] = ["hi", none, Command(update={"messages": 5}), {"goal": print}, Command(update={"steps": 5})]
    model = ScriptedModel(roles={"triage": lambda *_: answer("ok")})
    async with Agent(model, storage=storage) as agent:
        await agent.start("go", thread_id="good")
        for number, each in enumerate([*wrong, *wrong]):
            with pytest.raises((GoalError, TypeError, AttributeError)):
                await agent.graph.ainvoke(each, config(thread := f"t{number}"))
            assert [info.thread_id for info in await agent.threads()] == ["good"]
            for read in (agent.info, agent.get):
                with pytest.raises(UnknownThread):
                    await read(thread)
        with pytest.raises(GoalError, match="the messages for the graph are none: Unexpected message type: 'nobody'"):
            await agent.graph.aupdate_state(config("good"), none)
        for thread in ("good", "t0"):
            assert (await agent.start("go", thread_id=thread)).status == "answered"


async def test_steps_have_times() -> None:
    """M11: records and receipt say when a step was started and when it ended."""
    model = ScriptedModel(
        roles={"triage": [submit_plan(["look"])], "execute": [call("look"), finish_step("x", "s1.1")]}
    )
    before = datetime.now(UTC).replace(microsecond=0)
    async with Agent(model, [look], effects={"look": "read"}, storage="memory:") as agent:
        run = await agent.start("look", settings={"confirm": "never"})
    record = run.steps["s1"]
    assert before <= datetime.fromisoformat(record["started"]) <= datetime.fromisoformat(record["ended"])
    assert run.receipt is not None
    assert run.receipt["steps"][0]["ended"] == record["ended"]


async def test_what_waits_or_is_queued_is_cancelled(storage: Any) -> None:
    """M11, R04, N21, D01: a run that waits ends as cancelled, as does what is queued, unbegun; each with a receipt, and
    with an end for whoever watches.
    """
    async with Agent(asking("One?"), storage=storage) as agent:
        run = await agent.start("first")
        cancelled = await agent.cancel(run.thread_id)
        assert (cancelled.status, cancelled.pending) == ("cancelled", ())
        assert (await agent.cancel(run.thread_id)).status == "cancelled"
        queued = await agent.submit("second")
        ended = await agent.cancel(queued, "not wanted", by="mira")
        assert ended.outcome is not None
        assert who_cancelled(ended) == [("run", "not wanted", "mira")]
        assert (ended.status, ended.goal, ended.outcome["reason"]) == ("cancelled", "second", "not wanted")
        assert ended.receipt is not None
        assert (await agent.get(queued)).to_dict() == ended.to_dict()
        *_, (end, _) = [each async for each in agent.watch(queued)]
        assert (end["type"], end["status"], end["code"]) == ("outcome", "cancelled", "cancelled")
        assert [info.status for info in await agent.threads()] == ["cancelled", "cancelled"]
        assert await agent.pending() == []
        with pytest.raises(UnknownThread):
            await agent.cancel("nobody")


def who_cancelled(run: Run) -> list[Any]:
    assert run.receipt is not None
    return [
        (row["kind"], row["text"], row.get("name")) for row in run.receipt["approvals"] if row["decision"] == "cancel"
    ]


async def test_who_cancels_a_run_and_why_is_in_its_receipt(storage: Any) -> None:
    """M11, R05: by a button with words or by `cancel`, at a question, at a plan or in the queue."""
    roles = {"triage": [ask_user("One?"), ask_user("One?"), submit_plan(["look"])]}
    async with Agent(ScriptedModel(roles=roles), storage=storage) as agent:
        by_words = [await agent.start(goal) for goal in ("first", "second", "third")]
        button = {"type": "cancel", "message": "duplicate"}
        ended = [
            await agent.cancel(by_words[0], "duplicate", by="mira"),
            await agent.resume(by_words[1], button, by="mira"),
            await agent.resume(by_words[2], {"decisions": [button]}, by="mira"),
        ]
        for run, kind in zip(ended, ("run", "question", "plan"), strict=True):
            assert run.outcome is not None
            assert (run.status, run.outcome["reason"]) == ("cancelled", "duplicate")
            assert who_cancelled(run) == [(kind, "duplicate", "mira")]
            with pytest.raises(StaleAnswer, match=r"is cancelled: duplicate; decided on .*: cancel, by mira"):
                await agent.resume(run, "blue")
        assert who_cancelled(await agent.cancel(await agent.submit("fourth"), "nobody said so")) == []
        with pytest.raises(ConfigError, match="by is a text"):
            await agent.cancel(ended[0], by=cast(Any, 5))


async def test_who_cancels_a_run_that_was_stopped_in_its_first_node_is_in_its_receipt(storage: Any) -> None:
    """M11, R05: what it worked with was still being read."""
    began = asyncio.Event()

    async def background(goal: str, thread_id: str) -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    async with Agent(asking("One?"), storage=storage, options=AgentOptions(context=background)) as agent:
        begun = asyncio.create_task(agent.start("first", thread_id="t"))
        await began.wait()
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert (await agent.graph.aget_state(config("t"))).next == ("receive",)
        run = await agent.cancel("t", "duplicate", by="mira")
    assert run.outcome is not None
    assert (run.status, run.goal, run.outcome["reason"]) == ("cancelled", "first", "duplicate")
    assert who_cancelled(run) == [("run", "duplicate", "mira")]


async def test_a_run_at_work_is_cancelled_by_another_agent(storage: Any) -> None:
    """M11: cancelled from elsewhere, a run stops when the call at work has ended, and says what was done."""
    began = asyncio.Event()

    async def slow() -> str:
        """Work."""
        began.set()
        await asyncio.sleep(0.3)
        return f"worked at {asyncio.get_running_loop().time()}"

    model = ScriptedModel(roles={"triage": [submit_plan(["work"])], "execute": [call("slow")] * 30}, strict=False)
    async with Agent(model, [slow], effects={"slow": "read"}, storage=storage) as agent:
        working = asyncio.create_task(agent.start("work", thread_id="t", settings={"confirm": "never"}))
        await began.wait()
        async with Agent(ScriptedModel(roles={}), storage=storage) as other:
            seen = await other.cancel("t", "not wanted any more", by="mira")
        run = await working
    assert who_cancelled(run) == [("run", "not wanted any more", "mira")]
    assert (run.status, seen.status) == ("cancelled", "cancelled")
    assert run.outcome is not None
    assert run.outcome["reason"] == "not wanted any more"
    assert run.steps["s1"]["status"] == "skipped"
    assert len([request for request in model.requests if request.role == "execute"]) < 20


async def test_pruning_forgets_what_ended_long_ago(storage: Any) -> None:
    """M11, R09: ended threads go with checkpoints, observations and intents; what waits stays."""
    work = [call("send"), finish_step("sent", "s1.1")]
    plan = submit_plan([{"content": "send", "tools": ["send"]}])
    model = ScriptedModel(roles={"triage": [plan, ask_user("One?")], "execute": work})

    def send() -> str:
        """Send a letter."""
        return "x" * 5000

    async with Agent(model, [send], storage=storage, settings={"confirm": "never", "approvals": "never"}) as agent:
        done = await agent.start("send", thread_id="done.1")
        await agent.start("ask", thread_id="open")
        assert done.status == "completed"
        assert await agent.prune(timedelta(hours=1)) == []
        assert await agent.prune(timedelta(0)) == ["done.1"]
        assert [info.thread_id for info in await agent.threads()] == ["open"]
        with pytest.raises(UnknownThread):
            await agent.get("done.1")
        async with storage.reader() as (saver, store):
            assert [item async for item in saver.alist({"configurable": {"thread_id": "done.1"}})] == []
            items = await store.asearch(("donewhen",), limit=100)
        assert not [item for item in items if any("done" in label for label in item.namespace[1:])]


async def test_pruning_spares_a_thread_that_got_a_request_meanwhile(storage: Any) -> None:
    """M11: what somebody submitted between the list of old threads and their deletion is not deleted with them."""
    async with Agent(ScriptedModel(roles={"triage": [answer("one"), answer("two")]}), storage=storage) as agent:
        for thread_id in ("busy", "idle"):
            await agent.start("first", thread_id=thread_id)
        listed = {info.thread_id: info.updated for info in await agent.threads(status="answered")}
        await agent.submit("second", thread_id="busy")
        still = ("answered", max(listed.values()))
        assert await agent.storage.delete_threads(listed, still) == ["busy"]
        assert [(info.thread_id, info.status) for info in await agent.threads()] == [("busy", "queued")]


async def test_tools_of_one_call(tmp_path: Path) -> None:
    """M11: tools given with a start are that run's beside the agent's, through its pauses; others do not have them."""
    plan = submit_plan([{"content": "look", "tools": ["special"]}])
    model = ScriptedModel(
        roles={"triage": [plan, answer("no")], "execute": [call("special"), finish_step("x", "s1.1")]}
    )

    def special() -> str:
        """Look closely."""
        return "seen"

    async with Agent(model, [look], storage=f"{tmp_path}/runs.db", settings={"approvals": "plan"}) as agent:
        run = await agent.start("look", tools=[special])
        assert run.status == "waiting"
        assert (await agent.resume(run, "approve")).status == "completed"
        await agent.start("again")
        assert "special" not in model.requests[-1].text
        with pytest.raises(ToolError):
            await agent.start("look", tools=[look])


def test_the_command_over_all_threads(tmp_path: Path) -> None:
    """M11, N22, N48: `donewhen pending`, which says when there is more, `cancel`, `prune`, `watch`."""
    shell = user_in(tmp_path)
    goal, folder = "how many files are there?", ["--dir", str(shell.work)]
    assert shell("pending").exit_code == 0
    assert shell("run", goal, *folder, "--thread", "one").exit_code == 3
    assert shell("run", "--yes", goal, *folder, "--thread", "two").exit_code == 0
    assert "one  plan" in shell("pending").stdout
    assert shell("run", goal, *folder, "--thread", "three").exit_code == 3
    first = shell("pending", "--limit", "1")
    assert (first.stdout.count("\n"), "three" in first.stdout) == (1, False)
    (command,) = [line for line in first.stderr.splitlines() if "More questions wait" in line]
    assert shell(*shlex.split(command.partition("donewhen ")[2])).stdout.startswith("three  plan")
    assert shell("cancel", "three").stdout == "cancelled\n"
    watched = shell("watch", "one")
    assert (watched.exit_code, "--id confirm." in watched.stderr) == (3, True)
    assert shell("watch", "two").exit_code == 0
    assert '"cursor"' in shell("watch", "two", "--json").stdout
    assert shell("cancel", "one").stdout == "cancelled\n"
    assert shell("pending").stdout == ""
    assert shell("prune", "--older", "1d").stdout == "0 threads deleted\n"
    assert shell("prune", "--older", "soon").exit_code == 2
    assert shell("prune", "--older", "0m").stdout == "3 threads deleted\n"
    assert shell("threads").stdout == ""


class LockedOnce(MemoryStore):
    """Fails when it is first asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        if not self.asked.is_set():
            self.asked.set()
            raise sqlite3.OperationalError("database is locked")
        return await super().abatch(ops)


async def test_a_database_that_is_busy_for_once_does_not_make_a_run_deaf() -> None:
    """M11: a look for a cancellation that fails is repeated; its error was never retrieved, and no other look came."""
    locked = LockedOnce()
    store, said = ThreadStore(locked), list[str]()
    listening = asyncio.create_task(CancelListener().wait(store, "t", lambda: said.append("drained")))
    await locked.asked.wait()
    await request_cancel(store, "t", Cancellation("enough", "anna"))
    assert await listening == Cancellation("enough", "anna")
    assert said == ["drained"]


class Gone(MemoryStore):
    """A store whose connection is broken."""

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        raise sqlite3.OperationalError("the connection is gone")


async def test_runs_whose_connections_broke_do_not_make_the_others_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """M11: two runs of an agent lost their connections; a third looks for cancellations of all three."""
    monkeypatch.setattr(thread_rows, "CANCEL_POLL", 0.02)
    listener, whole = CancelListener(), ThreadStore(MemoryStore())
    stores = {"a": ThreadStore(Gone()), "b": ThreadStore(Gone()), "c": whole}
    listening = [asyncio.create_task(listener.wait(store, id, lambda: None)) for id, store in stores.items()]
    for id in stores:
        await request_cancel(whole, id, Cancellation(f"enough of {id}"))
    async with asyncio.timeout(60):
        assert [why.reason for why in await asyncio.gather(*listening)] == ["enough of a", "enough of b", "enough of c"]


async def test_a_cancellation_that_came_late_is_not_for_the_next_request(storage: Any) -> None:
    """M11: who cancelled had left when the run ended; the next request of the thread was cancelled, a second after."""
    async with Agent(ScriptedModel(roles={"triage": [answer("one"), answer("two")]}), storage=storage) as agent:
        run = await agent.start("first")
        async with storage.writer() as (_, store):
            await request_cancel(store, run.thread_id, Cancellation("not wanted"))
        assert (await agent.start("second", thread_id=run.thread_id)).answer == "two"
        async with storage.reader() as (_, store):
            assert await store.asearch(CANCEL) == []


async def test_a_cancellation_ends_no_request_that_begins_after_it(storage: Any) -> None:
    """M11: the client of a chat sends the next message as soon as the first run has ended; that one goes on."""
    begun = asyncio.Event()

    async def wait_long() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return "slept"

    plan = submit_plan([{"content": "x", "done_when": "y", "tools": ["wait_long"]}])
    roles = {"triage": [plan, ask_user("Which?"), answer("two")], "execute": [call("wait_long")]}
    agent = Agent(ScriptedModel(roles=roles, strict=False), [wait_long], effects={"wait_long": "read"}, storage=storage)

    async def chat() -> list[Run]:
        first = await agent.start("first", thread_id="t", settings={"confirm": "never"})
        return [first, await agent.start("second", thread_id="t")]

    async with agent:
        chatting = asyncio.create_task(chat())
        await begun.wait()
        cancelled = await agent.cancel("t", "not wanted")
        first, second = await chatting
        assert (cancelled.goal, cancelled.status, first.status) == ("first", "cancelled", "cancelled")
        assert second.status == "waiting"
        assert (await agent.resume(second, "blue")).answer == "two"


async def test_a_cancellation_is_for_the_request_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """M11: a worker hears none that is for another request than the one it begins; a thread beside it hears its own."""
    monkeypatch.setattr(thread_rows, "CANCEL_POLL", 0.02)
    listener, store = CancelListener(), ThreadStore(MemoryStore())
    meant, beside = (asyncio.create_task(listener.wait(store, id, lambda: None, "second")) for id in ("t", "u"))
    await request_cancel(store, "t", Cancellation("not wanted"), "first")
    await request_cancel(store, "u", Cancellation("enough"))
    async with asyncio.timeout(60):
        assert await beside == Cancellation("enough")
        assert not meant.done()
        await request_cancel(store, "t", Cancellation("wanted"), "second")
        assert await meant == Cancellation("wanted")


@pytest.mark.parametrize("then", ["waits", "is queued"])
async def test_a_run_that_has_ended_stands_for_its_own_request(storage: Any, then: str) -> None:
    """M11, C06: `cancel` returns it unchanged and `undo` refuses it, whatever the thread does now."""
    roles = {"triage": [answer("one"), ask_user("Which?")]}
    async with Agent(ScriptedModel(roles=roles, strict=False), storage=storage) as agent:
        first = await agent.start("first", thread_id="t")
        begin = agent.start if then == "waits" else agent.submit
        await begin("second", thread_id="t")
        before = (await agent.get("t")).status
        assert await agent.cancel(first) == first
        with pytest.raises(ConfigError, match="another request followed this run"):
            await agent.undo(first)
        assert (await agent.get("t")).status == before == ("waiting" if then == "waits" else "queued")
        assert (await agent.cancel("t")).status == "cancelled"


async def test_a_run_that_waited_stands_for_its_own_request(storage: Any) -> None:
    """M11: it was answered and ended since; `cancel` with it leaves the thread's next request alone, and says how it
    ended. One that was displaced instead is cancelled, also while the next one is still queued."""
    roles = {"triage": [ask_user("Which?"), answer("one"), ask_user("What?"), ask_user("What now?")]}
    async with Agent(ScriptedModel(roles=roles, strict=False), storage=storage) as agent:
        first = await agent.start("first", thread_id="t")
        ended = await agent.resume(first, "blue")
        second = await agent.start("second", thread_id="t")
        assert await agent.cancel(first) == ended
        assert (await agent.get("t")).status == "waiting"
        await agent.submit("third", thread_id="t", restart=True)
        for status in ("queued", "waiting"):
            cancelled = await agent.cancel(second)
            assert (cancelled.goal, cancelled.status, cancelled.pending) == ("second", "cancelled", ())
            assert cancelled.problem == "another request took its place on the thread"
            assert (await agent.get("t")).status == status
            if status == "queued":
                await agent.run_submitted("t")


@pytest.mark.parametrize("begun", [False, True])
async def test_a_request_that_another_displaces_while_it_is_cancelled_keeps_its_goal(
    begun: bool, monkeypatch: Any
) -> None:
    """M11: be it queued or at its question; the other one is left alone."""
    model = ScriptedModel(roles={"triage": lambda *_: ask_user("Which?")})
    find = runner.Runner.find_request
    async with Agent(model, storage="memory:") as agent:
        await agent.submit("first", thread_id="t")
        if begun:
            await agent.run_submitted("t")

        async def find_late(self: Any, thread_id: str) -> Any:
            found = await find(self, thread_id)
            await agent.submit("second", thread_id="t", restart=True)
            await agent.run_submitted("t")
            return found

        monkeypatch.setattr(runner.Runner, "find_request", find_late)
        cancelled = await agent.cancel("t")
        assert (cancelled.status, cancelled.goal) == ("cancelled", "first")
        run = await agent.get("t")
        assert (run.status, run.goal) == ("waiting", "second")


async def test_who_cancels_a_run_that_ends_does_not_wait_for_the_next_one(monkeypatch: Any) -> None:
    """M11: another request begins at once and works for long; the run that was meant comes back as it ended."""
    monkeypatch.setattr(agent_module, "CANCEL_PATIENCE", 2.0)
    begun, goes_on = [asyncio.Event(), asyncio.Event()], [asyncio.Event(), asyncio.Event()]
    numbers, asked = count(), asyncio.Event()

    async def request(*given: Any) -> None:
        await request_cancel(*given)
        asked.set()

    monkeypatch.setattr(agent_module, "request_cancel", request)

    async def look() -> str:
        """Look."""
        number = next(numbers)
        begun[number].set()
        await goes_on[number].wait()
        return "seen"

    looking = [call("look"), answer("one"), call("look"), answer("two")]
    model = ScriptedModel(roles={"triage": looking}, strict=False)
    async with Agent(model, [look], effects={"look": "read"}, storage="memory:") as agent:
        first = asyncio.create_task(agent.start("first", thread_id="t"))
        await begun[0].wait()
        cancelling = asyncio.create_task(agent.cancel("t"))
        await asked.wait()  # it found the thread busy
        goes_on[0].set()
        ended = await first
        second = asyncio.create_task(agent.start("second", thread_id="t"))
        await begun[1].wait()
        cancelled = await cancelling
        assert (cancelled.goal, cancelled.status) == ("first", ended.status)
        goes_on[1].set()
        assert (await second).answer


async def test_what_became_of_a_request_is_read_without_the_requests_before_it(monkeypatch: Any) -> None:
    """M11, R20: to cancel a displaced run costs the same on a thread with many requests as on one with few."""
    listed, list_all = list[Any](), InMemorySaver.alist

    async def list_counted(self: Any, *args: Any, **more: Any) -> Any:
        async for each in list_all(self, *args, **more):
            listed.append(each)
            yield each

    monkeypatch.setattr(InMemorySaver, "alist", list_counted)
    counts = list[int]()
    for before in (5, 9):
        replies = [*[answer("yes")] * before, ask_user("Which?"), answer("no")]
        async with Agent(ScriptedModel(roles={"triage": replies}), storage="memory:") as agent:
            for number in range(before):
                await agent.start(f"request {number}", thread_id="t")
            run = await agent.start("asks", thread_id="t")
            await agent.start("instead", thread_id="t", restart=True)
            listed.clear()
            assert (await agent.cancel(run)).status == "cancelled"
            counts.append(len(listed))
    assert counts[0] == counts[1]


async def _submitted(agent: Agent, run: Run) -> Run:
    return await agent.run_submitted(await agent.submit_answer(run, "blue"))


@pytest.mark.parametrize("answered", [lambda agent, run: agent.resume(run, "blue"), _submitted])
async def test_a_cancellation_that_came_late_is_not_for_what_follows_an_answer(answered: Any, storage: Any) -> None:
    """M11: who cancelled was killed while the run came to its question; a day later the answer to that cancelled it."""
    async with Agent(ScriptedModel(roles={"triage": [ask_user("Which?"), answer("two")]}), storage=storage) as agent:
        run = await agent.start("first")
        async with storage.writer() as (_, store):
            await request_cancel(store, run.thread_id, Cancellation("not wanted"))
        assert (await answered(agent, run)).answer == "two"
        async with storage.reader() as (_, store):
            assert await store.asearch(CANCEL) == []


async def test_what_ended_before_it_could_be_cancelled_has_ended(storage: Any) -> None:
    """M11: its last checkpoint was there, its row not yet: it was “cancelled”, and its answer was not given."""
    async with Agent(ScriptedModel(roles={"triage": [answer("one")]}), storage=storage) as agent:
        run = await agent.start("first")
        state = await agent.graph.aget_state({"configurable": {"thread_id": run.thread_id}})
        async with storage.writer() as (_, store):
            request = {"messages": messages_to_dict(state.values["messages"][:1]), "plan": None}
            await update_row(store, run.thread_id, status="running", request=request)
        gone = await agent.cancel(run.thread_id)
        assert (gone.status, gone.answer) == ("answered", "one")
        assert (await agent.info(run.thread_id)).status == "answered"


async def test_a_question_stays_in_the_list_while_an_answer_to_another_is_queued(storage: Any) -> None:
    """M11: of two steps that ask, in two threads; the answered one is in no list, and pages hold the others."""
    threads = ("a", "b")
    async with Painting().agent(storage) as agent, Painting().agent(storage) as other:
        for each, thread in ((agent, "a"), (other, "b")):
            await each.start("hang the picture", thread_id=thread)
        await agent.submit_answer("a", {"s1.q1": "blue"})
        left = [("a", "s2.q1"), ("b", "s1.q1"), ("b", "s2.q1")]
        assert sorted((row["thread_id"], row["id"]) for row in await agent.pending()) == left
        assert sorted((row["thread_id"], row["id"]) for row in await every_page(agent, 1)) == left
        infos = [await agent.info(thread) for thread in threads]
        runs = [await agent.get(thread) for thread in threads]
        for rows in (infos, runs):
            assert [row.status for row in rows] == ["queued", "waiting"]
            ids = [[pause["id"] for pause in row.pending] for row in rows]
            assert ids == [["s2.q1"], ["s1.q1", "s2.q1"]]
        await agent.submit_answer("a", "oak")
        assert {row["thread_id"] for row in await agent.pending()} == {"b"}
        assert (await agent.get("a")).pending == ()


async def open_ids(agent: Agent, thread: str) -> tuple[str, list[str]]:
    """The status of a thread, and the ids of its open questions, which all ways to read them have alike."""
    run = await agent.get(thread)
    (listed,) = [row for row in await agent.threads() if row.thread_id == thread]
    ids = [pause["id"] for pause in run.pending]
    for other in (await agent.pending(), listed.pending, (await agent.info(thread)).pending):
        assert [pause["id"] for pause in other] == ids
    return run.status, ids


@pytest.mark.parametrize("way", ["resume", "worker", "graph"])
async def test_a_question_stays_in_the_list_while_another_is_worked_on(storage: Any, way: str) -> None:
    """M11, C07: what an answer would be taken for, in all lists alike; what was answered is in none, at once."""
    painting = Painting()
    async with painting.agent(storage) as agent:
        await agent.start("hang the picture", thread_id="t")
        if way == "worker":
            await agent.submit_answer("t", {"s1.q1": "blue"})
            work: Any = agent.run_submitted("t")
        elif way == "graph":
            work = agent.graph.ainvoke(Command(resume={"s1.q1": "blue"}), {"configurable": {"thread_id": "t"}})
        else:
            work = agent.resume("t", {"s1.q1": "blue"})
        leg = asyncio.create_task(work)
        await painting.begun.wait()
        assert await open_ids(agent, "t") == ("running", ["s2.q1"])
        (asked,) = await agent.pending()
        assert (asked["thread_id"], asked["question"]) == ("t", "Which wood?")
        await agent.submit_answer("t", "oak", question=asked["id"])
        assert await open_ids(agent, "t") == ("running", [])
        with pytest.raises(StaleAnswer):
            await agent.submit_answer("t", "pine", question=asked["id"])
        painting.go_on.set()
        await leg
        assert await open_ids(agent, "t") == ("queued", [])
        painting.assert_done(await agent.run_submitted("t"))


async def test_a_question_stays_in_the_list_if_a_worker_is_drained_before_it_takes_the_answer_to_another(
    storage: Any,
) -> None:
    """M11, R02: the work goes back to the queue as it was, and all ways to read the thread say so alike."""
    async with Painting().agent(storage) as agent:
        await agent.start("hang the picture", thread_id="t")
        await agent.submit_answer("t", {"s1.q1": "blue"})
        async with Painting().agent(storage) as leaving:
            task = asyncio.create_task(leaving.run_submitted("t"))
            await asyncio.sleep(0)
            leaving.drain()
            assert (await task).status == "queued"
        assert await open_ids(agent, "t") == ("queued", ["s2.q1"])


@pytest.mark.parametrize("way", ["resume", "worker", "typed"])
async def test_a_question_stays_in_the_list_wherever_the_work_on_another_is_cut_off(way: str) -> None:
    """M11, C07, R02: at every other write, also in the work after the crash; an answer to it is kept for the rest."""
    cut_off = 0

    def agent_on(storage: Any) -> Agent:
        """Each one continues where another was cut off."""
        steps = [{"content": text, "tools": ["look"], "depends_on": []} for text in ("paint", "frame")]

        def paint(messages: Any, _: Any) -> Any:
            if "blue" not in str(messages):
                return ask_user("Which colour?")
            return call("look") if "seen" not in str(messages) else finish_step("painted", goal_check=[criterion(1)])

        def frame(messages: Any, _: Any) -> Any:
            return finish_step("framed", goal_check=[criterion(1)]) if "oak" in str(messages) else ask_user("Which?")

        roles: Any = {"triage": lambda *_: submit_plan(steps), "execute": {"s1": paint, "s2": frame}}
        model = ScriptedModel(roles={**roles, "deliver": lambda *_: "Done."}, strict=False)
        settings: Any = {"confirm": "never", "verification": "claimed"}
        return Agent(model, [look], storage=storage, effects={"look": "read"}, settings=settings)

    async def answer_first(agent: Agent) -> Any:
        if way == "worker":
            return await agent.run_submitted("t")
        if way == "typed":
            return await agent.graph.ainvoke({"messages": [("user", "blue")]}, config("t"))
        return await agent.resume("t", {"s1.q1": "blue"})

    for number in itertools.count(1, 2):
        storage, crash = open_storage("memory:"), Crash(number, only=WRITTEN)
        async with agent_on(storage) as agent:
            await agent.start("hang the picture", thread_id="t")
            if way == "worker":
                await agent.submit_answer("t", {"s1.q1": "blue"})
        with suppress(StorageError, Crashed):
            async with agent_on(crashing(storage, crash)) as agent:
                await answer_first(agent)
        if len(crash.trace) < number:
            break
        async with agent_on(storage) as agent:
            _, ids = await open_ids(agent, "t")
            assert ids[-1] == "s2.q1", crash.trace
            run = await agent.get("t")
            assert (describe_run(run).get("question_id") == "s2.q1") == (run.takes_answer and ids == ["s2.q1"])
            if ids != ["s2.q1"] or run.takes_answer:
                continue
            with suppress(StorageError, Crashed):
                async with agent_on(crashing(storage, Crash(9))) as again:
                    await (again.run_submitted("t") if way == "worker" else again.resume("t"))
            _, ids = await open_ids(agent, "t")
            assert ids == ["s2.q1"], crash.trace
            if not (await agent.get("t")).takes_answer:
                with pytest.raises(StaleAnswer, match=r"s2.q1 is open; `submit_answer` .* leaves the answer") as stale:
                    await agent.resume("t", "oak")
                assert stale.value.pending == ["s2.q1"]
            await agent.submit_answer("t", "oak", question="s2.q1")
            assert (await open_ids(agent, "t"))[1] == []
            run = await agent.resume("t")
            run = run if run.status == "completed" else await agent.resume("t")
            assert sorted(row["answer"] for row in run.receipt["questions"]) == ["blue", "oak"]
            cut_off += 1
    assert cut_off > 5


async def test_what_changes_at_each_read_is_read_without_what_works_inside() -> None:
    """M11: a step whose rounds are deleted while they are read, each time, would be read in part; `get` broke at it."""
    begun, may_end = asyncio.Event(), asyncio.Event()
    async with looking(open_storage("memory:"), begun, may_end) as agent:
        work = asyncio.ensure_future(agent.start("first", thread_id="t"))
        await begun.wait()

        class Moves:
            """The agent's graph, of which each read finds another checkpoint."""

            reads = 0

            async def aget_state(self, config: Any, *, subgraphs: bool = False) -> Any:
                self.reads += 1
                snapshot = await agent.graph.aget_state(config, subgraphs=subgraphs)
                return snapshot._replace(config={"configurable": {"checkpoint_id": str(self.reads)}})

        moves: Any = Moves()
        async with agent.storage.reader() as (_, store):
            row, snapshot = await runner.read_consistent(moves, store, "t")
        assert (row["status"], snapshot.values["goal"]) == ("running", "first")
        assert moves.reads > 3
        assert not [task for task in snapshot.tasks if isinstance(task.state, StateSnapshot)]
        may_end.set()
        await work


async def test_a_question_that_the_work_has_closed_is_in_no_list(storage: Any) -> None:
    """M11, C07: the run reaches its limit while another question is open, and ends; no answer is taken for it then."""
    reached, go_on = (asyncio.Event(), asyncio.Event()), (asyncio.Event(), asyncio.Event())

    async def hold(place: int) -> None:
        reached[place].set()
        await go_on[place].wait()

    async def paint(coat: int) -> str:
        """Put on a coat."""
        await hold(0)
        return f"coat {coat} is on"

    async def before_end(_: Any) -> None:
        await hold(1)

    steps = [
        {"content": text, "done_when": "done", "depends_on": [], "tools": ["paint"]} for text in ("paint", "frame")
    ]
    coats = [call("paint", coat=1), call("paint", coat=2)]
    work = {"s1": [ask_user("Which colour?"), *coats], "s2": [ask_user("Which wood?")]}
    model = ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": work, "deliver": lambda *_: "Done."})
    limited: Any = {"confirm": "never", "on_exhausted": "deliver", "limits": {"tool_calls": 1}}
    hooks, effects = Hooks(before_end=[before_end]), {"paint": "read"}
    async with Agent(model, [paint], storage=storage, settings=limited, hooks=hooks, effects=effects) as agent:
        run = await agent.start("hang the picture", thread_id="t")
        assert [pause["id"] for pause in run.pending] == ["s1.q1", "s2.q1"]
        leg = asyncio.create_task(agent.resume(run, "blue"))
        await reached[0].wait()
        assert await open_ids(agent, "t") == ("running", ["s2.q1"])
        go_on[0].set()
        await reached[1].wait()
        async with asyncio.timeout(20):  # the state with the ending is written beside the hook
            for _ in itertools.count():
                if not (await agent.get("t")).pending:
                    break
                await asyncio.sleep(0.02)
        assert await open_ids(agent, "t") == ("running", [])
        with pytest.raises(StaleAnswer):
            await agent.submit_answer("t", "oak", question="s2.q1")
        go_on[1].set()
        assert (await leg).status == "exhausted"


async def test_a_cancellation_leaves_a_finished_run_as_it_is(storage: Any) -> None:
    """M11: also when it last changed, by which `prune` goes; of two, one was cancelled before."""
    async with Agent(asking("One?", "Two?"), storage=storage) as agent:
        await agent.start("first", thread_id="cancelled")
        ended = [await agent.cancel("cancelled")]
        await agent.start("second", thread_id="answered")
        ended.append(await agent.resume("answered", "/cancel"))
        for run in ended:
            before = await agent.info(run)
            assert await agent.cancel(run, "again") == await agent.get(run)
            assert await agent.info(run) == before
