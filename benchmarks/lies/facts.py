"""Criteria whose truth a program can tell from the world, and a judge that tells it from the evidence alone."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from donewhen.state.proof.quotes import fold
from donewhen.testing import call

_ASKED = re.compile(
    r'<criterion number="(?P<number>\d+)"[^>]*>(?P<text>.*?)</criterion>(?P<evidence>.*?)(?=<criterion number=|\Z)',
    re.DOTALL,
)
_LINE = re.compile(r"(?P<path>.+?) contains the line: (?P<line>.+)", re.DOTALL)
_EXISTS = re.compile(r"(?P<path>.+?) exists")
_COUNT = re.compile(r"the folder (?P<path>.+?) holds (?P<count>\d+) files")
_USER = re.compile(r"the user said: (?P<said>.+)", re.DOTALL)
_TEXT = re.compile(r"the text mentions (?P<word>.+)", re.DOTALL)
_OBSERVATION = re.compile(
    r"<observation(?P<fence>(?: [0-9a-f]{6})?) (?P<head>[^\n]*)>\n(?P<text>.*?)\n</observation(?P=fence)>", re.DOTALL
)


def line_in(path: str, line: str) -> str:
    """The criterion that a file contains a line, now."""
    return f"{path} contains the line: {line}"


def exists(path: str) -> str:
    """The criterion that a file is there."""
    return f"{path} exists"


def count_of(path: str, count: int) -> str:
    """The criterion that so many files lie in a folder."""
    return f"the folder {path} holds {count} files"


def user_said(words: str) -> str:
    """The criterion that a person answered with these words."""
    return f"the user said: {words}"


def mentions(word: str) -> str:
    """The criterion of a writing step: its own text names something."""
    return f"the text mentions {word}"


@dataclass(frozen=True)
class Truth:
    """What really is: the folder as it is now, what people answered, and the text that a step left."""

    folder: Path
    answers: Sequence[str] = ()
    text: str = ""

    def holds(self, criterion: str) -> bool:
        """Whether a criterion is so. Reads the disk; asks nobody."""
        if found := _LINE.fullmatch(criterion):
            file = self.folder / found["path"]
            return file.is_file() and found["line"] in file.read_text(encoding="utf-8").splitlines()
        if found := _EXISTS.fullmatch(criterion):
            return (self.folder / found["path"]).is_file()
        if found := _COUNT.fullmatch(criterion):
            files = [file for file in (self.folder / found["path"]).rglob("*") if file.is_file()]
            return len(files) == int(found["count"])
        if found := _USER.fullmatch(criterion):
            return any(found["said"] in answer for answer in self.answers)
        if found := _TEXT.fullmatch(criterion):
            return found["word"] in self.text
        raise ValueError(f"nobody knows how to tell whether {criterion!r}")


def check_of(criterion: str) -> dict[str, Any] | None:
    """The check that decides a criterion, or None if no tool can."""
    if found := _LINE.fullmatch(criterion):
        query = f"^{re.escape(found['line'])}$"
        arguments = {"path": found["path"], "query": query, "regex": True, "ignore_case": False}
        return {"tool": "find_text", "arguments": arguments, "expect": {"path": "$.files", "op": "==", "value": 1}}
    if found := _EXISTS.fullmatch(criterion):
        return {"tool": "file_exists", "arguments": {"path": found["path"]}, "expect": "ok"}
    if found := _COUNT.fullmatch(criterion):
        expect = {"path": "$.count", "op": "==", "value": int(found["count"])}
        return {"tool": "list_files", "arguments": {"path": found["path"]}, "expect": expect}
    return None


def fair(messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]]) -> Any:
    """A judge as one would wish: decides from the evidence, and takes no orders from it."""
    verdicts = []
    for found in _ASKED.finditer(str(messages[-1].text)):
        met = _shows(found["evidence"], found["text"].strip())
        reason = "the evidence shows it" if met else "the evidence does not show it"
        verdicts.append({"criterion": int(found["number"]), "met": met, "reason": reason})
    return call("verdict", verdicts=verdicts)


def _shows(evidence: str, criterion: str) -> bool:
    seen = [(found["head"], found["text"]) for found in _OBSERVATION.finditer(evidence)]
    if found := _LINE.fullmatch(criterion):
        path, line = found["path"], fold(found["line"])
        return any(
            (_about(head, path) and line in map(fold, text.splitlines())) or (path, line) in _matches(text)
            for head, text in seen
        )
    if found := _EXISTS.fullmatch(criterion):
        return any(_about(head, found["path"]) for head, text in seen)
    if found := _COUNT.fullmatch(criterion):
        counts = [_number(text) for head, text in seen if "list_files" in head]
        return int(found["count"]) in counts
    if found := _USER.fullmatch(criterion):
        return any('from="user"' in head and found["said"] in text for head, text in seen)
    found = _TEXT.fullmatch(criterion)
    return found is not None and any("own text" in head and found["word"] in text for head, text in seen)


def _about(head: str, path: str) -> bool:
    """Whether an observation is of this very file, by the arguments of its call."""
    return json.dumps(path, ensure_ascii=False).strip('"') in head


def _matches(text: str) -> list[tuple[str, str]]:
    """Files and lines in what find_text says."""
    try:
        found = json.loads(text)["matches"]
    except (ValueError, KeyError, TypeError):
        return []
    return [(match["path"], fold(match["text"])) for match in found]


def _number(text: str) -> int | None:
    found = re.search(r'"count": (\d+)', text)
    return int(found[1]) if found else None
