"""Make effects happen once: store the intent before a call with effects, and its outcome afterwards.

When a node runs again after a crash, a known outcome is replayed. One rule holds for writes: while an equal write
(same tool and arguments) is not accounted for, the next one is decided by the tool's probe, else by its idempotency
key, else by a person. `account_for` is the table of who accounts for what: the writes of finished steps, and those
that a working step made itself, are accounted for; not so writes that began without a normal result, unless the error
proves that nothing happened (`certain`), writes that a person said had happened, and writes of an attempt that did not
end `done`, of another branch of the thread's history, or of rounds that a crash lost. Handoffs to an agent never have
the same words twice, so every earlier handoff to that agent with an unknown outcome counts as equal. So do calls that
differ only in their time limit, because models raise it after it ran out.

A call that may be made twice is made again after a crash, unless its probe finds that it took effect. If the probe
does not, and what the call replaces has changed since it began, a person decides.

Each write has an entry under its key, and a row under its content. A writer first writes its row and then looks for
others, so of two writers at the same time at least one sees the other. A write that succeeded hides the rows of those
that share its fate (`covered`), so a search finds few rows, however often the same was written.
"""

import asyncio
import hashlib
import inspect
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, Literal, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchOp

from donewhen.graph.events import moment
from donewhen.graph.sync import call_in_time, finish_batch
from donewhen.graph.tools.call import LIMIT, CallOutcome
from donewhen.graph.tools.rendering import cap_text, describe_error, print_value, render_value
from donewhen.graph.tools.toolbox import KnownTool
from donewhen.state.channels import Json
from donewhen.state.people.payload import comparable_text, text_difference
from donewhen.state.private_langgraph import CHECKPOINTER_KEY
from donewhen.state.proof.journal import call_key, canonical_json, digest, shorten_text
from donewhen.state.records import Call
from donewhen.state.secrets import conceal, redact_json
from donewhen.state.values import store_label

NAMESPACE = ("donewhen", "effects")
EFFECT_PATIENCE = 5.0
"""Seconds that a call with effects has to end after its run was cancelled."""
LOOKS, FRESH = 4, 0.5
"""The most looks at the store right before a write, and the seconds within which an answer counts as current."""
EVERY = 1_000_000_000
"""A limit that no search reaches; without one, stores return ten items."""
NAMED_CHARS = 300
"""The most characters per argument when a call with an unknown outcome is named."""
STORED_PARTS = ("asks", "answers", "asked", "first", "position", "transcript")
PAGE = 500
"""Items per request to a store."""
BEGAN = "It is unknown whether this took effect: it began, and no result came."
IS_UNKNOWN = f"{BEGAN} Find that out before you do it again; the same call once more asks the user."
MAY_BE_REPEATED = f"{BEGAN} The same call once more does no harm."
HAS_KEY = f"{BEGAN} The same call once more is safe: it is made with the same key, so that it happens once."
WITHIN = "__donewhen_within"
"""Configuration key of an executor's run on another run's thread; the value names the executor."""
FURTHEST = 1000
"""The most checkpoints that are searched for one of an outer graph."""
PROBE_SECONDS = 30.0
"""The time limit of a probe."""
HAPPENED = "The call took effect before an interruption."
CONFIRMED = "A person confirmed that this call took effect; its output was lost."


@dataclass(frozen=True)
class Place:
    """The place of a run on its thread: alone, as a node of an outer graph, or as another run's executor.

    Each such run has its own requests and steps; equal calls of two runs are different effects.
    """

    nodes: tuple[str, ...] = ()
    """Nodes of outer graphs, by LangGraph's task names, outermost first; () for a run that is alone."""
    checkpoints: tuple[str, ...] = ()
    """The checkpoint from which each of these nodes ran."""
    dispatch: str = ""
    """The checkpoint of our graph from which the current node ran: the same after a crash, different in a branch."""
    saver: BaseCheckpointSaver[Any] | None = None
    thread_id: str = ""

    @classmethod
    def of(cls, config: RunnableConfig, *, depth: int) -> "Place":
        """Return the place of a node `depth` levels inside our graph; 1 is a node of the graph itself."""
        configurable = config.get("configurable") or {}
        path = str(configurable.get("checkpoint_ns", "")).split("|")[:-depth]
        ids: Mapping[str, str] = configurable.get("checkpoint_map") or {}
        *around, dispatch = (str(ids.get("|".join(path[:n]), "")) for n in range(len(path) + 1))
        within = configurable.get(WITHIN)
        saver = configurable.get(CHECKPOINTER_KEY)
        return cls(
            (within, *path) if within else tuple(path),
            ("", *around) if within else tuple(around),
            dispatch,
            saver if isinstance(saver, BaseCheckpointSaver) else None,
            str(configurable.get("thread_id", "")),
        )

    @property
    def scope(self) -> str:
        """The name of the run among those on the thread."""
        return "|".join(self.nodes)

    def is_beside(self, nodes: Sequence[str], checkpoints: Sequence[str]) -> bool:
        """Return whether a run belongs to the same step of an outer graph as this one."""
        level = self._first_difference(nodes, checkpoints)
        return level < len(checkpoints) and checkpoints[level] == self.checkpoints[level] != ""

    async def follows(self, nodes: Sequence[str], checkpoints: Sequence[str]) -> bool:
        """Return whether a run came before this one or beside it, and not in another branch of the history."""
        level = self._first_difference(nodes, checkpoints)
        if level in (len(checkpoints), len(self.checkpoints)) or checkpoints[level] in ("", self.checkpoints[level]):
            return True
        async for id, source in self._walk_back("|".join(self.nodes[:level]), self.checkpoints[level]):
            if id <= checkpoints[level]:
                return id == checkpoints[level] and source == "loop"
        return True

    async def find_passed(self, dispatches: Collection[str]) -> set[str]:
        """Return those of these checkpoints whose tasks worked on the way here; all if that cannot be known.

        Tasks of a checkpoint that was replayed worked in another branch.
        """
        passed, first = {self.dispatch} & {*dispatches}, min(dispatches)
        async for id, source in self._walk_back(self.scope, self.dispatch):
            passed |= {id} & {*dispatches} if source != "fork" else set()
            if id <= first:
                return passed if id else {*dispatches}
        return {*dispatches}

    def _first_difference(self, nodes: Sequence[str], checkpoints: Sequence[str]) -> int:
        """Return the first level at which the paths to both runs differ."""
        ours, theirs = zip(self.nodes, self.checkpoints, strict=True), zip(nodes, checkpoints, strict=False)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False))
        return sum(1 for _ in same)

    async def _walk_back(self, namespace: str, id: str) -> AsyncIterator[tuple[str, str]]:
        """Yield the checkpoints before this one, each with the `source` of the one after it; the last id is "".

        Ids are ordered by time. Nothing is yielded without a checkpointer.
        """
        if self.saver is None:
            return
        for _ in range(FURTHEST):
            checkpoint = {"thread_id": self.thread_id, "checkpoint_ns": namespace, "checkpoint_id": id}
            stored = await self.saver.aget_tuple({"configurable": checkpoint})
            parent = stored.parent_config if stored else None
            id = str(parent["configurable"]["checkpoint_id"]) if parent else ""
            yield id, str(stored.metadata.get("source")) if stored else ""


@dataclass(frozen=True)
class UnknownEffect:
    """Why a call is not made before a person answers."""

    attempt: str
    """The attempt of the call; “it did not happen” applies to this one and to no later one."""
    why: Literal["unsure", "made", "confirmed"]
    """Its outcome is unknown; it was made and nobody accounts for it; or a person said that it happened."""
    step: str = ""
    """The step that made it."""
    arguments: Mapping[str, Any] | None = None
    """The arguments of a handoff with other words."""


Maker = Literal[
    "this call", "this call before", "this attempt", "this step", "another step", "this run", "a run beside",
    "a run before", "another branch",
]  # fmt: skip
"""Who made an earlier write, from the point of view of the call that comes now:

| maker | made in |
|---|---|
| this call | this dispatch of steps, before a crash |
| this call before | an earlier dispatch, or another branch |
| this attempt | this attempt of the step |
| this step | this dispatch, in rounds that a crash lost, or by another attempt |
| another step | this dispatch |
| this run | an earlier dispatch, or another branch |
| a run beside | another run, in the same step of an outer graph |
| a run before | another run, on the way here |
| another branch | another run, elsewhere |
"""
Account = Literal["replay", "settle", "make"]
"""What an earlier write means for the call: use its outcome, settle first what became of it, or make the call."""


def account_for(
    state: str, maker: Maker, *, ok: bool = True, confirmed: bool = False, other_words: bool = False
) -> Account:
    """Return what an earlier write means for an equal call.

    `state`: the state of the write's entry. `ok`: it succeeded. `confirmed`: a person said that it happened.
    `other_words`: it is a handoff with another brief.
    """
    if maker == "this call":
        return "settle" if state == "intent" else "replay"
    if maker == "this call before":
        return "settle"
    if maker == "this attempt":
        return "settle" if confirmed else "make"
    if state == "done" and other_words:
        return "make"
    if maker == "this step":
        return "replay" if state == "done" and not confirmed else "settle"
    if state == "unsure":
        return "settle"
    if maker == "another step":  # which accounts for its own
        return "make"
    if state == "intent":
        return "make" if maker == "a run beside" else "settle"
    return "settle" if ok and maker in ("this run", "another branch") else "make"


MakeCall = Callable[[str], Awaitable[CallOutcome]]
"""Makes the call with an idempotency key."""


@dataclass(frozen=True)
class Row:
    """The row of a write under its content, which names its entry."""

    content: str
    """The content key; "" for a write of the list of earlier versions."""
    id: str
    """The row's own key. Two writers of one call have two rows."""
    key: str
    """The key of the entry."""
    turn: int = 0
    """The request of the thread."""


@dataclass(frozen=True)
class EffectLog:
    """The stored effects of one thread."""

    store: BaseStore | None
    thread_id: str
    place: Place = field(default_factory=Place)
    """The place in the thread and its history."""
    step: str = ""
    accounted_for: Collection[str] = ()
    """Short keys of writes that are accounted for, of all requests and steps."""
    own: Collection[str] = ()
    """Short keys of writes that this attempt of the step made."""
    turn: int = 0
    """The request of the thread."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """Values that are removed from arguments before they are cut, besides recognized credentials."""

    @property
    def namespace(self) -> tuple[str, ...]:
        """The namespace of the thread's entries; rows are below it, by content."""
        return (*NAMESPACE, store_label(self.thread_id))

    async def read(self, *keys: str) -> list[Json | None]:
        """Return the entries of calls; None for a call that was never intended."""
        if self.store is None or not keys:
            return [None for _ in keys]
        items = await finish_batch(self.store, [GetOp(self.namespace, key) for key in keys])
        return [dict(item.value) if isinstance(item, Item) else None for item in items]

    async def save(self, entries: Mapping[str, Json | None], put: Iterable[Row] = (), drop: Iterable[Row] = ()) -> None:
        """Store entries and rows, and delete others, durably and atomically."""
        ops = [PutOp(self.namespace, key, entry, index=False) for key, entry in entries.items()]
        for rows, value in ((put, True), (drop, False)):
            for row in rows:
                about = {"key": row.key, "turn": row.turn} if value else None
                ops.append(PutOp((*self.namespace, row.content), row.id, about, index=False))
        if self.store:
            await finish_batch(self.store, ops)

    async def look(self, effect: "Effect") -> tuple[Json | None, list[Row]]:
        """Return the entry of the call, None if it was never intended, and the rows of equal writes."""
        if self.store is None or effect.tool.effect != "write":
            return (await self.read(effect.key))[0], []
        own = [GetOp(self.namespace, effect.key), GetOp(self.namespace, f"like.{effect.content}")]
        entry, older, *results = await finish_batch(self.store, [*own, *self._searches(effect)])
        rows = _read_rows(results)
        listed_keys = {row.key for row in rows}
        if isinstance(older, Item):  # the list that earlier versions kept of equal writes
            rows += [Row("", "", key) for key in older.value["keys"] if key not in listed_keys]
        return dict(entry.value) if isinstance(entry, Item) else None, rows

    def _searches(self, effect: "Effect") -> list[SearchOp]:
        contents = dict.fromkeys((effect.content, effect.words))
        return [SearchOp((*self.namespace, content), limit=EVERY) for content in contents]

    async def intend(self, effect: "Effect", rows: Sequence[Row]) -> tuple[Row | None, list[tuple[str, Json]]]:
        """Store the intent to make the call; return its row, and the unaccounted equal writes that began since.

        `rows` are those of equal writes that were seen before. A look comes last, so that of two writers at least one
        sees the other, and a worker that was suspended and lost its thread learns of it before the call. The look is
        repeated if the answer took so long that the worker may have been suspended since.
        """
        entry = _make_entry(self, effect, "intent")
        if effect.tool.effect != "write":
            await self.save({effect.key: entry})
            return None, []
        mine = Row(effect.content, f"{effect.key}.{uuid.uuid4().hex[:8]}", effect.key, self.turn)
        await self.save({effect.key: entry}, put=[mine])
        seen, results = {row.id for row in (mine, *rows)}, []
        for _ in range(LOOKS if self.store else 0):
            started = time.monotonic()
            results = await finish_batch(self.store, self._searches(effect)) if self.store else []
            if time.monotonic() - started < FRESH:
                break
        new = [row for row in _read_rows(results) if row.id not in seen]
        twins = [(row.key, entry) for row in new if row.key == effect.key]
        others, _ = await self.find_unaccounted([row for row in new if row.key != effect.key], effect)
        return mine, [*twins, *((key, entry) for key, entry, _ in others)]

    async def find_unaccounted(
        self, rows: Sequence[Row], effect: "Effect"
    ) -> tuple[list[tuple[str, Json, Account]], list[Row]]:
        """Return the writes among these that are not accounted for, and the rows of those that share the call's fate.

        The first write is the one that a person answered about; then come those of this dispatch. The rows belong to
        writes that are accounted for whenever this call is: of this attempt, of earlier requests, and of earlier runs.
        """
        accounted_for: list[Row] = []
        others: list[Row] = []
        for row in rows:
            (accounted_for if short_key(row.key) in self.accounted_for else others).append(row)
        entries = zip(others, await self.read(*(row.key for row in others)), strict=True)
        unaccounted = list[tuple[str, Json, Account]]()
        covered = [row for row in accounted_for if row.id and row.turn < self.turn]
        for row, entry in entries:
            if entry and (account := await self.account(row.key, entry, effect)) != "make":
                unaccounted.append((row.key, entry, account))
            elif entry and row.id and entry["state"] == "done" and not self._may_change(row, entry):
                covered.append(row)
        unaccounted.sort(key=lambda each: (not effect.answer(_attempt_id(*each[:2])), not self.is_here(each[1])))
        return unaccounted, covered

    def _may_change(self, row: Row, entry: Json) -> bool:
        """Return whether a write that is accounted for may stop being so, because its step is still at work."""
        return short_key(row.key) not in self.own and entry.get("scope", "") == self.place.scope

    async def uncover(self, effect: "Effect", entry: Json) -> list[Row]:
        """Store the rows again that a write had hidden, and return them."""
        rows = [Row(effect.words, key, key, turn) for key, turn in entry.get("covers", ())]
        if rows:
            await self.save({}, put=rows)
        return rows

    async def account(self, key: str, entry: Json, effect: "Effect") -> Account:
        """Return what an earlier write, or an earlier attempt of this very call, means for the call."""
        ok = entry["state"] != "done" or bool(entry["result"]["ok"])
        maker, confirmed = await self._maker(key, entry, effect), bool(entry.get("confirmed"))
        return account_for(entry["state"], maker, ok=ok, confirmed=confirmed, other_words=effect.has_other_words(entry))

    async def _maker(self, key: str, entry: Json, effect: "Effect") -> Maker:
        if key == effect.key:
            return "this call" if self.is_here(entry) else "this call before"
        if short_key(key) in self.own:
            return "this attempt"
        if self.is_here(entry):
            return "this step" if entry["step"] == self.step else "another step"
        if entry.get("scope", "") == self.place.scope:
            return "this run"
        other_run = str(entry.get("scope", "")).split("|"), list(entry.get("around", ()))
        if self.place.is_beside(*other_run):
            return "a run beside"
        follows = entry["state"] == "done" and await self.place.follows(*other_run)  # it reads checkpoints
        return "a run before" if follows else "another branch"

    def is_here(self, entry: Json) -> bool:
        """Return whether the call was made in this dispatch of steps."""
        return bool(entry["branch"] == self.place.dispatch and entry.get("scope", "") == self.place.scope)


@dataclass(frozen=True)
class Effect:
    """A call with effects that is about to be made."""

    key: str
    call: Call
    tool: KnownTool
    refused: CallOutcome | None = None
    """What came of it if it must not be made now. What it did before a crash counts all the same, also if that is
    unknown."""
    base: str = ""
    """The digest of what it is about to replace; "" if nobody looked."""

    @property
    def handoff(self) -> bool:
        """True if the call hands work to an agent; the words differ each time."""
        return bool(self.call.get("delegated"))

    @property
    def words(self) -> str:
        """The key of tool and arguments, regardless of when and where the call is made."""
        return call_key(self.call["name"], self.call["args"])

    @property
    def content(self) -> str:
        """The key that equal writes have in common while their outcome is unknown, whatever their time limit is."""
        return call_key(self.call["name"], {}) if self.handoff else content_key(self.tool.tool, self.call["args"])

    def answer(self, attempt: str = "") -> str:
        """Return a person's answer about an unknown outcome, or about that of one attempt; "" if there is none."""
        decided = self.call.get("decided")
        if not decided or decided["kind"] != "known" or attempt not in ("", decided["attempt"]):
            return ""
        return decided["effect"]

    def has_other_words(self, entry: Mapping[str, Any]) -> bool:
        """Return whether this is a handoff, and the entry one to the same agent with another brief."""
        return self.handoff and entry.get("call") != self.words


def content_key(tool: BaseTool, arguments: Mapping[str, Any]) -> str:
    """Return the key of what a call does, which is the same with another time limit."""
    seconds = (tool.metadata or {}).get("seconds")
    return call_key(tool.name, {name: value for name, value in arguments.items() if name != seconds})


def _read_rows(results: Iterable[Any]) -> list[Row]:
    """Return the rows of these results of searches."""
    items = [item for items in results if isinstance(items, list) for item in items]
    return [Row(item.namespace[-1], item.key, item.value["key"], item.value["turn"]) for item in items]


def effect_key(scope: str, thread_id: str, *made_in: str | int, tool: str, arguments: Any) -> str:
    """Return the key of an effect, by its content.

    `made_in` is the request, step, attempt, round, and the position in the round, which may have equal calls.
    """
    within = [scope] if scope else []
    parts = canonical_json([*within, thread_id, *made_in, tool, arguments])
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def short_key(key: str) -> str:
    """Return the short form of a key; the run's state may keep many of them."""
    return key[:16]


def _attempt_id(key: str, entry: Mapping[str, Any]) -> str:
    return f"{short_key(key)}@{entry['branch']}"


@dataclass(frozen=True)
class EqualRows:
    """The rows of equal writes that were seen before a call."""

    rows: Sequence[Row] = ()
    covered: Sequence[Row] = ()
    """Rows of writes that are accounted for whenever the call is, so that its row may replace theirs."""
    mine: Row | None = None
    """The row of the call, once it is intended."""


async def perform(log: EffectLog, effect: Effect, run: MakeCall) -> CallOutcome | UnknownEffect:
    """Make the call once and return its outcome, or an UnknownEffect if only a person can decide whether to make it."""
    entry, rows = await log.look(effect)
    if entry is not None:
        if await log.account(effect.key, entry, effect) == "replay":
            return _replay(effect, entry)
        return await _make_once(log, effect, entry, EqualRows(rows), run)
    unaccounted, covered = await log.find_unaccounted(rows, effect)
    for key, other, account in unaccounted:
        # It is settled under the earlier call's key, and if need be made: a service that knows the key makes it once.
        earlier = replace(effect, key=key)
        if other["state"] == "done" and effect.answer(_attempt_id(key, other)) == "not_happened":
            covered += [row for row in rows if row.key == key]  # once more: under a key of its own
            break
        if account == "replay":
            await log.uncover(earlier, other)
            return _replay(earlier, other)
        if not effect.has_other_words(other):
            return await _make_once(log, earlier, other, EqualRows(rows), run)
        if (outcome := await _resolve_handoff(log, earlier, other, EqualRows(rows))) is not None:
            return outcome
    return await _make_once(log, effect, None, EqualRows(rows, covered), run)


async def _make_once(
    log: EffectLog, effect: Effect, entry: Json | None, seen: EqualRows, run: MakeCall
) -> CallOutcome | UnknownEffect:
    """Make the call, unless an equal one that is not accounted for stands against it.

    `entry` is what is stored of that one; None if there is none, as for most calls. What a person answered about it
    decides first, then the tool's probe, then the call's key. If none of them does, a person is asked. One that an
    earlier request made is known to be done: then a person is asked at once.
    """
    if entry:
        seen = replace(seen, rows=[*seen.rows, *await log.uncover(effect, entry)])
    if effect.answer() in ("happened", "skip"):
        return await _follow_answer(log, effect, entry, seen)
    refuted = entry is not None and effect.answer(_attempt_id(effect.key, entry)) == "not_happened"
    is_write = effect.tool.effect == "write"
    if entry and not refuted:
        found = await (_look_up_write(log, effect, entry) if is_write else _look_up_repeatable(effect, entry))
        if isinstance(found, CallOutcome):
            return await _save_end(log, effect, found, seen, entry)
        if found == "ask":
            return UnknownEffect(_attempt_id(effect.key, entry), _reason_to_ask(entry), entry["step"])
    once_more = entry is not None and effect.tool.keyed and not refuted
    if effect.refused:
        if entry is None:
            return effect.refused
        if not is_write and entry["state"] == "intent":
            return await _keep_unknown(log, effect, effect.refused, seen, entry)
        refused = await _resolve_unknown(effect, effect.refused, once_more=once_more)
        return await _save_end(log, effect, refused, seen, entry)
    mine, racing = await log.intend(effect, seen.rows)
    seen = replace(seen, mine=mine)
    if racing:
        (key, other), *_ = racing
        restored = {} if key == effect.key else {effect.key: entry}
        await log.save(restored, drop=[mine] if mine else ())
        return UnknownEffect(_attempt_id(key, other), _reason_to_ask(other), other["step"])
    return await _make_call(log, effect, run, seen, once_more=once_more)


async def _look_up_write(log: EffectLog, effect: Effect, entry: Json) -> CallOutcome | Literal["ask", "make"]:
    """Return what became of an equal write that is not accounted for, or whether to ask a person or make the call."""
    if entry["state"] == "done" and (entry.get("confirmed") or entry.get("turn", log.turn) < log.turn):
        return "ask"  # it is known
    probed = await _probe(effect, effect.call["args"])
    if isinstance(probed, CallOutcome):
        return probed
    may_follow = bool((entry.get("result") or {}).get("unanswered"))  # then a probe that found nothing proves nothing
    return "make" if effect.tool.keyed or (probed is False and not may_follow) else "ask"


async def _look_up_repeatable(effect: Effect, entry: Json) -> CallOutcome | Literal["ask", "make"]:
    """Return what became of a call that began and may be made twice, or whether to ask a person or make it again.

    A probe that does not find what the call did cannot tell whether nothing was done, or it was changed since. So a
    person is asked if what the call replaces has changed.
    """
    if entry["state"] == "done" or (effect.tool.tool.metadata or {}).get("probe") is None:
        return "make"
    if isinstance(probed := await _probe(effect, effect.call["args"]), CallOutcome):
        return probed
    has_changed = entry.get("base", effect.base) != effect.base
    return "ask" if has_changed and not effect.refused and not effect.tool.keyed else "make"


async def _resolve_handoff(
    log: EffectLog, effect: Effect, entry: Json, seen: EqualRows
) -> CallOutcome | UnknownEffect | None:
    """Resolve an earlier handoff with other words; return None if it did not happen."""
    attempt = _attempt_id(effect.key, entry)
    answer = effect.answer(attempt)
    if answer == "skip":
        return await _follow_answer(log, effect, entry, seen)
    probed = None if answer == "not_happened" else await _probe(effect, entry.get("about") or {})
    if answer == "happened":
        if isinstance(probed, CallOutcome):
            return await _save_end(log, effect, probed, seen, entry)
        return await _follow_answer(log, effect, entry, seen)
    if not answer and probed is not False:
        why: Literal["made", "unsure"] = "made" if probed else "unsure"
        return UnknownEffect(attempt, why, entry["step"], entry["arguments"])
    refutation = (
        "A person said that this did not happen." if answer else "The agent never got it, or ended it without success."
    )
    await _save_outcome(log, effect, CallOutcome(False, refutation, error="refuted"), entry, seen)
    return None


async def _follow_answer(log: EffectLog, effect: Effect, entry: Json | None, seen: EqualRows) -> CallOutcome:
    """Return the outcome of a call that a person said had happened, or is not to be made.

    A write that began without any outcome, and is skipped, stays unknown; any other has an observation of its own.
    """
    if effect.answer() == "skip":
        skipped = CallOutcome(False, "Skipped: a person decided not to make this call again.", error="refused")
        if entry is None or entry["state"] != "intent":
            return skipped
        return await _keep_unknown(log, effect, skipped, seen, entry)
    if entry and entry["state"] == "done":
        return replace(_replay(effect, entry), made_at=entry.get("at", ""))  # older ones have no time
    return await _save_end(log, effect, CallOutcome(True, CONFIRMED, confirmed=True), seen, entry)


async def _keep_unknown(
    log: EffectLog, effect: Effect, outcome: CallOutcome, seen: EqualRows, begun: Json
) -> CallOutcome:
    """Store that a call which began is not made again, and that nobody knows what it did."""
    text = f"{outcome.text}\n{IS_UNKNOWN if effect.tool.effect == 'write' else BEGAN}"
    return await _save_end(log, effect, replace(outcome, text=text, unknown=True), seen, begun)


async def _make_call(log: EffectLog, effect: Effect, run: MakeCall, seen: EqualRows, *, once_more: bool) -> CallOutcome:
    """Make the call and store its outcome. A cancellation waits briefly for its end, so that the outcome is known.

    With `once_more` it was made before with the same key; if it fails now, the earlier outcome is still unknown.
    """
    call = asyncio.ensure_future(run(effect.key))
    try:
        outcome = await _resolve_unknown(effect, await asyncio.shield(call), once_more=once_more)
    except asyncio.CancelledError:
        with suppress(Exception):  # of the store: the run is cancelled all the same
            await _end_cut_off(log, effect, call, seen, once_more=once_more)
        raise
    return await _save_end(log, effect, outcome, seen)


async def _end_cut_off(
    log: EffectLog, effect: Effect, call: asyncio.Future[CallOutcome], seen: EqualRows, *, once_more: bool
) -> None:
    """Wait briefly for a call whose run is cancelled, and store its outcome.

    If it takes longer, cut it off, and mark it as unanswered: what it called may still be at work.
    """
    await asyncio.wait({call}, timeout=EFFECT_PATIENCE)
    if is_cut_off := not call.done():
        call.cancel()
        await asyncio.wait({call}, timeout=EFFECT_PATIENCE)
    if call.done() and not call.cancelled() and call.exception() is None:
        await _save_end(log, effect, await _resolve_unknown(effect, call.result(), once_more=once_more), seen)
    elif is_cut_off:
        (entry,) = await log.read(effect.key)
        if entry and entry["state"] == "intent":
            await log.save({effect.key: {**entry, "result": {"unanswered": True}}})


async def _resolve_unknown(effect: Effect, outcome: CallOutcome, *, once_more: bool) -> CallOutcome:
    """Return the outcome; an unknown one as the tool's probe settles it, else with a sentence that says so.

    Of a call that may still be at work, a probe can only find that it took effect.
    """
    outcome = replace(outcome, unknown=not outcome.ok and (outcome.unknown or once_more))
    if not outcome.unknown:
        return outcome
    probed = None if effect.handoff else await _probe(effect, effect.call["args"])
    if isinstance(probed, CallOutcome):
        return replace(probed, spent=outcome.spent)
    if probed is False and not outcome.unanswered:
        return replace(outcome, unknown=False)
    of_write = HAS_KEY if effect.tool.keyed else IS_UNKNOWN
    return replace(outcome, text=f"{outcome.text}\n{of_write if effect.tool.effect == 'write' else MAY_BE_REPEATED}")


def without_advice(text: str) -> str:
    """Return the text of a call with an unknown outcome without the sentences that say so."""
    return text.rpartition(f"\n{BEGAN}")[0] or text


def _reason_to_ask(entry: Mapping[str, Any]) -> Literal["unsure", "made", "confirmed"]:
    if entry["state"] != "done":
        return "unsure"
    return "confirmed" if entry.get("confirmed") else "made"


def _replay(effect: Effect, entry: Mapping[str, Any]) -> CallOutcome:
    stored = dict(entry["result"])
    whole = stored.pop("length") == len(stored["text"])
    outcome = CallOutcome(**stored, spent=dict(entry["spent"]), whole=whole, confirmed=bool(entry.get("confirmed")))
    outcome = replace(outcome, made_at=entry.get("at")) if outcome.unknown or outcome.confirmed else outcome
    return _with_key(effect, outcome)


def _with_key(effect: Effect, outcome: CallOutcome) -> CallOutcome:
    """Return the outcome of a write with its short key, if it is known."""
    outcome_known = effect.tool.effect == "write" and not outcome.unknown
    return replace(outcome, key=short_key(effect.key)) if outcome_known else outcome


async def _save_end(
    log: EffectLog, effect: Effect, outcome: CallOutcome, seen: EqualRows, begun: Json | None = None
) -> CallOutcome:
    """Store the outcome of the call; `begun` is the entry of one that was made before, whose time stays."""
    entry = _make_entry(log, effect, "unsure" if outcome.unknown else "done")
    if begun:
        entry["at"] = begun.get("at", entry["at"])
        outcome = replace(outcome, made_at=entry["at"]) if outcome.unknown or outcome.confirmed else outcome
    await _save_outcome(log, effect, outcome, {**entry, "confirmed": True} if outcome.confirmed else entry, seen)
    return _with_key(effect, outcome)


async def _save_outcome(log: EffectLog, effect: Effect, outcome: CallOutcome, entry: Json, seen: EqualRows) -> None:
    """Store the entry with the outcome. A write that may have happened keeps one row; any other keeps none."""
    stored = {
        "ok": outcome.ok,
        "text": shorten_text(outcome.text),
        "length": len(outcome.text),
        "seconds": outcome.seconds,
        "artifact": outcome.artifact,
        "error": outcome.error,
        "unknown": outcome.unknown,
        **({"unanswered": True} if outcome.unanswered else {}),
        "notes": [*outcome.notes],
        **({"images": [*outcome.images]} if outcome.images else {}),
    }
    whole = {**entry, "state": "unsure" if outcome.unknown else "done", "result": stored, "spent": outcome.spent}
    if effect.tool.effect != "write":
        await log.save({effect.key: whole})
        return
    own = [row for row in (*seen.rows, seen.mine) if row and row.id and row.key == effect.key]
    kept_rows = (
        [replace(seen.mine or Row("", effect.key, effect.key, log.turn), content=effect.words)] if outcome.ok else []
    )
    if outcome.unknown:
        kept_rows = own or [Row(effect.content, effect.key, effect.key, log.turn)]
    if covered := seen.covered if outcome.ok else ():
        whole["covers"] = [[each.key, each.turn] for each in covered]
    put, drop = [row for row in kept_rows if row not in own], [row for row in (*own, *covered) if row not in kept_rows]
    await log.save({effect.key: whole}, put=put, drop=drop)


def _make_entry(log: EffectLog, effect: Effect, state: Literal["intent", "unsure", "done"]) -> Json:
    entry: Json = {"state": state, "tool": effect.call["name"], "branch": log.place.dispatch, "step": log.step}
    if log.place.scope:
        entry |= {"scope": log.place.scope, "around": [*log.place.checkpoints]}
    if effect.base:
        entry["base"] = effect.base
    if effect.handoff:
        entry["about"] = (effect.tool.tool.metadata or {}).get("about") or {}
    # To name the call in questions and receipts, also if its process dies before it is observed.
    arguments = {name: _shorten_value(value, log.secrets) for name, value in effect.call["args"].items()}
    said: Json = {"call": effect.words, "turn": log.turn, "kind": effect.tool.effect, "arguments": arguments}
    return entry | said | {"at": moment()}


def _shorten_value(value: Any, secrets: Sequence[str]) -> Any:
    text = value if isinstance(value, str) else canonical_json(value)
    if len(text) <= NAMED_CHARS:
        return value
    return f"{conceal(text, secrets)[:NAMED_CHARS]} … ({len(text):,} characters)"  # a cut through one would hide it


async def unobserved_writes(
    store: BaseStore,
    thread_id: str,
    place: Place,
    turn: int,
    in_journal: Mapping[tuple[str, str], int],
    wrote: Collection[str],
) -> list[Json]:
    """Return `{step, tool, arguments, kind, delegated, ok}` of a request's calls with effects that are in no journal.

    They took effect, or may have: then `ok` is False. Those of another branch of the history are left out.
    `in_journal` counts the calls in the journal that did, by step and `call_key`; `wrote` are the short keys of the
    writes that steps account for. Long arguments are cut and marked.
    """
    made: dict[tuple[str, str], list[Json]] = {}
    accounted_for = Counter[tuple[str, str]]()
    for item in await read_all(store, (*NAMESPACE, store_label(thread_id)), filter={"turn": turn}):
        entry = item.value
        if "state" not in entry or entry.get("scope", "") != place.scope:
            continue  # a row of a write, or of another run
        done, call = entry["state"] == "done", (entry["step"], str(entry.get("call")))
        if done and entry["kind"] == "write" and short_key(item.key) in wrote:
            accounted_for[call] += 1
        elif not (done and not entry["result"]["ok"]):
            made.setdefault(call, []).append(entry)
    lost: list[Json] = []
    for call, entries in made.items():
        entries.sort(key=lambda entry: ("unsure", "done", "intent").index(entry["state"]))
        lost += entries[max(in_journal.get(call, 0) - accounted_for[call], 0) :]
    passed = await place.find_passed({entry["branch"] for entry in lost}) if lost else ()
    return [
        {key: entry[key] for key in ("step", "tool", "arguments", "kind")}
        | {"delegated": "about" in entry, "ok": entry["state"] == "done"}
        for entry in lost
        if entry["branch"] in passed
    ]


async def read_entries(store: BaseStore, thread_id: str) -> list[Json]:
    """Return the entries of all calls with effects that the requests of a thread made, or began, the oldest first."""
    rows = [item.value for item in await read_all(store, (*NAMESPACE, store_label(thread_id)))]
    entries = [dict(row) for row in rows if "turn" in row and "kind" in row and not row.get("scope")]
    return sorted(entries, key=lambda entry: (entry["turn"], entry.get("at", "")))  # older ones have no time


async def writes_of_request(store: BaseStore, thread_id: str, turn: int) -> set[str]:
    """Return the short keys of a request's writes with a known outcome."""
    filter = {"state": "done", "turn": turn}
    items = await read_all(store, (*NAMESPACE, store_label(thread_id)), filter=filter)
    return {short_key(item.key) for item in items if item.value["kind"] == "write"}


async def read_all(store: BaseStore, namespace: tuple[str, ...], **options: Any) -> list[Item]:
    """Return all items of a namespace, each once."""
    items: dict[tuple[tuple[str, ...], str], Item] = {}
    offset, page = 0, [*await store.asearch(namespace, limit=PAGE, **options)]
    while page:
        items |= {(item.namespace, item.key): item for item in page}
        offset += len(page)
        full = len(page) == PAGE
        page = [*await store.asearch(namespace, limit=PAGE, offset=offset, **options)] if full else []
    return [*items.values()]


def failure_in(artifact: Any) -> bool | str:
    """Return the words by which an artifact says that what the call returned is a failure; True if it has none."""
    failed = artifact.get("failed") if isinstance(artifact, Mapping) else False
    return (isinstance(failed, str) and failed.strip()[:NAMED_CHARS]) or failed is True


def storable_artifact(artifact: Any) -> Json | None:
    """Return the stored parts of an artifact: `files` (path → content), an executor's `transcript` and `asks`, and
    whether the call `failed`.
    """
    artifact = artifact if isinstance(artifact, Mapping) else {}
    parts = {key: artifact[key] for key in STORED_PARTS if key in artifact}
    if failed := failure_in(artifact):
        parts["failed"] = failed
    if isinstance(files := artifact.get("files"), Mapping):  # `call_tool` made them texts
        parts["files"] = {cap_text(print_value(path), NAMED_CHARS): text for path, text in files.items()}
    return parts or None


# What a tool itself says about a call ---------------------------------------------------------------------------------


async def _probe(effect: Effect, arguments: Mapping[str, Any]) -> CallOutcome | Literal[False] | None:
    return await ask_probe(effect.tool.tool, arguments, effect.key)


async def ask_probe(
    tool: BaseTool, arguments: Mapping[str, Any], key: str, seconds: float = PROBE_SECONDS
) -> CallOutcome | Literal[False] | None:
    """Ask the tool's probe about a call; return its result if it took effect, False if not, None if that is unknown.

    A probe is `tool.metadata["probe"]`, a sync or async function of the arguments (and of `idempotency_key`, if it
    accepts one) that returns True or the call's output, False, or None. If it raises, times out or returns something
    empty, the outcome is unknown and a person is asked.
    """
    probe = (tool.metadata or {}).get("probe")
    if probe is None:
        return None
    answer = await _ask_tool(probe, arguments, key, seconds)
    if answer is True:
        return CallOutcome(True, HAPPENED)
    if answer is False:
        return False
    return CallOutcome(True, render_value(answer, LIMIT)) if _says_something(answer) else None


async def replaced_texts(tool: BaseTool, arguments: Mapping[str, Any]) -> tuple[dict[str, str] | None, str]:
    """Return, by argument, the text that it replaces, None if the tool never says; and why it cannot say it now.

    `tool.metadata["replaces"]` is a sync or async function of the arguments that returns, by argument, the texts
    that the call would replace: `{"content": "what the file holds"}`. What stands under another name would be gone.
    If it raises or takes too long, no text is known.
    """
    if (replaces := (tool.metadata or {}).get("replaces")) is None:
        return None, ""
    answer = await _ask_tool(replaces, arguments, "", PROBE_SECONDS)
    texts = answer if isinstance(answer, Mapping) else {}
    why = " ".join(describe_error(answer).split())[:NAMED_CHARS] if isinstance(answer, BaseException) else ""
    return {str(name): str(old) for name, old in texts.items()}, why


def differences(replaced: Mapping[str, str] | None, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return, by argument, the diff to what it replaces."""
    diffs = {n: text_difference(old, comparable_text(arguments.get(n, ""))) for n, old in (replaced or {}).items()}
    return dict(redact_json({name: diff for name, diff in diffs.items() if diff}))


def base_of(replaced: Mapping[str, str]) -> str:
    """Return a digest of the texts that a call replaces: a difference that was shown is valid only for them."""
    return digest(canonical_json(replaced))


def _says_something(answer: object) -> bool:
    try:
        return not isinstance(answer, BaseException) and bool(answer.strip() if isinstance(answer, str) else answer)
    except Exception:  # an array of several values, say
        return False


async def _ask_tool(
    function: Callable[..., Any], arguments: Mapping[str, Any], key: str, seconds: float
) -> object | None:
    """Return what a function in a tool's metadata says of a call; the error if it raises or takes too long."""
    try:
        keyed = {"idempotency_key": key} if "idempotency_key" in inspect.signature(function).parameters else {}
        return cast("object", await call_in_time(partial(function, dict(arguments), **keyed), seconds=seconds))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # of a function of others, such as a SystemExit
        return error
