"""What is remembered about threads beside their checkpoints: goal, status, and what their starter wants to know."""

from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import BaseStore

from donewhen.agent.run import Json, ThreadInfo
from donewhen.agent.storage import Storage
from donewhen.graph.tools.effects import label
from donewhen.state.errors import UnknownThread
from donewhen.state.settings import Settings

GOAL_CHARS = 500


def _namespace(thread_id: str) -> tuple[str, ...]:
    return ("donewhen", "threads", label(thread_id))


async def note_thread(
    store: BaseStore,
    thread_id: str,
    *,
    goal: str | None = None,
    status: str = "running",
    extra: Json | None = None,
    settings: Settings | None = None,
) -> None:
    """Write down what changed about a thread."""
    item = await store.aget(_namespace(thread_id), "info")
    value: dict[str, Any] = dict(item.value) if item else {"goal": "", "extra": {}}
    if goal is not None:
        value["goal"] = goal.strip()[:GOAL_CHARS]
    if extra is not None:
        value["extra"] = extra
    if settings is not None:
        value["settings"] = settings.model_dump(mode="json")
    value |= {"status": status, "updated": datetime.now(UTC).isoformat(timespec="seconds")}
    await store.aput(_namespace(thread_id), "info", value, index=False)


async def thread_info(store: BaseStore, thread_id: str) -> ThreadInfo:
    """What is remembered about one thread. Raises UnknownThread."""
    item = await store.aget(_namespace(thread_id), "info")
    if item is None:
        raise UnknownThread(f"there is no thread {thread_id!r}")
    value = item.value
    return ThreadInfo(thread_id, value["goal"], value["status"], value["updated"], value.get("extra") or {})


async def thread_settings(store: BaseStore, thread_id: str) -> Settings | None:
    """The settings with which the thread's request was started, or resumed last; None where none are remembered."""
    item = await store.aget(_namespace(thread_id), "info")
    found = item.value.get("settings") if item else None
    return None if found is None else Settings.model_validate(found)


async def list_threads(storage: Storage, limit: int) -> list[ThreadInfo]:
    """All threads with a checkpoint, the one changed last first."""
    found = []
    ids = await storage.thread_ids(limit)
    async with storage.reader() as (_, store):
        for thread_id in ids:
            try:
                found.append(await thread_info(store, thread_id))
            except UnknownThread:
                found.append(ThreadInfo(thread_id, "", "unknown", ""))
    return found
