"""Read bytes as text: by byte order mark, as UTF-8, or by the two fallbacks that old office files need."""

import codecs

SAMPLE_BYTES = 256_000
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LAYOUT = frozenset(b"\t\n\r\f\b\x1b")


def encoding_of(sample: bytes) -> str | None:
    """Return the codec of a file that begins with `sample` (at most SAMPLE_BYTES); None if it is not text."""
    for mark, encoding in MARKS:
        if sample.startswith(mark):
            return encoding
    if b"\0" in sample:
        return None
    if _decodes(sample, "utf-8"):
        return "utf-8"
    control = sum(byte < 32 and byte not in LAYOUT for byte in sample)
    if control > len(sample) / 50:
        return None
    return "gb18030" if _looks_chinese(sample) else "cp1252"


def _decodes(sample: bytes, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        decoder.decode(sample, final=len(sample) < SAMPLE_BYTES)
    except UnicodeDecodeError:
        return False
    return True


def _looks_chinese(sample: bytes) -> bool:
    """Return whether high bytes come in pairs, as in GB text; in Western text they stand alone among letters."""
    if not _decodes(sample, "gb18030"):
        return False
    high = bytes(byte >= 0x80 for byte in sample)
    alone = sum(len(run) == 1 for run in high.split(b"\0"))
    return alone <= 0.1 * sum(high)


def is_utf8(path: str) -> bool:
    """Return whether all of the file is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open(path, "rb") as file:
        try:
            while chunk := file.read(1 << 20):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True
