"""Small scripted runs to pause, answer and resume; shared by the tests about people."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool

from donewhen import Agent
from donewhen.agent.run import Run
from donewhen.agent.testing.replies import Call
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan


def step(id: str, content: str = "", *, tools: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """A step with one criterion; without tools its own text proves it."""
    content = content or f"work on {id}"
    return {"id": id, "content": content, "done_when": [f"{content}: done"], "tools": list(tools), **more}


def said(id: str, result: str = "done") -> Call:
    """The step finishes; its text is its evidence."""
    return finish_step(result, evidence=f"{id}.result")


class Outbox:
    """A tool with an effect that can be counted: what was sent, argument by argument."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def tool(self, name: str = "send", **metadata: Any) -> StructuredTool:
        """A write that nobody can take back. Its arguments reach it as they were approved, with no coercion."""
        schema = {
            "type": "object",
            "properties": {"to": {"type": "string"}, "text": {"type": "string"}, "extra": {}},
            "required": ["to", "text"],
            "additionalProperties": False,
        }

        async def send(**arguments: Any) -> str:
            self.sent.append(arguments)
            return f"sent to {arguments['to']}"

        return StructuredTool(
            name=name, description="Send a message.", args_schema=schema, coroutine=send, metadata=metadata
        )


def say_done(*_: Any) -> str:
    """The delivery of whichever run asks a model for one; a plan of one step does not."""
    return "All done."


def scripted(
    plan: Call | Sequence[Any], execute: Mapping[str, Any] | None = None, deliver: Any = say_done
) -> ScriptedModel:
    """A model for one run: what the triage says, what each step does, what is delivered."""
    triage = list(plan) if isinstance(plan, list | tuple) else [plan]
    roles: dict[str, Any] = {"triage": triage, "deliver": deliver if callable(deliver) else list(deliver)}
    if execute is not None:
        roles["execute"] = execute
    return ScriptedModel(roles=roles)


def one_step(deliver: Any = say_done) -> ScriptedModel:
    """A plan with one step that writes a text."""
    return scripted(submit_plan([step("s1")], title="One"), {"s1": [said("s1")]}, deliver)


def asking(question: str = "Which colour?", **more: Any) -> ScriptedModel:
    """One step that asks, and finishes on the answer."""
    return scripted(
        submit_plan([step("s1")]),
        {"s1": [ask_user(question, **more), lambda m, _: finish_step(m[-1].text[:200], evidence=last_seen(m))]},
    )


async def paused(agent: Agent) -> Run:
    """The run at its first question."""
    run = await agent.start("do it")
    assert run.status == "waiting"
    assert run.pending[0]["kind"] == "question"
    return run


def two_questions() -> ScriptedModel:
    """Two steps side by side; each asks something, then finishes with the answer."""
    plan = submit_plan([step("s1", depends_on=[]), step("s2", depends_on=[])], title="Two")
    return scripted(
        plan,
        {
            "s1": [ask_user("Which colour?", ["red", "green"]), said("s1", "coloured")],
            "s2": [ask_user("Which size?"), said("s2", "sized")],
        },
    )


def sending(*calls: Call | list[Call], tools: Sequence[str] = ()) -> ScriptedModel:
    """One step that makes these calls, one decision each, and finishes on its last observation."""
    rounds: list[Any] = list(calls) or [call("send", to="ann", text="hello")]
    policy: Callable[..., Any] = lambda messages, _: finish_step("handled", evidence=last_seen(messages))  # noqa: E731
    # The title names what is sent: an approved plan is the source of its calls' arguments.
    made = [each["args"] for each in rounds if isinstance(each, dict) and "args" in each]
    named = [{name: said for name, said in args.items() if not isinstance(said, dict)} for args in made]
    plan = submit_plan([step("s1", tools=tools)], title=f"Send {json.dumps(named)}" if tools else "Send")
    return scripted(plan, {"s1": [*rounds, policy]})


def last_seen(messages: Sequence[Any]) -> str:
    """The id of the newest observation in a prompt."""
    return next(m.text.split("]")[0][1:] for m in reversed(messages) if m.text.startswith("["))


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


async def values(agent: Agent, thread: str) -> dict[str, Any]:
    """The state of a thread."""
    return dict((await agent.graph.aget_state(config(thread))).values)


def calls_and_results(messages: Sequence[Any]) -> tuple[list[str], list[str]]:
    """Ids of the tool calls that stand for pauses, and of those that have a result; the cards of steps aside."""
    calls = {c["id"]: c["name"] for m in messages if isinstance(m, AIMessage) for c in m.tool_calls}
    opened = [id for m in messages if isinstance(m, AIMessage) for id in (c["id"] for c in m.tool_calls)]
    answered = [m.tool_call_id for m in messages if m.type == "tool"]
    return [id for id in opened if calls[id] != "task"], [id for id in answered if calls.get(id) != "task"]


async def drawn(agent: Agent, run: Run) -> None:
    """Assert what clients need to draw the pause: the last message is its text and its tool call (CLIENTS 1.4)."""
    snapshot = await agent.graph.aget_state(config(run.thread_id))
    (interrupt,) = snapshot.interrupts
    message = snapshot.values["messages"][-1]
    assert isinstance(message, AIMessage)
    assert message.text.strip()
    (tool_call,) = message.tool_calls
    (action,) = interrupt.value["action_requests"]
    assert tool_call["name"] == action["name"]
    assert tool_call["id"] == interrupt.value["tool_call_id"]
    opened, answered = calls_and_results(snapshot.values["messages"])
    assert len(set(opened)) == len(opened)
    assert answered == opened[:-1]
