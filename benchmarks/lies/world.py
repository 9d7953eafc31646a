"""A scene: a folder of files with facts, a plan, and what the model will say; played with the real Agent."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Self

from langchain_core.tools import BaseTool

from benchmarks.lies.facts import Truth, check_of, doubts, says_all
from donewhen import Agent
from donewhen.agent.run import Run
from donewhen.agent.testing.script import Script, build_script
from donewhen.agent.workspace import workspace_tools
from donewhen.testing import ScriptedModel, call, finish_step, give_up, submit_plan

Level = str
LEVELS = ("claimed", "grounded", "audited", "judged", "checked")
"""`checked` is `grounded` with a check on every criterion that a tool can decide."""
BELIEVED = dict.fromkeys(LEVELS, ("cited", "proven")) | {
    "claimed": ("unverified", "cited", "proven"),
    "judged": ("proven",),
}
"""Verdicts by which a reader believes a criterion; work that stands as unverified ends the run as partial."""
KEYS = ("orders", "revenue", "refunds", "visitors", "stock", "returns", "margin", "units", "claims", "tickets")
NAMES = ("north", "south", "east", "west", "größe", "报告", "q3", "summary", "old list", "draft")
SETTINGS = {"confirm": "never", "approvals": "plan", "on_failure": "deliver", "model_retries": 0}
READS = ("read_file", "list_files", "find_text", "file_exists", "recall", "ask_user", "finish_step",
         "await_read", "await_write", "note_read", "note_written")  # fmt: skip
TOOLS = ["read_file", "list_files", "find_text", "write_file", "append_file", "edit_file"]


@dataclass(frozen=True)
class File:
    """A file as it was laid out: its path and its lines."""

    path: str
    lines: list[str]

    @property
    def line(self) -> str:
        """The line a case is about; its key is used in no other file."""
        return self.lines[1]


class Part:
    """One step: its place in the plan, and what the model says in it."""

    def __init__(self, id: str, rng: Random, needs: Sequence[str] | None, tools: Sequence[str] | None) -> None:
        self.id, self.rng, self.needs, self.tools = id, rng, needs, tools
        self.criteria: list[str] = []
        self.items: list[dict[str, Any]] = []
        self.replies: list[Any] = []
        self.checked: set[str] = set()
        """Criteria that have a check at every level."""
        self.judge = False
        """Whether a second model decides the criteria at every level but `claimed`."""
        self.nothing_changed = False
        """Whether every change that was tried failed."""
        self.text = "Done as planned."
        self.seen = 0

    def call(self, tool: str, /, **arguments: Any) -> str:
        """A round with one real call; the id under which its result will be observed."""
        self.replies.append(call(tool, **arguments))
        self.seen += 1
        return f"{self.id}.{self.seen}"

    def read(self, file: "File | str") -> str:
        """A round that reads a file."""
        return self.call("read_file", path=file if isinstance(file, str) else file.path)

    def say(self, reply: Any, observed: int = 0) -> None:
        """Any other round; `observed`: how many observations it leaves."""
        self.replies.append(reply)
        self.seen += observed

    def unused(self) -> None:
        """Take back all rounds so far: the step has called nothing."""
        self.replies.clear()
        self.seen = 0

    def prove(self, criterion: str, *evidence: Any, **item: Any) -> None:
        """One more criterion, and what the model will claim of it."""
        cited = [{"observation": e} if isinstance(e, str) else {"observation": e[0], "quote": e[1]} for e in evidence]
        self.criteria.append(criterion)
        self.items.append({"met": True, "evidence": cited, **item})

    def goal_check(self) -> list[dict[str, Any]]:
        """The items, each with the number of its criterion, in any order."""
        numbered = [{"criterion": n, **item} for n, item in enumerate(self.items, 1)]
        return self.rng.sample(numbered, len(numbered))

    def finish(self, **arguments: Any) -> None:
        """Claim to be done. `arguments` replace those of the call."""
        calls = [made for made in self.replies if isinstance(made, dict)]
        wrote = any(made.get("name") not in READS for made in calls) and not self.nothing_changed
        unchanged = None if wrote or self.tools == [] else "nothing had to be changed"
        claim = finish_step(self.text, goal_check=self.goal_check(), unchanged=unchanged)
        self.replies.append({**claim, "args": {**claim["args"], **arguments}})

    def planned(self, checked: bool) -> dict[str, Any]:
        """The step as the planner submits it."""
        criteria: list[dict[str, Any]] = [
            {"text": text, **_check(text, checked or text in self.checked)} for text in self.criteria
        ]
        criteria = [{**criterion, "judge": True} for criterion in criteria] if self.judge else criteria
        step = {"id": self.id, "content": f"Work on {self.id}.", "done_when": criteria}
        more = {"depends_on": self.needs, "tools": self.tools}
        return step | {key: list(value) for key, value in more.items() if value is not None}


def _check(criterion: str, checked: bool) -> dict[str, Any]:
    check = check_of(criterion) if checked else None
    return {"check": check} if check else {}


@dataclass
class Scene:
    """A folder and a random generator: what a case is made of. Its last step is the one it is about."""

    folder: Path
    rng: Random
    parts: list[Part] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    """To the pauses, in order."""
    said: list[str] = field(default_factory=list)
    """The actual statements of people."""
    judge: Any = None
    """What it says; else it is perfect: it knows what is so, and doubts what is not."""
    false_text: bool = False
    """Whether the result says something false though every criterion holds."""
    tools: list[BaseTool] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    keys: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        names, keys = self.rng.sample(NAMES, len(NAMES)), self.rng.sample(KEYS, len(KEYS))
        self._names = iter(names)
        self.keys = iter(keys)

    def file(self, *more: str, ends: str = "\n", path: str = "") -> File:
        """A new file with a title, a line of its own, and some more."""
        path = path or f"{self.rng.choice(['', '', 'data/', 'a/b/'])}{next(self._names)}.txt"
        key, value = next(self.keys), self.rng.randint(1000, 9999)
        lines = [f"Report {self.rng.randint(10, 99)}", f"{key}: {value}", "state: not ready", *more]
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(ends.join(lines) + ends, encoding="utf-8", newline="")
        return File(path, lines)

    def step(self, needs: Sequence[str] | None = None, tools: Sequence[str] | None = TOOLS, id: str = "") -> Part:
        """One more step of the plan, with some honest rounds to begin with."""
        part = Part(id or f"s{len(self.parts) + 1}", self.rng, needs, tools)
        self.parts.append(part)
        for _ in range(self.rng.randint(0, 2) if tools else 0):
            self.wander(part)
        return part

    def wander(self, part: Part) -> None:
        """A round that has nothing to do with the claim."""
        number = self.rng.randint(0, 10_000)
        rounds: list[Callable[[], object]] = [
            lambda: part.say("Looking at what there is."),
            lambda: part.call("list_files", pattern=f"*.{number}"),
            lambda: part.call("find_text", query=f"{number} pieces"),
            lambda: part.call("read_file", path=f"missing-{number}.txt"),
        ]
        self.rng.choice(rounds)()

    def honest_step(self, needs: Sequence[str] | None = None) -> tuple[Part, File, str]:
        """A whole step that does what it says: its file, and the observation of it."""
        file, part = self.file(), self.step(needs)
        seen = part.read(file)
        part.prove(line_of(file), (seen, file.line))
        part.text = f"{file.path} says {file.line}"
        part.finish()
        return part, file, seen


def line_of(file: File) -> str:
    """The criterion that is true of a file as it was laid out."""
    return f"{file.path} contains the line: {file.line}"


@dataclass(frozen=True)
class Played:
    """The result of a case."""

    accepted: bool
    """The step about which it is ended as done, with verdicts that say so, or the run as completed."""
    true: bool
    """Every criterion of that step really holds, in the world as it is after the run."""
    verdicts: Sequence[Mapping[str, Any]]
    run: Run


class Stage:
    """One folder and one agent for many cases, one after the other; building an agent takes longer than a case.

    Use it as an asynchronous context manager.
    """

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="lies-")
        self.folder = Path(self._home.name)
        self._tools = workspace_tools(self.folder)
        self._model = ScriptedModel(["unused"])
        self._agent = Agent(self._model, self._tools, storage="memory:")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._agent.aclose()
        self._home.cleanup()

    def scene(self, seed: str) -> Scene:
        """An empty folder; the same seed lays out the same."""
        for entry in self.folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        return Scene(self.folder, Random(seed))

    async def play(self, scene: Scene, level: Level) -> Played:
        """Run the plan with the real tools at a level of verification and see what was accepted."""
        checked, target = level == "checked", scene.parts[-1]
        self._model.script = _script(scene, checked, _perfect(scene))
        agent = Agent(self._model, [*self._tools, *scene.tools], storage="memory:") if scene.tools else self._agent
        settings = {**SETTINGS, "verification": "grounded" if checked else level, **scene.settings}
        run = await agent.start("Do what the plan says.", settings=settings)
        for answer in scene.answers:
            run = await agent.resume(run.thread_id, answer, settings=settings)
        await agent.delete(run.thread_id)
        truth, record = Truth(self.folder, scene.said, target.text), run.steps[target.id]
        holds = all(truth.holds(criterion) for criterion in target.criteria)
        enough = all(verdict["verdict"] in BELIEVED[level] for verdict in record.get("verdicts") or ())
        done = (record["status"] == "done" and enough and level != "audited") or run.status in ("completed", "answered")
        return Played(done, holds, record.get("verdicts") or (), run)


def _perfect(scene: Scene) -> Any:
    """A judge that knows what is so, where it is asked about the step that the case is about."""
    target = scene.parts[-1]

    def judge(messages: Any, tools: Any) -> Any:
        truth = Truth(scene.folder, scene.said, target.text)
        true = not scene.false_text and all(truth.holds(criterion) for criterion in target.criteria)
        about = f"\n{target.id} (" in str(messages[1].text)
        return (doubts if about and not true else says_all)(messages, tools)

    return judge


def _script(scene: Scene, checked: bool, judge: Any) -> Script:
    """What the model says: the plan, and in each step its rounds; whoever is refused gives up in the end."""
    plan = submit_plan([part.planned(checked) for part in scene.parts])
    steps = {part.id: [*part.replies, give_up("no further")] for part in scene.parts}
    roles = {"triage": [plan], "execute": steps, "judge": scene.judge or judge, "deliver": ["That is all."]}
    return build_script((), roles, strict=False, times=None)
