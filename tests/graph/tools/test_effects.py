"""The ledger of effects, call by call: what is known is replayed, what is harmless repeated, the rest asked."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from donewhen import Agent, build_graph
from donewhen.graph.clock import SECOND, Clock, using
from donewhen.graph.tools.call import CallOutcome
from donewhen.graph.tools.effects import (
    FRESH,
    Effect,
    EffectLog,
    Maker,
    Place,
    UnknownEffect,
    account_for,
    effect_key,
    perform,
    unobserved_writes,
)
from donewhen.graph.tools.toolbox import EffectKind, KnownTool
from donewhen.state.errors import ConfigError, StorageError
from donewhen.state.proof.journal import call_key
from donewhen.state.records import Call
from donewhen.testing import ScriptedModel
from tests.kit.storage.cases import DATABASES, fresh_url, open_storage
from tests.kit.storage.servers import fresh_postgres_url
from tests.kit.storage.workers import racing


class Died(BaseException):
    """Stands for a process that is gone: nothing after it runs."""


def send(to: str) -> str:
    """Send."""
    return to


SEND = StructuredTool.from_function(send)


def effect_of(key: str = "key", known: str = "", attempt: str = "", kind: EffectKind = "write") -> Effect:
    """A call of a tool of this kind, perhaps with what a person knows of an attempt."""
    call: Call = {"id": "", "name": "send", "args": {}}
    if known:
        call["decided"] = {"kind": "known", "effect": known, "attempt": attempt}
    return Effect(key, call, KnownTool(SEND, kind))


def log_of(store: Any, thread: str, dispatch: str, step: str, settled: Any = ()) -> EffectLog:
    return EffectLog(store, thread, Place(dispatch=dispatch), step, settled)


class World:
    """Counts effects, and dies after them as often as told."""

    def __init__(self, *, dies: int = 0) -> None:
        self.count = 0
        self.dies = dies

    async def run(self, key: str) -> CallOutcome:
        self.count += 1
        if self.dies >= self.count:
            raise Died
        return CallOutcome(True, "done")


async def begun(ledger: EffectLog) -> None:
    """A call that was cut off."""
    with pytest.raises(Died):
        await perform(ledger, effect_of(), World(dies=1).run)


class Frozen(InMemoryStore):
    """Once something is written, its next answer is there at once and read late; then the thread is another's."""

    written = late = False

    async def abatch(self, ops: Any) -> Any:
        asked = list(ops)
        if self.late:
            raise StorageError("the connection is lost")
        if self.written:
            self.late, thawed = True, asyncio.Event()
            asyncio.get_running_loop().call_later(1.2 * FRESH, thawed.set)
            await thawed.wait()
        self.written = self.written or any(isinstance(op, PutOp) for op in asked)
        return await super().abatch(asked)


async def test_an_answer_from_before_a_freeze_is_not_the_last_word_before_a_write() -> None:
    """R04: a worker frozen between its question and the answer asks again, and learns that it lost its thread."""
    world = World()
    with pytest.raises(StorageError):
        await perform(log_of(Frozen(), "t", "execute:0", "s1"), effect_of(), world.run)
    assert world.count == 0


@pytest.mark.parametrize(
    ("probe", "changed", "made"),
    [(True, True, 1), ("done", True, 1), (False, True, "asks"), (None, True, "asks"), ("no probe", True, 2),
     (None, False, 2), (False, False, 2)],
)  # fmt: skip
async def test_what_may_be_made_twice_is_not_made_over_what_came_since(probe: Any, changed: bool, made: Any) -> None:
    """R03: unless the tool says that the call took effect, a change of what it replaces may be another's."""
    metadata = {} if probe == "no probe" else {"probe": lambda arguments: probe}
    tool = KnownTool(SEND.model_copy(update={"metadata": metadata}), "idempotent")
    world, store = World(dies=1), InMemoryStore()
    first = replace(effect_of(kind="idempotent"), tool=tool, base="as it was")
    with pytest.raises(Died):
        await perform(log_of(store, "t", "execute:0", "s1"), first, world.run)
    again = replace(first, base="another" if changed else first.base)
    result = await perform(log_of(store, "t", "execute:0", "s1"), again, world.run)
    assert ("asks" if isinstance(result, UnknownEffect) else world.count) == made


async def test_what_was_denied_once_is_not_denied_for_ever() -> None:
    """R03: "it did not happen" is about the attempt it was said of. Dying again in the next attempt asks again."""
    store, world = InMemoryStore(), World(dies=1)
    await begun(log_of(store, "t", "execute:0", "s1"))
    first = await perform(log_of(store, "t", "execute:0", "s1"), effect_of(), world.run)
    assert isinstance(first, UnknownEffect)
    ledger, denied = (
        log_of(store, "t", "execute:1", "s1"),
        effect_of(known="not_happened", attempt=first.attempt),
    )
    with pytest.raises(Died):
        await perform(ledger, denied, world.run)
    second = await perform(ledger, denied, world.run)
    assert second == UnknownEffect("key@execute:1", "unsure", "s1")
    assert world.count == 1
    once_more = await perform(ledger, effect_of(known="not_happened", attempt=second.attempt), world.run)
    assert isinstance(once_more, CallOutcome)
    assert once_more.text == "done"
    assert world.count == 2


@pytest.mark.parametrize("answer", ["happened", "skip", "refused"])
async def test_a_write_that_a_person_confirms_later_keeps_its_time(answer: str) -> None:
    """R03, D02: what is known on Friday of a write of Monday was made on Monday, and what nobody knows of it as well;
    after another crash, too."""
    store, world = InMemoryStore(), World(dies=1)

    async def time_of_entry() -> str:
        (entry,) = [item.value for item in await store.asearch(()) if "state" in item.value]
        return str(entry["at"])

    with using(Clock()) as clock:
        await begun(log_of(store, "t", "execute:0", "s1"))
        made = await time_of_entry()
        ledger = log_of(store, "t", "execute:1", "s1")
        first = await perform(ledger, effect_of(), world.run)
        assert isinstance(first, UnknownEffect)
        clock.follow(clock.now() + 4 * 86_400 * SECOND)
        settled = effect_of(known=answer, attempt=first.attempt)
        if answer == "refused":  # by a hook, once a person said that it did not happen
            no = CallOutcome(False, "Not run.", error="refused", unknown=True)
            settled = replace(effect_of(known="not_happened", attempt=first.attempt), refused=no)
        for _ in range(2):
            outcome = await perform(ledger, settled, world.run)
            assert isinstance(outcome, CallOutcome)
            assert (outcome.made_at, await time_of_entry()) == (made, made)


async def test_a_denial_does_not_outlive_the_outcome_in_a_fork() -> None:
    """R03: the call was made after all; a fork of the thread's history asks before it makes it once more."""
    store, world = InMemoryStore(), World()
    await begun(log_of(store, "t", "execute:0", "s1"))
    denied = effect_of(known="not_happened", attempt="key@execute:0")
    assert isinstance(await perform(log_of(store, "t", "execute:1", "s1"), denied, world.run), CallOutcome)
    doubt = await perform(log_of(store, "t", "execute:2", "s1"), denied, world.run)
    assert doubt == UnknownEffect("key@execute:1", "made", "s1")
    assert world.count == 1


async def test_what_is_harmless_is_done_again_in_a_fork() -> None:
    """R03: writing what may be written twice asks nobody."""
    store, world = InMemoryStore(), World()
    effect = effect_of(kind="idempotent")
    for branch in ("execute:0", "execute:1"):
        assert isinstance(await perform(log_of(store, "t", branch, "s1"), effect, world.run), CallOutcome)
    assert world.count == 2


@pytest.mark.parametrize("effects", [{"sned": "write"}, {"send": "read", "find": "read"}])
def test_an_effect_of_no_tool_is_an_error(effects: Any) -> None:
    """R03: a typing error in `effects` would leave a tool what its server says it is, perhaps read-only."""
    with pytest.raises(ConfigError, match="there are: send"):
        Agent(ScriptedModel(), [send], storage="memory:", effects=effects)
    with pytest.raises(ConfigError, match="there are: send"):
        build_graph(ScriptedModel(), [send], effects=effects)


# Equal writes: rows under their content, on every store -----------------------------------------------------------


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[BaseStore]:
    """A store of ours, or LangGraph's own, as where the graph is embedded."""
    if kind == "LangGraph memory":
        yield InMemoryStore()
    elif kind == "LangGraph SQLite":
        async with AsyncSqliteStore.from_conn_string(str(folder / "store.db")) as own:
            await own.setup()
            yield own
    elif kind == "LangGraph PostgreSQL":
        async with AsyncPostgresStore.from_conn_string(fresh_postgres_url()) as own:
            await own.setup()
            yield own
    else:
        async with open_storage(fresh_url(kind, folder)).writer() as (_, store):
            yield store


STORES = ["memory", *DATABASES, "LangGraph memory", "LangGraph SQLite", "LangGraph PostgreSQL"]


class Attempt:
    """An attempt of a step that makes equal writes, numbered by their rounds."""

    def __init__(self, store: Any, step: str = "s1", turn: int = 1, settled: Sequence[str] = (), **place: Any) -> None:
        self.store = store
        self.place = Place(**{"dispatch": f"{turn}:{step}", **place})
        self.step, self.turn, self.settled = step, turn, settled
        self.wrote: list[str] = []

    async def write(self, number: int, run: Any = None, **known: Any) -> CallOutcome | UnknownEffect:
        key = effect_key(self.place.scope, "t", self.turn, self.place.dispatch, number, tool="send", arguments={})
        log = EffectLog(self.store, "t", self.place, self.step, self.settled, self.wrote, self.turn)
        outcome = await perform(log, effect_of(key, **known), run or World().run)
        if isinstance(outcome, CallOutcome) and outcome.key:
            self.wrote.append(outcome.key)
        return outcome


async def lost(_: str) -> CallOutcome:
    """A call whose outcome nobody knows."""
    return CallOutcome(False, "no answer", error="timeout", unknown=True)


class Counting(InMemoryStore):
    """Counts the items of its largest answer."""

    most = 0

    async def abatch(self, ops: Any) -> Any:
        found = await super().abatch(ops)
        self.most = max(self.most, *(len(each) for each in found if isinstance(each, list)), 0)
        return found


@pytest.mark.parametrize("kind", STORES)
async def test_a_step_at_work_does_not_hide_an_equal_write_of_another(kind: str, tmp_path: Path) -> None:
    """Q02, X20: two steps pay at the same time, one outcome is unknown: the next attempt asks, as it would alone."""
    async with opened(kind, tmp_path) as store:
        first, second = Attempt(store, dispatch="c1"), Attempt(store, "s2", dispatch="c1")
        await asyncio.gather(first.write(1, lost), second.write(2))
        asked = await Attempt(store, settled=second.wrote, dispatch="c2").write(3)
        assert isinstance(asked, UnknownEffect)
        assert (asked.why, asked.step) == ("unsure", "s1")


@pytest.mark.parametrize("kind", STORES)
async def test_two_runs_on_a_thread_do_not_both_make_a_write(kind: str, tmp_path: Path) -> None:
    """Q02, X20: of two equal writes at the same moment, which nobody coordinates, each sees the other and asks."""
    made: list[str] = []

    async def pay(key: str) -> CallOutcome:
        made.append(key)
        return await lost(key)

    async with opened(kind, tmp_path) as store:
        runs = [Attempt(store, nodes=(name,), checkpoints=(name,)) for name in ("a", "b")]
        outcomes = await asyncio.gather(*(run.write(1, pay) for run in runs))
    assert len(made) <= 1
    assert sum(isinstance(outcome, UnknownEffect) for outcome in outcomes) == 2 - len(made)


@pytest.mark.parametrize("same", [True, False], ids=["one call", "two calls"])
@pytest.mark.parametrize("kind", DATABASES)
def test_two_processes_do_not_both_make_a_write(kind: str, same: bool, tmp_path: Path) -> None:
    """Q02, X20: nor do processes, without a lock: two equal calls, or one call that both of them continue."""
    url = fresh_url(kind, tmp_path)
    for _ in range(3):
        with racing(url, ["a", "a" if same else "b"]) as pipes:
            for pipe in pipes:
                pipe.send("go")
            ends = [pipe.recv() for pipe in pipes]
        assert ends.count("made") <= 1
        asyncio.run(open_storage(url).delete_thread("t"))


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("how", ["one step", "one request each", "one run each"])
async def test_the_cost_of_a_write_does_not_grow_with_equal_ones(kind: str, how: str, tmp_path: Path) -> None:
    """Q02, R09: a heartbeat reads as few rows the thousandth time as the third time (fewer here on databases)."""
    async with opened(kind, tmp_path) as store:
        seen = Counting() if kind == "LangGraph memory" else store
        attempt = Attempt(seen)
        for number in range(1000 if isinstance(seen, Counting) else 20):
            if how == "one request each":
                attempt = Attempt(seen, turn=number, settled=[*attempt.settled, *attempt.wrote])
            elif how == "one run each":
                attempt = Attempt(seen, nodes=(f"n{number}",), checkpoints=(f"c{number:04}",))
            assert isinstance(await attempt.write(number), CallOutcome)
        rows = await seen.asearch(("donewhen", "effects", "t", call_key("send", {})), limit=99)
        assert len(rows) == 1
        assert getattr(seen, "most", 0) <= 2


@pytest.mark.parametrize("kind", STORES)
async def test_each_write_of_a_failed_attempt_is_asked_about_once(kind: str, tmp_path: Path) -> None:
    """Q02, X20: what one row stood for comes to light again when nobody accounts for it any more."""
    async with opened(kind, tmp_path) as store:
        first = Attempt(store)
        assert [isinstance(await first.write(number), CallOutcome) for number in range(4)] == [True] * 4
        again, asked = Attempt(store, dispatch="later"), set()
        for number in range(4, 8):
            doubt = await again.write(number)
            assert isinstance(doubt, UnknownEffect)
            assert doubt.why == "made"
            asked.add(doubt.attempt)
            assert isinstance(await again.write(number, known="not_happened", attempt=doubt.attempt), CallOutcome)
        assert len(asked) == 4
        assert isinstance(await again.write(8), CallOutcome)


STATES = [("intent", {}), ("unsure", {}), ("done", {}), ("done", {"ok": False}), ("done", {"confirmed": True})]
EARLIER: dict[Maker, str] = {
    #                   begun  unsure done   failed confirmed
    "this call":        "settle replay replay replay replay",
    "this call before": "settle settle settle settle settle",
    "this attempt":     "make   make   make   make   settle",
    "this step":        "settle settle replay replay settle",
    "another step":     "make   settle make   make   make",
    "this run":         "settle settle settle make   settle",
    "a run beside":     "make   settle make   make   make",
    "a run before":     "settle settle make   make   make",
    "another branch":   "settle settle settle make   settle",
}  # fmt: skip


@pytest.mark.parametrize("maker", EARLIER)
def test_who_accounts_for_an_earlier_write(maker: Maker) -> None:
    """X20, X24, Q85: what an earlier write means for an equal call, by who made it and how it ended."""
    assert [account_for(state, maker, **known) for state, known in STATES] == EARLIER[maker].split()
    other_brief = [account_for(state, maker, other_words=True) for state in ("intent", "unsure", "done")]
    expected = EARLIER[maker].split()[:3]
    assert other_brief[:2] == expected[:2]
    assert other_brief[2] == (expected[2] if maker in ("this call", "this call before") else "make")


async def test_the_list_of_an_earlier_version_still_counts() -> None:
    """Q02, X40: equal writes were one list; a thread stored so asks about them, and then keeps rows."""
    store, done = (
        InMemoryStore(),
        {"ok": True, "text": "done", "length": 4, "seconds": 0.0, "notes": [], "unknown": False},
    )
    entries = {
        "lost": {"state": "unsure", "tool": "send", "branch": "old", "step": "s1", "turn": 1, "arguments": {}},
        "kept": {"state": "done", "tool": "send", "branch": "old", "step": "s2", "result": done, "spent": {}},
        f"like.{call_key('send', {})}": {"keys": ["kept", "lost"]},
    }
    for key, entry in entries.items():
        await store.aput(("donewhen", "effects", "t"), key, entry)
    attempt = Attempt(store, "s3", 2, settled=["kept"])
    doubt = await attempt.write(1)
    assert doubt == UnknownEffect("lost@old", "unsure", "s1")
    assert isinstance(await attempt.write(1, known="not_happened", attempt="lost@old"), CallOutcome)
    assert await unobserved_writes(store, "t", Place(), 1, {}, ()) == []
    assert isinstance(await attempt.write(2), CallOutcome)


async def test_what_no_journal_has_is_told_from_equal_calls_and_other_branches() -> None:
    """N21, R03: of two equal calls one was observed; of two branches of the history only the one of this run counts."""
    store, saver = InMemoryStore(), InMemorySaver()
    for id, parent in (("1", None), ("2", "1"), ("3", "1"), ("4", "3"), ("5", "4")):  # 2 is another branch
        where: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": parent}}
        source: Any = "fork" if id == "4" else "loop"  # 3 was replayed
        await saver.aput(where, {**empty_checkpoint(), "id": id}, {"source": source}, {})
    shared = {"step": "s1", "turn": 1, "kind": "write", "tool": "pay", "arguments": {}, "result": {"ok": True}}
    entries = {
        "seen": ("done", "1", "a"),
        "kept": ("done", "1", "a"),
        "lost": ("done", "4", "a"),
        "beside": ("done", "2", "b"),
        "replayed": ("done", "3", "b"),
        "begun": ("intent", "4", "b"),
    }
    for key, (state, branch, call) in entries.items():
        entry = {**shared, "state": state, "branch": branch, "call": call, "arguments": {"key": key}}
        await store.aput(("donewhen", "effects", "t"), key, entry)
        await store.aput(("donewhen", "effects", "t", call), key, {"key": key, "turn": 1})  # rows of the same name
    here = Place(dispatch="5", saver=saver, thread_id="t")
    rows = await unobserved_writes(store, "t", here, 1, {("s1", "a"): 2}, ["kept"])
    assert [(row["arguments"]["key"], row["ok"]) for row in rows] == [("lost", True), ("begun", False)]
    unknown = replace(here, saver=None)  # without checkpoints nothing is left out
    assert len(await unobserved_writes(store, "t", unknown, 1, {("s1", "a"): 2}, ["kept"])) == 4
