"""Hooks: an organisation's policies, as plain functions: before a call, after it, before a question, before the end.

A hook that fails refuses, because a policy that cannot be asked has not agreed.
"""

import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from langgraph.runtime import Runtime

from donewhen.graph.events import emit_note, thread_of
from donewhen.graph.sync import call_in_time, is_async, run_in_thread
from donewhen.graph.tools.toolbox import EffectKind
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError
from donewhen.state.records import Pause, PauseKind
from donewhen.state.secrets import conceal
from donewhen.state.settings import Settings
from donewhen.state.values import map_texts

REFUSES = "a policy refuses it: "
MOMENTS = ("before_call", "after_call", "before_question", "before_end")
END_OPTIONS = ("approve", "reject")
"""The answers to a hook's question before the end."""
INTERNAL = (
    "id", "kind", "question", "options", "step", "name", "call", "tool_call_id", "message_id", "asked_at", "digest",
)  # fmt: skip
"""Fields of a pause that hooks are not shown."""
NOT_ASKED = "No question was asked: {why}. Go on without the answer, or ask something else."
_log = logging.getLogger("donewhen.hooks")


@dataclass(frozen=True)
class Refuse:
    """Refuse it; the model reads the reason."""

    reason: str


@dataclass(frozen=True)
class Ask:
    """Ask a person to agree first; they read the question."""

    question: str
    answered_by: str = ""
    """Who alone may agree, as in `Settings.answered_by`; "" for whoever that names for calls, else anybody."""


@dataclass(frozen=True)
class Note:
    """Allow it, and add an observation that the model reads and may cite."""

    text: str


@dataclass(frozen=True)
class Call:
    """A call that is about to be made; `after_call` also gets its result."""

    thread_id: str
    step: str
    """The step's id; `p` during planning, `goal` in an audit of the answer."""
    goal: str
    tool: str
    """The name of the tool, or of the executor that gets a brief."""
    arguments: Json
    """A complete copy."""
    effect: EffectKind
    ok: bool = True
    """For `after_call`: True if the call succeeded."""
    text: str = ""
    """For `after_call`: the complete result, without credentials."""
    server: str = ""
    """Whose tool it is: the address of an HTTP API, such as `https://api.example.com/v1`, or the name of an MCP server
    in your configuration; "" for a function of yours and for an executor."""
    request: str = ""
    """For an HTTP API: the operation's method and path, as in `PATCH /orders/{order}`, whatever the tool is called."""


@dataclass(frozen=True)
class Question:
    """A question that people are about to be asked."""

    thread_id: str
    step: str | None
    """The step that asks; None for planning and for the run's own questions."""
    goal: str
    kind: PauseKind
    """`plan`, `question`, `tool` (to approve a call), `effect` (whether a call took effect) or `budget`."""
    question: str
    options: list[str]
    """Answers to choose from; [] if any text is allowed."""
    details: Json
    """What people are shown besides, by kind: `plan`, `tool`, `arguments`, `meter` …"""


@dataclass(frozen=True)
class End:
    """The end of a run that is about to be delivered."""

    thread_id: str
    step: str
    """The step whose result ends the work; `p` for an answer without a plan, `goal` for the delivered answer."""
    goal: str
    text: str
    """The answer, or the last step's result if the answer is still to be written."""
    status: str = "completed"
    """How the run is about to end: `completed`, or `partial`, `failed` or `cancelled` with a text that says why."""
    output: Any = None
    """The structured result (`output_type`), as JSON; None if none is requested, or it is not there yet."""


HookResult: TypeAlias = Refuse | Ask | Note | None
BeforeCall: TypeAlias = Callable[[Call], HookResult | Awaitable[HookResult]]
AfterCall: TypeAlias = Callable[[Call], Refuse | Note | Awaitable[Refuse | Note | None] | None]
BeforeQuestion: TypeAlias = Callable[[Question], Refuse | Awaitable[Refuse | None] | None]
BeforeEnd: TypeAlias = Callable[[End], Refuse | Ask | Awaitable[Refuse | Ask | None] | None]


@dataclass(frozen=True)
class Hooks:
    """Functions, async or not, that decide what an agent may do. All hooks of one moment are called, in order.

    The first `Refuse` decides, then the first `Ask`; None agrees. A hook should depend only on its argument and change
    nothing, because it is called again after a crash or after a person was asked. Raises ConfigError for a value that
    cannot be called.
    """

    before_call: Sequence[BeforeCall] = ()
    after_call: Sequence[AfterCall] = ()
    before_end: Sequence[BeforeEnd] = ()
    before_question: Sequence[BeforeQuestion] = ()

    def __post_init__(self) -> None:
        for moment in MOMENTS:
            functions = getattr(self, moment)
            if isinstance(functions, str) or not isinstance(functions, Sequence):
                raise ConfigError(f"hooks: {moment} is a list of functions, not {functions!r}; write {moment}=[…]")
            for function in functions:
                if not callable(function):
                    raise ConfigError(f"hooks: {moment} is a list of functions; {function!r} cannot be called")

    def __add__(self, other: "Hooks") -> "Hooks":
        """Return the hooks of both, these first."""
        return Hooks(**{moment: (*getattr(self, moment), *getattr(other, moment)) for moment in MOMENTS})


@dataclass
class HookDecision:
    """The combined result of all hooks of one moment."""

    refused: str = ""
    """Why it must not happen, for the model."""
    question: str = ""
    """A question that a person must approve first."""
    answered_by: str = ""
    """Who alone may approve; "" for anybody."""
    notes: list[str] = field(default_factory=list)

    @property
    def refused_alone(self) -> str:
        """Why it must not happen where nobody can be asked."""
        return self.refused or (self.question and f"a person would have to agree: {self.question}")


async def call_hook(hook: Callable[[Any], Any], about: Call | Question | End) -> Any:
    """Return what a hook returns, async or not."""
    answer = await hook(about) if is_async(hook) else await run_in_thread(partial(hook, about))
    return await answer if inspect.isawaitable(answer) else answer


@dataclass(frozen=True)
class Policies:
    """The hooks of an agent, and the values that are removed from what they say, besides recognized credentials."""

    hooks: Hooks = field(default_factory=Hooks)
    secrets: Sequence[str] = field(default=(), repr=False)

    async def ask(
        self,
        hooks: Sequence[Callable[[Any], Any]],
        about: Call | Question | End,
        runtime: Runtime[Settings],
        language: str,
    ) -> HookDecision:
        """Call every one of these hooks; return their combined decision, with credentials removed.

        A hook that raises, takes longer than a tool may, or returns another type refuses, and people are told so.
        """
        verdict = HookDecision()
        for hook in hooks:
            name = getattr(hook, "__name__", type(hook).__name__)
            try:
                answer = await call_in_time(hook, copy.deepcopy(about), seconds=runtime.context.tool_seconds)
                if not (answer is None or isinstance(answer, Refuse | Ask | Note)):
                    raise TypeError(f"it returned {answer!r:.200}; a hook returns Refuse, Ask, Note or None")
            except (Exception, SystemExit) as error:  # which in a task would end the event loop
                _log.exception("The hook %s failed; what it was asked about is refused", name)
                said = conceal(f"{type(error).__name__}: {error}", self.secrets)
                emit_note(runtime, language, "hook_failed", name=name, error=said)
                answer = Refuse(f"the policy {name} could not be asked")
            if isinstance(answer, Refuse):
                verdict.refused = verdict.refused or f"{REFUSES}{answer.reason}"
            elif isinstance(answer, Ask) and not verdict.question:
                verdict.question, verdict.answered_by = answer.question, answer.answered_by
            elif isinstance(answer, Note):
                verdict.notes.append(answer.text)
        return HookDecision(**map_texts(vars(verdict), lambda text: conceal(text, self.secrets)))

    async def refusal_of(self, pending: Pause, goal: str, runtime: Runtime[Settings]) -> str:
        """Return why the hooks refuse to show people this question; "" if they agree."""
        if not self.hooks.before_question:
            return ""
        details: Json = {key: value for key, value in pending.items() if key not in INTERNAL}
        about = Question(
            thread_of(runtime),
            pending.get("step"),
            goal,
            pending["kind"],
            pending["question"],
            list(pending.get("options") or ()),
            details,
        )
        verdict = await self.ask(self.hooks.before_question, about, runtime, pending.get("language") or "en")
        return verdict.refused_alone
