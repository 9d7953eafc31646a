"""Rules for look-ups in a folder: files by pattern, text in files, lines of a file. English and Chinese."""

import re

from donewhen.agent.offline.clauses import Clause
from donewhen.agent.offline.intents import Files, Lines, LookUp, Text
from donewhen.agent.offline.literals import GLOB, PATH, QUOTE
from donewhen.agent.offline.vocabulary import COMMON, ZH_COMMON, either, words

TYPES = {
    "python": "py", "py": "py", "markdown": "md", "md": "md", "text": "txt", "txt": "txt", "csv": "csv", "tsv": "tsv",
    "json": "json", "yaml": "y*ml", "yml": "yml", "toml": "toml", "xml": "xml", "html": "html", "css": "css",
    "javascript": "js", "js": "js", "typescript": "ts", "ts": "ts", "java": "java", "go": "go", "rust": "rs",
    "ruby": "rb", "shell": "sh", "sql": "sql", "log": "log", "pdf": "pdf", "notebook": "ipynb", "excel": "xls*",
    "文本": "txt", "日志": "log", "脚本": "py",
}  # fmt: skip
_TYPE = "|".join(sorted(TYPES, key=len, reverse=True))
_INSIDE = "(?:in|inside|within|across|through)"
_FOLDER = r"(?:folder|directory|dir)\b"
_ZH_INSIDE = "(?:下面|里面|之?中|下|里|内)"
_NAME = r"[A-Za-z0-9_.-]+"
_NO_NAME = (
    "(?!(?:total|all|it|them|the|this|order|general|detail|any|every|each|which|there|here|our|my|your|a|an|text|"
    r"files?)\b)"
)

_TYPED = either(
    rf"\b(?P<type>{_TYPE})(?:\s+and\s+|\s*[,、]\s*|\s*和\s*)(?=(?:{_TYPE})\b[^.]*?(?:files?|文件))",
    rf"\b(?P<one>{_TYPE})\s*(?:(?:source |code )?(?:files?|scripts?|modules?|documents?|docs)\b|源?文件|源码|脚本)",
    r"(?P<zh>文本|日志|脚本)\s*文件",
)
_ANY_FILES = either(r"\b(?:files?|documents?|everything)\b", "文件(?!夹)", rf"(?:all|every)\s+(?=[{GLOB}])")
_GLOBS = either(rf"[(（]?([{GLOB}])[)）]?")
_WHERE = either(
    rf"\b(?:in|under|inside|within|from|of|below|at)\s+(?:the\s+)?(?:{_FOLDER}\s+)?(?P<mark>[{PATH}{QUOTE}])(?:\s+{_FOLDER})?",
    rf"\b(?:in|under|inside|within|from|below)\s+(?:the\s+|my\s+)?(?:{_FOLDER}\s+)?{_NO_NAME}(?P<word>{_NAME})\s+{_FOLDER}",
    rf"\b(?:in|under|inside|within)\s+(?:the {_FOLDER}\s+)?{_NO_NAME}(?P<bare>[\w.-]+)\s*$",
    rf"在?\s*(?P<zh>[{PATH}{QUOTE}])\s*(?:文件夹|目录|文件)?\s*{_ZH_INSIDE}(?:的|所有)*",
    rf"在?\s*(?P<zhword>{_NAME})\s*(?:文件夹|目录)\s*{_ZH_INSIDE}?(?:的|所有)*",
    rf"在?\s*(?P<zhbare>{_NAME})\s*(?:下面|里面|里|下)(?=的|有|一?共|查|搜|找|所有|\s|$)(?:的|所有)*",
)
_HERE = either(
    r"\b(?:in|of|from|under)\s+(?:this|the|my|our|the current|this current)\s+(?:whole\s+)?"
    rf"(?:{_FOLDER}|(?:project|repo|repository|workspace)\b)",
    r"\bhere\b",
    "在?(?:当前|这个|本|此|整个|该)(?:文件夹|目录|项目|仓库|工作区)(?:下|里|中|内)?的?",
    "(?:文件夹|目录|项目)(?:下|里|中)的?|这里",
)
_COUNT = words(
    "count how_many number_of how_often", "多少 几个 几处 几次 数量 个数 总数 次数 数一下 数出 数一数 数 统计"
)
_LARGEST = words("largest biggest", "最大的?")
_LIST = words("list show name", "列出 列举")
_FIND_FILE = words(
    "find locate where_is is_there does do_we_have list check exists?", "查找 找出 找到 找 列出 有没有 是否 存在 检查"
)
_CONTENTS = either(r"\bwhat(?:'s| is| do we have)(?= (?:in|inside) (?:this|the|my|our)\b|\s+here\b)", "有什么")
_NAMED = either(
    r"\b(?:named|called|matching|name is|with the name|whose name (?:contains|is|has))\s+"
    rf"([{QUOTE}{PATH}{GLOB}]|[\w.-]+)",
    rf"(?:名为|叫做?|名字?(?:是|包含|里有|含有?))\s*([{QUOTE}{PATH}{GLOB}]|{_NAME})(?:\s*的)?",
)
_ENDING = either(rf"\b(?:ending (?:in|with)|with (?:the )?(?:extension|suffix))\s+(?:[.]?(\w+)\b|([{GLOB}]))")
_FILE_WORDS = f"""
    {COMMON} list find show count how many number where get give tell look locate search see exists? names?
    paths? files? out up their folder directory project check if whether total determine display print size
"""
_ZH_FILE_WORDS = f"""
    {ZH_COMMON} 列出 列举 哪个 哪一个 找出 找到 查找 搜索 寻找 查看 显示 看看 看 找 所有的? 全部的? 文件名 文件
    有哪些 哪些 有没有 是否 存在 统计 数一下 数出 数 计算 一共有? 总共有? 共有 有 能 个 出 下 名称 名字 告诉
    多少 数量 个数
"""
FILLERS = words(_FILE_WORDS, _ZH_FILE_WORDS)
_TEXT_SIGN = words(
    """search(?:_for)? grep(?:_for)? look(?:ing)?_for mention(?:s|ing|ed)? contain(?:s|ing|ed)? occur(?:s|rences?)?
    appear(?:s|ances?)? times lines?_(?:with|containing|that) the_(?:word|text|string|phrase)""",
    "包含 含有 出现 提到 搜索 检索 字样 单词 关键字 关键词 文本",
)
_FIND = words(
    "find search grep look locate list show count how_many where which_files?",
    "查找 找出 找到 找 搜索 检索 统计 列出 多少 几",
)
_WHICH_FILES = either(
    r"\b(?:which|what|list|find|show|count|how many|all|every)\s+(?:the\s+)?(?:\w+\s+)?files?\s+(?:that\s+)?"
    r"(?:contain|mention|with)",
    r"files?\s+(?:containing|mentioning)",
    "(?:包含|含有|提到).{0,20}的.{0,6}文件|哪些文件",
)
_TYPED_PLACE = either(
    rf"\b{_INSIDE}\s+(?:(?:all|every|any|each|the)\s+)*(?:(?:{_TYPE})\b|[{GLOB}])",
    rf"(?:{_TYPE}|[{GLOB}])\s*(?:源?文件|源码|脚本)?\s*(?:里面?|之?中|内)",
)
_IN_FILES = either(
    rf"\b{_INSIDE}\s+(?:(?:all|every|any|each|the|these|those|of|my|our)\s+)*files?\b",
    r"在?(?:所有|全部|这些|各个?)*的?文件\s*(?:里面?|之?中|内)的?|在(?:所有|全部)文件",
)
_TEXT_FILLERS = words(
    f"""
        {_FILE_WORDS} lines? occurrences? mention(?:s|ing|ed)? contain(?:s|ing|ed)? occurs? appears? times word
        text string phrase often grep inside within across uses? used comments? from through
    """,
    f"{_ZH_FILE_WORDS} 出现 包含 含有 提到 单词 字样 文本 内容 次数 几 次 处 行 检索 这个 关键字 关键词 字符串 过",
)
_NO_QUERY = words(
    """
        words? characters? letters? sentences? paragraphs? functions? class(?:es)? duplicates? tests? folders?
        director(?:y|ies)
    """,
    "字数? 单词数?",
)
_LINES = either(
    r"\b(?:number of|how many|count(?: the| all)?)\s+lines\b", r"\blines? (?:count|in|of|does)\b", "多少行|几行|行数"
)


def label_types(clause: Clause) -> list[str]:
    """Patterns the clause names by type or glob, taken out of it."""
    patterns = [f"*.{TYPES[(m['type'] or m['one'] or m['zh']).lower()]}" for m in clause.take_all(_TYPED)]
    for ending in clause.take_all(_ENDING):
        patterns.append(f"*.{ending[1].lower()}" if ending[1] else clause.value(ending[2]))
    patterns += [clause.value(m[1]) for m in clause.take_all(_GLOBS)]
    return list(dict.fromkeys(patterns))


def place(clause: Clause) -> str | None:
    """The folder or file a clause says to look in, taken out of it; None where it says none."""
    found = clause.take(_WHERE)
    clause.take(_HERE)
    if not found:
        return None
    return clause.value(next(group for group in found.groups() if group)).rstrip("/") or "."


def read_files(clause: Clause) -> tuple[list[LookUp], str] | None:
    """Look-ups of files in the clause and the words not understood; None if it is about something else."""
    want = "count" if _COUNT.search(clause.text) else "largest" if _LARGEST.search(clause.text) else "list"
    if want == "count" and _LIST.search(clause.text):
        want = "list"
    patterns = [_name_pattern(clause.value(m[1] or m[2])) for m in clause.take_all(_NAMED)] + label_types(clause)
    about_files = bool(patterns) or bool(clause.take(_ANY_FILES)) or bool(clause.take(_CONTENTS))
    path = place(clause)
    if not patterns and _FIND_FILE.search(clause.text) and (named_paths := clause.take_all(re.compile(f"[{PATH}]"))):
        values = [clause.value(m[0]) for m in named_paths]
        patterns += [value if "." in value else f"{value}*" for value in values if not value.endswith("/")]
        path = next((value.rstrip("/") for value in values if value.endswith("/")), path)
        about_files = True
    if not about_files and (path is None or not _FIND_FILE.search(clause.text)):
        return None
    clause.take_all(_LARGEST)
    clause.take_all(_COUNT)
    clause.take_all(_ANY_FILES)
    split = [_split(pattern, path or ".") for pattern in patterns or ["*"]]
    return [Files(pattern, folder, want) for folder, pattern in split], clause.left(FILLERS)  # type: ignore[arg-type]


def _name_pattern(name: str) -> str:
    return name if "." in name or "*" in name else f"{name}*" if name.isupper() else f"*{name}*"


def _split(pattern: str, path: str) -> tuple[str, str]:
    """Folder and name pattern: `src/*.py` looks in src."""
    folder, slash, name = pattern.rpartition("/")
    folder = re.sub(r"/?\*\*$", "", folder)
    if not slash or not folder or "*" in folder:
        return path, name if slash and "*" not in folder.replace("**", "") else pattern
    return (folder if path == "." else f"{path}/{folder}"), name


def read_text(clause: Clause) -> tuple[list[LookUp], str] | None:
    """Look-ups of text in files; the query is quoted, or a plain word or two with a place to look in."""
    sign = bool(_TEXT_SIGN.search(clause.text))
    if not sign and not _FIND.search(clause.text):
        return None
    want = "files" if _WHICH_FILES.search(clause.text) else "count" if _COUNT.search(clause.text) else "list"
    quoted = clause.take(re.compile(f"[{QUOTE}]"))
    typed = bool(_TYPED_PLACE.search(clause.text))
    patterns = label_types(clause)
    path = place(clause)
    placed = bool(clause.take(_IN_FILES)) or typed
    if not quoted and not sign and (_ANY_FILES.search(clause.text) or (patterns and not placed)):
        return None
    clause.take_all(_COUNT)
    clause.take_all(_ANY_FILES)
    if path is None and (only := clause.take(re.compile(f"[{PATH}]"))):
        path = clause.value(only[0])
    query, left = clause.value(quoted[0]) if quoted else "", clause.left(_TEXT_FILLERS)
    if not quoted:
        query, left = re.sub(r"^([A-Z]{2,})s$", r"\1", left), ""
        known_place = bool(path and (path != path.capitalize() or path == ".")) or (placed and path is None)
        if not _searchable(query, sign, known_place):
            return None
    return [Text(query, pattern, path or ".", want) for pattern in patterns or ["*"]], left  # type: ignore[arg-type]


def _searchable(query: str, sign: bool, placed: bool) -> bool:
    """Whether words without quotation marks can only be meant as the text to find."""
    said = query.split()
    if not said or len(said) > (2 if sign else 1) or _NO_QUERY.fullmatch(said[-1]):
        return False
    return placed or (len(said) == 1 and (sign or said[0].isupper()))


def read_lines(clause: Clause) -> tuple[list[LookUp], str] | None:
    """How many lines a text file has."""
    if not clause.take(_LINES):
        return None
    paths = [clause.value(m[0]) for m in clause.take_all(re.compile(f"[{PATH}]")) if not m[0].endswith("/")]
    if not paths:
        return None
    return [Lines(path) for path in paths], clause.left(FILLERS)
