"""What planning and a step work on: read from the run whenever they start or go on, so that it is stored only once.

What they store themselves, their rounds and their record, grows with their own work and not with the run's.
"""

from collections.abc import Mapping
from functools import cache, partial

from donewhen.graph.context import Deps
from donewhen.graph.executors.leg import conversation_of
from donewhen.graph.models.briefs import step_brief
from donewhen.graph.models.transcript import Length, index_of
from donewhen.state.consent import known_in
from donewhen.state.graph_state import PLANNING, Json
from donewhen.state.plan.modes import promotable
from donewhen.state.plan.order import ancestors
from donewhen.state.plan.plan import step_of
from donewhen.state.plan.planning import planning_given
from donewhen.state.plan.steps import transcript_key
from donewhen.state.proof.journal import Made, visible_to
from donewhen.state.proof.outcome import FINAL
from donewhen.state.settings import Settings


def for_planning(run: Json, sent: Json, settings: Settings, deps: Deps) -> Json:
    """What planning starts from. A later planning learns what was seen before it, and what the user said."""
    given = planning_given(run, settings)
    if run["planning"]["number"] > 1:
        given["brief"]["seen"] = index_of(
            run.get("journal") or (), {PLANNING, *(run.get("steps") or {})}, run.get("fence", "")
        )
    given["run"] = run
    return given


def for_step(run: Json, sent: Json, settings: Settings, deps: Deps) -> Json:
    """All that `execute` gets to work on a step: nothing of what other steps did but results and citable observations.

    Those are the observations of planning, of the steps it builds on, and of steps that a later plan replaced.
    `sent` says which step. Its record has the day it was sent off: a brief never changes while a step is at work.
    """
    id = sent.get("id") or sent["step"]["id"]  # the latter from version 1
    plan, records, journal = run["plan"] or {}, run.get("steps") or {}, run.get("journal") or []
    record, step = records[id], step_of(plan, id)
    gone = records.keys() - {each["id"] for each in plan["steps"]}
    executor = deps.executors.active.get(step.get("executor") or "")
    return {
        "id": id,
        "fence": run.get("fence", ""),
        "step": step,
        "alone": executor is not None and executor.works_alone,
        "conversation": conversation_of(plan, id, run.get("turn", 1)),
        "goal": run["goal"],
        "turn": run.get("turn", 1),
        "language": run.get("language", "en"),
        "granted_tools": ((run.get("approval") or {}).get("tools") or {}).get(id, []),
        "brief": step_brief(run, step, record.get("today") or settings.today),
        "attachments": list(run.get("attachments") or ()),
        "promotable": promotable(run, id, settings),
        "last": all(records.get(each["id"], {}).get("status") in FINAL for each in plan["steps"] if each["id"] != id),
        "known": visible_to(journal, {id, PLANNING, *ancestors(plan, id), *gone}),
        "before": run.get("before") or [],
        "heard": run.get("heard") or "",
        "asked": [entry for entry in journal if entry["source"] == "user"],
        "rejected": {key: why for each in records.values() for key, why in (each.get("rejected") or {}).items()},
        "claimed": [*(run.get("claims") or ()), *_of_others_at_work(records, id)],
        "earlier": (run.get("transcripts") or {}).get(transcript_key(id, record), []),
        "length": Length(),
        "made": Made(),
        "known_targets": cache(partial(known_in, run)),
        "begun": set(),
        "allowance": record.get("allowance") or {},
        "record": record,
        "run": run,
    }


def _of_others_at_work(records: Mapping[str, Json], id: str) -> list[str]:
    """Claims of the writes of other steps that are at work or wait: their attempts may still end well."""
    at_work = ("running", "waiting", "ready")
    others = (record for other, record in records.items() if other != id and record.get("status") in at_work)
    return [claim for record in others for claim in record.get("wrote") or ()]
