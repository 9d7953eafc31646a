"""Let a judge doubt a text before it is delivered: one question, and a few look-ups. Fails closed.

The judge sees the goal, all changes with their outcomes, the cited passages and an index of the latest observations;
never the reasoning of the text's author.
"""

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from donewhen.graph.context import Deps
from donewhen.graph.events import emit, emit_note
from donewhen.graph.llm.ask import ModelRequest
from donewhen.graph.llm.attachments import brief_message, with_images
from donewhen.graph.llm.briefs import profile_text, statement_lines
from donewhen.graph.llm.dialogue import dialogue_text
from donewhen.graph.llm.history import (
    earlier_index,
    observation_limit,
    render_observation,
    reply_messages,
)
from donewhen.graph.llm.reply import Decision
from donewhen.graph.round import Role
from donewhen.graph.step.calls import make_read_call
from donewhen.graph.step.gates import NOTHING, CallContext
from donewhen.graph.step.talk import Talk, refuse_text
from donewhen.graph.step.texts import recall
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.prompts import brief, framed, instructions, section
from donewhen.state.channels import Json, conversation_before, named_goal
from donewhen.state.criteria import criteria_of
from donewhen.state.errors import DoneWhenError
from donewhen.state.ledger import Amounts, first_exhausted
from donewhen.state.proof.audit import ask_for_reason, read_audit, unaudited
from donewhen.state.proof.claims import split_claims
from donewhen.state.proof.evidence import passages
from donewhen.state.proof.journal import (
    call_key,
    is_failure,
    is_tool_call,
    is_users_word,
    user_statements,
    words_of_entry,
)
from donewhen.state.proof.output import SourceText, trace_values
from donewhen.state.proof.receipt import AuditRow, OutputRow, SentenceRow, denials
from donewhen.state.reading.decisions import AUDIT, control_tools, settling_audit_tool
from donewhen.state.records import WRITES, Call, JournalEntry, StepRecord
from donewhen.state.settings import Settings
from donewhen.state.statuses import record_of

SOURCE_CHARS = 2_000_000
"""The most characters of observations, and of those of earlier requests, that are searched for a result's values."""
CHANGE_CHARS = 3_000
"""The most characters of a change's arguments, and of its outcome; a cut is marked."""
AROUND = 150
"""Characters shown on either side of a cited passage."""
LINE_CHARS = 160
"""The most characters of an observation of which the index shows only the beginning."""
ARGUMENT_CHARS = 1_000
"""The most characters of a read's arguments; a query may have its conditions at the end."""
MOST_LINES = 300
"""The most lines in the index of observations."""
CITED_CHARS = 1_500
"""A cited observation up to this length is shown in full."""
WHOLE_CHARS, ROOM = 4_000, 6_000
"""An observation of up to WHOLE_CHARS is shown in full, as long as all of these together have no more than ROOM: each
look-up sends the request again.
"""
READS = 8
"""The most read tools that the judge may call."""
TOOLS, TOOL_CHARS = 16, 300
"""The most tools of which the judge is told what they do, and the most characters of it."""
EXAMPLE = (
    'A good reply is one call of audit with {"sentences": [{"n": 1, "shown": "yes", "by": ["s1.1"]}], "goal": {"met": '
    '"yes", "missing": []}} and an item for each sentence.'
)
ACCEPTED = "You accepted the sentences under `<accepted>` before; they are delivered as well. They need no item."
NONE_NEW = "(no other sentences; judge the goal)"
NOTES = {"before": "as it was before a change", "part": "the agent saw a part of it"}


@dataclass(frozen=True)
class Subject:
    """The subject of an audit: a text to be delivered, and everything it can rest on."""

    run: Mapping[str, Any]
    """The run's state: goal, conversation, plan, fence, language."""
    text: str
    journal: Sequence[JournalEntry]
    """All observations, oldest first."""
    output: Any = None
    """The structured result, if one is requested."""
    verdicts: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    """Verdicts by step, under `goal` those on the goal's own criteria; the observations they cite are shown."""
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    """Records by step."""
    step: str | None = None
    """The step, if its result is audited instead of the run's answer."""
    last_audit: Json | None = None
    """What `audit` returned for this one, at the last audit of the same work, if there was one."""

    @property
    def fence(self) -> str:
        """The word that frames foreign text."""
        return str(self.run.get("fence") or "")

    @property
    def language(self) -> str:
        """The language of the runtime's texts."""
        return str(self.run.get("language") or "en")

    @property
    def planned_steps(self) -> Sequence[Json]:
        """The steps of the plan."""
        return (self.run.get("plan") or {}).get("steps") or ()

    @property
    def evidence(self) -> list[Json]:
        """What the verdicts cite, each an observation and a quote."""
        return [item for rows in self.verdicts.values() for row in rows for item in row.get("evidence") or ()]


def is_audit_due(settings: Settings, run: Mapping[str, Any], new_entries: Iterable[JournalEntry] = ()) -> bool:
    """Return whether a text must be audited: it rests on reads or changes, or steps of a plan claim to be done.

    `new_entries` are observations that the run's journal does not have yet. The output of an executor that took the
    whole goal is not audited, because no one else is to take part (P16).
    """
    if settings.verification in ("claimed", "grounded") or (run.get("modes") or [{}])[-1].get("by") == "executor":
        return False
    return (
        bool((run.get("plan") or {}).get("steps"))
        or settings.verification == "judged"
        or any(is_tool_call(e) for e in [*(run.get("journal") or ()), *new_entries])
    )


async def audit(context: CallContext, subject: Subject, *, reserve: Amounts = NOTHING) -> tuple[AuditRow, Json | None]:
    """Let the judge read a text; return the findings, and what the next audit of the same work needs of this one.

    The findings have a `problem` if the judge cannot be asked or gives no usable reply. Nothing is kept for the next
    audit if nobody judged the text.
    """
    count = len(context.new_entries)
    audit_row = await _judge(context, subject, reserve)
    if audit_row["problem"] or audit_row.get("nobody"):
        return audit_row, None
    journal = [*subject.journal, *context.new_entries[count:]]
    return audit_row, {"audit": dict(audit_row), **_basis(replace(subject, journal=journal))}


async def _judge(context: CallContext, subject: Subject, reserve: Amounts) -> AuditRow:
    """Return the judge's findings on the text.

    Its look-ups become observations in `context.new_entries`. Sentences that the last audit of the same work accepted
    are not judged again unless something was changed or said since. If nothing at all is new, the last findings are
    returned (V12). `reserve` is what is kept for the end of the run, which an audit may use.
    """
    settings, deps = context.settings, context.deps
    if not can_judge(deps, settings):
        return {**unaudited(""), "nobody": True}
    run = {**subject.run, "steps": subject.steps}
    row = None if subject.output is None else await trace_output(context, subject.output, run, subject.journal)
    unsourced = row.get("unsourced") or () if row else ()
    sentences = split_claims(subject.text, subject.output, subject.language, unsourced)
    if subject.last_audit is not None and _is_unchanged(subject, subject.last_audit, sentences):
        return cast("AuditRow", subject.last_audit["audit"])
    accepted = _accepted_before(subject)
    claims = [sentence for sentence in sentences if sentence not in accepted]
    unknown_changes = [e["id"] for e in subject.journal if e.get("unknown") and not e.get("outside")]
    toolbox = deps.reads(settings)
    used = {e["tool"] for e in subject.journal if is_tool_call(e) and e["effect"] == "read"}
    reads = toolbox.subset([name for name in toolbox if name in used][:READS])
    brief_text = audit_brief(
        await _with_whole_texts(context, subject),
        claims,
        settings.today_text,
        _instructions(context, subject),
        _tool_lines(context, subject),
        accepted=[sentence for sentence in sentences if sentence in accepted],
    )
    get_model, attached = partial(deps.model, "judge", settings), subject.run.get("attachments") or ()
    judge = _Judge(
        context,
        subject,
        claims,
        unknown_changes,
        reads,
        reserve,
        settings.audit_calls,
        messages=[
            SystemMessage(instructions("audit")),
            await brief_message(brief_text, attached, context.runtime, get_model),
        ],
    )
    audit_row = await judge.run(JUDGE)
    if not audit_row["problem"]:
        new = iter(audit_row["sentences"])
        rows = [accepted.get(sentence) or next(new) for sentence in sentences]
        audit_row["sentences"] = [{**row, "n": n} for n, row in enumerate(rows, 1)]
        emit(context.runtime, "audit", step=subject.step, **audit_row)
    return audit_row


async def trace_output(
    context: CallContext, data: Any, run: Mapping[str, Any], journal: Iterable[JournalEntry]
) -> OutputRow:
    """Return the receipt's row on the structured result: the source of each value.

    What the user wrote on the thread, and what earlier requests observed, needs none. Where something was seen that no
    text has, as in an image, nothing is said to be without a source.
    """
    entries, (recalled, others) = [entry for entry in journal if not entry.get("outside")], _earlier_entries(run)
    sources, is_whole = await _load_sources(context, entries)
    earlier, _ = await _load_sources(context, [*recalled, *others])
    words = [str(each.text) for each in conversation_before(run) if isinstance(each, HumanMessage)]
    ids = "\n".join(each.id for each in sources)  # a value may name an observation
    known = [*earlier, *(SourceText("", text) for text in (str(run.get("goal")), *words, ids))]
    row = await asyncio.to_thread(trace_values, data, sources, known)  # may take seconds for megabytes of sources
    is_all_text = not run.get("attachments") and not any(entry.get("images") for entry in (*entries, *recalled))
    return row if is_whole and is_all_text else {**row, "unsourced": []}


async def _load_sources(context: CallContext, entries: Iterable[JournalEntry]) -> tuple[list[SourceText], bool]:
    """Return the full texts of observations as far as there is room, and whether these are all."""
    sources, room = list[SourceText](), SOURCE_CHARS
    for entry in entries:
        if room > 0:
            text = (await context.caller.texts.load(entry))["text"][:room]
            sources.append(SourceText(entry["id"], text, firsthand=entry["source"] != "result"))
            room -= len(text)
    return sources, room > 0


def _earlier_entries(run: Mapping[str, Any]) -> tuple[list[JournalEntry], list[JournalEntry]]:
    """Return the observations of earlier requests, latest first: those that this one recalled or cites, and others."""
    work, ending = (run.get("planning") or {}).get("work") or {}, run.get("ending") or {}
    of_steps = (id for record in (run.get("steps") or {}).values() for id in record["recalled"])
    ids = {*of_steps, *(work.get("recalled") or ()), *(ending.get("earlier") or ())}
    before: list[JournalEntry] = [*reversed(run.get("before") or ())]
    return [each for each in before if each["id"] in ids], [each for each in before if each["id"] not in ids]


@dataclass
class _Judge(Talk[AuditRow]):
    """A judge at work on a text."""

    subject: Subject
    claims: Sequence[str]
    """The sentences to judge."""
    unknown_changes: Sequence[str]
    """Ids of changes with an unknown outcome, which later observations may settle."""
    reads: Toolbox
    reserve: Amounts
    """What is kept for the end of the run, which an audit may use."""
    lookups_left: int
    asked_to_explain: bool = False
    """True once it was asked to explain its verdict, which happens once."""
    audit_row: AuditRow | None = None
    """Its findings, once they are without objection."""

    def left(self) -> Amounts:
        """Return what may still be spent, with the reserve."""
        return self.context.amounts_left(self.reserve)

    def end(self, problem: str) -> AuditRow:
        """Tell people that nobody audited the text, and why; return that as the findings."""
        note = "result_unaudited" if self.subject.step else "answer_unaudited"
        emit_note(self.runtime, self.subject.language, note, step=self.subject.step, why=problem)
        return unaudited(problem)

    def leave(self, obstacle: str) -> AuditRow:
        """End at a limit, and say which."""
        return {**super().leave(obstacle), "lacks": obstacle}

    async def question(self) -> ModelRequest:
        """Return the request: the brief, and what was looked up since."""
        context, subject = self.context, self.subject
        may_look = self.lookups_left > 0
        self.legal, self.tools = (AUDIT, self.reads) if may_look else (AUDIT[:1], None)
        controls = AUDIT if may_look and _may_be_cut(subject, context.new_entries) else AUDIT[:1]
        instead = {"audit": settling_audit_tool()} if self.unknown_changes else {}
        entries = [*(subject.run.get("before") or ()), *subject.journal, *context.new_entries]
        get_model = partial(self.deps.model, "judge", self.settings)
        return ModelRequest(
            "judge",
            await with_images(self.messages, entries, subject.fence, context.runtime, get_model),
            [*control_tools(controls, instead), *(self.reads.definitions() if may_look else ())],
            allowance=self.left(),
            fence=subject.fence,
            must_call=True,
            place={"step": context.caller.id, "round": context.caller.rounds},
            thread=context.thread,
        )

    async def objections(self, decision: Decision) -> list[str]:
        """Return what is wrong with an audit; of a good one, the findings are kept."""
        if decision.kind != "audit":
            return []
        later = _observed_after(self.unknown_changes, [*self.subject.journal, *self.context.new_entries])
        result = read_audit(decision.arguments, self.claims, later)
        if isinstance(result, list):
            return result
        if not self.asked_to_explain and (why := ask_for_reason(result)):
            self.asked_to_explain = True
            return [why]
        self.audit_row = result
        return []

    async def take_audit(self, message: AIMessage, decision: Decision) -> AuditRow | None:
        """Return the findings, which `objections` read."""
        return self.audit_row

    async def look_up(self, message: AIMessage, decision: Decision) -> None:
        """Make the look-ups as far as they are allowed."""
        results = {call["id"]: await self._look_up(call) for call in decision.calls} | decision.refused
        if message.tool_calls or message.invalid_tool_calls:
            answers = reply_messages(message, lambda id: results.get(id, "Not made."))
        else:  # printed calls get their results in one message
            answers = [HumanMessage("\n\n".join(results.values()))]
        self.go_on([message, *answers])

    async def _look_up(self, call: Call) -> str:
        """Make one look-up; return what it found, or why it is not made."""
        context, limit = self.context, observation_limit(self.deps, self.settings, "judge")
        if self.lookups_left <= 0:
            return "Not made: all look-ups are used up. Decide by what you have seen."
        self.lookups_left -= 1
        if call["name"] == "recall":
            entries, caller = [*context.caller.before, *self.subject.journal, *context.new_entries], context.caller
            text, _ = await recall(call, entries, caller.texts, caller.fence, self.settings.observation_chars)
            return text
        if first_exhausted(context.amounts_left(), ("tool_calls",)):
            return "Not made: the limit of tool calls is reached."
        result = await make_read_call(context, call["name"], call["args"])
        if isinstance(result, str):
            return f"Not made: {result}"
        entry = await context.caller.texts.load(result[0])
        return render_observation(entry, limit, fence=self.subject.fence)


JUDGE: Role[_Judge, AuditRow | None] = Role(
    ask=_Judge.question,
    read_text=refuse_text,
    objections=_Judge.objections,
    handlers={"audit": _Judge.take_audit, "calls": _Judge.look_up},
    example=EXAMPLE,
    inside=True,
)


def _may_be_cut(subject: Subject, looked_up: Sequence[JournalEntry]) -> bool:
    """Return whether the judge may be shown less than all of what was observed, so that it needs `recall`."""
    entries = [*subject.journal, *looked_up]
    lengths = [len(entry["text"]) for entry in entries]
    is_long = max(lengths, default=0) > CITED_CHARS or sum(lengths) > ROOM
    return is_long or bool(subject.run.get("before")) or any(entry["stored"] for entry in entries)


def _basis(subject: Subject) -> Json:
    """Return what an audit rests on: ids of the changes, of the user's statements and of all observations; quotes."""
    journal = [e for e in subject.journal if e["source"] != "result" and not e.get("outside")]
    return {
        "changes": sorted(e["id"] for e in journal if e["effect"] in WRITES),
        "words": sorted(each["id"] for each in user_statements({**subject.run, "journal": journal})),
        "observed": sorted(e["id"] for e in journal),
        "cited": sorted(f"{item['observation']} {item.get('quote', '')}" for item in subject.evidence),
    }


def _is_unchanged(subject: Subject, last_audit: Json, sentences: Sequence[str]) -> bool:
    """Return whether the last audit judged these very sentences, and nothing was observed or said since."""
    judged_sentences = [row["text"] for row in last_audit["audit"]["sentences"]]
    return judged_sentences == list(sentences) and all(last_audit[key] == ids for key, ids in _basis(subject).items())


def _accepted_before(subject: Subject) -> dict[str, SentenceRow]:
    """Return the sentences that the last audit accepted, by their text; {} if something was changed or said since."""
    last_audit, basis = subject.last_audit, _basis(subject)
    if last_audit is None or any(last_audit[key] != basis[key] for key in ("changes", "words")):
        return {}
    return {row["text"]: row for row in last_audit["audit"]["sentences"] if row["shown"] == "yes"}


async def _with_whole_texts(context: CallContext, subject: Subject) -> Subject:
    """Return the subject with the full text of all changes and cited observations, which the journal may have cut."""
    cited = {item["observation"] for item in subject.evidence}
    journal = [
        await context.caller.texts.load(entry)
        if entry["stored"] and (entry["id"] in cited or entry["effect"] in WRITES)
        else entry
        for entry in subject.journal
    ]
    return replace(subject, journal=journal)


def _instructions(context: CallContext, subject: Subject) -> str:
    """Return the instructions that the work followed: of the profile, and of the executors that the plan names."""
    deps, settings = context.deps, context.settings
    names = dict.fromkeys(step["executor"] for step in subject.planned_steps if step.get("executor"))
    profiles = [deps.executors[name].profile for name in names if name in deps.executors.active]
    return profile_text(settings.profile, "\n".join(filter(None, profiles)), settings.speaks)


def _tool_lines(context: CallContext, subject: Subject) -> str:
    """Return what the tools say they do, a line each.

    Tools for checks are only listed if the plan names them or they were called; so are all tools if there are more than
    TOOLS.
    """
    toolbox = context.deps.all_tools(context.settings)
    planned = {name for step in subject.planned_steps for name in step.get("tools") or ()}
    in_use = planned | {entry["tool"] for entry in subject.journal if is_tool_call(entry)}
    are_few = len(toolbox) <= TOOLS
    names = [name for name in toolbox if name in in_use or (are_few and not toolbox[name].is_check)][:TOOLS]
    return "\n".join(f"- {name}, {toolbox.effect(name)}: {toolbox[name].summary[:TOOL_CHARS]}" for name in names)


def can_judge(deps: Deps, settings: Settings) -> bool:
    """Return False if the judge's model declares that it cannot judge."""
    try:
        return bool(getattr(deps.model("judge", settings), "judges", True))
    except DoneWhenError:  # asking it will say what is wrong
        return True


def _observed_after(changes: Sequence[str], journal: Sequence[JournalEntry]) -> dict[str, list[str]]:
    """Return, by change, the ids of later reads and words of people, which can settle its outcome."""
    places = {entry["id"]: place for place, entry in enumerate(journal)}
    return {
        id: [e["id"] for e in journal[places[id] + 1 :] if e["ok"] and (e["effect"] == "read" or is_users_word(e))]
        for id in changes
    }


def audit_brief(
    subject: Subject, claims: Sequence[str], today: str, rules: str = "", tools: str = "", accepted: Sequence[str] = ()
) -> str:
    """Render the judge's brief: the goal, the changes, what was cited and observed, and the claims.

    `rules` are the instructions that the work followed, `tools` what the tools say they do, `accepted` the sentences
    of the text that need no verdict again.
    """
    run, fence = subject.run, subject.fence
    changes = [e for e in subject.journal if e["source"] == "tool" and e["effect"] in WRITES and not e.get("outside")]
    ids = {e["id"] for e in changes}
    cited, shown_whole = _cited_passages(subject, ids)
    statements = user_statements({**run, "journal": subject.journal})
    shown_ids = {*ids, *shown_whole, *(each["id"] for each in statements)}
    rest = [e for e in subject.journal if e["id"] not in shown_ids and not e.get("outside")]
    numbered = "\n".join(f"{number}. {claim}" for number, claim in enumerate(claims, 1))
    return brief(
        section("instructions", rules),
        section("tools", tools, fence),
        section("fence", fence),
        section("today", today),
        section("conversation", dialogue_text(conversation_before(run), fence)),
        section("earlier", earlier_index(run), fence),
        section("goal", named_goal(run)),
        section("user_said", statement_lines(statements, None)),
        section("plan", _plan_text(subject), fence),
        framed("changes", "\n".join(_change_lines(changes, run.get("approvals") or ())) or "none", fence),
        section("cited", cited, fence),
        section(
            "observations", _index_of_observations(rest, {item["observation"] for item in subject.evidence}), fence
        ),
        section("accepted", "\n".join(accepted), fence),
        framed("claims", numbered or (NONE_NEW if accepted else "(nothing is delivered)"), fence),
        section("note", ACCEPTED if accepted else ""),
    )


def _plan_text(subject: Subject) -> str:
    """Render the steps with their outcome and criteria; for the audit of a step, only that step."""
    lines = []
    for step in subject.planned_steps:
        if subject.step not in (None, step["id"]):
            continue
        record = record_of(subject.steps, step["id"])
        lines.append(f"{step['id']} ({record['status']}): {step['content']}")
        lines += [f"  done when: {criterion['text']}" for criterion in criteria_of(step)]
        if why := record["unchanged"]:
            lines.append(f"  nothing was changed, because: {why}")
        if reason := record["reason"]:
            lines.append(f"  reason: {reason[:300]}")
    if subject.step is None:
        on_goal = (subject.run.get("plan") or {}).get("done_when") or ()
        lines += [f"in the end: {criterion['text']}" for criterion in on_goal]
    return "\n".join(lines)


def _change_lines(entries: Iterable[JournalEntry], approvals: Iterable[Json]) -> Iterator[str]:
    """Yield the changes with their outcomes; for an unknown one, what the user said about it later."""
    denials_left = denials([*approvals])
    for entry in entries:
        key = call_key(entry["tool"], entry["arguments"])
        outcome = "unknown whether it took effect" if entry.get("unknown") else "failed" if is_failure(entry) else "ok"
        if entry.get("unknown") and denials_left[key]:
            denials_left[key] -= 1
            outcome = "it did not happen, as the user said later"
        arguments = _cut_middle(json.dumps(entry["arguments"], ensure_ascii=False), CHANGE_CHARS)
        text = _cut_middle(entry["text"], CHANGE_CHARS, entry["id"])
        yield f"[{entry['id']}] {entry['tool']} {arguments}\n→ {outcome}: {text}"


def _cut_middle(text: str, most: int, id: str = "") -> str:
    """Return the text, or head and tail of it if it is too long; with an id, it says how `recall` reads the rest."""
    if len(text) <= most:
        return text
    half, how = most // 2, f"; recall {id} reads them" if id else ""
    return f"{text[:half]} [… cut: {len(text) - 2 * half:,} characters{how} …] {text[-half:]}"


def _cited_passages(subject: Subject, changes: Collection[str]) -> tuple[str, set[str]]:
    """Return the cited passages with their context, and the ids of observations shown in full.

    Those of `changes`, by id, are left out, because they have their own section. Short observations are shown in full.
    """
    entries = {e["id"]: e for e in subject.journal if not e.get("outside") and e["id"] not in changes}
    quoted: dict[tuple[str, str], list[str]] = {}
    for item in subject.evidence:
        entry, quote = entries.get(item["observation"]), item.get("quote", "")
        if entry is None or not quote or entry["source"] == "result":
            continue
        notes = [note for key, note in NOTES.items() if item.get(key)]
        about = f" ({', '.join(notes)})" if notes else ""
        quoted.setdefault((entry["id"], about), []).append(quote)
    lines, shown_whole, room = list[str](), set[str](), ROOM
    for (id, about), quotes in quoted.items():
        text = words_of_entry(entries[id])
        if id not in shown_whole and len(text) <= max(CITED_CHARS, min(WHOLE_CHARS, room)):
            shown_whole.add(id)
            room -= len(text)
        text = text if id in shown_whole else passages(text, quotes, AROUND)
        lines.append(f"[{id}] {_source_text(entries[id])}{about}: {text}")
    return "\n".join(lines), shown_whole


def _source_text(entry: JournalEntry) -> str:
    if entry["source"] == "user":
        return "the user said"
    if entry["source"] == "result":
        return "words of the agent"
    by = " (another agent)" if entry.get("transcript") else ""
    by += " (in an earlier request)" if ":" in entry["id"] else ""
    arguments = json.dumps(entry["arguments"], ensure_ascii=False) if entry["arguments"] else ""
    arguments = _cut_middle(arguments, ARGUMENT_CHARS)
    return f"{entry['tool']}{by} {arguments} {'ok' if entry['ok'] else 'failed'}".strip()


def _index_of_observations(entries: Sequence[JournalEntry], cited: Collection[str]) -> str:
    """Render the latest of these observations, without the results of steps, oldest first.

    While there is room, the texts of cited observations are whole, and then those of the latest; others are cut.
    """
    observations = [e for e in entries if e["source"] != "result"]
    listed = observations[-MOST_LINES:]
    latest = {_call_and_result(e): e["id"] for e in listed}
    room, shown_whole = ROOM, set[str]()
    for _, entry in sorted(enumerate(listed), key=lambda row: (row[1]["id"] in cited, row[0]), reverse=True):
        fits = len(entry["text"]) <= min(WHOLE_CHARS, room) or entry["source"] == "user"
        if fits and latest[_call_and_result(entry)] == entry["id"]:
            shown_whole.add(entry["id"])
            room -= len(entry["text"])
    left_out = len(observations) - len(listed)
    lines = [f"[… {left_out} earlier ones are left out]"] if left_out else []
    for entry in listed:
        same, text = latest[_call_and_result(entry)], words_of_entry(entry)
        if same != entry["id"]:
            text = f"the same as {same}"
        elif entry["id"] not in shown_whole:
            first = " ".join(text[: 2 * LINE_CHARS].split())[:LINE_CHARS]
            text = f"{first} [… cut: {entry['length']:,} characters in all; recall reads them]"
        lines.append(f"[{entry['id']}] {_source_text(entry)}: {text}")
    return "\n".join(lines)


def _call_and_result(entry: JournalEntry) -> tuple[Any, ...]:
    return entry["source"], entry["tool"], json.dumps(entry["arguments"], sort_keys=True), entry["digest"]
