"""What models write in other forms than asked for: read where it can only mean one thing, asked back once where not."""

import asyncio
import json
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from donewhen import Agent, Executor
from donewhen.testing import ScriptedModel, audit, call, finish_step, reply, submit_plan
from tests.kit.flows import FREE, Json, play, steps
from tests.kit.runs import Outbox

EFFECTS = {"look": "read"}
ROWS = "West | 939.00\nEast | 12.50\nNorth | 125.02 EUR"


def look(what: str) -> str:
    """Look something up."""
    if what == "nothing":
        raise ValueError("there is no such thing")
    return ROWS


def finish(goal_check: Any, **more: Any) -> Json:
    return {"name": "finish_step", "args": {"result": "125.02", "goal_check": goal_check, **more}, "id": "f"}


CITED = [{"criterion": 1, "met": True, "evidence": ["s1.1"]}]
ARGUMENTS = json.dumps({"result": "125.02", "goal_check": CITED})
HONEST: dict[str, Any] = {
    "an id with a quote": finish("s1.1: 125.02"),
    "an object by criterion": finish({"the amount is stated": "s1.1"}),
    "an object by number": finish({"1": {"met": True, "evidence": [{"observation": "s1.1"}]}}),
    "evidence by number": finish([{"criterion": 1, "met": True, "evidence": {"1": {"observation": "s1.1"}}}]),
    "evidence by id": finish([{"criterion": 1, "met": True, "evidence": {"s1.1": "125.02 EUR"}}]),
    "the id as criterion": finish([{"criterion": "s1.1", "met": True}]),
    "two rows in one quote": finish(
        [{"criterion": 1, "met": True, "evidence": [{"observation": "s1.1", "quote": "West | 939.00\nNorth | 125.02"}]}]
    ),
    "another form of the amount": finish(
        [{"criterion": 1, "met": True, "evidence": [{"observation": "s1.1", "quote": "€125.02"}]}]
    ),
    "summary for result": {
        "name": "finish_step",
        "args": {"summary": "125.02", "goal_check": CITED},
        "id": "f",
    },
    "checks for goal_check": {"name": "finish_step", "args": {"result": "125.02", "checks": CITED}, "id": "f"},
    "all in one object": {
        "name": "finish_step",
        "args": {"arguments": {"result": "125.02", "goal_check": CITED}},
        "id": "f",
    },
    "a result that is data": {"name": "finish_step", "args": {"result": [125.02], "goal_check": CITED}, "id": "f"},
    "printed after native calls": json.dumps(
        {"action": "finish_step", "arguments": {"result": "125.02", "goal_check": CITED}}
    ),
    "a number as quote": finish(
        [{"criterion": 1, "met": True, "evidence": [{"observation": "s1.1", "quote": 125.02}]}]
    ),
    "in Python": f"finish_step(result='125.02', goal_check={CITED})",
    "in Python with JSON in a fence": f"```python\nfinish_step(result='125.02', goal_check={json.dumps(CITED)})\n```",
    "a name and JSON": f"finish_step: {ARGUMENTS}",
    "JSON in brackets": f"finish_step({ARGUMENTS})",
    "JSON under its name": json.dumps({"finish_step": json.loads(ARGUMENTS)}),
    "the arguments alone": f"```json\n{ARGUMENTS}\n```",
}
NOT_MADE: dict[str, str] = {
    "behind words": f"I would call it so: finish_step({ARGUMENTS})",
    "before words": f"finish_step({ARGUMENTS}) would end the step.",
    "two": f"finish_step({ARGUMENTS})\nfinish_step({ARGUMENTS})",
    "cut off": f"finish_step: {ARGUMENTS[:-3]}",
    "with a variable": "finish_step(result=amount, goal_check=found)",
    "a tool of the step": "look(what='r2')",
}


@pytest.mark.parametrize("form", HONEST)
async def test_an_honest_end_in_another_form_is_taken(form: str) -> None:
    """Q80, X18, V01: the form names the observation and the criterion; nothing is sent back."""
    end = HONEST[form]
    model = steps(
        [{"content": "find the amount", "done_when": ["the amount is stated"]}],
        {"s1": [call("look", what="r1"), end if isinstance(end, str) else reply("", [end])]},
        judge=[audit()],
    )
    flow = await play(model, [look], effects=EFFECTS, settings=FREE)
    assert (flow.status, flow.run.answer.strip("[]")) == ("completed", "125.02"), flow.told("correction")
    assert not flow.told("correction")


@pytest.mark.parametrize(
    "words",
    [
        "Not met: s1.1 says that it is not so.",
        {"1": "not met, see s1.1"},
        ["s1.1", "it is not so"],
        [{"criterion": 1, "evidence": ["as s1.1 denies"]}],
        [{"criterion": 1, "evidence": ["s1.1"], "note": "not met"}],
    ],
)
async def test_words_are_no_claim_that_a_criterion_is_met(words: Any) -> None:
    """V01, Q80: nobody weighs what they mean: a claim in words goes back for its form, at no cost."""
    model = steps(
        [{"content": "find the amount", "done_when": ["the amount is stated"]}],
        {"s1": [call("look", what="r1"), reply("", [finish(words)]), reply("", [finish(CITED)])]},
        judge=[audit()],
    )
    flow = await play(model, [look], effects=EFFECTS, settings={**FREE, "max_refusals": 1})
    model.assert_exhausted()
    assert (flow.status, flow.step("s1")["refused"]) == ("completed", 0)
    assert "send {criterion, met: true or false, evidence}" in flow.told("correction")[0]["text"]


@pytest.mark.parametrize("form", NOT_MADE)
async def test_what_is_printed_is_no_claim_unless_it_is_the_whole_text(form: str) -> None:
    """N10, Q80: after native calls, what stands beside words, is cut off or names what is not there is only a text."""
    model = steps(
        [{"content": "find the amount", "done_when": ["the amount is stated"]}],
        {"s1": [call("look", what="r1"), NOT_MADE[form], reply("", [finish(CITED, result="125.02 in all")])]},
        judge=[audit()],
    )
    flow = await play(model, [look], effects=EFFECTS, settings=FREE)
    assert (flow.status, flow.run.answer) == ("completed", "125.02 in all")
    assert [entry["tool"] for entry in flow.journal if entry["source"] == "tool"] == ["look"]


async def test_a_number_without_a_0_counts_from_1_in_the_second_try_as_well() -> None:
    """Q80, X03: of two criteria, counted from 0, the second is refused: a 1 may repeat the first, and is asked back."""
    zero = [{"criterion": 0, "evidence": ["s1.1"]}, {"criterion": 1, "evidence": ["s1.9"]}]
    plan = [{"content": "find", "done_when": ["the amount is stated", "the region is stated"]}]
    ends = [finish(zero), *(finish([{"criterion": n, "met": True, "evidence": ["s1.1"]}]) for n in (1, 2))]
    model = steps(plan, {"s1": [call("look", what="r1"), *(reply("", [end]) for end in ends)]}, judge=[audit()])
    flow = await play(model, [look], effects=EFFECTS, settings=FREE)
    assert flow.status == "completed"
    assert ["leaves out criterion 2" in told["text"] for told in flow.told("correction")] == [False, True]


async def test_a_correction_for_the_whole_reply_stands_there_once() -> None:
    """Q80: of 30 parallel calls that were cut off, the first is told so in full, the others refer to it."""
    calls = [{"name": "look", "args": {"what": str(n)}, "id": f"c{n}"} for n in range(30)]
    model = steps(
        [{"content": "find", "done_when": ["found"]}],
        {"s1": [reply("", calls, finish_reason="length"), call("look", what="r1"), finish_step("125.02", "s1.1")]},
        judge=[audit()],
    )
    flow = await play(model, [look], effects=EFFECTS, settings=FREE)
    assert flow.status == "completed"
    told = [message.text for message in model.requests[2].messages if message.type == "tool"]
    assert len(told) == 30
    assert len({*told[1:]}) == 1
    assert len(told[1]) < 60 < len(told[0])


async def test_three_badly_formed_ends_are_a_fresh_attempt_and_no_new_plan() -> None:
    """Q79: of two steps side by side one ends three times in no form: it starts afresh, once, with what it has seen
    before it, and nobody plans or is asked again. If it happens again, the step has failed."""
    bad = reply("", [finish([{"criterion": 7, "met": True}])])
    plan = submit_plan(
        [{"content": n, "done_when": ["found"], "depends_on": [], "tools": None} for n in ("one", "two")]
    )
    good = finish_step("125.02", ("s1.1", "125.02"))
    for again, status in (([good], "completed"), ([bad] * 3, "partial")):
        work = {
            "s1": [call("look", what="r1"), bad, bad, bad, *again],
            "s2": [call("look", what="r2"), finish_step("939", ("s2.1", "939.00"))],
        }
        model = ScriptedModel(
            roles={
                "triage": [plan],
                "execute": work,
                "deliver": lambda *_: "125.02 and 939",
                "judge": lambda *_: audit(),
            }
        )
        settings = {"approvals": "plan", "on_failure": "deliver"}
        flow = await play(model, [look], effects=EFFECTS, settings=settings, answers=["approve"])
        assert (flow.status, len(flow.pauses), flow.step("s1")["attempt"]) == (status, 1, 2)
        fresh = [request for request in model.requests if request.step == "s1"][4]
        assert len(fresh.messages) == 2
        assert '[s1.1] look {"what": "r1"} ok:' in fresh.messages[1].text
        assert flow.run.spent.get("replans", 0) == 0


async def test_a_fresh_attempt_takes_nothing_over_from_the_one_before() -> None:
    """Q79, Q87, V07: why nothing had to be changed then is no reason now; of two attempts each proves itself."""
    outbox, bad = Outbox(), reply("", [finish([{"criterion": 7, "met": True}])])
    unproven = finish_step("no", "s1.9", unchanged="she has it already")
    looked, sent = [call("look", what="r1"), finish_step("125.02", "s1.1")], call("send", to="ann", text="hi")
    plan = [{"content": "write to Ann", "tools": ["look", "send"]}]
    model = steps(plan, {"s1": [unproven, bad, bad, *looked, sent, finish_step("sent", "s1.2")]})
    flow = await play(model, [look, outbox.tool()], effects={**EFFECTS, "send": "write"})
    assert (flow.status, flow.step("s1")["attempt"], len(outbox.sent)) == ("completed", 2, 1)
    model.assert_exhausted()


@pytest.mark.parametrize("answer", ["approve", "/cancel"])
async def test_a_fresh_attempt_is_of_the_same_step_with_what_it_did_and_spent(answer: str) -> None:
    """Q79, X27: what the first attempt wrote is asked about once, and listed once if the run ends; an agent gets its
    step once; both attempts count against the limits of the step."""
    handed, outbox, bad = list[str](), Outbox(), reply("", [finish([{"criterion": 7, "met": True}])])

    async def count(brief: str) -> str:
        """Count the lamps."""
        handed.append(brief)
        return "125.02"

    plan = [
        {"content": "write to Ann", "tools": ["send"], "done_when": ["sent"], "depends_on": []},
        {"content": "count", "executor": "counter", "done_when": ["counted"], "depends_on": []},
    ]
    sent = call("send", to="ann", text="hi")
    work = {
        "s1": [sent, bad, bad, bad, sent, finish_step("sent", "s1.2")],
        "s2": [bad, bad, bad, finish_step("125.02", ("s2.1", "125.02"))],
    }
    flow = await play(
        steps(plan, work, judge=lambda *_: audit()),
        [outbox.tool()],
        executors={"counter": Executor("counts", work=count)},
        settings={**FREE, "step_limits": {"rounds": 6}},
        answers=[answer],
    )
    assert [(each["kind"], each["step"]) for each in flow.pauses] == [("tool", "s1")]
    assert (flow.step("s1")["attempt"], flow.step("s2")["attempt"], len(handed)) == (2, 2, 1)
    effects = [row["id"] for row in flow.run.receipt["effects"]]
    if answer == "approve":
        assert (flow.status, len(outbox.sent), sorted(effects)) == ("completed", 2, ["s1.1", "s1.2", "s2.1"])
        spent = [{key: step["spent"][key] for key in ("rounds", "tool_calls")} for step in flow.run.receipt["steps"]]
        assert spent == [{"rounds": 6, "tool_calls": 2}, {"rounds": 4, "tool_calls": 1}]
    else:
        assert (flow.status, len(outbox.sent), sorted(effects)) == ("cancelled", 1, ["s1.1", "s2.1"])


async def test_a_fresh_attempt_keeps_to_the_limits_of_its_step() -> None:
    """Q79, H12: a limit of the step, and what people granted beyond it, is for both attempts."""
    bad, found = reply("", [finish([{"criterion": 7, "met": True}])]), finish_step("125.02", ("s1.1", "125.02"))
    model = steps(
        [{"content": "find", "done_when": ["found"]}],
        {"s1": [call("look", what="r1"), bad, bad, bad, found]},
        judge=[audit()],
    )
    settings = {**FREE, "step_limits": {"rounds": 3}}
    flow = await play(model, [look], effects=EFFECTS, settings=settings, answers=["extend rounds 1"] * 2)
    assert [each["meter"][0]["spent"] for each in flow.pauses] == [3, 4]
    assert (flow.status, flow.step("s1")["attempt"]) == ("completed", 2)
    assert flow.step("s1")["spent"]["rounds"] == 5


@pytest.mark.parametrize(("looked", "rounds"), [(["r1", "r2"], 1), (["r1", "nothing"], 2)])
async def test_a_plan_beside_looks_is_taken_if_they_succeed(looked: list[str], rounds: int) -> None:
    """Q73, X19: the plan needed none of them. What was seen can be cited; a look that fails sends the plan back."""
    plan = submit_plan([{"content": "find", "done_when": ["found"]}])
    both = reply("", [*(call("look", what=what) for what in looked), plan])
    model = ScriptedModel(
        roles={
            "triage": [both, plan][:rounds],
            "execute": [finish_step("125.02", ("p.1", "125.02"))],
            "judge": [audit()],
        }
    )
    flow = await play(model, [look], effects=EFFECTS, settings=FREE)
    model.assert_exhausted()
    assert flow.status == "completed"
    assert [entry["id"] for entry in flow.journal if entry["source"] == "tool"] == ["p.1", "p.2"]


async def test_a_plan_beside_looks_is_read_like_any_other() -> None:
    """Q73: one that breaks the rules is corrected, one that wants thinking goes to the draft, whose rounds are whole:
    each call of the reply has its answer."""
    plan = submit_plan([{"content": "find", "done_when": ["found"]}])
    broken = submit_plan([{"content": "find", "tools": ["nope"]}])
    deep = submit_plan([{"content": "find"}], need_thinking=True)
    done: Json = {"execute": [finish_step("125.02", ("p.1", "125.02"))], "judge": [audit()]}
    for first, role in ((broken, "triage"), (deep, "plan")):
        both = reply("", [call("look", what="r1"), first])
        scripts = {"triage": [both, plan]} if role == "triage" else {"triage": [both], "plan": [plan]}
        model = ScriptedModel(roles={**scripts, **done})
        flow = await play(model, [look], effects=EFFECTS, settings=FREE)
        model.assert_exhausted()
        assert flow.status == "completed"
        asked = next(request for request in model.requests[1:] if request.role == role)
        answers = [message for message in asked.messages if message.type == "tool"]
        assert len({message.tool_call_id for message in answers}) == len(answers) == 2
        assert ("'nope'" in answers[-1].text) == (role == "triage")


async def test_words_said_while_a_plan_looks_come_before_it() -> None:
    """Q73, Q19: what the user says meanwhile is read before a plan that does not know it is taken."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def search(what: str) -> str:
        """Search for something."""
        begun.set()
        await go_on.wait()
        return ROWS

    plan = submit_plan([{"content": "find", "done_when": ["found"]}])
    both = reply("", [call("search", what="r1"), plan])
    model = ScriptedModel(
        roles={"triage": [both, plan], "execute": [finish_step("125.02", ("p.1", "125.02"))], "judge": [audit()]}
    )
    settings = {**FREE, "when_busy": "next_round"}
    on = Agent(model, [search], effects={"search": "read"}, storage="memory:", settings=settings)
    run = asyncio.create_task(on.start("Find it", thread_id="t"))
    await begun.wait()
    await on.tell("t", "only the north")
    go_on.set()
    assert (await run).status == "completed"
    model.assert_exhausted()
    *_, not_taken, words = model.requests[1].messages
    assert not_taken.type == "tool"
    assert "[said.1] only the north" in words.text


async def test_what_cannot_be_used_is_not_sent() -> None:
    """Q81: a step without tools that knows nothing is offered no `recall`; one that reads has it from its first round.
    Planners read the second sentence of a tool that changes something whole, and only the first of one that reads."""

    def remove(path: str) -> str:
        """Delete a file. %s It takes a path."""
        return "gone"

    warning = f"All that {'links to it or ' * 12}lies below it goes as well, and cannot be restored."
    remove.__doc__ = str(remove.__doc__) % warning

    def find(path: str) -> str:
        """Find a file. It takes a while."""
        return "there"

    for tools, recalls in ([], False), (None, True):
        model = steps([{"content": "tell", "tools": tools}], {"s1": [finish_step("x", "s1.result")]}, judge=[audit()])
        await play(model, [remove, find], effects={"remove": "write", "find": "read"}, settings=FREE)
        offered = next(request.tool_names for request in model.requests if request.role == "execute")
        assert ("recall" in offered) == recalls
        assert "finish_task" not in offered
        assert f"- remove(path), write: Delete a file. {warning}\n" in model.requests[0].messages[1].text


async def test_a_citation_of_s1_10_is_none_of_s1_1() -> None:
    """Q93: what is cited is known by its id, and not by a part of it: only the tenth counts as seen in part."""
    long = "\n".join(f"row {n:05d}" for n in range(3000))

    def read(n: int) -> str:
        """Read a page."""
        return long

    claim = [{"criterion": 1, "met": True, "evidence": [{"observation": "s1.10", "quote": "row 00001"}]}]
    rounds = [*(call("read", n=n) for n in range(10)), finish_step("row 1", goal_check=claim)]
    model = steps([{"content": "read", "done_when": ["read"]}], {"s1": rounds}, judge=[audit()])
    flow = await play(model, [read], effects={"read": "read"}, settings=FREE)
    assert flow.step("s1")["verdicts"][0]["evidence"] == [{"observation": "s1.10", "quote": "row 00001", "part": True}]


async def test_a_planner_sees_which_arguments_are_lists_and_which_may_be_left_out() -> None:
    """S04: who writes down a call in a plan knows the form of its arguments, without the whole schema."""

    def order(items: list[str], address: dict[str, str], note: str = "", extra: list[str] | None = None) -> str:
        """Order some items."""
        return "ordered"

    odd = {"type": "object", "properties": {"a": {"anyOf": [True, {"type": "array"}]}, "b": {}}, "required": ["b"]}
    described = StructuredTool(name="odd", description="Odd.", args_schema=odd, func=print)
    model = ScriptedModel(roles={"triage": ["Hello."]})
    await Agent(model, [order, described], storage="memory:").start("hello")
    assert "- odd(a?: list, b), write: Odd." in model.requests[0].text
    shown = "- order(items: list, address: object, note?, extra?: list), write: Order some items."
    assert shown in model.requests[0].text
