"""Rules for documents and sums: reading and summarising a file, writing what was found, arithmetic."""

import re

from donewhen.agent.offline.clauses import Clause
from donewhen.agent.offline.intents import Calculate, Describe, Intent, LookUp, Mention, Read, Write
from donewhen.agent.offline.literals import LINK, PATH, QUOTE, SUM
from donewhen.agent.offline.table_words import is_table
from donewhen.agent.offline.vocabulary import COMMON, ZH_COMMON, either, words

_SUM_FILLERS = words(
    f"""
        {COMMON} what's whats calculate compute work_out evaluate solve how_much much find tell give value
        result answer equals? sum make s expression
    """,
    f"{ZH_COMMON} 计算 算一下 算出 算 求 等于 结果 多少 几 的值? 出 式子 = ＝",
)
_SUMMARY_WORDS = "summari[sz]e summary sum_up outline gist main_points key_points extract"
_ZH_SUMMARY_WORDS = "总结 概括 摘要 归纳 概述 要点"
_ZH_READ_WORDS = "读取 阅读 读一下 读下 读 打开 查看 看一下 看下 看看 看 显示 内容"
_READ = either(
    words(f"{_SUMMARY_WORDS} read open show print display view cat look_at see").pattern,
    r"\bwhat(?:'s| is| does| do| are)?\b.*\b(?:in|say|says|about|contents?)\b",
    words("", f"{_ZH_SUMMARY_WORDS} {_ZH_READ_WORDS}").pattern,
)
_SUMMARY = words(_SUMMARY_WORDS, _ZH_SUMMARY_WORDS)
_READ_FILLERS = words(
    f"""
        {COMMON} {_SUMMARY_WORDS} files? contents? text from read open show print display view cat look at see
        sum up main key points? give get what's says? about s short brief make write out tell on
    """,
    f"{ZH_COMMON} {_ZH_SUMMARY_WORDS} {_ZH_READ_WORDS} 文件 一份 简短 主要 写 说 什么 有 都",
)
_WRITE = either(
    r"\b(?:write|save|store|put|export|create|make|generate|produce|output|compile|prepare|dump|append|record|note)\b",
    r"\badd\b(?=.*\bto\b)|\breport\b(?=.*\bto\b)",
    "写入|写到|写进|写成|写|保存|存到|存入|存为|输出|导出|生成|创建|新建|追加|记录|添加",
)
_CALLED = r"(?:file\s+)?(?:called\s+|named\s+)?"
_TARGET = either(
    rf"\b(?:to|into|in|as|at|called|named|onto)\s+(?:the\s+|a\s+|an\s+)?(?:new\s+)?(?:markdown\s+|text\s+)?{_CALLED}([{PATH}])"
    rf"(?!.*\b(?:to|into|as)\s+[{PATH}])",
    "(?:写入到?|写到|写进|写成|保存[到为至在]?|存[到入为]|输出[到为]?|导出[到为]?|追加到|添加到|记录到|生成|创建|新建|写|到|为|至)"
    rf"\s*(?:一份|一个|新)?(?:的)?(?:报告|摘要|总结)?\s*(?:文件)?\s*([{PATH}])(?:\s*(?:文件)?\s*(?:里面|中|里|内))?",
    r"\b(?:write|create|make|generate|produce|prepare|report)\s+(?:a\s+|an\s+|the\s+)?(?:new\s+)?(?:short\s+)?"
    rf"(?:report\s+|summary\s+)?{_CALLED}([{PATH}])",
)
_PRODUCED = either(
    rf"(?:{_WRITE.pattern})(?:\s*(?:a|an|the|me)\b)*(?:\s*(?:short|brief)\b)?(?:\s*(?:report|result|findings?|file)s?\b)?"
    r"(?:\s*\b(?:of|on|about|with|for)\b)?(?:\s*(?:一份|一个|一篇))?(?:\s*(?:关于|有关))?",
    r"的?(?:报告|结果|文件)\s*$",
)
_PRODUCT = words(
    "reports? summar(?:y|ies) findings? results? answers? numbers? output", "报告 摘要 总结 结果 结论 概要"
)
_IS_SUMMARY = words("summar(?:y|ies)", "摘要 总结 概要 概括")
_APPEND = words("append add", "追加 添加")
_WRITE_FILLERS = words(
    f"""
        {COMMON} finally short brief simple small little nice markdown md text new files? reports?
        summar(?:y|ies) results? findings? answers? outcome output list numbers? totals? counts? them these
        those everything on about found from into as contents? line words? writes? save store put export create
        make generate produce compile prepare dump append add record note down out up one saying says called
        named overview both data information info steps above
    """,
    f"""
        {ZH_COMMON} 写入到? 写到 写进 写成 写出 写 保存 存到 存入 存为 存 输出 导出 生成 创建 新建 追加 添加
        记录 一份 一个 一篇 简短 简单 报告 摘要 总结 结果 结论 概要 内容 文件 上述 以上 这些 它们 它 所有 全部
        到 为 至 用 给 成 数字 列表 最后 名为 叫 行 一
    """,
)
_MENTION_FILLERS = words(
    "in from of using use with for on the this my file data table is are and it folder",
    "在 从 用 使用 对 文件 数据 表格? 是 里面 里 中 的 和 就 、 , ，",
)


def read_sum(clause: Clause) -> tuple[list[Intent], str] | None:
    """Arithmetic written out in figures."""
    found = clause.take_all(re.compile(f"[{SUM}]"))
    if not found:
        return None
    return [Calculate(clause.value(m[0])) for m in found], clause.left(_SUM_FILLERS)


def read_document(clause: Clause) -> tuple[list[LookUp], str] | None:
    """Reading or summarising files that are named."""
    if not _READ.search(clause.text):
        return None
    summarise = bool(_SUMMARY.search(clause.text))
    paths = [clause.value(m[0]) for m in clause.take_all(re.compile(f"[{PATH}]"))]
    if not paths or any(path.endswith("/") for path in paths):
        return None
    made: list[LookUp] = [Describe(path) if is_table(path) else Read(path, summarise) for path in paths]
    return made, clause.left(_READ_FILLERS)


def read_writing(clause: Clause) -> tuple[Write, Clause | None, str] | None:
    """What to write where; a clause with the look-up that it asks for besides, if any; words not understood."""
    if not _WRITE.search(clause.text):
        return None
    append = bool(_APPEND.search(clause.text))
    target = clause.take(_TARGET)
    product = _PRODUCT.search(clause.text)
    if not target and not product:
        return None
    path = clause.value(next(group for group in target.groups() if group)) if target else ""
    summary = bool(_IS_SUMMARY.search(clause.text))
    quoted = re.findall(f"[{QUOTE}]", clause.text)
    if target and quoted and not re.search(f"[{PATH}{LINK}]", clause.text):
        left = clause.left(re.compile(f"[{QUOTE}]|{_WRITE_FILLERS.pattern}", re.IGNORECASE))
        if not left:
            return Write(path, "text", "\n".join(clause.value(mark) for mark in quoted), append), None, ""
    left = clause.left(_WRITE_FILLERS)
    clause.take_all(_PRODUCED)
    write = Write(path or ("summary.md" if summary else "report.md"), "summary" if summary else "report", append=append)
    return write, (clause if left else None), left


def read_mention(clause: Clause) -> tuple[list[Mention], str] | None:
    """A file that is named and nothing else said of it."""
    paths = clause.take_all(re.compile(f"[{PATH}]"))
    if not paths:
        return None
    return [Mention(clause.value(m[0])) for m in paths], clause.left(_MENTION_FILLERS)
