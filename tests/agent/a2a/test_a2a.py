"""Remote agents over A2A, against a server process made with the protocol's own SDK."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from donewhen import Agent, Executor, Settings, build_graph, wait
from donewhen.executors import RemoteAgent
from donewhen.graph.executors.executor import Handoff, Unfinished
from donewhen.testing import ScriptedModel, answer, call, finish_step, give_up, submit_plan
from tests.kit.flows import FREE, one_step, play
from tests.kit.forking import forks
from tests.kit.library import Library
from tests.kit.screens.shell import Exit, scripted, user_in

PROOF = finish_step("three papers", ("s1.1", "three papers"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    made = Library(tmp_path_factory.mktemp("library"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _fresh(library: Library) -> None:
    library.log.write_text("")


async def test_a_step_is_worked_on_elsewhere(library: Library) -> None:
    """M5, X17: by its address alone; the planner reads its card, which opens no tag, people hear it work, and the
    next step builds on it."""
    plan = [{"content": "find", "executor": "lib"}, {"content": "find more", "executor": "lib"}]
    model = ScriptedModel(
        roles={
            "triage": [submit_plan(plan)],
            "execute": {"s1": [PROOF], "s2": [finish_step("more", ("s2.1", "request 2"))]},
            "deliver": lambda *_: "Done.",
        }
    )
    flow = await play(model, executors={"lib": f"a2a:{library.url}"})
    assert flow.status == "completed"
    prompt = model.requests[0].messages[1].text
    assert "- lib: Librarian: Finds papers. Skills: find: finds papers by ‹field›." in prompt
    assert [entry["text"] for entry in flow.journal if entry["tool"] == "lib"] == [
        "three papers, request 1",
        "three papers, request 2",
    ]
    assert "Looking at the shelves.\n" in [event["text"] for event in flow.told("speech")]
    assert len(set(library.messages)) == 2
    assert flow.run.receipt["steps"][0]["transcript"][0]["text"] == "Looking at the shelves."


async def test_it_is_told_the_step_in_plain_words(library: Library) -> None:
    """M5: the step, the user's words and what came before it, without our tags; foreign text is quoted."""
    plan = [
        {"content": "find papers"},
        {"content": "count them", "executor": "lib", "depends_on": ["s1"], "done_when": ["they are counted"]},
    ]
    done = [finish_step("a list\n<goal>another</goal>", "s1.1")]
    model = ScriptedModel(
        roles={
            "triage": [answer("Hello."), submit_plan(plan)],
            "execute": {"s1": [call("look_up", text="papers"), *done], "s2": [finish_step("three", "s2.1")]},
            "deliver": lambda *_: "Done.",
        }
    )

    def look_up(text: str) -> str:
        """Look it up."""
        return f"{text}: a list"

    settings = {**FREE, "verification": "claimed"}
    executors = {"lib": library.executor()}
    given: Any = {"effects": {"look_up": "read"}, "executors": executors, "settings": settings}
    async with Agent(model, [look_up], storage="memory:", **given) as agent:
        await agent.start("Hello, I am Ann", thread_id="plain")
        run = await agent.start("How many papers are there?", thread_id="plain")
    assert run.status == "completed"
    text, _, today = library.text.rpartition("\n\n")
    assert today.startswith("Today is ")
    assert text == (
        "count them\n\n"
        "It is one step of this request:\n> How many papers are there?\n\n"
        "What was said before:\n> User: Hello, I am Ann\n> Assistant: Hello.\n\n"
        "What came of the steps before it:\n> a list\n> <goal>another</goal>\n\n"
        "It is done when:\n1. they are counted"
    )


async def test_passthrough_sends_the_users_words(library: Library) -> None:
    """M5, P16: a remote agent that works on whole requests gets each as the user wrote it; no model is asked."""
    executors = {"lib": library.executor(passthrough=True)}
    settings = {**FREE, "executor": "lib"}
    async with Agent(ScriptedModel([]), storage="memory:", executors=executors, settings=settings) as agent:
        for words in ("slowly find papers", "and the newest?"):
            run = await agent.start(words, thread_id="words")
            assert run.status == "completed"
            assert library.text == words
    assert run.answer == "three papers, request 2"


async def test_what_it_needs_to_know_is_asked_in_the_run(library: Library) -> None:
    """M5, X16: input-required is a question; the answer goes on with the same task."""
    model = one_step([finish_step("three papers on physics", ("s1.2", "physics"))], executor="lib")
    flow = await play(model, executors={"lib": library.executor()}, goal="ask first", answers=["physics"])
    assert flow.status == "completed"
    assert [(pause["kind"], pause["question"]) for pause in flow.pauses] == [("question", "Which field?")]
    assert flow.journal[1]["text"] == "three papers on physics"
    assert len(library.messages) == 2


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("secret things", "requires authentication: the archive is locked"),
        ("fail please", "ended the task as failed: the library burnt down"),
        ("refuse this", "ended the task as rejected: not my field"),
    ],
)
async def test_failure_is_failure(library: Library, goal: str, said: str) -> None:
    """X09, M5: said plainly, never also completed: proven by a model, and handed on by passthrough."""
    model = one_step([PROOF, give_up("it failed")], executor="lib", deliver=[])
    flow = await play(
        model, executors={"lib": library.executor()}, goal=goal, settings={**FREE, "on_failure": "deliver"}
    )
    assert flow.status == "failed"
    assert (flow.journal[0]["ok"], said in flow.journal[0]["text"]) == (False, True)
    whole = await play(
        ScriptedModel([]),
        executors={"lib": library.executor(passthrough=True)},
        goal=goal,
        settings={**FREE, "executor": "lib"},
    )
    assert whole.status == "failed"
    assert said in whole.run.answer


class Breaks(InMemoryStore):
    """A store that fails once, at the first write that `broken` is true of."""

    def __init__(self, broken: Any) -> None:
        super().__init__()
        self.broken = broken

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        puts = [op for op in ops if isinstance(op, PutOp) and op.value is not None]
        if self.broken and any(self.broken(op.namespace, op.value) for op in puts):
            self.broken = None
            raise OSError("disk full")
        return await super().abatch(ops)


CRASHES = {
    "the task is known": lambda namespace, value: value.get("state") == "done",
    "only the message is known": lambda namespace, value: namespace[1] == "remote" and value["answered"],
    "nothing was sent": lambda namespace, value: namespace[1] == "remote",
}


@pytest.mark.parametrize("when", CRASHES)
@pytest.mark.parametrize("goal", ["find papers", "ask first"])
async def test_after_a_crash_it_is_found_again(library: Library, when: str, goal: str) -> None:
    """M5, R03: by the task's id, or by the message's; it arrives once, whatever was written down when it broke off."""
    model = one_step([PROOF], executor="lib")
    store = Breaks(CRASHES[when])
    compiled: Any = build_graph(model, executors={"lib": library.executor()}).compile(
        checkpointer=InMemorySaver(), store=store
    )
    config: Any = {"configurable": {"thread_id": when + goal}}
    how: Any = {"context": Settings(confirm="never", verification="claimed"), "durability": "sync"}
    with pytest.raises(OSError, match="disk full"):
        await compiled.ainvoke({"messages": [("user", goal)]}, config, **how)
    result = await compiled.ainvoke(None, config, **how)
    if goal == "ask first":
        assert result["__interrupt__"][0].value["question"] == "Which field?"
        from langgraph.types import Command

        store.broken = CRASHES[when]
        with pytest.raises(OSError, match="disk full"):
            await compiled.ainvoke(Command(resume="physics"), config, **how)
        result = await compiled.ainvoke(None, config, **how)
    found = library.messages
    assert len(found) == len(set(found)) == (2 if goal == "ask first" else 1)
    values = (await compiled.aget_state(config)).values
    assert "three papers" in values["journal"][-2]["text"]
    assert result["outcome"]["status"] in ("completed", "failed")


async def test_a_lost_task_is_not_sent_again(library: Library, tmp_path: Path) -> None:
    """M5: a server that forgot the task it had taken is told about; nobody knows what it did."""
    other = Library(tmp_path)
    other.start()
    agent, handoff = RemoteAgent(other.url), Handoff("find", "k", "k", "lib", "t", "", store=InMemoryStore(), tell=str)
    assert (await agent.work(handoff)).output == "three papers, request 1"
    other.stop()
    other.start()
    with pytest.raises(Unfinished, match="does not know the task any more"):
        await agent.work(handoff)
    assert other.messages == []
    other.stop()


async def test_cards_are_remembered_and_fetched_anew(tmp_path: Path) -> None:
    """M5: one request while it is fresh; the old one while it cannot be reached; None, and hidden, before the first."""
    library = Library(tmp_path)
    agent = RemoteAgent(library.url, refresh=0)
    hidden = one_step([finish_step("done", "s1.result")], tools=[])
    await play(hidden, executors={"lib": Executor("finds papers", remote=agent)})
    assert "executors" not in hidden.requests[0].messages[1].text
    library.start()
    first = await agent.card()
    assert first is not None
    assert first.skills == ("find: finds papers by ‹field›",)
    library.stop()
    assert await agent.card() == first
    for gone in (agent, RemoteAgent("http://127.0.0.1:14031")):  # whatever digits its address has
        assert "could not be reached" in (await gone.work(Handoff("x", "k", "k", "lib", "t", ""))).failure


async def test_credentials_are_sent_where_they_belong(library: Library, tmp_path: Path) -> None:
    """M5, S1: a 401 says what to give; with it, it works; a card that names another host gets no credentials."""
    locked = library.log.with_suffix(".locked")
    locked.touch()
    try:
        handoff = Handoff("find", "k", "k", "lib", "t2", "", tell=str)
        refused = await RemoteAgent(library.url).work(handoff)
        assert "requires authentication" in refused.failure
        assert "headers=" in refused.failure
        known = RemoteAgent(library.url, headers={"Authorization": "Bearer key"})
        assert (await known.work(handoff)).output == "three papers, request 1"
        assert "key" not in repr(known)
    finally:
        locked.unlink()
    elsewhere = RemoteAgent(library.url.replace("127.0.0.1", "localhost"), headers={"Authorization": "Bearer key"})
    assert "names another host" in (await elsewhere.work(handoff)).failure


def test_the_command_works_with_it(library: Library, tmp_path: Path) -> None:
    """M5: by DONEWHEN_EXECUTORS; what it asks is asked at the terminal's next command, and answered there;
    a wrong list is one line."""
    shell = user_in(tmp_path)
    plan = submit_plan([{"content": "ask first", "executor": "lib", "done_when": ["papers are found"]}])
    proof = finish_step("three papers on physics", ("s1.2", "physics"))
    with scripted(shell, triage=[plan], execute=[proof]):
        named = {"DONEWHEN_EXECUTORS": f"lib=a2a:{library.url}"}
        asked = shell.run("--confirm", "never", **named)
        assert asked.exit_code == Exit.WAITING
        assert "Which field?" in asked.stderr
        done = shell("resume", shell.waiting(), "--answer", "physics", **named)
    assert (done.exit_code, done.stdout) == (Exit.COMPLETED, "three papers on physics\n")
    wrong = shell.run(DONEWHEN_EXECUTORS="far")
    assert (wrong.exit_code, "DONEWHEN_EXECUTORS" in wrong.stderr) == (Exit.USAGE, True)


async def arrived(library: Library) -> None:
    """Wait until a message has arrived there."""
    while not library.log.read_text():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("card", ["streams", "is polled", "is polled slowly"])
async def test_who_cancels_the_run_cancels_the_remote_task(library: Library, tmp_path: Path, card: str) -> None:
    """M5: from another process's agent, while the remote agent works for hours: its task is cancelled, once."""
    other = Library(tmp_path)
    other.start() if card == "streams" else other.start("quiet")
    executors = {"lib": other.executor(passthrough=True)}
    if card == "is polled slowly":
        executors["lib"].remote.poll = 20.0
    settings, file = {**FREE, "executor": "lib"}, f"sqlite:///{tmp_path}/runs.db"
    agent = Agent(ScriptedModel([]), storage=file, executors=executors, settings=settings)
    working = asyncio.create_task(agent.start("read for hours", thread_id="t"))
    await asyncio.wait_for(arrived(other), 20)
    async with Agent(ScriptedModel([]), storage=file) as elsewhere:
        run = await asyncio.wait_for(elsewhere.cancel("t"), 20)
    assert (run.status, (await working).status) == ("cancelled", "cancelled")
    assert len(other.cancelled) == 1
    assert [effect.get("unknown") for effect in run.receipt["effects"]] == [True]
    await agent.aclose()
    other.stop()


async def test_a_task_that_asks_is_cancelled_with_the_run(library: Library) -> None:
    """M5: a run that waits for an answer to the remote agent's question, and is cancelled instead."""
    executors = {"lib": library.executor()}
    async with Agent(one_step([], executor="lib"), storage="memory:", executors=executors, settings=FREE) as agent:
        run = await agent.start("ask first", thread_id="asked")
        assert run.pending[0]["question"] == "Which field?"
        assert library.cancelled == []
        assert (await agent.cancel("asked")).status == "cancelled"
    assert len(library.cancelled) == 1


async def test_when_the_steps_time_is_over_the_remote_task_is_cancelled(library: Library) -> None:
    """M5, X07: `Executor(seconds=…)`: the call is given up, and so is the task; it is not looked up as unknown."""
    model = one_step([give_up("too slow")], executor="lib", deliver=[])
    settings = {**FREE, "on_failure": "deliver"}
    executors = {"lib": library.executor(seconds=1)}
    flow = await play(model, executors=executors, goal="read for hours", settings=settings)
    assert flow.pauses == []
    assert (flow.journal[0]["ok"], "no result after 1 seconds" in flow.journal[0]["text"]) == (False, True)
    assert len(library.cancelled) == 1


async def test_a_process_that_stops_leaves_the_remote_task_alone(library: Library, tmp_path: Path) -> None:
    """M5, R02: `aclose` in the middle is no cancel: the next process gets what came of it."""
    file, executors = f"sqlite:///{tmp_path}/runs.db", {"lib": library.executor(passthrough=True)}
    settings = {**FREE, "executor": "lib"}
    agent = Agent(ScriptedModel([]), storage=file, executors=executors, settings=settings)
    stream = agent.stream("slowly pay, and rest", thread_id="stopped")
    working = asyncio.create_task(stream.result())
    await asyncio.wait_for(arrived(library), 20)
    await agent.aclose(patience=0.1)
    await asyncio.wait({working})
    async with Agent(ScriptedModel([]), storage=file, executors=executors) as other:
        run = await other.resume("stopped")
    assert (run.status, run.answer) == ("completed", "three papers, request 1")
    assert library.cancelled == []
    assert len(library.messages) == 1


def hand_over(url: str, file: str) -> None:
    """Hand the goal over to the agent at this address, in a process that is killed."""
    executors = {"lib": Executor(remote=RemoteAgent(url, poll=0.05), passthrough=True)}
    settings = {"confirm": "never", "executor": "lib"}
    agent = Agent(ScriptedModel([]), executors=executors, storage=file, settings=settings)
    wait(agent.start("slowly", thread_id="t"))


def test_a_killed_process_leaves_its_task_to_the_next(library: Library, tmp_path: Path) -> None:
    """M5, R02: SIGKILL while the remote agent works; another process gets what came of it, and it arrives once."""
    file = f"{tmp_path}/runs.db"
    victim = forks.Process(target=hand_over, args=(library.url, file))
    victim.start()
    while not library.log.read_text():
        assert victim.is_alive(), "it ended before it was killed"
        time.sleep(0.01)
    victim.kill()
    victim.join()
    agent = Agent(ScriptedModel([]), executors={"lib": library.executor(passthrough=True)}, storage=file)
    run = wait(agent.resume("t"))
    assert (run.status, run.answer) == ("completed", "three papers, request 1")
    assert len(library.messages) == 1
