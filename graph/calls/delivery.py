"""The answer on its way: what it is written from, what was said of it, and what it must not leave out."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage

from donewhen.graph.calls.invoking import Site
from donewhen.graph.calls.proving import sources_of
from donewhen.graph.events import emit
from donewhen.graph.models.output import Form
from donewhen.graph.models.voice import Voice, finished
from donewhen.state.graph_state import Json
from donewhen.state.proof.leaves import trace_values
from donewhen.state.proof.outcome import laid_out, notes
from donewhen.state.proof.receipt import CriterionRow, OutputRow, Receipt

NO_DATA = "nothing was delivered as data"


@dataclass
class Delivery:
    """The answer on its way: what it is written from, and what it came to so far."""

    values: Json
    ending: Json
    draft: Receipt
    site: Site
    verdicts: list[Json] = field(default_factory=list)
    """Of the goal's own criteria."""
    audit: Json | None = None
    """An `AuditRow`: what a judge said of the answer; None where none was due."""
    form: Form | None = None
    """In which the result is wanted as data."""
    data: Any = None
    """The result in that form."""
    flaw: str = ""
    """Why there is no such data; "" if there is, or none is wanted."""

    def take(self, arguments: Json, text: str = "") -> list[str]:
        """Take the data in the arguments of a call, or in a text; what is wrong with it."""
        if self.form is None:
            return []
        data, problems = self.form.read(arguments, text)
        self.data, self.flaw = (None, "; ".join(problems)) if problems else (data, "")
        return problems

    said: str = ""
    """The answer or its beginning, where a planner or a step said it already; `said_id`: in which message."""
    said_id: str | None = None

    def __post_init__(self) -> None:
        self.voice = Voice(self.site.runtime, answer=True, inside=False)

    def say(self, text: str) -> str:
        """A text that nobody streamed as the answer."""
        if self.said_id:
            emit(self.site.runtime, "speech", step=None, text=text, id=self.said_id, answer=True)
        else:
            self.voice.say(text)
        return text

    def message(self, text: str) -> AIMessage:
        """The answer as the message that was streamed, or the rest of it."""
        message = AIMessage(text, id=self.said_id or self.voice.id("deliver.text", "answer.text", ""))
        if self.said_id:
            finished(message, self.said, inside=False)
        return message

    @property
    def language(self) -> str:
        """Of the user."""
        return str(self.values.get("language", "en"))

    async def unsaid(self, criteria: list[CriterionRow] | None = None) -> list[str]:
        """Whatever the model wrote: what was assumed, what is not done, and what would come next (D03)."""
        draft, language = self.draft, self.language
        draft["output"] = await self.row()
        draft["audit"] = self.audit  # type: ignore[typeddict-item]
        if criteria is not None:
            draft["criteria"] = criteria
        lines = notes(draft, language)
        return ["", laid_out(lines)] if lines else []

    async def row(self) -> OutputRow | None:
        """What the receipt says of the data: what is wrong with it, or where each value comes from."""
        if self.form is None:
            return None
        if self.flaw:
            return {"problem": self.flaw, "fields": [], "more": 0}
        sources = await sources_of(self.site, list(self.values.get("journal") or ()))
        rows, more = await asyncio.to_thread(trace_values, self.data, sources)  # seconds, for megabytes of sources
        return {"problem": "", "fields": rows, "more": more}
