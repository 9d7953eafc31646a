"""Images and files of the conversation, and images of tools: stored once per thread, and shown to models.

Those of the conversation stand after the brief, those of tools behind the result that had them.
"""

import base64
import json
import mimetypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from donewhen.graph.events import thread_of
from donewhen.graph.llm.adapter import model_name
from donewhen.graph.llm.history import image_parts, observations_in, tool_images
from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.call import CallOutcome
from donewhen.state.channels import Json, RunState
from donewhen.state.errors import DoneWhenError
from donewhen.state.proof.journal import digest
from donewhen.state.records import JournalEntry
from donewhen.state.settings import Settings
from donewhen.state.values import store_label

NAMESPACE = ("donewhen", "attachments")
MOST, MOST_CHARS = 20, 30_000_000
"""The most attachments of a request, and the most characters of all of them as JSON."""
TOOL_CHARS = 20_000_000
"""The most characters of the images of tools in one request to a model."""
NOT_TAKEN = "this model does not take it"
NO_STORE = "its images are not shown: this graph was compiled without a store"


def blocks_of(message: BaseMessage) -> list[Json]:
    """Return the content blocks of a person's message that are not text."""
    content = message.content if isinstance(message, HumanMessage) and isinstance(message.content, list) else []
    return [dict(block) for block in content if isinstance(block, Mapping) and block.get("type") not in ("text", None)]


def attachment_block(name: str, data: bytes) -> Json:
    """Return a file as a content block: an image, audio or video by its name, or else a file."""
    mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
    kind = mime.partition("/")[0]
    kind = kind if kind in ("image", "audio", "video") else "file"
    filename = {"filename": name} if kind == "file" else {}
    return {"type": kind, "base64": base64.b64encode(data).decode(), "mime_type": mime, **filename}


Models = Callable[[str], BaseChatModel]
"""Returns the model of a role."""


def attachment_problem(blocks: Sequence[Json], models: Models) -> str | None:
    """Return why a request with these attachments cannot be worked on, in words for the user; None if it can."""
    if len(blocks) > MOST:
        return f"The request has {len(blocks)} images and files; at most {MOST} are read."
    texts = [_as_json(block) for block in blocks]
    if None in texts:
        kind = blocks[texts.index(None)]["type"]
        return f"The {kind} in the request is not plain JSON; give its data as base64, or its address."
    if (size := sum(len(text or "") for text in texts)) > MOST_CHARS:
        return f"The images and files of the request have {size:,} characters; at most {MOST_CHARS:,} are read."
    return next((problem for block in blocks if (problem := _refusal(block, models))), None)


def _refusal(block: Json, models: Models) -> str | None:
    """Return which model of a request takes no such block, and what to do; None if all take it."""
    for role in ("triage", "plan", "execute"):
        with suppress(DoneWhenError):  # a model that cannot be made is reported when it is asked
            if not _takes(model := models(role), block):
                return (
                    f"The model {model_name(model)} ({role}) takes no {_plain_kind(block['type'])}, so it would not be "
                    "seen. Choose a model that does, or say in words what matters in it."
                )
    return None


def fitting_blocks(blocks: Iterable[Json], models: Models) -> list[Json]:
    """Return the attachments that a request can have, each beside those before it; the others are left out."""
    fitting, room = list[Json](), MOST_CHARS
    for block in blocks:
        size = MOST_CHARS + 1 if (text := _as_json(block)) is None else len(text)
        if len(fitting) < MOST and size <= room and _refusal(block, models) is None:
            fitting.append(block)
            room -= size
    return fitting


async def attach(messages: Iterable[BaseMessage], runtime: Runtime[Settings]) -> list[Json]:
    """Store the attachments of the conversation, each once; return the newest 20 for the state.

    With a store, the data is kept there instead of in the state.
    """
    blocks = (block for m in messages if isinstance(m.content, list) for block in blocks_of(m))
    blocks_by_key = {digest(text): (block, text) for block in blocks if (text := _as_json(block))}
    return [await _keep(key, block, len(said), runtime) for key, (block, said) in list(blocks_by_key.items())[-MOST:]]


async def _keep(key: str, block: Json, chars: int, runtime: Runtime[Settings]) -> Json:
    if runtime.store is not None:
        await runtime.store.aput(_place(thread_of(runtime)), key, {"block": block}, index=False)
    inline = {} if runtime.store is not None else {"block": block}
    return {"key": key, "type": block["type"], "chars": chars, **inline}


async def keep_images(result: CallOutcome, runtime: Runtime[Settings]) -> CallOutcome:
    """Return the result of a call with its images in the store; the state has only what names them.

    Without a store its text says that they are not shown.
    """
    if runtime.store is None:
        return replace(result, images=(), text=f"{result.text}\n({NO_STORE})")
    hashed = [await run_in_thread(partial(digest, each["base64"])) for each in result.images]
    sizes = [len(each["base64"]) for each in result.images]
    pairs = zip(hashed, result.images, sizes, strict=True)
    return replace(result, images=[await _keep(key, block, size, runtime) for key, block, size in pairs])


async def with_images(
    rounds: Sequence[AnyMessage],
    entries: Iterable[JournalEntry],
    fence: str,
    runtime: Runtime[Settings],
    model: Callable[[], BaseChatModel],
) -> Sequence[AnyMessage]:
    """Return the rounds with the images of these observations behind the messages that show them.

    Each image stands there once, and again where it was recalled. A model that takes no images is told of each, and
    any model of early ones that are left out.
    """
    images = {entry["id"]: entry["images"] for entry in entries if entry.get("images")}
    if not images:
        return rounds
    images_shown, keys = list[tuple[int, str, Json]](), set[str]()
    for place, message in enumerate(rounds):
        for id, again in () if isinstance(message, AIMessage) else observations_in(str(message.text)):
            images_shown += [(place, id, image) for image in images.get(id, ()) if again or image["key"] not in keys]
            keys |= {image["key"] for image in images.get(id, ())}
    left_out, why = (
        _too_many([image["chars"] for _, _, image in images_shown]),
        "it is an early one; recall shows it again",
    )
    with suppress(DoneWhenError):  # a model that cannot be made is an error of its own, where it is asked
        if not _takes(model(), {"type": "image"}):
            left_out, why = len(images_shown), NOT_TAKEN
    behind: dict[int, list[Any]] = {}
    for number, (place, id, image) in enumerate(images_shown):
        block = await _load(image, runtime.store, thread_of(runtime)) if number >= left_out else None
        behind.setdefault(place, []).extend(image_parts(id, block, fence, why))
    return [
        each
        for place, message in enumerate(rounds)
        for each in (message, *([tool_images(behind[place])] if place in behind else ()))
    ]


def _too_many(chars: Sequence[int]) -> int:
    """Return how many of the oldest images to leave out, so that the others are few and small enough.

    The number grows in steps, so that the beginning of a request is the same from round to round.
    """
    fits, room = 0, TOOL_CHARS
    while fits < min(len(chars), MOST) and (room := room - chars[-1 - fits]) >= 0:
        fits += 1
    step = max(fits // 2, 1)
    return min(-(-(len(chars) - fits) // step) * step, len(chars))


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
    """Return the brief with its attachments; a text replaces each that the model does not accept."""
    if not attachments:
        return HumanMessage(brief)
    parts: list[Any] = [{"type": "text", "text": brief}]
    reader = None
    with suppress(DoneWhenError):  # a model that cannot be made is an error of its own, where it is asked
        reader = model() if model else None
    for number, each in enumerate(attachments, 1):
        block = await _load(each, runtime.store, thread_of(runtime))
        named = f'<attachment number="{number}" type="{_plain_kind(each["type"])}">'
        if block is None or (reader is not None and not _takes(reader, block)):
            parts.append({"type": "text", "text": f"{named}not shown: {NOT_TAKEN}</attachment>"})
        else:
            if block["type"] == "text-plain" and isinstance(block.get("text"), str):
                block = {"type": "text", "text": block["text"]}
            parts += [{"type": "text", "text": named}, block, {"type": "text", "text": "</attachment>"}]
    return HumanMessage(parts)


async def read_blocks(rows: Iterable[Mapping[str, Any]], store: BaseStore, thread_id: str) -> list[Json]:
    """Return the content blocks of a thread's attachments; one that is no longer stored is left out."""
    blocks = [await _load(row, store, thread_id) for row in rows]
    return [block for block in blocks if block is not None]


async def _load(row: Mapping[str, Any], store: BaseStore | None, thread_id: str) -> Json | None:
    if (block := row.get("block")) is None and store is not None:
        item = await store.aget(_place(thread_id), row["key"])
        block = item.value["block"] if item else None
    return block


def _place(thread_id: str) -> tuple[str, ...]:
    return (*NAMESPACE, store_label(thread_id))


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
