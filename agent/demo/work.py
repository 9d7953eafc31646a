"""Work on a step as the demo model.

The code reads as if calls returned at once: it runs from its start in each round, and calls that were made before
return their results. The result of a step has all that the tools returned; a shortened list says that it is one.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from donewhen.agent.demo.goals import NOUNS, STEPS, Task, is_chinese, read_task

MOST_LINES = 50
"""Files, lines or groups that are shown."""
MOST_CHARS = 3000
"""The most characters of a result, all of which later steps and the delivery see."""
_HEAD = re.compile(r"\A\[(?P<id>[^\]\s]+)\] \S+ (?P<status>ok|error)\b[^\n]*\n?")
_SAME = (
    "amount 金额 销售额|region 地区 区域|product 产品 商品|date 日期|quantity 数量|price 价格|category 类别|name 名称"
)
"""Column names that mean the same in both languages."""


def call(name: str, **arguments: Any) -> AIMessage:
    """Return a reply that makes one call."""
    return AIMessage("", tool_calls=[{"type": "tool_call", "name": name, "args": arguments, "id": "1"}])


def section(brief: str, tag: str) -> str:
    """Return the text of the first section of this tag; "" if there is none."""
    match = re.search(rf"^<{tag}(?: [^>\n]*)?>\n?(.*?)\n?</{tag}(?: \w+)?>", brief, re.DOTALL | re.MULTILINE)
    return match[1].strip() if match else ""


def results(brief: str) -> list[tuple[str, str]]:
    """Return the step and text of every result in the brief; their tags carry the run's fence."""
    matches = re.finditer(r'^<result (\w+) step="([^"]+)">\n(.*?)\n</result \1>', brief, re.DOTALL | re.MULTILINE)
    return [(each[2], each[3]) for each in matches]


class Deferred(Exception):
    """Ends the work of this round with a reply: a call that has to be made first, or the decision to give up."""


def give_up(reason: str) -> Deferred:
    """Return the exception that gives up the step."""
    return Deferred(call("give_up", reason=reason, kind="failed"))


@dataclass(frozen=True)
class ToolReply:
    """A tool's result: the observation's id and its text."""

    id: str
    text: str

    def evidence(self, text: str = "") -> dict[str, str]:
        """Return evidence that cites this observation, with a quote from it."""
        return {"observation": self.id, **({"quote": text} if text else {})}


@dataclass(frozen=True)
class Notebook:
    """The step's brief, and the rounds so far: calls and their results."""

    brief: str
    rounds: Sequence[BaseMessage]
    tools: set[str]
    chinese: bool

    def say(self, english: str, chinese: str) -> str:
        """Return the text in the language of the step."""
        return chinese if self.chinese else english

    def replies(self, name: str) -> list[tuple[dict[str, Any], str]]:
        """Return the arguments and the reply of each call of a tool, in order."""
        texts = {m.tool_call_id: str(m.text) for m in self.rounds if isinstance(m, ToolMessage)}
        calls = [each for m in self.rounds if isinstance(m, AIMessage) for each in m.tool_calls if each["name"] == name]
        return [(each["args"], texts[each["id"] or ""]) for each in calls if (each["id"] or "") in texts]

    def call(self, name: str, **arguments: Any) -> ToolReply:
        """Return the result of a call. Raises Deferred if the call was not made yet, or failed."""
        if name not in self.tools:
            raise give_up(f"The tool {name} is not offered here.")
        for earlier, text in self.replies(name):
            if earlier == arguments:
                head = _HEAD.match(text)
                if not head or head["status"] != "ok":
                    raise give_up(_body(text).strip().split("\n")[0][:500])
                return ToolReply(head["id"], _body(text))
        raise Deferred(call(name, **arguments))

    def find_items(
        self, name: str, count: str, rows: str, **arguments: Any
    ) -> tuple[ToolReply, str, list[dict[str, str]]]:
        """Return how many items a tool found, and those listed. Raises Deferred if it did not list all."""
        seen = self.call(name, limit=MOST_LINES, **arguments)
        try:
            result = json.loads(seen.text, parse_float=str, parse_int=str)
        except ValueError:
            raise give_up(self.say("The demo model cannot read this result.", "演示模型读不懂这个结果。")) from None
        if result.get("note"):
            raise give_up(result["note"])
        return seen, result[count], result[rows]

    def list_lines(self, title: str, count: str, lines: list[str]) -> str:
        """Return a title and the lines below it; it says so where these are not all."""
        while sum(map(len, lines)) > MOST_CHARS:
            lines = lines[:-1]
        if str(len(lines)) != count:
            title += self.say(f", the first {len(lines)} of {count}", f"，共 {count}，只列前 {len(lines)}")
        return "\n".join([title + (self.say(":", "：") if lines else ""), *(f"- {line}" for line in lines)])


def _body(text: str) -> str:
    """Return what the tool returned, without the line above it and the marks around it."""
    lines = _HEAD.sub("", text).split("\n")
    if opened := re.match(r"<(\w+)[^>]*>\Z", lines[0]):
        ends = [n for n, line in enumerate(lines) if line.startswith(f"</{opened[1]}")]
        lines = lines[1 : ends[-1] if ends else None]
    return "\n".join(lines)


def work(brief: str, rounds: Sequence[BaseMessage], tools: set[str]) -> AIMessage:
    """Return the next call of a step: a tool, a question, its end, or giving up with the reason."""
    text, criteria = section(brief, "step"), section(brief, "done_when")
    notes, task = Notebook(brief, rounds, tools, is_chinese(text)), read_task(text)
    try:
        if task is None:
            raise give_up(notes.say(f"The demo model does not understand “{text}”.", f"演示模型看不懂“{text}”。"))
        if refusals := notes.replies("finish_step"):
            _, reply = refusals[-1]
            problems = [line.removeprefix("- ") for line in reply.splitlines() if line.startswith("- ")]
            raise give_up(("; ".join(problems) or reply)[:500])
        wanted = STEPS[task.kind][notes.chinese][1:]
        numbers = re.findall(r"^\d+\. ", criteria, re.MULTILINE)
        if len(numbers) != len(wanted) or any(text not in criteria for text in wanted):
            raise give_up(
                notes.say("The demo model can only prove its own criteria.", "演示模型只能证明自己写的条件。")
            )
        result, *proofs = _WORK[task.kind](task, notes)
    except Deferred as deferred:
        return cast(AIMessage, deferred.args[0])
    goal_check = [{"criterion": n, "met": True, "evidence": proof} for n, proof in enumerate(proofs, 1)]
    return call("finish_step", result=result, goal_check=goal_check)


StepResult = tuple[Any, ...]
"""The result of a step, and for each of its criteria the evidence."""


def _list_files(task: Task, notes: Notebook) -> StepResult:
    where = {"path": task.path} if task.path else {}
    seen, count, rows = notes.find_items("list_files", "count", "files", pattern=task.what or "**/*", **where)
    kind, paths = f"{task.what} " if task.what else "", [row["path"] for row in rows]
    title = notes.say(f"{count} {kind}file{'s' * (count != '1')}", f"{count} 个 {kind}文件")
    quotes = [f'"count": {count}', *paths[:5]]
    return notes.list_lines(title, count, paths), [seen.evidence(quote) for quote in quotes]


def _find_text(task: Task, notes: Notebook) -> StepResult:
    where = {"path": task.path} if task.path else {}
    seen, count, rows = notes.find_items("find_text", "matches_total", "matches", query=task.what, **where)
    title = notes.say(f"{count} line{'s' * (count != '1')} with “{task.what}”", f"{count} 行包含“{task.what}”")
    lines = [f"{row['path']}:{row['line']}: {row['text'][:200]}" for row in rows]
    return notes.list_lines(title, count, lines), [seen.evidence(f'"matches_total": {count}')]


def _read_file(task: Task, notes: Notebook) -> StepResult:
    seen = notes.call("read_file", path=task.path, limit=MOST_CHARS)
    shown = seen.text.strip("\n")
    if more := re.search(r"\[more follows, the file has (\d+) bytes;[^\n]*\]\Z", shown):
        shown = shown[: more.start()] + notes.say(f"(the beginning of {more[1]} bytes)", f"（{more[1]} 字节的开头）")
    first = next((line.strip() for line in shown.splitlines() if line.strip()), "")
    return f"{task.path}{notes.say(':', '：')}\n{shown}", [seen.evidence(first[:100])]


def _write_report(task: Task, notes: Notebook) -> StepResult:
    parts = [text for _, text in results(notes.brief)]
    if not parts or any("characters left out" in text for text in parts):
        raise give_up(notes.say("The results cannot be seen in full.", "看不到完整的结果。"))
    goal = " ".join(section(notes.brief, "goal").split())
    text = "\n\n".join([notes.say("# Report", "# 报告"), f"> {goal}", *parts]) + "\n"
    written = notes.call("write_file", path=task.path, content=text)
    seen = notes.call("read_file", path=task.path, limit=len(text) + 1)
    if seen.text.strip() != text.strip():
        raise give_up(notes.say("The file is not what was written.", "文件与写入的内容不同。"))
    quotes = [seen.evidence(part.strip().splitlines()[-1]) for part in parts]
    return notes.say(f"The results are in {task.path}.", f"结果在 {task.path} 中。"), [written.evidence()], quotes


def _query_data(task: Task, notes: Notebook) -> StepResult:
    """Return a column's value, or the number of rows, as a whole or by group; it says if empty cells are left out."""
    seen = notes.call("describe_data", path=task.path)
    columns = dict(re.findall(r'^- "((?:[^"]|"")+)" ([^\n]*)', seen.text, re.MULTILINE))
    by, what = (_find_column(word, list(columns), task, notes) if word else "" for word in (task.by, task.what))
    if what and ("NOTE:" in columns[what] or columns[what].startswith("VARCHAR")):
        kind = columns[what].partition("; NOTE:")[0][:200]
        only = notes.say("The demo model calculates only with certain numbers", "演示模型只会计算确定的数字")
        raise give_up(f"{only}: {what}, {kind}")
    value, table = "count(*) AS value", "'" + task.path.replace("'", "''") + "'"
    if what:
        value = f"{task.operation}({_quote_name(what)}) AS value, count(*) - count({_quote_name(what)}) AS empty"
    sql = f"SELECT {value}, 1 AS groups FROM {table}"
    if by:
        sql = f"SELECT {_quote_name(by)} AS key, {value}, count(*) OVER () AS groups FROM {table} GROUP BY 1"
        sql += f" ORDER BY value DESC NULLS LAST, key LIMIT {MOST_LINES}"
    seen = notes.call("query_data", sql=sql)
    rows = _parse_rows(seen, notes)
    noun = NOUNS[task.operation][notes.chinese] if what else notes.say("rows", "数据行数")
    title = notes.say(f"{noun} {what}".strip().capitalize(), f"{what}{'的' * bool(what)}{noun}")
    title += notes.say(f" in {task.path}", f"（{task.path}）") + (notes.say(f" by {by}", f"，按 {by}") if by else "")
    if any(row.get("empty", "0") != "0" for row in rows):
        title += notes.say(", without empty cells", "，不含空值")
    if not by:
        return f"{title}: {rows[0]['value']}", [seen.evidence(rows[0]["value"])]
    lines = [f"{row['key']}: {row['value']}" for row in rows]
    quotes = [seen.evidence(f"{row['key']} | {row['value']}") for row in rows[:10]]
    return notes.list_lines(title, rows[0]["groups"], lines), quotes


def _quote_name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _parse_rows(seen: ToolReply, notes: Notebook) -> list[dict[str, str]]:
    """Return the rows of a query's result, all of them."""
    names, *lines = [line.split(" | ") for line in seen.text.strip().splitlines()]
    end = lines.pop() if lines else []
    if not lines or end != [f"({len(lines)} rows)"] or any(len(line) != len(names) for line in lines):
        raise give_up(notes.say("The demo model cannot read this result.", "演示模型读不懂这个结果。"))
    return [dict(zip(names, line, strict=True)) for line in lines]


def _find_column(word: str, columns: list[str], task: Task, notes: Notebook) -> str:
    """Return the column that the word means; ask the user if no name decides it."""
    synonyms = next((names.split() for names in _SAME.split("|") if _fold(word) in names.split()), [])
    for names in ([word], [_fold(word)], synonyms):
        matching = [column for column in columns if column in names or _fold(column) in names]
        if len(matching) == 1:
            return matching[0]
    question = notes.say(f"Which column of {task.path} is “{word}”?", f"{task.path} 的哪一列是“{word}”？")
    answers = [reply for arguments, reply in notes.replies("ask_user") if arguments.get("question") == question]
    if not answers:
        raise Deferred(call("ask_user", question=question, options=columns[:20]))
    answer = _fold(_body(answers[0]))
    matching = [column for column in columns if _fold(column) == answer]
    if not matching:
        raise give_up(notes.say(f"{task.path} has no such column.", f"{task.path} 没有这一列。"))
    return matching[0]


def _fold(text: str) -> str:
    """Return a name without case, plural and the characters that join its words, to compare it."""
    return re.sub(r"[\s_-]+", " ", text).strip().casefold().rstrip("s")


_WORK = {
    "count": _list_files,
    "list": _list_files,
    "rows": _query_data,
    "value": _query_data,
    "read": _read_file,
    "search": _find_text,
    "report": _write_report,
}
