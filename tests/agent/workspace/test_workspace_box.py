"""Running allowed programs in a box: what they can change and reach, and what people are told."""

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from donewhen import ConfigError
from donewhen.agent.workspace.box import look_for_box
from donewhen.graph.tools.certain import Unanswered
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.flows import play

needs_box = pytest.mark.skipif(bool(look_for_box()[1]), reason=look_for_box()[1] or "there can be one")


def run(root: Path, *command: str, **options: Any) -> Any:
    """Run a command in a box and return what became of it."""
    tool = workspace_tools(root, commands=["sh", sys.executable], box="required", **options)[-1]
    return json.loads(tool.invoke({"command": list(command)}))


def python(root: Path, code: str, *arguments: str, **options: Any) -> Any:
    return run(root, os.path.basename(sys.executable), "-c", code, *arguments, **options)


@needs_box
def test_only_the_folder_can_be_changed(tmp_path: Path) -> None:
    """S2: also through a link out of it; what lies elsewhere can be read."""
    folder, outside = tmp_path / "work", Path(__file__).parent / "planted-by-a-box"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    assert run(folder, "sh", "-c", "mkdir sub && echo a > sub/b && cat sub/b") == {
        "exit_code": 0, "stdout": "a\n", "stderr": "",
    }  # fmt: skip
    for place in (outside, "link", "/etc/planted", f"{Path.home()}/planted"):
        ended = run(folder, "sh", "-c", f"echo a > {place}")
        assert (ended["exit_code"] != 0, "Read-only" in ended["stderr"]) == (True, True)
    assert not outside.exists()
    assert run(folder, "sh", "-c", "head -c 4 /etc/passwd; echo a > /tmp/scratch && cat /tmp/scratch") == {
        "exit_code": 0, "stdout": "roota\n", "stderr": "",
    }  # fmt: skip
    assert not Path("/tmp/scratch").exists()


@pytest.fixture
def listening() -> Iterator[tuple[int, str]]:
    """A port on loopback, and the path of a socket in `/tmp`, both of a service of this machine."""
    path = f"/tmp/donewhen-{os.getpid()}.sock"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path)
        unix.listen()
        yield tcp.getsockname()[1], path
    os.unlink(path)


REACH = """
import socket, sys
def reaches(kind, place):
    with socket.socket(kind) as asking:
        return asking.connect_ex(place) == 0
print(reaches(socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))), reaches(socket.AF_UNIX, sys.argv[2]))
"""


@needs_box
def test_there_is_a_network_only_if_it_is_allowed(tmp_path: Path, listening: tuple[int, str]) -> None:
    """S2: services of this machine that listen in a file are never reached."""
    place = [str(each) for each in listening]
    assert python(tmp_path, REACH, *place)["stdout"] == "False False\n"
    assert python(tmp_path, REACH, *place, network=True)["stdout"] == "True False\n"


@needs_box
def test_a_program_sees_and_signals_no_process_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: so it reads no secret of one from `/proc`; root has no right by which it could leave."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    code = "import os; print(sorted(map(int, filter(str.isdigit, os.listdir('/proc')))), os.getppid())"
    seen, parent = python(tmp_path, code)["stdout"].rsplit(" ", 1)
    assert (json.loads(seen)[-1] < 10, int(parent)) == (True, 1)
    ended = run(tmp_path, "sh", "-c", "mount -o remount,rw / && echo out")
    assert (ended["exit_code"] != 0, ended["stdout"]) == (True, "")


def running(word: str) -> list[str]:
    """Return the processes of this machine that have a word on their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            continue
    return [each for each in found if each != str(os.getpid())]


@needs_box
def test_a_program_in_a_box_ends_with_all_that_it_started(tmp_path: Path) -> None:
    """S3: two at once, each with a daemon in a session of its own."""
    word = f"box-{os.getpid()}"
    script = f"(setsid sh -c 'sleep 300; : {word}' &); touch ready; sleep 300; : {word}"
    tool = workspace_tools(tmp_path, commands=["sh"], box="required")[-1]
    with pytest.raises(Unanswered, match="sh ran longer than 1 seconds"):
        tool.invoke({"command": ["sh", "-c", script], "timeout": 1})
    assert (tmp_path / "ready").exists()
    until = time.monotonic() + 5
    while running(word) and time.monotonic() < until:
        time.sleep(0.02)
    assert running(word) == []
    assert run(tmp_path, "sh", "-c", f"(setsid sleep 301 &); : {word}; exit 3")["exit_code"] == 3
    assert running(word) == []


ASKS = [
    pytest.param("auto", False, "in a box: it can change only this folder, and has no network.", marks=needs_box),
    pytest.param("required", True, "in a box: it can change only this folder; it has the network.", marks=needs_box),
    ("off", False, "It runs with your rights, without a box"),
]  # fmt: skip


@pytest.mark.parametrize("env", [[], ["LOGNAME_A", "PATH"]])
@pytest.mark.parametrize(("box", "network", "said"), ASKS)
async def test_who_is_asked_about_a_command_reads_what_it_can_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: Any, network: bool, said: str, env: list[str]
) -> None:
    """X25: in the question, in every client's text; in its language. And which variables it has of the person's."""
    monkeypatch.setenv("LOGNAME_A", "ann")
    own = "Of your environment it has LOGNAME_A, PATH." if env else "Your environment does not reach it: PATH is"
    for language, words in (("en", said), ("de", "Es läuft")):
        plan = submit_plan([{"content": "run it", "done_when": ["it ran"], "tools": ["run_command"]}])
        work = [call("run_command", command=["echo", "a"]), finish_step("it ran", "s1.1")]
        model = ScriptedModel(roles={"triage": [plan], "execute": work})
        tools = workspace_tools(tmp_path, commands=["echo"], box=box, network=network, env=env)
        flow = await play(model, tools, answers=["approve"], settings={"language": language})
        (pause,) = flow.run.pending
        assert own in pause["question"] or language != "en"
        assert (pause["kind"], words in pause["question"], words in pause["text"]) == ("tool", True, True)


def test_without_bubblewrap_programs_run_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: unless a box is required; nothing else is a choice."""
    monkeypatch.setenv("PATH", str(tmp_path))
    look_for_box.cache_clear()
    try:
        tool = workspace_tools(tmp_path, commands=["sh"])[-1]
        assert json.loads(tool.invoke({"command": ["sh", "-c", "echo a"]}))["stdout"] == "a\n"
        with pytest.raises(ConfigError, match="box is 'required', and there is none: bubblewrap is not installed"):
            workspace_tools(tmp_path, commands=["sh"], box="required")
    finally:
        look_for_box.cache_clear()
    with pytest.raises(ConfigError, match="box is 'no'; it must be 'auto', 'required' or 'off'"):
        workspace_tools(tmp_path, commands=["sh"], box="no")  # type: ignore[arg-type]


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@needs_box
def test_git_works_in_a_box(tmp_path: Path) -> None:
    """S2: it commits, and so it writes into the folder as its owner."""
    tool = workspace_tools(tmp_path, commands=["git"], box="required")[-1]
    (tmp_path / "a.txt").write_text("a")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q", "."], ["add", "a.txt"], [*who, "commit", "-qm", "one"]):
        assert json.loads(tool.invoke({"command": ["git", *words]}))["exit_code"] == 0
    assert os.stat(tmp_path / ".git").st_uid == os.getuid()
