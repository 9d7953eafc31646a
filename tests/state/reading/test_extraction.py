"""Reading a decision out of a model's text: recorded replies, and every way of writing almost-JSON we know."""

import json
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import pytest

from donewhen.state.reading.extraction import Extracted, extract, prose
from tests.kit.places import DATA

SAMPLE = DATA / "model_outputs_sample.jsonl"
KEYS = ("action", "action_input")
HEAD = '{"action": "send", "action_input": '


def is_action(value: Any) -> bool:
    return isinstance(value, dict) and all(key in value for key in KEYS)


def find(text: str, accepts: Callable[[Any], bool] = is_action, keys: Sequence[str] = KEYS) -> Extracted | None:
    """What was found; None also where something was meant that cannot be read."""
    found = extract(text, accepts, keys)
    return found if found and found.value is not None else None


def read(text: str) -> Any:
    found = find(text)
    return found.value["action_input"] if found else None


def is_right(row: dict[str, Any], found: Extracted | None) -> bool:
    if row["expect"] == "reject":
        return found is None
    return found is not None and (row["expect"] == "parses" or found.value in row["accept"])


def is_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


@pytest.mark.parametrize("lists", [False, True], ids=["action", "list of actions"])
def test_recorded_replies_are_read_as_a_person_would(lists: bool) -> None:
    """P10, P11, F14: decisions of real models, and replies from which nothing may be taken; 50 ms on average."""

    def accepts(value: Any) -> bool:
        return is_action(value) or (lists and isinstance(value, list) and bool(value) and all(map(is_action, value)))

    recorded = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    wrong, seconds = [], 0.0
    for row in recorded:
        began = process_time()
        found = find(row["raw"], accepts) if row["task"] == "decision" else find(row["raw"], is_object, ())
        seconds += process_time() - began
        if not is_right(row, found):
            wrong.append(row["id"])
    assert len(wrong) <= len(recorded) // 100, wrong
    assert not {row["id"] for row in recorded if row["expect"] == "reject"} & set(wrong)
    assert seconds / len(recorded) < 0.05


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + '{"a": 1}}', {"a": 1}),
        ("```json\n" + HEAD + "1}\n```", 1),
        ("Let me see [1], {x} and {'a': 1}.\nSo: " + HEAD + "1}.\nDone.", 1),
        ("\ufeff" + HEAD + "1}}}", 1),
        (HEAD + '{"a": [1, 2,],},}', {"a": [1, 2]}),
        ("{'action': 'send', 'action_input': {'a': 'I can\\'t', 'b': \"it's\", 'c': 'I can't'}}",
         {"a": "I can't", "b": "it's", "c": "I can't"}),
        ("{'action': 'send', 'action_input': [None, True, False, -1.5e3]}", [None, True, False, -1500.0]),
        ("{action: 'send', action_input: {to_whom: 1}}", {"to_whom": 1}),
        ("{“action”：“send”，“action_input”：“你好”}", "你好"),
        ('{"action\\_input": "x\\_y", "action": "send"}', "x_y"),
        ('{ // which\n "action": "send", /* and */ "action_input": {} # what\n}', {}),
        ('{"action": "send"\n "action_input": [{"a": 1} {"b": "2"}]}', [{"a": 1}, {"b": "2"}]),
        (HEAD + '"line\nbreak, {and} \\"more\\""}', 'line\nbreak, {and} "more"'),
        (HEAD + '{"a": "You,\nyours", "b": ["1\n2", "3,\\n4"]}', {"a": "You,\nyours", "b": ["1\n2", "3,\n4"]}),
        (HEAD + '"""two\n"quoted" lines"""}', 'two\n"quoted" lines'),
        (HEAD + '{"path": "a.md", "text": "# T\n```py\nx\n```\n",}}', {"path": "a.md", "text": "# T\n```py\nx\n```\n"}),
        (HEAD + '"say </think> and <think>"}', "say </think> and <think>"),
        # thinking is never taken
        (f"<think>{HEAD}0}}</think>\n{HEAD}1}}", 1),
        (f"[THINK]{HEAD}0}}[/THINK]{HEAD}1}}", 1),
        (f"Perhaps {HEAD}0}}? No.\n</think>\n{HEAD}1}}", 1),
        (f"<thinking>maybe {{'action': x}}</thinking>{HEAD}1}}", 1),
        (f"<think>{HEAD}0}}", None),
        (f"<think>{HEAD}0}}</think>I am not sure.", None),
        (f"So {HEAD}0}}.</think>", None),
        # B5: behind a whole sentence at the end, behind a label, in a fence or tag, on lines of its own
        (f"I run it now. {HEAD}1}}", 1),
        (f"Action: {HEAD}1}}", 1),
        (f"```json\n{HEAD}1}}\n``` and so on", 1),
        (f"`{HEAD}1}}`", 1),
        (f"<tool_call>{HEAD}1}}</tool_call>", 1),
        (f"Going on.\n{HEAD}1}}\nObservation: fine", 1),
        (f"1. {HEAD}1}}", 1),
        (f"Not {HEAD}0}} but this:\n{HEAD}1}}", 1),
    ],
)  # fmt: skip
def test_a_decision_is_read_however_it_is_written(text: str, expected: Any) -> None:
    """P10, B5: in fences and prose, with the syntax of other languages and the slips of models; never a thought."""
    assert read(text) == expected


@pytest.mark.parametrize(
    "written",
    [
        "{'id': customer_id}", '{"id": customer_id}', '{"id": <id>}', '{"id": $id}', '{"id": [id]}', '{"id": {id}}',
        '{"id": event["id"]}', '{"a": "Hello " + name + "!"}', '{"a": "Total: "+x+" visits"}', '{"a": f"{x}"}',
        '{"a": "x".upper()}', "{'a': 'x' if y else 'z'}", '{"a": "x" or "y"}', '{"a": (9.57 + 21.89) / 7}',
        '{"a": 1/2}',
        '{"a": [1, 2][0]}', '{"a": "b"[0]}', '{"a": ["x", ...]}', '{"a": ...}', '{"a": undefined}', '{"a": NaN}',
        '{"a": 1e999}', '{"a": 00012}', '{"a": 2023-11-24}', '{"a": 1,000}', '{"a": 50%}', '{"a": 10:00}',
        '{"a": ["x" "y"]}', '{"a": ("x", "y")}', '{"a": {"x", "y"}}', '{"a": "v1", "v2"}', '{"a": /* which? */}',
        '{"a": // "x"\n}', '{"a": "x,\n "b": "y"}', '{"a": "see "x, "b": "y"}', '{"a": "\\d+"}', '{"a": "\\ud83d"}',
        '{1: "x"}', '{"a": 1, "a": x}', "None.id", "#fff", "{'a': 1, 'a': 2}", '{"a": 5" tall}',
        '{"a": ["x,\n y", "z"]}', '{"a": ["x,\n y", "z",]}', '{"a": "x,\n ""b": "y"}',
    ],
)  # fmt: skip
def test_what_needs_a_guess_is_refused(written: str) -> None:
    """P11: a placeholder never becomes a value; and what comes after is not taken in its place."""
    assert read(f"{HEAD}{written}}}") is None
    assert read(f"{HEAD}{written}}}\n```\nObservation: done\n```json\n{HEAD}2}}\n```") is None


@pytest.mark.parametrize(
    "text", ["", "No.", "[1]", "See [1,2,3] and {}.", '{"action": "send"}', "{{{", '"action"', "[{]}"]
)
def test_without_a_decision_nothing_is_taken(text: str) -> None:
    """P10, P11: brackets of citations, arguments and other objects are not the decision."""
    assert find(text) is None
    assert find(text, lambda value: isinstance(value, list) and any(isinstance(item, dict) for item in value)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + '{"a": {"b": "c"}', {"a": {"b": "c"}}),
        (HEAD + '{"a": [{"b": true', {"a": [{"b": True}]}),
        (HEAD + '{"a": [1, 2}}', {"a": [1, 2]}),
        ("```json\n" + HEAD + '{"a": 12\n```\nObservation: fine', {"a": 12}),
        ("<tool_call>" + HEAD + '{"a": "b"}</tool_call>', {"a": "b"}),
        (HEAD + '{"a": "b"}\n\nObservation: {"action": "no", "action_input": 2}', {"a": "b"}),
    ],
)
def test_missing_brackets_are_added_at_the_end_and_said_so(text: str, expected: Any) -> None:
    """P10: truncated output whose last token is whole is read, and marked as incomplete."""
    found = find(text)
    assert found is not None
    assert found.value == {"action": "send", "action_input": expected}
    assert not found.complete


@pytest.mark.parametrize(
    "tail",
    ['"cut in the mid', "12", '{"n": 12', '{"a": 1,', '{"a":', '{"a": "b", "c', "{", "[", '["a", ', "tru", '"a\\',
     '{"a": [1, 2}, "b": 3}', '[1, }2], "b": 3}', '[1, }', '{"a": 1}}, "b": 2}',
     '""#W1""\n}', '""//a""\n}', '["item 1,\n  "item 2""]}', '["item 1, "item 2""]}'],
)  # fmt: skip
def test_what_is_cut_or_lost_and_could_change_a_value_is_refused(tail: str) -> None:
    """P11, F6: half a string, half a number, arguments that never came, brackets and quotes that could have moved."""
    assert read(HEAD + tail) is None


def test_the_first_decision_counts_and_made_up_observations_do_not() -> None:
    """P10: what follows the first action was written as if it had been carried out."""
    text = HEAD + '1}\nObservation: {"ok": true}\n{"action": "Final Answer", "action_input": "sent"}'
    assert read(text) == 1
    for first in ('{"action": "send"}', '{"Action": "send", "input": 1}', '{"action" "send", "action_input": 1}',
                  '{action": "send", "action_input": 1}', '{"action": "send"}, "action_input": 1}'):  # fmt: skip
        assert read(text.replace(HEAD + "1}", first)) is None, first
    other = 'The tool said {"id": x} and [{"id": 1}, ...] and {"b": 2}. '
    assert read(other + text) == 1


def test_of_a_list_the_whole_or_the_first_is_taken() -> None:
    """P10: a list of actions is taken whole where lists are accepted, else its first."""
    one, two = {"action": "a", "action_input": 1}, {"action": "b", "action_input": 2}

    def lists(value: Any) -> bool:
        return isinstance(value, list) and all(map(is_action, value))

    for text in (json.dumps([one, two]), f"```\n[{one}, {two},]\n```"):
        assert find(text).value == one  # type: ignore[union-attr]
        assert find(text, lists).value == [one, two]  # type: ignore[union-attr]
    assert find(json.dumps([3, one])) is None


def test_where_it_was_found_and_what_was_said_before() -> None:
    text = "<think>hm</think>I look first.\n\nAction:\n```json\n" + HEAD + "1}\n```\nObservation: all is done"
    found = find(text)
    assert found is not None
    assert text[found.start : found.end] == "```json\n" + HEAD + "1}\n```"
    assert prose(text, found) == "I look first."
    assert prose("a</think> Good morning: ", None) == "Good morning:"
    bare = "Then: " + HEAD + "1}\nand so on"
    found = find(bare)
    assert found is not None
    assert (bare[found.start : found.end], prose(bare, found)) == (HEAD + "1}", "")


def test_what_was_meant_and_cannot_be_read_is_found_without_a_value() -> None:
    """P11: so that the model is told, and nothing that follows is taken in its place."""
    text = 'Known: {"a": x}.\nPlan: {"steps": [1, 2,]}'
    assert extract(text, lambda value: "steps" in value, ["steps"]) == Extracted({"steps": [1, 2]}, 23, len(text))
    assert extract(text, lambda value: value == [1, 2], ["steps"]) == Extracted(None, 23, len(text))
    assert extract(text, lambda value: value == [1, 2], ["none"]) is None
    assert extract(text, lambda value: False, [], ["a"]) == Extracted(None, 7, 15)


@pytest.mark.parametrize(
    "text",
    [
        f"I will not run {HEAD}1}} because it was not asked for.",
        f"Never {HEAD}1}}",
        f"Do not even think of {HEAD}1}}.\nI stop here.",
        f"It said `{HEAD}1}}` and nothing else.",
        f"- {HEAD}1}} is what the file holds",
        'I will not run {\n"args":\n' + HEAD + "1}\n} because of that",
    ],
)
def test_what_stands_in_a_sentence_is_part_of_it(text: str) -> None:
    """B5: a decision that is spoken about is not made."""
    assert extract(text, is_action, KEYS) is None
