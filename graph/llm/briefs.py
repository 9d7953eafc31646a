"""Render the beginning of a request to a model: the brief of its role, in tagged sections, and the offered tools.

Equal states give equal texts and tools. `find_tools` finds the tools that are not offered; tools that a plan or step
names always are, as far as the provider takes so many.
"""

import copy
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from donewhen.graph.context import Deps
from donewhen.graph.executors.executor import Card
from donewhen.graph.llm.dialogue import dialogue, dialogue_text
from donewhen.graph.llm.history import SEEN_ROOM, earlier_index, observation_index
from donewhen.graph.llm.output import schema_form
from donewhen.graph.tools.program import function_lines
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.prompts import brief, framed, frames, section
from donewhen.state.channels import PLANNING, Json, Step, conversation_before, named_goal
from donewhen.state.criteria import criteria_of
from donewhen.state.plan.order import ancestors
from donewhen.state.plan.plan import answering_step
from donewhen.state.plan.planning import starting_plan
from donewhen.state.plan.steps import transcript_key
from donewhen.state.plan.text import check_text
from donewhen.state.proof.journal import APPROVED, find_later_change, user_statements
from donewhen.state.reading.decisions import PROGRAM, answering_finish_tool, control_tools
from donewhen.state.records import Call, PlanningRecord
from donewhen.state.settings import Profile, Settings
from donewhen.state.values import with_name

LEAST_SEEN_CHARS = 4_000
"""The least characters of observations in a brief of a long plan; short plans show more."""
SAID_CHARS = 2000
"""The most characters of one statement of the user."""
ONLY_STEP = "This step is the whole plan: its `result` is delivered to the user as the answer, as it stands."
LAST_STEP = "The `result` of this step is delivered to the user as the answer to `<goal>`, as it stands."
EXECUTORS = (
    "Others who can work on a step. Name one in the step's `executor`, by the exact id before the colon, if its "
    "description, skills or tools fit the step better than the tools above; otherwise the default executor works on "
    "it. Who works on a step reads the step, the goal, and the results of the steps it depends on: spell out in "
    "`content` what “it” or “the second one” is."
)
MORE_TOOLS = "Beside yours there are, for steps:"
NOTES = {
    "criteria": "What `<criteria>` says is added to `done_when` of your plan by itself: plan steps that meet it.",
    "approved_plan": "Submit only what changes in `<approved_plan>`: steps and criteria of the goal that you do not "
    "name stay as they are. New steps take the place of those that failed. To change an open step, name its `id` and "
    "what is new in it. A step that replaces others names them in `replaces`, also a finished one that no longer "
    "holds: what was built on it is then done again by itself. `drop` has what should go.",
    "only_step": "Its only step has the criteria of the goal: name them again, in their words, or `drop` them.",
    "edited": "The user edited this plan: what it says is what they want.",
    "before": "`<earlier>` lists what earlier requests observed: `recall` reads it, and its ids can be cited. Look "
    "again at what may have changed since.",
    "failure": "Find another way than the one that failed, or ask, or decline.",
    "feedback": "Change what the user says under `<feedback>`, and keep the rest of the plan.",
    "words": "The user was shown the plan under `<proposal>` and says what is under `<feedback>`. If they ask "
    "something, `answer` it: the plan stays before them as it is. If something should be different, submit the plan "
    "so, and keep the rest. If they agree to exactly this plan, in whatever words, and ask nothing, `accept_plan`; "
    "without such a tool, `answer` that a plain yes starts it. You cannot end it for them: if they no longer want it, "
    "`answer` that “cancel” ends it.",
    "output_schema": "The result is wanted as data of `<output_schema>`: let the steps find out what it needs. It is "
    "made from their results at the end, without a step of its own.",
}
"""Explanations of the sections that only some planning briefs have."""
CARD_CHARS = 600
"""The most characters of an executor's description, and of its skills."""
RESULT_AS_DATA = (
    "It is wanted as data: let `result` be JSON of this schema and nothing else, null or left out where unknown: "
)
RESULT_CHARS = 4000
ALL_RESULTS_CHARS = 40_000
"""The most characters of all results in one brief, shared equally."""
QUESTION_CHARS = 600
"""The most characters of a question that the user answered."""
PROOF_CHARS = 300
"""The most characters of an observation that is cited without a quote, in the delivery's brief."""


MISSING_TOOLS = (
    "The plan names tools for this step that are not there now: {}. If it cannot be done without them, say so."
)
FIND_TOOLS = "find_tools"
MOST_FOUND = 8
"""The most tools that one call of `find_tools` returns."""
MOST_CONTROLS = 8
"""The most control tools of one request."""


@dataclass(frozen=True)
class Offer:
    """The part of many tools that a model is shown."""

    bound: Sequence[str] = ()
    """Tools that it can call, with their definitions."""
    listed: Sequence[str] = ()
    """Tools shown by a line each: a plan may name them, and a step may find them by `find_tools`."""
    more: int = 0
    """The number of further tools."""

    def legal(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return these control tools, with `find_tools` if there are further tools."""
        return (*names, FIND_TOOLS) if self.more else tuple(names)

    def definitions(self, controls: Collection[str], toolbox: Toolbox, *, answers: bool = False) -> list[Json]:
        """Return the definitions for a request: these control tools, `find_tools` with its lines, and the bound tools.

        `answers`: the result of the step is the answer.
        """
        lines = "\n".join(f"- {name}: {toolbox[name].summary}" for name in self.listed)
        instead = {FIND_TOOLS: _with_lines(FIND_TOOLS, lines)} if lines else {}
        instead |= {"finish_step": answering_finish_tool()} if answers else {}
        if PROGRAM in controls and (functions := function_lines(toolbox[name] for name in self.bound)):
            instead[PROGRAM] = _with_lines(PROGRAM, functions)
        return [*control_tools(controls, instead), *toolbox.definitions(self.bound)]


@lru_cache(maxsize=256)
def _with_lines(name: str, lines: str) -> Json:
    """Return a control tool's definition with these lines; the same object each time, as a prepared model needs."""
    tool: Json = copy.deepcopy(control_tools([name])[0])
    tool["function"]["description"] += f"\n{lines}"
    return tool


async def offer_for_planning(deps: Deps, settings: Settings, goal: str, planning: PlanningRecord) -> Offer:
    """Offer tools to planning: `Settings.tool_selection` less two for `find_tools`; nearly half of them for looking."""
    toolbox, seen = deps.all_tools(settings), _newest_last(planning["work"]["found_tools"])
    named = {name for step in starting_plan(planning).get("steps", ()) for name in step.get("tools") or ()}
    reads, most = deps.reads(settings), settings.tool_selection
    quick = planning["phase"] == "triage" and not planning["work"]["by_planner"]
    room = _room(deps, min(len(reads), most) + len(seen), "triage" if quick else "plan", settings)
    if len(toolbox) <= most and room is None:
        return Offer([*reads], [name for name in toolbox if name not in reads])
    seen = _newest(seen, room)
    left = None if room is None else room - len(seen)
    bound = await deps.finder.choose(goal, reads, max(most // 2 - 2, 1), _users_words(reads), left)
    shown = await deps.finder.choose(goal, toolbox, max(most - 2, 1), {*bound, *named})
    new = [name for name in seen if name in toolbox and name not in shown]
    listed = [name for name in [*shown, *new] if name not in bound and name not in (set(new) & {*reads})]
    return Offer([*bound, *(name for name in new if name in reads)], listed, len(toolbox) - len(shown) - len(new))


def _users_words(toolbox: Toolbox) -> list[str]:
    """Return the tools that read the user's own words, such as skills; they are always offered."""
    return [name for name in toolbox if toolbox[name].users_text]


async def offer_for_step(deps: Deps, settings: Settings, toolbox: Toolbox, state: Step) -> Offer:
    """Offer tools to a step: those it lists and all that read; of too many, the likely ones.

    A step that lists none may find the others, of which it sees a line each. One that lists `[]` writes text from what
    is known. Tools for checks are not offered. Found tools come last, so that nothing before them changes.
    """
    step, record = state["step"], state["record"]
    listed = step.get("tools")
    if listed is not None and not listed:
        return Offer(_users_words(toolbox))
    work = [name for name in toolbox if not toolbox[name].is_check or name in (listed or ())]
    useful = [name for name in work if name in (listed or ()) or toolbox.effect(name) == "read"]
    others = [name for name in work if name not in useful] if listed is None else []
    fit, more = useful, len(others)
    found = _newest_last(name for name in record["found"] if name in toolbox)
    room = _room(deps, len({*useful, *found}), "execute", settings, step.get("executor"))
    found = _newest(found, room)
    if len(useful) > settings.tool_selection or room is not None:
        wanted = " ".join([step["content"], *(criterion["text"] for criterion in step.get("done_when") or ())])
        needed = {*(listed or ()), *_users_words(toolbox)}
        left = None if room is None else room - len(found)
        fit = await deps.finder.choose(wanted, toolbox.subset(useful), settings.tool_selection - 1, needed, left)
        more = len(work) - len(fit)
    return Offer([*fit, *(name for name in found if name not in fit)], others[: settings.tool_selection], more)


def _room(deps: Deps, count: int, role: str, settings: Settings, executor: str | None = None) -> int | None:
    """Return how many tools a request may have beside the control tools; None if `count` of them are not too many."""
    most = deps.most_tools(count + MOST_CONTROLS, role, settings, executor)
    return None if most is None else max(most - MOST_CONTROLS, 2)


def _newest_last(found: Iterable[str]) -> list[str]:
    """Return the tools that `find_tools` found, each once, in the order in which they were found last."""
    return [*dict.fromkeys(reversed([*found]))][::-1]


def _newest(found: list[str], room: int | None) -> list[str]:
    """Return the newest found tools, at most half of the room or one search; all of them if the room is unlimited."""
    return found if room is None else found[-min(max(room // 2, MOST_FOUND), room) :]


async def find_tools(deps: Deps, toolbox: Toolbox, call: Call, known: Collection[str], fence: str) -> Json:
    """Answer a `find_tools` call: return `text` for the model, and the `names` of tools to offer from now on."""
    rest = toolbox.subset([name for name in toolbox if name not in known and not toolbox[name].is_check])
    names = (await deps.finder.best(str(call["args"]["query"]), rest))[:MOST_FOUND]
    lines = [
        f"- {name} ({rest.effect(name)}): {rest[name].summary} "
        f"Arguments: {json.dumps(rest[name].schema.get('properties', {}), ensure_ascii=False)}"
        for name in names
    ]
    note = "These are offered to you from now on." if names else "You have been offered all tools that there are."
    shown = f"\n{framed('tool_output', chr(10).join(lines), fence)}" if lines else ""
    return {"text": f"{FIND_TOOLS} ok: {note}{shown}", "names": names}


def profile_text(profile: Profile, extra: str = "", language: str | None = None) -> str:
    """Render the profile as the end of a system prompt; "" if it is empty. `extra` is an executor's own."""
    parts = [extra, f"Your name: {profile.name}" if profile.name else "", profile.role, profile.backstory]
    parts += [*(f"Goal: {goal}" for goal in profile.goals), *(f"Task: {task}" for task in profile.tasks)]
    parts += [f"Tone: {profile.tone}"] if profile.tone else []
    parts += list(profile.soft)
    parts += [f"Never touch paths outside of: {', '.join(profile.allowed_paths)}"] if profile.allowed_paths else []
    parts += [f"Write to the user in this language: {language}"] if language else []
    lines = [f"- {' '.join(part.split())}" for part in parts if part.strip()]
    who = "\n".join(["Who you are here:", *lines]) if lines else ""
    return "\n\n".join(part for part in (who, profile.instructions.strip()) if part)


def planning_brief(deps: Deps, settings: Settings, facts: Mapping[str, Any], offer: Offer, *, full: bool) -> str:
    """Render the planner's brief; parts that are the same for all goals come first, so that prompt caches hit.

    `offer`: the tools that the planner can call, and others that a plan may name. `full`: for the draft, which is also
    shown the schema of a result that is wanted as data.
    """
    toolbox, fence = deps.all_tools(settings), facts.get("fence") or ""
    schema = facts.get("output_schema") if full else None
    statements = [
        each for each in facts.get("said") or () if each["text"] != facts.get("feedback") or each.get("question")
    ]
    steps: Sequence[Any] = (facts.get("approved_plan") or {}).get("steps") or ()
    only_step = len(steps) == 1 and "done_when" not in steps[0]
    noted = {**facts, "output_schema": schema, "criteria": settings.done_when, "only_step": only_step}
    noted["feedback"] = facts.get("feedback") and not facts.get("words")
    lines = [MORE_TOOLS] if offer.bound and offer.listed else []
    lines += [_tool_line(toolbox, name) for name in offer.listed]
    lines += [f"({offer.more} more tools, less likely to fit; find_tools finds them)"] if offer.more else []
    return brief(
        section("tools", "\n".join(lines) or ("" if offer.bound else "(none)")),
        section("executors", _executor_lines(facts.get("cards") or {}, deps, settings)),
        section("limits", f"at most {settings.max_steps} steps"),
        section("mode", facts.get("mode") or ""),
        section("language", settings.speaks or ""),
        section("fence", fence),
        section("today", facts.get("today") or ""),
        section("conversation", dialogue_text(facts.get("conversation") or (), fence)),
        section("earlier", earlier_index(facts), fence),
        *_background_sections(facts, fence),
        section("goal", with_name(facts.get("asker"), facts["goal"])),
        frames("seen", facts.get("seen") or "", fence),
        section("approved_plan", _json_text(_without_defaults(facts.get("approved_plan"))), fence),
        section("wants", facts.get("wants") or "", fence),
        section("failure", facts.get("failure") or "", fence),
        section("proposal", _json_text(_without_defaults(facts.get("proposal"))), fence),
        section("user_said", statement_lines(statements)),
        section("feedback", facts.get("feedback") or ""),
        section("output_schema", schema_form(schema).text if schema else ""),
        section("criteria", "\n".join(f"- {criterion.text}" for criterion in settings.done_when)),
        section("note", "\n".join(note for name, note in NOTES.items() if noted.get(name))),
    )


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""


def _without_defaults(value: Any) -> Any:
    """Leave out unset fields, and render criteria that are only a text as that text; a model reads it, not code."""
    if isinstance(value, Mapping):
        fields = {k: _without_defaults(v) for k, v in value.items() if v not in (None, False) and k != "revision"}
        return fields["text"] if list(fields) == ["text"] else fields
    return [_without_defaults(item) for item in value] if isinstance(value, list) else value


def _executor_lines(cards: Mapping[str, Card], deps: Deps, settings: Settings) -> str:
    """Render the executors that a step may name; "" if there are none."""
    lines = [_executor_line(name, card, deps, settings) for name, card in cards.items()]
    return "\n".join([EXECUTORS, *lines]) if lines else ""


def _executor_line(name: str, card: Card, deps: Deps, settings: Settings) -> str:
    parts = [" ".join(card.description.split())[:CARD_CHARS]] if card.description.strip() else []
    skills = "; ".join(" ".join(skill.split()) for skill in card.skills)[:CARD_CHARS]
    parts += [f"Skills: {skills}."] if skills else []
    if deps.executors[name].tools is not None:
        parts += [f"Its tools: {', '.join(deps.tools_for(name, settings)) or 'none'}."]
    return f"- {name}: {' '.join(parts)}"


def _tool_line(toolbox: Toolbox, name: str) -> str:
    tool = toolbox[name]
    arguments, required = tool.schema.get("properties", {}), tool.schema.get("required", ())
    shown = (_argument(each, about, optional=each not in required) for each, about in arguments.items())
    called = f"{name}({', '.join(shown)})"
    return f"- {called}, {'only in a `check`' if tool.is_check else tool.effect}: {tool.summary}"


def _argument(name: str, about: Any, *, optional: bool) -> str:
    """Return an argument as planners see it: whether it may be left out, and whether it is a list or an object."""
    forms = [about, *about.get("anyOf", ())] if isinstance(about, Mapping) else []
    kinds = {kind for form in forms if isinstance(form, Mapping) for kind in _as_list(form.get("type"))}
    shape = next((word for kind, word in (("array", "list"), ("object", "object")) if kind in kinds), "")
    return f"{name}{'?' if optional else ''}{f': {shape}' if shape else ''}"


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def step_brief(
    values: Mapping[str, Any],
    step: Mapping[str, Any],
    needed: Collection[str],
    replaced: Collection[str],
    *,
    today: str = "",
    missing: Sequence[str] = (),
) -> str:
    """Render the executor's brief: its step, the goal, the user's words, the results and observations it builds on.

    `needed` are the steps that it depends on, `replaced` those that a later plan replaced. `missing` are tools that the
    plan names for the step and that are not there now.
    """
    plan, records, fence = values["plan"], values.get("steps") or {}, values.get("fence", "")
    results = {id: records[id]["result"] for id in needed}
    most = _chars_per_result(sum(map(bool, results.values())))
    shown = [section("result", _shorten_result(text, id, most), fence, step=id) for id, text in results.items()]
    criteria = [_criterion_line(number, criterion) for number, criterion in enumerate(criteria_of(step), 1)]
    gathered = "\n".join(part for part in shown if part)
    journal = values.get("journal") or ()
    statements = user_statements(values, transcript_key(step["id"], records[step["id"]]))
    note = "" if answering_step(plan) != step["id"] else ONLY_STEP if len(plan["steps"]) == 1 else LAST_STEP
    if note and (schema := values.get("output_schema")):
        note = f"{note} {RESULT_AS_DATA}{schema_form(schema).text}"
    own = {step["id"]} if records[step["id"]]["attempt"] > 1 else set()  # of its earlier attempts
    seen = [
        observation_index(journal, {PLANNING, *replaced, *own}, fence),
        observation_index(journal, needed, fence, max(SEEN_ROOM // len(plan["steps"]), LEAST_SEEN_CHARS)),
    ]
    return brief(
        section("fence", fence),
        section("today", today),
        section("conversation", dialogue_text(conversation_before(values), fence)),
        section("earlier", earlier_index(values), fence),
        *_background_sections(values, fence),
        section("goal", named_goal(values)),
        section("user_said", statement_lines(statements)),
        f"<results>\n{gathered}\n</results>" if gathered else "",
        frames("seen", "\n".join(part for part in seen if part), fence),
        section("step", step["content"], id=step["id"]),
        section("note", note),
        section("note", MISSING_TOOLS.format(", ".join(missing)) if missing else ""),
        section("done_when", "\n".join(criteria)),
    )


def handover_text(values: Mapping[str, Any], step: Mapping[str, Any], today: str = "", *, whole: bool = False) -> str:
    """Render a step in plain words, for an agent elsewhere that takes the text for a request of its own user.

    Foreign text is quoted. With `whole`, a step that is the request itself is the user's words and nothing else.
    """
    id, records = step["id"], values.get("steps") or {}
    statements = [one for one in user_statements(values, transcript_key(id, records[id])) if one["text"] != APPROVED]
    same = step["content"].split() == values["goal"].split()
    if whole and same:
        return "\n\n".join([values["goal"], *(one["text"].strip() for one in statements)])
    results = {other: records[other]["result"] for other in ancestors(values["plan"], id)}
    most = _chars_per_result(sum(map(bool, results.values())))
    criteria = [f"{number}. {each['text']}" for number, each in enumerate(step.get("done_when") or (), 1)]
    parts = {
        "It is one step of this request:": "" if same else _quoted(named_goal(values)),
        "The user also said:": statement_lines(statements, with_ids=False),
        "What was said before:": _quoted(_plain_conversation(values)),
        "What is known besides:": _quoted("\n".join((values.get("background") or {}).values())),
        "What came of the steps before it:": "\n\n".join(_quoted(text[:most]) for text in results.values() if text),
        "It is done when:": "\n".join(criteria),
    }
    rows = [f"{head}\n{text}" for head, text in parts.items() if text]
    return "\n\n".join([step["content"], *rows, *([f"Today is {today}."] if today else [])])


def _plain_conversation(values: Mapping[str, Any]) -> str:
    """Render the newest of the conversation before this request, a speaker's name before each message."""
    sayings = dialogue(conversation_before(values))
    return "\n".join(f"{each.by.capitalize()}: {each.text}" for each in sayings)


def _quoted(text: str) -> str:
    """Return the text as mail quotes it, each line behind `> `."""
    return "\n".join(f"> {line}" for line in text.strip().splitlines())


def _background_sections(values: Mapping[str, Any], fence: str) -> list[str]:
    """Render the application's `context` and `memory` for this request."""
    background = values.get("background") or {}
    return [section(name, text, "" if name == "agents_md" else fence) for name, text in background.items()]


def statement_lines(
    statements: Sequence[Mapping[str, str]], most: int | None = SAID_CHARS, *, with_ids: bool = True
) -> str:
    """Render the user's own words in this run, `most` characters of each; None for all.

    They begin with their ids, by which they can be cited. They are not framed as data, because they are to be followed
    (C10).
    """
    lines = []
    for one in statements:
        asked = " ".join(one.get("question", "").split())[:QUESTION_CHARS]
        id = f"[{one['id']}] " if with_ids else ""
        lines.append(f"- {id}{f'(asked: {asked}) ' if asked else ''}{one['text'].strip()[:most]}")
    return "\n".join(lines)


def _chars_per_result(count: int) -> int:
    """Return the most characters of each of so many results."""
    return min(RESULT_CHARS, ALL_RESULTS_CHARS // max(count, 1))


def _shorten_result(text: str, id: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f'{text[:most]}\n… {len(text) - most} characters left out; recall(observation="{id}.result") reads them …'


def _criterion_line(number: int, criterion: Mapping[str, Any]) -> str:
    check = criterion.get("check")
    notes = f" (checked by the runtime: {check_text(check)})" if check else ""
    notes += f" (shown by planned call {criterion['call']}, if it succeeded)" if criterion.get("call") else ""
    return f"{number}. {criterion['text']}{notes}"


def delivery_brief(
    values: Mapping[str, Any], receipt: Mapping[str, Any], settings: Settings, reason: str, fence: str = ""
) -> str:
    """Render the delivery's brief: the receipt in words, with the observations that are its evidence."""
    journal = values.get("journal") or ()
    seen = {entry["id"]: entry["text"] for entry in journal}
    cited = {e["observation"] for row in receipt["steps"] for item in row["criteria"] for e in item["evidence"]}
    reads = [n for n, each in enumerate(journal) if each["id"] in cited and each["effect"] == "read"]
    outdated = {journal[n]["id"] for n in reads if find_later_change(journal, n)}
    most = _chars_per_result(sum(1 for row in receipt["steps"] if row["result"]))
    goal_criteria = (values.get("plan") or {}).get("done_when") or ()
    why = f" ({reason})" if reason and receipt["status"] != "completed" else ""
    lines = [f"status: {receipt['status']}{why}"]
    for row in receipt["steps"]:
        lines.append(f"step {row['id']} {row['status']}: {row['content']}")
        lines += [framed(key, row[key][:most], fence, step=row["id"]) for key in ("result", "reason") if row[key]]
        lines += [_proof_lines(item, seen, outdated, fence, with_ids=bool(goal_criteria)) for item in row["criteria"]]
    return brief(
        section("fence", fence),
        section("goal", named_goal(values)),
        section("user_said", statement_lines(user_statements(values))),
        section(
            "done_when",
            "\n".join(_criterion_line(number, criterion) for number, criterion in enumerate(goal_criteria, 1)),
        ),
        section("receipt", "\n".join(lines)),
        section("language", settings.speaks or ""),
    )


def _proof_lines(
    item: Mapping[str, Any], seen: Mapping[str, str], outdated: Collection[str], fence: str, *, with_ids: bool
) -> str:
    """Render a criterion, its verdict, and its proof: the quote, else the beginning of the observation.

    The ids of the observations are for a delivery that has to cite them, for criteria of the goal; what was read of
    something that was changed later (`outdated`) is marked.
    """
    proofs = []
    for e in item["evidence"]:
        proof = " ".join(str(e.get("quote") or seen.get(e["observation"], ""))[:PROOF_CHARS].split())
        note = ", as it was before a change" if e["observation"] in outdated else ""
        proofs += [f"[{e['observation']}{note}] {proof}" if with_ids else proof] if proof else []
    said = "; ".join(proofs)
    line = f"criterion {item['text']}: {item['verdict']}"
    return f"{line}\n{framed('proof', said[:1000], fence)}" if said else line
