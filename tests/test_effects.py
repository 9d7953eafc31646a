"""The ledger of effects, call by call: what is known is replayed, what is harmless repeated, the rest asked."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.store.memory import InMemoryStore

from agent import Agent
from agent.testing import ScriptedModel
from graph import build_graph
from graph.calling import CallResult
from graph.effects import Effect, Ledger, Outcome, perform
from graph.injection import takes_key
from graph.pauses import PAUSE_ID
from state.errors import ConfigError


class Died(BaseException):
    """Stands for a process that is gone: nothing after it runs."""


def send(to: str) -> str:
    """Send."""
    return to


def charge(order: str, idempotency_key: str) -> str:
    """Charge."""
    return order + idempotency_key


def effect_of(function: Callable[..., Any], **more: Any) -> Effect:
    tool: BaseTool = StructuredTool.from_function(function)
    return Effect("key", tool, {}, "write", keyed=takes_key(tool), **more)


class World:
    """Counts effects, and dies after them as often as told."""

    def __init__(self, *, dies: int = 0) -> None:
        self.count = 0
        self.dies = dies

    async def run(self) -> Outcome:
        self.count += 1
        if self.dies >= self.count:
            raise Died
        return Outcome(CallResult(True, "done", 0.0))


async def test_what_was_denied_once_is_not_denied_for_ever() -> None:
    """R03: "it did not happen" is about the attempt it was said of. Dying again in the next attempt asks again."""
    ledger, world = Ledger(InMemoryStore(), "t", "execute:1"), World(dies=1)
    await ledger.write("key", {"state": "intent", "tool": "send", "branch": "execute:0"})
    denied = effect_of(send, known="not_happened", answers=1)
    with pytest.raises(Died):
        await perform(ledger, denied, world.run)
    assert await perform(ledger, denied, world.run) is None
    assert world.count == 1
    once_more = await perform(ledger, replace(denied, answers=2), world.run)
    assert once_more is not None
    assert once_more.result.text == "done"
    assert world.count == 2


async def test_a_denial_does_not_outlive_the_outcome_in_a_fork() -> None:
    """R03: the call was made after all; a fork of the thread's history asks before it makes it once more."""
    world = World()
    denied = effect_of(send, known="not_happened", answers=1)
    store = InMemoryStore()
    await Ledger(store, "t", "execute:0").write("key", {"state": "intent", "tool": "send", "branch": "execute:0"})
    assert await perform(Ledger(store, "t", "execute:1"), denied, world.run) is not None
    assert await perform(Ledger(store, "t", "execute:2"), denied, world.run) is None
    assert world.count == 1


async def test_a_tool_that_takes_the_key_is_called_again_with_it() -> None:
    """R03: the service knows the key, so nobody has to be asked; a tool that does not take it asks."""
    ledger, world = Ledger(InMemoryStore(), "t", "execute:0"), World(dies=1)
    with pytest.raises(Died):
        await perform(ledger, effect_of(charge), world.run)
    again = await perform(ledger, effect_of(charge), world.run)
    assert again is not None
    assert again.result.text == "done"
    other = World(dies=1)
    with pytest.raises(Died):
        await perform(Ledger(ledger.store, "u"), effect_of(send), other.run)
    assert await perform(Ledger(ledger.store, "u"), effect_of(send), other.run) is None


def test_ids_of_second_calls_of_a_round_are_ids() -> None:
    """C04: an answer by such an id is for that question or for none, never for another one."""
    for id in ("s3.effect2.df510a17", "s3.call2.df510a17.1", "2:s3.effect2.df510a17.12~2"):
        assert PAUSE_ID.fullmatch(id)


@pytest.mark.parametrize("effects", [{"sned": "write"}, {"send": "read", "find": "read"}])
def test_an_effect_of_no_tool_is_an_error(effects: Any) -> None:
    """R03: a typing error in `effects` would leave a tool what its server says it is, perhaps read-only."""
    with pytest.raises(ConfigError, match="there are: send"):
        Agent(ScriptedModel(), [send], storage="memory:", effects=effects)
    with pytest.raises(ConfigError, match="there are: send"):
        build_graph(ScriptedModel(), [send], effects=effects)
