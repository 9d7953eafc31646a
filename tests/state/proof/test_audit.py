"""The audit as data: what a judge may say of the claims of a delivery, and what that does to a status."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from donewhen.state.proof.audit import (
    DOUBTFUL,
    MOST_MISSING,
    WHY_CHARS,
    audited_status,
    findings,
    read_audit,
    unaudited,
)
from donewhen.state.proof.outcome import CODES
from donewhen.state.proof.receipt import AuditRow, Status

SHAPE = TypeAdapter(AuditRow)

# What a judge says --------------------------------------------------------------------------------------------------

CLAIMS = ["The total is 5.", "Ann was told."]


def says(*shown: str, met: Any = "yes", missing: Any = ()) -> dict[str, Any]:
    rows = [{"n": n, "shown": word, "by": ["s1.1"], "why": "so"} for n, word in enumerate(shown, 1)]
    return {"sentences": rows, "goal": {"met": met, "missing": missing}}


def test_an_audit_is_read() -> None:
    """V07"""
    row = read_audit(says("yes", "contradicted", met="part", missing=["Ann's mail"]), CLAIMS)
    assert not isinstance(row, list)
    SHAPE.validate_python(row, strict=True, extra="forbid")
    assert [(each["n"], each["text"], each["shown"]) for each in row["sentences"]] == [
        (1, "The total is 5.", "yes"),
        (2, "Ann was told.", "contradicted"),
    ]
    assert (row["met"], row["missing"], row["problem"]) == ("part", ["Ann's mail"], "")


@pytest.mark.parametrize(
    "given",
    [
        {**says("yes", "yes"), "goal": "yes"},
        {**says("yes", "yes"), "goal": {"met": True}},
        {**says("YES", "Yes"), "goal": {"met": "true", "missing": ""}},
        {**says("yes", "yes"), "sentences": [{"n": "1", "shown": "yes"}, {"n": "2", "shown": "yes", "by": "[s1.1]"}]},
        {**says("yes", "yes"), "sentences": [*says("yes", "yes")["sentences"], {"n": 3, "shown": "yes"}]},
        {**says("yes", "yes"), "sentences": [*says("yes", "yes")["sentences"], {"n": 2, "shown": "yes"}]},
    ],
)  # fmt: skip
def test_honest_forms_of_an_audit_are_read(given: Any) -> None:
    """N35: the goal by its word alone, numbers and truth as text, a row too many that doubts nothing."""
    row = read_audit(given, CLAIMS)
    assert not isinstance(row, list), row
    assert audited_status("completed", "worked", row) == ("completed", "worked")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "goal must be"),
        ("all is well", "goal must be"),
        ({}, "there is no item for sentence 1, 2"),
        (says("yes"), "there is no item for sentence 2"),
        (says("yes", "maybe"), "shown must be yes, no or contradicted"),
        (says("yes", "yes", met="mostly"), "goal must be"),
        ({**says("yes", "yes"), "goal": None}, "goal must be"),
        (says("yes", "yes", "no"), "there are 1 to 2"),
        ({**says("yes"), "sentences": [*says("no", "yes")["sentences"], {"n": 1, "shown": "yes"}]}, "contradict"),
        ({**says("yes", "yes"), "sentences": [{"n": True, "shown": "yes"}, {"n": 2, "shown": "yes"}]}, "there are"),
    ],
)  # fmt: skip
def test_what_is_no_audit_is_told_so(given: Any, said: str) -> None:
    """V07: a sentence left out, a doubt about one that is not there, two words about one: asked again, not guessed."""
    problems = read_audit(given, CLAIMS)
    assert isinstance(problems, list)
    assert said in "; ".join(problems)


KEYS = st.sampled_from(["n", "shown", "by", "why", "met", "missing", "goal", "sentences"])
WORDS = st.sampled_from(["yes", "no", "1", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)
ROW = st.fixed_dictionaries(
    {"n": st.integers(-1, 4) | JSON, "shown": st.sampled_from(["yes", "no", "contradicted", "YES"]) | JSON},
    optional={"by": JSON, "why": JSON},
)
GOAL = st.fixed_dictionaries({"met": st.sampled_from(["yes", "part", "no", True]) | JSON}, optional={"missing": JSON})
AUDIT = JSON | st.fixed_dictionaries({"sentences": st.lists(ROW, max_size=6) | JSON, "goal": GOAL | JSON})


def doubted(given: Any, number: int) -> bool:
    """Whether anything in the reply says of a sentence something else than `yes`."""
    rows = given.get("sentences") if isinstance(given, dict) else ()
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    said = [row.get("shown") for row in rows if str(row.get("n")).strip() == str(number)]
    return not said or any(str(word).casefold() != "yes" for word in said)


@given(AUDIT, st.integers(0, 3), st.sampled_from(get_args(Status)), st.sampled_from(sorted(CODES)))
def test_whatever_a_judge_sends_nothing_gets_better_than_it_said(
    given: Any, count: int, status: Any, code: str
) -> None:
    """V07, D07: never raises, in the shape of a receipt; `completed` only where all of it is a yes."""
    row = read_audit(given, [f"Sentence {n}." for n in range(1, count + 1)])
    if isinstance(row, list):
        assert row
        assert all(isinstance(problem, str) and problem for problem in row)
        return
    SHAPE.validate_python(row, strict=True, extra="forbid")
    assert [each["n"] for each in row["sentences"]] == list(range(1, count + 1))
    assert all(len(each["why"]) <= WHY_CHARS for each in row["sentences"])
    assert len(row["missing"]) <= MOST_MISSING
    after, why = audited_status(status, code, row)
    if status != "completed":
        assert (after, why) == (status, code)
    if after == "completed":
        assert not findings(row)
        assert not any(doubted(given, n) for n in range(1, count + 1))
    else:
        assert status != "completed" or (after == "partial" and findings(row))


# What it does to a status -------------------------------------------------------------------------------------------


def audit_of(*shown: str, met: str = "yes", missing: tuple[str, ...] = ()) -> Any:
    row = read_audit(says(*shown, met=met, missing=list(missing)), [f"Sentence {n}." for n in range(len(shown))])
    assert not isinstance(row, list), row
    return row


@pytest.mark.parametrize(
    ("audit", "expected"),
    [
        (None, ("completed", "worked")),
        ({**unaudited(""), "nobody": True}, ("completed", "worked")),
        (unaudited("the judge is dead"), ("partial", "unaudited")),
        (audit_of("yes", "yes"), ("completed", "worked")),
        (audit_of(), ("completed", "worked")),
        (audit_of("yes", "no"), ("partial", "not_shown")),
        (audit_of("contradicted", "yes"), ("partial", "not_shown")),
        (audit_of("yes", met="part"), ("partial", "goal_not_met")),
        (audit_of("yes", met="no"), ("partial", "goal_not_met")),
        (audit_of("yes", missing=("one of five",)), ("partial", "goal_not_met")),
        (audit_of("no", met="no"), ("partial", "goal_not_met")),
    ],
)
def test_an_audit_only_takes_away(audit: Any, expected: Any) -> None:
    """V07, D07: a goal that was not met is never `completed`, nor a sentence that nothing shows, nor a dead judge."""
    assert audited_status("completed", "worked", audit) == expected
    for status in ("partial", "failed", "cancelled", "exhausted"):
        assert audited_status(status, "worked", audit) == (status, "worked"), "what ended otherwise says why"


def test_findings_say_what_is_doubted_and_why() -> None:
    """V07: for whoever wrote the text, sentence by sentence, and what is missing."""
    row = audit_of("yes", "no", "contradicted", met="part", missing=("Ann's mail",))
    assert findings(row) == [
        "“Sentence 1.” is not shown by what was observed: so",
        "“Sentence 2.” is contradicted by what was observed: so",
        "missing of what the user asked for: Ann's mail",
    ]
    assert findings(audit_of("yes", met="no")) == ["the goal is not met"]
    assert findings(audit_of("yes", met="part")) == ["the goal is met in part only"]
    assert findings(audit_of("yes")) == findings(unaudited("nobody was there")) == []
    assert DOUBTFUL == ("no", "contradicted")
