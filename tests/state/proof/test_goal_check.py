"""What counts as a complete goal_check, in every form in which models write one, and as good enough."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from donewhen.state.criteria import criteria_of
from donewhen.state.proof.evidence import read_goal_check, read_references, satisfies

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["criterion", "met", "evidence", "note", "x"]), inner, max_size=5)
    ),
    max_leaves=20,
)
ITEM = st.fixed_dictionaries({"criterion": st.integers(-1, 6) | JSON, "met": st.booleans() | JSON, "evidence": JSON})
LEVELS = st.sampled_from(["claimed", "grounded", "audited", "judged"])


def criteria(count: int) -> list[dict[str, Any]]:
    return [{"text": f"criterion {n}"} for n in range(count)]


@given(JSON | st.lists(ITEM, max_size=7), st.integers(1, 5), LEVELS)
@example([1], 1, "grounded")
@example([{"criterion": True, "met": True}], 1, "grounded")
@example([{"criterion": float("inf"), "met": True}], 1, "grounded")
@example([{"criterion": "²", "met": True}], 1, "grounded")
@example("done", 2, "claimed")
def test_whatever_a_model_sends_only_a_complete_goal_check_is_taken(value: Any, count: int, level: str) -> None:
    """X03: never an exception, never a goal_check without a claim for every criterion."""
    read = read_goal_check(value, criteria(count), level)
    if isinstance(read, dict):
        assert sorted(read) == list(range(1, count + 1))
        assert all(isinstance(claim["met"], bool) for claim in read.values())
        assert all(isinstance(cited, dict) for claim in read.values() for cited in read_references(claim))
    else:
        assert read
        assert all(isinstance(problem, str) and problem for problem in read)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "must be a list with an item for criterion 1"),
        ([], "must be a list"),
        ("it is done", "must be a list"),
        ([{"criterion": "one of them", "met": True}], "needs criterion"),
        ([{"criterion": None, "met": True}], "needs criterion"),
        ([{"criterion": 2, "met": True}], "there are 1 to 1"),
        ([{"criterion": 1, "met": "partly"}], "met must be true or false"),
        ([{"criterion": 1, "met": None}], "met must be true or false"),
        ([{"criterion": 1, "met": True}, {"criterion": 1, "met": False}], "two items that contradict"),
    ],
)
def test_what_is_wrong_with_a_goal_check_is_said(value: Any, said: str) -> None:
    """X03"""
    read = read_goal_check(value, criteria(1), "grounded")
    assert isinstance(read, list)
    assert said in "; ".join(read)


@given(st.integers(1, 6), st.data())
def test_the_criteria_that_are_left_out_are_listed(count: int, data: st.DataObject) -> None:
    """X03: none is taken for met because nothing was said of it, also beside some that need no claim: those with a
    check, and those that were accepted."""
    numbers, checked, accepted = (data.draw(st.sets(st.integers(1, count))) for _ in range(3))
    wanted = [
        {**each, **({"check": {"tool": "look"}} if n in checked else {})} for n, each in enumerate(criteria(count), 1)
    ]
    claims = [{"criterion": n, "met": True, "evidence": ["s1.1"]} for n in sorted(numbers)]
    read = read_goal_check(claims, wanted, "grounded", {n: {"criterion": n, "met": True} for n in accepted})
    missing = sorted(set(range(1, count + 1)) - numbers - checked - accepted)
    assert isinstance(read, list) == bool(missing)
    assert not (missing and numbers) or read == [f"goal_check leaves out criterion {', '.join(map(str, missing))}"]
    assert missing or {n for n, claim in read.items() if claim.get("evidence")} == numbers


TWO = [{"text": "The total of Q3 is known."}, {"text": "Ann was told"}]
SAME = {"criterion": 1, "met": True, "evidence": ["s1.1"]}, {"criterion": 2, "met": True, "evidence": ["s1.2"]}


@pytest.mark.parametrize(
    "value",
    [
        [*SAME],
        [{**SAME[0], "criterion": "1"}, {**SAME[1], "criterion": "#2"}],
        [{**SAME[0], "criterion": 1.0}, {**SAME[1], "criterion": "2."}],
        [{**SAME[0], "criterion": "the total of Q3  is known"}, {**SAME[1], "criterion": "Ann was told."}],
        [{**SAME[0], "met": "true"}, {**SAME[1], "met": "True"}],
        [{**SAME[0], "criterion": 0}, {**SAME[1], "criterion": 1}],
        [{**SAME[0], "criterion": "c0"}, {**SAME[1], "criterion": "Ann was told."}],
        [{"criterion": 1, "evidence": ["s1.1"]}, {"criterion": 2, "evidence": ["s1.2"]}],
        [{"criterion": 1, "evidence": "s1.1"}, {"criterion": 2, "evidence": "[s1.2]"}],
        [{**SAME[0], "met": "yes"}, {**SAME[1], "met": "met"}],
        [{**SAME[0], "criterion": "1. The total of Q3 is known"}, {**SAME[1], "criterion": "Criterion 2"}],
        {"1": SAME[0], "2": SAME[1]},
        {"criterion_1": {"met": True, "evidence": ["s1.1"]}, "criterion_2": {"met": True, "evidence": ["s1.2"]}},
        {"The total of Q3 is known.": "s1.1", "Ann was told": ["s1.2"]},
        {"goal_check": [*SAME]},
        [{"criterion_id": 1, "met": True, "evidence": ["s1.1"]}, {"n": "2", "met": True, "evidence": ["s1.2"]}],
        [{"text": "The total of Q3 is known", "evidence": "s1.1"}, {"text": "Ann was told", "evidence": "s1.2"}],
        [{"criterion": 1, "satisfied": True, "proof": "s1.1"}, {"criterion": 2, "status": "met", "proof": ["s1.2"]}],
        [{"criterion": 1, "met": True, "observation": "s1.1"}, {"criterion": 2, "met": True, "observations": ["s1.2"]}],
        [{"met": True, "evidence": ["s1.1"]}, {"met": True, "evidence": ["s1.2"]}],
        [{"criterion": "s1.1", "met": True}, {"criterion": "s1.2", "met": True}],
        ["s1.1", "s1.2"],
        ["1. The total of Q3 is known: see s1.1", "2. Ann was told, as s1.2 says"],
    ],
)
def test_a_form_that_can_only_mean_one_thing_is_read_so(value: Any) -> None:
    """N35, Q80: by number or text, `met` as text, counted from 0 where one number is 0, in the order of the criteria
    where none is named, and fields under other names."""
    read = read_goal_check(value, TWO, "grounded")
    assert isinstance(read, dict), read
    assert [claim["met"] for claim in read.values()] == [True, True]
    assert [[cited["observation"] for cited in read_references(read[n])] for n in (1, 2)] == [["s1.1"], ["s1.2"]]


@pytest.mark.parametrize(
    "value",
    [
        [{"criterion": 0, "met": True}, {"criterion": 2, "met": True}],
        [{"criterion": 0, "met": True}, {"criterion": 0, "met": True}],
        [{"met": True, "evidence": ["s1.1"]}],
        [{"met": True, "evidence": ["s1.1"]}, {"criterion": 2, "met": True, "evidence": ["s1.2"]}],
        [{"criterion": "told", "met": True}, {"criterion": 2, "met": True}],
        [{"met": True, "evidence": ["s1.1"]}] * 3,
        [{"criterion": 1, "status": "unmet", "evidence": ["s1.1"]}, SAME[1]],
        [{"criterion": 1, "status": "met", "done": False, "evidence": ["s1.1"]}, SAME[1]],
        [{**SAME[0], "met": "not met"}, SAME[1]],
        [{**SAME[0], "met": 1}, SAME[1]],
        [{**SAME[0], "met": "partially"}, SAME[1]],
        {"The total of Q3 is known.": "s1.1"},
        ["s1.1"],
    ],
)
def test_a_form_that_can_mean_two_things_is_asked_back(value: Any) -> None:
    """N35: nothing is guessed."""
    assert isinstance(read_goal_check(value, TWO, "grounded"), list)


def test_a_criterion_named_twice_has_the_evidence_of_both() -> None:
    """N35: evidence given in two items of one criterion is all of its evidence."""
    twice = [{"criterion": 1, "met": True, "evidence": "s1.1"}, {"criterion": 1, "met": True, "evidence": ["s1.2"]}]
    read = read_goal_check(twice, criteria(1), "grounded")
    assert isinstance(read, dict)
    assert [cited["observation"] for cited in read_references(read[1])] == ["s1.1", "s1.2"]


@pytest.mark.parametrize("said", [{"met": False}, {"met": "no"}, {"satisfied": False}, {"status": "no"}])
def test_what_is_said_not_to_be_met_is_not_taken_for_met(said: dict[str, Any]) -> None:
    """Q80, X03: whatever field says so, also beside evidence that holds."""
    read = read_goal_check([{"criterion": 1, "evidence": ["s1.1"], **said}, SAME[1]], TWO, "grounded")
    assert isinstance(read, dict)
    assert [read[1]["met"], read[2]["met"]] == [False, True]


def test_the_only_criterion_needs_no_number() -> None:
    """N35: there is nothing else it could be about; also outside of a list."""
    for value in ([{"met": True, "evidence": "s1.1"}], {"met": True, "evidence": "s1.1"}, {"evidence": "s1.1"}):
        assert isinstance(read_goal_check(value, criteria(1), "grounded"), dict)


@pytest.mark.parametrize(
    ("evidence", "cited"),
    [
        ("s1.1", [{"observation": "s1.1"}]),
        ("[s1.1]", [{"observation": "s1.1"}]),
        ("s1.1: the sum is 5", [{"observation": "s1.1", "quote": "the sum is 5"}]),
        ("s1.1：“合計 5”", [{"observation": "s1.1", "quote": "合計 5"}]),
        (["[s1.1] : 'two\nlines'"], [{"observation": "s1.1", "quote": "two\nlines"}]),
        ("s1.1, s1.2 & p.3", [{"observation": "s1.1"}, {"observation": "s1.2"}, {"observation": "p.3"}]),
        ('s1.1 — "the sum"', [{"observation": "s1.1", "quote": "the sum"}]),
        ("[s1.1] “the sum”", [{"observation": "s1.1", "quote": "the sum"}]),
        ("the look-up s1.1 shows the sum", [{"observation": "s1.1"}]),
        ([["s1.1", "the sum"]], [{"observation": "s1.1", "quote": "the sum"}]),
        ("[s1.1] [s1.result]", [{"observation": "s1.1"}, {"observation": "s1.result"}]),
        ({"observation": "[s1.1]", "quote": "5"}, [{"observation": "s1.1", "quote": "5"}]),
        ({"observation": "s1.1, s1.2"}, [{"observation": "s1.1"}, {"observation": "s1.2"}]),
        ({"observation": "s1.1: 5"}, [{"observation": "s1.1", "quote": "5"}]),
        ({"observation": "2:s1.1"}, [{"observation": "2:s1.1"}]),
        ({"observation": "s1.1", "before": True}, [{"observation": "s1.1", "before": True}]),
        ("what I read", [{"observation": "what I read"}]),
        ([7, {"observation": 7}, None, " "], [{}, {}, {}, {}]),
        (None, []),
        ([], []),
    ],
)
def test_what_is_cited_is_read_however_it_is_written(evidence: Any, cited: list[Any]) -> None:
    """N35: an id, a quote after its id, several ids in one text; what is no reference is none, and never raises."""
    assert list(read_references({"evidence": evidence})) == cited


def test_what_was_accepted_stands_and_what_is_checked_needs_no_claim() -> None:
    """V02: only what failed is submitted again; the model's word plays no part in a check."""
    wanted = [{"text": "one"}, {"text": "two"}, {"text": "three", "check": {"tool": "look"}}]
    stands = {1: {"criterion": 1, "met": True, "evidence": ["s1.1"]}}
    read = read_goal_check([{"criterion": 2, "evidence": "s1.2"}], wanted, "grounded", stands)
    assert isinstance(read, dict)
    assert read[1] == stands[1]
    assert (read[2]["met"], read[3]["met"]) == (True, True)
    assert read_goal_check([], wanted, "grounded", stands) == ["goal_check must be a list with an item for criterion 2"]


def test_where_claims_are_enough_words_are_but_no_blanks() -> None:
    """DESIGN 5: `claimed` is the original protocol, not empty."""
    assert isinstance(read_goal_check("all files are there", criteria(3), "claimed"), dict)
    assert isinstance(read_goal_check(["one", "two"], criteria(3), "claimed"), dict)
    for blank in ("", "  ", [], [" "], None):
        assert isinstance(read_goal_check(blank, criteria(3), "claimed"), list)


@pytest.mark.parametrize(
    ("level", "good_enough"),
    [
        ("claimed", {"unverified", "cited", "proven"}),
        ("grounded", {"cited", "proven"}),
        ("audited", {"cited", "proven"}),
        ("judged", {"proven"}),
    ],
)
def test_what_each_level_demands(level: str, good_enough: set[str]) -> None:
    """DESIGN 5, V09: fails closed, level by level; a check decides alone, what was only cited is never called proven,
    and a criterion may ask for a judge of its own, but for the level of the original protocol."""
    assert {v for v in ("failed", "unverified", "cited", "proven") if satisfies(v, {}, level)} == good_enough
    assert not satisfies("cited", {"check": {"tool": "look"}}, level)
    assert satisfies("proven", {"check": {"tool": "look"}}, level)
    assert satisfies("cited", {"judge": True}, level) == (level == "claimed")
    assert satisfies("unverified", {"judge": True}, level) == (level == "claimed")


def test_a_step_without_criteria_is_done_when_its_content_is() -> None:
    """P07, X03: there is always something to prove."""
    assert [c["text"] for c in criteria_of({"content": "Sort it", "done_when": []})] == ["Done: Sort it"]
