"""The deliver node is the only node that ends a run. A model or code writes the answer from the receipt."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from donewhen.graph.context import Deps
from donewhen.graph.events import emit, emit_note, emit_verdicts, moment, now, thread_of
from donewhen.graph.llm.ask import ModelRequest
from donewhen.graph.llm.briefs import delivery_brief, profile_text
from donewhen.graph.llm.history import observation_limit
from donewhen.graph.llm.output import OutputForm, form_of
from donewhen.graph.llm.printed import read_printed
from donewhen.graph.llm.reply import Decision, UnusableReply, read_reply
from donewhen.graph.llm.speech import Voice, push_rest
from donewhen.graph.pauses.pause import load_pause
from donewhen.graph.people.interjections import (
    RUN,
    heard_interjections,
    interjection_entries,
    mark_heard,
    new_interjections,
)
from donewhen.graph.people.pauses import close_pause
from donewhen.graph.people.tasks import checklist, close_tasks
from donewhen.graph.round import Role
from donewhen.graph.step.audit import Subject, audit, is_audit_due, trace_output
from donewhen.graph.step.calls import ask_before_end
from donewhen.graph.step.gates import CallContext, Caller
from donewhen.graph.step.prove import (
    Proof,
    check_criteria,
    recalled_spans,
    refresh_stale_reads,
    with_whole_texts,
)
from donewhen.graph.step.talk import Talk
from donewhen.graph.step.texts import Texts
from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.effects import Place, unobserved_writes, writes_of_request
from donewhen.graph.tools.hooks import REFUSES
from donewhen.prompts import instructions
from donewhen.state.channels import GOAL, Json, RunState, merge_records
from donewhen.state.language.texts import amount_name, catalogue, other_language, say, say_why
from donewhen.state.ledger import add, first_exhausted, meter, remaining
from donewhen.state.plan.plan import answering_step, find_step, verdicts_on_goal
from donewhen.state.proof.audit import audited_status, doubts_to_send_back, reasons, status_of_words
from donewhen.state.proof.evidence import EvidenceScope, read_goal_check, satisfies
from donewhen.state.proof.journal import call_key, is_tool_call
from donewhen.state.proof.outcome import (
    is_goal_reached,
    late_lines,
    notes,
    status_of,
    summary,
    to_markdown,
    unproven_lines,
    with_notes,
    without_notes,
)
from donewhen.state.proof.receipt import (
    SUCCEEDED,
    CriterionRow,
    OutputRow,
    Receipt,
    Status,
    UndoneRow,
    criteria_rows,
    effect_rows,
    late_rows,
    receipt,
    was_changed,
    was_looked_at,
)
from donewhen.state.reading.decisions import DELIVER, NAMES, control_tools, plain_deliver_tool
from donewhen.state.records import Ending, JournalEntry, StepChange
from donewhen.state.secrets import hide_known, redact
from donewhen.state.settings import Settings
from donewhen.state.statuses import UNFINISHED, change_status
from donewhen.state.values import clean_text

ANSWER_CHARS = 50_000
BY_CODE = ("cancelled", "model_error", "stopped")
"""Endings for which no model writes the answer: the user stopped the run, or there is no model."""
NOT_PROVEN = (
    "its goal_check does not hold; deliver again with evidence that does, or with `met` false where something is "
    "really missing and an answer that says so"
)
DOUBTED = "a judge doubts it; say only what was shown, and say openly what is missing"
BY_AUDIT = ("goal_not_met", "not_shown", "unaudited")
"""Codes of runs that would be `completed` if not for the audit."""
NO_CALLS = "it holds a tool call as text, and none is made any more; deliver the answer from what was found"
REFUSED = "deliver another answer, without what was refused"
TOO_LONG = "it has {length:,} characters, and at most {most:,} are delivered; say less"
NOT_IN_FORM = "deliver it again, with an `output` that fits its schema"
EXAMPLE = "A good reply is one call of deliver and nothing else."


@dataclass
class Delivery(Talk[str]):
    """The answer in progress: its sources, and the results so far."""

    values: Json
    ending: Ending
    draft: Receipt
    interjections: "_Interjections"
    verdicts: list[Json] = field(default_factory=list)
    """Verdicts on the goal's own criteria."""
    audit: Json | None = None
    """The `AuditRow` of the answer; None if no audit was due."""
    last_audit: Json | None = None
    """What the next audit of the answer needs of the last one."""
    form: OutputForm | None = None
    """The form of the structured result, if one is requested."""
    data: Any = None
    """The structured result."""
    flaw: str = ""
    """Why there is no structured result; "" if there is one, or none is requested."""
    streamed: str = ""
    """The answer, or its beginning, if a planner or step streamed it already, in the message `streamed_id`."""
    streamed_id: str | None = None
    written: str = ""
    """The last answer that a model delivered, taken or not."""
    sent_back: bool = False
    """True if an answer was sent back, which happens once (D06)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.voice: Voice = Voice(self.context.runtime, language=self.language, answer=True, inside=False)

    def read_data(self, arguments: Json, text: str = "") -> list[str]:
        """Read the structured result from a call's arguments or a text; return its problems."""
        if self.form is None:
            return []
        data, problems = self.form.read(arguments, text)
        self.data, self.flaw = (None, redact("; ".join(problems))) if problems else (data, "")
        return problems

    def tell(self, text: str) -> str:
        """Stream a text as the answer and return it."""
        if self.streamed_id:
            emit(self.context.runtime, "speech", step=None, text=text, id=self.streamed_id, answer=True)
        else:
            self.voice.say(text)
        return text

    def message(self, text: str) -> AIMessage:
        """Return the streamed answer as a message; stream what is still missing of it."""
        message = AIMessage(text, id=self.streamed_id or self.voice.message_id("deliver.text", "answer.text", ""))
        if self.streamed_id:
            push_rest(message, hide_known(self.streamed, self.context.deps.secrets), inside=False)
        return message

    def say(self, outcome: Decision | UnusableReply) -> None:
        """Take back the streamed text of an answer that is sent back. An accepted one is streamed with its notes."""
        if self.speech and isinstance(outcome, UnusableReply):
            self.speech.restart()

    def end(self, problem: str) -> str:
        """Return the empty text: no answer was accepted."""
        return ""

    async def question(self) -> ModelRequest:
        """Return the request: the receipt of what was done, and the answers that were sent back."""
        self.legal = DELIVER
        criteria = (self.values.get("plan") or {}).get("done_when")
        own = self.form.tools if self.form else {} if criteria else {"deliver": plain_deliver_tool()}
        return ModelRequest(
            "deliver",
            self.messages,
            control_tools(DELIVER, own),
            allowance=self.left(),
            voice=self.voice,
            thread=self.context.thread,
            must_call=True,
        )

    async def closing_notes(self, criteria: list[CriterionRow] | None = None) -> list[str]:
        """Return what the answer must say in any case: assumptions, unfinished work, next steps (D03)."""
        draft, language = self.draft, self.language
        draft["output"] = await self.output_row()
        draft["audit"] = self.audit  # type: ignore[typeddict-item]
        draft["effects"] = effect_rows({**self.values, "audit": self.audit})
        if criteria is not None:
            draft["criteria"] = criteria
        lines = notes(draft, language)
        return ["", to_markdown(lines)] if lines else []

    async def with_closing_notes(self) -> str:
        """Return the written answer with what it must say in any case."""
        goal = (self.values.get("plan") or {}).get("done_when") or ()
        return "\n".join([self.written, *await self.closing_notes(criteria_rows(goal, self.verdicts))])

    @property
    def needs_audit(self) -> bool:
        """True if the answer is audited before it is delivered."""
        return self.draft["status"] in ("completed", "partial", "exhausted") and is_audit_due(
            self.settings, self.values
        )

    async def output_row(self) -> OutputRow | None:
        """Return the receipt's row on the structured result: its problem, or the source of each value."""
        if self.form is None:
            return None
        if self.flaw:
            return {"problem": self.flaw, "fields": [], "more": 0}
        journal = [*(self.values.get("journal") or ()), *self.context.new_entries]
        return await trace_output(self.context, self.data, self.values, journal)


async def deliver(state: RunState, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> RunState:
    """End the run with one outcome, a text for the user and a receipt. An existing outcome is kept (D01)."""
    if state.get("outcome"):
        again = (state.get("ending") or {}).get("again")
        return await _audit_again(state, runtime, config, deps) if again else {}
    settings, ending = runtime.context, state.get("ending") or {"code": "worked", "reason": ""}
    code, steps = ending["code"], _end_open_steps(state.get("steps") or {}, ending)
    interjections = _Interjections(runtime, state.get("interjection_cursor") or "")
    await interjections.read()
    values: Json = {**state, "steps": steps, "plan": _plan_of_request(state, code)}
    values["journal"] = [*(state.get("journal") or ()), *interjections.heard_entries()]
    values["unobserved"] = await _find_unobserved_writes(state, runtime, Place.of(config, depth=1))
    status = status_of(code, values["plan"], steps, settings)
    observed = sum(entry["step"] == GOAL for entry in state.get("journal") or ())
    tools = deps.all_tools(settings, values["plan"])
    context = CallContext(_caller(values, runtime), runtime, config, deps, tools, observed=observed)
    form = None if code == "scheduled" else form_of(state.get("output_schema"))
    draft = await run_in_thread(partial(receipt, values, settings, status, code))  # it hides what calls were given
    delivery = Delivery(context, values, ending, draft, interjections, form=form)
    delivery.flaw = say_why(delivery.language, "no_data") if form else ""
    text = await _write_text(delivery)
    if refused := await _ask_hooks(delivery, text):
        text = delivery.tell(f"{catalogue(delivery.language)['why']['refused']}: {refused.removeprefix(REFUSES)}")
        delivery.read_data({})
        delivery.flaw = say_why(delivery.language, "no_data") if form else ""
        # What was found about the refused words and data repeats them.
        delivery.draft["output"] = None
        delivery.audit, delivery.verdicts = None, [each for each in delivery.verdicts if each.get("by") != "judge"]
    text = await _audit_if_due(delivery, "failed" if refused else status, text)
    text = await _tell_late(delivery, text)
    status = _status_with_goal(delivery, status, code, settings.verification)
    reason = ending["reason"]
    if code == "answered" and status == "partial":
        reason = say_why(delivery.language, "not_carried_out")
    if delivery.flaw and status == "completed":
        status, reason = "partial", say(delivery.language, "summary", "no_output", problem=delivery.flaw)
    status, code = audited_status(status, code, delivery.audit)
    if code in BY_AUDIT:
        reason = reasons(delivery.audit or {}, delivery.language)
    if refused and ending["code"] != "cancelled":
        status, code, reason = ("partial" if status == "completed" else status), "refused", refused
    row = delivery.draft["output"] or await delivery.output_row()
    values = {**values, "verdicts": delivery.verdicts, "output_row": row, "audit": delivery.audit}
    values["journal"] = [*(state.get("journal") or ()), *interjections.entries(), *context.new_entries]
    looked, changed = was_looked_at(values), was_changed({**values, "audit": delivery.audit})
    status = status_of_words(status, code, delivery.audit, looked=looked, changed=changed)
    spent = context.spent
    whole = {**values, "spent": add(state.get("spent"), spent)}
    final = await run_in_thread(partial(receipt, whole, settings, status, code))
    final["ended"] = moment()
    rows = checklist(values["plan"], steps, delivery.language, answered=True)
    emit(runtime, "todos", todos=rows)
    emit(runtime, "spent", meter=final["meter"])
    text, pending = hide_known(text, deps.secrets), state.get("pending")
    results, shut = close_tasks(steps, delivery.language)
    shown = close_pause(state.get("messages") or (), load_pause(pending), "Ended.") if pending else []
    answer = delivery.message(text)
    answer.id = answer.id or str(uuid4())
    messages: list[AnyMessage] = [*shown, *results, answer]
    emit(runtime, "outcome", status=status, code=code, text=text)
    todos: Any = Overwrite(rows)
    data: Json = {"output": delivery.data} if form and not delivery.flaw else {}
    data |= {"looked": final["looked"], "changed": final["changed"]}
    data["missing"] = (delivery.audit or {}).get("missing", [])
    outcome: Json = {"status": status, "code": code, "text": text, "reason": reason, **data, "receipt": final}
    return {
        "messages": messages,
        "last_answer": answer.id,
        "outcome": hide_known(outcome, deps.secrets),
        "steps": merge_records(steps, [shut]),
        "pending": None,
        "spent": spent,
        "journal": [*interjections.entries(), *context.new_entries],
        "todos": todos,
        **({"interjection_cursor": interjections.cursor} if interjections.heard_entries() else {}),
        **({} if status in SUCCEEDED else await _leave_writes_open(state, runtime)),
    }


async def _leave_writes_open(state: RunState, runtime: Runtime[Settings]) -> RunState:
    """Return the update by which a later request asks before it repeats a write of this one, which did not succeed."""
    if not (keys := state.get("settled_writes")) or runtime.store is None:
        return {}
    own = await writes_of_request(runtime.store, thread_of(runtime), state.get("turn", 1))
    left: Any = Overwrite([key for key in keys if key not in own])
    return {"settled_writes": left}


@dataclass
class _Interjections:
    """What the user said to the run while it worked, as far as the journal does not have it yet."""

    runtime: Runtime[Settings]
    after: str
    """The last interjection that the journal includes."""
    rows: list[Json] = field(default_factory=list)

    async def read(self) -> list[Json]:
        """Read all of them again, with the marks of rounds that heard them; return those that are new."""
        earlier_keys = {row["key"] for row in self.rows}
        rows = await new_interjections(self.runtime, self.after, RUN)
        heard_rows = {row["key"]: row for row in await heard_interjections(self.runtime, rows)}
        self.rows = [{**row, **heard_rows.get(row["key"], {})} for row in rows]
        return [row for row in self.rows if row["key"] not in earlier_keys]

    async def hear(self) -> None:
        """Mark everything as heard, because the prompt of the delivery includes it."""
        self.rows = await mark_heard(self.runtime, self.rows, None)

    def entries(self) -> list[JournalEntry]:
        """Return all of them as observations."""
        return interjection_entries(self.rows, ())

    def heard_entries(self) -> list[JournalEntry]:
        """Return those that some prompt has included, as observations."""
        return interjection_entries([row for row in self.rows if row.get("heard")], ())

    @property
    def cursor(self) -> str:
        """The last interjection that was heard."""
        return str(max(row["key"] for row in self.rows if row.get("heard")))


async def _tell_late(delivery: Delivery, text: str) -> str:
    """Say in the answer which words of the user came too late to be followed; return the answer."""
    context, draft = delivery.context, delivery.draft
    lines_before = late_lines(draft, delivery.language)
    await delivery.interjections.read()
    draft["late"] = late_rows(delivery.interjections.entries())
    for row in draft["late"]:
        emit(context.runtime, "late", **{key: text for key, text in row.items() if key != "id"})
    lines = [line for line in late_lines(draft, delivery.language) if line not in lines_before]
    return delivery.tell("\n".join([text, "", *lines])) if lines else text


async def _ask_hooks(delivery: Delivery, text: str) -> str:
    """Return why a hook refuses to deliver this text; "" if none does. Nobody can be asked any more.

    No hook is asked about a confirmed schedule: its text is the runtime's own, and nothing ran.
    """
    if delivery.ending["code"] == "scheduled":
        return ""
    journal, status = delivery.values.get("journal") or (), delivery.draft["status"]
    output = None if delivery.flaw else delivery.data
    refusal, _ = await ask_before_end(delivery.context, text, journal, status, output)
    return refusal


async def _audit_if_due(delivery: Delivery, status: Status, text: str) -> str:
    """Audit the answer if that is due and was not done yet; return it with the audit's notes."""
    if delivery.audit is not None or status != "completed" or delivery.ending["code"] == "scheduled":
        return text
    settings = delivery.context.runtime.context
    if not text.strip() or not is_audit_due(settings, delivery.values):
        return text
    if delivery.ending["code"] == "answered" and settings.verification != "judged" and not delivery.draft["steps"]:
        return text
    await _audit(delivery, text)
    lines = await delivery.closing_notes()
    return delivery.tell("\n".join([text, *lines])) if lines else text


async def _audit(delivery: Delivery, text: str) -> list[str]:
    """Audit the answer; return the doubts to send back."""
    context, values = delivery.context, delivery.values
    verdicts = {id: record["verdicts"] for id, record in values["steps"].items()}
    journal = [*(values.get("journal") or ()), *context.new_entries]
    output = None if delivery.flaw else delivery.data
    subject = Subject(values, text, journal, output, {**verdicts, GOAL: delivery.verdicts}, values["steps"])
    audit_row, delivery.last_audit = await audit(context, replace(subject, last_audit=delivery.last_audit))
    delivery.audit = dict(audit_row)
    doubts = reasons(delivery.audit, delivery.language)
    level, goal = context.settings.verification, (values.get("plan") or {}).get("done_when") or []
    for verdict in delivery.verdicts:
        if verdict["verdict"] == "cited" and not satisfies("cited", goal[verdict["criterion"] - 1], level):
            note = doubts or say(delivery.language, "proof", "no_doubt")
            verdict |= {"verdict": "unverified" if doubts else "proven", "note": note, "by": "judge"}
    return doubts_to_send_back(delivery.audit, only_words=True)


def _status_with_goal(delivery: Delivery, status: Status, code: str, level: str) -> Status:
    """Return the status, taking the goal's own criteria into account (D06)."""
    if not (goal := (delivery.values["plan"] or {}).get("done_when")):
        return status
    proven = is_goal_reached(goal, delivery.verdicts, level)
    if status == "completed" and not proven:
        return "partial"
    return "completed" if code == "finished_early" and proven else status


async def _audit_again(state: RunState, runtime: Runtime[Settings], config: RunnableConfig, deps: Deps) -> RunState:
    """Audit a finished run once more and return its new outcome; keep the old one if no audit was possible.

    A person asked for this, so the run's limits do not apply; the audit has its own.
    """
    ending: Ending = {**(state.get("ending") or {})}
    ending.pop("again", None)
    ending.pop("problem", None)
    delivered, settings = state.get("outcome") or {}, runtime.context
    final, language, code = delivered["receipt"], str(state.get("language") or "en"), str(ending["code"])
    values: Json = {**state, "steps": state.get("steps") or {}, "plan": _plan_of_request(state, code)}
    observed = sum(entry["step"] == GOAL for entry in state.get("journal") or ())
    caller = replace(_caller(values, runtime), left={})
    context = CallContext(caller, runtime, config, deps, deps.all_tools(settings, values["plan"]), observed=observed)
    interjections = _Interjections(runtime, state.get("interjection_cursor") or "")
    form = form_of(state.get("output_schema"))
    delivery = Delivery(context, values, ending, final, interjections, _verdicts_before_audit(final), form=form)
    delivery.data, delivery.flaw = delivered.get("output"), (final.get("output") or {}).get("problem", "")
    written = without_notes(delivered["text"], final, language)
    await _audit(delivery, written)
    audited, spent = delivery.audit or {}, add(state.get("spent"), context.spent)
    final = {**final, "spent": spent, "meter": meter(spent, settings.limits, state.get("granted"))}
    common: RunState = {"ending": ending, "journal": context.new_entries, "spent": context.spent}
    emit(runtime, "spent", meter=final["meter"])
    if problem := reasons(audited, language) if audited["problem"] or audited.get("nobody") else "":
        emit(runtime, "outcome", status=delivered["status"], code=delivered["code"], text=delivered["text"])
        outcome: Json = hide_known({**delivered, "receipt": final}, deps.secrets)
        return {**common, "ending": {**ending, "problem": problem}, "outcome": outcome}
    level: Any = final["verification"]
    status: Status = delivered["status"]
    if final["audit"]:  # an earlier audit may have lowered the status
        status = status_of(code, values["plan"], values["steps"], settings.model_copy(update={"verification": level}))
        status = _status_with_goal(delivery, status, code, level)
        status = "partial" if delivery.flaw and status == "completed" else status
    reason = str(ending.get("reason", "")) if delivered["code"] in BY_AUDIT else delivered["reason"]
    status = "completed" if status == "answered" else status
    status, code = audited_status(status, code if delivered["code"] in BY_AUDIT else delivered["code"], audited)
    seen: Json = {**values, "journal": [*(state.get("journal") or ()), *context.new_entries]}
    status = status_of_words(status, code, audited, looked=was_looked_at(seen), changed=final["changed"])
    rows = criteria_rows((values["plan"] or {}).get("done_when") or (), delivery.verdicts)
    level = "audited" if level == "grounded" else level
    final |= {"effects": effect_rows({**seen, "audit": audited})}
    final |= {"status": status, "code": code, "audit": audited, "criteria": rows, "verification": level}
    text = with_notes(written, final, language)
    if text != delivered["text"] and (answer := _replace_answer(state, text)):
        emit(runtime, "speech", step=None, text=text, id=answer[0].id, answer=True)
        common["messages"] = answer
    emit(runtime, "outcome", status=status, code=code, text=text)
    reason = reasons(audited, language) if code in BY_AUDIT else reason
    more: Json = {"status": status, "code": code, "text": text, "reason": reason, "missing": audited["missing"]}
    outcome = hide_known({**delivered, **more, "receipt": final}, deps.secrets)
    return {**common, "outcome": outcome}


def _verdicts_before_audit(earlier: Mapping[str, Any]) -> list[Json]:
    """Return the verdicts on the goal's own criteria without what a judge added.

    Receipts of older versions do not say who decided; without a check, only a judge calls a criterion proven.
    """
    return [
        {**row, "verdict": "cited", "note": ""}
        if row.get("by") == "judge" or (row["verdict"] == "proven" and not row["check"])
        else dict(row)
        for row in earlier["criteria"]
    ]


def _replace_answer(state: Mapping[str, Any], text: str) -> list[AnyMessage]:
    """Return the delivered answer with another text, under the same message id; [] if it is not there any more."""
    answers = [
        m for m in state.get("messages") or () if isinstance(m, AIMessage) and m.text == state["outcome"]["text"]
    ]
    return [AIMessage(text, id=answers[-1].id)] if answers else []


def note_undone(state: Mapping[str, Any], rows: Sequence[UndoneRow]) -> RunState:
    """Return an update of a finished run whose changes were undone: its receipt and its answer say so."""
    delivered, language = state["outcome"], str(state.get("language") or "en")
    final = {**delivered["receipt"], "undone": [*delivered["receipt"].get("undone", ()), *rows]}
    text = with_notes(without_notes(delivered["text"], delivered["receipt"], language), final, language)
    return {"messages": _replace_answer(state, text), "outcome": {**delivered, "text": text, "receipt": final}}


def cancel_without_receipt(state: RunState, settings: Settings, reason: str) -> RunState:
    """Return an update that cancels a run whose full receipt cannot be made; plan and steps are left out."""
    values = {key: value for key, value in state.items() if key not in ("plan", "steps", "approval", "pending")}
    final = receipt(values, settings, "cancelled", "cancelled")
    final["ended"] = moment()
    text = _summarize(final, {"code": "cancelled", "reason": reason}, str(state.get("language") or "en"))
    seen = {"missing": [], "looked": final["looked"], "changed": final["changed"]}
    outcome = {"status": "cancelled", "code": "cancelled", "text": text, "reason": reason, **seen, "receipt": final}
    answer = AIMessage(text, id=str(uuid4()))
    return {"messages": [answer], "last_answer": str(answer.id), "outcome": outcome, "pending": None}


def _plan_of_request(state: RunState, code: str) -> Json | None:
    """Return the plan if this request worked on it; scheduled plans lose their steps, unused plans are left out."""
    plan = state.get("plan")
    if plan and code == "scheduled":
        return {**plan, "steps": [], "done_when": []}
    return None if code == "answered" and not state.get("approval") else plan


def _end_open_steps(records: Json, ending: Ending) -> Json:
    """Mark steps that were still open when the run ended, with the reason."""
    limited = ending["code"] in ("out_of_budget", "stopped")
    reason = ending["reason"] or ending["code"]
    change: StepChange = {"status": "exhausted" if limited else "skipped", "reason": reason}
    return {
        id: {**record, **change_status(record, change, now())} if record["status"] in UNFINISHED else record
        for id, record in records.items()
    }


async def _find_unobserved_writes(state: RunState, runtime: Runtime[Settings], place: Place) -> list[Json]:
    """Return writes that took effect, or may have, and that no step has observed, because something cut it off."""
    records = (state.get("steps") or {}).values()
    if runtime.store is None or not any(record["started"] for record in records):
        return []
    made = [
        entry
        for entry in state.get("journal") or ()
        if is_tool_call(entry) and (entry["ok"] or entry.get("unknown")) and not entry.get("confirmed")
    ]
    in_journal = Counter((entry["step"], call_key(entry["tool"], entry["arguments"])) for entry in made)
    wrote = {*(state.get("settled_writes") or ()), *(key for record in records for key in record["wrote"])}
    return await unobserved_writes(runtime.store, thread_of(runtime), place, state.get("turn", 1), in_journal, wrote)


def _caller(values: Json, runtime: Runtime[Settings]) -> Caller:
    """Return the delivery as a caller, which has seen everything."""
    return Caller(
        GOAL,
        values.get("goal", ""),
        Texts.of(runtime.store, thread_of(runtime), values),
        remaining(runtime.context.limits, values.get("granted"), values.get("spent")),
        list(values.get("journal") or ()),
        list(values.get("before") or ()),
        language=values.get("language", "en"),
        fence=values.get("fence", ""),
    )


async def _write_text(delivery: Delivery) -> str:
    """Write the answer. If the result of a step is the answer, no model is asked (D05)."""
    draft, ending, context = delivery.draft, delivery.ending, delivery.context
    language, done = delivery.language, [row for row in draft["steps"] if row["status"] == "done"]
    by_code = "\n\n".join(part for part in (ending.get("text") or "", _summarize(draft, ending, language)) if part)
    plan: Json = delivery.values["plan"] or {}
    if draft["status"] == "completed" and (id := answering_step(plan)) and len(draft["steps"]) == len(done):
        record = delivery.values["steps"][id]
        result, goal = record["result"], list(plan.get("done_when") or ())
        if not delivery.read_data({}, result):
            delivery.verdicts = verdicts_on_goal(plan, find_step(plan, id), record["verdicts"])
            delivery.audit, delivery.streamed, delivery.streamed_id = record["audit"], result, record["said"]
            if (record["audit"] or {}).get("lacks") and not delivery.lacks():  # more was granted since
                await _audit(delivery, result)
            return delivery.tell(
                "\n".join([result, *await delivery.closing_notes(criteria_rows(goal, delivery.verdicts))])
            )
    if ending["code"] == "answered":
        if delivery.read_data({**ending}, ending["text"]) and (problem := ending.get("output_problem")):
            delivery.flaw = problem
        draft["output"], delivery.audit = await delivery.output_row(), ending.get("audit")
        draft["audit"] = delivery.audit  # type: ignore[typeddict-item]
        lines = unproven_lines(draft, language) if delivery.flaw or delivery.audit or draft["output"] else []
        more = "\n\n" + "\n".join(lines) if lines else ""
        if by_code != ending["text"]:
            return delivery.tell(by_code + more)
        delivery.streamed, delivery.streamed_id = by_code, ending.get("message_id")  # the model's text
        if more:
            delivery.tell(more)
        return by_code + more
    if (
        not done
        or ending.get("text")
        or ending["code"] in BY_CODE
        or first_exhausted(context.amounts_left(), ("model_calls",))
    ):
        return delivery.tell(by_code)
    if answer := await _ask_for_answer(delivery):
        return answer
    emit_note(context.runtime, language, "summary")
    draft["output"] = await delivery.output_row()
    return delivery.tell(_summarize(draft, ending, language))


async def _ask_for_answer(delivery: Delivery) -> str:
    """Ask a model for the answer; "" if there is none. An answer that was sent back is taken if no other comes."""
    await delivery.interjections.hear()
    journal, settings = delivery.values["journal"], delivery.settings
    delivery.values["journal"] = [*journal, *(e for e in delivery.interjections.heard_entries() if e not in journal)]
    brief = delivery_brief(
        delivery.values, delivery.draft, settings, delivery.ending["reason"], delivery.values.get("fence", "")
    )
    profile = profile_text(settings.profile, language=settings.speaks)
    delivery.messages = [SystemMessage(instructions("deliver", profile)), HumanMessage(brief)]
    if (answer := await delivery.run(WRITER)) or not delivery.written:
        return answer
    # The answer that was sent back is the only one, so it is delivered, and its notes say what is wrong with it.
    if delivery.needs_audit and delivery.audit is None and not await _ask_hooks(delivery, delivery.written):
        await _audit(delivery, delivery.written)
    return delivery.tell(await delivery.with_closing_notes())


async def _read_text(delivery: Delivery, message: AIMessage, decision: Decision) -> Decision | UnusableReply:
    """Return the answer in a text, printed or plain. JSON in a plain answer is kept."""
    text, tools = clean_text(str(message.text)), delivery.deps.all_tools(delivery.settings)
    called = [call["name"] for call in read_printed(text, DELIVER, tools).calls]
    if any(name in tools or name in NAMES - {*DELIVER, "answer"} for name in called):
        return UnusableReply([NO_CALLS])
    printed, whole = read_printed(text, ["deliver", "answer"]), read_reply(message, DELIVER, printed=True)
    arguments = whole.arguments if isinstance(whole, Decision) else {}
    texts = [str(call["args"].get("text") or "") for call in printed.calls if call["name"] in ("deliver", "answer")]
    answer = texts[0].strip() if texts and printed.last else ""
    if not answer and "output" in arguments:  # data without a text is the answer
        answer = json.dumps(arguments["output"], ensure_ascii=False, indent=1)
    return Decision("deliver", {**arguments, "text": answer or decision.speech.strip()})


async def _objections(delivery: Delivery, decision: Decision) -> list[str]:
    """Check an answer against the goal's criteria, the form, the hooks and a judge; return what to send back, once."""
    arguments, settings, plan = decision.arguments, delivery.settings, delivery.values.get("plan") or {}
    whole = str(arguments["text"]).strip()
    written = delivery.written = _cut_answer(whole)
    flaws, goal = delivery.read_data(arguments, whole), list(plan.get("done_when") or ())
    unmet = await _find_unmet(delivery, goal, arguments, written) if goal else []
    problems = [(NOT_PROVEN, unmet if delivery.draft["status"] == "completed" else []), (NOT_IN_FORM, flaws)]
    again, refused = not delivery.sent_back, await _ask_hooks(delivery, written)
    problems.append((REFUSED, [refused] if refused else []))
    if written != whole:
        problems.append((TOO_LONG.format(length=len(whole), most=ANSWER_CHARS), [""]))
    planned_language = delivery.values["planning"]["language"]
    if again and (wanted := other_language(arguments.get("language"), settings.speaks, planned_language)):
        problems.append((say(delivery.language, "proof", "language", wanted=wanted), [""]))
    if delivery.needs_audit and not refused and not (again and any(details for _, details in problems)):
        problems.append((DOUBTED, await _audit(delivery, written)))
    if not again or delivery.lacks():
        if written != whole:
            emit(delivery.runtime, "note", text=say(delivery.language, "summary", "cut", length=len(whole)))
        return []
    objections = [f"{why}: {'; '.join(details)}".removesuffix(": ") for why, details in problems if details]
    delivery.sent_back = bool(objections)
    return objections


def _cut_answer(text: str) -> str:
    """Return the text; if it is too long, its beginning up to a space, with a mark."""
    return text if len(text) <= ANSWER_CHARS else f"{text[:ANSWER_CHARS].rsplit(None, 1)[0]} […]"


async def _take(delivery: Delivery, message: AIMessage, decision: Decision) -> str:
    """Take the answer, with the notes that close it."""
    answer = await delivery.with_closing_notes()
    if delivery.speech:
        delivery.speech.finish_with(answer)
    return answer


WRITER: Role[Delivery, str | None] = Role(
    ask=Delivery.question,
    read_text=_read_text,
    objections=_objections,
    handlers={"deliver": _take},
    example=EXAMPLE,
    writes=True,
    inside=True,
)


async def _find_unmet(delivery: Delivery, goal: list[Json], arguments: Json, text: str) -> list[str]:
    """Return the unproven criteria of the goal, and store the verdicts."""
    context, settings = delivery.context, delivery.context.runtime.context
    delivery.verdicts = []
    claims = read_goal_check(arguments.get("goal_check"), goal, settings.verification)
    if isinstance(claims, list):
        return claims
    limit = observation_limit(context.deps, settings, "execute")
    entries = await with_whole_texts(context, context.caller.known, claims.values(), limit)
    recalled = recalled_spans((delivery.values.get("steps") or {}).values())
    language = delivery.language
    scope = EvidenceScope(entries, GOAL, text.strip(), writes_text=True, recalled=recalled, language=language)
    proof = Proof(context, goal, claims, scope)
    await refresh_stale_reads(proof)
    if used_up := await check_criteria(proof):
        note = say_why(language, "limit", key=amount_name(language, used_up))
        for number in claims.keys() - proof.verdicts.keys():
            row = {"criterion": number, "text": goal[number - 1]["text"], "claimed": claims[number]["met"]}
            proof.verdicts[number] = {**row, "verdict": "unverified", "evidence": [], "note": note, "stays": True}
    delivery.verdicts, rejected = proof.rows, proof.rejected()
    emit_verdicts(context.runtime, None, delivery.verdicts, accepted=not rejected)
    return [proof.why_rejected(verdict) for verdict in rejected]


def _summarize(draft: Receipt, ending: Ending, language: str) -> str:
    """Summarize the steps without a model; "" if there were none and the answer says everything."""
    texts = catalogue(language)["why"]
    first, reason = texts.get(ending["code"], ""), str(ending["reason"]).strip()[:1000]
    if ending["code"] == "declined":
        reason = ""  # the reason is for the log; users read the guidance
    why = f"{first}: {reason}" if first and reason else f"{first}." if first else reason
    return "" if ending.get("text") and not draft["steps"] else summary(draft, why, language)
