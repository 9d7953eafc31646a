"""Record everything that the runs of a thread get from outside, so that they can be replayed.

These are requests, replies of models, results and questions of tools and executors, answers and interjections of
people, decisions of hooks, and audits, undos and cancellations. The store of the thread keeps them.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import fields
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.errors import GraphInterrupt
from langgraph.store.base import BaseStore
from langgraph.types import Command, StateSnapshot

from donewhen.agent.models import ModelSource
from donewhen.agent.request import Request
from donewhen.agent.storage import Storage
from donewhen.graph.clock import current_clock
from donewhen.graph.context import PriceOf
from donewhen.graph.events import moment
from donewhen.graph.executors.executor import Executor, Executors, own_tools
from donewhen.graph.executors.relay import interrupt_value
from donewhen.graph.llm.adapter import model_name
from donewhen.graph.llm.errors import classify
from donewhen.graph.step.calls import OBSERVATION
from donewhen.graph.step.texts import Texts
from donewhen.graph.tools.effects import read_all
from donewhen.graph.tools.hooks import Hooks, call_hook
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError, DoneWhenError
from donewhen.state.ledger import CACHE_WRITES
from donewhen.state.plan.schedule import next_moments
from donewhen.state.plan.text import moments_text
from donewhen.state.secrets import hide_known, redact
from donewhen.state.settings import ROLES, Settings
from donewhen.state.values import map_texts, store_label

VERSION = 2
METADATA = ("asks", "targets", "target", "paths", "check", "seconds")
"""The keys of a tool's metadata that decide how it is used."""


def _space(thread_id: str) -> tuple[str, ...]:
    return ("donewhen", "recorded", store_label(thread_id))


async def _read_items(store: BaseStore, thread_id: str) -> list[Any]:
    return sorted(await read_all(store, _space(thread_id)), key=lambda item: item.key)


def plain_message(message: BaseMessage) -> Json:
    """Return the type, the text and the calls of a message."""
    plain: Json = {"type": message.type, "text": str(message.text)}
    if isinstance(message, AIMessage) and (calls := [*message.tool_calls, *message.invalid_tool_calls]):
        plain["calls"] = [{key: call.get(key) for key in ("name", "args", "id", "error")} for call in calls]
    if isinstance(message, ToolMessage):
        plain["call"] = message.tool_call_id
    return plain


recording: ContextVar["Recorder | None"] = ContextVar("recording", default=None)
"""The recorder of the run that works in this context."""


class Recorder(AsyncCallbackHandler):
    """Writes rows into a store while a run works."""

    def __init__(self, store: BaseStore, thread_id: str) -> None:
        self._store, self._thread_id = store, thread_id
        self._asked: dict[UUID, list[Json]] = {}
        self._calls: dict[UUID, str] = {}
        """The observations of the tool calls in progress."""
        self._written_digests: set[str] = set()
        self._written_interjections: set[tuple[str, str]] = set()

    async def write(self, kind: str, **facts: Any) -> None:
        """Write one row."""
        row = json.loads(json.dumps({"kind": kind, **facts}, default=str))
        await self._store.aput(_space(self._thread_id), f"{current_clock().tick():020}", row, index=False)

    async def begin(self, turn: int, request: Request, executors: Executors, models: Json) -> None:
        """Write the start of a request; delete the rows of one that a crash cut off."""
        items = await _read_items(self._store, self._thread_id)
        cut = next((n for n, item in enumerate(items) if item.value.get("turn") == turn), len(items))
        for item in items[cut:]:
            await self._store.adelete(item.namespace, item.key)
        cards, toolbox = await executors.cards(), executors.toolbox
        described = {
            name: {"description": card.description, "skills": list(card.skills), **_describe_executor(executors[name])}
            for name, card in cards.items()
        }
        tools = [{**describe_tool(toolbox, name), "private": name in executors.private} for name in toolbox]
        settings = request.settings.model_dump(mode="json", exclude_unset=True)
        facts = {"goal": request.goal, "request": request.to_json(), "settings": settings, "models": models}
        await self.write("start", turn=turn, **facts, tools=tools, executors=described)

    async def end(self, snapshot: StateSnapshot) -> None:
        """Write the results of a request's tools, and its end if it has ended, unless they are written already."""
        rows = [item.value for item in await _read_items(self._store, self._thread_id)]
        for row in await _missing_rows(self._store, self._thread_id, snapshot, _last_request(rows)):
            await self.write(**row)

    async def go_on(self, command: Any, asked: Sequence[Mapping[str, Any]], settings: Settings | None) -> None:
        """Write the input that continues a stopped or waiting run: an answer, or the text of `steer`."""
        changed = {"settings": settings.model_dump(mode="json", exclude_unset=True)} if settings else {}
        if isinstance(command, Command) and isinstance(command.resume, Mapping):
            question = {key: asked[0].get(key) for key in ("kind", "step", "question")}
            for answer in command.resume.values():
                await self.write("answer", answer=answer, asked=question, at=moment(), **changed)
        elif command:
            await self.write("steer", text=command["messages"][-1].text, **changed)

    async def hear(self, place: str, rows: list[Json]) -> list[Json]:
        """Write the interjections that a place (planning, the run, a step) reads the first time; return them all."""
        new = [row for row in rows if (place, row["key"]) not in self._written_interjections]
        self._written_interjections |= {(place, row["key"]) for row in new}
        if new:
            await self.write("heard", place=place, said=new)
        return rows

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Remember the prompt, except of model calls within tools and executors, which a replay does not make."""
        if OBSERVATION not in (metadata or {}):
            self._asked[run_id] = [plain_message(message) for message in messages[0]]

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Write the error of a model, unless the call was cancelled."""
        if (asked := self._asked.pop(run_id, None)) is not None and isinstance(error, Exception):
            classified = classify(error)
            await self._write_reply(asked, error={"code": classified.code, "text": str(classified)})

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Write the prompt and the reply."""
        generation = response.generations[0][0] if response.generations and response.generations[0] else None
        asked = self._asked.pop(run_id, None)
        if asked is None or not isinstance(generation, ChatGeneration) or not isinstance(generation.message, AIMessage):
            return
        reply = generation.message
        ended = reply.response_metadata.get("finish_reason") or reply.response_metadata.get("stop_reason")
        plain_reply = {**plain_message(reply), "usage": reply.usage_metadata, "id": reply.id, "ended": ended}
        await self._write_reply(asked, reply=plain_reply)

    async def _write_reply(self, asked: list[Json], **facts: Json) -> None:
        """Write a prompt with its reply or error; each message of a conversation is stored once."""
        named = {_digest(message): message for message in asked}
        new = {key: message for key, message in named.items() if key not in self._written_digests}
        self._written_digests |= new.keys()
        await self.write("reply", asked=[_digest(message) for message in asked], new=new, **facts)

    async def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, metadata: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Remember the observation of a call; a tool that is called by a tool has none of its own."""
        id = (metadata or {}).get(OBSERVATION)
        if id and id not in self._calls.values():
            self._calls[run_id] = str(id)

    async def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """Write the questions of an executor."""
        id = self._calls.pop(run_id, None)
        artifact = getattr(output, "artifact", None)
        if id and isinstance(artifact, Mapping) and artifact.get("asks") and "first" in artifact:
            asks = [_as_interrupt(ask) for ask in artifact["asks"]]
            await self.write("asks", observation=id, asks=asks)

    async def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Write the questions of a tool."""
        id = self._calls.pop(run_id, None)
        if id and isinstance(error, GraphInterrupt) and error.args and error.args[0]:
            asks = [{"id": str(one.id), "value": interrupt_value(one)} for one in error.args[0]]
            await self.write("asks", observation=id, asks=asks)


def _as_interrupt(ask: Mapping[str, Any]) -> Json:
    """Return a question of an executor as the interrupt that asks it."""
    if ask["kind"] == "tool":
        action = {"name": ask["tool"], "args": ask["arguments"], "description": ask["question"]}
        return {"id": ask["id"], "value": {"action_requests": [action]}}
    return {"id": ask["id"], "value": {key: ask[key] for key in ("question", "options", "schema") if key in ask}}


def _digest(message: Json) -> str:
    return hashlib.sha256(json.dumps(message, sort_keys=True, default=str).encode()).hexdigest()[:16]


def describe_tool(toolbox: Toolbox, name: str) -> Json:
    """Return what models and the runtime know of a tool."""
    known_tool = toolbox[name]
    metadata: Mapping[str, Any] = known_tool.tool.metadata or {}
    shown_metadata = {
        key: metadata[key] for key in METADATA if isinstance(metadata.get(key), bool | str | int | float | Sequence)
    }
    described = {"name": name, "description": known_tool.tool.description, "input_schema": known_tool.schema}
    return {**described, "effect": known_tool.effect, "metadata": shown_metadata, "users_text": known_tool.users_text}


def _describe_executor(one: Executor) -> Json:
    tools = None if one.tools is None else [tool.name for tool in own_tools(one)]
    kind = "remote" if one.remote else "alone" if one.works_alone else ""
    return {"kind": kind, "tools": tools, **{key: getattr(one, key) for key in ("profile", "passthrough")}}


def describe_models(models: ModelSource, cost: PriceOf, settings: Settings) -> Json:
    """Return, by role, the facts about a model that influence a run; its prices only if a limit is in dollars."""
    priced = settings.limits.cost_usd is not None or settings.step_limits.cost_usd is not None
    by_role: Json = {}
    for role in ROLES:
        with suppress(DoneWhenError):  # a model that cannot be made raises when it is called
            model = models(role, settings.models.get(role))
            name = model_name(model)
            by_role[role] = {"name": name, "profile": dict(getattr(model, "profile", None) or {})}
            by_role[role] |= {"rates": _rates_of(cost, name)} if priced else {}
            by_role[role] |= {} if getattr(model, "judges", True) else {"judges": False}
    return by_role


def _rates_of(cost: PriceOf, name: str) -> Json:
    """Return a model's prices per million tokens, as `Models(prices=…)` takes them; {} if they are unknown."""
    million = 1_000_000
    read = {"input": {}, "cached": {"cached_tokens": million}, "cache_write": {CACHE_WRITES: million}}
    rates = {rate: cost(name, {"input_tokens": million, **part}) for rate, part in read.items()}
    rates["output"] = cost(name, {"output_tokens": million})
    return {} if None in rates.values() else rates


def record_hooks(hooks: Hooks) -> Hooks:
    """Return hooks that decide the same, and record their decisions while a run is recorded."""

    def record(moment: str, number: int, hook: Any) -> Any:
        @wraps(hook)
        async def decide(about: Any) -> Any:
            result = await call_hook(hook, about)
            if recorder := recording.get():
                decision = {"type": type(result).__name__, **vars(result)} if result else None
                await recorder.write("decision", hook=decision_key(moment, number, about), decision=decision)
            return result

        return decide

    each = {field.name: getattr(hooks, field.name) for field in fields(hooks)}
    return Hooks(**{moment: [record(moment, n, hook) for n, hook in enumerate(all)] for moment, all in each.items()})


def decision_key(moment: str, number: int, about: Any) -> Json:
    """Return the key of a hook's decision within a request, made only of what every hook is shown."""
    call = {key: getattr(about, key, None) for key in ("tool", "arguments", "question")}
    return {"moment": moment, "number": number, "step": about.step, **call}


# The recording of a thread -------------------------------------------------------------------------------------------


def _last_request(rows: Sequence[Json]) -> list[Json]:
    """Return the rows of the last request."""
    starts = [n for n, row in enumerate(rows) if row["kind"] == "start"]
    return list(rows[starts[-1] :]) if starts else []


async def _missing_rows(
    store: BaseStore, thread_id: str, snapshot: StateSnapshot, before: Sequence[Json]
) -> list[Json]:
    """Return the rows of a request that are not written yet: results, background, and the end."""
    rows: list[Json] = []
    values = snapshot.values
    if not before or before[0]["turn"] != values.get("turn"):
        return rows
    for entry in _read_journal(snapshot):
        if entry["source"] in ("tool", "check") and entry.get("effect") is not None:
            text = await Texts.of(store, thread_id, values).get(entry["id"]) or entry["text"]
            facts = {key: entry[key] for key in ("id", "tool", "arguments", "ok")}
            unsure = {"unknown": True} if entry.get("unknown") else {}
            rows.append({"kind": "result", **facts, **unsure, "text": text})
    if background := values.get("background"):
        rows.append({"kind": "background", "texts": background})
    if outcome := values.get("outcome"):
        text = without_moments(outcome["text"], outcome, values.get("plan"))
        rows.append({"kind": "end", "status": outcome["status"], "code": outcome["code"], "text": text})
    return [row for row in rows if row not in before]


def without_moments(text: str, outcome: Mapping[str, Any], plan: Mapping[str, Any] | None) -> str:
    """Return the answer of a run; if it made a schedule, without the times in it, which depend on the day."""
    if outcome["code"] != "scheduled" or not plan or not plan.get("schedule"):
        return text
    confirmed = datetime.fromisoformat(outcome["receipt"]["approvals"][-1]["at"])
    return text.replace(moments_text(next_moments(plan["schedule"], confirmed)), "…")


def _read_journal(snapshot: StateSnapshot) -> Iterator[Mapping[str, Any]]:
    """Yield the observations of a run, with those of steps that were stopped."""
    yield from snapshot.values.get("journal") or ()
    for task in snapshot.tasks:
        if isinstance(task.state, StateSnapshot):
            yield from _read_journal(task.state)


async def collect_rows(storage: Storage, thread_id: str, snapshot: StateSnapshot) -> list[Json]:
    """Return all rows of a thread whose last request has ended. Raises ConfigError."""
    async with storage.reader() as (_, store):
        rows = [dict(item.value) for item in await _read_items(store, thread_id)]
        last = _last_request(rows)
        if not any(row["kind"] == "end" for row in last):
            rows += await _missing_rows(store, thread_id, snapshot, last)
    values = snapshot.values
    turns = [row["turn"] for row in rows if row["kind"] == "start"]
    if not turns or turns[-1] != values.get("turn", 1) or not values.get("outcome"):
        raise ConfigError(
            f"thread {thread_id} was not recorded to its end: start it with DONEWHEN_RECORD=1, or with "
            "AgentOptions(record=True)"
        )
    if turns != [*range(1, len(turns) + 1)]:
        raise ConfigError(
            f"thread {thread_id} had requests that were not recorded, and its prompts contain them: record a new thread"
        )
    return [{"kind": "recording", "version": VERSION}, *rows]


def save_rows(
    rows: Sequence[Json], path: str | Path, change: Callable[[str], str] | None = None, secrets: Sequence[str] = ()
) -> None:
    """Write a recording, one row a line, without credentials and `secrets`; then `change` is applied to every text."""
    redacted = (hide_known(map_texts(row, redact), secrets) for row in rows)
    lines = (json.dumps(map_texts(row, change) if change else row, ensure_ascii=False) for row in redacted)
    Path(path).write_text("".join(f"{line}\n" for line in lines), "utf-8")
