"""Secrets in arguments and errors: the tool gets them, whoever approves the call sees them, nobody else does."""

import json
from typing import Any

import pytest

from donewhen import Agent, StorageError
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, submit_plan
from tests.kit.flows import FREE, one_step, play
from tests.kit.runs import Outbox, last_seen, scripted, sending, step

SECRET = "sk-live-1234567890abcdefghij"
LOGIN = {"password": SECRET, "note": f"Authorization: Bearer {SECRET}"}
WITH_SECRET = call("send", to="ann", text="hello", extra=LOGIN)


def told(events: list[dict[str, Any]]) -> str:
    """All that was said while a run worked, but for what a person is asked to approve as it will run."""
    return json.dumps([event for event in events if event["type"] not in ("waiting", "outcome")], default=str)


async def test_the_record_of_an_approved_call_holds_no_secret() -> None:
    """F8, X15: it runs byte for byte as approved; events, approvals and effects in the receipt have it redacted."""
    outbox = Outbox()
    flow = await play(sending(WITH_SECRET), [outbox.tool()], answers=["approve"])
    assert outbox.sent == [{"to": "ann", "text": "hello", "extra": LOGIN}]
    (pause,) = flow.pauses
    assert pause["arguments"]["extra"] == LOGIN, "who approves must see what will run"
    assert flow.status == "completed"
    assert SECRET not in json.dumps(flow.run.receipt)
    assert [row["arguments"]["to"] for row in (flow.run.receipt or {})["effects"]] == ["ann"]
    assert SECRET not in told(flow.events)
    assert "tool_started" in told(flow.events)


async def test_a_call_in_doubt_is_shown_without_its_secrets() -> None:
    """F8, R03: the question whether it happened needs none, and the answer is about the call as it was."""
    outbox, crash = Outbox(), Crash(None, only=["store"])

    async def send(**arguments: Any) -> str:
        outbox.sent.append(arguments)
        if crash.at is None:
            crash.at = len(crash.trace) + 1
        return "sent"

    tool = outbox.tool().model_copy(update={"coroutine": send})
    model = sending(WITH_SECRET, tools=["send"])
    agent = Agent(model, [tool], storage=crashing("memory:", crash), settings=FREE)
    with pytest.raises(StorageError):
        await agent.start("do it", thread_id="t")
    run = await agent.resume("t")
    (pause,) = run.pending
    assert pause["kind"] == "effect"
    assert SECRET not in json.dumps(pause)
    run = await agent.resume("t", "it did not")
    assert run.status == "completed"
    assert outbox.sent == [{"to": "ann", "text": "hello", "extra": LOGIN}] * 2
    assert SECRET not in json.dumps(run.receipt)


@pytest.mark.parametrize("wrong", [{"to": "x", "text": [f"password={SECRET}"]}, {"to": 5, "text": "x", SECRET: "y"}])
async def test_a_correction_repeats_no_secret(wrong: dict[str, Any]) -> None:
    """F8, X06: what was wrong with the arguments is told to people without them; so is why the step failed."""
    model = scripted(submit_plan([step("s1", tools=["send"])]), {"s1": [call("send", **wrong)] * 3})
    flow = await play(model, [Outbox().tool()], settings={"confirm": "never", "on_failure": "deliver"})
    assert flow.status != "completed"
    assert SECRET not in told(flow.events)
    assert SECRET not in json.dumps(flow.run.receipt)
    assert SECRET not in flow.step("s1")["reason"]


@pytest.mark.parametrize("cited", [("s1.1", f"password={SECRET}"), (f"s1 password={SECRET}", "x")])
async def test_a_refused_goal_check_repeats_no_secret(cited: tuple[str, str]) -> None:
    """F8: what is wrong with a quote or an id is told and stored without it, also where the step stays unproven."""

    def look() -> str:
        """Look."""
        return "nothing here"

    claim = finish_step("done", cited)
    settings = {"confirm": "never", "on_failure": "deliver", "max_refusals": 1}
    flow = await play(one_step([[call("look")], *[claim] * 3]), [look], settings=settings, effects={"look": "read"})
    assert flow.status != "completed"
    assert flow.told("correction")[0]["text"].count("[redacted]") == 1
    assert SECRET[:-3] not in told(flow.events)
    assert SECRET[:-3] not in json.dumps(flow.run.receipt)


async def test_an_exception_is_stored_without_its_secret() -> None:
    """F8: neither the journal nor the model has what a tool let slip when it failed."""

    async def send(to: str, text: str) -> str:
        """Send."""
        raise RuntimeError(f"401 for https://me:{SECRET}@mail.test/ with token={SECRET}")

    def gone_on(messages: Any, _: Any) -> Any:
        assert SECRET not in str(messages)
        return call("look") if last_seen(messages) == "s1.1" else "done"

    model = scripted(
        submit_plan([step("s1", tools=["send"])]),
        {"s1": [call("send", to="ann", text="hi"), *[gone_on] * 3]},
    )
    flow = await play(model, [send], settings={"confirm": "never", "limits": {"rounds": 3}, "on_exhausted": "deliver"})
    assert SECRET not in json.dumps(flow.values, default=str)
    assert not model.failures


async def test_a_credential_that_a_user_wrote_goes_to_the_model_and_into_no_list_and_no_receipt() -> None:
    """R18: in a goal, an answer, a question that repeats it, and words to a run that waits; its Run has the goal."""
    asking = ask_user(f"Is {SECRET} still valid?", ["yes", f"no, {SECRET} is old"])
    model = ScriptedModel(roles={"triage": [asking, answer("Noted.")]})
    settings = {"when_busy": "next_round", "answered_by": {"question": "desk"}}
    async with Agent(model, storage="memory:", settings=settings) as agent:
        run = await agent.start(f"oops, {SECRET}", thread_id="t")
        assert SECRET in str(model.requests[0])
        assert SECRET in run.goal
        await agent.tell("t", f"and {SECRET}")
        shown = [*await agent.pending(), *[each.to_dict() for each in await agent.threads()]]
        shown.append((await agent.info("t")).to_dict())
        assert "oops, [redacted]" in str(shown)
        assert SECRET not in str(shown)
        done = await agent.resume("t", f"yes, {SECRET}", by="desk")
    assert done.receipt
    assert done.receipt["questions"][0]["answer"] == "yes, [redacted]"
    assert SECRET not in str(done.receipt)
    assert SECRET not in str((await agent.info("t")).to_dict())
