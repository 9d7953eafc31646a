"""Threads that plan, ask while they plan, or show a plan again, as the present version stores them.

`python -m tests.kit.storage.planned` writes them to tests/data, once for each version of the state.
"""

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool

from donewhen import Agent, Run
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.state.channels import VERSION
from donewhen.testing import (
    ScriptedModel,
    answer,
    ask_user,
    call,
    finish_step,
    give_up,
    observed,
    submit_plan,
)
from tests.kit.runs import config, said, step
from tests.kit.storage.release import keep

LOOK = call("look")
TWO = submit_plan([step("s1"), step("s2", depends_on=["s1"])], title="Two")
ONE = submit_plan([step("s1", tools=["look"])], title="One")
OTHER = {**step("s3"), "replaces": ["s1"]}
OTHERS = submit_plan([OTHER], drop=[{"what": "s2", "why": "it rests on s1"}])
MORE = submit_plan([step("s2", depends_on=["s1"])])
AGAIN = submit_plan(
    [
        {**step("s4", "work on s1"), "replaces": ["s1"]},
        {**step("s5", "work on s2", depends_on=["s4"]), "replaces": ["s2"]},
    ]
)
CAREFUL = {**TWO, "args": {**TWO["args"], "need_thinking": True}}
PATIENT: Any = {"confirm": "never", "on_failure": "replan"}
GROWS: Any = {"promote_rounds": 1}
REPLANS: Any = {"on_failure": "replan"}


@dataclass(frozen=True)
class Case:
    """A thread."""

    planner: dict[str, list[Any]]
    """What the planner does, round by round: at first, after `words` about a plan, after a `failure`, `growing`."""
    settings: dict[str, Any]
    before: Sequence[Any] = ()
    """Answers before it was stored."""
    after: Sequence[Any] = ()
    """Answers in the next version."""
    dies_after: int | None = None
    """The number of replies to the planner's last request after which its process died; None if it waits."""
    status: str = "completed"
    steps: Sequence[str] = ("s1", "s2")
    """The steps of its last plan."""
    modes: Sequence[str] = ("plan",)

    @property
    def fails(self) -> bool:
        """Whether its first step fails."""
        return "failure" in self.planner


REPLANNED: Any = {"steps": ["s3"], "modes": ["plan", "step"]}
CASES: dict[str, Case] = {
    "looked": Case({"first": [LOOK, TWO]}, PATIENT, dies_after=1),
    "careful": Case({"first": [CAREFUL], "draft": [LOOK, TWO]}, PATIENT, dies_after=1),
    "question": Case({"first": [LOOK, ask_user("Which year?"), TWO]}, PATIENT, after=["2022"]),
    "rounds": Case(
        {"first": [LOOK, answer("It is there.")]},
        {"plan_rounds": 1, "on_exhausted": "ask"},
        after=["extend 5"],
        steps=(),
        modes=["answer"],
    ),
    "answered": Case(
        {"first": [TWO], "words": [answer("They differ.")]}, {}, ["why two?"], ["approve"], status="answered"
    ),
    "words": Case(
        {"first": [TWO], "words": [LOOK, answer("They differ.")]}, {}, ["why two?"], ["approve"], dies_after=1
    ),
    "failed": Case({"first": [TWO], "failure": [LOOK, OTHERS]}, PATIENT, dies_after=1, status="partial", **REPLANNED),
    "repeated": Case(
        {"first": [TWO], "failure": [AGAIN, LOOK, OTHERS]}, PATIENT, dies_after=2, status="partial", **REPLANNED
    ),
    "replanned": Case(
        {"first": [TWO], "failure": [OTHERS]}, REPLANS, ["approve"], ["approve"], status="answered", **REPLANNED
    ),
    "replan answered": Case(
        {"first": [TWO], "failure": [OTHERS], "words": [answer("It was blocked.")]},
        REPLANS,
        ["approve", "why another?"],
        ["approve"],
        status="answered",
        **REPLANNED,
    ),
    "failure": Case(
        {"first": [TWO], "failure": [LOOK, OTHERS]},
        {"confirm": "never", "on_failure": "ask"},
        after=["take the other way"],
        status="partial",
        **REPLANNED,
    ),
    "grown": Case({"first": [ONE], "growing": [MORE]}, GROWS, ["approve"], ["approve"], modes=["step", "plan"]),
    "growing": Case(
        {"first": [ONE], "growing": [LOOK, MORE]}, {**GROWS, "confirm": "never"}, dies_after=1, modes=["step", "plan"]
    ),
}
"""Threads; the process of some died while they planned, the others wait."""


def script(case: Case) -> ScriptedModel:
    """Replies depend on the messages alone, so that a new process continues anywhere."""

    def plan(messages: Sequence[Any], phase: str) -> Any:
        brief, round = messages[1].text, sum(isinstance(each, AIMessage) for each in messages)
        kinds = {"words": "<feedback", "growing": "<wants", "failure": "<failure"}
        kind = next((kind for kind, tag in kinds.items() if tag in brief and kind in case.planner), phase)
        return case.planner[kind][round]

    def work(messages: Sequence[Any], _: Any) -> Any:
        seen = observed(messages)
        if case.fails:
            return give_up("blocked")
        if "growing" in case.planner:
            return LOOK if len(seen) < 2 else finish_step("seen", evidence=seen[-1])
        return said("s1")

    roles: Any = {"triage": lambda m, _: plan(m, "first"), "plan": lambda m, _: plan(m, "draft")}
    roles |= {"deliver": lambda *_: "Done."}
    roles["execute"] = {"s1": work, **{id: (lambda *_, id=id: said(id)) for id in ("s2", "s3")}}
    return ScriptedModel(roles=roles, strict=False)


def look() -> str:
    """Look."""
    return "seen"


def opened(storage: Any, case: Case, crash: Crash | None = None) -> Agent:
    """The agent of a thread."""
    storage = open_storage(storage) if isinstance(storage, str) else storage
    tool = StructuredTool.from_function(look, metadata={"effect": "read"})
    storage = crashing(storage, crash) if crash else storage
    return Agent(script(case), [tool], storage=storage, settings={"verification": "grounded", **case.settings})


async def planned(storage: Any, thread: str, crash: Crash | None = None) -> Run:
    """Start a thread, and give its first answers; a process that dies in between goes on."""
    case = CASES[thread]
    async with opened(storage, case, crash) as agent:
        run = await agent.start("do the work", thread_id=thread)
        for given in case.before:
            run = await agent.resume(run, given)
    return run


async def finished(storage: Any, thread: str) -> Run:
    """The run at its end, in another process."""
    case = CASES[thread]
    async with opened(storage, case) as agent:
        run = await agent.get(thread)
        run = run if run.status == "waiting" else await agent.resume(thread)
        for given in case.after:
            assert run.status == "waiting", run
            run = await agent.resume(run, given)
    return run


async def is_as_wanted(storage: Any, thread: str) -> bool:
    """Whether a thread is stored as its case says: waiting, or in the middle of its planning."""
    case = CASES[thread]
    async with opened(storage, case) as agent:
        snapshot = await agent.graph.aget_state(config(thread), subgraphs=True)
    if case.dies_after is None:
        return bool(snapshot.interrupts)
    inner = [task.state.values for task in snapshot.tasks if task.name == "plan" and task.state]
    rounds = inner[0].get("transcript", []) if inner else []
    replies = sum(isinstance(each, AIMessage) for each in rounds)
    goes_on = replies == case.dies_after and rounds[-1].type == "tool" and not inner[0].get("plan")
    return goes_on and (not case.before or snapshot.values["planning"]["number"] > 1)


async def write(folder: Path) -> Path:
    """Store all threads."""
    path = folder / "donewhen.sqlite"
    for thread, case in CASES.items():
        if case.dies_after is None:
            await planned(f"sqlite:///{path}", thread)
            assert await is_as_wanted(f"sqlite:///{path}", thread), thread
            continue
        for number in range(1, 120):
            attempt = folder / f"{thread}-{number}.sqlite"
            if path.exists():
                shutil.copy(path, attempt)
            with suppress(Exception):
                await planned(f"sqlite:///{attempt}", thread, Crash(number, only=["put", "put_writes"]))
            if await is_as_wanted(f"sqlite:///{attempt}", thread):
                shutil.copy(attempt, path)
                break
        else:
            raise AssertionError(f"{thread} never died while it planned")
    return path


if __name__ == "__main__":
    asyncio.run(keep(write, f"planned-{VERSION}"))
