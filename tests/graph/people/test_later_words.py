"""Later words of a person hold over earlier ones: planner, worker, writer and judge read them in their order."""

from itertools import count as count_from
from typing import Any

import pytest
from langchain_core.messages import AnyMessage
from pydantic import TypeAdapter

from donewhen import Agent, Settings
from donewhen.testing import ScriptedModel, answer, ask_user, audit, call, finish_step, submit_plan
from donewhen.types import Event
from tests.kit.flows import Json, play, unfenced

NEXT = Settings(confirm="never", when_busy="next_round")
SHAPE: TypeAdapter[Any] = TypeAdapter(Event)


def refund(order: str, amount: float) -> str:
    """Pay an amount back."""
    return f"refunded {amount} for {order}"


def count(what: str) -> str:
    """Count something."""
    return f"5 {what}"


def said_in(request: Any) -> list[str]:
    text = unfenced(request.messages[1].text)
    return text.partition("<user_said>\n")[2].partition("\n</user_said>")[0].splitlines()


async def test_everybody_reads_what_the_person_changed_in_the_plan() -> None:
    """Q18, C16: 50 EUR become 40 and the mail goes; then the person answers a question. Worker, writer and judge read
    the change before the answer, each with an id."""
    steps: list[Json] = [
        {"content": "Refund 50 EUR for order 17", "done_when": ["50 EUR are refunded"], "tools": ["refund"]},
        {"content": "Mail Mira", "done_when": ["Mira knows"], "tools": []},
    ]
    paid = [{"criterion": 1, "met": True, "evidence": [{"observation": "s1.2"}]}]
    model = ScriptedModel(
        roles={
            "triage": [submit_plan(steps, done_when=["50 EUR are refunded"])],
            "execute": {
                "s1": [
                    ask_user("To which account?"),
                    call("refund", order="17", amount=40),
                    finish_step("40 EUR are refunded.", "s1.2"),
                ],
                "s2": [finish_step("Mira need not know.", "decision.1")],
            },
            "deliver": [call("deliver", text="40 EUR are refunded.", goal_check=paid)],
            "judge": [audit()],
        }
    )

    def edit(pause: Any) -> Json:
        plan = dict(pause["plan"])
        first, second = plan["steps"]
        plan["steps"] = [
            {**first, "content": "Refund 40 EUR for order 17", "done_when": ["40 EUR are refunded"]},
            second,
        ]
        plan["done_when"] = ["40 EUR are refunded"]
        return plan

    flow = await play(
        model, [refund], answers=[edit, "DE02", "approve"], settings={}, goal="Refund 50 EUR for order 17"
    )
    assert flow.status == "completed"
    ask, _, after, last, write, judge = model.requests[1:]
    changed = "- [decision.1] (changed the plan, and approved it) "
    assert [line[: len(changed)] for line in said_in(ask)] == [changed]
    assert "40 EUR" in said_in(ask)[0]
    assert said_in(after) == said_in(ask)
    expected = [changed, "- [s1.1] (asked: To which account?) DE02"]
    for request in (last, write, judge):
        assert [line[: len(changed)] for line in said_in(request)[:2]] == [line[: len(changed)] for line in expected]
    row = (flow.run.receipt or {})["approvals"][0]
    assert any("40 EUR" in line for line in row["changes"])
    assert flow.step("s2")["verdicts"][0]["evidence"] == [{"observation": "decision.1"}]


async def test_words_about_a_plan_and_at_a_call_reach_the_judge_in_their_order() -> None:
    """C16, Q82: what a person says when they send a plan back, and when they reject a call, is read by the judge after
    the goal; what they said after the approval stands behind it."""
    step = {"content": "Refund order 17", "tools": ["refund"]}
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([step]), submit_plan([{**step, "content": "Refund 40 EUR for order 17"}])],
            "execute": [
                call("count", what="orders"),
                call("refund", order="17", amount=40),
                finish_step("Nothing was refunded.", ("decision.3", "not today"), unchanged="no"),
            ],
            "judge": [audit(met="no", missing=["the refund"])],
        }
    )
    replies = ["change: only refund 40 EUR", "approve", {"type": "reject", "message": "not today"}]
    asks: Json = {"approvals": "each"}
    flow = await play(
        model, [refund, count], answers=replies, settings=asks, effects={"count": "read"}, goal="Refund 17"
    )
    assert flow.status == "partial"
    assert said_in(model.requests[-1]) == [
        "- [decision.1] change: only refund 40 EUR",
        "- [decision.2] (approved the plan)",
        '- [decision.3] (asked: may refund be called with {"amount":40,"order":"17"}? No) not today',
    ]


class Listener:
    """An agent that is told something while a model is asked; `said` has the role, which call of it, and the words."""

    def __init__(self, roles: Json, **settings: Any) -> None:
        self.model = ScriptedModel(roles={role: self._speaking(role, list(each)) for role, each in roles.items()})
        self.said: list[tuple[str, int, str]] = []
        merged = NEXT.model_copy(update=settings)
        self.agent = Agent(self.model, [count], effects={"count": "read"}, storage="memory:", settings=merged)

    def _speaking(self, role: str, replies: list[Any]) -> Any:
        numbers = count_from(1)

        async def reply(messages: list[AnyMessage], tools: Any) -> Any:
            number = next(numbers)
            for _, _, text in [each for each in self.said if each[:2] == (role, number)]:
                await self.agent.tell("t", text)
            return replies.pop(0)

        return reply


STEP = submit_plan([{"content": "count the lamps", "done_when": ["known"]}])
COUNTED = finish_step("5 lamps", ("s1.1", "5"))


async def test_what_is_said_during_the_audit_is_heard_by_the_step_and_by_the_next_audit() -> None:
    """Q19, C16: two words during two audits of a one-step plan: the step goes on with each, the last judge reads both,
    and the step can cite them."""
    cited = [{"observation": "s1.1", "quote": "5"}, {"observation": "said.1", "quote": "only blue"}]
    blue = finish_step("3 blue lamps", goal_check=[{"criterion": 1, "met": True, "evidence": cited}])
    talk = Listener(
        {"triage": [STEP], "execute": [call("count", what="lamps"), COUNTED, COUNTED, blue], "judge": [audit()] * 3}
    )
    talk.said = [("judge", 1, "only blue ones"), ("judge", 2, "in words")]
    run = await talk.agent.start("Count the lamps", thread_id="t")
    assert (run.status, run.answer, run.problem) == ("completed", "3 blue lamps", "")
    rounds = [request for request in talk.model.requests if request.role == "execute"]
    assert "[said.1] only blue ones" in rounds[2].messages[-1].text
    assert "[said.2] in words" in rounds[3].messages[-1].text
    last = [request for request in talk.model.requests if request.role == "judge"][-1]
    assert said_in(last) == ["- [said.1] only blue ones", "- [said.2] in words"]
    assert run.receipt is not None
    assert [row["text"] for row in run.receipt["heard"]] == ["only blue ones", "in words"]
    assert run.receipt["late"] == []


async def test_what_is_said_while_an_answer_is_audited_reaches_the_planner_and_the_judge() -> None:
    """Q19: an answer without a plan is not delivered before the planner has read what was said meanwhile."""
    talk = Listener(
        {"triage": [call("count", what="lamps"), answer("5 lamps"), answer("Five lamps")], "judge": [audit()] * 2}
    )
    talk.said = [("judge", 1, "in words")]
    run = await talk.agent.start("How many lamps?", thread_id="t")
    assert (run.status, run.answer) == ("completed", "Five lamps")
    assert said_in(talk.model.requests[-1]) == ["- [said.1] in words"]
    assert (run.receipt or {})["heard"][0]["text"] == "in words"


async def test_what_is_told_in_planning_is_read_by_worker_and_judge() -> None:
    """Q19: said while the plan is made, it is after the goal in the step's brief, and the judge reads it as well."""
    talk = Listener({"triage": [STEP], "execute": [call("count", what="lamps"), COUNTED], "judge": [audit()]})
    talk.said = [("triage", 1, "only blue ones")]
    await talk.agent.start("Count the lamps", thread_id="t")
    asked = {request.role: said_in(request) for request in talk.model.requests}
    assert asked["execute"] == asked["judge"] == ["- [said.1] only blue ones"]


@pytest.mark.parametrize("role", ["deliver", "judge"])
async def test_what_comes_too_late_is_told_back_and_never_heard(role: str) -> None:
    """Q19, C16: said while the answer of two steps is written or audited, and again: no prompt has it. Receipt, events,
    the answer and `problem` say that it came too late; it is not among what was heard."""
    plan = submit_plan([{"content": "count lamps"}, {"content": "count chairs"}])
    work: list[Any] = [
        call("count", what="lamps"),
        finish_step("5", ("s1.1", "5")),
        call("count", what="chairs"),
        finish_step("5", ("s2.1", "5")),
    ]
    talk = Listener({"triage": [plan], "execute": work, "deliver": ["5 lamps, 5 chairs."], "judge": [audit()]})
    talk.said = [(role, 1, "only blue ones")]
    events = [event async for event in talk.agent.stream("Count", thread_id="t")]
    run = await talk.agent.get("t")
    assert run.status == "completed"
    assert not any("only blue ones" in request.text for request in talk.model.requests)
    assert run.receipt is not None
    assert run.receipt["heard"] == []
    assert [row["text"] for row in run.receipt["late"]] == ["only blue ones"]
    assert "- Not followed, because the run ended first: “only blue ones”" in run.answer.splitlines()
    assert "only blue ones" in run.problem
    told = [SHAPE.validate_python(each, strict=True, extra="forbid") for each in events if each["type"] == "late"]
    assert [each["text"] for each in told] == ["only blue ones"]
    watched = [each["type"] async for each, _ in talk.agent.watch("t") if each["type"] in ("heard", "late", "end")]
    assert watched[0] == "late"


async def test_what_is_said_before_the_delivery_is_written_is_in_its_prompt() -> None:
    """Q19, C16: said during the last step's last round of two, the step hears it; what writer and judge are given has
    it too, and so it is heard."""
    plan = submit_plan([{"content": "count lamps"}, {"content": "count chairs"}])
    work: list[Any] = [
        call("count", what="lamps"),
        finish_step("5", ("s1.1", "5")),
        call("count", what="chairs"),
        finish_step("5", ("s2.1", "5")),
        finish_step("Five", ("s2.1", "5")),
    ]
    talk = Listener({"triage": [plan], "execute": work, "deliver": ["Five each."], "judge": [audit()]})
    talk.said = [("execute", 4, "in words")]
    run = await talk.agent.start("Count", thread_id="t")
    assert run.status == "completed"
    last_two = {request.role: said_in(request) for request in talk.model.requests[-2:]}
    assert last_two == {"deliver": ["- [said.1] in words"], "judge": ["- [said.1] in words"]}
    assert [(row["text"], row["step"]) for row in (run.receipt or {})["heard"]] == [("in words", "s2")]
