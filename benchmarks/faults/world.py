"""A shop whose changes can be counted, and the perfect model that works in it: what faults are measured on."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from benchmarks.retail_world import FULL, RetailWorld, descriptions, tasks
from donewhen import Agent, AgentOptions, Run
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

Action = tuple[str, dict[str, Any]]
Distort = Callable[[Any], Any]
"""Turns what the perfect model would say into what it says."""

SETTINGS: dict[str, Any] = {"confirm": "never", "approvals": "plan", "observation_chars": 2000}
_REASONS = ("no longer needed", "ordered by mistake")
_TEXT = {"type": "string"}
_OBSERVED = re.compile(r"^\[(s[^\]\s]+)\] \S+ ok\b", re.MULTILINE)


def _tool(description: str, required: Sequence[str], **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"description": description, "input_schema": schema}


TOOLS: dict[str, Any] = {
    "get_order": _tool("Look an order up.", ["order_id"], order_id=_TEXT),
    "cancel_order": _tool(
        "Cancel an order.", ["order_id", "reason"], order_id=_TEXT, reason={"enum": list(_REASONS)}, note=_TEXT
    ),
    "refund": _tool(
        "Refund items of an order.",
        ["order_id", "amount", "items"],
        order_id=_TEXT,
        amount={"type": "number", "minimum": 0},
        items={"type": "array", "items": _TEXT, "minItems": 1},
        express={"type": "boolean"},
    ),
}
EFFECTS: Any = {"get_order": "read", "cancel_order": "write", "refund": "write"}


@dataclass
class World:
    """One task: what has to be done, in order, and every call that reached a tool."""

    goal: str
    actions: list[Action]
    made: list[Action] = field(default_factory=list)
    before: Callable[[str, int], None] | None = None
    """Called with the tool's name and the number of the call before anything happens."""
    after: Callable[[str, int], None] | None = None

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """The body of every tool."""
        number = len(self.made) + 1
        if self.before:
            self.before(name, number)
        self.made.append((name, dict(arguments)))
        if self.after:
            self.after(name, number)
        return f"{name} {number}: done, {len(self.changes)} changes in all"

    @property
    def changes(self) -> list[Action]:
        """The calls that changed something."""
        return [action for action in self.made if EFFECTS[action[0]] == "write"]

    @property
    def left(self) -> list[range]:
        """The remaining calls of a perfect model: each open change, with the look before it."""
        todo = [n for n, action in enumerate(self.actions) if EFFECTS[action[0]] == "write" and action not in self.made]
        return [range(n - 1, n + 1) for n in todo]

    @property
    def tools(self) -> dict[str, Any]:
        """The agent's tools, as descriptions."""
        return TOOLS

    @property
    def effects(self) -> dict[str, Any]:
        """Tool → read or write."""
        return EFFECTS

    @property
    def right(self) -> bool:
        """True if exactly the intended changes were made, in order."""
        return self.changes == [action for action in self.actions if EFFECTS[action[0]] == "write"]

    @property
    def doubled(self) -> int:
        """Changes made more than once."""
        return sum(self.changes.index(action) != n for n, action in enumerate(self.changes))

    @property
    def wrong(self) -> int:
        """Calls nobody asked for."""
        return sum(action not in self.actions for action in self.made)


def shop(seed: int, changes: int = 3) -> World:
    """A task of `changes` changes, each with a look at the order before it."""
    randoms = random.Random(f"shop {seed}")
    actions: list[Action] = []
    for number in range(changes):
        order = f"#W{randoms.randrange(1000, 9999)}{number}"
        actions.append(("get_order", {"order_id": order}))
        if randoms.random() < 0.5:
            args = {"order_id": order, "reason": randoms.choice(_REASONS), "note": 'Grüße, 谢谢 "they" said'}
            actions.append(("cancel_order", args))
        else:
            items = [f"item {randoms.randrange(100)}" for _ in range(randoms.randrange(1, 4))]
            amount = randoms.randrange(1, 9999) / 100
            actions.append(("refund", {"order_id": order, "amount": amount, "items": items, "express": True}))
    return World(f"task {seed}: " + "; ".join(f"{name} {args}" for name, args in actions), actions)


def perfect(world: World, distort: Distort = lambda reply: reply) -> ScriptedModel:
    """A model that always knows what to do next, seen through `distort`."""

    def plan(messages: list[BaseMessage], tools: Any) -> Any:
        everything = len(world.actions)
        steps = [
            {
                "content": f"Do {part.start} to {part.stop}: {[world.actions[n] for n in part]}",
                "done_when": ["what has to be done is done"],
                "tools": [world.actions[n][0] for n in part],
            }
            for part in world.left or [range(everything, everything)]
        ]
        return distort(submit_plan(steps, title="Orders"))

    def execute(messages: list[BaseMessage], tools: Any) -> Any:
        brief = next(str(m.text) for m in messages if isinstance(m, HumanMessage))
        step = re.search(r'<step id="(\w+)">\s*Do (\d+) to (\d+): ', brief)
        assert step is not None
        mine = world.actions[int(step[2]) : int(step[3])]
        if not mine:
            return distort(finish_step("It was all done before.", f"{step[1]}.result"))
        seen = _OBSERVED.findall("\n".join(str(m.text) for m in messages[2:]))
        todo = [action for action in mine if action not in world.made]
        if seen and not todo:
            return distort(finish_step("The changes are made.", seen[-1]))
        name, args = (todo or mine)[0]
        return distort(call(name, **args))

    roles: dict[str, Any] = {"triage": plan, "plan": plan, "execute": execute, "deliver": _deliver(distort)}
    # A request without instructions is of no role: they were left out because the server refused them.
    return ScriptedModel(lambda *_: distort(""), roles=roles, strict=False)


def _deliver(distort: Distort) -> Any:
    def deliver(messages: list[BaseMessage], tools: Any) -> Any:
        assert isinstance(messages[0], SystemMessage)
        return distort("Everything is done.")

    return deliver


def agent_for(world: World, model: Any, **options: Any) -> Agent:
    """An agent with the shop's tools; in memory unless told otherwise."""
    options.setdefault("storage", "memory:")
    settings = {**SETTINGS, **options.pop("settings", {})}
    own = AgentOptions(caller=world.call, config=options.pop("config", None))
    return Agent(model, world.tools, effects=world.effects, settings=settings, options=own, **options)


async def carry(agent: Agent, world: World, thread_id: str | None = None, *, resume: bool = False) -> Run:
    """Run to the end; whatever is asked is answered as a person who sees the world would."""
    if resume and thread_id:
        run = await agent.resume(thread_id)
    else:
        run = await agent.start(world.goal, thread_id=thread_id)
    while run.status == "waiting":
        run = await agent.resume(run.thread_id, {run.pending[0]["id"]: truthful(world, run.pending[0])})
    return run


def truthful(world: World, pause: dict[str, Any]) -> str:
    """Answer like a person who sees the world."""
    if pause["kind"] == "effect":
        happened = (pause["tool"], pause["arguments"]) in world.made
        return "it happened" if happened else "it did not"
    if pause.get("about") == "failure":
        return "deliver what there is"
    return {"plan": "approve", "tool": "approve", "budget": "extend", "question": "go on"}[pause["kind"]]


# Tasks of tau-bench's retail domain: recorded transitions of the real tools ------------------------------------------

READS = ("get_", "find_", "list_", "calculate", "think", "transfer")


@dataclass
class TauWorld(World):
    """One task; `right`, `wrong` and `doubled` are the recording's own count."""

    inner: RetailWorld = field(default=None, repr=False)  # type: ignore[assignment]

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        self.made.append((name, dict(arguments)))
        return self.inner.call(name, arguments)

    @property
    def left(self) -> list[range]:
        return [range(n, n + 1) for n, action in enumerate(self.actions) if action not in self.made]

    @property
    def tools(self) -> dict[str, Any]:
        about = descriptions(FULL.exists())
        return {
            each["name"]: {"description": each["description"], "input_schema": each["parameters"]} for each in about
        }

    @property
    def effects(self) -> dict[str, Any]:
        return {name: "read" if name.startswith(READS) else "write" for name in self.tools}

    @property
    def right(self) -> bool:
        return bool(self.inner.score()["goal_match"])

    @property
    def wrong(self) -> int:
        return int(self.inner.score()["off_graph"])

    @property
    def doubled(self) -> int:
        return int(self.inner.score()["dup_writes"])


def tau_worlds(folder: Path) -> list[TauWorld]:
    """The recorded tasks that change something (two of them where the others are not beside this repository)."""
    found = [task for task in tasks(FULL.exists()) if task["actions"]]
    return [_world(task, folder / f"{number}.jsonl") for number, task in enumerate(found)]


def _world(task: dict[str, Any], ledger: Path) -> TauWorld:
    actions = [(action["name"], action["args"]) for action in task["actions"]]
    return TauWorld(task["instruction"], actions, inner=RetailWorld(task, ledger))
