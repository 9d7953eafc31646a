"""Whatever a tool returns or raises, as text: JSON where it is data, in bounded work, never raising."""

import dataclasses
import datetime
import decimal
import enum
import fractions
import itertools
import json
import math
import pathlib
import re
import unicodedata
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.tools import ToolException
from pydantic import BaseModel, ValidationError

MOST_ITEMS = 200_000
"""Values of a structure that are looked at; of larger ones only the beginning is shown."""
DEEPEST = 60
"""Levels of nesting that are shown."""

_UNSAFE = re.compile("[\x00\ud800-\udfff]")
_AS_STRING = (decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath, datetime.timedelta, complex)
_JOINED = ("Mn", "Me", "Mc")
_CARRIERS = ("base64", "data", "url", "image_url", "file_id", "source", "input_audio", "file")
_BINARY = ("image", "image_url", "audio", "input_audio", "video", "file", "document")


def rendered(value: Any, limit: int) -> str:
    """A tool's return value as text of at most `limit` characters; a longer one ends in a note saying so."""
    if isinstance(value, BaseMessage):
        value = value.content
    if isinstance(value, Iterator):
        value = list(itertools.islice(value, 1_000))
    if isinstance(value, str):
        return capped(str.__str__(value), limit)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return capped(_of_bytes(value), limit)
    if isinstance(value, list) and (blocks := _block_texts(value)) is not None:
        return capped("\n".join(blocks), limit)
    plain = _Plain(limit + 1)
    shown = plain.of(value)
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    return capped(text, limit, exact=not plain.cut)


def capped(text: str, limit: int, exact: bool = True) -> str:
    """The text, fit for every database; if it is longer than `limit`, its head with a note of its length."""
    if len(text) <= limit and exact:
        return cleaned(text)
    length = f"{len(text):,} characters" if exact else f"more than {min(limit, len(text)):,} characters"
    note = f"\n… the result had {length}; the rest was not kept"
    return cleaned(text[: cut_before(text, max(limit - len(note), 0))]) + note


def cleaned(text: str) -> str:
    """The text without lone surrogates and NUL, which neither UTF-8 nor Postgres takes."""
    if not _UNSAFE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "␀")


def cut_before(text: str, position: int) -> int:
    """The last place up to `position` where the text may be cut without tearing apart what is read as one."""
    for at in range(min(position, len(text)), max(position - 32, 0), -1):
        if at == len(text) or not _belongs_together(text, at):
            return at
    return min(position, len(text))


def cut_after(text: str, position: int) -> int:
    """The first place from `position` on where the text may be cut without tearing apart what is read as one."""
    for at in range(max(position, 0), min(position + 32, len(text))):
        if at == 0 or not _belongs_together(text, at):
            return at
    return min(max(position, 0), len(text))


def _belongs_together(text: str, at: int) -> bool:
    """Whether the characters before and after the place make one sign: an accent, an emoji, a flag, a line end."""
    left, right = text[at - 1], text[at]
    if unicodedata.category(right) in _JOINED or right in "\u200d\ufe0f" or left == "\u200d":
        return True
    if _is_flag_letter(left) and _is_flag_letter(right):
        letters = itertools.takewhile(_is_flag_letter, reversed(text[max(at - 10_000, 0) : at]))
        return sum(1 for _ in letters) % 2 == 1
    surrogates = "\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff"
    return surrogates or (left, right) == ("\r", "\n") or "\U0001f3fb" <= right <= "\U0001f3ff"


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def described(error: BaseException, limit: int = 4_000) -> str:
    """An exception in words: its kind and what it says; of a group or a validation error, each part."""
    if isinstance(error, BaseExceptionGroup):
        parts = [described(each, limit) for each in itertools.islice(error.exceptions, 5)]
        return capped("; ".join(parts), limit)
    if isinstance(error, ValidationError):
        return capped(_of_validation(error), limit)
    name, said = type(error).__name__, printed(error)
    if isinstance(error, ToolException) and said:
        return capped(said, limit)
    return capped(f"{name}: {said}" if said else name, limit)


def printed(value: Any) -> str:
    """`str(value)`, or its type if even that fails."""
    try:
        return str(value)
    except BaseException as error:  # `__str__` is foreign code and may raise anything
        return f"<{type(value).__name__} that cannot be printed: {type(error).__name__}>"


def _of_validation(error: ValidationError) -> str:
    try:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    except Exception:
        return printed(error)
    said = [f"{'.'.join(map(str, each['loc'])) or 'the arguments'}: {each['msg']}" for each in found[:10]]
    return "the tool refused its arguments: " + "; ".join(said)


def _of_bytes(value: bytes | bytearray | memoryview) -> str:
    raw = bytes(value)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return f"({len(raw):,} bytes that are not text, beginning {raw[:16].hex(' ')})"
    return text if "\0" not in text else f"({len(raw):,} bytes, beginning {raw[:16].hex(' ')})"


def _block_texts(blocks: list[Any]) -> list[str] | None:
    """The texts of LangChain content blocks, placeholders for other media; None if it is no such list."""
    if not any(isinstance(block, dict) for block in blocks[:1_000]):
        return None
    texts = [_block_text(block) for block in blocks]
    return None if None in texts else [text for text in texts if text is not None]


def _block_text(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("text", "text-plain") and isinstance(block.get("text"), str):
        return str(block["text"])
    carrier = next((block[key] for key in _CARRIERS if key in block), None) if kind in _BINARY else None
    if carrier is None:
        return None
    if isinstance(carrier, Mapping):
        carrier = next((carrier[key] for key in ("url", "data", "file_data") if key in carrier), "")
    carrier = carrier if isinstance(carrier, str) else ""
    mime = block.get("mime_type") or block.get("mimeType") or ""
    is_link = "://" in carrier[:20]
    size = carrier[:200] if is_link else f"{len(carrier) * 3 // 4:,} bytes"
    return f"[{', '.join(each for each in (str(kind).removesuffix('_url'), str(mime), size) if each)}]"


class _Plain:
    """Turns a value into plain JSON data, until the budget of characters or items is used up."""

    def __init__(self, characters: int) -> None:
        self.characters = characters
        self.items = MOST_ITEMS
        self.cut = False
        self.above: set[int] = set()

    def of(self, value: Any, depth: int = 0) -> Any:
        """The value as None, bool, int, float, str, list or dict."""
        self.items -= 1
        if isinstance(value, enum.Enum):
            value = value.value
        if value is None or isinstance(value, (bool, int, float)):
            return self._number(value)
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(_of_bytes(value))
        if isinstance(value, (datetime.date, datetime.time)):
            return self._text(value.isoformat())
        if isinstance(value, (*_AS_STRING, type)):
            return self._text(printed(value))
        if isinstance(value, BaseException):
            return self._text(described(value))
        if id(value) in self.above:
            return "(the same structure again)"
        if depth >= DEEPEST:
            self.cut = True
            return "(nested too deeply)"
        return self._structure(value, depth)

    def _structure(self, value: Any, depth: int) -> Any:
        self.above.add(id(value))
        try:
            return self._parts(value, depth)
        except Exception as error:  # iterating foreign objects is foreign code
            return self._text(f"<{type(value).__name__} that cannot be shown: {described(error, 200)}>")
        finally:
            self.above.discard(id(value))

    def _parts(self, value: Any, depth: int) -> Any:
        if dataclasses.is_dataclass(type(value)):
            value = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        elif isinstance(value, BaseModel):
            value = dict(value)
        elif callable(getattr(value, "_asdict", None)):
            value = value._asdict()
        elif callable(getattr(value, "tolist", None)) and getattr(value, "size", 0) <= MOST_ITEMS:
            return self.of(value.tolist(), depth + 1)  # an array
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, Set):
            return sorted(self._list(value, depth), key=lambda item: json.dumps(item, ensure_ascii=False))
        if isinstance(value, (Sequence, Iterator)) or hasattr(value, "popleft"):
            return self._list(value, depth)
        return self._text(printed(value))

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, below in self._while_room(value.items()):
            name = self._key(key)
            shown[name if name not in shown else f"{name} ({type(key).__name__})"] = self.of(below, depth + 1)
        return shown

    def _list(self, value: Iterable[Any], depth: int) -> list[Any]:
        return [self.of(below, depth + 1) for below in self._while_room(value)]

    def _while_room(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if self.items <= 0 or self.characters <= 0:
                self.cut = True
                return
            yield value

    def _key(self, key: Any) -> str:
        plain = self.of(key) if not isinstance(key, tuple) else printed(key)
        return str(self._text(plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)))

    def _text(self, text: str) -> str:
        if len(text) > self.characters:
            self.cut = True
            text = text[: max(self.characters, 0)]
        self.characters -= len(text) + 4
        return text

    def _number(self, value: float | bool | None) -> Any:
        self.characters -= 6
        if isinstance(value, float):
            return (
                float(value)
                if math.isfinite(value)
                else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
            )
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value) if value.bit_length() < 4_000 else f"(an integer of {value.bit_length():,} bits)"
        return value
