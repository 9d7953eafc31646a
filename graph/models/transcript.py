"""What a model is shown of the past: observations bounded and marked as data, and old rounds left out as wholes."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from donewhen.graph.tools.call import bounded
from donewhen.prompts import framed
from donewhen.state.proof.journal import made

_HEAD = re.compile(r"^\[([^\]\s]+)\] \S.* (?:ok|error)$", re.MULTILINE)


def shown(entry: Mapping[str, Any], limit: int, hint: str = "", fence: str = "") -> str:
    """The text in which a model sees an observation: `[s2.3] tool ok`, then the output, framed as data.

    What a person said, and what the runtime says of a call that was not made, stands outside of a frame.
    """
    status = "ok" if entry["ok"] else "error"
    head = f"[{entry['id']}] {entry['tool'] or entry['source']} {status}"
    text = bounded(entry["text"], limit, entry["id"])
    foreign = made(entry) or entry["source"] in ("check", "result")
    body = framed("tool_output", text, fence) if foreign else text
    return "\n".join(part for part in (head, body, hint) if part)


def fitting(messages: Sequence[AnyMessage], limit: int) -> list[AnyMessage]:
    """The messages, or, if they are longer than `limit` characters, the later rounds behind a note.

    A reply and the results of its calls stay together. What is left out grows by half of `limit` at a time, so that
    from round to round the beginning stays the same and providers' prompt caches hit. The last round always stays.
    """
    rounds = _rounds(messages)
    sizes = [sum(map(_size, one)) for one in rounds]
    over = sum(sizes) - limit
    if over <= 0:
        return list(messages)
    step = max(limit // 2, 1)
    aim, dropped, count = -(-over // step) * step, 0, 0
    while count < len(rounds) - 1 and dropped < aim:
        dropped += sizes[count]
        count += 1
    gone = [message for one in rounds[:count] for message in one]
    return (
        [HumanMessage(_note(gone)), *(message for one in rounds[count:] for message in one)]
        if count
        else list(messages)
    )


def _rounds(messages: Sequence[AnyMessage]) -> list[list[AnyMessage]]:
    """Every reply with what answers it; what stands before the first reply is a round of its own."""
    rounds: list[list[AnyMessage]] = []
    for message in messages:
        if isinstance(message, AIMessage) or not rounds:
            rounds.append([])
        rounds[-1].append(message)
    return rounds


def _size(message: AnyMessage) -> int:
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    return len(message.text) + sum(len(json.dumps(call["args"], default=str)) for call in calls)


def _note(gone: Sequence[AnyMessage]) -> str:
    texts = [str(m.text) for m in gone if isinstance(m, (ToolMessage, HumanMessage))]
    ids = list(dict.fromkeys(id for text in texts for id in _HEAD.findall(text)))
    listed = ", ".join(ids if len(ids) <= 40 else [*ids[:20], "…", *ids[-20:]])
    read = f" recall reads what was observed in them: {listed}." if ids else ""
    return f"(Earlier rounds of this step are left out here.{read})"
