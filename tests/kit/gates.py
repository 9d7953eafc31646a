"""One step whose calls are stopped by every gate in turn, for processes that are killed on the way."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from donewhen import Agent
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, crashing, crashing_tool
from donewhen.hooks import Ask, Call, Hooks, Refuse
from donewhen.testing import ScriptedModel, call, finish_step, playing, submit_plan
from tests.kit.comparing import EffectLedger, drive, ending
from tests.kit.everywhere import DIARY

ROUNDS: list[Any] = [
    call("look", path="/etc/passwd"),  # outside of the allowed paths
    call("send", to="ann"),  # a person says no
    call("send", to="ann"),  # they said no before
    call("send", to="bob"),  # a person answers instead
    call("send", to="eve"),  # a person changes it
    call("send", to="mallory"),  # a hook refuses it
    call("charge", order="7"),  # a hook asks
    [call("look", path="notes/a"), call("look", path="notes/b")],  # beyond the budget
    finish_step("Order 7 is paid.", ("s1.7", "charged")),
]
LIMITS = {"tool_calls": 4}
BOUNDARIES = ["hook", "consent", "send.before", "send.inside", "charge.inside"]


async def gates(folder: Path, crash: Crash, storage: str = "", flaky: str = "") -> dict[str, Any]:
    """Bring the run to its end from wherever it is, answering as the comments above say."""
    world, thread = EffectLedger(folder / "world.jsonl"), f"{folder.parent.name}-{folder.name}"
    roles: Any = {
        "triage": playing([submit_plan([{"content": "pay", "tools": ["look", "send", "charge"]}])]),
        "execute": {"s1": playing(ROUNDS)},
    }
    agent = Agent(
        ScriptedModel(roles=roles),
        _tools(world, crash),
        storage=crashing(open_storage(storage or f"sqlite:///{folder}/runs.db"), crash),
        hooks=Hooks(before_call=[_hook(crash)]),
        settings={"confirm": "never", "profile": {"allowed_paths": ["notes"]}, "limits": LIMITS},
    )
    await drive(agent, "Pay", thread, lambda pause: _answer(world, pause), diary=folder / DIARY, crash=crash)
    return {"ending": await ending(agent, thread), "effects": world.rows}


def _answer(world: EffectLedger, pause: Mapping[str, Any]) -> Any:
    if pause["kind"] == "effect":
        return "it happened" if world.happened(pause["tool"], pause["arguments"]) else "it did not"
    if pause["kind"] == "budget":
        return "extend"
    said: dict[str, Any] = {
        "ann": {"type": "reject"},
        "bob": {"type": "respond", "message": "He knows."},
        "eve": {"type": "edit", "arguments": {"to": "eva"}},
    }
    return said.get(str(pause["arguments"].get("to")), "approve")


def _hook(crash: Crash) -> Any:
    def hook(about: Call) -> Any:
        crash.reach("hook")
        if about.tool == "charge":
            return Ask("Is the amount right?")
        return Refuse("never to her") if about.arguments.get("to") == "mallory" else None

    return hook


def _tools(world: EffectLedger, crash: Crash) -> list[BaseTool]:
    def look(path: str) -> str:
        """Look at a file."""
        return f"{path} is empty"

    def send(to: str) -> str:
        """Send a message."""
        return str(world.do("send", {"to": to}, "sent"))

    def charge(order: str, idempotency_key: str) -> str:
        """Charge for an order."""
        return str(world.do("charge", {"order": order}, "charged", key=idempotency_key))

    def asks(arguments: Mapping[str, Any]) -> bool:
        crash.reach("consent")
        return True

    said: dict[Any, dict[str, Any]] = {
        look: {"effect": "read"},
        send: {"effect": "write", "asks": asks},
        charge: {"effect": "write", "asks": False},
    }
    made = [StructuredTool.from_function(function, metadata=metadata) for function, metadata in said.items()]
    return [crashing_tool(tool, crash) for tool in made]
