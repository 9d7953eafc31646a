"""Read A2A tasks: their state, texts, questions and messages."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from donewhen.graph.executors.executor import Handoff

if TYPE_CHECKING:
    from a2a.client import Client
    from a2a.types import Part, StreamResponse, Task

MOST_TASKS = 100
"""The most tasks of a conversation that are searched for a message."""
QUESTION_KEYS, SHOWN_KEYS = ("id", "kind", "question", "options"), ("question", "options", "schema")
"""The keys by which a question of another DoneWhen agent is recognized, and those that people are shown."""


def state_of(task: "Task") -> str:
    """Return `SUBMITTED`, `WORKING`, `COMPLETED`, `FAILED`, `INPUT_REQUIRED` …"""
    from a2a.types import TaskState

    return str(TaskState.Name(task.status.state)).removeprefix("TASK_STATE_")


async def task_of(client: "Client", id: str) -> "Task":
    """Return the current state of the task."""
    from a2a.types import GetTaskRequest

    return await client.get_task(GetTaskRequest(id=id))


async def find_task(client: "Client", id: str) -> "Task | None":
    """Return the task; None if the agent does not know it, or no longer."""
    from a2a.types import TaskNotFoundError

    with suppress(TaskNotFoundError):
        return await task_of(client, id)
    return None


async def tasks_of(client: "Client", context: str) -> "list[Task] | None":
    """Return the tasks of a conversation; None if the agent does not list them."""
    from a2a.types import ListTasksRequest
    from a2a.utils.errors import MethodNotFoundError, UnsupportedOperationError

    try:
        listed = await client.list_tasks(ListTasksRequest(context_id=context, page_size=MOST_TASKS))
    except (MethodNotFoundError, UnsupportedOperationError):
        return None
    return [task for row in listed.tasks if (task := await find_task(client, row.id))]


def has_message(task: "Task", message_id: str) -> bool:
    """Return whether the task has this message."""
    return any(message.message_id == message_id for message in task.history)


def update_task(task: "Task", event: "StreamResponse", handoff: Handoff, spoken: list[str]) -> None:
    """Update the task from an event, and show people the agent's messages."""
    kind = event.WhichOneof("payload")
    if kind == "task":
        task.CopyFrom(event.task)
    elif kind == "status_update":
        task.id = event.status_update.task_id
        if text := text_of(event.status_update.status.message.parts):
            spoken.append(text)
            handoff.tell(f"{text}\n")
    elif kind == "artifact_update":
        task.id = event.artifact_update.task_id


def questions_in(task: "Task") -> list[tuple[str, Any]]:
    """Return the questions of a task, each with the id by which it is answered.

    A LangGraph server puts its interrupts, `{id, value}`, into a data part of an artifact; another DoneWhen agent puts
    its question into a data part of the message.
    """
    from a2a.helpers import get_data_parts

    parts = [part for artifact in task.artifacts for part in artifact.parts]
    data = [each for each in get_data_parts(parts) if isinstance(each, Mapping) and {"id", "value"} <= set(each)]
    if data:
        return [(f"{task.id} {each['id']}", each["value"]) for each in data]
    if asked := [each for each in get_data_parts(task.status.message.parts) if _is_question(each)]:
        return [(task.id, {key: _with_integers(asked[0][key]) for key in SHOWN_KEYS if key in asked[0]})]
    return [(task.id, text_of(task.status.message.parts) or last_message(task) or "What should I do?")]


def text_of(parts: "Sequence[Part]") -> str:
    """Return the texts, and data as JSON, but not a question of DoneWhen, which is in the texts already."""
    from a2a.helpers import get_data_parts, get_text_parts

    data = (json.dumps(each, ensure_ascii=False) for each in get_data_parts(parts) if not _is_question(each))
    return "\n".join(filter(None, (*get_text_parts(parts), *data))).strip()


def _is_question(data: Any) -> bool:
    return isinstance(data, Mapping) and isinstance(data.get("question"), str) and {*QUESTION_KEYS} <= set(data)


def _with_integers(value: Any) -> Any:
    """Return JSON in which 1.0 is 1 again, because the protocol turns integers into floats."""
    return json.loads(
        json.dumps(value), parse_float=lambda text: int(text[:-2]) if text.endswith(".0") else float(text)
    )


def last_message(task: "Task") -> str:
    """Return the agent's last message in the task's history."""
    from a2a.types import Role

    spoken = [text for one in task.history if one.role == Role.ROLE_AGENT and (text := text_of(one.parts))]
    return spoken[-1] if spoken else ""
