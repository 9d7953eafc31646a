"""`donewhen undo THREAD`: what a run changed comes back, in a process that has neither its model nor its folder."""

from pathlib import Path

from donewhen.testing import call, finish_step, submit_plan
from tests.kit.screens.shell import Exit, Shell, one_object, scripted
from tests.kit.screens.terminal import Session, environment

WRITE = {"content": "Change the files", "done_when": ["they are changed"], "tools": ["write_file", "move_file"]}
CHANGES = [
    call("write_file", path="a.txt", content="new"),
    call("move_file", source="b.txt", destination="sub/b.txt"),
    finish_step("Changed.", "s1.1"),
]


def changed(shell: Shell) -> str:
    """Return the thread of a run that changed two files."""
    with scripted(shell, triage=[submit_plan([WRITE])], execute=CHANGES):
        result = shell.run("--yes", "--json", "--verification", "grounded")
    shell.model = {}
    return str(one_object(result)["thread_id"])


def test_undo_at_the_terminal(shell: Shell) -> None:
    """0071, Q30: a dry run changes nothing; then what became of each change is named; `show` says it was undone.

    Without an id it is about the latest run, which is named.
    """
    thread = changed(shell)
    looked = shell("undo", "--dry-run")
    assert looked.exit_code == Exit.COMPLETED, looked.stderr
    assert looked.stderr == f"Thread {thread[:8]}: count the files\n"
    assert "would return  s1.2  sub/b.txt → b.txt" in looked.stdout
    assert (shell.work / "sub" / "b.txt").exists()
    done = shell("undo", thread[:8])
    assert done.exit_code == Exit.COMPLETED, done.stderr
    assert done.stdout.splitlines() == ["put back      s1.2  sub/b.txt → b.txt", "put back      s1.1  a.txt"]
    assert sorted(each.name for each in shell.work.iterdir()) == ["a.txt", "b.txt", "c.txt"]
    assert (shell.work / "a.txt").read_text() == "a.txt"
    assert "Put back after the run: b.txt, a.txt" in shell("show", thread).stdout
    again = shell("undo", thread)
    assert again.exit_code == Exit.COMPLETED
    assert again.stdout.count("nothing to do") == 2


def test_undo_is_refused_in_the_words_of_its_siblings(shell: Shell) -> None:
    """0071: 1 for a file that changed since, 2 for an unknown step or thread, 3 for a run that waits; no error names a
    call of Python."""
    thread = changed(shell)
    (shell.work / "a.txt").write_text("mine")
    refused = shell("undo", thread, "--json")
    assert refused.exit_code == Exit.FAILED
    said = one_object(refused)
    assert (said["status"], said["thread_id"]) == ("refused", thread)
    assert {row["path"]: row["result"] for row in said["changes"]} == {"b.txt": "left", "a.txt": "refused"}
    assert (shell.work / "sub" / "b.txt").exists()
    part = shell("undo", thread, "--step", "s1.2")
    assert part.exit_code == Exit.COMPLETED, part.stderr
    assert (shell.work / "b.txt").exists()
    assert shell("undo", thread, "--step", "s7").exit_code == Exit.USAGE
    assert shell("undo", "nobody").exit_code == Exit.USAGE
    assert shell("run", "how many files are there?", "--dir", str(shell.work)).exit_code == Exit.WAITING
    waits = shell("undo", shell.waiting(), "--json")
    assert waits.exit_code == Exit.WAITING
    assert one_object(waits)["error"]["kind"] == "ThreadWaiting"
    for error in (waits.stderr, shell("tell", shell.waiting(), "hi").stderr, shell("tell", thread, "hi").stderr):
        assert "donewhen show" in error
        assert "(" not in error.replace("(confirm.", "").replace("(completed)", ""), error


def test_an_undo_names_the_later_change_that_is_in_its_way(shell: Shell) -> None:
    """0071: of the run's own changes of a file, the later one comes first; after a person's edit it says what to do."""
    steps = [{**WRITE, "content": each, "tools": ["write_file"]} for each in ("Write", "Write again")]
    execute = {
        id: [call("write_file", path="a.txt", content=id), finish_step("Changed.", f"{id}.1")] for id in ("s1", "s2")
    }
    with scripted(shell, triage=[submit_plan(steps)], execute=execute, deliver=["Changed."]):
        thread = str(one_object(shell.run("--yes", "--json", "--verification", "grounded"))["thread_id"])
    refused = shell("undo", thread, "--step", "s1")
    assert refused.exit_code == Exit.FAILED
    assert "REFUSED       s1.1  a.txt: s2.1 changed it later; undo that first" in refused.stdout
    assert shell("undo", thread, "--step", "s2").exit_code == Exit.COMPLETED
    (shell.work / "a.txt").write_text("mine")
    refused = shell("undo", thread, "--step", "s1")
    assert "a.txt changed since" in refused.stdout
    assert "Take back what was changed since, and undo again, or keep the file." in refused.stdout
    (shell.work / "a.txt").write_text("s1")
    assert shell("undo", thread, "--step", "s1").exit_code == Exit.COMPLETED
    assert (shell.work / "a.txt").read_text() == "a.txt"


def test_only_a_thread_that_is_meant_is_undone_or_answered(shell: Shell, tmp_path: Path) -> None:
    """0071, Q30: an unset variable as THREAD is no thread. At a terminal the latest is named first; elsewhere, and
    for an empty name, nothing is done.
    """
    thread = changed(shell)
    now = (shell.work / "a.txt").read_text()
    for words in (["undo"], ["undo", ""], ["undo", "--json"]):
        assert shell(*words).exit_code == Exit.USAGE, words
    assert f"the latest is {thread}" in shell("undo").stderr
    assert shell("run", "how many files are there?", "--dir", str(shell.work)).exit_code == Exit.WAITING
    waiting = shell.waiting()
    for answer in (["--approve"], ["--cancel"], ["--answer", "yes"], ["--steer", "less"], ["--yes"]):
        refused = shell("resume", *answer)
        assert (refused.exit_code, f"the latest is {waiting}" in refused.stderr) == (Exit.USAGE, True), answer
    assert shell.waiting() == waiting
    assert shell("resume", waiting, "--cancel").exit_code == Exit.FAILED
    assert shell("delete", waiting, "--yes").exit_code == Exit.COMPLETED
    for key, code, text in (("n", 1, now), ("y", 0, "a.txt")):
        session = Session.start("undo", env=environment(tmp_path), cwd=tmp_path)
        assert f"Thread {thread[:8]}: count the files" in session.reply(key)
        assert session.end()[0] == code
        assert (shell.work / "a.txt").read_text() == text
