"""The command as scripts use it: exit codes, one JSON object, answers from options, no terminal. Nothing hangs."""

import importlib.metadata
import json
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from donewhen import (
    ConfigError,
    GoalError,
    ModelError,
    PlanError,
    StaleAnswer,
    StorageError,
    ThreadBusy,
    ThreadWaiting,
    UnknownThread,
    wait,
)
from donewhen.agent.cli.exits import run_guarded
from donewhen.agent.cli.result import command_line
from donewhen.agent.cli.screen.views import View
from donewhen.agent.workspace.box import look_for_box
from donewhen.state.people.edit import plan_document
from donewhen.testing import (
    Recording,
    ScriptedModel,
    answer,
    ask_user,
    call,
    decline,
    finish_step,
    give_up,
    reply,
    submit_plan,
)
from tests.agent.work.test_workers import worker_of
from tests.kit import mcp_replies
from tests.kit.screens.shell import Exit, Shell, one_object, scripted
from tests.kit.wire import WireServer

COUNT = {"content": "Count the files", "done_when": ["there is a count"], "tools": ["list_files"]}
WRITE = {"content": "Write it down", "done_when": ["out.txt exists"], "tools": ["write_file"]}
COUNTING = [call("list_files"), finish_step("3 files", "s1.1")]


# --- runs


@pytest.mark.parametrize("options", [(), ("--yes",), ("--yes", "--json"), ("--stream-json",)])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("asks", ["plan", "question"])
def test_a_run_that_is_interrupted_as_a_question_comes_ends_as_interrupted(
    shell: Shell, asks: str, number: int, code: int, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C06: a script tells it from one that needs a person; what is printed says how to answer."""
    show = View.show

    def interrupt_too(view: View, event: dict[str, Any]) -> None:
        show(view, event)
        if event["type"] == "waiting":
            signal.raise_signal(number)

    monkeypatch.setattr(View, "show", interrupt_too)
    steps = {} if asks == "plan" else {"execute": [ask_user("Which kind?", ["all", "text"])]}
    with scripted(shell, triage=[submit_plan([COUNT])], **steps):
        ended = shell.run(*options, *([] if asks == "plan" else ["--confirm", "never"]))
        again = ended if asks == "plan" else shell("resume", shell.waiting(), *options)
    answer = "--approve" if asks == "plan" else "--answer"
    assert (ended.exit_code, again.exit_code) == (code, code)
    assert "Stopping at the next clean point" in ended.stderr
    if ended.stdout:
        last = json.loads(ended.stdout.splitlines()[-1])
        assert (last["status"], answer in last["resume"]) == ("waiting", True)
    else:
        assert answer in ended.stderr.split("Answer with: ")[1]


def test_a_plan_waits_and_is_approved_in_another_process(shell: Shell) -> None:
    """C01, C06: without a terminal nothing hangs: exit 3, the plan shown, the command to go on with."""
    plan = submit_plan([COUNT], title="Counting")
    with scripted(shell, triage=[plan], execute=COUNTING):
        first = shell.run()
        assert first.exit_code == Exit.WAITING
        assert first.stdout == ""
        assert "1. Count the files" in first.stderr
        assert f"donewhen resume {shell.waiting()[:8]} --id confirm." in first.stderr
        second = shell("resume", shell.waiting(), "--approve")
        assert second.exit_code == Exit.COMPLETED, second.stderr
        assert second.stdout == "3 files\n"
        assert "1/1 steps done · 1 cited · audited: 1 of 1 sentences shown" in second.stderr
    again = shell("resume", "--approve")
    assert again.exit_code == Exit.USAGE
    assert "no run waits" in again.stderr


@pytest.mark.parametrize("way", ["option", "environment"])
def test_no_command_is_named_that_cannot_go_on(shell: Shell, way: str) -> None:
    """C06: what was in memory is gone with the command; it says so instead of how to answer."""
    words, more = (["--storage", "memory:"], {}) if way == "option" else ([], {"DONEWHEN_STORAGE": "memory:"})
    with scripted(shell, triage=[submit_plan([COUNT])] * 2):
        result, asked = shell.run(*words, **more), one_object(shell.run(*words, "--json", **more))
    assert result.exit_code == Exit.WAITING
    assert "donewhen resume" not in result.stderr
    assert "It was kept in memory only and is gone now." in result.stderr
    assert (asked["status"], asked["resume"]) == ("waiting", None)


def test_yes_covers_what_stays_in_the_folder_and_nothing_else(shell: Shell) -> None:
    """X15: a write that no plan listed is approved by --yes where it cannot leave the folder; a command is not."""
    allowed = {"content": "Write", "done_when": ["out.txt exists"], "tools": []}
    execute = {
        "s1": [call("write_file", path="out.txt", content="3"), finish_step("written", "s1.1")],
        "s2": [call("run_command", command=["true"])],
    }
    with scripted(shell, triage=[submit_plan([allowed, {**allowed, "content": "Run"}])], execute=execute):
        result = shell.run("--yes", "--allow-command", "true")
    assert result.exit_code == Exit.WAITING, result.stderr
    assert (shell.work / "out.txt").read_text() == "3"
    assert "run_command" in result.stderr
    assert "--approve" in result.stderr


def test_what_yes_approves_nobody_decided(shell: Shell) -> None:
    """X15, S05: the receipt says so of the plan and of each call, and no argument comes from what somebody approved."""
    step = {"content": "Write", "done_when": ["both exist"], "tools": []}
    writes = [call("write_file", path="zebra.txt", content=text) for text in ("3", "4")]
    work = [*writes, finish_step("written", "s1.2")]
    with scripted(shell, triage=[submit_plan([step])], execute=work, strict=False):
        assert shell.run("--yes", "--thread", "all").exit_code == Exit.COMPLETED
    with scripted(shell, triage=[submit_plan([step])], execute=work, strict=False):
        shell.run("--thread", "rest")
        assert shell("resume", "rest", "--approve", "--yes").exit_code == Exit.COMPLETED
    by_option = ("approve", "policy", "--yes")
    for thread, plan in (("all", by_option), ("rest", ("approve", "user", ""))):
        exported = json.loads(shell("receipt", thread).stdout)
        rows = [line["body"] for line in exported["lines"] if line["kind"] == "decision"]
        said = [(row["kind"], (row["decision"], row["by"], row.get("name", ""))) for row in rows]
        assert said == [("plan", plan), ("tool", by_option), ("tool", by_option)]
        shown = shell("show", thread).stdout
        assert "zebra.txt" in shown
        assert "approved" not in shown


def test_a_run_says_at_its_start_that_allowed_programs_have_no_box(shell: Shell) -> None:
    """X25: also where nothing asks; in the words of the questions. Without programs there is nothing to say."""
    execute = [call("run_command", command=["true", "a"]), finish_step("ran", "s1.1")]
    plan = submit_plan([{"content": "Run", "done_when": ["it ran"], "tools": ["run_command"]}])
    for commands, said in (((), 0), (("--allow-command", "true a", "--allow-command", "echo"), 1)):
        work = execute if commands else [call("list_files"), finish_step("ran", "s1.1")]
        with scripted(shell, triage=[plan], execute=work, strict=False):
            result = shell.run("--yes", "--box", "off", *commands)
        assert result.stderr.count("Allowed: true a, echo. It runs") == said, result.stderr
        assert result.stderr.count("without a box: it can change whatever you can") == said


@pytest.mark.parametrize(
    "named", ['answered_by={"plan": "anna"}', 'answered_by={"tool": "anna"}', "approvers.write_file=anna"]
)
def test_yes_is_nobodys_name(shell: Shell, named: str) -> None:
    """H13, X15: what is for somebody named waits for them, with exit code 3 and the command that answers."""
    step = {"content": "Write", "done_when": ["out.txt exists"], "tools": []}
    work = [call("write_file", path="out.txt", content="3"), finish_step("written", "s1.1")]
    with scripted(shell, triage=[submit_plan([step])], execute=work, strict=False):
        result = shell.run("--yes", "--set", named)
    assert result.exit_code == Exit.WAITING
    assert not (shell.work / "out.txt").exists()
    assert "--by anna" in result.stderr


def test_yes_answers_no_questions(shell: Shell) -> None:
    """C07: a question stays a question; the answer can be an option's number."""
    execute = [[call("list_files")], ask_user("Which kind?", ["all", "text"]), finish_step("3 text files", "s1.1")]
    with scripted(shell, triage=[submit_plan([COUNT])], execute=execute) as model:
        first = shell.run("--yes")
        assert first.exit_code == Exit.WAITING
        assert "1. all\n2. text" in first.stderr
        assert '--answer "…"' in first.stderr
        second = shell("resume", shell.waiting(), "-a", "2")
        assert second.exit_code == Exit.COMPLETED, second.stderr
        assert "text" in str(model.requests[-1].messages[-1].content)


def test_the_thread_remembers_folder_model_and_settings(shell: Shell, tmp_path: Path) -> None:
    """C06: resuming needs the id only, from any folder."""
    execute = [call("write_file", path="out.txt", content="3"), finish_step("written", "s1.1")]
    with scripted(shell, triage=[submit_plan([WRITE])], execute=execute):
        assert shell.run("--max-rounds", "7", "--model", "openai:first").exit_code == Exit.WAITING
        thread = json.loads(shell("threads", "--json").stdout)["threads"][0]
        assert thread["metadata"]["dir"] == str(shell.work)
        assert thread["metadata"]["model"] == "openai:first"
        assert thread["metadata"]["settings"]["limits"]["rounds"] == 7
        result = shell("resume", thread["thread_id"], "--approve", DONEWHEN_MODEL="openai:another")
    assert result.exit_code == Exit.COMPLETED, result.stderr
    assert (shell.work / "out.txt").exists()


def test_rejecting_plans_again_and_cancelling_ends(shell: Shell) -> None:
    """C02: rejected with feedback, the planner hears it; cancelled, nothing is executed."""
    with scripted(shell, triage=[submit_plan([COUNT]), submit_plan(["Only look"])]) as model:
        shell.run()
        result = shell("resume", shell.waiting(), "--reject", "look only")
        assert result.exit_code == Exit.WAITING
        assert "1. Only look" in result.stderr
        assert "look only" in str(model.requests[-1].messages[-1].content)
        ended = shell("resume", shell.waiting(), "--cancel")
    assert ended.exit_code == Exit.FAILED
    assert "cancelled" in ended.stderr


def test_an_edited_plan_from_a_file(shell: Shell, tmp_path: Path) -> None:
    """C02, C03, C12: the text that was shown, with lines changed; an invalid one keeps the pause and says why."""
    with scripted(shell, triage=[submit_plan([COUNT, WRITE])], execute=COUNTING):
        pending = one_object(shell.run("--json"))["pending"][0]
        text = plan_document({"plan": pending["plan"], "limits": pending["limits"]})
        edited = tmp_path / "plan.yaml"
        edited.write_text(text.replace("list_files", "teleport"))
        wrong = shell("resume", shell.waiting(), "--answer-file", str(edited))
        assert wrong.exit_code == Exit.WAITING
        assert "teleport" in wrong.stderr
        less = text.partition("- id: s2")[0] + text[text.index("limits:") :]
        edited.write_text(json.dumps({"type": "edit", "plan": less}))
        assert shell("resume", shell.waiting(), "--answer-file", str(edited)).exit_code == Exit.COMPLETED


def test_answers_to_something_else_change_nothing(shell: Shell) -> None:
    """C04: a stale id is a usage error; an answer that lacks something keeps the pause and asks for it."""
    with scripted(shell, triage=[submit_plan([COUNT])]):
        shell.run()
        for id in ("confirm.0", "nope"):
            stale = shell("resume", shell.waiting(), "--id", id, "--approve")
            assert (stale.exit_code, f"nothing waits under {id}; open: confirm." in stale.stderr) == (Exit.USAGE, True)
        assert shell("resume", "nosuch", "--approve").exit_code == Exit.USAGE
        unclear = shell("resume", shell.waiting(), "--answer", "no")
        assert unclear.exit_code == Exit.WAITING
        assert "What should be different?" in unclear.stderr
        assert shell("resume", "--approve", "--cancel").exit_code == Exit.USAGE
        assert shell("resume", "--id", "x").exit_code == Exit.USAGE
        assert shell("resume").exit_code == Exit.WAITING


def test_the_command_that_is_printed_answers_one_question_only(shell: Shell) -> None:
    """C04, C06: run twice, it does not approve, unseen, the call that is asked about next.

    U13: cancelled there, the run says where in words, with no id of ours.
    """
    plan = submit_plan([{**WRITE, "tools": []}])
    with scripted(shell, triage=[plan], execute=[call("write_file", path="out.txt", content="3")]):
        printed = shell.run().stderr.split("donewhen ")[-1]
        approved = shell(*shlex.split(printed))
        assert "call write_file? The approved plan does not list it" in approved.stderr
        twice = shell(*shlex.split(printed))
        assert (twice.exit_code, "nothing waits under confirm." in twice.stderr) == (Exit.USAGE, True)
        ended = shell("resume", shell.waiting(), "--cancel")
    assert (ended.exit_code, "call1" in ended.stderr) == (Exit.FAILED, False)
    assert "cancelled when asked about write_file" in ended.stderr
    assert not (shell.work / "out.txt").exists()


def test_out_of_budget_asks_and_delivers_what_there_is(shell: Shell) -> None:
    """D03: exit 4, the answer says what is not done."""
    with scripted(shell, triage=[submit_plan([COUNT, WRITE])], execute=[[call("list_files")]]):
        first = shell.run("--yes", "--max-rounds", "1", "--on-exhausted", "ask")
        assert first.exit_code == Exit.WAITING, first.stderr
        assert "extend" in first.stderr
        last = shell("resume", shell.waiting(), "--answer", "deliver", "--json")
    assert last.exit_code == Exit.PARTIAL
    assert one_object(last)["status"] == "exhausted"


def test_a_failed_run(shell: Shell) -> None:
    """X09, D01: a step that gave up is not done, and the exit code says so."""
    plans = {"triage": [submit_plan([COUNT])], "plan": [decline("no folder", "There is no folder.")]}
    with scripted(shell, strict=False, execute=[give_up("no folder")], **plans):
        result = shell.run("--yes", "--confirm", "never")
    assert result.exit_code == Exit.FAILED
    assert "failed" in result.stderr
    assert "Traceback" not in result.stderr


# --- JSON


def test_json_of_a_pause_of_an_end_and_of_an_error(shell: Shell) -> None:
    """C06: one object each, with what programs go on by."""
    with scripted(shell, triage=[submit_plan([COUNT])], execute=COUNTING):
        first = one_object(shell.run("--json"))
        assert (first["status"], first["pending"][0]["kind"]) == ("waiting", "plan")
        assert first["resume"].endswith("--approve")
        last = one_object(shell("resume", first["thread_id"], "--approve", "--json"))
    assert (last["status"], last["answer"], last["pending"], last["resume"]) == ("completed", "3 files", [], None)
    assert last["receipt"]["steps"][0]["criteria"][0]["verdict"] == "cited"
    assert (last["outcome"]["status"], "receipt" in last["outcome"]) == ("completed", False)
    assert last["spent"]["rounds"] == 2
    unknown = shell("resume", "nosuch", "--json")
    error = one_object(unknown)["error"]
    assert (unknown.exit_code, error["kind"], "nosuch" in error["text"]) == (Exit.USAGE, "UnknownThread", True)


# --- goals


@pytest.mark.parametrize(
    ("words", "stdin", "read"),
    [
        (["run", "-"], "count these\nfiles", ["count these\nfiles"]),
        (["run"], "count these\nfiles", ["count these\nfiles"]),
        (["run", "count the files", "--stdin"], "the list", ["count the files", "the list"]),
        (["run", "-"], "café".encode(), ["café"]),
        (["run", "-"], "café".encode("cp1252"), ["café"]),
        (["run", "-"], "café".encode("utf-16"), ["café"]),
        (["run", "-"], b"a\0b", []),
    ],
)
def test_the_goal_from_stdin(shell: Shell, words: list[str], stdin: str | bytes, read: list[str]) -> None:
    """N32: also what PowerShell and old programs pipe is read; what is no text is refused in one line."""
    with scripted(shell, triage=[answer("yes")] * bool(read)) as model:
        result = shell(*words, stdin=stdin)
    if read:
        assert result.exit_code == Exit.COMPLETED, result.stderr
        assert all(part in str(model.requests[0].messages[-1].content) for part in read)
    else:
        assert (result.exit_code, result.stderr) == (Exit.USAGE, "donewhen: the text on stdin is not text\n")


CLIPBOARD = "\x1b]52;c;Y3VybCBldmls\x07"


@pytest.mark.parametrize("options", [[], ["--json"], ["--stream-json"]])
def test_nothing_that_steers_a_terminal_is_piped(shell: Shell, options: list[str]) -> None:
    """N41: a pipe may end at a terminal; a sequence that writes the clipboard is cut, in JSON escaped."""
    with scripted(shell, triage=[answer(f"It is {CLIPBOARD}42.\x9b2J \u202eend")]):
        result = shell.run(*options)
    assert result.exit_code == Exit.COMPLETED
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(result.stdout)
    if options:
        assert CLIPBOARD in one_object(result)["answer"] if options == ["--json"] else True
    else:
        assert result.stdout == "It is ]52;c;Y3VybCBldmls42.2J end\n"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "  "],
        ["run", "x", "--dir", "/nowhere"],
        ["run", "x", "--mcp", "/nowhere.json"],
        ["run", "x", "--max-rounds", "0"],
        ["run", "x", "--confirm", "perhaps"],
        ["run", "x", "--limit", "bananas=3"],
        ["run", "x", "--limit", "rounds=-1"],
        ["run", "x", "--deadline", "tomorrow"],
        ["run", "x", "--on-question", "default"],
        ["run", "x", "--question-seconds", "60"],
        ["run", "x", "--model", "nosuch:model"],
        ["run", "x", "--allow-command", "no-such-program"],
        ["run", "x", "--storage", "ftp://x"],
        ["run", "x", "--detach", "--storage", "memory:"],
        ["run", "x", "--bogus"],
        ["resume", "--answer-file", "/nowhere"],
        ["show"],
    ],
    ids=" ".join,
)
def test_what_cannot_work_is_said_at_once(shell: Shell, words: list[str]) -> None:
    """P19: one clear line and exit 2; nothing is started."""
    result = shell(*words)
    assert result.exit_code == Exit.USAGE, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.strip()


@pytest.mark.parametrize(
    ("pinned", "options", "holds"),
    [
        ({"on_question": "default", "default_answer": "a"}, ["--question-seconds", "5"], {"question_seconds": 5}),
        ({"default_answer": "a"}, ["--on-question", "default"], {"on_question": "default", "default_answer": "a"}),
        ({"on_question": "assume"}, ["--default-answer", "a"], {"on_question": "default", "default_answer": "a"}),
        ({"question_seconds": 60}, [], {"question_seconds": 60}),
        ({"on_exhausted": "stop"}, ["--yes"], {"on_exhausted": "stop"}),
        ({"confirm": "never"}, [], {"on_exhausted": "deliver"}),
        ({"confirm": "always"}, ["--yes"], {"confirm": "never", "on_exhausted": "deliver"}),
        ({"timezone": "Asia/Tokyo"}, [], {"timezone": "Europe/Berlin"}),
        ({}, ["--timezone", "Asia/Tokyo"], {"timezone": "Asia/Tokyo"}),
        ({}, [], {"timezone": "Europe/Berlin"}),
    ],
)
def test_options_are_judged_together_with_the_settings_of_the_environment(
    shell: Shell, tmp_path: Path, pinned: dict[str, Any], options: list[str], holds: dict[str, Any]
) -> None:
    """P19: what DONEWHEN_SETTINGS says need not be said again, and no default of the command takes its place. A
    variable that is for one setting alone, such as DONEWHEN_TIMEZONE, counts before it, and an option before both."""
    (file := tmp_path / "settings.json").write_text(json.dumps({"language": "de", **pinned}))
    begun = shell.run("--detach", *options, DONEWHEN_SETTINGS=str(file), DONEWHEN_TIMEZONE="Europe/Berlin")
    assert begun.exit_code == Exit.COMPLETED, begun.stderr
    (thread,) = json.loads(shell("threads", "--json").stdout)["threads"]
    stored = thread["metadata"]["settings"]
    assert stored == {**stored, **holds}
    assert "Das Demomodell" in begun.stderr


@pytest.mark.parametrize("way", ["resume", "worker"])
def test_what_the_environments_settings_forbid_holds_for_runs_from_before(
    shell: Shell, tmp_path: Path, way: str
) -> None:
    """Q34: for one that waits and one that was detached; the stored choices are kept to it, and hold otherwise."""
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"profile": {"forbidden_tools": ["list_files"]}, "confirm": "always"}))
    now = {"DONEWHEN_SETTINGS": str(settings)}
    refused = [call("list_files"), give_up("I may not list them")]
    with scripted(shell, strict=False, triage=[submit_plan([COUNT])], execute=refused, plan=[give_up("no")]) as model:
        begun = shell.run(*(["--detach", "--yes"] if way == "worker" else []))
        before = len(model.requests)
        if way == "worker":
            thread = begun.stdout.strip()
            with worker_of(shell, **shell.model, **now) as (worker, told):
                assert any(line.startswith(f"{thread}: ") and "taken" not in line for line in told)
                worker.send_signal(signal.SIGTERM)
                told.read()
        else:
            assert shell("resume", shell.waiting(), "--approve", **now).exit_code != Exit.COMPLETED
    offered = {tool["function"]["name"] for request in model.requests[before:] for tool in request.tools}
    assert "list_files" not in offered
    assert "read_file" in offered or way == "resume"
    assert "list_files()" not in shell("show").stdout


@pytest.mark.parametrize(
    ("assigned", "said"),
    [
        (["profile=clerk"], "--set profile=clerk: settings: profile: Input should be a valid dictionary"),
        (["profile=5", "profile.role=clerk"], "--set profile=5"),
        (["limits=5"], "--set limits=5"),
        (["done_when=[1]"], "--set done_when=[1]"),
        (["confirm.of=plans"], "--set confirm.of=plans: confirm has no fields"),
    ],
)
def test_a_value_of_a_wrong_kind_is_refused_with_its_name(
    shell: Shell, tmp_path: Path, assigned: list[str], said: str
) -> None:
    """R01: not as an unexpected error; also beside options with which it would be joined."""
    (profile := tmp_path / "p.toml").write_text('role = "clerk"')
    words = [word for each in assigned for word in ("--set", each)]
    ended = shell.run("--profile", str(profile), "--confirm", "always", *words)
    assert (ended.exit_code, said in ended.stderr) == (Exit.USAGE, True), ended.stderr


def test_criteria_and_limits_may_be_set_as_a_whole(shell: Shell) -> None:
    """P19: a text is one criterion; an object of limits joins those of `--limit`."""
    words = ["done_when=there is a count", 'limits={"rounds": 9}']
    begun = shell.run("--detach", "--limit", "questions=2", *[word for each in words for word in ("--set", each)])
    assert begun.exit_code == Exit.COMPLETED, begun.stderr
    (thread,) = json.loads(shell("threads", "--json").stdout)["threads"]
    stored = thread["metadata"]["settings"]
    assert (stored["done_when"], stored["limits"]) == (["there is a count"], {"questions": 2, "rounds": 9})


# --- reading


def test_threads_and_show(shell: Shell) -> None:
    """C08, X25: a thread that waits is shown as that, and takes no new goal; one that ended, with what was done, and
    where the arguments of its writes come from."""
    count = {**COUNT, "content": "Count the files, also in out.txt", "tools": ["list_files", "write_file"]}
    work = [(call("write_file", path="out.txt", content="3"), call("list_files")), finish_step("3 files", "s1.2")]
    with scripted(shell, triage=[submit_plan([count])], execute=work):
        assert shell("threads").stdout == ""
        shell.run("--thread", "mine")
        again = shell.run("--thread", "mine")
        assert (again.exit_code, "mine" in again.stderr) == (Exit.WAITING, True)
        assert "Waiting for you: confirm." in shell("show", "mine").stdout
        shell("resume", "mine", "--approve")
    assert "mine  completed" in shell("threads").stdout
    shown = shell("show", "mine")
    assert shown.exit_code == Exit.COMPLETED
    for part in ("Goal: count the files", "Status: completed", "cited: there is a count", "[s1.2]", "3 files"):
        assert part in shown.stdout
    assert '[s1.1] write_file(path="out.txt", content="3") → done  path ← step s1 of the plan' in shown.stdout
    assert one_object(shell("show", "mine", "--json"))["thread_id"] == "mine"
    assert shell("show", "nosuch").exit_code == Exit.USAGE


# --- doctor


def findings(result: Result) -> dict[str, str]:
    value = one_object(result)
    assert value["ok"] == (result.exit_code == Exit.COMPLETED)
    return {finding["name"]: finding["state"] for finding in value["findings"]}


def test_doctor_says_what_is_missing_and_what_is_broken(shell: Shell, tmp_path: Path) -> None:
    """L8, C3, P19: no key is only noted; what the first run would fail with is broken, by the name that was meant."""
    found = findings(shell("doctor", "--json"))
    assert (found["storage"], found["model"]) == ("ok", "note")
    assert found["box"] == ("note" if look_for_box()[1] else "ok")
    (tmp_path / "broken.db").write_bytes(b"this is no database, not at all" * 100)
    (tmp_path / "elsewhere").symlink_to("/proc/self")
    assert findings(shell("doctor", "--json", "--storage", str(tmp_path / "broken.db")))["storage"] == "broken"
    assert findings(shell("doctor", "--json", XDG_STATE_HOME=str(tmp_path / "elsewhere")))["storage"] == "broken"
    meant = shell("doctor", "--json", DONEWHEN_MODEL="opnai:gpt-5", OPENAI_API_KEY="sk-x")
    assert (meant.exit_code, findings(meant)["model"]) == (Exit.FAILED, "broken")
    assert "Did you mean 'openai'" in meant.stdout


def test_doctor_names_every_extra(shell: Shell) -> None:
    """L8: those that the package's own metadata lists."""
    extras = {f"extra {name}" for name in importlib.metadata.metadata("donewhen").get_all("Provides-Extra", [])}
    assert extras == {name for name in findings(shell("doctor", "--json")) if name.startswith("extra ")}


def test_doctor_names_tools_without_an_effect(shell: Shell, tmp_path: Path) -> None:
    """Q32: two servers at once, one that says nothing of its tools and one that is not there. No tool is
    proposed as a read.
    """
    servers = {
        "shop": {"command": sys.executable, "args": [mcp_replies.__file__, "ledger"]},
        "gone": {"command": "/no"},
    }
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    result = shell("doctor", "--json", "--mcp", str(tmp_path / "servers.json"))
    assert (findings(result)["mcp shop"], findings(result)["mcp"]) == ("note", "broken")
    told = next(each["text"] for each in one_object(result)["findings"] if each["name"] == "mcp shop")
    assert "1 of them do not say whether they only read: pay. These are not used for planning" in told
    assert told.endswith('If NAME only reads, say so in the file: "effects": {"NAME": "read"}')


def test_doctor_tries_the_model(shell: Shell) -> None:
    with WireServer(ScriptedModel([answer("Hello.")]), api_key="sk-right", model="gpt-x") as server:
        base = {"OPENAI_BASE_URL": server.base_url, "DONEWHEN_MODEL": "openai:gpt-x"}
        assert findings(shell("doctor", "--json", OPENAI_API_KEY="sk-right", **base))["model"] == "ok"
        assert findings(shell("doctor", "--json", OPENAI_API_KEY="sk-wrong", **base))["model"] == "broken"
        other = {**base, "DONEWHEN_MODEL": "openai:other"}
        assert findings(shell("doctor", "--json", OPENAI_API_KEY="sk-right", **other))["model"] == "broken"
    assert findings(shell("doctor", "--json", OPENAI_API_KEY="sk-right", **base))["model"] == "broken"


def test_doctor_says_whether_the_model_calls_tools(shell: Shell) -> None:
    """L8: one that only talks is broken; a call or a plan, also a printed one, is enough. One request tells."""
    replies = {
        "talks": (reply("I am ready."), "broken"),
        "calls": (call("report_ready", at="once"), "ok"),
        "prints": (reply('{"action": "report_ready", "arguments": {}}'), "ok"),
        "plans": (submit_plan([{"content": "Report", "tools": ["report_ready"]}]), "ok"),
    }
    for name, (said, state) in replies.items():
        with WireServer(script := ScriptedModel([said]), api_key="sk-right", model=name) as server:
            given = {"OPENAI_BASE_URL": server.base_url, "DONEWHEN_MODEL": f"openai:{name}"}
            result = shell("doctor", "--json", OPENAI_API_KEY="sk-right", **given)
        assert (name, findings(result)["model"]) == (name, state), result.stdout
        assert ("no step can work" in result.stdout) == (state == "broken")
        script.assert_exhausted()


# --- errors


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (GoalError("x"), 2),
        (UnknownThread("x"), 2),
        (StaleAnswer("x", ["a"]), 2),
        (ThreadWaiting("x", ["a"]), 3),
        (ThreadBusy("x"), 1),
        (StorageError("x"), 1),
        (ModelError("x"), 1),
        (PlanError(["x", "y"]), 2),
        (RuntimeError("boom"), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=repr,
)
def test_every_error_has_its_code_and_its_line(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_guarded(raising(error), json=False) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert 1 <= said.err.count("\n") <= 2
    assert "Traceback" not in said.err


def test_an_unexpected_error_shows_no_secret_and_a_traceback_only_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("bad key sk-proj-abcdefghijklmnopqrstuvwxyz0123456789 \x1b[31m")
    assert run_guarded(raising(error), json=True) == 1
    said = capsys.readouterr()
    assert "sk-proj-abcdef" not in said.err + said.out
    assert "\x1b" not in said.err
    assert "DONEWHEN_DEBUG=1" in said.err
    assert json.loads(said.out)["error"]["kind"] == "RuntimeError"
    monkeypatch.setenv("DONEWHEN_DEBUG", "1")
    run_guarded(raising(ValueError("boom")), json=False)
    assert "Traceback" in capsys.readouterr().err


def test_a_schema_and_an_image_come_with_the_goal(shell: Shell, tmp_path: Path) -> None:
    """A1: `--output-schema` and `--json` give the result as data; `--image` reaches the model; bad files are usage."""
    schema, picture = tmp_path / "offer.json", tmp_path / "receipt.png"
    schema.write_text('{"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}')
    picture.write_bytes(b"\x89PNG\r\n")
    files = ("--output-schema", str(schema), "--image", str(picture))
    with scripted(shell, triage=[call("answer", text="18.40 in all.", output={"total": 18.4})]) as model:
        result = shell.run(*files, "--json")
        sent: list[Any] = model.requests[-1].messages[1].content  # type: ignore[assignment]
    assert result.exit_code == Exit.COMPLETED, result.stderr
    assert one_object(result)["output"] == {"total": 18.4}
    shown = shell("show", one_object(result)["thread_id"])
    assert "nothing was looked at" in result.stderr + shown.stdout, "D07"
    assert "output\n    total\n" in shown.stdout
    assert [part["type"] for part in sent] == ["text", "text", "image_url", "text"]
    assert sent[2]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    result = shell.run("--image", str(picture), "--model", "demo")
    assert (result.exit_code, "takes no image" in result.stdout) == (Exit.FAILED, True)
    for option, text in (("--output-schema", "{"), ("--output-schema", '{"type": 1}'), ("--image", "")):
        bad = tmp_path / f"bad{len(text)}"
        if text:
            bad.write_text(text)
        result = shell.run(option, str(bad))
        assert result.exit_code == Exit.USAGE
        assert option in result.stderr


def test_a_profile_from_a_file_and_from_the_environment(shell: Shell) -> None:
    """M8, P14: --profile goes over DONEWHEN_PROFILE, what either forbids stays forbidden, also when it is resumed."""
    mine, house = shell.home / "mine.toml", shell.home / "house.toml"
    house.write_text('name = "Ann"\ntone = "dry"\nforbidden_tools = ["write_file"]')
    mine.write_text('[profile]\ntone = "warm"\nforbidden_tools = ["edit_file"]')
    said = [submit_plan([COUNT])]
    with scripted(shell, triage=said, execute=[call("edit_file"), *COUNTING]) as model:
        first = shell.run("--profile", str(mine), DONEWHEN_PROFILE=str(house))
        assert first.exit_code == Exit.WAITING, first.stderr
        second = shell("resume", shell.waiting(), "--approve", DONEWHEN_PROFILE=str(house))
        assert second.exit_code == Exit.COMPLETED, second.stderr
        assert "Your name: Ann" in model.requests[0].text
        assert "Tone: warm" in model.requests[-1].text
        for request in model.requests:
            assert not {"write_file", "edit_file"} & set(request.tool_names)
    bad = shell.run("--profile", str(shell.home / "none.toml"))
    assert bad.exit_code == Exit.USAGE
    assert "cannot be read" in bad.stderr


def test_a_folders_own_skills_need_trust(shell: Shell) -> None:
    """C01: without trust they are named and not followed; --trust-skills follows them, also when it is resumed."""
    place = shell.work / ".agents" / "skills" / "counting"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("---\nname: counting\ndescription: How to count.\n---\nCount twice.\n")
    (shell.work / "AGENTS.md").write_text("Numbers are written in words.\n")
    with scripted(shell, triage=[answer("Three.")]) as model:
        run = shell.run()
        assert "AGENTS.md, .agents/skills/counting" in run.stderr
        assert "Numbers are written" not in model.requests[0].text
        assert "read_skill" not in model.requests[0].tool_names
    with scripted(shell, triage=[call("read_skill", name="counting"), submit_plan([COUNT])], execute=COUNTING) as model:
        run = shell.run("--trust-skills", "--thread", "counted")
        assert run.exit_code == Exit.WAITING, run.stderr
        assert "AGENTS.md," not in run.stderr
        assert "<agents_md>\nNumbers are written in words." in model.requests[0].text
        assert shell("resume", shell.waiting(), "--approve").exit_code == Exit.COMPLETED
        assert "Numbers are written in words." in model.requests[-1].text
        assert "read_skill" in model.requests[-1].tool_names
        assert "Given besides the goal: AGENTS.md" in shell("show", "counted").stdout


def test_a_run_of_the_command_becomes_a_test(shell: Shell) -> None:
    """R02: DONEWHEN_RECORD=1, then `donewhen record`: what a provider said over HTTP replays without it."""
    with scripted(shell, triage=[submit_plan([COUNT])], execute=COUNTING):
        first = shell.run("--confirm", "never", "--json", DONEWHEN_RECORD="1")
        assert first.exit_code == Exit.COMPLETED, first.stderr
        thread, out = one_object(first)["thread_id"], shell.home / "count.jsonl"
        assert shell("record", thread, str(out)).exit_code == Exit.COMPLETED
        nowhere = shell("record", thread, str(shell.home / "none" / "count.jsonl"))
        assert (nowhere.exit_code, "the recording cannot be written" in nowhere.stderr) == (Exit.USAGE, True)
    run = wait(Recording.load(out).replay())
    assert (run.status, run.answer) == ("completed", "3 files")
    assert shell("record", "nothing", str(out)).exit_code == Exit.USAGE


def test_what_needs_neither_key_nor_model(shell: Shell) -> None:
    """P19, R10, F1: the graph, a SKILL.md that agents can read, and the version are printed."""
    assert all(node in shell("graph").stdout for node in ("confirm", "advance", "ask_user", "deliver"))
    assert shell("skill").stdout.startswith("---\nname: donewhen\ndescription: ")
    assert shell("--version").stdout.strip()


@pytest.mark.parametrize("name", ["language", "profile.language"])
def test_a_language_that_is_no_tag_is_said(shell: Shell, name: str) -> None:
    """P14: models are told it, but no words of the runtime are known by it."""
    for language, said in (("deutsch", 1), ("de", 0)):
        with scripted(shell, triage=[submit_plan([COUNT], language="de")]):
            result = shell.run("--set", f"{name}={language}")
        assert result.stderr.count("“deutsch” is no language tag; write one such as de") == said, result.stderr


def test_any_setting_is_an_option(shell: Shell) -> None:
    """Q90: `--set` has those that have no option of their own, and fields of those that do."""
    given = ("max_parallel=2", "limits.rounds=9", "profile.role=clerk", "profile.tone=dry", 'done_when=["counted"]')
    with scripted(shell, triage=[submit_plan([COUNT])]):
        shell.run("--thread", "kept", *(part for each in given for part in ("--set", each)))
    (row,) = one_object(shell("threads", "--json"))["threads"]
    settings = row["metadata"]["settings"]
    assert (settings["max_parallel"], settings["limits"]["rounds"], settings["done_when"]) == (2, 9, ["counted"])
    assert settings["profile"] == {"role": "clerk", "tone": "dry"}


def test_a_check_that_cannot_be_used_starts_nothing(shell: Shell) -> None:
    """P11, U13: `--done-when` with a check that is not read-only is wrong usage, said as to a planner."""
    check = {"text": "tests pass", "check": {"tool": "write_file", "arguments": {}}}
    with scripted(shell):
        refused = shell.run("--done-when", json.dumps(check))
    assert refused.exit_code == Exit.USAGE, refused.stderr
    assert "the check's tool 'write_file' is not read-only, so it cannot check" in refused.stderr
    assert one_object(shell("threads", "--json"))["threads"] == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["cancel", ""], "the thread id is empty"),
        (["undo", ""], "the thread id is empty"),
        (["resume", "", "--approve"], "the thread id is empty"),
        (["run", "count", "--set", "a=b"], "named with --template"),
        (["run", "count", "--set", "max_paralel=2"], "did you mean max_parallel"),
        (["run", "count", "--set", "max_parallel=none"], "max_parallel"),
        (["run", "count", "--set", "profile=abc"], "profile"),
        (["threads", "--status", "bogus"], "a run is completed, answered, partial"),
    ],
)
def test_what_names_nothing_changes_nothing(shell: Shell, command: list[str], said: str) -> None:
    """U13: an empty id, as of an unset variable, is not the latest thread; what has no meaning is not ignored."""
    with scripted(shell, triage=[submit_plan([COUNT])]):
        shell.run("--thread", "kept")
    refused = shell(*command)
    assert (refused.exit_code, said in refused.stderr) == (Exit.USAGE, True), refused.stderr
    assert one_object(shell("show", "kept", "--json"))["status"] == "waiting"


def test_hooks_from_the_environment(shell: Shell) -> None:
    """X06, X15: DONEWHEN_HOOKS asks at the command as a tool would; what cannot be loaded starts nothing."""
    policy = shell.home / "policy.py"
    policy.write_text(
        "from donewhen.hooks import Ask, Hooks\nhooks = Hooks(before_call=[lambda call: Ask('Is the audit over?')])\n"
    )
    named = f"{policy}:hooks"
    with scripted(shell, triage=[submit_plan([COUNT])], execute=COUNTING):
        first = shell.run("--confirm", "never", DONEWHEN_HOOKS=named)
        assert first.exit_code == Exit.WAITING, first.stderr
        assert "Is the audit over?" in first.stderr
        second = shell("resume", shell.waiting(), "--approve", DONEWHEN_HOOKS=named)
        assert second.exit_code == Exit.COMPLETED, second.stderr
    again = [call("list_files"), *COUNTING]
    with scripted(shell, triage=[submit_plan([COUNT])], execute=again):
        first = shell.run("--yes", DONEWHEN_HOOKS=named)  # which answers no hook, here nor when it goes on
        assert first.exit_code == Exit.WAITING, first.stderr
        assert "Is the audit over?" in first.stderr
        second = shell("resume", shell.waiting(), "--approve", "--yes", DONEWHEN_HOOKS=named)
        assert second.exit_code == Exit.WAITING, second.stderr
        assert shell("resume", shell.waiting(), "--approve", DONEWHEN_HOOKS=named).exit_code == Exit.COMPLETED
    bad = shell.run(DONEWHEN_HOOKS=f"{policy}:none")
    assert bad.exit_code == Exit.USAGE
    assert "DONEWHEN_HOOKS" in bad.stderr


@pytest.mark.parametrize("called", ["./donewhen", "bin/donewhen"])
def test_a_printed_command_is_one_that_a_shell_finds(called: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P19: by its path where PATH has none, also in its own folder."""
    monkeypatch.setattr("sys.argv", [called])
    monkeypatch.setenv("PATH", "")
    assert command_line(None, "show", "t") == f"{called} show t"
