"""All exceptions that a caller may want to catch, as one tree.

DoneWhenError
├── ConfigError      a setting, a key, a model name: what is wrong, which value, what to do
│   └── ToolMissing      an answer is for a call whose tool or executor this agent does not have
├── GoalError        a goal that cannot be worked on: blank, or too long
├── PlanError        a plan that breaks the rules; `problems` lists all of them
├── ScheduleError    a schedule that does not exist, or cannot do this now
├── ToolError        a tool that cannot be offered to a model
├── StorageError     a database that is missing, corrupt, locked or of a newer version
├── ModelError       a model that could not answer; `retryable` says whether trying again may help
└── ResumeError      an answer without a matching question
    ├── UnknownThread
    ├── StaleAnswer      the id answered is not pending (any more); `pending` lists what is
    ├── ThreadBusy       another process works on this thread now
    └── ThreadWaiting    a question is open; `pending` lists it
"""

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError


class DoneWhenError(Exception):
    """Base of all errors raised to the caller of this project."""


class ConfigError(DoneWhenError):
    """A setting, a key or a name is wrong; the message says which value and what to do."""


class ToolMissing(ConfigError):
    """An answer is for a call whose tool, or executor, the agent lacks. The question stays open."""


class GoalError(DoneWhenError):
    """The goal is blank or too long."""


class PlanError(DoneWhenError):
    """A plan breaks the rules."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems: list[str] = list(problems)


class ScheduleError(DoneWhenError):
    """There is no such schedule, or it cannot do that now."""


class ToolError(DoneWhenError):
    """A tool cannot be offered to a model: invalid name, invalid schema, or duplicate name."""


class StorageError(DoneWhenError):
    """The database cannot be used: missing folder, corrupt, locked, or of a newer version."""


class ModelError(DoneWhenError):
    """A model could not answer. The message is fit for users and holds no secrets."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "model_error",
        retryable: bool = False,
        retry_after: float | None = None,
        said: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.said = said
        """The model's own words, where it refused to answer."""
        self.retryable = retryable
        self.retry_after = retry_after


class ResumeError(DoneWhenError):
    """An answer or a start does not fit what the thread waits for.

    `problem` is the message without `remedy`, its last words, which name the calls that help.
    """

    def __init__(self, problem: str, pending: Sequence[str] = (), *, remedy: str = "") -> None:
        super().__init__(problem + remedy)
        self.problem = problem
        self.remedy = remedy
        self.pending: list[str] = list(pending)
        self.is_kept: bool = False
        """True if the words are no answer and nothing is lost: models read them when the work goes on."""


class UnknownThread(ResumeError):
    """No run was ever started under this thread id."""


class StaleAnswer(ResumeError):
    """The answered id is not pending, or no longer pending."""

    def __init__(self, problem: str, pending: Sequence[str] = (), *, decided: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(problem, pending)
        self.decided: list[dict[str, Any]] = [
            {key: str(row.get(key) or "") for key in ("id", "decision", "text", "name", "at")} for row in decided
        ]
        """What was decided on the questions that the answer names, as far as it is known: their `id`, the `decision`,
        its `text`, the `name` of who decided, and when (`at`). Of an answer that a worker has, `decision` is its `type`
        ("" for words), and `at` is "". So who gives one answer twice can be told from who comes too late.
        """


class ThreadBusy(ResumeError):
    """Another worker holds this thread."""


class ThreadWaiting(ResumeError):
    """The thread waits for an answer; a new goal would lose it."""


def validation_problems(error: ValidationError) -> list[str]:
    """Return pydantic's errors as sentences that a model can act on: the place, the problem, and the value."""
    lines = []
    for item in error.errors(include_url=False, include_context=False)[:10]:
        parts = (part for part in item["loc"] if part != "[key]")
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
        try:
            value = json.dumps(item["input"], ensure_ascii=False, default=_plain)[:80]
        except (TypeError, ValueError, RecursionError):  # it holds itself, or keys that are no texts
            value = reprlib.repr(item["input"])[:80]
        lines.append(f"{where or 'arguments'}: {item['msg'].removeprefix('Value error, ')} (given: {value})")
    return lines


def _plain(value: object) -> object:
    """Return an object as JSON can show it: of a model of options the fields that are set."""
    return value.model_dump(mode="json", exclude_unset=True) if isinstance(value, BaseModel) else str(value)
