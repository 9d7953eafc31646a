"""Reading any text at all: nothing raises, nothing is invented, nothing takes long."""

import json
import random
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.reading.dialects import find_printed
from donewhen.state.reading.extraction import prose
from tests.state.reading.test_extraction import HEAD, find, is_action

MILLION = 1_000_000
MOST = 0.3
"""Seconds."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
phrases = st.sampled_from(
    ["it's", "a, b", 'said "hi, you" twice', "x: y", "```py\nx\n```", "users' data", "// no", "# tag", "}, 'k': 1",
     "{[", "</p>", "", "00012", "a\\b", "日本", "</think>"]
)  # fmt: skip
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts | phrases
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | phrases, inner, max_size=3),
    max_leaves=8,
)
actions = st.fixed_dictionaries({"action": phrases | texts, "action_input": values})
around = st.text(st.characters(exclude_characters="{[<", exclude_categories=["Cs"]), max_size=60)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield key
            yield from leaves(child)
    elif isinstance(value, list):
        for child in value:
            yield from leaves(child)
    else:
        yield value


@given(actions, around, around, st.sampled_from([None, 2]), st.sampled_from(["", "```json\n", "`"]), st.booleans())
def test_json_anywhere_comes_back_equal(
    action: dict[str, Any], before: str, after: str, indent: int | None, fence: str, ascii_only: bool
) -> None:
    """P10: any action, in any prose or fence, is found and is what it was."""
    written = json.dumps(action, indent=indent, ensure_ascii=ascii_only)
    found = find(f"{before}\n{fence}{written}\n{fence.strip('json')}\nand {after}")
    assert found is not None
    assert found.value == action


@given(actions)
def test_python_comes_back_equal_or_not_at_all(action: dict[str, Any]) -> None:
    """P10, P11: a dict as Python prints it."""
    found = find(repr(action))
    assert found is None or found.value == action


@given(actions, st.data(), st.sampled_from([json.dumps, repr]))
def test_a_cut_never_makes_a_value(
    action: dict[str, Any], data: st.DataObject, write: Callable[[dict[str, Any]], str]
) -> None:
    """P11: cut anywhere, what is taken holds only whole values of the original, in their order."""
    written = write(action)
    found = find(written[: data.draw(st.integers(0, len(written) - 1))])
    if found is not None:
        taken, original = list(leaves(found.value)), list(leaves(action))
        assert taken == original[: len(taken)]
        assert found.value == action or not found.complete


@given(
    st.sampled_from(["customer_id", "some.id", "f(x)", "<id>", "$id", "x + 1", '"a" + b', "...", "ids[0]", "`id`"]),
    st.lists(st.tuples(st.booleans(), st.booleans(), values), max_size=4),
    st.sampled_from(["", "\n```\nObservation: fine", "\n" + HEAD + "0}"]),
)
def test_a_placeholder_never_becomes_a_value(written: str, siblings: list[tuple[bool, bool, Any]], tail: str) -> None:
    """P11: wherever a variable or an expression stands in an action, nothing is taken, not even a later action."""
    for in_list, first, sibling in siblings:
        names = ("", "") if in_list else ('"a": ', '"b": ')
        items = [names[0] + written, names[1] + json.dumps(sibling)]
        inside = ", ".join(items if first else items[::-1])
        written = f"[{inside}]" if in_list else f"{{{inside}}}"
    assert find(f"{HEAD}{written}}}{tail}") is None


@given(st.text() | st.text("{}[]\"':,\\/*#`<>thinkT 1a\n“”", max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """P11: and what is found lies where it says, fits, and can be stored."""
    accept: list[Callable[[Any], bool]] = [is_action, lambda value: True, lambda value: isinstance(value, list)]
    for accepts in accept:
        found = find(text, accepts)
        said = prose(text, found)
        said.strip()
        if found:
            assert isinstance(found.value, dict | list)
            assert 0 <= found.start < found.end <= len(text)
            json.dumps(found.value, ensure_ascii=False, allow_nan=False).encode()


HOSTILE: dict[str, str] = {
    "5 MB of prose": "lorem ipsum dolor " * 280_000 + HEAD + "1}",
    "5 MB of string": HEAD + '"' + "x" * 5 * MILLION + '"}',
    "5 MB of string, never closed": HEAD + '"' + "x" * 5 * MILLION,
    "5 MB of numbers": HEAD + "[" + "1," * 2_500_000 + "1]}",
    "nested lists": "[" * 100_000,
    "nested lists, closed": "[" * 100_000 + "]" * 100_000,
    "nested objects": '{"a":' * 100_000,
    "nested, mixed": '[{"a":' * 100_000,
    "braces": "{" * MILLION,
    "pairs": "[{" * 500_000,
    "quotes": '"' * MILLION,
    "quotes in a string": HEAD + '"' * MILLION,
    "quotations": HEAD + '"' + 'a "b" ' * 170_000,
    "apostrophes": HEAD + "'" + "a'" * 500_000,
    "open keys": '{"' * 500_000,
    "open typographic keys": "{“" * 500_000,
    "bare keys": "{a" * 500_000,
    "backslashes": HEAD + '"' + "\\" * MILLION,
    "bad escapes": HEAD + '"' + "\\q" * 500_000 + '"}',
    "open comments": "{/*" * 300_000,
    "line comments": "{#" * 500_000,
    "white space": "{" + " " * 5 * MILLION,
    "small objects": '{"a": 1} ' * 100_000,
    "broken objects": '{"a": x} ' * 100_000,
    "citations": "see [1] " * 125_000,
    "one long broken list": HEAD + "[" + '{"a": "b"},' * 50_000 + "]}",
    "thinking": "<think>" * 140_000,
    "thoughts closed": (HEAD + "1}</think>") * 20_000,
    "fences": "```json\n" * 100_000,
    "a long number": HEAD + "9" * MILLION + "}",
    "a long word": HEAD + "a" * MILLION + "}",
    "three quotes": '{"a":"""' * 100_000,
}


def seconds(text: str) -> float:
    """In CPU time, and once more where it was long: what it costs, not what else the machine does."""
    spent = 9.0
    for _ in range(3):
        if spent >= MOST:
            began = process_time()
            find(text)
            spent = process_time() - began
    return spent


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_read_in_milliseconds(name: str) -> None:
    """P11: no recursion, nothing quadratic, a bound on all work."""
    assert seconds(HOSTILE[name]) < MOST


@pytest.mark.parametrize("size", [1_000, 30_000, MILLION])
@pytest.mark.parametrize(
    "alphabet",
    ["{}[]\"':,", "{[\"'", '{"a:1,}\\ ', "[]{}\"':,/*#\\ntN <>`“”",
     ['{"a":', '{"b": 1,', '"x"', "]", "}", "[{", "\n", "{'c':", "'", ",", "// ", "/*", "“", "1", '{"action": ']],
)  # fmt: skip
def test_a_soup_of_brackets_and_quotes_is_read_in_milliseconds(alphabet: str | list[str], size: int) -> None:
    """P11: fuzz with time, seeded; nothing in a soup is a decision."""
    text = "".join(random.Random(size).choices(alphabet, k=size))
    assert find(text) is None
    assert seconds(text) < MOST


@pytest.mark.parametrize("text", ["finish_step: {" + '"a": "b" "c" ' * 2_000, f"[a{'.a' * 400}(x=1)]"])
def test_hostile_printed_calls_are_no_calls_and_no_errors(text: str) -> None:
    """X07, Q80: what takes too long to read, or is nested too deeply, is words."""
    assert find_printed(text, lambda _: True, ["finish_step"]) == []


def test_the_limit_of_work_leaves_room_for_real_replies() -> None:
    """P10: broken syntax is still read in a plan of a hundred steps and in a long file."""
    steps = [{"content": f"Step {n}", "done_when": ["It's there", "It is right"]} for n in range(100)]
    assert (
        find(repr({"title": "Plan", "steps": steps}), lambda value: "steps" in value, ["steps"]).value["steps"] == steps
    )  # type: ignore[union-attr]
    written = json.dumps(steps, indent=2).replace("}", "},", 99).rstrip("]\n") + ",]"
    assert find(written.replace("},,", "},"), lambda value: isinstance(value, list)).value == steps  # type: ignore[union-attr]
    content = "A line of text, with 'quotes' and\n" * 5_000
    file = HEAD + json.dumps({"path": "a", "content": content}) + ",}"
    assert find(file).value["action_input"]["content"] == content  # type: ignore[union-attr]
    citations = "As it says in [12], {x} holds. " * 500
    assert find(citations + HEAD + "1,}").value["action_input"] == 1  # type: ignore[union-attr]
