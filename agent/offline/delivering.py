"""The answer to the user, from the receipt alone: the results as they are, and what is missing."""

import re

from donewhen.agent.offline.decision import Decision
from donewhen.agent.offline.language import answers_in_chinese
from donewhen.agent.offline.reading import Request
from donewhen.agent.offline.words import pick

_STEP = re.compile(
    r"^step (?P<id>\S+) (?P<status>done|failed|blocked|skipped|exhausted|pending|ready|waiting|running): ",
    re.MULTILINE,
)


def deliver(request: Request) -> Decision:
    """The results of the finished steps, one below the other."""
    receipt = request.text("receipt")
    chinese = answers_in_chinese(request.text("goal"), request.text("language"))
    status = receipt.partition("\n")[0].removeprefix("status: ").partition(" ")[0]
    parts = _results(request)
    if status != "completed":
        parts.append(pick(chinese, "Not everything was done:", "并非全部完成："))
    return Decision(text="\n\n".join(parts) or pick(chinese, "Nothing was done.", "没有完成任何步骤。"))


def _results(request: Request) -> list[str]:
    """The results of the finished steps."""
    done = {step["id"] for step in _STEP.finditer(request.text("receipt")) if step["status"] == "done"}
    return [result.text.strip() for result in request.all("result") if result.attributes.get("step") in done]
