"""`agent.graph`: every verb of LangGraph, async and sync, on every storage."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from donewhen import Agent, Settings, StaleAnswer, ThreadBusy, UnknownThread
from donewhen.testing import ScriptedModel, answer, ask_user, call, submit_plan
from tests.kit.runs import config, one_step, said, scripted, step, two_questions
from tests.kit.storage.cases import Storage

ALONE = Settings(confirm="never")


async def test_asynchronous_verbs(storage: Storage) -> None:
    """§9: ainvoke, astream, aget_state, aget_state_history, aupdate_state; as if compiled with a saver of one's own."""
    model = one_step()
    graph = Agent(model, storage=storage).graph
    out = await graph.ainvoke({"messages": "do it"}, config("t"))
    (interrupt,) = out["__interrupt__"]
    assert interrupt.value["action_requests"][0]["name"] == "confirm_plan"
    state = await graph.aget_state(config("t"))
    assert state.next == ("confirm",)
    assert [i.id for i in state.interrupts] == [interrupt.id]
    history = [snapshot async for snapshot in graph.aget_state_history(config("t"))]
    assert history[0].config == state.config
    assert len(history) >= 4
    await graph.aupdate_state(config("t"), {"language": "de"})
    assert (await graph.aget_state(config("t"))).values["language"] == "de"
    await graph.ainvoke(None, config("t"))
    parts = [part async for part in graph.astream(Command(resume="approve"), config("t"), stream_mode="updates")]
    assert [next(iter(part)) for part in parts] == ["confirm", "advance", "execute", "advance", "deliver"]
    assert (await graph.aget_state(config("t"))).values["outcome"]["status"] == "answered"
    model.assert_exhausted()


def test_synchronous_verbs(storage: Storage) -> None:
    """§9: invoke, stream, get_state, get_state_history, update_state: the same results without a loop."""
    model = one_step()
    graph = Agent(model, storage=storage).graph
    out = graph.invoke({"messages": "do it"}, config("t"))
    assert out["__interrupt__"][0].value["kind"] == "plan"
    state = graph.get_state(config("t"))
    assert state.next == ("confirm",)
    assert next(iter(graph.get_state_history(config("t")))).config == state.config
    graph.update_state(config("t"), {"language": "de"})
    graph.invoke(None, config("t"))
    parts = list(graph.stream(Command(resume="approve"), config("t"), stream_mode="updates"))
    assert [next(iter(part)) for part in parts] == ["confirm", "advance", "execute", "advance", "deliver"]
    assert graph.get_state(config("t")).values["outcome"]["status"] == "answered"
    model.assert_exhausted()


PLAN_AND_QUESTION = (submit_plan([step("s1")]), ask_user("Which?"))


@pytest.mark.parametrize(
    ("decisions", "answers", "kind"),
    [
        (PLAN_AND_QUESTION[1:], [], "question"),
        (PLAN_AND_QUESTION[::-1], ["the first"], "plan"),
        (PLAN_AND_QUESTION, ["do it otherwise"], "question"),
        ((*PLAN_AND_QUESTION, PLAN_AND_QUESTION[0]), ["do it otherwise", "the first"], "plan"),
    ],
    ids=["question", "plan after a question", "question about a plan", "plan after a question about a plan"],
)
async def test_an_update_without_a_node_keeps_the_pause(decisions: Any, answers: list[str], kind: str) -> None:
    """§9: whatever planning asks and after which answer, `update_state` need not name a node; the pause stays open."""
    agent = Agent(scripted(decisions), storage="memory:")
    run = await agent.start("do it", thread_id="t")
    for each in answers:
        run = await agent.resume("t", each)
    await agent.graph.aupdate_state(config("t"), {"language": "de"})
    after = await agent.resume("t")
    assert (after.status, [pause["id"] for pause in after.pending]) == ("waiting", [run.pending[0]["id"]])
    assert after.pending[0]["kind"] == kind


async def test_batches(storage: Storage) -> None:
    """§9: several threads at once; one thread twice in a batch is one worker too many."""
    model = ScriptedModel(roles={"triage": lambda *_: answer("Hi.")})
    graph = Agent(model, storage=storage).graph
    hello = [{"messages": "hello"}] * 4
    outs = await graph.abatch(hello, [config(f"a{n}") for n in range(4)])
    assert [out["outcome"]["text"] for out in outs] == ["Hi."] * 4
    outs = await asyncio.to_thread(graph.batch, hello, [config(f"s{n}") for n in range(4)])
    assert [out["outcome"]["text"] for out in outs] == ["Hi."] * 4
    twice = await graph.abatch(hello[:2], [config("same")] * 2, return_exceptions=True)
    assert sorted(type(out).__name__ for out in twice) == ["ThreadBusy", "dict"]


async def test_parallel_steps_write_at_once(storage: Storage) -> None:
    """R02: steps side by side share one session; neither of them finds the thread busy."""
    steps = [step(f"s{n}", depends_on=[]) for n in range(1, 5)]
    model = scripted(submit_plan(steps), {f"s{n}": [said(f"s{n}")] for n in range(1, 5)})
    graph = Agent(model, storage=storage).graph
    out = await graph.ainvoke({"messages": "do it"}, config("t"), context=ALONE)
    assert out["outcome"]["status"] == "answered"
    model.assert_exhausted()


async def test_a_run_of_the_graph_is_a_run_of_the_agent(storage: Storage) -> None:
    """§9: one may begin and the other go on; lists and receipts know it all."""
    agent = Agent(two_questions(), storage=storage)
    await agent.graph.ainvoke({"messages": "paint it"}, config("t"), context=ALONE)
    assert [(info.goal, info.status) for info in await agent.threads()] == [("paint it", "waiting")]
    run = await agent.resume("t", {"s2.q1": "large"})
    out = await agent.graph.ainvoke(Command(resume={"s1.q1": "red"}), config("t"))
    assert out["outcome"]["status"] == "answered"
    assert (await agent.info("t")).status == "answered"
    assert len(((await agent.receipt("t")) or {})["questions"]) == 2
    assert run.thread_id == "t"


async def test_settings_of_the_agent_hold_and_stay() -> None:
    """§9: a new run has the agent's settings, or those given; whoever goes on with it, however, goes on with them."""
    asks = submit_plan([step("s1")])
    model = scripted([asks, asks, asks], {"s1": [said("s1"), said("s1")]}, ["Done.", "Done."])
    agent = Agent(model, storage="memory:", settings=ALONE)
    out = await agent.graph.ainvoke({"messages": "do it"}, config("a"))
    assert out["outcome"]["status"] == "answered"
    out = await agent.graph.ainvoke({"messages": "do it"}, config("b"), context={"confirm": "always", "max_steps": 1})
    assert out["__interrupt__"][0].value["kind"] == "plan"
    too_long = {"type": "edit", "plan": {"title": "Long", "steps": ["one", "two"]}}
    assert "at most 1" in (await agent.resume("b", too_long)).problem
    out = await agent.graph.ainvoke(Command(resume=too_long), config("b"))
    assert "at most 1" in out["__interrupt__"][0].value["problem"]
    assert (await agent.resume("b", "approve")).status == "answered"
    started = await agent.start("do it", settings={"confirm": "always", "max_steps": 1})
    out = await agent.graph.ainvoke(Command(resume=too_long), config(started.thread_id))
    assert "at most 1" in out["__interrupt__"][0].value["problem"]


async def test_resume_is_strict_here_too(storage: Storage) -> None:
    """C04, F3: unknown threads, stale interrupts, answers to nothing: refused, and no checkpoint is written."""
    graph = Agent(one_step(), storage=storage).graph
    with pytest.raises(UnknownThread):
        await graph.ainvoke(Command(resume="approve"), config("t"))
    out = await graph.ainvoke({"messages": "do it"}, config("t"))
    before = await graph.aget_state(config("t"))
    for late in ({"0" * 32: "approve"}, {"s1.q1": "x"}, {"type": "approve", "revision": "0123456789abcdef"}):
        with pytest.raises(StaleAnswer):
            await graph.ainvoke(Command(resume=late), config("t"))
        with pytest.raises(StaleAnswer):
            await asyncio.to_thread(graph.invoke, Command(resume=late), config("t"))
    assert (await graph.aget_state(config("t"))).config == before.config
    out = await graph.ainvoke(Command(resume={out["__interrupt__"][0].id: "approve"}), config("t"))
    assert out["outcome"]["status"] == "answered"
    with pytest.raises(StaleAnswer):
        await graph.ainvoke(Command(resume="approve"), config("t"))


async def test_a_verb_holds_the_thread() -> None:
    """R04: while a stream of the graph is open, others are refused; closing it frees the thread."""
    agent = Agent(one_step(), storage="memory:")
    stream = agent.graph.astream({"messages": "do it"}, config("t"), stream_mode="updates")
    await anext(stream)
    with pytest.raises(ThreadBusy):
        await agent.graph.aupdate_state(config("t"), {"language": "en"})
    with pytest.raises(ThreadBusy):
        await agent.resume("t")
    await stream.aclose()  # type: ignore[attr-defined]
    assert (await agent.resume("t")).status == "waiting"


async def test_inside_another_graph() -> None:
    """§9: as a node of somebody else's graph it uses that graph's checkpointer, and pauses with it."""
    outer = StateGraph(MessagesState)
    outer.add_node("work", Agent(one_step(), storage="memory:").graph)
    outer.add_edge(START, "work")
    outer.add_edge("work", END)
    graph = outer.compile(checkpointer=InMemorySaver())
    out = await graph.ainvoke({"messages": "do it"}, config("t"))
    assert out["__interrupt__"][0].value["kind"] == "plan"
    out = await graph.ainvoke(Command(resume="approve"), config("t"))
    assert isinstance(out["messages"][-1], AIMessage)
    assert out["messages"][-1].text == "done"


@pytest.mark.parametrize("way", ["ainvoke", "invoke"])
async def test_inside_another_graph_an_agent_keeps_its_settings(way: str) -> None:
    """Issue 42: each node is as strict as its agent, whatever the others are; before, both had only the defaults."""
    hasty = Agent(one_step(), settings={"confirm": "never"}, storage="memory:")
    looked: list[str] = []

    def look() -> str:
        """Look."""
        looked.append("looked")
        return "seen"

    model = ScriptedModel([call("look"), answer("I may not look.")])
    blind: Any = {"profile": {"forbidden_tools": ["look"]}}
    strict = Agent(model, [look], effects={"look": "read"}, settings=blind, storage="memory:")
    outer = StateGraph(MessagesState)
    for node, agent in (("hasty", hasty), ("strict", strict)):
        outer.add_node(node, agent.graph)
        outer.add_edge(START, node)
    graph = outer.compile(checkpointer=InMemorySaver())
    if way == "invoke":
        out = await asyncio.to_thread(graph.invoke, {"messages": "do it"}, config("t"))
    else:
        out = await graph.ainvoke({"messages": "do it"}, config("t"))
    assert "__interrupt__" not in out
    assert {"done", "I may not look."} <= {message.text for message in out["messages"]}
    assert looked == []
