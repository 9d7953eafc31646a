"""What the own `interrupt` of an executor's graph or of a tool returns: what LangGraph alone would hand it."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from donewhen import Agent, Run
from donewhen.state.people.answers import Answer
from donewhen.testing import call, finish_step
from tests.kit.flows import FREE, one_step
from tests.kit.pauses import pending, read_answer
from tests.kit.runs import last_seen

IDIOMS: list[Any] = [
    True, False, 0, 2.5, "", "yes", "no", [{"type": "accept", "args": None}], ["a"], {}, {"type": "reject"},
    {"approved": False}, {"data": [1, {"deep": [None]}]}, {"id": 7, "answers": {}},
    {"answer": "no", "answered_by": "ann"}, None,
]  # fmt: skip
"""What programs ask of an answer: whether it is true, its `["type"]`, its `[0]["args"]`, its keys."""
OTHERS: list[Any] = [
    1, " spaced\n", "0", "[1]", '{"type": "approve"}', "a [link](x)", [], [1, 2], [True],
    [{"type": "response", "args": "x"}],
    [{"type": "text", "text": "x"}], {"type": "accept"}, {"type": "ignore"}, {"type": "reject", "message": "no"},
    {"type": "edit", "args": {"a": 1}}, {"approved": True}, {"text": "hi"}, {"resume": True},
    {"answers": {"size": "L"}},
    {"steps": [{}]}, {"id": "x1", "type": "accept"}, {"revision": "abc", "decision": "cancel"}, {"action": "cancel"},
    {"cancel": False}, {"decisions": [{"type": "approve"}, {"type": "reject"}]}, {"decisions": [{"type": "approve"}]},
]  # fmt: skip
WAYS = ["graph", "graph with a saver", "tool", "async tool", "graph within a tool"]


def asking(got: list[Any], question: Any, times: int = 1) -> Callable[[Any], dict[str, Any]]:
    """A node that asks, keeps what it is given, and opens only for what is true."""

    def node(state: Any) -> dict[str, Any]:
        given = [interrupt(question) for _ in range(times)]
        got.extend(given)
        return {"messages": [AIMessage(f"deleted: {bool(given[-1])}")]}

    return node


def graph_of(node: Any, saver: Any = None) -> Any:
    return StateGraph(MessagesState).add_node("ask", node).add_edge(START, "ask").compile(checkpointer=saver)


def agent_of(way: str, got: list[Any], question: Any = "Delete 3 rows?", times: int = 1) -> Agent:
    """An agent with one step, whose executor or tool asks."""
    node = asking(got, question, times)

    def use(what: str) -> str:
        """Use it."""
        return str(node({})["messages"][0].text)

    async def use_it(what: str) -> str:
        """Use it."""
        if way == "graph within a tool":
            return str((await graph_of(node).ainvoke({"messages": []}))["messages"][-1].text)
        return use(what)

    tool = StructuredTool.from_function(use if way == "tool" else None, use_it if way != "tool" else None, name="use")
    proof = [lambda messages, _: finish_step("done", last_seen(messages))]
    if way.startswith("graph") and way != "graph within a tool":
        graph = graph_of(node, InMemorySaver() if way == "graph with a saver" else None)
        return Agent(one_step(proof, executor="ask"), executors={"ask": graph}, storage="memory:", settings=FREE)
    script = one_step([call("use", what="x"), *proof])
    settings = {"confirm": "never", "approvals": "never"}
    return Agent(script, [tool], effects={"use": "write"}, storage="memory:", settings=settings)


async def handed_by_langgraph(answers: list[Any]) -> list[Any]:
    """What LangGraph alone hands to interrupts for these answers."""
    got: list[Any] = []
    graph = graph_of(asking(got, "Delete 3 rows?", len(answers)), InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    paused = await graph.ainvoke({"messages": []}, config)
    for answer in answers:
        paused = await graph.ainvoke(Command(resume={paused["__interrupt__"][0].id: answer}), config)
    return got


@pytest.mark.parametrize("way", WAYS)
async def test_every_answer_arrives_as_langgraph_would_hand_it(way: str) -> None:
    """Q05, X29: no answer becomes text or a decision on its way to an own interrupt: False stays False."""
    answers = IDIOMS[:-1] if way == "graph within a tool" else IDIOMS  # there, LangGraph takes None for no answer yet
    got: list[Any] = []
    async with agent_of(way, got, times=len(answers)) as agent:
        run = await agent.start("Clean up")
        for answer in answers:
            run = await agent.resume(run, {run.pending[0]["id"]: answer} if answer is None else answer)
            assert not run.problem
    assert run.status == "completed"
    assert [repr(each) for each in got] == [repr(each) for each in await handed_by_langgraph(answers)]


def test_other_answers_are_not_read_either() -> None:
    """Q05, X29: whatever clients send for other questions is no decision here."""
    asked: Any = pending("question", relayed=True, id="s1.q1")
    read = [read_answer(answer, asked) for answer in OTHERS]
    assert [(each.kind, each.value) for each in read if isinstance(each, Answer)] == [
        ("answer", each) for each in OTHERS
    ]


@pytest.mark.parametrize("answer", [math.nan, {"a": math.inf}, {"a": {1, 2}}, 10**30])
async def test_what_cannot_be_stored_is_asked_for_again(answer: Any) -> None:
    """Q05, Q11: it neither ends the run nor reaches the gate as something else."""
    got: list[Any] = []
    async with agent_of("tool", got) as agent:
        run = await agent.resume(await agent.start("Clean up"), answer)
        assert (run.status, "cannot be stored" in run.problem) == ("waiting", True)
        assert (await agent.resume(run, False)).status == "completed"
    assert got == [False]


async def test_a_question_that_nobody_answers_is_not_asked_without_end() -> None:
    """Q05: a graph within a tool cannot be given None; the call ends when it asks the same again."""
    got: list[Any] = []
    async with agent_of("graph within a tool", got) as agent:
        run = await agent.resume(await agent.start("Clean up"), "/skip")
    assert got == []
    assert run.status != "waiting"


@pytest.mark.parametrize("answer", [False, {"type": "reject"}, {"data": 1}, [{"type": "accept"}], "yes"])
async def test_a_client_of_langgraph_resumes_it_the_same(answer: Any) -> None:
    """Q05, X29: through the graph itself, as Studio and the clients of LangGraph's server do it."""
    got: list[Any] = []
    async with agent_of("tool", got) as agent:
        run = await agent.start("Clean up")
        config: Any = {"configurable": {"thread_id": run.thread_id}}
        await agent.graph.ainvoke(Command(resume=answer), config, context=agent.settings)
    assert got == [answer]


@pytest.mark.parametrize("way", ["graph", "tool"])
@pytest.mark.parametrize(
    ("answer", "given"),
    [
        ("2", "keep"), ("Keep", "keep"), ({"decisions": [{"type": "respond", "message": "2027"}]}, "2027"),
        ([{"type": "edit", "args": {"action": "ask_user", "args": {"answer": "2027"}}}], "2027"), ("/skip", None),
    ],
)  # fmt: skip
async def test_what_was_typed_into_our_own_payload_is_taken_out_of_it(way: str, answer: Any, given: Any) -> None:
    """Q05, X29: options are shown with numbers, and clients send the words of a field in the envelope that we named."""
    got: list[Any] = []
    async with agent_of(way, got, {"question": "Which?", "options": ["delete", "keep"]}) as agent:
        run = await agent.resume(await agent.start("Clean up"), answer)
    assert (got, run.status) == ([given], "completed")


@pytest.mark.parametrize("way", ["graph", "tool"])
async def test_where_nobody_answers_the_gate_stays_closed(way: str) -> None:
    """Q05, X29, C07: the policy hands over None, and never a sentence, which is true; its default is what it says."""
    for settings, given in (({"on_question": "assume"}, None), ({"default_answer": "no rows"}, "no rows")):
        got: list[Any] = []
        policy = {"on_question": "default", **settings} if given else settings
        async with agent_of(way, got) as agent:
            run = await agent.start("Clean up", settings=policy)
        assert (got, run.status) == ([given], "completed")


SIZE = {"type": "object", "properties": {"size": {"enum": ["S", "L"]}}, "required": ["size"]}


@pytest.mark.parametrize(("default", "given"), [("L", {"size": "L"}), ("size: S", {"size": "S"}), ("huge", None)])
async def test_a_default_answer_fills_a_form_or_nobody_answered(default: str, given: Any) -> None:
    """C07: a form gets the fields that the default gives, as a person's words would; else nobody answered."""
    got: list[Any] = []
    policy = {"on_question": "default", "default_answer": default}
    async with agent_of("tool", got, {"question": "Which?", "schema": SIZE}) as agent:
        run = await agent.start("Clean up", settings=policy)
    assert got == [given], run.receipt


@pytest.mark.parametrize("answer", ["cancel", {"type": "cancel"}, {"__agui_cancelled__": True}])
async def test_ending_the_run_is_no_answer(answer: Any) -> None:
    """Q05, C12: what ends or postpones a run does so at these questions too, and opens nothing."""
    got: list[Any] = []
    async with agent_of("tool", got) as agent:
        run = await agent.start("Clean up")
        assert (await agent.resume(run, "later")).status == "waiting"
        assert (await agent.resume(run.thread_id, answer)).status == "cancelled"
    assert got == []


async def test_two_at_once_get_their_own() -> None:
    """Q05, X29: two branches of a graph ask together, and two answers by id reach each its own interrupt."""
    got: dict[str, Any] = {}

    def ask(name: str) -> Callable[[Any], dict[str, Any]]:
        def node(state: Any) -> dict[str, Any]:
            got[name] = interrupt(name)
            return {"messages": [AIMessage(f"{name} done")]}

        return node

    both = StateGraph(MessagesState).add_node("a", ask("a")).add_node("b", ask("b"))
    graph = both.add_edge(START, "a").add_edge(START, "b").compile()
    script = one_step([lambda messages, _: finish_step("done", last_seen(messages))], executor="ask")
    async with Agent(script, executors={"ask": graph}, storage="memory:", settings=FREE) as agent:
        run: Run = await agent.start("Clean up")
        given = {"a": {"type": "reject"}, "b": False}
        while run.status == "waiting":
            run = await agent.resume(run, given[str(run.pending[0]["question"])])
    assert (run.status, got) == ("completed", given)


@pytest.mark.parametrize("answer", ["s9.q1", "s1.q2"])
async def test_an_answer_for_another_question_is_stale(answer: str) -> None:
    """Q05, C04: an answer that names a question by its id is for that one alone."""
    got: list[Any] = []
    async with agent_of("tool", got) as agent:
        run = await agent.start("Clean up")
        with pytest.raises(Exception, match=answer):
            await agent.resume(run.thread_id, {"type": "accept", "id": answer})
    assert got == []
