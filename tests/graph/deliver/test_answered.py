"""`answered` is said where the user has words; `completed` only where something was done or looked up, and shown."""

from typing import Any

import pytest

from donewhen import Agent
from donewhen.testing import ScriptedModel, answer, audit, call, finish_step, submit_plan
from tests.kit.flows import FREE, Json, play

EFFECTS = {"look": "read"}


def look(what: str) -> str:
    """Look something up."""
    return f"{what} has no insurance"


def cancel(what: str) -> str:
    """Cancel something."""
    return f"cancelled {what}"


def stepped(*tools: Any, result: str = "I deleted old.log.") -> list[Any]:
    """A plan whose steps have these tools, and their ends, which claim a deed."""
    plan = [{"content": f"delete {n}", "tools": each, "depends_on": []} for n, each in enumerate(tools)]
    return [submit_plan(plan), {f"s{n}": [finish_step(result, f"s{n}.result")] for n in range(1, len(tools) + 1)}]


DOUBT = audit((1, "no", "nothing was changed"), met="no", missing=["the deletion"])


async def test_words_that_rest_on_nothing_looked_at_are_answered() -> None:
    """D01, P02, Q75: small talk, general knowledge, a made-up number, a claim: one call, no audit, not completed."""
    for text in ("Good day.", "Canberra.", "It has 120 rows.", "I deleted old.log."):
        model = ScriptedModel([answer(text)])
        flow = await play(model, [look], effects=EFFECTS, goal="Delete old.log")
        model.assert_exhausted()
        outcome: Json = dict(flow.run.outcome or {})
        assert (flow.status, outcome["code"], outcome["looked"], outcome["changed"]) == (
            "answered",
            "answered",
            False,
            False,
        )
        assert flow.told("outcome")[0]["status"] == flow.events[-1]["status"] == "answered"


@pytest.mark.parametrize("of_goal", [False, True])
async def test_a_check_that_read_the_world_has_looked_at_something(of_goal: bool) -> None:
    """D01, P03: a run whose only read is the check of a criterion, of a step or of the goal, is completed."""
    proven = [{"text": "it is known", "check": {"tool": "look", "arguments": {"what": "Q69"}}}]
    told: Json = {"content": "tell", "tools": []}
    plan = submit_plan([told, told], done_when=proven) if of_goal else submit_plan([{**told, "done_when": proven}])
    work = {"s1": [finish_step("It is.", "s1.result")], "s2": [finish_step("It is.", "s2.result")]}
    model = ScriptedModel(roles={"triage": [plan], "execute": work, "deliver": ["It is."] * 2}, strict=False)
    flow = await play(model, [look], effects=EFFECTS, settings={**FREE, "verification": "grounded"})
    outcome: Json = dict(flow.run.outcome or {})
    assert (flow.status, outcome["looked"], outcome["changed"]) == ("completed", True, False)


@pytest.mark.parametrize("tools", [([],), (None,), ([], []), (None, [])])
async def test_steps_that_claim_a_deed_are_audited(tools: tuple[Any, ...]) -> None:
    """Q75, V07: a step without tools, or one that used none, says that it did something: the judge is asked in any
    case, and the run is not completed."""
    plan, work = stepped(*tools)
    asked: list[str] = []

    def judge(messages: Any, _: Any) -> Any:
        asked.append(messages[-1].text)
        return DOUBT

    model = ScriptedModel(
        roles={
            "triage": [plan],
            "execute": {id: lambda *_, said=each[0]: said for id, each in work.items()},
            "deliver": lambda *_: "I deleted old.log.",
            "judge": judge,
        }
    )
    flow = await play(model, [cancel], effects={"cancel": "write"}, settings=FREE, goal="Delete old.log")
    assert (flow.status, (flow.run.outcome or {})["code"]) == ("partial", "goal_not_met")
    assert "<changes>\nnone" in asked[0].replace(f" {flow.values['fence']}", "")


async def test_a_plan_that_only_words_what_is_known_is_answered() -> None:
    """D01: a poem is a good answer and nothing was done: answered, and its plan can be kept as a template."""
    plan, work = stepped([], result="Roses are red.")
    model = ScriptedModel(roles={"triage": [plan], "execute": work, "judge": [audit()]})
    agent = Agent(model, storage="memory:", settings=FREE)
    run = await agent.start("Write a poem")
    assert (run.status, run.answer, (run.receipt or {})["audit"]["met"]) == ("answered", "Roses are red.", "yes")
    assert (await agent.templates.save(run, "poem")).name == "poem"


REFUSAL = "I'm sorry, Q69 has no insurance and can't be cancelled."


@pytest.mark.parametrize("way", ["answer", "step", "two steps"])
async def test_a_refusal_that_the_rules_demand_is_answered(way: str) -> None:
    """Q17, Q78, V11: looked up and refused, or an untrue premise explained: `declined` has nothing missing, the run is
    answered, and nothing is written below the answer."""
    looked = call("look", what="Q69")
    declined = audit(met="declined")
    plan = submit_plan([{"content": "cancel Q69"}, {"content": "tell", "tools": []}][: 1 + (way == "two steps")])
    one: Json = {"triage": [looked, answer(REFUSAL)]}
    steps: Json = {
        "s1": [looked, finish_step(REFUSAL, ("s1.1", "no insurance"))],
        "s2": [finish_step("told", "s2.result")],
    }
    if way != "answer":
        one = {"triage": [plan], "execute": {id: steps[id] for id in ("s1", "s2")[: 1 + (way == "two steps")]}}
        one |= {"deliver": [REFUSAL]} if way == "two steps" else {}
    model = ScriptedModel(roles={**one, "judge": [declined]})
    flow = await play(model, [look], effects=EFFECTS, settings=FREE, goal="Cancel my booking Q69")
    model.assert_exhausted()
    assert (flow.status, flow.run.answer.strip()) == ("answered", REFUSAL)
    assert (flow.run.outcome or {})["missing"] == []


async def test_what_was_done_before_a_refusal_is_completed() -> None:
    """D01: two bookings, one cancelled, the other forbidden and said so: something was done, and nothing is missing."""
    rounds = [call("cancel", what="Q70"), call("look", what="Q69"), finish_step("Q70 is cancelled. " + REFUSAL, "s1.1")]
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([{"content": "cancel", "tools": ["cancel"]}])],
            "execute": rounds,
            "judge": [audit(met="declined")],
        }
    )
    flow = await play(model, [cancel, look], effects=EFFECTS, settings=FREE, goal="Cancel Q69 and Q70")
    assert flow.status == "completed"


async def test_declined_with_something_missing_is_asked_back() -> None:
    """V11: what is missing and not forbidden makes it part; the judge is told so once, and its next word counts."""
    mixed = call("audit", sentences=[{"n": 1, "shown": "yes"}], goal={"met": "declined", "missing": ["the other one"]})
    model = ScriptedModel(
        roles={
            "triage": [call("look", what="Q69"), answer("No."), answer("No.")],
            "judge": [mixed, audit(missing=["x"])],
        }
    )
    flow = await play(model, [look], effects=EFFECTS, goal="Cancel Q69 and Q70")
    model.assert_exhausted()
    assert flow.status == "partial"
    assert "declined has nothing missing" in model.requests[-2].messages[-1].text


@pytest.mark.parametrize("met", ["no", "part"])
async def test_a_goal_that_is_not_met_for_no_reason_is_asked_about_and_said(met: Any) -> None:
    """V03: a judge that names nothing is asked what is missing; if it still does not say, the reader learns what it
    found."""
    model = ScriptedModel(
        roles={
            "triage": [call("look", what="r1"), *[answer("125.02")] * (1 + (met == "part"))],
            "judge": [audit(met=met)] * 2,
        }
    )
    flow = await play(model, [look], effects=EFFECTS, goal="What is the amount of r1?")
    model.assert_exhausted()
    assert flow.status == "partial"
    assert "- By the judge's verdict, this is not all that was asked for" in flow.run.answer


async def test_an_invented_citation_is_never_delivered() -> None:
    """Q75: an answer that cites what does not exist is refused again and again; the run fails, and shows nothing."""
    invented = call("answer", text="The total is 125.02.", evidence=[{"observation": "p.1", "quote": "125.02"}])
    model = ScriptedModel([invented] * 3)
    flow = await play(model, [look], effects=EFFECTS, goal="What is the total?")
    model.assert_exhausted()
    assert flow.status == "failed"
    assert "125.02" not in flow.run.answer
    dropped = ScriptedModel([invented, answer("I don't know.")])
    assert (await play(dropped, [look], effects=EFFECTS)).status == "answered"


async def test_a_later_audit_says_what_it_is() -> None:
    """D01, V07: audited later, a refusal becomes answered and an answer that rests on a look completed."""
    plan = [call("look", what="Q69"), answer(REFUSAL)]
    model = ScriptedModel(roles={"triage": plan, "judge": [*["no audit"] * 3, audit(met="declined"), audit()]})
    agent = Agent(model, [look], effects=EFFECTS, storage="memory:", settings=FREE)
    run = await agent.start("Cancel Q69", thread_id="t")
    assert (run.outcome or {})["code"] == "unaudited"
    assert (await agent.audit("t")).status == "answered"
    assert (await agent.audit("t")).status == "completed"
