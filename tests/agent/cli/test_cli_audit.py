"""`donewhen audit THREAD`: a judge doubts a finished run, in whatever process and by whichever model."""

from pathlib import Path
from typing import Any

from donewhen import Agent, wait
from donewhen.testing import ScriptedModel, audit, call, finish_step, submit_plan
from tests.kit.screens.shell import Exit, Shell, one_object, scripted

COUNT = {"content": "Count the files", "done_when": ["there is a count"], "tools": ["list_files"]}
SAID = "There are 3 files. All of them are mine."
COUNTING = [call("list_files"), finish_step(SAID, "s1.1")]
DOUBT = audit((2, "no", "nobody looked at whose they are"), count=2)


def counted(shell: Shell, *words: str) -> str:
    """The thread of a run that counts files, and was not audited."""
    with scripted(shell, triage=[submit_plan([COUNT])], execute=COUNTING):
        result = shell.run("--confirm", "never", "--verification", "grounded", "--json", *words)
        assert result.exit_code == Exit.COMPLETED, result.stderr
        return str(one_object(result)["thread_id"])


def test_a_run_is_audited_later(shell: Shell) -> None:
    """V07, D07, N08: the doubted sentence stands below the answer, the exit code says partial, `show` has it all."""
    thread = counted(shell)
    with scripted(shell, judge=[DOUBT]):
        result = shell("audit", thread[:8])
    assert result.exit_code == Exit.PARTIAL, result.stderr
    assert result.stdout.startswith(SAID)
    assert "nobody looked at whose they are" in result.stdout
    assert "audited: 1 of 2 sentences shown" in result.stderr
    shown = shell("show", thread).stdout
    assert "nobody looked at whose they are" in shown
    with scripted(shell, judge=[audit(count=2)]):
        again = shell("audit", thread, "--json")
    assert again.exit_code == Exit.COMPLETED
    ended = one_object(again)
    assert (ended["status"], ended["answer"], ended["outcome"]["missing"]) == ("completed", SAID, [])


def test_the_judge_is_named(shell: Shell) -> None:
    """V07: `--judge` is for this audit; where it cannot judge, all stays as it was, and that is said."""
    thread = counted(shell)
    with scripted(shell, judge=[]):
        result = shell("audit", thread, "--judge", "demo")
    assert result.exit_code == Exit.COMPLETED, result.stderr
    assert result.stdout == f"{SAID}\n"
    assert "cannot judge" in result.stderr
    shell.model = {}
    wrong = shell("audit", thread, "--judge", "nobody:knows")
    assert (wrong.exit_code, "nobody" in wrong.stderr) == (Exit.USAGE, True)


def test_what_waits_is_not_audited(shell: Shell) -> None:
    """V07: neither is a thread that there is not."""
    with scripted(shell, triage=[submit_plan([COUNT])]):
        shell.run()
    result = shell("audit", shell.waiting())
    assert result.exit_code not in (Exit.COMPLETED, Exit.PARTIAL)
    assert "not finished" in result.stderr or "waits for an answer" in result.stderr
    assert shell("audit", "nothing").exit_code == Exit.USAGE


def test_a_run_of_other_code_is_audited_by_what_it_observed(shell: Shell, tmp_path: Path) -> None:
    """V08: without its tools the judge has all that was seen."""

    def look() -> str:
        """Look."""
        return "3 files"

    plan = submit_plan([{**COUNT, "tools": ["look"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": [call("look"), finish_step(SAID, "s1.1")]})
    settings: Any = {"confirm": "never", "verification": "grounded"}
    agent = Agent(model, [look], effects={"look": "read"}, storage=tmp_path / "runs.db", settings=settings)
    wait(agent.start("count the files", thread_id="by-code"))
    with scripted(shell, judge=[DOUBT]):
        shell.model["DONEWHEN_MODEL"] = "openai:gpt-x"
        result = shell("audit", "by-code", "--storage", str(tmp_path / "runs.db"))
    assert result.exit_code == Exit.PARTIAL, result.stderr
