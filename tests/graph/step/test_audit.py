"""The audit: a judge doubts every sentence that is delivered, sees every change, and never makes anything better."""

from typing import Any

import pytest
from langchain_core.tools import StructuredTool, ToolException

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
    """V03, V07, D07, N01, V12: "sent", though the tool only queued it: the sentence is marked, the run not completed.
    Said again word for word, it is not judged a second time."""
    model = sending(*["The mail to Ann is sent."] * 2, judge=[audit((1, "no", NOT_DONE))])
    flow = await play(model, [send], effects=EFFECTS, settings=FREE)
    model.assert_exhausted()
    assert (flow.status, flow.run.outcome["code"]) == ("partial", "not_shown")
    assert NOT_DONE in requests(model, "s1")[2].messages[-1].text
    assert flow.run.answer.splitlines()[0] == "The mail to Ann is sent."
    assert NOT_DONE in flow.run.answer
    assert flow.run.receipt["audit"]["sentences"][0]["shown"] == "no"
    assert [event["sentences"][0]["shown"] for event in flow.told("audit")] == ["no"]


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
    assert first.tool_names == ["audit", "look"]  # nothing is cut (Q81)
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
    model = ScriptedModel(roles={"triage": [call("look", where="."), said, said], "judge": [no]})
    flow = await play(model, [look], effects=EFFECTS, goal="Delete old.log")
    model.assert_exhausted()
    assert (flow.status, flow.run.outcome["code"]) == ("partial", "goal_not_met")
    assert (flow.run.outcome["looked"], flow.run.outcome["changed"]) == (True, False)
    hello = await play(ScriptedModel(roles={"triage": [answer("Hello!")], "judge": []}), [look], effects=EFFECTS)
    assert (hello.status, hello.run.spent["model_calls"]) == ("answered", 1)
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
    plan = submit_plan([{"content": "look", "tools": ["look"]}, {"content": "compare", "tools": None}])
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


async def test_the_judge_knows_what_the_tools_say_they_do() -> None:
    """V11, V12: what can and cannot be done here is shown by the tools, as data of theirs; of many, by those that
    were used or planned with."""
    answered = ScriptedModel(roles={"triage": [call("look", where="shop"), answer("I can send mail.", ("p.1", "12"))]})
    await play(answered, [look, send], effects=EFFECTS)
    lines = "- look, read: Look somewhere.\n- send, write: Send a mail."
    assert f"<tools>\n{lines}\n</tools>" in unfenced(answered.audits[0].text)
    many = [StructuredTool.from_function(look, name=f"look_{number}") for number in range(20)]
    answered = ScriptedModel(roles={"triage": [call("look_7", where="shop"), answer("12.50 EUR.", ("p.1", "12"))]})
    await play(answered, many, effects={tool.name: "read" for tool in many})
    assert "<tools>\n- look_7, read: Look somewhere.\n</tools>" in unfenced(answered.audits[0].text)


def book(room: str) -> str:
    """Book a room."""
    BOOKED.append(room)
    raise ConnectionError("503")


def bookings() -> str:
    """List the bookings."""
    return ", ".join(BOOKED) or "none"


BOOKED: list[str] = []


@pytest.mark.parametrize(
    ("settled", "known"),
    [
        ([{"change": "s1.1", "happened": True, "by": ["s1.2"]}], True),
        ([{"change": "[s1.1]", "happened": False, "by": "s1.2"}], False),
        ([{"change": "s1.1", "happened": True, "by": ["s1.1"]}], None),
        (
            [{"change": "s1.1", "happened": True, "by": []}, "x", {"change": "s1.2", "happened": True, "by": ["s1.1"]}],
            None,
        ),
        ([], None),
    ],
)
async def test_a_look_up_settles_a_change_of_unknown_outcome(settled: list[Any], known: bool | None) -> None:
    """Q28: a booking broke off, and what was looked up after it shows what came of it: where the judge says so, and
    names that observation, no line says that it is unknown, and the receipt has it. Nothing else settles it."""
    BOOKED.clear()
    verdict = call("audit", sentences=[{"n": 1, "shown": "yes"}], goal={"met": "yes", "missing": []}, settled=settled)
    rounds = [call("book", room="5"), call("bookings"), finish_step("Room 5 is booked.", ("s1.2", "5"))]
    model = steps([{"content": "book room 5", "tools": ["book"]}], {"s1": rounds}, judge=[verdict])
    flow = await play(model, [book, bookings], effects={"bookings": "read"}, settings=FREE)
    assert flow.status == "completed"
    assert ("It is not known whether this took effect" in flow.run.answer) == (known is None)
    (row,) = flow.run.receipt["effects"]
    assert (row["ok"], row.get("settled"), row.get("unknown")) == (
        (known, ["s1.2"], None) if known is not None else (False, None, True)
    )
    assert flow.run.receipt["changed"] == (known is not False)


async def test_what_a_person_denied_is_not_unknown() -> None:
    """Q28: a person said that it did not happen, and the second attempt was certainly refused: nothing is unknown."""
    tries: list[float] = []

    def pay(amount: float) -> str:
        """Pay."""
        tries.append(amount)
        raise ConnectionError("503") if len(tries) == 1 else ToolException("no such account")

    rounds = [call("pay", amount=5)] * 2 + [finish_step("Nothing was paid.", ("s1.2", "no such account"))]
    model = steps([{"content": "pay", "tools": ["pay"]}], {"s1": rounds}, judge=[audit(met="no", missing=["it"])])
    flow = await play(model, [pay], effects={"pay": "write"}, answers=["it did not"])
    assert [row.get("unknown") for row in flow.run.receipt["effects"]] == [None, None]
    assert "not known" not in flow.run.answer


async def test_after_a_doubt_only_what_is_new_is_judged() -> None:
    """V12, Q76: of two sentences the second is doubted and put right: the judge is asked about that one, reads the
    other as accepted, and the receipt has both. After a change all of them are judged again."""
    texts = ["3 orders in the north. They cost 20 EUR.", "3 orders in the north. They cost 12.50 EUR together."]
    first, second = (finish_step(text, ("s1.1", "3 orders")) for text in texts)
    doubt = audit((2, "no", "12.50"))
    plan = [{"content": "count", "tools": ["look", "send"]}]
    for between, numbered in (([], 1), ([call("send", to="ann")], 2)):
        rounds = [call("look", where="north"), call("send", to="bob"), first, *between, second]
        model = steps(plan, {"s1": rounds}, judge=[doubt, audit(count=numbered)])
        flow = await play(model, [look, send], effects=EFFECTS, settings=FREE)
        model.assert_exhausted()
        assert flow.status == "completed"
        claims = judged(model)[1].partition("<claims>\n")[2].partition("\n</claims>")[0].splitlines()
        assert len(claims) == numbered
        assert claims[-1].endswith("They cost 12.50 EUR together.")
        assert ("<accepted>\n3 orders in the north.\n</accepted>" in judged(model)[1]) == (numbered == 1)
        rows = flow.run.receipt["audit"]["sentences"]
        assert [(row["n"], row["shown"]) for row in rows] == [(1, "yes"), (2, "yes")]


async def test_what_is_sent_back_unchanged_is_not_judged_again() -> None:
    """V12: an answer without a plan that comes again word for word keeps its verdict: one audit, no second question."""
    told = answer("The mail to Ann is sent.")
    model = ScriptedModel(
        roles={"triage": [call("look", where="north"), told, told], "judge": [audit((1, "no", NOT_DONE))]}
    )
    flow = await play(model, [look], effects=EFFECTS)
    model.assert_exhausted()
    assert (flow.status, flow.run.outcome["code"]) == ("partial", "not_shown")


async def test_a_delivery_that_is_true_and_not_all_is_not_written_again() -> None:
    """Q76: every sentence is shown and a part of the goal is missing: who only words the answer cannot mend that."""
    plan = ["count the north", "count the south"]
    rounds = {id: [call("look", where=id), finish_step("3 orders", (f"{id}.1", "3 orders"))] for id in ("s1", "s2")}
    model = steps(plan, rounds, deliver=["3 orders each."], judge=[audit(missing=["the sum"])])
    flow = await play(model, [look], effects=EFFECTS, settings=FREE)
    model.assert_exhausted()
    assert (flow.status, flow.run.outcome["missing"]) == ("partial", ["the sum"])


async def test_the_judge_is_told_how_many_observations_it_does_not_read() -> None:
    """V09: of 311 looks one is cited and 300 are listed; what the two steps returned is no observation."""
    first = [[call("look", where=f"{part}-{number}") for number in range(31)] for part in range(10)]
    second = [call("look", where="last")]
    done = finish_step("Done.", ("s1.1", "orders"))
    plan = [{"content": "look everywhere", "tools": ["look"]}, {"content": "look once more", "tools": ["look"]}]
    model = steps(plan, {"s1": [*first, done], "s2": [second, done]}, judge=[audit()])
    await play(model, [look], effects=EFFECTS, settings=FREE)
    (asked,) = judged(model)
    seen = asked.partition("<observations>\n")[2].partition("</observations>")[0].splitlines()
    listed = [line for line in seen if line.startswith("[s")]
    assert (seen[0], len(listed)) == ("[… 10 earlier ones are left out]", 300)


async def test_what_was_recalled_whole_was_seen_whole() -> None:
    """Q77, V04: the step that read it recalled all of a long log: neither for the goal's criterion nor for a later step
    is it seen in part. What nobody recalled is."""
    log = "\n".join(f"row {n:05d} value {n * 7 % 1000}" for n in range(1400))

    def read() -> str:
        """Read the log."""
        return log

    cited = [{"criterion": 1, "met": True, "evidence": [{"observation": "s1.1", "quote": "row 00700 value 900"}]}]
    plan = submit_plan(
        [{"content": "read", "done_when": ["known"]}, {"content": "word it", "tools": [], "done_when": ["worded"]}],
        done_when=["the value of row 700 is stated"],
    )
    for recalled in ([recall("s1.1", 0), recall("s1.1", 19_800)], [recall("s1.1", 0)]):
        model = ScriptedModel(
            roles={
                "triage": [plan],
                "execute": {
                    "s1": [call("read"), *recalled, finish_step("900", goal_check=cited)],
                    "s2": [finish_step("It is 900.", goal_check=cited)],
                },
                "deliver": [call("deliver", text="The value of row 700 is 900.", goal_check=cited)],
                "judge": [audit()],
            }
        )
        flow = await play(model, [read], effects={"read": "read"}, settings=FREE)
        assert flow.status == "completed"
        rows = [*flow.run.receipt["criteria"], *(row for step in flow.run.receipt["steps"] for row in step["criteria"])]
        assert {row["evidence"][0].get("part", False) for row in rows} == {len(recalled) == 1}
        assert ("(the agent saw a part of it)" in judged(model)[0]) == (len(recalled) == 1)


async def test_passages_and_cuts_say_once_what_they_show() -> None:
    """Q77: two quotes of one place are one passage; a change whose outcome is cut says how the rest is read."""

    def write(path: str) -> str:
        """Write a file."""
        return "written " + "x " * 4_000

    def read(path: str) -> str:
        """Read a file."""
        return "y " * 4_000 + "the total is 12.50 EUR in 3 orders" + " z" * 4_000

    quotes = [{"observation": "s1.1", "quote": quote} for quote in ("total is 12.50", "12.50 EUR in 3", "3 orders")]
    claim = [{"criterion": 1, "met": True, "evidence": quotes}]
    rounds = [call("read", path="a"), call("write", path="b"), finish_step("12.50 EUR.", goal_check=claim)]
    model = steps([{"content": "total", "tools": ["write"]}], {"s1": rounds}, judge=[audit()])
    await play(model, [read, write], effects={"read": "read", "write": "write"}, settings={**FREE, "approvals": "plan"})
    (asked,) = judged(model)
    assert "recall" in next(request for request in model.requests if request.role == "judge").tool_names
    cited = asked.partition("<cited>\n")[2].partition("</cited>")[0]
    assert cited.count("the total is 12.50 EUR in 3 orders") == 1
    assert "characters; recall s1.2 reads them …]" in asked.partition("<changes>\n")[2].partition("</changes>")[0]


async def test_an_answer_that_declares_another_language_goes_back_once() -> None:
    """Q27, P14: the plan was declared German: a result declared English goes back once, so does a delivery; what the
    model insists on, and what declares nothing, is taken. It is form, and no refused proof."""
    first = call("submit_plan", title="t", language="de", steps=[{"content": "zähle", "done_when": ["gezählt"]}])
    seen = [{"criterion": 1, "met": True, "evidence": [{"observation": "s1.1"}]}]

    def end(text: str, **more: Any) -> Any:
        return call("finish_step", result=text, goal_check=seen, **more)

    english, german = end("3 orders", language="en"), end("3 Aufträge", language="de")
    cases = [([english, german], "3 Aufträge"), ([english, english], "3 orders"), ([end("3 orders")], "3 orders")]
    for ends, answered in cases:
        rounds = [call("look", where="north"), *ends]
        model = ScriptedModel(roles={"triage": [first], "execute": rounds, "judge": [audit()]})
        flow = await play(model, [look], effects=EFFECTS, settings={**FREE, "max_refusals": 1})
        model.assert_exhausted()
        assert (flow.status, flow.run.answer, flow.step("s1")["refused"]) == ("completed", answered, 0)
        told = [request.messages[-1].text for request in model.requests if request.role == "execute"][2:]
        assert all("Sprache schreiben: de" in text for text in told)
    two = call("submit_plan", title="t", language="it", steps=[{"content": "conta"}, {"content": "conta ancora"}])
    work = {id: [call("look", where=id), finish_step("3", (f"{id}.1", "3 orders"))] for id in ("s1", "s2")}
    written = [call("deliver", text="3 orders", language="en"), call("deliver", text="3 ordini", language="it")]
    model = ScriptedModel(roles={"triage": [two], "execute": work, "deliver": written, "judge": [audit()] * 2})
    flow = await play(model, [look], effects=EFFECTS, settings=FREE)
    assert flow.run.answer.strip() == "3 ordini"


async def test_a_question_about_a_plan_changes_nothing_of_its_language() -> None:
    """Q27, P14: a plan declared German is shown again after an answer in English; its result stays German."""
    first = call("submit_plan", title="t", language="de", steps=[{"content": "zähle"}])
    answer = call("answer", text="Because.", language="en")
    seen = [{"criterion": 1, "met": True, "evidence": [{"observation": "s1.result"}]}]
    texts = (("Three.", "en"), ("Drei.", "de"))
    ends = [call("finish_step", result=text, goal_check=seen, language=tag) for text, tag in texts]
    model = ScriptedModel(roles={"triage": [first, answer], "execute": ends})
    flow = await play(model, settings={}, answers=["why?", "approve"])
    model.assert_exhausted()
    assert (flow.run.answer, flow.run.language) == ("Drei.", "de")
    assert [pause["language"] for pause in flow.pauses] == ["de", "de"]
