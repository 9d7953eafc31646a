"""Look up a quote in a text: by its words and numbers, in order and without a gap.

A text is read as tokens: words, single characters of scripts without spaces, numbers by their value, dates, times and
ids. Punctuation, markup and case are ignored. A text contains a quote if the quote's tokens occur in it one directly
after the other, so scattered words do not match, and a missing “not” or digit is noticed. Seconds are a separate token,
so a time can be quoted without them. `…`, a line break and `;` in a quote skip text, `|` cells of the same row. The
audit judges meaning, including a “not” before the quote. Scripts without spaces do not show where words end, so there a
quote of fewer than four characters matches only if no character of such a script is next to it.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from itertools import product
from typing import NamedTuple

from donewhen.state.pattern import pattern

_TYPOGRAPHY = str.maketrans("‘’‚‛“”„‟«»‐‑‒–—−⁄", '\'\'\'\'""""""------/')
_SPACES = pattern(r"\s+")
_SMALL = pattern(r"[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209c\u2150-\u215f\u2189\u2460-\u249b]")
_APART = {"<super>": "^", "<sub>": "_", "<fraction>": "_", "<circle>": " "}
"""Digits with another meaning: 10² is not 102, and 1½ is not 11/2."""
_ESCAPE = pattern(r"((?:\\u[0-9a-fA-F]{4})+)|\\([\"\\/])|\\[nrt]")
_ANSI = pattern(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_TAG = pattern(r"</?[a-zA-Z][^<>]*>")
_LINE_NUMBER = pattern(r"^[ \t]*\d+[ \t]*[\t:|→│][ \t]?", re.MULTILINE)
_NUMBERS_NOTHING = pattern(r"^\W*(?:\d{1,4}[-/.]\d{1,2}[-/.]\d|\d{1,2}:\d\d|\d{1,3}[.)] )")
"""A date, a time or the number of a list, at the beginning of a line."""
_BLOCKQUOTE = pattern(r"^[ \t]*(?:>[ \t]?)+(.*)", re.MULTILINE)
_GROUPING_SPACE = pattern(r"(?<=\d)(?<!\d{4})[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_SPACE_ENTITY = pattern(r"&(?:nbsp|thinsp|#160|#8201|#8239|#xa0|#x2009|#x202f);", re.IGNORECASE)
_SPACED = pattern(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?!\d)")
_LONG = pattern(r"(?<![\w.,])(?:[a-z]{2}\d\d|\+?\d+|\(\d+\))(?:[ ()/-]{1,3}\d+)+(?![\w.,]*\d)", re.IGNORECASE)
"""Phone numbers, IBANs, ISBNs: digit groups that form one number of at least nine digits."""
_LONG_DIGITS = range(9, 40)
_HASH = pattern(r"(?<!\w)[0-9a-f]{7,31}(?!\w)")
_OTHER_DIGIT = pattern(r"(?![0-9])\d")
_DATE_AND_TIME = pattern(r"(\d{4}-\d\d-\d\d)t(?=\d\d:)")
_UNSPACED = pattern(
    r"([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    r"\U00020000-\U0003ffff])"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese, and Korean with its endings: each character is a token."""
_TOKEN = pattern(
    r"""
      0?(?P<time>\d{1,2}:\d\d)(?::(?P<seconds>\d\d)(?:[.,](?P<fraction>\d+))?)?(?=z?(?![\w:]))
    | (?P<date>\d+(?:[-/]\d+)+(?!\w))
    | (?P<id>[^\W\d_]\w*(?:-\d\w*|(?<=\d)\.\d+)+)
    | (?:(?<![\w)])(?P<minus>-)[$€£¥]?)?(?P<number>(?:(?<!\w)\.)?\d+(?:[.,'](?!\d{4}-\d\d-\d\d(?!\d))\d+)*)
      (?P<power>e[+-]?\d+(?!\w)|\^\d+)?(?P<behind>-(?![\w-]|[$€£¥₹]\d))?(?=[^\W\d_]{0,3}(?!\w))
    | (?P<word>\w+(?:'\w+)*)
    | (?P<operator>(?<=[\w)\]][ ])(?:[+*/]|!=)(?=[ ][\w(\["]))
    | (?P<sign>[%‰°<>≤≥≠±×✓✔✗✘\u20a0-\u20cf$£¥¢\u2600-\u27bf\U0001f000-\U0001faff])
    """,
    re.VERBOSE,
)
_GROUPED = pattern(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:'\d{3})+(?:\.\d+)?|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?")
_GROUPED_BY_DOTS = pattern(r"\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}")
_DECIMAL_COMMA = pattern(r"\A\d+,\d+")
_ONE_GROUP = pattern(r"[1-9]\d{0,2}[.,]\d{3}")
"""Either thousands or three decimals."""
_MAY_GROUP = pattern(r"(?<![\d.,])[1-9]\d{0,2}[.,]\d{3}(?!\d)")
_LONG_DECIMALS = pattern(r"(?<!\d)\d+,\d{3,}")
_CENTS = pattern(r"[.,']\d{2,}\Z")
_POINT_SHOWN = pattern(r"(?<![\d.])\d+\.(?:\d{1,2}|\d{4,})(?!\d|\.\d)")
_COMMA_SHOWN = pattern(
    r"(?<![\w.,:\[{(-])(?:\d{1,3}(?:\.\d{3})+,\d+|(?:(?<=[^\n])|(?!\d+,\d+(?:[\r\n]|\Z)))\d+,\d\d?)(?![\d,\]})]|\.\d)"
)
"""Not in a list or row, and 12,5 not alone in its line, where it may be two cells."""
_OPERATION = pattern(r"[\w)\]] (?:[-+*/]|[!=]=) [\w(\[\"]")
OPERATORS = ("+", "*", "/", "!=")
_SKIP = pattern(r"[\[(]?(?:…|\.{3,})[\])]?|[;\n]")
_CELLS = pattern(r"[|\t]")
_LINK = pattern(r"!?\[([^\[\]\n]*)\]\([^()\s]*\)")
"""A Markdown link, which people quote by its visible text."""
_CURRENCIES = {"eur": "€", "usd": "$", "gbp": "£", "jpy": "¥", "cny": "¥", "inr": "₹", "krw": "₩", "rub": "₽",
               "uah": "₴", "ils": "₪", "try": "₺", "vnd": "₫"}  # fmt: skip
"""ISO 4217 codes of currencies that have a sign."""
_CURRENCY = pattern(rf"(?<![^\W\d_])(?:{'|'.join(_CURRENCIES)})(?![^\W\d_])", re.IGNORECASE)
_SIGN_FIRST = pattern(
    rf"(?<!\d)(?<!\d[ \u00a0])([{''.join(dict.fromkeys(_CURRENCIES.values()))}])[ \u00a0]?(\d[\d.,']*)"
)


class Marks(NamedTuple):
    """What one mark before exactly three digits means in a text: 1.234 and 1,234 may be thousands or decimals."""

    dots_group: bool = False
    commas_mark: bool = False


POINT, GROUPING, COMMA = Marks(), Marks(dots_group=True), Marks(dots_group=True, commas_mark=True)
PIECE = 32_768
"""The characters that one regular expression reads at a time."""
_CUT = pattern(r"[^\W\d][ \t,;]{1,9}(?=[^\W\d])")
_CUT_WITHIN = 2_000
"""The characters at the end of a piece in which a gap between two words is looked for."""
_SHORT = 4
"""Fewer characters of a script without spaces may be part of a longer word."""
_PART_OF_TOKEN = pattern(r"[\w.,:'/^+-]")
"""A character that may belong to the word or number beside it."""
PASSAGE_CHARS = 200
HASH_CHARS = 32
"""The least length of an abbreviated hash."""


def fold(text: str) -> str:
    """Return a text for comparison, regardless of Unicode form, case, white space and typographic quotes."""
    return _fold_piece(text).strip()


def _fold_piece(text: str) -> str:
    normal = unicodedata.normalize("NFKC", _SMALL.sub(_separate, text))
    return _SPACES.sub(" ", normal.translate(_TYPOGRAPHY).casefold())


def _separate(small: re.Match[str]) -> str:
    kind = unicodedata.decomposition(small[0]).partition(" ")[0]
    return _APART.get(kind, "") + unicodedata.normalize("NFKC", small[0])


def _read_escape(escape: re.Match[str]) -> str:
    if escape[1]:
        units = bytes.fromhex(escape[1].replace("\\u", ""))
        return units.decode("utf-16-be", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return escape[2] or " "


def tokens(
    text: str, signs: Collection[str] = (), marks: Marks = POINT, *, commas_part: bool = False, turned: bool = False
) -> list[str]:
    """Return the tokens of a text, in order. `signs` says which of `%`, `$`, `<`, emoji … are tokens too.

    A comma between digits belongs to the number if it groups or marks decimals, and separates in lists and rows;
    with `commas_part` it always separates. `turned` reads the less likely way what may be two numbers or one, and a
    minus behind a number that has no decimals.
    """
    plain = map(read_plainly, pieces_of(text))
    return [
        each for piece in plain for each in tokens_of_plain(piece, signs, marks, commas_part=commas_part, turned=turned)
    ]


def read_plainly(text: str) -> str:
    """Return a piece of a text as it is compared: without colours, entities, typography and case, in ASCII digits."""
    text = _GROUPING_SPACE.sub("", html.unescape(_ANSI.sub("", text)))
    text = unicodedata.normalize("NFKC", _SMALL.sub(_separate, text)).translate(_TYPOGRAPHY).casefold()
    if not text.isascii():
        text = _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), _UNSPACED.sub(r" \1 ", text))
    return _DATE_AND_TIME.sub(r"\1 ", text).replace(">=", "≥").replace("<=", "≤")


def tokens_of_plain(
    text: str, signs: Collection[str] = (), marks: Marks = POINT, *, commas_part: bool = False, turned: bool = False
) -> list[str]:
    """Return the tokens of a piece of text that `read_plainly` returned."""
    if turned:
        text = _SPACED.sub(_without_spaces, text)
    words: list[str] = []
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if match["time"]:
            exact = "" if match["seconds"] in (None, "00") and not match["fraction"] else f":{match['seconds']}"
            words += [
                match["time"],
                *([exact] if exact else []),
                *([f".{part}"] if (part := match["fraction"]) else []),
            ]
        elif match["number"]:
            values = _values(match["number"], text, match, marks, commas_part, turned)
            values[0] = (match["minus"] or "") + values[0]
            if match["behind"] and not match["minus"] and values[-1] != "0" and (turned or _is_negative(match, text)):
                values[-1] = f"-{values[-1]}"
            values[-1] += match["power"] or ""
            words += values
        elif kind in ("sign", "operator"):
            words += [token] if token in signs else []
        elif word := token.replace("'", "").strip("_"):
            words.append(word)
    return words


def regroup_digits(text: str) -> str:
    """Return the text with digits grouped by spaces as one number: `1 299`, a phone number."""
    return _change(text, lambda piece: _LONG.sub(_join_groups, _SPACED.sub(_without_spaces, piece)))


def shown_marks(plain: Collection[str]) -> Marks | None:
    """Return what marks mean in a text if its other numbers show it for certain: 12,5 does, unless 0.5 is there too."""
    comma = any(map(_COMMA_SHOWN.search, plain))
    return None if comma == any(map(_POINT_SHOWN.search, plain)) else COMMA if comma else POINT


def marks_of_quote(marks: Marks) -> tuple[Marks, ...]:
    """Return how a quote is read if its text has these marks; 2,500 may have been 2.500 there."""
    return (COMMA, GROUPING) if marks == COMMA else (marks,)


def _without_spaces(number: re.Match[str]) -> str:
    return number[0].replace(" ", "")


def _join_by_sign(text: str) -> str:
    """Return the text with `'` for the space within a number that is written as one: such a space parts no words."""
    return _GROUPING_SPACE.sub("'", _SPACE_ENTITY.sub("\u00a0", text))


def _change(text: str, change: Callable[[str], str]) -> str:
    return "".join(map(change, pieces_of(text)))


def pieces_of(text: str) -> Iterator[str]:
    """Yield a text in pieces of some ten milliseconds of work: of whole lines, else between two words.

    A regular expression holds the lock of the interpreter until it has read the whole text.
    """
    at = 0
    while len(text) - at > PIECE:
        end = text.rfind("\n", at, at + PIECE) + 1
        if end <= at:
            gaps = list(_CUT.finditer(text, at + PIECE - _CUT_WITHIN, at + PIECE))
            end = gaps[-1].end() if gaps else at + PIECE
        yield text[at:end]
        at = end
    yield text[at:]


def _join_groups(groups: re.Match[str]) -> str:
    whole = re.sub(r"\(0\)|\W", "", groups[0])
    return whole if sum(map(str.isdigit, whole)) in _LONG_DIGITS else groups[0]


def _is_negative(match: re.Match[str], text: str) -> bool:
    """Return whether a minus behind a number is its sign, as in `30,00- EUR`; not in `30- to 60-day`, `1.50- 2.50`."""
    follows = text[match.end("behind") : match.end("behind") + 2]
    return bool(_CENTS.search(match["number"])) and not (follows[:1] == " " and follows[1:].isdigit())


def _values(number: str, text: str, match: re.Match[str], marks: Marks, commas_part: bool, turned: bool) -> list[str]:
    """Return the number or numbers that digits with dots and commas stand for."""
    start, end = match.start("number"), match.end("number")
    before, after = text[start - 1 : start], text[end : end + 1]
    if "," in number and (
        commas_part
        or before in (",", "[", "{")
        or after in ("]", "}")
        or (after == "," and text[end + 1 : end + 2].strip())
    ):
        return [_value(part) for part in number.split(",")]
    alone = (before in ("", "\n") and after in ("", "\n", "\r")) or (before, after) == ("(", ")")
    is_decimal = bool(_DECIMAL_COMMA.fullmatch(number)) and not _GROUPED.fullmatch(number)
    may_part = alone or (is_decimal and _LONG_DECIMALS.fullmatch(number))
    is_likely = alone and is_decimal
    if "," in number and may_part and not marks.commas_mark and is_likely != turned:
        return [_value(part) for part in number.split(",")]
    if _ONE_GROUP.fullmatch(number):
        groups = marks.dots_group if "." in number else not marks.commas_mark
        return [re.sub("[.,]", "", number) if groups else _value(number.replace(",", "."))]
    if _GROUPED.fullmatch(number):
        return [_value(number.replace(",", "").replace("'", ""))]
    if _GROUPED_BY_DOTS.fullmatch(number):
        return [_value(number.replace(".", "").replace(",", "."))]
    if is_decimal:
        return [_value(number.replace(",", "."))]
    return [_value(part) for part in re.split("[,']", number)]


def _value(number: str) -> str:
    if number.count(".") != 1:
        return number
    whole, _, part = number.partition(".")
    return f"{whole or 0}.{part}".rstrip("0").rstrip(".")


class SearchedText:
    """A text in which quotes are searched. Each form of it is computed once, in linear time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._read: dict[tuple[int, Collection[str], Marks], str] = {}

    @cached_property
    def _forms(self) -> list[str]:
        """The text as it is and with JSON's escapes decoded; each without tags and line numbers, and regrouped."""
        forms = [self.text]
        if "\\" in self.text:
            forms.append(_change(self.text, lambda piece: _ESCAPE.sub(_read_escape, piece)))
        for change in (
            lambda piece: _LINK.sub(r"\1", piece) if "](" in piece else piece,
            lambda piece: _TAG.sub(" ", piece) if "<" in piece else piece,
        ):
            forms += [changed for form in forms if (changed := _change(form, change)) != form]
        for form in [*forms]:
            plain = [_LINE_NUMBER.subn("", piece) for piece in pieces_of(form)]
            if sum(count for _, count in plain) > 1:
                forms.append("".join(piece for piece, _ in plain))
        return forms + [joined for form in forms if (joined := regroup_digits(form)) != form]

    @cached_property
    def _marks(self) -> tuple[Marks, ...]:
        """What a dot or comma before three digits may mean in the text."""
        if not any(map(_MAY_GROUP.search, pieces_of(self.text))):
            return (POINT,)
        shown = shown_marks([read_plainly(piece) for piece in pieces_of(self.text)])
        return (POINT, GROUPING) if shown is None else (shown,)

    def _readings(self, signs: Collection[str]) -> Iterator[tuple[str, Marks]]:
        for marks in self._marks:
            for number, form in enumerate(self._forms):
                key = number, signs, marks
                if key not in self._read:
                    self._read[key] = token_line(tokens(form, signs, marks))
                yield self._read[key], marks

    def says(self, quote: str) -> bool:
        """Return whether the text contains the quote; a quote without words and numbers, as `[]`, by its characters."""
        raw, quote = quote, _HASH.sub(self._whole_hash, _without_line_marks(html.unescape(quote)))
        forms = [quote, *([_ESCAPE.sub(_read_escape, quote)] if "\\" in quote else [])]
        forms += [_LINK.sub(r"\1", form) for form in forms if "](" in form]
        forms += [joined for form in forms if (joined := regroup_digits(form)) != form]
        signs = _signs("\n".join(forms))
        if not tokens(quote, signs):
            marks = {"".join(each.split()) for each in (raw, quote)} - {""}
            return any(each in "".join(self.text.split()) for each in marks)
        if len(short := tokens(quote)) < _SHORT and all(map(_UNSPACED.fullmatch, short)):
            return any(self._stands_alone(fold(form)) for form in forms)
        if any(_is_token_run(form, signs, *reading) for reading in self._readings(signs) for form in forms):
            return True
        if self._stands(raw):
            return True
        if (signed := _with_currency_signs(quote)) != quote:
            return self.says(signed)
        if self._with_signs is not None and self._with_signs.says(quote):
            return True
        return len(cells := _CELLS.split(quote.strip("| "))) > 1 and self._has_row(cells, signs)

    def _has_row(self, cells: list[str], signs: Collection[str]) -> bool:
        """Return whether a line of the text has these cells of a table in order, whatever else is in it."""
        rows = [line for line in self.text.splitlines() if len(line) <= PIECE]
        for marks in self._marks:
            wanted = [cell_tokens for cell in cells if (cell_tokens := tokens(f" {cell} ", signs, marks))]
            if any(_in_order(wanted, token_line(tokens(line, signs, marks))) for line in rows):
                return True
        return False

    @cached_property
    def _with_signs(self) -> "SearchedText | None":
        """The text with signs of currencies behind their amounts; None if it is the same."""
        signed = _with_currency_signs(self.text)
        return SearchedText(signed) if signed != self.text else None

    def _stands_alone(self, short: str) -> bool:
        """Return whether so few characters of a script without spaces stand between characters of another kind."""
        return _find_end(short, self._folded_forms[0], _UNSPACED) >= 0

    def _stands(self, quote: str) -> bool:
        """Return whether the parts of the quote stand in the text as they are, in order, and cut no word or number.

        What a sign at the edge of a quote means may depend on the text beside it: `850,00- 1.204,33`.
        """
        grouped = _SPACED.sub(lambda number: number[0].replace(" ", "'"), quote)
        for form, said in product(self._folded_forms, dict.fromkeys([quote, grouped])):
            parts, end = list(filter(None, map(fold, _SKIP.split(_join_by_sign(said))))), 0
            for part in parts:
                if (end := _find_end(part, form, _PART_OF_TOKEN, end)) < 0:
                    break
            if parts and end >= 0:
                return True
        return False

    @cached_property
    def _folded_forms(self) -> list[str]:
        return ["".join(_fold_piece(_join_by_sign(piece)) for piece in pieces_of(form)) for form in self._forms]

    def _whole_hash(self, short: re.Match[str]) -> str:
        """Return the first hash in the text with this beginning, as git and others abbreviate them; else the input."""
        match = re.search(rf"(?<!\w){short[0]}[0-9a-f]+(?!\w)", self.text)
        return match[0] if match and len(match[0]) >= HASH_CHARS else short[0]

    def nearest(self, quote: str) -> str:
        """Return the passage of the text that has most in common with the quote, at most 200 characters; else ""."""
        wanted = set(tokens(quote))
        best, most = "", 0.0
        for passage, words in self._passages:
            common = len(wanted & words) - len(words) / 10_000
            if common > most:
                best, most = passage, common
        return " ".join(best.split())

    @cached_property
    def _passages(self) -> list[tuple[str, frozenset[str]]]:
        passages: list[str] = []
        for line in filter(str.strip, self.text.splitlines()):
            places = range(0, max(len(line) - PASSAGE_CHARS // 2, 1), PASSAGE_CHARS // 2)
            passages += [line[at : at + PASSAGE_CHARS] for at in places]
        return [(passage, frozenset(tokens(passage))) for passage in passages]


def _find_end(part: str, text: str, beside: re.Pattern[str], start: int = 0) -> int:
    """Return the place behind the next such part of a text with no character of a kind beside it; -1 without one."""
    at = text.find(part, start)
    while at >= 0:
        end = at + len(part)
        if not (beside.fullmatch(text[at - 1 : at]) or beside.fullmatch(text[end : end + 1])):
            return end
        at = text.find(part, at + 1)
    return -1


def _with_currency_signs(text: str) -> str:
    """Return the text with signs for currency codes, behind their amounts: `EUR 5` and `€5` are `5 €`."""

    def change(piece: str) -> str:
        signed = _CURRENCY.sub(lambda code: _CURRENCIES[code[0].casefold()], piece)
        return _SIGN_FIRST.sub(r"\2 \1", signed)

    return _change(text, change)


def _without_line_marks(quote: str) -> str:
    """Return the quote without Markdown's `>` before its lines.

    If only numbers follow the marks, they stay and must stand in the text too: nothing shows whether `> 100 requests`
    quotes a line or compares. Dates, times and the numbers of a list compare nothing.
    """
    lines = [_CURRENCY.sub("", _NUMBERS_NOTHING.sub("a", line[1])) for line in _BLOCKQUOTE.finditer(quote)]
    firsts = [next(filter(str.isalnum, line), "") for line in lines]
    may_compare = any(firsts) and not any(map(str.isalpha, firsts))
    return quote if may_compare else _BLOCKQUOTE.sub(r"\1", quote)


def _signs(quote: str) -> tuple[str, ...]:
    """Return the signs of a quote; with an operator between operands all operators, so that none matches another."""
    plain = read_plainly(quote)
    signs = {match[0] for match in _TOKEN.finditer(plain) if match.lastgroup == "sign"}
    return (*sorted(signs), *(OPERATORS if _OPERATION.search(plain) else ()))


def token_line(words: list[str]) -> str:
    """Return the tokens with spaces around each, so that only whole ones match."""
    return f" {' '.join(words)} " if words else ""


def _is_token_run(quote: str, signs: Collection[str], reading: str, marks: Marks) -> bool:
    for read_as, commas_part in product(marks_of_quote(marks), (False, True) if "," in quote else (False,)):
        wanted = token_line(tokens(f" {quote} ", signs, read_as, commas_part=commas_part))
        if wanted and wanted in reading:
            return True
        parts = [tokens(f" {part} ", signs, read_as, commas_part=commas_part) for part in _SKIP.split(quote)]
        if _in_order([part for part in parts if part], reading):
            return True
    return False


def _in_order(parts: list[list[str]], reading: str) -> bool:
    """Return whether the parts between skips follow each other in the text."""
    end = 0
    for part in parts:
        if (at := reading.find(token_line(part), max(end - 1, 0))) < 0:
            return False
        end = at + len(token_line(part))
    return bool(parts)
