"""The endings of a run: their codes, the status that follows, and what an answer must say of them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from donewhen.state.criteria import criteria_of
from donewhen.state.language.texts import catalogue, say
from donewhen.state.proof.audit import DOUBTFUL, is_unexplained
from donewhen.state.proof.evidence import satisfies
from donewhen.state.proof.journal import call_key, call_line
from donewhen.state.proof.receipt import Status, criteria_rows, displaced_rows, replaced_rows
from donewhen.state.records import StepRecord
from donewhen.state.settings import Settings
from donewhen.state.statuses import UNFINISHED, record_of
from donewhen.state.values import with_name

CODES: dict[str, Status | None] = {
    "answered": "completed",  # or `answered`, if it is words only; except an approved plan that was not carried out
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
    "refused": None,  # hooks refuse the answer
    "not_asked": None,  # hooks refuse a question of the run's own
    "delivered_early": None,
    "out_of_budget": "exhausted",
    "stopped": "exhausted",
}
"""Terminal code → status; None means that the steps' outcomes decide."""

ASSUMPTION_CHARS = 300
"""The most characters of an assumption in the answer; the receipt has all of it."""
MOST_NAMED = 20
"""The most files whose changes were undone, and the most values without a source, that are named in the answer."""


def is_step_proven(step: Mapping[str, Any], record: StepRecord, level: str) -> bool:
    """Return whether a step is done and every criterion satisfies the level."""
    verdicts = {verdict["criterion"]: verdict["verdict"] for verdict in record["verdicts"]}
    return record["status"] == "done" and all(
        satisfies(verdicts.get(number, "failed"), criterion, level)
        for number, criterion in enumerate(criteria_of(step), 1)
    )


def status_of(code: str, plan: Mapping[str, Any] | None, steps: Mapping[str, StepRecord], settings: Settings) -> Status:
    """Return the status of a run: no better than its steps, and no worse than what is proven."""
    rows = [(step, record_of(steps, step["id"])) for step in (plan or {}).get("steps", ())]
    good = [is_step_proven(step, record, settings.verification) for step, record in rows]
    if (fixed := CODES[code]) not in (None, "failed"):
        return "partial" if fixed == "completed" and not all(good) else fixed
    if rows and all(good) and code == "worked":
        # What nobody but a policy dropped, with nothing in its place, was part of the work.
        dropped = any(row["by"] == "policy" and not row["instead"] for row in replaced_rows(plan or {}, steps))
        return "partial" if dropped else "completed"
    if any(record["status"] == "exhausted" for _, record in rows):
        return "exhausted"
    return "partial" if any(record["status"] == "done" for _, record in rows) else "failed"


def is_goal_reached(goal: Sequence[Mapping[str, Any]], verdicts: Sequence[Mapping[str, Any]], level: str) -> bool:
    """Return whether all of the goal's own criteria satisfy the level (D06)."""
    rows = zip(goal, criteria_rows(goal, verdicts), strict=True)
    return all(satisfies(row["verdict"], criterion, level) for criterion, row in rows)


def summary(receipt: Mapping[str, Any], reason: str, language: str) -> str:
    """Summarize the run without a model; only finished steps count as finished."""
    rows = receipt["steps"]
    done = [row for row in rows if row["status"] == "done"]
    lines = [reason] if reason else []
    if rows:
        lines.append(say(language, "summary", "steps_done", done=len(done), all=len(rows)))
    lines += [f"- {say(language, 'summary', 'done')}: {row['content']}{_because(row['result'])}" for row in done]
    return to_markdown([*lines, *notes(receipt, language)]) or say(language, "summary", "nothing")


def to_markdown(lines: Sequence[str]) -> str:
    """Return lines as Markdown: list items together, every other line as a paragraph."""
    pairs = zip(("", *lines), lines, strict=False)
    gaps = ("\n" if before.lstrip()[:2] == line.lstrip()[:2] == "- " else "\n\n" for before, line in pairs)
    return "".join(gap + line for gap, line in zip(gaps, lines, strict=True)).strip()


def notes(receipt: Mapping[str, Any], language: str) -> list[str]:
    """Return what an answer must not omit: what is unproven, assumed, unfinished, next, done earlier, or undone."""
    kinds = (
        unproven_lines, _unanswered_lines, unfinished_lines, next_step_lines, late_lines, _earlier_lines, _undone_lines,
    )  # fmt: skip
    return [line for lines in kinds for line in lines(receipt, language)]


def without_notes(text: str, receipt: Mapping[str, Any], language: str) -> str:
    """Return an answer without the notes that this receipt adds."""
    added = {line for note in notes(receipt, language) for line in note.splitlines()}
    return "\n".join(line for line in text.splitlines() if line not in added).strip()


def with_notes(text: str, receipt: Mapping[str, Any], language: str) -> str:
    """Return an answer with the notes that this receipt adds."""
    lines = notes(receipt, language)
    return "\n\n".join(part for part in (text, to_markdown(lines)) if part)


def unproven_lines(receipt: Mapping[str, Any], language: str) -> list[str]:
    """Return a line for each unproven part of finished work: unverified criteria, and a judge's doubts."""
    speak = partial(say, language, "summary")
    lines: list[str] = []
    if receipt.get("verification") == "claimed":
        return _audit_lines(receipt.get("audit"), language)
    for item in receipt.get("criteria") or ():
        if item["verdict"] in ("unverified", "failed"):
            lines.append(f"- {speak('not_verified')}: {item['text']}{_because(item['note'])}")
    for row in receipt["steps"]:
        open_ones = [item for item in row.get("criteria") or () if item["verdict"] == "unverified" and item["note"]]
        if row["status"] == "done":
            lines += [f"- {speak('not_verified')}: {item['text']} — {item['note']}" for item in open_ones]
            if row.get("unchanged"):
                lines.append(f"- {speak('unchanged', content=row['content'])} — {row['unchanged']}")
    output = receipt.get("output")
    if output and output["problem"]:
        lines.append(f"- {speak('no_output', problem=output['problem'])}")
    if output and (paths := output.get("unsourced")):
        lines.append(f"- {speak('unsourced', paths=_names(paths))}")
    return [*lines, *_audit_lines(receipt.get("audit"), language)]


def _audit_lines(audit: Mapping[str, Any] | None, language: str) -> list[str]:
    """Return a line for each unproven sentence and each missing thing."""
    if audit is None:
        return []
    if audit["problem"]:
        return [f"- {say(language, 'summary', 'unaudited')} ({audit['problem']})"]
    lines = [f"- {say(language, 'summary', 'missing')}: {text}" for text in audit["missing"]]
    lines += [f"- {say(language, 'summary', 'not_met')}"] if is_unexplained(audit) else []
    for row in audit["sentences"]:
        if row["shown"] in DOUBTFUL:
            key = "contradicted" if row["shown"] == "contradicted" else "not_shown"
            lines.append(f"- {say(language, 'summary', key)}: “{row['text'][:200]}”{_because(row['why'])}")
    return lines


def unfinished_lines(receipt: Mapping[str, Any], language: str) -> list[str]:
    """Return a line for every call with an unknown outcome, and for every step that is not done.

    A step that a later plan dropped counts too, unless that plan replaced it.
    """
    speak = partial(say, language, "summary")
    lines = unknown_lines(receipt.get("effects", ()), language)
    ended = {row["id"]: row["status"] for row in receipt["steps"]}
    for row in receipt["steps"]:
        if row["status"] != "done":
            status = "not_started" if row["status"] in UNFINISHED else row["status"]
            lines.append(f"- {speak('not_done')} ({speak(status)}): {row['content']}{_because(row['reason'])}")
            lines += done_in_it_lines(receipt.get("effects", ()), row["id"], language)
    for row in receipt.get("replaced", ()):
        if row["instead"] and all(ended.get(id) == "done" for id in row["instead"]):
            continue
        status = speak(row["status"]) if row["status"] in catalogue("en")["summary"] else row["status"]
        how = speak("replaced" if row["instead"] else "dropped", status=status, steps=", ".join(row["instead"]))
        lines.append(f"- {speak('not_done')} ({how}): {row['content']} — {row['reason']}")
        lines += done_in_it_lines(receipt.get("effects", ()), row["id"], language)
    return lines


def unknown_lines(effects: Sequence[Mapping[str, Any]], language: str) -> list[str]:
    """Return a line for every call with an unknown outcome."""
    calls = [_named_call(row) for row in effects if row.get("unknown")]
    return [f"- {say(language, 'summary', 'unknown', call=call)}" for call in calls]


def done_in_it_lines(effects: Sequence[Mapping[str, Any]], step: str, language: str) -> list[str]:
    """Return the line that names what took effect in a step that is not done; [] if nothing did."""
    done = done_in_steps(effects, language).get(step)
    return [f"  - {done}"] if done else []


def done_in_steps(effects: Sequence[Mapping[str, Any]], language: str) -> dict[str, str]:
    """Return, by step, the text that names what took effect in it."""
    calls: dict[str, list[str]] = {}
    for row in effects:
        if row["ok"]:
            calls.setdefault(row["id"].partition(".")[0], []).append(_named_call(row))
    return {step: say(language, "summary", "done_in_it", calls=", ".join(each)) for step, each in calls.items()}


def _named_call(row: Mapping[str, Any]) -> str:
    """Return a call for people; what an executor was given is named by its step, for it is written for a model."""
    if row.get("delegated"):
        return f"{row['tool']} ({row['id']})"
    return call_line(row["tool"], row["arguments"])


def _unanswered_lines(receipt: Mapping[str, Any], language: str) -> list[str]:
    """Return a line for every question that no person answered."""
    speak, lines = partial(say, language, "summary"), list[str]()
    for row in receipt.get("questions", ()):
        if row["by"] == "policy" and row["assumed"]:
            assumption = " ".join(row["assumption"].split())[:ASSUMPTION_CHARS]
            lines.append(f"- {speak('assumed', question=row['question'])}{_because(assumption)}")
        elif row["by"] == "policy":
            lines.append(f"- {speak('by_default', question=row['question'])} — {row['answer']}")
    return lines


def next_step_lines(receipt: Mapping[str, Any], language: str) -> list[str]:
    """Return the first step that could still be done; [] if there is none, or the user ended the run."""
    unfinished = [row for row in receipt["steps"] if row["status"] in (*UNFINISHED, "exhausted", "failed")]
    if not unfinished or receipt["status"] == "cancelled":
        return []
    return [say(language, "summary", "next", step=unfinished[0]["content"])]


def late_lines(receipt: Mapping[str, Any], language: str) -> list[str]:
    """Return a line for everything that the user said when the work was done already."""
    texts = (" ".join(with_name(row.get("name"), row["text"]).split()) for row in receipt.get("late") or ())
    return [f"- {say(language, 'summary', 'late')}: “{text[:ASSUMPTION_CHARS]}”" for text in texts]


def _earlier_lines(receipt: Mapping[str, Any], language: str) -> list[str]:
    return [f"- {line}" for line in _lines_of_displaced(receipt.get("earlier") or (), language)]


def displaced_line(values: Mapping[str, Any]) -> str:
    """Return what requests did whose place the current one took, and what they may have done, each as a line; "" if
    nothing."""
    return "\n".join(_lines_of_displaced(displaced_rows(values), str(values.get("language") or "en")))


def _lines_of_displaced(rows: Sequence[Mapping[str, Any]], language: str) -> list[str]:
    named: dict[str, dict[str, str]] = {"earlier": {}, "earlier_unknown": {}}
    for row in rows:  # what is not done is unknown, or has a failure as its result
        call = call_key(row["tool"], row["arguments"])
        named["earlier" if row["ok"] else "earlier_unknown"][call] = _named_call(row)
    return [say(language, "summary", key, calls=_names([*calls.values()])) for key, calls in named.items() if calls]


def _undone_lines(receipt: Mapping[str, Any], language: str) -> list[str]:
    """Return the line that names the files whose changes were undone after the run."""
    paths = [*dict.fromkeys(row["path"] for row in receipt.get("undone") or ())]
    return [f"- {say(language, 'summary', 'undone')}: {_names(paths)}"] if paths else []


def _names(names: Sequence[str]) -> str:
    more = [f"… ({len(names)})"] if len(names) > MOST_NAMED else []
    return ", ".join([*names[:MOST_NAMED], *more])


def _because(why: str) -> str:
    return f" — {why}" if why else ""
