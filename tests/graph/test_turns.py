"""One thread, several requests: each starts with a fresh plan and fresh budgets; the conversation stays."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from donewhen import Agent, Limits, Run, Settings, StaleAnswer
from donewhen.graph.receive import GOAL_CHARS
from donewhen.state.errors import GoalError
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, recall, submit_plan
from tests.kit.flows import unfenced
from tests.kit.runs import config, said, step

SETTINGS = Settings(limits=Limits(model_calls=6, rounds=10))


def send(text: str) -> str:
    """Send a text."""
    SENT.append(text)
    return f"sent {text} " + "x" * 2000


SENT: list[str] = []


def one_turn() -> dict[str, list[Any]]:
    return {
        "triage": [ask_user("To whom?"), submit_plan([{"content": "send it", "tools": ["send"]}])],
        "execute": [call("send", text="hello"), finish_step("sent", "s1.1")],
    }


async def turn(agent: Agent, thread: str, goal: str, late: Sequence[Any] = ()) -> tuple[Run, list[Any]]:
    """One request to its end; the run, and the pauses. Nothing that answers a `late` one is taken."""
    run, pauses = await agent.start(goal, thread_id=thread), []
    for reply in ("Ann", "approve"):
        pauses.append(run.pending[0])
        for old in late:
            with pytest.raises(StaleAnswer):
                await agent.resume(thread, {old["id"]: reply})
        run = await agent.resume(thread, reply)
    return run, pauses


async def test_the_next_request_starts_afresh() -> None:
    """D04, C04, C08, X14: a second request on the thread has its own plan, budgets, journal and receipt; nothing of it
    collides with the first, where both do word for word the same. Each call of a pause has its result."""
    SENT.clear()
    first, second = one_turn(), one_turn()
    model = ScriptedModel(roles={role: [*replies, *second[role]] for role, replies in first.items()})
    agent = Agent(model, [send], storage="memory:", settings=SETTINGS, effects={"send": "write"})
    one, pauses = await turn(agent, "t", "Send hello")
    two, others = await turn(agent, "t", "Send hello", late=pauses)
    model.assert_exhausted()
    assert (one.status, two.status) == ("completed", "completed")
    assert SENT == ["hello", "hello"]
    assert one.spent["model_calls"] == two.spent["model_calls"] == 5
    assert two.receipt is not None
    assert len(two.receipt["questions"]) == len(two.receipt["approvals"]) == len(two.receipt["effects"]) == 1
    ids = [pause["id"] for pause in (*pauses, *others)]
    assert len(set(ids)) == 4
    assert len({pause["interrupt_id"] for pause in (*pauses, *others)}) == 4
    messages = (await agent.graph.aget_state({"configurable": {"thread_id": "t"}})).values["messages"]
    opened = [c["id"] for m in messages if isinstance(m, AIMessage) for c in m.tool_calls]
    assert sorted(opened) == sorted(m.tool_call_id for m in messages if isinstance(m, ToolMessage))
    assert len(set(opened)) == len(opened) == 6
    assert len({m.id for m in messages}) == len(messages)


async def test_the_conversation_stays() -> None:
    """D04, C15: the planner of the second request sees what was said before it: the question and its answer, the plan
    as a line, and the result."""
    first = one_turn()
    model = ScriptedModel(roles={**first, "triage": [*first["triage"], answer("Ann got it.")]})
    agent = Agent(model, [send], storage="memory:", settings=SETTINGS, effects={"send": "write"})
    await turn(agent, "t", "Send hello")
    run = await agent.start("Who got it?", thread_id="t")
    model.assert_exhausted()
    assert run.answer == "Ann got it."
    brief = unfenced(model.requests[-1].messages[1].text)
    said = brief.split("<conversation>\n")[1].split("\n</conversation>")[0].splitlines()
    assert [line for line in said if line[0] != "<"][:3] == ["Send hello", "To whom?", "Ann"]
    assert "1. send it" in said[10]
    assert said[12:] == ["<user>", "Approved.", "</user>", "<assistant>", "sent", "</assistant>"]
    assert "<goal>\nWho got it?\n</goal>" in brief
    assert "<conversation>" not in model.requests[0].text
    state = await agent.graph.aget_state({"configurable": {"thread_id": "t"}})
    assert [m.text for m in state.values["messages"] if m.type == "human"] == ["Send hello", "Who got it?"]


@pytest.mark.parametrize("goal", ["", "  \n", "x" * (GOAL_CHARS + 1)])
async def test_a_goal_nobody_could_work_on_is_refused(goal: str) -> None:
    """P19: blank and endless goals are refused before anything is started; through the graph they end with a word."""
    model = ScriptedModel()
    agent = Agent(model, storage="memory:")
    with pytest.raises(GoalError):
        await agent.start(goal)
    values = await agent.graph.ainvoke({"messages": [("user", goal)]}, {"configurable": {"thread_id": "t"}})
    assert values["outcome"]["code"] == "bad_goal"
    assert values["messages"][-1].text.startswith("The goal ")
    model.assert_exhausted()


async def test_goals_in_any_characters_are_worked_on() -> None:
    """S03, F10: emoji, CJK, NUL and half characters in a goal neither break a run nor its storage."""
    for goal in ("统计 😀 文件", "a\0b", "half \ud83d"):
        model = ScriptedModel([answer("ok")])
        agent = Agent(model, storage="memory:")
        run = await agent.start(goal)
        assert run.status == "answered"
        assert "<goal>\n" in model.requests[0].text
        model.requests[0].text.encode()


async def test_what_others_said_between_two_requests_is_cleaned() -> None:
    """S03: in an outer graph, another agent may speak between two requests; its characters are made storable, too."""
    agent = Agent(ScriptedModel([answer("one"), answer("two")]), storage="memory:")
    config: Any = {"configurable": {"thread_id": "t"}}
    await agent.graph.ainvoke({"messages": [("user", "first\0")]}, config)
    values = await agent.graph.ainvoke({"messages": [("ai", "half \ud83d"), ("user", "second\0")]}, config)
    assert [message.text for message in values["messages"]] == [
        "first\ufffd", "one", "half \ufffd", "second\ufffd", "two",
    ]  # fmt: skip


def look(x: str) -> str:
    """Look at something."""
    return f"{x} is 21\n" + "more\n" * 8_000


async def test_a_follow_up_sees_what_was_delivered_and_recalls_what_was_seen() -> None:
    """M9, D04: "and double it": the executor has the conversation and a line for each earlier observation, and reads on
    in them by their ids; they are no evidence of what is so now."""
    double = [
        recall("1:s1.1", 0),
        lambda m, _: finish_step("42" if "pump is 21" in m[-1].text else "?", "1:s1.1"),
        finish_step("42", "s1.result"),
    ]
    model = ScriptedModel(roles={
        "triage": [submit_plan([{"content": "find the price", "tools": ["look"]}]),
                   submit_plan([{"content": "double the price of the pump, 21"}])],
        "execute": {"s1": [call("look", x="pump"), finish_step("21", "s1.1"), *double]},
    })  # fmt: skip
    settings = Settings(confirm="never")
    agent = Agent(model, [look], storage="memory:", settings=settings, effects={"look": "read"})
    await agent.start("What does the pump cost?", thread_id="t")
    run = await agent.start("and double it", thread_id="t")
    model.assert_exhausted()
    assert (run.status, run.answer.splitlines()[0]) == ("answered", "42")
    first = next(request for request in model.requests[3:] if request.role == "execute")
    brief = unfenced(first.messages[1].text)
    assert "<assistant>\n21\n</assistant>" in brief
    assert '[1:s1.1] look {"x": "pump"} ok: pump is 21' in brief.split("<earlier>")[1].split("</earlier>")[0]
    assert "there is no observation '1:s1.1'" in model.requests[-1].messages[-1].text


async def test_a_long_conversation_is_bounded_in_every_prompt() -> None:
    """D04, M9: however long it grows, the newest of it stays, and prompts do not."""
    turns = 18
    finish = lambda m, _: finish_step("done " * 200, "s1.result")  # noqa: E731
    plan = lambda m, _: submit_plan([{"content": f"say it {len(m)}"}])  # noqa: E731
    model = ScriptedModel(roles={"triage": plan, "execute": finish})
    agent = Agent(model, storage="memory:", settings=Settings(confirm="never"))
    for number in range(turns):
        await agent.start(f"request {number} " + "words " * 300, thread_id="t")
    sizes = [len(request.messages[1].text) for request in model.requests]
    assert max(sizes[24:]) < 1.2 * max(sizes[12:16])
    assert f"request {turns - 2}" in model.requests[-1].messages[1].text
    assert "request 3 " not in model.requests[-1].messages[1].text


@pytest.mark.parametrize("words", ["continue", "weiter", "Also count the drafts"])
async def test_stopped_while_the_answer_is_written(words: str) -> None:
    """Q24, U4: “continue” has the answer written, without planning; other words plan on, and what is done stays."""
    two = [step("s1"), step("s2")]
    more = submit_plan([step("s3", "count the drafts")])
    model = ScriptedModel(
        roles={
            "triage": [submit_plan(two), more],
            "execute": {id: [said(id)] for id in ("s1", "s2", "s3")},
            "deliver": ["Here it is."] * 2,
        },
        strict=False,
    )
    agent = Agent(model, storage="memory:", settings={"confirm": "never"})
    await agent.graph.ainvoke({"messages": "do it"}, config("t"), interrupt_before=["deliver"])
    before = len(model.requests)
    out = await agent.graph.ainvoke({"messages": words}, config("t"))
    planned = [request for request in model.requests[before:] if request.role == "triage"]
    assert out["outcome"]["status"] == "answered"
    assert len(planned) == (words.startswith("Also"))
    done = [row["id"] for row in out["outcome"]["receipt"]["steps"] if row["status"] == "done"]
    assert done[:2] == ["s1", "s2"]
