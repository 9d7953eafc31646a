"""The command as a person uses it: a real pseudo-terminal, prompts, an editor, Ctrl-C and Ctrl-D."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan
from tests.kit.screens.terminal import SECONDS, Session, environment, piped
from tests.kit.wire import WireServer
from tests.kit.wire_format import fault

COUNT = {"content": "Count the [bold]files", "done_when": ["there is a count"], "tools": ["list_files"]}
COUNTED = finish_step("3 files", "s1.1")


@contextmanager
def scripted(home: Path, **roles: Any) -> Iterator[dict[str, str]]:
    """A user's environment, with a model that answers from a script."""
    model = ScriptedModel(roles=roles)
    with WireServer(model) as server:
        yield environment(home, OPENAI_BASE_URL=server.base_url, OPENAI_API_KEY="sk-test")
    model.assert_exhausted()


class Hanging:
    """A reply that comes late, or never; `asked` waits until the model was asked for it."""

    def __init__(self, seconds: float = 60.0, **reply: Any) -> None:
        self._event, self._fault = threading.Event(), fault(hang=seconds, **reply)

    def __call__(self, *_: Any) -> Any:
        self._event.set()
        return self._fault

    def asked(self) -> None:
        """Raises AssertionError where it is not asked for in good time."""
        assert self._event.wait(SECONDS)


def test_a_whole_run_at_a_terminal(tmp_path: Path) -> None:
    """C01, C07, S02: approve with a key, answer with a number; stdout holds the answer and nothing else."""
    execute = [[call("list_files")], ask_user("Which \x1b[31mkind?", ["all", "text"]), COUNTED]
    with scripted(tmp_path, triage=[submit_plan([COUNT])], execute=execute) as env:
        session = Session.start("run", "count", env=env, cwd=tmp_path)
        shown = session.asked()
        assert "1. Count the [bold]files" in shown
        session.type("x")
        session.reply("a")
        asked = session.asked()
        assert "Which [31mkind?" in asked
        assert "1. all" in asked
        session.type("2")
        assert session.end() == (0, "3 files\n")
    assert "☑ s1 Count the [bold]files" in session.seen
    assert "\x1b[32m" in session.seen
    assert "1/1 steps done · 1 cited · audited: 1 of 1 sentences shown" in session.seen


@pytest.mark.parametrize("while_it", ["asks", "works", "ends a call"])
def test_ctrl_c_keeps_what_was_done(tmp_path: Path, while_it: str) -> None:
    """C06, R02, U13: exit 130 with the command to go on with, and going on works; the first Ctrl-C lets the call at
    work end, what it brought is kept, and is not asked for again.
    """
    slow, look = Hanging(), [call("list_files")]
    if while_it == "ends a call":
        slow = Hanging(2.0, reply=call("list_files"))
    execute = {"asks": [look, COUNTED], "works": [slow, look, COUNTED], "ends a call": [slow, COUNTED]}[while_it]
    with scripted(tmp_path, triage=[submit_plan([COUNT])], execute=execute) as env:
        session = Session.start("run", "count", "--thread", "mine", env=env, cwd=tmp_path)
        session.asked()
        if while_it != "asks":
            session.type("a")
            session.expect("◐ s1 Count")
            slow.asked()
            session.interrupt()
            session.expect("Stopping at the next clean point")
        if while_it != "ends a call":
            session.interrupt()
        assert session.end() == (130, "")
        assert "donewhen resume mine" in session.seen
        assert "Traceback" not in session.seen
        words = ["resume", "mine", *(["--approve"] if while_it == "asks" else [])]
        gone_on = piped(*words, env=env, cwd=tmp_path)
    assert (gone_on.returncode, gone_on.stdout) == (0, "3 files\n"), gone_on.stderr


def test_a_stopped_run_is_steered(tmp_path: Path) -> None:
    """U4: `resume --steer` plans anew by what is said and keeps what is finished; only of what was stopped."""
    tell = {"content": "Tell the number", "done_when": ["it is told"], "tools": []}
    plans = [submit_plan([COUNT, tell]), submit_plan([{"content": "Write it down", "replaces": ["s2"]}])]
    hanging = Hanging()
    rounds = {"s1": [[call("list_files")], COUNTED], "s2": [hanging], "s3": [finish_step("Three.", "s1.1")]}
    with scripted(tmp_path, triage=plans, execute=rounds) as env:
        session = Session.start("run", "count", "--thread", "mine", env=env, cwd=tmp_path)
        session.asked()
        early = piped("resume", "mine", "--steer", "only write it down", env=env, cwd=tmp_path)
        assert (early.returncode, "was not stopped: it is waiting" in early.stderr) == (2, True)
        session.type("y")
        session.expect("◐ s2 Tell")
        hanging.asked()
        session.interrupt()
        session.interrupt()
        assert session.end() == (130, "")
        both = piped("resume", "mine", "--steer", "x", "--approve", env=env, cwd=tmp_path)
        assert (both.returncode, "--steer" in both.stderr) == (2, True)
        steered = piped("resume", "mine", "--steer", "only write it down", "--yes", env=env, cwd=tmp_path)
        assert (steered.returncode, steered.stdout) == (0, "Three.\n"), steered.stderr
        shown = piped("show", "mine", env=env, cwd=tmp_path).stdout
    assert "☑ s1 Count" in shown
    assert "☑ s3 Write it down" in shown


def test_a_server_that_does_not_start_is_no_silence(tmp_path: Path) -> None:
    """U12: people at the terminal are told which MCP server they wait for; Ctrl-C ends that."""
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"quiet": {"command": "sleep", "args": ["60"]}}}')
    session = Session.start("run", "count", "--mcp", "mcp.json", env=environment(tmp_path), cwd=tmp_path)
    session.expect("Waiting for the MCP server “quiet” to start …")
    session.interrupt()
    assert session.end() == (130, "")
    assert "Interrupted before anything was started." in session.seen


def test_a_terminal_that_knows_only_ascii(tmp_path: Path) -> None:
    """The marks have ASCII forms, and an answer that cannot be written whole is written as well as it goes."""
    with scripted(
        tmp_path, triage=[submit_plan([COUNT])], execute=[[call("list_files")], finish_step("三 3", "s1.1")]
    ) as env:
        done = piped("run", "count", "--yes", env={**env, "PYTHONIOENCODING": "ascii"}, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == "? 3\n"
    assert "[x] s1 Count" in done.stderr


def test_a_budget_at_a_terminal(tmp_path: Path) -> None:
    """D03, X08: what is done, what is not, what it takes; an amount in words or a key goes on in the same step."""
    tell = {"content": "Tell the number", "done_when": ["it is told"], "tools": []}
    execute = {"s1": [[call("list_files")], COUNTED], "s2": ["Hm.", "Well.", finish_step("3 files.", "s2.result")]}
    with scripted(tmp_path, triage=[submit_plan([COUNT, tell])], execute=execute) as env:
        session = Session.start("run", "count", "--limit", "rounds=2", "--thread", "mine", env=env, cwd=tmp_path)
        session.reply("a")
        asked = session.asked()
        for part in ("has used 2 of 2 rounds", "• s1: Count", "• s2: Tell the number", "“extend” means: 2 rounds."):
            assert part in asked
        session.type("lots")
        assert "no amount that can be read" in session.reply("1 round")
        assert "has used 3 of 3 rounds" in session.reply("e")
        assert session.end() == (0, "3 files.\n")
        assert "5/5 rounds" in session.seen
        shown = piped("show", "mine", env=env, cwd=tmp_path).stdout
    assert "rounds      5 of 5" in shown
    assert "tokens in " in shown


class Held:
    """A model's reply that is given only after `go`; `asked` says that it was asked for."""

    def __init__(self, reply: Any) -> None:
        self.asked, self.go, self._reply = threading.Event(), threading.Event(), reply

    def __call__(self, *_: Any) -> Any:
        self.asked.set()
        assert self.go.wait(SECONDS)
        return self._reply


def test_what_is_typed_while_it_works_is_told_to_the_run(tmp_path: Path) -> None:
    """C02, D04, L14: a line typed during the work is heard at the next round, and an unfinished one is shown and
    dropped: neither is an answer to the question that comes."""
    held = Held([call("list_files")])

    def plan(messages: Any, _: Any) -> Any:
        assert "Count the text files, not all" in messages[-1].text
        return submit_plan([COUNT])

    with scripted(tmp_path, triage=[held, plan], execute=[[call("list_files")], COUNTED]) as env:
        session = Session.start("run", "count", env=env, cwd=tmp_path)
        assert held.asked.wait(SECONDS)
        session.press(b"Count the text filez")
        session.press(b"\x7fs, not all\n")
        session.expect("Sent, heard at the next round: Count the text files, not all")
        session.press(b"a")
        session.expect("> a")
        held.go.set()
        shown = session.asked()
        assert "> Count the text files, not all  (Heard.)" in shown
        assert "Not sent: a (Enter was not pressed)" in shown
        session.type("y")
        assert session.end() == (0, "3 files\n")
    assert session.raw.count("(Heard.)") == 1


def test_a_run_that_refuses_to_be_told_says_so(tmp_path: Path) -> None:
    """C02, L14: with --when-busy refuse a typed line is shown as not sent, with the reason; it answers nothing."""
    held = Held(submit_plan([COUNT]))

    with scripted(tmp_path, triage=[held], execute=[[call("list_files")], COUNTED]) as env:
        session = Session.start("run", "count", "--when-busy", "refuse", env=env, cwd=tmp_path)
        assert held.asked.wait(SECONDS)
        session.type("y")
        session.expect("Not sent: y")
        held.go.set()
        assert "1. Count the [bold]files" in session.reply("y")
        assert session.end() == (0, "3 files\n")


def test_what_is_typed_at_a_plain_terminal_answers_nothing(tmp_path: Path) -> None:
    """C02, L14: where no line can be redrawn, what is typed during the work is discarded, with a word."""
    held = Held(submit_plan([COUNT]))

    with scripted(tmp_path, triage=[held], execute=[[call("list_files")], COUNTED]) as env:
        session = Session.start("run", "count", env={**env, "TERM": "dumb"}, cwd=tmp_path)
        assert held.asked.wait(SECONDS)
        session.type("y")
        held.go.set()
        shown = session.expect("[l] later")
        assert "What was typed while it worked was not read." in shown
        assert '--steer "…"' in shown
        session.type("y")
        assert session.end() == (0, "3 files\n")
