"""Time travel: runs replayed and forked from older checkpoints; what was done in another branch is asked about."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, ConfigError, StaleAnswer
from donewhen.agent.storage import open_storage
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from tests.kit.runs import Outbox, config, drawn, last_seen, step
from tests.kit.storage.cases import KEY
from tests.kit.storage.raw import database


def sender(*triage: Any) -> ScriptedModel:
    """Sends once, then finishes; answers by what it sees, however often and wherever it is asked."""

    def execute(messages: list[Any], tools: list[Any]) -> Any:
        if any(message.text.startswith("[") for message in messages):
            return finish_step("sent", evidence=last_seen(messages))
        return call("send", to="ann", text="hi")

    plan = submit_plan([step("s1", "Send hi to ann", tools=["send"])])
    first: Any = list(triage) or (lambda *_: plan)
    return ScriptedModel(roles={"triage": first, "execute": execute, "deliver": lambda *_: "Done."})


async def finished() -> tuple[Agent, Outbox, list[Any]]:
    """A run that has sent, and its checkpoints, newest first."""
    outbox = Outbox()
    agent = Agent(sender(), [outbox.tool()], storage="memory:")
    await agent.start("Mail ann", thread_id="t")
    run = await agent.resume("t", "approve")
    assert (run.status, len(outbox.sent)) == ("completed", 1)
    return agent, outbox, [snapshot async for snapshot in agent.graph.aget_state_history(config("t"))]


@pytest.mark.parametrize("fork", [False, True])
async def test_from_no_checkpoint_is_a_write_repeated_silently(fork: bool) -> None:
    """R03: whether replayed as it was or forked by an update, the run ends, or asks before it writes again."""
    kinds = []
    for n in range(1, 9):
        agent, outbox, history = await finished()
        snapshot = history[-n]
        if not snapshot.next or snapshot.next == ("__start__",):
            continue
        where = snapshot.config
        if fork:
            where = await agent.graph.aupdate_state(where, {"language": "en"})
        await agent.graph.ainvoke(None, where)
        run = await agent.get("t")
        for _ in range(2):
            if run.status == "waiting" and run.pending[0]["kind"] == "plan":
                run = await agent.resume("t", "approve")
        if run.status == "waiting":
            kinds.append(run.pending[0]["kind"])
            await drawn(agent, run)
            assert len(outbox.sent) == 1
            run = await agent.resume("t", {run.pending[0]["id"]: "it happened"})
        assert (run.status, len(outbox.sent)) == ("completed", 1)
    assert kinds == ["effect"] * 5


async def test_a_fork_with_another_plan_asks_for_that_plan() -> None:
    """C04: consent given in one branch is none in another; the answers of the old branch are stale here."""
    agent, outbox, history = await finished()
    before = next(snapshot for snapshot in history if snapshot.next == ("confirm",))
    old = before.interrupts or before.tasks[0].interrupts
    out = await agent.graph.ainvoke(None, before.config)
    assert out["__interrupt__"][0].value["kind"] == "plan"
    run = await agent.get("t")
    if old and old[0].id != run.pending[0]["interrupt_id"]:
        with pytest.raises(StaleAnswer):
            await agent.resume("t", {old[0].id: "approve"})
    first, *rest = run.pending[0]["plan"]["steps"]
    edited = {"type": "edit", "steps": [{**first, "content": "send nothing", "tools": []}, *rest]}
    run = await agent.resume("t", edited)
    assert (run.status, run.pending[0]["kind"], len(outbox.sent)) == ("waiting", "tool", 1)
    run = await agent.resume("t", "no")
    assert len(outbox.sent) == 1


class Whim:
    """A model's mind that can be changed between two branches: what each step does, round after round."""

    def __init__(self, *steps: dict[str, Any]) -> None:
        self.plan = submit_plan(list(steps))
        self.rounds: dict[str, list[Any]] = {}

    def model(self) -> ScriptedModel:
        def execute(messages: list[Any], tools: list[Any]) -> Any:
            id = next(id for id in self.rounds if f'<step id="{id}"' in messages[1].text)
            seen = sum(message.text.startswith("[") for message in messages)
            rounds = self.rounds[id]
            return rounds[seen] if seen < len(rounds) else finish_step("sent", evidence=last_seen(messages))

        return ScriptedModel(roles={"triage": lambda *_: self.plan, "execute": execute, "deliver": lambda *_: "Done."})


SEND = call("send", to="ann", text="hi")
LOOK = call("look")


def look() -> str:
    """Look around."""
    return "all quiet"


async def at_work(whim: Whim, outbox: Outbox) -> tuple[Agent, Any]:
    """An agent that has worked by the whim on thread t, and where its first step was sent off."""
    agent = Agent(
        whim.model(),
        [outbox.tool(repeatable=True), look],
        storage="memory:",
        effects={"look": "read"},
        settings={"confirm": "never"},
    )
    run = await agent.start("Mail ann", thread_id="t")
    assert run.status == "completed"
    history = [snapshot async for snapshot in agent.graph.aget_state_history(config("t"))]
    return agent, [snapshot for snapshot in history if "execute" in snapshot.next][-1].config


@pytest.mark.parametrize(("said", "sent"), [("it happened", 1), ("skip", 1), ("it did not", 2)])
async def test_the_same_write_in_another_round_is_the_same_write(said: str, sent: int) -> None:
    """R03: the fork looks first and sends then; it is asked about what the other branch sent in its first round."""
    whim, outbox = Whim(step("s1", "Send hi to ann", tools=["send", "look"])), Outbox()
    whim.rounds = {"s1": [SEND]}
    agent, where = await at_work(whim, outbox)
    whim.rounds = {"s1": [LOOK, SEND]}
    out = await agent.graph.ainvoke(None, where)
    pause = out["__interrupt__"][0].value
    assert (pause["kind"], pause["arguments"]) == ("effect", {"to": "ann", "text": "hi"})
    assert "was done before" in pause["question"]
    run = await agent.resume("t", said)
    assert len(outbox.sent) == sent
    if said == "skip":
        assert run.status != "waiting"
    else:
        assert run.status == "completed"
        assert run.receipt is not None
        assert [row["ok"] for row in run.receipt["effects"]] == [True]


async def test_the_same_write_of_another_step_or_request_is_the_same_write() -> None:
    """R03: a fork with another plan, and the next request in it, are asked as well; each time it was sent, once."""
    whim, outbox = Whim(step("s1", "Send hi to ann", tools=["send", "look"])), Outbox()
    whim.rounds = {"s1": [SEND, LOOK, SEND], "other": [LOOK], "third": [SEND, LOOK, SEND, LOOK, SEND]}
    agent, _ = await at_work(whim, outbox)
    assert len(outbox.sent) == 2
    history = [snapshot async for snapshot in agent.graph.aget_state_history(config("t"))]
    whim.plan = submit_plan([step("other", tools=["look"])])
    before = next(snapshot for snapshot in reversed(history) if snapshot.next == ("plan",))
    await agent.graph.ainvoke(None, before.config)
    assert (await agent.get("t")).status == "completed"
    whim.plan = submit_plan([step("third", "Send hi to ann", tools=["send", "look"])])
    run = await agent.start("now send it", thread_id="t")
    kinds = []
    while run.status == "waiting":
        kinds.append(run.pending[0]["kind"])
        await drawn(agent, run)
        run = await agent.resume("t", {run.pending[0]["id"]: "it happened"})
    assert (run.status, kinds) == ("completed", ["effect", "effect"])
    assert len(outbox.sent) == 3


async def test_without_a_fork_nobody_is_asked_about_a_second_time() -> None:
    """R03, X20, X23: twice in a step, in two steps side by side, in the next request: all of it was decided here."""
    both = (step(id, "Send hi to ann", tools=["send", "look"], depends_on=[]) for id in ("s1", "s2"))
    whim, outbox = Whim(*both), Outbox()
    whim.rounds = {"s1": [SEND, LOOK, SEND], "s2": [[SEND, SEND]]}
    agent, _ = await at_work(whim, outbox)
    assert len(outbox.sent) == 4
    run = await agent.start("again", thread_id="t")
    assert (run.status, len(outbox.sent)) == ("completed", 8)


async def test_a_thread_taken_back_repeats_no_write(tmp_path: Path) -> None:
    """F11, R02: somebody removes the newest checkpoints of a sealed thread, which nothing can notice; it goes on as
    after a crash there: what was sent is replayed or asked about, however far back it was taken."""
    whole, outbox = tmp_path / "whole.db", Outbox()
    made = {"tools": [outbox.tool()], "settings": {"confirm": "never"}}
    run = await Agent(sender(), storage=open_storage(f"sqlite:///{whole}", key=KEY), **made).start(
        "Mail ann", thread_id="t"
    )
    assert (run.status, len(outbox.sent)) == ("completed", 1)
    with database(f"sqlite:///{whole}") as execute:
        ids = [row[0] for row in execute("SELECT checkpoint_id FROM checkpoints ORDER BY checkpoint_id DESC", ())]
        execute("PRAGMA wal_checkpoint(TRUNCATE)", ())
    ends = []
    for count in range(1, len(ids) - 1):
        url = f"sqlite:///{shutil.copy(whole, tmp_path / f'{count}.db')}"
        with database(url) as execute:
            for table, id in itertools.product(("checkpoints", "writes"), ids[:count]):
                execute(f"DELETE FROM {table} WHERE checkpoint_id = ?", (id,))
        run = await Agent(sender(), storage=open_storage(url, key=KEY), **made).resume("t")
        ends.append(run.pending[0]["kind"] if run.pending else run.status)
        assert len(outbox.sent) == 1
    assert set(ends) == {"completed", "effect"}


async def talk() -> tuple[Agent, Outbox]:
    """Three requests of one thread; the second has sent a mail."""
    outbox = Outbox()
    sending = submit_plan([step("s1", "Send hi to ann", tools=["send"])])
    model = sender(answer("Hello."), sending, answer("Bye."), sending, sending, answer("Bye."))
    agent = Agent(model, [outbox.tool()], storage="memory:")
    await agent.start("Hello", thread_id="t")
    await agent.start("Mail ann", thread_id="t")
    await agent.resume("t", "approve")
    await agent.start("Bye", thread_id="t")
    return agent, outbox


async def requests_of(agent: Agent) -> dict[str, str | None]:
    """What people asked on the thread, with the ids of the messages."""
    return {each.text: each.id for each in (await agent.conversation("t")).messages if each.type == "human"}


@pytest.mark.parametrize("submitted", [False, True])
async def test_a_request_takes_the_place_of_an_earlier_one(submitted: bool) -> None:
    """R03: what came after leaves the conversation, what it sent stays sent: it is asked about, in each such branch."""
    agent, outbox = await talk()
    for at, (earlier, goal) in enumerate([("Mail ann", "Mail ann, please"), ("Hello", "Mail ann now")]):
        place = (await requests_of(agent))[earlier]
        if submitted:
            await agent.submit(goal, thread_id="t", instead_of=place)
            run = await agent.resume("t")
        else:
            run = await agent.start(goal, thread_id="t", instead_of=place)
        assert [*await requests_of(agent)] == [["Hello", goal], [goal]][at]
        run = await agent.resume(run, "approve")
        assert "was done before" in run.pending[0]["question"]
        run = await agent.resume(run, "it happened")
        assert (run.status, len(outbox.sent)) == ("completed", 1)
    assert (await agent.start("Bye", thread_id="t")).answer == "Bye."
    assert [*await requests_of(agent)] == ["Mail ann now", "Bye"]


async def test_a_message_that_began_no_request_is_no_place() -> None:
    """Nothing changes: neither the thread nor what it says of itself."""
    agent, _ = await talk()
    before = await agent.info("t")
    answered = (await agent.conversation("t")).messages[-1].id
    for wrong in ("nothing", answered):
        with pytest.raises(ConfigError, match="instead_of: no request of thread 't' began"):
            await agent.start("Else", thread_id="t", instead_of=wrong)
        with pytest.raises(ConfigError, match="instead_of"):
            await agent.submit("Else", thread_id="t", instead_of=wrong)
    assert await agent.info("t") == before
