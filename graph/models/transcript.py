"""What a model is shown of the past: observations bounded and framed as data; of old rounds and others' work, lines."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage

from donewhen.graph.models.reading import CALLS_CHARS
from donewhen.graph.tools.rendering import cut_after, cut_before
from donewhen.prompts import framed
from donewhen.state.channels import EARLIER, shortened
from donewhen.state.pattern import pattern
from donewhen.state.proof.journal import canonical, made
from donewhen.state.values import flaw, whole

_HEAD = pattern(r"^\[(?P<id>[^\]\s]+)\] (?P<what>\S.*) (?P<status>ok|error)$", re.MULTILINE)
_NAMED = pattern(r"(?:before: |\[)([^\]\s]+)(?: to (\S+)$)?")
TEXT_CHARS = 50_000
"""Of one reply, kept; what is longer was not read as a decision anyway."""
HEAD_SHARE = 0.9
"""Of what is shown of a long observation; the rest is its end, where programs say what came of it."""
ARGUMENT_CHARS, LINE_CHARS, SAID_CHARS = 120, 100, 300
"""Of a call's arguments, of its result's first line, and of the model's own words, in rounds that are left out."""
PATIENCE = 2
"""Replies in words in a conversation before a model that never called a tool is told to print its calls."""
EARLIER_LINES = 20
"""Of what earlier requests observed."""
INDEX_LINES, INDEX_CHARS = 50, 120
"""Of the index of earlier observations; characters of the arguments, and of how each begins."""
INDEX_STEP = 20
"""So many of the oldest lines leave the index at a time: what is left begins as before, and is cached."""
WHOLE_CHARS, SEEN_ROOM = 4_000, 8_000
"""Of an earlier observation that stands in the index whole, and of all of these together."""


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


def bounded(text: str, limit: int, recall_id: str) -> str:
    """Head and end of the text, together at most `limit` characters, and between them how to read the rest (X12).

    It is cut between lines where lines are short enough. The offset in the note is where the head ends, so that
    `recall` goes on without a gap.
    """
    if (span := unshown(text, limit, recall_id)) is None:
        return text
    head, tail = span
    return text[:head] + _left_out(tail - head, head, recall_id) + text[tail:]


def unshown(text: str, limit: int, recall_id: str) -> tuple[int, int] | None:
    """The span of characters that `bounded` leaves out; None if it shows all."""
    if len(text) <= limit:
        return None
    room = max(limit - len(_left_out(len(text), len(text), recall_id)), 2)
    head = cut_before(text, int(room * HEAD_SHARE))
    head = text.rfind("\n", head - room // 10, head) + 1 or head
    tail = cut_after(text, len(text) - (room - head))
    return head, text.find("\n", tail, tail + room // 20) + 1 or tail


def _left_out(count: int, offset: int, recall_id: str) -> str:
    return f'\n… {count:,} characters left out; recall(observation="{recall_id}", offset={offset}) reads them …\n'


class Length:
    """How many characters a transcript has. It only grows until it is shortened: each message is measured once (K8)."""

    def __init__(self) -> None:
        self._count = self._chars = 0

    def of(self, messages: Sequence[AnyMessage]) -> int:
        """Of these messages, which begin with those of the last time."""
        self._chars += sum(map(_size, messages[self._count :]))
        self._count = len(messages)
        return self._chars

    def restart(self) -> None:
        """The next messages are others."""
        self._count = self._chars = 0


def fitting(messages: list[AnyMessage], limit: int, fence: str = "", length: Length | None = None) -> list[AnyMessage]:
    """The messages, or, if they are longer than `limit` characters, the later rounds behind a note of the earlier ones.

    A round is a reply with what answers it; what stands before the first one, such as an earlier note, goes like one.
    What is left out grows by half of `limit` at a time, so that from round to round the beginning stays the same and
    providers' prompt caches hit. The last round always stays. `length` is what is known of this transcript.
    """
    length = length or Length()
    if (over := length.of(messages) - limit) <= 0:
        return messages
    step = max(limit // 2, 1)
    aim, dropped, start = -(-over // step) * step, 0, 0
    starts = [place for place, message in enumerate(messages) if not place or isinstance(message, AIMessage)]
    for begin, end in pairwise(starts):
        if dropped < aim:
            dropped += sum(map(_size, messages[begin:end]))
            start = end
    if start <= shortened(messages):
        return messages
    length.restart()
    gone = messages[:start]
    note = HumanMessage(
        _note(gone, limit // 4, fence), id=EARLIER, response_metadata={"called_natively": called_natively(gone)}
    )
    return [note, *messages[start:]]


def rounds_of(state: Mapping[str, Any]) -> list[AnyMessage]:
    """All rounds of a step or a planning that it is shown: those before it was sent off again, and those since."""
    since = state.get("transcript", ())
    return [*(() if shortened(since) else state.get("earlier", ())), *since]


def _size(message: AnyMessage) -> int:
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    return len(_text(message)) + sum(len(str(call["args"])) for call in calls)


def _text(message: AnyMessage) -> str:
    content = message.content
    return content if isinstance(content, str) else str(message.text)


def _note(gone: Sequence[AnyMessage], limit: int, fence: str) -> str:
    """A line per call, and what the model said itself; of the oldest only ids, where that is more than `limit`."""
    lines = list(_lines(gone))
    size, first = 0, len(lines)
    while first and size + len(lines[first - 1][1]) <= limit:
        first -= 1
        size += len(lines[first][1])
    ids = [id for id, _ in lines[:first] if id]
    older = [f"before: {ids[0]} to {ids[-1]}"] if ids else []
    told = framed("earlier_rounds", "\n".join([*older, *(line for _, line in lines[first:] if line)]), fence)
    return f"Earlier rounds of this step, shortened to a line each; recall reads what was observed in them.\n{told}"


def _lines(gone: Sequence[AnyMessage]) -> Iterator[tuple[str, str]]:
    """Id of the observation, if it is one, and the line about it."""
    calls: dict[str, Any] = {}
    for message in gone:
        text = _text(message)
        if message.id == EARLIER:
            yield from _noted(text)
            continue
        if isinstance(message, AIMessage):
            calls |= {str(call["id"]): call for call in message.tool_calls}
            if said := _short(text, SAID_CHARS):
                yield "", f"you said: {said}"
            continue
        call = calls.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        made = f"{call['name']} {_short(canonical(call['args']), ARGUMENT_CHARS)}" if call else ""
        heads = list(islice(_HEAD.finditer(text), 1 if call else None))
        if made and not heads:
            yield "", f"{made} → {_short(text, LINE_CHARS)}"
        for place, head in enumerate(heads):
            end = heads[place + 1].start() if place + 1 < len(heads) else len(text)
            body = re.sub(r"^<tool_output[^\n]*>\n", "", text[head.end() + 1 : end])
            told = _short(body.strip().partition("\n")[0], LINE_CHARS)
            yield head["id"], f"[{head['id']}] {made or head['what']} {head['status']} → {told}"


def _noted(note: str) -> Iterator[tuple[str, str]]:
    for line in note.split("\n")[2:-1]:
        first, last = found.groups() if (found := _NAMED.match(line)) else ("", None)
        if last:
            yield first, ""
        yield last or first, line


def _short(text: str, most: int) -> str:
    line = " ".join(text[: most * 2].split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def called_natively(messages: Sequence[BaseMessage]) -> bool:
    """Whether the model made a tool call in this conversation; if so, JSON in its text is text."""
    return any(
        message.tool_calls if isinstance(message, AIMessage) else message.response_metadata.get("called_natively")
        for message in messages
    )


def only_spoke(messages: Sequence[BaseMessage]) -> bool:
    """Whether the model answered `PATIENCE` times in this conversation, and never with a call."""
    replies = [message for message in messages if isinstance(message, AIMessage) or message.id == EARLIER]
    if called_natively(replies) or any(getattr(message, "invalid_tool_calls", ()) for message in replies):
        return False
    return len(replies) >= PATIENCE or any(message.id == EARLIER for message in replies)


def kept(message: AIMessage) -> AIMessage:
    """The reply as the transcript keeps it: bounded, so that one runaway reply does not fill storage and prompt."""
    text = whole(str(message.text))
    raw = "".join(call.get("args") or "" for call in message.invalid_tool_calls)
    flawed = any(flaw(call["args"]) for call in message.tool_calls) or whole(raw) != raw
    size = len(raw) + sum(
        0 if flawed else len(json.dumps(call["args"], ensure_ascii=False, default=str)) for call in message.tool_calls
    )
    if flawed or size > CALLS_CHARS:
        why = "that cannot be stored" if flawed else f"of {size:,} characters"
        return AIMessage(f"(a reply with arguments {why}, left out)", id=message.id)
    if len(text) <= TEXT_CHARS and text == message.text:
        return message
    half = TEXT_CHARS // 2
    if len(text) > TEXT_CHARS:
        text = f"{text[:half]}\n… {len(text) - TEXT_CHARS} characters left out …\n{text[-half:]}"
    return message.model_copy(update={"content": text})


def respond(message: AIMessage, text: str | Callable[[str], str]) -> list[AnyMessage]:
    """What the model is told: one message per call of its reply, or one plain message if it made none.

    `text` may be a function of the call's id. Calls and their results stay atomic pairs (X14).
    """
    said = text if callable(text) else lambda _: text
    ids = [call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls) if call.get("id")]
    if not ids:
        return [HumanMessage(said(""))]
    return [ToolMessage(said(id), tool_call_id=id) for id in ids if id]


def index_of(journal: Sequence[Mapping[str, Any]], steps: Collection[str], fence: str) -> str:
    """What was observed in these steps, newest last: the latest whole while there is room, the others in a line.

    What has several lines stands in a frame of its own: none of them can pass for another observation.
    """
    seen = [entry for entry in journal if entry["step"] in steps and entry["source"] in ("tool", "check")]
    gone = -(-max(len(seen) - INDEX_LINES, 0) // INDEX_STEP) * INDEX_STEP
    room, rows = SEEN_ROOM, list[str]()
    for entry in reversed(seen[gone:]):
        whole = len(entry["text"]) <= min(WHOLE_CHARS, room)
        rows.append(_index_row(entry, whole, fence))
        room -= len(rows[-1]) if whole else 0
    if gone:
        rows.append(f"… {gone} earlier ones are left out here")
    return "\n".join(reversed(rows))


def earlier_index(values: Mapping[str, Any]) -> str:
    """What earlier requests of the thread observed, a line each: it can be recalled."""
    return "\n".join(_index_row(entry) for entry in (values.get("before") or ())[-EARLIER_LINES:])


def _index_row(entry: Mapping[str, Any], whole: bool = False, fence: str = "") -> str:
    said = json.dumps(entry["arguments"], ensure_ascii=False) if entry["arguments"] else ""
    made = f" {said[:INDEX_CHARS]}{'…' if len(said) > INDEX_CHARS else ''}" if said else ""
    head = f"[{entry['id']}] {entry['tool']}{made} {'ok' if entry['ok'] else 'error'}:"
    if whole:
        text = entry["text"].strip()
        return (
            f"{head} {text}" if len(text.splitlines()) < 2 else f"{head}\n{framed('tool_output', entry['text'], fence)}"
        )
    first = " ".join(entry["text"][: 2 * INDEX_CHARS].split())[:INDEX_CHARS]
    return f"{head} {first} … ({entry['length']:,} characters)"
