"""What each edit of a plan means, from every client's text field, editor and page (C12, C14, Q08, Q100)."""

import copy
import json
from typing import Any

import pytest

from donewhen.state.people.answers import Answer
from donewhen.state.people.edit import plan_document
from donewhen.state.plan.plan import Rules, read_plan
from tests.kit.pauses import hitl, pending, read_answer

RULES = Rules(tools=["look", "pay", "send"], executors=["reader"], checks={"look": lambda arguments: ()})
TO_ACME = {"to": "ACME-12", "amount": 100, "currency": "EUR"}
CHECK = {"tool": "look", "arguments": {"at": "rows", "deep": True}, "expect": {"contains": "3"}}
MONDAYS = {"at": "08:30", "weekdays": ["mon"], "timezone": "Europe/Berlin", "missed": "all"}


def made(**more: Any) -> dict[str, Any]:
    """Return a plan with something of everything."""
    read = {"content": "Read the figures", "done_when": ["Read", {"text": "Three rows", "check": CHECK, "judge": True}]}
    pay = {"content": "Pay ACME", "done_when": ["Paid"], "calls": [{"tool": "pay", "arguments": TO_ACME}]}
    plan = read_plan(
        {
            "title": "Weekly",
            "done_when": ["It is out"],
            "steps": [
                {"id": "s1", **read, "tools": ["look"], "executor": "reader", "depends_on": []},
                {"id": "s2", **pay, "tools": ["look"], "depends_on": ["s1"]},
                {"id": "s3", "content": "Mail it", "done_when": ["Mailed"], "tools": ["send"], "depends_on": ["s2"]},
            ],
            "schedule": MONDAYS,
            **more,
        },
        RULES,
    )
    assert isinstance(plan, dict), plan
    return plan


SHOWN = made()
TOLD = SHOWN["steps"][1]["content"].removeprefix("Pay ACME ")
EVERY_HOUR, ONCE = made(schedule={"every_minutes": 60, "missed": "skip"}), made(schedule=None)
LIMITS = {"rounds": 40, "cost_usd": 0.5}


def criterion(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "check": None, "judge": False, **more}


def changed(path: str = "", value: Any = None, plan: dict[str, Any] = SHOWN) -> dict[str, Any]:
    """Return the shown plan with the value at a path, such as `s2.tools`, replaced."""
    after = copy.deepcopy(plan)
    *steps, key = path.split(".")
    holder = next(each for each in after["steps"] if each["id"] == steps[0]) if steps else after
    if key:
        holder[key] = value
    return after


def step(place: int, **said: Any) -> dict[str, Any]:
    """Return the data of an edit in which one step says only this, and the others only their ids."""
    steps: list[dict[str, Any]] = [{"id": "s1"}, {"id": "s2"}, {"id": "s3"}]
    return {"steps": [each if number != place else {**each, **said} for number, each in enumerate(steps, 1)]}


def without(place: int, *keys: str) -> dict[str, Any]:
    """Return the shown plan as a page sends it, with keys of a step deleted."""
    after = changed()
    for key in keys:
        del after["steps"][place - 1][key]
    return after


def text(before: str, after: str, plan: dict[str, Any] = SHOWN) -> str:
    """Return the text that every text field and editor shows, with a part of it edited."""
    shown = plan_document({"plan": plan, "limits": LIMITS})
    assert shown.count(before) == 1, before
    return shown.replace(before, after)


def no_call(place: int = 2, **more: Any) -> dict[str, Any]:
    after = changed()
    del after["steps"][place - 1]["calls"]
    after["steps"][place - 1].update(more)
    return after


def with_call(**arguments: Any) -> dict[str, Any]:
    after = changed()
    call = {"tool": "pay", "arguments": arguments}
    told = f"(pay with {json.dumps(arguments)})"
    after["steps"][1].update(calls=[call], content=f"Pay ACME {told}")
    return after


SAME = changed()
SCHEDULE = "schedule:\n  at: 08:30\n  weekdays:\n  - mon\n  timezone: Europe/Berlin\n  missed: all\n"
LINE = "line 41: schedule"
S1, S2, S3 = ({"id": each} for each in ("s1", "s2", "s3"))

# what is sent | what it means: the whole plan afterwards, or what the refusal says
EDITS: dict[str, tuple[Any, Any]] = {
    # the whole plan
    "the text as it was": (plan_document({"plan": SHOWN, "limits": LIMITS}), SAME),
    "the data as they were": (SHOWN, SAME),
    "the data as text": (json.dumps(SHOWN), SAME),
    "only a title": ({"title": "Monthly"}, changed("title", "Monthly")),
    "only a title, as text": ("title: Monthly\n", changed("title", "Monthly")),
    "only what the goal needs": ({"done_when": ["Both"]}, changed("done_when", [criterion("Both")])),
    "the goal's criteria taken away": (text("done_when:\n- It is out\n", "done_when: none\n"), changed("done_when", [])),
    "the goal's criteria left out": (text("done_when:\n- It is out\n", ""), SAME),
    "a title without a value": (text("title: Weekly", "title:"), SAME),
    "nothing at all": ({}, "needs `steps`"),
    "no steps": ({"steps": None}, "needs `steps`"),
    "steps: none": ("steps: none", "needs `steps`"),
    "a list instead of a plan": ("- a\n- b\n", "cannot be a list"),
    "a key that no plan has": (text("\nschedule:", "\nschedul:"), "line 41: a plan has no field 'schedul'"),
    "a key of models": ({**SHOWN, "tasks": []}, "a plan has no field 'tasks'"),
    "a key twice, as JSON": ('{"steps": [{"id": "s1"}],\n "title": "a",\n "title": "b"}', "line 3: the key 'title'"),
    # the schedule
    "schedule: none": (text(SCHEDULE, "schedule: none\n"), changed("schedule", None)),
    "schedule: None": (text(SCHEDULE, "schedule: None\n"), changed("schedule", None)),
    "schedule: null": ({"schedule": None}, changed("schedule", None)),
    "schedule without a value": (text(SCHEDULE, "schedule:\n"), changed("schedule", None)),
    "schedule: {}": (text(SCHEDULE, "schedule: {}\n"), f"{LINE}: gives no time"),
    "schedule: {} as data": ({**SHOWN, "schedule": {}}, "schedule: gives no time"),
    "schedule: {} as JSON": ('{"steps": [{"id": "s1"}],\n"schedule": {}}', "line 2: schedule: gives no time"),
    "schedule: ''": (text(SCHEDULE, "schedule: ''\n"), f"{LINE}: '' is no schedule"),
    "schedule: []": ({**SHOWN, "schedule": []}, "schedule: [] is no schedule"),
    "schedule: false": ({**SHOWN, "schedule": False}, "schedule: False is no schedule"),
    "a schedule in words": (text(SCHEDULE, "schedule: every 2 hours\n"), f"{LINE}: 'every 2 hours' is no schedule"),
    "every_minutes: null": ({**SHOWN, "schedule": {"every_minutes": None}}, "schedule: gives no time"),
    "only nulls": (text(SCHEDULE, "schedule:\n  at:\n  timezone:\n"), f"{LINE}: gives no time"),
    "at: none": ({"schedule": {"at": "none"}}, "schedule: gives no time"),
    "only missed": ({"schedule": {"missed": "skip"}}, changed("schedule", {**MONDAYS, "missed": "skip"})),
    "only the zone": ({"schedule": {"timezone": "UTC"}}, changed("schedule", {**MONDAYS, "timezone": "UTC"})),
    "only the time": (text(SCHEDULE, "schedule:\n  at: 09:00\n"), changed("schedule", {**MONDAYS, "at": "09:00"})),
    "the days left out": (text("  weekdays:\n  - mon\n", ""), SAME),
    "the days taken away": (text("  weekdays:\n  - mon\n", "  weekdays: none\n"),
                            changed("schedule", {**MONDAYS, "weekdays": None})),
    "other days": (text("  - mon\n", "  - tue\n"), changed("schedule", {**MONDAYS, "weekdays": ["tue"]})),
    "no zone": ({"schedule": {"timezone": None}}, "schedule: a time of day needs a timezone"),
    "an interval instead of a time": (text(SCHEDULE, "schedule:\n  every_minutes: 30\n"), changed(
        "schedule", {"every_minutes": 30, "timezone": "Europe/Berlin", "missed": "all"})),
    "cron instead of a time": ({"schedule": {"cron": "0 9 * * 5"}}, changed(
        "schedule", {"cron": "0 9 * * 5", "timezone": "Europe/Berlin", "missed": "all"})),
    "two ways": (text("  at: 08:30\n", "  at: 08:30\n  every_minutes: 5\n"), "schedule: a schedule has either"),
    "an impossible time": (text("08:30", "25:00"), "schedule.at"),
    "the schedule's lines deleted": (text(SCHEDULE, ""), "the edit leaves out `schedule`"),
    "its lines deleted, and a new title": (text(SCHEDULE, "").replace("Weekly", "Daily"), changed("title", "Daily")),
    # steps
    "a step taken out": ({"steps": [S1, {**S2}]}, {**SAME, "steps": SAME["steps"][:2]}),
    "a step taken out that another needs": ({"steps": [S1, S3]}, "depends on 's2'"),
    "steps in words only": ({"steps": [each["content"] for each in SHOWN["steps"]], "title": "T"}, changed("title", "T")),
    "the id left out": (text("- id: s3\n  content: Mail it\n", "- content: Mail it\n"), SAME),
    "ids as numbers": ({"steps": [{"id": 1}, {"id": 2}, {"id": 3, "tools": []}]}, changed("s3.tools", [])),
    "only words and id": ({"title": "T", **step(3, content="Mail it")}, changed("title", "T")),
    "other words": ({**step(3, content="Mail both")}, changed("s3.content", "Mail both")),
    "words taken away": (text("content: Mail it", "content:"), "steps[2].content"),
    "criteria left out": (text("  - Mailed\n", "").replace("Mail it\n  done_when:\n", "Mail it\n"), SAME),
    "criteria without a value": (text("  - Mailed\n", ""), changed("s3.done_when", [])),
    "done_when: []": (step(3, done_when=[]), changed("s3.done_when", [])),
    "done_when: none": (step(3, done_when="none"), changed("s3.done_when", [])),
    "done_when: ''": (step(3, done_when=""), changed("s3.done_when", [])),
    "one criterion more": (step(3, done_when=["Mailed", "Read"]),
                           changed("s3.done_when", [criterion("Mailed"), criterion("Read")])),
    "a criterion by its words keeps its check": (step(1, done_when=["Three rows"]),
                                                 changed("s1.done_when", [SHOWN["steps"][0]["done_when"][1]])),
    "its check taken away": (step(1, done_when=[{"text": "Three rows", "check": "none"}]),
                             changed("s1.done_when", [criterion("Three rows", judge=True)])),
    "its judge taken away": (step(1, done_when=[{"text": "Three rows", "judge": False}]),
                             changed("s1.done_when", [criterion("Three rows", check=CHECK)])),
    "what its check expects": (
        step(1, done_when=[{"text": "Three rows", "check": {"expect": {"contains": "4"}}}]),
        changed("s1.done_when", [criterion("Three rows", check={**CHECK, "expect": {"contains": "4"}}, judge=True)])),
    "a check without a tool": (step(3, done_when=[{"text": "Mailed", "check": {"expect": "ok"}}]), "check.tool"),
    "tools left out beside other words": ({**step(3, content="Mail two")}, changed("s3.content", "Mail two")),
    "only tools left out": (text("  tools:\n  - send\n", ""), "step s3 leaves out `tools`"),
    "tools: none": (text("  tools:\n  - send\n", "  tools: none\n"), changed("s3.tools", [])),
    "tools without a value": (text("  tools:\n  - send\n", "  tools:\n"), changed("s3.tools", None)),
    "tools: null": (step(3, tools=None), changed("s3.tools", None)),
    "depends_on left out": (text("  depends_on:\n  - s2\n", ""), SAME),
    "depends_on: none": (text("  depends_on:\n  - s2\n", "  depends_on: none\n"), changed("s3.depends_on", [])),
    "depends_on: null": (step(3, depends_on=None), changed("s3.depends_on", None)),
    "executor left out": (text("  executor: reader\n", ""), SAME),
    "executor: none": (text("  executor: reader\n", "  executor: none\n"), changed("s1.executor", None)),
    # a step that begins with a call
    "the call's tool unticked": (step(2, tools=["look"]), no_call(content="Pay ACME", tools=["look"])),
    "the call's tool unticked on the page": (
        changed("s2.tools", ["look"]), no_call(content="Pay ACME", tools=["look"])),
    "tools: none, before a call": (text("  tools:\n  - look\n  - pay\n", "  tools: none\n"),
                                   no_call(content="Pay ACME", tools=[])),
    "the tools' lines deleted": (text("  tools:\n  - look\n  - pay\n", ""), "line 24: step s2 leaves out `tools`"),
    "they and the title": (text("  tools:\n  - look\n  - pay\n", "").replace("Weekly", "Now"), "s2 leaves out `tools`"),
    "tools deleted in the data": (without(2, "tools"), "step s2 leaves out `tools`"),
    "calls deleted in the data": (without(2, "calls"), "step s2 leaves out `calls`"),
    "calls: []": (step(2, calls=[]), no_call(content="Pay ACME")),
    "calls: null": (step(2, calls=None), no_call(content="Pay ACME")),
    "calls: none": (step(2, calls="none"), no_call(content="Pay ACME")),
    "another amount": (step(2, calls=[{"tool": "pay", "arguments": {"amount": 10}}]), with_call(**{**TO_ACME, "amount": 10})),
    "another amount, and its tool unticked": (
        step(2, calls=[{"tool": "pay", "arguments": {"amount": 10}}], tools=["look"]), "`tools` do not list it"),
    "a call that is none": (step(2, calls=[{"pay": 10}]), "step s2, calls: each is an object of `tool` and `arguments`"),
    "calls in words": (step(2, calls="pay ten"), "step s2, calls: each is an object"),
    "other words for a call": (step(2, content="Ask the boss"), no_call(content="Ask the boss")),
    "a title only": ({**step(2), "title": "T"}, changed("title", "T")),
    # limits
    "another limit": ({"limits": {"rounds": 10}}, {"rounds": 10}),
    "limits left out": (text("limits:\n  rounds: 40\n  cost_usd: 0.5\n", ""), SAME),
    "a limit without a value": (text("  rounds: 40\n", "  rounds:\n"), "take away the limit of rounds"),
    "limits: null": ({"limits": None}, "take away the limit of rounds, cost_usd"),
}  # fmt: skip
# ruff: noqa: E501


def mean(answer: Answer | str, plan: dict[str, Any], edited: Any = None) -> Any:
    """Return the plan that an answer leads to, the limits if only these change, or the refusal."""
    if isinstance(answer, str):
        return answer
    if answer.kind == "approve":
        return plan
    if answer.amounts:
        return answer.amounts
    after = read_plan(answer.plan, RULES)
    return after if isinstance(after, dict) else "; ".join(after)


def forms(edit: Any) -> list[Any]:
    """Return an edit as the clients send it: under `plan`, as the plan itself, in a text field."""
    if isinstance(edit, str):
        return [hitl("plan", plan=edit), {"type": "edit", "plan": edit}]
    own = [edit] if edit.get("steps") else []
    return [{"type": "edit", "plan": edit}, {"decisions": [{"type": "edit", "plan": edit}]}, *own]


def test_what_each_edit_means() -> None:
    """C14, C12: what is left out stays, taking away is said, and what cannot be meant is refused with its line."""
    wrong = []
    for name, (edit, meaning) in EDITS.items():
        for form in forms(edit):
            found = mean(
                read_answer(form, pending("plan", plan=SHOWN, revision=SHOWN["revision"], limits=LIMITS)), SHOWN
            )
            if isinstance(meaning, str):
                fits = isinstance(found, str) and meaning in found
            elif "steps" in meaning and isinstance(found, dict):
                fits = normal(found) == normal(meaning)
            else:
                fits = found == meaning
            wrong += [] if fits else [(name, found)]
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong)


def normal(plan: dict[str, Any]) -> dict[str, Any]:
    """Return a plan without its revision and the empty fields of its schedule."""
    schedule = {key: item for key, item in (plan.get("schedule") or {}).items() if item is not None}
    return {**plan, "schedule": schedule, "revision": None}


@pytest.mark.parametrize(
    ("plan", "schedule", "said"),
    [
        (EVERY_HOUR, {"at": "09:00", "timezone": "UTC"}, {"at": "09:00", "timezone": "UTC", "missed": "skip"}),
        (EVERY_HOUR, {"every_minutes": None}, "gives no time"),
        (EVERY_HOUR, {"weekdays": ["mon"]}, "weekdays go with at"),
        (ONCE, {"missed": "skip"}, "gives no time"),
        (ONCE, {"weekdays": ["mon"], "timezone": "UTC"}, "gives no time"),
        (ONCE, {}, "gives no time"),
        (ONCE, None, {}),
        (ONCE, {"every_minutes": 5}, {"every_minutes": 5, "missed": "once"}),
    ],
)
def test_a_schedule_is_never_lost_or_made_up(plan: dict[str, Any], schedule: Any, said: Any) -> None:
    """C14, Q08: only what is said takes a schedule away or makes one, whatever was shown."""
    waiting = pending("plan", plan=plan, revision=plan["revision"])
    found = mean(read_answer({"type": "edit", "plan": {"schedule": schedule}}, waiting), plan)
    assert said in found if isinstance(said, str) else normal(found)["schedule"] == said


def test_a_step_that_is_only_its_call_is_taken_out_whole() -> None:
    """Q100: without its call nothing of such a step is left, and its words would still name it."""
    plan = read_plan({"title": "t", "steps": [{"tool": "pay", "arguments": TO_ACME}, "Look"]}, RULES)
    assert isinstance(plan, dict)
    waiting = pending("plan", plan=plan, revision=plan["revision"])
    for edit in ({"id": "s1", "calls": []}, {"id": "s1", "tools": "none"}):
        answer = read_answer({"type": "edit", "plan": {"steps": [edit, {"id": "s2"}]}}, waiting)
        assert "step s1 is nothing but a call of pay: take the whole step out" in str(answer)
    written = {"id": "s1", "tool": "pay", "arguments": {**TO_ACME, "amount": 5}}
    after = mean(read_answer({"type": "edit", "plan": {"steps": [written, {"id": "s2"}]}}, waiting), plan)
    assert after["steps"][0]["calls"][0]["arguments"]["amount"] == 5
    assert "100" not in after["steps"][0]["content"]


def test_a_call_is_named_once_however_often_a_plan_is_read() -> None:
    """C12: a plan that goes through clients keeps its words, and another call replaces the words of the first."""
    again = read_plan(SHOWN, RULES)
    assert isinstance(again, dict)
    assert again["steps"] == SHOWN["steps"]
    assert SHOWN["steps"][1]["content"] == f"Pay ACME (pay with {json.dumps(TO_ACME)})"
