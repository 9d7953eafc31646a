"""Images and files in the conversation: stored once per thread, and shown to models after the brief."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import thread_of
from donewhen.graph.llm.adapter import model_name
from donewhen.state.channels import Json, RunState
from donewhen.state.errors import DoneWhenError
from donewhen.state.proof.journal import digest
from donewhen.state.settings import Settings
from donewhen.state.values import store_label

NAMESPACE = ("donewhen", "attachments")
MOST, MOST_CHARS = 20, 30_000_000
"""The most attachments of a request, and the most characters of all of them as JSON."""


def blocks_of(message: BaseMessage) -> list[Json]:
    """Return the content blocks of a person's message that are not text."""
    content = message.content if isinstance(message, HumanMessage) and isinstance(message.content, list) else []
    return [dict(block) for block in content if isinstance(block, Mapping) and block.get("type") not in ("text", None)]


def attachment_problem(blocks: Sequence[Json], deps: Deps, settings: Settings) -> str | None:
    """Return why a request with these attachments cannot be worked on, in words for the user; None if it can."""
    if len(blocks) > MOST:
        return f"The request has {len(blocks)} images and files; at most {MOST} are read."
    if flawed := [block["type"] for block in blocks if _as_json(block) is None]:
        return f"The {flawed[0]} in the request is not plain JSON; give its data as base64, or its address."
    if (size := sum(len(_as_json(block) or "") for block in blocks)) > MOST_CHARS:
        return f"The images and files of the request have {size:,} characters; at most {MOST_CHARS:,} are read."
    for role in ("triage", "plan", "execute") if blocks else ():
        try:
            model = deps.model(role, settings)
        except DoneWhenError:
            continue  # a model that cannot be made is an error of its own, where it is asked
        if other := [block["type"] for block in blocks if not _takes(model, block)]:
            return (
                f"The model {model_name(model)} ({role}) takes no {_plain_kind(other[0])}, so it would not be seen. "
                "Choose a model that does, or say in words what matters in it."
            )
    return None


async def attach(messages: Iterable[BaseMessage], runtime: Runtime[Settings]) -> list[Json]:
    """Store the attachments of the conversation, each once; return the newest 20 for the state.

    With a store, the data is kept there instead of in the state.
    """
    blocks = (block for m in messages if isinstance(m.content, list) for block in blocks_of(m))
    found = {digest(said): (block, said) for block in blocks if (said := _as_json(block))}
    kept = []
    for key, (block, said) in list(found.items())[-MOST:]:
        if runtime.store is not None:
            await runtime.store.aput(_place(runtime), key, {"block": block}, index=False)
        inline = {} if runtime.store is not None else {"block": block}
        kept.append({"key": key, "type": block["type"], "chars": len(said), **inline})
    return kept


async def with_typed_attachments(state: RunState, update: RunState, runtime: Runtime[Settings]) -> RunState:
    """Return the update with the attachments of an answer typed into the chat."""
    if not blocks_of(state["messages"][-1]):
        return update
    return {**update, "attachments": await attach(state["messages"], runtime)}


async def brief_message(
    brief: str,
    attachments: Sequence[Mapping[str, Any]],
    runtime: Runtime[Settings],
    model: Callable[[], BaseChatModel] | None = None,
) -> HumanMessage:
    """Return the brief with its attachments. A text takes the place of what the model does not accept."""
    if not attachments:
        return HumanMessage(brief)
    parts: list[Any] = [{"type": "text", "text": brief}]
    reader = None
    with suppress(DoneWhenError):  # a model that cannot be made is an error of its own, where it is asked
        reader = model() if model else None
    for number, each in enumerate(attachments, 1):
        block = each.get("block")
        if block is None and runtime.store is not None:
            item = await runtime.store.aget(_place(runtime), each["key"])
            block = item.value["block"] if item else None
        named = f'<attachment number="{number}" type="{_plain_kind(each["type"])}">'
        if block is None or (reader is not None and not _takes(reader, block)):
            parts.append({"type": "text", "text": f"{named}not shown: this model does not take it</attachment>"})
        else:
            if block["type"] == "text-plain" and isinstance(block.get("text"), str):
                block = {"type": "text", "text": block["text"]}
            parts += [{"type": "text", "text": named}, block, {"type": "text", "text": "</attachment>"}]
    return HumanMessage(parts)


def _place(runtime: Runtime[Settings]) -> tuple[str, ...]:
    return (*NAMESPACE, store_label(thread_of(runtime)))


def _as_json(block: Json) -> str | None:
    try:
        return json.dumps(block, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _takes(model: BaseChatModel, block: Mapping[str, Any]) -> bool:
    """Return whether the model's profile allows this block; without a profile it is assumed."""
    about: Mapping[str, Any] = getattr(model, "profile", None) or {}
    kind, pdf = _plain_kind(str(block["type"])), "pdf" in str(block.get("mime_type") or block.get("media_type") or "")
    name = f"{kind}_inputs" if kind in ("image", "audio", "video") else "pdf_inputs" if pdf else "attachment"
    return about.get(name) is not False


def _plain_kind(kind: str) -> str:
    return {"image_url": "image", "input_image": "image", "input_audio": "audio"}.get(kind, kind)
