"""What an exception of a model call says, whoever raised it: status, headers, codes, text. Pure, duck-typed."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_MESSAGES = frozenset({"message", "msg", "detail", "description", "error", "error_description", "raw", "title"})
_CODES = frozenset({"code", "type", "__type", "status", "reason", "error", "error_code", "errorcode"})
_WAITS = frozenset({"retrydelay", "retry_after", "retryafter", "retry_after_seconds"})
_LONGEST = 4000
_DEEPEST = 6
_MOST = 200


class Refusal(NamedTuple):
    """One exception of a chain, read."""

    names: tuple[str, ...]
    """Class names, the most specific first."""
    status: int | None
    """The HTTP status, if it is one of failure; a stream that breaks after a 200 has none."""
    headers: Mapping[str, str]
    """Names in lower case."""
    words: frozenset[str]
    """Codes and types the provider gave, in lower case."""
    text: str
    """What the provider or the exception says, at most 4,000 characters."""
    hints: str
    """The text and every field that names a wait."""


class _Reading:
    """What a walk through a response body has collected."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.words: set[str] = set()
        self.waits: list[str] = []
        self.headers: dict[str, str] = {}
        self.statuses: list[int] = []
        self.left = _MOST


def links(error: BaseException) -> Iterator[BaseException]:
    """The exception, the members of a group and the explicit causes, outermost first, each once."""
    queue, seen = [error], set[int]()
    while queue and len(seen) < 20:
        link = queue.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        members = link.exceptions if isinstance(link, BaseExceptionGroup) else ()
        queue += [*members, *([link.__cause__] if link.__cause__ else [])]


def read_refusal(error: BaseException) -> Refusal:
    """Read one exception; nothing it does (attributes that raise, endless bodies) can make this fail."""
    response = _get(error, "response")
    reading = _Reading()
    _headers(_get(response, "headers") or _get(error, "headers"), reading)
    for body in _bodies(error, response):
        _walk(body, "", 0, reading)
    for name in ("code", "type", "status"):
        value = _get(error, name)
        _word(_get(value(), "name") if name == "code" and callable(value) else value, reading)
    text = "; ".join(dict.fromkeys(part.strip() for part in reading.texts if part.strip())) or _text(error)
    http = [
        _get(error, "status_code"),
        _get(response, "status_code"),
        _get(response, "status"),
        _get(error, "status"),
    ]
    return Refusal(
        names=tuple(cls.__name__ for cls in type(error).__mro__),
        status=next((status for status in map(_status, [*http, *reading.statuses]) if status), None),
        headers=reading.headers,
        words=frozenset(reading.words),
        text=text[:_LONGEST],
        hints=" ".join([text[:_LONGEST], *reading.waits]),
    )


def _bodies(error: BaseException, response: Any) -> Iterator[Any]:
    """The first place that holds the provider's answer, as openai, google, botocore, httpx and others keep it."""
    candidates = [_get(error, "body"), _get(error, "details"), response, *_get_args(error)]
    known: list[Any] = [body for body in candidates if isinstance(body, Mapping | list)]
    if not known:
        texts = [_get(error, "body"), _get(response, "text"), _get(error, "doc")]
        known = [text for text in texts if isinstance(text, str | bytes) and text]
    yield from known[:1]


def _walk(value: Any, key: str, depth: int, into: _Reading) -> None:
    into.left -= 1
    if depth > _DEEPEST or into.left < 0:
        return
    if isinstance(value, bytes):
        value = value[: 5 * _LONGEST].decode("utf-8", "replace")
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        value = _parsed(value)
    if isinstance(value, Mapping):
        if key in {"headers", "httpheaders"}:
            _headers(value, into)
            return
        for name, item in value.items():
            _walk(item, str(name).lower(), depth + 1, into)
    elif isinstance(value, list | tuple):
        for item in value:
            _walk(item, key, depth + 1, into)
    else:
        _leaf(value, key, into)


def _leaf(value: Any, key: str, into: _Reading) -> None:
    if key in _CODES or key == "httpstatuscode":
        _word(value, into)
    if key in _WAITS and isinstance(value, str | int | float):
        into.waits.append(f"retry after: {value}")
    if isinstance(value, str) and (key in _MESSAGES or not key):
        into.texts.append(value[:_LONGEST])


def _word(value: Any, into: _Reading) -> None:
    """Numbers, also as text, are statuses; single words are codes."""
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        value = int(value)
    if isinstance(value, int):
        if status := _status(value):
            into.statuses.append(status)
    elif isinstance(value, str) and 0 < len(value) <= 100 and " " not in value:
        into.words.add(value.lower())


def _status(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600 else None


def _headers(headers: Any, into: _Reading) -> None:
    if not hasattr(headers, "items"):
        return
    for name, value in list(headers.items())[:_MOST]:
        first = value[0] if isinstance(value, list | tuple) and value else value
        into.headers.setdefault(str(name).lower(), str(first).strip()[:200])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.lstrip("{[")


def _get(value: Any, name: str) -> Any:
    try:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    except Exception:  # a response that was not read, or a property that raises
        return None


def _get_args(error: BaseException) -> list[Any]:
    return [argument for argument in _get(error, "args") or () if isinstance(argument, Mapping)]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception that cannot be printed is still an exception
        return ""
