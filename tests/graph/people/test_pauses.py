"""Pauses as clients meet them: drawable, repeatable without effect, several at once, answered by typing."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.types import interrupt

from donewhen import Agent, Limits, Settings, StaleAnswer
from donewhen.graph.pauses.pause import KINDS
from donewhen.graph.pauses.question import FormPause
from donewhen.state.consent import QUESTIONS
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, give_up, submit_plan
from donewhen.types import Pause
from tests.kit.flows import steps
from tests.kit.runs import (
    Outbox,
    calls_and_results,
    config,
    drawn,
    last_seen,
    one_step,
    said,
    scripted,
    sending,
    step,
    two_questions,
    values,
)

ALONE = Settings(confirm="never")


def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


def troubled() -> ScriptedModel:
    """A run that meets every kind of pause: plan, question, tool, budget, failure and the difference of a replan."""
    finish = lambda messages, _: finish_step("handled", evidence=last_seen(messages))  # noqa: E731
    return ScriptedModel(
        roles={
            "triage": [ask_user("Which file?"), submit_plan([step("s1"), step("s2"), step("s3")])],
            "plan": [submit_plan([step("s4", "another way")])],
            "execute": {
                "s1": [ask_user("Which colour?"), call("send", to="ann", text="hi"), finish],
                "s2": ["Let me think.", said("s2")],
                "s3": [give_up("it is locked")],
                "s4": [said("s4")],
            },
            "deliver": lambda *_: "Done.",
        }
    )


async def test_every_pause_can_be_drawn() -> None:
    """C01, C07: right before every interrupt the last message has text and a tool call named like the action."""
    model, outbox = troubled(), Outbox()
    settings = Settings(on_failure="ask", step_limits=Limits(rounds=2))
    agent = Agent(model, [outbox.tool()], storage="memory:", settings=settings)
    run = await agent.start("do it")
    met = []
    for answer in ("a.txt", "approve", "blue", "", "approve", "extend rounds 5", "replan", "approve"):
        assert run.status == "waiting"
        await drawn(agent, run)
        interrupt = (await agent.graph.aget_state(config(run.thread_id))).interrupts[0]
        assert run.pending[0]["question"] in run.pending[0]["text"] == interrupt.value["text"] in str(run)
        met.append(run.pending[0]["id"].split(".")[0] + " " + run.pending[0]["kind"])
        run = await agent.resume(run.thread_id, answer)
    assert run.status == "completed"
    assert met == [
        "plan question", "confirm plan", "s1 question", "s1 tool", "s1 tool", "budget budget", "failure question",
        "confirm plan",
    ]  # fmt: skip
    assert [sent["to"] for sent in outbox.sent] == ["ann"]
    model.assert_exhausted()


async def test_nothing_happens_before_an_interrupt_again() -> None:
    """C05: however often a pause is answered wrongly, no model is called, nothing is told and nothing is done twice."""
    model, outbox = sending(call("send", to="ann", text="hi")), Outbox()
    agent = Agent(model, [outbox.tool()], storage="memory:")
    run = await agent.start("do it")
    for asked, kind in ((1, "plan"), (2, "tool")):
        assert run.pending[0]["kind"] == kind
        for _ in range(2):
            told = [event["type"] async for event in agent.stream_resume(run.thread_id, {"nonsense": 1})]
            assert told in (["started", "waiting"], ["started", "question", "waiting"])
        assert (len(model.requests), outbox.sent) == (asked, [])
        run = await agent.resume(run.thread_id, "approve")
    assert (run.status, len(outbox.sent)) == ("completed", 1)
    assert run.spent["model_calls"] == len(model.requests) + len(model.audits) == 4


@pytest.mark.parametrize("order", [["s1.q1", "s2.q1"], ["s2.q1", "s1.q1"]])
async def test_questions_are_listed_and_answered_in_any_order(order: list[str]) -> None:
    """C07: each has its id; what is asked now comes first, names the others, and takes a plain answer. The answered
    step goes on at once; the question asked first is asked again under the same id."""
    model, asks = two_questions(), {"s1.q1": "Which colour?", "s2.q1": "Which size?"}
    agent = Agent(model, storage="memory:", settings=ALONE)
    first = await agent.start("do it")
    assert {pause["id"]: pause["question"] for pause in first.pending} == asks
    (interrupt,) = (await agent.graph.aget_state(config(first.thread_id))).interrupts  # clients break on several
    assert [other["id"] for other in interrupt.value["others"]] == ["s2.q1"]
    assert "Which size?" in interrupt.value["action_requests"][0]["description"]
    second = await agent.resume(first.thread_id, "blue" if order[0] == "s1.q1" else {order[0]: "blue"})
    assert second.status == "waiting"
    assert [pause["id"] for pause in second.pending] == [order[1]]
    assert second.steps[order[0][:2]]["status"] == "done"
    assert second.pending[0]["interrupt_id"] != first.pending[0]["interrupt_id"]
    await drawn(agent, second)
    for late in ({order[0]: "red"}, {first.pending[0]["interrupt_id"]: "red"}):
        with pytest.raises(StaleAnswer):
            await agent.resume(first.thread_id, late)
    run = await agent.resume(first.thread_id, {order[1]: "large"})
    assert run.status == "answered"
    said = {row["question"]: row["answer"] for row in (run.receipt or {})["questions"]}
    assert said == {asks[order[0]]: "blue", asks[order[1]]: "large"}
    model.assert_exhausted()


async def test_each_of_several_answers_counts_by_itself() -> None:
    """C07: what is not understood stays open, whichever question is the current one, with what is missing at that
    question and in `problem`; the others are taken. An answer to a question that is not open is refused, and all with
    it."""
    for lacking, taken in (("s1.q1", "s2.q1"), ("s2.q1", "s1.q1")):
        model = two_questions()
        agent = Agent(model, storage="memory:", settings=ALONE)
        run = await agent.start("do it")
        with pytest.raises(StaleAnswer):
            await agent.resume(run.thread_id, {taken: "blue", "s7.q1": "x"})
        run = await agent.resume(run.thread_id, {lacking: "", taken: "blue"})
        assert [(pause["id"], pause["problem"]) for pause in run.pending] == [(lacking, run.problem)]
        assert (run.problem, run.steps[taken[:2]]["status"]) == ("the answer is empty", "done")
        await drawn(agent, run)
        run = await agent.resume(run.thread_id, "large")
        assert sorted(row["answer"] for row in (run.receipt or {})["questions"]) == ["blue", "large"]
        assert (run.status, run.problem) == ("answered", "")
        model.assert_exhausted()


async def test_what_is_missing_stands_at_its_own_question() -> None:
    """C07: also if another one is the current one; that one stays as it was, and names it. A later answer to one of
    them leaves what is missing at the other."""
    agent = Agent(two_questions(), storage="memory:", settings=ALONE)
    run = await agent.resume((await agent.start("do it")).thread_id, "", question="s2.q1")
    assert (run.pending[0].get("problem"), run.pending[1]["problem"]) == (None, "the answer is empty")
    assert run.problem == "s2.q1: the answer is empty"
    assert run.pending[0]["text"].startswith("Which colour?")
    assert run.pending[0]["text"].endswith("- `s2.q1`: Which size? (the answer is empty)")
    assert run.pending[1]["text"].startswith("> the answer is empty\n")
    await drawn(agent, run)
    run = await agent.resume(run, {"s1.q1": [], "s2.q1": "later"})
    assert (run.pending[0]["problem"], run.pending[1]["problem"]) == (run.problem, "") == ("the list is empty", "")
    run = await agent.resume(run, "", question="s2.q1")
    assert run.problem == "s1.q1: the list is empty; s2.q1: the answer is empty"
    run = await agent.resume(run, "red")
    assert (run.problem, len(run.pending)) == ("the answer is empty", 1)


async def test_whatever_is_decided_is_dated_alike() -> None:
    """C04, R20: to the millisecond, by people and by the settings, so that the moments can be compared."""
    for settings in (ALONE, Settings()):
        agent = Agent(one_step(), storage="memory:", settings=settings)
        run = await agent.start("do it")
        run = await agent.resume(run, "approve") if run.status == "waiting" else run
        (row,) = (run.receipt or {})["approvals"]
        assert len(row["at"]) == len("2026-11-28T20:32:00.503+00:00")


AMOUNTS: dict[str, dict[str, Any]] = {"run": {"limits": {"model_calls": 5}}, "step": {"step_limits": {"rounds": 2}}}


@pytest.mark.parametrize("whose", AMOUNTS)
async def test_an_amount_that_is_not_understood_is_asked_for_again_with_the_reason(whose: str) -> None:
    """C07, X08: also if another question is answered with it, whose step goes on at once. The reason goes when the
    person wants to answer later."""
    planned = [{"content": "ask", "depends_on": []}, {"content": "look", "tools": ["look"], "depends_on": []}]
    looks = [[call("look", n=n)] for n in range(3)]
    rounds = {"s1": [ask_user("Which?"), said("s1")], "s2": [*looks, finish_step("ok", "s2.1")]}
    settings = {"confirm": "never", "approvals": "plan", "max_parallel": 2, **AMOUNTS[whose]}
    agent = Agent(steps(planned, rounds), [look], storage="memory:", effects={"look": "read"})
    run = await agent.start("do it", settings=settings)
    budget, asked = run.pending
    assert (budget["kind"], asked["id"]) == ("budget", "s1.q1")
    run = await agent.resume(run, {budget["id"]: "abc", "s1.q1": "that one"})
    assert (run.pending[0]["id"], run.pending[0]["problem"]) == (budget["id"], run.problem)
    assert "abc" in run.problem
    assert run.pending[0]["text"].startswith(f"> {run.problem}")
    await drawn(agent, run)
    run = await agent.resume(run, "later")
    assert (run.pending[0]["id"], run.problem) == (budget["id"], "")
    run = await agent.resume(run, "extend 20")
    assert (run.status, run.problem) == ("completed", "")
    assert [row["answer"] for row in (run.receipt or {})["questions"]] == ["that one"]


def typed(text: str, *before: Any) -> dict[str, Any]:
    return {"messages": [*before, HumanMessage(text)]}


async def test_typed_into_the_chat() -> None:
    """C08: feedback, consent and an answer, all typed; each answers what is pending and starts no new run."""
    plans = [submit_plan([step("s1", "count")]), submit_plan([step("s1", "count and sum up")])]
    model = scripted(plans, {"s1": [ask_user("Which year?", ["2022", "2023"]), said("s1")]})
    agent = Agent(model, storage="memory:")
    graph, where = agent.graph, config("t")
    await graph.ainvoke({"messages": "count"}, where)
    await graph.ainvoke(typed("please also write a summary of it"), where)
    assert "please also write a summary of it" in model.requests[1].text
    await graph.ainvoke(typed("yes"), where)
    run = await agent.get("t")
    assert run.pending[0]["id"] == "s1.q1"
    await drawn(agent, run)
    out = await graph.ainvoke(typed("2"), where)
    assert out["outcome"]["status"] == "answered"
    assert out["outcome"]["receipt"]["questions"][0]["answer"] == "2023"
    assert (await values(agent, "t"))["turn"] == 1
    assert [m.type for m in out["messages"]][-1] == "ai"
    model.assert_exhausted()


async def test_typed_and_asked_back() -> None:
    """C08, C02: the pause stays, says what is missing, and can be drawn under the new message."""
    model = one_step()
    agent = Agent(model, storage="memory:")
    await agent.graph.ainvoke({"messages": "go"}, config("t"))
    for nonsense in ("no", "{broken", ""):
        await agent.graph.ainvoke(typed(nonsense), config("t"))
        run = await agent.get("t")
        assert run.status == "waiting"
        assert run.problem
        snapshot = await agent.graph.aget_state(config("t"))
        last = snapshot.values["messages"][-1]
        assert isinstance(last, AIMessage)
        assert last.text.startswith(f"> {run.problem}")
        assert last.tool_calls[0]["id"] == snapshot.interrupts[0].value["tool_call_id"]
    out = await agent.graph.ainvoke(typed("yes"), config("t"))
    assert out["outcome"]["status"] == "answered"
    model.assert_exhausted()


async def test_a_client_that_closes_the_call_itself() -> None:
    """C08: agent-chat-ui answers the open tool call before a typed message; it is not answered twice."""
    agent = Agent(one_step(), storage="memory:")
    out = await agent.graph.ainvoke({"messages": "go"}, config("t"))
    id = out["messages"][-1].tool_calls[0]["id"]
    closed = ToolMessage("Successfully handled tool call.", tool_call_id=id, id="do-not-render-1")
    blocks = HumanMessage([{"type": "text", "text": "approve"}])
    out = await agent.graph.ainvoke({"messages": [closed, blocks]}, config("t"))
    assert out["outcome"]["status"] == "answered"
    assert calls_and_results(out["messages"]) == ([id], [id])


async def test_two_kinds_of_pauses_wait_at_once() -> None:
    """C07, C09, Q87: each answer is read by the kind that it is for: a form's object, and a “yes” with a condition,
    which approves no call."""

    def order() -> str:
        """Ask for a size."""
        size = {"type": "object", "properties": {"size": {"enum": ["M", "L"]}}, "required": ["size"]}
        return f"ordered {interrupt({'question': 'Which size?', 'schema': size})['size']}"

    done = lambda messages, _: finish_step("ordered", evidence=last_seen(messages))  # noqa: E731
    work = {"s1": [call("order"), done], "s2": [call("send", to="ann", text="hi"), give_up("they said no")]}
    steps = [step("s1", tools=["order"]), step("s2", tools=["send"], depends_on=[])]
    model = scripted(submit_plan(steps), work)
    outbox = Outbox()
    tools = [StructuredTool.from_function(order, metadata={"effect": "read"}), outbox.tool()]
    agent = Agent(model, tools, storage="memory:", settings=Settings(confirm="never", approvals="each"))
    run = await agent.start("do it")
    form, sending = (pause["id"] for pause in run.pending)
    swapped = await agent.resume(run, {form: "yes, but only to Bob", sending: {"size": "L"}})
    assert [pause["id"] for pause in swapped.pending] == [form, sending]
    assert f"{form}: " in swapped.problem
    run = await agent.resume(run.thread_id, {sending: "yes, but only to Bob", form: {"size": "L"}})
    assert (run.status, outbox.sent) == ("partial", [])
    decided = [row["decision"] for row in (run.receipt or {})["approvals"] if row["kind"] == "tool"]
    texts = [entry["text"] for entry in (await values(agent, run.thread_id))["journal"]]
    assert (decided, "ordered L" in texts) == (["reject"], True)


def test_every_field_of_a_pause_is_described_for_clients() -> None:
    """Q87: what the classes of pauses dump are keys of the public type; only the words for clients are added there."""
    fields = {field.alias or name for kind in (*KINDS.values(), FormPause) for name, field in kind.model_fields.items()}
    assert set(Pause.__annotations__) - fields == {"text", "interrupt_id"}
    assert fields <= set(Pause.__annotations__)
    assert {kind.action for kind in KINDS.values()} == QUESTIONS, "the conversation knows every question by its call"
