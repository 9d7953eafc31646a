"""The arguments of a control tool: as they are read, and what is wrong with them."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from donewhen.graph.tools.arguments import Arguments
from donewhen.state.reading.decisions import arguments_schema

CALLS_CHARS = 200_000
"""Of all calls of one reply; a longer decision is refused, longer calls of tools are kept in short form."""
QUESTION = "I need your help to go on. What should I do?"


def read_control(name: str, args: Any, speech: str) -> tuple[Any, list[str]]:
    """The arguments as the tool wants them, where nothing is lost by that, and what is still wrong with them.

    Plans and goal_checks have readers of their own. `speech` is what was said beside the call.
    """
    args = _arguments(name).coerced(args)
    args = _asking(args, speech) if name == "ask_user" else args
    return args, _problems(name, args)


@lru_cache
def _arguments(name: str) -> Arguments:
    return Arguments(arguments_schema(name))


def _asking(args: Any, speech: str) -> Any:
    """A question in no words of its own is what was said with it, else the reason, else a sentence of ours (X16)."""
    if not isinstance(args, Mapping) or str(args.get("question") or "").strip():
        return args
    return {**args, "question": speech or str(args.get("reason") or "").strip() or QUESTION}


def _problems(name: str, args: Any) -> list[str]:
    """What is wrong with the arguments of a control tool. Plans and goal_checks have readers of their own."""
    if not isinstance(args, Mapping):
        return ["the arguments must be an object"]
    if name != "submit_plan" and (size := len(json.dumps(args, ensure_ascii=False, default=str))) > CALLS_CHARS:
        return [f"the arguments have {size:,} characters; at most {CALLS_CHARS:,}"]
    problems = []
    if name != "submit_plan" and (args.get("steps") or args.get("plan_steps")):
        problems.append("only submit_plan carries steps")
    schema = arguments_schema(name)
    for key, rule in schema["properties"].items():
        required = key in schema["required"]
        if name != "submit_plan" and rule.get("type") == "string" and (required or args.get(key) is not None):
            problems += _text_problems(key, args.get(key), required, rule.get("enum"))
    if (options := args.get("options")) is not None and not _texts(options):
        problems.append("options must be a list of texts")
    offset = args.get("offset") or 0
    if name == "recall" and (isinstance(offset, bool) or not isinstance(offset, int) or offset < 0):
        problems.append("offset must be a whole number from 0")
    return problems


def _text_problems(key: str, value: Any, required: bool, allowed: Sequence[str] | None) -> list[str]:
    if not isinstance(value, str) or (required and not value.strip()):
        return [f"{key} must be a text that is not blank"]
    if allowed and value not in allowed:
        return [f"{key} must be one of {', '.join(allowed)}, not {value[:40]!r}"]
    return []


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
