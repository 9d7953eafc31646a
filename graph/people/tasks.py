"""Show progress in the conversation and in `todos`, in forms that chat clients can draw.

A step is a tool call named `task` with its result, like a sub-agent's; clients draw it as a card.
"""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from donewhen.state.channels import OWN_WORDS, TASK, Json
from donewhen.state.language.texts import catalogue, say
from donewhen.state.records import StepRecord
from donewhen.state.statuses import ENDED_BADLY, FINAL, record_of

TODO = {"done": "completed", "running": "in_progress", "waiting": "in_progress", "ready": "in_progress"}
REASON_CHARS = 500


def open_tasks(plan: Mapping[str, Any], ids: Collection[str]) -> tuple[list[AnyMessage], Json]:
    """Return a tool call for each of these steps, and the changes of their records."""
    numbers = {step["id"]: (number, step["content"]) for number, step in enumerate(plan["steps"], 1)}
    calls: Json = {id: {"task": f"step_{uuid4().hex[:16]}"} for id in ids}
    messages: list[AnyMessage] = []
    for id in ids:
        arguments = {"description": numbers[id][1], "subagent_type": f"Step {numbers[id][0]}"}
        call: Any = {"name": TASK, "args": arguments, "id": calls[id]["task"], "type": "tool_call"}
        messages.append(AIMessage("", tool_calls=[call]))
    return messages, calls


def close_tasks(records: Mapping[str, StepRecord], language: str, why: str = "") -> tuple[list[AnyMessage], Json]:
    """Return the results of the calls whose steps ended, and the changes of records; with `why`, close all calls.

    A result that is the run's answer is not shown twice.
    """
    messages: list[AnyMessage] = []
    over = {id: row for id, row in records.items() if row["task"] and (why or row["status"] in FINAL)}
    for row in over.values():
        done = row["status"] == "done"
        whole = done and not row["answers"]
        text = row["result"] if whole else ""
        messages.append(
            ToolMessage(
                text or why or _describe_end(row, language),
                tool_call_id=row["task"],
                name=TASK,
                id=row["said"] if text else None,
                status="success" if done or why else "error",
                additional_kwargs={} if text else {OWN_WORDS: True},
            )
        )
    return messages, {id: {"task": None} for id in over}


def _describe_end(record: StepRecord, language: str) -> str:
    status = record["status"]
    word = str(catalogue(language)["summary"].get(status, status)).capitalize()
    reason = record["reason"][:REASON_CHARS]
    return f"{word}: {reason}" if reason and status != "done" else f"{word}."


def checklist(
    plan: Mapping[str, Any] | None, steps: Mapping[str, StepRecord], language: str, *, answered: bool
) -> list[Json]:
    """Return the steps and, as the last row, the answer; without that row a client reports “all done” too early.

    A row is pending, in_progress or completed; other endings are added to its text.
    """
    rows = []
    for step in (plan or {}).get("steps", ()):
        status = record_of(steps, step["id"])["status"]
        word = catalogue(language)["summary"].get(status, status)
        content = f"{step['content']} ({word})" if status in ENDED_BADLY else step["content"]
        rows.append({"id": step["id"], "content": content, "status": TODO.get(status, "pending")})
    last = {
        "id": "answer",
        "content": say(language, "plan", "answer"),
        "status": "completed" if answered else "pending",
    }
    return [*rows, last] if rows else []
