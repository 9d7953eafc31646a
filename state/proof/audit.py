"""The audit of a run: a judge's findings on each claim of the delivered text. Pure.

A judge only doubts: it cannot make anything count as done that structure does not allow. If it fails, the run is
unaudited, which is never `completed`.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from donewhen.state.language.texts import say_why
from donewhen.state.proof.receipt import AuditRow, SentenceRow, SettledRow, Status
from donewhen.state.values import as_whole

SHOWN = ("yes", "no", "contradicted")
DOUBTFUL = ("no", "contradicted")
MET = ("yes", "part", "no", "declined")
MOST_MISSING = 20
WHY_CHARS = 500


def read_audit(
    arguments: Any, claims: Sequence[str], later: Mapping[str, Collection[str]] = MappingProxyType({})
) -> AuditRow | list[str]:
    """Return a judge's findings on each claim and the goal, or the problems of its reply. Never raises.

    `later` has, for each change of unknown outcome, what was observed after it: only that can settle it.
    """
    fields: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
    rows, problems = _read_sentences(fields.get("sentences"), claims)
    goal = fields.get("goal")
    met = str(goal.get("met") if isinstance(goal, Mapping) else goal).casefold()
    met = {"true": "yes", "false": "no"}.get(met, met)
    if met not in MET:
        problems.append("goal must be {met: yes | part | no | declined, missing: [...]}")
    if problems:
        return problems
    missing = goal.get("missing") if isinstance(goal, Mapping) else ()
    missing = [missing] if isinstance(missing, str) else missing if isinstance(missing, list | tuple) else ()
    texts = [text for each in missing[:MOST_MISSING] if (text := _one_line(each))]
    row: AuditRow = {"problem": "", "met": cast("Any", met), "missing": texts, "sentences": rows}
    if settled := _read_settled(fields.get("settled"), later):
        row["settled"] = settled
    return row


def ask_for_reason(audit: Mapping[str, Any]) -> str:
    """Return what a judge whose verdict on the goal gives no reason is asked, once, to add; "" if it gives one."""
    if audit["met"] == "declined" and audit["missing"]:
        return "declined has nothing missing; what was not forbidden and is missing makes it part"
    if is_unexplained(audit):
        return f"goal: met is {audit['met']}, so say in `missing` what is missing"
    return ""


def is_unexplained(audit: Mapping[str, Any]) -> bool:
    """Return whether the goal is not met, and the judge neither names what is missing nor doubts a sentence."""
    doubted = any(row["shown"] in DOUBTFUL for row in audit["sentences"])
    return audit["met"] in ("part", "no") and not audit["missing"] and not doubted


def _read_settled(items: Any, later: Mapping[str, Collection[str]]) -> list[SettledRow]:
    """Return the changes of unknown outcome that later observations settle; leave out rows that name none of these."""
    rows: list[SettledRow] = []
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, Mapping) or not isinstance(item.get("happened"), bool):
            continue
        (change, *_), by = [*_ids([item.get("change")]), ""], _ids(item.get("by"))
        if later_ids := [id for id in by if id in later.get(change, ())]:
            rows.append({"change": change, "happened": item["happened"], "by": later_ids})
    return rows


def _read_sentences(items: Any, claims: Sequence[str]) -> tuple[list[SentenceRow], list[str]]:
    """Return a row for each claim, or the problems of the items about them."""
    listed = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    by_number: dict[int, Mapping[str, Any]] = {}
    problems = []
    for item in listed:
        number = _integer(item.get("n"))
        if number is not None and number > len(claims) and item.get("shown") == "yes":
            continue
        if number is None or not 1 <= number <= len(claims):
            problems.append(f"sentence {item.get('n')!r}: there are 1 to {len(claims)}")
        elif number in by_number and by_number[number].get("shown") != item.get("shown"):
            problems.append(f"sentence {number} has two items that contradict each other")
        elif str(item.get("shown")).casefold() not in SHOWN:
            problems.append(f"sentence {number}: shown must be yes, no or contradicted")
        else:
            by_number[number] = item
    left_out = [str(number) for number in range(1, len(claims) + 1) if number not in by_number]
    if left_out and not problems:
        problems.append(f"there is no item for sentence {', '.join(left_out)}")
    if problems:
        return [], problems
    rows: list[SentenceRow] = [
        {
            "n": number,
            "text": text,
            "shown": str(by_number[number]["shown"]).casefold(),  # type: ignore[typeddict-item]
            "by": _ids(by_number[number].get("by")),
            "why": _one_line(by_number[number].get("why") or ""),
        }
        for number, text in enumerate(claims, 1)
    ]
    return rows, []


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())[:WHY_CHARS]


def _integer(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        return int(value)
    return as_whole(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _ids(value: Any) -> list[str]:
    ids = value if isinstance(value, list) else str(value or "").replace(",", " ").split()
    return [str(id).strip().strip("[]")[:40] for id in ids if str(id).strip().strip("[]")][:10]


def unaudited(problem: str) -> AuditRow:
    """Return the row of an audit that was not possible, with the reason; "" if there is no judge."""
    return {"problem": problem, "met": "", "missing": [], "sentences": []}


def findings(audit: Mapping[str, Any]) -> list[str]:
    """Return the judge's doubts, for the author; [] if there are none."""
    lines = [
        f"“{row['text'][:300]}” is {'contradicted by' if row['shown'] == 'contradicted' else 'not shown by'} what was "
        f"observed: {row['why']}"
        for row in audit["sentences"]
        if row["shown"] in DOUBTFUL
    ]
    lines += [f"missing of what the user asked for: {text}" for text in audit["missing"]]
    if audit["met"] in ("part", "no") and not audit["missing"]:
        lines.append("the goal is not met" if audit["met"] == "no" else "the goal is met in part only")
    return lines


def doubts_to_send_back(audit: Mapping[str, Any], *, only_words: bool = False) -> list[str]:
    """Return the doubts to send back to the author; [] if the text admits that nothing was achieved.

    `only_words` says that the author only words what others did: it can mend sentences, but not what is missing of the
    goal (Q76).
    """
    shown = all(row["shown"] == "yes" for row in audit["sentences"])
    return [] if shown and (audit["met"] == "no" or only_words) else findings(audit)


def reasons(audit: Mapping[str, Any], language: str = "en") -> str:
    """Return why the audit lets nothing count as shown, in the judge's words; "" if nothing was doubted."""
    if audit.get("nobody"):
        return say_why(language, "cannot_judge")
    doubted = [f"“{row['text'][:200]}”: {row['why']}" for row in audit["sentences"] if row["shown"] in DOUBTFUL]
    key = {"no": "goal_not_met", "part": "goal_met_in_part"}.get(audit["met"], "")
    not_met = say_why(language, key) if key else ""
    return str(audit["problem"]) or "; ".join([*audit["missing"], *doubted])[:1000] or not_met


def status_of_words(
    status: Status, code: str, audit: Mapping[str, Any] | None, *, looked: bool, changed: bool
) -> Status:
    """Return `answered` for a completed run that has words only: it changed nothing, and looked at nothing or declined.

    A schedule that was saved is something done.
    """
    if status != "completed" or changed or code == "scheduled":
        return status
    return "completed" if looked and (audit or {}).get("met") != "declined" else "answered"


def audited_status(status: Status, code: str, audit: Mapping[str, Any] | None) -> tuple[Status, str]:
    """Return status and code of a run after its audit, which never improves them (D07)."""
    if audit is None or status != "completed" or audit.get("nobody"):
        return status, code
    if audit["problem"]:
        return "partial", "unaudited"
    if audit["met"] not in ("yes", "declined") or audit["missing"]:
        return "partial", "goal_not_met"
    if any(row["shown"] in DOUBTFUL for row in audit["sentences"]):
        return "partial", "not_shown"
    return status, code
