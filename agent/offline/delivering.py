"""The answer to the user, from the receipt alone: the results as they are, and what is missing."""

import re

from donewhen.agent.offline.decision import Decision
from donewhen.agent.offline.language import answers_in_chinese
from donewhen.agent.offline.reading import Request
from donewhen.agent.offline.words import pick

_STEP = re.compile(
    r"^step (?P<id>\S+) (?P<status>done|failed|blocked|skipped|exhausted|pending|ready|waiting|running): "
)
_RESULT = "  result: "
_INSET = "    "
"""Before the further lines of a result."""
_END = re.compile(r"^  (?:reason: |criterion )")


def deliver(request: Request) -> Decision:
    """The results of the finished steps, one below the other."""
    receipt = request.text("receipt")
    chinese = answers_in_chinese(request.text("goal"), request.text("language"))
    status = receipt.partition("\n")[0].removeprefix("status: ").partition(" ")[0]
    parts = _results(receipt)
    if status != "completed":
        parts.append(pick(chinese, "Not everything was done:", "并非全部完成："))
    return Decision(text="\n\n".join(parts) or pick(chinese, "Nothing was done.", "没有完成任何步骤。"))


def _results(receipt: str) -> list[str]:
    """The result of every finished step, all its lines."""
    results: list[list[str]] = []
    done = open_result = False
    for line in receipt.splitlines():
        if step := _STEP.match(line):
            done, open_result = step["status"] == "done", False
        elif done and line.startswith(_RESULT):
            results.append([line.removeprefix(_RESULT)])
            open_result = True
        elif _END.match(line):
            open_result = False
        elif open_result:
            results[-1].append(line.removeprefix(_INSET))
    return ["\n".join(lines).strip() for lines in results]
