"""Answers that are submitted at the same moment: each question gets one, and nobody is told otherwise."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, DoneWhenError, Run, StaleAnswer, StorageError
from donewhen.agent.testing.crash import Crash, Crashed, crashing
from donewhen.agent.work.thread_rows import TRIES, leave_answers, read_left_answers
from donewhen.testing import ScriptedModel, answer, ask_user
from tests.kit.forking import forks
from tests.kit.painting import Painting
from tests.kit.storage.cases import fresh_url, key_of, open_storage

ROUNDS = 3


def asking(runs: int = ROUNDS) -> ScriptedModel:
    """Asks for a month, and reports, in so many runs."""
    return ScriptedModel(
        roles={"triage": [reply for _ in range(runs) for reply in (ask_user("When?"), answer("Done."))]}
    )


async def attempt(work: Any) -> str:
    """Return `taken`, or the name of the error."""
    try:
        await work
    except DoneWhenError as error:
        return type(error).__name__
    return "taken"


def answers_of(run: Run) -> list[str]:
    """The answers that a finished run got."""
    assert run.receipt is not None, run.status
    return sorted(row["answer"] for row in run.receipt["questions"])


def _be_a_process(url: str, pipe: Connection) -> None:
    async def main() -> None:
        async with Agent("demo", storage=url) as agent:
            await agent.threads()  # opened
            pipe.send("ready")
            while order := pipe.recv():
                verb, args, options = order
                pipe.send(await attempt(getattr(agent, verb)(*args, **options)))

    asyncio.run(main())


@contextmanager
def two_processes(url: str) -> Iterator[list[Connection]]:
    """Two processes with an agent each, which carry out a verb when told, and say how it went."""
    started = []
    try:
        for _ in range(2):
            ours, theirs = forks.Pipe()
            process = forks.Process(target=_be_a_process, args=(url, theirs), daemon=True)
            process.start()
            started.append((process, ours))
        for _, pipe in started:
            assert pipe.recv() == "ready"
        yield [pipe for _, pipe in started]
    finally:
        for process, pipe in started:
            pipe.send(None)
            process.join(10)
            process.kill()


def at_once(pipes: list[Connection], *orders: tuple[str, tuple[Any, ...], dict[str, Any]]) -> list[str]:
    for pipe, order in zip(pipes, orders, strict=True):
        pipe.send(order)
    return [pipe.recv() for pipe in pipes]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "postgres-sealed"])
@pytest.mark.parametrize("who", ["two agents", "one agent"])
async def test_of_two_different_answers_at_once_one_counts(tmp_path: Path, kind: str, who: str) -> None:
    """C04, Q98: one of two answers to a question is taken, and the run gets it; the other gets StaleAnswer."""
    url = fresh_url(kind, tmp_path)
    shared = open_storage(url, key=key_of(kind))
    other = shared if kind == "memory" else open_storage(url, key=key_of(kind))
    async with Agent(asking(), storage=shared) as one, Agent("demo", storage=other) as two:
        for _ in range(ROUNDS):
            thread = (await one.start("report")).thread_id
            second = one if who == "one agent" else two
            said = await asyncio.gather(
                attempt(one.submit_answer(thread, "May")), attempt(second.submit_answer(thread, "June"))
            )
            assert sorted(said) == ["StaleAnswer", "taken"]
            row = await one.info(thread)
            assert (row.status, row.pending) == ("queued", ())
            assert answers_of(await one.run_submitted(thread)) == ["May" if said[0] == "taken" else "June"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_two_processes_submit_at_once(tmp_path: Path, kind: str) -> None:
    """C04, M11, Q98: of different answers one counts; the same answer is one; answers to two questions both count; a
    request that is delivered twice is one, and of two requests on one thread one is refused.
    """
    url = fresh_url(kind, tmp_path)
    async with Agent(asking(2 * ROUNDS), storage=url) as agent:
        with two_processes(url) as pipes:
            for number in range(2 * ROUNDS):
                thread = (await agent.start("report")).thread_id
                second = "June" if number % 2 else "May"
                said = await asyncio.to_thread(
                    at_once, pipes, ("submit_answer", (thread, "May"), {}), ("submit_answer", (thread, second), {})
                )
                assert "taken" in said
                assert {*said} <= {"taken", "StaleAnswer"}
                assert said.count("taken") == 1 or second == "May"
                assert answers_of(await agent.run_submitted(thread)) == ["May" if said[0] == "taken" else second]
            for number in range(ROUNDS):
                painting = Painting()
                painting.go_on.set()
                async with painting.agent(url) as painter:
                    run = await painter.start("hang the picture")
                    both = [
                        ("submit_answer", (run.thread_id, {id: text}), {})
                        for id, text in (("s1.q1", "blue"), ("s2.q1", "oak"))
                    ]
                    assert await asyncio.to_thread(at_once, pipes, *both) == ["taken", "taken"]
                    painting.assert_done(await painter.run_submitted(run.thread_id))
                same = [("submit", ("report",), {"request_id": f"r{number}"})] * 2
                assert await asyncio.to_thread(at_once, pipes, *same) == ["taken", "taken"]
                other = [("submit", ("report",), {"thread_id": f"t{number}"})] * 2
                assert sorted(await asyncio.to_thread(at_once, pipes, *other)) in (
                    ["ThreadWaiting", "taken"],
                    ["ThreadBusy", "taken"],
                )


async def test_answers_that_come_too_late_take_no_equal_one_with_them(storage: Any) -> None:
    """C04: of two submissions that agree about one question and not about the other, the first keeps both answers."""
    first, second, third = {"a": "x", "b": "y"}, {"a": "x", "b": "z"}, {"a": "x"}
    async with storage.writer() as (_, store):
        assert await leave_answers(store, "t", "q", first) == {}
        assert await leave_answers(store, "t", "q", third) == {}
        assert await leave_answers(store, "t", "q", second) == {"b": first["b"]}
        left = await read_left_answers(store, "t", first)
    assert {id: row["answer"] for id, row in left.items()} == first


VERBS: dict[str, Callable[[Agent, str], Awaitable[Any]]] = {
    "resume": lambda agent, thread: agent.resume(thread, "June"),
    "policy": lambda agent, thread: agent.run_submitted(thread),
    "cancel": lambda agent, thread: agent.cancel(thread),
    "tell": lambda agent, thread: agent.tell(thread, "hurry"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_an_answer_is_submitted_while_another_verb_begins(tmp_path: Path, kind: str, verb: str) -> None:
    """C04: whatever holds the thread at that moment, an answer that is taken is the one that the run gets."""
    begin, url = VERBS[verb], fresh_url(kind, tmp_path)
    shared = open_storage(url)
    other = shared if kind == "memory" else open_storage(url)
    settings = {"on_question": "assume", "question_seconds": 0} if verb == "policy" else {}
    async with Agent(asking(), storage=shared, settings=settings) as one, Agent("demo", storage=other) as two:
        for number in range(ROUNDS):
            thread = (await one.submit("report")) if verb == "policy" else (await one.start("report")).thread_id
            if verb == "policy":
                assert (await one.run_submitted(thread)).status == "waiting"

            async def later(place: int = number, thread: str = thread) -> Any:
                for _ in range(3 * place):
                    await asyncio.sleep(0)
                return await two.submit_answer(thread, "May")

            other_said, said = await asyncio.gather(attempt(begin(one, thread)), attempt(later()))
            if (await one.info(thread)).status == "queued":
                assert said == "taken"
                await one.run_submitted(thread)
            run = await one.get(thread)
            if run.status == "cancelled":
                assert verb == "cancel"
                assert {said} <= {"taken", "StaleAnswer"}
                continue
            assert ("May" in answers_of(run)) == (said == "taken"), (said, other_said)
            assert said in ("taken", "StaleAnswer")
            assert verb != "resume" or ("June" in answers_of(run)) == (other_said == "taken")


async def test_an_answer_left_to_a_cancelled_request_reaches_no_later_one(storage: Any) -> None:
    """C04: an answer waits for the step at work, and the request ends; the next one asks anew."""
    first, second = Painting(), Painting()
    async with first.agent(storage) as one, second.agent(storage) as two:
        thread = (await one.start("hang the picture")).thread_id
        working = asyncio.create_task(one.resume(thread, {"s1.q1": "blue"}))
        await first.begun.wait()
        await two.submit_answer(thread, {"s2.q1": "pine"})
        assert (await two.cancel(thread)).status == "cancelled"
        await working
        run = await two.start("hang another", thread_id=thread)
        assert (run.status, sorted(pause["id"] for pause in run.pending)) == ("waiting", ["2:s1.q1", "2:s2.q1"])
        second.go_on.set()
        await two.submit_answer(run, {"2:s1.q1": "blue", "2:s2.q1": "oak"})
        second.assert_done(await two.run_submitted(thread))


@pytest.mark.parametrize(
    ("kind", "what"),
    [("sqlite", "answer"), ("sqlite", "answer with policy"), ("sqlite", "goal"), ("postgres", "answer")],
)
async def test_what_was_submitted_outlives_a_worker_that_dies_before_the_first_checkpoint(
    tmp_path: Path, kind: str, what: str
) -> None:
    """C04, M11: wherever a worker dies before the graph has it, the next one carries out the answer or goal."""
    url, settings = fresh_url(kind, tmp_path), {"on_question": "assume", "question_seconds": 0}
    for at in itertools.count(1):
        crash = Crash(at, only=("store.done", "put_writes", "put"))
        model, kept = asking(2), settings if "policy" in what else {}
        async with Agent(model, storage=url, settings=kept) as agent:
            if what == "goal":
                thread = await agent.submit("report")
            else:
                thread = (await agent.start("report")).thread_id
                await agent.submit_answer(thread, "May")
            async with Agent(model, storage=crashing(url, crash), settings=kept) as dying:
                with suppress(StorageError, Crashed):
                    await dying.run_submitted(thread)
            died = crash.trace[-1]
            row = await agent.info(thread)
            assert (row.status, row.pending) == ("queued", ()), died
            if what != "goal":
                with pytest.raises(StaleAnswer):
                    await agent.submit_answer(thread, "June")
            run = await agent.run_submitted(thread)
            if what == "goal":
                assert [pause["question"] for pause in run.pending] == ["When?"], died
            else:
                assert answers_of(run) == ["May"], died
        if died == "put":
            return


@pytest.mark.parametrize("died", [False, True])
async def test_a_state_updated_by_hand_keeps_the_queued_answer(tmp_path: Path, died: bool) -> None:
    """C04: `graph.update_state` on a thread with a queued answer makes it ask anew; the answer counts."""
    url, model = fresh_url("sqlite", tmp_path), asking()
    async with Agent(model, storage=url) as agent:
        thread = (await agent.start("report")).thread_id
        await agent.submit_answer(thread, "May")
        if died:
            async with Agent(model, storage=crashing(url, Crash(1, only=("put_writes",)))) as dying:
                with pytest.raises(StorageError):
                    await dying.run_submitted(thread)
        await agent.graph.aupdate_state({"configurable": {"thread_id": thread}}, {"language": "en"}, as_node="plan")
        assert (await agent.info(thread)).status == "queued"
        for _ in range(2):  # it waits again, and then has its answer
            run = await agent.run_submitted(thread)
        assert answers_of(run) == ["May"]


async def test_an_answer_that_workers_gave_up_on_waits_for_a_person(tmp_path: Path) -> None:
    """C04: an accepted answer with which six workers died is kept for `resume`, also when that dies."""
    url, model = fresh_url("sqlite", tmp_path), asking()
    async with Agent(model, storage=url) as agent:
        thread = (await agent.start("report")).thread_id
        await agent.submit_answer(thread, "May")
        for again in range(TRIES + 2):
            async with Agent(model, storage=crashing(url, Crash(1, only=("put_writes",)))) as dying:
                with pytest.raises(StorageError):
                    await (dying.resume(thread) if again > TRIES else dying.run_submitted(thread))
            row = await agent.info(thread)
            assert (row.status, row.pending) == ("queued" if again < TRIES else "running", ())
        assert answers_of(await agent.resume(thread)) == ["May"]
