"""What a model is shown, read back: the role, the sections of the brief, and the rounds so far."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

Role = Literal["triage", "plan", "execute", "deliver", "judge", ""]
_ROLES: dict[str, Role] = {
    "you are the triage": "triage",
    "you are the planner": "plan",
    "you are the executor": "execute",
    "you write the answer": "deliver",
    "you are the judge": "judge",
}
_OPEN = re.compile(
    r"^<(?P<tag>[a-z_]+)(?P<fence> [0-9a-f]{6})?(?P<attributes>(?: [a-z_]+=\"[^\"\n]*\")*)>[ \t]*", re.MULTILINE
)
_ATTRIBUTE = re.compile(r'([a-z_]+)="([^"\n]*)"')
_HEAD = re.compile(r"\A\[(?P<id>[^\]\n]+)\] (?P<tool>\S+) (?P<status>ok|error)[^\n]*\n?")
_OUTPUT = re.compile(r"<tool_output(?P<fence>(?: [0-9a-f]{6})?)>\n?(?P<text>.*?)\n?</tool_output(?P=fence)>", re.DOTALL)
LEFT_OUT = re.compile(r"\n… [\d,]+ characters left out; recall\([^\n]*\) reads them …\n")
_CHECKED = re.compile(r" \(checked by the runtime: [^\n]*\)\Z")


@dataclass(frozen=True)
class Section:
    """One tagged section of a brief."""

    tag: str
    text: str
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What came of a call: an observation, or a correction."""

    text: str
    ok: bool = True
    id: str = ""
    """The observation's id; "" for a correction."""
    correction: bool = False
    bounded: bool = False
    """Whether the middle of the text is left out."""


@dataclass(frozen=True)
class Call:
    """A call made earlier, with its reply, if there is one yet."""

    name: str
    arguments: dict[str, Any]
    reply: Reply | None


@dataclass(frozen=True)
class Request:
    """All that the model is asked with."""

    role: Role
    sections: tuple[Section, ...]
    calls: tuple[Call, ...]
    tools: frozenset[str]
    plain: str
    """The text of the last message from outside, for a conversation without brief."""

    def text(self, tag: str) -> str:
        """A section's text, "" where there is none."""
        return next((s.text for s in self.sections if s.tag == tag), "")

    def all(self, tag: str) -> list[Section]:
        """The sections of a tag, also those inside `<results>` and `<evidence>`."""
        return [s for s in self.sections if s.tag == tag]

    def corrections(self, name: str) -> list[str]:
        """Corrections that calls of this tool got, oldest first."""
        return [c.reply.text for c in self.calls if c.name == name and c.reply and c.reply.correction]


def read_request(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> Request:
    """Read the prompt. Text inside sections and tool output is data; nothing in it can pass for the prompt."""
    system = next((str(m.text) for m in messages if isinstance(m, SystemMessage)), "")
    first_line = system.lstrip().partition("\n")[0].lower()
    role = _role(first_line)
    rest = [m for m in messages if not isinstance(m, SystemMessage)]
    brief = str(rest[0].text) if rest and role else ""
    names = frozenset(str(tool.get("function", tool).get("name", "")) for tool in tools)
    plain = next((str(m.text) for m in reversed(rest) if not isinstance(m, AIMessage)), "")
    return Request(role, tuple(_sections(brief)), tuple(_calls(rest[1:] if role else rest)), names, plain)


def _role(first_line: str) -> Role:
    for words, role in _ROLES.items():
        if first_line.startswith(words):
            return role
    return ""


def _sections(brief: str) -> list[Section]:
    found: list[Section] = []
    position = 0
    while opening := _OPEN.search(brief, position):
        closing = brief.find(end := f"</{opening['tag']}{opening['fence'] or ''}>", opening.end())
        if closing < 0:
            break
        inner = brief[opening.end() : closing]
        if opening["tag"] in ("results", "evidence", "receipt"):
            found += _sections(inner)
        if opening["tag"] not in ("results", "evidence"):
            text = inner.removeprefix("\n").removesuffix("\n")
            found.append(Section(opening["tag"], text, dict(_ATTRIBUTE.findall(opening["attributes"]))))
        position = closing + len(end)
    return found


def _calls(messages: Sequence[BaseMessage]) -> list[Call]:
    replies = {m.tool_call_id: _reply(str(m.text)) for m in messages if isinstance(m, ToolMessage)}
    return [
        Call(call["name"], dict(call["args"]), replies.get(call["id"] or ""))
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]


def _reply(text: str) -> Reply:
    if text.startswith("Correction:"):
        return Reply(text, ok=False, correction=True)
    head = _HEAD.match(text)
    if not head:
        return Reply(text)
    body = _OUTPUT.search(text, head.end())
    output = body["text"] if body else text[head.end() :]
    return Reply(output, head["status"] == "ok", head["id"], bounded=bool(LEFT_OUT.search(output)))


def criteria_of(text: str) -> list[tuple[str, bool]]:
    """The numbered criteria of a step, in order: text, and whether the runtime checks it itself."""
    items: list[str] = []
    for line in text.splitlines():
        if line.startswith(f"{len(items) + 1}. "):
            items.append(line.partition(" ")[2])
        elif items:
            items[-1] += f"\n{line}"
    return [(_CHECKED.sub("", item), bool(_CHECKED.search(item))) for item in items]


def json_of(text: str) -> dict[str, Any]:
    """A tool's JSON object with numbers as they are written, or {} where the text is none (cut in the middle)."""
    try:
        value = json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
