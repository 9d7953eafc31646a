"""How a run's progress stands in the conversation, and what a user can type into it after Stop."""

from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import MemorySaver
from langgraph.types import Command

from donewhen import Agent, Settings, build_graph
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, give_up, submit_plan
from tests.kit.flows import play, steps
from tests.kit.pauses import payload
from tests.kit.runs import config

PLAN = [{"content": "count the apples"}, {"content": "write it down"}]


def result(id: str, text: str) -> Any:
    """The step finishes on its own text."""
    return finish_step(text, f"{id}.result")


def cards(messages: list[Any]) -> list[tuple[str, str, str]]:
    """Every step in the conversation: who, what, and what came of it; "…" while it is open."""
    results = {m.tool_call_id: f"{m.status}: {m.text}" for m in messages if isinstance(m, ToolMessage)}
    calls = [c for m in messages if isinstance(m, AIMessage) for c in m.tool_calls if c["name"] == "task"]
    return [(c["args"]["subagent_type"], c["args"]["description"], results.get(c["id"], "…")) for c in calls]


async def test_each_step_is_a_task_with_its_result() -> None:
    """U2: stock pages draw step cards of `task` calls; a step that fails says so."""
    replies = {"s1": [result("s1", "Seven apples.")], "s2": [give_up("no paper")]}
    flow = await play(steps(PLAN, replies), settings={"confirm": "never", "on_failure": "deliver"})
    assert cards(flow.values["messages"]) == [
        ("Step 1", "count the apples", "success: Seven apples."),
        ("Step 2", "write it down", "error: Failed: no paper"),
    ]


async def test_what_a_single_step_says_stands_there_once() -> None:
    """U2, D05: its result is the answer, so the card only says that it is done."""
    flow = await play(steps(PLAN[:1], {"s1": [result("s1", "Seven apples.")]}))
    assert cards(flow.values["messages"]) == [("Step 1", "count the apples", "success: Done.")]
    assert [m.text for m in flow.values["messages"]].count("Seven apples.") == 1


async def test_a_step_that_waits_is_an_open_card() -> None:
    """U2, U6: while a person is asked, the card is open and the answer is still to be written."""
    flow = await play(steps(PLAN, {"s1": [ask_user("Which apples?"), result("s1", "Seven.")], "s2": []}))
    assert cards(flow.values["messages"]) == [("Step 1", "count the apples", "…")]
    assert flow.values["todos"][-1] == {"id": "answer", "content": "Write the answer", "status": "pending"}


async def test_no_prompt_holds_what_the_conversation_shows_of_steps() -> None:
    """U2, C15: the next request is planned from what user and assistant said, with plan and results in a line each, not
    from cards and talk at work."""
    model = ScriptedModel(
        roles={
            "triage": [submit_plan(PLAN), lambda messages, _: give_me(messages)],
            "execute": {"s1": ["I look at the trees.", result("s1", "Seven apples.")], "s2": [result("s2", "Noted.")]},
            "deliver": ["There are seven apples."],
        }
    )
    told: list[str] = []

    def give_me(messages: list[Any]) -> Any:
        told.append(messages[1].text)
        return submit_plan(["x"])

    agent = Agent(model, storage="memory:", settings=Settings(confirm="always"))
    run = await agent.start("Count", thread_id="t")
    await agent.resume(run, "approve")
    await agent.start("And again", thread_id="t")
    assert "There are seven apples." in told[0]
    assert "(a step) Seven apples." in told[0]
    for noise in ("I look at the trees", "Step 1"):
        assert noise not in told[0]


async def test_the_plan_stands_there_once() -> None:
    """U5: whole in the message and to be edited in the action; the call and the description have its title only."""
    flow = await play(steps(PLAN, {}), settings={"confirm": "always"})
    message = flow.values["messages"][-1]
    assert message.text.startswith("# Plan\n")
    assert "count the apples" in message.text
    assert "count the apples" not in str(message.tool_calls)
    action = payload(flow.run.pending[0])["action_requests"][0]
    assert action["description"].startswith("Plan: ")
    assert "count the apples" not in action["description"]
    assert "count the apples" in action["args"]["plan"]


async def stopped(agent: Agent) -> None:
    """A run with one step done, stopped before the second."""
    await agent.graph.ainvoke({"messages": [("user", "Count the apples")]}, config("t"))
    await agent.graph.ainvoke({"messages": [("user", "yes")]}, config("t"), interrupt_after=["execute"])


async def test_continue_after_stop_goes_on() -> None:
    """U4: the approved plan and its progress stay; nothing is planned or done again."""
    model = steps(PLAN, {"s1": [result("s1", "Seven apples.")], "s2": [result("s2", "Written.")]})
    agent = Agent(model, storage="memory:", settings=Settings())
    await stopped(agent)
    out = await agent.graph.ainvoke({"messages": [("user", "continue")]}, config("t"))
    assert (out["outcome"]["status"], out["outcome"]["text"]) == ("answered", "Done.")
    assert [card[2] for card in cards(out["messages"])] == ["success: Seven apples.", "success: Written."]
    model.assert_exhausted()


async def test_other_words_after_stop_steer() -> None:
    """U4: they reach the planner, and what is finished stays finished."""
    told: list[str] = []

    def again(messages: list[Any], _: Any) -> Any:
        told.append(messages[1].text)
        return submit_plan([{"id": "s2", "content": "draw it"}])

    model = ScriptedModel(
        roles={
            "triage": [submit_plan(PLAN), again],
            "execute": {"s1": [result("s1", "Seven apples.")], "s2": [result("s2", "Drawn.")]},
            "deliver": ["A drawing of seven apples."],
        }
    )
    agent = Agent(model, storage="memory:", settings=Settings())
    await stopped(agent)
    out = await agent.graph.ainvoke({"messages": [("user", "Draw it instead")]}, config("t"))
    assert "Draw it instead" in told[0]
    assert "Seven apples." in told[0]
    assert "draw it" in out["messages"][-1].text
    out = await agent.graph.ainvoke({"messages": [("user", "yes")]}, config("t"))
    assert out["outcome"]["text"] == "A drawing of seven apples."
    assert [row["status"] for row in out["outcome"]["receipt"]["steps"]] == ["done", "done"]
    model.assert_exhausted()


async def test_a_second_approve_answers_no_question() -> None:
    """W4, U4: from another tab, which still shows the plan, it is refused and said; once more, it is meant."""
    approve = {"decisions": [{"type": "approve"}]}
    model = steps(PLAN[:1], {"s1": [ask_user("Which apples?"), result("s1", "Seven.")]})
    flow = await play(model, settings={"confirm": "always"}, answers=[approve, approve])
    assert flow.status == "waiting"
    assert "not be meant for this question" in flow.run.problem
    model = steps(PLAN[:1], {"s1": [ask_user("Which apples?"), result("s1", "Seven.")]})
    assert (await play(model, settings={"confirm": "always"}, answers=[approve, approve, approve])).status == "answered"
    model = steps(PLAN[:1], {"s1": [ask_user("Welche Äpfel?"), result("s1", "Sieben.")]})
    flow = await play(model, settings={"confirm": "always", "language": "de"}, answers=[approve, approve])
    assert flow.run.problem.startswith("„genehmigen“ hat die Frage vor dieser beantwortet")  # Q27


async def test_a_stale_approve_of_a_call_is_told_by_the_interrupts_id() -> None:
    """W4: clients that send LangGraph's id of the interrupt answer that one; sent again, it approves no later call."""
    sent: list[str] = []

    def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return f"sent to {to}"

    calls = [[call("send", to="Ann")], [call("send", to="Bob")]]
    model = steps(PLAN[:1], {"s1": [*calls, result("s1", "Sent.")]})
    graph = build_graph(model, [send], effects={"send": "write"}).compile(MemorySaver())
    await graph.ainvoke({"messages": [("user", "Send letters")]}, config("t"))

    async def approve(id: str) -> str:
        resumed: Any = Command(resume={id: {"decisions": [{"type": "approve"}]}})
        await graph.ainvoke(resumed, config("t"))
        waiting = (await graph.aget_state(config("t"))).interrupts
        return waiting[0].id if waiting else ""

    ann = await approve((await graph.aget_state(config("t"))).interrupts[0].id)
    bob = await approve(ann)
    assert (sent, bob not in ("", ann)) == (["Ann"], True)
    assert await approve(ann) == bob
    assert sent == ["Ann"]
    assert await approve(bob) == ""
    assert sent == ["Ann", "Bob"]
