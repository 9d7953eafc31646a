"""What planning starts from: its record in state, and what it is given of the run. Pure."""

from collections.abc import Mapping
from typing import Any

from donewhen.state.graph_state import PLANNING, Json
from donewhen.state.ledger import less, remaining
from donewhen.state.plan.modes import FORCED, PROMOTION, mode_of
from donewhen.state.plan.progress import RESERVE, failed_itself
from donewhen.state.plan.revise import promised, work_of
from donewhen.state.proof.journal import said_by_user
from donewhen.state.settings import Settings

RESULT_CHARS = 2000


def fresh_planning(number: int, **record: Any) -> Json:
    """The planner's record at the start of a planning; `number` counts the plannings of a thread.

    `transcript` is the key of its rounds, and what its questions (`plan.q1`) and observations (`plan.1`) are called.
    """
    return {
        "number": number,
        "transcript": "plan" if number == 1 else f"plan@{number}",
        "phase": "triage",
        "rounds": 0,
        "corrections": 0,
        "questions": 0,
        "open": True,
        **record,
    }


def planning_given(values: Mapping[str, Any], settings: Settings) -> Json:
    """What planning may know, what it may spend, and its rounds so far."""
    planning = values["planning"]
    left = remaining(settings.limits, values.get("granted"), values.get("spent"))
    done = _done(values)
    if done:  # a model will write the answer about them
        left = less(left, RESERVE)
    return {
        "brief": {
            "fence": values.get("fence", ""),
            "goal": values["goal"],
            "output_schema": values.get("output_schema"),
            "conversation": values.get("conversation") or "",
            "background": values.get("background") or {},
            "language": values.get("language", "en"),
            "said": said_by_user(values, planning["transcript"]),
            "feedback": planning.get("feedback"),
            "failure": planning.get("failure"),
            "approved_plan": standing_plan(values),
            "edited": _was_edited(values),
            "mode": PROMOTION if planning.get("promoted") else FORCED.get(settings.mode, ""),
        },
        "id": planning["transcript"],
        "planning": {**planning, "mode": mode_of(values)},
        "attachments": list(values.get("attachments") or ()),
        "asked": [entry for entry in values.get("journal") or () if entry["source"] == "user"],
        "known": [entry for entry in values.get("journal") or () if entry["step"] == PLANNING],
        "turn": values.get("turn", 1),
        "approval": values.get("approval"),
        "begun": begun(values),
        "allowance": left,
        "account": {key: values.get(key) or {} for key in ("granted", "spent")} | {"done": done},
        "earlier": (values.get("transcripts") or {}).get(planning["transcript"], []),
    }


def standing_plan(values: Mapping[str, Any]) -> Json | None:
    """Return the approved plan and what became of its steps, as a planner sees it; None while there is none."""
    if not (approved := (values.get("approval") or {}).get("plan")):
        return None
    records, finished = values.get("steps") or {}, values["planning"].get("finished") or {}
    steps = [
        {"id": step["id"], "status": "done", **finished[step["id"]]}
        if step["id"] in finished
        else {**step, "status": records.get(step["id"], {}).get("status", "pending")}
        for step in approved["steps"]
    ]
    return {"done_when": promised(approved), "steps": steps}


def _was_edited(values: Mapping[str, Any]) -> bool:
    """Whether a person has edited a plan of this request."""
    return any(row["kind"] == "plan" and row["decision"] == "edit" for row in values.get("approvals") or ())


def begun(values: Mapping[str, Any]) -> dict[str, str]:
    """Steps of this request that were begun and are not finished, id → content, of whichever plan."""
    records, contents = values.get("steps") or {}, {}
    for id, record in records.items():
        if record.get("replaced"):
            contents[id] = record["replaced"]["content"]
    for step in (values.get("plan") or {}).get("steps", ()):
        record = records.get(step["id"], {})
        if record.get("status", "pending") not in ("pending", "done") and (record.get("rounds") or record["observed"]):
            contents[step["id"]] = step["content"]
    return contents


def _done(values: Mapping[str, Any]) -> list[Json]:
    """What is finished and stays: `{id, content, spent}`."""
    records = values.get("steps") or {}
    finished = values["planning"].get("finished") or {}
    return [
        {"id": id, "content": row["content"], "spent": records[id].get("spent") or {}} for id, row in finished.items()
    ]


def replanning(values: Mapping[str, Any], failure: str, feedback: str | None = None, promoted: str = "") -> Json:
    """The record of a planning after a failure: what failed, and what is finished and stays.

    `promoted`: the code with which a step left that was too little for the request.
    """
    records = values.get("steps") or {}
    finished = {
        step["id"]: {"content": step["content"], "result": str(records[step["id"]].get("result", ""))[:RESULT_CHARS]}
        for step in (values.get("plan") or {}).get("steps", ())
        if records.get(step["id"], {}).get("status") == "done"
    }
    steps = (values.get("plan") or {}).get("steps", ())
    failed = [step["id"] for step in steps if failed_itself(records.get(step["id"], {}))]
    number = values["planning"]["number"] + 1
    phase = "draft" if failure else "triage"
    more: Json = {"promoted": promoted} if promoted else {}
    if failure and values.get("plan"):
        more["tried"] = [*(values["planning"].get("tried") or ()), work_of(values["plan"], finished)]
    return fresh_planning(
        number, phase=phase, failure=failure, feedback=feedback, finished=finished, failed=failed, **more
    )
