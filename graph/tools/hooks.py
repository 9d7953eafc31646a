"""Hooks: an organisation's policies, as plain functions that are asked before a call, after it, and before the end.

Whatever goes wrong in a hook refuses: a policy that cannot be asked has not said yes.
"""

import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.toolbox import EffectKind, is_async
from donewhen.state.errors import ConfigError
from donewhen.state.values import Json

OPTIONS = ("approve", "reject")
"""The answers to a question that a hook has before the end."""
_log = logging.getLogger("donewhen.hooks")


@dataclass(frozen=True)
class Refuse:
    """It must not happen; the model reads the reason."""

    reason: str


@dataclass(frozen=True)
class Ask:
    """A person has to agree first; what they read is the question."""

    question: str


@dataclass(frozen=True)
class Note:
    """It may happen; this becomes an observation, which the model reads and may cite."""

    text: str


@dataclass(frozen=True)
class Call:
    """A call that is about to be made; for `after_call` with what came of it."""

    thread_id: str
    step: str
    """`p` while planning, `goal` in an audit of the answer."""
    goal: str
    tool: str
    """The name of the tool, or of the executor that gets a brief."""
    arguments: Json
    """A copy, whole."""
    effect: EffectKind
    ok: bool = True
    """After the call: whether it went well."""
    text: str = ""
    """After the call: what it returned, whole, without credentials."""


@dataclass(frozen=True)
class End:
    """The end that a run is about to come to."""

    thread_id: str
    step: str
    """The step whose result ends the work; `p`: an answer without a plan; `goal`: the answer as it is delivered."""
    goal: str
    text: str
    """The words of the answer, or of the last step's result where the answer is still to be written."""


Said: TypeAlias = Refuse | Ask | Note | None
BeforeCall: TypeAlias = Callable[[Call], Said | Awaitable[Said]]
AfterCall: TypeAlias = Callable[[Call], Refuse | Note | Awaitable[Refuse | Note | None] | None]
BeforeEnd: TypeAlias = Callable[[End], Refuse | Ask | Awaitable[Refuse | Ask | None] | None]


@dataclass(frozen=True)
class Hooks:
    """Functions, async or not, that say what an agent may do. All of one moment are asked, in their order.

    The first `Refuse` decides, then the first `Ask`; None agrees. They should depend on what they are given and change
    nothing, because after a crash, or once a person was asked, they are asked again. Raises ConfigError for what cannot
    be called.
    """

    before_call: Sequence[BeforeCall] = ()
    after_call: Sequence[AfterCall] = ()
    before_end: Sequence[BeforeEnd] = ()

    def __post_init__(self) -> None:
        for moment in ("before_call", "after_call", "before_end"):
            for function in (given := getattr(self, moment)):
                if isinstance(given, str) or not callable(function):
                    raise ConfigError(f"hooks: {moment} is a list of functions; {function!r} cannot be called")

    def __add__(self, other: "Hooks") -> "Hooks":
        """Return the hooks of both, these first."""
        return Hooks(
            (*self.before_call, *other.before_call),
            (*self.after_call, *other.after_call),
            (*self.before_end, *other.before_end),
        )


@dataclass
class Verdict:
    """The word of all hooks of one moment."""

    refused: str = ""
    """Why it must not happen, in words for the model."""
    question: str = ""
    """What a person has to agree to first."""
    notes: list[str] = field(default_factory=list)


async def ask_hooks(hooks: Sequence[Callable[[Any], Any]], about: Call | End, tell: Callable[[str], None]) -> Verdict:
    """Ask every hook; one that raises, or returns something else, refuses, and `tell` says so to whoever watches."""
    verdict = Verdict()
    for hook in hooks:
        name = getattr(hook, "__name__", type(hook).__name__)
        try:
            given = copy.deepcopy(about)
            said = await hook(given) if is_async(hook) else await run_in_thread(partial(hook, given))
            said = await said if inspect.isawaitable(said) else said
            if not (said is None or isinstance(said, Refuse | Ask | Note)):
                raise TypeError(f"it returned {said!r:.200}; a hook returns Refuse, Ask, Note or None")
        except Exception as error:
            _log.exception("The hook %s failed; what it was asked about is refused", name)
            tell(f"The hook {name} failed, so this is refused: {type(error).__name__}: {error}"[:500])
            said = Refuse(f"the policy {name} could not be asked")
        if isinstance(said, Refuse):
            verdict.refused = verdict.refused or f"a policy refuses it: {said.reason}"
        elif isinstance(said, Ask):
            verdict.question = verdict.question or said.question
        elif isinstance(said, Note):
            verdict.notes.append(said.text)
    return verdict
