"""What the user says while a run works: written down beside the thread, taken at the next round of who is at work."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from donewhen.graph.context import settings_of
from donewhen.graph.events import now, thread_of
from donewhen.graph.tools.effects import label, read_all
from donewhen.state.graph_state import Json
from donewhen.state.proof.journal import observation
from donewhen.state.settings import Settings

AT_WORK = (
    "The user says this while you work. Follow it from here on; where it makes the plan or finished work wrong, "
    "give_up with kind replan."
)


def _space(thread_id: str) -> tuple[str, ...]:
    return ("donewhen", "told", label(thread_id))


async def tell(store: BaseStore, thread_id: str, text: str) -> str:
    """Write down what the user says, in its order, and return its key."""
    said, key = {"text": text, "at": now("milliseconds")}, f"{time.time_ns():020}"
    await store.aput(_space(thread_id), key, said, index=False)
    return key


async def unheard(store: BaseStore, thread_id: str, heard: str) -> list[Json]:
    """Return `{key, text, at}` of what was said after `heard`, in its order."""
    items = await read_all(store, _space(thread_id))
    rows = [{"key": item.key, **item.value} for item in items if item.key > heard]
    return sorted(rows, key=lambda row: row["key"])


async def take_back(store: BaseStore, thread_id: str, key: str) -> None:
    """Forget one message: nobody is there to hear it."""
    await store.adelete(_space(thread_id), key)


async def told_since(runtime: Runtime[Settings], settings: Settings, heard: str) -> list[Json]:
    """`{key, text, at}` of what was said after `heard`, in its order; [] where the settings refuse it."""
    if runtime.store is None or settings.when_busy != "next_round":
        return []
    return await unheard(runtime.store, thread_of(runtime), heard)


async def forget(store: BaseStore, thread_id: str) -> None:
    """A new request begins; what was said to the last one is its own."""
    for item in await read_all(store, _space(thread_id)):
        await store.adelete(item.namespace, item.key)


def as_message(told: Sequence[Mapping[str, Any]], then: str = AT_WORK) -> HumanMessage:
    """What a model is shown of it."""
    words = "\n".join(str(row["text"]) for row in told)
    return HumanMessage(f"<user_said>\n{words}\n</user_said>\n{then}")


async def hearing(
    state: Any, record: Literal["record", "planning"], heard: str, runtime: Runtime[Settings], then: str = AT_WORK
) -> tuple[Any, list[AnyMessage]]:
    """The state of a round with what the user said since `heard`, and the message that says it, if there is one."""
    if not (told := await told_since(runtime, settings_of(runtime), heard)):
        return state, []
    said = as_message(told, then)
    now = {record: {**state[record], "heard": told[-1]["key"]}, "transcript": [*state.get("transcript", ()), said]}
    return {**state, **now}, [said]


def as_entries(told: Sequence[Mapping[str, Any]], number: int) -> list[Json]:
    """What the journal keeps of it, numbered from `number`: the user's words, for everybody who works after it."""
    said = {"question": "", "by": "user"}
    return [
        observation(f"said.{n}", "plan", 0, "user", row["text"], arguments=said, at=row["at"])
        for n, row in enumerate(told, number)
    ]
