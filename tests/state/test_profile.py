"""A profile's hard constraints are held by code, at planning and at work; users read their own language."""

from typing import Any

import pytest

from donewhen import Profile, Settings
from donewhen.testing import ScriptedModel, answer, ask_user, call, decline, finish_step, submit_plan
from tests.flows import one_step, play, requests, steps

CHINESE = Settings(confirm="never", language="zh-CN")
OPENED: list[str] = []


def open_file(path: str) -> str:
    """Open a file."""
    OPENED.append(path)
    return f"opened {path}"


def remove(path: str) -> str:
    """Remove a file."""
    OPENED.append(f"removed {path}")
    return "removed"


TOOLS = [open_file, remove]
EFFECTS = {"open_file": "read", "remove": "write"}


async def test_a_forbidden_tool_cannot_be_called() -> None:
    """P14: a forbidden tool is not offered to a step, and a call of it is a correction; it never runs."""
    OPENED.clear()
    model = one_step([call("remove", path="a"), call("open_file", path="a"), finish_step("x", "s1.1")])
    settings = Settings(confirm="never", profile=Profile(forbidden_tools=["remove"]))
    flow = await play(model, TOOLS, effects=EFFECTS, settings=settings)
    model.assert_exhausted()
    assert "remove" not in requests(model, "s1")[0].tool_names
    assert "there is no tool 'remove'" in requests(model, "s1")[1].text
    assert OPENED == ["a"]
    assert flow.status == "completed"


async def test_a_path_out_of_bounds_is_not_touched() -> None:
    """P14: a call whose path lies outside of the allowed ones is not made; the model is told."""
    OPENED.clear()
    bad, good = call("open_file", path="data/../../etc/passwd"), call("open_file", path="data/a.csv")
    model = one_step([bad, good, finish_step("x", "s1.2")])
    settings = Settings(confirm="never", profile=Profile(allowed_paths=["data"]))
    flow = await play(model, TOOLS, effects=EFFECTS, settings=settings)
    model.assert_exhausted()
    assert OPENED == ["data/a.csv"]
    assert "lies outside of data" in requests(model, "s1")[1].text
    assert flow.status == "completed"


ENGLISH, CHINESE_PLAN = submit_plan(["Read the file and count its rows"]), submit_plan(["读取文件并统计行数，写出结果"])


async def test_a_plan_in_another_script_is_corrected_once() -> None:
    """P14: where a language is set, a plan plainly written in another script is corrected."""
    model = steps([], {"s1": [finish_step("x", "s1.result")]}, triage=[ENGLISH, CHINESE_PLAN])
    flow = await play(model, settings=CHINESE)
    model.assert_exhausted()
    assert "write what the user reads in this language: zh-CN" in model.requests[1].text
    assert flow.run.plan is not None
    assert flow.run.plan["steps"][0]["content"] == "读取文件并统计行数，写出结果"


async def test_a_model_that_insists_is_not_corrected_for_ever() -> None:
    """P14, P11: the language is pointed out once; the plan counts more than its words."""
    model = steps([], {"s1": [finish_step("x", "s1.result")]}, triage=[ENGLISH, ENGLISH])
    flow = await play(model, settings=CHINESE)
    model.assert_exhausted()
    assert flow.status == "completed"


@pytest.mark.parametrize(
    "said",
    [
        answer("I cannot speak that language."),
        ask_user("Which file do you mean?"),
        decline("r", "I would need a file tool."),
    ],
)
async def test_all_that_the_user_reads_is_in_the_language(said: Any) -> None:
    """P14: answers, questions and refusals are held to the language too."""
    model = ScriptedModel(roles={"triage": [said, answer("好的，没问题。")]})
    flow = await play(model, settings=CHINESE)
    model.assert_exhausted()
    assert flow.run.answer == "好的，没问题。"


async def test_without_a_language_nothing_is_checked() -> None:
    """P14: by default the user's own language is for the model to see."""
    model = ScriptedModel(roles={"triage": [answer("It is done, as you wished.")]})
    flow = await play(model, settings=Settings(), goal="请用英文回答")
    model.assert_exhausted()
    assert flow.run.answer == "It is done, as you wished."
    assert "in the user's language" in model.requests[0].text


async def test_the_language_stands_in_every_prompt() -> None:
    """P14: planner and executor are all told the language."""
    model = steps([], {"s1": [finish_step("写好了", "s1.result")]}, triage=[CHINESE_PLAN])
    await play(model, settings=CHINESE)
    assert [(r.role, "zh-CN" in r.text) for r in model.requests] == [
        ("triage", True),
        ("execute", True),
    ]
