"""Write down, beside a thread, what its models were asked and replied and what people answered, to be replayed."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.store.base import BaseStore
from langgraph.types import Command

from donewhen.agent.storage import Storage
from donewhen.graph.step.calls import stored_text
from donewhen.graph.tools.effects import read_all
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.errors import ConfigError
from donewhen.state.run import Json
from donewhen.state.secrets import redact
from donewhen.state.settings import Settings
from donewhen.state.values import map_texts, store_label

VERSION = 1
METADATA = ("asks", "targets", "target", "paths", "check", "seconds")
"""Of a tool, what decides how it is worked with."""


def _space(thread_id: str) -> tuple[str, ...]:
    return ("donewhen", "recorded", store_label(thread_id))


async def read_rows(store: BaseStore, thread_id: str) -> list[Json]:
    """Return what was written down of the thread's last request, in its order."""
    items = await read_all(store, _space(thread_id))
    return [dict(item.value) for item in sorted(items, key=lambda item: item.key)]


def plain_message(message: BaseMessage) -> Json:
    """Return what a model reads in a message, or said in a reply: text and calls."""
    plain: Json = {"type": message.type, "text": str(message.text)}
    if isinstance(message, AIMessage) and (calls := [*message.tool_calls, *message.invalid_tool_calls]):
        plain["calls"] = [{key: call.get(key) for key in ("name", "args", "id", "error")} for call in calls]
    if isinstance(message, ToolMessage):
        plain["call"] = message.tool_call_id
    return plain


class Recorder(AsyncCallbackHandler):
    """Writes rows into a store while a run works."""

    def __init__(self, store: BaseStore, thread_id: str) -> None:
        self._store, self._space = store, _space(thread_id)
        self._asked: dict[UUID, list[Json]] = {}
        self._known: set[str] = set()

    async def write(self, kind: str, **facts: Any) -> None:
        """Write one row."""
        row = json.loads(json.dumps({"kind": kind, **facts}, default=str))
        await self._store.aput(self._space, f"{time.time_ns():020}", row, index=False)

    async def begin(self, goal: str, settings: Settings, toolbox: Toolbox) -> None:
        """Write how a request begins; what was recorded of an earlier one is deleted."""
        for item in await read_all(self._store, self._space):
            await self._store.adelete(item.namespace, item.key)
        said = settings.model_dump(mode="json", exclude_unset=True)
        await self.write("start", goal=goal, settings=said, tools=[_about(toolbox, name) for name in toolbox])

    async def given(self, command: object) -> None:
        """Write what a person answered, if that is what the run goes on with."""
        if isinstance(command, Command) and isinstance(command.resume, Mapping):
            for answer in command.resume.values():
                await self.write("answer", answer=answer)

    async def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **_: Any
    ) -> None:
        """Remember what a model is asked."""
        self._asked[run_id] = [plain_message(message) for message in messages[0]]

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Forget what a model was asked that did not reply: it is asked again."""
        self._asked.pop(run_id, None)

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Write request and reply; each message of a conversation once."""
        generation = response.generations[0][0] if response.generations and response.generations[0] else None
        asked = self._asked.pop(run_id, None)
        if asked is None or not isinstance(generation, ChatGeneration) or not isinstance(generation.message, AIMessage):
            return
        named = {_digest(message): message for message in asked}
        new = {key: message for key, message in named.items() if key not in self._known}
        self._known |= new.keys()
        reply = generation.message
        said = {**plain_message(reply), "usage": reply.usage_metadata, "id": reply.id}
        await self.write("reply", asked=[_digest(message) for message in asked], new=new, reply=said)


def _digest(message: Json) -> str:
    return hashlib.sha256(json.dumps(message, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _about(toolbox: Toolbox, name: str) -> Json:
    known = toolbox[name]
    metadata: Mapping[str, Any] = known.tool.metadata or {}
    kept = {
        key: metadata[key] for key in METADATA if isinstance(metadata.get(key), bool | str | int | float | Sequence)
    }
    described = {"name": name, "description": known.tool.description, "input_schema": known.schema}
    return {**described, "effect": known.effect, "metadata": kept}


# The recording of a request ------------------------------------------------------------------------------------------


async def collect_rows(storage: Storage, thread_id: str, values: Mapping[str, Any]) -> list[Json]:
    """Return all rows of a thread's request that has ended, its results among them. Raises ConfigError."""
    async with storage.reader() as (_, store):
        rows = await read_rows(store, thread_id)
        results = [
            {
                "kind": "result",
                "tool": entry["tool"],
                "arguments": entry["arguments"],
                "ok": entry["ok"],
                "text": await stored_text(store, thread_id, values, entry["id"]) or entry["text"],
            }
            for entry in values.get("journal") or ()
            if entry["source"] in ("tool", "check") and entry.get("effect") is not None
        ]
    if not rows or not (outcome := values.get("outcome")):
        raise ConfigError(
            f"thread {thread_id} was not recorded to its end: start it with DONEWHEN_RECORD=1 or record=True"
        )
    if values.get("turn", 1) > 1:
        raise ConfigError(f"thread {thread_id} had earlier requests, which are in its prompts: record a new thread")
    end = {"kind": "end", "status": outcome["status"], "code": outcome["code"], "text": outcome["text"]}
    return [{"kind": "recording", "version": VERSION}, *rows, *results, end]


def save_rows(rows: Sequence[Json], path: str | Path, change: Callable[[str], str] = redact) -> None:
    """Write a recording, a row a line; `change` goes over every text in it."""
    lines = (json.dumps(map_texts(row, change), ensure_ascii=False) for row in rows)
    Path(path).write_text("".join(f"{line}\n" for line in lines), "utf-8")
