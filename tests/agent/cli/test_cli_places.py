"""Where the command is run: on full disks, in odd terminals, without a home, beside code with tools of its own."""

import asyncio
import json
import os
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from donewhen import Agent, AgentOptions
from donewhen.testing import ScriptedModel, answer, ask_user
from tests.kit.forking import CommandProcess
from tests.kit.painting import Painting
from tests.kit.screens.shell import Exit, Shell
from tests.kit.screens.terminal import SECONDS, environment, piped


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """C4: no traceback, with --json neither."""
    with open("/dev/full", "w") as full, open(os.devnull) as nothing, open(tmp_path / "said", "w+") as said:
        files = {"stdin": nothing.fileno(), "stdout": full.fileno(), "stderr": said.fileno()}
        command = CommandProcess("threads", "--json", env=environment(tmp_path), cwd=tmp_path, **files)
        assert command.wait(SECONDS) == 1
        said.seek(0)
        assert said.read() == "donewhen: the output cannot be written: the disk is full\n"


def test_a_width_that_nobody_knows_hides_nothing(shell: Shell) -> None:
    """C5: containers say COLUMNS=0."""
    assert "completed" in shell.run("--yes", COLUMNS="0").stderr


def test_what_a_run_tells_is_told_once(tmp_path: Path) -> None:
    """C2: what is shown does not stand on stderr again as a line of the log."""
    (tmp_path / "no").touch()
    goal = "count the files, then write a report to no/report.md"
    ended = piped("run", goal, "--yes", env=environment(tmp_path), cwd=tmp_path)
    assert ended.stderr.count("A step failed; looking for another way.") == 1, ended.stderr


def test_threads_of_other_code_are_answered_and_left_to_its_workers(shell: Shell, tmp_path: Path) -> None:
    """O2, O8: the command says who has to carry them on, and leaves an answer to those."""
    url = f"sqlite:///{tmp_path}/runs.db"
    roles = {"triage": [ask_user("Which month?"), answer("May.")]}

    async def submit() -> None:
        async with Agent(ScriptedModel(roles=roles), storage=url) as agent:
            await agent.submit("report", thread_id="mine")

    async def work() -> str:
        async with Agent(model, storage=url) as agent:
            return (await agent.run_submitted("mine")).status

    asyncio.run(submit())
    status = shell("status", "--storage", url)
    assert "No worker serves 'agents'" in status.stderr
    assert json.loads(shell("status", "--storage", url, "--json").stdout)["queues"] == {"agents": 1}
    with ScriptedModel(roles=roles) as model:
        assert asyncio.run(work()) == "waiting"
        assert "No worker serves" not in shell("status", "--storage", url).stderr
        unanswered = shell("resume", "mine", "--storage", url)
        assert (unanswered.exit_code, "workers of 'agents'" in unanswered.stderr) == (Exit.USAGE, True)
        assert shell("resume", "mine", "--answer", "May", "--storage", url).stdout == "mine\n"
        assert asyncio.run(work()) == "answered"


async def test_an_answer_is_left_to_the_worker_that_works_on_another(shell: Shell, tmp_path: Path) -> None:
    """M11, C07: the command leaves it, as it would with --detach, instead of saying that the thread is busy."""
    url, painting = f"sqlite:///{tmp_path}/runs.db", Painting()
    async with painting.agent(url, options=AgentOptions(queue="command")) as agent:
        await agent.submit("hang the picture", thread_id="mine")
        await agent.run_submitted("mine")
        await agent.submit_answer("mine", {"s1.q1": "blue"})
        leg = asyncio.create_task(agent.run_submitted("mine"))
        await painting.begun.wait()
        left = await asyncio.to_thread(shell, "resume", "mine", "--answer", "oak", "--storage", url)
        assert (left.exit_code, left.stdout) == (Exit.COMPLETED, "mine\n"), left.stderr
        painting.go_on.set()
        assert (await leg).status == "queued"
        painting.assert_done(await agent.run_submitted("mine"))


def test_times_are_those_of_the_clock_here(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """F3: people see their own time, programs see UTC with its offset."""
    shell.run("--yes")
    (thread,) = json.loads(shell("threads", "--json").stdout)["threads"]
    moment = datetime.fromisoformat(thread["updated"])
    assert moment.utcoffset() == timedelta()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        shown = shell("threads").stdout
    time.tzset()
    assert f"{moment + timedelta(hours=9):%Y-%m-%d %H:%M}" in shown
