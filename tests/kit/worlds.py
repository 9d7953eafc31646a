"""A world that keeps its own books: a model, tools and executors that do what is drawn, and count what really happens.

Nothing here reads the ledger. What a model answers depends on the conversation it sees, so that any process can go on.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool
from langgraph.graph import START, MessagesState, StateGraph

from donewhen import Executor
from donewhen.agent.testing.script import read_request
from donewhen.agent.tools import as_tools
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, give_up, observed, reply, submit_plan

Json = dict[str, Any]
Move = tuple[str, int]
"""What a model does in one reply, and how much of it."""
EFFECTS: Json = {"look": "read", "send": "write", "consult": "read", "holds": "read"}
PRICES = {"m": {"input": 1000.0, "output": 1000.0}}
BOUGHT = ("input_tokens", "cached_tokens", "output_tokens", "cost_usd")


@dataclass(frozen=True)
class Paid:
    """Something that really happened and has to stand in the ledger."""

    role: str
    step: str | None
    place: tuple[int, str, int]
    """Which process, which node of the step, which of its rounds: a crash may lose what happened in the last place."""
    amounts: Json


@dataclass
class World:
    """One drawn world. `scripts` are the moves of each step; a step that a later plan invents takes one of them."""

    plan: list[Json]
    scripts: list[list[Move]]
    planner: list[str] = field(default_factory=list)
    sizes: Sequence[int] = (1,)
    """How large calls are, by round: 1 and more."""
    books: list[Paid] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    """How often each call of a tool was made."""
    process: int = 0
    """How many were cut off before."""
    calls_left: int = 0
    task: "asyncio.Task[Any] | None" = None
    plans: int = 0
    failed: set[Any] = field(default_factory=set)

    # What really happens -----------------------------------------------------------------------------------------

    def spent(self, step: str | None = None) -> Json:
        """All that was spent, or what one step spent."""
        total: Counter[str] = Counter()
        for paid in self.books:
            if step is None or paid.step == step:
                total.update(paid.amounts)
        return {key: round(amount, 10) for key, amount in total.items()}

    def uncertain(self) -> Json:
        """The most that crashes may have kept from the ledger: of every process but the last, each step's last node."""
        last = {(paid.place[0], paid.role == "deliver", paid.step): paid.place for paid in self.books}
        total: Counter[str] = Counter()
        for paid in self.books:
            if paid.place[0] < self.process and paid.place in last.values():
                total.update(paid.amounts)
        return dict(total)

    def largest(self, key: str) -> float:
        """The most that one call of a model took."""
        return max((paid.amounts.get(key, 0) for paid in self.books), default=0)

    def _pay(self, role: str, step: str | None, node: str, place: int | None, **amounts: float) -> None:
        if place is None:  # a check or a judge is not told the round; it is that of the claim
            place = next((paid.place[2] for paid in reversed(self.books) if paid.step == step), 0)
        self.books.append(Paid(role, step, (self.process, f"{step}.{node}", place), amounts))
        self.calls_left -= 1
        if self.calls_left == 0 and self.task is not None:
            self.task.cancel()

    def cut(self, call: int | None, task: "asyncio.Task[Any]") -> None:
        """Cancel the task at its call number `call`, of whatever."""
        self.calls_left, self.task = call or 0, task

    def _asked(self, role: str, step: str | None, node: str, place: int | None) -> Json:
        """A model is called and answers; what the provider reports is what it really took."""
        size = self.sizes[(place or 0) % len(self.sizes)]
        usage = {"input_tokens": 100 * size, "output_tokens": 10 * size, "input_token_details": {"cache_read": 30}}
        bought = {"input_tokens": 100 * size, "cached_tokens": 30, "output_tokens": 10 * size, "cost_usd": 0.11 * size}
        rounds = {"rounds": 1} if node == "decide" else {}
        self._pay(role, step, node, place, model_calls=1, **bought, **rounds)
        return usage

    # The models --------------------------------------------------------------------------------------------------

    def model(self) -> ScriptedModel:
        """The model of every role."""
        roles = {"triage": self._plans, "plan": self._plans, "execute": self._works}
        roles |= {"deliver": self._delivers, "judge": self._judges}
        return ScriptedModel(roles=roles, model_name="m")

    def _plans(self, messages: list[BaseMessage], tools: Any) -> Any:
        request = read_request(messages, None, {})
        place, role = _place(messages), str(request.role)
        usage = self._asked(role, None, role, place)
        move = self.planner[place] if place < len(self.planner) else "plan"
        if move == "broken":
            return reply("", [call("nothing")], usage=usage)
        if move == "ask":
            return reply("", [ask_user(f"Planner's question {self.plans}.{place}?")], usage=usage)
        self.plans += 1
        steps = self.plan
        if self.plans > 1:
            # Another way: fewer steps, side by side.
            steps = [planned(f"r{self.plans}x{n}", step, depends_on=[]) for n, step in enumerate(steps[:2], 1)]
        thinking = role == "triage" and move == "think"
        return reply("", [submit_plan(steps, need_thinking=thinking)], usage=usage)

    def _works(self, messages: list[BaseMessage], tools: Any) -> Any:
        step, place = str(read_request(messages, None, {}).step), _place(messages)
        script = self._script(step)
        move, size = script[place] if place < len(script) else ("finish", 0)
        if move == "flaky" and (self.process, step, place) not in self.failed:
            self.failed.add((self.process, step, place))
            self._pay("execute", step, "decide", place, model_calls=1)
            return ModelError("simulated", retryable=True, retry_after=0)
        usage = self._asked("execute", step, "decide", place)
        return reply("Well.", self._calls(step, place, move, size, messages), usage=usage)

    def _script(self, step: str) -> list[Move]:
        return self.scripts[sum(map(ord, step)) % len(self.scripts)]

    def _calls(self, step: str, place: int, move: str, size: int, messages: list[BaseMessage]) -> list[Any]:
        what = [f"{step}/{place}/{n}" for n in range(size)]
        if move == "mixed":
            return [call("look", what=f"{step}/{place}/a"), *(call("send", what=one) for one in what)]
        if move in ("look", "send", "consult"):
            return [call(move, what=one) for one in what]
        if move == "broken":
            return [call("nothing")]
        if move == "refused":
            return [finish_step("done", f"{step}.999")]
        if move == "ask":
            return [ask_user(f"Question {step}, number {place}?")]
        if move == "give_up":
            return [give_up("it cannot be done", ("failed", "blocked", "replan")[size % 3])]  # type: ignore[arg-type]
        if move == "finish":
            seen = observed(messages) + [m.text[1:].split("]")[0] for m in messages if m.text.startswith(f"[{step}.")]
            return [finish_step("done", seen[-1])] if seen else [call("look", what=f"{step}/{place}/end")]
        return []

    def _delivers(self, messages: list[BaseMessage], tools: Any) -> Any:
        return reply("So.", usage=self._asked("deliver", None, "deliver", 0))

    def _judges(self, messages: list[BaseMessage], tools: Any) -> Any:
        # A judge is not told which step it is: the step is in the last observation that it is shown.
        text = "\n".join(message.text for message in messages)
        step = text.rsplit("green ", 1)[1].split("/")[0] if "green " in text else None
        return reply("", [call("verdict", met=True, reason="seen")], usage=self._asked("judge", step, "proof", None))

    # The tools ---------------------------------------------------------------------------------------------------

    def tools(self) -> list[BaseTool]:
        """Two that read, one that writes, one that calls a model of its own, and one for checks."""

        async def look(what: str) -> str:
            """Look at something."""
            return self._made("look", what)

        async def send(what: str) -> str:
            """Send something."""
            return self._made("send", what)

        async def consult(what: str) -> str:
            """Ask another model."""
            said = self._made("consult", what)
            await self._consulted(*what.split("/")[:2])
            return said

        async def holds(what: str) -> str:
            """Whether it holds."""
            return self._made("holds", what)

        return as_tools([look, send, consult, holds])

    def _made(self, tool: str, what: str) -> str:
        step, place, *_ = what.split("/")
        self.done[f"{tool} {what}"] += 1
        if tool == "holds":
            self._pay(tool, step, "proof", None, tool_calls=1)
        else:
            self._pay(tool, step, "act", int(place), tool_calls=1)
        return f"green {what}"

    async def _consulted(self, step: str, place: str) -> BaseMessage:
        """A tool or an executor calls a model by itself; the prompt is as long as it costs, so that it can be told."""
        size = self.sizes[int(place) % len(self.sizes)]
        return await self._inner().ainvoke([HumanMessage(f"{step}/{place}/".ljust(400 * size, "?"))])

    def _inner(self) -> ScriptedModel:

        def policy(messages: list[BaseMessage], tools: Any) -> Any:
            step, place, *_ = messages[-1].text.split("/")
            return reply(f"green {step}/{place}", usage=self._asked("inner", step, "act", int(place)))

        return ScriptedModel(policy, model_name="m")

    # The executors -----------------------------------------------------------------------------------------------

    def executors(self, tools: Sequence[BaseTool]) -> dict[str, Executor]:
        """A profile with few tools, a function that works alone, and a graph that does."""

        async def work(brief: str) -> str:
            step = self._delegated("worker", brief)
            for _ in range(3):
                await self._consulted(step, "0")
            return f"green {step}/0/work"

        async def think(state: MessagesState) -> Json:
            step = self._delegated("crew", state["messages"][-1].text)
            return {"messages": [await self._consulted(step, "0")]}

        graph = StateGraph(MessagesState)
        graph.add_node("think", think)
        graph.add_edge(START, "think")
        return {
            "scout": Executor("looks", profile="You only look.", tools=tuple(tools[:1])),
            "worker": Executor("works", work=work),
            "crew": Executor("thinks", graph=graph.compile()),
        }

    def _delegated(self, name: str, brief: str) -> str:
        step = brief.split('<step id="', 1)[1].split('"')[0]
        self.done[f"{name} {step}"] += 1
        self._pay(name, step, "act", 0, tool_calls=1)
        return step


def planned(id: str, step: Json, **change: Any) -> Json:
    """The step under this id, with a check of its own if it is checked."""
    check = {"text": "checked", "check": {"tool": "holds", "arguments": {"what": f"{id}/0/it"}, "expect": "ok"}}
    proof = [check if isinstance(one, dict) and "check" in one else one for one in step["done_when"]]
    return {**step, "id": id, "done_when": proof, **change}


def _place(messages: Sequence[BaseMessage]) -> int:
    """How many replies the conversation has: a script is read on from there."""
    return sum(isinstance(message, AIMessage) for message in messages)
