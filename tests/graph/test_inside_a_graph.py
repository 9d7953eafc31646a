"""The graph as a node of somebody's own: their context, their messages, several of ours side by side."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.base import GetOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite.aio import AsyncSqliteStore
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from donewhen import Agent, ConfigError, Settings, StaleAnswer, build_graph
from donewhen.clients import read_all, store_label
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, give_up, recall, reply, submit_plan
from tests.kit.runs import config, said, scripted, step

MESSAGES = Annotated[list[AnyMessage], add_messages]
NO_REQUEST = "There is no new message from the user since the last request. Say what you want done."


@dataclass
class Shop:
    """What an application has as its context."""

    customer: str


def around(*graphs: Any, context: Any = None, row: bool = False, saver: Any = None, store: Any = None) -> Any:
    """A graph of these as its nodes, side by side or in a row."""
    builder = StateGraph(MessagesState, context_schema=context)
    for n, graph in enumerate(graphs):
        builder.add_node(f"agent{n}", graph)
        builder.add_edge(f"agent{n - 1}" if row and n else START, f"agent{n}")
    return builder.compile(checkpointer=saver or InMemorySaver(), store=store or InMemoryStore())


@pytest.mark.parametrize("context", [Shop("ann"), {"customer": "ann"}])
async def test_a_context_of_its_own(context: Any) -> None:
    """P01: the graph around may have any context; the settings are then those of `build_graph`."""
    graph = build_graph(scripted(submit_plan([step("s1")]), {"s1": [said("s1")]}, ()), settings={"language": "de"})
    outer = around(graph.compile(), context=type(context))
    out = await outer.ainvoke({"messages": "do it"}, config("t"), context=context)
    assert out["__interrupt__"][0].value["question"] == "Soll ich nach diesem Plan vorgehen?"
    out = await outer.ainvoke(Command(resume="ja"), config("t"), context=context)
    assert out["messages"][-1].text == "done"


async def test_a_plan_inside_has_no_schedule() -> None:
    """M10, P01: nobody would begin its later runs, so the model is not offered one, and is told so if it gives one."""
    daily = submit_plan([step("s1")], schedule={"every_minutes": 60})
    model = ScriptedModel(roles={"triage": [daily, submit_plan([step("s1")])], "execute": {"s1": [said("s1")]}})
    async with Agent(model, storage="memory:") as agent:
        outer = around(agent.graph)
        out = await outer.ainvoke({"messages": "do it every hour"}, config("t"))
        assert "leave `schedule` out" in model.requests[1].text
        assert not any("schedule" in json.dumps(request.tools) for request in model.requests)
        assert "Approving it covers: every later run" not in out["__interrupt__"][0].value["text"]
        assert (await outer.ainvoke(Command(resume="yes"), config("t")))["messages"][-1].text == "done"


async def test_tools_see_the_context_around() -> None:
    """A ToolRuntime has the context that the application gave to its own graph."""
    seen: list[Any] = []

    def look(runtime: ToolRuntime[Any]) -> str:
        """Look."""
        seen.append(runtime.context)
        return "looked"

    plan = submit_plan([step("s1", tools=["look"])])
    model = scripted(plan, {"s1": [call("look"), finish_step("done", evidence=["s1.1"])]}, deliver=())
    graph = build_graph(model, [look], effects={"look": "read"}, settings=Settings(confirm="never"))
    await around(graph.compile(), context=Shop).ainvoke({"messages": "look"}, config("t"), context=Shop("ann"))
    assert seen == [Shop("ann")]


async def test_settings_as_the_context_around() -> None:
    """S5: an instance of Settings, given through the graph around, goes over the graph's own."""
    model, given = scripted(submit_plan([step("s1")]), {"s1": [said("s1")]}, deliver=()), Settings(confirm="never")
    graph = build_graph(model, settings={"max_steps": 1})
    out = await around(graph.compile()).ainvoke({"messages": "do it"}, config("t"), context=given)
    assert ("__interrupt__" in out, out["messages"][-1].text) == (False, "done")


@pytest.mark.parametrize("later", [None, {}, {"limits": {"rounds": 50}}], ids=str)
@pytest.mark.parametrize("inside", [True, False])
async def test_the_settings_of_the_context_hold_for_the_whole_request(inside: bool, later: Any) -> None:
    """S5, C04: the plan said that each call asks; an answer, whose context is missing, empty or says something else, as
    LangGraph's server sends it, does not change that. The next request begins with what it is given itself."""
    saved: list[str] = []

    def save() -> str:
        """Save it."""
        saved.append("it")
        return "saved"

    def work(messages: Any, _: Any) -> Any:
        is_saved = any(message.type == "tool" for message in messages)
        return finish_step("saved", evidence=["s1.1"]) if is_saved else call("save")

    plan = submit_plan([step("s1", tools=["save"])])
    roles: Any = {"triage": lambda *_: plan, "execute": work, "deliver": lambda *_: "Done."}
    graph = build_graph(ScriptedModel(roles=roles), [save])
    outer = around(graph.compile()) if inside else graph.compile(InMemorySaver(), store=InMemoryStore())
    later = Settings(**later) if inside and later is not None else later
    for given, kinds in ((Settings(approvals="each"), ["plan", "tool"]), (None, ["plan"])):
        asked, out = list[str](), await outer.ainvoke({"messages": "save it"}, config("t"), context=given)
        assert ("each call asks first" in out["__interrupt__"][0].value["text"]) is (given is not None)
        while "__interrupt__" in out:
            asked.append(out["__interrupt__"][0].value["kind"])
            out = await outer.ainvoke(Command(resume="approve"), config("t"), context=later)
        assert asked == kinds, given
    assert len(saved) == 2


class Mode(TypedDict, total=False):
    """A context whose keys happen to be called as settings of ours."""

    mode: str
    confirm: Any


class Confirms(BaseModel):
    """The same as a model."""

    confirm: str = "sometimes"


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (Mode, {"mode": "fast"}),
        (Mode, {"mode": "fast", "confirm": 7}),
        (Confirms, {"confirm": "sometimes"}),
        (None, {"confirm": "never"}),
        (None, "fast"),
        (dict, {}),
    ],
    ids=str,
)
async def test_a_context_that_looks_like_settings(schema: Any, given: Any) -> None:
    """N23: it is the application's, whatever its keys are called; it sets nothing here and ends no run."""
    model = scripted(submit_plan([step("s1")]), {"s1": [said("s1")]}, deliver=())
    outer = around(build_graph(model, settings={"confirm": "always"}).compile(), context=schema)
    out = await outer.ainvoke({"messages": "do it"}, config("t"), context=given)
    assert out["__interrupt__"][0].value["kind"] == "plan"


NOTIFY = call("notify", text="the build is green")


def notifier(sent: list[str], runs: int = 1) -> Any:
    """A graph of ours that notifies, in as many runs as there are, and asks nobody."""

    def notify(text: str) -> str:
        """Notify ops."""
        sent.append(text)
        return "sent"

    plan = submit_plan([step("s1", tools=["notify"])])
    execute = [NOTIFY, finish_step("notified", evidence=["s1.1"])] * runs
    model = ScriptedModel(roles={"triage": [plan] * runs, "execute": execute, "deliver": lambda *_: "Done."})
    settings = {"confirm": "never", "approvals": "never"}
    return build_graph(model, [notify], effects={"notify": "write"}, settings=settings)


@pytest.mark.parametrize("row", [True, False], ids=["in a row", "side by side"])
async def test_equal_writes_of_two_nodes_are_two_writes(row: bool) -> None:
    """N23: the second node asked whether its write had happened, because the first one's had."""
    sent: list[str] = []
    outer = around(notifier(sent).compile(), notifier(sent).compile(), row=row)
    out = await outer.ainvoke({"messages": "tell ops"}, config("t"))
    assert ("__interrupt__" in out, len(sent)) == (False, 2)


async def test_equal_writes_of_two_requests_are_two_writes() -> None:
    """N23: the same news a day later, though nothing of the first request is kept but its effects."""
    sent: list[str] = []
    outer = around(notifier(sent, 3).compile())
    for n in (1, 2, 3):
        out = await outer.ainvoke({"messages": "tell ops"}, config("t"))
        assert ("__interrupt__" in out, len(sent)) == (False, n)


async def test_a_fork_of_the_graph_around_asks_before_it_writes_again() -> None:
    """N23, X20, R03: what the other branch of the history did is done; a request after it in its own branch is not."""
    sent: list[str] = []
    outer = around(notifier(sent, 3).compile())
    await outer.ainvoke({"messages": "tell ops"}, config("t"))
    before = [state async for state in outer.aget_state_history(config("t")) if state.next == ("agent0",)]
    fork = await outer.aupdate_state(before[-1].config, {"messages": [HumanMessage("please")]}, as_node="__start__")
    out = await outer.ainvoke(None, fork)
    assert (out["__interrupt__"][0].value["kind"], len(sent)) == ("effect", 1)


@pytest.mark.parametrize("again", ["the same run", "the next request", "the next node"])
async def test_a_write_that_was_cut_off_inside_is_asked_about(again: str) -> None:
    """N23, R03: killed inside the write; the run that goes on, a later request and another node all ask."""
    sent: list[str] = []

    def notify(text: str) -> str:
        """Notify ops."""
        sent.append(text)
        if len(sent) == 1:
            raise SystemExit  # it began, and nothing says what it did
        return "sent"

    plan = submit_plan([step("s1", tools=["notify"])])
    ends = [NOTIFY, give_up("no answer"), NOTIFY, finish_step("notified", evidence=["s1.1"])]
    ends = [NOTIFY, NOTIFY, finish_step("notified", evidence=["s1.2"])] if again == "the same run" else ends
    model = ScriptedModel(roles={"triage": [plan] * 2, "execute": ends, "deliver": lambda *_: "Done."}, strict=False)
    settings = {"confirm": "never", "approvals": "never", "on_failure": "deliver"}
    graph = build_graph(model, [notify], effects={"notify": "write"}, settings=settings).compile()
    outer = around(graph, graph, row=True) if again == "the next node" else around(graph)
    out = await outer.ainvoke({"messages": "tell ops"}, config("t"))
    if again == "the next request":
        assert "__interrupt__" not in out
        out = await outer.ainvoke({"messages": "tell ops again"}, config("t"))
    assert (out["__interrupt__"][0].value["kind"], len(sent)) == ("effect", 1)
    out = await outer.ainvoke(Command(resume="it happened"), config("t"))
    assert ("__interrupt__" in out, len(sent)) == (False, 1)


def asks_twice(paid: list[float]) -> Any:
    """A graph of ours that asks about its plan, and then about an amount that nobody named."""

    def pay(amount: float) -> str:
        """Pay it."""
        paid.append(amount)
        return f"paid {amount}"

    plan = submit_plan([step("s1", tools=["pay"])])

    def work(messages: Any, _: Any) -> Any:
        is_paid = any(message.type == "tool" for message in messages)
        return finish_step("paid", evidence=["s1.1"]) if is_paid else call("pay", amount=400.0)

    roles: Any = {"triage": lambda *_: plan, "execute": work, "deliver": lambda *_: "Done."}
    return build_graph(ScriptedModel(roles=roles), [pay])


@pytest.mark.parametrize("way", ["ainvoke", "invoke", "side by side"])
async def test_the_answer_to_one_question_is_not_given_to_the_next(way: str, tmp_path: Path) -> None:
    """C02, C06: the graph around went on with None, as after a crash, and the yes to the plan approved a call."""
    paid: list[float] = []
    with SqliteSaver.from_conn_string(str(tmp_path / "outer.db")) as blocking:
        saver = blocking if way == "invoke" else InMemorySaver()
        nodes = [asks_twice(paid).compile() for _ in range(2 if way == "side by side" else 1)]
        outer = around(*nodes, saver=saver)

        async def go_on(given: Any) -> Any:
            if way == "invoke":
                return await asyncio.to_thread(outer.invoke, given, config("t"))
            return await outer.ainvoke(given, config("t"))

        out = await go_on({"messages": "pay Ann"})
        for other in out["__interrupt__"][1:]:
            out = await go_on(Command(resume={other.id: "cancel"}))
        assert (await go_on(Command(resume="approve")))["__interrupt__"][0].value["kind"] == "tool"
        for _ in range(2):
            assert ((await go_on(None))["__interrupt__"][0].value["kind"], paid) == ("tool", [])
        out = await go_on(Command(resume="approve"))
        assert ("__interrupt__" in out, paid) == (False, [400.0])


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("remembers", [False, True])
async def test_an_answer_is_not_taken_by_a_question_that_nobody_saw(remembers: bool, by_id: bool) -> None:
    """C02, C06: the work was cut off after the yes to the plan, and the yes comes again; at work nothing is open."""
    paid, looking = list[float](), asyncio.Event()

    def pay(amount: float) -> str:
        """Pay it."""
        paid.append(amount)
        return f"paid {amount}"

    async def look() -> str:
        """Look it up."""
        looking.set()
        await asyncio.sleep(0 if looked else 60)
        return "found"

    looked = False
    plan = submit_plan([step("s1", tools=["look"]), step("s2", tools=["pay"])])
    work = {
        "s1": lambda messages, _: (
            finish_step("found", evidence=["s1.1"]) if any(m.type == "tool" for m in messages) else call("look")
        ),
        "s2": [call("pay", amount=400.0), finish_step("paid", evidence=["s2.1"])],
    }
    model = ScriptedModel(roles={"triage": [plan], "execute": work, "deliver": lambda *_: "Done."})
    inner = build_graph(model, [pay, look], effects={"look": "read"})
    outer = around(inner.compile(checkpointer=True) if remembers else inner.compile())
    (asked,) = (await outer.ainvoke({"messages": "pay Ann"}, config("t")))["__interrupt__"]
    working = asyncio.create_task(outer.ainvoke(Command(resume="approve"), config("t")))
    await looking.wait()
    working.cancel()
    await asyncio.wait([working])
    looked = True
    old: list[Any] = ["reject", {asked.id: "reject"}, {asked.id: {asked.value["id"]: "no, ask Bob"}}]
    for late in old:
        for limit in ({}, {"recursion_limit": 70}):
            with pytest.raises(StaleAnswer, match="nothing waits for"):
                await outer.ainvoke(Command(resume=late), {**config("t"), **limit})
    repeated: Any = {asked.id: "approve"}
    for given in (Command(resume=repeated if by_id else "approve"), None):
        assert ((await outer.ainvoke(given, config("t")))["__interrupt__"][0].value["kind"], paid) == ("tool", [])
    out = await outer.ainvoke(Command(resume="approve"), config("t"))
    assert ("__interrupt__" in out, paid) == (False, [400.0])


@pytest.mark.parametrize("repeats", [False, True])
async def test_an_answer_by_id_to_a_node_beside_lets_stopped_work_go_on(repeats: bool) -> None:
    """Only the id of a question of its own is late for a run; and the answer that this one took may come once more."""
    looking, ends = asyncio.Event(), False

    async def look() -> str:
        """Look it up."""
        looking.set()
        await asyncio.sleep(0 if ends else 60)
        return "found"

    def work(messages: Any, _: Any) -> Any:
        is_found = any(message.type == "tool" for message in messages)
        return finish_step("found", evidence=["s1.1"]) if is_found else call("look")

    plan = submit_plan([step("s1", tools=["look"])])
    roles: Any = {"triage": lambda *_: plan, "execute": work, "deliver": lambda *_: "Done."}
    inner = build_graph(ScriptedModel(roles=roles), [look], effects={"look": "read"}).compile()
    outer = around(inner, inner)
    one, two = (await outer.ainvoke({"messages": "look it up"}, config("t")))["__interrupt__"]
    approved: Any = {one.id: {one.value["id"]: "approve"}}
    working = asyncio.create_task(outer.ainvoke(Command(resume=approved), config("t")))
    await looking.wait()
    working.cancel()
    await asyncio.wait([working])
    ends = True
    beside: Any = {two.id: "reject"} | (approved if repeats else {})
    out = await outer.ainvoke(Command(resume=beside), config("t"))
    assert "__interrupt__" not in out
    assert "Done." in [message.text for message in out["messages"]]


async def test_an_old_answer_by_id_reaches_no_question_of_a_later_request() -> None:
    """C02, C06: the same plan is asked about side by side, and in the next request: each question has an id of its own,
    so that a late click on an old one changes nothing."""
    plan = submit_plan([step("s1")])
    inner = build_graph(ScriptedModel(roles={"triage": lambda *_: plan}))
    outer = around(inner.compile(), inner.compile())
    first = (await outer.ainvoke({"messages": "do it"}, config("t")))["__interrupt__"]
    later = (await outer.ainvoke({"messages": "do it"}, config("t")))["__interrupt__"]
    assert len({each.value["id"] for each in (*first, *later)}) == 4
    late: Any = {later[0].id: {first[0].value["id"]: "approve"}}
    asked = (await outer.ainvoke(Command(resume=late), config("t")))["__interrupt__"]
    assert any("no answer" in (each.value.get("problem") or "") for each in asked)


async def test_a_run_that_is_cancelled_leaves_the_store_usable(tmp_path: Path) -> None:
    """Cancelled at any of its transactions: AsyncSqliteStore stayed within one, and refused every thread from then."""
    sent, moments = list[str](), 0
    async with AsyncSqliteStore.from_conn_string(str(tmp_path / "store.db")) as store:
        await store.setup()
        outer = around(notifier(sent, 20).compile(), store=store)
        loop, running, until = asyncio.get_running_loop(), list[asyncio.Task[Any]](), 0

        def see(sql: str) -> None:  # in the database's thread
            nonlocal until
            until -= sql == "BEGIN"
            if sql == "BEGIN" and until == 0:
                loop.call_soon_threadsafe(running[0].cancel)

        await store.conn.set_trace_callback(see)
        for moments in range(1, 20):
            until, thread = moments, config(f"t{moments}")
            running[:] = [asyncio.create_task(outer.ainvoke({"messages": "tell ops"}, thread))]
            await asyncio.wait(running)
            assert await store.abatch([GetOp(("any",), "key")]) == [None]
            if not running[0].cancelled():
                break
    assert moments > 3


@pytest.mark.parametrize("way", ["async", "sync"])
async def test_the_state_around_is_read_and_written_without_the_agents_storage(way: str, tmp_path: Path) -> None:
    """What an embedded agent keeps is in the checkpointer around: its own database may not even be there."""
    agent = Agent(scripted(submit_plan([step("s1")])), storage="sqlite:////proc/no/runs.db")
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "outer.db")) as saver:
        outer = around(agent.graph, saver=saver)
        await outer.ainvoke({"messages": "do it"}, config("t"))

        def by_sync() -> Any:
            inner = outer.get_state(config("t"), subgraphs=True).tasks[0].state
            assert next(outer.get_state_history(inner.config)).next == inner.next
            outer.update_state(inner.config, {"language": "de"}, as_node="plan")
            return outer.get_state(config("t"), subgraphs=True).tasks[0].state

        if way == "sync":
            inner = await asyncio.to_thread(by_sync)
        else:
            inner = (await outer.aget_state(config("t"), subgraphs=True)).tasks[0].state
            assert (await anext(outer.aget_state_history(inner.config))).next == inner.next
            await outer.aupdate_state(inner.config, {"language": "de"}, as_node="plan")
            inner = (await outer.aget_state(config("t"), subgraphs=True)).tasks[0].state
    assert inner.values["language"] == "de"


async def test_others_spoke_after_the_user() -> None:
    """The request is the user's last message, whoever spoke since; that is part of the conversation."""
    model = scripted(answer("Hello!"))
    messages = [HumanMessage("greet me"), AIMessage("I hand over to the greeter.")]
    out = await around(build_graph(model).compile()).ainvoke({"messages": messages}, config("t"))
    assert out["messages"][-1].text == "Hello!"
    brief = str(model.requests[0].messages[-1].content)
    assert "<goal>\ngreet me" in brief
    assert "I hand over to the greeter." in brief


HANDOFF = AIMessage("", tool_calls=[{"name": "to_agent", "args": {}, "id": "h1"}])


@pytest.mark.parametrize("behind", [AIMessage("To the agent."), HANDOFF, SystemMessage("It is Monday.")])
async def test_others_spoke_after_an_answer_was_typed(behind: AnyMessage) -> None:
    """S03, Q05: what was typed since a question or a plan answers it, whoever spoke after; each question once."""
    script: Any = {
        "triage": [ask_user("Which?"), submit_plan([step("s1")])],
        "execute": {"s1": lambda *_: said("s1")},
    }
    agent = build_graph(ScriptedModel(roles=script)).compile(checkpointer=True)
    builder = StateGraph(MessagesState).add_node("router", lambda state: {"messages": [behind.model_copy()]})
    builder.add_node("agent", agent).add_edge(START, "router").add_edge("router", "agent")
    outer = builder.compile(checkpointer=InMemorySaver())
    asked = list[str]()
    for words in ("do it", "the red one", "approve"):
        out = await outer.ainvoke({"messages": words}, config("t"))
        asked += [each.value["question"] for each in out.get("__interrupt__", ())]
    assert (asked[0], len(asked), out["messages"][-1].text) == ("Which?", 2, "done")


@pytest.mark.parametrize("words", ["yes", "/cancel", "no, never ann"])
async def test_a_yes_to_another_agent_approves_no_plan(words: str) -> None:
    """C11, R05: a plan waits, another node answers and asks; a yes is then perhaps for that one, so the plan is shown
    again, and says why; the next yes counts. An end and an objection count at once."""
    made = list[str]()

    def pay(who: str) -> str:
        """Pay somebody."""
        made.append(who)
        return "paid"

    work = [call("pay", who="ann"), finish_step("Paid.", "s1.1")]
    script: Any = {"triage": [submit_plan([step("s1", tools=["pay"])])], "execute": {"s1": work}}
    model = ScriptedModel(roles=script, strict=False)
    agent = build_graph(model, tools=[pay], settings={"approvals": "plan"}).compile(checkpointer=True)
    builder = StateGraph(MessagesState).add_node("agent", agent)
    builder.add_node("weather", lambda state: {"messages": [AIMessage("Sunny. Shall I show tomorrow too?")]})
    builder.add_conditional_edges(
        START, lambda state: "weather" if "weather" in state["messages"][-1].text else "agent", ["agent", "weather"]
    )
    outer = builder.compile(checkpointer=InMemorySaver())
    for typed in ("pay ann", "weather?", words):
        out = await outer.ainvoke({"messages": typed}, config("t"))
    assert (made, bool(out.get("__interrupt__"))) == ([], words != "/cancel")
    assert (words in str(model.requests[-1].messages[-1].text)) == (words == "no, never ann")
    if words == "yes":
        assert "another agent spoke before “yes”" in out["__interrupt__"][0].value["text"]
        await outer.ainvoke({"messages": words}, config("t"))
        assert made == ["ann"]


async def test_what_the_run_itself_says_is_no_other_agent() -> None:
    """C11: a yes answers a call that was asked about before another step spoke and went on."""
    made = list[str]()

    def pay(who: str) -> str:
        """Pay somebody."""
        made.append(who)
        return "paid"

    sides = [
        {"content": f"Pay {who}", "done_when": "Paid", "tools": ["pay"], "depends_on": []} for who in ("ann", "bob")
    ]
    work = {
        id: [
            reply(f"I pay {who}.", [call("pay", who=who)]),
            reply(f"I paid {who}.", [finish_step(f"Paid {who}", f"{id}.1")]),
        ]
        for id, who in (("s1", "ann"), ("s2", "bob"))
    }
    settings = {"confirm": "never", "approvals": "each", "verification": "claimed"}
    model = ScriptedModel(roles={"triage": [submit_plan(sides)], "execute": work, "deliver": ["All paid."]})
    graph = build_graph(model, tools=[pay], settings=settings).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({"messages": "pay both"}, config("t"))
    for paid in (["ann"], ["ann", "bob"]):
        out = await graph.ainvoke({"messages": "yes"}, config("t"))
        assert made == paid
    assert out["messages"][-1].text == "All paid."


async def test_all_that_was_typed_since_a_question_is_the_answer() -> None:
    """C11: “yes” and, in a second message, “but not ann” is no yes."""
    script: Any = {"triage": [submit_plan([step("s1")])], "plan": [answer("Then whom?")]}
    model = ScriptedModel(roles=script, strict=False)
    graph = build_graph(model).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({"messages": "pay all"}, config("t"))
    out = await graph.ainvoke({"messages": [HumanMessage("yes"), HumanMessage("but not ann")]}, config("t"))
    assert "__interrupt__" in out
    assert "yes\nbut not ann" in str(model.requests[-1].messages[-1].text)


async def test_a_request_is_no_answer_to_a_question_that_was_not_shown() -> None:
    """U1: a run that is stopped before its question is shown goes on; the words it began with answer nothing."""
    model = ScriptedModel(roles={"triage": [ask_user("Which?"), answer("so")]}, strict=False)
    graph = build_graph(model).compile(checkpointer=InMemorySaver(), interrupt_before=["ask_user"])
    await graph.ainvoke({"messages": [HumanMessage("do it"), SystemMessage("facts")]}, config("t"))
    out = await graph.ainvoke(None, config("t"))
    assert [each.value["question"] for each in out["__interrupt__"]] == ["Which?"]


async def test_the_same_words_twice() -> None:
    """A second “status?” is another request, also where somebody routes and the run remembers the first one."""
    model = ScriptedModel(roles={"triage": [answer("Two are open."), answer("One is open.")]})
    outer = StateGraph(MessagesState)
    outer.add_node("route", lambda _: {"messages": [AIMessage("To the worker.")]})
    outer.add_node("work", build_graph(model).compile(checkpointer=True))
    outer.add_edge(START, "route")
    outer.add_edge("route", "work")
    app = outer.compile(checkpointer=InMemorySaver())
    said = [await app.ainvoke({"messages": [HumanMessage("status?")]}, config("t")) for _ in range(2)]
    assert [out["messages"][-1].text for out in said] == ["Two are open.", "One is open."]


async def test_one_after_the_other() -> None:
    """The second agent in a row works on the same request, and knows what the first one said."""
    first, second = scripted(answer("Bonjour!")), scripted(answer("Hello!"))
    outer = around(build_graph(first).compile(), build_graph(second).compile(), row=True)
    out = await outer.ainvoke({"messages": "greet me"}, config("t"))
    assert [message.text for message in out["messages"]] == ["greet me", "Bonjour!", "Hello!"]
    assert "Bonjour!" in str(second.requests[0].messages[-1].content)


async def test_side_by_side() -> None:
    """V02: two runs on one thread keep their long observations apart: what is read on, and proves, is the run's own."""

    def reader(letter: str) -> Any:
        def read() -> str:
            """Read the document."""
            return f"{letter * 50_000} the secret of {letter}. {letter * 50_000}"

        proof = finish_step("read", evidence=[("s1.1", f"the secret of {letter}")])
        plan = submit_plan([step("s1", tools=["read"])])
        model = scripted(plan, {"s1": [call("read"), recall("s1.1", offset=49_900), proof]}, deliver=())
        return model, build_graph(model, [read], effects={"read": "read"}, settings={"confirm": "never"}).compile()

    (first, a), (second, b) = reader("a"), reader("b")
    out = await around(a, b).ainvoke({"messages": "read it"}, config("t"))
    assert [message.text for message in out["messages"] if message.type == "ai"][-1] == "read"
    for model in (first, second):
        model.assert_exhausted()


async def test_what_was_worked_on_is_no_request_again() -> None:
    """A graph that remembers is not made to do its last request once more by a message of somebody else."""
    outer = around(build_graph(scripted(answer("Hello!"))).compile(checkpointer=True))
    await outer.ainvoke({"messages": "greet me"}, config("t"))
    for others in ([AIMessage("What else?")], [SystemMessage("facts")], []):
        out = await outer.ainvoke({"messages": others}, config("t"))
        assert out["messages"][-1].text == NO_REQUEST


async def test_a_second_pass_of_the_node_says_that_nothing_new_was_asked() -> None:
    """Q05: a loop in the graph around runs the node again with the request that it has worked on."""
    agent = build_graph(scripted(answer("Hello!")), settings={"language": "es"}).compile(checkpointer=True)
    builder = StateGraph(MessagesState).add_node("agent", agent).add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "agent" if len(state["messages"]) < 4 else END)
    out = await builder.compile(checkpointer=InMemorySaver()).ainvoke({"messages": "greet me"}, config("t"))
    expected = "No hay ningún mensaje nuevo del usuario desde la última petición. Diga qué quiere que se haga."
    assert [message.text for message in out["messages"]] == ["greet me", "Hello!", expected, expected]


async def test_a_message_of_others_alone_is_no_request() -> None:
    """S03: neither is the first message of a thread, nor none on a thread that has ended; only a blank one is empty."""
    agent = Agent(scripted(answer("Hello!")), storage="memory:")
    for others in ([AIMessage("What else?")], [SystemMessage("facts")]):
        out = await agent.graph.ainvoke({"messages": others}, config("first"))
        assert (out["outcome"]["code"], out["messages"][-1].text) == ("bad_goal", NO_REQUEST)
    await agent.graph.ainvoke({"messages": "greet me"}, config("t"))
    out = await agent.graph.ainvoke({"messages": []}, config("t"))
    assert out["messages"][-1].text == NO_REQUEST
    out = await agent.graph.ainvoke({"messages": " "}, config("t"))
    assert out["messages"][-1].text == "The goal is empty. Say what you want done."


class Ticket(TypedDict):
    """The state of a graph that knows no messages."""

    question: str


async def test_a_graph_around_without_messages() -> None:
    """Issue 42: without a request, DoneWhen says what the state around lacks; before, nothing happened at all."""
    for state, given in ((Ticket, {"question": "hi"}), (MessagesState, {"messages": []})):
        builder = StateGraph(state)
        builder.add_node("agent", build_graph(ScriptedModel()).compile())
        builder.add_edge(START, "agent")
        outer: Any = builder.compile(checkpointer=InMemorySaver())
        with pytest.raises(ConfigError, match=r"no message.*its state needs the key `messages`"):
            await outer.ainvoke(given, config("t"))


def test_settings_that_cannot_be() -> None:
    """S5: they are refused where the graph is made."""
    with pytest.raises(ConfigError, match=r"there is no confrm; did you mean confirm"):
        build_graph(ScriptedModel(), settings={"confrm": "never"})


async def test_other_keys_of_the_state_around_are_not_read() -> None:
    """P01: LangGraph shows a graph's first route all of the state around, whatever its keys mean there."""
    own: dict[str, Any] = {"pending": ["C-2"], "goal": "g", "planning": {"open": 1}, "approval": "yes", "ending": "x"}
    state: Any = TypedDict("Office", {**dict.fromkeys(own, Any), "messages": MESSAGES, "outcome": Any})  # type: ignore[misc]
    model = ScriptedModel(roles={"triage": [ask_user("Which?"), answer("so")]})
    graph = StateGraph(state).add_node("agent", build_graph(model).compile()).add_edge(START, "agent")
    office = graph.compile(checkpointer=InMemorySaver())
    await office.ainvoke({"messages": [HumanMessage("do it")], **own}, config("t"))
    ended = await office.ainvoke(Command(resume="the red one"), config("t"))
    assert ended["outcome"]["status"] == "answered"
    assert {key: ended[key] for key in own} == own


@pytest.mark.parametrize("thread", ["1", "a.b/c"])
async def test_what_a_run_leaves_in_the_store_around_is_found_by_its_thread(thread: str) -> None:
    """What docs/embedding.md says on deleting: all of a thread, and nothing else."""

    def send(to: str) -> str:
        """Send."""
        return "sent"

    store, other = InMemoryStore(), ("donewhen", "effects", "2")
    work = [call("send", to="ann"), finish_step("done", evidence=["s1.1"])]
    model = scripted(submit_plan([step("s1", tools=["send"])]), {"s1": work}, deliver=())
    outer = around(build_graph(model, [send], settings={"confirm": "never"}).compile(), store=store)
    out = await outer.ainvoke({"messages": "send it to ann"}, config(thread))
    if "__interrupt__" in out:
        await outer.ainvoke(Command(resume="approve"), config(thread))
    await store.aput(other, "key", {"of": "another thread"})
    assert len(await read_all(store, ("donewhen",))) > 1
    spaces = await store.alist_namespaces(prefix=("donewhen", "*", store_label(thread)), max_depth=3)
    for space in spaces:
        for item in await read_all(store, space):
            await store.adelete(item.namespace, item.key)
    assert [item.namespace for item in await read_all(store, ("donewhen",))] == [other]
