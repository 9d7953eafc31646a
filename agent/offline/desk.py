"""The executor's desk: calls made earlier give their replies at once; a call not made yet interrupts the work.

The work of a step is written as if every call answered immediately. It is replayed from the start in each round, so the
messages alone hold its state.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from donewhen.agent.offline.reading import LEFT_OUT, Reply, Request
from donewhen.agent.offline.words import pick
from donewhen.state.proof.journal import canonical

MOST_RECALLS = 12
_RECALLED = re.compile(r"\([^()\n]*characters (\d+) to \d+ of (\d+)\)\n(.+)", re.DOTALL)
_STOP = {
    "stop",
    "cancel",
    "abort",
    "skip",
    "none",
    "none of these",
    "give up",
    "停止",
    "取消",
    "算了",
    "跳过",
    "都不是",
    "停",
}
YES = {"yes", "y", "ok", "okay", "sure", "go on", "go ahead", "是", "是的", "好", "好的", "可以", "行", "继续"}


class Pending(Exception):
    """These calls have to be made before the work can go on."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        super().__init__(name)
        self.name = name
        self.arguments = arguments


class Stuck(Exception):
    """The work cannot be done; `kind` as in give_up."""

    def __init__(self, reason: str, kind: str = "failed") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


@dataclass
class Desk:
    """What the work of one step may do: call tools, and ask the user."""

    request: Request
    chinese: bool
    used: list[Reply] = field(default_factory=list)
    """Replies of tools that the work rests on, in order."""
    answers: list[Reply] = field(default_factory=list)
    """What the user said on the way."""

    def call(self, name: str, **arguments: Any) -> Reply:
        """The reply of a tool, good or bad. Raises Pending where the call was not made yet."""
        if name not in self.request.tools:
            raise Stuck(
                pick(
                    self.chinese,
                    f"This needs the tool {name}, which is not available here.",
                    f"需要工具 {name}，但这里没有。",
                )
            )
        wanted = canonical(arguments)
        reply = next((c.reply for c in self.request.calls if c.name == name and canonical(c.arguments) == wanted), None)
        if reply is None:
            raise Pending(name, arguments)
        if reply.correction:
            raise Stuck(first_problem(reply.text))
        self.used.append(reply)
        return reply

    def whole(self, reply: Reply) -> tuple[str, bool]:
        """A reply's text with its middle recalled where that was left out, and whether it is complete now."""
        text = LEFT_OUT.split(reply.text)[0]
        if not reply.bounded:
            return reply.text, True
        for _ in range(MOST_RECALLS if "recall" in self.request.tools else 0):
            found = self._recalled(reply.id, len(text))
            if not found:
                break
            text += found[3]
            if len(text) >= int(found[2]):
                return text, True
        return text, False

    def _recalled(self, id: str, offset: int) -> re.Match[str] | None:
        arguments = {"observation": id, "offset": offset}
        made = [c for c in self.request.calls if c.name == "recall" and canonical(c.arguments) == canonical(arguments)]
        if not made or made[0].reply is None:
            raise Pending("recall", arguments)
        return _RECALLED.search(made[0].reply.text)

    def ask(self, question: str, options: list[str]) -> str:
        """The user's answer, an option where it names one. Raises Stuck if there is none or it says to stop."""
        if options[1:] != [pick(self.chinese, "No", "否")]:
            options = [*options, pick(self.chinese, "none of these", "都不是")]
        asked = [c for c in self.request.calls if c.name == "ask_user" and c.arguments.get("question") == question]
        reply = next((c.reply for c in asked if c.reply), None)
        if reply is None:
            raise Pending("ask_user", {"question": question, "options": options})
        answer = chosen(reply.text, options)
        if not reply.ok or reply.correction or not answer:
            raise Stuck(pick(self.chinese, f"This needs an answer: {question}", f"需要先回答：{question}"), "blocked")
        if answer.casefold().rstrip(".!。！") in _STOP:
            raise Stuck(pick(self.chinese, "You chose to stop here.", "你选择了停止。"), "blocked")
        self.answers.append(reply)
        return answer


def chosen(answer: str, options: list[str]) -> str:
    """The option that an answer means: by its number, its words or a part of them; else the answer itself."""
    text = answer.strip().strip("\"'“”`").strip()
    if text.rstrip(".)").isdecimal() and 1 <= int(text.rstrip(".)")) <= len(options) and text not in options:
        return options[int(text.rstrip(".)")) - 1]
    folded = text.casefold()
    exact = [option for option in options if option.casefold() == folded]
    inside = [option for option in options if folded and (folded in option.casefold() or option.casefold() in folded)]
    return exact[0] if exact else inside[0] if len(inside) == 1 else text


def first_problem(correction: str) -> str:
    """The first thing that a correction says is wrong."""
    lines = [line.removeprefix("- ").strip() for line in correction.splitlines() if line.startswith("- ")]
    return lines[0] if lines else correction.removeprefix("Correction:").strip()
