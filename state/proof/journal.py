"""Observations: everything a run saw, each with an id. The journal is append-only and never edited."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import dropwhile, groupby
from typing import Any, Literal

from donewhen.state.ledger import round_seconds
from donewhen.state.proof.quotes import fold
from donewhen.state.records import WRITES, JournalEntry
from donewhen.state.values import split_kept, with_name

Source = Literal["tool", "user", "check", "result"]
INLINE_CHARS = 16_000
"""Longer texts are in the journal as head and tail; the full text is in the store under the id."""
VALUE_CHARS = 120
"""The most characters of an argument in the line of a call."""
CLOSING_LINES, LINE_CHARS = 8, 300
"""Of what a failed call returned, the lines that people are shown, and the most characters of each."""
BEFORE_ROOM, BEFORE_CHARS, MOST_BEFORE = 200_000, 1_000, 40
"""Bounds of earlier requests' observations: characters of all, of each one beyond that, and their number."""


def observation(
    id: str,
    step: str,
    round: int,
    source: Source,
    text: str,
    *,
    tool: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    ok: bool = True,
    effect: str | None = None,
    seconds: float = 0.0,
    at: str = "",
    targets: Iterable[str] = (),
) -> JournalEntry:
    """Return an entry of the journal. `text` is the full text; `shorten_entry` shortens it.

    `effect` is None if it was not a tool call, or the call was not made.
    """
    return {
        "id": id,
        "step": step,
        "round": round,
        "source": source,
        "tool": tool,
        "arguments": dict(arguments or {}),
        "ok": ok,
        "effect": effect,
        "text": text,
        "length": len(text),
        "digest": digest(text),
        "stored": False,
        "seconds": round_seconds(seconds),
        "at": at,
        "targets": sorted(targets),
    }


def digest(text: str) -> str:
    """Return a hash of a text, for entries that keep only head and tail."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def shorten_entry(entry: JournalEntry, limit: int) -> JournalEntry:
    """Return the entry with head and tail of its text, marked as stored, if the text is longer than `limit`."""
    if len(entry["text"]) <= limit:
        return {**entry}
    return {**entry, "text": shorten_text(entry["text"], limit, entry["length"]), "stored": True}


def shorten_text(text: str, limit: int = INLINE_CHARS, length: int | None = None) -> str:
    """Return head and tail of a text that is longer than `limit`; `length` is that of the full text of which it is."""
    if len(text) <= limit:
        return text
    half, length = limit // 2, len(text) if length is None else length
    return f"{text[:half]}\n… {length - 2 * half} characters left out …\n{text[-half:]}"


canonical_json: Callable[[Any], str] = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str
).encode
"""Return arguments as canonical JSON, independent of the order of keys."""


def call_line(tool: str | None, arguments: Mapping[str, Any]) -> str:
    """Return a call for people, on one line: `read_file(path="a.csv")`; what is too long for it is only named."""
    texts = {key: json.dumps(value, ensure_ascii=False, default=str) for key, value in arguments.items()}
    long = {key for key, text in texts.items() if len(text) > VALUE_CHARS or "\n" in str(arguments[key])}
    given = ", ".join(f"{key}={'…' if key in long else text}" for key, text in texts.items())
    return f"{tool}({given})"


def call_key(tool: str | None, arguments: Any) -> str:
    """Return a hash of a call's tool and arguments."""
    return hashlib.sha256(f"{tool}\n{canonical_json(arguments)}".encode("utf-8", "surrogatepass")).hexdigest()[:24]


def result_key(entry: JournalEntry) -> tuple[Any, ...]:
    """Return what is equal for equal results: success, text and images; the text says only how large an image is."""
    return entry["ok"], entry["digest"], *(image["key"] for image in entry.get("images") or ())


class CallHistory:
    """The calls and changes that steps made. Each observation is read once, because a journal only grows (K8)."""

    def __init__(self) -> None:
        self._count = 0
        self._new: dict[str, list[tuple[int, JournalEntry]]] = {}
        """By step: those of other steps are never looked up, and need no keys."""
        self._last: dict[tuple[str, str], tuple[int, JournalEntry]] = {}
        self._changed: dict[str, int] = {}

    def last_equal(self, entry: JournalEntry, journal: Sequence[JournalEntry]) -> tuple[JournalEntry | None, bool]:
        """Return the last equal call with an equal result, and whether the step has changed something since.

        `journal` has all observations before `entry`, and begins with those of the last call.
        """
        for place in range(self._count, len(journal)):
            if is_tool_call(made := journal[place]):
                self._new.setdefault(made["step"], []).append((place, made))
                if is_change(made):
                    self._changed[made["step"]] = place
        self._count = len(journal)
        for place, made in self._new.pop(entry["step"], ()):
            self._last[entry["step"], call_key(made["tool"], made["arguments"])] = (place, made)
        key = (entry["step"], call_key(entry["tool"], entry["arguments"]))
        place, earlier = self._last.get(key, (-1, None))
        same = earlier and result_key(earlier) == result_key(entry)
        return earlier if same else None, self._changed.get(entry["step"], -1) > place


def repeated_calls(journal: Sequence[JournalEntry], step: str) -> list[dict[str, Any]]:
    """Return the calls of a step that repeated a result: `{tool, arguments, times}`."""
    seen: dict[str, list[JournalEntry]] = {}
    for entry in journal:
        if entry["step"] == step and is_tool_call(entry):
            seen.setdefault(call_key(entry["tool"], entry["arguments"]), []).append(entry)
    rows = []
    for same in seen.values():
        runs = [len(list(run)) for _, run in groupby(same, key=result_key)]
        if max(runs) > 1:
            rows.append({"tool": same[0]["tool"], "arguments": same[0]["arguments"], "times": max(runs)})
    return rows


def is_tool_call(entry: JournalEntry) -> bool:
    """Return whether an observation is a call that was made."""
    return entry["source"] == "tool" and entry["effect"] is not None and entry.get("made", True)


def is_change(entry: JournalEntry) -> bool:
    """Return whether an observation is a write that succeeded."""
    return entry["effect"] in WRITES and entry["ok"]


def is_failure(entry: Mapping[str, Any]) -> bool:
    """Return whether a call failed, or was made and returned a failure, such as a program's exit code."""
    return bool(entry.get("failed")) or not entry["ok"]


def has_succeeded(entry: JournalEntry) -> bool:
    """Return whether an observation is a call that was made and returned no failure."""
    return is_tool_call(entry) and not is_failure(entry) and not entry.get("unknown")


def closing_lines(text: str) -> list[str]:
    """Return the last lines of what a call returned; of an object of texts, such as program output, those of each."""
    parts = [text.replace("\\n", "\n")]
    with suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(text), dict):
            parts = [each for each in value.values() if isinstance(each, str)]
    lines = ([line.rstrip()[:LINE_CHARS] for line in part.splitlines() if line.strip()] for part in parts)
    return [line for each in lines for line in each[-CLOSING_LINES:]]


def find_later_change(journal: Sequence[JournalEntry], index: int) -> JournalEntry | None:
    """Return the first later change of what an observation read, or of something in that folder; None if there is none.

    Reads can become stale, and calls that say what they also read, such as a run of the tests. For these, other such
    calls are no changes, because nobody knows what they changed.
    """
    entry = journal[index]
    targets = entry["targets"] if entry["effect"] == "read" else entry.get("reads") or ()
    for later in journal[index + 1 :] if targets else ():
        if "reads" in entry and "reads" in later:
            continue
        if later["effect"] in WRITES and any(
            _overlap(changed, target) for changed in later["targets"] for target in targets
        ):
            return later
    return None


def _overlap(changed: str, target: str) -> bool:
    if target == ".":
        return changed == "." or (not changed.startswith(("/", "../")) and "://" not in changed)
    return changed == target or changed.startswith(f"{target}/") or target.startswith(f"{changed}/")


def was_read_whole(entry: JournalEntry, recalled: Mapping[str, Sequence[list[int]]]) -> bool:
    """Return whether the model saw the full observation: nothing was left out (`unread`), or it was recalled."""
    if split_kept(entry["text"])[1]:
        return False  # what was not kept, nobody can recall
    if not (unread := entry.get("unread")):
        return True
    at, end = unread
    for first, last in sorted(recalled.get(entry["id"], ())):
        if first <= at:
            at = max(at, last)
    return bool(at >= end)


def citable_entries(journal: Sequence[JournalEntry], steps: Iterable[str]) -> list[JournalEntry]:
    """Return what may be cited, the observations of `steps` and the words of people; and changes by other steps.

    These changes are marked `outside`.
    """
    scope, entries = set(steps), []
    for entry in journal:
        if entry["step"] in scope or is_users_word(entry):
            entries.append(entry)
        elif entry["effect"] in WRITES and entry["targets"]:
            entries.append({**entry, "text": "", "arguments": {}, "outside": True})
    return entries


def entries_for_next_request(values: Mapping[str, Any]) -> list[JournalEntry]:
    """Return the latest observations of this and earlier requests, for the next request.

    What the user said to the working run is among them, because the conversation does not have it. Their ids name the
    request, as in `1:s2.3`.
    """
    turn = values.get("turn", 1)
    observed = [e for e in values.get("journal") or () if e["source"] in ("tool", "check") or e.get("heard")]
    fresh = [{**entry, "id": f"{turn}:{entry['id']}"} for entry in observed[-MOST_BEFORE:]]
    return [*(values.get("before") or ()), *fresh][-MOST_BEFORE:]


def find_earlier_answer(
    journal: Sequence[JournalEntry],
    question: str,
    options: Sequence[str] | None = None,
    *,
    step: str = "",
    seen: Sequence[JournalEntry] = (),
) -> JournalEntry | None:
    """Return the user's earlier reply to the same question of this step, even if it does not answer it (X26).

    `seen` are the observations of the step. After a change that the step made, the same words may be another question,
    so earlier replies no longer count.
    """
    for entry in journal:
        earlier = entry["arguments"]
        if entry["source"] != "user" or entry["step"] != step:
            continue
        same = same_question(str(earlier.get("question") or ""), question, earlier.get("options"), options)
        if same and not _has_changed_since(entry["id"], seen):
            return entry
    return None


def same_question(
    one: str, other: str, options: Sequence[str] | None = None, other_options: Sequence[str] | None = None
) -> bool:
    """Return whether two questions are the same: word for word but for case and punctuation, with the same options."""
    if options and other_options and set(map(_question_words, options)) != set(map(_question_words, other_options)):
        return False
    return _question_words(one) == _question_words(other)


def _question_words(text: str) -> str:
    words = (word.lstrip("\"'(¿¡").rstrip("\"'),;:.?!…。？！，、；：") for word in fold(text).split())
    return " ".join(word for word in words if word)


def _has_changed_since(id: str, seen: Sequence[JournalEntry]) -> bool:
    return any(map(is_change, dropwhile(lambda entry: entry["id"] != id, seen)))


def user_statements(values: Mapping[str, Any], besides: str = "") -> list[dict[str, str]]:
    """Return what the user said to this request after its goal, in order: `{id, at, text, question?}`.

    These are answers, words to the working run, words about a plan, changes of a plan, and approvals, which show what
    was said before and after them. `besides` is the step or planning whose own answers are left out, because its rounds
    include them.
    """
    answers = [
        {
            "id": entry["id"],
            "at": entry["at"],
            "question": _question_with_options(entry["arguments"]),
            "text": words_of_entry(entry),
        }
        for entry in values.get("journal") or ()
        if is_users_word(entry) and not entry["id"].startswith(f"{DECISION}.")
        if not besides or besides not in (entry["id"].rpartition(".")[0], _asker(entry["arguments"]))
    ]
    decisions = [
        {"id": entry["id"], "at": entry["at"], "question": _question_of(row), "text": words_of_entry(entry)}
        for row, entry in _decisions(values)
        if not besides or row.get("step") != besides.partition("@")[0]
    ]
    ordered = sorted([*answers, *decisions], key=lambda statement: statement["at"])
    if all(statement["text"] == APPROVED for statement in ordered):
        return []
    return [{key: text for key, text in statement.items() if text} for statement in ordered]


DECISION = "decision"
"""Observations that are decisions of people, `decision.2`: words at a plan, and changes of it."""
APPROVED = "(approved the plan)"


def is_users_word(entry: JournalEntry) -> bool:
    """Return whether an observation is something that a person said, not a policy."""
    return bool(entry["source"] == "user" and entry["ok"] and entry["arguments"].get("by") == "user")


def decision_entries(values: Mapping[str, Any]) -> list[JournalEntry]:
    """Return the decisions of people with words as observations, so that they can be cited like their answers."""
    entries = [entry for _, entry in _decisions(values)]
    return [] if all(entry["text"] == APPROVED for entry in entries) else entries


def _decisions(values: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], JournalEntry]]:
    """Yield the decisions of people, each with its words as an observation; mere choices need nobody know."""
    for number, row in enumerate(values.get("approvals") or (), 1):
        who: dict[str, Any] = {}
        if row["kind"] == "plan" and row["decision"] == "approve":
            text = APPROVED
        elif row["kind"] == "plan" and row["decision"] == "edit":
            text = f"(changed the plan, and approved it) {'; '.join(row.get('changes') or ())}".rstrip()
        elif row["kind"] != "effect" and row["decision"] in ("say", "reject", "replan"):
            text, who = str(row["text"] or ""), {key: row[key] for key in ("name", "answered_by") if row.get(key)}
        else:
            continue
        if row["by"] == "user" and text:
            arguments = {"question": "", "by": "user", **who}
            entry = observation(f"{DECISION}.{number}", "plan", 0, "user", text, at=row["at"], arguments=arguments)
            yield row, entry


def words_of_entry(entry: JournalEntry, text: str | None = None) -> str:
    """Return the text of an observation, or a part of it, as it is shown and quoted: with who said it before it.

    Who said it is the person, or who alone was asked for it, because that is not the user.
    """
    text, said = entry["text"] if text is None else text, entry["arguments"]
    if entry["source"] != "user" or not text:
        return text
    if said.get("answered_by") and not said.get("name"):
        return f"({said['answered_by']}) {text}"
    return with_name(said.get("name"), text)


def _question_of(row: Mapping[str, Any]) -> str:
    """Return what a decision with words was about; "" if they say so."""
    if row["kind"] == "tool":
        return f"may {row.get('tool')} be called with {canonical_json(row.get('arguments') or {})[:300]}? No"
    return str(row.get("reply") or "") if row["decision"] == "say" else ""


def _asker(arguments: Mapping[str, Any]) -> str:
    """Return who asked, from the id of the question: `plan` for `2:plan.q1`."""
    return str(arguments.get("asked") or "").rpartition(":")[2].rpartition(".")[0]


def _question_with_options(arguments: Mapping[str, Any]) -> str:
    """Return a question with its options, because an answer may be “the second one”."""
    return " | ".join(map(str, (arguments.get("question") or "", *(arguments.get("options") or ()))))
