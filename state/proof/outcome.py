"""The endings of a run, and the receipt that explains them. All terminal reasons are listed here."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from donewhen.state.criteria import criteria_of
from donewhen.state.language.texts import catalogue, say
from donewhen.state.ledger import meter
from donewhen.state.proof.audit import DOUBTFUL
from donewhen.state.proof.evidence import enough
from donewhen.state.proof.journal import call_key, canonical_json, is_tool_call, repeated_calls
from donewhen.state.proof.receipt import (
    CriterionRow,
    EffectRow,
    HeardRow,
    QuestionRow,
    Receipt,
    ReplacedRow,
    Status,
    StepRow,
)
from donewhen.state.records import StepRecord
from donewhen.state.secrets import redact_json
from donewhen.state.settings import Settings

CODES: dict[str, Status | None] = {
    "answered": "completed",  # except an approved plan that was not carried out
    "scheduled": "completed",  # a recurring request; nothing ran
    "worked": None,  # the steps decide: completed, partial or failed
    "finished_early": "partial",
    "goal_not_met": "partial",  # audit: something requested is missing
    "not_shown": "partial",  # audit: a statement was not shown
    "unaudited": "partial",  # a due audit was not possible
    "declined": "failed",
    "bad_goal": "failed",
    "no_plan": "failed",
    "model_error": "failed",
    "cancelled": "cancelled",
    "unanswered": "cancelled",
    "not_asked": None,  # hooks refuse a question of the run's own
    "delivered_early": None,
    "out_of_budget": "exhausted",
    "stopped": "exhausted",
}
"""Terminal code → status; None means that the steps' outcomes decide."""

ASSUMPTION_CHARS = 300
"""The most characters of an assumption in the answer; the receipt has all of it."""
UNDONE_NAMED = 20
"""The most files whose undone changes are named in the answer."""
FINAL = ("done", "failed", "blocked", "skipped", "exhausted")


def is_step_proven(step: Mapping[str, Any], record: StepRecord, level: str) -> bool:
    """Return whether a step is done and every criterion satisfies the level."""
    verdicts = {verdict["criterion"]: verdict["verdict"] for verdict in record.get("verdicts") or ()}
    return record.get("status") == "done" and all(
        enough(verdicts.get(number, "failed"), criterion, level)
        for number, criterion in enumerate(criteria_of(step), 1)
    )


def status_of(code: str, plan: Mapping[str, Any] | None, steps: Mapping[str, Any], settings: Settings) -> Status:
    """Return the status of a run; never better than its steps, and never worse than what is proven."""
    rows = [(step, steps.get(step["id"], {})) for step in (plan or {}).get("steps", ())]
    good = [is_step_proven(step, record, settings.verification) for step, record in rows]
    if (fixed := CODES[code]) not in (None, "failed"):
        return "partial" if fixed == "completed" and not all(good) else fixed
    if rows and all(good) and code == "worked":
        # What nobody but a policy dropped, with nothing in its place, was part of the work.
        dropped = any(row["by"] == "policy" and not row["instead"] for row in _replaced_rows(plan or {}, steps))
        return "partial" if dropped else "completed"
    if any(record.get("status") == "exhausted" for _, record in rows):
        return "exhausted"
    return "partial" if any(record.get("status") == "done" for _, record in rows) else "failed"


def receipt(values: Mapping[str, Any], settings: Settings, status: Status, code: str) -> Receipt:
    """Return the receipt as JSON: what was planned, executed, claimed and verified."""
    plan, records = values.get("plan") or {}, values.get("steps") or {}
    journal = values.get("journal") or []
    effects = [e for e in journal if e["source"] == "tool" and e.get("effect") in ("write", "idempotent")]
    return {
        "goal": values.get("goal", ""),
        "status": status,
        "code": code,
        "plan": {"title": plan.get("title"), "revision": plan.get("revision")} if plan else None,
        "schedule": schedule_of(values),
        "verification": settings.verification,
        "criteria": criteria_rows(plan.get("done_when") or (), values.get("verdicts") or ()),
        "steps": [_step_row(step, records.get(step["id"], {}), journal) for step in plan.get("steps", ())],
        "replaced": _replaced_rows(plan, records),
        "approvals": list(values.get("approvals") or ()),
        "questions": [_question_row(e, plan, records) for e in journal if e["source"] == "user" and not e.get("heard")],
        "heard": [_heard_row(e) for e in journal if e.get("heard")],
        "modes": list(values.get("modes") or ()),
        "effects": [*_effects(effects), *map(_unknown_row, values.get("unknown") or ())],
        "output": values.get("output_row"),
        "audit": values.get("audit"),
        "looked": any(is_tool_call(e) and e["effect"] == "read" for e in journal),
        "changed": any(e["ok"] or e.get("unknown") for e in effects) or bool(values.get("unknown")),
        "background": [*(values.get("background") or ())],
        "spent": dict(values.get("spent") or {}),
        "meter": meter(values.get("spent"), settings.limits, values.get("granted")),
    }


def _effects(entries: Sequence[Mapping[str, Any]]) -> list[EffectRow]:
    """Return the rows of calls with effects. An unknown outcome is resolved if an equal call succeeded later."""
    rows: list[EffectRow] = []
    later: set[str] = set()
    for entry in reversed(entries):
        row: EffectRow = {
            "id": entry["id"],
            "tool": entry["tool"],
            "arguments": redact_json(entry["arguments"]),
            "ok": entry["ok"],
            "effect": entry["effect"],
        }
        call = call_key(entry["tool"], entry["arguments"])
        rows.append({**row, "unknown": True} if entry.get("unknown") and call not in later else row)
        if entry["ok"]:
            later.add(call)
    return rows[::-1]


def _unknown_row(call: Mapping[str, Any]) -> EffectRow:
    arguments = redact_json(call["arguments"])
    row: EffectRow = {
        "id": call["step"],
        "tool": call["tool"],
        "arguments": arguments,
        "ok": False,
        "effect": call["kind"],
    }
    return {**row, "unknown": True}


def _replaced_rows(plan: Mapping[str, Any], records: Mapping[str, Any]) -> list[ReplacedRow]:
    """Return the steps of earlier plans of this request that were neither done nor kept."""
    ids = {step["id"] for step in plan.get("steps", ())}
    return [
        {
            "id": id,
            "content": record["replaced"]["content"],
            "status": record.get("status", "skipped"),
            "reason": record.get("reason", ""),
            "by": record["replaced"]["by"],
            "instead": record["replaced"]["instead"],
        }
        for id, record in records.items()
        if id not in ids and record.get("replaced")
    ]


def schedule_of(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schedule, if a person saw and approved one."""
    approved = (values.get("approval") or {}).get("plan") or {}
    return dict(approved["schedule"]) if approved.get("schedule") else None


def _question_row(entry: Mapping[str, Any], plan: Mapping[str, Any], records: Mapping[str, Any]) -> QuestionRow:
    asked = entry["arguments"]
    assumed = asked.get("by") == "policy" and not entry["ok"]
    said = plan.get("speak") if entry["step"] in ("p", "plan") else records.get(entry["step"], {}).get("result")
    return {
        "id": entry["id"],
        "question": asked.get("question"),
        "answer": entry["text"],
        "by": asked.get("by", "user"),
        "assumed": assumed,
        "assumption": str(said or "") if assumed else "",
    }


def _heard_row(entry: Mapping[str, Any]) -> HeardRow:
    return {"id": entry["id"], "text": entry["text"], "at": entry["at"], "step": entry["heard"].get("step")}


def criteria_rows(criteria: Sequence[Mapping[str, Any]], verdicts: Sequence[Mapping[str, Any]]) -> list[CriterionRow]:
    """Return the criteria with their verdicts; unverified if there is none."""
    found = {verdict["criterion"]: verdict for verdict in verdicts}
    return [
        {
            "criterion": number,
            "text": criterion["text"],
            "check": criterion.get("check"),
            "claimed": found.get(number, {}).get("claimed"),
            "verdict": found.get(number, {}).get("verdict", "unverified"),
            "evidence": found.get(number, {}).get("evidence", []),
            "note": found.get(number, {}).get("note", ""),
        }
        for number, criterion in enumerate(criteria, 1)
    ]


def is_goal_reached(goal: Sequence[Mapping[str, Any]], verdicts: Sequence[Mapping[str, Any]], level: str) -> bool:
    """Return whether all of the goal's own criteria satisfy the level (D06)."""
    rows = zip(goal, criteria_rows(goal, verdicts), strict=True)
    return all(enough(row["verdict"], criterion, level) for criterion, row in rows)


def _step_row(step: Mapping[str, Any], record: StepRecord, journal: Sequence[Mapping[str, Any]]) -> StepRow:
    said = [row for e in journal if e["step"] == step["id"] for row in e.get("transcript") or ()]
    row: StepRow = {
        "id": step["id"],
        "content": step["content"],
        "status": record.get("status", "pending"),
        "reason": record.get("reason", ""),
        "result": record.get("result", ""),
        "rounds": record.get("rounds", 0),
        "started": record.get("started", ""),
        "ended": record.get("ended", ""),
        "spent": dict(record.get("spent") or {}),
        "unchanged": record.get("unchanged") or "",
        "silent_rounds": record.get("silent_most", 0),
        "repeated": redact_json(repeated_calls(journal, step["id"])),
        "criteria": criteria_rows(criteria_of(step), record.get("verdicts") or ()),
    }
    if step.get("executor"):
        row["executor"] = step["executor"]
    if said:
        row["transcript"] = redact_json(said)
    return row


def summary(receipt: Mapping[str, Any], reason: str = "", language: str = "en") -> str:
    """Summarize the run without a model; only finished steps count as finished."""
    rows = receipt["steps"]
    done = [row for row in rows if row["status"] == "done"]
    lines = [reason] if reason else []
    if rows:
        lines.append(say(language, "summary", "steps_done", done=len(done), all=len(rows)))
    for row in done:
        result = f" — {row['result']}" if row["result"] else ""
        lines.append(f"- {say(language, 'summary', 'done')}: {row['content']}{result}")
    lines += [*unproven_lines(receipt, language), *unasked_lines(receipt, language)]
    lines += [*unfinished_lines(receipt, language), *next_step_lines(receipt, language)]
    return to_markdown(lines) or say(language, "summary", "nothing")


def to_markdown(lines: Sequence[str]) -> str:
    """Return lines as Markdown: list items together, every other line as a paragraph."""
    pairs = zip(("", *lines), lines, strict=False)
    gaps = ("\n" if before[:2] == line[:2] == "- " else "\n\n" for before, line in pairs)
    return "".join(gap + line for gap, line in zip(gaps, lines, strict=True)).strip()


def notes(receipt: Mapping[str, Any], language: str = "en") -> list[str]:
    """Return what an answer must not omit: unproven criteria, assumptions, unfinished work, and next steps."""
    before = [*unproven_lines(receipt, language), *unasked_lines(receipt, language)]
    after = [*unfinished_lines(receipt, language), *next_step_lines(receipt, language)]
    return [*before, *after, *undone_lines(receipt, language)]


def undone_lines(receipt: Mapping[str, Any], language: str = "en") -> list[str]:
    """Return the line that names the files whose changes were undone after the run."""
    paths = [*dict.fromkeys(row["path"] for row in receipt.get("undone") or ())]
    more = [f"… ({len(paths)})"] if len(paths) > UNDONE_NAMED else []
    named = ", ".join([*paths[:UNDONE_NAMED], *more])
    return [f"- {say(language, 'summary', 'undone')}: {named}"] if paths else []


def without_notes(text: str, receipt: Mapping[str, Any], language: str = "en") -> str:
    """Return an answer without the notes that this receipt adds."""
    added = {line for note in notes(receipt, language) for line in note.splitlines()}
    return "\n".join(line for line in text.splitlines() if line not in added).strip()


def with_notes(text: str, receipt: Mapping[str, Any], language: str = "en") -> str:
    """Return an answer with the notes that this receipt adds."""
    lines = notes(receipt, language)
    return "\n\n".join(part for part in (text, to_markdown(lines)) if part)


def unproven_lines(receipt: Mapping[str, Any], language: str = "en") -> list[str]:
    """Return a line for each unproven part of finished work: unverified criteria, and a judge's doubts."""
    speak = partial(say, language, "summary")
    lines: list[str] = []
    if receipt.get("verification") == "claimed":
        return _audit_lines(receipt.get("audit"), language)
    for item in receipt.get("criteria") or ():
        if item["verdict"] in ("unverified", "failed"):
            lines.append(f"- {speak('not_verified')}: {item['text']}" + (f" — {item['note']}" if item["note"] else ""))
    for row in receipt["steps"]:
        open_ones = [item for item in row.get("criteria") or () if item["verdict"] == "unverified" and item["note"]]
        if row["status"] == "done":
            lines += [f"- {speak('not_verified')}: {item['text']} — {item['note']}" for item in open_ones]
            if row.get("unchanged"):
                lines.append(f"- {speak('unchanged', content=row['content'])} — {row['unchanged']}")
    return [*lines, *_data_lines(receipt.get("output"), language), *_audit_lines(receipt.get("audit"), language)]


def _audit_lines(audit: Mapping[str, Any] | None, language: str) -> list[str]:
    """Return a line for each unproven sentence and each missing thing."""
    if audit is None:
        return []
    if audit["problem"]:
        return [f"- {say(language, 'summary', 'unaudited')} ({audit['problem']})"]
    lines = [f"- {say(language, 'summary', 'missing')}: {text}" for text in audit["missing"]]
    for row in audit["sentences"]:
        if row["shown"] in DOUBTFUL:
            key = "contradicted" if row["shown"] == "contradicted" else "not_shown"
            why = f" — {row['why']}" if row["why"] else ""
            lines.append(f"- {say(language, 'summary', key)}: “{row['text'][:200]}”{why}")
    return lines


def _data_lines(row: Mapping[str, Any] | None, language: str) -> list[str]:
    """Return a line if the structured result is missing."""
    return [f"- {say(language, 'summary', 'no_output', problem=row['problem'])}"] if row and row["problem"] else []


def unfinished_lines(receipt: Mapping[str, Any], language: str = "en") -> list[str]:
    """Return a line for every call with an unknown outcome, and for every step that is not done.

    A step that a later plan dropped counts too, unless that plan replaced it.
    """
    speak = partial(say, language, "summary")
    rows = [row for row in receipt.get("effects", ()) if row.get("unknown")]
    calls = [f"{row['tool']}({canonical_json(row['arguments'])})" for row in rows]
    lines = [f"- {speak('unknown', call=call)}" for call in calls]
    ended = {row["id"]: row["status"] for row in receipt["steps"]}
    for row in receipt["steps"]:
        if row["status"] != "done":
            status = "not_started" if row["status"] in ("pending", "running", "ready", "waiting") else row["status"]
            why = f" — {row['reason']}" if row["reason"] else ""
            lines.append(f"- {speak('not_done')} ({speak(status)}): {row['content']}{why}")
    for row in receipt.get("replaced", ()):
        if row["instead"] and all(ended.get(id) == "done" for id in row["instead"]):
            continue
        status = speak(row["status"]) if row["status"] in catalogue("en")["summary"] else row["status"]
        how = speak("replaced" if row["instead"] else "dropped", status=status, steps=", ".join(row["instead"]))
        lines.append(f"- {speak('not_done')} ({how}): {row['content']} — {row['reason']}")
    return lines


def unasked_lines(receipt: Mapping[str, Any], language: str = "en") -> list[str]:
    """Return a line for every question that no person answered."""
    rows = [row for row in receipt.get("questions", ()) if row["by"] == "policy"]
    return [
        f"- {say(language, 'summary', 'assumed', question=row['question'])}{_assumption(row)}"
        if row["assumed"]
        else f"- {say(language, 'summary', 'by_default', question=row['question'])} — {row['answer']}"
        for row in rows
    ]


def _assumption(row: Mapping[str, Any]) -> str:
    said = " ".join(row["assumption"].split())[:ASSUMPTION_CHARS]
    return f" — {said}" if said else ""


def next_step_lines(receipt: Mapping[str, Any], language: str = "en") -> list[str]:
    """Return the first step that could still be done; [] if there is none, or the user ended the run."""
    open_ends = ("pending", "running", "ready", "waiting", "exhausted", "failed")
    left = [row for row in receipt["steps"] if row["status"] in open_ends]
    if not left or receipt["status"] == "cancelled":
        return []
    return [say(language, "summary", "next", step=left[0]["content"])]
