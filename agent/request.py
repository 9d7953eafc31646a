"""The input of a run: a `Request` starts one, a `Continuation` continues one."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, Self, cast
from uuid import uuid4

from langchain_core.messages import AnyMessage, HumanMessage, convert_to_messages, messages_from_dict, messages_to_dict
from pydantic import BaseModel

from donewhen.agent.storage.storage import check_name
from donewhen.graph.llm.attachments import blocks_of
from donewhen.graph.llm.output import OutputForm
from donewhen.graph.receive import GIVEN, clean_message, goal_problem
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError, GoalError, StaleAnswer
from donewhen.state.settings import Settings, SettingsLike, merge_settings
from donewhen.state.values import json_problem, same_json, storable

GoalInput = str | Sequence[Any]
"""A text, content blocks (`{"type": "text", "text": …}`), or messages; the last message is the request."""


class Missing(Enum):
    """The type of an argument that was left out, where None is a value."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return self.value


MISSING: Any = Missing.MISSING


@dataclass(frozen=True)
class Request:
    """A goal with the inputs of its run. It is stored with its thread before the run begins."""

    messages: Sequence[AnyMessage]
    """The last one is the user's and has an id. Empty if the template has its own goal."""
    settings: Settings
    metadata: Json | None = None
    owner: str = ""
    plan: Json | None = None
    """`{plan}`: use this plan instead of planning. A schedule's has `approved`, the revision that a person approved,
    and `approval`, the fields of the receipt's row about that; a template's has `template`, what the confirmation says
    of it."""
    template: str | None = None
    """The name of a saved plan to use with `parameters`."""
    parameters: Mapping[str, Any] | None = None
    restart: bool = False
    """Close the open request of the thread."""
    id: str = ""
    """The caller's id of the request: a second request with this id on the thread is the same one, delivered again."""
    instead_of: str = ""
    """The id of the message of an earlier request, whose place it takes; "" comes after all others."""
    context: Json | None = None
    """What it names for its tools, by which a request delivered again is compared; None if it names nothing."""

    def __post_init__(self) -> None:
        """Give the request's message an id, mark a message that comes with a plan, and check the caller's data.

        Raises ConfigError for metadata, an owner or an id that cannot be stored.
        """
        object.__setattr__(self, "owner", check_name("owner", self.owner))
        object.__setattr__(self, "id", check_name("request_id", self.id))
        object.__setattr__(self, "metadata", None if self.metadata is None else _plain_metadata(self.metadata))
        if self.messages:
            *before, last = self.messages
            extra = {**last.additional_kwargs, GIVEN: True} if self.plan else last.additional_kwargs
            marked = last.model_copy(update={"id": self.id or last.id or uuid4().hex, "additional_kwargs": extra})
            object.__setattr__(self, "messages", [*before, marked])

    def check_owner(self, thread_id: str, row: Mapping[str, Any]) -> None:
        """Raise ConfigError if the request names an owner, and its thread has another one."""
        if self.owner and self.owner != (row.get("owner") or self.owner):
            hint = "take another thread_id and request_id, or leave owner= out if you act for that owner"
            raise ConfigError(f"owner {self.owner!r}: thread {thread_id!r} has another owner; {hint}")

    def is_delivered(self, thread_id: str, row: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Return whether the thread already has the request with this caller's id, be it queued, begun or ended.

        Raises ConfigError if that has another goal or, as far as it is known, another context.
        """
        self.check_owner(thread_id, row)
        goals = [
            message.text
            for message in (*_messages_in_row(row), *(values.get("messages") or ()))
            if message.id == self.id
        ]
        digest = _digest_of(goals[-1]) if goals else (row.get("put_out") or {}).get(self.id)
        if not self.id or digest is None:
            return False
        if digest != _digest_of(self.goal):
            hint = "another goal needs an id of its own"
            is_shown = goals and self.owner == (row.get("owner") or "")
            known_goal = f", with the goal {goals[-1].strip()[:200]!r}" if is_shown else ""
            raise ConfigError(f"request_id {self.id!r} was given before{known_goal}: {hint}")
        if goals and self._has_other_context(row, values):
            hint = "another context needs an id of its own"
            raise ConfigError(f"request_id {self.id!r} was given before, with another context: {hint}")
        return True

    def goals_put_out(
        self, row: Mapping[str, Any], values: Mapping[str, Any], base: Mapping[str, Any] | None = None
    ) -> Json:
        """Return, by id, digests of the goals that this request puts out of the thread, and those put out before:
        they are known if they are delivered again.

        The row's request leaves if it has not begun; of the state's, those that `base` lacks, if that is the state from
        which this one goes on.
        """
        stored = _messages_in_row(row)
        left = [] if base is None else [each for each in values.get("messages") or () if each.type == "human"]
        stays = {*known_ids(values if base is None else base), *(message.id for message in self.messages)}
        leaving = {str(each.id): _digest_of(each.text) for each in (*left, *stored[-1:]) if each.id not in stays}
        return {**(row.get("put_out") or {}), **leaving}

    def _has_other_context(self, row: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Return whether a thread's row has another context than this request, which is there and is the last one."""
        is_last = request_in_row(row) == self.id or (not request_in_row(row) and values.get("turn") == 1)
        stored = (row.get("settings") or {}).get("tool_context")
        return is_last and self.context is not None and not same_json(stored, self.context)

    @property
    def goal(self) -> str:
        """Return the text of the user's message."""
        return self.messages[-1].text

    def to_json(self) -> Json:
        """Return the form in the thread's row, which keeps it until the request first waits or ends."""
        return {"messages": messages_to_dict(self.messages), "plan": self.plan, "instead_of": self.instead_of}

    @classmethod
    def from_row(cls, row: Mapping[str, Any], settings: Settings) -> Self:
        """Read the request from a thread's row."""
        stored = row["request"]
        messages: Any = messages_from_dict(stored["messages"])
        return cls(messages, settings, plan=stored.get("plan"), instead_of=stored.get("instead_of", ""))


@dataclass(frozen=True)
class Continuation:
    """How to continue a thread: with an answer, with the words of `steer`, or unchanged."""

    answer: Any = MISSING
    question: str = ""
    """The id of the question that a plain answer is for; "" is the one which is open."""
    seen: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """What others had said when the questions were shown, as in `question_for`."""
    by: str = ""
    """Who answers."""
    steer: str = ""
    settings: SettingsLike = None
    form: OutputForm | None = None
    """The type of the result that the caller expects."""


def with_context(settings: Settings, context: Any) -> Settings:
    """Return the settings with this context for the run's tools: a mapping, a dataclass or a Pydantic model.

    Raises ConfigError if it cannot be stored as JSON.
    """
    if context is None:
        return settings
    if isinstance(context, BaseModel):
        context = context.model_dump()
    elif is_dataclass(context) and not isinstance(context, type):
        context = {each.name: getattr(context, each.name) for each in fields(context)}
    return merge_settings(settings, {"tool_context": context})


def _plain_metadata(metadata: Any) -> Json:
    """Return metadata as plain JSON. Raises ConfigError for what would be read as something else."""
    if not isinstance(metadata, Mapping):
        raise ConfigError(f"metadata is a dict, not {type(metadata).__name__}")
    try:
        plain = json.loads(json.dumps(given := dict(metadata), allow_nan=False))
        if not same_json(plain, given):
            raise ValueError("it holds a key that is no text")
        plain = storable(plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"metadata cannot be stored: {error}") from None
    if problem := json_problem(plain):
        raise ConfigError(f"metadata cannot be stored: it {problem}")
    return dict(plain)


def read_goal(goal: GoalInput | None) -> list[AnyMessage]:
    """Return the messages that start a run, the user's last; [] for None. Raises GoalError for an unusable goal."""
    if goal is None:
        return []
    if not isinstance(goal, Sequence):
        raise GoalError(f"the goal is no text, no content blocks and no messages, but {type(goal).__name__}")
    if isinstance(goal, str):
        messages: list[Any] = [HumanMessage(goal)]
    elif goal and all(isinstance(part, dict) and "type" in part and "role" not in part for part in goal):
        messages = [HumanMessage(list(goal))]
    else:
        try:
            messages = list(convert_to_messages(goal))
        except (ValueError, NotImplementedError, TypeError, KeyError) as error:
            raise GoalError(f"the goal is no text, no content blocks and no messages: {error}") from None
    if not messages or not isinstance(messages[-1], HumanMessage):
        raise GoalError("the last message must be the user's")
    try:
        messages = [clean_message(message) for message in messages]
        json.dumps(messages_to_dict(messages), default=str)
    except (ValueError, RecursionError):
        raise GoalError("the goal is nested too deeply, or holds itself") from None
    if problem := goal_problem(messages[-1].text.strip(), with_files=bool(blocks_of(messages[-1]))):
        raise GoalError(problem)
    return messages


def is_not_begun(row: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return whether the run's state lacks the request of its thread's row: it is queued, or its worker died before."""
    stored = _ids_in_row(row)
    return bool(stored) and stored[-1] not in known_ids(values)


def is_unread(row: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return whether the run's state is still that of the request before the one of its thread's row, which has not
    begun, or whose first node has not ended.
    """
    read, last = [message.id for message in values.get("messages") or ()], values.get("request")
    if last:
        read = read[: read.index(last) + 1] if last in read else []
    stored = _ids_in_row(row)
    return bool(stored) and stored[-1] not in read


def request_in_row(row: Mapping[str, Any]) -> str:
    """Return the id of the message of the request in a thread's row, queued or at work; "" if the row has none."""
    return next((id for id in reversed(_ids_in_row(row)) if id), "")


def request_of(row: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return the id of the message of a thread's last request, begun or not; "" if an older version began it."""
    return request_in_row(row) if is_unread(row, values) else str(values.get("request") or "")


def goal_in_row(row: Mapping[str, Any]) -> str:
    """Return the whole goal of the request in a thread's row; "" if the row has none."""
    return "".join(message.text.strip() for message in _messages_in_row(row)[-1:])


def _messages_in_row(row: Mapping[str, Any]) -> list[AnyMessage]:
    return cast(list[AnyMessage], messages_from_dict((row.get("request") or {}).get("messages") or []))


def _ids_in_row(row: Mapping[str, Any]) -> list[str | None]:
    """Return the ids of the messages of the request in a thread's row; [] if the row has none."""
    return [message["data"].get("id") for message in (row.get("request") or {}).get("messages") or ()]


def _digest_of(goal: str) -> str:
    """Return what identifies a goal, with any white space around it."""
    return hashlib.sha256(goal.strip().encode()).hexdigest()


def known_ids(values: Mapping[str, Any]) -> set[str | None]:
    """Return the ids of the messages that a run's state has."""
    return {message.id for message in values.get("messages") or ()}


def check_begun(thread_id: str, row: Mapping[str, Any], values: Mapping[str, Any], *, steered: bool = False) -> None:
    """Raise StaleAnswer if the thread has a request that has not begun: it will close the earlier questions.

    `steered`: the thread is to go on in another direction; no answer was given.
    """
    if is_not_begun(row, values):
        state = "it is queued" if row.get("status") == "queued" else "its request has not begun"
        what = "has no plan that could be changed" if steered else "waits for no answer"
        raise StaleAnswer(f"thread {thread_id} {what}: {state}; resume({thread_id!r}) begins it")
