"""`python -m benchmarks.walk`: what a reader opens to follow five things the runtime does, from the code that runs.

A file on a way is best entered once, does one thing whole, and has a name that says it. `--list` prints the files in
the order in which they are entered. Needs no key and no network.
"""

import asyncio
import itertools
import os
import pty
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from donewhen import Agent, build_graph
from donewhen.testing import ScriptedModel, call, finish_step, observed, submit_plan

ROOT = Path(__file__).resolve().parents[1]
GRAPH, AGENT = ("graph", "state", "prompts"), ("agent",)
Visit = tuple[str, str]
"""File and function that was called."""
STRAIGHT = {
    "a reply with two tool calls → the next model call": (100, 20),
    "an edited plan → the first step's model call": (110, 25),
    "finish_step with a quote → the step is done": (110, 22),
    "agent.start → the first node (agent/ only)": (60, 8),
    "donewhen run with one confirm (agent/ only)": (250, 30),
}
"""Functions and files of each way if it were straight: an aim, no gate."""

PASTE_ON = b"\x1b[?2004h"
"""What a terminal is sent when the command begins to read a line."""


class Walk:
    """Records which functions of some folders are called, in order, in every thread."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.visits: list[Visit] = []
        self._folders = folders

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is called inside."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<")  # no class, no module
        if event != "call" or not is_function or code.co_code[frame.f_lasti + 1] & 3:  # goes on after await
            return
        file = code.co_filename
        if not file.startswith(str(ROOT)) or ".venv" in file:
            return
        place = file.removeprefix(f"{ROOT}/").removeprefix("donewhen/")
        if place.split("/")[0] in self._folders and not place.startswith("agent/testing/"):
            self.visits.append((place, code.co_name))


def main() -> None:
    """Walk all ways and print a line for each."""
    if "--command" in sys.argv:
        return _run_command(sys.argv[sys.argv.index("--command") + 1 :])
    ways = [*asyncio.run(_walk_steps()), asyncio.run(_walk_start()), _walk_command()]
    print(f"{'':52} functions  files  file switches  room switches")
    for (name, (functions, files)), visits in zip(STRAIGHT.items(), ways, strict=True):
        order = _files(visits)
        rooms = [str(Path(file).parent) if file.count("/") > 1 else file for file in order]
        switches = sum(one != other for one, other in itertools.pairwise(rooms))
        print(f"{name:52} {len(set(visits)):9}  {len(set(order)):5}  {len(order):13}  {switches:13}")
        print(f"{'  straight':52} {functions:9}  {files:5}")
        if "--list" in sys.argv:
            for file in dict.fromkeys(order):
                calls = dict.fromkeys(name for place, name in visits if place == file)
                print(f"    {file} ({order.count(file)}): {', '.join(calls)}")
    return None


def _files(visits: Sequence[Visit]) -> list[str]:
    """Return the files in the order in which they are entered; one that is entered again stands there again."""
    return [file for n, (file, _) in enumerate(visits) if n == 0 or visits[n - 1][0] != file]


async def _walk_steps() -> list[list[Visit]]:
    """Walk a plan of two steps whose first step makes two calls and then proves its criterion."""
    walk, marks = Walk(GRAPH), list[int]()

    @tool
    def look(x: str) -> str:
        """Look."""
        return f"seen {x}"

    def work(messages: Any, _: Any) -> Any:
        marks.append(len(walk.visits))
        if not (seen := observed(messages)):
            return [call("look", x="a"), call("look", x="b")]
        return finish_step("seen a", evidence=(seen[0], "seen a"))

    plan = submit_plan([{"content": name, "done_when": [f"{name} is known"]} for name in "AB"])
    model = ScriptedModel(roles={"triage": lambda *_: plan, "execute": work, "deliver": lambda *_: "ok"})
    builder = build_graph(model, [look], effects={"look": "read"})
    graph = builder.compile(checkpointer=InMemorySaver(), store=InMemoryStore())

    async def run(thread: str, *, start: bool = True, answer: Any = None) -> Any:
        config: Any = {"configurable": {"thread_id": thread}}
        given: Any = {"messages": [("user", "go")]} if start else Command(resume=answer)
        return await graph.ainvoke(given, config)

    for thread in ("warm", "walked"):  # what is done once in a process is no part of a way
        [pause] = (await run(thread))["__interrupt__"]
        steps = pause.value["plan"]["steps"]
        edited = {**pause.value["plan"], "steps": [steps[0], {**steps[1], "content": "B and more"}]}
        marks.clear()
        with walk.recording():
            walk.visits.clear()
            await run(thread, start=False, answer={pause.id: {"type": "edit", "plan": edited}})
    first, second, third = marks[:3]
    return [walk.visits[first:second], walk.visits[:first], walk.visits[second:third]]


async def _walk_start() -> list[Visit]:
    """Walk from `Agent.start` to where the graph is entered."""
    walk = Walk((*AGENT, "graph"))
    model = ScriptedModel(roles={"triage": lambda *_: submit_plan([{"content": "c", "done_when": ["d"]}])})
    with tempfile.TemporaryDirectory() as folder:
        async with Agent(model, storage=f"sqlite:///{folder}/runs.db") as agent:
            await agent.start("warm")
            with walk.recording():
                await agent.start("go")
    entered = walk.visits.index(("graph/receive.py", "receive"))
    return [visit for visit in walk.visits[:entered] if visit[0].startswith("agent/")]


def _walk_command() -> list[Visit]:
    """Walk `donewhen run` at a terminal at which the plan is confirmed, with the demo model."""
    with tempfile.TemporaryDirectory() as folder:
        visits = Path(folder, "visits")
        Path(folder, "work").mkdir()
        Path(folder, "work", "a.csv").write_text("a,b\n1,2\n")
        ours, theirs = pty.openpty()
        environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        environment |= {"XDG_STATE_HOME": f"{folder}/state", "LANG": "C.UTF-8", "TERM": "xterm"}
        words = ["run", "count the csv files", "--dir", f"{folder}/work"]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.walk", "--command", str(visits), *words],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        said, answers = b"", [b"y\n", b"\n"]  # yes to the plan; nothing more after the answer
        while True:
            try:
                said += os.read(ours, 65536)
            except OSError:  # the command has ended
                break
            if answers and said.count(PASTE_ON) > 2 - len(answers):  # what is typed before is discarded
                os.write(ours, answers.pop(0))
        os.close(ours)
        if process.wait():
            raise SystemExit(f"the command ended with {process.returncode}:\n{said.decode(errors='replace')}")
        lines = visits.read_text().splitlines()
    return [(file, name) for file, name in (line.split() for line in lines)]


def _run_command(words: Sequence[str]) -> None:
    """Run the command in this process and write down the way to the file that comes first in `words`."""
    from donewhen.agent.cli import main as command

    walk = Walk(AGENT)
    out, sys.argv = Path(words[0]), ["donewhen", *words[1:]]
    try:
        with walk.recording():
            command()
    finally:
        out.write_text("\n".join(" ".join(visit) for visit in walk.visits))


if __name__ == "__main__":
    main()
