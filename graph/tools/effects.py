"""Effects happen once: the intent is stored before a call that changes something, the outcome after it.

On re-entry a known outcome is replayed. The one rule for writes: a write whose like (tool and arguments) nobody can
account for goes first to its idempotency key, the same one; else to the tool's probe; else to a person. Accounted for
is what steps that are done have made, and what a step at work has made itself. Not so what was cut off or timed out,
and what was made by an attempt that did not end `done`, in another branch of the thread's history, or in rounds that a
crash lost.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from langchain_core.tools import BaseTool
from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from donewhen.graph.tools.call import CallResult
from donewhen.graph.tools.injection import takes_key
from donewhen.graph.tools.probing import ask_probe
from donewhen.state.graph_state import Json
from donewhen.state.ledger import Amounts
from donewhen.state.proof.journal import INLINE_CHARS, call_key, canonical, shortened

NAMESPACE = ("donewhen", "effects")
PATIENCE = 5.0
"""Seconds that a call which changes something has to end after its run was cancelled."""
READS, FRESH = 4, 0.5
"""Times that the store is asked at most right before a write, and seconds in which its answer is one of now."""
UNSURE = ("timeout", "cancelled", "unanswered")
"""Errors after which it is unknown what a tool did."""


@dataclass(frozen=True)
class CallOutcome:
    """What a call came to, and what it cost apart from its time: the models it called in turn."""

    result: CallResult
    spent: Amounts = field(default_factory=dict)
    whole: bool = True
    """False if the text was replayed and only its head and tail were written down here."""
    claim: str = ""
    """Of a write whose outcome is known: what the run keeps to account for it."""


@dataclass(frozen=True)
class Doubt:
    """Why a call is not made before a person said something about it."""

    attempt: str
    """Which attempt of the call it is about; "it did not happen" is true of this one, and of no later one."""
    done: bool
    """Whether it was made; else it was cut off or timed out, and its outcome is unknown."""
    step: str = ""
    """Which step made it."""


MakeCall = Callable[[str], Awaitable[CallOutcome]]
"""Makes the call with a key for a service that knows it again."""


@dataclass(frozen=True)
class EffectLog:
    """Where the effects of one thread are written down."""

    store: BaseStore | None
    thread_id: str
    branch: str = ""
    """Where in the thread's history this is; the same on re-entry after a crash, another one after time travel."""
    step: str = ""
    claims: Collection[str] = ()
    """Of the writes that are accounted for: those of all requests, of whichever step."""

    @property
    def namespace(self) -> tuple[str, ...]:
        """In the store."""
        return (*NAMESPACE, label(self.thread_id))

    async def read(self, *keys: str) -> list[Json | None]:
        """The entries of calls, of each that was ever intended."""
        if self.store is None or not keys:
            return [None for _ in keys]
        items = await self.store.abatch([GetOp(self.namespace, key) for key in keys])
        return [dict(item.value) if isinstance(item, Item) else None for item in items]

    async def write(self, entries: Mapping[str, Json]) -> None:
        """Durable, all together, before this returns."""
        if self.store:
            await self.store.abatch([PutOp(self.namespace, key, entry, index=False) for key, entry in entries.items()])

    async def intend(self, effect: "Effect", alike: Sequence[str]) -> None:
        """Write down that the call is about to be made and, of a write, that there is one more than these `alike`.

        The last word is a read: a worker that was frozen here and lost its thread to another learns it before the call.
        An answer that took long may have come before a freeze, so it is asked again.
        """
        more = effect.kind == "write" and effect.key not in alike
        listed = {_same(effect): {"keys": [*alike, effect.key]}} if more else {}
        await self.write({**listed, effect.key: _entry(self, effect, "intent")})
        for _ in range(READS if effect.kind == "write" and not effect.keyed else 0):
            asked = time.monotonic()
            await self.read(effect.key)
            if time.monotonic() - asked < FRESH:
                break

    async def unaccounted(self, alike: Sequence[str]) -> list[tuple[str, Json]]:
        """Those of these writes that no step has accounted for, those of this dispatch first.

        What another step of the same dispatch does at this moment is its own; and what failed for certain elsewhere
        was not made.
        """
        found, keys = [], [key for key in alike if claim(key) not in self.claims]
        for key, entry in zip(keys, await self.read(*keys), strict=True):
            if entry is None or (entry["branch"] == self.branch and entry["step"] != self.step and not _unsure(entry)):
                continue
            if entry["branch"] == self.branch or entry["state"] != "done" or entry["result"]["ok"]:
                found.append((key, entry))
        return sorted(found, key=lambda each: each[1]["branch"] != self.branch)


@dataclass(frozen=True)
class Effect:
    """One call about to be made."""

    key: str
    tool: BaseTool
    arguments: Mapping[str, Any]
    kind: Literal["read", "idempotent", "write"]
    known: str | None = None
    """What a person said of an unknown outcome: happened | not_happened | skip."""
    attempt: str = ""
    """Of which attempt that was said."""

    @property
    def keyed(self) -> bool:
        """Whether the tool takes the key: who calls it again with the same key gets the same effect, once."""
        return takes_key(self.tool)


def label(thread_id: str) -> str:
    """A thread's id as a label of a store's namespace, which takes no dots and nothing empty."""
    return thread_id.replace("%", "%25").replace(".", "%2E") or "-"


def effect_key(
    thread_id: str, turn: int, step: str, attempt: int, round: int, position: int, tool: str, arguments: Any
) -> str:
    """Names an effect by its content. `position` tells apart equal calls of one round."""
    parts = canonical([thread_id, turn, step, attempt, round, position, tool, arguments])
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def claim(key: str) -> str:
    """The key as the state of a run keeps it, short: there may be many."""
    return key[:16]


def _same(effect: Effect) -> str:
    """Under which key it stands which calls were of the same tool and arguments."""
    return f"like.{call_key(effect.tool.name, effect.arguments)}"


async def perform(ledger: EffectLog, effect: Effect, run: MakeCall) -> CallOutcome | Doubt:
    """Make the call once; a Doubt says why only a person can decide whether it is made."""
    if effect.kind == "read":
        return await run(effect.key)
    (entry, same), again = await ledger.read(effect.key, _same(effect)), False
    alike: list[str] = same["keys"] if same and effect.kind == "write" else []
    if entry is None and (others := await ledger.unaccounted(alike)):
        key, entry = others[0]
        effect, again = replace(effect, key=key), True
    return await _performed(ledger, effect, entry, alike, run, again=again)


async def _performed(
    ledger: EffectLog, effect: Effect, entry: Json | None, alike: Sequence[str], run: MakeCall, *, again: bool
) -> CallOutcome | Doubt:
    """`alike`: all intended writes of the same tool and arguments; `again`: the entry is of another one of these."""
    here = entry is not None and entry["branch"] == ledger.branch
    if entry and entry["state"] != "intent" and here and not (again and _unsure(entry)):
        return _replayed(effect, entry)
    if effect.known == "skip":
        return CallOutcome(CallResult(False, "Skipped: a person decided not to make this call again.", 0.0))
    if effect.known == "happened":
        if entry and entry["state"] == "done":
            return _replayed(effect, entry)
        text = "A person confirmed that this call took effect before an interruption; its output was lost."
        return await _ended(ledger, effect, CallOutcome(CallResult(True, text, 0.0)))
    attempt = f"{claim(effect.key)}@{entry['branch']}" if entry else ""
    refuted = effect.known == "not_happened" and effect.attempt == attempt
    if entry and effect.kind == "write" and not refuted and not effect.keyed:
        probed = await ask_probe(effect.tool, effect.arguments, effect.key)
        if probed is None:
            return Doubt(attempt, entry["state"] == "done", entry["step"])
        if isinstance(probed, CallResult):
            return await _ended(ledger, effect, CallOutcome(probed))
    await ledger.intend(effect, alike)
    doubted = entry is not None and effect.keyed and not refuted
    outcome = await _uncut(ledger, effect, run, doubted=doubted)
    if effect.kind == "write" and outcome.result.error in UNSURE:
        probed = await ask_probe(effect.tool, effect.arguments, effect.key)
        outcome = CallOutcome(probed, outcome.spent) if isinstance(probed, CallResult) else outcome
    return await _ended(ledger, effect, outcome, doubted=doubted)


async def _uncut(ledger: EffectLog, effect: Effect, run: MakeCall, *, doubted: bool) -> CallOutcome:
    """What the call comes to. Whoever cancels us waits a little for it, so that it is known whether it happened."""
    call = asyncio.ensure_future(run(effect.key))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait({call}, timeout=PATIENCE)
        if call.done() and not call.cancelled() and call.exception() is None:
            await _ended(ledger, effect, call.result(), doubted=doubted)
        elif not call.done():
            call.cancel()
            await asyncio.wait({call}, timeout=PATIENCE)
        raise


def _unsure(entry: Mapping[str, Any]) -> bool:
    return bool(entry["state"] == "unsure")


def _replayed(effect: Effect, entry: Mapping[str, Any]) -> CallOutcome:
    stored = dict(entry["result"])
    whole = stored.pop("length") == len(stored["text"])
    return _accounted(effect, entry, CallOutcome(CallResult(**stored), dict(entry["spent"]), whole))


def _accounted(effect: Effect, entry: Mapping[str, Any], outcome: CallOutcome) -> CallOutcome:
    """With the claim of a write whose outcome is known."""
    return outcome if effect.kind != "write" or _unsure(entry) else replace(outcome, claim=claim(effect.key))


async def _ended(ledger: EffectLog, effect: Effect, outcome: CallOutcome, *, doubted: bool = False) -> CallOutcome:
    """`doubted`: the call was made before, with the same key; where it fails now, that one is as unknown as it was."""
    result, length = outcome.result, len(outcome.result.text)
    stored = {
        "ok": result.ok,
        "text": short_of(result.text),
        "length": length,
        "seconds": result.seconds,
        "artifact": kept_of(result),
        "error": result.error,
    }
    unsure = result.error in UNSURE or (doubted and not result.ok)
    entry = _entry(ledger, effect, "unsure" if unsure else "done")
    await ledger.write({effect.key: {**entry, "result": stored, "spent": outcome.spent}})
    return _accounted(effect, entry, outcome)


def short_of(text: str) -> str:
    """Head and tail of a text, as an entry has it."""
    return str(shortened({"text": text, "length": len(text)}, INLINE_CHARS)["text"])


def _entry(ledger: EffectLog, effect: Effect, state: Literal["intent", "unsure", "done"]) -> Json:
    return {"state": state, "tool": effect.tool.name, "branch": ledger.branch, "step": ledger.step}


def kept_of(result: CallResult) -> dict[str, Any] | None:
    """What of an artifact is kept, as JSON: `files` (path → content), and an executor's `transcript` and `asks`."""
    artifact = result.artifact if isinstance(result.artifact, Mapping) else {}
    kept = {key: artifact[key] for key in ("asks", "answers", "first", "position", "transcript") if key in artifact}
    if isinstance(files := artifact.get("files"), Mapping):
        kept["files"] = {str(path): str(content) for path, content in files.items()}
    return kept or None
