"""Reading on in an observation that was shown in part."""

from langgraph.runtime import Runtime

from donewhen.graph.context import settings_of
from donewhen.graph.execute.leaving import seen_before
from donewhen.graph.execute.observing import thread_of, whole
from donewhen.graph.tools.rendering import cut_before
from donewhen.prompts import framed
from donewhen.state.run import Json, Step
from donewhen.state.settings import Settings

HEADER_CHARS = 200


async def recall(call: Json, state: Step, new: list[Json], runtime: Runtime[Settings]) -> str:
    """What the model sees: a piece of the whole text, framed as data, and where it goes on."""
    wanted = str(call["args"]["observation"]).strip().strip("[]")
    offset = call["args"].get("offset") or 0
    entries = {e["id"]: e for e in [*seen_before(state), *new] if not e.get("outside")}
    if wanted not in entries:
        known = ", ".join(list(entries)[-15:]) or "none"
        return f"recall error\nThere is no observation {wanted[:40]!r} here; there are: {known}."
    entry = await whole(runtime.store, thread_of(runtime), state.get("turn", 1), entries[wanted])
    text = entry["text"]
    room = max(settings_of(runtime).observation_chars - HEADER_CHARS, HEADER_CHARS)
    end = max(cut_before(text, offset + room), min(offset + 1, len(text)))
    more = f"; it goes on at offset={end}" if end < len(text) else "; this is the end"
    head = f"[{wanted}] characters {offset} to {max(end, offset)} of {len(text)}{more}"
    return f"recall ok: {head}\n{framed('tool_output', text[offset:end], state.get('fence', ''))}"
