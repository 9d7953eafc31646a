"""What a scripted model was asked: the request as it saw it, and whose request it was."""

import re
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

ROLES = ("triage", "plan", "execute", "deliver", "judge")
_FIRST_WORDS = {
    "you are the triage": "triage",
    "you are the planner": "plan",
    "you are the executor": "execute",
    "you write the answer": "deliver",
    "you are the judge": "judge",
}


@dataclass(frozen=True)
class Request:
    """One call of the model, as the model saw it."""

    role: str | None
    """`triage`, `plan`, `execute`, `deliver`, `judge`, or None if the system message names none of them."""
    step: str | None
    """Id of the step the brief is about."""
    messages: list[BaseMessage]
    tools: list[dict[str, Any]]
    """The tools offered, in OpenAI's format."""
    kwargs: dict[str, Any]
    """Everything else the model was called with: `tool_choice`, `stop`, `reasoning_effort`, …"""

    @property
    def tool_names(self) -> list[str]:
        """Names of the tools offered, in order."""
        return [tool.get("function", tool).get("name", "") for tool in self.tools]

    @property
    def text(self) -> str:
        """The text of all messages, one after the other: for `in`."""
        return "\n".join(str(message.text) for message in self.messages)


def read_request(messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> Request:
    """Notes a call and finds out, from the agreed prompts, who is asked and about which step."""
    rest = dict(kwargs) if stop is None else {**kwargs, "stop": stop}
    tools = list(rest.pop("tools", None) or [])
    role = step = None
    if messages and isinstance(messages[0], SystemMessage):
        first_line = str(messages[0].text).lstrip().partition("\n")[0].lower()
        role = next((role for words, role in _FIRST_WORDS.items() if first_line.startswith(words)), None)
    if role in ("execute", "judge"):
        brief = next((str(m.text) for m in messages if isinstance(m, HumanMessage)), "")
        found = re.search(r'^<step id="([^"\n]*)">', brief, re.MULTILINE)
        step = found[1] if found else None
    return Request(role, step, list(messages), tools, rest)
