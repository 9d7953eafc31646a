"""Running allowed programs: only those, without secrets, stopped with everything they started."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException

from donewhen.agent.workspace import workspace_tools
from donewhen.state.errors import ConfigError

PYTHON = os.path.basename(sys.executable)


def command_tool(root: Path, *commands: str) -> BaseTool:
    return workspace_tools(root, commands=commands or ("sh", sys.executable, "echo"))[-1]


def run(root: Path, *command: str, timeout: float = 20) -> Any:
    return json.loads(command_tool(root).invoke({"command": list(command), "timeout": timeout}))


def refused(root: Path, *command: str, timeout: float = 20) -> str:
    with pytest.raises(ToolException) as caught:
        run(root, *command, timeout=timeout)
    return str(caught.value)


def test_an_allowed_program_runs_in_the_workspace(tmp_path: Path) -> None:
    assert run(tmp_path, "sh", "-c", "pwd; echo 错误 >&2; exit 3") == {
        "exit_code": 3,
        "stdout": f"{tmp_path}\n",
        "stderr": "错误\n",
    }
    assert "Allowed: echo, " in command_tool(tmp_path).description


def test_nothing_goes_through_a_shell(tmp_path: Path) -> None:
    assert run(tmp_path, "echo", "$HOME; touch a", "*")["stdout"] == "$HOME; touch a *\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ls", "/bin/sh", "./sh", "sh ", "", "SH", "sub/echo", "echo\0"])
def test_only_the_exact_names_may_start(tmp_path: Path, name: str) -> None:
    """A program of the same name inside the workspace is not the one that was allowed."""
    (tmp_path / "sub").mkdir()
    for place in (tmp_path / "sh", tmp_path / "sub" / "echo"):
        place.write_text("#!/bin/sh\necho planted\n")
        place.chmod(0o755)
    assert "is not allowed; allowed are" in refused(tmp_path, name)
    assert run(tmp_path, "sh", "-c", "echo real")["stdout"] == "real\n"
    assert "NUL" in refused(tmp_path, "echo", "a\0b")


def test_the_environment_holds_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    told = run(tmp_path, PYTHON, "-c", "import os, json; print(json.dumps(dict(os.environ)))")
    environment = json.loads(told["stdout"])
    assert set(environment) - {"LC_CTYPE"} == {"PATH", "LANG", "HOME"}
    assert environment["HOME"] == str(tmp_path)
    assert environment["PATH"].startswith("/usr") or os.path.dirname(sys.executable) in environment["PATH"]


def test_a_program_that_runs_too_long_is_stopped_with_its_children(tmp_path: Path) -> None:
    """F8: the whole process group ends; what was said so far is in the message."""
    began = time.monotonic()
    text = refused(tmp_path, "sh", "-c", "echo started; sleep 300 & echo $! > pid; wait", timeout=0.5)
    assert time.monotonic() - began < 10
    assert text.startswith("sh ran longer than 0.5 seconds and was stopped. stdout: 'started\\n'")
    assert gone(int((tmp_path / "pid").read_text()))


def test_what_a_program_leaves_behind_is_stopped_too(tmp_path: Path) -> None:
    began = time.monotonic()
    assert run(tmp_path, "sh", "-c", "sleep 300 & echo $!; exit 0")["exit_code"] == 0
    assert time.monotonic() - began < 10
    pid = int(run(tmp_path, "sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!")["stdout"])
    assert gone(pid)


def gone(pid: int) -> bool:
    """Whether a killed process is no longer running; an unreaped one counts as gone."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (FileNotFoundError, ProcessLookupError):
            return True
    return False


def test_output_is_bounded(tmp_path: Path) -> None:
    """X12: head and tail are kept and the length of what is left out is said."""
    told = run(tmp_path, PYTHON, "-c", "print('first'); print('x' * 5_000_000); print('last')")
    assert told["stdout"].startswith("first\n")
    assert told["stdout"].endswith("xx\nlast\n")
    assert "bytes left out" in told["stdout"]
    assert len(told["stdout"]) < 31_000


def test_a_program_waiting_for_input_gets_none(tmp_path: Path) -> None:
    assert run(tmp_path, "sh", "-c", 'read line; echo "<$line>"')["stdout"] == "<>\n"


def test_programs_that_are_not_there_are_refused_at_once(tmp_path: Path) -> None:
    for name in ("no-such-program", "/no/such/program", "sub/tool", ""):
        with pytest.raises(ConfigError, match="commands: "):
            workspace_tools(tmp_path, commands=[name])
    with pytest.raises(ConfigError, match="not the text 'ls'"):
        workspace_tools(tmp_path, commands="ls")
