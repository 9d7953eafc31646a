"""Read the calls of a reply: the tool that a name means, the arguments as JSON, and a unique id for each.

The conversation has the calls as they were read, not the raw words. What cannot be read for certain stays as it came,
for a correction.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, InvalidToolCall, ToolCall
from langchain_core.messages.tool import tool_call

from donewhen.state.pattern import pattern
from donewhen.state.reading.decisions import NAMES
from donewhen.state.reading.extraction import extract

_MARKS = pattern(r"(?:\s++|</?[\w:|｜▁-]{1,60}>|<\|[^<>|]{1,60}\|>|```(?:\w{1,20})?|;)*+")
"""What models write around arguments and is no part of them: fences, closing tags, marks of channels."""
_DECODER = json.JSONDecoder(strict=False)
_CHANNEL = pattern(r"<\|.*", re.DOTALL)
_COUNTED = pattern(r":\d{1,6}\Z")
_PARALLEL = "multi_tool_use.parallel"
"""A wrapper that OpenAI's models invent around several calls."""


class ArgumentsInText(NamedTuple):
    """The arguments in a text."""

    value: dict[str, Any] | None
    """None if they cannot be read for certain."""
    cut_off: bool = False


def read_arguments(raw: str) -> ArgumentsInText:
    """Read arguments whose text is no JSON object, as far as that is unambiguous."""
    text = _once(_unquote(raw).strip())
    extracted = extract(text, lambda value: isinstance(value, dict))
    if extracted is None or extracted.value is None or not extracted.complete:
        return ArgumentsInText(None, cut_off=extracted is not None and not extracted.complete)
    alone = _MARKS.fullmatch(text[: extracted.start]) and _MARKS.fullmatch(text[extracted.end :])
    return ArgumentsInText(extracted.value if alone else None)


def _once(text: str) -> str:
    """Return a text that says the same object several times, as some servers send it, with the object once."""
    try:
        value, end = _DECODER.raw_decode(text)
        after = end
        while (start := text.find("{", after)) >= 0 and not text[after:start].strip():
            again, after = _DECODER.raw_decode(text, start)
            if again != value:
                return text
    except (ValueError, RecursionError):
        return text
    return text[:end] + text[after:]


def _unquote(raw: str) -> str:
    """Return JSON that was encoded as a string a second time."""
    try:
        inner = json.loads(raw) if raw.lstrip().startswith('"') else raw
    except (ValueError, RecursionError):
        return raw
    return inner if isinstance(inner, str) else raw


def meant_name(name: str, offered: Collection[str]) -> str:
    """Return the one offered tool that a decorated name can only mean; else the name as it is.

    Decorations are what models put around a name: `functions.look`, `look<|channel|>commentary`, `looklook`, `Look`.
    """
    if name in offered or name in NAMES:
        return name
    alike = _by_plain_name(tuple(offered))
    for form in dict.fromkeys(_forms(name)):
        if form in offered:
            return form
        if (plain := _plain(form)) and len(named := alike.get(plain, [])) == 1:
            return named[0]
    return name


def _forms(name: str) -> Iterator[str]:
    """Yield a name without one decoration after the other."""
    bare = _CHANNEL.sub("", name[:300]).strip(" \t\r\n`'\"()[]<>*")
    yield bare
    yield (counted := _COUNTED.sub("", bare))
    yield re.split(r"[.:/]", counted)[-1]
    half = len(bare) // 2
    if bare[:half] == bare[half:]:
        yield bare[:half]


@lru_cache(maxsize=64)
def _by_plain_name(offered: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the names that are written alike; a broken reply asks for thousands of names."""
    alike: dict[str, list[str]] = {}
    for name in offered:
        alike.setdefault(_plain(name), []).append(name)
    return alike


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def settle_calls(message: AIMessage, offered: Collection[str], taken: Collection[str]) -> AIMessage:
    """Return the reply with its calls as they are read. `taken` are ids of earlier calls, which no new call gets."""
    calls, broken = list[ToolCall](), list[InvalidToolCall]()
    for call in message.tool_calls:
        calls += _unwrap(call, offered)
    for each in message.invalid_tool_calls:
        name = meant_name(each["name"] or "", offered)
        read = read_arguments(each["args"] or "")
        if name and read.value is not None:
            calls += _unwrap(tool_call(name=name, args=read.value, id=each["id"]), offered)
        else:
            broken.append({**each, "name": name})
    ids = _Ids(taken)
    calls = [{**call, "id": ids.give(call["id"])} for call in calls]
    broken = [{**each, "id": ids.give(each["id"])} for each in broken]
    if (calls, broken) == (message.tool_calls, message.invalid_tool_calls):
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})


def _unwrap(call: ToolCall, offered: Collection[str]) -> list[ToolCall]:
    """Return the call with the name that it means; the calls in a wrapper that is no tool."""
    inner = call["args"].get("tool_uses") if call["name"] == _PARALLEL and _PARALLEL not in offered else None
    if not isinstance(inner, list) or not inner:
        return [{**call, "name": meant_name(call["name"], offered)}]
    calls = []
    for each in inner:
        item = each if isinstance(each, Mapping) else {}
        name, args = item.get("recipient_name"), item.get("parameters")
        if not isinstance(name, str) or not isinstance(args, dict):
            return [call]
        calls.append(tool_call(name=meant_name(name, offered), args=args, id=call["id"]))
    return calls


class _Ids:
    """Gives each call an id that no other call has."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    def give(self, id: str | None) -> str:
        """Return the id, with a number if another call has it."""
        base = chosen = id or "call"
        while chosen in self._taken:
            self._numbers[base] = number = self._numbers.get(base, 1) + 1
            chosen = f"{base}_{number}"
        self._taken.add(chosen)
        return chosen
