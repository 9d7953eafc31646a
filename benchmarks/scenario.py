"""One run with all that a crash can spoil: every kind of tool, a question, an approval, two steps at once."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from donewhen import Agent
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, crashing, crashing_tool
from donewhen.testing import Policy, ScriptedModel, ask_user, call, finish_step, playing, submit_plan
from tests.kit.clocks import HOUR, set_wrong
from tests.kit.comparing import EffectLedger, drive, ending
from tests.kit.everywhere import DIARY

GOAL = "Fill order 7: note it, book a seat, ask which colour, tell Ann, charge her, and refund the deposit."
STEPS: list[dict[str, Any]] = [
    {"content": "Note the order", "done_when": ["it is noted"], "depends_on": [], "tools": ["look", "save"]},
    {"content": "Book the seat", "done_when": ["it is booked"], "depends_on": [], "tools": ["look", "book"]},
    {
        "content": "Ask for the colour, tell Ann and charge her",
        "done_when": ["she was told", "she was charged"],
        "depends_on": ["s1", "s2"],
        "tools": ["send", "charge"],
    },
    {"content": "Refund the deposit", "done_when": ["it is refunded"], "depends_on": ["s3"], "tools": ["look"]},
]
ROUNDS: dict[str, list[Any]] = {
    "s1": [
        [call("look", what="order 7"), call("look", what="stock")],
        [call("save", path="order.txt", text="order 7"), call("save", path="stock.txt", text="7")],
        finish_step("The order is noted.", "s1.3"),
    ],
    "s2": [call("look", what="seats"), call("book", seat="4A"), finish_step("Seat 4A is booked.", "s2.2")],
    "s3": [
        ask_user("Which colour?", ["red", "blue"]),
        [call("send", to="ann", text="It will be blue."), call("charge", order="7", amount=30)],
        finish_step("Ann was told and charged.", ["s3.2", "s3.3"]),
    ],
    "s4": [call("look", what="deposit"), call("refund", order="7"), finish_step("The deposit is back.", "s4.2")],
}
SETTINGS = {"approvals": "plan", "today": "2026-11-27"}
"""With a fixed day: after midnight, prompts would have other lengths than those of the undisturbed run."""
APART = "apart:"
"""Before a storage: one process of a run after the other has a clock that is half an hour ahead, or behind."""
UNSURE = ("send", "refund")
"""Tools after whose interruption only a person knows: they write, take no key and have no probe."""


@dataclass(frozen=True)
class Stage:
    """The working set of one process."""

    agent: Agent
    world: EffectLedger
    thread: str


def stage(folder: Path, crash: Crash, storage: str = "", *, flaky: str = "") -> Stage:
    """The agent and its world. `storage`: a URL; "": a SQLite file in `folder`; "sealed": an encrypted one; `APART`."""
    if storage.startswith(APART):
        storage = storage.removeprefix(APART)
        _differ(folder / "processes")
    world = EffectLedger(folder / "world.jsonl")
    sealed = storage == "sealed"
    url = f"sqlite:///{folder}/runs.db" if sealed or not storage else storage
    opened = open_storage(url, key=bytes(range(32)) if sealed else None)
    agent = Agent(_model(crash, flaky), _tools(world, crash), storage=crashing(opened, crash), settings=SETTINGS)
    return Stage(agent, world, f"{folder.parent.name}-{folder.name}")


def _differ(processes: Path) -> None:
    """Let this process's clock be an hour apart from that of the run's process before."""
    with processes.open("ab", buffering=0) as file:
        file.write(b".")
        set_wrong(HOUR / 2 if file.tell() % 2 else -HOUR / 2)


async def scenario(folder: Path, crash: Crash, storage: str = "", flaky: str = "") -> dict[str, Any]:
    """Bring the run to its end from wherever it is. A process's first model call for `flaky`, a role or step, fails."""
    on = stage(folder, crash, storage, flaky=flaky)
    await drive(on.agent, GOAL, on.thread, lambda pause: truthful(on.world, pause), diary=folder / DIARY, crash=crash)
    return {"ending": await ending(on.agent, on.thread), "effects": on.world.rows}


def truthful(world: EffectLedger, pause: Mapping[str, Any]) -> str:
    """Answer like a person who approves everything, likes blue, and looks before saying what happened."""
    if pause["kind"] == "effect":
        return "it happened" if world.happened(pause["tool"], pause["arguments"]) else "it did not"
    return "blue" if pause["kind"] == "question" else "approve"


def _model(crash: Crash, flaky: str) -> ScriptedModel:
    def policy(name: str, replies: list[Any]) -> Policy:
        counted = crash.policy(playing(replies))
        return _failing_once(crash, counted) if name == flaky else counted

    return ScriptedModel(
        roles={
            "triage": policy("triage", [submit_plan(STEPS, title="Order 7")]),
            "execute": {id: policy(id, replies) for id, replies in ROUNDS.items()},
            "deliver": policy("deliver", ["Order 7 is filled."]),
        }
    )


def _failing_once(crash: Crash, policy: Policy) -> Policy:
    """The first call of a process fails as a network does; the boundary `back-off` is in the pause that follows."""
    calls: list[int] = []

    def reply(messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        calls.append(1)
        if len(calls) > 1:
            return policy(messages, tools)
        threading.Timer(0.1, crash.reach, ["back-off"]).start()
        raise ConnectionError("connection reset by peer")

    return reply


def _tools(world: EffectLedger, crash: Crash) -> list[BaseTool]:
    """One tool of every kind, each writing down what it really did."""

    def look(what: str) -> str:
        """Look something up."""
        return f"{what}: found"

    def save(path: str, text: str) -> str:
        """Save a text; saving it again changes nothing."""
        return str(world.do("save", {"path": path, "text": text}, "saved", effect="idempotent"))

    def book(seat: str) -> str:
        """Book a seat."""
        return str(world.do("book", {"seat": seat}, "booked"))

    def send(to: str, text: str) -> str:
        """Send a message."""
        return str(world.do("send", {"to": to, "text": text}, "sent"))

    def charge(order: str, amount: int, idempotency_key: str) -> str:
        """Charge for an order."""
        return str(world.do("charge", {"order": order, "amount": amount}, "charged", key=idempotency_key))

    def refund(order: str) -> str:
        """Refund the deposit of an order."""
        return str(world.do("refund", {"order": order}, "refunded"))

    said: dict[Any, dict[str, Any]] = {
        look: {"effect": "read"},
        save: {"effect": "idempotent"},
        book: {"effect": "write", "probe": lambda arguments: world.happened("book", arguments)},
        send: {"effect": "write"},
        charge: {"effect": "write"},
        refund: {"effect": "write"},
    }
    made = [StructuredTool.from_function(function, metadata=metadata) for function, metadata in said.items()]
    return [crashing_tool(tool, crash) for tool in made]
