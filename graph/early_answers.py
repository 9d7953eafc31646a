"""Plain answers that come before their question: LangGraph gives one to whatever interrupts next.

Within another graph that may be the question of a later node, because the answer stays in the outer checkpoint until
our node of that graph ends. After work was cut off, no question is open at all.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.effects import WITHIN
from donewhen.state.errors import StaleAnswer
from donewhen.state.people.answers import AnswerShape, read_shape, read_signed
from donewhen.state.private_langgraph import (
    CHECKPOINTER_KEY,
    INTERRUPT,
    NULL_TASK_ID,
    RESUME,
    RESUME_MAP_KEY,
    SCRATCHPAD_KEY,
    goes_on_with,
)


def is_in_outer_graph(config: RunnableConfig) -> bool:
    """Return whether a node of our graph runs within another graph."""
    return "|" in str((config.get("configurable") or {}).get("checkpoint_ns", ""))


async def refuse_early_answer(config: RunnableConfig) -> None:
    """Raise StaleAnswer if, in an outer graph, a plain answer is left when a node of ours begins that asks nothing.

    The same for one by the id of an earlier question of the run, where that goes on. Without an outer graph LangGraph
    drops both. An approval that comes once more is dropped: pages that were stopped send it to go on.
    """
    place = config.get("configurable") or {}
    if not is_in_outer_graph(config) or SCRATCHPAD_KEY not in place or WITHIN in place:
        return
    if (early := place[SCRATCHPAD_KEY].get_null_resume(True)) is not None:
        await forget_answer(config)
    else:
        early = await _find_answer_by_id(config)
    if early is None or _approves(early):
        return
    raise StaleAnswer(
        f"thread {place['thread_id']}: nothing waits for {early!r:.100}: it was stopped at work, and its questions are "
        "answered. With None it goes on; a question of another node is answered by its id"
    )


async def _find_answer_by_id(config: RunnableConfig) -> Any:
    """Return what is given by id to an earlier question of this run, if its graph goes on with this node; None if
    nothing is but what the question took. Later nodes see the answers of their call too, which are not late.
    """
    place = config["configurable"]
    given = {id: answer for id, answer in (place.get(RESUME_MAP_KEY) or {}).items() if not _approves(answer)}
    saver = place.get(CHECKPOINTER_KEY)
    if not given or not goes_on_with(config) or not isinstance(saver, BaseCheckpointSaver):
        return None
    now = _checkpoint_of(str(place["checkpoint_ns"]).rpartition("|")[0], place)
    every: Any = {"configurable": {**now["configurable"], "checkpoint_id": None}}

    async def read() -> list[CheckpointTuple]:
        return [each async for each in saver.alist(every, before=now)]

    for stored in await _on_saver(read, lambda: list(saver.list(every, before=now))):
        writes = stored.pending_writes or ()
        taken = [answer for _, channel, answers in writes if channel == RESUME for answer in answers]
        asked = {each.id for _, channel, all in writes if channel == INTERRUPT for each in all}
        for id in asked & given.keys():
            if given[id] not in taken:
                return given[id]
    return None


def _approves(answer: Any) -> bool:
    shape = read_shape(read_signed(answer)[0])
    return isinstance(shape, AnswerShape) and (shape.verb, shape.text) in (("approve", ""), ("text", "approve"))


async def drop_early_answer(config: RunnableConfig) -> Any:
    """Drop a plain answer if the question that would take it was never shown, and return it; None if there is none."""
    place = config.get("configurable") or {}
    saver, scratchpad = place.get(CHECKPOINTER_KEY), place[SCRATCHPAD_KEY]
    if not isinstance(saver, BaseCheckpointSaver) or scratchpad.get_null_resume(False) is None:
        return None
    namespace, _, task = str(place["checkpoint_ns"]).rpartition("|")
    if stored := await _read(namespace, saver, place):
        shown = {id for id, channel, _ in stored.pending_writes or () if channel == INTERRUPT}
        if task.rpartition(":")[2] in shown or stored.metadata.get("source") != "loop":  # or was written by hand
            return None
    if (early := scratchpad.get_null_resume(True)) is not None:
        await forget_answer(config)
    return early


async def forget_answer(config: RunnableConfig) -> None:
    """Take a plain answer out of the outermost checkpoint, so that nothing else is given it later."""
    place, nothing = config.get("configurable") or {}, [(RESUME, None)]
    if isinstance(saver := place.get(CHECKPOINTER_KEY), BaseCheckpointSaver):
        at = _checkpoint_of("", place)
        await _on_saver(
            partial(saver.aput_writes, at, nothing, NULL_TASK_ID), partial(saver.put_writes, at, nothing, NULL_TASK_ID)
        )


async def _read(namespace: str, saver: BaseCheckpointSaver[Any], place: Mapping[str, Any]) -> Any:
    """Return the stored checkpoint at which the graph of this namespace works; None if it is not stored."""
    at = _checkpoint_of(namespace, place)
    return await _on_saver(partial(saver.aget_tuple, at), partial(saver.get_tuple, at))


def _checkpoint_of(namespace: str, place: Mapping[str, Any]) -> RunnableConfig:
    """Return the configuration of the checkpoint at which the graph of this namespace works."""
    id = (place.get("checkpoint_map") or {}).get(namespace)
    return {"configurable": {"thread_id": place["thread_id"], "checkpoint_ns": namespace, "checkpoint_id": id}}


async def _on_saver(work: Callable[[], Awaitable[Any]], blocking: Callable[[], Any]) -> Any:
    """Return what a checkpointer's method returns; one without async methods is asked in a thread."""
    try:
        return await work()
    except NotImplementedError:
        return await run_in_thread(blocking)
