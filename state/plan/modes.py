"""How much a request takes: an answer, one step, or a plan. Who chose it, why, and when one step becomes a plan."""

from collections.abc import Mapping
from typing import Any

from donewhen.state.ledger import remaining
from donewhen.state.records import Mode, ModeRow
from donewhen.state.settings import Settings

REASON_CHARS = 300
PROMOTED = "promoted:"
"""How the codes begin with which a step leaves because it takes a plan: `promoted:rounds`, `promoted:write`."""
FORCED = {
    "answer": "The user wants an answer and no plan: look as far as it takes, then `answer`.",
    "step": "The user wants this done in one step: submit a plan of exactly one step.",
    "plan": "The user wants a plan, however small the request is.",
}
"""What the planner is told where `Settings.mode` leaves it no choice."""
PROMOTION = (
    "This was begun as one step, and that was not enough: make a plan of several steps, each with a proof of its own. "
    "What was seen so far is under `<seen>` and can be cited."
)


def mode_row(mode: Mode, by: str, reason: str) -> ModeRow:
    """A choice, its reason on one bounded line."""
    return {"mode": mode, "by": by, "reason": " ".join(reason.split())[:REASON_CHARS]}


def mode_of(values: Mapping[str, Any]) -> str:
    """The mode a run is in; "" before one is chosen."""
    rows = values.get("modes") or ()
    return str(rows[-1]["mode"]) if rows else ""


def promotable(values: Mapping[str, Any], id: str, settings: Settings) -> list[str]:
    """For what this step leaves so that the run gets a plan: `rounds`, `write`. [] for one that is part of a plan.

    Where a person saw the plan, or wants nobody to see one, a write that it does not list is asked about as it is.
    """
    left = remaining(settings.limits, values.get("granted"), values.get("spent"))
    chosen = [row for row in (values.get("modes") or ())[-1:] if row["by"] in ("triage", "plan")]
    alone = bool(chosen) and mode_of(values) == "step" and len((values.get("plan") or {}).get("steps", ())) == 1
    if settings.mode != "auto" or not alone or left.get("replans", 1) < 1:
        return []
    extended = bool(((values.get("steps") or {}).get(id) or {}).get("granted"))
    unseen = (values.get("approval") or {}).get("by") == "policy" and settings.confirm in ("writes", "complex")
    return [*([] if extended else ["rounds"]), *(["write"] if unseen else [])]
