"""What must hold after a crash: effects once, nothing lost, nobody asked twice, and the same end as without it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig

from donewhen.agent.agent import Agent
from donewhen.agent.testing.effects import EffectLedger, Row
from donewhen.state.proof.journal import canonical

Json = dict[str, Any]
SETTLED = ("A person confirmed that this call took effect", "The call took effect before an interruption")
"""How observations begin whose effect was found out after a crash, and whose output was lost with it."""
COUNTED = ("rounds", "model_calls", "tool_calls", "input_tokens", "output_tokens", "questions", "replans")


async def ending(agent: Agent, thread_id: str) -> Json:
    """All of a finished thread that a crash must not change, as JSON: for `resume_equals_uninterrupted`."""
    run = await agent.get(thread_id)
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    values = (await agent.graph.aget_state(config)).values
    kept = ("status", "result", "reason", "verdicts")
    seen = ("id", "step", "round", "source", "tool", "arguments", "ok", "text", "effect")
    return {
        "status": run.status,
        "answer": run.answer,
        "code": run.outcome["code"] if run.outcome else None,
        "steps": {id: {key: record.get(key) for key in kept} for id, record in run.steps.items()},
        "journal": {entry["id"]: {key: entry.get(key) for key in seen} for entry in values.get("journal") or ()},
        "approvals": [dict(row) for row in (run.receipt["approvals"] if run.receipt else ())],
        "spent": {key: run.spent.get(key, 0) for key in COUNTED},
    }


def resume_equals_uninterrupted(resumed: Json, uninterrupted: Json) -> None:
    """Fails unless two endings agree in outcome, steps, observations, approvals and spend; times do not matter.

    Questions about effects that a crash left unknown, and the words that stand for a lost output, are no difference.
    """
    found = differences(resumed, uninterrupted)
    assert not found, "the resumed run ended unlike the uninterrupted one:\n" + "\n".join(found)


def differences(resumed: Json, uninterrupted: Json) -> list[str]:
    """A line for everything in which two endings differ."""
    lines = [
        f"{key}: {resumed[key]!r} instead of {uninterrupted[key]!r}"
        for key in ("status", "code", "answer")
        if resumed[key] != uninterrupted[key]
    ]
    lines += _unlike("step", resumed["steps"], uninterrupted["steps"])
    lines += _unlike(
        "observation", _without_settled(resumed["journal"], uninterrupted["journal"]), uninterrupted["journal"]
    )
    mine, theirs = _decisions(resumed), _decisions(uninterrupted)
    if mine != theirs:
        lines.append(f"approvals: {mine} instead of {theirs}")
    return lines + _unlike("spent", *_comparable(resumed, uninterrupted))


def _comparable(resumed: Json, uninterrupted: Json) -> tuple[Json, Json]:
    """What was spent, without what a crash may rightly change: questions about effects, and tokens for other words."""
    left_out = set()
    if any(row["kind"] == "effect" for row in resumed["approvals"]):
        left_out |= {"questions"}
    if any(settled(entry) for entry in resumed["journal"].values()):
        left_out |= {"input_tokens", "output_tokens"}
    mine, theirs = (
        {key: value for key, value in end["spent"].items() if key not in left_out} for end in (resumed, uninterrupted)
    )
    return mine, theirs


def _unlike(what: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [
        f"{what} {key}: {mine.get(key)!r} instead of {theirs.get(key)!r}"
        for key in dict.fromkeys((*mine, *theirs))
        if mine.get(key) != theirs.get(key)
    ]


def _without_settled(mine: Mapping[str, Json], theirs: Mapping[str, Json]) -> Json:
    return {
        id: {**entry, "text": theirs[id]["text"]} if id in theirs and settled(entry) else entry
        for id, entry in mine.items()
    }


def settled(entry: Mapping[str, Any]) -> bool:
    """Whether a person or a probe, and not the tool, said what became of the call."""
    return str(entry["text"]).startswith(SETTLED)


def _decisions(end: Json) -> Counter[str]:
    return Counter(
        canonical([row["kind"], row["id"], row["decision"]]) for row in end["approvals"] if row["kind"] != "effect"
    )


def doubled(ledger: EffectLedger | Iterable[Row], like: EffectLedger | Iterable[Row] | None = None) -> list[str]:
    """Calls that took effect more often than in `like` (default: than once). Idempotent ones may repeat."""
    wanted, found = _counts(like, ("write",)), _counts(ledger, ("write",))
    return [f"{call}: {count} times" for call, count in found.items() if count > (1 if like is None else wanted[call])]


def lost(ledger: EffectLedger | Iterable[Row], like: EffectLedger | Iterable[Row]) -> list[str]:
    """Calls that took effect in `like` and not, or more seldom, here."""
    every = ("write", "idempotent")
    found = _counts(ledger, every)
    writes = _counts(like, ("write",))
    return [call for call in _counts(like, every) if found[call] < max(1, writes[call])]


def effects_at_most_once(
    ledger: EffectLedger | Iterable[Row], like: EffectLedger | Iterable[Row] | None = None
) -> None:
    """Fails if a write took effect more often than in `like`, the ledger of a run undisturbed (default: than once)."""
    assert not (found := doubled(ledger, like)), f"effects happened more than once: {'; '.join(found)}"


def nothing_lost(ledger: EffectLedger | Iterable[Row], like: EffectLedger | Iterable[Row]) -> None:
    """Fails if an effect of `like`, the ledger of an uninterrupted run, did not happen here."""
    assert not (found := lost(ledger, like)), f"effects were lost: {'; '.join(found)}"


def _counts(ledger: EffectLedger | Iterable[Row] | None, effects: Sequence[str]) -> Counter[str]:
    rows = ledger.rows if isinstance(ledger, EffectLedger) else list(ledger or ())
    return Counter(f"{row['tool']}{canonical(row['arguments'])}" for row in rows if row["effect"] in effects)


def asked_again(diary: Sequence[Mapping[str, Any]]) -> list[str]:
    """Questions that came back under a new id, or although their answer had reached the storage.

    An answer is lost with its process if nothing at all was written after it was given; then the same pause, under the
    same id, is still open, and that is no second question. Neither is one about another plan, or another attempt at
    the same call.
    """
    given: dict[str, str] = {}
    again = []
    for place, row in enumerate(diary):
        if "asked" not in row:
            continue
        asked = row["asked"]
        turn = asked["id"].rpartition(":")[0]
        name = canonical([turn, asked["step"], asked["question"]]) if asked["kind"] == "question" else asked["id"]
        if name in given and given[name] != asked["id"]:
            again.append(f"{asked['id']} asks again what {given[name]} asked")
        elif asked["id"] in given.values() and not _lost(diary, place, asked["id"]):
            again.append(f"{asked['id']} was asked again")
        given[name] = asked["id"]
    return again


def _lost(diary: Sequence[Mapping[str, Any]], place: int, id: str) -> bool:
    """Whether the last answer to `id` before `place` died with its process before anything of it was written."""
    last = max(n for n in range(place) if diary[n].get("asked", {}).get("id") == id)
    after = diary[last + 1] if last + 1 < place else {}
    return "crashed" in after and after["written"] in (diary[last]["written"], None)
