"""Working out numbers of CSV files with aggregate_csv and describe_csv, and finding out which column is meant."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from donewhen.agent.offline.desk import Desk, Stuck
from donewhen.agent.offline.findings import Finding, figure, listing, objects, pair, proofs, sentence, value
from donewhen.agent.offline.intents import Column, Describe
from donewhen.agent.offline.locating import meant, open_file, some_table
from donewhen.agent.offline.reading import Reply
from donewhen.agent.offline.words import measure, name, pick, quoted, ranked

NUMBERS = ("integer", "number")
MOST_GROUPS, MOST_SKIPPED, MOST_OPTIONS = 40, 3, 12


def describe(desk: Desk, intent: Describe) -> Finding:
    """Which columns a CSV has, and how many rows."""
    path, reply = open_file(desk, intent.path, lambda path: desk.call("describe_csv", path=path))
    text, _ = desk.whole(reply)
    columns = list(objects(text, "name"))
    rows = value(text.rpartition("]")[2], "rows") or value(text, "rows")
    items = [_column_line(column, desk.chinese) for column, _ in columns]
    one = pick(desk.chinese, "row" if rows == "1" else "rows", "行")
    head = sentence(
        desk.chinese,
        f"{path} has {rows} {one} and {len(columns)} columns:",
        f"{path} 有 {rows} 行、{len(columns)} 列：",
    )
    cited = [pair(text.rpartition("]")[2], "rows"), *(raw for _, raw in columns)]
    return Finding(f"{head}\n{listing(items, MOST_GROUPS, desk.chinese)}", tuple(proofs(reply, cited)))


def _column_line(column: dict[str, Any], chinese: bool) -> str:
    example = column.get("example")
    said = pick(chinese, f", e.g. {example}", f"，例如 {example}") if example else ""
    return pick(chinese, f"{column['name']} ({column['type']}{said})", f"{column['name']}（{column['type']}{said}）")


def work_out(desk: Desk, intent: Column) -> Finding:
    """The number that is asked for, or one per group."""
    intent, reply = _aggregated(desk, intent)
    text, complete = desk.whole(reply)
    notes = _notes(text, desk.chinese)
    if intent.group_by:
        return _grouped(desk, intent, reply, text, complete, notes)
    number, rows = value(text, "value"), value(text, "rows")
    cited = [pair(text, "value"), pair(text, "rows")]
    place = _place(intent, desk.chinese)
    if number in ("null", ""):
        said = sentence(
            desk.chinese,
            f"{place} has no value for the {measure(intent, False)}.",
            f"{place}没有可用于计算 {measure(intent, True)}的值。",
        )
    elif intent.operation == "count":
        said = sentence(
            desk.chinese, f"{place} has {number} {'row' if number == '1' else 'rows'}.", f"{place}有 {number} 行。"
        )
    else:
        over = "" if not rows else pick(desk.chinese, f" ({rows} {'row' if rows == '1' else 'rows'})", f"（{rows} 行）")
        said = sentence(
            desk.chinese,
            f"The {measure(intent, False)} in {place} is {figure(number)}{over}.",
            f"{place}的 {measure(intent, True)}为 {figure(number)}{over}。",
        )
    return Finding(said + notes, tuple(proofs(reply, cited)))


def _aggregated(desk: Desk, intent: Column) -> tuple[Column, Reply]:
    """The aggregation, once file and columns are clear."""
    intent = replace(intent, path=intent.path or some_table(desk))
    if intent.column or intent.operation == "count":
        reply = _aggregate(desk, intent)
        if not reply.ok and "column" not in reply.text:
            intent, reply = _located(desk, intent, reply)
        if reply.ok:
            return intent, reply
        desk.used.remove(reply)
    intent = _with_columns(desk, intent)
    reply = _aggregate(desk, intent)
    if not reply.ok:
        raise Stuck(reply.text.strip())
    return intent, reply


def _located(desk: Desk, intent: Column, failed: Reply) -> tuple[Column, Reply]:
    """The aggregation of the file that is meant, where there is none of this name; it may still lack the column."""
    desk.used.remove(failed)
    path = meant(desk, intent.path or "", failed)
    found = replace(intent, path=path)
    return found, _aggregate(desk, found)


def _with_columns(desk: Desk, intent: Column) -> Column:
    """The intent with the columns that the file really has."""
    path, described = open_file(desk, intent.path or "", lambda path: desk.call("describe_csv", path=path))
    desk.used.remove(described)
    columns = [column for column, _ in objects(desk.whole(described)[0], "name")]
    intent = replace(intent, path=path)
    return replace(
        intent,
        column=_value_column(desk, intent, columns),
        group_by=intent.group_by and _named_column(desk, path, intent.group_by, columns, "group"),
        where=tuple((_named_column(desk, path, column, columns, "filter"), wanted) for column, wanted in intent.where),
    )


def _aggregate(desk: Desk, intent: Column) -> Reply:
    arguments: dict[str, Any] = {"path": intent.path, "operation": intent.operation}
    arguments |= {key: said for key, said in (("column", intent.column), ("group_by", intent.group_by)) if said}
    if intent.where:
        arguments["where"] = dict(intent.where)
    return desk.call("aggregate_csv", **arguments)


def _value_column(desk: Desk, intent: Column, columns: Sequence[dict[str, Any]]) -> str | None:
    """The column to work on: the one named, or the only one with numbers, or the one the user chooses."""
    path, chinese = intent.path or "", desk.chinese
    if intent.operation == "count" and not intent.column:
        return None
    numbers = [str(c["name"]) for c in columns if c["type"] in NUMBERS]
    if not numbers and intent.operation in ("sum", "average"):
        raise Stuck(pick(chinese, f"{path} has no column of numbers.", f"{path} 中没有数字列。"))
    every = numbers or [str(c["name"]) for c in columns]
    if intent.column:
        return _named_column(desk, path, intent.column, columns, "value", every)
    if len(every) == 1:
        return every[0]
    answer = desk.ask(
        sentence(
            chinese,
            f"Which column of {path} should I use for the {_short(intent)}?",
            f"要用 {path} 的哪一列来计算{_short(intent, True)}？",
        ),
        every[:MOST_OPTIONS],
    )
    return _named_column(desk, path, answer, columns, "value", every)


def _short(intent: Column, chinese: bool = False) -> str:
    words = measure(intent, chinese)
    return words.removesuffix(" of a column").removeprefix("某一列的")


def _named_column(
    desk: Desk, path: str, said: str, columns: Sequence[dict[str, Any]], use: str, options: Sequence[str] = ()
) -> str:
    """The column that a name means; asked for, at most twice, where there is none of this name."""
    names = [str(column["name"]) for column in columns]
    for attempt in range(3):
        if found := _match(said, names):
            return found
        if attempt == 2:
            break
        question = {
            "value": (
                f"{path} has no column {quoted(said)}. Which one do you mean?",
                f"{path} 中没有列 {quoted(said)}。你指的是哪一列？",
            ),
            "group": (
                f"{path} has no column {quoted(said)} to group by. Which one do you mean?",
                f"{path} 中没有可供分组的列 {quoted(said)}。你指的是哪一列？",
            ),
            "filter": (
                f"{path} has no column {quoted(said)} to filter by. Which one do you mean?",
                f"{path} 中没有可供筛选的列 {quoted(said)}。你指的是哪一列？",
            ),
        }[use]
        said = desk.ask(sentence(desk.chinese, *question), list(options or names)[:MOST_OPTIONS])
    raise Stuck(
        sentence(
            desk.chinese,
            f"{path} has no column {quoted(said)}; it has {', '.join(names)}.",
            f"{path} 中没有列 {quoted(said)}；已有的列：{'、'.join(names)}。",
        )
    )


def _match(said: str, names: Sequence[str]) -> str | None:
    """The one name that reads the same but for case, blanks, underscores and the plural."""
    if said in names:
        return said
    same = [one for one in names if _folded(one) == _folded(said)]
    return same[0] if len(same) == 1 else None


def _folded(text: str) -> str:
    return re.sub(r"[\s_\-]+", "", text).casefold().removesuffix("s")


def _place(intent: Column, chinese: bool) -> str:
    only = "".join(
        pick(chinese, f" where {name(c)} is {name(v)}", f" {name(c)} 为 {name(v)} 的行") for c, v in intent.where
    )
    return f"{intent.path}{pick(chinese, '', ' 中') if only else ''}{only}"


def _grouped(desk: Desk, intent: Column, reply: Reply, text: str, complete: bool, notes: str) -> Finding:
    groups = [(str(g["key"]), str(g["value"]), raw) for g, raw in objects(text, "key")]
    if not groups:
        said = sentence(
            desk.chinese,
            f"{_place(intent, False)} has no rows to group by {intent.group_by}.",
            f"{_place(intent, True)}没有可按 {intent.group_by} 分组的行。",
        )
        return Finding(said + notes, tuple(proofs(reply, [pair(text, "rows")])))
    chinese, place = desk.chinese, _place(intent, desk.chinese)
    items = [f"{key or pick(chinese, '(empty)', '（空）')}: {figure(number)}" for key, number, _ in groups]
    cited = [_key_and_value(key, number, raw) for key, number, raw in groups]
    total = value(text, "groups_total")
    if not complete or total:
        notes += pick(
            chinese,
            f"\n(the first {len(groups)} of {total or 'more'} groups)",
            f"\n（仅前 {len(groups)} 组，共 {total or '更多'} 组）",
        )
    what = measure(intent, chinese)
    if intent.rank:
        return _ranked(intent, groups, items, reply, place, notes, chinese)
    head = sentence(
        chinese,
        f"{what[:1].upper()}{what[1:]} by {intent.group_by} in {place}:",
        f"{place}按 {intent.group_by} 分组的 {what}：",
    )
    return Finding(f"{head}\n{listing(items, MOST_GROUPS, chinese)}{notes}", tuple(proofs(reply, cited)))


def _ranked(
    intent: Column,
    groups: Sequence[tuple[str, str, str]],
    items: Sequence[str],
    reply: Reply,
    place: str,
    notes: str,
    chinese: bool,
) -> Finding:
    numbers = {key: amount for key, number, _ in groups if (amount := _amount(number)) is not None}
    if not numbers:
        raise Stuck(pick(chinese, f"{place} has no numbers to compare.", f"{place} 中没有可比较的数字。"))
    best = max(numbers.values()) if intent.rank == "highest" else min(numbers.values())
    first = [(key, number, raw) for key, number, raw in groups if numbers.get(key) == best]
    keys, number = [key for key, _, _ in first], figure(first[0][1])
    has = "has" if len(keys) == 1 else "have"
    head = sentence(
        chinese,
        f"{' and '.join(keys)} {has} the {ranked(intent, False)} in {place}: {number}. By {intent.group_by}:",
        f"{place} {'、'.join(keys)} 的 {ranked(intent, True)}：{number}。各 {intent.group_by}：",
    )
    cited = [_key_and_value(*group) for group in [*first, *groups]]
    return Finding(f"{head}\n{listing(items, MOST_GROUPS, chinese)}{notes}", tuple(proofs(reply, cited)))


def _amount(number: str) -> Decimal | None:
    try:
        return Decimal(number)
    except InvalidOperation:
        return None


def _key_and_value(key: str, number: str, raw: str) -> str:
    """`"key": "North", "value": 120` as it is written."""
    found = re.search(rf'"key"\s*:\s*{re.escape(json.dumps(key, ensure_ascii=False))}\s*,\s*"value"\s*:\s*[^,}}]+', raw)
    return found[0] if found else raw


def _notes(text: str, chinese: bool) -> str:
    """What the tool says besides the numbers: rows it could not use, mixed units."""
    skipped = [
        f"{pick(chinese, 'line ', '第 ')}{s['line']}{pick(chinese, '', ' 行')} ({s['reason']})"
        for s, _ in objects(text, "line")
    ]
    total = value(text, "skipped_total") or str(len(skipped))
    said = ""
    if skipped:
        shown = ", ".join(skipped[:MOST_SKIPPED]) + (", …" if int(total) > MOST_SKIPPED else "")
        said += pick(
            chinese,
            f"\nNot counted: {total} {'row' if total == '1' else 'rows'}: {shown}.",
            f"\n未计入 {total} 行：{shown}。",
        )
    note = value(text, "note")
    return said + (pick(chinese, f"\nNote: {note}.", f"\n注意：{note}。") if note else "")
