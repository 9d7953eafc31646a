"""Criteria whose truth a program can tell from the world, and what a judge may say of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from donewhen.agent.testing.script import claims_of
from donewhen.testing import audit

_NUMBERED = re.compile(r"^\d+\. ", re.MULTILINE)
_LINE = re.compile(r"(?P<path>.+?) contains the line: (?P<line>.+)", re.DOTALL)
_EXISTS = re.compile(r"(?P<path>.+?) exists")
_COUNT = re.compile(r"the folder (?P<path>.+?) holds (?P<count>\d+) files")
_USER = re.compile(r"the user said: (?P<said>.+)", re.DOTALL)
_TEXT = re.compile(r"the text mentions (?P<word>.+)", re.DOTALL)


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
    """The actual facts: the current folder, people's answers, and the step's text."""

    folder: Path
    answers: Sequence[str] = ()
    text: str = ""

    def holds(self, criterion: str) -> bool:
        """Return whether a criterion is true, read from the disk."""
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


def says_all(messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]]) -> Any:
    """A judge that doubts nothing."""
    return audit(count=_count(messages))


def doubts(messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]]) -> Any:
    """A judge that doubts all of it."""
    count = _count(messages)
    return audit(*((n, "no", "it is not so") for n in range(1, count + 1)), count=count, met="no")


def _count(messages: Sequence[BaseMessage]) -> int:
    return len(_NUMBERED.findall(claims_of(str(messages[1].text))))
