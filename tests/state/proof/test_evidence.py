"""Done means proven: what counts as a complete goal_check, as evidence, and as good enough."""

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from donewhen.state.proof.evidence import (
    MOST_EVIDENCE,
    Seen,
    criteria_of,
    enough,
    excerpt,
    ground,
    level_of,
    read_claims,
)
from donewhen.state.proof.journal import observation

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["criterion", "met", "evidence", "note", "x"]), inner, max_size=5)
    ),
    max_leaves=20,
)
ITEM = st.fixed_dictionaries({"criterion": st.integers(-1, 6) | JSON, "met": st.booleans() | JSON, "evidence": JSON})
LEVELS = st.sampled_from(["claimed", "grounded", "judged"])


@given(JSON | st.lists(ITEM, max_size=7), st.integers(1, 5), LEVELS)
@example([1], 1, "grounded")
@example([{"criterion": True, "met": True}], 1, "grounded")
@example("done", 2, "claimed")
def test_whatever_a_model_sends_only_a_complete_goal_check_is_taken(value: Any, count: int, level: str) -> None:
    """X03: never an exception, never a goal_check without a claim for every criterion."""
    read = read_claims(value, count, level)
    if isinstance(read, dict):
        assert sorted(read) == list(range(1, count + 1))
        assert all(isinstance(claim["met"], bool) for claim in read.values())
    else:
        assert read
        assert all(isinstance(problem, str) and problem for problem in read)


@given(st.integers(1, 6), st.data())
def test_a_goal_check_that_leaves_out_a_criterion_is_refused_and_told_which(count: int, data: st.DataObject) -> None:
    """X03: the missing ones are listed."""
    numbers = data.draw(st.sets(st.integers(1, count)))
    read = read_claims([{"criterion": n, "met": True, "evidence": []} for n in sorted(numbers)], count, "grounded")
    missing = sorted(set(range(1, count + 1)) - numbers)
    if missing:
        assert isinstance(read, list)
        assert not numbers or ", ".join(map(str, missing)) in read[-1]
    else:
        assert isinstance(read, dict)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "not nothing"),
        ([], "not an empty list"),
        ("it is done", "not a text"),
        ({"criterion": 1, "met": True}, "not an object"),
        ([{"criterion": "1", "met": True}], "needs criterion"),
        ([{"criterion": 2, "met": True}], "there are 1 to 1"),
        ([{"criterion": 1, "met": "yes"}], "met must be true or false"),
        ([{"criterion": 1, "met": True}, {"criterion": 1, "met": True}], "two items"),
    ],
)
def test_what_is_wrong_with_a_goal_check_is_said(value: Any, said: str) -> None:
    """X03"""
    read = read_claims(value, 1, "grounded")
    assert isinstance(read, list)
    assert said in "; ".join(read)


def test_where_claims_are_enough_words_are_but_no_blanks() -> None:
    """DESIGN 5: `claimed` is the original protocol, not empty."""
    assert isinstance(read_claims("all files are there", 3, "claimed"), dict)
    assert isinstance(read_claims(["one", "two"], 3, "claimed"), dict)
    for blank in ("", "  ", [], [" "], None):
        assert isinstance(read_claims(blank, 3, "claimed"), list)


def seen(*entries: Any, result: str = "", writes_text: bool = False) -> Seen:
    return Seen(entries, "s2", result, writes_text)


def tool(id: str, text: str = "the sum is 5", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"tool": "look", "effect": "read", **more}
    return observation(id, id.split(".")[0], 1, fields.pop("source", "tool"), text, **fields)


def cites(*evidence: Any) -> dict[str, Any]:
    return {"criterion": 1, "met": True, "evidence": list(evidence)}


@pytest.mark.parametrize(
    "evidence",
    [
        {"observation": "s2.1"},
        {"observation": "s2.1", "quote": "THE  sum is 5"},
        {"observation": "[s2.1]", "quote": ""},
        {"observation": "s1.4", "quote": None},
        "s2.1",
    ],
)
def test_an_observation_that_was_ok_is_evidence(evidence: Any) -> None:
    good, problems = ground(cites(evidence), seen(tool("s1.4"), tool("s2.1")))
    assert not problems
    assert [e["observation"] for e in good] in (["s2.1"], ["s1.4"])


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ({"observation": "s2.9"}, "no observation 's2.9'"),
        ({"observation": "s3.1"}, "there are: s1.4, s2.1"),
        ({"observation": "s2.2"}, "failed, so it proves nothing"),
        ({"observation": "s2.1", "quote": "the sum is 6"}, "does not occur in s2.1"),
        ({"observation": "s2.1", "quote": "  "}, "does not occur in s2.1"),
        ({"observation": "s2.1", "quote": 5}, "not a text"),
        ({"observation": "s2.result"}, "this step's own claim"),
        ({"observation": "s1.result"}, "in the words of a model"),
        ({"observation": 7}, "an evidence item is"),
        (7, "an evidence item is"),
    ],
)
def test_forged_evidence_is_refused_with_the_reason(evidence: Any, said: str) -> None:
    """F9, DESIGN 5: made up, failed, misquoted, or only the model's own words."""
    entries = [tool("s1.4"), tool("s1.result", source="result"), tool("s2.1"), tool("s2.2", ok=False)]
    good, problems = ground(cites(evidence), seen(*entries, result="the sum is 5"))
    assert not good
    assert said in problems[0]


@given(JSON, st.booleans())
def test_whatever_is_cited_nothing_is_accepted_that_was_not_observed(evidence: Any, writes: bool) -> None:
    """F9: arbitrary evidence never raises, and never passes."""
    good, problems = ground({"evidence": evidence}, seen(tool("s2.1"), writes_text=writes))
    assert problems or good
    assert all(item["observation"] in ("s2.1", "s2.result") for item in good)


def test_nothing_cited_is_no_evidence() -> None:
    for nothing in ([], None, "", {}):
        assert ground({"evidence": nothing}, seen(tool("s2.1")))[1]


def test_a_step_that_only_writes_may_cite_its_own_text() -> None:
    """DESIGN 5: its product is its result; quotes must stand in it all the same."""
    writing = seen(tool("s1.result", "Facts.", source="result"), result="A fine poem", writes_text=True)
    assert ground(cites({"observation": "s2.result", "quote": "fine poem"}, "s1.result"), writing)[1] == []
    assert ground(cites({"observation": "s2.result", "quote": "better poem"}), writing)[1]


def test_a_reading_from_before_a_change_is_no_evidence() -> None:
    """X03, DESIGN 5: it has to be looked at again, also if another step changed it."""
    read = tool("s2.1", targets=["a.txt"])
    wrote = {**tool("s9.1", effect="write", targets=["a.txt"]), "outside": True}
    good, problems = ground(cites("s2.1"), seen(read, wrote))
    assert not good
    assert "changed a.txt" in problems[0]
    assert ground(cites("s9.1"), seen(read, wrote))[1], "what others did cannot be cited"


def test_endless_evidence_is_refused_quickly() -> None:
    text = "line of text\n" * 80_000
    flood = [{"observation": "s2.1", "quote": f"line {n}"} for n in range(5000)]
    assert str(MOST_EVIDENCE) in ground(cites(*flood), seen(tool("s2.1", text)))[1][0]
    started = time.process_time()
    ground(cites(*flood[:MOST_EVIDENCE]), seen(tool("s2.1", text)))
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("level", "good_enough"),
    [
        ("claimed", {"unverified", "supported", "passed"}),
        ("grounded", {"supported", "passed"}),
        ("judged", {"passed"}),
    ],
)
def test_what_each_level_demands(level: str, good_enough: set[str]) -> None:
    """DESIGN 5: fails closed, level by level."""
    assert {v for v in ("failed", "unverified", "supported", "passed") if enough(v, level)} == good_enough


def test_a_criterion_may_ask_for_a_judge_of_its_own() -> None:
    assert level_of({"judge": True}, "grounded") == "judged"
    assert level_of({"judge": True}, "claimed") == "claimed"
    assert level_of({}, "grounded") == "grounded"


def test_a_step_without_criteria_is_done_when_its_content_is() -> None:
    """P07, X03: there is always something to prove."""
    assert [c["text"] for c in criteria_of({"content": "Sort it", "done_when": []})] == ["Done: Sort it"]


def test_a_judge_reads_the_part_that_was_quoted() -> None:
    text = "a " * 4500 + "Needle " + "b " * 4500
    assert "Needle" in excerpt(text, "needle", 400)
    assert excerpt(text, "", 400) == excerpt(text, "nowhere", 400) == "a " * 200
    assert excerpt("short", "short", 400) == "short"
