"""The audit: a judge doubts every sentence that is delivered, sees every change, and never makes anything better."""

from typing import Any

import pytest

from donewhen import Executor, Profile
from donewhen.testing import ScriptedModel, answer, audit, call, finish_step, recall, reply, submit_plan
from tests.kit.flows import FREE, one_step, play, requests, steps, unfenced

NOT_DONE = "s1.1 says only that it was queued"


def look(where: str) -> str:
    """Look somewhere."""
    return f"{where}: 3 orders, 12.50 EUR together"


def send(to: str) -> str:
    """Send a mail."""
    return "queued"


EFFECTS: dict[str, Any] = {"look": "read", "send": "write"}


def sending(*claims: str, judge: list[Any]) -> ScriptedModel:
    """One step that sends a mail, and claims so."""
    rounds = [call("send", to="ann"), *(finish_step(claim, ("s1.1", "queued")) for claim in claims)]
    return steps([{"content": "send", "tools": ["send"]}], {"s1": rounds}, judge=judge)


def judged(model: Any) -> list[str]:
    """What the judge was asked, without the words of frames."""
    return [unfenced(request.text) for request in model.requests if request.role == "judge"]


async def test_a_doubted_result_goes_back_once_and_what_stays_is_said() -> None:
    """V03, V07, D07, N01: "sent", though the tool only queued it: the sentence is marked, the run is not completed."""
    model = sending(*["The mail to Ann is sent."] * 2, judge=[audit((1, "no", NOT_DONE))] * 2)
    flow = await play(model, [send], effects=EFFECTS, settings=FREE)
    model.assert_exhausted()
    assert (flow.status, flow.run.outcome["code"]) == ("partial", "not_shown")
    assert NOT_DONE in requests(model, "s1")[2].messages[-1].text
    assert flow.run.answer.splitlines()[0] == "The mail to Ann is sent."
    assert NOT_DONE in flow.run.answer
    assert flow.run.receipt["audit"]["sentences"][0]["shown"] == "no"
    assert [event["sentences"][0]["shown"] for event in flow.told("audit")] == ["no", "no"]


async def test_what_was_mended_is_delivered_as_mended() -> None:
    """V07, S02: the corrected text takes the place of the first, which is taken back where it was streamed."""
    claims = ("The mail to Ann is sent.", "The mail to Ann is queued.")
    model = sending(*claims, judge=[audit((1, "no", NOT_DONE)), audit()])
    flow = await play(model, [send], effects=EFFECTS, settings=FREE)
    model.assert_exhausted()
    assert (flow.status, flow.run.answer) == ("completed", "The mail to Ann is queued.")
    assert flow.told("speech_restarted")


async def test_what_is_missing_of_the_goal_makes_it_partial() -> None:
    """V08, D07, N05: the user's goal decides, however the plan was worded; `outcome.missing` says what."""
    replies = [call("look", where="north"), finish_step("3 orders in the north.", ("s1.1", "3 orders"))]
    plan = [{"content": "count the orders", "tools": ["look"]}]
    missing = audit(missing=["the orders of the south"])
    model = steps(plan, {"s1": [*replies, replies[1]]}, judge=[missing, missing])
    flow = await play(model, [look], effects=EFFECTS, goal="Count the orders of north and south")
    assert (flow.status, flow.run.outcome["code"]) == ("partial", "goal_not_met")
    assert flow.run.outcome["missing"] == ["the orders of the south"]
    assert "the orders of the south" in flow.run.answer


async def test_the_judge_sees_changes_whole_cited_passages_and_no_reasoning() -> None:
    """V09, N04, N72: every change with its outcome, cut with a mark; what is cited with what stands around it; the rest
    in a line each; none of the executor's words but what is delivered."""

    def write(path: str, text: str) -> str:
        """Write a file."""
        return "written"

    def read(path: str) -> str:
        """Read a file."""
        return "x " * 4_000 + "the total is 12.50 EUR" + " y" * 4_000

    long = "line\n" * 1_000
    replies = [
        reply("I SECRETLY THINK it is fine.", [call("read", path="a.txt")]),
        call("write", path="b.txt", text=long),
        finish_step("The total, 12.50 EUR, is in b.txt.", [("s1.1", "the total is 12.50 EUR"), "s1.2"]),
    ]
    plan = [{"content": "total", "tools": ["write"], "done_when": ["the total is known", "b.txt has it"]}]
    model = steps(plan, {"s1": replies}, judge=[audit()])
    effects: dict[str, Any] = {"read": "read", "write": "write"}
    flow = await play(model, [read, write], effects=effects, settings={**FREE, "approvals": "plan"})
    assert flow.status == "completed"
    (asked,) = judged(model)
    changes = asked.partition("<changes>\n")[2].partition("</changes>")[0]
    assert '[s1.2] write {"path": "b.txt"' in changes
    assert "→ ok: written" in changes
    assert "[… cut: " in changes
    cited = asked.partition("<cited>\n")[2].partition("</cited>")[0]
    assert "the total is 12.50 EUR" in cited
    assert len(cited) < 2_000
    assert "recall reads them" in asked.partition("<observations>\n")[2].partition("</observations>")[0]
    assert "1. The total, 12.50 EUR, is in b.txt." in asked
    assert "SECRETLY THINK" not in asked


async def test_the_judge_needs_no_look_up_for_what_would_fit() -> None:
    """V09, N67: an observation of a few thousand characters stands there whole, once, cited with quotes or without, and
    so does the query that it came from; as long as there is room."""

    def query(sql: str) -> str:
        """Run a query."""
        return f"{sql[:9]}\n" + "North | 12.50\n" * 150 + "South | 8.00"

    sql = f"SELECT 1, {', '.join(f'column_{n}' for n in range(40))} FROM a JOIN b USING (id) WHERE day < '2026-01-01'"
    looks = [call("query", sql=sql), *(call("query", sql=f"SELECT {n} FROM a") for n in range(2, 6))]
    quotes = [{"observation": "p.2", "quote": quote} for quote in ("South | 8.00", "North | 12.50")]
    said = call("answer", text="South has 8.00.", evidence=[{"observation": "p.1"}, *quotes])
    model = ScriptedModel(roles={"triage": [looks, said], "judge": [audit()]})
    await play(model, [query], effects={"query": "read"})
    (asked,) = judged(model)
    cited, _, seen = asked.partition("<cited>\n")[2].partition("</cited>")
    assert cited.count("North | 12.50") == 150
    whole = [line for line in seen.splitlines() if line.startswith("[p.") and "cut: " not in line]
    assert [line.partition("]")[0] for line in whole] == ["[p.1", "[p.5"]
    assert sql in whole[0]


async def test_the_judge_is_told_what_the_user_said_of_an_unknown_outcome() -> None:
    """V09, R03: a payment that nobody could tell of and the user denies is no payment; the one made after it is."""
    paid: list[float] = []

    def pay(amount: float) -> str:
        """Pay."""
        paid.append(amount)
        if len(paid) == 1:
            raise ConnectionError("503")
        return "paid"

    rounds = [call("pay", amount=5), call("pay", amount=5), finish_step("Paid 5.00 at the second attempt.", "s1.2")]
    model = steps([{"content": "pay", "tools": ["pay"]}], {"s1": rounds}, judge=[audit()])
    flow = await play(model, [pay], effects={"pay": "write"}, answers=["it did not"])
    assert flow.status == "completed"
    outcomes = [line.partition(":")[0] for line in judged(model)[0].splitlines() if line.startswith("→")]
    assert outcomes == ["→ it did not happen, as the user said later", "→ ok"]


async def test_the_judge_looks_for_itself_within_its_look_ups() -> None:
    """V09: it recalls what was seen and makes readings of its own, which are observations; then it has to decide."""
    rounds = [call("look", where="north"), finish_step("3 orders.", ("s1.1", "3 orders"))]
    looks = [recall("s1.1"), call("look", where="south"), call("look", where="east"), audit()]
    model = steps([{"content": "count", "tools": ["look"]}], {"s1": rounds}, judge=looks)
    flow = await play(model, [look], effects=EFFECTS, settings={**FREE, "audit_calls": 3})
    model.assert_exhausted()
    assert flow.status == "completed"
    first, *_, last = (request for request in model.requests if request.role == "judge")
    assert {"audit", "recall", "look"} == set(first.tool_names)
    assert last.tool_names == ["audit"]
    assert "recall ok: [s1.1]" in last.text
    made = [(e["arguments"], e["source"]) for e in flow.journal if e["tool"] == "look"]
    assert made == [({"where": "north"}, "tool"), ({"where": "south"}, "check"), ({"where": "east"}, "check")]


@pytest.mark.parametrize(
    "broken", [ValueError("down"), "It all looks fine to me.", call("audit", sentences=[], goal={})]
)
async def test_a_dead_judge_never_completes_a_run(broken: Any) -> None:
    """D07, V07: no audit is no success: partial, `unaudited`, and the user is told."""
    rounds = [call("look", where="north"), finish_step("3 orders.", ("s1.1", "3 orders"))]
    model = steps([{"content": "count", "tools": ["look"]}], {"s1": rounds}, judge=lambda *_: broken)
    flow = await play(model, [look], effects=EFFECTS, settings={**FREE, "model_retries": 0})
    assert (flow.status, flow.run.outcome["code"]) == ("partial", "unaudited")
    assert flow.run.receipt["audit"]["problem"]
    assert "Nobody audited this answer" in flow.run.answer


async def test_an_answer_that_rests_on_what_was_read_is_audited_and_small_talk_is_not() -> None:
    """P02, V07, N02: "I deleted old.log" after a look goes back and is not completed; a greeting costs one call."""
    said = answer("I deleted old.log.")
    no = audit((1, "contradicted", "nothing was changed"), met="no", missing=["old.log is still there"])
    model = ScriptedModel(roles={"triage": [call("look", where="."), said, said], "judge": [no, no]})
    flow = await play(model, [look], effects=EFFECTS, goal="Delete old.log")
    model.assert_exhausted()
    assert (flow.status, flow.run.outcome["code"]) == ("partial", "goal_not_met")
    assert (flow.run.outcome["looked"], flow.run.outcome["changed"]) == (True, False)
    hello = await play(ScriptedModel(roles={"triage": [answer("Hello!")], "judge": []}), [look], effects=EFFECTS)
    assert (hello.status, hello.run.spent["model_calls"]) == ("completed", 1)
    assert (hello.run.outcome["looked"], hello.run.outcome["changed"]) == (False, False)


async def test_a_step_that_was_to_change_something_and_did_not_says_why() -> None:
    """V05, N03: its finish goes back; `unchanged` says why nothing had to be changed, and the user reads it."""
    looked, claim = call("look", where="a"), ("s1.1", "3 orders")
    rounds = [looked, finish_step("It is so.", claim), finish_step("It is so.", claim, unchanged="it was so already")]
    model = one_step(rounds, tools=["send"], deliver=[])
    flow = await play(model, [look, send], effects=EFFECTS)
    model.assert_exhausted()
    assert flow.status == "completed"
    assert "no call of this step changed anything" in flow.told("correction")[0]["text"]
    assert flow.run.receipt["steps"][0]["unchanged"] == "it was so already"
    assert "it was so already" in flow.run.answer


async def test_a_goal_that_several_steps_reach_is_audited_with_the_text_that_is_delivered() -> None:
    """V08, D07: the deliverer is told what is doubted and may say it otherwise."""
    plan = submit_plan([{"content": "look", "tools": ["look"]}, "compare"])
    rounds = {"s1": [call("look", where="a"), finish_step("3 orders", ("s1.1", "3 orders"))]}
    rounds["s2"] = [finish_step("3 are few", "s2.result")]
    judge = [audit((1, "contradicted", "there are 3")), audit()]
    roles = {"triage": [plan], "execute": rounds, "deliver": ["There are 4.", "There are 3."], "judge": judge}
    model = ScriptedModel(roles=roles)
    flow = await play(model, [look], effects=EFFECTS)
    model.assert_exhausted()
    assert (flow.status, flow.run.answer) == ("completed", "There are 3.")
    assert "(nothing is delivered)" not in judged(model)[0]


@pytest.mark.parametrize(("met", "note"), [("no", "the goal is not met"), ("part", "part of the goal is not met")])
async def test_a_judge_that_lists_nothing_still_doubts(met: str, note: str) -> None:
    """V07, D06: "not met" without a reason proves nothing, of a step or of the goal."""
    criterion = {"text": "the orders are counted", "judge": True}
    replies = [call("look", where="north"), finish_step("3 orders in the north.", ("s1.1", "3 orders"))]
    plan = [{"content": "count the orders", "tools": ["look"], "done_when": [criterion]}]
    model = steps(plan, {"s1": [*replies, replies[1]]}, judge=[audit(met=met)] * 9)
    flow = await play(model, [look], effects=EFFECTS, goal="Count the orders")
    assert flow.status != "completed"
    assert {row["verdict"] for row in flow.run.receipt["steps"][0]["criteria"]} == {"unverified"}
    assert note in flow.run.receipt["steps"][0]["criteria"][0]["note"]


RULE = "House rule: a Silver member has 2 free bags for each passenger."


async def test_the_judge_reads_the_rules_that_the_work_stood_under() -> None:
    """Q17, V11: the instructions of the profile and of a step's executor stand before the judge as rules, once, and not
    among its own instructions; for an answer without a plan and for a step."""
    look_up = [call("look", where="north"), finish_step("4 bags are free.", ("s1.1", "3 orders"))]
    rules = Profile(role="You sell tickets.", instructions=RULE)
    clerk = Executor(profile="You count exactly.", description="counts")
    plan = [{"content": "count", "executor": "clerk"}]
    step = await play(
        one := steps(plan, {"s1": look_up}, judge=[audit()]),
        [look],
        effects=EFFECTS,
        settings={**FREE, "profile": rules},
        executors={"clerk": clerk},
    )
    answered = ScriptedModel(
        roles={"triage": [call("look", where="north"), answer("4 bags are free.")], "judge": [audit()]}
    )
    await play(answered, [look], effects=EFFECTS, settings={"profile": rules})
    assert step.status == "completed"
    for model, own in ((one, "You count exactly."), (answered, "")):
        system, brief = next(r.messages for r in model.requests if r.role == "judge")
        found = brief.text.partition("<instructions>")[2].partition("</instructions>")[0]
        assert (found.count(RULE), "You sell tickets." in found, own in found) == (1, True, True)
        assert RULE not in system.text
