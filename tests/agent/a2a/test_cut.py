"""Remote agents whose line is cut, or who are away for a while: nothing is handed over twice, and no answer is lost.

The agent is a process of its own; between it and us is a line that a test can cut.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, Executor, Run
from donewhen.executors import RemoteAgent
from donewhen.testing import ScriptedModel, finish_step, give_up, submit_plan
from tests.kit.a2a_server import serve
from tests.kit.runs import last_seen
from tests.kit.serving import free_port, reserve, served_by


class Line:
    """A line to the agent's port: what is sent over it arrives, until it is cut; while it is down nobody connects."""

    def __init__(self) -> None:
        self.port = free_port()
        self._behind = 0
        self._ends: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def up(self, behind: int = 0) -> None:
        """Lead to a port."""
        self._behind = behind or self._behind
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)

    async def down(self) -> None:
        """Cut what is connected, and refuse what comes."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        self._ends |= {writer, far_writer}

        async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65_536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))


class Bank:
    """The agent's process, behind its line."""

    def __init__(self, folder: Path, line: Line, *more: str) -> None:
        self.line, self.log, self._more = line, folder / "messages", more
        self._process: BaseProcess | None = None

    async def start(self) -> None:
        door = reserve()
        port = door.getsockname()[1]
        self._process = served_by(door, serve, str(self.log), str(self.line.port), *self._more)
        await self.line.up(port)

    async def kill(self) -> None:
        """It is gone, with all that it knew."""
        await self.line.down()
        if self._process is not None:
            self._process.kill()
            self._process.join()

    @property
    def paid(self) -> int:
        """How often it paid."""
        file = self.log.with_suffix(".paid")
        return len(file.read_text().splitlines()) if file.exists() else 0

    async def until(self, seen: Any) -> None:
        """Wait for something to be so."""
        while not seen():  # noqa: ASYNC110 - it is another process that makes it so
            await asyncio.sleep(0.01)

    def arrived(self) -> int:
        """How many messages did."""
        return len(self.log.read_text().split()) if self.log.exists() else 0

    def executor(self, patience: float, **more: Any) -> Executor:
        return Executor(remote=RemoteAgent(f"http://127.0.0.1:{self.line.port}", poll=0.05, patience=patience), **more)


@asynccontextmanager
async def bank(folder: Path, *more: str) -> AsyncIterator[Bank]:
    made = Bank(folder, Line(), *more)
    await made.start()
    try:
        yield made
    finally:
        await made.kill()


def far(*contents: str) -> ScriptedModel:
    """A model that hands the work over in these words, one plan after the other; it sees whether it was done."""

    def prove(messages: Any, _: Any) -> Any:
        text = messages[1].text.split("</done_when>")[-1] + "".join(message.text for message in messages[2:])
        worked = "far ok" in text
        return finish_step("done", last_seen(messages)) if worked else give_up("it did not answer")

    plans = [submit_plan([{"content": each, "executor": "far"}]) for each in contents]
    return ScriptedModel(
        roles={"triage": plans[:1], "plan": plans[1:], "execute": prove, "deliver": lambda *_: "Done."}, strict=False
    )


def agent_of(model: ScriptedModel, executor: Executor) -> Agent:
    return Agent(model, [], executors={"far": executor}, storage="memory:", settings={"confirm": "never"})


STREAMS = pytest.mark.parametrize("streams", [[], ["quiet"]], ids=["streaming", "not streaming"])


@STREAMS
async def test_a_line_that_is_cut_while_it_works(streams: list[str], tmp_path: Path) -> None:
    """N15, X24: for a moment; the task is looked for and followed to its end: paid once, nobody is asked."""
    async with bank(tmp_path, *streams) as far_bank, agent_of(far("pay 12 EUR"), far_bank.executor(30)) as agent:
        running = asyncio.create_task(agent.start("Pay"))
        await far_bank.until(far_bank.arrived)
        await far_bank.line.down()
        await far_bank.line.up()
        run = await running
        assert (run.status, run.pending, far_bank.paid, far_bank.arrived()) == ("completed", (), 1, 1)


async def paid_out_of_sight(far_bank: Bank, agent: Agent) -> Run:
    """Handed over, and the line is cut for longer than anybody waits; then the plan is made anew."""
    running = asyncio.create_task(agent.start("Pay"))
    await far_bank.until(far_bank.arrived)
    await far_bank.line.down()
    return await running


@pytest.mark.parametrize(
    ("streams", "said", "paid"),
    [([], "it happened", 1), ([], "it did not", 2), ([], "skip", 1), (["quiet"], "it happened", 1)],
)
async def test_a_replan_does_not_hand_it_over_again_unasked(
    streams: list[str], said: str, paid: int, tmp_path: Path
) -> None:
    """N15, X20, R03: in other words, as another step; a person decides, who reads what was handed over before."""
    model = far("pay 12 EUR to Bo", "pay Bo 12 EUR, another try", "pay Bo at last")
    async with bank(tmp_path, *streams) as far_bank, agent_of(model, far_bank.executor(0.3)) as agent:
        run = await paid_out_of_sight(far_bank, agent)
        assert [pause["kind"] for pause in run.pending] == ["effect"]
        assert "pay 12 EUR to Bo" in run.pending[0]["question"]
        assert "another try" not in run.pending[0]["question"]
        await far_bank.until(lambda: far_bank.paid)
        await far_bank.line.up()
        run = await agent.resume(run, said)
        assert far_bank.paid == paid
        if said == "it happened":  # it can be asked by now, and says what came of it
            assert (run.status, run.steps["s2"]["status"]) == ("completed", "done")
            journal = (await agent.graph.aget_state({"configurable": {"thread_id": run.thread_id}})).values["journal"]
            assert [entry["text"] for entry in journal if entry["tool"] == "far"][1:] == ["three papers, request 1"]


@pytest.mark.parametrize("more", [[], ["quiet", "unlisted"]], ids=["it forgot", "it lists no tasks"])
async def test_an_agent_that_cannot_say_what_it_did(more: list[str], tmp_path: Path) -> None:
    """N15, X24: killed, and started again without its tasks; or it tells nobody which it has: nothing is sent again."""
    model = far("pay 12 EUR to Bo, then rest", "pay Bo 12 EUR, another try")
    async with bank(tmp_path, *more) as far_bank, agent_of(model, far_bank.executor(20)) as agent:
        running = asyncio.create_task(agent.start("Pay"))
        await far_bank.until(far_bank.arrived)
        if more:
            await far_bank.line.down()
            await far_bank.line.up()
        else:
            await far_bank.until(lambda: far_bank.paid)
            await far_bank.kill()
            await far_bank.start()
        run = await running
        assert [pause["kind"] for pause in run.pending] == ["effect"]
        assert far_bank.arrived() == 1


async def test_an_answer_waits_for_who_asked(tmp_path: Path) -> None:
    """N15, R03: the agent is away when the answer comes, and back soon after."""
    async with bank(tmp_path) as far_bank, agent_of(far("ask first"), far_bank.executor(30)) as agent:
        run = await agent.start("Ask")
        assert [pause["question"] for pause in run.pending] == ["Which field?"]
        await far_bank.line.down()
        answering = asyncio.create_task(agent.resume(run, "physics"))
        await asyncio.wait({answering}, timeout=0.5)
        await far_bank.line.up()
        run = await answering
        assert (run.status, far_bank.arrived()) == ("completed", 2)


async def test_an_answer_that_was_not_brought_is_asked_for_again(tmp_path: Path) -> None:
    """N15: it is away for longer than anybody waits; the step did not fail, and the next answer arrives once."""
    async with bank(tmp_path) as far_bank, agent_of(far("ask first"), far_bank.executor(0.3)) as agent:
        run = await agent.start("Ask")
        await far_bank.line.down()
        for n in (1, 2):
            run = await agent.resume(run, f"physics {n}")
            assert (run.status, len(run.pending)) == ("waiting", 1)
            assert run.pending[0]["question"].startswith("Which field?\n\nYour answer did not reach far")
        await far_bank.line.up()
        run = await agent.resume(run, "chemistry")
        assert (run.status, far_bank.arrived()) == ("completed", 2)
        journal = (await agent.graph.aget_state({"configurable": {"thread_id": run.thread_id}})).values["journal"]
        assert [entry["text"] for entry in journal if entry["source"] == "tool"] == ["three papers on chemistry"]


async def test_an_answer_that_arrived_is_not_given_twice(tmp_path: Path) -> None:
    """N15, R03: the line is cut after it was given; asked again, whatever is said then, what arrived counts."""
    async with bank(tmp_path) as far_bank, agent_of(far("ask first"), far_bank.executor(0.3)) as agent:
        run = await agent.start("Ask")
        answering = asyncio.create_task(agent.resume(run, "pay slowly"))
        await far_bank.until(lambda: far_bank.arrived() == 2)
        await far_bank.line.down()
        run = await answering
        assert run.pending[0]["question"].startswith("Which field?\n\nYour answer did not reach far")
        await far_bank.until(lambda: far_bank.paid)
        await far_bank.line.up()
        run = await agent.resume(run, "again")
        assert (run.status, far_bank.arrived(), far_bank.paid) == ("completed", 2, 1)


async def test_an_agent_that_is_not_there_got_nothing(tmp_path: Path) -> None:
    """N15, X07, honest: a refused connection is a plain failure; the next plan hands the work over, nobody is asked."""
    model = far("pay 12 EUR to Bo", "pay Bo 12 EUR, another try")
    async with bank(tmp_path) as far_bank:
        await far_bank.line.down()
        async with agent_of(model, far_bank.executor(30)) as agent:
            run = await agent.start("Pay", settings={"on_failure": "ask"})
            assert [pause["kind"] for pause in run.pending] == ["question"]
            await far_bank.line.up()
            run = await agent.resume(run, "replan")
            assert (run.status, far_bank.paid) == ("completed", 1)


async def test_an_agent_that_says_no_has_not_done_it(tmp_path: Path) -> None:
    """N15, honest: it ended the task as failed; the next plan hands over other work, nobody is asked."""
    model = far("fail please", "find papers")
    async with bank(tmp_path) as far_bank, agent_of(model, far_bank.executor(30)) as agent:
        run = await agent.start("Find")
        assert (run.status, far_bank.arrived()) == ("completed", 2)


async def test_an_agent_that_takes_too_long_may_do_it_yet(tmp_path: Path) -> None:
    """N15, X24: given up on after the time it has; a replan asks before it is handed over again."""
    model = far("pay slowly", "pay quickly")
    async with bank(tmp_path) as far_bank, agent_of(model, far_bank.executor(30, seconds=0.3)) as agent:
        run = await agent.start("Pay")
        assert [pause["kind"] for pause in run.pending] == ["effect"]
        assert far_bank.arrived() == 1


async def test_the_next_request_asks_about_the_one_before(tmp_path: Path) -> None:
    """N15, X20: the first ended without knowing; the same thread hands work to the same agent again."""
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([{"content": each, "executor": "far"}]) for each in ("pay Bo", "pay Bo now")],
            "execute": lambda messages, _: give_up("no answer"),
            "deliver": lambda *_: "Done.",
        },
        strict=False,
    )
    async with bank(tmp_path) as far_bank, agent_of(model, far_bank.executor(0.3)) as agent:
        running = asyncio.create_task(agent.start("Pay", thread_id="t", settings={"on_failure": "deliver"}))
        await far_bank.until(far_bank.arrived)
        await far_bank.line.down()
        run = await running
        assert run.status == "failed"
        assert "It is not known whether this took effect: far (" in run.answer
        run = await agent.start("Pay again", thread_id="t")
        assert [pause["kind"] for pause in run.pending] == ["effect"]
