"""Sub-agents: what they ask is asked in the run, their conversation lasts, passthrough needs no other model."""

import asyncio
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from donewhen import Agent, ConfigError, Executor, StorageError, build_graph
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.executors import Executors
from donewhen.graph.executors import nested
from donewhen.graph.executors.executor import Handoff, Unfinished
from donewhen.hooks import Call, Hooks, Note, Refuse
from donewhen.testing import ScriptedModel, call, finish_step, give_up, reply, submit_plan
from tests.kit.flows import FREE, one_step, play, requests, steps
from tests.kit.runs import last_seen

PROOF = finish_step("three papers", ("s1.1", "three papers"))


def graph_of(node: Any, **compiled: Any) -> Any:
    """A graph of one node, with a `messages` key."""
    return StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile(**compiled)


def asks(state: MessagesState) -> dict[str, Any]:
    """Asks two questions, one after the other."""
    field = interrupt("Which field?")
    year = interrupt({"question": "Which year?", "options": ["2025", "2026"]})
    return {"messages": [AIMessage(f"three papers on {field} in {year}")]}


@pytest.mark.parametrize(("checkpointer", "storage"), [(False, "memory:"), (True, "sqlite")])
async def test_its_questions_are_questions_of_the_run(checkpointer: bool, storage: str, tmp_path: Any) -> None:
    """M5, X16, X17: an interrupt of the sub-agent is a pause with its words and options; the answer resumes it."""
    graph = graph_of(asks, **({"checkpointer": InMemorySaver()} if checkpointer else {}))
    url = f"sqlite:///{tmp_path}/runs.db" if storage == "sqlite" else storage
    model = one_step([finish_step("three papers on physics", ("s1.3", "physics"))], executor="agent")
    flow = await play(model, executors={"agent": graph}, answers=["physics", "2"], storage=url)
    model.assert_exhausted()
    assert flow.status == "completed"
    asked = [(p["kind"], p["question"], p["options"]) for p in flow.pauses]
    assert asked == [("question", "Which field?", []), ("question", "Which year?", ["2025", "2026"])]
    assert flow.journal[-2]["text"] == "three papers on physics in 2026"
    assert [row["answer"] for row in flow.run.receipt["questions"]] == ["physics", "2026"]
    assert len(requests(model, "s1")) == 1


async def test_its_calls_are_approved_like_ours() -> None:
    """M5, X15: a review of calls, as LangChain's agents interrupt for it, is an approval of the run, one by one."""
    made: list[Any] = []

    def reviews(state: MessagesState) -> dict[str, Any]:
        wanted = [{"name": "send", "args": {"to": who}, "description": f"Mail {who}."} for who in ("ann", "bob", "cyn")]
        made.extend(interrupt({"action_requests": wanted, "review_configs": []})["decisions"])
        return {"messages": [AIMessage("three papers sent")]}

    edit = {"type": "edit", "edited_action": {"name": "send", "args": {"to": "bea"}}}
    flow = await play(
        one_step([PROOF], executor="agent"),
        executors={"agent": Executor("mails", graph=graph_of(reviews))},
        answers=["approve", {"decisions": [edit]}, "change: no, not cyn"],
    )
    assert flow.status == "completed"
    asked = [(p["kind"], p["tool"], p["arguments"]["to"]) for p in flow.pauses]
    assert asked == [("tool", "send", "ann"), ("tool", "send", "bob"), ("tool", "send", "cyn")]
    assert "agent" in flow.pauses[0]["question"]
    assert (made[:2], made[2]["type"]) == ([{"type": "approve"}, edit], "reject")
    assert "not cyn" in made[2]["message"]
    decisions = [row["decision"] for row in flow.run.receipt["approvals"] if row["kind"] == "tool"]
    assert decisions == ["approve", "edit", "reject"]


async def test_a_run_of_ours_as_an_executor_asks_for_its_plan_and_its_question() -> None:
    """M5, X17: a compiled DoneWhen graph works for another one; both its pauses surface."""
    rounds = [call("ask_user", question="Which shelf?", options=["A", "B"]), finish_step("three papers on A", "s1.1")]
    inner = steps([{"content": "count", "tools": []}], {"s1": rounds})
    model = one_step([finish_step("three papers", ("s1.3", "three papers"))], executor="crew")
    flow = await play(model, executors={"crew": build_graph(inner).compile()}, answers=["approve", "1"])
    inner.assert_exhausted()
    assert flow.status == "completed", flow.run
    assert "count" in flow.pauses[0]["question"]
    assert "Which shelf?" in flow.pauses[1]["question"]
    assert flow.run.spent["model_calls"] == 3 + 4, "each with its judge"


async def test_who_approves_reads_which_executors_may_change_what_they_can() -> None:
    """C01, M5: their tools are not known here, so a plan that names one is not shown as if nothing else changed."""

    def send(text: str) -> str:
        """Send."""
        return "sent"

    plan = [{"content": "send", "tools": ["send"]}, {"content": "find", "executor": "crew"}]
    crews = {"crew": says("three papers"), "writer": Executor("writes", profile="You write.")}
    for steps_, shown in (
        (plan, "send (known targets), crew (whatever it can)"),
        (plan[1:], "crew (whatever it can)"),
        ([{"content": "write", "executor": "writer"}], ""),
    ):
        agent = Agent(ScriptedModel([submit_plan(steps_)]), [send], executors=crews, storage="memory:")
        (pause,) = (await agent.start("go")).pending
        line = f"**What may be changed:** {shown}\n" if shown else "What may be changed"
        assert (line in pause["text"]) == bool(shown)


def proofs(*ids: str) -> dict[str, Any]:
    """Each of these steps is proven by what its agent said."""
    return {id: [finish_step("three papers", (f"{id}.1", "three papers"))] for id in ids}


async def test_its_conversation_lasts_from_step_to_step_and_from_request_to_request(tmp_path: Path) -> None:
    """M5: what the sub-agent was told before it still knows, also where a server gives the run a `run_id`, by which
    LangGraph would not take a second brief; a step beside others has a conversation of its own. It is stored with the
    run's thread: listed with it, deleted with it."""
    plan = [
        {"content": "find", "executor": "agent"},
        {"content": "sort", "executor": "agent"},
        {"content": "beside", "executor": "agent", "depends_on": []},
    ]
    again = [{"content": "again", "executor": "agent", "id": "t1"}]
    roles: dict[str, Any] = {"triage": [submit_plan(plan), submit_plan(again)], "deliver": lambda *_: "Done."}
    model = ScriptedModel(roles={**roles, "execute": proofs("s1", "s2", "s3", "t1")})
    path, executors = tmp_path / "runs.db", {"agent": says("three papers, {} briefs")}
    async with Agent(model, storage=f"sqlite:///{path}", executors=executors, settings=FREE) as agent:

        async def said() -> list[str]:
            values = (await agent.graph.aget_state({"configurable": {"thread_id": "t"}})).values
            return sorted(entry["text"] for entry in values["journal"] if entry["tool"])

        await agent.start("Find papers", thread_id="t", config={"metadata": {"run_id": "r1"}})
        assert await said() == [f"three papers, {heard} briefs" for heard in (1, 1, 2)]
        run = await agent.start("And again", thread_id="t")
        assert (run.status, await said()) == ("completed", ["three papers, 3 briefs"])
        assert [info.thread_id for info in await agent.threads()] == ["t"]
        await agent.delete("t")
    assert b"briefs" not in path.read_bytes()


def says(*texts: str) -> Any:
    """A graph that says this, one text for each brief; with `{}` for how many briefs it has heard."""
    left = list(texts)

    def node(state: MessagesState) -> dict[str, Any]:
        heard = sum(isinstance(message, HumanMessage) for message in state["messages"])
        return {"messages": [AIMessage((left.pop(0) if len(left) > 1 else left[0]).format(heard))]}

    return graph_of(node)


async def test_its_transcript_and_its_spend_come_back() -> None:
    """M5, R05: the receipt shows what was said in there, in short, and the step's spend counts its model calls."""
    inner = ScriptedModel([reply("Looking.", usage={"input_tokens": 10, "output_tokens": 2}), reply("three papers")])

    async def thinks(state: MessagesState) -> dict[str, Any]:
        first = await inner.ainvoke(state["messages"])
        return {"messages": [first, await inner.ainvoke([*state["messages"], first])]}

    flow = await play(one_step([PROOF], executor="agent"), executors={"agent": graph_of(thinks)})
    assert flow.status == "completed"
    row = flow.run.receipt["steps"][0]
    assert row["executor"] == "agent"
    assert [said["text"] for said in row["transcript"]] == ["Looking.", "three papers"]
    assert row["spent"]["model_calls"] == 4


def passthrough(node: Any) -> dict[str, Executor]:
    """An agent that takes the goal whole."""
    return {"agent": Executor("works", graph=graph_of(node), passthrough=True)}


WHOLE = {**FREE, "executor": "agent"}


async def test_passthrough_asks_no_other_model() -> None:
    """P16, M5: no planner, nobody to prove it, no delivery: the agent's own words are the answer."""
    briefs: list[str] = []

    def says(state: MessagesState) -> dict[str, Any]:
        briefs.append(state["messages"][-1].text)
        return {"messages": [AIMessage("All three papers are on the desk. " + "x" * 30_000 + " And all 7 notes.")]}

    model = ScriptedModel([])
    flow = await play(model, executors=passthrough(says), settings=WHOLE, goal="Find all papers")
    assert model.requests == []
    assert flow.status == "completed"
    assert flow.run.answer.startswith("All three papers are on the desk.")
    assert flow.run.answer.endswith("all 7 notes.")
    assert briefs == ["Find all papers"]  # the person's words, and nothing else
    assert flow.run.spent["model_calls"] == 0 if "model_calls" in flow.run.spent else True


async def test_passthrough_that_fails_fails() -> None:
    """P16, X09: no other way is planned by a model that nobody asked for."""

    def breaks(state: MessagesState) -> dict[str, Any]:
        raise RuntimeError("no network")

    model = ScriptedModel([])
    flow = await play(model, executors=passthrough(breaks), settings=WHOLE)
    assert (model.requests, flow.status) == ([], "failed")
    assert "no network" in flow.run.answer


@pytest.mark.parametrize("when", ["before_call", "after_call", "both"])
async def test_a_hooks_note_is_no_answer_of_a_passthrough(when: str) -> None:
    """P16, X06: its own output is the answer, and its failure or a refusal fails the step, whatever is noted beside."""

    async def work(brief: str) -> str:
        if brief == "break":
            raise ToolException("no network")
        return f"It is {brief}."

    def refuse(made: Call) -> Refuse | None:
        return Refuse("not today") if made.arguments["brief"] == "refuse" else None

    notes = [lambda made: Note("checked by compliance"), lambda made: Note("by two")]
    hooks = Hooks(
        before_call=[*(notes if when != "after_call" else ()), refuse],
        after_call=notes if when != "before_call" else (),
    )
    executors = {"agent": Executor(work=work, passthrough=True)}
    async with Agent(ScriptedModel([]), storage="memory:", executors=executors, settings=WHOLE, hooks=hooks) as agent:
        ends = [await agent.start(goal) for goal in ("42", "break", "refuse")]
    assert [run.status for run in ends] == ["completed", "failed", "failed"]
    assert ends[0].answer == "It is 42."
    assert [row["observation"] for row in ends[0].receipt["steps"][0]["criteria"][0]["evidence"]] == ["s1.1"]
    assert "no network" in ends[1].answer
    assert "not today" in ends[2].answer


@pytest.mark.parametrize(("said", "status", "times"), [("it happened", "failed", 1), ("it did not", "completed", 2)])
async def test_an_output_that_was_lost_is_no_answer(said: str, status: str, times: int) -> None:
    """P16, R03: a person knows that a passthrough took effect, and not what it said: its step fails, and says so."""
    crash, briefs = Crash(None, only=["store"]), list[str]()

    async def work(brief: str) -> str:
        briefs.append(brief)
        crash.at = crash.at or len(crash.trace) + 1
        return "It is 42."

    executors = {"agent": Executor(work=work, passthrough=True)}
    agent = Agent(ScriptedModel([]), storage=crashing("memory:", crash), executors=executors, settings=WHOLE)
    with pytest.raises(StorageError):
        await agent.start("What is it?", thread_id="t")
    run = await agent.resume("t")
    assert [pause["kind"] for pause in run.pending] == ["effect"]
    run = await agent.resume("t", said)
    assert (run.status, len(briefs)) == (status, times)
    assert ("its output was lost" if status == "failed" else "It is 42.") in run.answer
    assert [row["result"] for row in run.receipt["effects"]] == ["done"]
    assert run.outcome["changed"] is True


async def test_a_passthrough_follow_up_knows_what_came_before() -> None:
    """M5, M9, Q37: a function remembers nothing, so it is told what was said before, in plain words."""
    briefs: list[str] = []

    async def work(brief: str) -> str:
        briefs.append(brief)
        return "The total is 21."

    executors = {"agent": Executor(work=work, passthrough=True)}
    agent = Agent(ScriptedModel([]), storage="memory:", executors=executors, settings=WHOLE)
    await agent.start("What is 3 times 7?", thread_id="t")
    run = await agent.start("and double it", thread_id="t")
    assert run.status == "completed"
    assert briefs[0] == "What is 3 times 7?"
    assert briefs[1].startswith("and double it\n")
    for words in ("> User: What is 3 times 7?", "> Assistant: The total is 21."):
        assert words in briefs[1]


async def test_the_planner_reads_cards_and_a_name_that_is_none_is_corrected() -> None:
    """M5, P08, X17: description, skills and tools; the disabled one is hidden; near matches; no block without any."""
    executors = {
        "writer": Executor("writes well", skills=("letters", "poems")),
        "sleeper": Executor("sleeps", enabled=False),
    }
    names = ("Writer", "sleeper", "writer")
    plans = [submit_plan([{"content": "w", "executor": name, "tools": []}]) for name in names]
    model = steps([], {"s1": [finish_step("done", "s1.result")]}, triage=plans)
    flow = await play(model, executors=executors)
    assert flow.status == "answered"
    prompt = model.requests[0].messages[1].text
    assert "- writer: writes well Skills: letters; poems." in prompt
    assert "sleeper" not in prompt
    told = [event["text"] for event in flow.told("correction")]
    assert "'Writer', which does not exist; did you mean writer?" in told[0]
    assert "'sleeper', which does not exist" in told[1]
    alone = one_step([finish_step("done", "s1.result")], tools=[])
    await play(alone)
    assert "executor" not in alone.requests[0].messages[1].text


async def papers(brief: str) -> str:
    return "three papers"


async def test_executors_come_and_go_while_the_agent_lives() -> None:
    """M5: added, removed, disabled; a step whose executor is gone fails and says so."""
    plan = submit_plan([{"content": "find", "executor": "late"}])
    model = ScriptedModel(roles={"triage": [plan] * 2, "execute": [PROOF, PROOF], "deliver": lambda *_: "Done."})
    agent = Agent(model, storage="memory:", settings={"on_failure": "deliver"})
    agent.executors["late"] = Executor("works", work=papers)
    run = await agent.start("Find papers")
    assert (await agent.resume(run, "approve")).status == "completed"
    run = await agent.start("Find papers")
    del agent.executors["late"]
    run = await agent.resume(run, "approve")
    assert run.status == "failed"
    assert "no executor 'late'" in run.answer.lower()
    for wrong in (7, "https://somewhere", "a2a:somewhere"):
        with pytest.raises(ConfigError):
            agent.executors["bad"] = wrong  # type: ignore[assignment]
    assert list(agent.executors) == []


async def test_the_only_one_who_could_is_assigned() -> None:
    """M4, M5: where the agent has no tools of its own, a step that names nobody is the sole executor's."""
    executors = {"agent": Executor("works", work=papers)}
    flow = await play(one_step([PROOF], tools=None), executors=executors)
    assert (flow.status, flow.run.plan["steps"][0]["executor"]) == ("completed", "agent")
    flow = await play(one_step([finish_step("a poem", "s1.result")], tools=[]), executors=executors)
    assert flow.run.plan["steps"][0]["executor"] is None


async def test_a_crash_in_its_midst_goes_on_from_its_last_checkpoint() -> None:
    """X17, R02: Repeating a handoff continues it, and does not repeat a finished one; another handoff starts anew."""
    done: list[str] = []

    def first(state: MessagesState) -> dict[str, Any]:
        done.append("first")
        return {"messages": [AIMessage("half")]}

    def second(state: MessagesState) -> dict[str, Any]:
        done.append("second")
        if done.count("second") == 1:
            raise OSError("the power failed")
        return {"messages": [AIMessage("three papers")]}

    graph = StateGraph(MessagesState).add_node("first", first).add_node("second", second)
    sub = graph.add_edge(START, "first").add_edge("first", "second").compile()
    handoff = Handoff("find", "k1", "k1", "agent", "t", "", saver=InMemorySaver())
    with pytest.raises(Unfinished, match="power"):
        await nested.work(sub, handoff)
    for _ in range(2):
        report = await nested.work(sub, handoff)
        assert report.output == "three papers"
        assert done == ["first", "second", "second"]
    await nested.work(sub, replace(handoff, key="k2", first="k2"))
    assert done[3:] == ["first", "second"]


async def test_a_drain_reaches_a_sub_agent_that_waits_for_its_model(tmp_path: Path) -> None:
    """R01, R02, M5: the worker gives the run back at once; the next one goes on in the midst of the handoff, makes no
    call twice, and all that both spent is counted."""
    asked_it, sent, storage = asyncio.Event(), list[str](), f"sqlite:///{tmp_path}/runs.db"

    def send(text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent three papers"

    def is_away(*_: Any) -> Exception:
        asked_it.set()
        return ConnectionRefusedError("nobody listens")

    def agent_of(*work: Any) -> Agent:
        plan, roles = submit_plan([{"content": "send", "tools": ["send"]}]), {"execute": [*work], "deliver": ["Sent."]}
        inner = ScriptedModel(roles={"triage": [plan], **roles}, strict=False)
        crew = build_graph(inner, [send], settings={**FREE, "outage_seconds": 600, "model_retries": 0}).compile()
        model = one_step([finish_step("Sent.", ("s1.1", "Sent."))], executor="crew")
        return Agent(model, executors={"crew": crew}, storage=storage, settings=FREE)

    async with agent_of(call("send", text="three papers"), is_away) as agent:
        thread, began = await agent.submit("Find papers"), monotonic()
        async with agent.worker():
            await asked_it.wait()
        info, spent = await agent.info(thread), (await agent.get(thread)).spent
        assert (info.status, info.problem, monotonic() - began < 20) == ("queued", "", True)
        assert (sent, spent["model_calls"]) == (["three papers"], 1 + 3)
    async with agent_of(finish_step("sent three papers", "s1.1")) as agent:
        run = await agent.run_submitted(thread)
        assert (run.status, sent) == ("completed", ["three papers"])
        assert run.spent["model_calls"] == 4 + 4


async def test_a_drain_after_its_last_model_charges_nothing_twice(tmp_path: Path) -> None:
    """R05, M5: what was charged at the drain is not charged again from the messages that the handoff ends with."""
    thought, may_end, storage = asyncio.Event(), asyncio.Event(), f"sqlite:///{tmp_path}/runs.db"
    usage = {"input_tokens": 1000, "output_tokens": 10}

    async def think(state: MessagesState) -> dict[str, Any]:
        message = await ScriptedModel([reply("three papers", usage=usage)]).ainvoke(state["messages"])
        thought.set()
        await may_end.wait()
        return {"messages": [message]}

    def agent_of(model: ScriptedModel) -> Agent:
        graph = StateGraph(MessagesState).add_node("think", think).add_node("keep", lambda _: {})
        crew = graph.add_edge(START, "think").add_edge("think", "keep").compile()
        return Agent(model, executors={"agent": crew}, storage=storage, settings=FREE)

    async with agent_of(one_step([PROOF], executor="agent")) as agent:
        thread = await agent.submit("Find papers")
        async with agent.worker():
            await thought.wait()
            agent.drain()
            may_end.set()
        run = await agent.get(thread)
        assert (run.status, run.spent["model_calls"]) == ("queued", 2)
    async with agent_of(ScriptedModel(roles={"execute": [PROOF]}, strict=False)) as agent:
        run = await agent.run_submitted(thread)
        assert (run.status, run.spent["model_calls"]) == ("completed", 4)


async def test_what_it_cannot_store_is_its_own_failure() -> None:
    """X07, X17: a state that no checkpoint can hold fails the executor, and not the run, again and again."""

    class Live:
        """Not for any checkpoint."""

    class Odd(MessagesState):
        live: Any

    def opens(state: Odd) -> dict[str, Any]:
        return {"live": Live()}

    graph = StateGraph(Odd).add_node("opens", opens).add_node("asks", asks)
    sub = graph.add_edge(START, "opens").add_edge("opens", "asks").compile()
    model = one_step([give_up("it failed")], executor="agent", deliver=[])
    flow = await play(model, executors={"agent": sub}, settings={**FREE, "on_failure": "deliver"})
    assert flow.status == "failed"
    assert "not msgpack serializable" in flow.journal[0]["text"]


async def test_questions_side_by_side_are_all_asked() -> None:
    """M5, C06: two branches of the sub-agent ask at once; one pause at a time, each answer to its own."""

    def left(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"left {interrupt('Left?')}")]}

    def right(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"right {interrupt('Right?')}")]}

    graph = StateGraph(MessagesState).add_node("left", left).add_node("right", right)
    sub = graph.add_edge(START, "left").add_edge(START, "right").compile()
    answers = [lambda pause: pause["question"].strip("?").lower()[0]] * 2
    model = one_step([finish_step("right r", ("s1.3", "right r"))], executor="agent")
    flow = await play(model, executors={"agent": sub}, answers=answers)
    assert flow.status == "completed"
    assert sorted(pause["question"] for pause in flow.pauses) == ["Left?", "Right?"]
    said = [row["text"] for row in flow.run.receipt["steps"][0]["transcript"]]
    assert sorted(said) == ["left l", "right r"]


async def test_where_nobody_answers_it_is_told_so() -> None:
    """C07, M5, X29: a sub-agent that nobody answers gets None, and the receipt says that nobody answered."""
    model = one_step([finish_step("three papers", ("s1.3", "three papers"))], executor="agent")
    flow = await play(model, executors={"agent": graph_of(asks)}, settings={**FREE, "on_question": "assume"})
    assert flow.pauses == []
    assert flow.status == "completed"
    assert flow.journal[2]["text"] == "three papers on None in None"
    assert [row["by"] for row in flow.run.receipt["questions"]] == ["policy", "policy"]


async def test_another_request_takes_the_place_of_one_that_asked() -> None:
    """M5: what the sub-agent asked in a request that was put away does not block the next one."""
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([{"content": "do it", "executor": "agent"}])] * 2,
            "execute": {"s1": [finish_step("three papers", ("s1.3", "three papers"))]},
        }
    )
    agent = Agent(model, storage="memory:", executors={"agent": graph_of(asks)}, settings=FREE)
    run = await agent.start("Find papers", thread_id="t")
    assert run.pending[0]["question"] == "Which field?"
    run = await agent.start("Find others", thread_id="t", restart=True)
    for answer in ("physics", "2025"):
        assert run.status == "waiting"
        run = await agent.resume(run, answer)
    assert run.status == "completed"


def test_without_await_too() -> None:
    """M5: LangGraph's synchronous verbs: the same pause, the same answer."""
    model = one_step([finish_step("three papers", ("s1.3", "three papers"))], executor="agent")
    agent = Agent(model, storage="memory:", executors={"agent": graph_of(asks)}, settings=FREE)
    config: Any = {"configurable": {"thread_id": "t"}}
    asked = agent.graph.invoke({"messages": [("user", "go")]}, config)
    assert asked["__interrupt__"][0].value["question"] == "Which field?"
    agent.graph.invoke(Command(resume="physics"), config)
    assert agent.graph.invoke(Command(resume="2025"), config)["outcome"]["status"] == "completed"


def test_one_way_to_work_alone() -> None:
    with pytest.raises(ConfigError, match="one of work, graph and remote"):
        Executor(work=asks, graph=graph_of(asks))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no name"):
        Executors({"": Executor()})
    with pytest.raises(ConfigError, match="which build_graph cannot open"):
        build_graph(ScriptedModel([]), executors={"far": "a2a:http://127.0.0.1:1"})


# What it began and did not end ----------------------------------------------------------------------------------------


class Lost(Exception):
    """Nobody knows what it means."""


def pays(paid: list[str], *, then: Exception | None = None, before: Exception | None = None) -> Any:
    """A graph that pays in its first node; an error comes before it, or in the second one, in the first run only."""

    def pay(state: MessagesState) -> dict[str, Any]:
        if before and not paid:
            paid.append("tried")
            raise before
        paid.append("paid")
        return {"messages": [AIMessage("three papers paid")]}

    def tell(state: MessagesState) -> dict[str, Any]:
        if then and paid.count("paid") == 1:
            raise then
        return {"messages": [AIMessage("three papers")]}

    graph = StateGraph(MessagesState).add_node("pay", pay).add_node("tell", tell)
    return graph.add_edge(START, "pay").add_edge("pay", "tell").compile()


async def handed_over_twice(executor: Any, answers: Any = (), **settings: Any) -> Any:
    """A step that hands the work over and gives up if it failed, and a plan that hands it over in other words."""

    def prove(messages: Any, _: Any) -> Any:
        text = "".join(message.text for message in messages[2:])
        return finish_step("done", last_seen(messages)) if "agent ok" in text else give_up("it failed")

    plan = submit_plan([{"content": "the same in other words", "executor": "agent"}])
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([{"content": "pay", "executor": "agent"}])],
            "plan": [plan] * 3,
            "execute": prove,
            "deliver": lambda *_: "Done.",
        },
        strict=False,
    )
    return await play(model, executors={"agent": executor}, answers=list(answers), settings={**FREE, **settings})


@pytest.mark.parametrize("error", [Lost("?"), ValueError("no such row"), ConnectionRefusedError()], ids=repr)
@pytest.mark.parametrize(("said", "times"), [("it happened", 1), ("it did not", 2)])
async def test_a_graph_that_broke_off_is_not_started_again_unasked(error: Exception, said: str, times: int) -> None:
    """N15, X24: after its first node ended, whatever the second one raised: it may have paid, so a person is asked."""
    paid: list[str] = []
    flow = await handed_over_twice(pays(paid, then=error), [said])
    assert [pause["kind"] for pause in flow.pauses] == ["effect"]
    assert "\npay\n" in flow.pauses[0]["question"].replace("\\n", "\n")
    assert (flow.status, paid.count("paid")) == ("completed", times)


@pytest.mark.parametrize(
    ("error", "asked"), [(ValueError("no"), 1), (ConnectionRefusedError(), 0), (Lost("?"), 1)], ids=repr
)
async def test_a_graph_that_certainly_did_nothing_is_started_again(error: Exception, asked: int) -> None:
    """N15, X24, honest: the first thing it did failed for certain; what says nothing for certain is asked about."""
    paid: list[str] = []
    flow = await handed_over_twice(pays(paid, before=error), ["it did not"])
    assert (flow.status, len(flow.pauses), paid) == ("completed", asked, ["tried", "paid"])


def failing_once(error: Exception) -> tuple[list[str], Any]:
    """The briefs that an executor got, and its function, which fails the first time."""
    worked: list[str] = []

    async def work(brief: str) -> str:
        worked.append(brief)
        if len(worked) == 1:
            raise error
        return "three papers"

    return worked, work


@pytest.mark.parametrize(
    ("error", "asked"), [(Lost("?"), 1), (ValueError("no"), 1), (ToolException("no"), 0)], ids=repr
)
async def test_a_function_as_an_executor_follows_the_same_rule(error: Exception, asked: int) -> None:
    """N15, X24: one rule for all that changes something."""
    worked, work = failing_once(error)

    flow = await handed_over_twice(Executor("works", work=work), ["it did not"])
    assert (flow.status, len(flow.pauses), len(worked)) == ("completed", asked, 2)


async def test_other_work_for_an_agent_that_ends_its_work_asks_nobody() -> None:
    """N15, X20, honest: what it did and said is known; another step, and another plan, hand it more."""
    plan = [{"content": each, "executor": "agent"} for each in ("one", "two", "three")]
    rounds = {**proofs("s1", "s3", "s4"), "s2": [give_up("not good enough")]}
    model = steps(plan, rounds, plan=[submit_plan([{"content": "two, better", "executor": "agent"}])])
    flow = await play(model, executors={"agent": Executor("works", work=papers)})
    worked = [entry["id"] for entry in flow.journal if entry["tool"] == "agent"]
    assert (flow.status, flow.pauses, len(worked)) == ("completed", [], 4)


@pytest.mark.parametrize(("error", "asked"), [(ToolException("closed"), 0), (Lost("?"), 1)], ids=repr)
@pytest.mark.parametrize("whole", [True, False])
async def test_retry_hands_the_step_over_again(error: Exception, asked: int, whole: bool) -> None:
    """P16, N15, X24: whether it takes the goal whole or a step of a plan: no model answers in its place. Where it may
    have worked, a person is asked first; what it spent is all in the receipt."""
    worked, work = failing_once(error)

    proof = finish_step("three papers", ("s1.2", "three papers"))
    model = ScriptedModel([]) if whole else one_step([give_up("it is closed"), proof], executor="agent")
    settings = {**(WHOLE if whole else FREE), "on_failure": "ask"}
    answers = ["retry", *["it did not"] * asked]
    executors = {"agent": Executor("works", work=work, passthrough=whole)}
    flow = await play(model, executors=executors, settings=settings, answers=answers)
    model.assert_exhausted()
    assert [pause["kind"] for pause in flow.pauses] == ["question", *["effect"] * asked]
    assert (flow.status, flow.run.answer.split("\n")[0], len(worked)) == ("completed", "three papers", 2)
    assert flow.run.receipt["steps"][0]["spent"]["tool_calls"] == 2


async def test_retry_of_two_steps_hands_over_only_what_failed() -> None:
    """N15: two agents side by side, one of which failed."""
    worked: list[str] = []

    def works(name: str) -> Executor:
        async def work(brief: str) -> str:
            worked.append(name)
            if name == "right" and worked.count(name) == 1:
                raise ToolException("closed")
            return "three papers"

        return Executor(name, work=work)

    plan = [{"content": each, "executor": each, "depends_on": []} for each in ("left", "right")]
    rounds = {**proofs("s1"), "s2": [give_up("closed"), finish_step("three papers", ("s2.2", "three papers"))]}
    model = steps(plan, rounds)
    executors = {each: works(each) for each in ("left", "right")}
    flow = await play(model, executors=executors, settings={**FREE, "on_failure": "ask"}, answers=["retry"])
    assert (flow.status, sorted(worked)) == ("completed", ["left", "right", "right"])
