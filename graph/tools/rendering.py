"""Render tool results and exceptions as text: JSON for data, in bounded work, without raising.

A call of a library holds the interpreter's lock until it returns, even in a thread. So large data are rendered in small
pieces, and only as far as the text is kept.
"""

import itertools
import json
import reprlib
import unicodedata
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from itertools import islice
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langchain_core.tools import ToolException
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from donewhen.graph.tools.certain import Unanswered
from donewhen.state.values import clean_text, note_of_rest

MOST_ITEMS = 200_000
"""The most items of an array or a table; a larger one is shown by its repr. Of an iterator, the most that are read."""

FEW = 4_000
"""The most values that are rendered at once, each 50 characters counted as one: a few milliseconds of work."""
DEEPEST = 200
AT_ONCE = 500
_SINGLE = (int, float, bool, type(None))
_MANY = (dict, list, tuple, set, frozenset, deque)
_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxdict = 100
_BYTES_AS: tuple[Literal["utf8", "base64"], ...] = ("utf8", "base64")
_JOINED = ("Mn", "Me", "Mc")
_CARRIERS = ("base64", "data", "url", "image_url", "file_id", "source", "input_audio", "file")
_BINARY = ("image", "image_url", "audio", "input_audio", "video", "file", "document")


def render_value(value: Any, limit: int) -> str:
    """Return a tool's value as text of at most `limit` characters; a longer one ends in a note saying so."""
    if isinstance(value, BaseMessage):
        value = value.content
    if isinstance(value, Iterator):
        items = list(itertools.islice(value, MOST_ITEMS + 1))
        if len(items) > MOST_ITEMS:
            note = note_of_rest(f"more than {MOST_ITEMS:,} items")
            return f"{render_value(items[:-1], max(limit - len(note), 0))}{note}"
        value = items
    if isinstance(value, str):
        return cap_text(str.__str__(value), limit)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return cap_text(_of_bytes(value), limit)
    if isinstance(value, list) and (blocks := _block_texts(value)) is not None:
        return cap_text("\n".join(blocks), limit)
    if not is_large(value):
        return cap_text(_of_data(value), limit)
    text, whole = _of_large_data(value, limit)
    return cap_text(text, limit, whole=whole)


def is_large(value: Any) -> bool:
    """Return whether rendering a value takes more than a few milliseconds."""
    try:
        return _weigh(value)[0] > FEW
    except BaseException:  # iterating foreign objects is foreign code
        return False


def _weigh(value: Any) -> tuple[int, int]:
    """Return how many values a value holds, counted until a little above FEW, and how deeply they are nested."""
    if type(value) in _SINGLE:
        return 1, 0
    if isinstance(value, (str, bytes)):
        return 1 + len(value) // 50, 0
    count, deepest, stack = 0, 0, [iter((value,))]
    while stack and count <= FEW:
        deepest = max(deepest, len(stack))
        for each in stack[-1]:
            count += 1
            if isinstance(each, (str, bytes)):
                count += len(each) // 50
            elif isinstance(each, BaseMessage):
                stack.append(iter((each.content, getattr(each, "artifact", None))))
                break
            elif isinstance(each, _MANY):
                count += len(each) if isinstance(each, dict) or len(each) > FEW else 0
                stack.append(iter(each.values() if isinstance(each, dict) else each))
                break
            if count > FEW:
                break
        else:
            stack.pop()
    return count, deepest


def _has_few_parts(value: Any) -> bool:
    """Return whether a value has few parts, each counted once."""
    seen, stack = {id(value)}, [value]
    while stack and len(seen) <= FEW:
        part = stack.pop()
        if isinstance(part, _MANY):
            inner = islice((*part, *part.values()) if isinstance(part, dict) else part, FEW)
            for each in inner:
                if id(each) not in seen:
                    seen.add(id(each))
                    stack.append(each)
    return len(seen) <= FEW


def _of_data(value: Any) -> str:
    """Return a value as JSON, as pydantic serializes it, or by its repr if that fails."""
    for bytes_as in _BYTES_AS:
        try:
            plain = to_jsonable_python(value, bytes_mode=bytes_as, fallback=_as_data)
            return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
        except UnicodeDecodeError:
            continue
        except BaseException:  # iterating foreign objects is foreign code
            break
    return print_value(value)


def _of_large_data(value: Any, limit: int) -> tuple[str, bool]:
    """Return what `_of_data` does, no further than `limit`, and whether that is all of it."""
    for bytes_as in _BYTES_AS:
        pieces, room = list[str](), limit
        try:
            if _weigh(value)[1] > DEEPEST + 1:
                break  # deep nesting would be weighed once for each level before it is refused
            for piece in _pieces(value, bytes_as, limit):
                pieces.append(piece)
                if (room := room - len(piece)) < 0:
                    return "".join(pieces), False
            return "".join(pieces), True
        except UnicodeDecodeError:
            continue
        except BaseException:  # iterating foreign objects is foreign code
            break
    try:  # a value that holds itself is endless and yet may be short
        return (print_value(value) if _has_few_parts(value) else _SHORT.repr(value)), True
    except BaseException:
        return print_value(value), True


def _pieces(value: Any, bytes_as: Literal["utf8", "base64"], limit: int, around: tuple[int, ...] = ()) -> Iterator[str]:
    """Yield the JSON of a value in pieces; `around` are the ids of the values that hold it."""

    def dump(few: Any) -> str:
        return json.dumps(to_jsonable_python(few, bytes_mode=bytes_as, fallback=_as_data), ensure_ascii=False)

    if id(value) in around or len(around) > DEEPEST:
        raise ValueError("nested too deeply, or endlessly")
    if not isinstance(value, _MANY):
        yield dump(value[: limit + 1] if isinstance(value, str) else value)
        return
    kind: type[dict[Any, Any]] | type[list[Any]] = dict if isinstance(value, dict) else list
    left, separator = iter(value.items() if isinstance(value, dict) else value), ""
    yield "{" if kind is dict else "["
    while few := [*islice(left, AT_ONCE)]:
        for group in _split(few):
            if len(group) > 1 or not is_large(group):
                yield separator + dump(kind(group))[1:-1]
            else:
                key, item = group[0] if kind is dict else (None, group[0])
                yield separator + (dump({key: None})[1:-5] if kind is dict else "")
                yield from _pieces(item, bytes_as, limit, (*around, id(value)))
            separator = ", "
    yield "}" if kind is dict else "]"


def _split(items: list[Any]) -> Iterator[list[Any]]:
    """Yield the items in groups that are small, or of one item."""
    if len(items) == 1 or not is_large(items):
        yield items
    else:
        yield from _split(items[: len(items) // 2])
        yield from _split(items[len(items) // 2 :])


def _as_data(value: Any) -> Any:
    """Convert types that pydantic does not know: other mappings and collections, tables, arrays, exceptions."""
    if isinstance(value, Mapping):
        return dict(value)
    libraries = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    tables = ("to_csv", "write_csv") if libraries & {"pandas", "polars"} else ()  # others may write a file
    for way in (*tables, "tolist"):  # a table prints itself with rows and digits left out
        if callable(written := getattr(value, way, None)):
            size = getattr(value, "size", 0)
            return written() if size <= MOST_ITEMS else f"{print_value(value)}{note_of_rest(f'{size:,} values')}"
    if isinstance(value, (Sequence, Set, ValuesView)) and not isinstance(value, range):
        return list(value)
    return describe_error(value) if isinstance(value, BaseException) else print_value(value)


def cap_text(text: str, limit: int, *, whole: bool = True) -> str:
    """Return the text in a form that every database accepts; beyond `limit`, its head and a note of its length.

    A text that is not `whole` had more characters.
    """
    note = ""
    if len(text) > limit or not whole:
        note = note_of_rest(f"{'' if whole else 'more than '}{len(text):,} characters")
        text = text[: cut_before(text, max(limit - len(note), 0))]
    return clean_text(text).replace("\0", "␀") + note  # UTF-8 takes no lone surrogate, and PostgreSQL no NUL


def cut_before(text: str, position: int) -> int:
    """Return the last position up to `position` where a cut splits no visible character."""
    for at in range(min(position, len(text)), max(position - 32, 0), -1):
        if at == len(text) or not _belongs_together(text, at):
            return at
    return min(position, len(text))


def cut_after(text: str, position: int) -> int:
    """Return the first position from `position` on where a cut splits no visible character."""
    for at in range(max(position, 0), min(position + 32, len(text))):
        if at == 0 or not _belongs_together(text, at):
            return at
    return min(max(position, 0), len(text))


def _belongs_together(text: str, at: int) -> bool:
    """Return whether the characters around a position form one sign: an accent, an emoji, a flag, a line end."""
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


def describe_error(error: BaseException, limit: int = 4_000) -> str:
    """Return the type and message of an exception; for a group or a validation error, of each part."""
    if isinstance(error, BaseExceptionGroup):
        parts = [describe_error(each, limit) for each in itertools.islice(error.exceptions, 5)]
        return cap_text("; ".join(parts), limit)
    name, message = (
        type(error).__name__,
        describe_misfit(error) if isinstance(error, ValidationError) else print_value(error),
    )
    if isinstance(error, ToolException | Unanswered) and message:
        return cap_text(message, limit)
    return cap_text(f"{name}: {message}" if message else name, limit)


def print_value(value: Any) -> str:
    """Return `str(value)`, or its type if even that fails."""
    try:
        return str(value)
    except BaseException as error:  # `__str__` is foreign code and may raise anything
        return f"<{type(value).__name__} that cannot be printed: {type(error).__name__}>"


def describe_misfit(error: ValidationError) -> str:
    """Return what does not fit, by its place in the value that was validated."""
    try:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
    except Exception:
        return print_value(error)
    return "; ".join(": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in errors[:10])


def _of_bytes(value: bytes | bytearray | memoryview) -> str:
    raw = bytes(value)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return f"({len(raw):,} bytes that are not text, beginning {raw[:16].hex(' ')})"
    return text if "\0" not in text else f"({len(raw):,} bytes, beginning {raw[:16].hex(' ')})"


def _block_texts(blocks: list[Any]) -> list[str] | None:
    """Return the texts of LangChain content blocks, with placeholders for other media; None for any other list."""
    if not any(isinstance(block, dict) for block in blocks[:1_000]):
        return None
    texts: list[str] = []
    for block in blocks:
        if (text := _block_text(block)) is None:
            return None
        texts.append(text)
    return texts


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
