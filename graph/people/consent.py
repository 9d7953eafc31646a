"""Consent to a plan: whether a person is asked, what of it was changed from outside, and how an approved one starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from donewhen.graph.context import Deps
from donewhen.graph.events import moment, now
from donewhen.graph.pauses.plan import PlanEffects, PlanPause, approval_record, plan_effects, plan_rules
from donewhen.graph.people.pauses import pause_message
from donewhen.state.channels import Json, merge_records
from donewhen.state.language.texts import option_texts, say, say_why
from donewhen.state.ledger import with_granted
from donewhen.state.plan.plan import read_plan, revision_of
from donewhen.state.plan.planning import finished_rows
from donewhen.state.plan.revise import plan_changes
from donewhen.state.plan.schedule import next_moments
from donewhen.state.plan.steps import fresh_records
from donewhen.state.proof.outcome import done_in_steps
from donewhen.state.proof.receipt import effect_rows
from donewhen.state.records import Approval, PlanChange, StepChange, StepRecord
from donewhen.state.settings import Settings
from donewhen.state.statuses import UNFINISHED, change_status, fresh_record


@dataclass(frozen=True)
class Proposal:
    """A proposed plan, and the approval that it would replace."""

    plan: Json
    language: str
    """The language of the question."""
    approval: Approval | None = None
    """The approval of the previous plan."""
    granted: Mapping[str, float] | None = None
    """Changes that people made to the limits."""
    ask: bool = False
    """True if a person must approve it, under every policy except `never`."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why steps and criteria were dropped."""
    done: Mapping[str, str] = field(default_factory=dict)
    """What took effect in steps, by their ids."""
    before: Json | None = None
    """The plan that the person was shown last and spoke about."""
    steered: bool = False
    """True if a person stopped the run since the approval, and said in which way it should go on."""
    living: Sequence[Json] = ()
    """The schedules that the thread has already, `{id, schedule}`."""
    template: Json | None = None
    """The template of which it was made, as `PlanTemplate.origin` describes it."""


def propose_plan(proposal: Proposal, settings: Settings, deps: Deps) -> Json:
    """Return the update with the pause that shows the plan, or with its approval if no consent is needed.

    Of a plan that replaces an approved one, only the difference needs consent; if there is no difference, nobody is
    asked, except whoever stopped it and said what should change. A new schedule always needs it: only a person
    can confirm the time (P18).
    """
    plan, approval, language = proposal.plan, proposal.approval, proposal.language
    why, done = proposal.reasons, proposal.done
    changes = plan_changes(approval["plan"], plan, language, why, done, numbered=True) if approval else None
    effects, approved = plan_effects(plan, deps, settings, approval), approval["plan"] if approval else None
    asks = proposal.ask and settings.confirm != "never"
    by = "policy" if not asks and _is_waived(plan, approval, settings, effects) else None
    before = proposal.before
    if approval and not changes and proposal.steered:
        before = before or approval["plan"]
    elif approval and not changes:
        by = str(approval.get("by"))
    if by is not None:
        effects_before = (approval or {}).get("effects") or {}  # nobody is shown what they are now
        record = approval_record(plan, by, {**effects.kinds, **effects_before}, before=approval)
        return {"plan": plan, "approval": {**record, "before": approved}, "pending": None}
    more: Json = (
        {"next_runs": next_moments(plan["schedule"], datetime.fromisoformat(now()))} if plan.get("schedule") else {}
    )
    more |= {"changes": changes} if changes else {}
    more |= {"before": before} if before else {}
    more |= {"agents": effects.agents} if effects.agents else {}
    more |= {"living": [*proposal.living]} if proposal.living else {}
    more |= {"template": proposal.template} if proposal.template else {}
    more |= {"answered_by": effects.approver} if effects.approver else {}
    pending = PlanPause.ask(
        f"confirm.{plan['revision']}",
        _write_question(changes, language),
        options=option_texts("en", "plan"),
        plan=plan,
        revision=plan["revision"],
        limits=with_granted(settings.limits, proposal.granted),
        writes=effects.free,
        writes_known=effects.known,
        effects=effects.kinds,
        asked_at=moment(),
        language=language,
        **more,
    )
    return {"plan": plan, "pending": pending.dump(), "messages": [pause_message(pending)]}


def _is_waived(plan: Json, approval: Approval | None, settings: Settings, effects: PlanEffects) -> bool:
    """Return whether the settings approve the plan, so that nobody is asked.

    A change of a plan that a person approved always goes to a person, except under `never`.
    """
    if plan.get("schedule"):
        return False
    if settings.confirm == "never" or (approval or {}).get("by") == "user":
        return settings.confirm == "never"
    if settings.confirm == "writes":
        return not effects.any
    return settings.confirm == "complex" and bool(plan["complexity"] != "complex")


def _write_question(changes: list[str] | None, language: str) -> str:
    if not changes:
        return say(language, "ask", "plan")
    return f"{say(language, 'ask', 'changed')}\n" + "\n".join(f"- {line}" for line in changes)


def check_for_changes(values: Mapping[str, Any], deps: Deps, settings: Settings) -> Json | None:
    """Return the update for a plan in state that is not the approved one; None if it is that.

    It does not matter who changed the plan. A change that needs consent is shown, and any other is accepted. One that
    breaks the rules is undone, or ends the run if no plan was approved.
    """
    approval, plan = values.get("approval"), values.get("plan") or {}
    if approval and plan.get("steps") and revision_of(plan) == approval["revision"]:
        return None
    before = (approval or {}).get("plan")
    finished = finished_rows({**values, "plan": before})  # as it was approved
    rules = plan_rules(deps, settings, finished, before)
    read = read_plan({key: item for key, item in plan.items() if key != "revision"}, rules)
    if isinstance(read, list):
        reason = "the plan was changed from outside and breaks the rules: " + "; ".join(read)
        return {"plan": approval["plan"]} if approval else {"ending": {"code": "no_plan", "reason": reason}}
    language = values.get("language", "en")
    done = done_in_steps(effect_rows(values), language)
    return propose_plan(Proposal(read, language, approval, values.get("granted"), done=done), settings, deps)


def activate_plan(values: Mapping[str, Any], at: str) -> Json:
    """Return the update that starts a newly approved plan, with fresh records of its steps; {} if it is active already.

    Finished steps keep their records, as do pending, ready and waiting steps that did not change; steps that are no
    longer in the plan end.
    """
    approval, records = values.get("approval"), values.get("steps") or {}
    if not approval or approval.get("at_work"):
        return {}
    plan, change = approval["plan"], values["planning"]["change"]
    stale = change["stale"]
    before = (approval.get("before") or {}).get("steps") or ()
    # An approved plan that never became active, as after a kill, left no records.
    earlier_records = {**{step["id"]: fresh_record() for step in before}, **records}
    ids, reasons = {step["id"] for step in plan["steps"]}, change["dropped"]
    language = values.get("language", "en")
    gone: dict[str, StepChange] = {}
    for id, record in earlier_records.items():
        if id not in ids and record["status"] in UNFINISHED:
            why = reasons.get(id) or say_why(language, "left_plan")
            gone[id] = {**record, **change_status(record, {"status": "skipped", "calls": [], "reason": why}, at)}
    fresh = fresh_records(plan, records, approval.get("before"), stale)
    update: Json = {
        "steps": merge_records({**fresh, **gone}, [_replaced_steps(approval, earlier_records, change, language)]),
        "approval": {**approval, "before": None, "at_work": True},
    }
    # What replaced and stale steps did is done; an equal call asks before it is made again.
    ended = sorted(id for id in earlier_records if id in stale or id not in ids or id in fresh)
    done = [key for id in ended for key in earlier_records[id]["wrote"]]
    update |= {"settled_writes": done} if done else {}
    update |= {"planning": {**values["planning"], "change": {**change, "stale": []}}} if stale else {}
    if approval["revision"] not in [row.get("approved_revision") for row in values.get("approvals") or ()]:
        revision, by = approval["revision"], approval["by"]
        decision = "approve" if by == "policy" else "carried over"
        row = {"kind": "plan", "decision": decision, "text": "", "by": by, "at": moment(), "revision": revision}
        row |= approval.get("given") or {}
        update["approvals"] = [{**row, "id": f"confirm.{row['revision']}", "approved_revision": revision}]
    return update


def _replaced_steps(
    approval: Mapping[str, Any], records: Mapping[str, StepRecord], change: PlanChange, language: str
) -> dict[str, StepChange]:
    """Return what the records say about replaced steps: their content, and the steps that replace them.

    The receipt keeps a failed step that left the plan, and a finished one whose result no longer holds.
    """
    ids, rows = {step["id"] for step in approval["plan"]["steps"]}, dict[str, StepChange]()
    for step in (approval.get("before") or {}).get("steps") or ():
        id, done = step["id"], records[step["id"]]["status"] == "done"
        if id in ids or (done and id not in change["stale"]):
            continue
        new = [other for other in change["instead"].get(id, ()) if other in ids]
        rows[id] = {"replaced": {"content": step["content"], "by": approval["by"], "instead": new}}
        if done:
            rows[id] |= change_status(records[id], {"status": "stale", "reason": say_why(language, "stale")})
    return rows
