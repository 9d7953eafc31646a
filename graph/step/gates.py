"""Decide whether a call may be made: it passes the gates in order, and the first that does not agree decides.

Whether an equal write was made before is asked again when the write is made (`graph/tools/effects.py`), because two
writers see each other only then.
"""

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Self, TypeVar

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import thread_of
from donewhen.graph.llm.cost import Meter
from donewhen.graph.people.interjections import new_interjections
from donewhen.graph.step.leave import ApprovalReason, Traces, approval_pause
from donewhen.graph.step.texts import Texts, known_entries
from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools import hooks as policies
from donewhen.graph.tools.effects import Place, base_of, content_key, differences, replaced_texts, without_advice
from donewhen.graph.tools.toolbox import KnownTool
from donewhen.state.channels import Json, Step
from donewhen.state.consent import Argument, Sources, lacks_source
from donewhen.state.language.texts import say
from donewhen.state.ledger import Amounts, add, allowance_left, first_exhausted, subtract
from donewhen.state.people.answers import may_answer
from donewhen.state.plan.planning import is_about_write
from donewhen.state.plan.steps import FOR_WRITE
from donewhen.state.proof.journal import call_key, canonical_json, is_change, is_users_word
from donewhen.state.reading.decisions import PROGRAM
from donewhen.state.records import Call, JournalEntry, StepChange, decision_on
from donewhen.state.secrets import conceal, conceal_json, redact_json
from donewhen.state.settings import Settings

MOST_REFUSALS = 2
"""How often a service may refuse equal writes before no other is sent; a single refusal may be a passing fault."""
ASKS_OTHERWISE = (
    "a policy asks something else about this call each time that people agree, last: {question} Nobody is asked again "
    "until its question depends on the call alone"
)
MADE_ALREADY = (
    "this very call was made and succeeded before this step was planned or tried anew, and nobody is asked whether to "
    "make it once more. Go on from what it did, which can be cited"
)
NOTHING: Amounts = {}
MOST_ROWS, MOST_CHARS = 50, 200
"""Of the sources of one call, the most arguments and the most characters of each that are kept; of a failure, too."""


@dataclass(frozen=True)
class Caller:
    """The one that makes calls, with what it knows and may spend: a step, planning, or the delivery."""

    id: str
    """The id of the step, or PLANNING or GOAL; the ids of its observations begin with it."""
    goal: str
    texts: Texts
    left: Amounts
    """What it may spend."""
    known: Sequence[JournalEntry]
    """The observations that it can cite."""
    before: Sequence[JournalEntry] = ()
    """Observations of earlier requests, which it can recall."""
    attempt: int = 1
    rounds: int = 0
    language: str = "en"
    fence: str = ""
    times_spoken: int = 0
    """How often people had spoken. Only steps have this and the next three, because nobody else writes."""
    asked_often: Mapping[str, str] = field(default_factory=dict)
    """Calls about which a hook asked otherwise after people agreed: call key → the last question."""
    settled_writes: Sequence[str] = ()
    """Short keys of writes that others account for: finished steps, and those that work or wait."""
    own_writes: Sequence[str] = ()
    """Short keys of the writes that this step accounts for itself."""

    @classmethod
    def of_step(cls, state: Step, runtime: Runtime[Settings]) -> Self:
        """Return the step as a caller."""
        record = state["record"]
        return cls(
            id=state["step"]["id"],
            goal=state["goal"],
            texts=Texts.of(runtime.store, thread_of(runtime), state),
            left=allowance_left(state),
            known=known_entries(state),
            before=state["before"],
            attempt=record["attempt"],
            rounds=record["rounds"],
            language=state["language"],
            fence=state["fence"],
            times_spoken=len(moments_spoken(state)),
            asked_often={**state["asked_often"], **record["asked_often"]},
            settled_writes=state["settled_writes"],
            own_writes=[*record["wrote"], *state.get("wrote", ())],
        )


@dataclass
class CallContext:
    """The surroundings of calls: who makes them, the tools, and what was spent and observed so far."""

    caller: Caller
    runtime: Runtime[Settings]
    config: RunnableConfig
    deps: Deps
    tools: Mapping[str, KnownTool]
    """The tools that may be called, which the node looks up once."""
    spent: Amounts = field(default_factory=dict)
    meters: list[Meter] = field(default_factory=list)
    """The meters of calls in progress."""
    new_writes: list[str] = field(default_factory=list)
    """Short keys of the writes made here whose outcome is known."""
    observed: int = 0
    """The number of observations before those made here; in `Calls`, including them."""
    new_entries: list[JournalEntry] = field(default_factory=list)
    """The observations made here."""
    replies: dict[str, AIMessage] | None = None
    """The replies to the requests made here, by digest of the request, with those of an attempt that was cut off; None
    before the first."""
    calls: Sequence[Call] = ()
    """The calls that are still to be made, in order."""
    may_ask: bool = False
    """True if a person may be asked about these calls, and by their tools: only in a step."""
    settings: Settings = field(init=False)
    """The settings of the run."""
    seconds: float | None = field(init=False)
    """The time limit of one call, unless its tool declares a longer one."""
    thread: str = field(init=False)
    """The id of the thread."""

    def __post_init__(self) -> None:
        self.settings = self.runtime.context
        self.seconds = self.settings.tool_seconds
        self.thread = thread_of(self.runtime)

    @cached_property
    def place(self) -> Place:
        """The place of the run on its thread, which is part of every effect's key."""
        return Place.of(self.config, depth=2)

    def amounts_left(self, reserve: Mapping[str, float] = NOTHING) -> Amounts:
        """Return what may still be spent, after what was spent here and what calls in progress have spent so far.

        `reserve` is what may be spent besides what the caller has.
        """
        spent = self.spent
        for meter in self.meters:
            spent = add(spent, meter.least_spent)
        return subtract({key: amount + reserve.get(key, 0) for key, amount in self.caller.left.items()}, spent)

    @property
    def entries(self) -> list[JournalEntry]:
        """The observations that can be cited, oldest first, with those made here."""
        return [*self.caller.known, *self.new_entries]


@dataclass
class StepContext(CallContext):
    """The surroundings of the calls and the proof of a step."""

    state: Step = field(kw_only=True)

    @classmethod
    def of(
        cls,
        state: Step,
        runtime: Runtime[Settings],
        config: RunnableConfig,
        deps: Deps,
        tools: Mapping[str, KnownTool],
    ) -> Self:
        """Return the surroundings of the step in this state."""
        observed = state["record"]["observed"]
        return cls(Caller.of_step(state, runtime), runtime, config, deps, tools, observed=observed, state=state)


@dataclass(frozen=True)
class Go:
    """The call may be made."""

    notes: Sequence[str] = ()
    """What hooks note about it."""
    question: str = ""
    """What a hook wants a person to agree to first."""
    answered_by: str = ""
    """Who alone may agree to that; "" for anybody."""


@dataclass(frozen=True)
class No:
    """The call is not made, and the model is told why."""

    why: str
    unless_made: bool = False
    """True if the call may have been made already, as before a crash: what it did then counts, also if that is unknown.
    Gates that do not always say the same refuse so, because they may have let the call go then."""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Wait:
    """The step leaves before the call: to ask a person, for a larger budget, or for a plan."""

    change: StepChange


Ruling = Go | No | Wait
C = TypeVar("C", bound=CallContext)
R = TypeVar("R", Go | No, Ruling)
Gate = Callable[[Call, C, Go], Awaitable[R]]
"""(call, its surroundings, what the gates before agreed to) → the ruling. Only a step's may be to wait."""


async def follow_decision(call: Call, context: CallContext, go: Go) -> Go | No:
    """Refuse a call that a person refused, or answered in place of its tool."""
    decided = call.get("decided")
    if decided and decided["kind"] == "answered":
        return No(f"{decided.get('who') or 'the user'} answered instead: {decided['text']}")
    if decided and decided["kind"] == "refused":
        return No(f"{decided.get('who') or 'the user'} rejected this call: {decided['why']}")
    return go


async def require_tool(call: Call, context: CallContext, go: Go) -> Go | No:
    """Refuse a call of a tool that is gone, or that is provided otherwise than when people were asked about it."""
    tool = context.tools.get(call["name"])
    if tool is not None and call.get("provider", tool.provider) == tool.provider:
        return go
    return No(f"there is no tool {call['name']} {'' if context.may_ask else 'to look with '}any more")


async def keep_to_paths(call: Call, context: CallContext, go: Go) -> Go | No:
    """Refuse a call with a path outside of `Profile.allowed_paths`."""
    outside = context.tools[call["name"]].path_problem(call["args"], context.settings.profile.allowed_paths)
    return No(outside) if outside else go


async def respect_rejections(call: Call, context: StepContext, go: Go) -> Go | No:
    """Refuse a call equal to one that a person rejected in this request, unless they said more since.

    Their reason may have been a question. So once they have answered one, said something to the run or decided about a
    plan, the same call may be asked about again. After a plain no, answers to a model's questions do not count.
    """
    row = _rejection_of(call, context.state)
    if row is None or _has_spoken_since(row, context.state):
        return go
    return No(f"the user rejected this very call before: {row['text'] or 'no reason given'}")


def _rejection_of(call: Call, state: Step) -> Json | None:
    """Return the decision by which a person rejected an equal call, alone or beside another one.

    Return None if they approved it later, or decided about this one itself.
    """
    rejected = {**state["rejected"], **state["record"]["rejected"]}
    if not rejected or decision_on(call) != "undecided" or call_key(call["name"], call["args"]) not in rejected:
        return None
    shown, last = call_key(call["name"], redact_json(call["args"])), None
    for row in state["run"].get("approvals") or ():
        if row["kind"] == "tool" and row["decision"] in ("approve", "reject"):
            keys = (call_key(each["tool"], each["arguments"]) for each in (row, *row.get("batch", ())))
            last = row if shown in keys else last
    return last if last and last["decision"] == "reject" else None


def _has_spoken_since(rejection: Json, state: Step) -> bool:
    besides = ("tool", "effect") if rejection["text"] else ("tool", "effect", "answer")
    return any(at > rejection["at"] for at in moments_spoken(state, besides))


async def limit_refusals(call: Call, context: StepContext, go: Go) -> Go | No:
    """Refuse a write that its service refused twice, until something else was written or a person spoke (Q69)."""
    if decision_on(call) != "undecided" or context.tools[call["name"]].effect != "write":
        return go
    refusals = list[JournalEntry]()
    for entry in context.entries:
        if "refused" in entry and _is_equal_write(entry, call):
            refusals.append(entry)
        elif is_change(entry):
            refusals.clear()
    refusals = [entry for entry in refusals if entry["refused"] == context.caller.times_spoken]
    if len(refusals) < MOST_REFUSALS:
        return go
    error_text = " ".join(refusals[-1]["text"].split())[:300]
    return No(
        f"this very call was refused before ({refusals[-1]['id']}: {error_text}), and nothing was written since. "
        "Change it, do what it needs first, or ask the user"
    )


def moments_spoken(state: Step, besides: Container[str] = ()) -> list[str]:
    """Return when people decided, answered or said what the step knows of, besides these kinds of it.

    Kinds are `words`, `answer`, and those of the pauses that were decided.
    """
    said = [(row["kind"], row["at"]) for row in state["run"].get("approvals") or () if row["by"] == "user"]
    answers = (entry for entry in state["user_answers"] if is_users_word(entry))
    said += [("words" if "heard" in entry else "answer", entry["at"]) for entry in answers]
    said += [("words", row["at"]) for row in state["record"]["heard"] if row["key"] > state["interjection_cursor"]]
    return [at for kind, at in said if kind not in besides]


def _is_equal_write(entry: JournalEntry, call: Call) -> bool:
    is_write = entry["effect"] == "write" and entry["source"] == "tool"
    if not is_write or entry["tool"] != call["name"] or entry["arguments"] != call["args"]:
        return False  # as nearly always, and without the keys of hundreds of writes
    return call_key(entry["tool"], entry["arguments"]) == call_key(call["name"], call["args"])


async def ask_hooks(call: Call, context: CallContext, go: Go) -> Go | No:
    """Ask the hooks, unless a person said that the call happened, or is not to be made again.

    An approval answers the question that the person read, if they are who the hook asks. Any other question is asked:
    about a call that was edited or approved beside another one, or by a hook that is new. If hooks ask yet another one
    after people agreed to two about this very call, the call is refused, and so is every equal one.
    """
    before_call, decided = context.deps.policies.hooks.before_call, call.get("decided")
    if not before_call or (decided and decided["kind"] == "known" and decided["effect"] != "not_happened"):
        return go
    about, language = call_for_hooks(call, context), context.caller.language
    verdict = await context.deps.policies.ask(before_call, about, context.runtime, language)
    agreed = call.get("agreed")
    is_answered = (
        agreed is not None
        and agreed["question"] == verdict.question
        and may_answer(verdict.answered_by, agreed["name"])
    )
    refusal, question = verdict.refused, "" if is_answered else verdict.question
    last = context.caller.asked_often.get(call_key(call["name"], call["args"]), question)
    if question and not refusal and last != question:
        refusal = ASKS_OTHERWISE.format(question=question)
    if question and not refusal and not context.may_ask:
        refusal = f"a person would have to agree, in a step: {question}"
    return (
        No(refusal, unless_made=True, notes=verdict.notes)
        if refusal
        else Go(verdict.notes, question, verdict.answered_by)
    )


async def keep_to_budget(call: Call, context: CallContext, go: Go) -> Ruling:
    """Leave the step if no call may be made any more."""
    return Wait({"status": "ready", "code": ""}) if first_exhausted(context.amounts_left(), ("tool_calls",)) else go


async def end_looks(call: Call, context: CallContext, go: Go) -> Go | No:
    """Refuse a look of planning if no call may be made any more."""
    is_over = first_exhausted(context.amounts_left(), ("tool_calls",))
    return No("the limit of tool calls is reached") if is_over else go


async def require_consent(call: Call, context: StepContext, go: Go) -> Ruling:
    """Ask a person about a call that neither they nor the approved plan allow, or about which a hook asks.

    A write that a new plan or attempt would repeat is asked about under every policy; where neither calls nor questions
    are for people, it is refused.
    """
    state, reason = context.state, _approval_reason(call, context)
    reason = "differs" if call.get("differs") and decision_on(call) == "undecided" else reason
    found = await _look_up_sources(call, context) if reason == "new" else None
    if found and not lacks_source(found[1]):
        reason = "again" if _was_made(call, context) else "alike" if _is_like_unknown(call, context) else None
    elif reason is None and _was_made(call, context, only_replaced=True):
        if context.settings.approvals == "never" and context.settings.unattended:
            return No(MADE_ALREADY, unless_made=True)
        reason = "again"
    reason = "rejected" if reason is None and _rejection_of(call, state) else reason
    reason = "approver" if reason is None and _needs_approver(call, context) else reason
    if reason is None:
        if not go.question:
            return go
        reason = "hook"
    if reason == "unlisted" and "write" in state["promotable"]:
        call_text = f"{call['name']}({canonical_json(conceal_json(call['args']))[:500]})"
        why = say(state["language"], "note", "unlisted_write", call=call_text)
        return Wait({"status": "ready", "code": FOR_WRITE, "reason": why})
    if reason == "unlisted" and (others_step := _step_that_lists(call["name"], state)):
        return No(f"{others_step} does this, which was planned for it: do what this step says, and finish")
    traces = await _trace(call, context, *(found or await _look_up_sources(call, context)))
    others = [other for other in context.calls[1:] if other.get("rehearsed")]
    if not others and reason in ("by_tool", "new", "approver"):  # ask once for all such calls
        others = [other for other in context.calls[1:] if _needs_approval_too(other, context, traces)]
    approvers = context.settings.approvers
    others = [other for other in others if approvers.get(other["name"]) == approvers.get(call["name"])]
    tool = context.tools[call["name"]]
    replaced, unread = await replaced_texts(tool.tool, call["args"])
    conditions = tool.conditions(state["language"], call["args"])
    if unread:
        line = say(state["language"], "call", "unread", why=conceal(unread, context.deps.secrets)[:MOST_CHARS])
        conditions = f"{conditions} {line}".lstrip()
    numbers = {each["name"]: context.tools[each["name"]].numbers for each in others} if "program" in call else {}
    waiting = approval_pause(
        [call, *others], state, reason, traces, go.question, conditions, numbers, _failed_before(call, context)
    )
    if "program" in call:
        waiting = waiting.but(code=next(each["args"]["code"] for each in context.calls if each["name"] == PROGRAM))
    audience = (go.question and go.answered_by) or approvers.get(call["name"])
    waiting = waiting.but(answered_by=audience) if audience else waiting
    first, *rest = [_with_provider(each, context) if each in (call, *others) else each for each in context.calls]
    change: StepChange = {"status": "waiting", "calls": [first, *rest]}
    if replaced is not None:
        change["calls"] = [{**first, "base": base_of(replaced)}, *rest]
        if diffs := differences(replaced, call["args"]):
            waiting = waiting.but(diffs=diffs)
    return Wait({**change, "waiting": waiting.dump()})


def _failed_before(call: Call, context: StepContext) -> str:
    """Return that the last equal write failed, or may have taken effect, and what it answered; "" if it did neither."""
    equal = [each for each in context.entries if _is_equal_write(each, call) and each.get("made") is not False]
    if not equal or equal[-1]["ok"]:
        return ""
    text = " ".join(without_advice(equal[-1]["text"]).split())[:MOST_CHARS]
    key = "unknown_before" if equal[-1].get("unknown") else "failed_before"
    return say(context.state["language"], "call", key, text=text)


def _with_provider(call: Call, context: StepContext) -> Call:
    """Return the call with who provides its tool now, when people are asked about it."""
    return {**call, "provider": context.tools[call["name"]].provider}


def _step_that_lists(tool: str, state: Step) -> str:
    """Return the step that was planned because this one wanted a tool that it does not list; "" if there is none."""
    run = state["run"]
    if not is_about_write(run["planning"]):
        return ""
    steps = (run.get("plan") or {}).get("steps", ())
    return next((step["id"] for step in steps if tool in (step.get("tools") or ())), "")


GATES: Sequence[Gate[StepContext, Ruling]] = (
    follow_decision,
    require_tool,
    keep_to_paths,
    respect_rejections,
    limit_refusals,
    ask_hooks,
    keep_to_budget,
    require_consent,
)
"""The gates of a step's calls."""
GATES_OF_LOOKS: Sequence[Gate[CallContext, Go | No]] = (require_tool, keep_to_paths, ask_hooks, end_looks)
"""The gates of planning's reads, for which nobody is asked."""
GATES_OF_CHECKS: Sequence[Gate[CallContext, Go | No]] = (keep_to_paths, ask_hooks)
"""The gates of the runtime's own reads: checks, repeated reads, those of the judge. Their caller checks the budget."""


async def rule(call: Call, context: C, gates: Sequence[Gate[C, R]]) -> R:
    """Return the ruling on a call: that of the first gate that does not let it go."""
    agreed = Go()
    for gate in gates:
        ruling = await gate(call, context, agreed)
        if not isinstance(ruling, Go):
            return ruling
        agreed = ruling
    return agreed


def call_for_hooks(call: Call, context: CallContext, **result: Any) -> policies.Call:
    """Return the call as hooks see it; after it was made, with its result."""
    caller, tool = context.caller, context.tools.get(call["name"])
    about: Json = (
        {"effect": tool.effect, "server": tool.server, "request": tool.request} if tool else {"effect": "write"}
    )
    return policies.Call(context.thread, caller.id, caller.goal, call["name"], call["args"], **about, **result)


def _approval_reason(call: Call, context: StepContext) -> ApprovalReason | None:
    """Return why a person must approve the call; None if nobody must. `new`: only if an argument has no source."""
    approvals, delegated = context.settings.approvals, call.get("delegated")
    tool = context.tools.get(call["name"])
    if tool is None or decision_on(call) != "undecided":
        return None
    if approvals == "each" and (delegated or tool.effect != "read"):
        return "each"
    if delegated or approvals == "never" or tool.effect == "read":
        return None  # of a delegated call, the approved plan names the executor
    if (approval := tool.approval(call["args"])) == "allowed":
        return None
    if call["name"] not in context.state["granted_tools"]:
        return "unlisted"
    if approvals != "shown" or approval == "free":
        return None
    return "by_tool" if approval == "ask" else "new"


def _needs_approver(call: Call, context: StepContext) -> bool:
    """Return whether only somebody named approves the call, and they approved neither it nor the step that lists it."""
    approver, tool = context.settings.approvers.get(call["name"], ""), context.tools.get(call["name"])
    if not approver or tool is None or tool.effect == "read":
        return False
    if decided := call.get("decided"):
        return decided["kind"] == "approved" and not may_answer(approver, decided.get("name") or "")
    approval = context.state["run"].get("approval") or {}
    approved_by = approval.get("names", {}).get(context.state["step"]["id"], "")
    return call["name"] not in context.state["granted_tools"] or not may_answer(approver, approved_by)


def _was_made(call: Call, context: StepContext, *, only_replaced: bool = False) -> bool:
    """Return whether equal writes succeeded as often as the plan says: in this step, or in steps that it replaces.

    With `only_replaced`, those of this attempt of the step do not count.
    """
    state, tool = context.state, context.tools[call["name"]]
    if tool.repeatable or decision_on(call) != "undecided":
        return False
    key, id, first = call_key(call["name"], call["args"]), state["step"]["id"], state["record"]["before"] + 1
    others = {each["id"] for each in (state["run"].get("plan") or {}).get("steps") or ()} - {id}
    equal = [entry for entry in context.entries if entry["ok"] and _is_equal_write(entry, call)]
    own = {entry["id"] for entry in equal if entry["step"] == id and _number_of(entry) >= first}
    counted = {entry["id"] for entry in equal if entry["step"] not in others} - (own if only_replaced else set())
    planned = sum(call_key(each["tool"], each["arguments"]) == key for each in state["step"].get("calls") or ())
    return len(counted) >= max(planned, 1)


def _is_like_unknown(call: Call, context: StepContext) -> bool:
    """Return whether a write of this step with the same required arguments may have happened.

    Writes whose arguments are all equal do not count here: `perform` asks about them.
    """
    tool, id = context.tools[call["name"]], context.caller.id
    if tool.repeatable or not (required := tool.parameters.get("required")):
        return False
    own = [
        entry
        for entry in context.entries
        if entry["step"] == id and entry["source"] == "tool" and entry["tool"] == call["name"]
    ]
    if not any(entry.get("unknown") for entry in own):
        return False
    latest = {content_key(tool.tool, entry["arguments"]): entry for entry in own}
    latest.pop(content_key(tool.tool, call["args"]), None)
    unknown = (entry["arguments"] for entry in latest.values() if entry.get("unknown"))
    required_values = canonical_json([call["args"].get(name) for name in required])
    return any(canonical_json([each.get(name) for name in required]) == required_values for each in unknown)


def _number_of(entry: JournalEntry) -> int:
    return int(str(entry["id"]).rpartition(".")[2])


def _needs_approval_too(call: Call, context: StepContext, traces: Traces) -> bool:
    reason = _approval_reason(call, context)
    is_new = reason == "new" and bool(traces.get(call.get("position", 0)))
    return reason == "by_tool" or is_new or (reason in (None, "new") and _needs_approver(call, context))


async def _trace(call: Call, context: StepContext, sources: Sources, traced: Sequence[Argument]) -> Traces:
    """Return, by position, the arguments of this call, and of those after it that have one without a source."""
    traces: dict[int, Sequence[Argument]] = {call.get("position", 0): traced}
    for each in context.calls[1:]:
        if _approval_reason(each, context) == "new":
            arguments = await run_in_thread(partial(context.tools[each["name"]].trace, each["args"], sources))
            if lacks_source(arguments):
                traces[each.get("position", 0)] = arguments
    return traces


async def _look_up_sources(call: Call, context: StepContext) -> tuple[Sources, list[Argument]]:
    """Return the known sources, and the call's arguments with theirs.

    Long results and the user's latest words are read only if an argument has no source without them.
    """
    state, trace = context.state, context.tools[call["name"]].trace

    def look() -> tuple[Sources, list[Argument]]:
        sources: Sources = state["get_sources"]()
        for entry in context.entries:
            sources.add_observation(entry)
        return sources, trace(call["args"], sources)

    sources, traced = await run_in_thread(look)  # it takes seconds for megabytes of results
    if not lacks_source(traced):
        return sources, traced
    for id in sources.long:
        sources.add_long_text(id, await context.caller.texts.get(id) or "")
    for words in await new_interjections(context.runtime, state["interjection_cursor"], state["step"]["id"]):
        if sources.is_new(words["key"]):
            sources.add_answer(words["text"])
    return sources, await run_in_thread(partial(trace, call["args"], sources))


async def source_rows(call: Call, context: StepContext) -> list[Json]:
    """Return where the arguments of a write come from, as the receipt keeps it."""
    _, traced = await _look_up_sources(call, context)
    return [each.row(MOST_CHARS) for each in traced[:MOST_ROWS]]
