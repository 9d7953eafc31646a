"""Read decisions that models without tool calling print as JSON in their text, and constrain replies to that form.

Both forms of the protocol become calls:

1. `{"action": "finish_step", …arguments}` — also with the arguments under arguments, args, action_input or input, and
   `{"name": …, "arguments": …}` or `{"tool": …, "args": …}`, one or a list.
2. the original: `{"speak", "action", "reason", "complexity", "need_thinking", "plan_steps", "goal_check",
   "tool_call"}`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from donewhen.graph.llm.calls import meant_name
from donewhen.state.pattern import pattern
from donewhen.state.people.edit import WrittenDocument, is_plan_text, read_document
from donewhen.state.plan.elsewhere import QUERY, question_of_inadequate
from donewhen.state.plan.written import ARGUMENT_KEYS, STEP_SYNONYMS, unwrap_plan
from donewhen.state.reading.decisions import CLAIMS, NAMES, arguments_schema
from donewhen.state.reading.dialects import WRAPPING, Printed, before_wrapping, find_printed
from donewhen.state.reading.extraction import Extracted, extract, prose
from donewhen.state.reading.marks import without_marks, without_thoughts

NAME_KEYS = ("action", "name", "tool", "tool_name", "function")
CALL_KEYS = ("tool_call", "tool_calls")
DECISION_KEYS = ("action", *CALL_KEYS)
"""Keys that only decisions have: an object with one of them that is no valid decision is a broken one."""
HINT_KEYS = ("arguments", "action_input")
"""The same for an object that is not valid JSON."""
SYNONYMS = {
    "plan": "submit_plan",
    "make_plan": "submit_plan",
    "plan_done": "submit_plan",
    "planning": "submit_plan",
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
    "next_plan": "finish_step",
    "done": "finish_task",
    "task_done": "finish_task",
    "complete_task": "finish_task",
    "fail": "give_up",
}
TOOL_WORDS = frozenset({"tool_call", "call_tool", "use_tool", "tool", "tools", "confirm"})
"""Words for an action that is a nested call; “confirm” too: a model does not choose whether a person is asked."""
ABORT = "abort"
REPLY = "reply"
SPEAK_WORDS = frozenset({"continue", "speak", "say", "think", "none", ""})
RENAMED_ARGUMENTS = {"plan_steps": "steps"}
OWN_DECISIONS = frozenset(
    {
        *("answer", "ask_user", "decline", "submit_plan", "accept_plan"),
        *("finish_step", "finish_task", "give_up", "deliver", "audit", "consent"),
    }
)
"""Decisions, as opposed to calls of tools."""
GEMMAS_QUOTE = '<|"|>'
"""Around texts in the calls of Gemma 4."""
CUT_OFF = "the JSON is cut off: closing brackets are missing; write it whole"
UNREADABLE = "the JSON of the decision cannot be read for certain; write it again, valid and whole"
TEXT_ARGUMENTS = {
    "answer": "text",
    "deliver": "text",
    "ask_user": "question",
    "finish_step": "result",
    "finish_task": "result",
}
"""The argument that gets a text sent in place of all arguments."""


@dataclass(frozen=True)
class PrintedDecision:
    """The decision in a text: calls `{id, name, args}` and the speech before them, or problems."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    speech: str = ""
    problems: list[str] = field(default_factory=list)
    whole: bool = False
    """True if the decision is the whole text, apart from thinking and a fence."""
    last: bool = False
    """True if nothing is said after the decision."""
    goes_on: bool = False
    """True if the decision is to say something and continue."""


def read_printed(text: str, legal: Sequence[str], tools: Collection[str] = ()) -> PrintedDecision:
    """Read the decision in a text; without one, all of it is speech. `legal` and `tools` name what may be called."""
    names, spoken = _Vocabulary(legal, tools), without_thoughts(text.replace(GEMMAS_QUOTE, '"'))
    extracted = extract(spoken, names.holds_decision, DECISION_KEYS, HINT_KEYS)
    marked = find_printed(spoken, names.is_known, names.claims)
    if marked and (extracted is None or marked[0].start <= extracted.start):
        return _read_marked(spoken, marked, names)
    if extracted is None:
        speech = prose(spoken, None)
        plan = names.yaml_plan(speech)
        calls = [{"id": "text_0", "name": "submit_plan", "args": plan}] if plan else []
        return PrintedDecision(calls, "" if plan else speech, whole=bool(plan))
    return _read_plain(spoken, extracted, names)


def _read_plain(text: str, extracted: Extracted, names: "_Vocabulary") -> PrintedDecision:
    """Read a decision as JSON of its own, and those that follow it with nothing between."""
    parts = [prose(text, extracted)]
    if extracted.value is None:
        return PrintedDecision([], parts[0], [UNREADABLE])
    if not extracted.complete and (extracted.open_list or names.may_lack_argument(extracted.value)):
        return PrintedDecision([], parts[0], [CUT_OFF])
    calls, problems, end = [], list[str](), extracted.end
    values = names.decisions(extracted.value)
    while after := extract(text[end:], names.holds_decision, DECISION_KEYS, HINT_KEYS):
        if not WRAPPING.fullmatch(text, end, end + after.start):
            break  # words between them are an observation that the model made up
        if after.value is None or not after.complete:
            return PrintedDecision([], parts[0], [UNREADABLE])
        end += after.end
        values = [*values, *(value for value in names.decisions(after.value) if value not in values)]
    for value in values:
        if isinstance(spoken := value.get("speak"), str) and names.word(value) != "submit_plan":
            parts.append(spoken.strip())
        try:
            calls += list(names.calls(value))
        except _MalformedCall as error:
            problems.append(str(error))
    last = WRAPPING.fullmatch(without_marks(text[end:])) is not None
    goes_on, speech = not calls and not problems, "\n".join(part for part in parts if part)
    return PrintedDecision(_numbered(calls), speech, problems, last and not parts[0], last, goes_on)


def _read_marked(text: str, marked: Sequence[Printed], names: "_Vocabulary") -> PrintedDecision:
    """Read calls in the dialect of a model."""
    calls, problems = list[dict[str, Any]](), list[str]()
    for printed in marked:
        if printed.value is None:
            problems.append(UNREADABLE)
        elif printed.name:
            calls.append({"name": names.resolve_name(printed.name), "args": printed.value})
        else:
            for value in printed.value if isinstance(printed.value, list) else [printed.value]:
                try:
                    calls += names.marked_calls(value)
                except _MalformedCall as error:
                    problems.append(str(error))
    speech = prose(before_wrapping(text[: marked[0].start]), None)
    last = WRAPPING.fullmatch(without_marks(text[marked[-1].end :])) is not None
    calls = [call for number, call in enumerate(calls) if call not in calls[:number]]
    return PrintedDecision(_numbered(calls), speech, list(dict.fromkeys(problems)), last and not speech, last)


def _numbered(calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": f"text_{number}", **call} for number, call in enumerate(calls)]


def holds_calls(text: str, legal: Sequence[str], tools: Collection[str] = ()) -> bool:
    """Return True if a text has a printed call in it, also one that cannot be read."""
    read = read_printed(text, legal, tools)
    return bool(read.calls or read.problems)


def holds_offered_calls(text: str, offered: Sequence[str]) -> bool:
    """Return True if a text has a printed call of what may be called, or one that cannot be read.

    A call of something else says little about how the model calls: it may quote a file, or do what a result told it.
    """
    read = read_printed(text, offered)
    return bool(read.problems) or any(call["name"] in offered for call in read.calls)


class _MalformedCall(ValueError):
    """A decision whose call cannot be read."""


@dataclass(frozen=True)
class _Vocabulary:
    """The names that may be called, and their synonyms. A tool's own name takes precedence over any other meaning."""

    legal: Sequence[str]
    tools: Collection[str]

    @property
    def claims(self) -> list[str]:
        """The claims that may be made; evidence proves them, so the plainest form is enough to read one."""
        return [name for name in CLAIMS if name in self.legal]

    def word(self, value: Mapping[str, Any]) -> str:
        """Return the name that an object calls; "" if it names nothing."""
        name = _name_in(value) or (REPLY if _is_reply(value) else "")
        return self.resolve_name(name)

    def is_known(self, name: str) -> bool:
        """Return True for exactly the name of what may be called."""
        return name in self.legal or name in self.tools

    def resolve_name(self, name: str) -> str:
        """Return the control tool or tool that a written name means."""
        if self.is_known(name) or not name:
            return name
        if name.lower() == ABORT:
            return "give_up" if "give_up" in self.legal else "decline"
        if name.lower() in SYNONYMS:
            return SYNONYMS[name.lower()]
        meant = meant_name(name, [*self.legal, *self.tools])
        return meant if self.is_known(meant) else SYNONYMS.get(meant.lower(), meant)

    def is_speech(self, word: str) -> bool:
        return word not in self.tools and word.lower() in SPEAK_WORDS

    def wraps(self, word: str) -> bool:
        """Return True if the word only says that a call is nested in the object."""
        return word not in self.tools and word.lower() in TOOL_WORDS

    def holds_decision(self, value: Any) -> bool:
        """Return True for a decision, a list of decisions, or a plan without a name."""
        if isinstance(value, list):
            return bool(value) and (all(map(self.is_decision, value)) or self.is_plan({"steps": value}))
        return self.is_decision(value) or self.is_plan(value)

    def is_plan(self, value: Any) -> bool:
        """Return True for a bare plan if one is expected: steps with contents, or with concrete calls."""
        if "submit_plan" not in self.legal or not isinstance(value, Mapping) or _name_in(value) in self.legal:
            return False
        value = unwrap_plan(dict(value))
        steps, named = value.get("steps"), isinstance(value.get("title"), str)
        if not isinstance(steps, list) or not steps:
            return False
        return all(_is_step(step) or (named and isinstance(step, str) and bool(step.strip())) for step in steps)

    def yaml_plan(self, text: str) -> dict[str, Any] | None:
        """Return the plan that a text is as a whole, or the only fenced part of it, in YAML; None if it is none."""
        fenced = _FENCED.findall(text)
        body = fenced[0] if len(fenced) == 1 else text
        document = read_document(body) if "submit_plan" in self.legal and is_plan_text(body) else None
        return dict(document.value) if isinstance(document, WrittenDocument) and self.is_plan(document.value) else None

    def claim_in(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claim that an object without a name is: its arguments, or those under its name; else {}."""
        if len(value) == 1:
            ((name, arguments),) = value.items()
            return (
                {"action": name, "arguments": arguments}
                if name in self.claims and isinstance(arguments, Mapping)
                else {}
            )
        schema = arguments_schema("finish_step")
        own = {*schema["required"]} <= value.keys() <= schema["properties"].keys() and "finish_step" in self.legal
        return {"action": "finish_step", "arguments": dict(value)} if own else {}

    def is_decision(self, value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        if self.claim_in(value) or _is_reply(value) or (question_of_inadequate(value) and "ask_user" in self.legal):
            return True
        if any(isinstance(value.get(key), Mapping | list) and value[key] for key in CALL_KEYS):
            return True
        if (name := _name_in(value)) is None:
            return False
        word = self.word(value)
        is_named = word in (*self.legal, *self.tools, *SYNONYMS.values()) or self.wraps(word) or self.is_speech(word)
        shaped = "action" in value or any(isinstance(value.get(key), Mapping) for key in ARGUMENT_KEYS)
        return is_named or (shaped and len(name) <= 64 and not any(c.isspace() for c in name))

    def decisions(self, value: Any) -> list[Mapping[str, Any]]:
        """Return the decisions in a value that is one, or a list of them."""
        plain = isinstance(value, list) and not all(isinstance(i, Mapping) and _name_in(i) in self.tools for i in value)
        if plain and self.is_plan({"steps": value}) and not any(_name_in(item) in self.legal for item in value):
            return [{"action": "submit_plan", "steps": value}]
        if isinstance(value, list):
            return value
        if claim := self.claim_in(value):
            return [claim]
        if question := question_of_inadequate(value):
            return [{"action": "ask_user", "question": question}]
        return [{"action": "submit_plan", **value}] if self.is_plan(value) and not self.is_decision(value) else [value]

    def marked_calls(self, value: Any) -> list[dict[str, Any]]:
        """Return the calls of a value behind a mark; one form has the arguments under the name of the tool."""
        if isinstance(value, Mapping) and len(value) == 1:
            ((name, arguments),) = value.items()
            if self.is_known(name) and isinstance(arguments, Mapping):
                return [{"name": name, "args": dict(arguments)}]
        return list(self.calls(value)) if self.is_decision(value) else [_read_nested_call(value)]

    def may_lack_argument(self, value: Any) -> bool:
        """Return True if a decision whose last brackets are missing may also lack an argument; calls of tools may."""
        return not isinstance(value, Mapping) or self.word(value) not in OWN_DECISIONS

    def calls(self, value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the calls of one decision; none if it only speaks."""
        word = self.word(value)
        nested = [value[key] for key in CALL_KEYS if value.get(key)]
        if self.wraps(word) or (nested and self.is_speech(word)):
            items = [item for entry in nested for item in (entry if isinstance(entry, list) else [entry])]
            if not items:
                raise _MalformedCall("tool_call needs name and arguments")
            for call in map(_read_nested_call, items):
                yield {**call, "name": self.resolve_name(call["name"])}
        elif not self.is_speech(word):
            yield {"name": word, "args": _arguments_of(word, value)}


_FENCED = pattern(r"^```[\w+-]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_STEP_KEYS = {"content", QUERY, *STEP_SYNONYMS["content"], "done_when", "tool", "name", *ARGUMENT_KEYS}


def _is_step(step: Any) -> bool:
    """Return True if an object has the content of a step, or a concrete call."""
    return isinstance(step, Mapping) and bool(_STEP_KEYS & set(step))


def _is_reply(value: Mapping[str, Any]) -> bool:
    """Return whether an object is the last item of a list of calls that ends with what to tell the user."""
    return value.get("type") == REPLY and isinstance(value.get("text"), str) and _name_in(value) is None


def _name_in(value: Mapping[str, Any]) -> str | None:
    return next((str(value[key]).strip() for key in NAME_KEYS if isinstance(value.get(key), str)), None)


def _read_nested_call(item: Any) -> dict[str, Any]:
    inner = item.get("function") if isinstance(item, Mapping) and isinstance(item.get("function"), Mapping) else item
    if not isinstance(inner, Mapping) or not (name := _name_in(inner)):
        raise _MalformedCall("tool_call needs name and arguments")
    arguments: Any = next((inner[key] for key in ARGUMENT_KEYS if key in inner), {})
    return {"name": name, "args": _arguments_object(arguments, name)}


def _arguments_object(arguments: Any, name: str) -> dict[str, Any]:
    """Return arguments as an object; in OpenAI's form they are JSON in a string."""
    if isinstance(arguments, str):
        extracted = extract(arguments, lambda item: isinstance(item, dict))
        arguments = {} if not arguments.strip() else extracted.value if extracted and extracted.complete else None
    if arguments is None or not isinstance(arguments, Mapping):
        raise _MalformedCall(f"the arguments of {name[:60]} are not a JSON object")
    return dict(arguments)


def _arguments_of(word: str, value: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(why := value.get(ABORT), Mapping):  # SmartFlow: {code, user_message, internal_reason}
        message, reason = why.get("user_message") or "", why.get("internal_reason") or why.get("user_message") or ""
        value = {**{key: item for key, item in value.items() if key != ABORT}, "speak": message, "reason": reason}
    if _is_reply(value):
        return {"text": value["text"]}
    arguments = next((value[key] for key in ARGUMENT_KEYS if key in value), None)
    if isinstance(arguments, Mapping):
        return dict(arguments)
    own = {
        RENAMED_ARGUMENTS.get(k, k): v for k, v in value.items() if k not in (*NAME_KEYS, *CALL_KEYS, *ARGUMENT_KEYS)
    }
    if isinstance(arguments, str) and word in TEXT_ARGUMENTS:
        own.setdefault(TEXT_ARGUMENTS[word], arguments)
    elif arguments is not None:
        return _arguments_object(arguments, word)
    return _original_arguments(word, own)


def _original_arguments(word: str, own: dict[str, Any]) -> dict[str, Any]:
    """Fill in arguments that the original protocol writes in `speak` or `reason`."""
    text = own.get("speak") or own.get("reason") or ""
    why = own.get("reason") or text
    filled = {
        "answer": {"text": text},
        "ask_user": {"question": text},
        "decline": {"guidance": text, "reason": why},
        "finish_step": {"result": text},
        "finish_task": {"result": text, "reason": why},
        "give_up": {"reason": why, "kind": "failed"},
    }.get(word)
    if filled is None:
        return own
    not_arguments = ("speak", "need_thinking", "complexity")
    return {**filled, **{k: v for k, v in own.items() if v is not None and k not in not_arguments}}


MOST_ITEMS, ITEM_CHARS = 12, 400
"""The most items of a list in a printed decision, and characters of a text in it."""


def decision_schema(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the JSON Schema of printed calls: one object per tool, `{"action": its name, "arguments": {…}}`."""
    forms, shared = [], dict[str, Any]()
    for tool in tools:
        function = tool["function"]
        parameters = dict(function.get("parameters") or {"type": "object"})
        shared |= parameters.pop("$defs", {})  # references point to the top of the schema
        parameters = _with_bounds(parameters) if function["name"] in NAMES else parameters
        properties = {"action": {"const": function["name"]}, "arguments": parameters}
        form = {"type": "object", "properties": properties, "required": ["action", "arguments"]}
        forms.append({**form, "additionalProperties": False})
    return {"anyOf": forms, **({"$defs": shared} if shared else {})}


def _with_bounds(schema: Any, deep: bool = False) -> Any:
    """Limit lists and the texts in them; a weak model that is constrained to a schema fills them without end."""
    if isinstance(schema, list):
        return [_with_bounds(each, deep) for each in schema]
    if not isinstance(schema, dict):
        return schema
    listed, bounds = schema.get("type") == "array", dict[str, Any]()
    if listed:
        bounds = {"maxItems": MOST_ITEMS}
    elif deep and schema.get("type") == "string":
        bounds = {"maxLength": ITEM_CHARS}
    return {**{key: _with_bounds(each, deep or listed) for key, each in schema.items()}, **bounds}
