"""Read bytes as text: by byte order mark, as UTF-8, or by a guess of a library at what an older program wrote."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

OTHER_TOOL = "only a tool for such files can read it. If you have none, say so."
"""What a model is told of a binary file."""
SAMPLE_BYTES = 256_000
MOST_BYTES = 16_000_000
"""The most bytes of a file that are looked at."""
TELLING_BYTES = 200_000
"""The most bytes of lines with other characters than ASCII by which an encoding is guessed."""
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
PDF = b"%PDF-"
"""The beginning of a PDF; one that is written in ASCII is no text, either."""
WIDE = ("utf-16-le", "utf-16-be")
GUESSES = (
    "cp1252", "cp1250", "cp1251", "cp932", "gb18030", "cp949", "big5hkscs", "cp1254", "cp1253", "cp1255", "cp1256",
    "cp1257", "cp874", "koi8-r", "euc_jis_2004", "cp850", "cp852", "cp866", "mac_roman", "iso8859-15",
)  # fmt: skip
"""Encodings in which people have files, the most frequent first."""
NEAR = 0.6
"""The part of the best guess's weight from which another one is nearly as likely."""
DOUBLE = ("cp932", "gb18030", "cp949", "big5hkscs", "euc_jis_2004")
"""Encodings with two bytes a character. The detector tells them apart well, so their order in GUESSES is ignored."""
LAYOUT = frozenset(b"\t\n\r\f\b\x1b")


@dataclass(frozen=True)
class Encoding:
    """The codec of a file; if it is a guess, also those that are nearly as likely."""

    codec: str
    others: tuple[str, ...] = ()
    guessed: bool = False

    def encode(self, text: str) -> bytes:
        """Return text as bytes. Raises UnicodeError if the codec lacks a character, or others write other bytes."""
        written = text.encode(self.codec)
        for other in self.others:
            try:
                differs = text.encode(other) != written
            except UnicodeEncodeError:
                continue  # who wrote this text did not use it
            if differs:
                raise UnicodeError(f"it may be {self.codec} or {other}, which write this text differently")
        return written


def encoding_of(file: IO[bytes], most: int = MOST_BYTES) -> Encoding | None:
    """Return the encoding of a file, by up to `most` bytes; None if it is not text. It is left at its beginning."""
    file.seek(0)
    sample, telling = file.read(SAMPLE_BYTES), bytearray()
    decoder, is_utf8 = codecs.getincrementaldecoder("utf-8")(), True
    file.seek(0)
    for mark, codec in MARKS:
        if sample.startswith(mark):
            return Encoding(codec)
    if sample.startswith(PDF):
        return None
    if b"\0" in sample:
        return _without_mark(sample)
    for chunk, last in _chunks(file, most):
        try:
            decoder.decode(chunk, final=last)
        except UnicodeDecodeError:
            is_utf8 = False
        if len(telling) < TELLING_BYTES and not chunk.isascii():
            lines = chunk.splitlines(keepends=True)
            telling += b"".join(lines if len(chunk) < TELLING_BYTES else (each for each in lines if not each.isascii()))
    file.seek(0)
    if is_utf8:
        return Encoding("utf-8")
    if sum(byte < 32 and byte not in LAYOUT for byte in sample) > len(sample) / 50:
        return None
    return _guess(bytes(telling[: telling.rfind(b"\n", 0, TELLING_BYTES) + 1] or telling))


def _chunks(file: IO[bytes], most: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the file in chunks that end with a line where possible, and whether it is the end of the file."""
    rest = b""
    while most > 0 and (chunk := file.read(1 << 20)):
        most -= len(chunk)
        chunk = rest + chunk
        at = chunk.rfind(b"\n") + 1 or len(chunk)
        rest = chunk[at:]
        yield chunk[:at], False
    yield rest, most > 0


def _without_mark(sample: bytes) -> Encoding | None:
    """Return UTF-16 without a byte order mark; None for anything else with a NUL in it."""
    import chardet

    detected = chardet.detect(sample, include_encodings=WIDE)
    codec = str(detected["encoding"] or "").lower()
    if codec not in WIDE or not _decodes(sample[: len(sample) // 2 * 2], codec):
        return None
    text = sample[: len(sample) // 2 * 2].decode(codec)
    odd = sum(char < " " and char not in "\t\n\r\f" for char in text)
    return Encoding(codec) if odd * 50 <= len(text) else None


def _guess(telling: bytes) -> Encoding:
    """Return the most frequent of the encodings that fit best."""
    import chardet

    detected = chardet.detect_all(telling, ignore_threshold=True, include_encodings=GUESSES)
    names = [(codecs.lookup(each["encoding"]).name, each["confidence"]) for each in detected if each["encoding"]]
    order = {codecs.lookup(name).name: at for at, name in enumerate(GUESSES)}
    fitting = [(name, weight) for name, weight in names if _decodes(telling, name)]
    if not fitting:
        return Encoding("cp1252", guessed=True)
    best, text = fitting[0][1], telling.decode(fitting[0][0])
    near = [name for name, weight in fitting if weight >= NEAR * best or telling.decode(name) == text]
    sure = fitting[0][0] if fitting[0][0] in DOUBLE else ""
    near.sort(key=lambda name: (name != sure, order.get(name, len(order))))
    return Encoding(near[0], tuple(near[1:]), guessed=True)


def _decodes(sample: bytes, codec: str) -> bool:
    try:
        sample.decode(codec)
    except UnicodeDecodeError:
        return False
    return True
