"""Claims held against what was observed: checks that the runtime makes itself, judges, and how they fail closed."""

from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from donewhen import Agent
from donewhen.testing import audit, call, criterion, finish_step, finish_task
from tests.kit.flows import last_told, one_step, play, requests, steps, unfenced

EFFECTS: dict[str, Any] = {"read": "read", "count": "read", "write": "idempotent"}


class Files:
    """A few files, and how often each tool was called."""

    def __init__(self, **content: str) -> None:
        self.content = content
        self.counted = 0

    def tools(self) -> list[Any]:
        def read(path: str) -> str:
            """Read a file."""
            return self.content[path]

        def count(path: str) -> dict[str, int]:
            """Count the lines of a file."""
            self.counted += 1
            return {"lines": len(self.content[path].splitlines())}

        def write(path: str, text: str) -> str:
            """Write a file."""
            self.content[path] = text
            return f"wrote {path}"

        return [read, count, write]


def checked(expect: Any, tool: str = "count", **arguments: Any) -> dict[str, Any]:
    return {"text": "it is so", "check": {"tool": tool, "arguments": arguments, "expect": expect}}


THREE_LINES = {"path": "$.lines", "op": "==", "value": 3}


async def test_a_step_that_had_tools_and_called_none_is_not_proven_by_its_own_words() -> None:
    """V05, N02, B1: nothing was deleted; a judge, who sees that, is asked though nothing was seen."""
    claim = finish_step("The file a is deleted.", "s1.result")
    doubt = audit((1, "no", "no call changed anything"), met="no")
    model = steps([{"content": "Delete a", "tools": None}], {"s1": [claim] * 2}, judge=[doubt])
    flow = await play(model, Files(a="1").tools(), effects=EFFECTS)
    model.assert_exhausted()
    assert (flow.status, flow.run.outcome["code"]) == ("partial", "goal_not_met")
    assert "The file a is deleted" in flow.told("correction")[0]["text"]
    assert "<changes>\nnone\n" in unfenced(next(r for r in model.requests if r.role == "judge").text)


async def test_a_quote_that_no_try_of_a_call_returned_proves_nothing() -> None:
    """V06, decision 15: a call that failed and then succeeded is cited, with words that neither of them said."""
    returned = iter([("3 failed", {"failed": "exit_code 1"}), ("4 passed", None), ("4 passed", None)])

    def run_tests() -> Any:
        """Run the tests."""
        return next(returned)

    tool = StructuredTool.from_function(run_tests, response_format="content_and_artifact")
    claims = [finish_step("tested", ("s1.1", quote)) for quote in ("900 passed", "4 passed")]
    model = one_step([call("run_tests"), call("run_tests"), *claims], done_when=["tested"], tools=["run_tests"])
    flow = await play(model, [tool], effects={"run_tests": "read"})
    model.assert_exhausted()
    assert "'900 passed' does not occur in s1.1" in flow.told("correction")[0]["text"]
    assert flow.step("s1")["verdicts"][0]["evidence"] == [{"observation": "s1.2", "quote": "4 passed"}]


async def test_a_check_decides_and_the_word_of_the_model_does_not() -> None:
    """DESIGN 5: a false claim is refused with what was found; the true one passes without any evidence."""
    files = Files(a="1\n2\n")
    claim = finish_step("three lines", goal_check=[criterion(1)])
    model = one_step(
        [claim, call("write", path="a", text="1\n2\n3\n"), claim],
        done_when=[checked(THREE_LINES, path="a")],
        tools=["write"],
    )
    flow = await play(model, files.tools(), effects=EFFECTS)
    model.assert_exhausted()
    assert flow.status == "completed"
    assert "$.lines is 2, expected == 3" in requests(model, "s1")[1].messages[-1].text
    verdict = flow.step("s1")["verdicts"][0]
    assert (verdict["verdict"], verdict["claimed"]) == ("proven", True)
    assert verdict["evidence"] == [{"observation": "s1.3", "quote": '{"lines": 3}'}]
    assert [e["source"] for e in flow.journal] == ["check", "tool", "check", "result"]
    assert flow.run.spent["tool_calls"] == 3, "checks are charged"


async def test_a_check_keeps_the_paths_of_the_profile() -> None:
    """P14, DESIGN 5: also if the profile became stricter after the plan was made."""
    files, claim = Files(a="1\n2\n3\n"), finish_step("ok", goal_check=[criterion(1)])
    model = one_step([claim] * 3, done_when=[checked(THREE_LINES, path="a")], deliver=[])
    agent = Agent(model, files.tools(), storage="memory:", effects=EFFECTS)
    run = await agent.start("Do it")
    strict = {"on_failure": "deliver", "profile": {"allowed_paths": ["data"]}}
    run = await agent.resume(run.thread_id, "approve", settings=strict)
    assert files.counted == 0
    assert "the check may not run: a lies outside of data" in run.steps["s1"]["reason"]


async def test_what_was_read_before_a_change_is_read_again_by_the_runtime() -> None:
    """V06, H4, DESIGN 5: what still stands there counts, what is gone does not; no round is lost on looking."""
    files = Files(a="old\nkept")
    replies = [
        call("read", path="a"),
        call("write", path="a", text="new\nkept"),
        finish_step("ok", goal_check=[criterion(1, ("s1.1", "old")), criterion(2, ("s1.1", "kept"))]),
        finish_step("ok", goal_check=[criterion(1, ("s1.4", "new"))]),
    ]
    model = one_step(replies, tools=["read", "write"], done_when=["a contains what it should", "a contains kept"])
    flow = await play(model, files.tools(), effects=EFFECTS)
    model.assert_exhausted()
    assert flow.status == "completed"
    told = requests(model, "s1")[3].messages[-1].text
    assert "s1.1 was read before s1.2 (write) changed a; read again, as s1.3, it says something else" in told
    assert "Leave out criterion 2: shown already." in told


async def test_a_criterion_that_stays_unverified_is_not_called_shown() -> None:
    """V06, decision 15: it is kept, and the model is not told that it is proven."""
    bad, seen = criterion(1, ("s1.1", "made up")), criterion(2, ("s1.1", "kept"))
    third, absent = criterion(3, "s1.1"), criterion(3, "s1.9")
    claims = [finish_step("ok", goal_check=check) for check in ([bad, seen, third], [bad], [bad, absent])]
    last = finish_step("ok", goal_check=[third])
    model = one_step([call("read", path="a"), *claims, last], done_when=["one", "two", "three"], tools=["read"])
    flow = await play(model, Files(a="old\nkept").tools(), effects=EFFECTS)
    model.assert_exhausted()
    assert "Leave out criterion 2: shown already." in requests(model, "s1")[4].messages[-1].text
    assert [row["verdict"] for row in flow.step("s1")["verdicts"]] == ["unverified", "cited", "cited"]


BEFORE = {"observation": "s1.1", "quote": "old", "before": True}


async def test_the_old_value_can_be_proven_after_the_change() -> None:
    """H4, DESIGN 5: `before` says that a reading is meant as it was, and is not made again."""
    replies = [
        call("read", path="a"),
        call("write", path="a", text="new"),
        finish_step(
            "from old to new",
            goal_check=[{"criterion": 1, "met": True, "evidence": [BEFORE, {"observation": "s1.2", "quote": "new"}]}],
        ),
    ]
    model = one_step(replies, tools=["read", "write"], done_when=["the old and the new value are stated"])
    flow = await play(model, Files(a="old").tools(), effects=EFFECTS)
    model.assert_exhausted()
    assert flow.status == "completed"
    assert [entry["id"] for entry in flow.journal] == ["s1.1", "s1.2", "s1.result"]
    assert flow.step("s1")["verdicts"][0]["evidence"][0] == BEFORE


async def test_evidence_of_a_step_it_builds_on_counts_and_of_others_not() -> None:
    """X01, DESIGN 5: also a passage of a long text that the step itself saw only the ends of."""
    files = Files(a="x" * 5000 + " Needle " + "y" * 5000, b="other")
    plan = [
        {"content": "read a", "tools": ["read"], "depends_on": []},
        {"content": "read b", "tools": ["read"], "depends_on": []},
        {"content": "use a", "tools": ["read"], "depends_on": ["s1"]},
    ]
    model = steps(
        plan,
        {
            "s1": [call("read", path="a"), finish_step("A", "s1.1")],
            "s2": [call("read", path="b"), finish_step("B", "s2.1")],
            "s3": [finish_step("ok", "s2.1"), finish_step("ok", "s1.result"), finish_step("ok", ("s1.1", "needle"))],
        },
    )
    flow = await play(model, files.tools(), effects=EFFECTS)
    model.assert_exhausted()
    assert flow.status == "completed"
    told = [r.messages[-1].text for r in requests(model, "s3")]
    assert "no observation 's2.1' in this step or in one it depends on; there are: s1.1" in told[1]
    assert "in the words of a model; cite the observation behind it" in told[2]


WORDS = finish_step("I have read it", "s1.result")


@pytest.mark.parametrize(("tools", "refused"), [(["read"], 2), (None, 1)])
async def test_a_step_that_works_with_tools_cannot_prove_itself_by_its_words(tools: Any, refused: int) -> None:
    """F9: a skipped action is no evidence of itself; neither if the plan lists tools, nor after one was used."""
    replies = [WORDS, call("read", path="a"), WORDS, finish_step("read", ("s1.1", "text"))]
    model = one_step(replies[2 - refused :], tools=tools)
    flow = await play(model, Files(a="text").tools(), effects=EFFECTS)
    model.assert_exhausted()
    assert (flow.status, flow.step("s1")["refused"]) == ("completed", refused)
    assert "this step's own claim" in last_told(model)


JUDGED = {"confirm": "never", "on_failure": "deliver", "verification": "judged"}


async def test_a_judge_sees_the_evidence_and_not_the_claim() -> None:
    """DESIGN 5, V07: one criterion may ask for a judge; it decides of the step, sees all that was observed, and is
    charged like any other call; where claims are enough, the receipt does not make more of them."""
    claims = [finish_step("a is green", evidence) for evidence in (("s1.1", "green"), ("s1.1", "apple is green"))]
    claims[0]["args"]["goal_check"][0]["note"] = "A SECRET REASON"
    looks = [call("read", path="a"), call("count", path="a")]
    no = audit((1, "no", "it is silent"), met="yes")
    plan = [{"content": "read a", "tools": ["read"], "done_when": [{"text": "green", "judge": True}]}]
    model = steps(plan, {"s1": [*looks, *claims]}, judge=[no, audit()])
    flow = await play(model, Files(a="the apple is green").tools(), effects=EFFECTS)
    model.assert_exhausted()
    assert (flow.status, flow.step("s1")["verdicts"][0]["verdict"]) == ("completed", "proven")
    assert "it is silent" in last_told(model)
    asked = next(r for r in model.requests if r.role == "judge")
    assert "the apple is green" in asked.text
    assert "SECRET REASON" not in asked.text
    assert flow.run.spent["model_calls"] == 7
    model = one_step([call("finish_step", result="ok", goal_check="all there")])
    flow = await play(model, settings={"confirm": "never", "verification": "claimed"})
    assert flow.run.receipt["steps"][0]["criteria"][0]["verdict"] == "unverified"


@pytest.mark.parametrize(
    "verdict",
    [
        "I think so.",
        call("audit", sentences=[{"n": 1, "shown": "perhaps"}], goal={"met": "yes", "missing": []}),
        call("audit", sentences=[], goal={"met": "yes", "missing": []}),
        call("other"),
        [audit()] * 2,
    ],
    ids=["words", "no verdict", "nothing of a sentence", "another tool", "two"],
)
async def test_a_judge_that_gives_no_verdict_is_never_passed(verdict: Any) -> None:
    """DESIGN 5: fail closed."""
    replies = [call("read", path="a"), *[finish_step("green", ("s1.1", "green"))] * 3]
    model = steps([{"content": "read a", "tools": ["read"]}], {"s1": replies}, judge=[verdict] * 9, deliver=[])
    flow = await play(model, Files(a="green").tools(), effects=EFFECTS, settings=JUDGED)
    assert flow.step("s1")["status"] == "failed"
    assert flow.step("s1")["verdicts"][0]["verdict"] == "unverified"


@pytest.mark.parametrize("answers", [[], ["retry"]], ids=["nobody answers", "a person does"])
async def test_a_judge_that_is_down_is_no_reason_to_do_the_work_again(answers: list[str]) -> None:
    """DESIGN 5, P11: a person may have it asked once more about the same claim; nothing is planned anew."""
    written = [call("write", path="a", text="green"), finish_step("green", ("s1.1", "wrote a"))]
    judge = [ValueError("HTTP 503"), audit()][: 1 + len(answers)]
    model = steps([{"content": "write a", "tools": ["write"]}], {"s1": written}, judge=judge, plan=[], deliver=[])
    settings = {**JUDGED, "on_failure": "replan", "model_retries": 0, "approvals": "plan"}
    settings |= {} if answers else {"on_question": "assume"}
    flow = await play(model, Files().tools(), effects=EFFECTS, settings=settings, answers=answers)
    model.assert_exhausted()
    if answers:
        assert "the judge could not be asked" in flow.pauses[0]["question"]
        assert (flow.status, flow.run.spent["rounds"]) == ("completed", 2)
    else:
        assert (flow.status, flow.run.outcome["code"]) == ("failed", "model_error")


async def test_a_judge_is_not_asked_while_something_cheaper_is_missing() -> None:
    """DESIGN 5, K6: cheapest first, and all criteria in one call."""
    short = finish_step("ok", goal_check=[criterion(1, ("s1.1", "green")), criterion(2, "s1.7")])
    rounds = [call("read", path="a"), short, finish_step("ok", ["s1.1", "s1.1"])]
    plan = [{"content": "read a", "done_when": ["one", "two"], "tools": ["read"]}]
    model = steps(plan, {"s1": rounds}, judge=[audit()])
    flow = await play(model, Files(a="green").tools(), effects=EFFECTS, settings=JUDGED)
    model.assert_exhausted()
    assert flow.status == "completed"
    assert "criterion 2" in last_told(model)


async def test_a_result_that_was_sent_stands() -> None:
    """K1, V02: after a correction only what did not hold is sent again; the result is not written twice."""
    criteria = ["a was seen", "b was seen"]
    again = call("finish_step", goal_check=[criterion(2, "s1.1")])
    first = finish_step("a and b", goal_check=[criterion(1, "s1.1"), criterion(2, "s9.9")])
    model = one_step([call("read", path="ab"), first, again], done_when=criteria, tools=["read"])
    flow = await play(model, Files(ab="a, b").tools(), effects=EFFECTS)
    model.assert_exhausted()
    assert "Your result is kept" in last_told(model)
    assert (flow.status, flow.run.answer) == ("completed", "a and b")


async def test_ending_the_task_is_offered_where_steps_are_left() -> None:
    """K1: `finish_task` beside `finish_step` only while it says more; where it is not offered it is still legal."""
    work = {"s1": [finish_step("x", "s1.result")], "s2": [finish_task("y", "s2.result", reason="all of it")]}
    model = steps(["a", "b"], work)
    flow = await play(model)
    model.assert_exhausted()
    offered = {request.step: request.tool_names for request in model.requests if request.role == "execute"}
    assert "finish_task" in offered["s1"]
    assert "finish_task" not in offered["s2"]
    assert flow.status == "answered"
