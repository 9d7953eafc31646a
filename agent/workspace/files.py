"""Read, write, append to and edit one text file."""

import io
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import IO, Annotated, Any

from langchain_core.tools import ToolException
from pydantic import Field

from donewhen.agent.workspace.data.encoding import OTHER_TOOL, SAMPLE_BYTES, Encoding, encoding_of
from donewhen.agent.workspace.root import MissingPath, Parts, Root, display_path, refuse_history
from donewhen.agent.workspace.undo import IGNORE, IGNORE_ALL, TRASH, keep_append, keep_content, keep_copy, keep_move
from donewhen.state.secrets import CONTEXT, REDACTED, conceal_part

MAX_READ = 200_000
MAX_EDIT_BYTES = 5_000_000
MAX_SHOWN = 100_000
SKIP_CHARS = 65_536
PAGE = 19_500
UTF_8 = Encoding("utf-8")
_QUOTES = {ord(each): plain for plain, odd in (("'", "‘’‚‛"), ('"', "“”„‟"), ("-", "‐‑–—−")) for each in odd}
"""Quotes and dashes that look like those of a keyboard."""

FilePath = Annotated[str, Field(description="relative to the workspace")]
Content = Annotated[str, Field(description="the text", max_length=MAX_EDIT_BYTES)]
Offset = Annotated[int, Field(ge=0, description="characters to skip")]
Length = Annotated[int, Field(ge=1, le=MAX_READ, description="characters to read at most")]
Written = tuple[str, dict[str, Any]]


def read_file(root: Root, path: FilePath, offset: Offset = 0, limit: Length = PAGE) -> str:
    """Read a text file. A note at the end says when there is more and how to read on."""
    with root.open(path) as file:
        encoding = detect_encoding(file, path)
        text = _as_text(file, encoding, "")
        before, chunk, after = _skip(text, path, offset), text.read(limit), text.read(CONTEXT)
        more = bool(after)
        size = os.fstat(file.fileno()).st_size
        text.detach()
    notes = []
    if not chunk:
        notes.append("end of the file" if offset else "the file is empty")
    if more:
        end = offset + len(chunk)
        notes.append(f"more follows, the file has {size} bytes; shown are {offset} to {end}, read on with offset={end}")
    if encoding.guessed:
        notes.append(f"not UTF-8, read as {encoding.codec}, which is a guess")
    # Look beyond the page: a credential that its limits cut in two is still one.
    chunk = conceal_part(f"{before}{chunk}{after}", len(before), len(before) + len(chunk))
    if not notes:
        return chunk
    return chunk + ("\n" if chunk and not chunk.endswith("\n") else "") + f"[{'; '.join(notes)}]"


def write_file(root: Root, path: FilePath, content: Content) -> Written:
    """Write a text file, replacing what was there. Missing folders are made."""
    parts = root.file_parts(path)
    with root.writing:
        refuse_history(parts)
        root.check_writable(parts)
        _refuse_redacted(root, path, content)
        data = encode(content)
        keep_content(root, parts, data)
        root.replace(parts, io.BytesIO(data))
    return f"Wrote {len(content)} characters to {display_path(parts)}", _artifact(parts, content)


def replaced_text(root: Root, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the text that `write_file` would replace; {} if it is too long to be shown, or there is no file."""
    try:
        with root.open(arguments["path"]) as file, open_text(file, arguments["path"]) as text:
            before = text.read(MAX_SHOWN + 1)
    except MissingPath:
        return {}
    return {"content": before} if len(before) <= MAX_SHOWN else {}


def append_file(root: Root, path: FilePath, content: Content) -> Written:
    """Add text at the end of a file, made when missing. Begin with a line break where a new line is meant."""
    parts = root.file_parts(path)
    with root.writing:
        root.check_writable(parts)
        if fresh := root.kind(parts) is None:
            keep_content(root, parts, encode(content))
        whole = _append(root, parts, path, content, keep=not fresh)
    return f"Appended {len(content)} characters to {display_path(parts)}", _artifact(parts, whole)


def _append(root: Root, parts: Parts, path: str, content: str, *, keep: bool) -> str:
    """Add the text, in the encoding and with the line breaks of the file; return the text of the whole file."""
    with root.append(parts) as file:
        encoding = detect_encoding(file, path)
        sample = file.read(SAMPLE_BYTES)
        added = _as_crlf(content) if "\r\n" in sample.decode(encoding.codec, "replace") else content
        data = encode(added, _encoding_to_append(encoding, sample))
        if keep:
            keep_append(root, parts, data)
        file.seek(0, os.SEEK_END)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        with open_text(file, path) as text:
            return text.read(MAX_SHOWN + 1)


def edit_file(
    root: Root,
    path: FilePath,
    old: Annotated[str, Field(min_length=1, description="the exact text to replace; it has to occur exactly once")],
    new: Annotated[str, Field(max_length=MAX_EDIT_BYTES, description="the text to put there")],
) -> Written:
    """Replace one exact passage of a text file. Fails, changing nothing, unless it occurs exactly once."""
    parts = root.file_parts(path)
    if old == new:
        raise ToolException("old and new are the same text; nothing to change.")
    with root.writing:
        root.check_writable(parts)
        with root.open(path) as file:
            data = file.read(MAX_EDIT_BYTES + 1)
        if len(data) > MAX_EDIT_BYTES:
            raise ToolException(f"{path} has more than {MAX_EDIT_BYTES} bytes, too many to edit.")
        encoding = detect_encoding(io.BytesIO(data), path)
        try:
            before = data.decode(encoding.codec)
        except UnicodeDecodeError as error:
            raise ToolException(
                f"{path} holds bytes that are not {encoding.codec}, at {error.start}; not edited."
            ) from None
        if "\r\n" in before and old not in before:
            old, new = _as_crlf(old), _as_crlf(new)
        elif "\r" not in before:
            old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n") if "\r\n" in old else new
        _check_occurs_once(before, old, path)
        after = before.replace(old, new)
        written = _encode_edit(after, new, encoding, path)
        keep_content(root, parts, written, data)
        root.replace(parts, io.BytesIO(written))
    line = before[: before.index(old)].count("\n") + 1
    return f"Replaced 1 passage at line {line} of {display_path(parts)}", _artifact(parts, after)


def move_file(root: Root, source: FilePath, destination: FilePath) -> str:
    """Move or rename a file or folder. Missing folders are made; fails where the destination exists already."""
    before, after = root.file_parts(source), root.file_parts(destination)
    with root.writing:
        root.check_move(before, after)
        keep_move(root, before, after)
        root.move(before, after)
    return f"Moved {display_path(before)} to {display_path(after)}"


def copy_file(root: Root, source: FilePath, destination: FilePath) -> str:
    """Copy a file. Missing folders are made; fails where the destination exists already."""
    before, after = root.file_parts(source), root.file_parts(destination)
    with root.writing:
        root.check_copy(before, after)
        keep_copy(root, before, after)
        root.copy(before, after)
    return f"Copied {display_path(before)} to {display_path(after)}"


def delete_file(root: Root, path: FilePath) -> str:
    """Delete a file or folder: it is moved into the folder .trash, from where move_file brings it back."""
    parts = root.file_parts(path)
    if parts[0] == TRASH:
        raise ToolException(f"{display_path(parts)} is deleted already; only a person empties {TRASH}.")
    with root.writing:
        destination = next(name for name in _free_names((TRASH, *parts)) if root.kind(name) is None)
        root.check_move(parts, destination)
        keep_move(root, parts, destination)
        if root.kind((TRASH,)) is None:
            root.replace(IGNORE, io.BytesIO(IGNORE_ALL))
        root.move(parts, destination)
    return f"Deleted {display_path(parts)}; it is kept as {display_path(destination)}"


def _free_names(parts: Parts) -> Iterator[Parts]:
    """Yield the name, and then the name with a number: `a.txt`, `a (2).txt`, …"""
    yield parts
    stem, ending = os.path.splitext(parts[-1])
    for number in itertools.count(2):
        yield (*parts[:-1], f"{stem} ({number}){ending}")


def _refuse_redacted(root: Root, path: str, content: str) -> None:
    """Refuse to write `[redacted]` over the secret it stands for."""
    if REDACTED not in content:
        return
    try:
        with root.open(path) as file:
            before = file.read(MAX_EDIT_BYTES)
    except ToolException:
        return  # there is nothing to replace
    if before and REDACTED.encode() not in before:
        raise ToolException(
            f"{REDACTED} stands for a secret that is not shown; written over {path}, which may hold that secret, it "
            "would destroy it. Change the other passages with edit_file."
        )


def _skip(text: io.TextIOWrapper, path: str, offset: int) -> str:
    """Skip to an offset; return the text right before it."""
    left, before = offset, ""
    while left:
        piece = text.read(min(left, SKIP_CHARS))
        before, skipped = (before + piece)[-CONTEXT:], len(piece)
        if not skipped:
            raise ToolException(f"offset {offset} is past the end: {path} has {offset - left} characters.")
        left -= skipped
    return before


def _check_occurs_once(content: str, old: str, path: str) -> None:
    count = content.count(old)
    if count == 1 and content.find(old, content.index(old) + 1) == -1:
        return
    if count:
        first = itertools.islice(re.finditer(re.escape(old), content), 10)
        lines = [content[: match.start()].count("\n") + 1 for match in first]
        raise ToolException(
            f"The passage occurs more than once in {path} (lines {', '.join(map(str, lines))}); "
            "give more text around it."
        )
    words = [re.escape(word) for word in old.translate(_QUOTES).split()[:200]]
    loose = re.search(r"\s+".join(words), content.translate(_QUOTES), re.IGNORECASE)
    if words and loose:
        line = content[: loose.start()].count("\n") + 1
        raise ToolException(
            f"Not found in {path} as written; line {line} differs in spacing, case, quotes or dashes. Copy it exactly."
        )
    raise ToolException(f"The passage does not occur in {path}; read_file shows what is there.")


def _as_crlf(text: str) -> str:
    """Return the text with the line breaks of a file that Windows wrote."""
    return re.sub("\r?\n", "\r\n", text)


def _encoding_to_append(encoding: Encoding, sample: bytes) -> Encoding:
    """Return the encoding for appending to a file, which writes no second byte order mark."""
    if encoding.codec in ("utf-16", "utf-32"):
        return Encoding(f"{encoding.codec}-{'le' if sample[:1] == bytes([255]) else 'be'}")
    return Encoding("utf-8") if encoding.codec == "utf-8-sig" else encoding


def _encode_edit(text: str, new: str, encoding: Encoding, path: str) -> bytes:
    """Return an edited text as bytes: what is new is written only if each likely encoding writes it alike."""
    encode(new, encoding)
    written = text.encode(encoding.codec)
    if written.decode(encoding.codec) != text:
        raise ToolException(f"{path} cannot be written back as {encoding.codec}; nothing was changed.")
    return written


def _artifact(parts: Parts, content: str) -> dict[str, Any]:
    """Return the text of a written file for clients; a long one is cut, and says so."""
    if len(content) > MAX_SHOWN:
        content = content[: MAX_SHOWN - 60] + "\n[cut here; the file on disk is longer]"
    return {"files": {display_path(parts): content}}


def open_text(file: IO[bytes], path: str, *, newline: str | None = "") -> io.TextIOWrapper:
    """Return the file as streamed text; bytes that do not fit become U+FFFD. Raises ToolException for a binary file."""
    return _as_text(file, detect_encoding(file, path), newline)


def _as_text(file: IO[bytes], encoding: Encoding, newline: str | None) -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding=encoding.codec, errors="replace", newline=newline)


def detect_encoding(file: IO[bytes], path: str) -> Encoding:
    """Return the encoding of a file. Raises ToolException for a binary file."""
    encoding = encoding_of(file)
    if encoding is None:
        raise ToolException(f"{path} is a binary file, not text; {OTHER_TOOL}")
    return encoding


def encode(text: str, encoding: Encoding = UTF_8) -> bytes:
    """Return text as bytes. Raises ToolException if the encoding lacks a character, or is too uncertain for one."""
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:
        character = ascii(text[error.start])
        raise ToolException(f"The content cannot be written as {encoding.codec}: character {character}.") from None
    except UnicodeError as error:
        raise ToolException(
            f"The file is not UTF-8, and {error}; nothing was changed. Write only ASCII, or write the whole file anew."
        ) from None
