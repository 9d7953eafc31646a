"""Asked to stop, a run stops at a clean point and keeps everything; resumed, it goes on and repeats no call."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from agent.testing import call, finish_step, submit_plan
from tests.shell import Shell, scripted, user_in

READ = {"content": "Read what comes", "done_when": ["it is read"], "tools": ["run_command"]}
ROUNDS = [call("run_command", command=["cat", "pipe"]), finish_step("read", ("s1.1", "some words"))]
SIGNALS = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
AT_WORK = ("--yes", "--allow-command", "cat", "--thread", "mine")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return user_in(tmp_path)


@contextmanager
def stopped(folder: Path, number: int, *, times: int = 1, said: str = "") -> Iterator[None]:
    """While a command runs in here: signals as soon as its tool reads from a pipe, which then says something."""
    os.mkfifo(folder / "pipe")
    ended = threading.Event()

    def stop() -> None:
        with (folder / "pipe").open("w") as pipe:  # returns when there is a reader
            for _ in range(times):
                os.kill(os.getpid(), number)
                ended.wait(0 if said else 0.1)  # signals that come at once are one
            if not said:
                ended.wait()
            pipe.write(said)

    thread = threading.Thread(target=stop)
    thread.start()
    yield
    ended.set()
    thread.join()


@SIGNALS
def test_a_tool_at_work_may_end(shell: Shell, number: int, code: int) -> None:
    """C06, R02, R03: its effect is recorded, nothing new starts; resumed, the call is not made again."""
    with scripted(shell, triage=[submit_plan([READ])], execute=ROUNDS, deliver=["Read."]):
        with stopped(shell.work, number, said="some words"):
            done = shell.run(*AT_WORK)
        assert done.exit_code == code
        assert "Stopping when the call at work has ended" in done.stderr
        assert "Go on with: donewhen resume mine" in done.stderr
        gone_on = shell("resume", "mine")
    assert (gone_on.exit_code, gone_on.stdout) == (0, "Read.\n")


@SIGNALS
def test_asked_twice_it_waits_for_nothing(shell: Shell, number: int, code: int) -> None:
    """C06, R03: the call is cut off; whether it happened only a person can say, and it is not made again."""
    with scripted(shell, triage=[submit_plan([READ])], execute=ROUNDS[:1]):
        with stopped(shell.work, number, times=2):
            started = monotonic()
            assert shell.run(*AT_WORK).exit_code == code
            assert monotonic() - started < 5
        asked = shell("resume", "mine")
    assert asked.exit_code == 3
    assert "Did it happen?" in asked.stderr
