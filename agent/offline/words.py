"""What the offline model says, English and Chinese side by side. Its own rules can read a plan's words back."""

import re
from collections.abc import Sequence

from donewhen.agent.offline.intents import Calculate, Column, Describe, Files, Intent, Lines, Read, Text, Write

_TYPE_NAMES = {
    "py": "Python", "md": "Markdown", "txt": "text", "csv": "CSV", "json": "JSON", "y*ml": "YAML", "html": "HTML",
    "js": "JavaScript", "ts": "TypeScript", "rs": "Rust", "go": "Go", "java": "Java", "sh": "shell", "sql": "SQL",
    "xml": "XML", "toml": "TOML", "pdf": "PDF", "log": "log", "rb": "Ruby", "css": "CSS",
}  # fmt: skip
_OPERATIONS = {
    "sum": ("total", "总和"),
    "average": ("average", "平均值"),
    "min": ("lowest", "最小值"),
    "max": ("highest", "最大值"),
}
_HAN = "[\u4e00-\u9fff]"
_RANKS = {"highest": ("highest", "最高"), "lowest": ("lowest", "最低")}


def pick(chinese: bool, english: str, zh: str) -> str:
    """The text in the language of the user."""
    return zh if chinese else english


def quoted(text: str) -> str:
    """A text in quotation marks that the rules read back."""
    return f"“{text}”" if "“" not in text and "”" not in text else f'"{text}"'


def files_name(pattern: str, chinese: bool, count: int | None = None) -> str:
    """What files of a pattern are called: `Python files (*.py)`; with `count`, in the right number."""
    plural = "file" if count == 1 else "files"
    if pattern in ("*", "**/*"):
        return pick(chinese, plural, "文件")
    extension = pattern.removeprefix("*.")
    if name := _TYPE_NAMES.get(extension) if pattern.startswith("*.") else None:
        return pick(chinese, f"{name} {plural} ({pattern})", f"{name} 文件（{pattern}）")
    shown = pattern if re.fullmatch(r"[A-Za-z0-9_.*/\-]+", pattern) else quoted(pattern)
    return pick(chinese, f"{plural} matching {shown}", f"名为 {shown} 的文件")


def name(text: str) -> str:
    """A column, value or path as it stands in a sentence: quoted where it is more than one plain word."""
    plain = r"[A-Za-z0-9_./\-]+" if "." in text else r"[\w/\-]+"  # a Chinese path would run into the words beside it
    return text if re.fullmatch(plain, text) else quoted(text)


def measure(intent: Column, chinese: bool) -> str:
    """What is worked out, without where: `total amount`, `amount 总和`."""
    if intent.operation == "count":
        return pick(chinese, "number of rows", "行数")
    word, column = pick(chinese, *_OPERATIONS[intent.operation]), intent.column and name(intent.column)
    return pick(chinese, f"{word} {column or 'of a column'}", f"{column} {word}" if column else f"某一列的{word}")


def ranked(intent: Column, chinese: bool) -> str:
    """What a group is the first or the last of: `highest total amount`, `amount 总和最高`."""
    word, column = pick(chinese, *_RANKS[intent.rank]), name(intent.column or "")
    if intent.operation == "count":
        return pick(chinese, "most rows" if intent.rank == "highest" else "fewest rows", f"行数{word}")
    measured = column if intent.operation in ("min", "max") else measure(intent, chinese)
    return pick(chinese, f"{word} {measured}", f"{measured} {word}")


def spaced(text: str) -> str:
    """Chinese with a space to each side of Latin words, and nowhere else."""
    text = re.sub(rf"(?<={_HAN}) +(?={_HAN})", "", text)
    return re.sub(
        rf"(?<={_HAN})(?=[A-Za-z0-9“])|(?<=[A-Za-z0-9/”*])(?={_HAN})", " ", re.sub(" {2,}", " ", text)
    ).strip()


def content(intent: Intent, chinese: bool) -> str:
    """The step that an intent makes, as one sentence that the rules read back as the same intent."""
    return spaced(_content(intent, True)) if chinese else _content(intent, False)


def _content(intent: Intent, chinese: bool) -> str:
    match intent:
        case Files():
            return _files_content(intent, chinese)
        case Text():
            return _zh_text_content(intent) if chinese else _text_content(intent)
        case Column():
            return _zh_column_content(intent) if chinese else _column_content(intent)
        case Lines(path):
            return pick(chinese, f"Count the lines of {name(path)}", f"统计 {name(path)} 的行数")
        case Describe(path):
            return pick(chinese, f"Describe the columns of {name(path)}", f"描述 {name(path)} 有哪些列")
        case Read(path, True):
            return pick(chinese, f"Summarise {name(path)}", f"总结 {name(path)}")
        case Read(path):
            return pick(chinese, f"Read {name(path)}", f"读取 {name(path)}")
        case Calculate(expression):
            return pick(chinese, f"Calculate {expression}", f"计算 {expression}")
        case Write():
            return _write_content(intent, chinese)


def _within(path: str, chinese: bool) -> str:
    if path == ".":
        return ""
    plain = path if "." in path.rpartition("/")[2] else f"{path}/"
    folder = plain if re.fullmatch(r"[A-Za-z0-9_.@+/\-]+", plain) else quoted(plain)
    return pick(chinese, f" in {folder}", f" {folder} 中")


def _files_content(intent: Files, chinese: bool) -> str:
    files, place = files_name(intent.pattern, chinese), _within(intent.path, chinese)
    if intent.want == "largest":
        return pick(chinese, f"Find the largest of the {files}{place}", f"找出{place}最大的{files}")
    if intent.want == "count":
        return pick(chinese, f"Count the {files}{place}", f"统计{place} {files}的数量")
    return pick(chinese, f"List the {files}{place}", f"列出{place}所有{files}")


def _text_content(intent: Text) -> str:
    query, files, place = quoted(intent.query), files_name(intent.pattern, False), _within(intent.path, False)
    if intent.want == "files":
        return f"Find which {files} contain {query}{place}"
    inside = f" in the {files}" if intent.pattern != "*" else "" if place else " in all files"
    return f"{'Count the lines with' if intent.want == 'count' else 'Find'} {query}{inside}{place}"


def _zh_text_content(intent: Text) -> str:
    query, files, place = quoted(intent.query), files_name(intent.pattern, True), _within(intent.path, True)
    if intent.want == "files":
        return f"查找{place}包含 {query} 的{files}"
    inside = f"{place}{files}中的" if intent.pattern != "*" else f"{place}的" if place else "所有文件中的"
    return f"统计{inside} {query} 出现次数" if intent.want == "count" else f"查找{inside} {query}"


def _column_content(intent: Column) -> str:
    place = f" in {name(intent.path) if intent.path else 'the CSV file'}"
    place += "".join(f" where {name(column)} is {name(value)}" for column, value in intent.where)
    group = name(intent.group_by) if intent.group_by else ""
    if intent.rank:
        return f"Find which {group} has the {ranked(intent, False)}{place}"
    lead = {"sum": "Total", "average": "Average", "min": "Find the lowest", "max": "Find the highest"}
    what = "Count the rows"
    if intent.operation != "count":
        what = f"{lead[intent.operation]} {name(intent.column) if intent.column else 'of a column'}"
    return f"{what}{f' by {group}' if group else ''}{place}"


def _zh_column_content(intent: Column) -> str:
    place = f"{name(intent.path) if intent.path else ' CSV 文件'} 中"
    place += "".join(f" {name(column)} 为 {name(value)} 的" for column, value in intent.where)
    group = name(intent.group_by) if intent.group_by else ""
    if intent.rank:
        return f"找出 {place}哪个 {group} 的 {ranked(intent, True)}"
    return f"统计 {place}{f'按 {group} 分组的' if group else ''} {measure(intent, True)}"


def _write_content(intent: Write, chinese: bool) -> str:
    path = name(intent.path)
    what = (
        quoted(intent.text)
        if intent.what == "text"
        else pick(chinese, f"the {intent.what}", "摘要" if intent.what == "summary" else "报告")
    )
    verb = pick(chinese, "Append" if intent.append else "Write", "追加到" if intent.append else "写到")
    lacking = pick(chinese, ", ", "、").join(map(quoted, intent.missing))
    without = pick(chinese, f", without {lacking}", f"，不含 {lacking}") if lacking else ""
    return pick(chinese, f"{verb} {what} to {path}{without}", f"把 {what} {verb} {path}{without}")


def criteria(intent: Intent, chinese: bool) -> list[str]:
    """What can be seen when the step is done."""
    found = _criteria(intent, chinese)
    return [spaced(text) for text in found] if chinese else found


def _criteria(intent: Intent, chinese: bool) -> list[str]:
    match intent:
        case Files(pattern, _, want):
            return [_files_criterion(files_name(pattern, chinese), want, chinese)]
        case Text(query, _, _, want):
            return [_text_criterion(quoted(query), want, chinese)]
        case Column():
            return [_column_criterion(intent, chinese)]
        case Lines(path):
            return [pick(chinese, f"The number of lines of {path} is stated", f"已给出 {path} 的行数")]
        case Describe(path):
            return [
                pick(chinese, f"The columns and the number of rows of {path} are stated", f"已给出 {path} 的列和行数")
            ]
        case Read(path, True):
            return [pick(chinese, f"Key sentences of {path} are quoted", f"已摘出 {path} 的关键句")]
        case Read(path):
            return [pick(chinese, f"The text of {path} is shown", f"已给出 {path} 的内容")]
        case Calculate(expression):
            return [pick(chinese, f"The value of {expression} is stated", f"已给出 {expression} 的值")]
        case Write(path, "text", text):
            return [pick(chinese, f"{path} holds {quoted(text)}", f"{path} 中有 {quoted(text)}")]
        case Write(path):
            return [
                pick(chinese, f"{path} exists", f"{path} 已存在"),
                pick(chinese, f"{path} holds the results", f"{path} 中写有结果"),
            ]


def _files_criterion(files: str, want: str, chinese: bool) -> str:
    if want == "count":
        return pick(chinese, f"The number of {files} is stated", f"已给出{files}的数量")
    if want == "largest":
        return pick(chinese, f"The largest of the {files} is named, with its size", f"已指出最大的{files}及其大小")
    return pick(chinese, f"The {files} found are listed", f"已列出找到的{files}")


def _text_criterion(query: str, want: str, chinese: bool) -> str:
    if want == "count":
        return pick(chinese, f"The number of lines with {query} is stated", f"已给出 {query} 出现的次数")
    if want == "files":
        return pick(chinese, f"The files that contain {query} are listed", f"已列出包含 {query} 的文件")
    return pick(chinese, f"The lines with {query} are listed", f"已列出 {query} 所在的行")


def _column_criterion(intent: Column, chinese: bool) -> str:
    what = measure(intent, chinese)
    if intent.rank:
        what = ranked(intent, chinese)
        return pick(chinese, f"The {intent.group_by} with the {what} is named", f"已指出 {what}的 {intent.group_by}")
    if intent.group_by:
        return pick(
            chinese, f"The {what} is stated for every {intent.group_by}", f"已给出每个 {intent.group_by} 的 {what}"
        )
    return pick(chinese, f"The {what} is stated", f"已给出 {what}")


def label(intent: Intent, chinese: bool) -> str:
    """An intent in a few words, for titles."""
    match intent:
        case Files(pattern, _, want):
            files = files_name(pattern, chinese).partition(" (")[0].partition("（")[0]
            return pick(chinese, f"largest of the {files}", f"最大的{files}") if want == "largest" else files
        case Text(query):
            return pick(chinese, f"lines with {quoted(query)}", f"包含 {quoted(query)} 的行")
        case Column():
            by = intent.group_by and pick(chinese, f" by {intent.group_by}", f"（按 {intent.group_by}）")
            return measure(intent, chinese) + (by or "")
        case Lines(path):
            return pick(chinese, f"lines of {path}", f"{path} 的行数")
        case Describe(path):
            return pick(chinese, f"columns of {path}", f"{path} 的列")
        case Read(path, summarise):
            return pick(
                chinese,
                f"summary of {path}" if summarise else f"text of {path}",
                f"{path} 的{'摘要' if summarise else '内容'}",
            )
        case Write(path):
            return path
        case Calculate(expression):
            return expression


def title(intents: Sequence[Intent], chinese: bool) -> str:
    """The plan's name."""
    labels = list(dict.fromkeys(label(intent, chinese) for intent in intents))
    text = pick(chinese, ", ", "、").join(labels)
    text = text if len(text) <= 80 else f"{text[:79]}…"
    first = text.partition(",")[0]
    return spaced(text) if chinese else text if "." in first.partition(" ")[0] else text[:1].upper() + text[1:]
