"""A goal read whole: the intents in it, in order, and the pieces that were not understood."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from donewhen.agent.offline.clauses import Clause, clauses
from donewhen.agent.offline.document_words import read_document, read_mention, read_sum, read_writing
from donewhen.agent.offline.finding_words import read_files, read_lines, read_text
from donewhen.agent.offline.intents import Column, Describe, Intent, LookUp, Mention, Read, Write
from donewhen.agent.offline.literals import LINK, PATH, QUOTE, Sentence, protect
from donewhen.agent.offline.table_words import is_table, read_columns, read_table
from donewhen.agent.offline.vocabulary import either, words

MOST_CLAUSES, MOST_CHARS = 60, 4000
"""What is longer is no sentence for rules; it is not read at all."""
_NOISE = words(
    """
        please thanks thank_you now ok okay hi hello hey also first i want need you to can could would will
        like with this that for me it do the then and
    """,
    "请 谢谢 你好 您好 麻烦 帮我 我想 我要 一下 然后 再 先 吧 吗 呢 啊",
)
_RECURRING = either(
    r"\bevery\s+(?:\d+\s+)?(?:(?:mon|tues|wednes|thurs|fri|satur|sun)?day|hour|minute|week|month|morning|evening|night)s?\b",
    r"\b(?:daily|hourly|weekly|monthly)\b|每(?:天|日|小时|分钟|周|星期|个?月|隔)",
)
_WITHOUT = re.compile(rf"[,，]?\s*(?:\bwithout|不含)\s*((?:[{QUOTE}{PATH}]\s*[,，、]?\s*)+)", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """What a goal was read as."""

    intents: tuple[Intent, ...]
    mentions: tuple[str, ...] = ()
    """Files named with nothing to do, where no intent took them up."""
    unread: tuple[str, ...] = ()
    """Pieces of the goal that no rule understood, as written."""


def read_goal(text: str) -> Reading:
    """Read a goal. Pure: the same text gives the same reading."""
    if len(text) > MOST_CHARS:
        return Reading((), unread=(text,))
    sentence = protect(text)
    missing: tuple[str, ...] = ()
    if lacking := _WITHOUT.search(sentence.text):
        missing = tuple(sentence.values[mark] for mark in re.findall(f"[{QUOTE}{PATH}]", lacking[1]))
        sentence = Sentence(_WITHOUT.sub(" ", sentence.text), sentence.values)
    csv_known = any(is_table(value) for value in sentence.values.values()) or bool(
        re.search(r"\bcsv\b", text, re.IGNORECASE)
    )
    found: list[Intent | Mention] = []
    unread: list[str] = []
    parts = clauses(sentence.text)
    for part in parts[:MOST_CLAUSES]:
        made, left = _read_clause(Clause(sentence, part), csv_known)
        found += made
        unread += [left] if left else []
    unread += [sentence.spell(part).strip() for part in parts[MOST_CLAUSES:]]
    intents = [replace(i, missing=missing) if isinstance(i, Write) else i for i in _tidied(_inherited(found))]
    mentions = [item.path for item in found if isinstance(item, Mention)]
    return Reading(tuple(intents), () if intents else tuple(mentions), tuple(unread))


def _read_clause(clause: Clause, csv_known: bool) -> tuple[list[Intent | Mention], str]:
    """The intents of one clause, and what of it was not understood."""
    whole = clause.sentence.spell(clause.text).strip(" ,，、:：")
    if re.search(f"[{LINK}]", clause.text) or _RECURRING.search(clause.text):
        return [], whole
    if not Clause(clause.sentence, clause.text).left(_NOISE):
        return [], ""
    writing = read_writing(clause.copy())
    if writing:
        write, rest, left = writing
        if rest is None:
            return [write], ""
        made, left = _read_lookup(rest, csv_known)
        return ([*map(_looked_into, made), write], "") if made and not left else ([], whole)
    made, left = _read_lookup(clause, csv_known)
    return ([*made], "") if made and not left else ([], whole)


def _read_lookup(clause: Clause, csv_known: bool) -> tuple[Sequence[Intent | Mention], str]:
    """The reading that understands most of the clause; the first rule wins a draw."""
    tries: list[tuple[Sequence[Intent | Mention], str] | None] = [
        read_sum(clause.copy()),
        read_table(clause.copy(), csv_known),
        read_columns(clause.copy()),
        read_lines(clause.copy()),
        read_document(clause.copy()),
        read_text(clause.copy()),
        read_files(clause.copy()),
        read_mention(clause.copy()),
    ]
    good = [(made, left) for made, left in filter(None, tries) if made]
    if not good:
        return [], ""
    return min(good, key=lambda reading: len(reading[1].split()) if reading[1].isascii() else len(reading[1]))


def _looked_into(item: Intent | Mention) -> Intent:
    """A report on a file that is only named describes it."""
    if isinstance(item, Mention):
        return Describe(item.path) if is_table(item.path) else Read(item.path, summarise=True)
    return item


def _inherited(found: Sequence[Intent | Mention]) -> list[Intent]:
    """CSV look-ups without a file take the nearest one named, before them rather than after; columns likewise."""
    intents: list[Intent] = []
    for position, item in enumerate(found):
        if isinstance(item, Column):
            around = [*reversed(found[:position]), *found[position + 1 :]]
            path = item.path or next((p for other in around if (p := _table_of(other))), None)
            column = item.column
            if column is None and item.operation != "count":
                column = next(
                    (o.column for o in around if isinstance(o, Column) and o.column and o.path == item.path), None
                )
            intents.append(replace(item, path=path, column=column))
        elif not isinstance(item, Mention):
            intents.append(item)
    return intents


def _table_of(item: Intent | Mention) -> str | None:
    path = item.path if isinstance(item, Column | Describe | Mention) else None
    return path if path and is_table(path) else None


def _tidied(intents: Sequence[Intent]) -> list[Intent]:
    """Doubles dropped; `read sales.csv` before a look-up in it is only context; a summary summarises what was read."""
    used = {item.path for item in intents if isinstance(item, Column)}
    summary = any(isinstance(item, Write) and item.what == "summary" for item in intents)
    extracts = all(isinstance(item, Read) and item.summarise for item in lookups(intents))
    tidy: list[Intent] = []
    for item in intents:
        if isinstance(item, Describe) and item.path in used:
            continue
        changed: Intent = replace(item, summarise=True) if isinstance(item, Read) and summary else item
        if isinstance(item, Write) and item.what == "report" and extracts and lookups(intents):
            changed = replace(item, what="summary")
        if changed not in tidy:
            tidy.append(changed)
    return tidy


def lookups(intents: Sequence[Intent]) -> list[LookUp]:
    """All that looks something up, without the writing."""
    return [item for item in intents if not isinstance(item, Write)]
