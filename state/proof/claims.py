"""Cut a text into the claims that a judge takes one by one: sentences, rows of tables, blocks of code. Pure.

Where it is doubtful whether a sentence ends, no cut is made: nobody can prove half a date, and two sentences in one
claim can still be judged together.
"""

import json
import re
import unicodedata
from collections.abc import Collection, Iterator
from itertools import pairwise, zip_longest
from typing import Any

from donewhen.state.language.texts import known_language, primary_language, say
from donewhen.state.pattern import pattern
from donewhen.state.proof.output import ROOT, leaf_values

MOST_CLAIMS = 150
"""The most claims of one delivery; a longer text has several sentences per claim."""
SHORTEST = 12
"""In columns: a shorter sentence, such as “Done.”, forms one claim with the next one on its line."""
WRAPPED = 60
"""In columns: a line as long as this can go on in the next one."""
RULES = ("en", "de")
"""Languages whose rules apply too, because a model may not have named the text's language: the rules for English know
most abbreviations, and those for German know dates."""
ORDINAL_POINT = (
    "cs",
    "da",
    "de",
    "et",
    "fi",
    "fo",
    "hr",
    "hu",
    "is",
    "lv",
    "nb",
    "nn",
    "no",
    "pl",
    "sk",
    "sl",
    "sr",
    "tr",
)
"""Languages that write a point after an ordinal number (CLDR)."""
NEAR = 40
"""How many characters on each side of a cut are looked at."""
_QUOTED = pattern(r"(?:>\s?)+")
_HEADING = pattern(r"#{1,6}\s+")
_BULLET = pattern(r"(?:[-*+•·–]\s+|[・•·])(?=\S)")
_NUMBER = pattern(r"\(?\d{1,9}[.)]\s+(?=\S)")
_CELL_END = pattern(r"(?<!\\)\|")
_CLOSING = pattern(r"[*_~`)\]»”’\"']{1,9}(?=\s|$)")
_SHORT_WORD = pattern(r"(?:^|[\W\d_])[^\W\d_]{1,5}\.$")
_ORDINAL = pattern(r"(?:^|[^\w.,])\d{1,2}\.$")
_QUOTE_GOES_ON = pattern(r"[」』][\u3040-\u309f]")


def split_claims(text: str, output: Any = None, language: str = "", unsourced: Collection[str] = ()) -> list[str]:
    """Return what a text claims, in any script, in its order, and the values of the structured result.

    A row of a table is a claim under its header; a heading forms one claim with what follows it. Nothing that is said
    is left out. Values under the `unsourced` paths are marked.
    """
    mark = f" ({say(known_language(language), 'show', 'unsourced')})"
    claims = [] if _is_json(text, output) else list(_claims(text, primary_language(language)))
    values = ((path or ROOT, value) for path, _, value in leaf_values(output))
    claims += [f"{path} = {value}{mark if path in unsourced else ''}" for path, value in values]
    each = -(-len(claims) // MOST_CLAIMS)
    return claims if each <= 1 else [" ".join(claims[at : at + each]) for at in range(0, len(claims), each)]


def _is_json(text: str, output: Any) -> bool:
    """Return True if the text is the structured result itself, whose values are claims already."""
    try:
        return isinstance(output, dict | list) and bool(output == json.loads(text))
    except (ValueError, RecursionError):
        return False


def _claims(text: str, language: str) -> Iterator[str]:
    heading = ""
    for kind, piece in _pieces(text):
        if kind == "heading":
            heading = f"{heading} {piece}".strip()
            continue
        for claim in _sentences(piece, language) if kind == "line" else filter(_says_something, [piece]):
            yield f"{heading}: {claim}" if heading else claim
            heading = ""
    if _says_something(heading):
        yield heading


def _says_something(text: str) -> bool:
    return any(map(str.isalnum, text))


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the headings, lines, rows and blocks of code of a text, each with its kind and on one line."""
    lines = [_without(_QUOTED, line.strip()) for line in text.splitlines()]
    at = 0
    while at < len(lines):
        first = at
        if (at := _end_of_code(lines, at)) > first:
            yield "code", " ".join(lines[first:at]).strip("`~ ")
        elif (at := _end_of_table(lines, at)) > first:
            yield from (("row", row) for row in _rows(*map(_cells, [lines[first], *lines[first + 2 : at]])))
        elif heading := _HEADING.match(lines[at]):
            yield "heading", lines[at][heading.end() :].rstrip("#: ")
            at += 1
        else:
            lines[at] = _without(_BULLET, lines[at])
            at += 1
            while at < len(lines) and _columns(lines[at - 1]) >= WRAPPED and lines[at][:1].islower():
                at += 1
            yield "line", " ".join(lines[first:at])


def _without(mark: re.Pattern[str], line: str) -> str:
    return line[match.end() :] if (match := mark.match(line)) else line


def _end_of_code(lines: list[str], at: int) -> int:
    """Return the line after the block of code that begins in this line; the same line if none does."""
    mark = lines[at][:1]
    inside = lines[at].lstrip(mark)
    fence = mark * (len(lines[at]) - len(inside))
    if mark not in ("`", "~") or len(fence) < 3 or (mark == "`" and mark in inside):
        return at
    closing = (
        end + 1 for end in range(at + 1, len(lines)) if lines[end].startswith(fence) and not lines[end].strip(mark)
    )
    return next(closing, len(lines))


def _end_of_table(lines: list[str], at: int) -> int:
    """Return the line after the table that begins in this line; the same line if none does."""
    header, rule = lines[at], lines[at + 1] if at + 1 < len(lines) else ""
    ruled = "|" in header and set(rule) <= set("|:- \t") and all("-" in cell for cell in _cells(rule))
    if not ruled or len(_cells(header)) != len(_cells(rule)):
        return at
    return next((end for end in range(at + 2, len(lines)) if "|" not in lines[end]), len(lines))


def _cells(line: str) -> list[str]:
    inner = line.removeprefix("|")
    cells = [cell.replace("\\|", "|").strip() for cell in _CELL_END.split(inner)]
    return cells[:-1] if len(cells) > 1 and not cells[-1] else cells


def _rows(header: list[str], *rows: list[str]) -> Iterator[str]:
    """Yield each row with the names of its columns, after the names of columns in which no row has anything."""
    yield "; ".join(name for at, name in enumerate(header) if not any(row[at : at + 1] > [""] for row in rows))
    for row in rows:
        named = zip_longest((name.rstrip(": ") for name in header), row, fillvalue="")
        yield "; ".join(f"{name}: {cell}" if name else cell for name, cell in named if cell)


def _sentences(line: str, language: str) -> Iterator[str]:
    number = _NUMBER.match(line)
    start = number.end() if number else 0
    cuts = [start + cut for cut in _cuts(line[start:], language)]
    before = ""
    for first, last in pairwise([0, *cuts, len(line)]):
        before = f"{before} {line[first:last].strip()}".strip()
        if _columns(before) >= SHORTEST and _says_something(before):
            yield before
            before = ""
    if _says_something(before):
        yield before


def _cuts(line: str, language: str) -> list[int]:
    """Return where sentences end within a line: where all rules see an end, and nothing shows that one goes on."""
    ends = set.intersection(*(_ends(line, rules) for rules in {language or "en", *RULES}))
    cuts = []
    for end in sorted(ends):
        before, after = line[max(0, end - NEAR) : end], line[end : end + NEAR].lstrip()
        goes_on = (
            after[:1].islower()
            or (after[:1].isdigit() and _SHORT_WORD.search(before))
            or (language in ORDINAL_POINT and _ORDINAL.search(before))
            or _QUOTE_GOES_ON.match(before[-1:] + after)
        )
        if not goes_on:
            cuts.append(closing.end() if (closing := _CLOSING.match(line, end)) else end)
    return cuts


def _ends(line: str, language: str) -> set[int]:
    import sentencex  # type: ignore[import-untyped] # some milliseconds that only a delivery needs

    ends, at = set(), 0
    for sentence in sentencex.segment(language, line) if line else ():
        at += len(sentence)
        ends.add(at - len(sentence) + len(sentence.rstrip()))
    return ends


def _columns(text: str) -> int:
    """Return the width of a text: a Chinese or Japanese character counts as two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
