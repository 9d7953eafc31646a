"""Find known secrets in a text, in every spelling that a program makes of them.

These are JSON (also ASCII, and JSON in JSON), Python's `repr` of texts and bytes, URLs (each variant, also encoded
twice), HTML and XML, quotes of shells, CSV, SQL and YAML, other line ends, indentation and white space, and base64, as
in a header of basic authentication. A text may mix them. All but base64 leave letters and digits as they are. So the
longest run of these is looked for first, and a text without it is not searched any further.
"""

import base64
import html.entities
import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import escape
from urllib.parse import quote

PART_CHARS = 2_000
"""A longer secret, such as a file of keys, is looked for in parts."""
LONGEST_CHAR = 100
"""The most characters in a spelling of one character."""
PIECE = 32_768
"""The characters of a text that are searched at once: some ten milliseconds of work."""
SHORTEST_RUN = 3
"""A shorter run of letters and digits stands in most texts."""
_RUN = re.compile(r"[A-Za-z0-9]+")
_TOKEN = re.compile(r"(\\*)(\s+|[^\\])|(\\+)", re.DOTALL)
_BACKSLASH = r"(?:\\|%(?:25)*5[Cc]|&#92;)"
_CONTROL = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_QUOTES = {"'": r"""'(?:"'"'|\\''|')?""", '"': '""?'}
"""A quote, also as shells, SQL, YAML and CSV write it inside of quotes."""
_NAMES = {**html.entities.codepoint2name, ord("'"): "apos"}
Span = tuple[int, int]


def find_known(text: str, secrets: Sequence[str]) -> list[Span]:
    """Return where the secrets stand in a text, in order of the secrets."""
    spans: list[Span] = []
    for run, spelled, longest, encoded in (form for secret in secrets for form in _spellings(secret)):
        if not run or run in text:
            spans += [match.span() for match in scan(spelled, text, longest)]
        for each in encoded:
            spans += places(text, each)
    return spans


def scan(pattern: re.Pattern[str], text: str, longest: int) -> Iterator[re.Match[str]]:
    """Yield what `finditer` yields, as long as no match with its look-ahead has more than `longest` characters.

    The text is searched piece by piece, because a search holds the lock of the interpreter to its end.
    """
    at = 0
    while at < len(text):
        end = at + PIECE
        for match in pattern.finditer(text, at, end + longest):
            if match.start() >= end:
                break
            yield match
            at = match.end()
        at = max(at, end)


@lru_cache(maxsize=512)
def beginnings(secrets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the usual spellings of the secrets, one of which may have begun at the end of a text."""
    forms: dict[str, None] = {}
    for secret in secrets:
        in_json = (json.dumps(secret, ensure_ascii=ascii)[1:-1] for ascii in (False, True))
        forms |= dict.fromkeys((secret, *in_json, quote(secret, safe=""), escape(secret)))
    return tuple(forms)


def places(text: str, word: str) -> Iterator[Span]:
    """Yield where a word stands in a text."""
    at = text.find(word)
    while at >= 0:
        yield at, at + len(word)
        at = text.find(word, at + len(word))


@lru_cache(maxsize=512)
def _spellings(secret: str) -> tuple[tuple[str, re.Pattern[str], int, tuple[str, ...]], ...]:
    """Return for each part of a secret: the run of letters and digits to look for first ("" if none is rare), a pattern
    of its spellings, the most characters of these, and its forms in base64.
    """
    raw, secret, parts = secret, secret.replace("\r\n", "\n"), []
    for start in range(0, max(1, len(secret) - PART_CHARS // 2), PART_CHARS):
        last = start + PART_CHARS + PART_CHARS // 2 >= len(secret)
        part = secret[start:] if last else secret[start : start + PART_CHARS]
        run = max(_RUN.findall(part), key=len, default="")
        spelled = re.compile("".join(_spell(*groups) for groups in _TOKEN.findall(part)))
        encoded = tuple({*_encode(part), *_encode(raw if last and not start else part)})
        parts.append((run if len(run) >= SHORTEST_RUN else "", spelled, LONGEST_CHAR * len(part), encoded))
    return tuple(parts)


def _spell(slashes: str, char: str, last: str) -> str:
    """Return a pattern for a character after some backslashes, or for the last backslashes."""
    if last:
        return rf"{_BACKSLASH}{{{len(last)},{8 * len(last) + 7}}}+"
    count = len(slashes)
    lead, escaped_lead = (rf"{_BACKSLASH}{{{least},{8 * least + 7}}}+" for least in (count, count + 1))
    if char.isascii() and char.isalnum():
        return (lead if count else "") + char
    if char.isspace():
        either = "|".join((r"\s", r"\+", *map(_as_url, " \n\r\t"), *map(_as_html, " \n\r\t\xa0")))
        return rf"(?:{either}|{_BACKSLASH}{{1,15}}+[nrt ])(?:{either}|{_BACKSLASH}{{1,15}}+[nrt ]){{0,80}}+"
    plain = (_as_html(char), _as_url(char), _QUOTES.get(char, re.escape(char)))
    return rf"(?:{lead}(?:{'|'.join(plain)})|{escaped_lead}(?:{'|'.join(_as_escapes(char))}))"


def _as_url(char: str) -> str:
    return "".join(rf"%(?:25)*(?i:{byte:02x})" for byte in char.encode("utf-8", "surrogatepass"))


def _as_html(char: str) -> str:
    code = ord(char)
    name = f"|{_NAMES[code]}" if code in _NAMES else ""
    return rf"&(?:amp;)*(?i:#0*{code}|#x0*{code:x}{name});"


def _as_escapes(char: str) -> Iterator[str]:
    """Yield the character after a backslash in JSON, and in the `repr` of texts and bytes."""
    code, again = ord(char), rf"{_BACKSLASH}{{1,15}}+"
    if char in _CONTROL:
        yield _CONTROL[char]
    units = char.encode("utf-16-be", "surrogatepass")
    yield again.join(f"u(?i:{units[at : at + 2].hex()})" for at in range(0, len(units), 2))
    yield f"U(?i:{code:08x})"
    if code < 256:
        yield f"x(?i:{code:02x})"
    if code > 127:
        yield again.join(f"x(?i:{byte:02x})" for byte in char.encode("utf-8", "surrogatepass"))


def _encode(secret: str) -> Iterator[str]:
    """Yield what base64 makes of a secret at each of three offsets, without the characters that neighbours change."""
    plain = secret.encode("utf-8", "surrogatepass")
    for before in range(3):
        whole = base64.b64encode(bytes(before) + plain).decode().rstrip("=")
        first, last = -(-before * 4 // 3), len(whole) - (1 if (before + len(plain)) % 3 else 0)
        for form in {whole[first:last], whole[first:last].translate(str.maketrans("+/", "-_"))}:
            if len(form) >= 8:
                yield form
