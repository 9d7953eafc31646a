"""The start of planning: the mode of the request, the planning record, and the planner's inputs. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from donewhen.state.channels import PLANNING, Json, conversation_before
from donewhen.state.ledger import remaining, subtract
from donewhen.state.plan.next import RESERVE, has_failed
from donewhen.state.plan.revise import goal_criteria, hash_work
from donewhen.state.plan.steps import GROWS
from donewhen.state.proof.journal import user_statements
from donewhen.state.records import Mode, ModeRow, PlanningRecord
from donewhen.state.settings import Settings

RESULT_CHARS = 2000
REASON_CHARS = 300
OF_REQUEST = ("failure", "failed", "finished", "promoted", "wants", "tried")
"""The fields that every planning of a request keeps of the one before it."""
OF_PROPOSAL = ("stale", "instead", "dropped", "let_go", "came_back", "language", "mode")
"""The fields of a planning that are about the plan that it proposed."""
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
PROMOTION = (
    "This was begun as one step, and that was not enough: make a plan of several steps, each with a proof of its own. "
    "What was seen so far is under `<seen>` and can be cited."
)


def mode_row(mode: Mode, by: str, reason: str) -> ModeRow:
    """Return the row of a mode decision, with its reason on one bounded line."""
    return {"mode": mode, "by": by, "reason": " ".join(reason.split())[:REASON_CHARS]}


def mode_of(values: Mapping[str, Any]) -> str:
    """Return the mode of a run; "" before one is chosen."""
    rows = values.get("modes") or ()
    return str(rows[-1]["mode"]) if rows else ""


def goes_on(planning: Mapping[str, Any]) -> bool:
    """Return whether this planning is about a step that is at work and goes on, whatever becomes of the plan (Q74)."""
    return planning.get("promoted") in GROWS


def promotion_reasons(values: Mapping[str, Any], id: str, settings: Settings) -> list[str]:
    """Return the reasons for which this step stops so that the plan can grow: `rounds`, `write`; [] within a plan.

    A step stops for it once. If a person saw the plan, or wants none to be shown, an unlisted write is asked about
    instead.
    """
    left = remaining(settings.limits, values.get("granted"), values.get("spent"))
    chosen = [row for row in (values.get("modes") or ())[-1:] if row["by"] in ("triage", "plan")]
    alone = bool(chosen) and mode_of(values) == "step" and len((values.get("plan") or {}).get("steps", ())) == 1
    if settings.mode != "auto" or not alone or left.get("replans", 1) < 1 or goes_on(values.get("planning") or {}):
        return []
    extended = bool(((values.get("steps") or {}).get(id) or {}).get("granted"))
    unseen = (values.get("approval") or {}).get("by") == "policy" and settings.confirm in ("writes", "complex")
    return [*([] if extended else ["rounds"]), *(["write"] if unseen else [])]


def fresh_planning(number: int, **record: Any) -> PlanningRecord:
    """Return a new planning record; `number` counts the plannings of a thread.

    `transcript` is the key of its rounds, and the prefix of its questions (`plan.q1`); its observations are `p.1` ….
    """
    fresh: PlanningRecord = {
        "number": number,
        "transcript": "plan" if number == 1 else f"plan@{number}",
        "phase": "triage",
        "rounds": 0,
        "corrections": 0,
        "questions": 0,
        "open": True,
    }
    return cast(PlanningRecord, {**fresh, **record})


def planning_start(values: Mapping[str, Any], settings: Settings) -> Json:
    """Return planning's facts about the run, its allowance, and its rounds so far."""
    planning = values["planning"]
    left = remaining(settings.limits, values.get("granted"), values.get("spent"))
    done = _finished_steps(values)
    if done:  # a model writes the answer about them
        left = subtract(left, RESERVE)
    return {
        "brief": {
            "fence": values.get("fence", ""),
            "scope": values.get("scope", ""),
            "goal": values["goal"],
            "output_schema": values.get("output_schema"),
            "conversation": conversation_before(values),
            "before": values.get("before") or [],
            "background": values.get("background") or {},
            "language": values.get("language", "en"),
            "said": user_statements(values, planning["transcript"]),
            "feedback": planning.get("feedback"),
            "words": bool(planning.get("shown")),
            "failure": planning.get("failure"),
            "approved_plan": standing_plan(values),
            "edited": _has_edited_plan(values),
            "wants": planning.get("wants"),
            "mode": _mode_text(planning, settings),
        },
        "id": planning["transcript"],
        "planning": {**planning, "mode": mode_of(values)},
        "attachments": list(values.get("attachments") or ()),
        "asked": [entry for entry in values.get("journal") or () if entry["source"] == "user"],
        "known": [entry for entry in values.get("journal") or () if entry["step"] == PLANNING],
        "turn": values.get("turn", 1),
        "approval": values.get("approval"),
        "unfinished": unfinished_steps(values),
        "allowance": left,
        "account": {key: values.get(key) or {} for key in ("granted", "spent")} | {"done": done},
        "earlier": (values.get("transcripts") or {}).get(planning["transcript"], []),
    }


def _mode_text(planning: Mapping[str, Any], settings: Settings) -> str:
    if goes_on(planning):
        return GROWTH
    return PROMOTION if planning.get("promoted") else FORCED.get(settings.wanted_mode, "")


def standing_plan(values: Mapping[str, Any]) -> Json | None:
    """Return the approved plan with the outcome of its steps, for the planner; None if there is none."""
    if not (approved := (values.get("approval") or {}).get("plan")):
        return None
    records, finished = values.get("steps") or {}, values["planning"].get("finished") or {}
    steps = [
        {"id": step["id"], "status": "done", **finished[step["id"]]}
        if step["id"] in finished
        else {**step, "status": records.get(step["id"], {}).get("status", "pending")}
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
        if record.get("replaced"):
            contents[id] = record["replaced"]["content"]
    for step in (values.get("plan") or {}).get("steps", ()):
        record = records.get(step["id"], {})
        if record.get("status", "pending") not in ("pending", "done") and (record.get("rounds") or record["observed"]):
            contents[step["id"]] = step["content"]
    return contents


def _finished_steps(values: Mapping[str, Any]) -> list[Json]:
    """Return the finished steps that are kept: `{id, content, spent}`."""
    records = values.get("steps") or {}
    finished = values["planning"].get("finished") or {}
    return [
        {"id": id, "content": row["content"], "spent": records[id].get("spent") or {}} for id, row in finished.items()
    ]


def start_replanning(
    values: Mapping[str, Any], failure: str, feedback: str | None = None, *, promoted: str = "", wants: str = ""
) -> PlanningRecord:
    """Return the planning record after a failure, with the failure and the finished steps that are kept.

    `promoted` is the code of a step that needs a plan; `wants` says why, if it goes on.
    """
    records, steps = values.get("steps") or {}, (values.get("plan") or {}).get("steps", ())
    finished = {
        step["id"]: {"content": step["content"], "result": str(records[step["id"]].get("result", ""))[:RESULT_CHARS]}
        for step in steps
        if records.get(step["id"], {}).get("status") == "done"
    }
    failed = [step["id"] for step in steps if has_failed(records.get(step["id"], {}))]
    number = values["planning"]["number"] + 1
    phase = "draft" if failure or wants else "triage"
    more: Json = {"promoted": promoted} if promoted else {}
    more |= {"wants": wants} if wants else {}
    if failure and values.get("plan"):
        more["tried"] = [*(values["planning"].get("tried") or ()), hash_work(values["plan"], finished)]
    return fresh_planning(
        number, phase=phase, failure=failure, feedback=feedback, finished=finished, failed=failed, **more
    )
