"""The plan and its approval: the pause, the rules that an edited plan has to keep, and the record of an approval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, cast

from donewhen.graph.context import Deps
from donewhen.graph.executors.executor import Executors, NamedTools
from donewhen.graph.pauses.pause import PermissionPause, ResolvedAnswer
from donewhen.graph.sync import load_jsonschema
from donewhen.graph.tools.toolbox import KnownTool
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError
from donewhen.state.language.texts import Unclear, catalogue, say, say_why, unclear
from donewhen.state.people.answers import Answer, AnswerKind, AnswerShape, decode_json, may_answer
from donewhen.state.people.edit import add_line_number, edit_plan, is_plan_text, plan_document
from donewhen.state.plan.plan import Rules, read_plan, revision_of
from donewhen.state.plan.planning import close_planning, plan_with_words, unfinished_steps
from donewhen.state.plan.revise import moved_tools, plan_changes, shown_tools
from donewhen.state.plan.rules import broken_rules
from donewhen.state.plan.schedule import next_moments
from donewhen.state.plan.steps import fresh_records
from donewhen.state.plan.text import moments_text, plan_text, schedule_text
from donewhen.state.records import PLAN_ACTION, Approval, Pause
from donewhen.state.settings import Settings
from donewhen.state.statuses import record_of

CLOSED = {"approve": "Approved.", "edit": "Approved with changes.", "cancel": "Cancelled."}


class PlanPause(PermissionPause):
    """The pause that shows a plan for approval."""

    topic: ClassVar[str] = "plan"
    action: ClassVar[str] = PLAN_ACTION
    decisions: ClassVar[tuple[str, ...]] = ("approve", "edit", "reject")
    shown: ClassVar[tuple[str, ...]] = ("plan", "reply", "limits", "next_runs", "living", "template", "draft")
    ids: ClassVar[str] = r"confirm\.[0-9a-f]+"
    node: ClassVar[Literal["confirm", "ask_user"]] = "confirm"
    words_are: ClassVar[AnswerKind] = "say"
    edit_shape: ClassVar[str] = '{"type": "edit", "plan": {"steps": […], …}}'

    kind: str = "plan"
    plan: Json = {}
    revision: str | None = None
    limits: Json = {}
    writes: list[str] = []
    writes_known: list[str] = []
    effects: dict[str, str] = {}
    agents: list[str] = []
    next_runs: list[str] | None = None
    living: list[Json] = []
    template: Json | None = None
    changes: list[str] = []
    reply: str | None = None
    before: Json | None = None

    # --- its texts

    @property
    def speak(self) -> str:
        """What the planner says to the plan."""
        return str(self.plan.get("speak") or "").strip()

    def details(self) -> list[str]:
        """Return the plan."""
        return [plan_text(self.dump()).strip()]

    def message_text(self, *, choices: bool = True) -> str:
        """Return the plan with its title. One that the person has seen is not written again."""
        return self._message()

    def text(self, *, whole: bool = False) -> str:
        """Return the text in this order: problem of or reply to the last answer, planner's words, plan, question.

        Whoever has read the plan reads that it is unchanged, or only what changed. The `whole` text has all, as has
        that for somebody named, because others may have read the ones before. Raises ConfigError for a row of a list,
        which has no plan, but its own `text`.
        """
        if "steps" not in self.plan:
            raise ConfigError("this question has no plan in it, as in the rows of Agent.pending: read its `text`")
        return self._message(self.speak, whole=whole)

    def _message(self, speak: str = "", *, whole: bool = False) -> str:
        whole = whole or bool(self.answered_by)
        if not whole and (self.reply or self.problem):
            parts = [f"{say(self.spoken, 'plan', 'unchanged')} {self.wording()}"]
        else:
            written = plan_text(self.dump(), None if whole else self.before).strip()
            parts = [speak, written, self.wording()]
        return self.with_problem("\n\n".join(filter(None, parts)))

    def with_problem(self, text: str) -> str:
        """Return a text with what is wrong with the last answer, or what the planner replied to it."""
        return super().with_problem("\n\n".join(filter(None, (self.reply, text))))

    def description(self) -> str:
        """Return only the title with the question."""
        title = self.plan.get("title")
        return self.with_problem(f"{title}: {self.wording()}") if title else super().description()

    def editable_plan(self) -> str:
        """Return the plan as text to be edited: a rejected edit, else the proposal."""
        return self.draft or plan_document(self.dump())

    def action_arguments(self) -> dict[str, str]:
        """Return the plan as text."""
        return {"plan": self.editable_plan()}

    def short_arguments(self) -> dict[str, str]:
        """Return what names the plan, which is shown in the text and the action."""
        return {"title": str(self.plan.get("title") or ""), "revision": self.revision or ""}

    def payload(self) -> Json:
        """Return the interrupt value with the revision, which an answer may name."""
        return {**super().payload(), "revision": self.revision}

    # --- an answer to it

    def find_stale(self, shape: AnswerShape) -> str | None:
        """Return why the answer is for another question, or for another revision of the plan."""
        revision, edited = self.revision or self.plan.get("revision"), decode_json(shape.fields.get("plan"))
        named = {str(edited["revision"])} if isinstance(edited, Mapping) and edited.get("revision") else set()
        if stale := super().find_stale(shape):
            return stale
        if revision is not None and (shape.revisions | named) - {str(revision)}:
            return f"stale: the answer is for another revision of the plan; revision {revision} waits."
        return None

    def understand(self, shape: AnswerShape) -> Answer | Unclear | None:
        """Return a decision, an edit, or what is said about the plan."""
        if decided := self.read_button(shape):
            return decided
        if shape.verb not in ("text", "respond"):
            return None
        if is_plan_text(shape.text):
            return self.read_edit(AnswerShape("edit", fields={"plan": shape.text}))
        return self.read_text(shape.text)

    def says_no(self) -> Answer | Unclear:
        """Ask back, because a “no” alone gives the planner nothing to plan with."""
        return unclear("what_instead")

    def read_edit(self, shape: AnswerShape) -> Answer | Unclear:
        """Return the whole edited plan; without a change it is approved."""
        if shape.action not in (None, self.action):
            return unclear("not_the_plan", action=shape.action)
        edit = edit_plan(shape.fields, self.plan, self.limits)
        if isinstance(edit, Unclear):
            return edit
        changed = edit.changed or edit.limits
        return Answer("edit", plan=edit.plan, amounts=edit.limits, lines=edit.lines) if changed else Answer("approve")

    def planned_words(self) -> Sequence[str]:
        """Return the title and the steps."""
        return [str(self.plan.get("title") or ""), *(str(step.get("content")) for step in self.plan.get("steps") or ())]

    def check(self, values: Mapping[str, Any], answer: Answer, deps: Deps, settings: Settings) -> Answer | str:
        """Return an edited plan if it keeps all rules for plans, else everything that is wrong with it."""
        if answer.plan is None:
            return super().check(values, answer, deps, settings)
        plan = self._validate(values, answer, deps, settings)
        if isinstance(plan, str):
            return plan
        return replace(answer, plan=plan, effects=plan_effects(plan, deps, settings).kinds)

    def _validate(self, values: Mapping[str, Any], answer: Answer, deps: Deps, settings: Settings) -> Json | str:
        """Return the edited plan, whole. Finished steps must stay in it unchanged."""
        planning, steps = values["planning"], self.plan["steps"]
        finished = {id: row for id, row in planning["finished"].items() if id not in planning["change"]["stale"]}
        done = {step["id"]: step for step in steps if step["id"] in finished}
        edited = dict(answer.plan or {})
        listed = edited.get("steps") if isinstance(edited.get("steps"), list) else []
        steps_by_id = {step.get("id"): step for step in listed or () if isinstance(step, Mapping)}
        if touched := [
            str(id) for id, step in done.items() if id not in steps_by_id or {**step, **steps_by_id[id]} != step
        ]:
            return say(self.spoken, "unclear", "finished_stay", steps=", ".join(touched))
        rules = plan_rules(deps, settings, finished, self.plan, values)
        repeated = {id: row["content"] for id, row in planning["finished"].items() if id not in finished}
        rules = replace(rules, unfinished={**repeated, **rules.unfinished})
        most = max(settings.max_steps, len(steps))
        plan = read_plan(edited, replace(rules, max_steps=most, repeats=deps.repeats and not values.get("approval")))
        if isinstance(plan, list):
            reasons = "; ".join(add_line_number(each, answer.lines) for each in plan)
            return say(self.spoken, "unclear", "edited_plan", reasons=reasons)
        if moved := moved_tools(self.plan, plan, self.spoken):
            return say(self.spoken, "unclear", "moved", id=self.id, moved="; ".join(moved))
        whole = {**plan, "steps": [done.get(step["id"], step) for step in plan["steps"]]}
        return {**whole, "revision": revision_of(whole)}

    def tools_after(self, values: Mapping[str, Any], answer: Answer) -> list[tuple[str | None, NamedTools]]:
        """Return the tools that the steps of an approved plan list.

        Those of an edited plan are checked by the rules for plans. A plan with a schedule starts nothing now.
        """
        if answer.kind != "approve" or self.plan.get("schedule"):
            return []
        records, shown = values.get("steps") or {}, shown_tools(self.plan)
        left = (step for step in self.plan["steps"] if record_of(records, step["id"])["status"] != "done")
        return [(step.get("executor"), {name: shown[name] for name in step.get("tools") or ()}) for step in left]

    # --- what an answer changes

    def closing(self, answer: Answer) -> str:
        """Return what was decided about the plan."""
        verb = "Said" if answer.kind == "say" else "Rejected"
        return CLOSED.get(answer.kind) or f"{verb}: {answer.text}".rstrip(": ")

    def apply(self, values: Mapping[str, Any], decided: ResolvedAnswer) -> Json:
        """Return the run's update: the plan starts, the run ends, or the planner reads what was said."""
        answer, approval = decided.answer, values.get("approval")
        row = {**self.row(decided), "revision": self.revision}
        row |= {"limits": answer.amounts} if answer.amounts else {}
        row |= {"reply": self.reply} if self.reply else {}
        row |= {"shown": [step["content"] for step in self.plan["steps"]]} if answer.kind != "approve" else {}
        if answer.kind in ("approve", "edit"):
            plan = self.plan if answer.kind == "approve" else answer.plan
            assert plan is not None
            more = {key: amount - self.limits[key] for key, amount in answer.amounts.items()}
            granted: Json = {"granted": more} if more else {}
            row |= {"changes": plan_changes(self.plan, plan, self.spoken)} if answer.kind == "edit" else {}
            if plan.get("schedule") not in (None, self.plan.get("schedule")):  # `advance` shows it with its times
                return {"approvals": [row], "plan": plan, **granted}
            before = approval["plan"] if approval else None
            effects = {**answer.effects, **self.effects}
            record = {**approval_record(plan, decided.by, effects, decided.name, approval), "before": before}
            row |= {"approved_revision": plan["revision"]}
            ending = {"ending": _scheduled_ending(plan, values, decided.at)} if plan.get("schedule") else {}
            return {"approvals": [row], "plan": plan, "approval": record, **granted, **ending}
        if answer.kind == "cancel" or not (approval or answer.text):
            # The receipt shows the previously approved plan, else the rejected one.
            shown_plan = {"plan": approval["plan"]} if approval else {"steps": fresh_records(self.plan, {}, None)}
            reason = answer.text or say_why(values.get("language", "en"), "not_approved")
            return {"approvals": [row], "ending": {"code": "cancelled", "reason": reason}, **shown_plan}
        planning = values["planning"]
        if not answer.text:
            return {"approvals": [row], "plan": (approval or {})["plan"], "planning": close_planning(planning)}
        shown = {key: item for key, item in self.dump().items() if key not in ("others", "problem", "draft")}
        again = plan_with_words(planning, cast("Pause", shown), answer.text, decided.name)
        plan = approval["plan"] if approval else None
        return {"approvals": [row], "planning": again, "plan": plan}


def approval_record(
    plan: Json, by: str, effects: Mapping[str, str], name: str = "", before: Approval | None = None
) -> Approval:
    """Return the record of an approval: the plan's revision, the tools granted to each step, and what they were.

    `name` is that of who approved it; a step that is as it was `before` keeps the name that it had.
    """
    tools = {step["id"]: list(step.get("tools") or ()) for step in plan["steps"]}
    earlier, new = (before or {}).get("names") or {}, new_steps(plan, before)
    names = {step["id"]: name if step in new else earlier.get(step["id"], "") for step in plan["steps"]}
    record: Approval = {"revision": plan["revision"], "by": by, "tools": tools, "effects": {**effects}, "plan": plan}
    return {**record, "names": names} if any(names.values()) else record


def new_steps(plan: Json, before: Approval | None) -> list[Json]:
    """Return the steps of a plan that were not approved before as they are, whatever they wait for."""
    approved = [{**step, "depends_on": []} for step in before["plan"]["steps"]] if before else []
    return [step for step in plan["steps"] if {**step, "depends_on": []} not in approved]


@dataclass(frozen=True)
class PlanEffects:
    """The tools of a plan that have effects."""

    free: list[str]
    """Tools that the plan's approval allows with any arguments."""
    known: list[str]
    """Tools that the plan's approval allows for known targets."""
    kinds: Mapping[str, str]
    """The effect of each of its tools that has one."""
    any: bool
    """True if the plan can have effects, by a tool or by an executor that works on its own."""
    approver: str
    """Who alone approves the plan; "" for anybody."""
    agents: list[str]
    """The plan's executors that work on their own."""


def plan_effects(plan: Json, deps: Deps, settings: Settings, before: Approval | None = None) -> PlanEffects:
    """Return which tools of a plan have effects, and which of their calls its approval covers.

    It is for who approves the tools of the steps that were not approved `before` as they are.
    """
    toolbox = deps.all_tools(settings)
    listed = {name for step in plan["steps"] for name in step.get("tools") or () if name in toolbox}
    changes = sorted(name for name in listed if toolbox.effect(name) != "read")
    executors = {name: deps.executors.get(name) for step in plan["steps"] if (name := step.get("executor"))}
    agents = [name for name, executor in executors.items() if executor is not None and executor.works_alone]
    free, shown = settings.approvals in ("plan", "never"), settings.approvals == "shown"
    approvers = {name: who for name, who in settings.approvers.items() if name in changes}
    new = {name for step in new_steps(plan, before) for name in step.get("tools") or ()}
    approver = next((who for name, who in approvers.items() if name in new), "")
    approver = settings.answered_by.get("plan") or approver
    covered = [name for name in changes if name not in new or may_answer(approvers.get(name, ""), approver)]
    return PlanEffects(
        [name for name in covered if free or (shown and toolbox[name].approval() == "free")],
        [name for name in covered if shown and toolbox[name].approval() == "by_targets"],
        {name: toolbox.effect(name) for name in changes},
        bool(changes or agents),
        approver,
        agents,
    )


def plan_rules(
    deps: Deps,
    settings: Settings,
    finished: Mapping[str, Any] | None = None,
    replaced: Json | None = None,
    values: Mapping[str, Any] = MappingProxyType({}),
) -> Rules:
    """Return the rules for a plan in this run. It stands in place of `replaced`: the approved plan, or the edited one.

    A plan that replaces an active one cannot have a schedule. The ids of steps that were planned in this request are
    not assigned to new ones, and other work under the id of a step that has begun gets another id.
    """
    toolbox, executors = deps.all_tools(settings), deps.executors.active
    return replace(
        _criteria_rules(deps.executors, settings),
        executors=executors,
        executor_tools={name: deps.tools_for(name, settings) for name in ("", *executors)},
        executor=settings.executor,
        read_call=lambda name, arguments: toolbox[name].read(arguments)[:2],
        max_steps=settings.max_steps,
        finished=finished or {},
        used={*(step["id"] for step in (replaced or {}).get("steps", ())), *(values.get("steps") or ())},
        repeats=deps.repeats and replaced is None,
        zone=settings.timezone,
        unfinished=unfinished_steps(values),
    )


def _criteria_rules(executors: Executors, settings: Settings) -> Rules:
    """Return the rules for criteria, with those that the settings require."""
    toolbox, paths = executors.toolbox.usable(settings), settings.profile.allowed_paths
    return Rules(
        tools=frozenset(executors.toolbox),
        provider=lambda name: executors.tool_now(name).provider or "",
        effect=lambda name: executors.tool_now(name).effect or "read",
        checks={n: partial(_check_problems, tool, paths) for n, tool in toolbox.items() if tool.effect == "read"},
        forbidden=settings.profile.forbidden_tools,
        required=[criterion.model_dump(mode="json") for criterion in settings.done_when],
    )


async def criteria_problem(settings: Settings, executors: Executors) -> str | None:
    """Return why the required criteria cannot be checked here; None if they can."""
    if not settings.done_when:
        return None
    await load_jsonschema()
    rules = _criteria_rules(executors, settings)
    return "; ".join(f"done_when: {each}" for each in broken_rules([], rules.required, rules)) or None


def _check_problems(tool: KnownTool, paths: Sequence[str], arguments: Any) -> list[str]:
    outside = tool.path_problem(arguments, paths) if isinstance(arguments, Mapping) else None
    return [*tool.arguments.problems(arguments), *([outside] if outside else [])]


def _scheduled_ending(plan: Mapping[str, Any], values: Mapping[str, Any], at: str) -> Json:
    """Return the ending of a request with a schedule: nothing runs now."""
    schedule, language = plan["schedule"], values.get("language", "en")
    times = moments_text(next_moments(schedule, datetime.fromisoformat(at)))
    when = schedule_text(schedule, catalogue(language)["plan"])
    text = say(language, "summary", "scheduled", when=when, times=times)
    return {"code": "scheduled", "reason": "", "text": f"{text}\n\n{say(language, 'summary', 'scheduled_by')}"}
