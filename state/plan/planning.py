"""The mode of a request, the record of a planning with one function for each reason, and the planner's inputs. Pure."""

from collections.abc import Mapping
from typing import Any

from donewhen.state.channels import PLANNING, Json, asker_of, conversation_before
from donewhen.state.ledger import remaining, subtract
from donewhen.state.plan.next import RESERVE, has_failed
from donewhen.state.plan.revise import goal_criteria, hash_work, no_change
from donewhen.state.plan.steps import FOR_WRITE
from donewhen.state.proof.journal import user_statements
from donewhen.state.records import Feedback, Mode, ModeChooser, ModeRow, Pause, PlanningRecord, Reason, ShownPlan
from donewhen.state.settings import Settings
from donewhen.state.statuses import record_of
from donewhen.state.values import with_name

RESULT_CHARS = 2000
REASON_CHARS = 300
FORCED = {
    "answer": "The user wants an answer and no plan: look as far as it takes, then `answer`.",
    "step": "The user wants this done in one step: submit a plan of exactly one step.",
    "plan": "The user wants a plan, however small the request is.",
}
"""Instructions for the planner if `Settings.mode` leaves it no choice."""
GROWTH = (
    "The only step of `<approved_plan>` is at work, and goes on with all it has: `<wants>` says why you are asked. Add "
    "the steps that should come after it, or `replaces` it by steps that take over from here, each with a proof of its "
    'own; give it a tool by its `id`. If it is right as it is, submit it unchanged: {"steps": [{"id": its id}]}. What '
    "was seen so far is under `<seen>` and can be cited."
)
AFTER_TWO_FAILURES = (
    "This was begun as one step, and that was not enough: make a plan of several steps, each with a proof of its own. "
    "What was seen so far is under `<seen>` and can be cited."
)


def mode_row(mode: Mode, by: ModeChooser, reason: str) -> ModeRow:
    """Return the row of a mode decision, with its reason on one bounded line."""
    return {"mode": mode, "by": by, "reason": " ".join(reason.split())[:REASON_CHARS]}


def mode_of(values: Mapping[str, Any]) -> str:
    """Return the mode of a run; "" before one is chosen."""
    rows = values.get("modes") or ()
    return str(rows[-1]["mode"]) if rows else ""


def has_step_at_work(planning: PlanningRecord) -> bool:
    """Return whether this planning is about a step at work, which goes on whatever becomes of the plan (Q74)."""
    return planning["why"]["kind"] == "growth"


def is_about_write(planning: PlanningRecord) -> bool:
    """Return whether this planning is about a step at work that wants a changing tool which its plan does not list."""
    return planning["why"]["kind"] == "growth" and planning["why"]["code"] == FOR_WRITE


def failed_twice(planning: PlanningRecord) -> bool:
    """Return whether the only step of the plan failed twice, so that several are planned in its place."""
    return planning["why"]["kind"] == "failure" and planning["why"]["twice"]


def failed_work(planning: PlanningRecord) -> list[str]:
    """Return the hashes of work that failed before in this request."""
    return planning["why"]["tried"] if planning["why"]["kind"] == "failure" else []


def shown_plan(planning: PlanningRecord) -> ShownPlan | None:
    """Return the plan that a person was shown and speaks about; None if this planning has another reason."""
    return planning["feedback"]["about"] if planning["feedback"] else None


def starting_plan(planning: PlanningRecord) -> Json:
    """Return the plan to start from: the quick one, or the one that a person speaks about; {} if there is none."""
    if planning["sketch"]:
        return planning["sketch"]["plan"]
    shown = shown_plan(planning)
    return shown["pause"]["plan"] if shown else {}


def promotion_reasons(values: Mapping[str, Any], id: str, settings: Settings) -> list[str]:
    """Return the reasons for which this step stops so that the plan can grow: `rounds`, `write`.

    They are for the only step of a plan, which stops for them once. If a person saw the plan, or if none is ever shown,
    an unlisted write does not stop the step: a person is asked about it instead.
    """
    left = remaining(settings.limits, values.get("granted"), values.get("spent"))
    chosen = [row for row in (values.get("modes") or ())[-1:] if row["by"] in ("triage", "plan")]
    alone = bool(chosen) and mode_of(values) == "step" and len((values.get("plan") or {}).get("steps", ())) == 1
    if settings.mode != "auto" or not alone or left.get("replans", 1) < 1 or has_step_at_work(values["planning"]):
        return []
    extended = bool(values["steps"][id]["granted"])
    unseen = (values.get("approval") or {}).get("by") == "policy" and settings.confirm in ("writes", "complex")
    return [*([] if extended else ["rounds"]), *(["write"] if unseen else [])]


def plan_request(*, open: bool = True) -> PlanningRecord:
    """Return the first planning of a request; it is not `open` if the plan comes with the request."""
    return _planning(1, {"kind": "request"}, open=open)


def plan_anew(values: Mapping[str, Any], words: str) -> PlanningRecord:
    """Return the planning of an interrupted run that goes on with what a person says."""
    return _plan_again(values, {"kind": "request"}, words)


def plan_after_failure(
    values: Mapping[str, Any], failure: str, words: str | None = None, name: str = "", *, twice: bool = False
) -> PlanningRecord:
    """Return the planning after a failure, with what a person of this name said to it; `twice` as in `Failure`."""
    tried, done = failed_work(values["planning"]), finished_rows(values)
    tried = [*tried, hash_work(values["plan"], done)] if values.get("plan") else tried
    return _plan_again(values, {"kind": "failure", "failure": failure, "tried": tried, "twice": twice}, words, name)


def plan_growth(values: Mapping[str, Any], code: str, wants: str) -> PlanningRecord:
    """Return the planning around the only step, which is at work. `code` is the step's, `wants` says why it stopped."""
    return _plan_again(values, {"kind": "growth", "code": code, "wants": wants})


def plan_with_words(before: PlanningRecord, pause: Pause, words: str, name: str) -> PlanningRecord:
    """Return the planning that reads what a person says about a plan that the planning `before` proposed."""
    about: ShownPlan = {"pause": pause, "change": before["change"], "language": before["language"]}
    return {
        **_planning(before["number"] + 1, before["why"]),
        "finished": before["finished"],
        "failed": before["failed"],
        "feedback": _feedback(words, name, about),
    }


def close_planning(planning: PlanningRecord) -> PlanningRecord:
    """Return the planning as it is once it has an outcome: what a person said is settled."""
    return {**planning, "open": False, "feedback": None, "sketch": None}


def _planning(number: int, why: Reason, *, open: bool = True) -> PlanningRecord:
    """Return a new planning. Only that of a request begins with triage; all others deserve thinking at once."""
    return {
        "number": number,
        "transcript": "plan" if number == 1 else f"plan@{number}",
        "phase": "triage" if why["kind"] == "request" else "draft",
        "open": open,
        "why": why,
        "finished": {},
        "failed": [],
        "feedback": None,
        "sketch": None,
        "change": no_change(),
        "language": "",
        "work": {
            "rounds": 0,
            "rounds_when_asked": 0,
            "rounds_granted": 0,
            "corrections": 0,
            "texts": 0,
            "questions": 0,
            "corrected": [],
            "by_planner": False,
            "calls": [],
            "call_answers": [],
            "sent_plan": None,
            "found_tools": [],
            "recalled": [],
            "interjection_cursor": "",
            "last_audit": None,
        },
    }


def _feedback(words: str, name: str, about: ShownPlan | None) -> Feedback:
    said: Feedback = {"text": words, "about": about}
    return {**said, "name": name} if name else said


def _plan_again(values: Mapping[str, Any], why: Reason, words: str | None = None, name: str = "") -> PlanningRecord:
    """Return the next planning of a run, with the finished steps that are kept and those that failed."""
    records, steps = values.get("steps") or {}, (values.get("plan") or {}).get("steps", ())
    return {
        **_planning(values["planning"]["number"] + 1, why),
        "finished": finished_rows(values),
        "failed": [step["id"] for step in steps if has_failed(record_of(records, step["id"]))],
        "feedback": _feedback(words, name, None) if words else None,
    }


def finished_rows(values: Mapping[str, Any]) -> dict[str, Json]:
    """Return the steps of the plan that are done, id → `{content, result}`."""
    records, steps = values.get("steps") or {}, (values.get("plan") or {}).get("steps", ())
    return {
        step["id"]: {"content": step["content"], "result": records[step["id"]]["result"][:RESULT_CHARS]}
        for step in steps
        if record_of(records, step["id"])["status"] == "done"
    }


def planning_start(values: Mapping[str, Any], settings: Settings) -> Json:
    """Return planning's facts about the run, its allowance, and its rounds so far."""
    planning: PlanningRecord = values["planning"]
    why, feedback = planning["why"], planning["feedback"]
    left = remaining(settings.limits, values.get("granted"), values.get("spent"))
    if planning["finished"]:  # a model writes the answer about them
        left = subtract(left, RESERVE)
    return {
        "brief": {
            "fence": values.get("fence", ""),
            "scope": values.get("scope", ""),
            "goal": values["goal"],
            "asker": asker_of(values),
            "output_schema": values.get("output_schema"),
            "conversation": conversation_before(values),
            "before": values.get("before") or [],
            "background": values.get("background") or {},
            "said": user_statements(values, planning["transcript"]),
            "feedback": with_name(feedback.get("name"), feedback["text"]) if feedback else None,
            "words": bool(shown_plan(planning)),
            "failure": why["failure"] if why["kind"] == "failure" else None,
            "approved_plan": standing_plan(values),
            "edited": _has_edited_plan(values),
            "wants": why["wants"] if why["kind"] == "growth" else None,
            "mode": _mode_text(planning, settings),
        },
        "id": planning["transcript"],
        "planning": planning,
        "language": values.get("language", "en"),
        "known": [entry for entry in values.get("journal") or () if entry["step"] == PLANNING],
        "turn": values.get("turn", 1),
        "approval": values.get("approval"),
        "allowance": left,
        "earlier": (values.get("transcripts") or {}).get(planning["transcript"], []),
    }


def _mode_text(planning: PlanningRecord, settings: Settings) -> str:
    if has_step_at_work(planning):
        return GROWTH
    return AFTER_TWO_FAILURES if failed_twice(planning) else FORCED.get(settings.wanted_mode, "")


def standing_plan(values: Mapping[str, Any]) -> Json | None:
    """Return the approved plan with the outcome of its steps, for the planner; None if there is none."""
    if not (approved := (values.get("approval") or {}).get("plan")):
        return None
    records, finished = values.get("steps") or {}, values["planning"]["finished"]
    steps = [
        {"id": step["id"], "status": "done", **finished[step["id"]]}
        if step["id"] in finished
        else {**step, "status": record_of(records, step["id"])["status"]}
        for step in approved["steps"]
    ]
    if len(steps) == 1 and not approved.get("done_when"):
        steps = [{key: value for key, value in steps[0].items() if key != "done_when"}]  # they are the goal's
    return {"done_when": goal_criteria(approved), "steps": steps}


def _has_edited_plan(values: Mapping[str, Any]) -> bool:
    """Return whether a person edited a plan of this request."""
    return any(row["kind"] == "plan" and row["decision"] == "edit" for row in values.get("approvals") or ())


def unfinished_steps(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the started but unfinished steps of this request, of any plan, as id → content."""
    records, contents = values.get("steps") or {}, {}
    for id, record in records.items():
        if record["replaced"]:
            contents[id] = record["replaced"]["content"]
    for step in ((values.get("approval") or {}).get("plan") or {}).get("steps", ()):
        record = record_of(records, step["id"])
        if record["status"] not in ("pending", "done") and (record["rounds"] or record["observed"]):
            contents[step["id"]] = step["content"]
    return contents


def finished_steps(values: Mapping[str, Any]) -> list[Json]:
    """Return the finished steps that are kept: `{id, content, spent}`."""
    records = values.get("steps") or {}
    finished = values["planning"]["finished"].items()
    return [{"id": id, "content": row["content"], "spent": records[id]["spent"]} for id, row in finished]
