"""`settings.done_when`: the caller says when the goal is reached; no plan of a model goes without it."""

from typing import Any

import pytest
from langchain_core.tools import ToolException

from donewhen import Agent, ConfigError
from donewhen.testing import ScriptedModel, answer, call, finish_step, give_up, submit_plan
from tests.kit.flows import FREE, play
from tests.kit.storage.cases import open_storage

GREEN: dict[str, Any] = {"text": "the tests pass", "check": {"tool": "run_tests", "arguments": {}}}
EFFECTS: dict[str, Any] = {"run_tests": "read", "fix": "write"}
MEND = submit_plan([{"content": "mend it", "tools": ["fix"]}])
BROKEN = [True]


def run_tests() -> str:
    """Run the tests."""
    if BROKEN[0]:
        raise ToolException("1 failed")
    return "3 passed"


def fix() -> str:
    """Mend the code."""
    BROKEN[0] = False
    return "mended"


@pytest.fixture(autouse=True)
def _broken() -> None:
    BROKEN[0] = True


async def run(model: ScriptedModel, *criteria: Any, **settings: Any) -> Any:
    """Run with these criteria."""
    settings = {**FREE, "verification": "grounded", "done_when": list(criteria), **settings}
    return await play(model, [run_tests, fix], effects=EFFECTS, settings=settings)


async def test_a_step_that_only_says_so_is_not_done() -> None:
    """V01, P03: the check of the caller's criterion decides; what the plan left out is in it all the same."""
    work = [finish_step("The tests pass."), call("fix"), finish_step("The tests pass.")]
    model = ScriptedModel(roles={"triage": [MEND], "execute": work})
    flow = await run(model, GREEN)
    assert flow.status == "completed"
    rows = (flow.run.receipt or {})["steps"][0]["criteria"]
    assert [(row["text"], row["verdict"]) for row in rows] == [("the tests pass", "proven")]
    assert "the tests pass" in model.requests[0].messages[-1].text


async def test_the_goal_of_a_longer_plan_is_checked_at_the_end() -> None:
    """D07, V01: every step is done, the caller's criterion is not met, so the run is partial."""
    plan = submit_plan([{"content": "look", "tools": []}, {"content": "tell", "tools": []}])
    work = {"s1": [finish_step("looked", "s1.result")], "s2": [finish_step("told", "s2.result")]}
    said = ["All green.", "All green."]
    flow = await run(ScriptedModel(roles={"triage": [plan], "execute": work, "deliver": said}), GREEN)
    assert flow.status == "partial"
    assert [row["text"] for row in (flow.run.receipt or {})["criteria"]] == ["the tests pass"]


async def test_an_answer_without_a_plan_meets_no_criterion() -> None:
    """P11: an answer at once is sent back."""
    work = [call("fix"), finish_step("The tests pass.")]
    model = ScriptedModel(roles={"triage": [answer("It is green."), MEND], "execute": work})
    flow = await run(model, GREEN)
    assert (flow.status, BROKEN) == ("completed", [False])


@pytest.mark.parametrize("words", ["the tests pass", "The tests  pass"])
async def test_a_plan_that_repeats_its_words_keeps_its_check(words: str) -> None:
    """P03, V01: a step that says the caller's words alone is decided by the caller's check, not by what is cited."""
    plan = submit_plan([{"content": "mend it", "tools": ["fix"], "done_when": [words]}])
    work = [call("fix"), finish_step("The tests pass.", ("s1.1", "mended"))]
    flow = await run(ScriptedModel(roles={"triage": [plan], "execute": work}), GREEN)
    rows = (flow.run.receipt or {})["steps"][0]["criteria"]
    assert [(row["text"], row["verdict"]) for row in rows] == [("the tests pass", "proven")]


async def test_a_judge_that_the_caller_wants_is_asked_whoever_repeats_the_words() -> None:
    """P03: nor does the wish for a judge get lost."""
    plan = submit_plan([{"content": "mend it", "tools": ["fix"], "done_when": ["it is mended"]}])
    flow = await run(ScriptedModel(roles={"triage": [plan]}), {"text": "it is mended", "judge": True}, confirm="always")
    (step,) = flow.run.pending[0]["plan"]["steps"]
    assert [(each["text"], each["judge"]) for each in step["done_when"]] == [("it is mended", True)]


async def test_two_criteria_in_the_same_words_are_both_checked() -> None:
    """P03: same words and different checks are two criteria, of the goal and of a step."""
    slow = {"text": "the tests pass", "check": {"tool": "run_tests", "arguments": {}, "expect": {"contains": "9"}}}
    work = [call("fix"), *[finish_step("The tests pass.")] * 3]
    settings = {"on_failure": "deliver"}
    flow = await run(ScriptedModel(roles={"triage": [MEND], "execute": work}), slow, GREEN, **settings)
    rows = (flow.run.receipt or {})["steps"][0]["criteria"]
    assert (flow.status, [row["verdict"] for row in rows]) == ("failed", ["failed", "proven"])


async def test_a_new_plan_that_repeats_its_words_at_a_step_keeps_its_check() -> None:
    """P08, V01: the caller's criterion stays one of the goal, with its check, whatever a new step says in its words."""
    first = {"content": "mend half", "tools": [], "replaces": ["s1"], "done_when": ["the tests pass"]}
    replan = submit_plan([first, {"content": "tell", "tools": [], "replaces": ["s1"]}])
    work = {
        "s1": [give_up("no idea")],
        "s2": [finish_step("half", "s2.result")],
        "s3": [finish_step("told", "s3.result")],
    }
    roles = {"triage": [MEND], "plan": [replan], "execute": work, "deliver": ["All green.", "All green."]}
    flow = await run(ScriptedModel(roles=roles), GREEN)
    goal = (flow.run.receipt or {})["criteria"]
    assert (flow.status, [(row["text"], row["verdict"]) for row in goal]) == ("partial", [("the tests pass", "failed")])


async def test_a_new_plan_cannot_let_it_go() -> None:
    """P08, V01: a replan that drops the caller's criterion is corrected."""
    replan = submit_plan([{"content": "say so", "replaces": ["s1"]}], drop=[{"what": "the tests pass", "why": "hard"}])
    again = submit_plan([{"content": "mend it again", "tools": ["fix"], "replaces": ["s1"]}])
    work = {"s1": [give_up("no idea")], "s2": [call("fix"), finish_step("Green.", ("s2.1", "mended"))]}
    model = ScriptedModel(roles={"triage": [MEND], "plan": [replan, again], "execute": work, "deliver": ["Green."]})
    flow = await run(model, GREEN)
    assert (flow.status, BROKEN) == ("completed", [False])


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ({"tool": "nothing", "arguments": {}}, "the check's tool 'nothing' does not exist"),
        ({"tool": "fix", "arguments": {}}, "the check's tool 'fix' is not read-only, so it cannot check"),
        ({"tool": "run_tests", "arguments": {"of": 1}}, "the check's arguments: .*'of'"),
    ],
)
async def test_what_cannot_be_checked_is_said_at_once(check: dict[str, Any], why: str) -> None:
    """P11: a criterion whose check cannot be used starts and stores nothing; what a worker finds ends as failed."""
    settings, storage = {"done_when": [{"text": "x", "check": check}]}, open_storage("memory:")
    async with Agent(ScriptedModel(), [run_tests, fix], storage=storage, effects=EFFECTS) as agent:
        for begin in (agent.start, agent.submit):
            with pytest.raises(ConfigError, match=f"settings: done_when: the goal, criterion 1: {why}"):
                await begin("mend it", settings=settings)
        assert await agent.threads() == []
        thread = await Agent("demo", storage=storage).submit("mend it", settings=settings)  # without tools of its own
        found = await agent.run_submitted(thread)
        assert (found.status, "done_when: the goal, criterion 1" in found.answer) == ("failed", True)


async def test_a_mode_without_steps_contradicts_a_criterion() -> None:
    """P11: an answer without steps cannot meet it."""
    with pytest.raises(ConfigError, match="leave one of the two out"):
        Agent(ScriptedModel(), storage="memory:", settings={"done_when": ["x"], "mode": "answer"})
