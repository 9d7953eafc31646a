"""Rules for look-ups in CSV files: totals, averages, extremes and counts, per group; what columns there are."""

import re
from collections.abc import Sequence
from typing import Literal

from donewhen.agent.offline.clauses import Clause
from donewhen.agent.offline.intents import Column, Describe, LookUp, Operation
from donewhen.agent.offline.literals import ANY, PATH, QUOTE
from donewhen.agent.offline.vocabulary import COMMON, ZH_COMMON, either, words

_NAME = rf"[{QUOTE}]|[^\W\d]\w*"
_ZH_NAME = rf"[{QUOTE}]|[A-Za-z_]\w*|[\u4e00-\u9fff]"
_ROW_NOUNS = frozenset({"row", "rows", "line", "lines", "record", "records", "entry", "entries", "item", "items"})

_OPERATION = either(
    r"\b(?P<sum>totall?ed|totals?|sums?(?: up)?|add up|adding up)\b",
    r"\b(?P<average>averages?|mean|avg)\b",
    r"\b(?P<min>min|minimum|lowest|smallest|least)\b",
    r"\b(?P<max>max|maximum|highest|largest|biggest|greatest)\b",
    "(?P<zhsum>总和|总额|总计|合计|求和|汇总|累计|加总|加起来|之和)",
    "(?P<zhaverage>平均值?|均值)",
    "(?P<zhmin>最小值?|最低值?|最少)",
    "(?P<zhmax>最大值?|最高值?|最多)",
)
_NO_OPERATION = r"(?!(?:min|minimum|lowest|max|maximum|highest|largest|total|sum|average|mean|count)\b)"
_ROWS = either(
    r"\b(?:(?:total )?number of|how many|count(?: up)?(?: (?:all|the|all the))?)\s+(?:data\s+)?(?P<noun>[A-Za-z]+)\b",
    r"\brow count\b",
    "(?:数据)?(?:多少|几)(?:行|条)(?:数据|记录)?|总?行数|总?条数|总?记录数",
    "(?:统计|计算|数)?(?:每|各)?.{0,8}(?:记录|数据|行)的?(?:数量|个数|条数)",
)
_GROUP = either(
    r"\b(?:(?:grouped?|broken down|split|summed)\s+)?(?:by|per|for each|for every|in each|of each)\s+"
    r"(?:the\s+)?(?:column\s+)?"
    rf"(?P<name>(?!column\b)(?:{_NAME}))(?:\s+column\b)?"
    rf"(?:\s*(?:,\s*(?:by|per)\s+|(?:&|\band\b)\s*(?:(?:by|per)\s+)?)(?P<more>{_NO_OPERATION}(?:{_NAME})))?",
    rf"(?:按照|按|根据|以)\s*(?P<zh>{_ZH_NAME}{{1,8}}?)\s*(?:列|字段)?\s*(?:来)?"
    rf"(?:分组|分类|分别|为单位|的(?=\s*\S)|(?=汇总|统计|合计|求和|计算|总|\s|$|[{PATH}]))(?:的)?",
    rf"(?:每一?个|各个?|每种)\s*(?P<every>{_ZH_NAME}{{1,6}}?)\s*(?:的|(?=\s|有|共|总|平|最))",
)
_RANK = either(
    rf"\b(?:which|what)\s+(?P<group>{_NAME})\s+(?:has|had|have|is with|with|made|got)\s+the\s+"
    r"(?P<rank>highest|most|largest|biggest|greatest|lowest|least|smallest|fewest)\b",
    rf"最(?P<zhmost>高|多|大|低|少|小)的\s*(?!文件)(?P<zhlast>{_ZH_NAME}{{1,6}}?)\s*(?:是哪一?个|是什么|是谁|$)",
    rf"(?:哪个|哪一个|哪种)\s*(?P<zhgroup>{_ZH_NAME}{{1,6}}?)\s*的",
)
_ZH_RANK = either("最(?P<top>高|多|大)", "最(?P<low>低|少|小)")
_CONDITION = either(
    rf"\b(?:where|when|with|for(?: only)?|only(?: for)?)\s+(?:the\s+)?(?:column\s+)?(?P<name>{_NAME})"
    rf"\s*(?:\bis\b|\bequals\b|==?)\s*(?P<value>[{QUOTE}]|[\w.-]+)",
    rf"(?:只看|仅|仅看|当|其中)?\s*(?P<zhname>{_ZH_NAME}{{1,6}}?)\s*(?:为|等于|==?|是(?!多少|什么|哪))"
    rf"\s*(?P<zhvalue>[{QUOTE}]|[A-Za-z0-9_.-]+|[\u4e00-\u9fff]{{1,8}}?)\s*(?:时)?的",
)
_SINGLE = either(
    "price|rate|age|score|grade|rating|temperature|height|weight|speed", "价|率|分数|成绩|年龄|温度|评分|身高|体重"
)
"""Columns whose highest value means one cell, where `the highest amount` of a group means its total."""
_FILE = either(
    rf"\b(?:in|of|from|for|across|on|using|within|over)\s+(?:the\s+)?(?:csv\s+)?(?:file\s+|table\s+)?([{PATH}])",
    rf"在?\s*(?:文件\s*)?([{PATH}])\s*(?:文件)?\s*(?:里面|之?中|里|内)?\s*的?",
)
_SOME_CSV = either(
    r"在?这?个?\s*csv\s*文件\s*(?:里面|之?中|里|内)?的?", r"\b(?:in|of|from)?\s*(?:the|a|my|this)?\s*csv(?:\s+file)?\b"
)
_TABLE_WORDS = f"""
    {COMMON} what's whats how_much columns? fields? values? numbers? figures? calculate compute work_out
    figure_out determine find get give show tell report together overall add sum up out sorted know csv file table
    data see s entries_in list
"""
_ZH_TABLE_WORDS = f"""
    {ZH_COMMON} 统计 计算 找出 找到 找 某一列 某一 某列 某个 算出 算一下 算算 一共有? 共有 总共 有 共 算 求出
    求 得到 得出 查看 看看 看 给出 告诉 显示 列出 知道 分别 各自 所有 全部 每一?行 是多少 多少 为 列 字段 数值
    数据 按 值
"""
_FILLERS = words(_TABLE_WORDS, _ZH_TABLE_WORDS)
_JOIN = either(r"\s+(?:and|&)\s+", r"\s*[,、，]\s*", r"\s*(?<![总求])和\s*")
_STRAY = words("in on at from between to with than if when who why")
_ASKS = either(
    r"^\s*(?:please\s+)?(?:total|sum|average|mean|add up|calculate|compute)\b",
    r"\bcolumn\b|\btotal of\b|总和|求和|合计|平均",
)
_COLUMNS = either(
    r"\bcolumns?\b.*\b(?:are|does|has|have|is)\b",
    r"\b(?:what|which|list|show|describe)\b.*\bcolumns?\b",
    r"\bdescribe\b|\bheaders?\b|哪些列|哪些字段|有哪些列|列名|结构|描述",
)
_COLUMN_FILLERS = words(
    f"{_TABLE_WORDS} describe names? headers? rows? structure", f"{_ZH_TABLE_WORDS} 哪些 列名 结构 描述 文件 名"
)
Rank = Literal["", "highest", "lowest"]
_ROWS_ONLY: list[Operation] = ["count"]
_TOTAL: list[Operation] = ["sum"]
_EXTREME: dict[Rank, list[Operation]] = {"highest": ["max"], "lowest": ["min"]}


def is_table(path: str) -> bool:
    """Whether the file can be worked on as a CSV."""
    return path.lower().endswith((".csv", ".tsv"))


def read_table(clause: Clause, csv_known: bool) -> tuple[list[Column], str] | None:
    """Numbers of CSV columns that the clause asks for; None if it is about something else.

    `csv_known`: the goal names a CSV somewhere, so that a clause about `the average price` may be about it.
    """
    if any(not is_table(path) for path in clause.literals(PATH)):
        return None
    asks = bool(_ASKS.search(clause.text))
    paths = [clause.value(m[1] or m[2]) for m in clause.take_all(_FILE)]
    known = bool(clause.take(_SOME_CSV)) or bool(paths) or csv_known
    where = tuple(
        (clause.value(m["name"] or m["zhname"]), clause.value(m["value"] or m["zhvalue"]))
        for m in clause.take_all(_CONDITION)
    )
    groups, rank = _groups(clause)
    counted = _counts_rows(clause, paths, known)
    operations = _ROWS_ONLY if counted else _operations(clause)
    columns = [] if counted else _columns(clause)
    if rank and columns and columns[0].lower() in _ROW_NOUNS:
        operations, columns = _ROWS_ONLY, []
    if rank and not operations:
        operations = _EXTREME[rank] if columns and _SINGLE.search(columns[0]) else _TOTAL
    if not operations or columns is None or not (known or groups or asks):
        return None
    if not (columns or paths or asks) and {*operations} <= {"min", "max"}:
        return None  # the largest CSV file is a file
    made = [
        Column(operation, column, path, group, rank, where)
        for path in _or_none(paths)
        for column in _or_none(columns)
        for group in _or_none(groups)
        for operation in operations
    ]
    return made, clause.left(_FILLERS) if counted else ""


def _or_none(names: Sequence[str]) -> Sequence[str | None]:
    return names or [None]


def _groups(clause: Clause) -> tuple[list[str], Rank]:
    """Columns to group by, and whether one group, the highest or the lowest, is asked for."""
    if found := clause.take(_RANK):
        group = clause.value(found["group"] or found["zhgroup"] or found["zhlast"])
        if found["zhmost"]:
            return [group], "highest" if found["zhmost"] in "高多大" else "lowest"
        if found["rank"]:
            low = found["rank"].lower() in ("lowest", "least", "smallest", "fewest")
            return [group], "lowest" if low else "highest"
        ranked = clause.take(_ZH_RANK)
        return [group], "" if not ranked else "highest" if ranked["top"] else "lowest"
    found = clause.take(_GROUP)
    names = (found["name"] or found["zh"] or found["every"], found["more"]) if found else ()
    return [clause.value(name) for name in names if name], ""


def _counts_rows(clause: Clause, paths: list[str], known: bool) -> bool:
    """Whether rows are to be counted; then the words for it are taken."""
    found = _ROWS.search(clause.text)
    if not found or not known:
        return False
    noun = (found["noun"] or "rows").lower()
    stems = {path.rpartition("/")[2].rpartition(".")[0].lower().rstrip("s") for path in paths}
    if noun not in _ROW_NOUNS and noun.rstrip("s") not in stems:
        return False
    clause.take(_ROWS)
    return True


def _operations(clause: Clause) -> list[Operation]:
    names: list[Operation] = []
    for found in clause.take_all(_OPERATION):
        kind = (found.lastgroup or "").removeprefix("zh")
        if kind not in names:
            names.append(kind)  # type: ignore[arg-type]
    return names


def _columns(clause: Clause) -> list[str] | None:
    """The column names that are left when all else is taken; None if what is left is no name."""
    if _STRAY.search(
        re.sub(r"^\W*(?:in|from|with)\b|\b(?:in|from|to|with)\W*$", " ", clause.text.strip(), flags=re.IGNORECASE)
    ):
        return None
    names = []
    for part in _JOIN.split(clause.text):
        name = (
            clause.value(_FILLERS.sub(" ", part).strip(" :：?？!.'’"))
            if not re.search(ANY, part)
            else _quoted(clause, part)
        )
        name = " ".join(name.split())
        if len(name.split()) > 3:
            return None
        if name and name not in names:
            names.append(name)
    return names


def _quoted(clause: Clause, part: str) -> str:
    found = re.search(f"[{QUOTE}]", part)
    return clause.value(found[0]) if found else ""


def read_columns(clause: Clause) -> tuple[list[LookUp], str] | None:
    """Which columns a CSV has."""
    paths = clause.literals(PATH)
    if not paths or not all(is_table(path) for path in paths) or not _COLUMNS.search(clause.text):
        return None
    clause.take_all(_FILE)
    clause.take_all(re.compile(f"[{PATH}]"))
    return [Describe(path) for path in paths], clause.left(_COLUMN_FILLERS)
