"""Whole runs for tests about execution: start, answer each pause in turn, look at everything that came of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from donewhen import Agent, Models, Run, Settings
from donewhen.agent.tools import as_tools
from donewhen.testing import Request, ScriptedModel, submit_plan

Json = dict[str, Any]
FREE: Json = {"confirm": "never", "approvals": "plan"}
"""Settings under which nobody is asked about the plan, nor about calls that it lists."""


@dataclass
class Flow:
    """One thread, as far as it was driven."""

    run: Run
    values: Json
    events: list[Json] = field(default_factory=list)
    pauses: list[Json] = field(default_factory=list)

    @property
    def journal(self) -> list[Json]:
        """All observations."""
        return list(self.values.get("journal") or ())

    @property
    def status(self) -> str:
        """The outcome's status, or `waiting`."""
        return self.run.status

    def step(self, id: str) -> Json:
        """The record of a step."""
        return dict(self.run.steps[id])

    def told(self, type: str) -> list[Json]:
        """Events of one type."""
        return [event for event in self.events if event["type"] == type]


async def play(
    model: Models | ScriptedModel,
    tools: Sequence[Any] = (),
    *,
    answers: Sequence[Any] = (),
    settings: Mapping[str, Any] | Settings | None = None,
    effects: Mapping[str, Any] | None = None,
    executors: Mapping[str, Any] | None = None,
    storage: str = "memory:",
    goal: str = "Do the work for Ann and Bob",
    most: int = 40,
    **more: Any,
) -> Flow:
    """Run a goal to its end, or to the first pause for which there is no answer left.

    `answers`: one per pause, or functions of the pause. Without settings no plan is confirmed. `effects` may be a
    table for the tools of many tests.
    """
    named = (getattr(each, "tools", None) or () for each in (executors or {}).values())
    made = as_tools(tools)
    given = [*made, *(tool for each in named for tool in each)]
    own = {tool.name: effects[tool.name] for tool in given if effects and tool.name in effects}
    agent = Agent(model, made, storage=storage, effects=own, executors=executors, **more)
    async with agent:
        chosen = FREE if settings is None else settings
        stream = agent.stream(goal, settings=chosen)
        events = [dict(event) async for event in stream]
        pauses: list[Json] = []
        left = list(answers)
        while (run := await stream.result()).status == "waiting" and left:
            assert len(pauses) < most, "the run asks without end"
            pauses.append(dict(run.pending[0]))
            answer = left[0] if callable(left[0]) and len(left) == 1 else left.pop(0)
            said = answer(run.pending[0]) if callable(answer) else answer
            stream = agent.stream_resume(run.thread_id, said, settings=chosen)
            events += [dict(event) async for event in stream]
        state = await agent.graph.aget_state({"configurable": {"thread_id": run.thread_id}})
        return Flow(run, dict(state.values), events, pauses)


def say_done(*_: Any) -> str:
    """The delivery of whichever run asks a model for one; a plan of one step does not."""
    return "Done."


def one_step(replies: Any, *, deliver: Any = say_done, **step: Any) -> ScriptedModel:
    """A model that plans a single step and plays `replies` in it."""
    return steps([{"content": "do it", **step}], {"s1": replies}, deliver=deliver)


def steps(
    planned: Sequence[Any], replies: Mapping[str, Any], *, deliver: Any = say_done, **roles: Any
) -> ScriptedModel:
    """A model that submits these steps as its plan and plays the replies of each."""
    written = {id: of if callable(of) else list(of) for id, of in replies.items()}
    script: Json = {"triage": [submit_plan(planned)], "execute": written, **roles}
    return ScriptedModel(roles={**script, "deliver": deliver if callable(deliver) else list(deliver)})


def requests(model: ScriptedModel, step: str, role: str = "execute") -> list[Request]:
    """What the model was asked in a step."""
    return [request for request in model.requests if request.role == role and request.step == step]


def last_told(model: ScriptedModel, step: str = "s1") -> str:
    """The last message of the last request of a step."""
    return unfenced(str(requests(model, step)[-1].messages[-1].text))


def unfenced(text: str) -> str:
    """A prompt without the word in its tags, which each thread draws anew."""
    return re.sub(r"(?m)^(</?[a-z_]+) [0-9a-f]{6}(?=[ >])|^<fence>\n.*\n</fence>\n", r"\1", text)
