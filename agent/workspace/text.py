"""Bytes on disk as text: byte order marks, UTF-8, and the two fallbacks old office files need."""

import codecs
import io
from typing import IO

from langchain_core.tools import ToolException

SAMPLE_BYTES = 256_000
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LAYOUT = frozenset(b"\t\n\r\f\b\x1b")


def open_text(file: IO[bytes], path: str, *, newline: str | None = "") -> io.TextIOWrapper:
    """The file as streamed text; bytes that do not fit become U+FFFD. Raises ToolException for a binary file."""
    encoding = detect(file.read(SAMPLE_BYTES), path)
    file.seek(0)
    return io.TextIOWrapper(file, encoding=encoding, errors="replace", newline=newline)


def detect(sample: bytes, path: str) -> str:
    """The codec of a file that begins with `sample`. Raises ToolException for a binary file."""
    for mark, encoding in MARKS:
        if sample.startswith(mark):
            return encoding
    if b"\0" in sample:
        raise ToolException(f"{path} is a binary file, not text; this tool reads text only.")
    if _decodes(sample, "utf-8"):
        return "utf-8"
    control = sum(byte < 32 and byte not in LAYOUT for byte in sample)
    if control > len(sample) / 50:
        raise ToolException(f"{path} is a binary file, not text; this tool reads text only.")
    return "gb18030" if _looks_chinese(sample) else "cp1252"


def encode(text: str, encoding: str = "utf-8") -> bytes:
    """Text as bytes. Raises ToolException when the encoding has no place for a character."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        character = ascii(text[error.start])
        raise ToolException(f"The content cannot be written as {encoding}: character {character}.") from None


def _decodes(sample: bytes, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        decoder.decode(sample, final=len(sample) < SAMPLE_BYTES)
    except UnicodeDecodeError:
        return False
    return True


def _looks_chinese(sample: bytes) -> bool:
    """GB text has its high bytes in pairs; in Western text a high byte stands alone among letters."""
    if not _decodes(sample, "gb18030"):
        return False
    high = bytes(byte >= 0x80 for byte in sample)
    alone = sum(len(run) == 1 for run in high.split(b"\0"))
    return alone <= 0.1 * sum(high)
