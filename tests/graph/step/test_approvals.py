"""Approval of tool calls: frozen as shown, run once as approved, refused for good where a person said no."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from donewhen import Agent, Settings, StaleAnswer, wait
from donewhen.agent.run import Run
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, give_up, submit_plan
from tests.kit.runs import Outbox, drawn, scripted, sending, step

HI = call("send", to="ann", text="hi")


async def at_the_call(model: ScriptedModel, outbox: Outbox, **options: Any) -> tuple[Agent, Run]:
    """A run up to its first call to approve; the plan was approved on the way."""
    agent = Agent(model, [outbox.tool()], storage="memory:", settings=Settings(**options))
    run = await agent.start("do it")
    if run.pending[0]["kind"] == "plan":
        run = await agent.resume(run.thread_id, "approve")
    assert (run.status, run.pending[0]["kind"]) == ("waiting", "tool")
    return agent, run


async def test_an_approved_call_costs_no_model_call_and_no_round() -> None:
    """X15: it runs as frozen; the model sees its result in the round that comes anyway."""
    outbox, model = Outbox(), sending(HI)
    agent, run = await at_the_call(model, outbox)
    await drawn(agent, run)
    calls, rounds = run.spent["model_calls"], run.spent["rounds"]
    pending = run.pending[0]
    assert (pending["tool"], pending["arguments"]) == ("send", {"to": "ann", "text": "hi"})
    ended = await agent.resume(run.thread_id, {pending["id"]: "approve"})
    assert outbox.sent == [{"to": "ann", "text": "hi"}]
    assert ended.spent["rounds"] == rounds + 1  # the one that finishes
    assert ended.spent["model_calls"] == calls + 2  # that one, and the audit
    row = (ended.receipt or {})["approvals"][-1]
    assert {key: row[key] for key in ("kind", "tool", "arguments", "decision", "by", "step")} == {
        "kind": "tool", "tool": "send", "arguments": {"to": "ann", "text": "hi"}, "decision": "approve", "by": "user",
        "step": "s1",
    }  # fmt: skip
    model.assert_exhausted()


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@examples(max_examples=examples().max_examples // 12)
@given(st.text(max_size=20), json_values)
def test_what_ran_is_byte_for_byte_what_was_approved(text: str, extra: Any) -> None:
    """X15: whatever the arguments hold: order, unicode, numbers, nesting."""
    outbox = Outbox()

    async def run_it() -> dict[str, Any]:
        agent, run = await at_the_call(sending(call("send", text=text, extra=extra, to="ann")), outbox)
        shown: dict[str, Any] = run.pending[0]["arguments"]
        await agent.resume(run.thread_id, {run.pending[0]["id"]: {"type": "approve"}})
        return shown

    shown = wait(run_it())
    assert json.dumps(outbox.sent) == json.dumps([shown])
    assert json.dumps(shown) == json.dumps({"text": text, "extra": extra, "to": "ann"})


@pytest.mark.parametrize(
    "value",
    [
        {"type": "edit", "arguments": {"to": "bob", "text": "hi"}},
        {"type": "edit", "arguments": {"to": "bob"}},
        {"decisions": [{"type": "edit", "edited_action": {"name": "send", "args": {"to": "bob", "text": "hi"}}}]},
        {"decisions": [{"type": "edit", "edited_action": {
            "name": "approve_tool", "args": {"tool": "send", "arguments": '{"to": "bob", "text": "hi"}'}}}]},
        [{"type": "edit", "args": {"action": "approve_tool", "args": {"tool": "send",
                                                                      "arguments": '{"to": "bob", "text": "hi"}'}}}],
    ],
    ids=repr,
)  # fmt: skip
async def test_edited_arguments_run_as_edited(value: Any) -> None:
    """X15, N49: every client's edit, of one argument too; the model is told what a person changed."""
    outbox, model = Outbox(), sending(HI)
    agent, run = await at_the_call(model, outbox)
    ended = await agent.resume(run.thread_id, value)
    assert ended.status == "completed"
    assert outbox.sent == [{"to": "bob", "text": "hi"}]
    assert "bob" in model.requests[2].messages[-1].text
    assert (ended.receipt or {})["approvals"][-1]["decision"] == "edit"
    assert (ended.receipt or {})["effects"][0]["arguments"] == {"to": "bob", "text": "hi"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": 5, "text": "x"},
        {"to": "b", "text": "x", "bcc": "y"},
        {"to": "b", "text": "x", "extra": 2**70},
        '{"to": "b", "text": "\\ud83d"}',
    ],
)
async def test_edited_arguments_must_fit_the_schema(arguments: Any) -> None:
    """X15, X06: a person's arguments pass the same gate; the pause stays, nothing runs."""
    outbox = Outbox()
    agent, run = await at_the_call(sending(HI), outbox)
    again = await agent.resume(run.thread_id, {"type": "edit", "arguments": arguments})
    assert (again.status, outbox.sent) == ("waiting", [])
    assert again.problem
    assert again.pending[0]["arguments"] == {"to": "ann", "text": "hi"}


@pytest.mark.parametrize("value", ["no", {"type": "reject", "message": "not her"}, [{"type": "ignore", "args": None}]])
async def test_a_rejected_call_is_an_observation(value: Any) -> None:
    """X15: the model is told, and why; the identical call is refused without asking again; another one asks."""
    outbox = Outbox()
    reordered = call("send", text="hi", to="ann")
    model = sending(HI, reordered, call("send", to="bob", text="hi"))
    agent, run = await at_the_call(model, outbox)
    run = await agent.resume(run.thread_id, value)
    assert run.pending[0]["arguments"] == {"to": "bob", "text": "hi"}  # ann was not asked about twice
    told = [request.messages[-1].text for request in model.requests[2:4]]
    assert all("rejected" in text and "error" in text.partition("\n")[0] for text in told)
    if isinstance(value, dict):
        assert "not her" in told[0]
    run = await agent.resume(run.thread_id, "approve")
    assert run.status == "completed"
    assert outbox.sent == [{"to": "bob", "text": "hi"}]
    assert [row["decision"] for row in (run.receipt or {})["approvals"]] == ["approve", "reject", "approve"]
    model.assert_exhausted()


async def test_what_was_rejected_in_one_step_is_rejected_in_all() -> None:
    """X15: also where the plan grants the tool, and the model is told the reason that was given elsewhere."""
    outbox = Outbox()
    bob, carl = (call("send", to=name, text="hi") for name in ("bob", "carl"))
    plan = submit_plan([step("s1"), step("s2", tools=["send"])])
    rounds = {id: [other, finish_step("handled", evidence=f"{id}.2")] for id, other in (("s1", bob), ("s2", carl))}
    model = scripted(plan, {"s1": [HI, *rounds["s1"]], "s2": [call("send", text="hi", to="ann"), *rounds["s2"]]})
    agent, run = await at_the_call(model, outbox)
    run = await agent.resume(run, {"type": "reject", "message": "she is on leave"})
    for _ in range(2):  # the plan names neither bob nor carl
        run = await agent.resume(run, "approve")
    assert run.status == "completed"
    assert [sent["to"] for sent in outbox.sent] == ["bob", "carl"]
    told = [request.messages[-1].text for request in model.requests if "s2.1" in request.messages[-1].text]
    assert "she is on leave" in told[0]
    model.assert_exhausted()


OTHER = call("send", to="bob", text="hi")
ASKED_AGAIN = "This very call was rejected before. Shall it be made now?"


@pytest.mark.parametrize("reason", ["not before I have checked", ""])
@pytest.mark.parametrize("way", ["told", "planned", "answered", "another call"])
async def test_a_rejected_call_asks_again_once_the_person_has_said_more(way: str, reason: str) -> None:
    """X15, C09: words to the run once they are heard, and a plan that they approve, which lists the tool; an answer to
    a model's question only if they rejected with words; what they say of another call never. It is never made unasked,
    and rejected once more it is refused again."""

    async def tells(messages: Any, tools: Any) -> Any:
        await agent.tell("t", "I have checked it: write to ann after all")
        return HI  # which nobody has heard yet

    ways: dict[str, list[Any]] = {
        "told": [tells],
        "planned": [give_up("they said no", kind="replan")],
        "answered": [ask_user("Why not?")],
        "another call": [OTHER],
    }
    later = [HI, HI, give_up("They said no.")]
    execute = {"s1": [HI, *ways[way], *([] if way == "planned" else later)], "s2": later}
    triage, again = submit_plan([step("s1")]), submit_plan([step("s2", tools=["send"])])
    model = ScriptedModel(roles={"triage": [triage], "plan": [again], "execute": execute}, strict=False)
    then = {"on_failure": "replan", "limits": {"replans": 1}} if way == "planned" else {"on_failure": "deliver"}
    outbox, settings = Outbox(), {"approvals": "plan", "when_busy": "next_round", "on_exhausted": "deliver", **then}
    agent = Agent(model, [outbox.tool()], storage="memory:", settings=settings)
    run = await agent.resume(await agent.start("do it", thread_id="t"), "approve")
    run = await agent.resume(run, {"type": "reject", "message": reason})
    if way != "told":
        run = await agent.resume(run, {"planned": "approve", "answered": "Go on.", "another call": "approve"}[way])
    if way == "another call" or (way == "answered" and not reason):
        assert (run.status, [sent["to"] for sent in outbox.sent]) == ("failed", ["bob"] * (way == "another call"))
        return
    assert run.pending[0]["arguments"] == {"to": "ann", "text": "hi"}
    assert (ASKED_AGAIN in run.pending[0]["question"]) == (way == "planned")  # else the plan does not list the tool
    run = await agent.resume(run, "no")
    assert (run.status, outbox.sent) == ("failed", [])


@pytest.mark.parametrize("speaks", [False, True])
async def test_words_that_two_steps_hear_count_for_the_rejected_calls_of_both(speaks: bool) -> None:
    """X15: a batch of two and a call with a credential, which receipts do not show; each asks again after the words,
    and not before."""
    secret = call("send", to="eve", text="password=Tr0ub4dor-3-horse")
    both_began = asyncio.Barrier(2)

    def says(*replies: Any) -> Any:
        async def one(messages: Any, tools: Any) -> Any:
            if await both_began.wait() == 0 and speaks:  # neither round knows of it
                await agent.tell("t", "Write to all of them after all.")
            await both_began.wait()
            return call("look", at="it")

        return [*replies, one, *replies, give_up("They said no.")]

    def look(at: str) -> str:
        """Look."""
        return f"at {at}"

    apart = [step(id, tools=["send", "look"], depends_on=[]) for id in ("s1", "s2")]
    model = ScriptedModel(
        roles={"triage": [submit_plan(apart)], "execute": {"s1": says([HI, OTHER]), "s2": says(secret)}}, strict=False
    )
    outbox, settings = Outbox(), {"when_busy": "next_round", "on_failure": "deliver", "confirm": "never"}
    agent = Agent(model, [outbox.tool(), look], effects={"look": "read"}, storage="memory:", settings=settings)
    run = await agent.start("do it", thread_id="t")
    run = await agent.resume(
        run, {pause["id"]: {"type": "reject", "message": "they are on leave"} for pause in run.pending}
    )
    asked = list[str]()
    while run.pending:
        asked += [pause["arguments"]["to"] for pause in run.pending]
        run = await agent.resume(run, {pause["id"]: {"type": "approve"} for pause in run.pending})
    assert (sorted(asked), sorted(sent["to"] for sent in outbox.sent)) == (
        (["ann", "eve"], ["ann", "bob", "eve"]) if speaks else ([], [])
    )


async def test_a_response_stands_in_for_the_call() -> None:
    """X15: the person's words are the result; the tool does not run."""
    outbox, model = Outbox(), sending(HI)
    agent, run = await at_the_call(model, outbox)
    ended = await agent.resume(run.thread_id, {"type": "respond", "message": "I told her myself"})
    assert outbox.sent == []
    assert "I told her myself" in model.requests[2].messages[-1].text
    assert ended.status == "answered"
    assert (ended.receipt or {})["effects"] == []


async def test_several_calls_of_one_decision_are_approved_one_by_one() -> None:
    """X15: what is not approved yet stays frozen; an answer for the first is none for its twin."""
    outbox = Outbox()
    model = sending([HI, HI, call("send", to="bob", text="hi")])
    agent, run = await at_the_call(model, outbox)
    first = run.pending[0]["id"]
    run = await agent.resume(run.thread_id, {first: "approve"})
    assert run.pending[0]["arguments"] == {"to": "ann", "text": "hi"}
    with pytest.raises(StaleAnswer):
        await agent.resume(run.thread_id, {first: "approve"})
    assert len(outbox.sent) == 1
    run = await agent.resume(run.thread_id, "no")
    assert run.pending[0]["arguments"]["to"] == "bob"
    run = await agent.resume(run.thread_id, "approve")
    assert run.status == "completed"
    assert [sent["to"] for sent in outbox.sent] == ["ann", "bob"]
    assert run.spent["rounds"] == 2
    model.assert_exhausted()
