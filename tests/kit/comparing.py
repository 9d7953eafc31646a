"""Carry a run to its end after crashes, and compare: effects once, nothing lost, no repeated question, the same end."""

import asyncio
import fcntl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from langchain_core.runnables import RunnableConfig

from donewhen.agent.agent import Agent
from donewhen.agent.run import Run
from donewhen.agent.testing.crash import Crash, midway, note, notes
from donewhen.state.channels import Json
from donewhen.state.errors import ThreadBusy, UnknownThread
from donewhen.state.proof.journal import canonical_json

LedgerRow = dict[str, Any]


class EffectLedger:
    """Call `do` in a test's tool in place of the real effect; every row is on disk before it returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def rows(self) -> list[LedgerRow]:
        """Return the effects, oldest first: `{tool, arguments, effect, key, result}`."""
        return notes(self.path)

    def __iter__(self) -> Iterator[LedgerRow]:
        return iter(self.rows)

    def do(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        result: Any = "done",
        *,
        effect: str = "write",
        key: str | None = None,
    ) -> Any:
        """Record an effect and return its result; a known `key` returns the old result instead.

        After the effect it calls `midway`, so that a tool can be killed with its effect done and its result lost. A
        callable `result` gets the number of the row, from 1.
        """
        with self.path.with_name(self.path.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            rows = self.rows
            if key is not None and (before := next((row for row in rows if row["key"] == key), None)):
                return before["result"]
            outcome = result(len(rows) + 1) if callable(result) else result
            note(
                self.path, {"tool": tool, "arguments": dict(arguments), "effect": effect, "key": key, "result": outcome}
            )
        midway()
        return outcome

    def happened(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether exactly this call ever took effect."""
        return self.count(tool, arguments) > 0

    def count(self, tool: str, arguments: Mapping[str, Any]) -> int:
        """Return how often exactly this call took effect."""
        return sum(
            row["tool"] == tool and canonical_json(row["arguments"]) == canonical_json(arguments) for row in self.rows
        )


Answers = Callable[[Mapping[str, Any]], Any]
"""Returns the answer to a pause (`{id, kind, question, options, step, tool, arguments, …}`)."""


async def drive(
    agent: Agent,
    goal: str,
    thread_id: str,
    answers: Answers,
    *,
    diary: Path | None = None,
    crash: Crash | None = None,
    patience: float = 10.0,
) -> Run:
    """Start or continue the thread, and answer its questions until it has ended.

    Every question is written to `diary` before it is answered; `asked_again` reads it. A thread that is busy, because
    the death of its worker was not noticed yet, is retried for `patience` seconds.
    """
    deadline = monotonic() + patience
    run: Run | None = None
    while True:
        try:
            run = run or await _find_run(agent, thread_id)
            if run is None:
                run = await agent.start(goal, thread_id=thread_id)
            elif run.status != "waiting":
                run = await agent.resume(thread_id)
            else:
                pause = run.pending[0]
                if diary is not None:
                    asked = {key: pause.get(key) for key in ("id", "kind", "step", "question")}
                    note(diary, {"asked": asked, "written": crash.written if crash else 0})
                run = await agent.resume(thread_id, {pause["id"]: answers(pause)})
        except ThreadBusy:
            if monotonic() > deadline:
                raise
            run = None
            await asyncio.sleep(0.01)
            continue
        if run.status not in ("waiting", "running"):
            return run
        if run.problem:
            raise AssertionError(f"the answer to {run.pending[0]['id']} was not understood: {run.problem}")


async def _find_run(agent: Agent, thread_id: str) -> Run | None:
    try:
        return await agent.get(thread_id)
    except UnknownThread:
        return None


SETTLED = ("A person confirmed that this call took effect", "The call took effect before an interruption")
"""How observations begin whose effect was known after a crash, but whose output was lost."""
COUNTED = ("rounds", "model_calls", "tool_calls", "input_tokens", "output_tokens", "questions", "replans")


async def ending(agent: Agent, thread_id: str) -> Json:
    """Return everything of a finished thread that a crash must not change, for `resume_equals_uninterrupted`."""
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
    """Fail unless two endings agree in outcome, steps, observations, approvals and spending; times are ignored.

    Questions about unknown effects after a crash, and the texts that stand for lost outputs, are not compared.
    """
    found = differences(resumed, uninterrupted)
    assert not found, "the resumed run ended unlike the uninterrupted one:\n" + "\n".join(found)


def differences(resumed: Json, uninterrupted: Json) -> list[str]:
    """Return a line for each difference between two endings."""
    forgiven = _changeable_amounts(resumed)
    mine, theirs = _flatten(resumed, uninterrupted, forgiven), _flatten(uninterrupted, uninterrupted, forgiven)
    return [
        f"{key}: {mine.get(key)!r} instead of {theirs.get(key)!r}"
        for key in dict.fromkeys((*mine, *theirs))
        if mine.get(key) != theirs.get(key)
    ]


def _changeable_amounts(end: Json) -> set[str]:
    """Return the amounts that a crash may change: questions about effects, and tokens for other words."""
    asked = any(row["kind"] == "effect" for row in end["approvals"])
    settled = any(_was_settled_by_person(entry) for entry in end["journal"].values())
    return ({"questions"} if asked else set()) | ({"input_tokens", "output_tokens"} if settled else set())


def _flatten(end: Json, like: Json, forgiven: set[str]) -> Json:
    """Return an ending as one flat dict; a text that stands for a lost output is replaced by that output."""
    decided = [[row["kind"], row["id"], row["decision"]] for row in end["approvals"] if row["kind"] != "effect"]
    seen = {
        id: {**entry, "text": like["journal"][id]["text"]}
        if id in like["journal"] and _was_settled_by_person(entry)
        else entry
        for id, entry in end["journal"].items()
    }
    named = {"step": end["steps"], "observation": seen, "spent": end["spent"]}
    flat = {f"{what} {key}": value for what, found in named.items() for key, value in found.items()}
    known = {key: end[key] for key in ("status", "code", "answer")} | {"approvals": sorted(decided, key=canonical_json)}
    return known | {key: value for key, value in flat.items() if key.removeprefix("spent ") not in forgiven}


def _was_settled_by_person(entry: Mapping[str, Any]) -> bool:
    """Return whether a person or a probe, and not the tool, told that the call took effect."""
    return str(entry["text"]).startswith(SETTLED)


def doubled_writes(ledger: Iterable[LedgerRow], like: Iterable[LedgerRow] | None = None) -> list[str]:
    """Return the calls that took effect more often than in `like` (default: than once). Idempotent ones may repeat."""
    wanted, found = _counts(like, ("write",)), _counts(ledger, ("write",))
    return [f"{call}: {count} times" for call, count in found.items() if count > (1 if like is None else wanted[call])]


def lost_effects(ledger: Iterable[LedgerRow], like: Iterable[LedgerRow]) -> list[str]:
    """Return the calls that took effect less often than in `like`."""
    every = ("write", "idempotent")
    found = _counts(ledger, every)
    writes = _counts(like, ("write",))
    return [call for call in _counts(like, every) if found[call] < max(1, writes[call])]


def effects_at_most_once(ledger: Iterable[LedgerRow], like: Iterable[LedgerRow] | None = None) -> None:
    """Fail if a write took effect more often than in `like`, the ledger of an undisturbed run (default: than once)."""
    assert not (found := doubled_writes(ledger, like)), f"effects happened more than once: {'; '.join(found)}"


def nothing_lost(ledger: Iterable[LedgerRow], like: Iterable[LedgerRow]) -> None:
    """Fail if an effect of `like`, the ledger of an undisturbed run, is missing."""
    assert not (found := lost_effects(ledger, like)), f"effects were lost: {'; '.join(found)}"


def _counts(ledger: Iterable[LedgerRow] | None, effects: Sequence[str]) -> Counter[str]:
    return Counter(
        f"{row['tool']}{canonical_json(row['arguments'])}" for row in ledger or () if row["effect"] in effects
    )


def asked_again(diary: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the questions that were asked again, under a new id or after their answer had reached the storage.

    If a process dies before it writes anything after an answer, the answer is lost and the same pause, under the same
    id, is still open: that does not count. Nor does a question about another plan, or another attempt at the same call.
    """
    given: dict[str, str] = {}
    again = []
    for place, row in enumerate(diary):
        if "asked" not in row:
            continue
        asked = row["asked"]
        turn = asked["id"].rpartition(":")[0]
        name = canonical_json([turn, asked["step"], asked["question"]]) if asked["kind"] == "question" else asked["id"]
        if name in given and given[name] != asked["id"]:
            again.append(f"{asked['id']} asks again what {given[name]} asked")
        elif asked["id"] in given.values() and not _was_answer_lost(diary, place, asked["id"]):
            again.append(f"{asked['id']} was asked again")
        given[name] = asked["id"]
    return again


def _was_answer_lost(diary: Sequence[Mapping[str, Any]], place: int, id: str) -> bool:
    """Return whether the process died after the last answer to `id` before `place`, without having written anything."""
    last = max(n for n in range(place) if diary[n].get("asked", {}).get("id") == id)
    after = diary[last + 1] if last + 1 < place else {}
    return "crashed" in after and after["written"] in (diary[last]["written"], None)
