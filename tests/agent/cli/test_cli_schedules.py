"""`donewhen schedules`: a goal that recurs, from the confirming run to the verbs that people have over it."""

import asyncio
import json

import pytest

from donewhen import Agent
from donewhen.clients import moments_text
from donewhen.testing import ask_user, submit_plan
from tests.kit.screens.shell import Exit, Shell, scripted

PLAN = submit_plan(
    [{"content": "count the files", "tools": []}],
    schedule={"at": "08:30", "weekdays": "mon-fri", "timezone": "Asia/Tokyo"},
)


def test_a_goal_that_recurs(shell: Shell) -> None:
    """P18, M2: the plan is shown with its next times, the command says what must run, and people are its masters."""
    with scripted(shell, triage=[PLAN]) as model:
        asked = shell.run("--timezone", "Asia/Tokyo")
        assert asked.exit_code == Exit.WAITING
        for said in ("Mon, Tue, Wed, Thu, Fri at 08:30 (Asia/Tokyo)", "Next runs", "08:30 +09:00", "every later run"):
            assert said in asked.stderr
        done = shell("resume", shell.waiting(), "--approve")
        assert (done.exit_code, "`donewhen worker`" in done.stderr) == (Exit.COMPLETED, True)
        assert done.stdout.rstrip().endswith("Nothing has run yet."), "an answer may go to people who run no workers"
        assert "(Asia/Tokyo)" in model.requests[0].text
    (one,) = json.loads(shell("schedules", "list", "--json").stdout)["schedules"]
    assert (one["status"], len(one["next_runs"]), one["queue"]) == ("active", 3, "command")
    assert one["id"] in shell("schedules", "list").stdout
    assert "1. count the files" in shell("schedules", "show", one["id"]).stdout
    assert "paused" in shell("schedules", "pause", one["id"][:4]).stdout
    assert "active" in shell("schedules", "resume", one["id"]).stdout
    thread = shell("schedules", "run", one["id"]).stdout.strip()
    assert thread.startswith(one["id"])
    assert shell("schedules", "run", one["id"]).exit_code == Exit.USAGE
    assert json.loads(shell("threads", "--status", "queued", "--json").stdout)["threads"][0]["thread_id"] == thread
    ran = json.loads(shell("schedules", "show", one["id"], "--json").stdout)["schedule"]["last"]["at"]
    assert ran.endswith("+09:00")
    assert "(This is the run of" in json.loads(shell("show", thread, "--json").stdout)["goal"]
    assert shell("cancel", thread).stdout == "cancelled\n"
    for shown in (shell("schedules", "list"), shell("schedules", "show", one["id"])):
        assert f"in thread {thread}: cancelled" in shown.stdout
    assert "count the files" in (listed := shell("threads", "--prefix", one["id"]).stdout)
    assert "This is the run" not in listed
    assert f"{moments_text([ran])} in thread {thread}" in shell("schedules", "show", one["id"]).stdout
    shell("schedules", "pause", one["id"])
    again = shell("schedules", "run", one["id"])
    assert (again.exit_code, "is paused" in again.stderr) == (Exit.COMPLETED, True)
    deleted = shell("schedules", "delete", one["id"][:4])
    assert (deleted.exit_code, deleted.stdout.startswith(f"deleted {one['id']}: ")) == (Exit.COMPLETED, True)
    assert shell("schedules", "show", one["id"]).exit_code == Exit.USAGE
    assert "there is no schedule 'nothing'" in shell("schedules", "delete", "nothing").stderr


def test_a_zone_that_is_none_is_said(shell: Shell) -> None:
    """P18: ✗ no zone is guessed, and none is taken that there is not."""
    refused = shell.run("--timezone", "Berlin")
    assert (refused.exit_code, "not a time zone" in refused.stderr) == (Exit.USAGE, True)


def test_a_schedule_is_changed_by_its_id(shell: Shell) -> None:
    """P18: times, model, owner and limits without a new plan; the next times, and who changed what, are shown."""
    with scripted(shell, triage=[PLAN]):
        shell.run("--timezone", "Asia/Tokyo")
        shell("resume", shell.waiting(), "--approve", "--by", "mira")
    (one,) = json.loads(shell("schedules", "list", "--json").stdout)["schedules"]
    words = ("--at", "09:15", "--model", "openai:other", "--owner", "bob", "--limit", "cost_usd=0.5", "--by", "ben")
    changed = shell("schedules", "change", one["id"][:4], *words)
    assert changed.exit_code == Exit.COMPLETED, changed.stderr
    for said in ("at 09:15 (Asia/Tokyo)", "09:15 +09:00", "openai:other", "bob", "cost_usd 0.5", "by ben", "by mira"):
        assert said in changed.stdout
    assert f"folder     {shell.work}" in changed.stdout
    (kept,) = json.loads(shell("schedules", "list", "--json").stdout)["schedules"]
    assert (kept["id"], kept["metadata"]["model"], kept["settings"]["limits"]["cost_usd"]) == (
        one["id"],
        "openai:other",
        0.5,
    )
    refused = shell("schedules", "change", one["id"], "--set", "approvals=never")
    assert (refused.exit_code, "need a new plan" in refused.stderr) == (Exit.USAGE, True)
    assert "no limit" in shell("schedules", "change", one["id"], "--limit", "x=1").stderr
    assert "+00:00" in shell("schedules", "list", DONEWHEN_TIMEZONE="UTC").stdout


def test_lists_say_why_a_run_failed_and_how_it_is_made_again(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """P18: the reason stands in each list, and `show` and `resume` name the command for that very time, by its path if
    it was called by it."""
    with scripted(shell, triage=[PLAN]):
        shell.run("--timezone", "Asia/Tokyo")
        shell("resume", shell.waiting(), "--approve")
    (one,) = json.loads(shell("schedules", "list", "--json").stdout)["schedules"]
    thread = shell("schedules", "run", one["id"]).stdout.strip()
    shell("cancel", thread)
    moment = json.loads(shell("threads", "--prefix", one["id"], "--json").stdout)["threads"][0]["metadata"]["moment"]
    for lists in (shell("schedules", "list"), shell("schedules", "show", one["id"]), shell("threads")):
        assert "cancelled" in lists.stdout
        assert "cancelled from outside" in lists.stdout.lower()
    again = f"donewhen schedules run {one['id']} --for {moment}"
    assert again in shell("show", thread).stdout
    assert again in shell("resume", thread).stderr
    with monkeypatch.context() as called:
        called.setattr("sys.argv", [str(shell.home / "bin" / "donewhen")])
        assert f"{shell.home}/bin/{again}" in shell("show", thread, PATH="").stdout
    assert "no time" in shell("schedules", "run", one["id"], "--for", "soon").stderr
    for attempt, copied in ((2, moment), (3, moments_text([moment]))):
        made = shell("schedules", "run", one["id"], "--for", copied)
        assert (made.exit_code, made.stdout) == (Exit.COMPLETED, f"{thread}-{attempt}\n")
        shell("cancel", f"{thread}-{attempt}")
    wrong = shell("threads", DONEWHEN_TIMEZONE="Berlin")
    assert (wrong.exit_code, "DONEWHEN_TIMEZONE 'Berlin'" in wrong.stderr) == (Exit.USAGE, True)


def test_a_waiting_run_holds_its_schedule_up(shell: Shell) -> None:
    """P18: a list names the thread that waits instead of times that will be skipped, in the user's time zone."""
    with scripted(shell, triage=[PLAN]):
        shell.run("--timezone", "Asia/Tokyo")
        shell("resume", shell.waiting(), "--approve")
    (one,) = json.loads(shell("schedules", "list", "--json").stdout)["schedules"]
    thread = shell("schedules", "run", one["id"]).stdout.strip()
    with scripted(shell, execute=[ask_user("Which month?")]):
        assert shell("resume", thread, "-n").exit_code == Exit.WAITING
    for shown in (shell("schedules", "list"), shell("schedules", "show", one["id"])):
        assert f"held up by thread {thread}" in shown.stdout
        assert "Which month?" in shown.stdout


def test_a_schedule_is_deleted_with_its_runs(shell: Shell) -> None:
    """P18: --runs deletes the threads of its runs, too, if somebody agrees; those of another schedule stay, as does a
    thread of which only its caller says that it is a run; nothing offers to run that one for a time again."""
    with scripted(shell, triage=[PLAN, PLAN]):
        for _ in range(2):
            shell.run("--timezone", "Asia/Tokyo")
            shell("resume", shell.waiting(), "--approve")
    one, two = json.loads(shell("schedules", "list", "--json").stdout)["schedules"]
    first, other = (shell("schedules", "run", each["id"]).stdout.strip() for each in (one, two))
    shell("cancel", first)
    mine, (runs,) = f"{one['id']}-mine", (shell.home / "state").rglob("*.db")

    async def submit() -> None:
        async with Agent("demo", storage=runs) as agent:
            await agent.submit("report", thread_id=mine, metadata={"schedule": one["id"], "moment": "2026-01-01"})
            await agent.cancel(mine)

    asyncio.run(submit())
    shown = shell("show", mine).stdout
    assert ("report" in shown, "schedules run" in shown) == (True, False)
    unasked = shell("schedules", "delete", one["id"], "--runs")
    assert (unasked.exit_code, "add --yes" in unasked.stderr) == (Exit.USAGE, True)
    deleted = shell("schedules", "delete", one["id"], "--runs", "--yes", "--json")
    assert json.loads(deleted.stdout)["runs"] == [first]
    left = [each["thread_id"] for each in json.loads(shell("threads", "--json").stdout)["threads"]]
    assert sorted(left) == sorted([one["thread_id"], two["thread_id"], other, mine])


def test_a_thread_that_only_made_a_schedule_is_no_template(shell: Shell) -> None:
    """P18: ✗ the error says that the plan was not carried out, and that one of its runs can be saved."""
    with scripted(shell, triage=[PLAN]):
        shell.run("--timezone", "Asia/Tokyo")
        shell("resume", shell.waiting(), "--approve")
    (one,) = json.loads(shell("schedules", "list", "--json").stdout)["schedules"]
    refused = shell("plans", "save", one["thread_id"], "daily")
    assert refused.exit_code == Exit.USAGE
    assert "only made a schedule: save one of its runs" in refused.stderr


def test_yes_leaves_a_schedule_to_a_person(shell: Shell) -> None:
    """P18, X15: ✗ --yes and --confirm never approve nothing that repeats; the command says so, and how to confirm."""
    with scripted(shell, triage=[PLAN, PLAN]):
        for words in (("--yes",), ("--confirm", "never")):
            asked = shell.run("--timezone", "Asia/Tokyo", *words)
            assert (asked.exit_code, "--approve" in asked.stderr) == (Exit.WAITING, True)
            assert ("--yes approves no schedule" in asked.stderr) == (words == ("--yes",))
        assert shell("schedules", "list").stdout == ""


def test_a_thread_is_deleted_with_its_schedule(shell: Shell) -> None:
    """P18: the command names the schedule that went with the thread that confirmed it; another one stays."""
    with scripted(shell, triage=[PLAN, PLAN]):
        for _ in range(2):
            shell.run("--timezone", "Asia/Tokyo")
            shell("resume", shell.waiting(), "--approve")
    one, two = json.loads(shell("schedules", "list", "--json").stdout)["schedules"]
    assert f"deleted, with its schedule {one['id']}\n" in shell("delete", one["thread_id"], "--yes").stdout
    (left,) = json.loads(shell("schedules", "list", "--json").stdout)["schedules"]
    assert left["id"] == two["id"]
    assert "0 threads deleted" in shell("prune", "--older", "0m").stdout
