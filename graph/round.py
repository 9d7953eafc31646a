"""One round: ask a model in its role, read the reply, and act on it or say what is wrong with it.

When a round may be made, what it costs, how a reply is read and how often a bad one is sent back is the same for all
roles, and decided here. A role says what it asks, what it objects to, and what a decision does to its work.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.day_budget import DayLimitReached
from donewhen.graph.events import emit, emit_charge
from donewhen.graph.llm.ask import ModelReply, ModelRequest, ask
from donewhen.graph.llm.endings import reached_limit
from donewhen.graph.llm.history import calls_natively, reply_messages, storable_reply
from donewhen.graph.llm.reply import Decision, UnusableReply, aside, read_reply
from donewhen.graph.llm.speech import SpeechStream
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.errors import ModelError
from donewhen.state.language.texts import say_why
from donewhen.state.ledger import Amounts, DayAccount, add, allowance_left, first_exhausted
from donewhen.state.secrets import redact
from donewhen.state.settings import Settings

Change = TypeVar("Change")
"""What a round returns: the update of a node, or the end of a work inside a node."""


class Work(ABC, Generic[Change]):
    """A conversation with a model in one role, as far as it has come; rounds change it."""

    runtime: Runtime[Settings]
    deps: Deps
    state: Any
    """What is known of the work, with its record."""
    key: ClassVar[str] = "record"
    cleared: ClassVar[Mapping[str, None]] = {}
    """Channels that are cleared when the work goes on."""
    spent: Amounts
    """What its node spent."""
    legal: Sequence[str] = ()
    """The control tools of this moment."""
    tools: Toolbox | None = None
    """The domain tools that may be called."""
    claimed: str = ""
    """The result of a claim that was sent back, for a claim that names none."""
    replies: bool = False
    """True if the reply is to what a person said about a plan."""
    prints: bool = True
    """True if the model made no tool call so far, so that a decision may stand in its text."""
    speech: SpeechStream | None = None
    """The speech of the last reply."""
    day: DayAccount | None = None
    """The account of the day that allowed no request, if one did not."""

    @property
    def settings(self) -> Settings:
        """The settings of the run."""
        return self.runtime.context

    @property
    @abstractmethod
    def language(self) -> str:
        """The language of the runtime's texts."""

    @property
    def record(self) -> Any:
        """What is kept of the work; with `corrections`, the unusable replies in a row."""
        return self.state[self.key]

    def note(self, **fields: Any) -> Self:
        """Set these fields in the record."""
        self.state = {**self.state, self.key: {**self.record, **fields}}
        return self

    @property
    def place(self) -> str | None:
        """The step, in events; None for the run."""
        return None

    @property
    def offered(self) -> Sequence[str]:
        """The control tools that a correction names."""
        return self.legal

    def lacks(self) -> str | None:
        """Return what a round lacks: time ("deadline"), or the amount that is used up (X08)."""
        return "deadline" if self.settings.is_late() else first_exhausted(self.left())

    def obstacle(self) -> str | None:
        """Return what stands in the way of a round."""
        return self.lacks()

    def say(self, outcome: Decision | UnusableReply) -> None:
        """Stream the rest of the reply's words to people, and take back streamed text that is not among them."""
        taken = outcome if isinstance(outcome, Decision) else Decision("speak")
        if self.speech:
            self.speech.finish(outcome.speech, taken.kind, taken.arguments)

    def left(self) -> Amounts:
        """Return what the work may still spend."""
        return allowance_left({**self.state, "spent": add(self.state.get("spent"), self.spent)})

    async def ask(self, question: ModelRequest) -> ModelReply:
        """Ask the model."""
        return await ask(self.deps, self.settings, question)

    def charge(self, spent: Amounts, rounds: int) -> None:
        """Count rounds and what they cost; the run limits the rounds of its steps as well."""
        spent = add(spent, {"rounds": rounds}) if rounds and self.place else spent
        emit_charge(self.runtime, self.place, spent)
        self.spent = add(self.spent, spent)
        self.note(rounds=self.record["rounds"] + rounds)

    def go_on(self, messages: Sequence[AnyMessage]) -> Change:
        """Go on with these messages after the rounds so far."""
        return cast("Change", {self.key: self.state[self.key], "transcript": list(messages), **self.cleared})

    @abstractmethod
    def leave(self, obstacle: str) -> Change:
        """Return what comes of the work at an obstacle."""

    @abstractmethod
    def fail(self, error: ModelError) -> Change:
        """Return what comes of the work without a reply."""

    @abstractmethod
    def give_up(self, reason: str, messages: Sequence[AnyMessage], code: str) -> Change:
        """Return what comes of the work after too many corrections."""


W = TypeVar("W", bound=Work[Any])


@dataclass(frozen=True)
class Role(Generic[W, Change]):
    """What is particular to a role."""

    ask: Callable[[W], Awaitable[ModelRequest]]
    """Returns the request, after it set what is legal now."""
    handlers: Mapping[str, Callable[[W, AIMessage, Decision], Awaitable[Change]]]
    """What a decision does, by its kind."""
    read_text: Callable[[W, AIMessage, Decision], Awaitable[Decision | UnusableReply]]
    """Reads a reply without a call: a decision, or why it cannot be used."""
    objections: Callable[[W, Decision], Awaitable[list[str]]]
    """Returns what is wrong with a legal decision."""
    example: str = ""
    """A good reply, for the last correction."""
    writes: bool = False
    """True if the model is asked for a text, so that a decision printed in it is a part of that text."""
    inside: bool = False
    """True if its rounds are made inside one node, whose events tell what came of them."""


async def no_objections(work: Any, decision: Decision) -> list[str]:
    """Object to nothing."""
    return []


async def make_round(work: W, role: Role[W, Change]) -> Change:
    """Ask the model and act on its reply; leave the work if no round may be made."""
    if obstacle := work.obstacle():
        return work.leave(obstacle)  # type: ignore[no-any-return]
    while True:
        question = await role.ask(work)
        reply = await work.ask(question)
        if isinstance(reply.error, DayLimitReached):
            work.charge(reply.spent, rounds=0)
            work.day = reply.error.account
            return work.leave(reply.error.key)  # type: ignore[no-any-return]
        work.charge(reply.spent, rounds=0 if reply.needs_fewer_tools else 1)
        if not reply.needs_fewer_tools:
            break
    if (written := reply.message) is None:
        assert reply.error is not None
        obstacle = work.lacks() if reply.error.retryable else None  # with more of it, a retry could help
        return work.leave(obstacle) if obstacle else work.fail(reply.error)  # type: ignore[no-any-return]
    work.speech, work.prints = reply.speech, not calls_natively(question.messages)
    message = await aside(written, partial(storable_reply, written))
    printed = work.prints and not role.writes
    about: dict[str, Any] = {"printed": printed, "result": work.claimed, "replies": work.replies}
    outcome = await aside(written, partial(read_reply, written, work.legal, work.tools, **about))
    if isinstance(outcome, Decision) and outcome.kind == "speak" and not outcome.arguments:
        cut = UnusableReply([say_why(work.language, "cut_off")]) if reached_limit(written) else None
        outcome = cut or await role.read_text(work, written, outcome)
    return await act_on(work, role, message, outcome)


async def act_on(work: W, role: Role[W, Change], message: AIMessage, outcome: Decision | UnusableReply) -> Change:
    """Carry out the decision, or say what is wrong with the reply."""
    if isinstance(outcome, Decision) and (problems := await role.objections(work, outcome)):
        outcome = UnusableReply(problems, outcome.speech)
    work.say(outcome)
    if isinstance(outcome, UnusableReply):
        return correct(work, message, outcome, role.example)  # type: ignore[no-any-return]
    if not role.inside:
        called = [call["name"] for call in outcome.calls]
        emit(work.runtime, "decision", step=work.place, kind=outcome.kind, tools=called)
    return await role.handlers[outcome.kind](work, message, outcome)


def correct(work: Work[Change], message: AIMessage, reply: UnusableReply, example: str = "", code: str = "") -> Change:
    """Tell the model what was wrong with its reply, the last time with an example of a good one."""
    if example and work.record["corrections"] + 2 == work.settings.max_corrections:
        reply = replace(reply, hint=example)
    messages = [message, *reply_messages(message, partial(reply.text, work.offered))]
    return send_back(work, "; ".join(reply.problems), messages, code)


def send_back(work: Work[Change], error_text: str, messages: Sequence[AnyMessage], code: str = "") -> Change:
    """Go on with a correction; too many in a row end the work (X05, P11). `error_text` is for people."""
    count, error_text = work.record["corrections"] + 1, redact(error_text[:1000])
    work.note(corrections=count)
    emit(work.runtime, "correction", step=work.place, text=error_text[:500])
    if count >= work.settings.max_corrections:
        return work.give_up(say_why(work.language, "unusable", count, said=error_text[:600]), messages, code)
    return work.go_on(messages)
