"""Undo: what the file tools changed comes back, from another process, once, and never over somebody else's work."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from donewhen import Agent, ConfigError, Settings, StorageError, ThreadBusy, ThreadWaiting, UnknownThread
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.agent.workspace.undo import undo_change
from donewhen.graph.tools.changes import read_changes
from donewhen.hooks import Hooks
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.forking import forks
from tests.kit.runs import asking, last_seen, scripted, sending, step
from tests.kit.storage.cases import DATABASES, Storage, fresh_url, open_storage

ALONE = Settings(confirm="never", approvals="never")
WRITERS = ["write_file", "append_file", "edit_file", "move_file", "copy_file", "delete_file"]
KEY = bytes(range(32))


def tree(folder: Path) -> dict[str, Any]:
    """Return all files with their bytes, and all folders."""
    return {str(each.relative_to(folder)): each.is_file() and each.read_bytes() for each in folder.rglob("*")}


def an_agent(model: ScriptedModel, work: Path, storage: str | Storage, **more: Any) -> Agent:
    return Agent(model, workspace_tools(work, **more), storage=storage, settings=ALONE)


def finish(messages: Any, _: Any) -> Any:
    return finish_step("done", evidence=last_seen(messages))


def by_path(report: Any) -> dict[str, str]:
    return {change.path: change.result for change in report.changes}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for the storage."""
    made = tmp_path / "state"
    made.mkdir()
    return made


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a few files."""
    folder = tmp_path / "work"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "plan.md").write_text("# Plan\n\nfirst\nsecond\n")
    (folder / "old.txt").write_bytes("ärger\r\nzwei\r\n".encode("utf-16"))
    (folder / "log.txt").write_text("one\n")
    (folder / "gone.csv").write_text("a,b\n1,2\n")
    (folder / "image.bin").write_bytes(bytes(range(256)) * 10)
    (folder / "empty.txt").touch()
    return folder


EVERYTHING = [
    call("write_file", path="reports/2026/new.md", content="made\n"),
    call("edit_file", path="reports/2026/new.md", old="made", new="made better"),
    call("write_file", path="notes/plan.md", content="replaced\n"),
    call("append_file", path="log.txt", content="two\n"),
    call("append_file", path="log.txt", content="three\n"),
    call("append_file", path="fresh/log.txt", content="begun\n"),
    call("edit_file", path="old.txt", old="zwei", new="drei"),
    call("write_file", path="empty.txt", content="no more"),
    call("delete_file", path="gone.csv"),
    call("copy_file", source="image.bin", destination="copies/image.bin"),
    call("move_file", source="image.bin", destination="moved/image.bin"),
    call("move_file", source="notes", destination="papers"),
    call("edit_file", path="papers/plan.md", old="replaced", new="replaced twice"),
    call("delete_file", path="papers"),
]


@pytest.mark.parametrize("kind", DATABASES)
async def test_everything_comes_back_in_another_process(work: Path, folder: Path, kind: str) -> None:
    """0071: written, appended, edited, made, moved, copied and deleted; folders that were made go; nothing is left."""
    before, url = tree(work), fresh_url(kind, folder)
    async with an_agent(sending(*EVERYTHING, tools=WRITERS), work, url) as agent:
        run = await agent.start("tidy up")
    assert run.status == "completed"
    assert tree(work) != before
    async with Agent("demo", storage=url) as other:  # no tools, no model, another agent
        looked = await other.undo(run.thread_id, dry_run=True)
        assert looked.dry_run
        assert tree(work) != before
        report = await other.undo(run.thread_id)
        assert [change.result for change in report.changes] == ["restored"] * len(EVERYTHING)
        assert looked.changes == report.changes
        assert report.status == "undone"
        assert report.beyond == ()
        assert tree(work) == before
        undone = await other.get(run.thread_id)
        assert undone.receipt
        assert {row["path"] for row in undone.receipt["undone"]} >= {"gone.csv", "notes", "log.txt"}
        assert "Put back after the run: papers, papers/plan.md, notes" in undone.answer
        assert undone.status == "completed"
        # Twice is harmless, also after somebody worked on.
        (work / "log.txt").write_text("mine\n")
        again = await other.undo(run.thread_id)
        assert again.status == "nothing"
        assert (work / "log.txt").read_text() == "mine\n"
        assert (await other.get(run.thread_id)).receipt == undone.receipt
        # What was kept goes with its thread.
        async with other.storage.reader() as (_, store):
            assert await read_changes(store, run.thread_id)
        await other.delete(run.thread_id)
        async with other.storage.reader() as (_, store):
            assert not await read_changes(store, run.thread_id)


async def test_an_undo_that_is_cut_off_is_told_whole_by_the_next(work: Path) -> None:
    """0071: wherever the first stopped, the receipt and the answer name all that came back, each once."""
    before, total = tree(work), 0
    for at in range(1, 10_000, 3):
        storage, crash = open_storage("memory:"), Crash(at)
        async with an_agent(sending(*EVERYTHING, tools=WRITERS), work, storage) as agent:
            run = await agent.start("tidy up")
        with suppress(StorageError):
            await Agent("demo", storage=crashing(storage, crash)).undo(run.thread_id)
        agent = Agent("demo", storage=storage)
        await agent.undo(run.thread_id)
        assert tree(work) == before, at
        undone = (await agent.get(run.thread_id)).receipt["undone"]  # type: ignore[index]
        total = total or len(undone)
        assert len(undone) == len({row["id"] for row in undone}) == total, at
        if len(crash.trace) < at:
            break
    assert at > 10


async def test_a_step_or_a_call_comes_back_alone(work: Path) -> None:
    """0071: the steps that came before keep what they did; an unknown step is named with those there are."""
    rounds: Mapping[str, Any] = {
        "s1": [call("append_file", path="log.txt", content="s1\n"), finish],
        "s2": [
            call("append_file", path="log.txt", content="s2\n"),
            call("write_file", path="empty.txt", content="s2"),
            finish,
        ],
    }
    plan = [step("s1", tools=WRITERS), step("s2", tools=WRITERS)]
    async with an_agent(scripted(submit_plan(plan), rounds), work, "memory:") as agent:
        run = await agent.start("two steps")
        with pytest.raises(
            ConfigError, match=r"no step or call 's9' in that request; there are s1, s2, s1\.1, s2\.1, s2\.2$"
        ):
            await agent.undo(run, "s9")
        with pytest.raises(ConfigError, match="requests 1 to 1"):
            await agent.undo(run, "2:s1")
        with pytest.raises(ConfigError, match="requests 1 to 1"):
            await agent.undo(run, f"{'9' * 5000}:s1")
        assert by_path(await agent.undo(run, "s2.2")) == {"empty.txt": "restored"}
        # What a later step built on cannot go before that.
        refused = await agent.undo(run, "s1")
        assert (refused.status, by_path(refused)) == ("refused", {"log.txt": "refused"})
        assert (work / "log.txt").read_text() == "one\ns1\ns2\n"
        assert by_path(await agent.undo(run, "s2")) == {"empty.txt": "unchanged", "log.txt": "restored"}
        assert (work / "log.txt").read_text() == "one\ns1\n"
        assert (await agent.undo(run, "1:s1")).status == "undone"
        assert (work / "log.txt").read_text() == "one\n"


@pytest.mark.parametrize("what", ["edited", "deleted", "link", "back", "folder"])
async def test_a_file_that_changed_since_is_left_and_nothing_else_is_touched(work: Path, what: str) -> None:
    """0071: all or nothing; the refused file is named with why, and so are those that wait for it."""
    calls = [
        call("append_file", path="log.txt", content="two\n"),
        call("write_file", path="notes/plan.md", content="replaced\n"),
        call("delete_file", path="gone.csv"),
    ]
    async with an_agent(sending(*calls, tools=WRITERS), work, "memory:") as agent:
        run = await agent.start("change things")
        path = work / "notes" / "plan.md"
        if what in ("edited", "back"):
            path.write_text("# mine\n")
        else:
            path.unlink()
        if what == "link":
            path.symlink_to(work.parent / "elsewhere.md")
        if what == "folder":
            path.mkdir()
        if what == "back":
            (work / "gone.csv").write_text("made again\n")
        now = tree(work)
        report = await agent.undo(run)
        assert report.status == "refused"
        expected = {"log.txt": "left", "notes/plan.md": "refused", "gone.csv": "left"}
        assert by_path(report) == {**expected, **({"gone.csv": "refused"} if what == "back" else {})}
        why = {change.path: change.why for change in report.changes}
        said_of = {"edited": "changed since", "back": "changed since", "deleted": "not there any more"}
        assert said_of.get(what, f"a {'symbolic link' if what == 'link' else what}") in why["notes/plan.md"]
        assert what != "back" or "gone.csv exists again" in why["gone.csv"]
        assert tree(work) == now
        assert not (work.parent / "elsewhere.md").exists()
        receipt = (await agent.get(run.thread_id)).receipt
        assert receipt
        assert "undone" not in receipt
        # Once the person has taken their change away, the rest comes back.
        if what == "edited":
            path.write_text("replaced\n")
            assert (await agent.undo(run)).status == "undone"


@pytest.mark.parametrize("owner", ["", "ann"])
async def test_who_changed_it_since_is_named(work: Path, owner: str) -> None:
    """0071: the thread of the same owner whose change has to be undone first; that of another owner is not named."""
    edits = [call("append_file", path="log.txt", content=f"{n}\n") for n in (2, 3)]
    context = {"owner": owner} if owner else {}
    async with an_agent(sending(edits[0], tools=WRITERS), work, "memory:") as agent:
        first = await agent.start("change it first", **context)
        async with an_agent(sending(edits[1], tools=WRITERS), work, agent.storage) as other:
            second = await other.start("change it again", **context)
            for dry_run in (True, False):
                [change] = (await agent.undo(first, dry_run=dry_run)).changes
                assert change.why == f"thread {second.thread_id} (change it again) changed it later; undo that first"
            assert (await other.undo(second)).status == "undone"
        async with an_agent(sending(edits[1], tools=WRITERS), work, agent.storage) as stranger:
            await stranger.start("change it again", owner="eve")
            [change] = (await agent.undo(first)).changes
            assert change.why == "log.txt changed since"


@pytest.mark.parametrize("name", ["mine.txt", ".gitignore"])
async def test_what_people_put_into_the_trash_stays(work: Path, name: str) -> None:
    """0071: the folder goes only if nothing is in it but what hides it from git; two deletions make it once."""
    calls = [call("delete_file", path="gone.csv"), call("delete_file", path="log.txt")]
    async with an_agent(sending(*calls, tools=WRITERS), work, "memory:") as agent:
        run = await agent.start("delete both")
        assert (work / ".trash" / ".gitignore").read_text() == "*\n"
        (work / ".trash" / name).write_text("mine\n")
        assert (await agent.undo(run)).status == "undone"
        assert sorted(each.name for each in (work / ".trash").iterdir()) == sorted({".gitignore", name})
        assert (work / ".trash" / name).read_text() == "mine\n"


async def test_a_trash_that_was_moved_comes_back(work: Path) -> None:
    """0071: where the trash lay before, there is room again once the later one is gone."""
    calls = [
        call("delete_file", path="gone.csv"),
        call("move_file", source=".trash", destination="kept"),
        call("delete_file", path="log.txt"),
    ]
    before = tree(work)
    async with an_agent(sending(*calls, tools=WRITERS), work, "memory:") as agent:
        run = await agent.start("delete and move")
        assert {each.result for each in (await agent.undo(run)).changes} == {"restored"}
        assert tree(work) == before


async def test_links_lead_nowhere(work: Path) -> None:
    """0071: a folder that became a link is not followed, by content that is equal neither; a hard link made since
    keeps what the run wrote.
    """
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "plan.md").write_text("replaced\n")
    calls = [
        call("write_file", path="notes/plan.md", content="replaced\n"),
        call("write_file", path="log.txt", content="new\n"),
    ]
    async with an_agent(sending(*calls, tools=WRITERS), work, "memory:") as agent:
        run = await agent.start("change it")
        (work / "notes").rename(work / "kept")
        (work / "notes").symlink_to(outside)
        os.link(work / "log.txt", work.parent / "other")
        assert by_path(await agent.undo(run, "s1.1")) == {"notes/plan.md": "refused"}
        assert (outside / "plan.md").read_text() == "replaced\n"
        assert (await agent.undo(run, "s1.2")).status == "undone"
        assert (work / "log.txt").read_text() == "one\n"
        assert (work.parent / "other").read_text() == "new\n"


@pytest.mark.parametrize("name", ["around/work", "around"])
async def test_a_root_that_became_a_link_is_not_undone(work: Path, name: str) -> None:
    """Q110: it, or a folder around it, leads to a copy of the same content; neither of two changes is undone."""
    (around := work.parent / "around").mkdir()
    shutil.move(work, around)
    work = around / "work"
    calls = [
        call("write_file", path="notes/plan.md", content="replaced\n"),
        call("write_file", path="log.txt", content="new\n"),
    ]
    async with an_agent(sending(*calls, tools=WRITERS), work, "memory:") as agent:
        run = await agent.start("change it")
        link = around.parent / name
        link.rename(away := around.parent / "away")
        link.symlink_to(away)
        before = tree(work)
        report = await agent.undo(run)
        assert by_path(report) == {"notes/plan.md": "refused", "log.txt": "refused"}
        assert [f"leads to {away}" in change.why for change in report.changes] == [True, True]
        assert tree(work) == before


async def test_commands_and_other_tools_are_named(work: Path) -> None:
    """0071: what a program or an own tool did is not undone, and the report says so."""

    def publish(text: str) -> str:
        """Publish a text."""
        return f"published {text}"

    calls = [
        call("run_command", command=["touch", "made.txt"]),
        call("publish", text="hello"),
        call("append_file", path="log.txt", content="two\n"),
    ]
    tools = [*workspace_tools(work, commands=["touch made.txt"]), publish]
    model = sending(*calls, tools=[*WRITERS, "run_command", "publish"])
    async with Agent(model, tools, storage="memory:", settings=ALONE, effects={"publish": "write"}) as agent:
        run = await agent.start("change things")
        report = await agent.undo(run)
        assert [(row["id"], row["tool"]) for row in report.beyond] == [("s1.1", "run_command"), ("s1.2", "publish")]
        assert by_path(report) == {"log.txt": "restored"}
        assert (work / "made.txt").exists()


async def test_what_an_agent_inside_changed_is_of_the_handoff(work: Path) -> None:
    """0071: a graph as executor that uses the file tools, in async and in plain nodes; what else it did is unknown."""
    tools = {tool.name: tool for tool in workspace_tools(work)}

    async def one(_: Any) -> dict[str, Any]:
        await tools["write_file"].ainvoke({"path": "log.txt", "content": "new\n"})
        return {}

    def other(_: Any) -> dict[str, Any]:
        tools["delete_file"].invoke({"path": "gone.csv"})
        return {"messages": [AIMessage("Both are done.")]}

    graph = StateGraph(MessagesState).add_node("one", one).add_node("other", other)
    writer = graph.add_edge(START, "one").add_edge("one", "other").compile(name="writer")
    before, plan = tree(work), [{"content": "Write", "done_when": ["written"], "executor": "writer"}]
    model = scripted(submit_plan(plan), {"s1": [finish]})
    async with Agent(model, executors={"writer": writer}, storage="memory:", settings=ALONE) as agent:
        run = await agent.start("change things")
        report = await agent.undo(run, "s1")
        assert by_path(report) == {"gone.csv": "restored", "log.txt": "restored"}
        assert [(row["id"], row["tool"]) for row in report.beyond] == [("s1.1", "writer")]
        assert tree(work) == before


async def test_what_is_too_large_is_said_and_stops_nothing_else(work: Path) -> None:
    """0071: a change that replaces more than 5 MB is made all the same; undo names it, and puts back the others."""
    (work / "big.txt").write_bytes(os.urandom(3_500_000).hex().encode())
    calls = [
        call("append_file", path="big.txt", content="small\n"),
        call("write_file", path="big.txt", content="small\n"),
        call("append_file", path="big.txt", content="more\n"),
        call("append_file", path="log.txt", content="two\n"),
    ]
    async with an_agent(sending(*calls, tools=WRITERS), work, "memory:") as agent:
        run = await agent.start("change things")
        report = await agent.undo(run)
        assert [change.result for change in report.changes] == ["restored", "restored", "lost", "lost"]
        assert "too large" in report.changes[2].why
        assert (work / "big.txt").read_text() == "small\n"
        assert (work / "log.txt").read_text() == "one\n"


async def test_edits_of_a_large_file_keep_little(work: Path, folder: Path) -> None:
    """0071: an entry holds what was replaced, not the file: 20 edits of 1 MB cost under 1 KB each."""
    lines = [f"line {number:05} {'x' * 80}\n" for number in range(10_000)]
    (work / "data.txt").write_text("".join(lines))
    edits = [call("edit_file", path="data.txt", old=f"line {n:05} ", new=f"LINE {n:05} ") for n in range(0, 2000, 100)]
    url = f"sqlite:///{folder}/runs.db"
    async with an_agent(sending(*edits, tools=WRITERS), work, url) as agent:
        run = await agent.start("edit it", settings={"limits": {"rounds": 100}})
        rows = sqlite3.connect(folder / "runs.db").execute("SELECT value FROM store WHERE prefix LIKE '%changes%'")
        kept = [len(value) for (value,) in rows]
        assert len(kept) == len(edits)
        assert max(kept) < 1000
        assert (await agent.undo(run)).status == "undone"
        assert (work / "data.txt").read_text() == "".join(lines)


@pytest.mark.parametrize("key", [None, KEY])
async def test_a_credential_is_kept_only_under_a_key(work: Path, folder: Path, key: bytes | None) -> None:
    """0071, 0007: without a key, what was replaced in a file of secrets is not stored, and undo says why."""
    secret = "sk-proj-" + "Zq7" * 16
    (work / ".env").write_text(f"NAME=app\nOPENAI_API_KEY={secret}\n")
    calls = [
        call("write_file", path=".env", content="NAME=other\n"),
        call("append_file", path="log.txt", content="two\n"),
    ]
    storage = open_storage(f"sqlite:///{folder}/runs.db", key=key)
    async with an_agent(sending(*calls, tools=WRITERS), work, storage) as agent:
        run = await agent.start("change it")
        report = await agent.undo(run)
    (of_secret,) = [change for change in report.changes if change.path == ".env"]
    assert (work / "log.txt").read_text() == "one\n"
    if key:
        assert of_secret.result == "restored"
        assert secret in (work / ".env").read_text()
    else:
        assert of_secret.result == "lost"
        assert "not encrypted" in of_secret.why
    await storage.aclose()
    assert not any(secret.encode() in (content or b"") for content in tree(folder).values())


async def test_a_run_that_has_not_ended_is_not_undone(work: Path) -> None:
    """0071: it counts on what it did; a thread that waits, works or does not exist is refused by name."""
    async with an_agent(asking(), work, "memory:") as agent:
        run = await agent.start("ask me")
        with pytest.raises(
            ThreadWaiting, match=r"waits for an answer.*\. Nothing can be undone before it ends: `donewhen cancel`"
        ):
            await agent.undo(run)
        async with agent.storage.session(run.thread_id):
            with pytest.raises(ThreadBusy):
                await agent.undo(run)
        with pytest.raises(UnknownThread):
            await agent.undo("nobody")
        await agent.cancel(run.thread_id)
        assert (await agent.undo(run)).status == "nothing"


async def test_the_last_request_is_undone_and_earlier_ones_by_number(work: Path) -> None:
    """0071: a conversation goes back a request at a time, and only as far as it is told."""

    def request(id: str) -> list[Any]:
        return [call("append_file", path="log.txt", content=f"{id}\n")]

    model = scripted(
        [submit_plan([step("s1", tools=WRITERS)]), submit_plan([step("s1", tools=WRITERS)])],
        {"s1": [*request("a"), finish, *request("b"), finish]},
    )
    async with an_agent(model, work, "memory:") as agent:
        run = await agent.start("first", thread_id="t")
        run = await agent.start("second", thread_id="t")
        last = await agent.undo(run)
        assert (by_path(last), last.earlier) == ({"log.txt": "restored"}, "1:")
        again = await agent.undo(run)
        assert (again.status, again.earlier) == ("nothing", "1:")
        assert (work / "log.txt").read_text() == "one\na\n"
        earlier = await agent.undo(run, again.earlier)
        assert earlier.earlier == ""
        assert [change.id for change in earlier.changes] == ["1:s1.1"]
        assert (work / "log.txt").read_text() == "one\n"


NAMES = st.sampled_from(["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/f", "g/h"])
TEXTS = st.text("abä\n\r", max_size=6)
CALLS = st.one_of(
    st.builds(lambda path, content: call("write_file", path=path, content=content), NAMES, TEXTS),
    st.builds(lambda path, content: call("append_file", path=path, content=content), NAMES, TEXTS),
    st.builds(lambda path, old, new: call("edit_file", path=path, old=old, new=new), NAMES, st.just("a"), TEXTS),
    st.builds(lambda a, b: call("move_file", source=a, destination=b), NAMES, NAMES),
    st.builds(lambda a, b: call("copy_file", source=a, destination=b), NAMES, NAMES),
    st.builds(lambda path: call("delete_file", path=path), NAMES),
)


@given(st.lists(CALLS, min_size=5, max_size=14), st.booleans())
@settings(max_examples=settings().max_examples // 4)
def test_whatever_was_called_comes_back(calls: list[Any], cut: bool) -> None:
    """0071: any calls, refused ones among them, on files and folders that earlier ones left; byte by byte, and also
    where an undo was cut off in between and is begun again.
    """

    async def undo_all(work: Path) -> None:
        for name in ("a", "d/a", "d/e/f"):
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(f"this is {name}\n")
        before = tree(work)
        model = scripted(submit_plan([step("s1", tools=WRITERS)]), {"s1": [calls, finish]})
        async with an_agent(model, work, "memory:") as agent:
            await agent.start("change things", thread_id="t")
            async with agent.storage.reader() as (_, store):
                entries = await read_changes(store, "t")
            if cut and entries:
                assert undo_change(entries[0][1]) == ("restored", "")  # and died before it was marked
            report = await agent.undo("t")
            assert {change.result for change in report.changes} <= {"restored", "unchanged"}, report
            assert tree(work) == before

    with TemporaryDirectory() as folder:
        asyncio.run(undo_all(Path(folder)))


def change_and_die(work: Path, url: str) -> None:
    """Write a file, and be killed before anybody knows that it was written."""

    def die(_: Any) -> None:
        os._exit(9)

    model = sending(call("write_file", path="log.txt", content="two\n"), tools=WRITERS)
    agent = Agent(model, workspace_tools(work), storage=url, settings=ALONE, hooks=Hooks(after_call=[die]))
    asyncio.run(agent.start("change it", thread_id="t"))


@pytest.mark.parametrize("ending", ["cancel", "resume"])
async def test_a_run_killed_right_after_its_change_can_be_undone(work: Path, folder: Path, ending: str) -> None:
    """0071, R02: what was there is stored before the change, and a repetition of the call does not replace it."""
    url = f"sqlite:///{folder}/runs.db"
    killed = forks.Process(target=change_and_die, args=(work, url))
    killed.start()
    await asyncio.to_thread(killed.join)
    assert killed.exitcode == 9
    assert (work / "log.txt").read_text() == "two\n"
    model = ScriptedModel(roles={"execute": {"s1": [finish]}, "deliver": lambda *_: "Done."}, strict=False)
    async with an_agent(model, work, url) as agent:
        with pytest.raises(ThreadWaiting, match="is not finished"):
            await agent.undo("t")
        await (agent.cancel("t") if ending == "cancel" else agent.resume("t"))
        assert (work / "log.txt").read_text() == "two\n"
        assert (await agent.undo("t")).status == "undone"
        assert (work / "log.txt").read_text() == "one\n"


async def test_a_call_that_changed_nothing_is_no_change(work: Path) -> None:
    """0071: the same content written again, and calls that were refused, leave no entry that could stop an undo."""
    calls = [
        call("write_file", path="log.txt", content="one\n"),
        call("move_file", source="log.txt", destination="empty.txt"),
        call("copy_file", source="log.txt", destination="empty.txt"),
        call("write_file", path=".git/hooks/x", content="no"),
        call("append_file", path="log.txt", content="two\n"),
    ]
    async with an_agent(sending(*calls, tools=WRITERS), work, "memory:") as agent:
        run = await agent.start("change things")
        report = await agent.undo(run)
        assert by_path(report) == {"log.txt": "restored"}
        assert (work / "log.txt").read_text() == "one\n"
