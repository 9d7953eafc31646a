"""Resuming: by whom it may concern, once, from anywhere, later; over every storage."""

import asyncio
import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.tools import ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from donewhen import (
    Agent,
    AgentOptions,
    ConfigError,
    DoneWhenError,
    GoalError,
    Run,
    Settings,
    StaleAnswer,
    StorageError,
    ThreadBusy,
    ThreadWaiting,
    UnknownThread,
    wait,
)
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, Crashed, crashing
from donewhen.graph.build import build_graph
from donewhen.receipts import export_receipt
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.forking import forks
from tests.kit.runs import Outbox, config, last_seen, one_step, said, scripted, sending, step
from tests.kit.storage.cases import Storage, fresh_url

HI = call("send", to="ann", text="hi")


async def unchanged(
    agent: Agent, run: Run, answer: Any, error: type[Exception] = StaleAnswer, *, to_run: bool = False
) -> None:
    """Assert that the answer is refused and that not one checkpoint is written."""
    before = await agent.graph.aget_state(config(run.thread_id))
    with pytest.raises(error):
        await agent.resume(run if to_run else run.thread_id, answer)
    assert (await agent.graph.aget_state(config(run.thread_id))).config == before.config


async def test_an_unknown_thread_starts_nothing(storage: Storage) -> None:
    """C04: resuming a thread that never ran is an error and leaves no trace; LangGraph alone would start it."""
    agent = Agent(ScriptedModel(), storage=storage)
    for given in ("approve", {"s1.q1": "x"}, {"0" * 32: "x"}):
        with pytest.raises(UnknownThread):
            await agent.resume("nobody", given)
        with pytest.raises(UnknownThread):
            await agent.graph.ainvoke(Command(resume=given), config("nobody"))
    for read in (agent.resume, agent.get, agent.receipt, agent.info):
        with pytest.raises(UnknownThread):
            await read("nobody")
    assert await agent.threads() == []


async def test_answering_twice_is_harmless(storage: Storage) -> None:
    """C06, C04: the second delivery of an answer is reported and changes nothing, before the end and after it."""
    outbox, model = Outbox(), sending(HI)
    agent = Agent(model, [outbox.tool()], storage=storage)
    first = await agent.start("do it")
    id = first.pending[0]["id"]
    second = await agent.resume(first.thread_id, {id: "approve"})
    assert second.pending[0]["kind"] == "tool"
    await unchanged(agent, second, {id: "approve"})
    await unchanged(agent, second, {first.pending[0]["interrupt_id"]: "approve"})
    with pytest.raises(StaleAnswer):  # bound to what was shown, an answer without an id is as strict
        await agent.resume(first, "approve")
    with pytest.raises(StaleAnswer):
        await agent.graph.ainvoke(
            Command(resume={first.pending[0]["interrupt_id"]: "approve"}), config(first.thread_id)
        )
    assert outbox.sent == []
    ended = await agent.resume(second, "approve")
    assert (ended.status, len(outbox.sent)) == ("completed", 1)
    for late in ("approve", {second.pending[0]["id"]: "approve"}, {"foo": 1}, None):
        await unchanged(agent, ended, late)
    with pytest.raises(StaleAnswer):
        await agent.graph.ainvoke(Command(resume="approve"), config(first.thread_id))
    assert await agent.resume(first.thread_id) == ended
    model.assert_exhausted()


async def test_a_late_answer_hears_what_was_decided(storage: Storage) -> None:
    """C04: who answers what is decided hears the decision, when and by whom, after the end too."""
    key = "sk-proj-" + "a1B2" * 10
    asked = call("ask_user", question="Which town?")
    model = scripted(submit_plan([step("s1", tools=["send"])]), {"s1": [asked, HI, said("s1")]})
    outbox = Outbox()
    agent = Agent(model, [outbox.tool()], storage=storage)
    plan = await agent.start("do it")
    thread, (plan_id,) = plan.thread_id, [each["id"] for each in plan.pending]
    question = await agent.resume(plan, "approve", by="ann")
    with pytest.raises(StaleAnswer, match=rf"nothing waits under {plan_id}.*{plan_id}: approve, by ann, 20\d\d-"):
        await agent.resume(thread, {plan_id: "cancel"})
    town = await agent.resume(question, f"Paris, with {key}", by="bob")
    id = question.pending[0]["id"]
    for late in (agent.resume, agent.submit_answer):
        with pytest.raises(StaleAnswer, match=rf"{id}: answer 'Paris, with.*, by bob, 20") as refused:
            await late(question, "Rome")
        assert key not in str(refused.value)
    with pytest.raises(StaleAnswer, match=f"{id}: answer 'Paris"):
        await agent.resume(thread, {"type": "respond", "message": "Rome", "id": id})
    ended = await agent.resume(town, "approve")
    assert len(outbox.sent) == 1
    tool_id = town.pending[0]["id"]
    for late_answer in ({tool_id: "reject"}, "reject"):  # without an id, the last decision
        with pytest.raises(StaleAnswer, match=rf"it is {ended.status}.*{tool_id}: approve, 20\d\d-"):
            await agent.resume(thread, late_answer)
    with pytest.raises(StaleAnswer, match=f"{id}: answer 'Paris"):
        await agent.resume(thread, {id: "Rome"})


async def test_one_of_many_works(storage: Storage) -> None:
    """R04: eight workers resume one thread at once; one works, the others get a typed refusal, nothing runs twice."""
    outbox, model = Outbox(), sending(HI, tools=["send"])
    agent = Agent(model, [outbox.tool()], storage=storage)
    run = await agent.start("do it")
    crowd = [Agent(model, [outbox.tool()], storage=storage) for _ in range(8)]
    answers = [each.resume(run.thread_id, {run.pending[0]["id"]: "approve"}) for each in crowd]
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [result.status for result in results if isinstance(result, Run)] == ["completed"]
    assert all(isinstance(result, Run | ThreadBusy | StaleAnswer) for result in results)
    assert len(outbox.sent) == 1
    model.assert_exhausted()


async def test_a_plain_answer_given_twice_at_once_approves_nothing_that_nobody_saw(storage: Storage) -> None:
    """C04, R04: the one that comes second does not wait for the question after the one that was shown."""
    outbox, model = Outbox(), sending(HI, tools=["send"])
    agents = [Agent(model, [outbox.tool()], storage=storage, settings={"approvals": "each"}) for _ in range(2)]
    run = await agents[0].start("do it")
    twice = await asyncio.gather(*(each.resume(run.thread_id, "yes") for each in agents), return_exceptions=True)
    assert sorted(type(each).__name__ for each in twice) == ["Run", "ThreadBusy"]
    run = await agents[0].get(run.thread_id)
    assert ([pause["kind"] for pause in run.pending], outbox.sent) == (["tool"], [])


async def test_one_of_many_works_with_the_graphs_own_verbs(storage: Storage) -> None:
    """R04: LangGraph's verbs take the same turns: a plain answer, a crash to go on from, a change by hand."""
    outbox, model = Outbox(), sending(HI, tools=["send"])
    agent = Agent(model, [outbox.tool()], storage=storage)
    await agent.graph.ainvoke({"messages": "do it"}, config("t"))
    resumed = [agent.graph.ainvoke(Command(resume="approve"), config("t")) for _ in range(4)]
    results = await asyncio.gather(*resumed, return_exceptions=True)
    assert sum(isinstance(result, dict) for result in results) == 1
    assert all(isinstance(result, dict | ThreadBusy | StaleAnswer) for result in results)
    assert len(outbox.sent) == 1
    model.assert_exhausted()


async def test_who_is_busy_says_so(storage: Storage) -> None:
    """R04: while a run works, nobody resumes, restarts, changes or deletes it; reading is free."""
    reached, go = asyncio.Event(), asyncio.Event()

    async def slow(messages: list[Any], tools: list[Any]) -> Any:
        reached.set()
        await go.wait()
        return said("s1")

    model = scripted(submit_plan([step("s1")]), {"s1": [slow]})
    agent = Agent(model, storage=storage, settings={"confirm": "never"})
    working = asyncio.create_task(agent.start("do it", thread_id="t"))
    await reached.wait()
    other = Agent(model, storage=storage)
    for attempt in (
        other.resume("t"),
        other.resume("t", "yes"),
        other.start("again", thread_id="t", restart=True),
        other.graph.aupdate_state(config("t"), {"language": "en"}),
        other.delete("t"),
    ):
        with pytest.raises(ThreadBusy):
            await attempt
    assert (await other.get("t")).status == "running"
    assert (await other.info("t")).status == "running"
    go.set()
    assert (await working).status == "answered"
    assert (await other.info("t")).status == "answered"


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_a_cancelled_run_goes_on(storage: Storage, where: str) -> None:
    """C06, R02: what was done stays done; resuming goes on where it was cut off, and counts on."""
    reached = asyncio.Event()
    hang = [where]

    async def perhaps_hang(place: str) -> None:
        if hang == [place]:
            hang.clear()
            reached.set()
            await asyncio.Event().wait()

    async def decide(messages: list[Any], tools: list[Any]) -> Any:
        await perhaps_hang("model")
        return call("look") if len(messages) < 4 else finish_step("seen", evidence=last_seen(messages))

    async def look() -> str:
        """Look around."""
        await perhaps_hang("tool")
        return "all is well"

    model = ScriptedModel(
        roles={
            "triage": [submit_plan([step("s1"), step("s2")])],
            "execute": {"s1": [said("s1")], "s2": decide},
            "deliver": lambda *_: "Done.",
        }
    )
    agent = Agent(model, [look], storage=storage, settings={"confirm": "never"}, effects={"look": "read"})
    working = asyncio.create_task(agent.start("do it", thread_id="t"))
    await reached.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    cut = await agent.get("t")
    assert (cut.status, cut.steps["s1"]["status"]) == ("running", "done")
    with pytest.raises(StaleAnswer):
        await agent.resume("t", "yes")
    with pytest.raises(ThreadWaiting, match="not finished"):
        await agent.start("something else", thread_id="t")
    run = await Agent(model, [look], storage=storage, effects={"look": "read"}).resume("t")
    assert run.status == "completed"
    assert [r.step for r in model.requests if r.role == "execute"].count("s1") == 1
    assert run.spent["rounds"] == 3


async def test_a_run_that_is_stopped_as_it_is_answered_has_its_answer() -> None:
    """C06: nothing is left to go on with: the answer was complete, so the run has ended."""
    stream: Any = None

    async def stop_and_answer(messages: Any, tools: Any) -> Any:
        stream.drain()
        return answer("So, yes.")

    async with Agent(ScriptedModel(roles={"triage": [stop_and_answer]}), storage="memory:") as agent:
        stream = agent.stream("well?")
        ends = [event async for event in stream if event["type"] == "outcome"]
        run = await agent.get(stream.thread_id)
    assert ([event["status"] for event in ends], run.answer) == (["answered"], "So, yes.")


async def test_a_drained_run_goes_on(storage: Storage) -> None:
    """C06: drain stops at a clean point: the call under way is recorded, the next one is not made."""
    outbox = Outbox()
    model = sending(HI, call("send", to="bob", text="hi"), tools=["send"])
    agent = Agent(model, [outbox.tool()], storage=storage, settings={"confirm": "never"})
    events = []
    async for event in agent.stream("Write to ann and bob", thread_id="t"):
        events.append(event["type"])
        if event["type"] == "observation":
            agent.drain()
    assert events[-1] == "outcome"
    assert (await agent.get("t")).status == "running"
    assert len(outbox.sent) == 1
    run = await agent.resume("t")
    assert (run.status, [sent["to"] for sent in outbox.sent]) == ("completed", ["ann", "bob"])
    model.assert_exhausted()


@pytest.mark.parametrize("is_second", [False, True])
async def test_a_request_that_was_drained_before_its_first_node_is_known_by_its_id(
    is_second: bool, tmp_path: Path
) -> None:
    """F4, C06: as where Temporal gives an attempt up: sent again, it is carried out, by whoever has the thread then.
    Its run is not that of the request before it."""

    class Drains(AsyncCallbackHandler):
        async def on_chain_start(self, *_: Any, **__: Any) -> None:
            agent.drain()

    storage = open_storage(f"sqlite:///{tmp_path}/runs.db")
    if is_second:
        await Agent(ScriptedModel([answer("Fine.")]), storage=storage).start("How are you?", thread_id="t")
    agent = Agent(ScriptedModel([answer("Hello.")]), storage=storage)
    run = await agent.start("Say hello", thread_id="t", request_id="r", config={"callbacks": [Drains()]})
    assert (run.status, run.goal, run.answer) == ("running", "Say hello", "")
    other = Agent(ScriptedModel([answer("Hello.")]), storage=storage)
    run = await other.start("Say hello", thread_id="t", request_id="r")
    run = await other.resume(run) if run.status == "running" else run
    assert (run.status, run.answer, run.goal) == ("answered", "Hello.", "Say hello")


@pytest.mark.parametrize("verb", ["start", "submit"])
@pytest.mark.parametrize("end", ["drain", "crash"])
async def test_a_second_request_is_told_as_itself_wherever_its_process_stops(verb: str, end: str) -> None:
    """F4, C06: never as cancelled, nor as the request before it; the run that is returned is what `get` reads."""

    class Ends(Crash):
        def reach(self, boundary: str) -> None:
            self.trace.append(boundary)
            if len(self.trace) == at:
                if end == "crash":
                    raise Crashed(boundary)
                agent.drain()

    hello: Any = {"goal": "Say hello", "thread_id": "t", "request_id": "r"}
    for at in itertools.count(1):
        storage = open_storage("memory:")
        await Agent(ScriptedModel([answer("Fine.")]), storage=storage).start("How are you?", thread_id="t")
        agent = Agent(ScriptedModel([answer("Hello.")]), storage=crashing(storage, crash := Ends()))
        other = Agent(ScriptedModel([answer("Hello.")]), storage=storage)
        with suppress(StorageError, Crashed):
            if verb == "submit":
                await agent.submit(**hello)
            run = await (agent.run_submitted("t") if verb == "submit" else agent.start(**hello))
            seen = await other.get("t")
            assert (run.status, run.goal, run.answer) == (seen.status, "Say hello", seen.answer), at
        run = await other.start(**hello)
        assert (run.status in ("running", "queued", "answered"), run.goal) == (True, "Say hello"), (at, run.problem)
        run = run if run.outcome else await other.resume("t")
        said = [message.text for message in (await other.conversation("t")).messages]
        assert (run.answer, said) == ("Hello.", ["How are you?", "Fine.", "Say hello", "Hello."]), at
        if len(crash.trace) < at:
            break


async def test_a_new_goal_does_not_lose_an_open_question(storage: Storage) -> None:
    """C08: ThreadWaiting names what is pending; `restart` puts it away, and late answers to it are stale."""
    plans = [submit_plan([step("s1")]), submit_plan([step("s1", "other work")])]
    model = scripted(plans, {"s1": [said("s1")]})
    agent = Agent(model, storage=storage)
    first = await agent.start("do it", thread_id="t")
    with pytest.raises(ThreadWaiting, match="Shall I go ahead") as caught:
        await agent.start("do something else", thread_id="t")
    assert caught.value.pending == [first.pending[0]["id"]]
    second = await agent.start("do something else", thread_id="t", restart=True)
    assert (second.goal, second.status) == ("do something else", "waiting")
    assert second.pending[0]["plan"]["steps"][0]["content"] == "other work"
    await unchanged(agent, second, {first.pending[0]["id"]: "approve"})
    assert (await agent.resume("t", "approve")).status == "answered"
    model.assert_exhausted()


def resume_here(url: str, thread_id: str, id: str) -> None:
    """Approve in a process that knows nothing of the run."""
    run = wait(Agent(one_step(), storage=url).resume(thread_id, {id: "approve"}))
    assert (run.status, run.answer) == ("answered", "done")


async def test_another_process_resumes(tmp_path: Path) -> None:
    """C06: after a restart, with nothing but the storage and the thread's id."""
    storage = fresh_url("sqlite", tmp_path)
    run = await Agent(one_step(), storage=storage).start("do it")
    process = forks.Process(target=resume_here, args=(storage, run.thread_id, run.pending[0]["id"]))
    process.start()
    await asyncio.to_thread(process.join)
    assert process.exitcode == 0
    assert (await Agent(ScriptedModel(), storage=storage).get(run.thread_id)).status == "answered"


async def test_a_plain_answer_is_for_the_open_question_unless_another_is_named(storage: Storage) -> None:
    """Q22, W4, C06: equal texts mean the same, wherever they come from: "approve" approves what is open. A delivery
    that may be late names its question, by a run or by `question`, and then approves nothing else, by whichever agent.
    """
    outbox, model = Outbox(), sending(HI, call("send", to="bob", text="hi"))
    agent = Agent(model, [outbox.tool()], storage=storage)
    first = await agent.start("do it", thread_id="t")
    asked = first.pending[0]["id"]
    second = await agent.resume("t", "approve", question=asked)
    assert second.pending[0]["kind"] == "tool"
    other = Agent(model, [outbox.tool()], storage=storage)
    for late in ("approve", " Approve", {"type": "approve"}):
        await unchanged(agent, first, late, to_run=True)
        await unchanged(other, first, late, to_run=True)
        for deliver in (agent.resume, other.submit_answer):
            with pytest.raises(StaleAnswer):
                await deliver(first, late, question="")
            with pytest.raises(StaleAnswer) as refused:
                await deliver("t", late, question=asked)
            open_now = second.pending[0]["id"]
            assert f"resume('t', answer, question={open_now!r})" in str(refused.value)
            assert refused.value.pending == [open_now]
    assert outbox.sent == []
    assert (await agent.resume("".join("t"), "approve")).pending[0]["id"] != second.pending[0]["id"]
    assert len(outbox.sent) == 1
    assert (await other.graph.ainvoke(Command(resume="approve"), config("t")))["outcome"]["status"] == "completed"
    assert len(outbox.sent) == 2
    model.assert_exhausted()


async def test_a_request_that_is_sent_again_is_carried_out_once(storage: Storage) -> None:
    """C06: with the caller's id a second delivery begins nothing, while the run waits or works and when it ended."""
    outbox, model = Outbox(), sending(HI)
    agent = Agent(model, [outbox.tool()], storage=storage)
    first = await agent.start("do it", request_id="ticket-17")
    assert first.thread_id == "ticket-17"
    assert (await agent.start("do it", request_id="ticket-17")).pending[0]["id"] == first.pending[0]["id"]
    second = await agent.resume(first, "approve")
    ended = await agent.resume(second, "approve")
    for again in (agent.start("do it", request_id="ticket-17"), agent.start("do it", request_id="ticket-17")):
        assert await again == ended
    assert await agent.submit("do it", request_id="ticket-17") == "ticket-17"
    assert (await agent.info("ticket-17")).status == "completed"
    assert len(outbox.sent) == 1
    model.assert_exhausted()


async def test_a_request_that_is_sent_again_gets_its_own_run_back(storage: Storage) -> None:
    """C06: not that of the request after it: while that one waits, is queued or has ended, or if it took its place."""
    plan = submit_plan([{"content": "Say it", "done_when": ["said"]}])
    model = ScriptedModel(roles={"triage": [answer("rain"), plan, answer("hello")]}, strict=False)
    async with Agent(model, storage=storage) as agent:

        async def deliver(goal: str, id: str, **options: Any) -> tuple[Any, ...]:
            run = await agent.start(goal, request_id=id, thread_id="chat", **options)
            return run.goal, run.status, run.answer, run.receipt

        first = await deliver("Weather?", "w1")
        assert (await deliver("Price?", "p1"))[1] == "waiting"
        assert await deliver("Weather?", "w1") == first
        cancelled = await agent.cancel("chat")
        second = (cancelled.goal, cancelled.status, cancelled.answer, cancelled.receipt)
        assert [await deliver("Weather?", "w1"), await deliver("Price?", "p1")] == [first, second]
        await agent.submit("Never begun", request_id="n1", thread_id="chat")
        assert [await deliver("Weather?", "w1"), await deliver("Price?", "p1")] == [first, second]
        last = await deliver("Hello?", "h1", restart=True)
        assert last[:3] == ("Hello?", "answered", "hello")
        assert [await deliver("Weather?", "w1"), await deliver("Price?", "p1")] == [first, second]
        assert await deliver("Hello?", "h1") == last
        displaced = await agent.start("Never begun", request_id="n1", thread_id="chat")
        assert (displaced.goal, displaced.status) == ("Never begun", "cancelled")
        assert "another request took its place" in displaced.problem
    assert len(model.requests) == 3


async def test_a_request_whose_place_another_took_is_cancelled_when_it_is_sent_again(storage: Storage) -> None:
    """C06: also one that waited, was stopped, or got words in between; who asks for it again does not wait for ever."""
    plan = submit_plan([{"content": "Say it", "done_when": ["said"]}])
    async with Agent(
        ScriptedModel(roles={"triage": [plan, plan, answer("two")]}, strict=False), storage=storage
    ) as agent:
        await agent.start("one", request_id="a1", thread_id="t")
        await agent.resume("t", "say it louder")
        assert (await agent.start("two", request_id="a2", thread_id="t", restart=True)).answer == "two"
        again = await agent.start("one", request_id="a1", thread_id="t")
        assert (again.goal, again.status, again.pending) == ("one", "cancelled", ())


async def test_a_request_that_had_ended_before_it_was_replaced_comes_back_as_it_ended(storage: Storage) -> None:
    """C06: with its answer and receipt, though the conversation goes on from before it; also one that got words."""
    replies = [answer("zero"), ask_user("Which?"), answer("one"), answer("two"), answer("three")]
    async with Agent(ScriptedModel(roles={"triage": replies}, strict=False), storage=storage) as agent:
        for number in range(3):
            run = await agent.start(f"say {number}", request_id=f"r{number}", thread_id="t")
            if run.pending:
                await agent.graph.ainvoke({"messages": "blue"}, {"configurable": {"thread_id": "t"}})
        instead = await agent.start("say 3", request_id="r3", instead_of="r1", thread_id="t")
        assert instead.answer == "three"
        for number, said in enumerate(("zero", "one", "two", "three")):
            again = await agent.start(f"say {number}", request_id=f"r{number}", thread_id="t")
            assert (again.request, again.answer, again.status) == (f"r{number}", said, "answered")
            assert again.receipt


async def test_an_empty_request_id_is_refused() -> None:
    """C06: two goals whose ids are blank are refused; otherwise each delivery would begin a thread of its own."""
    agent = Agent(sending(HI), [Outbox().tool()], storage="memory:")
    for begin in (agent.submit, agent.start, agent.submit):
        with pytest.raises(ConfigError, match="request_id is empty"):
            await begin("do it", request_id="")
    assert not await agent.threads()


async def test_a_queued_request_is_known_by_its_id(storage: Storage) -> None:
    """C06: what is submitted twice at once, or while a worker carries it out, is queued once."""
    agent = Agent(sending(HI), [Outbox().tool()], storage=storage)
    threads = await asyncio.gather(*(agent.submit("do it", thread_id="desk", request_id="17") for _ in range(3)))
    assert threads == ["desk"] * 3
    assert (await agent.info("desk")).status == "queued"
    with pytest.raises(ThreadWaiting):
        await agent.submit("do it", thread_id="desk", request_id="18")
    run = await agent.run_submitted("desk")
    assert run.status == "waiting"
    assert await agent.submit("do it", thread_id="desk", request_id="17") == "desk"
    assert (await agent.get("desk")).pending == run.pending


@pytest.mark.parametrize("verb", ["start", "submit"])
async def test_a_request_that_another_one_displaced_is_known_by_its_id(verb: str, storage: Storage) -> None:
    """C06: one that was closed before it began, and two whose place another one took, are not carried out later."""
    model = ScriptedModel(roles={"triage": [answer(text) for text in ("one", "two", "three", "four", "five")]})
    async with Agent(model, storage=storage) as agent:
        begin = getattr(agent, verb)

        async def all_known(*ids: str) -> None:
            calls = len(model.requests)
            for id in ids:
                await begin(f"goal {id}", thread_id="t", request_id=id)
                with pytest.raises(ConfigError, match=f"request_id '{id}' was given before"):
                    await begin("another goal", thread_id="t", request_id=id)
            assert len(model.requests) == calls

        await agent.submit("goal 1", thread_id="t", request_id="1")
        await begin("goal 2", thread_id="t", request_id="2", restart=True)
        await agent.run_submitted("t")
        await agent.submit("goal 3", thread_id="t", request_id="3")
        await begin("goal 4", thread_id="t", request_id="4", restart=True)
        await agent.run_submitted("t")
        await all_known("1", "2", "3", "4")
        await begin("goal 5", thread_id="t", request_id="5", instead_of="2")
        await agent.run_submitted("t")
        assert [message.text for message in (await agent.conversation("t")).messages][::2] == ["goal 5"]
        await all_known("1", "2", "3", "4", "5")
        assert (await agent.get("t")).goal == "goal 5"


async def test_requests_that_were_cancelled_before_they_began_stand_among_the_others(storage: Storage) -> None:
    """F08: two of them take nothing from the answer before them, and each comes back as what it was; another request
    takes the place of one like that of any other."""

    async def known() -> list[tuple[str, str]]:
        runs = [await agent.start(f"goal {id}", thread_id="t", request_id=id) for id in "1234"]
        return [(run.status, run.goal) for run in runs]

    async with Agent(ScriptedModel(roles={"triage": lambda *_: answer("ok")}), storage=storage) as agent:
        first = await agent.start("goal 1", thread_id="t", request_id="1")
        for id in "23":
            await agent.submit(f"goal {id}", thread_id="t", request_id=id)
            await agent.cancel("t")
        again = await agent.start("goal 1", thread_id="t", request_id="1")
        assert (again.answer, again.receipt) == ("ok", first.receipt)
        await agent.start("goal 4", thread_id="t", request_id="4")
        statuses = ["answered", "cancelled", "cancelled", "answered"]
        assert await known() == [(status, f"goal {id}") for id, status in enumerate(statuses, 1)]
        await agent.start("goal 5", thread_id="t", instead_of="3")
        assert (await agent.info("t")).goals == ("goal 1", "goal 2", "goal 5")
        assert (await known())[0] == ("answered", "goal 1")
        await agent.start("goal 6", thread_id="t", instead_of="2")
        told = [message.text for message in (await agent.conversation("t")).messages if message.type == "human"]
        assert told == ["goal 1", "goal 6"]
        await agent.submit("goal 1", thread_id="u", request_id="1")
        await agent.cancel("u")
        await agent.start("goal 2", thread_id="u")
        assert (await agent.start("goal 3", thread_id="u", instead_of="1")).answer == "ok"
        assert (await agent.info("u")).goals == ("goal 3",)
        told = [message.text for message in (await agent.conversation("u")).messages]
        assert told == ["goal 3", "ok"]


@pytest.mark.parametrize("is_followed", [False, True])
@pytest.mark.parametrize("verb", ["start", "submit"])
async def test_a_request_that_never_began_is_replaced_wherever_the_process_dies(verb: str, is_followed: bool) -> None:
    """C06: by one that is sent again after a crash at any write; told as itself until it ends."""
    model = ScriptedModel(roles={"triage": lambda *_: answer("ok")})

    for at in itertools.count(1):
        storage = open_storage("memory:")
        agent = Agent(model, storage=storage)
        await agent.submit("goal 1", thread_id="t", request_id="1")
        await agent.cancel("t")
        if is_followed:
            await agent.start("goal 2", thread_id="t")
        third: Any = {"goal": "goal 3", "thread_id": "t", "request_id": "3", "instead_of": "1"}
        with suppress(StorageError, Crashed):
            dying = Agent(model, storage=crashing(storage, crash := Crash(at)))
            await getattr(dying, verb)(**third)
            await dying.resume("t")
        run = await agent.start(**third)
        assert (run.status in ("running", "queued", "answered"), run.goal) == (True, "goal 3"), (at, run.problem)
        run = run if run.outcome else await agent.resume("t")
        said = [message.text for message in (await agent.conversation("t")).messages]
        assert (run.answer, said, (await agent.info("t")).goals) == ("ok", ["goal 3", "ok"], ("goal 3",)), at
        if len(crash.trace) < at:
            break


@pytest.mark.parametrize("undone", [False, True])
async def test_what_a_request_did_whose_place_was_taken_is_said(undone: bool, tmp_path: Path) -> None:
    """F08: by the receipt and its file, of each request that left with it; not what was undone, and
    not by a later request."""

    def send(to: str) -> str:
        """Send."""
        return f"sent to {to}"

    plan = submit_plan([step("s1", tools=["send", "write_file"])], speak="")
    work = [call("send", to="a"), call("write_file", path="a.txt", content="1"), finish_step("done", "s1.1")]
    model = ScriptedModel(
        roles={
            "triage": [plan, plan, answer("no"), answer("later")],
            "execute": [*work, call("send", to="b"), finish_step("done", "s1.1")],
        }
    )
    tools = [send, *workspace_tools(tmp_path)]
    async with Agent(
        model, tools, storage="memory:", effects={"send": "write"}, settings={"confirm": "never", "approvals": "never"}
    ) as agent:
        first = await agent.start("one", thread_id="t", request_id="1")
        assert "earlier" not in first.receipt
        if undone:
            await agent.undo("t")
        await agent.start("two", thread_id="t", request_id="2", instead_of="1")
        third = await agent.start("three", thread_id="t", request_id="3", instead_of="2")
        rows = [(row["id"], row["tool"], row["result"]) for row in third.receipt["earlier"]]
        assert rows == [
            ("1:s1", "send", "done"),
            *([] if undone else [("1:s1", "write_file", "done")]),
            ("2:s1", "send", "done"),
        ]
        assert '"kind":"earlier"' in await export_receipt(agent, "t")
        later = await agent.start("four", thread_id="t")
        assert "earlier" not in later.receipt


def _paying_twice(paid: list[int], second: Any) -> tuple[ScriptedModel, Any]:
    """Return a model that pays in its first step and does `second` in the next, and again; and the tool."""

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    plan = submit_plan([step("s1", tools=["pay"]), step("s2")], speak="")
    work = [call("pay", amount=4), finish_step("paid", "s1.1"), second, call("pay", amount=4)]
    roles: Any = {"triage": [plan, plan, answer("three"), answer("four")], "execute": work}
    return ScriptedModel(roles=roles, strict=False), pay


UNASKED: Any = {"confirm": "never", "approvals": "never"}


@pytest.mark.parametrize("way", ["start", "submit", "cancel"])
async def test_what_a_request_did_that_another_closed_is_asked_about_and_said(way: str, storage: Storage) -> None:
    """E04, F08: a write of a request that was open as another took its place is not made again unasked, and the next
    receipt names it, also if the requests between were closed too."""
    paid = list[int]()
    model, pay = _paying_twice(paid, ask_user("Which?"))
    async with Agent(model, [pay], storage=storage, effects={"pay": "write"}, settings=UNASKED) as agent:
        first = await agent.start("one", thread_id="t", request_id="1")
        assert (first.status, paid) == ("waiting", [4])
        if way == "start":
            run = await agent.start("two", thread_id="t", restart=True)
        else:
            await agent.submit("two", thread_id="t", restart=True)
            run = await (agent.cancel if way == "cancel" else agent.run_submitted)("t")
        if way != "cancel":
            assert (run.pending[0]["kind"], paid) == ("effect", [4])
            run = await agent.start("three", thread_id="t", restart=True)
        rows = [(row["id"], row["tool"], row["result"]) for row in run.receipt["earlier"]]
        assert rows == [("1:s1", "pay", "done")]
        with pytest.raises(DoneWhenError, match="no receipt: another request took its place"):
            await export_receipt(agent, "t", request="1")
        if way == "cancel":
            run = await agent.start("two again", thread_id="t")
            assert (run.pending[0]["kind"], paid) == ("effect", [4])
        else:
            assert "earlier" not in (await agent.start("four", thread_id="t")).receipt


async def test_what_a_request_did_that_a_blank_message_closed_is_asked_about_and_said() -> None:
    """E04, F08: as with `restart=True`, where LangGraph alone runs the graph and the request was stopped at work."""
    paid, at_work = list[int](), asyncio.Event()

    async def wait_for_ever(*_: Any) -> Any:
        at_work.set()
        await asyncio.Event().wait()

    model, pay = _paying_twice(paid, wait_for_ever)
    graph = build_graph(model, [pay], effects={"pay": "write"}).compile(InMemorySaver(), store=InMemoryStore())
    settings = Settings(**UNASKED)
    first = asyncio.ensure_future(graph.ainvoke({"messages": "one"}, config("t"), context=settings))
    await at_work.wait()
    first.cancel()
    await asyncio.wait([first])
    blank = await graph.ainvoke({"messages": " "}, config("t"), context=settings)
    assert blank["outcome"]["code"] == "bad_goal"
    assert [row["id"] for row in blank["outcome"]["receipt"]["earlier"]] == ["1:s1"]
    await graph.ainvoke({"messages": "two"}, config("t"), context=settings)
    assert (await graph.aget_state(config("t"))).values["pending"]["kind"] == "effect"
    assert paid == [4]


async def test_what_was_done_in_a_request_whose_place_was_taken_is_said_in_its_order() -> None:
    """F08: the oldest first, also of ten steps and more, and of two calls in one step."""

    def send(to: str) -> str:
        """Send."""
        return f"sent to {to}"

    last = {f"s{n}": [f"s{n - 1}"] for n in range(2, 12)}
    plan = submit_plan([step(f"s{n}", tools=["send"], depends_on=last.get(f"s{n}", [])) for n in range(1, 12)])
    sent = [[f"{n}y", f"{n}x"] for n in range(1, 12)]
    work = [each for pair in sent for each in (*(call("send", to=to) for to in pair), finish_step("sent", "s1.1"))]
    model = ScriptedModel(roles={"triage": [plan, answer("no")], "execute": work, "deliver": ["Done."]})
    settings = {"confirm": "never", "approvals": "never", "verification": "claimed"}
    async with Agent(model, [send], storage="memory:", settings=settings) as agent:
        await agent.start("one", thread_id="t", request_id="1")
        second = await agent.start("two", thread_id="t", request_id="2", instead_of="1")
    assert [row["arguments"]["to"] for row in second.receipt["earlier"]] == [to for pair in sent for to in pair]


async def test_what_a_displaced_request_may_have_done_is_not_said_to_be_done() -> None:
    """F08: what was cut off, or came back as a failure, is named in words of its own beside what is done; a call that
    cannot have had an effect is not named."""
    plan = submit_plan([step(f"s{n}", tools=["send"], depends_on=[]) for n in (1, 2, 3)], speak="")

    def send(to: str) -> Any:
        """Send."""
        if to == "nobody":
            raise ToolException("there is no such address")
        if to in ("b", "c"):
            raise TimeoutError("lost the connection")
        return f"sent to {to}"

    def to(person: str) -> Any:
        turns = [("sent to", finish_step("done", "s1.2")), ("no such", call("send", to=person))]
        first = call("send", to="nobody")
        return lambda messages, _: next((turn for words, turn in turns if words in str(messages)), first)

    work = {f"s{n}": to(person) for n, person in enumerate("abc", 1)}
    model = ScriptedModel(roles={"triage": [plan, answer("later")], "execute": work, "deliver": lambda *_: "Done."})
    settings: Any = {"confirm": "never", "approvals": "never"}
    async with Agent(model, [send], storage="memory:", effects={"send": "write"}, settings=settings) as agent:
        run = await agent.start("one", thread_id="t", request_id="1")
        await agent.cancel(run)
        await agent.start("two", thread_id="t", instead_of="1")
        done, unknown = (await agent.conversation("t")).displaced.splitlines()
    assert done.startswith("Done earlier")
    assert done.endswith(': send(to="a")')
    assert unknown.startswith("It is not known whether")
    both = ['send(to="b")', 'send(to="c")']  # side by side, in either order
    assert unknown.endswith((": " + ", ".join(both), ": " + ", ".join(both[::-1])))


async def test_what_cannot_be_steered_says_why() -> None:
    """C04: a request that has not begun, submitted or before its first node, of which nobody asked an answer; and an
    answer beside other words, whether the run waits or was stopped."""
    async with Agent(scripted(submit_plan([step("s1")])), storage="memory:") as agent:
        await agent.submit("do it", thread_id="t")
        with pytest.raises(
            StaleAnswer, match=r"has no plan that could be changed: it is queued; resume\('t'\) begins it"
        ):
            await agent.resume("t", steer="in euro")
        waits = await agent.resume("t")
        await agent.graph.ainvoke({"messages": "do it"}, config("v"), interrupt_before=["receive"])
        with pytest.raises(StaleAnswer, match=r"has no plan that could be changed; resume\('v'\) goes on"):
            await agent.resume("v", steer="in euro")
        async with agent.stream("do it", thread_id="u") as stream:
            async for _ in stream:
                break
        for run in (waits, await agent.get("u")):
            with pytest.raises(ConfigError, match="an answer to a run that waits, or steer= for one that was stopped"):
                await agent.resume(run, "approve", steer="in euro")
            assert (await agent.get(run)).status == run.status


def stopping(*replies: Any) -> Agent:
    """An agent that is stopped while its planner writes the first reply."""

    def reply(*_: Any) -> Any:
        if len(left) == len(replies):
            agent.drain()
        return left.pop(0)

    left = [*replies]
    model = ScriptedModel(
        roles={"triage": reply, "plan": reply, "execute": [HI, finish_step("sent", "s1.1")]}, strict=False
    )
    agent = Agent(model, [Outbox().tool()], storage="memory:", settings={"approvals": "plan"})
    return agent


async def give_words(agent: Agent, words: str, *, typed: bool) -> Run:
    """Give words to the stopped run of the thread `t`, as they are typed into a chat or by `resume`."""
    if not typed:
        return await agent.resume("t", steer=words)
    await agent.graph.ainvoke({"messages": [("user", words)]}, config("t"))
    return await agent.get("t")


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("asked", [submit_plan([step("s1", tools=["send"])]), ask_user("To bob, too?", ["yes", "no"])])
async def test_words_to_a_stopped_run_answer_nothing_that_nobody_was_shown(asked: Any, typed: bool) -> None:
    """U4: stopped before its plan or its question was shown, a run plans anew with “yes, do it”, and shows what it has
    then; “continue” shows what there was. Only an answer to that counts."""
    anew = submit_plan([step("s1", "write to ann", tools=["send"])])
    for words in ("yes, do it", "continue"):
        agent = stopping(asked, anew)
        stopped = await agent.start("Write to ann", thread_id="t")
        assert (stopped.status, stopped.pending) == ("running", ())
        run = await give_words(agent, words, typed=typed)
        assert (run.status, run.goal) == ("waiting", "Write to ann")
        is_new = run.pending[0]["kind"] == "plan" and "write to ann" in str(run)
        assert is_new is (words != "continue")
        assert not (await agent.conversation("t")).observations
        conversation = (await agent.graph.aget_state(config("t"))).values["messages"]
        called = [call["id"] for each in conversation if each.type == "ai" for call in each.tool_calls]
        assert [each.tool_call_id for each in conversation if each.type == "tool"] == called[:-1]
        if run.pending[0]["kind"] == "plan":
            assert (await agent.resume(run, "yes")).status == "completed"


async def test_words_to_a_run_that_was_stopped_at_its_end_do_not_become_its_goal() -> None:
    """U4: stopped when its answer was there, it has given it; words that come after that are refused, and change no
    goal."""
    agent = stopping(answer("The Rhine."), answer("Der Rhein."))
    run = await agent.start("Which river?", thread_id="t")
    with pytest.raises(StaleAnswer, match="was not stopped: it is answered"):
        await agent.resume("t", steer="in German, please")
    assert (run.status, run.goal, run.answer) == ("answered", "Which river?", "The Rhine.")
    assert await agent.get("t") == run


@pytest.mark.parametrize("typed", [False, True])
async def test_blank_words_change_nothing_of_a_stopped_run(typed: bool) -> None:
    """U4, C04: they are refused, and what was planned stays."""
    agent = stopping(submit_plan([step("s1")]))
    await agent.start("Work", thread_id="t")
    with pytest.raises(GoalError):
        await give_words(agent, "  ", typed=typed)
    assert (await agent.resume("t")).pending[0]["kind"] == "plan"


async def test_another_goal_under_a_known_id_is_refused(storage: Storage) -> None:
    """C06: whoever gives two goals one id is told the first of them, while that is queued, waits, works and when it has
    ended; the same goal with other white space, or with an image, is a second delivery. Another context is another
    request, too, until a later request of the thread has taken its place."""
    image = {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}
    goal = [{"type": "text", "text": "do it"}, image]
    agent = Agent(sending(HI), [Outbox().tool()], storage=storage)

    async def send_both() -> None:
        for deliver in (agent.submit, agent.start):
            with pytest.raises(ConfigError, match="request_id 'may/1' was given before, with the goal 'do it'"):
                await deliver("do something else", request_id="may/1")
            with pytest.raises(ConfigError, match="request_id 'may/1' was given before, with another context: "):
                await deliver(goal, request_id="may/1", context={"order": 2})
            for again in (goal, "  do it\n"):
                await deliver(again, request_id="may/1")
                await deliver(again, request_id="may/1", context={"order": 1})

    await agent.submit(goal, request_id="may/1", context={"order": 1})
    await send_both()
    await agent.run_submitted("may/1")
    assert (await agent.get("may/1")).status == "waiting"
    await send_both()
    async with storage.session("may/1"):  # as another process that works on it
        await send_both()
    await agent.cancel("may/1")
    await send_both()
    assert len(await agent.threads()) == 1
    await agent.submit("do something else", request_id="may/2", thread_id="may/1")
    await agent.submit(goal, request_id="may/1", context={"order": 2})  # of this one the thread has the context no more


async def test_an_answer_goes_to_the_workers_that_have_the_tools(storage: Storage) -> None:
    """C06: an answer submitted by an agent with another queue leaves the run to its own workers."""
    outbox = Outbox()
    desk = Agent(sending(HI), [outbox.tool()], storage=storage, options=AgentOptions(queue="desk"))
    await desk.submit("do it", thread_id="t")
    run = await desk.run_submitted("t")
    await Agent("demo", storage=storage).submit_answer(run, "approve")
    assert (await desk.info("t")).queue == "desk"
    assert (await desk.run_submitted("t")).pending[0]["kind"] == "tool"
    waiting = await Agent(one_step(), storage=storage, options=AgentOptions(queue="desk")).start("do it", thread_id="u")
    await Agent("demo", storage=storage).submit_answer(waiting, "approve")
    assert (await desk.info("u")).queue == "desk"


async def test_two_deliveries_of_a_request_at_once_are_one_run(storage: Storage) -> None:
    """C06: the delivery that finds the thread held waits until the other one has stored the request."""
    outbox = Outbox()
    agent = Agent(sending(HI), [outbox.tool()], storage=storage)
    async with storage.session("desk"):  # as another process that has not stored it yet
        late = asyncio.create_task(agent.submit("do it", thread_id="desk", request_id="17"))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(late), 0.3)
    await agent.submit("do it", thread_id="desk", request_id="17")
    assert await late == "desk"
