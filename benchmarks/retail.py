"""The 20 recorded retail tasks through `Agent`, with a model that knows the solution: clean, killed, with errors."""

import importlib.util
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool

from benchmarks.retail_world import EVALS, RetailWorld, descriptions, tasks
from donewhen import Agent
from donewhen.agent.testing.crash import Crash, crashing, crashing_tool
from donewhen.agent.tools import as_tools
from donewhen.agent.workspace.arithmetic import calculate
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, playing, submit_plan
from tests.kit.comparing import asked_again, drive, ending
from tests.kit.everywhere import DIARY, Trial, kill_everywhere

Json = dict[str, Any]
TARGET = "benchmarks.retail:retail"
SEED = 20261121
PER_STEP = 2
"""Actions of one step."""
SUM = {"expression": "12.5 * 4"}


@dataclass(frozen=True)
class Way:
    """The way a task is run."""

    keyed: bool = False
    """True if the tools accept and honour an idempotency key."""
    errors: float = 0.0
    """The share of calls that fail before they reach the world."""
    full: bool = True
    """All recorded tasks, or the two in tests/data."""


async def retail(folder: Path, crash: Crash, number: int, keyed: bool, errors: float, full: bool) -> Json:
    """Bring the task's run to its end from wherever it is, and score the world."""
    task = tasks(full)[number]
    world = RetailWorld(task, folder / "world.jsonl")
    tools = [crashing_tool(tool, crash) for tool in _tools(world, keyed, errors, full, folder / "failed")]
    storage = crashing(f"sqlite:///{folder}/runs.db", crash)
    agent = Agent(_model(task, number), tools, storage=storage, settings={"approvals": "plan"})

    def answer(pause: Mapping[str, Any]) -> str:
        if pause["kind"] == "effect":
            return "it happened" if world.happened(pause["tool"], pause["arguments"]) else "it did not"
        return "yes" if pause["kind"] == "question" else "approve"

    await drive(agent, task["instruction"], "task", answer, diary=folder / DIARY, crash=crash)
    return {"ending": await ending(agent, "task"), "score": world.score()}


# The agent -----------------------------------------------------------------------------------------------------------


def _parts(task: Json) -> list[list[Json]]:
    """The actions of each step; a task without any has one step that only calculates."""
    actions = task["actions"]
    return [actions[n : n + PER_STEP] for n in range(0, len(actions), PER_STEP)] or [[]]


def _model(task: Json, number: int) -> ScriptedModel:
    """Plans a step per few actions and carries them out; every third task asks first, every fourth grants no writes."""
    steps, execute = [], {}
    for place, part in enumerate(_parts(task), 1):
        names = ["calculate", *({each["name"] for each in part} if number % 4 else ())]
        content = "; ".join(each["name"] for each in part) or "calculate"
        steps.append({"content": content, "done_when": ["all of it is done"], "tools": names})
        execute[f"s{place}"] = _worker(f"s{place}", part, asks=number % 3 == 0 and place == 1)
    roles: Json = {
        "triage": playing([submit_plan(steps, title=task["id"])]),
        "execute": execute,
        "deliver": playing(["All is done."]),
    }
    return ScriptedModel(roles=roles)


def _worker(step: str, part: Sequence[Json], *, asks: bool) -> Any:
    """Calls what has not succeeded yet, one after the other, and cites what has."""
    first = [ask_user("Shall I go ahead? (yes/no)")] if asks else []
    wanted = [*first, call("calculate", **SUM), *(call(each["name"], **each["args"]) for each in part)]

    def reply(messages: list[Any], tools: list[Json]) -> Any:
        done = _succeeded(messages)
        left = [each for each in wanted if _key(each["name"], each["args"]) not in done]
        if left:
            return left[0]
        # The last change of an order is what proves its state; evidence of an earlier one is stale.
        last = wanted[-1]
        return finish_step(f"{step} is done.", done[_key(last["name"], last["args"])])

    return reply


def _succeeded(messages: Sequence[Any]) -> dict[str, str]:
    """Call → id of its observation, of every call of the conversation that was ok."""
    made = {
        one["id"]: _key(one["name"], one["args"]) for m in messages if isinstance(m, AIMessage) for one in m.tool_calls
    }
    results = {made[m.tool_call_id]: str(m.text) for m in messages if isinstance(m, ToolMessage)}
    return {key: text[1 : text.index("]")] for key, text in results.items() if text.split("\n")[0].endswith(" ok")}


def _key(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}{sorted(arguments.items(), key=str)}"


def _tools(world: RetailWorld, keyed: bool, errors: float, full: bool, failures: Path) -> list[BaseTool]:
    """The domain's tools over the recorded world; calculating is done for real. Each fails twice at most, and
    `failures` keeps which did: a call that failed three times in the same way is not made again (X11)."""
    drawn = random.Random(f"{world.task['id']} {errors}")
    failures.touch()

    def caller(name: str, arguments: Json) -> str:
        given = dict(arguments)
        key = given.pop("idempotency_key", None)
        failed = failures.read_text("utf-8").splitlines()
        if failed.count(name) < 2 and drawn.random() < errors:
            failures.write_text("\n".join([*failed, name]), "utf-8")
            raise ConnectionError("503 Service Unavailable")
        return calculate(**given) if name == "calculate" else world.call(name, given, key)

    made = []
    for tool in descriptions(full):
        parameters = tool["parameters"]
        if keyed:
            properties = {**parameters["properties"], "idempotency_key": {"type": "string"}}
            parameters = {**parameters, "properties": properties}
        effect = "read" if tool["name"] == "calculate" else "write"
        made.append({**tool, "parameters": parameters, "effect": effect})
    return as_tools(made, caller=caller)


# Figures -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """The results of a series of runs."""

    runs: int
    right: int
    """Runs whose database ended with the right hash, and that ended as completed."""
    deaths: int
    doubled: int
    missing: int
    asked: int
    """Questions about the effect of a write that was interrupted."""
    asked_twice: int
    problems: tuple[str, ...]


def score(folder: Path, way: Way, deaths: int = 0, seed: int = SEED, side_by_side: int = 1) -> Score:
    """Run every task undisturbed and, so many times, killed at a boundary drawn with the seed."""
    trials: list[Trial] = []
    for number, task in enumerate(tasks(way.full)):
        arguments = {"number": number, "keyed": way.keyed, "errors": way.errors, "full": way.full}
        points = _drawn(f"{seed} {task['id']}", deaths)
        given = {"arguments": arguments, "side_by_side": side_by_side}
        trials += kill_everywhere(TARGET, folder / str(number), points=points, **given)
    return _score(trials, way)


def _drawn(seed: str, deaths: int) -> Callable[[Trial], list[int]]:
    return lambda whole: sorted(random.Random(seed).sample(range(1, len(whole.trace) + 1), deaths))


def _score(trials: Sequence[Trial], way: Way) -> Score:
    ended = [trial for trial in trials if not trial.error]
    right = [t for t in ended if t.result["score"]["goal_match"] and t.result["ending"]["status"] == "completed"]
    problems = [f"{trial.folder.parent.name} {trial.point}: {trial.error[-1500:]}" for trial in trials if trial.error]
    problems += [f"{t.folder.parent.name} {t.point} {t.died}: {t.result['score']}" for t in ended if t not in right]
    if way.full:
        problems += [f"{t.folder}: the scorer beside the data disagrees" for t in ended if not _agrees(t)]
    again = [line for trial in trials for line in asked_again(trial.diary)]
    asked = [row["asked"]["kind"] for trial in trials for row in trial.diary if "asked" in row]
    return Score(
        runs=len(trials),
        right=len(right),
        deaths=sum(len(trial.died) for trial in trials),
        doubled=sum(trial.result["score"]["dup_writes"] for trial in ended),
        missing=sum(trial.result["score"]["missing"] for trial in ended),
        asked=asked.count("effect"),
        asked_twice=len(again),
        problems=tuple(problems + again),
    )


def _agrees(trial: Trial) -> bool:
    """Return whether the recorded data's own scorer agrees about the world's file."""
    spec = importlib.util.spec_from_file_location("recorded_world", EVALS / "world.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves closing its files to the interpreter
        theirs = module.World(tasks(True)[int(trial.folder.parent.name)], str(trial.folder / "world.jsonl")).score()
    mine = trial.result["score"]
    return all(mine[name] == theirs[name] for name in ("goal_match", "dup_writes", "missing"))
