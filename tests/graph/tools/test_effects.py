"""The ledger of effects, call by call: what is known is replayed, what is harmless repeated, the rest asked."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from donewhen import Agent, build_graph
from donewhen.graph.tools.call import CallResult
from donewhen.graph.tools.effects import FRESH, CallOutcome, Effect, EffectLog, Place, UnknownEffect, perform
from donewhen.state.errors import ConfigError, StorageError
from donewhen.testing import ScriptedModel


class Died(BaseException):
    """Stands for a process that is gone: nothing after it runs."""


def send(to: str) -> str:
    """Send."""
    return to


def effect_of(function: Callable[..., Any], **more: Any) -> Effect:
    tool: BaseTool = StructuredTool.from_function(function)
    return Effect("key", tool, {}, "write", **more)


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
        return CallOutcome(CallResult(True, "done", 0.0))


async def begun(ledger: EffectLog) -> None:
    """A call that was cut off."""
    with pytest.raises(Died):
        await perform(ledger, effect_of(send), World(dies=1).run)


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
        await perform(log_of(Frozen(), "t", "execute:0", "s1"), effect_of(send), world.run)
    assert world.count == 0


async def test_what_was_denied_once_is_not_denied_for_ever() -> None:
    """R03: "it did not happen" is about the attempt it was said of. Dying again in the next attempt asks again."""
    store, world = InMemoryStore(), World(dies=1)
    await begun(log_of(store, "t", "execute:0", "s1"))
    first = await perform(log_of(store, "t", "execute:0", "s1"), effect_of(send), world.run)
    assert isinstance(first, UnknownEffect)
    ledger, denied = (
        log_of(store, "t", "execute:1", "s1"),
        effect_of(send, known="not_happened", attempt=first.attempt),
    )
    with pytest.raises(Died):
        await perform(ledger, denied, world.run)
    second = await perform(ledger, denied, world.run)
    assert second == UnknownEffect("key@execute:1", "unsure", "s1")
    assert world.count == 1
    once_more = await perform(ledger, replace(denied, attempt=second.attempt), world.run)
    assert isinstance(once_more, CallOutcome)
    assert once_more.result.text == "done"
    assert world.count == 2


async def test_a_denial_does_not_outlive_the_outcome_in_a_fork() -> None:
    """R03: the call was made after all; a fork of the thread's history asks before it makes it once more."""
    store, world = InMemoryStore(), World()
    await begun(log_of(store, "t", "execute:0", "s1"))
    denied = effect_of(send, known="not_happened", attempt="key@execute:0")
    assert isinstance(await perform(log_of(store, "t", "execute:1", "s1"), denied, world.run), CallOutcome)
    doubt = await perform(log_of(store, "t", "execute:2", "s1"), denied, world.run)
    assert doubt == UnknownEffect("key@execute:1", "made", "s1")
    assert world.count == 1


async def test_what_is_harmless_is_done_again_in_a_fork() -> None:
    """R03: writing what may be written twice asks nobody."""
    store, world = InMemoryStore(), World()
    effect = replace(effect_of(send), kind="idempotent")
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
