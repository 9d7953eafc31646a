"""What a release stored is read by the next one; `python -m tests.kit.storage.release` writes a release's database."""

import gzip
from contextlib import suppress
from pathlib import Path

import pytest

from donewhen import Agent, StaleAnswer
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash
from donewhen.state.records import JournalEntry, StepRecord
from donewhen.testing import ScriptedModel, answer
from tests.kit.runs import Outbox, config
from tests.kit.storage.asked import CASES, answered, asked
from tests.kit.storage.cases import fresh_url
from tests.kit.storage.decided import ANSWERS, Post, opened
from tests.kit.storage.planned import CASES as PLANNED
from tests.kit.storage.planned import finished, planned
from tests.kit.storage.planned import opened as planning_agent
from tests.kit.storage.release import DATA, script
from tests.kit.storage.worked import ROUNDS, stored_rounds
from tests.kit.storage.worked import finished as finished_work

RELEASES = sorted(DATA.glob("stored-*.sqlite.gz"))
DECIDED = sorted(DATA.glob("decided-*.sqlite.gz"))
ASKED = sorted(DATA.glob("asked-*.sqlite.gz"))
IN_PLANNING = sorted(DATA.glob("planned-*.sqlite.gz"))
AT_WORK = sorted(DATA.glob("worked-*.sqlite.gz"))


def unpack(release: Path, folder: Path) -> Path:
    """Return the path of a release's database, unpacked into `folder`."""
    folder.mkdir(exist_ok=True)
    path = folder / "donewhen.sqlite"
    path.write_bytes(gzip.decompress(release.read_bytes()))
    return path


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name.removesuffix(".sqlite.gz"))
async def test_threads_of_a_release_are_read_and_continue(release: Path, tmp_path: Path) -> None:
    """R06: a release's database is listed, its ended run is read, and its waiting and queued runs end as asked."""
    path = unpack(release, tmp_path)
    outbox = Outbox()
    async with Agent(script(), [outbox.tool()], storage=f"sqlite:///{path}") as agent:
        listed = {row.thread_id: row.status for row in await agent.threads()}
        assert listed == {"plan": "waiting", "call": "waiting", "ended": "completed", "queued": "queued"}
        ended = await agent.get("ended")
        assert (ended.status, ended.answer) == ("completed", "All done.")
        assert (await agent.receipt("ended")) is not None
    for thread in ("plan", "call", "queued"):
        async with Agent(script(), [outbox.tool()], storage=f"sqlite:///{path}") as agent:
            run = await (
                agent.run_submitted(thread) if thread == "queued" else agent.resume(await agent.get(thread), "approve")
            )
            while run.status == "waiting":
                run = await agent.resume(run, "approve")
            assert run.status == "completed", thread
    assert len(outbox.sent) == 3


@pytest.mark.parametrize(
    ("thread", "sent", "texts"),
    [
        ("approved", ["ann", "bob"], ["sent to ann", "sent to bob"]),
        ("edited", ["eve", "bob"], ["sent to eve", "sent to bob"]),
        ("refused", [], ["Not run: the user rejected this call: reject: not today"] * 2),
        ("answered", ["bob"], ["Not run: the user answered instead: she knows", "sent to bob"]),
        ("known", [], ["A person confirmed that this call took effect"]),
        ("unanswered", [], ["A person confirmed that this call took effect"]),
    ],
)
@pytest.mark.parametrize("stored", DECIDED, ids=lambda path: path.name.removesuffix(".sqlite.gz"))
async def test_what_a_person_decided_about_a_call_outlives_an_update(
    stored: Path, thread: str, sent: list[str], texts: list[str], tmp_path: Path
) -> None:
    """R06, X15, X24: the process died between the answer and the call; the next version does as the person said."""
    post = Post()
    async with opened(unpack(stored, tmp_path), post) as agent:
        answer = [ANSWERS["known"]] if thread == "unanswered" else []
        run = await agent.resume(thread, *answer)
        asked = 0
        while run.status == "waiting":
            asked += 1
            run = await agent.resume(run, "approve")
        values = (await agent.graph.aget_state(config(thread))).values
    assert (post.sent, asked) == (sent, 1 if thread in ("edited", "answered") else 0)
    made = [entry["text"] for entry in values["journal"] if entry["source"] == "tool"]
    assert [text[: len(wanted)] for text, wanted in zip(made[-len(texts) :], texts, strict=True)] == texts


@pytest.mark.parametrize("stored", [*RELEASES, *DECIDED], ids=lambda path: path.name.removesuffix(".sqlite.gz"))
async def test_observations_of_a_release_have_what_each_observation_has(stored: Path, tmp_path: Path) -> None:
    """R06, Q88: no code asks whether a key of one is there, so what a release stored has them all."""
    found = []
    async with opened(unpack(stored, tmp_path), Post()) as agent:
        for row in await agent.threads():
            values = (await agent.graph.aget_state(config(row.thread_id))).values
            found += [*(values.get("journal") or ()), *(values.get("before") or ())]
    assert found
    assert all(JournalEntry.__required_keys__ <= entry.keys() for entry in found)


@pytest.mark.parametrize(
    "stored",
    [*RELEASES, *DECIDED, *ASKED, *IN_PLANNING, *AT_WORK],
    ids=lambda path: path.name.removesuffix(".sqlite.gz"),
)
async def test_steps_of_a_release_have_what_each_step_has(stored: Path, tmp_path: Path) -> None:
    """R06, Q88: no code asks whether a key of a record is there, so what a release stored has them all."""
    async with opened(unpack(stored, tmp_path), Post()) as agent:
        found = [record for row in await agent.threads() for record in (await agent.get(row.thread_id)).steps.values()]
    assert found
    assert all(record.keys() == StepRecord.__required_keys__ for record in found)


@pytest.mark.parametrize("stored", AT_WORK, ids=lambda path: path.name.removesuffix(".sqlite.gz"))
async def test_two_steps_at_work_go_on_after_an_update(stored: Path, tmp_path: Path) -> None:
    """R06, Q88: no round is lost or repeated, wherever the next version dies as well, with one step of each shape."""
    assert await stored_rounds(f"sqlite:///{unpack(stored, tmp_path)}") == [1, 1]
    for number in range(1, 60, 2):
        storage, died = f"sqlite:///{unpack(stored, tmp_path / str(number))}", True
        with suppress(Exception):
            await finished_work(storage, Crash(number, only=["put"]))
            died = False
        run = await finished_work(storage)
        assert run.status == "completed", number
        assert [record["rounds"] for record in run.steps.values()] == [ROUNDS, ROUNDS], number
        if not died:
            break
    assert number > 3


@pytest.mark.parametrize("thread", CASES)
@pytest.mark.parametrize("stored", ASKED, ids=lambda path: path.name.removesuffix(".sqlite.gz"))
async def test_every_kind_of_pause_outlives_an_update(stored: Path, thread: str, tmp_path: Path) -> None:
    """R06, Q87: what an older version asked is answered in the next one, after an answer that is for no question."""
    storage = f"sqlite:///{unpack(stored, tmp_path)}"
    with pytest.raises(StaleAnswer, match="nothing waits under"):
        await answered(storage, thread, lambda given: {"s7.q9": given})
    assert (await answered(storage, thread)).status == CASES[thread][-1]


@pytest.mark.parametrize("stored", ASKED, ids=lambda path: path.name.removesuffix(".sqlite.gz"))
async def test_what_an_older_version_asked_makes_way_for_another_request(stored: Path, tmp_path: Path) -> None:
    """R06: a request may take the place of one that waits since before an update, at every kind of pause."""
    storage = f"sqlite:///{unpack(stored, tmp_path)}"
    async with Agent(ScriptedModel(roles={"triage": [answer("Hello.")] * len(CASES)}), storage=storage) as agent:
        for thread in CASES:
            run = await agent.start("Say hello", thread_id=thread, restart=True)
            assert (run.status, run.answer) == ("answered", "Hello."), thread


@pytest.mark.parametrize("thread", CASES)
@pytest.mark.parametrize("engine", ["memory", "postgres"])
async def test_every_kind_of_pause_is_answered_in_every_storage(engine: str, thread: str, tmp_path: Path) -> None:
    """D01, Q87: what is stored is the same JSON everywhere."""
    storage = open_storage(fresh_url(engine, tmp_path))
    await asked(storage, thread)
    assert (await answered(storage, thread)).status == CASES[thread][-1]


@pytest.mark.parametrize("thread", PLANNED)
@pytest.mark.parametrize("stored", IN_PLANNING, ids=lambda path: path.name.removesuffix(".sqlite.gz"))
async def test_planning_goes_on_after_an_update(stored: Path, thread: str, tmp_path: Path) -> None:
    """R06, Q87: what an older version planned, asked or showed goes on in the next one as it would have there."""
    case = PLANNED[thread]
    run = await finished(f"sqlite:///{unpack(stored, tmp_path)}", thread)
    assert run.status == case.status
    assert [row["mode"] for row in (run.receipt or {})["modes"]] == [*case.modes]
    assert [step["id"] for step in (run.plan or {}).get("steps", ())] == [*case.steps]
    assert [id for id in run.steps if id not in case.steps] == (["s1", "s2"] if case.fails else [])
    assert run.spent.get("replans", 0) == len(case.modes) - 1


@pytest.mark.parametrize("stored", IN_PLANNING, ids=lambda path: path.name.removesuffix(".sqlite.gz"))
async def test_planning_goes_on_if_the_next_version_dies_as_well(stored: Path, tmp_path: Path) -> None:
    """R06, Q87: wherever it dies, when a part of what is stored is of the older version and a part of this one."""
    case, died = PLANNED["words"], True
    for number in range(1, 60):
        path = unpack(stored, tmp_path / str(number))
        with suppress(Exception):
            crash = Crash(number, only=["put"])
            async with planning_agent(f"sqlite:///{path}", case, crash) as agent:
                await agent.resume("words")
                died = False
        if not died:
            break
        assert (await finished(f"sqlite:///{path}", "words")).status == case.status, number
    assert number > 3


@pytest.mark.parametrize("thread", [thread for thread, case in PLANNED.items() if not case.dies_after])
@pytest.mark.parametrize("engine", ["memory", "postgres"])
async def test_planning_goes_on_in_every_storage(engine: str, thread: str, tmp_path: Path) -> None:
    """D01, Q87: what is stored of a planning is the same JSON everywhere."""
    storage = open_storage(fresh_url(engine, tmp_path))
    await planned(storage, thread)
    assert (await finished(storage, thread)).status == PLANNED[thread].status
