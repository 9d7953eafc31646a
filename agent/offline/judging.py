"""The judge by words: a criterion is met if the evidence holds its figures, its names, and enough of its words."""

import re

from donewhen.agent.offline.decision import Decision, call
from donewhen.agent.offline.reading import Request
from donewhen.agent.offline.vocabulary import words

SHARE = 0.3
"""Of the criterion's plain words, how many the evidence has to hold."""
_FIGURE = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w.]*\d)")
_NAME = re.compile(r"[\w*-]+(?:[./_][\w*-]+)+|“[^”]+”|\"[^\"]+\"")
_WORD = re.compile(r"[A-Za-z][A-Za-z-]{2,}|[\u4e00-\u9fff]{2}")
_HAN = "[\u4e00-\u9fff]"
_TYPE = re.compile(r"\w+ ?(?:files?|文件) ?[(（](\*\.[\w*]+)[)）]")
"""`Python files (*.py)`: the pattern says it all."""
_COMMON = words(
    """
    the and are is for that with has have been was were this its from each every all any one not into holds? stated
    states given shown named listed found exists? made done when which number their than least
    """,
    "已给 给出 已列 列出 已指 指出 已存 存在",
)


def judge(request: Request) -> Decision:
    """The verdict on one criterion, from the evidence alone."""
    criterion = request.text("criterion")
    evidence = "\n".join(section.text for section in request.all("observation"))
    missing = lacking(criterion, evidence)
    reason = (
        f"the evidence does not show {', '.join(missing)}"
        if missing
        else "the evidence holds the criterion's figures and words"
    )
    return call("verdict", met=not missing, reason=f"By words only: {reason}.")


def supports(criterion: str, evidence: str) -> bool:
    """Whether the evidence holds the key figures, names and words of a criterion."""
    return not lacking(criterion, evidence)


def lacking(criterion: str, evidence: str) -> list[str]:
    """The key figures, names and words of a criterion that the evidence does not hold; [] if it holds enough."""
    seen, criterion = evidence.casefold(), _TYPE.sub(r" \1 ", criterion)
    names = [found.strip('“”"') for found in _NAME.findall(criterion)]
    figures = [f for f in _FIGURE.findall(criterion) if not any(f in name for name in names)]
    absent = [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d])", seen)]
    absent += [name for name in names if name.strip("*").casefold() not in seen]
    if absent:
        return absent
    readable = criterion if re.search(_HAN, evidence) else re.sub(_HAN, " ", criterion)
    key = [w for w in dict.fromkeys(w.lower() for w in _WORD.findall(readable)) if not _COMMON.fullmatch(w)]
    held = [word for word in key if word.removesuffix("s") in seen]
    if not evidence.strip() or (key and len(held) / len(key) < SHARE) or not (key or names or figures):
        return [word for word in key if word not in held] or [criterion]
    return []
