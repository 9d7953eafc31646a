"""Which thread is meant, what reading leaves alone, whose Ctrl-C it is: the command as it is used every day."""

import asyncio
import json
import os
import shlex
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from donewhen import Agent
from donewhen.agent.cli.screen.drawing import draw_pause
from donewhen.agent.cli.screen.views import mode_text
from donewhen.agent.storage import open_storage
from donewhen.agent.storage.table import NEVER
from donewhen.agent.work.thread_rows import update_row
from donewhen.graph.pauses.pause import load_pause
from donewhen.hooks import Hooks, Refuse
from donewhen.state.language.texts import LANGUAGES
from donewhen.state.records import Mode, ModeChooser
from donewhen.testing import ScriptedModel, call, finish_step, give_up, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.screens.shell import Exit, Shell, scripted
from tests.kit.screens.terminal import COMMAND, SECONDS, Session, environment, piped, screen, written

GOAL = "how many files are there?"


def start(shell: Shell, thread: str) -> None:
    assert shell("run", GOAL, "--dir", str(shell.work), "--thread", thread).exit_code == Exit.WAITING


def test_ctrl_c_in_the_editor_is_the_editors(tmp_path: Path) -> None:
    """L6, C02: the editor goes on; the text that was shown, changed there, is the plan that runs."""
    editor, ready, go = tmp_path / "editor", tmp_path / "ready", tmp_path / "go"
    wait = f"touch {ready}; while [ ! -e {go} ]; do read -t 0.05 x < /dev/null; done"
    editor.write_text(
        f"#!/bin/bash\ntrap 'touch {go}' INT\n{wait}\nsed -i 's/Count the files/Count the *.txt files/' $2\n"
    )
    editor.chmod(editor.stat().st_mode | stat.S_IEXEC)
    (tmp_path / "a.txt").touch()
    session = Session.start("run", GOAL, env={**environment(tmp_path), "EDITOR": f"{editor} -x"}, cwd=tmp_path)
    session.reply("e")
    until = time.monotonic() + SECONDS
    while not ready.exists():
        assert time.monotonic() < until, "the editor did not start"
        session.process.poll()
    os.killpg(session.process.pid, signal.SIGINT)  # as a terminal does
    assert "1. Count the *.txt files" in session.reply("y")
    assert session.end() == (0, "1 *.txt file:\n- a.txt\n")


def test_reading_creates_nothing(shell: Shell, tmp_path: Path) -> None:
    """L7: a database that is not there is said to be missing, and stays so."""
    for words in (["threads"], ["show", "x"], ["resume", "x"]):
        missing = shell(*words, "--storage", str(tmp_path / "typo.db"))
        assert missing.exit_code == Exit.USAGE
        assert "there is no database" in missing.stderr
    assert shell("threads").exit_code == Exit.COMPLETED
    assert shell("doctor", "--storage", str(tmp_path / "typo.db")).exit_code == Exit.COMPLETED
    assert not list(tmp_path.rglob("*.db"))


def test_resume_finds_what_was_cut_off(shell: Shell, tmp_path: Path) -> None:
    """L9: without an id the latest run that waits or was cut off, newest first."""
    start(shell, "first")
    session = Session.start("run", GOAL, "--thread", "second", env=environment(tmp_path), cwd=shell.work)
    session.asked()
    session.interrupt()
    assert session.end()[0] == 130
    assert json.loads(shell("resume", "--json").stdout)["thread_id"] == "second"


def test_a_thread_is_named_by_its_beginning(shell: Shell, tmp_path: Path) -> None:
    """L9, U13: as with git; two that begin so are named, and nothing is done."""
    start(shell, "abc-1")
    start(shell, "abd-2")
    assert "Goal: how many" in shell("show", "abc").stdout
    both = shell("resume", "ab", "--approve")
    assert both.exit_code == Exit.USAGE
    assert "abc-1" in both.stderr
    assert "abd-2" in both.stderr
    assert shell("show", "b").exit_code == Exit.USAGE


async def test_a_whole_id_is_that_thread_however_many_others_begin_with_it(shell: Shell) -> None:
    """L9: all of them changed later; each command that names a thread finds it."""
    url = f"sqlite:///{shell.home / 'runs.db'}"
    async with Agent("demo", storage=url) as agent:
        await agent.start("hello", thread_id="w/1", settings={"confirm": "writes"})
        async with agent.storage.writer() as (_, store):
            row = await store.threads.get("w/1")
            assert row
            for n in range(110):
                await store.threads.put(f"w/1{n}", {**row, "updated": f"2999-01-01T00:00:00.{n:03}+00:00"})
    said = {}
    for command in ("show", "receipt", "watch", "cancel", "resume", "delete"):
        words = [command, "w/1", *(["--yes"] if command == "delete" else [])]
        done = await asyncio.to_thread(shell, *words, "--storage", url)
        said[command] = "several threads" in done.stderr
    assert not any(said.values()), said
    async with Agent("demo", storage=url) as agent:
        assert len(await agent.threads(limit=200)) == 110
    many = await asyncio.to_thread(shell, "show", "w/", "--storage", url)
    assert "several threads begin with 'w/'" in many.stderr


def test_a_thread_goes_on_with_another_model_and_folder(shell: Shell, tmp_path: Path) -> None:
    """L9: where the folder was moved, or the first model was the wrong one."""
    start(shell, "mine")
    moved = shell.work.rename(tmp_path / "moved")
    (moved / "d.txt").touch()
    wrong = shell("resume", "mine", "--approve", "--model", "opnai:x")
    assert wrong.exit_code == Exit.USAGE
    done = shell("resume", "mine", "--approve", "--dir", str(moved), "--model", "demo")
    assert done.stdout.startswith("4 files:\n"), done.stderr


@pytest.mark.parametrize("mode", ["plan", "step"])
def test_a_mode_that_was_set_is_shown(shell: Shell, mode: str) -> None:
    """L9: while it works and afterwards, with who chose it."""
    done = shell("run", GOAL, "--mode", mode, "--thread", "mine", "--yes")
    assert done.exit_code == Exit.COMPLETED, done.stderr
    assert "Mode: step (settings)" in done.stderr + shell("show", "mine").stdout


def test_each_mode_has_a_line() -> None:
    """L9: whoever chose it, in every language."""
    for language, mode, chooser in product(LANGUAGES, get_args(Mode), get_args(ModeChooser)):
        assert "Why" in mode_text({"mode": mode, "by": chooser, "reason": "Why"}, screen(language=language))


@pytest.mark.parametrize("closed", ["<&- 2>&-", ">&- 2>/dev/null"])
def test_closed_streams(tmp_path: Path, closed: str) -> None:
    """L9: a service manager may close any of them."""
    line = f'exec "$@" {closed}'
    words = ["sh", "-c", line, "sh", *COMMAND, "run", GOAL, "--yes"]
    done = subprocess.run(words, env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == Exit.COMPLETED, done.stderr
    assert "Traceback" not in done.stderr


def test_a_plan_is_drawn_in_words() -> None:
    """U13: everything that approving approves, without markup, JSON, or what is not there."""
    check = {"tool": "file_exists", "arguments": {"path": "a.md"}, "expect": {"contains": "12"}}
    step = {"content": "Write it", "done_when": [{"text": "It is there", "check": check}], "tools": ["write_file"]}
    plan = {
        "title": "Do it",
        "steps": [{"id": "s1", "depends_on": [], **step}, {"id": "s2", **step, "depends_on": ["s1"]}],
    }
    where = screen()
    where.show(draw_pause(load_pause({"kind": "plan", "plan": plan, "limits": {"rounds": 9, "cost_usd": 0.5}}), where))
    assert [line.rstrip() for line in written(where).splitlines()][-7:] == [
        "2. Write it",
        "   done when  It is there (checked: file_exists path a.md; expected: contains 12)",
        "   tools      write_file",
        "   after      1",
        "",
        "What may be changed  nothing",
        "at most              9 rounds, $0.5",
    ]


async def test_a_thread_of_other_code_is_said_to_be_that(shell: Shell) -> None:
    """L9, L14: `show` and `watch` name no command that cannot go on; what was cut off is `interrupted` in the list."""
    storage = f"sqlite:///{shell.home / 'runs.db'}"
    model = ScriptedModel(roles={"triage": [submit_plan([{"content": "Look"}])]})
    async with Agent(model, storage=storage) as agent:
        await agent.start(GOAL, thread_id="code")
        await agent.start(GOAL, thread_id="priced", settings={"limits": {"cost_usd": 0.0125}})
        async with agent.stream(GOAL, thread_id="left") as events:
            async for event in events:
                if event["type"] == "started":
                    break
    shown = await asyncio.to_thread(shell, "show", "code", "--storage", storage)
    assert "donewhen resume" not in shown.stdout
    advice = "answer it from the code that started it: agent.submit_answer, agent.resume."
    assert f"This thread was not started by the command; {advice}" in " ".join(shown.stdout.split())
    assert (
        json.loads((await asyncio.to_thread(shell, "show", "code", "--json", "--storage", storage)).stdout)["resume"]
        is None
    )
    watched = await asyncio.to_thread(shell, "watch", "code", "--storage", storage)
    assert "donewhen resume" not in watched.stderr
    assert f"This thread was not started by the command; {advice}" in " ".join(watched.stderr.split())
    resumed = await asyncio.to_thread(shell, "resume", "code", "--approve", "--storage", storage)
    assert resumed.stderr.splitlines()[-1].startswith("donewhen: thread code was not started by the command")
    priced = await asyncio.to_thread(shell, "show", "priced", "--storage", storage)
    assert "of $0.0125" in priced.stdout
    listed = await asyncio.to_thread(shell, "threads", "--storage", storage)
    assert {line.split()[0]: line.split()[1] for line in listed.stdout.splitlines()} == {
        "code": "waiting",
        "priced": "failed",
        "left": "interrupted",
    }
    cut_off = await asyncio.to_thread(shell, "threads", "--status", "interrupted", "--storage", storage)
    assert [line.split()[0] for line in cut_off.stdout.splitlines()] == ["left"]


async def test_a_run_that_waits_shows_what_was_changed_and_refused(shell: Shell, tmp_path: Path) -> None:
    """L9: who answers after a failure sees what became of each write before, and why the step failed."""
    for name in "ac":
        (tmp_path / f"{name}.txt").write_text("x")
    moves = [call("move_file", source=f"{a}.txt", destination=f"{b}.txt") for a, b in ("ab", "cd")]
    plan = submit_plan([{"content": "Move them", "tools": ["move_file"]}])
    work = [*moves, call("list_files"), give_up("it has to stay", "replan")]
    model = ScriptedModel(roles={"triage": [plan], "draft": [plan, plan], "execute": work}, strict=False)
    hooks = Hooks(before_call=[lambda made: Refuse("audit") if made.arguments.get("source") == "a.txt" else None])
    storage, settings = f"sqlite:///{shell.home / 'runs.db'}", {"confirm": "never"}
    async with Agent(model, workspace_tools(tmp_path), storage=storage, hooks=hooks, settings=settings) as agent:
        assert (await agent.start("Move a.txt to b.txt and c.txt to d.txt", thread_id="moves")).status == "waiting"
    shown = (await asyncio.to_thread(shell, "show", "moves", "--storage", storage)).stdout
    assert "✗ s1 Move them (it has to stay)" in shown
    assert '[s1.1] move_file(source="a.txt", destination="b.txt") → refused: Not run: a policy refuses it' in shown
    assert '[s1.2] move_file(source="c.txt", destination="d.txt") → done' in shown
    assert "list_files" not in shown
    row = json.loads((await asyncio.to_thread(shell, "show", "moves", "--json", "--storage", storage)).stdout)
    assert row["steps"] == {"s1": {"status": "failed", "reason": "it has to stay"}}
    assert {each["id"]: each["ok"] for each in row["observations"]} == {"s1.1": False, "s1.2": True, "s1.3": True}


async def test_a_filter_comes_before_the_limit_of_a_list(shell: Shell) -> None:
    """Q30: what was cut off is found behind what changed later; the command that shows more has the same filters."""
    url = f"sqlite:///{shell.home / 'runs.db'}"
    async with Agent("demo", storage=url) as agent:
        for n in range(2):
            await agent.start("hello", thread_id=f"left-{n}", settings={"confirm": "never"})
            async with agent.storage.writer() as (_, store):
                await update_row(store, f"left-{n}", due=NEVER)
        await agent.start("hello", thread_id="left-working")
        async with agent.storage.writer() as (_, store):
            await update_row(store, "left-working")
        async with agent.storage.session("left-working"):
            filters = ("--status", "interrupted", "--prefix", "left", "--storage", url)
            cut_off = await asyncio.to_thread(shell, "threads", *filters, "--limit", "1")
            assert [line.split()[:2] for line in cut_off.stdout.splitlines()] == [["left-1", "interrupted"]]
            told = "1 more: donewhen threads --status interrupted --prefix left --limit 2"
            assert cut_off.stderr == f"{told} --storage {url}\n"


async def test_a_run_is_found_by_the_status_that_its_line_says(shell: Shell) -> None:
    """Q30: `running` has somebody who works on it, `interrupted` nobody, also one whose state cannot be read."""
    url = f"sqlite:///{shell.home / 'runs.db'}"
    async with Agent("demo", storage=url) as agent:
        for thread in ("working", "left", "dead"):
            await agent.start("hello", thread_id=thread)
            async with agent.storage.writer() as (_, store):
                await update_row(store, thread, due=NEVER if thread == "left" else None)
        with closing(sqlite3.connect(shell.home / "runs.db")) as database, database:
            database.execute("UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = 'dead'")
        async with agent.storage.session("working"):

            async def found(*status: str) -> dict[str, str]:
                words = [word for each in status for word in ("--status", each)]
                listed = await asyncio.to_thread(shell, "threads", *words, "--storage", url)
                return {line.split()[0]: line.split()[1] for line in listed.stdout.splitlines()}

            everything = {"working": "running", "left": "interrupted", "dead": "interrupted"}
            assert await found() == everything
            assert await found("running") == {"working": "running"}
            assert await found("interrupted") == {"left": "interrupted", "dead": "interrupted"}
            assert await found("running", "interrupted") == everything
            counted = json.loads((await asyncio.to_thread(shell, "status", "--json", "--storage", url)).stdout)
            assert counted["threads"] == {"interrupted": 2, "running": 1}
            some = await asyncio.to_thread(
                shell, "threads", "--status", "interrupted", "--limit", "1", "--storage", url
            )
            assert some.stderr.startswith("1 more: ")


async def test_a_long_list_says_how_many_more_there_are(shell: Shell) -> None:
    """Q30: who sees 2 of 5 runs is told so, and how to see all."""
    url = f"sqlite:///{shell.home / 'runs.db'}"
    async with Agent("demo", storage=url) as agent:
        for n in range(5):
            await agent.start(f"hello {n}", thread_id=f"t{n}", settings={"confirm": "never"})
    some = await asyncio.to_thread(shell, "threads", "--storage", url, "--limit", "2")
    told = f"3 more: donewhen threads --limit 5 --storage {url}\n"
    assert (len(some.stdout.splitlines()), some.stderr) == (2, told)
    said = json.loads((await asyncio.to_thread(shell, "threads", "--storage", url, "--limit", "2", "--json")).stdout)
    assert (len(said["threads"]), said["more"]) == (2, 3)
    everything = await asyncio.to_thread(shell, "threads", "--storage", url)
    assert (len(everything.stdout.splitlines()), everything.stderr) == (5, "")


def test_what_waits_is_listed_with_its_goal_and_shown_without_an_id(shell: Shell) -> None:
    """Q30: `pending` names what each question is about, and `show` without an id is about the latest run."""
    start(shell, "first")
    start(shell, "second")
    assert [GOAL in line for line in shell("pending").stdout.splitlines()] == [True, True]
    assert json.loads(shell("show", "--json").stdout)["thread_id"] == "second"
    some = shell("pending", "--prefix", "fir", "--json")
    assert [row["thread_id"] for row in json.loads(some.stdout)["pending"]] == ["first"]
    start(shell, "fir2")
    assert (
        "More questions wait: donewhen pending --prefix fir --limit 1"
        in shell("pending", "--prefix", "fir", "--limit", "1").stderr
    )


def test_the_command_says_which_calls_ask(shell: Shell) -> None:
    """Q30, C03: `run --approvals each` asks before a call that `never` makes, and an unknown value is refused."""
    step = {"content": "Write it", "done_when": ["it is written"], "tools": ["write_file"]}
    work = [call("write_file", path="new.txt", content="x"), finish_step("Written.", "s1.1")]
    for approvals, waits in (("never", False), ("each", True)):
        with scripted(shell, triage=[submit_plan([step])], execute=work[: 1 if waits else 2], strict=False):
            shell.run(
                "--confirm", "never", "--approvals", approvals, "--verification", "grounded", "--thread", approvals
            )
        asked = [row["kind"] for row in json.loads(shell("pending", "--json").stdout)["pending"]]
        assert asked == (["tool"] if waits else []), approvals
    assert shell.run("--approvals", "sometimes").exit_code == Exit.USAGE


def test_who_answers_is_said_and_only_who_is_asked_approves(shell: Shell) -> None:
    """H13, R05: the command says who is waited for and how they answer; nobody else approves, and words are kept."""
    asked = ("--set", 'answered_by={"plan": "operator"}', "--set", "when_busy=next_round")
    begun = shell("run", GOAL, "--dir", str(shell.work), "--thread", "t", *asked)
    assert "waits for an answer from: operator" in begun.stdout + begun.stderr
    assert "--approve --by operator" in begun.stdout + begun.stderr
    assert "  for operator  " in shell("pending").stdout
    for by in ([], ["--by", "mira"]):
        refused = shell("resume", "t", "--approve", *by)
        assert refused.exit_code == Exit.WAITING
        assert "Your message is kept" not in refused.stdout + refused.stderr
    assert shell("tell", "t", "hurry", "--by", "mira").exit_code == Exit.COMPLETED
    assert shell("resume", "t", "--by", "operator").exit_code == Exit.USAGE
    assert shell("resume", "t", "--approve", "--by", "operator:anna").exit_code == Exit.COMPLETED
    receipt = json.loads(shell("show", "t", "--json").stdout)["receipt"]
    assert receipt["approvals"][0]["name"] == "operator:anna"
    assert [(row["text"], row["name"]) for row in receipt["heard"]] == [("hurry", "mira")]


def test_delete_removes_a_thread_and_only_that(shell: Shell) -> None:
    """Without a terminal it needs --yes and the whole id; what is gone, or never was, is an error."""
    for thread in ("one", "one-more"):
        start(shell, thread)
    refused = shell("delete", "one")
    assert (refused.exit_code, "add --yes" in refused.stderr) == (Exit.USAGE, True)
    assert shell("delete", "one-m", "--yes").exit_code == Exit.USAGE
    assert shell("delete", "one", "--yes").stdout == "one deleted\n"
    for gone in ("one", "never"):
        again = shell("delete", gone, "--yes")
        assert (again.exit_code, f"there is no thread '{gone}'" in again.stderr) == (Exit.USAGE, True)
    assert [line.split()[0] for line in shell("threads").stdout.splitlines()] == ["one-more"]
    assert json.loads(shell("delete", "one-more", "--yes", "--json").stdout)["deleted"] == ["one-more"]
    assert json.loads(shell("threads", "--json").stdout)["threads"] == []


async def test_a_thread_at_work_is_not_deleted(shell: Shell) -> None:
    """The error says what to do first, and nothing of the thread is lost."""
    url = f"sqlite:///{shell.home / 'runs.db'}"
    async with Agent("demo", storage=url) as agent:
        await agent.start(GOAL, thread_id="one")
    async with open_storage(url).session("one", working=True):
        busy = await asyncio.to_thread(shell, "delete", "one", "--yes", "--storage", url)
    assert (busy.exit_code, "cancel it" in busy.stderr) == (Exit.FAILED, True), busy.stderr
    assert GOAL in (await asyncio.to_thread(shell, "show", "one", "--storage", url)).stdout


def test_delete_asks_in_a_terminal(tmp_path: Path) -> None:
    """A no and Ctrl-D keep the thread, a yes deletes it; a beginning of the id is enough, as the whole one is shown."""
    env = environment(tmp_path)
    assert piped("run", GOAL, "--thread", "one", env=env, cwd=tmp_path).returncode == Exit.WAITING
    for answer, code in ((b"n\n", Exit.FAILED), (b"\x04", Exit.FAILED), (b"y\n", Exit.COMPLETED)):
        session = Session.start("delete", "on", env=env, cwd=tmp_path)
        assert f"Thread one: {GOAL}" in session.asked()
        session.press(answer)
        assert session.end() == (code, "one deleted\n" if code == Exit.COMPLETED else "")


def test_what_a_failed_command_printed_is_read(shell: Shell) -> None:
    """Q30, E30: while it works, in `show` and whole with --observation: its last lines and how it ended."""
    (shell.work / "fails.py").write_text("print('first\\n' * 40 + 'assert 3 == 6\\n1 failed')\nraise SystemExit(2)")
    plan = submit_plan([{"content": "Run the tests", "done_when": ["they pass"], "tools": ["run_command"]}])
    python = shlex.join([sys.executable, "fails.py"])
    work = [call("run_command", command=[sys.executable, "fails.py"]), give_up("they fail")]
    with scripted(shell, triage=[plan], plan=[plan, plan], execute=work):
        ran = shell.run("--yes", "--allow-command", python, "--box", "off", "--thread", "t")
    shown = shell("show", "t")
    for text in (ran.stderr, shown.stdout):
        assert "failed: exit_code 2" in text
        assert "│ assert 3 == 6\n" in text
        assert text.count("│ first\n") < 8
    whole = shell("show", "t", "--observation", "s1.1").stdout
    assert whole.startswith("exit_code: 2\nstdout:\nfirst\n")
    assert whole.count("first\n") == 40
    assert json.loads(shell("show", "t", "--observation", "s1.1", "--json").stdout)["failed"] == "exit_code 2"
    assert shell("show", "t", "--observation", "s1.9").exit_code == Exit.USAGE


def test_programs_have_the_variables_that_are_named(shell: Shell) -> None:
    """Q30, S2: from `run` to `resume`; the line about allowed programs says so, and comes after their errors."""
    plan = submit_plan([{"content": "Look", "done_when": ["it is seen"], "tools": ["run_command"]}])
    work = [call("run_command", command=["printenv", "DW_STAGE"]), finish_step("Seen.", [("s1.1", "blue")])]
    allowed = ("--allow-command", "printenv DW_STAGE", "--box", "off", "--env", "DW_STAGE", "--thread", "t")
    with scripted(shell, triage=[plan], execute=work):
        unset = shell.run(*allowed)
        assert (unset.exit_code, "'DW_STAGE' is not set" in unset.stderr) == (Exit.USAGE, True)
        missing = shell.run("--allow-command", "nosuchprogram x")
        assert (missing.exit_code, "Allowed:" in missing.stderr) == (Exit.USAGE, False)
        shell.model["DW_STAGE"] = "blue"
        assert "Of your environment it has DW_STAGE." in shell.run(*allowed).stderr
        assert shell("resume", "t", "--approve").exit_code == Exit.COMPLETED


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], Exit.WAITING),
        (["--on-question", "assume"], Exit.FAILED),
        (["--default-answer", "deliver"], Exit.FAILED),
        (["--on-question", "abort"], Exit.FAILED),
        (["--set", "on_failure=deliver"], Exit.FAILED),
    ],
)
def test_what_answers_for_nobody_decides_the_exit_code(shell: Shell, options: list[str], code: Exit) -> None:
    """Q30, R18: of a command that fails, whose step the planner proposes again: docs/command.md has these codes."""
    plan = submit_plan([{"content": "Run the tests", "done_when": ["they pass"], "tools": ["run_command"]}])
    work = [call("run_command", command=["false", "x"]), give_up("they fail")]
    with scripted(shell, strict=False, triage=[plan], plan=[plan, plan, plan, plan], execute=work * 3):
        ran = shell.run("--yes", "--allow-command", "false x", "--box", "off", "--json", *options)
    assert ran.exit_code == code
