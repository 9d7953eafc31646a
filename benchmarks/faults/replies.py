"""Damage that models do to a written decision. Each kind spoils the syntax or the types, never a value."""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from donewhen.testing import broken_call, call, reply

Spoil = Callable[[str, dict[str, Any], random.Random], Any]
"""`(name, arguments, randoms) -> reply`"""


def _json(name: str, args: dict[str, Any]) -> str:
    return json.dumps({"action": name, **args}, ensure_ascii=False, indent=2)


def in_prose(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    return f"Let me see [1]. I will go on with this:\n{_json(name, args)}\nTell me if that is wrong."


def fenced(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    return f"Thought: next.\n```json\n{_json(name, args)}\n```"


def after_thinking(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    return f"<think>Perhaps {_json('cancel_order', _others(args))}? No.</think>\n{_json(name, args)}"


def tagged(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': args}, ensure_ascii=False)}\n</tool_call>"


def original_form(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    said = {"speak": "On it.", "action": "tool_call", "reason": "next", "tool_call": {"name": name, "arguments": args}}
    return json.dumps(said, ensure_ascii=False)


def python_literal(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    return f"Action:\n{ {'action': name, 'action_input': args}!r}"


def broken(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    """One to three marks of the syntax are lost or doubled."""
    text = _json(name, args)
    for _ in range(randoms.randint(1, 3)):
        places = [*_structure(text)]
        place = randoms.choice(places)
        text = text[:place] + randoms.choice(["", text[place] * 2]) + text[place + 1 :]
    return text


def _structure(text: str) -> Iterator[int]:
    """Return the positions of syntax: brackets, commas, colons, and the quotes around strings."""
    for found in re.finditer(r'("(?:[^"\\\n]|\\.)*")|[{}\[\],:"]', text):
        yield found.start()
        if found[1]:
            yield found.end() - 1


def trailing(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    return re.sub(r"(\n\s*[}\]])", r",\1", _json(name, args)) + " // that is all"


def truncated(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    text = _json(name, args)
    return reply(text[: randoms.randrange(1, len(text))], finish_reason=randoms.choice(["length", "stop"]))


def truncated_call(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    """A real tool call whose arguments end early, which LangChain completes on its own when it is streamed."""
    text = json.dumps(args, ensure_ascii=False)
    cut = text[: randoms.randrange(1, len(text))]
    return reply(calls=[broken_call(name, cut)], finish_reason=randoms.choice(["length", "tool_calls"]))


def placeholders(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    """A variable, or an expression, where a value should be."""
    text, key = _json(name, args), randoms.choice([*args])
    word = randoms.choice([key, f"result['{key}']", f"<{key}>", "...", f"get({key})", f"{{{{{key}}}}}", f"str({key})"])
    return text.replace(json.dumps(args[key], ensure_ascii=False, indent=2).replace("\n", "\n  "), word, 1)


def made_up(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    """Goes on as if the first action had been carried out."""
    said = f"Observation: done.\n\nThought: now the other one.\n\nAction:\n{_json('cancel_order', _others(args))}"
    return f"Action:\n{_json(name, args)}\n{said}"


def empty(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    return randoms.choice(["", " \n\t", "\u200b", "<think>hm</think>"])


def words_only(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    return randoms.choice([f"我现在调用 {name}。", f"I have called {name}; it worked.", f"`{name}({args})`", "[1,2,3]"])


def wrong_name(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    place = randoms.randrange(len(name))
    words = [
        name[:place] + name[place + 1 :],
        f"functions.{name}",
        name.upper(),
        name.replace("_", "-"),
        f"{name}s",
        "",
    ]
    return call(randoms.choice([word for word in words if word != name]), **args)


def wrong_type(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    """One argument of another type, null, or too many. (Null for an optional one would say that it is left out.)"""
    key = randoms.choice([*args])
    spoiled: list[Any] = [{"value": args[key]}, [[args[key]]], [] if key in ("express", "note") else None]
    changed = {**args, key: randoms.choice(spoiled)}
    extra = {**args, "orderId": "#W1"}
    return call(name, **randoms.choice([changed, extra]))


def arguments_twice(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    return broken_call(name, json.dumps(json.dumps(args)))


def several(name: str, args: dict[str, Any], randoms: random.Random) -> Any:
    """Claims to be done in the same breath."""
    done = call("finish_step", result="done", goal_check=[])
    return [call(name, **args), done] if name != "finish_step" else [done, call("give_up", reason="x", kind="failed")]


def _others(args: dict[str, Any]) -> dict[str, Any]:
    return {"order_id": "#W0", "reason": "no longer needed"}


KINDS: tuple[Spoil, ...] = (
    in_prose, fenced, after_thinking, tagged, original_form, python_literal, trailing, made_up,
    broken, truncated, truncated_call, placeholders, empty, words_only, wrong_name, wrong_type, arguments_twice,
    several,
)  # fmt: skip


class Spoiler:
    """Spoils a share of the replies, each in a random way; counts them."""

    def __init__(self, rate: float, seed: int, kinds: tuple[Spoil, ...] = KINDS) -> None:
        self._rate, self._randoms, self._kinds = rate, random.Random(f"replies {seed}"), kinds
        self.counts: dict[str, int] = {}

    def __call__(self, said: Any) -> Any:
        if self._randoms.random() >= self._rate:
            return said
        if isinstance(said, str):  # the answer is text anyway
            return self._randoms.choice(["", said])
        kind = self._randoms.choice(self._kinds)
        self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1
        return kind(said["name"], said["args"], self._randoms)
