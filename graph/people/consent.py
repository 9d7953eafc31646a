"""Consent to a plan: the rules a plan must keep, whether somebody is asked, and what an answer changes. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

from langgraph.types import Overwrite

from donewhen.graph.context import Deps
from donewhen.graph.people.pauses import opening, pause
from donewhen.graph.tools.paths import path_problem
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.channels import merge_records
from donewhen.state.graph_state import Json
from donewhen.state.language.texts import catalogue, say, shown_options
from donewhen.state.ledger import allowed
from donewhen.state.people.answers import Answer
from donewhen.state.plan.document import with_line
from donewhen.state.plan.plan import Rules, read_plan, revision
from donewhen.state.plan.planning import begun, fresh_planning
from donewhen.state.plan.revise import difference
from donewhen.state.plan.schedule import upcoming
from donewhen.state.plan.steps import fresh_record, fresh_records
from donewhen.state.plan.text import moments_text, schedule_text
from donewhen.state.records import Pause
from donewhen.state.secrets import redact_json
from donewhen.state.settings import Settings

UNDER_WAY = ("pending", "running", "ready", "waiting")


def plan_rules(
    deps: Deps,
    settings: Settings,
    finished: Mapping[str, Any] | None = None,
    before: Json | None = None,
    begun: Mapping[str, str] | None = None,
) -> Rules:
    """What a plan may refer to in this run, whoever proposes it. `before` is the plan that it takes the place of.

    A plan that takes the place of one at work is repeated by nobody: only whole work is.
    """
    toolbox = deps.all_tools(settings)
    paths = settings.profile.allowed_paths
    checks = {n: partial(_check_problems, toolbox, n, paths) for n in toolbox.names if toolbox.effect(n) == "read"}
    return Rules(
        tools=frozenset(deps.toolbox.names),
        executors=deps.executors.active,
        executor_tools={name: deps.tools_for(name, settings).names for name in ("", *deps.executors.active)},
        executor=settings.executor,
        checks=checks,
        read_call=toolbox.read,
        max_steps=settings.max_steps,
        forbidden=settings.profile.forbidden_tools,
        finished=finished or {},
        used=frozenset(step["id"] for step in (before or {}).get("steps", ())),
        repeats=deps.repeats and before is None,
        begun=begun or {},
    )


def _check_problems(toolbox: Toolbox, name: str, paths: Sequence[str], arguments: Any) -> list[str]:
    outside = path_problem(arguments, paths, toolbox.get(name)) if isinstance(arguments, Mapping) else None
    return [*toolbox.problems(name, arguments), *([outside] if outside else [])]


def consent(plan: Json, by: str) -> Json:
    """The record that a plan was approved: its revision and the tools granted per step."""
    tools = {step["id"]: list(step.get("tools") or ()) for step in plan["steps"]}
    return {"revision": plan["revision"], "by": by, "tools": tools, "plan": plan}


def changing(plan: Json, deps: Deps, settings: Settings) -> Json:
    """What of a plan changes something: `tools` that it lists, and whether an executor `works_alone`."""
    toolbox = deps.all_tools(settings)
    listed = {name for step in plan["steps"] for name in step.get("tools") or () if name in toolbox.names}
    found = [deps.executors.get(step.get("executor") or "") for step in plan["steps"]]
    alone = any(executor is not None and executor.works_alone for executor in found)
    free, shown = settings.approvals in ("plan", "never"), settings.approvals == "shown"
    changes = [name for name in listed if toolbox.effect(name) != "read"]
    writes = {name: free or (shown and toolbox.asks(name) is False) for name in changes}
    known = [name for name in changes if shown and toolbox.asks(name) is None]
    return {"writes": writes, "known": known, "works_alone": alone}


def propose(
    plan: Json,
    approval: Json | None,
    settings: Settings,
    deps: Deps,
    language: str = "en",
    *,
    granted: Mapping[str, float] | None = None,
    ask: bool = False,
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> Json:
    """What planning leaves behind: a pause that shows the plan whole, or the consent that makes none necessary.

    Against an approved plan only the difference needs consent; without a difference nobody is asked. A schedule
    always is: only a person can say that the time is the one that was meant (P18). `ask`: something in it is for a
    person to approve, under every policy but `never`. `granted` is what people added to the limits, or took from
    them; `reasons` has why steps and criteria go.
    """
    changes = difference(approval["plan"], plan, language, reasons) if approval else None
    changed = changing(plan, deps, settings)
    asks = ask and settings.confirm != "never"
    by = "policy" if not asks and _waived(plan, approval, settings, changed) else None
    if approval and not changes:
        by = str(approval.get("by"))
    if by is not None:
        before = approval["plan"] if approval else None
        return {"plan": plan, "approval": {**consent(plan, by), "before": before}, "pending": None}
    pending = pause(
        "plan",
        f"confirm.{plan['revision']}",
        _question(changes, language),
        options=shown_options("en", "plan"),
        plan=plan,
        revision=plan["revision"],
        limits=allowed(settings.limits, granted),
        writes=sorted(name for name, free in changed["writes"].items() if free),
        writes_known=sorted(changed["known"]),
        language=language,
    )
    if plan.get("schedule"):
        pending["next_runs"] = upcoming(plan["schedule"], datetime.now(UTC))
    if changes:
        pending["changes"] = changes
    return {"plan": plan, "pending": pending, "messages": [opening(pending)]}


def _waived(plan: Json, approval: Json | None, settings: Settings, changes: Json) -> bool:
    """Whether the policy approves in place of a person; what a person approved, only `never` changes without one."""
    if plan.get("schedule"):
        return False
    if settings.confirm == "never" or (approval or {}).get("by") == "user":
        return settings.confirm == "never"
    if settings.confirm == "writes":
        return not changes["writes"] and not changes["works_alone"]
    return settings.confirm == "complex" and bool(plan["complexity"] != "complex")


def _question(changes: list[str] | None, language: str) -> str:
    if not changes:
        return say(language, "ask", "plan")
    return f"{say(language, 'ask', 'changed')}\n" + "\n".join(f"- {line}" for line in changes)


def edited_plan(
    values: Mapping[str, Any], pending: Pause, answer: Answer, deps: Deps, settings: Settings
) -> Json | str:
    """The plan as a person edited it, held to the rules of every plan, or everything that is wrong with it.

    A problem leaves the pause and the plan as they were. What is finished stays in the plan, as it was.
    """
    planning = values.get("planning") or {}
    finished = {id: row for id, row in (planning.get("finished") or {}).items() if id not in planning.get("stale", ())}
    done = {step["id"]: step for step in pending["plan"]["steps"] if step["id"] in finished}
    edited = dict(answer.plan or {})
    steps = edited.get("steps") if isinstance(edited.get("steps"), list) else []
    given = {step.get("id"): step for step in steps or () if isinstance(step, Mapping)}
    if touched := [str(id) for id, step in done.items() if id not in given or {**step, **given[id]} != step]:
        return f"finished steps stay in the plan as they are: {', '.join(touched)}"
    rules = plan_rules(deps, settings, finished, pending["plan"], begun(values))
    most = max(settings.max_steps, len(pending["plan"]["steps"]))
    plan = read_plan(edited, replace(rules, max_steps=most, repeats=deps.repeats and not values.get("approval")))
    if isinstance(plan, list):
        return "the edited plan cannot be taken: " + "; ".join(with_line(each, answer.lines) for each in plan)
    whole = {**plan, "steps": [done.get(step["id"], step) for step in plan["steps"]]}
    return {**whole, "revision": revision(whole)}


def decision_row(pending: Pause, decision: str, text: str, by: str, at: str) -> Json:
    """What the receipt says of an answer: to what, what was decided, by whom, when."""
    row: Json = {"kind": pending["kind"], "id": pending["id"], "decision": decision, "text": text, "by": by, "at": at}
    if pending["kind"] in ("tool", "effect"):
        row |= {"step": pending["step"], "tool": pending["tool"], "arguments": redact_json(pending["arguments"])}
        row |= {key: redact_json(pending[key]) for key in ("batch", "new") if pending.get(key)}
    return row


def decide_plan(values: Mapping[str, Any], pending: Pause, answer: Answer, *, by: str, at: str) -> Json:
    """The update of the run for an answer to a plan that waits; an edited plan must have passed `edited_plan`."""
    row = {**decision_row(pending, answer.kind, answer.text, by, at), "revision": pending["revision"]}
    row |= {"limits": answer.amounts} if answer.amounts else {}
    granted = {key: amount - pending["limits"][key] for key, amount in answer.amounts.items()}
    approval = values.get("approval")
    if answer.kind in ("approve", "edit"):
        plan = pending["plan"] if answer.kind == "approve" else answer.plan
        assert plan is not None
        before = approval["plan"] if approval else None
        given = {**consent(plan, by), "before": before}
        row |= {"approved_revision": plan["revision"]}
        ending: Json = {"ending": _scheduled(plan, values.get("language", "en"), at)} if plan.get("schedule") else {}
        return {"approvals": [row], "plan": plan, "approval": given, "granted": granted, **ending}
    if answer.kind == "cancel" or not (approval or answer.text):
        # The receipt is about what was approved before, else about what was not.
        kept = {"plan": approval["plan"]} if approval else {"steps": fresh_records(pending["plan"], {}, None)}
        ending = {"code": "cancelled", "reason": "the plan was not approved"}
        return {"approvals": [row], "ending": ending, **kept}
    planning = values["planning"]
    if not answer.text:
        refused = {**planning, "open": False, "refused": True}
        return {"approvals": [row], "plan": (approval or {})["plan"], "planning": refused}
    known = {key: planning[key] for key in ("failure", "failed", "finished", "promoted", "tried") if planning.get(key)}
    again = fresh_planning(planning["number"] + 1, feedback=answer.text, proposal=pending["plan"], **known)
    if planning.get("failure"):
        again["phase"] = "draft"
    plan = approval["plan"] if approval else None
    return {"approvals": [row], "planning": again, "plan": plan, "feedback": answer.text, "granted": granted}


def _scheduled(plan: Mapping[str, Any], language: str, at: str) -> Json:
    """The end of a request for something recurring: it is scheduled, and nothing of it runs now."""
    schedule = plan["schedule"]
    times = moments_text(upcoming(schedule, datetime.fromisoformat(at)))
    when = schedule_text(schedule, catalogue(language)["plan"])
    said = say(language, "summary", "scheduled", when=when, times=times)
    return {"code": "scheduled", "reason": "", "text": f"{said}\n\n{say(language, 'summary', 'scheduled_by')}"}


def changed_since(values: Mapping[str, Any], deps: Deps, settings: Settings) -> Json | None:
    """If the plan in state is not the one approved, whoever changed it: the pause that shows the difference.

    A change that needs no consent is taken; one that breaks the rules of plans is not.
    """
    approval, plan = values.get("approval"), values.get("plan") or {}
    if approval and plan.get("steps") and revision(plan) == approval["revision"]:
        return None
    rules = plan_rules(deps, settings, before=(approval or {}).get("plan"))
    read = read_plan({key: item for key, item in plan.items() if key != "revision"}, rules)
    if isinstance(read, list):
        reason = "the plan was changed from outside and breaks the rules: " + "; ".join(read)
        return {"plan": approval["plan"]} if approval else {"ending": {"code": "no_plan", "reason": reason}}
    update = propose(read, approval, settings, deps, values.get("language", "en"), granted=values.get("granted"))
    if approval and update.get("approval"):
        update["approval"]["before"] = approval["plan"]
    return update


def put_to_work(values: Mapping[str, Any], at: str) -> Json:
    """Fresh records for the steps of a plan just approved; {} if they are made already.

    Finished steps keep theirs, as do steps that wait and did not change; what is not in the plan any more is over.
    """
    approval, records = values.get("approval"), values.get("steps") or {}
    if not approval or approval.get("at_work"):
        return {}
    plan, change = approval["plan"], values.get("planning") or {}
    stale = change.get("stale") or []
    steps = fresh_records(plan, records, approval.get("before"), stale)
    ids = {step["id"] for step in plan["steps"]}
    # A plan that was approved and never set to work, as after a kill, has left no records of its steps.
    records = {**{step["id"]: fresh_record() for step in _steps(approval.get("before"))}, **records}
    why: Json = change.get("dropped") or {}
    over: Json = {"status": "skipped", "waiting": None, "calls": []}
    gone = {
        id: {**record, **over, "reason": why.get(id, "not in the plan any more")}
        for id, record in records.items()
        if id not in ids and record.get("status") in UNDER_WAY
    }
    update: Json = {
        "steps": merge_records({**steps, **gone}, _replaced(approval, records, change)),
        "approval": {**approval, "before": None, "at_work": True},
    }
    if stale:
        update |= _reopened(values, stale)
    said = [row.get("approved_revision") for row in values.get("approvals") or ()]
    if approval["revision"] not in said:
        shown: Pause = {"kind": "plan", "id": f"confirm.{approval['revision']}"}
        decision = "approve" if approval["by"] == "policy" else "carried over"
        row = {**decision_row(shown, decision, "", approval["by"], at), "revision": approval["revision"]}
        update["approvals"] = [{**row, "approved_revision": approval["revision"]}]
    return update


def _reopened(values: Mapping[str, Any], stale: Collection[str]) -> Json:
    """What was written by steps that are done again is nobody's: the same write once more is for a person to decide."""
    records = values.get("steps") or {}
    wrote = {claim for id in stale for claim in records.get(id, {}).get("wrote") or ()}
    left = [claim for claim in values.get("claims") or () if claim not in wrote]
    return {"planning": {**values["planning"], "stale": []}, **({"claims": Overwrite(left)} if wrote else {})}


def _replaced(approval: Mapping[str, Any], records: Mapping[str, Any], change: Mapping[str, Any]) -> Json:
    """Steps of the plan before that are not in this one and not done, or done again: what they were, by what replaced.

    A failed step that is gone from the plan must not be gone from the receipt, nor one whose result holds no longer.
    """
    plan, before = approval["plan"], _steps(approval.get("before"))
    ids, old = {step["id"] for step in plan["steps"]}, {step["id"]: step for step in before}
    instead, stale = change.get("instead") or {}, change.get("stale") or ()
    gone = [step for id, step in old.items() if id not in ids]
    left = [s for s in gone if records.get(s["id"], {}).get("status") != "done" or s["id"] in stale]
    rows: Json = {
        s["id"]: {
            "replaced": {
                "content": s["content"],
                "by": approval["by"],
                "instead": [id for id in instead.get(s["id"], ()) if id in ids],
            }
        }
        for s in left
    }
    over = {"status": "stale", "reason": "what it rests on no longer holds"}
    return {id: {**row, **over} if records.get(id, {}).get("status") == "done" else row for id, row in rows.items()}


def _steps(plan: Mapping[str, Any] | None) -> Sequence[Json]:
    return (plan or {}).get("steps") or ()
