"""The inputs of a step, read from the run whenever the step starts or continues, so that they are stored once.
// The step itself stores only its rounds and its record, which grow with its own work and not with the run's.
"""

from collections.abc import Mapping
from functools import cache, partial

from donewhen.graph.context import Deps
from donewhen.graph.executors.handoff import conversation_of
from donewhen.graph.llm.briefs import step_brief
from donewhen.graph.llm.history import TranscriptLength
from donewhen.state.consent import known_targets
from donewhen.state.plan.order import ancestors
from donewhen.state.plan.plan import find_step
from donewhen.state.plan.planning import promotion_reasons
from donewhen.state.plan.steps import transcript_key
from donewhen.state.proof.journal import CallHistory, citable_entries
from donewhen.state.proof.outcome import FINAL
from donewhen.state.run import PLANNING, Json
from donewhen.state.settings import Settings


def step_input(run: Json, sent: Json, settings: Settings, deps: Deps) -> Json:
    """Return the inputs of `execute` for one step: of other steps only results and citable observations.
    // Citable are the observations of planning, of the step's dependencies, and of steps that a later plan replaced.
    `sent` names the step. The date comes from its record, because a brief never changes while a step works.
    """
    id = sent["id"]
    plan, records, journal = run["plan"] or {}, run.get("steps") or {}, run.get("journal") or []
    record, step = records[id], find_step(plan, id)
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
        "promotable": promotion_reasons(run, id, settings),
        "last": all(records.get(each["id"], {}).get("status") in FINAL for each in plan["steps"] if each["id"] != id),
        "known": citable_entries(journal, {id, PLANNING, *ancestors(plan, id), *gone}),
        "before": run.get("before") or [],
        "heard": run.get("heard") or "",
        "asked": [entry for entry in journal if entry["source"] == "user"],
        "rejected": {key: why for each in records.values() for key, why in (each.get("rejected") or {}).items()},
        "claimed": [*(run.get("claims") or ()), *_writes_of_others(records, id)],
        "earlier": (run.get("transcripts") or {}).get(transcript_key(id, record), []),
        "length": TranscriptLength(),
        "call_history": CallHistory(),
        "known_targets": cache(partial(known_targets, run)),
        "begun": set(),
        "allowance": record.get("allowance") or {},
        "record": record,
        "run": run,
    }


def _writes_of_others(records: Mapping[str, Json], id: str) -> list[str]:
    """Return the writes of other steps that are at work or wait: their attempts may still end well."""
    at_work = ("running", "waiting", "ready")
    others = (record for other, record in records.items() if other != id and record.get("status") in at_work)
    return [claim for record in others for claim in record.get("wrote") or ()]
