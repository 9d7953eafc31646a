"""Plans as planners of other systems write them: read as what they can only be, or sent back; nothing is lost."""

from typing import Any

import pytest

from donewhen.graph.llm.printed import read_printed
from donewhen.state.plan.elsewhere import in_our_form, lines_of_steps
from donewhen.state.plan.plan import read_plan
from donewhen.state.plan.rules import Rules
from donewhen.state.reading.decisions import EXECUTE, TRIAGE

RULES = Rules(tools={"look", "send"}, executors=["coder", "data_expert"], repeats=True)
Json = dict[str, Any]


def plan(**written: Any) -> Any:
    ours, problems = in_our_form(written, RULES.executors)
    return problems or read_plan(ours, RULES)


def step(**written: Any) -> Json:
    (made,) = plan(title="t", steps=[written])["steps"]
    return dict(made)


@pytest.mark.parametrize(
    "written",
    [
        {"agent": "coder"}, {"agent_name": "coder"}, {"assigned_to": "Coder"}, {"assignee": "coder"},
        {"worker": "coder"}, {"content": "[coder] write it"}, {"content": "[CODER]  write it"},
        {"executor": "coder", "agent": "data_expert"},
    ],
)  # fmt: skip
def test_who_works_on_a_step_is_found_under_any_of_the_usual_names(written: Json) -> None:
    """Q37: agent cards of ValueCell, tags of OpenManus, keys that models know from elsewhere."""
    made = step(**{"content": "write it", **written})
    assert (made["content"], made["executor"]) == ("write it", "coder")


def test_a_name_that_is_none_is_asked_about_and_a_tag_that_is_none_stays() -> None:
    """Q37: never the default executor in place of one that was named."""
    said = plan(title="t", steps=[{"content": "write it", "agent": "codr"}])
    assert "the executor 'codr', which does not exist; did you mean coder" in said[0]
    assert step(content="[urgent] write it")["content"] == "[urgent] write it"
    assert [each["executor"] for each in plan(title="t", agent="data expert", steps=["a", "b"])["steps"]] == [
        "data_expert",
        "data_expert",
    ]


HOURLY: Json = {"pattern": "recurring", "schedule_config": {"interval_minutes": 60, "daily_time": None}}


def test_a_recurrence_is_a_schedule_or_asked_about() -> None:
    """Q37: of ValueCell: of the plan, of each task alike, without a time, of some tasks only; a run once needs none."""
    assert plan(title="t", steps=["a"], **HOURLY)["schedule"]["every_minutes"] == 60
    tasks = [{"title": "Prices", "query": "look up the prices", "agent_name": "coder", **HOURLY}]
    made = plan(tasks=tasks, adequate=True, reason="clear", guidance_message="Every hour, as you said.")
    assert (made["schedule"]["every_minutes"], made["speak"]) == (60, "Every hour, as you said.")
    assert made["steps"][0]["content"] == "Prices: look up the prices"
    assert "timezone" in plan(title="t", steps=["a"], pattern="recurring", schedule_config={"daily_time": "09:00"})[0]
    assert "recurs without saying when" in plan(title="t", steps=["a"], pattern="recurring")[0]
    assert "runs once and has times" in plan(title="t", steps=["a"], **{**HOURLY, "pattern": "once"})[0]
    assert "as a whole" in plan(tasks=[*tasks, {"title": "b", "query": "c", "pattern": "once"}])[0]
    once: Json = {"pattern": "once", "schedule_config": {"interval_minutes": None, "daily_time": None}}
    assert plan(tasks=[{"title": "a", "query": "b", **once}])["schedule"] is None


def test_what_has_no_place_is_said_in_words() -> None:
    """Q37, H14: nothing of a plan is dropped: a budget is in `speak`, a priority in its step; empty values, thoughts
    and numbers of steps say nothing. A key that is almost one of ours, and what is too long, is sent back."""
    more: Json = {"number": 1, "status": "pending", "notes": "", "reasoning": "because", "name": "Mail"}
    made = plan(title="t", max_cost="5 EUR", thoughts="hm", steps=[{"content": "send it", "priority": "high", **more}])
    assert made["speak"] == "max cost: 5 EUR"
    assert made["steps"][0]["content"] == "Mail: send it (priority: high)"
    assert step(content="a", status="done")["content"] == "a (status: done)"
    assert step(content="a", tool="send")["tools"] == ["send"]
    assert plan(title="t", steps=["a"], done_wen=["x"]) == ["there is no key 'done_wen'; did you mean done_when?"]
    assert "say it in the content" in plan(title="t", steps=[{"content": "a", "background": "long " * 200}])[0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"speak": "Here.", "action": "plan_done", "plan_steps": [{"content": "a"}]}', ["submit_plan"]),
        ('{"tasks": [{"title": "a", "query": "b", "agent_name": "c"}], "adequate": true}', ["submit_plan"]),
        ('{"tasks": [], "adequate": false, "reason": "r", "guidance_message": "How often?"}', ["ask_user"]),
        ("title: t\nsteps:\n  - content: look\n    done_when: seen\n", ["submit_plan"]),
        ("Here it is:\n```yaml\nsteps:\n  - content: look\n```\n", ["submit_plan"]),
        ('{"action": "planning", "command": "create", "title": "t", "steps": ["look", "send"]}', ["submit_plan"]),
        ('[{"type": "tool", "name": "look", "arguments": {}}, {"type": "reply", "text": "done"}]', ["look", "answer"]),
        ('{"type": "tool", "name": "look", "arguments": {}}\n{"type": "reply", "text": "done"}', ["look", "answer"]),
        ('{"action": "look"}\n```\n```json\n{"action": "send", "arguments": {}}\n```', ["look", "send"]),
        ('{"action": "look", "arguments": {}}\nObservation: x\n{"action": "send", "arguments": {}}', ["look"]),
        ('{"action": "plan_done", "title": "t", "steps": ["a"]}\n' * 2, ["submit_plan"]),
        ('{"action": "abort", "abort": {"user_message": "No way.", "internal_reason": "x"}}', ["decline"]),
        ('{"steps": [{"title": "Mix"}, {"title": "Bake"}]}', []),
        ('{"type": "reply", "items": []}', []),
    ],
)  # fmt: skip
def test_what_planners_of_other_systems_print_is_read(text: str, names: list[str]) -> None:
    """Q37: SAGE, OpenManus, SmartFlow, ValueCell; a value right behind another counts, one behind an observation that
    the model made up does not; data that only looks like a plan is none."""
    assert [call["name"] for call in read_printed(text, TRIAGE, ["look", "send"]).calls] == names


def test_what_workers_of_other_systems_print_is_read() -> None:
    """Q37: SmartFlow: the next step of the plan, a call that asks for confirmation, the end; its own words stay."""
    next_plan = '{"speak": "Done.", "action": "next_plan", "goal_check": "all is there"}'
    (done,) = read_printed(next_plan, EXECUTE, ["send"]).calls
    assert (done["name"], done["args"]["result"], done["args"]["goal_check"]) == (
        "finish_step",
        "Done.",
        "all is there",
    )
    confirm = '{"action": "confirm", "tool_call": {"name": "send", "arguments": {"to": "a"}}}'
    assert [call["name"] for call in read_printed(confirm, EXECUTE, ["send"]).calls] == ["send"]
    (gone,) = read_printed('{"action": "abort", "abort": {"user_message": "No way."}}', EXECUTE, ["send"]).calls
    assert (gone["name"], gone["args"]["reason"]) == ("give_up", "No way.")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Plan:\n1. Read\n2. Send", 2),
        ("1) a\n2) b\n3) c", 3),
        ("1. a", 0),
        ("1. a\n3. b", 0),
        ("Ann\nBob\n1. a\n2. b", 0),
    ],
)
def test_a_text_that_is_only_a_numbered_list(text: str, count: int) -> None:
    assert len([*lines_of_steps(text)]) == count
