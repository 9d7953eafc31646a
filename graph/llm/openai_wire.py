"""Read what servers of OpenAI's protocol really send, between LangChain's class and the provider's client.

They send streams whose pieces differ from OpenAI's, whole answers instead of a stream, errors and web pages with HTTP
200, and thoughts that LangChain's class drops and that they want back. `ChatWire` takes the place of
`client.chat.completions` for one request.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from donewhen.state.errors import ModelError
from donewhen.state.secrets import redact

_LONGEST_BODY = 20_000_000
"""The most bytes of an answer that is no stream."""
_LAST_BYTES = 0.5
"""Seconds to wait for the end of a stream that says that it is over."""
_PIECE = 8_000
"""The most characters of arguments that are handed on at once."""
_SHOWN = 300
"""Characters of an answer that an error quotes."""
NO_THOUGHTS = "(These thoughts were not kept.)"
"""Sent to a server that demands the thoughts of a reply that it did not make."""
NO_SIGNATURE = "skip_thought_signature_validator"
"""The same for a signature: https://ai.google.dev/gemini-api/docs/thought-signatures"""
_SAYINGS = ("message", "detail", "msg")
"""Fields in which a server that sends no choices says why."""


class ServerError(Exception):
    """An error that a server sends with HTTP 200; `body` is what it says."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(str(body.get("message") or body))
        self.body = body


class ChatWire:
    """The chat completions of a client, for one request.

    `packets` are what goes back beside the replies in it, by message. `done` becomes True when the server says that its
    stream is over, as some do who give no reason for the end.
    """

    def __init__(self, completions: Any) -> None:
        self._completions = completions
        self.packets: Sequence[Mapping[str, Any] | None] = ()
        self.fills = False
        """True if replies without thoughts get a placeholder for them."""
        self.done = False
        self.thoughts: Thoughts = Thoughts()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._completions, name)

    async def create(self, **payload: Any) -> Any:
        """Make the request and return its answer; a stream as dictionaries in the form that LangChain reads."""
        answer = await self._completions.create(**self._with_packets(payload))
        response = getattr(answer, "response", None)
        return _Stream(self, response) if payload.get("stream") and hasattr(response, "aiter_bytes") else answer

    @property
    def with_raw_response(self) -> "_RawWire":
        """Return the counterpart that LangChain uses for requests without a stream."""
        return _RawWire(self)

    def _with_packets(self, payload: dict[str, Any]) -> dict[str, Any]:
        messages = payload.get("messages") or (payload.get("extra_body") or {}).get("messages") or ()
        if len(messages) == len(self.packets):
            for message, packet in zip(messages, self.packets, strict=True):
                if message.get("role") == "assistant" and message.get("tool_calls"):
                    _put_back(message, packet or {}, fills=self.fills)
        return payload


class _RawWire:
    def __init__(self, wire: ChatWire) -> None:
        self._wire = wire

    async def create(self, **payload: Any) -> Any:
        raw = await self._wire._completions.with_raw_response.create(**self._wire._with_packets(payload))
        with suppress(Exception):  # what it does not say as JSON is for LangChain to read
            for choice in raw.http_response.json()["choices"][:1]:
                self._wire.thoughts.hear(choice["message"])
        return raw


def _put_back(message: dict[str, Any], packet: Mapping[str, Any], *, fills: bool) -> None:
    """Put the packet that came beside the calls of a reply into the message that sends the reply back."""
    beside = packet.get("extra_content") or {}
    message |= {key: value for key, value in packet.items() if key != "extra_content"}
    for call in message["tool_calls"]:
        if call.get("id") in beside:
            call["extra_content"] = beside[call["id"]]
    if fills:
        message.setdefault("reasoning_content", NO_THOUGHTS)
        message["tool_calls"][0].setdefault("extra_content", {"google": {"thought_signature": NO_SIGNATURE}})


class Thoughts:
    """What a server sends beside the text and the calls of a reply, and may want back with it."""

    def __init__(self) -> None:
        self._refusal: list[str] = []
        self._text: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._calls: dict[Any, int] = {}
        self._beside: dict[int, Any] = {}

    def hear(self, delta: Mapping[str, Any]) -> None:
        """Take the next piece of a reply."""
        if isinstance(words := delta.get("reasoning_content"), str):
            self._text.append(words)
        if isinstance(words := delta.get("refusal"), str):
            self._refusal.append(words)
        for detail in delta.get("reasoning_details") or ():
            if isinstance(detail, dict):
                self._hear_detail(detail)
        for number, call in enumerate(_as_list(delta.get("tool_calls"))):
            if isinstance(call, dict):
                place = call.get("id") or number if call.get("index") is None else call["index"]
                order = self._calls.setdefault(place, len(self._calls))
                if isinstance(call.get("extra_content"), dict):
                    self._beside[order] = call["extra_content"]

    @property
    def refusal(self) -> str:
        """The words in which the model refuses to answer."""
        return "".join(self._refusal).strip()

    def _hear_detail(self, detail: dict[str, Any]) -> None:
        last = self._details[-1] if self._details else {}
        if not last or any(last.get(key) != detail.get(key) for key in ("type", "index")):
            self._details.append(dict(detail))
            return
        for key, value in detail.items():
            if key in ("text", "summary") and isinstance(value, str):
                last[key] = f"{last.get(key) or ''}{value}"
            elif value is not None:
                last[key] = value

    def beside(self, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return all of it, for a reply with these calls."""
        extra = {calls[place]["id"]: value for place, value in self._beside.items() if place < len(calls)}
        all = {"reasoning_content": "".join(self._text), "reasoning_details": self._details, "extra_content": extra}
        return {key: value for key, value in all.items() if value}


def wire_of(model: Any) -> ChatWire | None:
    """Return a wire for one request of this model; None if its class does not speak through such a client."""
    completions = getattr(model, "async_client", None)
    return ChatWire(completions) if hasattr(type(completions), "with_raw_response") else None


class _Stream:
    """A streamed answer, as chunks."""

    def __init__(self, wire: ChatWire, response: Any) -> None:
        self._wire = wire
        self._response = response

    async def __aenter__(self) -> "_Stream":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._response.aclose()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async for chunk in self._chunks():
            for number, piece in enumerate(_in_pieces(chunk)):
                if number:
                    await asyncio.sleep(0)  # LangChain parses each piece, and others work on this loop as well
                for choice in piece["choices"]:
                    self._wire.thoughts.hear(choice["delta"])
                yield piece

    async def _chunks(self) -> AsyncIterator[dict[str, Any]]:
        reader, lines = _EventReader(), _lines(self._response)
        async for line in lines:
            if (event := reader.take(line)) is None:
                continue
            if event.startswith("[DONE]"):
                self._wire.done = True
                with suppress(Exception):  # a connection is used again only if its last bytes were read
                    async with asyncio.timeout(_LAST_BYTES):
                        async for _ in lines:
                            pass
                return
            yield _read_chunk(json.loads(event), failed=reader.name == "error")
        if event := reader.rest():
            yield _read_chunk(json.loads(event), failed=reader.name == "error")
        elif not reader.events:
            for chunk in self._read_body("\n".join(reader.other)):
                yield chunk

    def _read_body(self, text: str) -> Iterator[dict[str, Any]]:
        """Yield the chunks of an answer that is no stream of events. Raises an error that quotes any other body."""
        address = redact(str(getattr(self._response, "url", "")))
        try:
            bodies = [json.loads(text)]
        except ValueError:
            lines = [line for line in text.splitlines() if line.strip()]
            try:  # a chunk on each line
                bodies = [json.loads(line) for line in lines]
            except ValueError:
                bodies = []
        if not bodies and not text.strip():
            return
        if not bodies or not all(isinstance(each, dict) for each in bodies):
            shown = redact(" ".join(text.split())[:_SHOWN])
            problem = f"What answers at {address} is no model: check OPENAI_BASE_URL. It says: {shown}"
            raise ModelError(problem, code="model_error", retryable=True)  # a gateway may say so for a moment, too
        whole = len(bodies) == 1
        for each in bodies:
            yield _read_chunk(each, address=address, whole=whole)
        self._wire.done = whole


class _EventReader:
    """Reads events line by line. What is no event is kept, for the error that quotes it."""

    def __init__(self) -> None:
        self.name = ""
        self.events = 0
        self.other: list[str] = []
        self._data: list[str] = []
        self._left = _LONGEST_BODY

    def take(self, line: bytes) -> str | None:
        """Take a line without its end; return the data of an event that it completes."""
        if not line:
            return self.rest()
        field, colon, value = line.partition(b":")
        if field == b"data":
            self.events += 1
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        elif field == b"event":
            self.name = value.strip().decode("utf-8", "replace")
        elif field in (b"id", b"retry") or (colon and not field):
            pass
        elif not self.events and (left := self._left - len(line)) > 0:
            self._left = left
            self.other.append(line.decode("utf-8", "replace"))
        return None

    def rest(self) -> str | None:
        """Return the data of the event so far; None if there is none."""
        data, self._data = "\n".join(self._data), []
        return data or None


async def _lines(response: Any) -> AsyncIterator[bytes]:
    """Yield the lines of a response. Its own lines end at any separator of Unicode, which a text may hold."""
    pieces: list[bytes] = []
    async for piece in response.aiter_bytes():
        first, *more = piece.split(b"\n")
        pieces.append(first)
        for line in more:
            yield b"".join(pieces).removesuffix(b"\r")
            pieces = [line]
    if last := b"".join(pieces):
        yield last.removesuffix(b"\r")


# Chunks ----------------------------------------------------------------------------------------------------------


def _read_chunk(answer: Any, *, failed: bool = False, whole: bool = False, address: str = "") -> dict[str, Any]:
    """Return a chunk, or a whole answer, in OpenAI's form. Raises ServerError for an error."""
    if not isinstance(answer, dict):
        raise ServerError({"message": str(answer)[:_SHOWN]})
    choices = [each for each in _as_list(answer.get("choices")) if isinstance(each, dict)]
    usage = next((each for each in _usages(answer, choices) if isinstance(each, dict)), None)
    explains = any(isinstance(answer.get(key), str) and answer[key] for key in _SAYINGS)
    if (error := answer.get("error")) or failed or (not choices and not usage and explains):
        body = dict(error) if isinstance(error, Mapping) else {"message": str(error)} if error else answer
        where = f" (answered by {address} with HTTP 200)" if address else ""
        raise ServerError({**body, "message": f"{body.get('message') or json.dumps(body, default=str)}{where}"})
    return {**answer, "choices": [_read_choice(each, whole=whole) for each in choices[:1]], "usage": usage}


def _in_pieces(chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a chunk with very long arguments as several, of which each has a piece of them."""
    choice: Any = next(iter(chunk["choices"]), None)
    calls: Any = (choice and choice["delta"].get("tool_calls")) or ()
    if all(call["index"] is None or len(call["function"]["arguments"] or "") <= _PIECE for call in calls):
        yield chunk
        return
    yield {**chunk, "choices": [{**choice, "delta": {**choice["delta"], "tool_calls": []}, "finish_reason": None}]}
    for call in calls:
        arguments, at = call["function"]["arguments"] or "", 0
        while at == 0 or at < len(arguments):
            end = len(arguments) if call["index"] is None else at + _PIECE
            name = {} if at else {"name": call["function"]["name"]}
            piece = {**call, "function": {**name, "arguments": arguments[at:end]}}
            yield {"choices": [{"delta": {"role": "assistant", "content": "", "tool_calls": [piece]}}]}
            at = end or 1
    yield {**chunk, "usage": None, "choices": [{**choice, "delta": {"role": "assistant", "content": ""}}]}


def _usages(body: Mapping[str, Any], choices: list[dict[str, Any]]) -> Iterator[Any]:
    yield body.get("usage")
    yield from (choice.get("usage") for choice in choices)  # Moonshot's
    yield (body.get("x_groq") or {}).get("usage") if isinstance(body.get("x_groq"), dict) else None


def _read_choice(choice: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    delta_given = choice.get("delta") or choice.get("message") or {}
    delta_given = delta_given if isinstance(delta_given, dict) else {"content": delta_given}
    content = delta_given.get("content") if delta_given.get("content") is not None else choice.get("text")
    delta = {**delta_given, "role": "assistant", "content": _text_of(content)}
    calls = _as_list(delta_given.get("tool_calls"))
    if isinstance(old := delta.pop("function_call", None), dict) and not calls:  # as OpenAI called it first
        calls = [{"index": 0, "function": old}]
    if calls:
        delta["tool_calls"] = [_read_call(call, number if whole else None) for number, call in enumerate(calls)]
    reason = choice.get("finish_reason")
    reason = None if reason in ("", "null") else reason
    return {**choice, "delta": delta, "finish_reason": reason or ("stop" if whole else None)}


def _read_call(call: Any, number: int | None) -> dict[str, Any]:
    call = call if isinstance(call, dict) else {}
    function = call["function"] if isinstance(call.get("function"), dict) else call
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    index = call.get("index", number)
    return {
        "index": int(index) if str(index).isdecimal() else None,
        "id": None if call.get("id") is None else str(call["id"]),
        "function": {"name": function.get("name"), "arguments": arguments},
        "extra_content": call.get("extra_content"),
    }


def _text_of(content: Any) -> str:
    """Return the text of a content, which some servers send in parts."""
    if isinstance(content, list):
        return "".join(map(_text_of, content))
    if isinstance(content, dict):
        return _text_of(content.get("text")) if content.get("type", "text") in ("text", "output_text") else ""
    return "" if content is None else str(content)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
