"""What people install, a wheel or this folder in editable mode, used beside an `agent.py` of their own."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import donewhen
from benchmarks.pythons import found, version_of
from donewhen import testing
from donewhen.state.errors import system_problem
from tests.kit.places import ROOT

OWN = ("agent", "graph", "state", "prompts")
PROGRAM = """
import importlib.resources, sys
import agent, graph, prompts, state
assert [m.OWNER for m in (agent, graph, prompts, state)] == ["me"] * 4
from donewhen import Agent, wait
from donewhen.testing import ScriptedModel, answer
import donewhen
run = wait(Agent(ScriptedModel([answer("Hello.")]), storage="memory:").start("hi"))
assert run.answer == "Hello.", run
assert importlib.resources.files("donewhen.prompts").joinpath("plan_triage.md").is_file()
assert importlib.resources.files("donewhen.agent.page").joinpath("static", "page.html").is_file()
print(donewhen.__file__)
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of somebody who uses the very names of our four floors."""
    folder = tmp_path / "theirs"
    (folder / "prompts").mkdir(parents=True)
    for name in ("agent.py", "graph.py", "state.py", "prompts/__init__.py"):
        (folder / name).write_text('OWNER = "me"\n')
    (folder / "main.py").write_text(PROGRAM)
    return folder


def fresh_venv(folder: Path) -> Path:
    """A Python of its own that finds our dependencies where they are; .pth files over there are not read."""
    venv.create(folder, with_pip=False)
    places = [path for path in sys.path if path.endswith("site-packages")]
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text("\n".join(places))
    return folder / "bin" / "python"


def install(python: Path, *what: str) -> None:
    """By pip, without the network."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    done = subprocess.run([*command, "--no-build-isolation", *what], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def used(python: Path, folder: Path) -> str:
    """Where `donewhen` was imported from by somebody who works in `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(python), "main.py"], cwd=folder, env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def built(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_a_wheel_is_used_beside_modules_of_the_same_names(tmp_path: Path, theirs: Path) -> None:
    """L5: `import agent` is theirs, `from donewhen import Agent` is ours, and the wheel holds files, no links."""
    wheel = built(tmp_path / "dist")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        assert not [info.filename for info in packed.infolist() if (info.external_attr >> 16) & 0o170000 == 0o120000]
    assert {"donewhen/py.typed", "donewhen/prompts/plan_triage.md", "donewhen/graph/execute/decide.py"} <= names
    assert {name.split("/")[0] for name in names if not name.startswith("donewhen-")} == {"donewhen"}
    python = fresh_venv(tmp_path / "venv")
    install(python, str(wheel))
    assert used(python, theirs).startswith(str(tmp_path / "venv"))


def test_an_editable_install_leaves_their_names_alone(tmp_path: Path, theirs: Path) -> None:
    """L5: the folder itself is on nobody's path."""
    python = fresh_venv(tmp_path / "venv")
    install(python, "--editable", str(ROOT))
    assert used(python, theirs) == str(ROOT / "donewhen" / "__init__.py")
    (theirs / "main.py").write_text("import agent")
    (theirs / "agent.py").unlink()
    done = subprocess.run([str(python), "main.py"], cwd=theirs, capture_output=True, text=True)
    assert "No module named 'agent'" in done.stderr


def test_the_public_names() -> None:
    """A new name is a decision, a lost one breaks somebody; `tests/typing/api.py` uses them under the type checkers."""
    assert donewhen.__all__ == [
        "Agent", "ConfigError", "DoneWhenError", "Event", "Executor", "Executors", "GoalError", "Limits",
        "ModelError", "Outcome", "Pause", "PlanError", "PlanJson", "PlanStore", "Profile", "Receipt", "RemoteAgent",
        "ResumeError", "Run", "RunStream", "ScheduleError", "Settings", "StaleAnswer", "StepRecord", "StorageError",
        "ThreadBusy", "ThreadInfo", "ThreadWaiting", "ToolError", "UnknownThread", "build_graph", "event_schema",
        "plan_tools", "wait",
    ]  # fmt: skip
    assert all(getattr(donewhen, name) for name in donewhen.__all__)
    assert testing.__all__ == [
        "Crash", "Crashed", "CrashingStore", "EffectLedger", "Fault", "Policy", "Reply", "Request", "ScriptError",
        "ScriptExhausted", "ScriptUnfinished", "ScriptedModel", "Trial", "WireRequest", "WireServer", "answer",
        "ask_user", "asked_again", "broken_call", "call", "crashing", "crashing_saver", "crashing_tool", "criterion",
        "decline", "deliver", "drive", "effects_at_most_once", "ending", "fault", "finish_step", "finish_task",
        "give_up", "kill_everywhere", "midway", "nothing_lost", "observed", "playing", "recall", "reply",
        "resume_equals_uninterrupted", "submit_plan",
    ]  # fmt: skip
    assert all(getattr(testing, name) for name in testing.__all__)
    with pytest.raises(AttributeError, match="Agnet"):
        donewhen.Agnet  # noqa: B018


ELSEWHERE = """
import sys
import asyncio, donewhen, donewhen.state.errors
sys.platform = "win32"
if sys.argv[1:] == ["command"]:
    from donewhen.agent.cli import main
    main()
from donewhen import Agent
"""


def test_windows_gets_one_clear_error() -> None:
    """L13: the import and the command say what is needed, before anything that does not exist there is imported."""
    assert system_problem("linux") is system_problem("darwin") is None
    for words, code in (([], 1), (["command"], 2)):
        done = subprocess.run([sys.executable, "-c", ELSEWHERE, *words], capture_output=True, text=True)
        assert done.returncode == code
        assert done.stderr.strip().splitlines()[-1].endswith("On Windows, use WSL.")
        assert "fcntl" not in done.stderr
    assert "Traceback" not in done.stderr


def test_interpreters_are_found_or_named() -> None:
    """L5: `make pythons` tries the wheel on each Python that is here; what is not is skipped, not forgotten."""
    ours = "{}.{}".format(*sys.version_info[:2])
    assert found((ours, "3.99"))["3.99"] is None
    assert version_of(sys.executable) == ours
    assert version_of("/bin/false") == ""
