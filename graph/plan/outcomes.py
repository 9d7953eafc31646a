"""What comes out of planning: a plan, an answer, a question, a refusal, a correction, or an honest end."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.calls.audit import Subject, audit, audit_due
from donewhen.graph.calls.invoking import Site, left_of
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import charged, emit, mode_chosen
from donewhen.graph.models.offering import Offer
from donewhen.graph.models.output import Form
from donewhen.graph.models.reading import Decision, Unusable
from donewhen.graph.models.transcript import respond, shown
from donewhen.graph.models.voice import Voice, finished
from donewhen.graph.people.budget import Account, budget_pause
from donewhen.graph.people.consent import propose
from donewhen.graph.people.pauses import opening, pause
from donewhen.state.graph_state import PLANNING, Json, Planning, Step
from donewhen.state.language.texts import say
from donewhen.state.ledger import add
from donewhen.state.people.amounts import counted
from donewhen.state.plan.modes import PROMOTED, mode_row
from donewhen.state.plan.revise import work_of
from donewhen.state.proof.audit import to_send_back
from donewhen.state.proof.evidence import EvidenceScope, Grounding, ground
from donewhen.state.proof.journal import answered_before
from donewhen.state.reading.decisions import DRAFT, TRIAGE
from donewhen.state.records import Mode
from donewhen.state.secrets import redact
from donewhen.state.settings import Settings

NO_QUESTIONS = (
    "No question was asked: the limit of questions is reached. Plan with what is most likely and say so in `speak`."
)
EXAMPLE = (
    'A good reply is one call and nothing else, such as submit_plan with {"title": "Tidy up", "steps": [{"content": '
    '"Move the old files to old/", "done_when": ["no file older than a year is left"], "tools": ["move_file"]}]}, or '
    'ask_user with {"question": "Which files?"}.'
)
REPEATED = (
    "this is, step for step, what failed already; find another way, or ask_user, or decline. If it should be tried "
    "again as it is, ask_user whether to"
)
ONLY_SHOWN = "say only what was shown, and openly what is missing; or look, or plan what is to be done"
ANSWER_CHARS = 20_000
LEGAL = {"triage": TRIAGE, "draft": DRAFT}


@dataclass(frozen=True)
class Turn:
    """One round of planning: where it stands, and what it works with."""

    state: Planning
    runtime: Runtime[Settings]
    deps: Deps
    offer: Offer = field(default_factory=Offer)
    voice: Voice | None = None
    form: Form | None = None
    """In which the result is wanted as data."""
    config: RunnableConfig = field(default_factory=dict)  # type: ignore[assignment]

    @property
    def settings(self) -> Settings:
        """Of the run."""
        return settings_of(self.runtime)

    @property
    def planning(self) -> Json:
        """The planner's record."""
        return self.state["planning"]

    @property
    def legal(self) -> tuple[str, ...]:
        """The decisions of the phase, less the one that a forced mode leaves no room for."""
        gone = {"auto": "", "answer": "submit_plan"}.get(self.settings.mode, "answer")
        return self.offer.legal(name for name in LEGAL[self.planning["phase"]] if name != gone)

    def noting(self, **record: Any) -> "Turn":
        """The same with this in the planner's record."""
        return replace(self, state={**self.state, "planning": {**self.planning, **record}})

    def said_as(self, argument: str) -> str | None:
        """The message in which a text for people was streamed."""
        return self.voice.id(argument) if self.voice else None


def corrected(turn: Turn, message: AIMessage, correction: Unusable) -> Planning:
    """The model is told what was wrong; too many in a row fail the phase (P11)."""
    most, count = turn.settings.max_corrections, turn.planning["corrections"] + 1
    said = redact("; ".join(correction.problems)[:1000])
    emit(turn.runtime, "correction", step=None, text=said[:500])
    if count >= most:
        return fail(turn, "no_plan", f"{counted(count, 'unusable reply')} in a row; the last: {said[:300]}")
    correction = replace(correction, hint=EXAMPLE) if count == most - 1 else correction
    told = respond(message, partial(correction.text, turn.legal))
    return {"planning": {**turn.planning, "corrections": count}, "transcript": [message, *told]}


def fail(turn: Turn, code: str, reason: str) -> Planning:
    """The phase failed: the draft falls back on the triage's plan and says so (P04); else the run ends."""
    if turn.planning.get("sketched"):
        emit(turn.runtime, "note", text=f"Careful planning failed ({reason}); going on with the quick plan.")
        return _proposed(turn.noting(fell_back=reason), turn.planning["proposal"])
    return {"ending": {"code": code, "reason": reason}}


def out_of_budget(turn: Turn, key: str) -> Planning:
    """A limit is reached: the quick plan if there is one; else by policy a question, or an honest end."""
    settings, planning, state = turn.settings, turn.planning, turn.state
    if planning.get("sketched") or settings.at_limit != "ask":
        code = "stopped" if settings.at_limit == "stop" else "out_of_budget"
        return fail(turn, code, f"the limit of {key} was reached while planning")
    before = state["account"]
    spent = add(before["spent"], state.get("spent"))
    needs = (key,) if key in ("questions", "tool_calls") else ("model_calls",)
    more: Json = {"done": before["done"], "unplanned": True, "needs": needs, "language": _language(state)}
    account = Account(settings.limits, before["granted"], spent, **more)
    id = f"budget.{planning['transcript']}.{key}.{planning['rounds']}"
    pending = budget_pause(account, key, id)
    rounds = list(state.get("transcript", ()))
    return {"pending": pending, "messages": [opening(pending)], "transcripts": {planning["transcript"]: rounds}}


def planned(turn: Turn, message: AIMessage, decision: Decision, plan: Json) -> Planning:
    """A plan: on to the careful draft if the triage wants one, else to consent. Not one that failed already."""
    tried = () if turn.planning.get("feedback") else turn.planning.get("tried", ())
    change: Json = plan.pop("change", {})
    finished = [id for id in turn.planning.get("finished") or () if id not in change.get("stale", ())]
    if work_of(plan, finished) in tried:
        return _repeated(turn, message, decision)
    turn = turn.noting(corrections=0, **change)
    if turn.planning["phase"] == "triage" and plan["need_thinking"]:
        emit(turn.runtime, "note", text="This deserves a careful plan; thinking it through.")
        return {"planning": {**turn.planning, "phase": "draft", "proposal": plan, "sketched": True}}
    return _proposed(turn, plan)


def _repeated(turn: Turn, message: AIMessage, decision: Decision) -> Planning:
    """The work that failed already, proposed again: the planner is told, then a person; else it ends here (M7)."""
    if not turn.planning.get("repeat_told"):
        return corrected(turn.noting(repeat_told=True), message, Unusable([REPEATED]))
    emit(turn.runtime, "note", text="The planner proposes again what failed already.")
    if turn.settings.alone:
        return fail(turn, "no_plan", "what failed already was planned again")
    steps = "; ".join(step["content"] for step in decision.arguments.get("steps") or () if isinstance(step, dict))
    question = say(_language(turn.state), "ask", "repeated", steps=steps[:500])
    return asks(turn.noting(tried=[]), message, Decision("ask_user", {"question": question}, id=decision.id))


def _proposed(turn: Turn, plan: Json) -> Planning:
    state, planning, language = turn.state, turn.planning, _language(turn.state)
    count = len(plan["steps"])
    reason = planning.get("reason") or say(language, "mode", "enough" if count == 1 else "takes", number=count)
    modes = _mode(turn, "plan" if count > 1 or planning.get("promoted") else "step", reason)
    emit(turn.runtime, "plan", plan=plan)
    more: Json = {"granted": (state.get("account") or {}).get("granted"), "reasons": planning.get("dropped") or {}}
    more["ask"] = planning.get("let_go") or planning.get("promoted") == f"{PROMOTED}write"
    update = propose(plan, state.get("approval"), turn.settings, turn.deps, language, **more)
    return {"planning": {**planning, "open": False}, **modes, **update}  # type: ignore[typeddict-item]


def _mode(turn: Turn, mode: Mode, reason: str) -> Planning:
    """What is made of the request, told and written down where it is not what it was before."""
    if turn.planning.get("mode") == mode:
        return {}
    by = "triage" if turn.planning["phase"] == "triage" else "plan"
    row = mode_row(mode, by if turn.settings.mode == "auto" else "settings", reason)
    mode_chosen(turn.runtime, row)
    return {"modes": [dict(row)]}


def looks(turn: Turn, message: AIMessage, decision: Decision) -> Planning:
    """Calls that read, for the next node; what was wrong with others of the same reply is told at once."""
    native = bool(message.tool_calls or message.invalid_tool_calls)
    calls = [{**call, "native": native, "position": number} for number, call in enumerate(decision.calls)]
    told = [ToolMessage(text, tool_call_id=id) for id, text in decision.refused.items()] if native else []
    planning = {**turn.planning, "corrections": 0, "texts": 0, "calls": calls}
    return {"planning": planning, "transcript": [message, *told]}


async def answered(turn: Turn, message: AIMessage, decision: Decision) -> Planning:
    """The goal is settled without a plan. What it cites must hold, data be in its form, and a judge not doubt it: that
    is mended once. Where nothing was looked at or changed, nobody is asked."""
    state, form, arguments = turn.state, turn.form, decision.arguments
    entries = [*state.get("known", ()), *state.get("journal", ())]
    found = ground(arguments, EvidenceScope(entries, PLANNING)) if arguments.get("evidence") else Grounding()
    good, problems = found.evidence, [f"evidence: {each}" for each in (*found.problems, *found.imprecise)]
    data, flaws = form.read(arguments, arguments["text"]) if form else (None, [])
    if (problems or flaws) and not turn.planning.get("answer_told"):
        return corrected(turn.noting(answer_told=True), message, Unusable([*problems, *flaws]))
    more: Planning = {}
    audited: Json | None = None
    if audit_due(turn.settings, state["run"], entries):
        output = data if form and not flaws else None
        verdicts = {PLANNING: [{"evidence": good}]}
        subject = Subject(state["run"], arguments["text"], entries, output, verdicts)
        site = audit_site(turn, len(entries))
        audited = dict(await audit(site, subject))
        charged(turn.runtime, None, site.spent)
        more = {"spent": site.spent, "journal": site.noted}
        if (doubts := to_send_back(audited)) and not turn.planning.get("answer_told"):
            update = corrected(turn.noting(answer_told=True), message, Unusable([*doubts, ONLY_SHOWN]))
            return {**update, "spent": add(site.spent, update.get("spent")), "journal": site.noted}
    ending = {"code": "answered", "reason": "", "text": arguments["text"], "evidence": good, "audit": audited}
    ending["message_id"] = turn.said_as("answer.text")
    if form and not flaws:
        ending["output"] = data
    seen = ", ".join(dict.fromkeys(item["observation"] for item in good))
    why = arguments.get("reason") or (f"what was read answers it: {seen}" if seen else "it needs no work")
    return {"planning": {**turn.planning, "corrections": 0}, "ending": ending, **_mode(turn, "answer", why), **more}


def audit_site(turn: Turn, observed: int) -> Site:
    """Return where a judge's look-ups are made while planning."""
    site_state = planning_as_step(turn.state)
    return Site(site_state, turn.runtime, turn.config, turn.deps, turn.settings.tool_seconds, observed=observed)


def planning_as_step(state: Planning) -> Step:
    """Return planning as calls see it: where they are made, and what they may cost."""
    planning = state["planning"]
    return {
        "step": {"id": PLANNING},
        "goal": state["brief"]["goal"],
        "turn": state.get("turn", 1),
        "fence": state["brief"].get("fence", ""),
        "record": {"attempt": planning["number"], "rounds": planning["rounds"]},
        "allowance": state.get("allowance") or {},
        "spent": state.get("spent") or {},
    }


def declined(turn: Turn, message: AIMessage, decision: Decision) -> Planning:
    """It cannot be done here: the reason for the log, guidance for the user."""
    arguments = decision.arguments
    ending = {"code": "declined", "reason": arguments["reason"], "text": arguments["guidance"]}
    return {"planning": {**turn.planning, "corrections": 0}, "ending": ending}


def asks(turn: Turn, message: AIMessage, decision: Decision) -> Planning:
    """Leave with a question; the answer will be the result of this very call."""
    state, planning = turn.state, {**turn.planning, "corrections": 0}
    question, options = decision.arguments["question"], decision.arguments.get("options")
    told = ""
    if left_of(state).get("questions", 1) < 1:
        if turn.settings.at_limit == "ask":
            return {"planning": planning, **out_of_budget(turn, "questions")}
        told = NO_QUESTIONS
    if before := answered_before(state.get("asked", ()), question, options, step=PLANNING):
        told = f"You asked this before; the answer was:\n{shown(before, ANSWER_CHARS)}"
    if told:
        return {"planning": planning, "transcript": [message, *respond(message, told)]}
    number = planning["questions"] + 1
    more: Json = {"call": decision.id, "message_id": turn.said_as("ask_user.question"), "language": _language(state)}
    pending = pause("question", f"{planning['transcript']}.q{number}", question, options=options or (), **more)
    asked = opening(pending)
    finished(asked, question, inside=True)
    return {
        "planning": {**planning, "questions": number},
        "pending": pending,
        "messages": [asked],
        "transcripts": {planning["transcript"]: [*state.get("transcript", ()), message]},
        "spent": {"questions": 1},
    }


def _language(state: Planning) -> str:
    """In which the runtime speaks: as the last decision declared, else as the run does."""
    return str(state["planning"].get("language") or state["brief"].get("language") or "en")
