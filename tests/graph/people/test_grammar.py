"""One grammar in whole runs: what people type at a failure, beside a plan, into a plan, and at a call."""

from typing import Any

import pytest

from donewhen import Agent, Settings
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, give_up, submit_plan
from tests.kit.flows import play, steps
from tests.kit.runs import Outbox, config, said, scripted, step

ASKED = Settings(confirm="never", on_failure="ask")


def failing(**more: Any) -> ScriptedModel:
    return steps([step("s1")], {"s1": [give_up("it is locked")], **more.pop("execute", {})}, **{"deliver": (), **more})


@pytest.mark.parametrize("text", ["cancel", "no", "Nein", "停止", "stop", "stop: it is pointless"])
async def test_a_refusal_after_a_failure_ends_the_run(text: str) -> None:
    """W3: nobody is asked for another plan, and nothing more is done."""
    model = failing()
    flow = await play(model, settings=ASKED, answers=[text])
    assert flow.status == "cancelled"
    assert len(flow.pauses) == 1
    model.assert_exhausted()


async def test_a_yes_after_a_failure_says_nothing_and_is_asked_back() -> None:
    """W3, C09: the pause stays and asks which of the options is meant."""
    model = failing()
    flow = await play(model, settings=ASKED, answers=["yes"])
    assert flow.status == "waiting"
    assert "stop" in flow.run.problem
    model.assert_exhausted()


async def test_words_after_a_failure_are_planned_with() -> None:
    """W3: what should be done instead reaches the planner."""
    drop = [{"what": "work on s1: done", "why": "the user wants a fax"}]
    fax = [submit_plan([step("s2", "fax it")], drop=drop)]
    model = failing(plan=fax, execute={"s2": [said("s2")]}, deliver=["Done."])
    flow = await play(model, settings=ASKED, answers=["use the fax in the hall"])
    assert flow.status == "answered"
    assert any("use the fax in the hall" in request.text for request in model.requests if request.role == "plan")


async def test_a_plan_edit_that_cannot_be_read_is_given_back() -> None:
    """Q2, C03: no planner is paid for a typo; the line is named, and the text stands there to be mended."""
    model = scripted(submit_plan([step("s1", "count")]), {"s1": [said("s1")]})
    agent = Agent(model, storage="memory:")
    run = await agent.start("do it")
    value = (await agent.graph.aget_state(config(run.thread_id))).interrupts[0].value
    shown = value["action_requests"][0]["args"]["plan"]
    typo = shown.replace("limits:", "- and sum up: : all\nlimits:")
    edit = {"decisions": [{"type": "edit", "edited_action": {"name": "confirm_plan", "args": {"plan": typo}}}]}
    kept = await agent.resume(run, edit)
    assert (kept.status, len(model.requests)) == ("waiting", 1)
    line = typo.splitlines().index("- and sum up: : all") + 1
    assert f"line {line}: mapping values are not allowed here" in kept.problem
    value = (await agent.graph.aget_state(config(run.thread_id))).interrupts[0].value
    assert value["action_requests"][0]["args"]["plan"] == value["draft"] == typo
    assert (await agent.resume(kept, {"plan": typo.replace("- and sum up: : all\n", "")})).status == "answered"


async def test_a_limit_lowered_in_the_text_holds() -> None:
    """Q2, U3: the limits line is read like every other line; the receipt says what it was changed to."""
    model = scripted(submit_plan([step("s1"), step("s2")]), {"s1": [said("s1")]}, ())
    agent = Agent(model, storage="memory:")
    run = await agent.start("do it")
    asked = await agent.resume(
        run, {"plan": "steps: [{id: s1, content: one}, {id: s2, content: two}]\nlimits: {rounds: 1}"}
    )
    assert (asked.pending[0]["kind"], asked.pending[0]["exhausted"]) == ("budget", "rounds")
    assert asked.spent["rounds"] == 1
    ended = await agent.resume(asked, "cancel")
    assert ended.status == "cancelled"
    assert next(row["limits"] for row in (ended.receipt or {})["approvals"] if "limits" in row) == {"rounds": 1}


async def test_a_call_runs_for_nothing_but_consent() -> None:
    """C09, C11, Q15: other words reject the call, and the model reads them; “Yes, please” runs it. The very call may be
    asked about again once the person has said more, since the words may have been a question."""
    mail = call("send", to="ann", text="hi")
    shown: list[Any] = []

    def work(messages: Any, _: Any) -> Any:
        shown.append(messages[-1].text)
        replies = [
            mail,
            ask_user("It goes to Ann, who asked for it. Shall I send it?"),
            mail,
            finish_step("Sent", "s1.3"),
        ]
        return replies[len(shown) - 1]

    model, outbox = ScriptedModel(roles={"triage": [submit_plan([step("s1")])], "execute": work}), Outbox()
    agent = Agent(model, [outbox.tool()], storage="memory:", settings={"confirm": "never"})
    run = await agent.resume(await agent.start("do it"), "yes, but who is that?")
    assert (run.pending[0]["kind"], outbox.sent) == ("question", [])
    assert "yes, but who is that?" in shown[1]
    run = await agent.resume(run, "ok, send it")
    assert (run.pending[0]["kind"], outbox.sent) == ("tool", [])
    assert (await agent.resume(run, "Yes, please")).status == "completed"
    assert len(outbox.sent) == 1


async def test_what_the_user_said_reaches_every_step_as_the_users_words() -> None:
    """Q4, Q5, C10: answers to planner and steps, and feedback at confirm, stand outside of any frame for data."""
    model = ScriptedModel(
        roles={
            "triage": [ask_user("Which year?"), submit_plan([step("s1")]), submit_plan([step("s1"), step("s2")])],
            "execute": {"s1": [ask_user("Which colour?"), said("s1")], "s2": [said("s2")]},
            "deliver": ["Done."],
        }
    )
    answers = ["2024", "do not list anything from notes.md", "yes", "blue"]
    flow = await play(model, settings={}, answers=answers)
    assert flow.status == "answered"
    plan, first, second = (
        next(request.text for request in reversed(model.requests) if (request.role, request.step) == who)
        for who in (("triage", None), ("execute", "s1"), ("execute", "s2"))
    )
    told = ["[p.1] (asked: Which year?) 2024", "[decision.1] do not list anything from notes.md"]
    told += ["[decision.2] (approved the plan)", "[s1.1] (asked: Which colour?) blue"]
    lines = [f"- {line}" for line in told]
    assert lines[0] in plan
    assert "\n".join(["<user_said>", *lines[:3], "</user_said>"]) in first
    assert "\n".join(["<user_said>", *lines, "</user_said>"]) in second
