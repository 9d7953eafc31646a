"""Render the past for a model: observations shortened and framed as data, old rounds and other steps as lines.

A request is held within the context window here: it is counted before it is sent, and shortened if it is too long.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, islice, pairwise
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage

from donewhen.graph.context import Deps
from donewhen.graph.llm.cost import estimate_tokens
from donewhen.graph.llm.reply import CALLS_CHARS, MOST_CALLS
from donewhen.graph.tools.rendering import cut_after, cut_before
from donewhen.prompts import framed, without_word
from donewhen.state.channels import EARLIER, Json, is_shortened
from donewhen.state.errors import DoneWhenError
from donewhen.state.pattern import pattern
from donewhen.state.proof.journal import canonical_json, is_failure, is_tool_call, result_key, words_of_entry
from donewhen.state.records import JournalEntry
from donewhen.state.settings import Settings
from donewhen.state.values import clean_text, json_problem

_HEAD = pattern(r"^\[(?P<id>[^\]\s]+)\] (?P<what>\S.*) (?P<status>ok|error)$", re.MULTILINE)
_SHOWN = pattern(r"^(?:recall ok: \[([^\]\s]+)\]|\[([^\]\s:]+)\]) ", re.MULTILINE)
_NAMED = pattern(r"(?:before: |\[)([^\]\s]+)(?: to (\S+)$)?")
TEXT_CHARS = 50_000
"""The most stored characters of a reply's text; longer texts are never read as decisions."""
HEAD_SHARE = 0.9
"""The head's share of a shortened observation; the rest is its end, where programs print their outcome."""
ARGUMENT_CHARS, LINE_CHARS, SAID_CHARS = 120, 100, 300
"""In the note of omitted rounds: characters of a call's arguments, of its result's first line, of the model's words."""
PRINTED = "donewhen_printed"
"""In the metadata of a reply with a call in its text."""
REPLIES_IN_WORDS = 2
"""The replies without a call after which a model that never called a tool is told to print its calls."""
ANSWER_CHARS = 20_000
"""The most characters of a person's earlier answer, shown to a model that asks again."""
SAME = "(The same as for the first call.)"
EARLIER_LINES = 20
"""The most observations of earlier requests that are listed."""
INDEX_CHARS = 120
"""In a line of the index of earlier observations: characters of the arguments, and of the beginning."""
INDEX_NAMES = 100
"""The most ranges of observations, such as `look s1.1 to s1.9`, that the index names."""
SEEN_ROOM = 20_000
"""The most characters of the observations that the index shows."""
QUERY_CHARS = 1_000
"""The most characters of the arguments of a call that is shown whole; a query has its conditions at the end."""


def render_observation(
    entry: JournalEntry, limit: int, hint: str = "", fence: str = "", *, has_recall: bool = True
) -> str:
    """Return the text of an observation for a model: `[s2.3] tool ok`, then the output, framed as data.

    The words of people, and of the runtime about a call that was not made, are not framed. The note of a cut names
    `recall` if the reader has it.
    """
    status = "error" if is_failure(entry) else "ok"
    head = f"[{entry['id']}] {entry['tool'] or entry['source']} {status}"
    text = words_of_entry(entry, shorten(entry["text"], limit, entry["id"] if has_recall else ""))
    foreign = is_tool_call(entry) or entry["source"] in ("check", "result")
    body = framed("tool_output", text, fence) if foreign and not entry.get("users_text") else text
    return "\n".join(part for part in (head, body, hint) if part)


OF_TOOLS = "donewhen_images_of_tools"
"""In the metadata of a message that shows images of tools; it is made for a request and never stored."""


def observations_in(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the id of each observation that a message shows, and whether it was recalled, as of an earlier request."""
    for match in _SHOWN.finditer(text):
        yield match[1] or match[2], match[1] is not None


def image_parts(id: str, block: Mapping[str, Any] | None, fence: str, why: str) -> list[Json]:
    """Return an image of an observation between the tags of foreign data; without one, that it is not shown and why."""
    if block is None:
        return [{"type": "text", "text": f"[{id}] image: not shown, {why}"}]
    opening, closing = framed("tool_output", "\0", fence).split("\0")
    texts = ({"type": "text", "text": text.strip()} for text in (f"[{id}] image:\n{opening}", closing))
    return [next(texts), dict(block), next(texts)]


def tool_images(parts: list[Json]) -> HumanMessage:
    """Return the message with the images of tools; results themselves can have none at some providers."""
    return HumanMessage(parts, response_metadata={OF_TOOLS: True})  # type: ignore[arg-type]


def without_images(messages: Sequence[BaseMessage], why: str) -> list[BaseMessage]:
    """Return the messages with a text in place of each image of a tool; the same ones if there is none."""
    return [
        message.model_copy(update={"content": [_without_image(part, why) for part in message.content]})
        if message.response_metadata.get(OF_TOOLS)
        else message
        for message in messages
    ]


def _without_image(part: Any, why: str) -> Any:
    return part if part["type"] == "text" else {"type": "text", "text": f"(not shown: {why})"}


def has_images(messages: Sequence[BaseMessage]) -> bool:
    """Return True if the messages show an image of a tool."""
    shown = (part for each in messages if each.response_metadata.get(OF_TOOLS) for part in each.content)
    return any(part["type"] != "text" for part in shown)  # type: ignore[index]


def render_earlier_answer(entry: JournalEntry) -> str:
    """Return what a model reads, in place of an answer, if it asks the same question again."""
    return f"You asked this before; the answer was:\n{render_observation(entry, ANSWER_CHARS)}"


def shorten(text: str, limit: int, recall_id: str) -> str:
    """Return head and end of a text, at most `limit` characters with a note between on how to read the rest (X12).

    Cuts are made between lines if the lines are short enough. The offset in the note is the end of the head, so that
    `recall` continues without a gap. Without `recall_id`, the note says that a step can read the rest.
    """
    if (span := omitted_span(text, limit, recall_id)) is None:
        return text
    head, tail = span
    return text[:head] + _omission_note(tail - head, head, recall_id) + text[tail:]


def omitted_span(text: str, limit: int, recall_id: str) -> tuple[int, int] | None:
    """Return the span of characters that `shorten` leaves out; None if it shows all."""
    if len(text) <= limit:
        return None
    room = max(limit - len(_omission_note(len(text), len(text), recall_id)), 2)
    head = cut_before(text, int(room * HEAD_SHARE))
    head = text.rfind("\n", head - room // 10, head) + 1 or head
    tail = cut_after(text, len(text) - (room - head))
    return head, text.find("\n", tail, tail + room // 20) + 1 or tail


def _omission_note(count: int, offset: int, recall_id: str) -> str:
    how = f'recall(observation="{recall_id}", offset={offset}) reads them' if recall_id else "a step can read them"
    return f"\n… {count:,} characters left out; {how} …\n"


class TranscriptLength:
    """Counts the characters of a transcript. Each message is counted once, because transcripts only grow (K8)."""

    def __init__(self) -> None:
        self._count = self._chars = 0

    def measure(self, messages: Sequence[AnyMessage]) -> int:
        """Return the characters of these messages, which begin with those of the last call."""
        self._chars += sum(map(_message_chars, messages[self._count :]))
        self._count = len(messages)
        return self._chars

    def restart(self) -> None:
        """Start again: the next messages are different ones."""
        self._count = self._chars = 0


def fit_transcript(
    messages: list[AnyMessage], limit: int, fence: str = "", length: TranscriptLength | None = None
) -> list[AnyMessage]:
    """Return these messages, or, if they exceed `limit` characters, the later rounds behind a note of the earlier ones.

    If nothing is cut, the same list is returned, so callers may compare with `is`.
    A round is a reply with its results; messages before the first reply, such as an earlier note, count as one. The
    omitted part grows by half of `limit` at a time, so that the beginning is the same from round to round and the
    providers' prompt caches hit. The last round always stays. `length` counts this transcript.
    """
    length = length or TranscriptLength()
    if (over := length.measure(messages) - limit) <= 0:
        return messages
    step = max(limit // 2, 1)
    aim, dropped, start = -(-over // step) * step, 0, 0
    starts = [place for place, message in enumerate(messages) if not place or isinstance(message, AIMessage)]
    for begin, end in pairwise(starts):
        if dropped < aim:
            dropped += sum(map(_message_chars, messages[begin:end]))
            start = end
    if start <= is_shortened(messages):
        return messages
    length.restart()
    gone = messages[:start]
    note = HumanMessage(
        _note_of_rounds(gone, limit // 4, fence),
        id=EARLIER,
        response_metadata={"called_natively": has_called(gone), PRINTED: has_printed(gone)},
    )
    return [note, *messages[start:]]


def rounds_of(state: Mapping[str, Any]) -> list[AnyMessage]:
    """Return all rounds that a step or planning is shown: from before it was dispatched again, and since."""
    since = state.get("transcript", ())
    return [*(() if is_shortened(since) else state.get("earlier", ())), *since]


def _message_chars(message: AnyMessage) -> int:
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    text = message.content if isinstance(message.content, str) else message.text
    return len(text) + sum(len(str(call["args"])) for call in calls)


def _note_of_rounds(gone: Sequence[AnyMessage], limit: int, fence: str) -> str:
    """Return a note with a line per call and the model's own words; beyond `limit`, only ids of the oldest calls."""
    lines = list(_lines_of_rounds(gone))
    size, first = 0, len(lines)
    while first and size + len(lines[first - 1][1]) <= limit:
        first -= 1
        size += len(lines[first][1])
    ids = [id for id, _ in lines[:first] if id]
    older = [f"before: {ids[0]} to {ids[-1]}"] if ids else []
    lines_text = framed("earlier_rounds", "\n".join([*older, *(line for _, line in lines[first:] if line)]), fence)
    return (
        f"Earlier rounds of this step, shortened to a line each; recall reads what was observed in them.\n{lines_text}"
    )


def _lines_of_rounds(gone: Sequence[AnyMessage]) -> Iterator[tuple[str, str]]:
    """Yield the id of each observation, or "", with the line about it."""
    calls: dict[str, Any] = {}
    for message in gone:
        text = str(message.text)
        if message.id == EARLIER:
            yield from _lines_of_note(text)
            continue
        if isinstance(message, AIMessage):
            calls |= {str(call["id"]): call for call in message.tool_calls}
            if words := _one_line(text, SAID_CHARS):
                yield "", f"you said: {words}"
            continue
        call = calls.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        made = f"{call['name']} {_one_line(canonical_json(call['args']), ARGUMENT_CHARS)}" if call else ""
        heads = list(islice(_HEAD.finditer(text), 1 if call else None))
        if made and not heads:
            yield "", f"{made} → {_one_line(text, LINE_CHARS)}"
        for place, head in enumerate(heads):
            end = heads[place + 1].start() if place + 1 < len(heads) else len(text)
            body = re.sub(r"^<tool_output[^\n]*>\n", "", text[head.end() + 1 : end])
            result_line = _one_line(body.strip().partition("\n")[0], LINE_CHARS)
            yield head["id"], f"[{head['id']}] {made or head['what']} {head['status']} → {result_line}"


def _lines_of_note(note: str) -> Iterator[tuple[str, str]]:
    for line in note.split("\n")[2:-1]:
        first, last = match.groups() if (match := _NAMED.match(line)) else ("", None)
        if last:
            yield first, ""
        yield last or first, line


def _one_line(text: str, most: int) -> str:
    line = " ".join(text[: most * 2].split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def calls_natively(messages: Sequence[BaseMessage]) -> bool:
    """Return True if the model makes tool calls in this conversation, and did not print one since."""
    for message in reversed(messages):
        if message.response_metadata.get(PRINTED):
            return False
        if message.tool_calls if isinstance(message, AIMessage) else message.response_metadata.get("called_natively"):
            return True
    return False


def has_called(messages: Sequence[BaseMessage]) -> bool:
    """Return True if the model made a tool call in this conversation, whatever it printed since."""
    return any(
        message.tool_calls if isinstance(message, AIMessage) else message.response_metadata.get("called_natively")
        for message in messages
    )


def has_printed(messages: Sequence[BaseMessage]) -> bool:
    """Return True if the model printed a call since its last tool call, if it made any."""
    return not calls_natively(messages) and any(message.response_metadata.get(PRINTED) for message in messages)


def should_print(messages: Sequence[BaseMessage]) -> bool:
    """Return True if the model never made a tool call in this conversation, and printed one or replied in words alone.

    Whoever called a tool keeps the tools: what it prints since is read, and one slip does not take them away.
    """
    replies = [message for message in messages if isinstance(message, AIMessage) or message.id == EARLIER]
    if has_called(replies) or any(getattr(message, "invalid_tool_calls", ()) for message in replies):
        return False
    talks = len(replies) >= REPLIES_IN_WORDS or any(message.id == EARLIER for message in replies)
    return talks or has_printed(replies)


def storable_reply(message: AIMessage) -> AIMessage:
    """Return the reply for storage, shortened so that a runaway reply fills neither storage nor prompt."""
    text = clean_text(str(message.text))
    if (count := len(message.tool_calls) + len(message.invalid_tool_calls)) > MOST_CALLS:
        return AIMessage(f"(a reply with {count:,} calls, left out)", id=message.id)
    raw = "".join(call.get("args") or "" for call in message.invalid_tool_calls)
    flawed = any(json_problem(call["args"]) for call in message.tool_calls) or clean_text(raw) != raw
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


def reply_messages(message: AIMessage, text: str | Callable[[str], str]) -> list[AnyMessage]:
    """Return the messages that answer a reply: one for each call, or one plain message if it made none.

    `text` may be a function of the call's id. Calls and their results stay atomic pairs (X14). A text for all calls is
    only in the first answer; the others refer to it.
    """
    text_for = text if callable(text) else lambda _: text
    ids = [call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls) if call.get("id")]
    if not ids:
        return [HumanMessage(text_for(""))]
    texts = [text_for(id) for id in ids if id]
    once = [text if n == 0 or text != texts[0] or len(text) <= len(SAME) else SAME for n, text in enumerate(texts)]
    return [ToolMessage(text, tool_call_id=id) for id, text in zip(ids, once, strict=True)]


def observation_index(
    journal: Sequence[JournalEntry], steps: Collection[str], fence: str, room: int = SEEN_ROOM
) -> str:
    """List what these steps observed, newest last, in about `room` characters.

    The latest are shown whole and others in a line while there is room; the rest is named by tool and id, for `recall`.
    The same result of the same call stands there once. An observation of several lines is framed, so that none of its
    lines can pass for another observation.
    """
    seen = [entry for entry in journal if entry["step"] in steps and entry["source"] in ("tool", "check")]
    first = _first_of_each(seen)
    rows = dict[str, str]()
    for entry in (first[entry["id"]] for entry in reversed(seen)):
        row = _whole_row(entry, fence)
        if entry["id"] not in rows and not entry["stored"] and len(row) <= room:
            rows[entry["id"]] = row
            room -= len(row)
    rest = []
    for entry in reversed(seen):
        same = first[entry["id"]]["id"]
        repeated = same != entry["id"] and len(entry["text"]) > LINE_CHARS
        row = f"{_call_line(entry)} as {same}" if repeated else rows.get(entry["id"]) or _index_row(entry)
        row = row if entry["id"] in rows else without_word(row, fence)
        if entry["id"] not in rows and len(row) > room:
            rest.append(entry)
        elif entry["id"] not in rows:
            rows[entry["id"]] = row
            room -= len(row)
    named = [_names_row(rest[::-1])] if rest else []
    return "\n".join([*named, *(rows[e["id"]] for e in seen if e["id"] in rows)])


def _names_row(entries: Sequence[JournalEntry]) -> str:
    """Name observations by tool and id; consecutive ones of a tool are one range: `look s1.1 to s1.9`."""
    runs = [(tool, [e["id"] for e in run]) for tool, run in groupby(entries, key=lambda entry: entry["tool"])]
    named = [f"{tool} {ids[0]}{f' to {ids[-1]}' if len(ids) > 1 else ''}" for tool, ids in runs[-INDEX_NAMES:]]
    gone = sum(len(ids) for _, ids in runs[:-INDEX_NAMES])
    more = [f"{gone} earlier ones"] if gone else []
    return f"Read by recall alone: {', '.join([*more, *named])}"


def earlier_index(values: Mapping[str, Any]) -> str:
    """List what earlier requests of the thread observed, a line each; `recall` reads them."""
    return "\n".join(_index_row(entry) for entry in (values.get("before") or ())[-EARLIER_LINES:])


def _first_of_each(seen: Sequence[JournalEntry]) -> dict[str, JournalEntry]:
    """Return, by the id of each observation, the first one of the same call with the same result."""
    results: dict[tuple[Any, ...], list[JournalEntry]] = {}
    for entry in seen:
        results.setdefault((entry["tool"], *result_key(entry)), []).append(entry)
    first = {}
    for same in results.values():
        calls: dict[str, JournalEntry] = {}
        for entry in same:
            call = canonical_json(entry["arguments"]) if len(same) > 1 else ""
            first[entry["id"]] = calls.setdefault(call, entry)
    return first


def _call_line(entry: JournalEntry, limit: int = INDEX_CHARS) -> str:
    if entry["source"] == "user":
        return f"[{entry['id']}] the user said:"
    arguments_text = json.dumps(entry["arguments"], ensure_ascii=False) if entry["arguments"] else ""
    arguments = f" {arguments_text[:limit]}{'…' if len(arguments_text) > limit else ''}" if arguments_text else ""
    return f"[{entry['id']}] {entry['tool']}{arguments} {'ok' if entry['ok'] else 'error'}:"


def _whole_row(entry: JournalEntry, fence: str) -> str:
    head = without_word(_call_line(entry, QUERY_CHARS if entry["effect"] == "read" else INDEX_CHARS), fence)
    if len((text := entry["text"].strip()).splitlines()) < 2:
        return f"{head} {without_word(text, fence)}"
    return f"{head}\n{framed('tool_output', entry['text'], fence)}"


def _index_row(entry: JournalEntry) -> str:
    text = " ".join(words_of_entry(entry)[: 2 * INDEX_CHARS].split())
    if max(entry["length"], len(text)) <= INDEX_CHARS:
        return f"{_call_line(entry)} {text}"
    return f"{_call_line(entry)} {text[:INDEX_CHARS]} … ({entry['length']:,} characters)"


HEAD_MESSAGES = 2
"""The number of messages that always stay: the instructions and the brief."""
WINDOW_SHARE = 0.95
"""The part of the window that is used; the rest is for errors of the estimate."""
OBSERVATION_PARTS = 8
"""One observation takes at most one part in so many of the window."""
LEAST_MESSAGE_CHARS = 400
"""The least that a shortened message keeps."""
PICTURE = " " * 4_000
"""Stands for an image or a file in an estimate: about a thousand tokens, as providers charge for an image."""
_ID = pattern(r"\A\[([^\]\s]+)\] ")
_count_text_tokens = lru_cache(maxsize=512)(estimate_tokens)


def window_of(model: BaseChatModel, settings: Settings) -> int | None:
    """Return the most tokens of a request, by the model's profile and the settings; None if neither limits it."""
    own = (getattr(model, "profile", None) or {}).get("max_input_tokens")
    asked = getattr(model, "num_ctx", None)  # what Ollama is asked for by the model's owner
    windows = [most for most in (own, asked, settings.context_tokens) if isinstance(most, int) and most > 0]
    return min(windows, default=None)


def observation_limit(deps: Deps, settings: Settings, role: str, executor: str | None = None) -> int:
    """Return the most characters of one observation in a prompt, by the settings and the context window."""
    try:
        window = window_of(deps.model(role, settings, executor), settings)
    except DoneWhenError:  # reported when the model is asked
        window = None
    return (
        settings.observation_chars
        if window is None
        else min(settings.observation_chars, window * 4 // OBSERVATION_PARTS)
    )


def count_tokens(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> int:
    """Estimate the tokens of a request."""
    text_tokens = sum(4 + sum(map(_count_text_tokens, _texts_of(message))) for message in messages)
    return text_tokens + sum(estimate_tokens(json.dumps(tool, ensure_ascii=False)) for tool in tools)


def fits(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]], window: int) -> bool:
    """Return True if a request fits; tokens are counted only if its length leaves a doubt."""
    length = sum(len(text) for message in messages for text in _texts_of(message))
    return length + 4_000 * len(tools) < window or count_tokens(messages, tools) <= window * WINDOW_SHARE


def compact_request(
    messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]], window: int, fence: str
) -> list[BaseMessage] | None:
    """Shorten the oldest rounds to a line each and, if necessary, long results; None if the request cannot fit.

    `recall` reads the omitted parts.
    """
    head, rounds = list(messages[:HEAD_MESSAGES]), list(messages[HEAD_MESSAGES:])
    room = window * WINDOW_SHARE - count_tokens(head, tools)
    if room <= 0 or not rounds:
        return None
    length = sum(len(text) for message in rounds for text in _texts_of(message))
    chars = int(room * length / max(count_tokens(rounds, ()), 1))
    for limit in (chars, chars // 2, chars // 4):
        shorter = [*head, *fit_transcript(rounds, limit, fence)]  # type: ignore[arg-type]
        if fits(shorter, tools, window):
            return shorter
    last = fit_transcript(rounds, chars // 4, fence)  # type: ignore[arg-type]
    each = max(chars // (len(last) + 1), LEAST_MESSAGE_CHARS)
    shorter = [*head, *(_shorten_message(message, each) for message in last)]
    if fits(shorter, tools, window):
        return shorter
    if has_images(messages):
        return compact_request(without_images(messages, "the context window is full"), tools, window, fence)
    return None


def _shorten_message(message: BaseMessage, limit: int) -> BaseMessage:
    """Shorten a result in its middle, with a note on how to read the rest; replies stay unchanged."""
    text = str(message.text)
    if isinstance(message, AIMessage) or len(text) <= limit or not isinstance(message.content, str):
        return message
    named = _ID.match(text)
    return message.model_copy(update={"content": shorten(text, limit, named[1] if named else "…")})


def _texts_of(message: BaseMessage) -> list[str]:
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    parts = message.content if isinstance(message.content, list) else ()
    pictures = [PICTURE for part in parts if isinstance(part, dict) and part.get("type") != "text"]
    texts = [json.dumps(call["args"], ensure_ascii=False, default=str) for call in calls]
    return [str(message.text), *texts, *pictures]
