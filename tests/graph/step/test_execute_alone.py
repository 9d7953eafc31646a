"""Executors that work by themselves: once, charged, proven like any step. Models inside of tools are charged too."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from donewhen import Executor, build_graph
from donewhen.state.settings import Settings
from donewhen.testing import ScriptedModel, call, finish_step, give_up, reply
from tests.kit.flows import FREE, one_step, play, requests, steps, unfenced

USAGE = {"input_tokens": 1000, "output_tokens": 50}
PROOF = finish_step("three papers", ("s1.1", "three papers"))


def helper(*texts: str) -> ScriptedModel:
    """The model that an executor or a tool calls by itself."""
    return ScriptedModel([reply(text, usage=USAGE) for text in texts], model_name="helper")


async def test_an_async_function_gets_the_brief_and_its_result_is_one_observation() -> None:
    """X17, X13: called by the executor's name; the model then proves the step with it."""
    briefs: list[str] = []

    async def research(brief: str) -> str:
        briefs.append(brief)
        return "I found three papers."

    model = one_step([PROOF], executor="Researcher [1]", done_when=["papers are found"])
    flow = await play(model, executors={"Researcher [1]": Executor("finds papers", work=research)}, goal="Find papers")
    model.assert_exhausted()
    assert flow.status == "completed"
    assert len(briefs) == 1
    assert "Find papers" in briefs[0]
    assert "papers are found" in briefs[0]
    entry = flow.journal[0]
    assert (entry["id"], entry["tool"], entry["effect"], entry["ok"]) == ("s1.1", "Researcher [1]", "write", True)
    assert [m.type for m in requests(model, "s1")[0].messages] == ["system", "human", "human"]
    said = unfenced(requests(model, "s1")[0].messages[-1].text)
    assert said.startswith("[s1.1] Researcher [1] ok\n<tool_output>\nI found")
    assert flow.run.spent["tool_calls"] == 1


def asks(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(interrupt("Which paper?"))]}


async def fails(brief: str) -> str:
    raise RuntimeError("no network")


async def hangs(brief: str) -> str:
    await asyncio.Event().wait()
    return ""


@pytest.mark.parametrize(
    ("work", "said"),
    [({"work": fails}, "no network"), ({"work": hangs, "seconds": 0.05}, "no result after 0.05 seconds")],
    ids=["raises", "hangs"],
)
async def test_an_executor_that_fails_is_an_observation(work: dict[str, Any], said: str) -> None:
    """X07, X09: the model learns it and gives up, or does it in another way; it never counts as done."""
    model = one_step([PROOF, give_up("it failed")], executor="worker", deliver=[])
    settings = {**FREE, "on_failure": "deliver"}
    flow = await play(model, executors={"worker": Executor("works", **work)}, settings=settings)
    model.assert_exhausted()
    assert flow.step("s1")["status"] == "failed"
    assert not flow.journal[0]["ok"]
    assert said in flow.journal[0]["text"]


async def test_nothing_runs_beside_it_and_graphs_inside_of_it_are_its_own() -> None:
    """DESIGN 2, DESIGN 8: nobody knows what it does, so others wait; a pause of a graph in there is its own."""
    inner = StateGraph(MessagesState).add_node("a", asks).add_edge(START, "a").compile()
    looked = asyncio.Event()

    async def work(brief: str) -> str:
        output = await inner.ainvoke({"messages": [HumanMessage(brief)]})
        with suppress(TimeoutError):
            await asyncio.wait_for(looked.wait(), 0.05)
        return f"three papers, {len(output['__interrupt__'])} question, looked: {looked.is_set()}"

    async def look() -> str:
        """Look while somebody is at work."""
        looked.set()
        return "nobody"

    plan = [{"content": "find", "executor": "worker", "tools": []}, {"content": "look", "depends_on": []}]
    model = steps(plan, {"s1": [PROOF], "s2": [call("look"), finish_step("no", "s2.1")]})
    flow = await play(model, [look], effects={"look": "read"}, executors={"worker": Executor("works", work=work)})
    model.assert_exhausted()
    assert flow.status == "completed"
    assert flow.journal[0]["text"] == "three papers, 1 question, looked: False"


async def test_it_works_once_however_often_the_step_goes_on() -> None:
    """X15, X16: not again after a question, not again after a budget."""
    count = []

    async def work(brief: str) -> str:
        count.append(brief)
        return "three papers"

    model = one_step([call("ask_user", question="Enough?"), PROOF], executor="worker")
    settings = {**FREE, "step_limits": {"rounds": 1}}
    flow = await play(
        model, executors={"worker": Executor("works", work=work)}, settings=settings, answers=["yes", "extend 1"]
    )
    model.assert_exhausted()
    assert flow.status == "completed"
    assert len(count) == 1
    assert [p["kind"] for p in flow.pauses] == ["question", "budget"]


async def test_where_every_write_is_approved_its_work_is_too() -> None:
    """X15: with the brief that was shown, or as a person changed it, and nothing else; rejected, it does not happen."""
    count: list[str] = []

    async def work(brief: str) -> str:
        count.append(brief)
        return "three papers"

    def edit(**args: Any) -> Any:
        return {"decisions": [{"type": "edit", "edited_action": {"name": "worker", "args": args}}]}

    given: Any = {
        "executors": {"worker": Executor("works", work=work)},
        "settings": {**FREE, "approvals": "each", "on_failure": "deliver"},
    }
    flow = await play(one_step([PROOF], executor="worker"), answers=["approve"], **given)
    assert (flow.status, flow.pauses[0]["tool"]) == ("completed", "worker")
    assert flow.pauses[0]["arguments"] == {"brief": count[0]}
    edits = [edit(brief=5), edit(brief="Only papers of this year")]
    flow = await play(one_step([PROOF], executor="worker"), answers=edits, **given)
    assert (flow.status, count[1:]) == ("completed", ["Only papers of this year"])
    assert "takes one argument, brief" in flow.pauses[1]["problem"]
    flow = await play(one_step([give_up("not wanted")], executor="worker", deliver=[]), answers=["reject"], **given)
    assert len(count) == 2
    assert "the user rejected this call" in flow.journal[0]["text"]


class Breaks(InMemoryStore):
    """A store that fails once, when an observation is to be kept for the n-th time."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    async def aput(self, namespace: tuple[str, ...], key: str, value: Any, *args: Any, **more: Any) -> None:
        if namespace[:2] == ("donewhen", "observations"):
            self.left -= 1
            if self.left == 0:
                raise OSError("disk full")
        await super().aput(namespace, key, value, *args, **more)


async def crashed(size: int, at: int) -> tuple[Any, Any, list[str]]:
    """A run that broke off while the store was writing down what an executor had done."""
    inner, count = helper("ok"), list[str]()

    async def work(brief: str) -> str:
        count.append((await inner.ainvoke(brief)).text)
        return "three papers " + "x" * size + " end"

    model = steps([{"content": "do it", "executor": "worker"}], {"s1": [PROOF]})
    builder = build_graph(model, executors={"worker": Executor("works", work=work)})
    graph: Any = builder.compile(checkpointer=InMemorySaver(), store=Breaks(at))
    config: Any = {"configurable": {"thread_id": "t"}}
    how: Any = {"context": Settings(confirm="never"), "durability": "sync"}
    with pytest.raises(OSError, match="disk full"):
        await graph.ainvoke({"messages": [("user", "go")]}, config, **how)
    return graph, (config, how), count


@pytest.mark.parametrize("size", [20_000, 60_000])
async def test_after_a_crash_its_output_and_its_cost_are_replayed(size: int) -> None:
    """R02, R03, R05: the work is not done again, its text is whole, its models are charged once."""
    graph, (config, how), count = await crashed(size, 2)
    result = await graph.ainvoke(None, config, **how)
    assert result["outcome"]["status"] == "completed"
    values = (await graph.aget_state(config)).values
    assert values["journal"][0]["length"] == size + 17
    assert values["spent"]["model_calls"] == 4
    assert values["spent"]["tool_calls"] == 1
    assert len(count) == 1


@pytest.mark.parametrize(("answer", "times", "ok"), [("it happened", 1, True), ("skip", 1, False)])
async def test_work_of_which_nobody_knows_is_asked_about(answer: str, times: int, ok: bool) -> None:
    """R03: cut off before its outcome was written down, it is not simply done again."""
    graph, (config, how), count = await crashed(60_000, 1)
    result = await graph.ainvoke(None, config, **how)
    pause = result["__interrupt__"][0]
    assert pause.value["kind"] == "effect"
    await graph.ainvoke(Command(resume={pause.id: answer}), config, **how)
    entry = (await graph.aget_state(config)).values["journal"][0]
    assert (len(count), entry["ok"]) == (times, ok)
