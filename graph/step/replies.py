"""Save the reply of a round before acting on it.
// A round is one checkpoint, and still no model is asked again after a crash within the round.
"""

import base64

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.runtime import Runtime

from donewhen.graph.events import thread_of
from donewhen.graph.tools.effects import store_label
from donewhen.state.run import Step
from donewhen.state.settings import Settings

NAMESPACE = ("donewhen", "replies")
_SERDE = JsonPlusSerializer(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)


async def load_reply(state: Step, runtime: Runtime[Settings]) -> Step | None:
    """Return the saved update of this round's reply, if a crash interrupted the round."""
    if state["begun"] or runtime.store is None:
        return None
    state["begun"].add(_round(runtime))
    item = await runtime.store.aget(*_place(state, runtime))
    if item is None or item.value["round"] != _round(runtime):
        return None
    update: Step = _SERDE.loads_typed((item.value["type"], base64.b64decode(item.value["update"])))
    return update


async def save_reply(state: Step, runtime: Runtime[Settings], update: Step) -> bool:
    """Save the update of a reply, replacing that of the previous round; return False if there is no store."""
    if runtime.store is None:
        return False
    type, data = _SERDE.dumps_typed(update)
    value = {"round": _round(runtime), "type": type, "update": base64.b64encode(data).decode()}
    await runtime.store.aput(*_place(state, runtime), value, index=False)
    return True


def _place(state: Step, runtime: Runtime[Settings]) -> tuple[tuple[str, ...], str]:
    """Return namespace and key; the fence distinguishes several runs on one thread in an outer graph."""
    return (*NAMESPACE, store_label(thread_of(runtime))), f"{state.get('fence', '')}:{state['step']['id']}"


def _round(runtime: Runtime[Settings]) -> str:
    """Return LangGraph's id of this task: the same after a crash, different for every other checkpoint."""
    info = runtime.execution_info
    return str(info.task_id if info else "")
