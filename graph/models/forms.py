"""Decisions printed as JSON in the text, by models without tool calling: both forms of the protocol, as calls.

1. `{"action": "finish_step", …arguments}` — also with the arguments under arguments, args, action_input or input, and
   `{"name": …, "arguments": …}` or `{"tool": …, "args": …}`, one or a list.
2. the original: `{"speak", "action", "reason", "complexity", "need_thinking", "plan_steps", "goal_check",
   "tool_call"}`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from donewhen.state.plan.written import MEANT, unwrapped
from donewhen.state.reading.extraction import extract, prose

INNER = ("arguments", "args", "action_input", "input", "parameters", "tool_input")
NAME = ("action", "name", "tool", "tool_name", "function")
CALL = ("tool_call", "tool_calls")
KEYS = ("action", *CALL)
"""Only decisions have these: an object with one of them that is no decision is one gone wrong."""
HINTS = ("arguments", "action_input")
"""The same of an object that cannot be read."""
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
WHOLE = frozenset(
    {"answer", "ask_user", "decline", "submit_plan", "finish_step", "finish_task", "give_up", "deliver", "audit"}
)
"""Decisions that call no tool."""
UNREADABLE = "the JSON of the decision cannot be read for certain; write it again, valid and whole"
WORDING = {
    "answer": "text",
    "deliver": "text",
    "ask_user": "question",
    "finish_step": "result",
    "finish_task": "result",
}
"""Where a single text belongs that came as the whole argument."""


@dataclass(frozen=True)
class Printed:
    """What a text decides: calls `{id, name, args}` and what was said before them, or what is wrong with it."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    speech: str = ""
    problems: list[str] = field(default_factory=list)
    whole: bool = False
    """The decision is the whole text, thinking and a fence aside."""
    goes_on: bool = False
    """The decision is to say something and go on."""


def from_text(text: str, legal: Sequence[str], tools: Sequence[str] = ()) -> Printed:
    """Read the decision in a text; without one, all of it is speech. `legal` and `tools` are what may be called."""
    names = _Names(legal, tools)
    found = extract(text, names.are_decision, KEYS, HINTS)
    if found is None:
        return Printed([], prose(text, None))
    said = [prose(text, found)]
    if found.value is None:
        return Printed([], said[0], [UNREADABLE])
    if not found.complete and (found.open_list or names.tool_in(found.value)):
        return Printed([], said[0], ["the JSON is cut off: closing brackets are missing; write it whole"])
    calls, problems = [], []
    for value in names.decisions(found.value):
        if isinstance(spoken := value.get("speak"), str) and names.word(value) != "submit_plan":
            said.append(spoken.strip())
        try:
            calls += list(names.calls(value))
        except _Malformed as error:
            problems.append(str(error))
    numbered = [{"id": f"text_{number}", **call} for number, call in enumerate(calls)]
    whole = not said[0] and not text[found.end :].strip()
    goes_on = not numbered and not problems
    return Printed(numbered, "\n".join(part for part in said if part), problems, whole, goes_on)


class _Malformed(ValueError):
    """A decision whose call cannot be made out."""


@dataclass(frozen=True)
class _Names:
    """What may be called, and how models call it. A tool's own name comes before any other meaning of it."""

    legal: Sequence[str]
    tools: Sequence[str]

    def word(self, value: Mapping[str, Any]) -> str:
        """The name of what an object calls; "" if it names nothing."""
        name = _name(value) or ""
        return name if name in self.tools or name in self.legal else WORDS.get(name.lower(), name)

    def is_speech(self, word: str) -> bool:
        return word not in self.tools and word.lower() in SPEAK_WORDS

    def wraps(self, word: str) -> bool:
        """Whether the word says only that a call is nested in the object."""
        return word not in self.tools and word.lower() in TOOL_WORDS

    def are_decision(self, value: Any) -> bool:
        """Whether this is a decision, or a list of them, or a plan without a name."""
        if isinstance(value, list):
            return bool(value) and (all(map(self.is_decision, value)) or self.is_plan({"steps": value}))
        return self.is_decision(value) or self.is_plan(value)

    def is_plan(self, value: Any) -> bool:
        """A bare plan, where one is expected: steps with contents, or concrete calls."""
        if "submit_plan" not in self.legal or not isinstance(value, Mapping) or _name(value) in self.legal:
            return False
        value = unwrapped(dict(value))
        steps, named = value.get("steps"), isinstance(value.get("title"), str)
        if not isinstance(steps, list) or not steps:
            return False
        return all(_is_step(step) or (named and isinstance(step, str) and bool(step.strip())) for step in steps)

    def is_decision(self, value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        if any(isinstance(value.get(key), Mapping | list) and value[key] for key in CALL):
            return True
        if (name := _name(value)) is None:
            return False
        word = self.word(value)
        known = word in (*self.legal, *self.tools, *WORDS.values()) or self.wraps(word) or self.is_speech(word)
        shaped = "action" in value or any(isinstance(value.get(key), Mapping) for key in INNER)
        return known or (shaped and len(name) <= 64 and not any(c.isspace() for c in name))

    def decisions(self, value: Any) -> list[Mapping[str, Any]]:
        """The decisions in a value that is one."""
        plain = isinstance(value, list) and not all(isinstance(i, Mapping) and _name(i) in self.tools for i in value)
        if plain and self.is_plan({"steps": value}) and not any(_name(item) in self.legal for item in value):
            return [{"action": "submit_plan", "steps": value}]
        if isinstance(value, list):
            return value
        return [{"action": "submit_plan", **value}] if self.is_plan(value) and not self.is_decision(value) else [value]

    def tool_in(self, value: Any) -> bool:
        """Whether a decision that lacks brackets at its end may lack an argument: all but our own may."""
        return not isinstance(value, Mapping) or self.word(value) not in WHOLE

    def calls(self, value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The calls of one decision; none if it only speaks."""
        word = self.word(value)
        nested = [value[key] for key in CALL if value.get(key)]
        if self.wraps(word) or (nested and self.is_speech(word)):
            items = [item for entry in nested for item in (entry if isinstance(entry, list) else [entry])]
            if not items:
                raise _Malformed("tool_call needs name and arguments")
            yield from (_nested_call(item) for item in items)
        elif not self.is_speech(word):
            yield {"name": word, "args": _arguments(word, value)}


_OF_STEP = {"content", *MEANT["content"], "done_when", "tool", "name", *INNER}


def _is_step(step: Any) -> bool:
    """Whether an object says what to do, or which call to make."""
    return isinstance(step, Mapping) and bool(_OF_STEP & set(step))


def _name(value: Mapping[str, Any]) -> str | None:
    return next((str(value[key]).strip() for key in NAME if isinstance(value.get(key), str)), None)


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
