"""Make the history fit for the model that is asked next. It is rebuilt from what was read, so that no reply can spoil a
request.

A reply goes back as its provider wrote it only to the same model at the same server, and only if nothing of it had to
be read otherwise. Thoughts, signatures and the like are kept with it and are given to nobody else. Any other reply is
its text and its calls, with ids that every provider takes.
"""

import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from donewhen.graph.llm.history import has_images
from donewhen.state.pattern import pattern
from donewhen.state.values import clean_text

MADE_BY = "donewhen_made_by"
"""In the metadata of a reply: which model made it, at which server, as a hash."""
THOUGHTS = ("reasoning_content", "reasoning_details", "extra_content")
"""Fields beside a reply that servers of OpenAI's protocol may want back."""
NO_TEXT = "…"
"""Stands for a reply without text and calls, which some providers refuse."""
NO_RESULT = "This call has no result."
HAVING_READ = "I have read the results."
"""Stands between results and a message of the user, where roles have to take turns."""
_ID = pattern(r"[A-Za-z0-9_-]{1,40}")
"""Ids that OpenAI and Anthropic take."""
_NAME = pattern(r"[A-Za-z0-9_-]{1,64}")
"""Names that they take."""
_DEMANDS = pattern(r"reasoning_content|thought_?signature", re.IGNORECASE)
_ABOUT_IMAGES = pattern(
    r"image|vision|multi-?modal|content.{0,40}(?:string|text|type)|valid string|mmproj", re.IGNORECASE
)
_WORDS_CHARS = 2_000
"""The most characters of a call that stands as text."""
_CALL_BLOCKS = {"tool_use", "function_call", "tool_call", "tool_call_chunk", "input_json_delta"}
_KEPT_BLOCKS = {"thinking", "redacted_thinking"}
"""Blocks of thoughts that stay valid beside calls that were read otherwise."""


class History(NamedTuple):
    """Messages that are fit to send."""

    messages: list[BaseMessage]
    packets: list[Mapping[str, Any] | None]
    """For each message, what its server sent beside it and wants back; None if there is nothing."""
    foreign: bool
    """True if it has calls without the thoughts that this model would have written before them."""


class _FitRound(NamedTuple):
    """A reply with what follows it, as it is sent."""

    messages: list[BaseMessage]
    ids: list[Any]
    """The ids of its calls."""
    packet: Mapping[str, Any] | None
    foreign: bool


class _Bound(NamedTuple):
    """The end of a round: how many messages were read until there, and how many are sent."""

    read: int
    sent: int
    ids: list[Any]
    """The ids of the round's calls."""
    foreign: bool
    """Whether this round or one before it is foreign."""


class FitRounds:
    """The fitted rounds of a conversation's last request. The next one repeats them, so they are fitted once."""

    def __init__(self) -> None:
        self._maker = ""
        self._read: Sequence[BaseMessage] = ()
        self._bounds = [_Bound(0, 0, [], foreign=False)]
        self._sent: list[BaseMessage] = []
        self._packets: list[Mapping[str, Any] | None] = []
        self._ids = _FreshIds()

    def fit(self, messages: Sequence[BaseMessage], maker: str) -> History:
        """Return messages that begin with a reply as they are sent to the model `maker`."""
        self._forget_behind(self._shared(messages) if maker == self._maker else 0)
        self._maker, self._read = maker, messages
        for round in _rounds(messages[self._bounds[-1].read :]):
            fitted = _fit_round(round, self._ids, own=round[0].response_metadata.get(MADE_BY) == maker)
            self._sent += fitted.messages
            self._packets += [fitted.packet, *[None] * (len(fitted.messages) - 1)]
            read, foreign = self._bounds[-1].read + len(round), self._bounds[-1].foreign or fitted.foreign
            self._bounds.append(_Bound(read, len(self._sent), fitted.ids, foreign))
        return History([*self._sent], [*self._packets], self._bounds[-1].foreign)

    def _shared(self, messages: Sequence[BaseMessage]) -> int:
        """Return how many messages are the first ones of the last request."""
        return [*map(operator.is_, self._read, messages), False].index(False)

    def _forget_behind(self, shared: int) -> None:
        """Forget the rounds behind so many shared messages; of these, the last round may have become longer."""
        while len(self._bounds) > 1 and self._bounds[-1].read >= shared:
            self._ids.free(self._bounds.pop().ids)
        del self._sent[self._bounds[-1].sent :], self._packets[self._bounds[-1].sent :]


def fit_history(messages: Sequence[BaseMessage], maker: str, rounds: FitRounds | None = None) -> History:
    """Return the messages for the model `maker`: each call with one result behind it, unique ids, legal names.

    `rounds` has those of the conversation's last request.
    """
    first = next((place for place, each in enumerate(messages) if isinstance(each, AIMessage)), len(messages))
    # A result without its call, as after a cut, is a text.
    whole = map(_without_halves, messages[:first])
    before = [_as_words(each) if isinstance(each, ToolMessage) else each for each in whole]
    sent, packets, foreign = (rounds or FitRounds()).fit(messages[first:], maker)
    return History([*before, *sent], [*[None] * first, *packets], foreign)


def in_turns(history: History) -> History:
    """Return the history for a server whose roles take turns: user, assistant with its results, assistant, user, …"""
    messages, packets = list[BaseMessage](), list[Mapping[str, Any] | None]()
    for message, packet in zip(history.messages, history.packets, strict=True):
        last = messages[-1] if messages else None
        if isinstance(message, HumanMessage) and isinstance(last, HumanMessage):
            messages[-1] = _joined(last, message)
            continue
        if isinstance(message, HumanMessage) and isinstance(last, ToolMessage):
            messages.append(AIMessage(HAVING_READ))
            packets.append(None)
        messages.append(message)
        packets.append(packet)
    return history._replace(messages=messages, packets=packets)


def without_system(history: History) -> History:
    """Return the history for a server that takes no system message: the instructions begin what the user says first."""
    first, *others = history.messages
    if not isinstance(first, SystemMessage):
        return history
    if others and isinstance(others[0], HumanMessage):
        return history._replace(messages=[_joined(first, others[0]), *others[1:]], packets=history.packets[1:])
    return history._replace(messages=[HumanMessage(first.content), *others])


def _joined(first: BaseMessage, second: BaseMessage) -> HumanMessage:
    if isinstance(first.content, str) and isinstance(second.content, str):
        return HumanMessage(f"{first.content}\n\n{second.content}", id=second.id)
    blocks = [
        [{"type": "text", "text": each}] if isinstance(each, str) else each for each in (first.content, second.content)
    ]
    return HumanMessage([*blocks[0], *blocks[1]], id=second.id)


def with_instruction(messages: Sequence[BaseMessage], text: str) -> list[BaseMessage]:
    """Return the messages with another instruction behind those that come first."""
    first, *others = messages
    if isinstance(first, SystemMessage):
        return [SystemMessage(f"{first.text}\n\n{text}"), *others]
    return [_joined(HumanMessage(text), first), *others]


def any_lacks_thoughts(history: History, error: BaseException) -> bool:
    """Return True if a server demands thoughts of replies, and some in this history are without."""
    lacking = any(
        packet is None and isinstance(message, AIMessage) and message.tool_calls
        for message, packet in zip(history.messages, history.packets, strict=True)
    )
    return lacking and _DEMANDS.search(str(error)) is not None


def refuses_images(messages: Sequence[BaseMessage], error: BaseException) -> bool:
    """Return True if a request has images of tools, and the server's refusal may be about them."""
    return has_images(messages) and _ABOUT_IMAGES.search(str(error)) is not None


def printed_history(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages for a server that takes no calls: calls as they are printed, and results as texts."""
    printed = list[BaseMessage]()
    for message in messages:
        if isinstance(message, AIMessage) and message.tool_calls:
            calls = [json.dumps({"action": c["name"], "arguments": c["args"]}) for c in message.tool_calls]
            printed.append(AIMessage("\n".join(filter(None, [message.text.strip(), *calls])), id=message.id))
        else:
            printed.append(_as_words(message) if isinstance(message, ToolMessage) else message)
    return printed


def has_thoughts(message: BaseMessage) -> bool:
    """Return True if a reply begins with the thoughts that Anthropic wants back."""
    first = message.content[0] if isinstance(message.content, list) and message.content else None
    return isinstance(first, dict) and first.get("type") in _KEPT_BLOCKS


def _rounds(messages: Sequence[BaseMessage]) -> Iterator[list[BaseMessage]]:
    """Yield each reply with what follows it; the first message is a reply."""
    round = list[BaseMessage]()
    for message in messages:
        if round and isinstance(message, AIMessage):
            yield round
            round = []
        round.append(message)
    if round:
        yield round


def _fit_round(round: list[BaseMessage], ids: "_FreshIds", *, own: bool) -> _FitRound:
    """Put the results first and then the other messages; what is no legal call stands as text."""
    reply: Any
    reply, *after = round
    results: dict[str, list[ToolMessage]] = {}
    for message in after:
        if isinstance(message, ToolMessage):
            results.setdefault(message.tool_call_id, []).append(message)
    calls, answers, words, changed = [], list[BaseMessage](), list[str](), bool(reply.invalid_tool_calls)
    for call in reply.tool_calls:
        if not _NAME.fullmatch(call["name"]):
            words.append(f"(called {call['name'][:100]!r} with {json.dumps(call['args'], default=str)[:_WORDS_CHARS]})")
            changed = True
            continue
        named = ids.give(call["id"] or "", str(reply.id or ""), keep=own or MADE_BY not in reply.response_metadata)
        answers_of_call = results.get(call["id"] or "")
        answer = answers_of_call.pop(0) if answers_of_call else ToolMessage(NO_RESULT, tool_call_id=named)
        changed = changed or named != call["id"]
        calls.append({**call, "id": named})
        answers.append(answer if answer.tool_call_id == named else answer.model_copy(update={"tool_call_id": named}))
    for broken in reply.invalid_tool_calls:
        words.append(f"(called {(broken['name'] or '')[:100]!r} with {(broken['args'] or '')[:_WORDS_CHARS]})")
    left = {id(message) for answers_of_call in results.values() for message in answers_of_call}
    following = (each for each in after if id(each) in left or not isinstance(each, ToolMessage))
    others = [_as_words(each) if isinstance(each, ToolMessage) else each for each in following]
    sent = _rebuild(reply, calls, words, own=own, changed=changed)
    messages = [sent, *map(_without_halves, [*answers, *others])]
    foreign = bool(sent.tool_calls and not (own and has_thoughts(sent)))
    packet = _packet_of(reply, sent) if own else None
    return _FitRound(messages, [call["id"] for call in sent.tool_calls], packet, foreign)


def _rebuild(reply: AIMessage, calls: list[Any], words: Sequence[str], *, own: bool, changed: bool) -> AIMessage:
    """Return the reply as it is if it is this model's own and was read as it stands; else its text and its calls."""
    blank = not calls and not words and not reply.text.strip()
    if own and not changed and _agrees(reply) and not (blank and isinstance(reply.content, str)):
        return reply
    text = "\n".join(filter(None, [clean_text(reply.text).strip(), *words]))
    blocks = reply.content if own and isinstance(reply.content, list) else ()
    thoughts: list[Any] = [block for block in blocks if isinstance(block, dict) and block.get("type") in _KEPT_BLOCKS]
    text = text if text or calls or thoughts else NO_TEXT
    content = [*thoughts, *([{"type": "text", "text": text}] if text else [])] if thoughts else text
    return AIMessage(content, id=reply.id, tool_calls=calls)


def _agrees(reply: AIMessage) -> bool:
    """Return True if the calls in the content of a reply, where some packages keep them, are those that were read."""
    calls = {call["id"]: call for call in reply.tool_calls}
    for block in reply.content if isinstance(reply.content, list) else ():
        if not isinstance(block, dict) or block.get("type") not in _CALL_BLOCKS:
            continue
        call = calls.get(block.get("call_id") or block.get("id"))
        if call is None or block.get("name", call["name"]) != call["name"]:
            return False
        if isinstance(written := block.get("arguments"), str) and _as_json(written or "{}") != call["args"]:
            return False
    return True


def _as_json(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _packet_of(reply: AIMessage, sent: BaseMessage) -> Mapping[str, Any] | None:
    """Return what goes back beside the calls of a reply; it is the server's own, and nobody reads it here."""
    calls: list[Any] = getattr(sent, "tool_calls", [])
    packet = {name: reply.additional_kwargs[name] for name in THOUGHTS if reply.additional_kwargs.get(name)}
    if not calls or not packet:
        return None
    if isinstance(beside := packet.get("extra_content"), Mapping):
        new = dict(zip((call["id"] for call in reply.tool_calls), (call["id"] for call in calls), strict=False))
        packet["extra_content"] = {new[id]: extra for id, extra in beside.items() if id in new}
    return packet


def _as_words(message: ToolMessage) -> HumanMessage:
    return HumanMessage(message.content)


def _without_halves(message: BaseMessage) -> BaseMessage:
    """Return a message without lone halves of characters, which no request can hold."""
    if not isinstance(message.content, str) or (text := clean_text(message.content)) == message.content:
        return message
    return message.model_copy(update={"content": text})


class _FreshIds:
    """Gives calls ids that are unique in a request, the same in each request that has them."""

    def __init__(self) -> None:
        self._taken = set[str]()

    def give(self, id: str, message: str, *, keep: bool) -> str:
        """Return the id, with `keep` if it is legal and new, else nine letters and digits, as Mistral wants."""
        chosen, number = id if keep and _ID.fullmatch(id) else "", 0
        while not chosen or chosen in self._taken:
            number += 1
            chosen = f"c{sha256(f'{message} {id} {number}'.encode()).hexdigest()[:8]}"
        self._taken.add(chosen)
        return chosen

    def free(self, ids: Iterable[str]) -> None:
        """Let other calls have these ids."""
        self._taken.difference_update(ids)
