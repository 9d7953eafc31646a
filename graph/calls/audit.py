"""Have a judge doubt what is about to be delivered: one question, with a few look-ups of its own. Fails closed.

The judge sees the goal, every change with its outcome, the passages that are cited and an index of everything that
was observed; never the reasoning of whoever wrote the text.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage

from donewhen.graph.calls.invoking import Site
from donewhen.graph.calls.observing import recall, whole
from donewhen.graph.calls.proving import run_check
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import emit
from donewhen.graph.models.ask import Question, ask
from donewhen.graph.models.reading import Decision, Unusable, read
from donewhen.graph.models.transcript import kept, respond, shown
from donewhen.graph.models.window import shown_chars
from donewhen.prompts import brief, framed, instructions, section
from donewhen.state.errors import DoneWhenError
from donewhen.state.graph_state import Json
from donewhen.state.ledger import add, exhausted
from donewhen.state.proof.audit import read_audit, split_claims, unaudited
from donewhen.state.proof.evidence import WRITES, passage
from donewhen.state.proof.goal_check import criteria_of
from donewhen.state.proof.journal import made, said_by_user
from donewhen.state.proof.receipt import AuditRow
from donewhen.state.reading.decisions import AUDIT, control_tools
from donewhen.state.records import FrozenCall
from donewhen.state.settings import Settings

CHANGE_CHARS = 3_000
"""Of a change's arguments, and of its outcome; what is cut is marked."""
AROUND = 150
"""Characters on either side of a passage that is cited."""
LINE_CHARS = 160
MOST_LINES = 300
"""Of the index of observations; what is left out is named by ids."""
WHOLE_CHARS = 1_500
"""An observation that is not longer stands in the index whole, as long as there is room."""
ROOM = 6_000
READS = 8
"""Reading tools of the run that the judge is offered."""
CORRECTIONS = 2
NOTES = {"before": "as it was before a change", "part": "the agent saw a part of it"}


@dataclass(frozen=True)
class Subject:
    """What is audited: a text that is about to be delivered, and all that it can rest on."""

    run: Mapping[str, Any]
    """The state of the run: goal, conversation, plan, fence, language."""
    text: str
    journal: Sequence[Json]
    """Everything that was observed, oldest first."""
    output: Any = None
    """The result as data, if it is wanted as that."""
    verdicts: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    """Verdicts by step, `goal` for those of the goal's own criteria: what they cite is shown."""
    steps: Mapping[str, Json] = field(default_factory=dict)
    """Records by step."""
    step: str | None = None
    """The step whose result it is, where a step is audited and not the run."""

    @property
    def fence(self) -> str:
        """The word that frames foreign text."""
        return str(self.run.get("fence") or "")


def audit_due(settings: Settings, run: Mapping[str, Any], new: Iterable[Mapping[str, Any]] = ()) -> bool:
    """Return whether a text must be audited: one that rests, or may seem to rest, on what was looked at or changed.

    Not the words of an executor that took the goal whole: nobody else has worked on it, or is to be asked (P16).
    """
    if settings.verification in ("claimed", "grounded") or (run.get("modes") or [{}])[-1].get("by") == "executor":
        return False
    steps = (run.get("plan") or {}).get("steps") or ()
    by_its_word = any(step.get("tools") is None for step in steps)  # it may say that it used tools, and used none
    return by_its_word or settings.verification == "judged" or any(made(e) for e in [*(run.get("journal") or ()), *new])


async def audit(site: Site, subject: Subject, *, reserve: int = 0) -> AuditRow:
    """Return what the judge says of the text; a `problem` where it cannot be asked or says nothing usable.

    What it looks up becomes observations of `site`, which the caller finds in `site.noted`. `reserve`: model calls
    kept for the end of the run, which an audit may use.
    """
    settings, deps = settings_of(site.runtime), site.deps
    if not _judges(deps, settings):
        return {**unaudited(""), "nobody": True}
    claims = split_claims(subject.text, subject.output, str(subject.run.get("language") or ""))
    toolbox = deps.reads(settings)
    used = {e["tool"] for e in subject.journal if made(e) and e["effect"] == "read"}
    reads = toolbox.subset([name for name in toolbox.names if name in used][:READS])
    tools = [*control_tools(AUDIT), *reads.openai()]
    messages: list[AnyMessage] = [
        SystemMessage(instructions("audit")),
        HumanMessage(audit_brief(await _with_whole_texts(site, subject), claims, settings.today)),
    ]
    looks, corrections, problem = settings.audit_calls, 0, ""
    while True:
        left = site.left()
        if "model_calls" in left:
            left = {**left, "model_calls": left["model_calls"] + reserve}
        if exhausted(left, ("model_calls",)):
            return _unaudited(site, problem or "no model call was left for it")
        offered = tools if looks else tools[:1]
        legal = AUDIT if looks else AUDIT[:1]
        question = Question(
            "judge", messages, offered, allowance=left, fence=subject.fence, must_call=True, place=_place(site)
        )
        reply = await ask(deps, settings, question)
        site.spent = add(site.spent, reply.spent)
        if reply.message is None:
            return _unaudited(site, f"the judge could not be asked: {reply.error}")
        outcome = read(reply.message, legal, reads if looks else None)
        if isinstance(outcome, Decision) and outcome.kind == "calls":
            told, looks = await _look(outcome, reads, site, subject, looks)
            messages += [kept(reply.message), *_results(reply.message, outcome, told)]
            continue
        found = _read(outcome, claims)
        if not isinstance(found, list):
            emit(site.runtime, "audit", step=subject.step, **found)
            return found
        problem, corrections = f"the judge said nothing usable: {'; '.join(found)[:300]}", corrections + 1
        if corrections > CORRECTIONS:
            return _unaudited(site, problem)
        lines = "\n".join(f"- {each}" for each in found[:20])
        said = f"Correction: this is no audit.\n{lines}\nCall `audit` again, whole."
        messages += [kept(reply.message), *respond(reply.message, said)]


async def _with_whole_texts(site: Site, subject: Subject) -> Subject:
    """Return the subject with all that changes and cited observations said, of which the journal may have a part."""
    cited = {e["observation"] for rows in subject.verdicts.values() for row in rows for e in row.get("evidence") or ()}
    journal = [
        await whole(site.runtime, site.state, entry)
        if entry.get("stored") and (entry["id"] in cited or entry["effect"] in WRITES)
        else entry
        for entry in subject.journal
    ]
    return replace(subject, journal=journal)


def _judges(deps: Deps, settings: Settings) -> bool:
    """Return whether the model of the role says that it can judge; one that cannot be made says nothing."""
    try:
        return bool(getattr(deps.model("judge", settings), "judges", True))
    except DoneWhenError:
        return True


def _place(site: Site) -> Json:
    """Return where the judge is asked, for traces."""
    return {"step": site.state["step"]["id"], "round": site.state["record"]["rounds"]}


def _unaudited(site: Site, problem: str) -> AuditRow:
    emit(site.runtime, "note", text=f"Nobody audited the answer: {problem}")
    return unaudited(problem)


def _read(outcome: Decision | Unusable, claims: Sequence[str]) -> AuditRow | list[str]:
    if isinstance(outcome, Unusable):
        return outcome.problems
    if outcome.kind != "audit":
        return ["a text alone decides nothing here"]
    return read_audit(outcome.arguments, claims)


def _results(message: AIMessage, decision: Decision, told: Mapping[str, str]) -> list[AnyMessage]:
    if not message.tool_calls and not message.invalid_tool_calls:
        return [HumanMessage("\n\n".join([*told.values(), *decision.refused.values()]))]
    return respond(message, lambda id: told.get(id) or decision.refused.get(id) or "Not made.")


async def _look(decision: Decision, reads: Any, site: Site, subject: Subject, looks: int) -> tuple[dict[str, str], int]:
    """Make the judge's look-ups, as far as they go; what came of each, and how many are left."""
    settings, told = settings_of(site.runtime), dict[str, str]()
    for call in decision.calls:
        if looks <= 0:
            told[call["id"]] = "Not made: all look-ups are used up. Decide by what you have seen."
            continue
        looks -= 1
        if call["name"] == "recall":
            seen = cast("Any", {**site.state, "known": list(subject.journal), "journal": []})
            piece = await recall(cast("FrozenCall", call), seen, list(site.noted), site.runtime)
            told[call["id"]] = piece.text
            continue
        if exhausted(site.left(), ("tool_calls",)):
            told[call["id"]] = "Not made: the limit of tool calls is reached."
            continue
        check = {"tool": call["name"], "arguments": call["args"], "expect": "ok"}
        found = await run_check(check, site)
        if found.entry is None:
            told[call["id"]] = f"Not made: {found.said}"
            continue
        entry = await whole(site.runtime, site.state, found.entry)
        told[call["id"]] = shown(entry, shown_chars(site.deps, settings, "judge"), fence=subject.fence)
    return told, looks


def audit_brief(subject: Subject, claims: Sequence[str], today: str) -> str:
    """Return what the judge reads: what was asked, what was changed, what is cited and seen, and the claims."""
    run, fence = subject.run, subject.fence
    plan: Mapping[str, Any] = run.get("plan") or {}
    changes = [e for e in subject.journal if e["source"] == "tool" and e["effect"] in WRITES]
    ids = {e["id"] for e in changes}
    cited, shown_whole = _cited(subject, ids)
    rest = [e for e in subject.journal if e["id"] not in ids | shown_whole and not e.get("outside")]
    said = "\n".join(f"- {_asked(one)}{one['text'].strip()}" for one in said_by_user(run))
    numbered = "\n".join(f"{number}. {claim}" for number, claim in enumerate(claims, 1))
    return brief(
        section("fence", fence),
        section("today", today),
        section("conversation", run.get("conversation") or ""),
        section("goal", run["goal"]),
        section("user_said", said),
        section("plan", _plan(plan, subject), fence),
        framed("changes", "\n".join(_change(e, fence) for e in changes) or "none", fence),
        section("cited", cited, fence),
        section("observations", _index(rest), fence),
        framed("claims", numbered or "(nothing is delivered)", fence),
    )


def _asked(one: Mapping[str, str]) -> str:
    return f"(asked: {' '.join(one['question'].split())[:600]}) " if one.get("question") else ""


def _plan(plan: Mapping[str, Any], subject: Subject) -> str:
    """The steps with what became of them and their criteria; in a step's audit only that one."""
    lines = []
    for step in plan.get("steps") or ():
        if subject.step not in (None, step["id"]):
            continue
        record = subject.steps.get(step["id"], {})
        lines.append(f"{step['id']} ({record.get('status', 'pending')}): {step['content']}")
        lines += [f"  done when: {criterion['text']}" for criterion in criteria_of(step)]
        if why := record.get("unchanged"):
            lines.append(f"  nothing was changed, because: {why}")
        if reason := record.get("reason"):
            lines.append(f"  reason: {reason[:300]}")
    if subject.step is None:
        lines += [f"in the end: {criterion['text']}" for criterion in plan.get("done_when") or ()]
    return "\n".join(lines)


def _change(entry: Mapping[str, Any], fence: str) -> str:
    outcome = "unknown whether it took effect" if entry.get("unknown") else "ok" if entry["ok"] else "failed"
    made_with = _cut(json.dumps(entry["arguments"], ensure_ascii=False), CHANGE_CHARS)
    return f"[{entry['id']}] {entry['tool']} {made_with}\n→ {outcome}: {_cut(entry['text'], CHANGE_CHARS)}"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} [… cut: {len(text) - 2 * half:,} characters …] {text[-half:]}"


def _cited(subject: Subject, changes: Collection[str]) -> tuple[str, set[str]]:
    """Return what is cited, each passage with what stands around it, and the ids of what stands there whole.

    A change stands under the changes; what is short is shown once, whole.
    """
    entries = {e["id"]: e for e in subject.journal if not e.get("outside") and e["id"] not in changes}
    lines, shown_whole = dict[str, None](), set[str]()
    for item in (e for rows in subject.verdicts.values() for row in rows for e in row.get("evidence") or ()):
        entry, quote = entries.get(item["observation"]), item.get("quote", "")
        if entry is None or not quote or entry["source"] == "result":
            continue
        notes = [note for key, note in NOTES.items() if item.get(key)]
        about = f" ({', '.join(notes)})" if notes else ""
        short = len(entry["text"]) <= WHOLE_CHARS
        text = entry["text"] if short else passage(entry["text"], quote, AROUND)
        lines[f"[{entry['id']}] {_source(entry)}{about}: {text}"] = None
        shown_whole |= {entry["id"]} if short else set()
    return "\n".join(lines), shown_whole


def _source(entry: Mapping[str, Any]) -> str:
    if entry["source"] == "user":
        return "the user said"
    if entry["source"] == "result":
        return "words of the agent"
    by = " (another agent)" if entry.get("transcript") else ""
    sent = _cut(json.dumps(entry["arguments"], ensure_ascii=False), LINE_CHARS * 2) if entry["arguments"] else ""
    return f"{entry['tool']}{by} {sent} {'ok' if entry['ok'] else 'failed'}".strip()


def _index(entries: Sequence[Mapping[str, Any]]) -> str:
    """Everything that was observed beside the changes, oldest first: short ones whole, others in a line."""
    lines, room = list[str](), ROOM
    seen: dict[tuple[Any, ...], str] = {}
    for entry in reversed([e for e in entries if e["source"] != "result"][-MOST_LINES:]):
        key = (entry["source"], entry["tool"], json.dumps(entry["arguments"], sort_keys=True), entry["digest"])
        head = f"[{entry['id']}] {_source(entry)}"
        if key in seen:
            lines.append(f"{head}: the same as {seen[key]}")
            continue
        seen[key] = entry["id"]
        if len(entry["text"]) <= min(WHOLE_CHARS, room) or entry["source"] == "user":
            room -= len(entry["text"])
            lines.append(f"{head}: {entry['text']}")
        else:
            first = " ".join(entry["text"][: 2 * LINE_CHARS].split())[:LINE_CHARS]
            lines.append(f"{head}: {first} [… cut: {entry['length']:,} characters in all; recall reads them]")
    left_out = max(len(entries) - MOST_LINES, 0)
    return "\n".join([*([f"[… {left_out} earlier ones are left out]"] if left_out else []), *reversed(lines)])
