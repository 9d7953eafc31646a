"""A refused plan and what the user said of it: things added, left out, or used instead."""

import re
from collections.abc import Sequence
from dataclasses import replace

from donewhen.agent.offline.goals import read_goal
from donewhen.agent.offline.intents import Column, Describe, Intent, Lines, Read, Write
from donewhen.agent.offline.literals import PATH, protect
from donewhen.agent.offline.table_words import is_table
from donewhen.agent.offline.vocabulary import either, words

_LEAVE_OUT = words(
    "without leave_out skip drop omit remove no_need_(?:to|for) don't do_not not_needed no",
    "不要 不用 不需要 去掉 删掉 删除 去除 别 跳过 省略",
)
_INSTEAD = words("instead rather change replace use should_be", "改成 改为 改用 换成 换为 应该是 而不是 不是")
_INSTEAD_OF = words("instead rather", "改成 改为 改用 换成")
_REPORT = words("reports? summary writ(?:e|ing) file", "报告 摘要 写")
_FIGURES = words("totals? sums? averages? csv", "总和 合计 平均")
_BY = either(r"\b(?:by|per)\s+(\w+)", r"按\s*(\w+?)(?:分组|$)")


def revised(before: Sequence[Intent], feedback: str) -> list[Intent] | None:
    """The intents changed as the feedback says; None if no rule reads it; [] if nothing is left."""
    if _LEAVE_OUT.search(feedback) and not _INSTEAD.search(feedback):
        return _without(before, _LEAVE_OUT.sub(" ", feedback))
    reading = read_goal(_INSTEAD_OF.sub(" ", feedback))
    if _INSTEAD.search(feedback):
        return _instead(before, list(reading.intents), feedback)
    if reading.unread or not reading.intents:
        return _instead(before, [], feedback) if reading.mentions else None
    return _with(before, reading.intents)


def _with(before: Sequence[Intent], more: Sequence[Intent]) -> list[Intent]:
    """New look-ups go before what is written; a report replaces another only where it names the same file."""
    added = [intent for intent in more if intent not in before]
    looks = [intent for intent in (*before, *added) if not isinstance(intent, Write)]
    writes = {(i.path, i.what == "text", i.text): i for i in (*before, *added) if isinstance(i, Write)}
    return [*looks, *writes.values()]


def _without(before: Sequence[Intent], feedback: str) -> list[Intent] | None:
    """Without what the feedback names: by what it reads as, by a file it names, or by kind."""
    reading = read_goal(feedback)
    named = list(protect(feedback).values.values())
    kept: list[Intent] = [
        i for i in before if i not in reading.intents and getattr(i, "path", None) not in [*named, *reading.mentions]
    ]
    if len(kept) == len(before) and _REPORT.search(feedback):
        kept = [*(i for i in before if not isinstance(i, Write))]
    if len(kept) == len(before) and _FIGURES.search(feedback):
        kept = [*(i for i in before if not isinstance(i, Column))]
    if len(kept) == len(before) and reading.intents:
        kinds = {type(intent) for intent in reading.intents}
        kept = [i for i in before if type(i) not in kinds]
    return kept if len(kept) < len(before) else None


def _instead(before: Sequence[Intent], other: Sequence[Intent], feedback: str) -> list[Intent] | None:
    """Something else in the place of what is of its kind: another look-up, another file, another grouping."""
    if other:
        kinds = {type(intent) for intent in other}
        first = next((n for n, intent in enumerate(before) if type(intent) in kinds), len(before))
        kept = [i for i in before if type(i) not in kinds]
        filled = [_completed(intent, before) for intent in other]
        return [*kept[:first], *filled, *kept[first:]]
    sentence = protect(feedback)
    paths = [sentence.values[mark] for mark in re.findall(f"[{PATH}]", sentence.text)]
    changed = [_at(intent, paths[-1]) for intent in before] if paths else list(before)
    if by := _BY.search(feedback):
        changed = [replace(i, group_by=by[1] or by[2]) if isinstance(i, Column) else i for i in changed]
    return changed if changed != list(before) else None


def _completed(intent: Intent, before: Sequence[Intent]) -> Intent:
    """A look-up that leaves out its file or column takes them from the one it replaces."""
    old = next((i for i in before if isinstance(i, Column)), None)
    if isinstance(intent, Column) and old:
        return replace(intent, path=intent.path or old.path, column=intent.column or old.column)
    return intent


def _at(intent: Intent, path: str) -> Intent:
    """The intent at another file, where it works on a file of that kind."""
    if isinstance(intent, Column | Describe) and is_table(path):
        return replace(intent, path=path)
    if isinstance(intent, Read | Lines | Write) and not is_table(path):
        same = intent.path.rpartition(".")[2] == path.rpartition(".")[2]
        return replace(intent, path=path) if isinstance(intent, Write) or same else intent
    return intent
