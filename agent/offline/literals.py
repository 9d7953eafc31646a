"""What stands literally in a sentence (paths, patterns, quotes, arithmetic), kept apart from its words.

Each literal becomes one private-use character, so that rules about words never cut a path or a quote in two.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from donewhen.agent.offline.vocabulary import words

PATH, QUOTE, GLOB, SUM, LINK = "\ue000-\ue1ff", "\ue200-\ue3ff", "\ue400-\ue5ff", "\ue600-\ue7ff", "\ue800-\ue9ff"
"""Ranges of stand-ins, for use inside a character class: the stand-in tells what kind of literal it is."""
ANY = f"[{PATH}{QUOTE}{GLOB}{SUM}{LINK}]"
ROOM = 512
_EXTENSION = words(
    """
    py md txt csv tsv jsonl? ya?ml toml xml html css jsx? tsx? java go rs rb sh sql log pdf c h cpp ini cfg ipynb png
    jpg svg xlsx? docx? rst tex lock
    """
)
_ABBREVIATIONS = {"e.g", "i.e", "a.m", "p.m"}
_BARE_NAMES = "README|LICENSE|LICENCE|NOTICE|Makefile|Dockerfile|CHANGELOG|CONTRIBUTING|AUTHORS"
_ZH_WORDS = re.compile(
    "^(?:统计|计算|汇总|读取|阅读|总结|概括|打开|查看|列出|查找|搜索|描述|写入|写到|写成|写|保存|存|输出|导出|生成|创建|新建|追加|"
    "文件|报告|结果|摘要|内容|一份|一个|一下|请|帮我|然后|并|再|把|将|在|从|对|到|为|至|用|给|和|与|里|中|的|读|求|看)+"
)

_LINK = re.compile(r"(?:\b(?:https?|ftp)://|\bwww\.)[^\s<>\"'，。；）]+", re.IGNORECASE)
_QUOTES = re.compile(
    r"“([^”\n]+)”|「([^」\n]+)」|『([^』\n]+)』|\"([^\"\n]+)\"|`([^`\n]+)`|(?<!\w)'([^'\n]+)'(?!\w)|‘([^’\n]+)’(?!\w)"
)
_WORDED = (
    (re.compile(r"(\d+(?:\.\d+)?)\s*% of (\d+(?:\.\d+)?)"), r"\1/100*\2"),
    (re.compile(r"(\d+(?:\.\d+)?)\s*的\s*(\d+(?:\.\d+)?)\s*%"), r"\2/100*\1"),
    (re.compile(r"(?<=[\d)])\s*(?:times|multiplied by|乘以|乘|×)\s*(?=[\d(-])"), "*"),
    (re.compile(r"(?<=[\d)])\s*(?:divided by|除以|÷)\s*(?=[\d(-])"), "/"),
    (re.compile(r"(?<=[\d)])\s*(?:plus|加上|加)\s*(?=[\d(-])"), "+"),
    (re.compile(r"(?<=[\d)])\s*(?:minus|减去|减|−)\s*(?=[\d(-])"), "-"),
)
_TERM = r"[-+]?(?:(?:sqrt|abs|round|floor|ceil|log|exp|sin|cos|tan)?\()*[-+]?\d+(?:[.,]\d+)*\)*"
_SUM = re.compile(
    rf"(?<![A-Za-z0-9_.*/]){_TERM}(?:\s*(?:\*\*|//|[-+*/%^])\s*{_TERM})+(?![A-Za-z0-9_])|(?<![A-Za-z0-9_])(?:sqrt|abs)\(\d+(?:\.\d+)?\)"
)
_DATE = re.compile(r"\d{4}[-/]\d{1,2}(?:[-/]\d{1,2})?|\d{1,2}[-/]\d{1,2}[-/]\d{2,4}")
_GLOB = re.compile(r"[A-Za-z0-9_./\-]*\*[A-Za-z0-9_./*\-]*(?<![.])")
_ASCII_PATH = r"(?:\.{1,2}/|~/|/)?(?:[A-Za-z0-9_.@+\-]+/)*[A-Za-z0-9_@+\-][A-Za-z0-9_.@+\-]*\.[A-Za-z][A-Za-z0-9]{0,7}"
_PATH = re.compile(
    rf"(?<![A-Za-z0-9_.@+\-/]){_ASCII_PATH}(?![A-Za-z0-9/])|(?<![A-Za-z0-9_./])(?:[\w.-]+/)*(?:{_BARE_NAMES})(?![A-Za-z0-9_.])"
)
_ZH_PATH = re.compile(r"[\u4e00-\u9fff\w/-]*[\u4e00-\u9fff][A-Za-z0-9_-]*\.[A-Za-z][A-Za-z0-9]{0,5}(?![A-Za-z0-9])")
_QUOTED_PATH = re.compile(r"[^*?\s]+(?: [^*?\s]+){0,2}\.[A-Za-z][A-Za-z0-9]{0,7}")
_DOTTED = re.compile(r"(?<![A-Za-z0-9_.*/])\.([A-Za-z][A-Za-z0-9]{0,11})(?![A-Za-z0-9_/])")
_FOLDER = re.compile(r"(?<![A-Za-z0-9_.])(?:\.{0,2}/)?(?:[A-Za-z0-9_.@+\-]+/)+(?![A-Za-z0-9_.*])|(?<!\S)\.(?=\s|$)")
_CJK_EDGE = re.compile(r"(?<=[\u4e00-\u9fff])(?=[A-Za-z])|(?<=[A-Za-z0-9])(?=[\u4e00-\u9fff])")


@dataclass(frozen=True)
class Sentence:
    """A sentence with stand-ins in `text`, and what they stand for in `values`."""

    text: str
    values: dict[str, str]

    def spell(self, text: str) -> str:
        """Words with their literals put back, quotes in quotation marks."""
        return re.sub(ANY, lambda m: f"“{self.values[m[0]]}”" if _is_quote(m[0]) else self.values[m[0]], text)


def _is_quote(mark: str) -> bool:
    return "\ue200" <= mark <= "\ue3ff"


def protect(sentence: str) -> Sentence:
    """The sentence with every literal replaced by its stand-in."""
    values: dict[str, str] = {}
    used: dict[str, int] = {}

    def stand_in(value: str, span: str) -> str:
        number = used.get(span, 0)
        if number >= ROOM:
            return value
        used[span] = number + 1
        mark = chr(ord(span[0]) + number)
        values[mark] = value
        return mark

    text = re.sub("[\ue000-\uf8ff]", "", sentence)
    text = _LINK.sub(lambda m: stand_in(m[0], LINK), text)
    text = _QUOTES.sub(lambda m: _quoted(m, stand_in), text)
    for spoken, sign in _WORDED:
        text = spoken.sub(sign, text)
    text = _SUM.sub(lambda m: _arithmetic(m[0], stand_in), text)
    text = _GLOB.sub(lambda m: stand_in(m[0], GLOB), text)
    text = _ZH_PATH.sub(lambda m: _chinese(m[0], stand_in), text)
    text = _PATH.sub(lambda m: m[0] if m[0].lower() in _ABBREVIATIONS else stand_in(m[0], PATH), text)
    text = _DOTTED.sub(lambda m: stand_in(*_extension(m[0])), text)
    text = _FOLDER.sub(lambda m: stand_in(m[0], PATH), text)
    return Sentence(_CJK_EDGE.sub(" ", text), values)


StandIn = Callable[[str, str], str]


def _quoted(found: re.Match[str], stand_in: StandIn) -> str:
    inner = next(group for group in found.groups() if group is not None)
    if "*" in inner and re.fullmatch(r"[\w./*\-]+", inner) and "." in inner:
        return stand_in(inner, GLOB)
    return stand_in(inner, PATH if _QUOTED_PATH.fullmatch(inner) else QUOTE)


def _arithmetic(text: str, stand_in: StandIn) -> str:
    if _DATE.fullmatch(text):
        return text
    expression = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text).replace("^", "**")
    while expression.endswith(")") and expression.count(")") > expression.count("("):
        expression = expression[:-1]
    return stand_in(expression, SUM) if expression.count("(") == expression.count(")") else text


def _chinese(text: str, stand_in: StandIn) -> str:
    """A path in a run of Chinese without spaces: `把报告写到report.md`, `统计销售.csv`."""
    stem, dot, extension = text.rpartition(".")
    latin = re.search(r"[A-Za-z0-9_/-]*$", stem)
    if latin and re.match(r"[A-Za-z]", latin[0]):
        return text[: latin.start()] + stand_in(text[latin.start() :], PATH)
    words = _ZH_WORDS.match(stem)
    start = words.end() if words and words.end() < len(stem) else 0
    return stem[:start] + stand_in(stem[start:] + dot + extension, PATH)


def _extension(dotted: str) -> tuple[str, str]:
    return (f"*{dotted.lower()}", GLOB) if _EXTENSION.fullmatch(dotted[1:]) else (dotted, PATH)
