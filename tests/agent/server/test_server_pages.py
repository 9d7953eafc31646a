"""What pages made with `useStream` send beside the words: the checkpoint they looked at last, perhaps an old one."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from tests.kit.server_model import go_on

GOAL = {"messages": [{"role": "user", "content": "note the colour"}]}
MODES: Any = ["values", "messages-tuple", "custom"]


@pytest.fixture
async def page(server: str) -> AsyncIterator[tuple[LangGraphClient, str, Any]]:
    """A page that shows the plan of a thread: its client, the thread, and the checkpoint it has seen."""
    go_on.set()
    async with get_client(url=server) as client:
        id = (await client.threads.create())["thread_id"]
        await client.runs.wait(id, "agent", input=GOAL)
        yield client, id, await looked_at(client, id)


async def looked_at(client: LangGraphClient, id: str) -> Any:
    seen = (await client.threads.get_state(id))["checkpoint"]
    return {"checkpoint_id": seen["checkpoint_id"], "checkpoint_ns": ""}


async def stopped_at_work(client: LangGraphClient, id: str) -> None:
    """The plan is approved, and Stop pressed in the second step, when the first has written."""
    go_on.clear()
    async for part in client.runs.stream(id, "agent", command={"resume": "approve"}, stream_mode=MODES):
        if part.event == "metadata":
            run = part.data["run_id"]
        if part.event == "custom" and part.data["type"] == "step_started" and part.data["step"] == "s2":
            await client.runs.cancel(id, run, wait=True)
    go_on.set()


def written(values: Any) -> int:
    return sum(entry.get("tool") == "write_file" for entry in values["journal"])


@pytest.mark.parametrize(
    "given",
    [
        {"input": {"messages": [{"role": "user", "content": "continue"}]}},
        {"input": {}, "command": {"resume": {"decisions": [{"type": "approve"}]}}},
    ],
    ids=["typed", "approved once more"],
)
async def test_after_stop_a_page_goes_on_from_where_the_run_is(page: Any, given: Any) -> None:
    """U4: the page still shows the plan, and names its checkpoint; the run goes on, and writes nothing twice."""
    client, id, seen = page
    await stopped_at_work(client, id)
    await client.runs.wait(id, "agent", checkpoint=seen, **given)
    state = await client.threads.get_state(id)
    assert state["interrupts"][0]["value"]["kind"] == "question"
    assert (state["values"]["steps"]["s1"]["status"], written(state["values"])) == ("done", 1)


async def test_after_stop_other_text_steers(page: Any) -> None:
    """U4: whatever checkpoint the page names, the new plan is made with what was done."""
    client, id, seen = page
    await stopped_at_work(client, id)
    typed = {"messages": [{"role": "user", "content": "in blue, please"}]}
    await client.runs.wait(id, "agent", checkpoint=seen, input=typed)
    state = await client.threads.get_state(id)
    assert "In blue" in state["values"]["messages"][-1]["content"]
    assert (state["interrupts"][0]["value"]["kind"], written(state["values"])) == ("plan", 1)


async def test_a_second_approve_from_another_tab_is_refused(page: Any) -> None:
    """U4, W4: it does not run the plan once more from there, and is no answer to what is asked by now; only then."""
    client, id, seen = page
    approve = {"command": {"resume": {"decisions": [{"type": "approve"}]}}, "checkpoint": seen}
    await client.runs.wait(id, "agent", **approve)
    await client.runs.wait(id, "agent", **approve)
    state = await client.threads.get_state(id)
    asked = state["interrupts"][0]["value"]
    assert (asked["kind"], written(state["values"])) == ("question", 1)
    assert "that is answered already" in state["values"]["messages"][-1]["content"]
    seen = await looked_at(client, id)
    await client.runs.wait(id, "agent", command={"resume": "green"}, checkpoint=seen)
    await client.runs.wait(id, "agent", **approve)
    values = (await client.threads.get_state(id))["values"]
    assert (values["outcome"]["status"], values["messages"][-1]["content"]) == ("completed", "It is noted.")


async def test_a_message_said_otherwise_begins_anew_from_there(page: Any) -> None:
    """R03: at rest, a checkpoint is one to travel to: “edit” and “try again” of the pages."""
    client, id, _ = page
    first = (await client.threads.get_history(id, limit=100))[-1]
    before = {"checkpoint_id": first["checkpoint"]["checkpoint_id"], "checkpoint_ns": ""}
    other = {"messages": [{"role": "user", "content": "note it in blue"}]}
    await client.runs.wait(id, "agent", input=other, checkpoint=before)
    values = (await client.threads.get_state(id))["values"]
    assert [message["content"] for message in values["messages"] if message["type"] == "human"] == ["note it in blue"]
    assert "In blue" in values["messages"][-1]["content"]


async def test_what_is_typed_over_the_event_protocol_is_typed(page: Any, server: str) -> None:
    """C08, U4: @langchain/react sends `run.start`, of which the server makes an answer at a pause and after Stop."""
    client, id, _ = page

    async def typed(text: str) -> Any:
        given = {"messages": [{"type": "human", "content": text}]}
        start = {"id": 1, "method": "run.start", "params": {"assistant_id": "agent", "input": given}}
        async with httpx.AsyncClient(base_url=server) as protocol:
            sent = (await protocol.post(f"/threads/{id}/commands", json=start)).json()
        await client.runs.join(id, sent["result"]["run_id"])
        return await client.threads.get_state(id)

    assert "In blue" in (await typed("please have all of it done in blue"))["values"]["messages"][-1]["content"]
    await stopped_at_work(client, id)
    assert (await typed("continue"))["interrupts"][0]["value"]["kind"] == "question"
    values = (await typed("2"))["values"]
    assert (values["outcome"]["status"], values["messages"][-1]["content"]) == ("completed", "It is noted.")


async def test_the_recursion_limit_of_a_page_ends_no_run(page: Any) -> None:
    """S05: deep-agents-ui sends 100 with every message, which a step of fifty rounds would reach; budgets count."""
    client, id, _ = page
    await client.runs.wait(id, "agent", command={"resume": "approve"}, config={"recursion_limit": 3})
    assert (await client.threads.get_state(id))["interrupts"][0]["value"]["kind"] == "question"


@pytest.mark.parametrize(
    "given", [{"input": {"messages": [{"type": "human", "content": "yes"}]}}, {"command": {"resume": "approve"}}]
)
@pytest.mark.parametrize("at_checkpoint", [False, True])
async def test_no_values_of_a_subgraph_pass_for_the_threads(page: Any, given: Any, at_checkpoint: bool) -> None:
    """N73: agent-chat-ui streams subgraphs and takes every `values|…` for the thread's: the conversation was gone."""
    client, id, seen = page
    more = {"checkpoint": seen} if at_checkpoint else {}
    told: list[str] = []
    most = 0
    async for part in client.runs.stream(id, "agent", **given, **more, stream_mode=MODES, stream_subgraphs=True):
        told.append(part.event.partition(":")[0])
        if part.event.partition("|")[0] == "values" and "__interrupt__" not in part.data:
            messages = part.data["messages"]
            assert messages[0]["content"] == "note the colour", told
            assert len(messages) >= most, told
            most = len(messages)
    assert {"values", "custom|execute"} <= set(told)
    assert most > 3
