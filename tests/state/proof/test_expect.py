"""What a check expects of its tool's result. Whatever a whole result is, the answer is yes or no."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.criteria import Expectation, meets
from donewhen.state.values import note_of_rest, split_kept

ROWS = '{"rows": 3, "ok": true, "names": ["a", "b"], "items": [{"n": 1}, {"n": 2}], "none": null, "text": "a3"}'


@pytest.mark.parametrize(
    ("expect", "text"),
    [
        ("ok", "whatever"),
        ({"contains": "sum"}, "the sum is 5"),
        ({"matches": r"sum is \d+$"}, "the sum is 5"),
        ({"equals": 5}, " 5\n"),
        ({"equals": "five"}, " five\n"),
        ({"equals": None}, "null"),
        ({"equals": {"a": [1]}}, '{"a": [1]}'),
        ({"path": "$.rows", "value": 3}, ROWS),
        ({"path": "$.rows", "op": ">=", "value": 3}, ROWS),
        ({"path": "$.names", "op": "contains", "value": "b"}, ROWS),
        ({"path": "$.text", "op": "contains", "value": "3"}, ROWS),
        ({"path": "$.none", "op": "exists"}, ROWS),
        ({"path": "$.items[*].n", "op": ">", "value": 0}, ROWS),
        ({"number": 1234.5}, "The total is 1,234.5 euros"),
        ({"number": 0.33, "tolerance": 0.01}, "0.3333"),
        ({"number": -2}, "-2"),
        ({"number": -2}, "\u22122"),
        ({"number": 0.5}, "odds of .5"),
        ({"number": 5}, "chapter.5"),
        ({"equals": {"a": [1.0, True]}}, '{"a": [1, true]}'),
    ],
)
def test_what_meets_an_expectation(expect: Any, text: str) -> None:
    """DESIGN 5: checked by code, not by the model's word."""
    if isinstance(expect, dict):
        expect = Expectation(**expect).model_dump(mode="json")
    met, said = meets(expect, True, text)
    assert met, said
    assert not meets(expect, False, text)[0], "a failed call meets nothing"


@pytest.mark.parametrize(
    ("expect", "text"),
    [
        ({"contains": "Sum"}, "the sum is 5"),
        ({"matches": "^sum"}, "the sum is 5"),
        ({"equals": True}, "1"),
        ({"equals": 1}, "true"),
        ({"equals": [1]}, "[true]"),
        ({"equals": {"a": {"b": 0}}}, '{"a": {"b": false}}'),
        ({"path": "$.items", "value": [{"n": True}, {"n": 2}]}, ROWS),
        ({"number": 5}, "\u22125"),
        ({"number": 5}, ".5"),
        ({"path": "$.ok", "value": 1}, ROWS),
        ({"path": "$.gone", "op": "!=", "value": 3}, ROWS),
        ({"path": "$.gone", "op": "exists"}, ROWS),
        ({"path": "$.items[*].n", "op": ">", "value": 1}, ROWS),
        ({"path": "$.text", "op": "contains", "value": 3}, ROWS),
        ({"path": "$.ok", "op": ">", "value": 0}, ROWS),
        ({"path": "$.text", "op": "<", "value": 9}, ROWS),
        ({"path": "$.rows", "value": 3}, "no JSON"),
        ({"path": "$.rows", "value": 3}, "[" * 100_000),
        ({"equals": 3}, "[" * 100_000),
        ({"path": "$.items[?(@.n > 'a')]", "op": "exists"}, ROWS),
        ({"number": 5}, "5 of 6"),
        ({"number": 5}, "none"),
    ],
)
def test_what_does_not(expect: Any, text: str) -> None:
    met, said = meets(Expectation(**expect).model_dump(mode="json"), True, text)
    assert not met
    assert said


def test_a_pattern_that_never_ends_does_not_hold_up_the_run() -> None:
    met, said = meets({"matches": r"(a+)+$"}, True, "a" * 60 + "b")
    assert not met
    assert "too long" in said or "does not match" in said


PATHS = ["$", "$.*", "$..n", "$.items[0]", "$.items[?(@.n == 1)]", "$.names[-1:]", "$.rows.deeper"]
VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


@given(
    st.sampled_from(PATHS),
    st.sampled_from(["==", "!=", ">", ">=", "<", "<=", "contains", "exists"]),
    VALUES,
    st.recursive(VALUES, lambda inner: st.dictionaries(st.sampled_from(["rows", "items", "n"]), inner, max_size=3)),
)
def test_no_result_makes_a_check_raise(path: str, op: Any, value: Any, found: Any) -> None:
    import json

    assert meets({"path": path, "op": op, "value": value}, True, json.dumps(found))[0] in (True, False)


CUT = f"[1, 2]{note_of_rest('2,000,000 characters')}"


@pytest.mark.parametrize(
    ("expect", "met"),
    [
        ("ok", True),
        ({"contains": "2]"}, True),
        ({"contains": "3"}, None),
        ({"contains": "not kept"}, None),
        ({"matches": r"^(?![\s\S]*3)"}, None),
        ({"matches": "2"}, None),
        ({"path": "$[7]", "op": "exists"}, None),
        ({"path": "$[0]", "value": 1}, None),
        ({"equals": [1, 2]}, None),
        ({"number": 3}, None),
    ],
)
@pytest.mark.parametrize("after", ["", "\n(1 image could not be kept)"])
def test_of_a_cut_result_only_what_was_kept_decides(expect: Any, met: bool | None, after: str) -> None:
    """What was not kept could say otherwise: only a text that is there stays there."""
    decided, said = meets(expect, True, f"{CUT}{after}")
    assert decided is met
    assert met or "only the first 6 characters of the result were read" in said
    assert met or "the result had 2,000,000 characters" in said
    assert meets(expect, False, CUT)[0] is False


def test_all_numbers_of_a_long_result_count() -> None:
    assert not meets({"number": 5}, True, f"5 {'x' * 200_000} 6")[0]


@pytest.mark.parametrize("line", ["errors", "5 characters; more", "5 characters; the rest was not kept"])
def test_a_line_of_the_result_that_begins_like_the_note_is_none(line: str) -> None:
    """What was not kept could say otherwise: the note is the last line that says so, and a whole text decides."""
    own = f"a\n… the result had {line}\nb"
    cut = f"{own}{note_of_rest('2,000 characters')}"
    assert split_kept(cut) == (own, "the result had 2,000 characters; the rest was not kept")
    assert meets({"contains": "ZZZ"}, True, cut)[0] is None
    if "not kept" not in line:
        assert split_kept(own) == (own, "")
        assert meets({"contains": "ZZZ"}, True, own)[0] is False
