"""Patterns and paths that a model writes: what would take all memory or never end is refused before it is tried."""

import pickle
import time
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from donewhen import Agent
from donewhen.state.criteria import Expectation, count_elements, path_problem, pattern_problem
from donewhen.testing import ScriptedModel, submit_plan
from tests.kit.runs import step

ELEMENTS = st.sampled_from(["a", r"\d", r"\(", r"\{", "[(]", "[]a{9}]", "[^]]", r"[\]]", "."])


def _repeated(inner: st.SearchStrategy[tuple[str, int]]) -> st.SearchStrategy[tuple[str, int]]:
    """A group of some parts, repeated: its text, and how many elements that is written out."""
    parts = st.lists(inner, min_size=1, max_size=3)
    return st.builds(
        lambda parts, least, form: (
            f"(?:{'|'.join(text for text, _ in parts)})" + form.format(least),
            # the group's own "(", "?" and ":", and the bars between its parts
            (3 + len(parts) - 1 + sum(size for _, size in parts)) * max(least, 1),
        ),
        parts,
        st.integers(0, 40),
        st.sampled_from(["{{{0}}}", "{{{0},}}", "{{{0},50}}"]),
    )


PATTERNS = st.recursive(ELEMENTS.map(lambda text: (text, 1)), _repeated, max_leaves=8)


@given(PATTERNS)
def test_the_size_is_what_the_repeats_come_to(pattern: tuple[str, int]) -> None:
    """P08: reckoned without compiling, and exactly, however groups, classes and escapes are nested."""
    text, size = pattern
    assert count_elements(text) == size


@given(PATTERNS.map(lambda pattern: pattern[0]) | st.text("ab()[]{}0159,\\|*+?^:#x", max_size=40))
def test_what_is_taken_is_small(pattern: str) -> None:
    """P08: whatever the pattern, what the engine makes of it is no larger than its size says."""
    if pattern_problem(pattern) is None:
        assert len(pickle.dumps(regex.compile(pattern))) < 100 * count_elements(pattern) + 2_000


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{1000}){1000}",
        "((a{1000}){1000}){1000}",
        "a{1000000}",
        "(?:(?:a|b){200,}){200,}",
        "(?x)(a{1000} # (\n){1000}",
        "(?P<x>a)" * 6,
        "(" * 6 + "a" + ")*" * 6,
        "a{" + "9" * 400 + "}",
    ],
)
def test_patterns_that_are_too_much(pattern: str) -> None:
    """P08: said at once, in a sentence that says what to write instead."""
    started = time.process_time()
    problem = pattern_problem(pattern)
    assert time.process_time() - started < 5
    assert problem is not None
    assert "write" in problem or "use" in problem


@pytest.mark.parametrize(
    "pattern", [r"\d{4}-\d{2}-\d{2}", r"(?i)^total:\s{0,20}\d+", r"(?:[a-z]+,){50}", r"(?P<y>\d{4})", ".{0,5000}", "{"]
)
def test_patterns_as_people_write_them(pattern: str) -> None:
    """DESIGN 5: an ordinary pattern is never refused for its size."""
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize("path", ['$.rows[?(@.x =~ "(a+)+$")]', "$.x.`sub(/(a+)+$/, b)`", "$..*..*", "$" + ".a" * 400])
def test_paths_that_are_too_much(path: str) -> None:
    """P08: a path has no regular expression of its own, which nothing could stop, and is searched once."""
    assert path_problem(path) is not None
    with pytest.raises(ValueError, match="path"):
        Expectation(path=path, op="exists")


async def test_the_planner_is_told_and_says_it_better() -> None:
    """P08, C03: a plan with such a check is corrected before anybody sees it; so is an edited one."""

    def checked(pattern: str) -> Any:
        check = {"tool": "look", "arguments": {}, "expect": {"matches": pattern}}
        return submit_plan([step("s1", done_when=[{"text": "it is so", "check": check}])])

    def look() -> str:
        """Look."""
        return "aaa"

    model = ScriptedModel(roles={"triage": [checked("(a{1000}){1000}"), checked("a{3}")]})
    agent = Agent(model, [look], storage="memory:", effects={"look": "read"})
    run = await agent.start("do it", thread_id="t")
    assert run.pending[0]["kind"] == "plan"
    assert run.plan is not None
    assert any("repeats too much" in str(message) for message in model.requests[-1].messages)
    (planned,) = run.plan["steps"]
    check = {"tool": "look", "arguments": {}, "expect": {"matches": "(a{1000}){1000}"}}
    worse = {**planned, "done_when": [{"text": "it is so", "check": check}]}
    run = await agent.resume("t", {"type": "edit", "plan": {**run.plan, "steps": [worse]}})
    assert run.status == "waiting"
    assert "repeats too much" in run.problem
    model.assert_exhausted()
