"""Effects happen once: the intent is stored before a call that changes something, the outcome after it.

On re-entry a known outcome is replayed. An intent without one is run again where that is harmless: a tool that repeats
nothing, or one that takes the key. Else the tool's probe is asked, and where there is none, a person. The key comes
from what the call is, never from a random id.
"""

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.tools import BaseTool
from langgraph.store.base import BaseStore

from graph.calling import CallResult
from state.journal import INLINE_CHARS, canonical, shortened
from state.ledger import Amounts
from state.run import Json

NAMESPACE = ("donewhen", "effects")
PATIENCE = 5.0
"""Seconds that a call which changes something has to end after its run was cancelled."""
UNSURE = ("timeout", "cancelled")
"""Errors after which nobody knows what a tool did."""


@dataclass(frozen=True)
class Outcome:
    """What a call came to, and what it cost apart from its time: the models it called in turn."""

    result: CallResult
    spent: Amounts = field(default_factory=dict)
    whole: bool = True
    """False if the text was replayed and only its head and tail were written down here."""


Run = Callable[[], Awaitable[Outcome]]


@dataclass(frozen=True)
class Ledger:
    """Where the effects of one thread are written down."""

    store: BaseStore | None
    thread_id: str
    branch: str = ""
    """Where in the thread's history this is; the same on re-entry after a crash, another one after time travel."""

    @property
    def namespace(self) -> tuple[str, ...]:
        """In the store."""
        return (*NAMESPACE, label(self.thread_id))

    async def read(self, key: str) -> Json | None:
        """The entry of a call, if it was ever intended."""
        item = await self.store.aget(self.namespace, key) if self.store else None
        return dict(item.value) if item else None

    async def write(self, key: str, entry: Json) -> None:
        """Durable before this returns."""
        if self.store:
            await self.store.aput(self.namespace, key, entry, index=False)


@dataclass(frozen=True)
class Effect:
    """One call about to be made."""

    key: str
    tool: BaseTool
    arguments: Mapping[str, Any]
    kind: Literal["read", "idempotent", "write"]
    known: str | None = None
    """What a person said of an unknown outcome: happened | not_happened | skip."""
    answers: int = 0
    """How often a person spoke of it: "it did not" is true of the attempt it was said of, and of no later one."""
    keyed: bool = False
    """Whether the tool takes the key: who calls it again with the same key gets the same effect, once."""


def label(thread_id: str) -> str:
    """A thread's id as a label of a store's namespace, which takes no dots and nothing empty."""
    return thread_id.replace("%", "%25").replace(".", "%2E") or "-"


def effect_key(
    thread_id: str, turn: int, step: str, attempt: int, round: int, position: int, tool: str, arguments: Any
) -> str:
    """Names an effect by its content. `position` tells apart equal calls of one round."""
    parts = canonical([thread_id, turn, step, attempt, round, position, tool, arguments])
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:40]


async def perform(ledger: Ledger, effect: Effect, run: Run) -> Outcome | None:
    """Make the call once. None: it may have happened, and only a person can know."""
    if effect.kind == "read":
        return await run()
    entry = await ledger.read(effect.key)
    elsewhere = entry is not None and entry.get("branch") != ledger.branch
    if entry and entry["state"] == "done" and (not elsewhere or effect.known == "happened"):
        return _replayed(entry)
    if effect.known == "skip":
        return Outcome(CallResult(False, "Skipped: a person decided not to make this call again.", 0.0))
    if effect.known == "happened":
        text = "A person confirmed that this call took effect before an interruption; its output was lost."
        return await _done(ledger, effect, Outcome(CallResult(True, text, 0.0)))
    refuted = effect.known == "not_happened" and effect.answers > (entry or {}).get("answers", 0)
    if entry and elsewhere and not refuted and (effect.kind == "write" or entry["state"] == "done"):
        return None
    if entry and effect.kind == "write" and not refuted and not effect.keyed:
        probed = await _probe(effect)
        if probed is None:
            return None
        if isinstance(probed, CallResult):
            return await _done(ledger, effect, Outcome(probed))
    await ledger.write(effect.key, _entry(ledger, effect, "intent"))
    outcome = await _uncut(ledger, effect, run)
    if effect.kind == "write" and outcome.result.error in UNSURE:
        outcome = await _probed(effect, outcome)
    return await _done(ledger, effect, outcome)


async def _uncut(ledger: Ledger, effect: Effect, run: Run) -> Outcome:
    """What the call comes to. Whoever cancels us waits a little for it, so that it is known whether it happened."""
    call = asyncio.ensure_future(run())
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait({call}, timeout=PATIENCE)
        if call.done() and not call.cancelled() and call.exception() is None:
            await _done(ledger, effect, call.result())
        elif not call.done():
            call.cancel()
            await asyncio.wait({call}, timeout=PATIENCE)
        raise


async def _probed(effect: Effect, outcome: Outcome) -> Outcome:
    """After a timeout: what the tool's probe says of the call, else what little is known."""
    probed = await _probe(effect)
    return Outcome(probed, outcome.spent) if isinstance(probed, CallResult) else outcome


def _replayed(entry: Mapping[str, Any]) -> Outcome:
    stored = dict(entry["result"])
    length = stored.pop("length")
    return Outcome(CallResult(**stored), dict(entry["spent"]), whole=length == len(stored["text"]))


async def _done(ledger: Ledger, effect: Effect, outcome: Outcome) -> Outcome:
    result, length = outcome.result, len(outcome.result.text)
    short = shortened({"text": result.text, "length": length}, INLINE_CHARS)["text"]
    stored = {
        "ok": result.ok,
        "text": short,
        "length": length,
        "seconds": result.seconds,
        "artifact": files_of(result),
        "error": result.error,
    }
    entry = _entry(ledger, effect, "done")
    await ledger.write(effect.key, {**entry, "result": stored, "spent": outcome.spent})
    return outcome


def _entry(ledger: Ledger, effect: Effect, state: Literal["intent", "done"]) -> Json:
    return {"state": state, "tool": effect.tool.name, "branch": ledger.branch, "answers": effect.answers}


def files_of(result: CallResult) -> dict[str, Any] | None:
    """What of a tool's artifact is for clients and JSON: `{"files": {path: content}}`."""
    files = result.artifact.get("files") if isinstance(result.artifact, Mapping) else None
    if not isinstance(files, Mapping):
        return None
    return {"files": {str(path): str(content) for path, content in files.items()}}


async def _probe(effect: Effect) -> CallResult | Literal[False] | None:
    """Ask the tool whether the call took effect: its result if so, False if not, None if it cannot say.

    A probe is `tool.metadata["probe"]`, a function of the arguments (and `idempotency_key`, if it takes one) that
    returns True or the call's output, False, or None.
    """
    probe = (effect.tool.metadata or {}).get("probe")
    if probe is None:
        return None
    keyed = "idempotency_key" in inspect.signature(probe).parameters
    try:
        found = probe(dict(effect.arguments), **({"idempotency_key": effect.key} if keyed else {}))
        found = await found if inspect.isawaitable(found) else found
    except Exception:
        return None  # A probe that fails knows nothing; a person is asked.
    if found is None or found is False:
        return found
    return CallResult(
        ok=True, text="The call took effect before an interruption." if found is True else str(found), seconds=0.0
    )
