"""Read goals of the demo, in English and Chinese: a goal becomes tasks, and each task a step of the plan.

A sentence is understood as a whole, or declined. The text of a step is such a sentence, so it can be read back.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

TaskKind = Literal["count", "list", "rows", "value", "read", "search", "report"]
# fmt: off
STEPS: dict[TaskKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "count": (("Count the {files}files{place}", "The number of these files is stated"),
              ("统计{place}{files}文件的数量", "已给出这些文件的数量")),
    "list": (("List the {files}files{place}", "The files are listed"), ("列出{place}{files}文件", "已列出这些文件")),
    "rows": (("Count the rows in {path}{group}", "The number of rows is stated"),
             ("{group}统计 {path} 的数据行数", "已给出行数")),
    "value": (("Find the {noun} {what} in {path}{group}", "The value is stated"),
              ("{group}统计 {path} 的{what}的{noun}", "已给出数值")),
    "read": (("Read {path} and show it", "The text is shown"), ("读取 {path} 并显示", "已显示内容")),
    "search": (('Search {where} for "{what}"', "The number of lines with it is stated"),
               ("在{where}中搜索“{what}”", "已给出包含它的行数")),
    "report": (("Write the results to {path}", "The file exists", "The file holds the results"),
               ("把结果写到 {path}", "文件已存在", "文件中有这些结果")),
}
"""The text of a step and its criteria, in both languages."""
TOOLS: dict[TaskKind, list[str]] = {
    "count": ["list_files"], "list": ["list_files"], "search": ["find_text"], "read": ["read_file"],
    "rows": ["describe_data", "query_data"], "value": ["describe_data", "query_data"],
    "report": ["write_file", "read_file"],
}
NOUNS = {
    "sum": ("total", "总和"), "avg": ("average", "平均值"), "max": ("highest", "最高值"), "min": ("lowest", "最低值"),
}
# fmt: on


@dataclass(frozen=True)
class Task:
    """One task: on a file or folder (`path`), about some files, a column or a text (`what`), grouped (`by`)."""

    kind: TaskKind
    path: str = ""
    what: str = ""
    by: str = ""
    operation: str = ""


MOST_CHARS = 500
"""The most characters of a sentence. White space in it is a single space."""
_KINDS = {"python": "py", "markdown": "md", "text": "txt", "文本": "txt", "javascript": "js"}
_KINDS |= {name: name for name in ("py", "md", "csv", "tsv", "json", "txt", "html", "js", "toml", "yaml", "log", "sql")}
_REPORTS = (".md", ".txt")
_DATA = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson")
_OPERATIONS = {
    "sum": "total|sum|总和|合计|总计|总额|汇总|加总|求和",
    "avg": "average|mean|平均值|平均数|均值|平均",
    "max": "maximum|max|highest|largest|biggest|最大值|最高值|最大|最高",
    "min": "minimum|min|lowest|smallest|最小值|最低值|最小|最低",
}
_STOP = (
    "in of by per from for with where and or to than each every all only not without except over under above below "
    "after before since between during last first this that if when their its his her it"
)
_QUOTED = r"\"[^\"]+\"|“[^”]+”|「[^」]+」|`[^`]+`|'[^']+'"
_WORD = rf"(?!(?:{_STOP.replace(' ', '|')})\b)[\w-]+"
_COLUMN = rf"(?:{_QUOTED}|{_WORD}(?: {_WORD}){{0,2}})"
_COLUMN_ZH = rf"(?:{_QUOTED}|[^\s的按,，。、和与及“”\"]{{1,16}}?)"
_FILE = rf"(?P<path>{_QUOTED}|[^\s,;:，；。、“”\"'`*]{{1,200}}?\.[A-Za-z]\w{{0,7}})"
_FILES = rf"(?:(?:\*?\.)?(?P<what>{'|'.join(_KINDS)}) ?)?"
_FOLDER = r"(?:\./)?(?P<path>[\w-]+(?:/[\w-]+)*)"
_HERE = rf"(?: in (?:this|the current) folder| (?:in|under) (?:the )?(?:folder |directory )?{_FOLDER}/?(?: folder)?)?"
_HERE_ZH = r"(?:在? ?(?P<path>[A-Za-z0-9_./-]{1,200}?)/? ?(?:文件夹|目录)? ?(?:中|里面?|下) ?的? ?)?"
_OPERATION = f"(?P<op>{'|'.join(_OPERATIONS.values())})"
_BY = rf"(?:grouped )?(?:by|per|for each|for every) (?:the )?(?P<by>{_COLUMN})"
_LEAD = r"(?:(?:find|compute|calculate|get|show|state|tell me|show me|give me|what is|what's|work out) )?(?:the )?"
_WHERE = rf"(?:{_FILE}|(?:all )?(?:the |my )?files|this folder)"
_SOUGHT = rf"(?:(?:the )?(?:word|text|phrase) (?P<what>{_QUOTED}|[\w-]+)|(?P<what2>{_QUOTED}|(?-i:[A-Z_]{{2,}})))"
_IN = r" ?(?:中|里面?|文件)? ?的? ?"
_GROUP = rf"(?:按照?|根据) ?(?P<by>{_COLUMN_ZH}) ?(?:分组|来|进行)? ?"
_EACH = rf"(?:按照?|各个?|每个|不同) ?(?P<by>{_COLUMN_ZH}) ?(?:分组|统计|汇总)? ?的? ?"
_VERB = r"(?:计算|统计|求出?|算出|得出|查看|看看|找出)? ?"
_RESULTS = "(?:results?|totals?|sums?|averages?|counts?|numbers?|figures|values?|list)"
_WRITTEN = r"(?:写(?:入|到|进|在)?|保存(?:到|为|在|成)?|存(?:到|入|为))"

# fmt: off
_SENTENCES: tuple[tuple[TaskKind, str], ...] = (
    ("count", rf"(?:count|how many|(?:count|find|get|state|tell me) the number of|count how many)(?: all)?(?: of)?"
              rf"(?: the)? {_FILES}files?(?: are there| there are| are)?{_HERE}(?: are there| there are)?"),
    ("count", rf"(?:统计|计算|数一?数?)? ?(?:一下|所有|全部)?的? ?{_HERE_ZH}{_FILES} ?文件 ?的?(?:数量|个数)"),
    ("count", rf"(?:统计|计算|数|看看)? ?(?:一下)? ?{_HERE_ZH}(?:一?共?有多少|有几)个? ?{_FILES} ?文件"),
    ("count", rf"{_FILES} ?文件 ?一?共?有(?:多少|几)个?"),
    ("list", rf"(?:list|show|find|name)(?: me)?(?: all)?(?: of)?(?: the)? {_FILES}files{_HERE}"),
    ("list", rf"(?:列出|列举|显示|找出) ?{_HERE_ZH}(?:所有|全部)?的? ?{_FILES} ?文件"),
    ("rows", rf"(?:count|how many)(?: the number of)?(?: the)? rows(?: are there)? (?:in|of) {_FILE}(?: {_BY})?"),
    ("rows", rf"(?:{_GROUP})?(?:统计|计算|数) ?(?:一下)? ?{_FILE}{_IN}(?:数据)?行数"),
    ("value", rf"{_LEAD}{_OPERATION} (?:up )?(?:of )?(?:the )?(?P<what>{_COLUMN}) (?:in|of|from) {_FILE}(?:,? {_BY})?"),
    ("value", rf"{_LEAD}{_OPERATION} (?:up )?(?:of )?(?:the )?(?P<what>{_COLUMN}) {_BY} (?:in|of|from) {_FILE}"),
    ("value", rf"(?:{_GROUP})?(?P<op>汇总|合计|加总|求和) ?{_FILE}{_IN}(?P<what>{_COLUMN_ZH})"),
    ("value", rf"(?P<op>汇总|合计|加总|求和) ?{_FILE}{_IN}{_EACH}(?P<what>{_COLUMN_ZH})"),
    ("value", rf"(?:{_GROUP})?{_VERB}{_FILE}{_IN}(?P<what>{_COLUMN_ZH}) ?的? ?{_OPERATION}"),
    ("value", rf"{_VERB}{_FILE}{_IN}{_EACH}(?P<what>{_COLUMN_ZH}) ?的? ?{_OPERATION}"),
    ("read", rf"(?:read|show|print|display|open)(?: me)?(?: the)?(?: (?:contents?|text) of)?(?: the)?(?: file)? {_FILE}"
             r"(?: to me| and (?:show|print|display)(?: me)?(?: it| its contents?)?)?"),
    ("read", rf"what does {_FILE} say"),
    ("read", rf"(?:读取?|读一下|显示|打印|查看|打开|看一下|看看) ?(?:文件)? ?{_FILE} ?(?:文件)?(?:的?(?:全部)?内容)?"
             r" ?(?:并且?)? ?(?:显示(?:出来|内容|它|给我看?)?)?"),
    ("search", rf"(?:search|look)(?: (?:in|through))?(?: {_WHERE})? for {_SOUGHT}"),
    ("search", rf"(?:search|look) for {_SOUGHT}(?: (?:in|through) {_WHERE})?"),
    ("search", rf"(?:search|look) for (?P<what>[\w-]+) (?:in|through) {_WHERE}"),
    ("search", rf"find (?:(?:all )?(?:the )?lines? (?:with|containing) )?{_SOUGHT}(?: in {_WHERE})?"),
    ("search", rf"(?:在 ?(?:{_FILE}|(?:所有|全部)?的?文件) ?(?:中|里面?)? ?)?"
               r"(?:搜索|查找|寻找|找) ?(?:包含)? ?(?:单词|词语?|文字|文本)? ?"
               rf"(?P<what>{_QUOTED}|[A-Za-z0-9_-]+)(?:的行)?"),
    ("report", rf"(?:write|save|put)(?: a| the| these)?(?: short)? (?:report|note|{_RESULTS}|everything|it|them)"
               rf"(?: (?:about|with|of|on) (?:it|this|that|them|the {_RESULTS}|everything))?"
               rf"(?: (?:to|into|in|as) (?:a (?:file|note|report) (?:called |named )?)?{_FILE})?"),
    ("report", rf"(?:把|将)? ?所?有? ?(?:报告|结果|笔记) ?{_WRITTEN} ?(?:文件)? ?{_FILE}(?: ?[中里])?"),
    ("report", rf"写 ?(?:一份|一个|一篇)? ?(?:报告|笔记)(?: ?(?:到|{_WRITTEN}|至)? ?(?:文件)? ?{_FILE})?"),
)
# fmt: on
_COMPILED = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _SENTENCES)
_THEN = re.compile(
    r" ?[,;.]? ?(?:\band )?\b(?:then|after that|afterwards|finally|lastly|next)\b ?,? ?| ?[;\n] ?|\. "
    r"|, (?:and )?| ?[，。；、]? ?(?:然后|接着|随后|最后|之后|并且|同时|再) ?[，,]? ?| ?[，。；] ?并? ?",
    re.IGNORECASE,
)
_AND = re.compile(r" and (?:also )?| ?(?:并|和) ?", re.IGNORECASE)
_POLITE = re.compile(
    r"^(?:(?:please|can you|could you|would you|now|first|also|请你?|帮我|麻烦你?|首先|先|还要?|另外|\d+[.)])"
    r" ?[,，]? ?)+"
    r"|(?: ?,? ?(?:please|for me|thanks|thank you|是多少))?[ .?!。？！]{0,20}$",
    re.IGNORECASE,
)


def read_goal(text: str) -> tuple[list[Task], str]:
    """Return the tasks of a goal in order, and ""; or no tasks, and the part that is not understood."""
    tasks: list[Task] = []
    spaced = "\n".join(filter(None, (" ".join(line.split()) for line in text.splitlines())))
    for part in filter(None, map(_strip_courtesy, _THEN.split(spaced))):
        tasks_of_part = _split_tasks(part)
        if not tasks_of_part:
            return [], part
        tasks += tasks_of_part
    return tasks, "" if tasks else text


def read_task(text: str) -> Task | None:
    """Return the one task that a sentence names, or None."""
    part = _strip_courtesy(text)
    for kind, pattern in _COMPILED:
        if (match := pattern.fullmatch(part)) and (task := _build_task(kind, match.groupdict())):
            return task
    return None


def _split_tasks(part: str) -> list[Task]:
    """Return the tasks of a sentence: one, or several joined by `and`."""
    if len(part) > MOST_CHARS:
        return []
    if task := read_task(part):
        return [task]
    for joint in _AND.finditer(part):
        first = read_task(part[: joint.start()])
        if first and (rest := _split_tasks(part[joint.end() :])):
            return [first, *rest]
    return []


def _strip_courtesy(text: str) -> str:
    return _POLITE.sub("", " ".join(text.split()))


def _build_task(kind: TaskKind, groups: dict[str, str | None]) -> Task | None:
    """Return the task; None if the demo cannot handle its kind of file."""
    path, by, word = _unquote(groups.get("path")), _unquote(groups.get("by")), (groups.get("op") or "").lower()
    what = _unquote(groups.get("what") or groups.get("what2"))
    operation = next((name for name, words in _OPERATIONS.items() if word in words.split("|")), "")
    if kind in ("count", "list"):
        what = f"*.{_KINDS[what.lower()]}" if what else ""
    if kind == "report":
        path = path or "report.md"
    endings = {"report": _REPORTS, "rows": _DATA, "value": _DATA}.get(kind, ("",))
    return Task(kind, path, what, by, operation) if path.lower().endswith(endings) else None


def _unquote(text: str | None) -> str:
    text = (text or "").strip()
    return text[1:-1] if re.fullmatch(_QUOTED, text) else text


def is_chinese(text: str) -> bool:
    """Return whether the answer should be in Chinese."""
    return bool(re.search("[\u4e00-\u9fff]", text))


def pick(chinese: bool, english: str, other: str) -> str:
    """Return the text in the language of the goal."""
    return other if chinese else english


def content(task: Task, chinese: bool) -> str:
    """Return the text of the step, which `read_task` reads back."""
    path, by = (f'"{text}"' if " " in text else text for text in (task.path, task.by))
    column = task.what if task.kind == "search" or " " not in task.what else f'"{task.what}"'
    return STEPS[task.kind][chinese][0].format(
        path=path,
        what=column,
        files=pick(chinese, f"{task.what} ", f" {task.what} ") if task.what else "",
        place=pick(chinese, f" in {path}", f" {path} 中的") if path else "",
        where=pick(chinese, path, f" {path} ") if path else pick(chinese, "the files", "文件"),
        group=pick(chinese, f" by {by}", f"按{by}") if by else "",
        noun=NOUNS[task.operation][chinese] if task.operation else "",
    )


def plan_arguments(title: str, tasks: list[Task], chinese: bool, checks: bool) -> dict[str, Any]:
    """Return the arguments of `submit_plan`. Only a report depends on others: on all tasks before it."""
    steps: list[dict[str, Any]] = []
    for number, task in enumerate(tasks, 1):
        done: list[Any] = list(STEPS[task.kind][chinese][1:])
        if task.kind == "report" and checks:
            check = {"tool": "file_exists", "arguments": {"path": task.path}, "expect": "ok"}
            done[0] = {"text": done[0], "check": check}
        before = [f"s{n}" for n, other in enumerate(tasks[: number - 1], 1) if other.kind != "report"]
        step = {"id": f"s{number}", "content": content(task, chinese), "done_when": done, "tools": TOOLS[task.kind]}
        steps.append({**step, "depends_on": before if task.kind == "report" else []})
    size = "simple" if len(steps) == 1 else "moderate"
    return {"title": title, "complexity": size, "need_thinking": False, "steps": steps}
