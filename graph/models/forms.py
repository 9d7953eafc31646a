"""Decisions printed as JSON in the text, by models without tool calling: both forms of the protocol, as calls.

1. `{"action": "finish_step", …arguments}` — also with the arguments under arguments, args, action_input or input, and
   `{"name": …, "arguments": …}` or `{"tool": …, "args": …}`, one or a list.
2. the original: `{"speak", "action", "reason", "complexity", "need_thinking", "plan_steps", "goal_check",
   "tool_call"}`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from donewhen.state.reading.extraction import Extracted, extract, prose
from donewhen.state.reading.json_tokens import read_tokens
from donewhen.state.reading.work import Work

INNER = ("arguments", "args", "action_input", "input", "parameters", "tool_input")
NAME = ("action", "name", "tool", "tool_name", "function")
CALL = ("tool_call", "tool_calls")
KEYS = ("action", *CALL)
"""Only decisions have these: an object with one of them that cannot be read is a decision gone wrong."""
WORDS = {
    "plan": "submit_plan",
    "make_plan": "submit_plan",
    "create_plan": "submit_plan",
    "reply": "answer",
    "final_answer": "answer",
    "final answer": "answer",
    "ask": "ask_user",
    "question": "ask_user",
    "refuse": "decline",
    "finish": "finish_step",
    "step_done": "finish_step",
    "complete_step": "finish_step",
    "next_step": "finish_step",
    "done": "finish_task",
    "task_done": "finish_task",
    "complete_task": "finish_task",
    "fail": "give_up",
}
TOOL_WORDS = frozenset({"tool_call", "call_tool", "use_tool", "tool", "tools"})
SPEAK_WORDS = frozenset({"continue", "speak", "say", "think", "none", ""})
RENAMED = {"plan_steps": "steps"}
WHOLE = frozenset({"answer", "ask_user", "decline", "submit_plan", "finish_step", "finish_task", "give_up"})
"""Decisions that call no tool."""
WORDING = {"answer": "text", "ask_user": "question", "finish_step": "result", "finish_task": "result"}
"""Where a single text belongs that came as the whole argument."""
_GONE_WRONG = re.compile(r"""[{,]\s*+["'“]?(?:action|action_input|arguments|tool_calls?)["'”]?\s*+[:：]""")
_OBJECT = re.compile(r"""\{\s*+["'“A-Za-z_]""")


@dataclass(frozen=True)
class Printed:
    """What a text decides: calls `{id, name, args}` and what was said before them, or what is wrong with it."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    speech: str = ""
    problems: list[str] = field(default_factory=list)


def from_text(text: str, legal: Sequence[str], tools: Sequence[str] = ()) -> Printed:
    """Read the decision in a text; without one, all of it is speech. `legal` and `tools` are what may be called."""
    names = (*legal, *tools)
    found = extract(text, lambda value: _is_decision(value, names), keys=KEYS)
    if found is None:
        return _unread(text)
    if not found.complete and not _is_whole(text, found):
        return Printed([], prose(text, found), ["the JSON is cut off: closing brackets are missing; write it whole"])
    values = found.value if isinstance(found.value, list) else [found.value]
    calls, problems, said = [], [], [prose(text, found)]
    for value in values:
        if isinstance(spoken := value.get("speak"), str) and _word(value) != "submit_plan":
            said.append(spoken.strip())
        try:
            calls += list(_calls(value))
        except _Malformed as error:
            problems.append(str(error))
    numbered = [{"id": f"text_{number}", **call} for number, call in enumerate(calls)]
    return Printed(numbered, "\n".join(part for part in said if part), problems)


def _is_whole(text: str, found: Extracted) -> bool:
    """Whether all that is missing is braces at the end of the runtime's own decision: no list was open that may have
    had more items, and it is no call of a tool, of which an argument may be missing."""
    if not isinstance(found.value, Mapping) or _word(found.value) not in WHOLE:
        return False
    marks = read_tokens(text, text.index("{", found.start), Work()).marks
    return marks.count("[") == marks.count("]")


class _Malformed(ValueError):
    """A decision whose call cannot be made out."""


def _unread(text: str) -> Printed:
    """No decision: speech, unless it was meant to be one. What a user sees ends before such JSON."""
    said = prose(text, None)
    opening = _OBJECT.search(said)
    if not opening or not _GONE_WRONG.search(said, opening.start()):
        return Printed([], said)
    before = prose(said, Extracted(None, opening.start(), len(said), repaired=False))
    return Printed([], before, ["the JSON of the decision cannot be read for certain; write it again, valid and whole"])


def _name(value: Mapping[str, Any]) -> str | None:
    return next((str(value[key]).strip() for key in NAME if isinstance(value.get(key), str)), None)


def _word(value: Mapping[str, Any]) -> str:
    name = _name(value) or ""
    return WORDS.get(name.lower(), name)


def _is_decision(value: Any, names: Sequence[str]) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, Mapping) and _is_decision(item, names) for item in value)
    if not isinstance(value, Mapping):
        return False
    if any(isinstance(value.get(key), Mapping | list) and value[key] for key in CALL):
        return True
    if (name := _name(value)) is None:
        return False
    word = _word(value)
    known = word in names or word.lower() in TOOL_WORDS | SPEAK_WORDS or word in WORDS.values()
    shaped = "action" in value or any(isinstance(value.get(key), Mapping) for key in INNER)
    return known or (shaped and len(name) <= 64 and not any(c.isspace() for c in name))


def _calls(value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The calls of one decision; none if it only speaks."""
    word = _word(value)
    nested = [value[key] for key in CALL if value.get(key)]
    if word.lower() in TOOL_WORDS or (nested and word.lower() in SPEAK_WORDS):
        items = [item for entry in nested for item in (entry if isinstance(entry, list) else [entry])]
        if not items:
            raise _Malformed("tool_call needs name and arguments")
        yield from (_nested_call(item) for item in items)
    elif word.lower() not in SPEAK_WORDS:
        yield {"name": word, "args": _arguments(word, value)}


def _nested_call(item: Any) -> dict[str, Any]:
    inner = item.get("function") if isinstance(item, Mapping) and isinstance(item.get("function"), Mapping) else item
    if not isinstance(inner, Mapping) or not (name := _name(inner)):
        raise _Malformed("tool_call needs name and arguments")
    given: Any = next((inner[key] for key in INNER if key in inner), {})
    return {"name": name, "args": _object(given, name)}


def _object(given: Any, name: str) -> dict[str, Any]:
    """Arguments as an object; those of OpenAI's form are JSON in a string."""
    if isinstance(given, str):
        found = extract(given, lambda item: isinstance(item, dict))
        given = {} if not given.strip() else found.value if found and found.complete else None
    if given is None or not isinstance(given, Mapping):
        raise _Malformed(f"the arguments of {name[:60]} are not a JSON object")
    return dict(given)


def _arguments(word: str, value: Mapping[str, Any]) -> dict[str, Any]:
    given = next((value[key] for key in INNER if key in value), None)
    if isinstance(given, Mapping):
        return dict(given)
    own = {RENAMED.get(k, k): v for k, v in value.items() if k not in (*NAME, *CALL, *INNER)}
    if isinstance(given, str) and word in WORDING:
        own.setdefault(WORDING[word], given)
    elif given is not None:
        return _object(given, word)
    return _original(word, own)


def _original(word: str, own: dict[str, Any]) -> dict[str, Any]:
    """The original protocol says the words of an answer or a question in `speak`, else in `reason`."""
    said = own.get("speak") or own.get("reason") or ""
    why = own.get("reason") or said
    filled = {
        "answer": {"text": said},
        "ask_user": {"question": said},
        "decline": {"guidance": said, "reason": why},
        "finish_step": {"result": said},
        "finish_task": {"result": said, "reason": why},
        "give_up": {"reason": why, "kind": "failed"},
    }.get(word)
    if filled is None:
        return own
    said_apart = ("speak", "need_thinking", "complexity")
    return {**filled, **{k: v for k, v in own.items() if v is not None and k not in said_apart}}
