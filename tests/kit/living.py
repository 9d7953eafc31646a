"""Lives a drawn world through: starts it, answers whatever it asks, cuts it off and lets another agent go on."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from donewhen import Agent, Models, Run
from donewhen.agent.storage import Storage
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.state.errors import StorageError, UnknownThread
from tests.kit.worlds import EFFECTS, PRICES, Json, World

MOST_PAUSES = 150
ENDS = ("completed", "partial", "failed", "cancelled", "exhausted")
GARBAGE = ("banana", "extend by", {"rounds": -1}, {"roundz": 3}, "extend 1e999", {"cost_usd": float("nan")}, "")


@dataclass
class People:
    """Who answers. `budgets` are the answers to budgets, one after the other; then they have had enough."""

    budgets: list[str]
    refusing: bool = False
    """Whether they refuse calls that they are asked about."""
    failure: str = "stop"
    given: dict[str, tuple[str | None, Json]] = field(default_factory=dict)
    """By pause: the step, or None for the run, and what was granted; the last answer counts."""
    questions: set[str] = field(default_factory=set)
    pauses: list[Json] = field(default_factory=list)

    def answer(self, pause: Mapping[str, Any], world: World) -> Any:
        """The answer to a pause, written down."""
        id, kind, step = pause["id"], pause["kind"], pause["step"]
        self.given.pop(id, None)
        self.pauses.append({**pause, "really": world.spent(step), "granted": self.granted(step)})
        if kind == "plan":
            return "approve"
        if kind == "tool":
            return "reject" if self.refusing else "approve"
        if kind == "effect":
            return "it happened" if _happened(pause, world) else "it did not"
        if kind == "budget":
            return self._budget(pause)
        self.questions.add(id)
        if pause.get("about") != "failure":
            return f"green {step or 'plan'}/0/answer"
        if self.failure == "replan":
            self.given[id] = (None, pause["with_replan"])
        return self.failure

    def _budget(self, pause: Mapping[str, Any]) -> Any:
        id, step = pause["id"], pause["step"]
        choice = self.budgets.pop(0) if self.budgets else "stop"
        keys = [pause["exhausted"]] if isinstance(pause["exhausted"], str) else pause["exhausted"]
        if choice == "replan" and any(option.startswith("replan") for option in pause["options"]):
            self.given[id] = (None, pause["with_replan"])
        elif choice == "suggested":
            self.given[id] = (step, pause["suggested"])
            return "extend" if len(self.pauses) % 2 else {"type": "extend", **pause["suggested"]}
        elif choice == "little":
            amounts = {key: 0.05 if key == "cost_usd" else 1 for key in keys}
            self.given[id] = (step, amounts)
            return "extend " + " and ".join(f"{key} {amount}" for key, amount in amounts.items())
        elif choice == "plenty":
            self.given[id] = (step, dict.fromkeys(keys, 500))
            return dict.fromkeys(keys, 500)
        elif choice.startswith("garbage"):
            return GARBAGE[int(choice[-1])]
        return choice

    def granted(self, step: str | None = None) -> Json:
        """What was granted to a step, or to the run."""
        total: Json = {}
        for whose, amounts in self.given.values():
            if whose == step:
                total = {key: total.get(key, 0) + amounts.get(key, 0) for key in {*total, *amounts}}
        return total


def _happened(pause: Mapping[str, Any], world: World) -> bool:
    arguments = pause["arguments"]
    if "brief" in arguments:
        step = arguments["brief"].split('<step id="', 1)[1].split('"')[0]
        return bool(world.done[f"{pause['tool']} {step}"])
    return bool(world.done[f"{pause['tool']} {arguments['what']}"])


@dataclass
class Cuts:
    """Where the process ends: at boundaries of the storage, and at calls of models or tools, by number."""

    storage: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)


async def live(world: World, people: People, storage: Storage, settings: Json, cuts: Cuts | None = None) -> Run:
    """The run at its end. Every process is an Agent of its own on the same storage."""
    cuts = cuts or Cuts()
    while True:
        crash = Crash(cuts.storage.pop(0) if cuts.storage else None)
        call = cuts.calls.pop(0) if cuts.calls else None
        task = asyncio.ensure_future(_process(world, people, crashing(storage, crash), settings))
        world.cut(call, task)
        try:
            return await task
        except StorageError as error:
            if "simulated failure" not in str(error):
                raise
        except asyncio.CancelledError:
            pass
        world.process += 1


def agent_of(world: World, storage: Storage, settings: Json) -> Agent:
    """An agent that lives in the world."""
    tools = world.tools()
    executors = world.executors(tools)
    return Agent(
        Models(world.model(), prices=PRICES),
        tools,
        storage=storage,
        settings=settings,
        executors=executors,
        effects=EFFECTS,
    )


async def answered(agent: Agent, run: Run, world: World, people: People) -> Run:
    """The run at its end, all its questions answered."""
    while run.status not in ENDS:
        assert len(people.pauses) < MOST_PAUSES, "the run asks without end"
        if run.status == "waiting":
            pause = run.pending[0]
            run = await agent.resume("t", {pause["id"]: people.answer(pause, world)})
        else:
            run = await agent.resume("t")
    return run


async def _process(world: World, people: People, storage: Storage, settings: Json) -> Run:
    async with agent_of(world, storage, settings) as agent:
        try:
            run = await agent.get("t")
        except UnknownThread:
            run = await agent.start("Do the work", thread_id="t")
        return await answered(agent, run, world, people)
