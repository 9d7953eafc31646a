"""Talk with a model inside one node: with a judge, or with the model that writes the answer."""

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Generic, TypeVar

from langchain_core.messages import AIMessage, AnyMessage

from donewhen.graph.llm.ask import ModelReply, ModelRequest
from donewhen.graph.llm.reply import Decision, UnusableReply
from donewhen.graph.llm.speech import SpeechStream
from donewhen.graph.round import Role, Work, make_round
from donewhen.graph.step.gates import CallContext
from donewhen.graph.step.round import load_saved, save
from donewhen.graph.sync import run_in_thread
from donewhen.state.channels import PLANNING
from donewhen.state.errors import ModelError
from donewhen.state.language.texts import amount_name, say_why
from donewhen.state.ledger import Amounts, add, first_exhausted

Result = TypeVar("Result")


@dataclass
class Talk(Work[Result | None], Generic[Result]):
    """A conversation inside a node; its rounds return None until one has the result."""

    context: CallContext
    messages: list[AnyMessage] = field(default_factory=list, kw_only=True)

    def __post_init__(self) -> None:
        self.runtime, self.deps = self.context.runtime, self.context.deps
        self.state = {"record": {"corrections": 0}}

    async def run(self, role: Role[Any, Result | None]) -> Result:
        """Make rounds until one has the result."""
        while (result := await make_round(self, role)) is None:
            pass
        return result

    @abstractmethod
    def end(self, problem: str) -> Result:
        """Return the result for a talk that ends without a usable reply; `problem` says why."""

    @property
    def language(self) -> str:
        """The language of the runtime's texts."""
        return self.context.caller.language

    def lacks(self) -> str | None:
        """Return the amount that is used up. The deadline does not count: the work that the talk is about is done."""
        return first_exhausted(self.left(), ("model_calls",))

    def left(self) -> Amounts:
        """Return what may still be spent."""
        return self.context.amounts_left()

    async def ask(self, question: ModelRequest) -> ModelReply:
        """Ask the model; a request that was answered before the node was cut off is not made again.

        What was spent until then counts; what was looked up is looked up again. Planning, whose own replies are not
        saved, asks again.
        """
        context = self.context
        if context.caller.id == PLANNING:
            return await super().ask(question)
        key = f"{context.caller.texts.scope}:{context.caller.id}:talk"
        if context.replies is None:
            replies, spent = await load_saved(self.runtime, key) or ({}, {})
            context.replies, context.spent = replies, add(spent, context.spent)
        asked = await run_in_thread(partial(_digest_of, question))  # it may have images
        if earlier := context.replies.get(asked):
            return ModelReply(earlier, {}, speech=SpeechStream(question.voice))
        if context.replies:  # what was looked up since
            await save(self.runtime, key, (context.replies, context.spent), context.spent)
        reply = await super().ask(question)
        if reply.message:
            context.replies[asked] = reply.message
            spent = add(context.spent, reply.spent)
            await save(self.runtime, key, (context.replies, spent), spent)
        return reply

    def charge(self, spent: Amounts, rounds: int) -> None:
        """Count what a round cost; the round itself does not count, because only steps and planning limit theirs."""
        self.context.spent = add(self.context.spent, spent)

    def leave(self, obstacle: str) -> Result:
        """End without another call."""
        return self.end(say_why(self.language, "limit", key=amount_name(self.language, obstacle)))

    def fail(self, error: ModelError) -> Result:
        """End without a reply."""
        return self.end(say_why(self.language, "no_judge", error=error))

    def go_on(self, messages: Sequence[AnyMessage]) -> None:
        """Go on with these messages."""
        self.messages += messages

    def give_up(self, reason: str, messages: Sequence[AnyMessage], code: str) -> Result:
        """End after too many corrections."""
        return self.end(reason)


async def refuse_text(talk: Talk[Any], message: AIMessage, decision: Decision) -> UnusableReply:
    """Refuse a text where a call is asked for."""
    return UnusableReply([say_why(talk.language, "text_alone")], printed=talk.prints)


def _digest_of(question: ModelRequest) -> str:
    """Return a digest of what a model is asked."""
    said = [[each.type, each.content, getattr(each, "tool_calls", None)] for each in question.messages]
    asked = [question.role, said, [tool["function"]["name"] for tool in question.tools]]
    return sha256(json.dumps(asked, default=str).encode()).hexdigest()
