"""The outcomes of a planning round: a plan, an answer, a question, a refusal, a correction, or the end of the run."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, cast

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit, emit_charge, emit_note, moment, thread_of
from donewhen.graph.llm.briefs import Offer
from donewhen.graph.llm.history import render_earlier_answer, reply_messages
from donewhen.graph.llm.output import OutputForm
from donewhen.graph.llm.reply import Decision, UnusableReply, answer_refused
from donewhen.graph.llm.speech import Voice, push_rest
from donewhen.graph.pauses.pause import OpenPause, load_pause, new_call_id
from donewhen.graph.pauses.question import QuestionPause
from donewhen.graph.people.budget import Account, budget_pause
from donewhen.graph.people.consent import Proposal, propose_plan
from donewhen.graph.people.interjections import IN_PLANNING, heard_entries, new_interjections
from donewhen.graph.people.pauses import pause_message
from donewhen.graph.round import Work, correct
from donewhen.graph.step.audit import Subject, audit, can_judge, is_audit_due
from donewhen.graph.step.calls import ask_before_end
from donewhen.graph.step.gates import CallContext, Caller
from donewhen.graph.step.prove import with_whole_texts
from donewhen.graph.step.texts import Texts, known_entries, scope_of
from donewhen.graph.tools.hooks import NOT_ASKED
from donewhen.state.channels import PLANNING, Json, Planning
from donewhen.state.errors import ModelError, StorageError
from donewhen.state.language.texts import amount_name, say, say_why
from donewhen.state.ledger import Amounts, Limits, add, allowance_left, subtract
from donewhen.state.plan.planning import (
    close_planning,
    failed_twice,
    failed_work,
    finished_steps,
    has_step_at_work,
    is_about_write,
    mode_of,
    mode_row,
    shown_plan,
)
from donewhen.state.plan.revise import hash_work, no_change
from donewhen.state.plan.schedule import SCHEDULES
from donewhen.state.proof.audit import doubts_to_send_back
from donewhen.state.proof.evidence import EvidenceScope, Grounding, ground_claim
from donewhen.state.proof.journal import decision_entries, find_earlier_answer, is_users_word
from donewhen.state.proof.outcome import done_in_steps
from donewhen.state.proof.receipt import effect_rows
from donewhen.state.reading.decisions import ACCEPT, DRAFT, TRIAGE
from donewhen.state.records import (
    Correction,
    Ending,
    JournalEntry,
    Mode,
    ModeChooser,
    PlanChange,
    PlanningRecord,
    PlanningWork,
    ProposedPlan,
    Reason,
    ShownPlan,
)
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
    "this is step for step the plan that failed; find another way, or ask_user, or decline. To try it again "
    "unchanged, ask_user first"
)
MOST_LIVING = 10
"""The most schedules of a thread that its next plan with a schedule names."""
ONLY_SHOWN = "say only what was shown, and openly what is missing; or look, or plan what is to be done"
SAID_MEANWHILE = "Not delivered yet: the user said something meanwhile, which comes next. Follow it, then decide again."
ROLE_OF_PHASE = {"triage": "triage", "draft": "plan"}
"""The role of the model in each phase; the prompts are named after the phase."""
LEGAL = {"triage": TRIAGE, "draft": DRAFT}


@dataclass
class PlanningRound(Work[Planning]):
    """One round of planning: its state and its dependencies."""

    key = "planning"
    state: Planning
    runtime: Runtime[Settings]
    deps: Deps
    offer: Offer = field(default_factory=Offer)
    voice: Voice | None = None
    form: OutputForm | None = None
    """The form of the structured result, if one is requested."""
    config: RunnableConfig = field(default_factory=dict)  # type: ignore[assignment]
    spent: Amounts = field(default_factory=dict)
    plan: Json = field(default_factory=dict)
    """The plan of the reply, as it was read."""

    @property
    def planning(self) -> PlanningRecord:
        """The planning record."""
        return self.state["planning"]

    @planning.setter
    def planning(self, planning: PlanningRecord) -> None:
        self.state = {**self.state, "planning": planning}

    @property
    def run(self) -> Json:
        """The run as it was when planning was dispatched."""
        return self.state["run"]

    @property
    def users_answers(self) -> list[JournalEntry]:
        """What the user answered in this run so far."""
        return [entry for entry in self.run.get("journal") or () if entry["source"] == "user"]

    @property
    def record(self) -> PlanningWork:
        """What is kept of the rounds so far: a part of the planning record."""
        return self.planning["work"]

    def note(self, **fields: Any) -> Self:
        """Set these fields in what is kept of the rounds."""
        self.planning = {**self.planning, "work": cast("PlanningWork", {**self.record, **fields})}
        return self

    def was_corrected(self, what: Correction) -> bool:
        """Return whether this correction was made already: no planning makes it twice."""
        return what in self.record["corrected"]

    def note_correction(self, what: Correction) -> Self:
        """Note that this correction is made now."""
        return self if self.was_corrected(what) else self.note(corrected=[*self.record["corrected"], what])

    @property
    def language(self) -> str:
        """The language of the runtime's texts: the last declared one, else that of the run."""
        return self.state["language"]

    @property
    def entries(self) -> list[JournalEntry]:
        """The observations that can be cited: of earlier plannings of the request and of this one."""
        return known_entries(self.state)

    @property
    def offered(self) -> tuple[str, ...]:
        """The decisions allowed in this phase, without the one that a forced mode excludes."""
        excluded = {"auto": "", "answer": "submit_plan"}.get(self.settings.wanted_mode, "answer")
        recall = ("recall",) if self.state["brief"]["before"] else ()
        if shown_plan(self.planning):  # a question about the plan is answered in every phase and mode
            accept = ACCEPT if not self.was_corrected("consent") and can_judge(self.deps, self.settings) else ()
            return self.offer.legal((*TRIAGE, *accept, *recall))
        return self.offer.legal((*(name for name in LEGAL[self.planning["phase"]] if name != excluded), *recall))

    def left(self) -> Amounts:
        """Return what planning may still spend; it has rounds of its own."""
        return {**super().left(), "rounds": rounds_left(self.record, self.settings)}

    def leave(self, obstacle: str) -> Planning:
        """End planning at an obstacle; at a limit, a person may be asked for more."""
        if obstacle == "deadline":
            reason = say_why(self.language, "deadline", deadline=self.settings.deadline)
            return fail_planning(self, "out_of_budget", reason)
        return leave_without_rounds(self) if obstacle == "rounds" else leave_at_limit(self, obstacle)

    def fail(self, error: ModelError) -> Planning:
        """End the run if the provider refuses the request; else let the planner's model do triage, or end planning."""
        if error.code == "content_filter" and not self.planning["sketch"]:
            return refuse(self, error)
        may_take_over = self.planning["phase"] == "triage" and not self.record["by_planner"]
        if may_take_over and self.deps.chosen("triage", self.settings) != self.deps.chosen("plan", self.settings):
            emit_note(self.runtime, self.language, "takes_over", error=error)
            return {"planning": self.note(by_planner=True).planning}
        return fail_planning(self, "model_error", str(error))

    def give_up(self, reason: str, messages: Sequence[AnyMessage], code: str) -> Planning:
        """End planning after too many corrections."""
        return fail_planning(self, code or "no_plan", reason)

    def call_context(self) -> CallContext:
        """Return the surroundings of the calls that planning makes besides its looks, such as those of a judge."""
        tools, observed = self.deps.all_tools(self.settings), len(self.entries)
        caller = planning_caller(self.state, self.runtime, add(self.state.get("spent"), self.spent))
        return CallContext(caller, self.runtime, self.config, self.deps, tools, observed=observed)

    def message_id(self, argument: str) -> str | None:
        """Return the id of the message in which an argument was streamed."""
        return self.voice.message_id(argument) if self.voice else None


def send_correction(round: PlanningRound, message: AIMessage, problems: Sequence[str], code: str = "") -> Planning:
    """Tell the planner what is wrong with its decision."""
    return correct(round, message, UnusableReply([*problems]), EXAMPLE, code)


def fail_planning(round: PlanningRound, code: str, reason: str) -> Planning:
    """End planning without a decision.

    The draft falls back on the plan of triage, and says so (P04). A step at work goes on. A plan that a person spoke
    about is shown again. Otherwise the run ends.
    """
    if sketch := round.planning["sketch"]:
        emit_note(round.runtime, round.language, "quick_plan", why=reason)
        return _propose(round, sketch)
    if has_step_at_work(round.planning):
        return _keep_plan(round, reason)
    if shown := shown_plan(round.planning):
        problem = say(round.language, "unclear", "not_answered", why=reason)
        return _show_again(round, shown, "", problem=problem)
    return {"ending": {"code": code, "reason": reason}}


def leave_at_limit(round: PlanningRound, key: str) -> Planning:
    """Ask a person for more of the amount `key`, which is used up; end planning if the policy does not ask."""
    settings, planning, run = round.settings, round.planning, round.run
    if planning["sketch"] or has_step_at_work(planning) or settings.at_limit != "ask":
        code = "stopped" if settings.at_limit == "stop" else "out_of_budget"
        why = "limit_of_day" if round.day else "limit_in_planning"
        return fail_planning(round, code, say_why(round.language, why, key=amount_name(round.language, key)))
    spent = add(run.get("spent"), add(round.state.get("spent"), round.spent))
    needs = (key,) if key in ("questions", "tool_calls") else ("model_calls",)
    more: Json = {"done": finished_steps(run), "unplanned": True, "needs": needs, "language": round.language}
    account = Account(settings.limits, run.get("granted") or {}, spent, **more).of_day(round.day)
    return _ask_for_more(round, budget_pause(account, key, _budget_id(round, key)))


def rounds_left(work: PlanningWork, settings: Settings) -> int:
    """Return how many model decisions planning has left since a person was last asked something."""
    return settings.plan_rounds + work["rounds_granted"] - (work["rounds"] - work["rounds_when_asked"])


def leave_without_rounds(round: PlanningRound) -> Planning:
    """Ask a person for more rounds of planning, which are used up; end planning if the policy does not ask."""
    settings, planning, work = round.settings, round.planning, round.record
    if planning["sketch"] or has_step_at_work(planning) or settings.at_limit != "ask":
        return fail_planning(round, "no_plan", say_why(round.language, "planning_rounds", settings.plan_rounds))
    used = {"rounds": work["rounds"] - work["rounds_when_asked"]}
    limits, granted = Limits(rounds=settings.plan_rounds), {"rounds": work["rounds_granted"]}
    done = finished_steps(round.run)
    more: Json = {"done": done, "unplanned": True, "planning": True, "language": round.language}
    account = Account(limits, granted, used, needs=("rounds",), **more)
    return _ask_for_more(round, budget_pause(account, "rounds", _budget_id(round, "rounds")))


def _ask_for_more(round: PlanningRound, pending: OpenPause) -> Planning:
    """Leave with the question for more budget, and keep the rounds so far."""
    rounds = {round.planning["transcript"]: list(round.state.get("transcript", ()))}
    pending = pending.but(asked_at=moment())
    return {"pending": pending.dump(), "messages": [pause_message(pending)], "transcripts": rounds}


def _budget_id(round: PlanningRound, key: str) -> str:
    return f"budget.{round.planning['transcript']}.{key}.{round.record['rounds']}"


async def take_plan(round: PlanningRound, message: AIMessage, decision: Decision) -> Planning:
    """Propose the plan, or let the draft think it through if triage asks for it; send back work that failed before."""
    plan, planning, sketch = round.plan, round.planning, round.planning["sketch"]
    change: PlanChange = plan.pop("change", no_change())
    finished = [id for id in planning["finished"] if id not in change["stale"]]
    if not planning["feedback"] and hash_work(plan, finished) in failed_work(planning):
        return await _send_back_repeated(round, message, decision, plan)
    reason = str(decision.arguments.get("reason") or (sketch["reason"] if sketch else ""))
    proposed: ProposedPlan = {"plan": plan, "reason": reason, "change": change}
    if plan["schedule"] and (living := await _living_schedules(round)):
        proposed["living"] = living
    round.note(corrections=0)
    if planning["phase"] == "triage" and plan["need_thinking"]:
        emit_note(round.runtime, round.language, "careful_plan")
        return {"planning": {**round.planning, "phase": "draft", "sketch": proposed}}
    return _propose(round, proposed)


async def _living_schedules(round: PlanningRound) -> list[Json]:
    """Return the schedules that were confirmed in this thread: `{id, schedule}`."""
    if (store := round.runtime.store) is None:
        return []
    with suppress(StorageError):  # a damaged one is shown in the list of schedules
        found = await store.asearch(SCHEDULES, filter={"thread_id": thread_of(round.runtime)}, limit=MOST_LIVING)
        return [{"id": item.key, "schedule": item.value["schedule"]} for item in found]
    return []


async def _send_back_repeated(
    round: PlanningRound, message: AIMessage, decision: Decision, plan: Mapping[str, Any]
) -> Planning:
    """Tell the planner that this work failed before. The second time, ask a person, or end planning (M7)."""
    if not round.was_corrected("repeat"):
        return send_correction(round.note_correction("repeat"), message, [REPEATED])
    emit_note(round.runtime, round.language, "proposed_again")
    if round.settings.unattended:
        return fail_planning(round, "no_plan", say_why(round.language, "planned_again"))
    steps = "; ".join(step["content"] for step in plan["steps"] if step["id"] not in round.planning["finished"])
    question = say(round.language, "ask", "repeated", steps=steps[:500])
    why = cast("Reason", {**round.planning["why"], "tried": []})  # a person may want it once more
    round.planning = {**round.planning, "why": why}
    return await ask_question(round, message, Decision("ask_user", {"question": question}, id=decision.id), anew=True)


def _propose(round: PlanningRound, proposed: ProposedPlan) -> Planning:
    """Show the plan to a person, or start it if nobody has to be asked."""
    state, planning, language = round.state, round.planning, round.language
    plan, change, why, shown = proposed["plan"], proposed["change"], planning["why"], shown_plan(planning)
    count = len(plan["steps"])
    reason = proposed["reason"] or say(language, "mode", "enough" if count == 1 else "takes", number=count)
    if why["kind"] == "growth" and count > 1:
        reason = say(language, "mode", "promoted", said=why["wants"])
    proposal = Proposal(
        plan,
        language,
        state["approval"],
        granted=round.run.get("granted"),
        ask=change["drops_criterion"] or is_about_write(planning),
        reasons=change["dropped"],
        done=done_in_steps(effect_rows(round.run), language),
        before=shown["pause"]["plan"] if shown else None,
        steered=planning["feedback"] is not None and why["kind"] == "request",
        living=proposed.get("living") or (),
    )
    update = propose_plan(proposal, round.settings, round.deps)
    if has_step_at_work(planning) and update.get("pending") and round.settings.unattended:
        return _keep_plan(round, say(round.language, "note", "nobody_asked"))
    modes = _record_mode(round, "plan" if count > 1 or failed_twice(planning) else "step", reason)
    emit(round.runtime, "plan", plan=plan)
    return {"planning": {**close_planning(planning), "change": change}, **modes, **update}  # type: ignore[typeddict-item]


def _keep_plan(round: PlanningRound, why: str) -> Planning:
    """Leave the approved plan as it is, so that the step that is at work goes on (Q74)."""
    approval = round.state["approval"]
    assert approval is not None
    emit_note(round.runtime, round.language, "plan_kept", why=why)
    return {"planning": close_planning(round.planning), "plan": approval["plan"]}


def _record_mode(round: PlanningRound, mode: Mode, reason: str) -> Planning:
    """Stream and record the request's mode if it changed."""
    if mode_of(round.run) == mode:
        return {}
    by: ModeChooser = "triage" if round.planning["phase"] == "triage" else "plan"
    by = "promotion" if has_step_at_work(round.planning) else by
    row = mode_row(mode, by if round.settings.wanted_mode == "auto" else "settings", reason)
    emit(round.runtime, "mode", **row)
    return {"modes": [dict(row)]}


async def start_looking(round: PlanningRound, message: AIMessage, decision: Decision) -> Planning:
    """Leave the reads to the look node, and answer the calls that are not made."""
    answers, printed_answers = answer_refused(decision)
    round.note(corrections=0, texts=0, calls=decision.calls, call_answers=printed_answers)
    if plan := decision.claim:
        round.note(sent_plan={"id": plan.id, "arguments": plan.arguments})
    return {"planning": round.planning, "transcript": [message, *answers]}


async def answer_about_plan(round: PlanningRound, message: AIMessage, decision: Decision, shown: ShownPlan) -> Planning:
    """Answer what a person said about the plan that waits for them, and show it again; nothing is approved."""
    pause = load_pause(shown["pause"])
    text, scope = str(decision.arguments["text"]), EvidenceScope(round.entries, PLANNING)
    grounding = ground_claim(decision.arguments, scope) if decision.arguments.get("evidence") else Grounding()
    problems = [f"evidence: {each}" for each in (*grounding.problems, *grounding.imprecise)]
    if problems and not round.was_corrected("answer"):
        return send_correction(round.note_correction("answer"), message, problems)
    message_id = round.message_id("answer.text")
    question = pause.but(reply=text, message_id=message_id, question=text).dump()
    if refusal := await round.deps.policies.refusal_of(question, round.state["brief"]["goal"], round.runtime):
        if round.voice:
            round.voice.retract("answer.text")
        return send_correction(round, message, [refusal], "refused")
    return _show_again(round, shown, text, message_id=message_id)


def _show_again(round: PlanningRound, shown: ShownPlan, reply: str, **more: str | None) -> Planning:
    """Ask again for consent to the plan, below the reply and the other texts in `more`."""
    again = {"tool_call_id": new_call_id(), "message_id": None, "reply": reply, **more}
    pending = load_pause(shown["pause"]).but(**again)
    message = pause_message(pending)
    push_rest(message, reply, inside=True)
    closed = keep_shown_plan(round, shown)
    return {**closed, "plan": shown["pause"]["plan"], "pending": pending.dump(), "messages": [message]}


def keep_shown_plan(round: PlanningRound, shown: ShownPlan) -> Planning:
    """Close the planning. Its proposal is the plan that was shown, in the language in which it was shown."""
    planning = close_planning(round.planning)
    return {
        "planning": {**planning, "change": shown["change"], "language": shown["language"]},
        "language": round.run.get("language", "en"),
    }


async def settle_by_answer(round: PlanningRound, message: AIMessage, decision: Decision) -> Planning:
    """End the run with an answer instead of a plan.

    An answer that cites what does not exist or proves nothing is always sent back. It is sent back once if a quote is
    not exact, if its data do not fit the form, or if a judge doubts it. A judge is asked only if something was read or
    changed, or if the answer rests on what earlier requests observed.
    """
    if shown := shown_plan(round.planning):
        return await answer_about_plan(round, message, decision, shown)
    state, form, arguments, entries = round.state, round.form, decision.arguments, round.entries
    context = round.call_context()
    before: list[JournalEntry] = list(state["brief"]["before"])
    words = await _users_words(round)
    grounding = Grounding()
    if arguments.get("evidence"):
        citable = [*before, *words, *decision_entries(round.run), *entries]
        scope = await with_whole_texts(context, citable, [arguments], limit=None)
        grounding = ground_claim(arguments, EvidenceScope(scope, PLANNING))
    evidence = grounding.evidence
    data, output_problems = form.read(arguments, arguments["text"]) if form else (None, [])
    flaws = [*(f"evidence: {each}" for each in grounding.imprecise), *output_problems]
    problems = [f"evidence: {each}" for each in grounding.problems]  # what does not exist is never taken
    if problems or (flaws and not round.was_corrected("answer")):
        return send_correction(round.note_correction("answer"), message, [*problems, *flaws])
    more: Planning = {}
    audited: Json | None = None
    answers = [*round.users_answers, *entries]
    output = None if output_problems else data
    ask = partial(_question_pause, round, decision)
    refusal, pause = await ask_before_end(context, str(arguments["text"]), answers, output=output, ask=ask)
    if pause and allowance_left(state).get("questions", 1) < 1:
        if round.settings.at_limit == "ask":
            return {"planning": round.note(corrections=0).planning, **leave_at_limit(round, "questions")}
        refusal = f"a person would have to agree, and the limit of questions is reached: {pause.question}"
    if refusal:
        return send_correction(round, message, [refusal], "refused")
    if pause:
        return _leave_to_ask(round, message, pause)
    used = {each["observation"] for each in evidence} | {*round.record["recalled"]}
    earlier = [entry for entry in before if entry["id"] in used]
    if is_audit_due(round.settings, round.run, [*entries, *earlier]):
        verdicts = {PLANNING: [{"evidence": evidence}]}
        subject = Subject(round.run, arguments["text"], [*earlier, *words, *entries], output, verdicts)
        subject = replace(subject, last_audit=round.record["last_audit"])
        audit_row, last_audit = await audit(context, subject)
        audited = dict(audit_row)
        emit_charge(round.runtime, None, context.spent)
        more = {"spent": context.spent, "journal": context.new_entries}
        round.note(last_audit=last_audit)
        if (doubts := doubts_to_send_back(audited)) and not round.was_corrected("answer"):
            update = send_correction(round.note_correction("answer"), message, [*doubts, ONLY_SHOWN])
            return {**update, "spent": add(context.spent, update.get("spent")), "journal": context.new_entries}
    if await new_interjections(round.runtime, planning_cursor(state), IN_PLANNING):
        messages = [message, *reply_messages(message, SAID_MEANWHILE)]
        return {"planning": round.note(corrections=0).planning, "transcript": messages, **more}
    ending: Ending = {"code": "answered", "reason": "", "text": arguments["text"]}
    ending |= {"evidence": evidence, "audit": audited, "message_id": round.message_id("answer.text")}
    ending["earlier"] = [entry["id"] for entry in earlier]
    if output_problems:
        ending["output_problem"] = redact("; ".join(output_problems))
    elif form:
        ending["output"] = data
    cited_ids = ", ".join(dict.fromkeys(item["observation"] for item in evidence))
    why = arguments.get("reason") or (f"what was read answers it: {cited_ids}" if cited_ids else "it needs no work")
    return {
        "planning": round.note(corrections=0, last_audit=None).planning,
        "ending": ending,
        **_record_mode(round, "answer", why),
        **more,
    }


async def _users_words(round: PlanningRound) -> list[JournalEntry]:
    """Return what the user said in steps and while the run worked. Their answers to planning are among its entries."""
    before = [e for e in round.run.get("journal") or () if is_users_word(e) and e["step"] != PLANNING]
    cursor = round.run.get("interjection_cursor") or ""
    return [*before, *await heard_entries(round.runtime, IN_PLANNING, cursor, planning_cursor(round.state))]


def planning_cursor(state: Planning) -> str:
    """Return the key of the last interjection that the brief or the rounds of planning include."""
    return max(state["planning"]["work"]["interjection_cursor"], state["run"].get("interjection_cursor") or "")


def planning_caller(state: Planning, runtime: Runtime[Settings], spent: Amounts | None) -> Caller:
    """Return planning as a caller that has spent this much since it was dispatched."""
    planning, brief = state["planning"], state["brief"]
    return Caller(
        id=PLANNING,
        goal=brief["goal"],
        texts=Texts(runtime.store, thread_of(runtime), scope_of(brief), state["turn"]),
        left=subtract(state["allowance"], spent),
        known=known_entries(state),
        before=brief["before"],
        attempt=planning["number"],
        rounds=planning["work"]["rounds"],
        language=state["language"],
        fence=brief["fence"],
    )


async def decline(round: PlanningRound, message: AIMessage, decision: Decision) -> Planning:
    """End the run because the request cannot be met here. The reason is logged; the user reads the guidance.

    If a person spoke about a plan, the planner cannot end the run: they read the guidance above the plan, which is
    shown again.
    """
    arguments = decision.arguments
    if shown := shown_plan(round.planning):
        return _show_again(round, shown, str(arguments["guidance"]))
    if has_step_at_work(round.planning):
        return _keep_plan(round, str(arguments["reason"]))
    ending: Ending = {"code": "declined", "reason": arguments["reason"], "text": arguments["guidance"]}
    return {"planning": round.note(corrections=0).planning, "ending": ending}


def refuse(round: PlanningRound, error: ModelError) -> Planning:
    """End the run because the model or its provider refuses the request. The user reads its words."""
    if has_step_at_work(round.planning):
        return _keep_plan(round, str(error))
    emit_note(round.runtime, round.language, "provider_refuses", error=error)
    return {"ending": {"code": "declined", "reason": str(error), "text": error.said or str(error)}}


async def ask_question(round: PlanningRound, message: AIMessage, decision: Decision, *, anew: bool = False) -> Planning:
    """Leave with a question to the user, whose answer becomes the call's result.

    The planner goes on at once if the user has answered the question before, if a hook refuses it, or if the limit of
    questions is reached and nobody is asked for more. With `anew`, what was answered before does not count.
    """
    state = round.state
    planning = round.note(corrections=0).planning
    question, options = decision.arguments["question"], decision.arguments.get("options")
    instead = ""
    if allowance_left(state).get("questions", 1) < 1:
        if round.settings.at_limit == "ask":
            return {"planning": planning, **leave_at_limit(round, "questions")}
        instead = NO_QUESTIONS
    earlier = find_earlier_answer(round.users_answers, question, options, step=PLANNING)
    if earlier and not anew:
        instead = render_earlier_answer(earlier)
    message_id = round.message_id("ask_user.question")
    pending = _question_pause(round, decision, question, options or (), message_id=message_id)
    if not instead:
        refusal = await round.deps.policies.refusal_of(pending.dump(), state["brief"]["goal"], round.runtime)
        if refusal:
            instead = NOT_ASKED.format(why=refusal)
            if round.voice:
                round.voice.retract("ask_user.question")
    if instead:
        return {"planning": planning, "transcript": [message, *reply_messages(message, instead)]}
    return _leave_to_ask(round, message, pending)


def _question_pause(
    round: PlanningRound, decision: Decision, question: str, options: Sequence[str], **more: Any
) -> QuestionPause:
    """Return the pause that asks people a question of planning; its answer is the result of the decision's call."""
    name = f"{round.planning['transcript']}.q{round.record['questions'] + 1}"
    more |= {"language": round.language, "call": decision.id, "asked_at": moment()}
    return QuestionPause.ask(name, question, options=options, **more)


def _leave_to_ask(round: PlanningRound, message: AIMessage, pending: QuestionPause) -> Planning:
    """Leave with a question to the user."""
    planning = round.note(corrections=0, questions=round.record["questions"] + 1).planning
    question_message = pause_message(pending)
    push_rest(question_message, pending.question, inside=True)
    return {
        "planning": planning,
        "pending": pending.dump(),
        "messages": [question_message],
        "transcripts": {planning["transcript"]: [*round.state.get("transcript", ()), message]},
        "spent": {"questions": 1},
    }
