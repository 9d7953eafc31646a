"""Running allowed programs without a box: only those, without secrets, stopped with everything they started."""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException
from langchain_core.tools import tool as as_tool

from donewhen import Agent, ConfigError
from donewhen.graph.tools.call import seconds_for
from donewhen.graph.tools.certain import Unanswered
from donewhen.testing import ScriptedModel, call, finish_step, give_up, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.flows import play

PYTHON = os.path.basename(sys.executable)


def command_tool(root: Path, *commands: str) -> BaseTool:
    return workspace_tools(root, commands=commands or ("sh", sys.executable, "echo"), box="off")[-1]


def run(root: Path, *command: str, timeout: float = 20) -> Any:
    return json.loads(command_tool(root).invoke({"command": list(command), "timeout": timeout}))


def refused(root: Path, *command: str, timeout: float = 20) -> str:
    with pytest.raises((ToolException, Unanswered)) as caught:
        run(root, *command, timeout=timeout)
    return str(caught.value)


def test_an_allowed_program_runs_in_the_workspace(tmp_path: Path) -> None:
    """X05: in the folder, and without input."""
    assert run(tmp_path, "sh", "-c", "pwd; echo 错误 >&2; exit 3") == {
        "exit_code": 3,
        "stdout": f"{tmp_path}\n",
        "stderr": "错误\n",
    }
    assert "; allowed: echo, " in command_tool(tmp_path).description
    assert run(tmp_path, "sh", "-c", 'read line; echo "<$line>"')["stdout"] == "<>\n"


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


def test_variables_are_passed_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: those that were named, as they are, PATH and HOME included, and no other; one that is not set is an error."""
    place = f"{tmp_path}/bin:/usr/bin:/bin"
    for name, value in {"PATH": place, "HOME": "/nowhere", "API_TOKEN": "a", "OTHER_TOKEN": "b"}.items():
        monkeypatch.setenv(name, value)
    code = "import os; print([os.environ.get(n) for n in ('PATH', 'HOME', 'API_TOKEN', 'OTHER_TOKEN')])"
    command = {"command": [PYTHON, "-c", code]}
    tools = workspace_tools(tmp_path, commands=[sys.executable], box="off", env=["PATH", "HOME", "API_TOKEN"])
    assert json.loads(tools[-1].invoke(command))["stdout"] == f"{[place, '/nowhere', 'a', None]}\n"
    for env, problem in ((["NO_SUCH"], "'NO_SUCH' is not set"), ("PATH", "not the text 'PATH'")):
        with pytest.raises(ConfigError, match=problem):
            workspace_tools(tmp_path, commands=["echo"], env=env)


def test_a_program_is_looked_for_in_the_path_that_is_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An active venv comes first, and its place is named to who is asked; without `env`, PATH decides nothing.

    What stands there later does not take its place, and a relative folder of PATH is none.
    """
    (venv := tmp_path / "venv" / "bin").mkdir(parents=True)
    (work := tmp_path / "work").mkdir()
    for name in ("ask", "sh"):
        (venv / name).write_text(f"#!/bin/sh\necho {name} of the venv\n")
        (venv / name).chmod(0o755)
    (work / "near").write_text("#!/bin/sh\necho planted\n")
    (work / "near").chmod(0o755)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", f":.:{tmp_path}/none:{venv}:/usr/bin:/bin")
    tool = workspace_tools(work, commands=["ask", "sh", "echo"], box="off", env=["PATH"])[-1]
    monkeypatch.setenv("PATH", f"{work}:/usr/bin:/bin")
    for name in ("ask", "sh"):
        assert json.loads(tool.invoke({"command": [name]}))["stdout"] == f"{name} of the venv\n"
    conditions = (tool.metadata or {})["conditions"]("en")
    assert f"PATH (ask: {venv}/ask, sh: {venv}/sh)" in conditions, conditions
    assert run(work, "sh", "-c", "echo real")["stdout"] == "real\n"
    with pytest.raises(ConfigError, match="no program 'ask' in /usr/local/bin"):
        workspace_tools(work, commands=["ask"], box="off")
    monkeypatch.setenv("PATH", f":.:{venv}")
    with pytest.raises(ConfigError, match=f"no program 'near' in {venv}, /usr/local/bin"):
        workspace_tools(work, commands=["near"], box="off", env=["PATH"])


def test_the_environment_holds_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: an allow list, and a HOME that is neither the workspace nor there afterwards."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("GIT_SSH_COMMAND", "evil")
    told = run(tmp_path, PYTHON, "-c", "import os, json; print(json.dumps(dict(os.environ)))")
    environment = json.loads(told["stdout"])
    known = {"PATH", "LANG", "HOME", "TMPDIR", "TERM", "TZ", "LC_ALL", "LC_CTYPE", "PAGER"}
    assert {name for name in environment if not name.startswith("GIT_")} <= known
    assert "evil" not in environment.values()
    assert not environment["HOME"].startswith(str(tmp_path))
    assert not os.path.exists(environment["HOME"])
    assert environment["PATH"].startswith("/usr") or os.path.dirname(sys.executable) in environment["PATH"]


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("where", ["home", "bare"])
def test_git_starts_nothing_that_a_file_of_the_workspace_names(tmp_path: Path, where: str) -> None:
    """S2: a written .gitconfig and a repository hidden in a folder run no program; Q107 has the others."""
    marker = tmp_path / "ran"
    hook = tmp_path / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)
    evil = f"[core]\n\tfsmonitor = {hook}\n\tpager = {hook}\n[diff]\n\texternal = {hook}\n"
    tool = command_tool(tmp_path, "git")
    folder = tmp_path

    def git(*words: str) -> int:
        return int(json.loads(tool.invoke({"command": ["git", "-C", str(folder), *words]}))["exit_code"])

    assert git("init", "-q", ".") == 0
    (tmp_path / "a.txt").write_text("a")
    git("add", "a.txt")
    (tmp_path / "a.txt").write_text("b")
    if where == "home":
        (tmp_path / ".gitconfig").write_text(evil)
    else:
        folder = tmp_path / "inner"
        for name in ("objects", "refs"):
            (folder / name).mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / "config").write_text(f"{evil}\tworktree = {tmp_path}\n[core]\n\trepositoryformatversion = 0\n")
    for words in (["status"], ["diff"], ["--paginate", "log"], ["ls-files", "-m"]):
        git(*words)
    assert not marker.exists()
    if where != "bare":
        assert git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "one") == 0


def test_a_program_that_runs_too_long_is_stopped_with_its_children(tmp_path: Path) -> None:
    """F8, S3: whatever it started ends, also in a session of its own; what was said so far is in the message."""
    began = time.monotonic()
    script = "echo started; sleep 300 & echo $! > pid; setsid sleep 300 & wait"
    text = refused(tmp_path, "sh", "-c", script, timeout=0.7)
    assert time.monotonic() - began < 60
    assert text.startswith("sh ran longer than 0.7 seconds; it was ended. stdout: 'started\\n'")
    assert gone(int((tmp_path / "pid").read_text()))


async def test_what_a_command_did_before_its_time_was_over_is_unknown(tmp_path: Path) -> None:
    """Q03, X24: it paid and then hung; two such commands at once ask a person each before either is run again, also
    where they are given more time.
    """

    def decide(messages: Any, _: Any) -> Any:
        tried = len([each for each in messages if each.type == "tool"])
        if tried < 4:
            return [call("run_command", command=["sh", "-c", pay], timeout=0.3 + tried / 10) for pay in pays]
        return give_up("it hangs", kind="failed")

    pays = [f"echo paid >> {each}; exec sleep 60" for each in ("one", "two")]
    tools = workspace_tools(tmp_path, commands=["sh", *(shlex.join(["sh", "-c", pay]) for pay in pays)])
    settings = {"confirm": "never", "on_failure": "deliver"}
    plan = submit_plan([{"content": "pay", "tools": ["run_command"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": decide, "deliver": lambda *_: "failed"}, strict=False)
    async with Agent(model, tools, storage="memory:", settings=settings) as agent:
        run, asked = await agent.start("pay"), []
        while run.status == "waiting":
            asked += [pause["kind"] for pause in run.pending]
            run = await agent.resume(run, {pause["id"]: "it happened" for pause in run.pending})
    assert asked == ["effect", "effect"]
    assert [(tmp_path / name).read_text() for name in ("one", "two")] == ["paid\n", "paid\n"]


ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("pid.part", "w").write(str(os.getpid()))
        os.rename("pid.part", "pid")
        for fd in range(3):
            os.close(fd)
        time.sleep(300)
    os._exit(0)
while not os.path.exists("pid"):
    time.sleep(0.01)
if sys.argv[1:] == ["stay"]:
    time.sleep(300)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans on to a chosen process")
@pytest.mark.parametrize("stay", [[], ["stay"]])
def test_a_daemon_ends_with_the_program_that_started_it(tmp_path: Path, stay: list[str]) -> None:
    """S3: forked twice, in a session of its own, all streams closed."""
    if stay:
        refused(tmp_path, PYTHON, "-c", ESCAPE, *stay, timeout=1)
    else:
        assert run(tmp_path, PYTHON, "-c", ESCAPE)["exit_code"] == 0
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans on to a chosen process")
async def test_a_cancelled_call_ends_its_program(tmp_path: Path) -> None:
    """S3: cancelled, not only timed out."""
    call = command_tool(tmp_path).ainvoke({"command": [PYTHON, "-c", ESCAPE, "stay"]})
    task = asyncio.create_task(call)
    await asyncio.to_thread(wait_for, tmp_path / "pid")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans on to a chosen process")
def test_programs_end_with_the_process_that_ran_them(tmp_path: Path) -> None:
    """S3: even when that is killed."""
    code = (
        "import sys; from donewhen.agent.workspace import workspace_tools; "
        "workspace_tools(sys.argv[1], commands=[sys.executable], box='off')[-1].invoke({'command': sys.argv[2:]})"
    )
    name = os.path.basename(sys.executable)
    ours = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name, "-c", ESCAPE, "stay"])
    wait_for(tmp_path / "pid")
    ours.kill()
    ours.wait()
    assert gone(int((tmp_path / "pid").read_text()))


async def test_a_call_may_take_as_long_as_its_timeout_says(tmp_path: Path) -> None:
    """S3: `tool_seconds` does not cut a call whose tool says how long it takes."""
    tool = command_tool(tmp_path)
    assert seconds_for(tool, {"timeout": 300}, 60) == 305
    assert seconds_for(tool, {}, 1) == 65
    assert seconds_for(tool, {"timeout": 2}, 60) == 60
    assert seconds_for(tool, {"timeout": 2}, None) is None


def wait_for(path: Path) -> None:
    until = time.monotonic() + 20
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)


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


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        *(([name], "commands: ") for name in ("no-such-program", "/no/such/program", "sub/tool", "")),
        ("ls", "not the text 'ls'"),
        (["git *"], "write the arguments"),
        (["echo 'a"], "cannot be read"),
    ],
)
def test_commands_that_cannot_be_allowed_are_refused_at_once(tmp_path: Path, commands: Any, said: str) -> None:
    """N74: what is not there, and a program with any arguments."""
    with pytest.raises(ConfigError, match=said):
        workspace_tools(tmp_path, commands=commands)


OUTSIDE = ["git", "-c", "alias.x=!touch escaped.txt", "x"]


@pytest.mark.parametrize(
    ("allowed", "command", "asks"),
    [
        (["git"], OUTSIDE, True),
        (["git", "git status"], OUTSIDE, True),
        (["git status"], ["git", "status"], False),
        (["git status"], ["git", "status", "-v"], True),
        (["find . -name x"], ["find", ".", "-name", "x", "-exec", "sh", ";"], True),
        (["echo all *"], ["echo", "all", "-3"], False),
        (["echo all *"], ["echo", "all"], False),
        (["echo all *"], ["echo", "-c", "all"], True),
        (["echo 'a b'"], ["echo", "a b"], False),
        (["git status"], ["rm", "-rf", "."], False),
        (["git status"], ["git status"], False),
        ([f"{shutil.which('git')} status"], [shutil.which("git"), "status"], False),
        ([f"{shutil.which('git')} status"], [shutil.which("git"), "log"], True),
    ],
)
async def test_a_command_asks_unless_its_arguments_were_allowed(
    tmp_path: Path, allowed: list[str], command: list[str], asks: bool
) -> None:
    """N74, X25: the plan that names run_command covers no arguments; who is asked sees them.

    What can never run is refused to the model, and nobody is asked about it.
    """
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([{"content": "run it", "done_when": ["it ran"], "tools": ["run_command"]}])],
            "execute": [call("run_command", command=command), finish_step("it ran", "s1.1")],
        }
    )
    tools = workspace_tools(tmp_path, commands=allowed)
    flow = await play(model, tools, answers=["approve"], settings={"verification": "grounded"})
    asked = [pause for pause in flow.run.pending if pause["kind"] == "tool"]
    assert [pause["arguments"]["command"] for pause in asked] == ([command] if asks else [])
    assert not (tmp_path / "escaped.txt").exists()


@pytest.mark.parametrize("confirm", ["writes", "never"])
@pytest.mark.parametrize(
    ("called", "asks"),
    [
        (call("run_command", command=["echo", "all"]), False),
        (call("run_command", command=["echo", "all", "-n"]), True),
        (call("run_command", command=["rm", "-rf", "."]), True),
        (call("write_file", path="a.txt", content="a"), True),
    ],
)
async def test_an_allowed_command_line_runs_unasked_in_every_step(
    tmp_path: Path, confirm: str, called: Any, asks: bool
) -> None:
    """N74, X25: also in a step whose plan does not list run_command. Any other call, and a change of a file, asks."""
    plan = submit_plan([{"content": "look", "done_when": ["it is done"], "tools": ["read_file"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": [called, finish_step("done", "s1.1")]})
    tools = workspace_tools(tmp_path, commands=["echo all", "echo"])
    flow = await play(model, tools, settings={"verification": "grounded", "confirm": confirm})
    assert [pause["kind"] for pause in flow.run.pending] == (["tool"] if asks else [])
    assert asks or flow.journal[0]["ok"]
    assert not (tmp_path / "a.txt").exists()


async def test_a_question_shows_arguments_as_they_are_written(tmp_path: Path) -> None:
    """X15: brackets and quotes at their ends too."""
    written = ["print(1)", "open('z','w')"]
    plan = submit_plan([{"content": "run it", "done_when": ["it ran"], "tools": ["run_command"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": [call("run_command", command=["echo", *written])]})
    flow = await play(model, workspace_tools(tmp_path, commands=["echo"]), answers=["approve"], settings={})
    (pause,) = flow.run.pending
    assert [row["value"] for row in pause["sources"]] == ["echo", *written]


def test_a_model_reads_what_it_may_run_and_how_to_say_it(tmp_path: Path) -> None:
    """X05: the lines that nobody is asked about are in the description; a line as one text is corrected."""
    tool = command_tool(tmp_path, "echo hello", "ls")
    assert "allowed: echo, ls; allowed in advance: echo hello. " in tool.description
    with pytest.raises(ToolException, match=r'Give the command as a list: \["echo", "hello"\]'):
        tool.invoke({"command": ["echo hello"]})
    with pytest.raises(ToolException, match="allowed are echo, ls; allowed in advance: echo hello"):
        tool.invoke({"command": ["cat"]})


TESTS = [sys.executable, "-B", "check.py"]
EDIT = call("edit_file", path="price.py", old="1", new="2")


async def play_tests(folder: Path, replies: list[Any], wrong: bool = False, **step: Any) -> Any:
    """A step in a folder of one file and its test, of which the command line is allowed exactly."""
    (folder / "price.py").write_text("x = 2\n" if wrong else "x = 1\n")
    (folder / "check.py").write_text("import price; assert price.x == 1; print('OK')")
    tools = workspace_tools(folder, commands=[shlex.join(TESTS)], box="off")
    planned = submit_plan([{"content": "Test", "tools": ["run_command", "edit_file"], **step}])
    model = ScriptedModel(roles={"triage": [planned], "execute": replies, "deliver": lambda *_: "Done."}, strict=False)
    return await play(model, tools, settings={"confirm": "never", "on_failure": "deliver", "max_refusals": 1})


@pytest.mark.parametrize("wrong", [True, False])
async def test_a_planned_call_that_fails_shows_nothing(tmp_path: Path, wrong: bool) -> None:
    """X05, Q73: tests that end with an exit code make no criterion true, whatever the plan promises of the call."""
    tests = {"tool": "run_command", "arguments": {"command": TESTS}}
    flow = await play_tests(
        tmp_path, [give_up("they fail")], wrong, done_when=[{"text": "They pass", "call": 1}], calls=[tests]
    )
    assert flow.status == ("failed" if wrong else "completed")


@pytest.mark.parametrize("wrong", [True, False])
async def test_a_command_decides_a_criterion(tmp_path: Path, wrong: bool) -> None:
    """X05: one that was allowed exactly, however the step claims it; other commands are no checks."""
    check = {"tool": "command_succeeds", "arguments": {"command": TESTS}}
    replies, done_when = [finish_step("Done", ["s1.1"])] * 2, [{"text": "They pass", "check": check}]
    flow = await play_tests(tmp_path, replies, wrong, done_when=done_when, tools=["read_file"])
    assert flow.status == ("failed" if wrong else "completed")
    assert flow.step("s1")["verdicts"][0]["verdict"] == ("failed" if wrong else "proven")
    succeeds = workspace_tools(tmp_path, commands=["sh", "echo a"])[-2]
    assert succeeds.name == "command_succeeds"
    for command in (["sh", "-c", "true"], ["echo", "b"], ["ls"]):
        with pytest.raises(ToolException, match="may not run unasked"):
            succeeds.invoke({"command": command})
    assert "command_succeeds" not in [tool.name for tool in workspace_tools(tmp_path, commands=["sh"])]


@pytest.mark.parametrize("settings", [{"profile": {"forbidden_tools": ["run_command"]}}, {"approvals": "each"}])
async def test_a_check_runs_no_command_where_none_may_run_unasked(tmp_path: Path, settings: Any) -> None:
    """X05, X25: what is forbidden, or approved call by call, is no check either, in a plan or in the settings."""
    check = {"tool": "command_succeeds", "arguments": {"command": ["touch", "made.txt"]}}
    tools = workspace_tools(tmp_path, commands=["touch made.txt"], box="off")
    planned = {"content": "Look", "tools": ["list_files"], "done_when": [{"text": "It is there", "check": check}]}
    work = [call("list_files"), finish_step("Seen", ["s1.1"])]
    model = ScriptedModel(roles={"triage": [submit_plan([planned])] * 4, "execute": work}, strict=False)
    flow = await play(model, tools, settings={"confirm": "never", **settings})
    assert flow.run.outcome["code"] == "no_plan"
    assert "command_succeeds" not in model.requests[0].text
    assert "must not run unasked here, so it cannot check: make such a call in the step" in model.requests[1].text
    with pytest.raises(ConfigError, match="command_succeeds"):
        await Agent(model, tools, storage="memory:").start(
            "Look", settings={**settings, "done_when": [{"text": "It is there", "check": check}]}
        )
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.parametrize(("before", "status"), [({}, "failed"), ({"before": True}, "completed")])
async def test_a_test_before_the_last_change_shows_nothing(tmp_path: Path, before: Any, status: str) -> None:
    """X05, F9: a command's result is older than what was changed after it, unless it is meant as it was."""
    tested = call("run_command", command=TESTS)
    claim = {"criterion": 1, "met": True, "evidence": [{"observation": "s1.1", "quote": "exit_code", **before}]}
    replies = [tested, EDIT, finish_step("They pass", goal_check=[claim])]
    flow = await play_tests(tmp_path, replies, done_when=["They pass"])
    assert flow.status == status
    if status == "failed":
        note = flow.step("s1")["verdicts"][0]["note"]
        assert note.startswith("s1.1 was made before s1.2 (edit_file) changed price.py; make the call again, or add")
    else:
        assert flow.step("s1")["verdicts"][0]["evidence"][0]["before"] is True


async def test_tests_that_run_after_the_change_count(tmp_path: Path) -> None:
    """X05, F9: two commands after the last change are both of now, and failing ones need a quote of what they say."""
    tested = call("run_command", command=TESTS)
    claims = [("s1.3", "exit_code: 1 … AssertionError"), ("s1.4", '"exit_code": 1')]
    replies = [tested, EDIT, tested, tested, finish_step("They fail", claims)]
    flow = await play_tests(tmp_path, replies, done_when=["It is known", "It is known again"])
    assert flow.status == "completed"
    unquoted = await play_tests(
        tmp_path, [tested, EDIT, tested, finish_step("Fine", ["s1.3"])], done_when=["They pass"]
    )
    assert unquoted.status == "failed"
    assert "s1.3 failed, so it proves nothing (exit_code 1)" in unquoted.step("s1")["verdicts"][0]["note"]


@pytest.mark.parametrize("quotes", [["OK"], ["OK", "exit_code 0"], ["exit_code 1"], ["OK", "exit_code 1"]])
async def test_words_of_failing_tests_count_with_their_exit_code(tmp_path: Path, quotes: list[str]) -> None:
    """X05, E30: what a failing program printed shows nothing unless the claim says that it failed, and so does the
    receipt: a test that passed is not “the tests pass”.
    """
    evidence = [{"observation": "s1.1", "quote": quote} for quote in quotes]
    claim = {"criterion": 1, "met": True, "evidence": evidence}
    replies = [call("run_command", command=TESTS), finish_step("They pass", goal_check=[claim])]
    flow = await play_tests(tmp_path, replies, wrong=True, done_when=["They pass"])
    says_so = "exit_code 1" in quotes
    assert flow.status == ("completed" if says_so else "failed")
    [row] = flow.run.receipt["effects"]
    assert (row["ok"], row["result"], row["failed"]) == (False, "failed", "exit_code 1")
    assert row["why"].startswith("exit_code 1: ")


@pytest.mark.parametrize("failed", [True, "1 of 2 failed"])
async def test_a_tool_says_by_which_words_it_failed(failed: Any) -> None:
    """X05: a result that its own tool calls a failure shows nothing; with the words that say so, they can be quoted."""

    @as_tool(response_format="content_and_artifact")
    def run_suite() -> tuple[str, dict[str, Any]]:
        """Run the tests."""
        return "1 of 2 failed; test_a passed", {"failed": failed}

    planned = submit_plan([{"content": "Test", "tools": ["run_suite"], "done_when": ["It is known"]}])
    work = [call("run_suite"), *[finish_step("Known", [("s1.1", q)]) for q in ("test_a passed", "1 of 2 failed")]]
    model = ScriptedModel(roles={"triage": [planned], "execute": work, "deliver": lambda *_: "Done."}, strict=False)
    settings = {"confirm": "never", "on_failure": "deliver", "max_refusals": 2}
    flow = await play(model, [run_suite], settings=settings)
    assert flow.status == ("failed" if failed is True else "completed")
    assert flow.step("s1")["refused"] == (2 if failed is True else 1)


async def test_a_later_step_marks_an_earlier_result(tmp_path: Path) -> None:
    """X05, F9: the step that ran the tests stays done; who cites them after another change is told so."""
    (tmp_path / "check.py").write_text("print('OK')")
    (tmp_path / "price.py").write_text("x = 1\n")
    tools = workspace_tools(tmp_path, commands=[shlex.join(TESTS)], box="off")
    planned = [
        {"content": "Test", "done_when": ["They pass"], "tools": ["run_command"]},
        {"content": "Change", "done_when": ["They passed before"], "tools": ["edit_file"], "depends_on": ["s1"]},
    ]
    work = {
        "s1": [call("run_command", command=TESTS), finish_step("They pass", [("s1.1", "OK")])],
        "s2": [EDIT, finish_step("Changed", [("s1.1", "OK")])],
    }
    model = ScriptedModel(roles={"triage": [submit_plan(planned)], "execute": work, "deliver": lambda *_: "Done."})
    flow = await play(model, tools, settings={"confirm": "never"})
    assert flow.step("s2")["verdicts"][0]["evidence"] == [{"observation": "s1.1", "quote": "OK", "before": True}]
