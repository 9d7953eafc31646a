"""Ask a tool's own functions about a call: whether it took effect when it was cut off, and which text it replaces."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from langchain_core.tools import BaseTool, StructuredTool

from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.call import LIMIT, CallResult, call_tool
from donewhen.graph.tools.rendering import render_value
from donewhen.state.people.payload import text_difference
from donewhen.state.secrets import redact_json

PROBE_SECONDS = 30.0
"""The longest that a probe may take."""
HAPPENED = "The call took effect before an interruption."


async def ask_probe(
    tool: BaseTool, arguments: Mapping[str, Any], key: str, seconds: float = PROBE_SECONDS
) -> CallResult | Literal[False] | None:
    """Ask the tool's probe about a call; return its result if it took effect, False if not, None if that is unknown.

    A probe is `tool.metadata["probe"]`, a function, synchronous or not, of the arguments (and `idempotency_key`, if it
    takes one) that returns True or the call's output, False, or None. One that raises, takes too long or gives back
    something empty knows nothing; a person is asked then.
    """
    probe = (tool.metadata or {}).get("probe")
    if probe is None:
        return None
    found = await _answer(probe, arguments, key, seconds)
    if found is True:
        return CallResult(True, HAPPENED, 0.0)
    if found is False:
        return False
    return CallResult(True, render_value(found, LIMIT), 0.0) if _says_something(found) else None


async def differences(tool: BaseTool, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return, by argument, how its text differs from the one that it replaces; {} if the tool does not say.

    `tool.metadata["replaces"]` is a function, synchronous or not, of the arguments that returns the texts in whose
    place those of the call would stand, by argument: `{"content": "what the file holds"}`.
    """
    replaces = (tool.metadata or {}).get("replaces")
    found = replaces and await _answer(replaces, arguments, "", PROBE_SECONDS)
    texts = found if isinstance(found, Mapping) else {}
    diffs = {name: text_difference(str(old), str(arguments[name])) for name, old in texts.items() if name in arguments}
    return dict(redact_json({name: diff for name, diff in diffs.items() if diff}))


def _says_something(found: object) -> bool:
    try:
        return bool(found.strip() if isinstance(found, str) else found)
    except Exception:  # an array of several values, say
        return False


async def _answer(probe: Callable[..., Any], arguments: Mapping[str, Any], key: str, seconds: float) -> object | None:
    """Return what the probe returns; None if it raises or takes too long."""
    answers: list[object] = []

    async def ask() -> str:
        keyed = "idempotency_key" in inspect.signature(probe).parameters
        asked = partial(probe, dict(arguments), **({"idempotency_key": key} if keyed else {}))
        found = asked() if inspect.iscoroutinefunction(probe) else await run_in_thread(asked)
        answers.append(await found if inspect.isawaitable(found) else found)
        return ""

    nothing = {"type": "object", "properties": {}}
    asking = StructuredTool(name="probe", description="Ask.", args_schema=nothing, coroutine=ask)
    await call_tool(asking, {}, timeout=seconds)
    return answers[0] if answers else None
