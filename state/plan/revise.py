"""Replace an approved plan by a new one: what is kept, what replaces what, and what needs consent. Pure.

A replan names only changes. Steps and criteria that it does not name stay as approved; whatever it removes, it names
with a reason (P22).
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from donewhen.state.criteria import covers, criteria_of, is_plain
from donewhen.state.errors import PlanError
from donewhen.state.language.texts import say
from donewhen.state.plan.order import avoid_circles, dependants, find_circle, needs_of
from donewhen.state.plan.rules import Rules
from donewhen.state.plan.text import server_of, step_numbers
from donewhen.state.plan.written import calls_text
from donewhen.state.records import EFFECTS, PlanChange
from donewhen.state.values import Json, fold_text, name_hint

Speak = Callable[..., str]
"""A text of the catalogue's section `changed`, by its key."""


def with_old_fields(steps: Sequence[Any], rules: Rules) -> list[Any]:
    """Return the steps as written; a step that changes an approved one keeps the fields that it omits.

    Different work under the id of a started step is another step, and keeps nothing.
    """
    old = {step["id"]: step for step in (rules.approved or {}).get("steps", ())}

    def fill_in(step: Any) -> Any:
        if not isinstance(step, Mapping) or step.get("id") not in old:
            return step
        before, fields = old[step["id"]], {key: value for key, value in step.items() if value is not None}
        same = fold_text(str(fields.get("content") or before["content"])) == fold_text(before["content"])
        if step["id"] in rules.unfinished and not same:
            return step
        return {**{key: value for key, value in before.items() if key != "calls" or same}, **fields}

    return [fill_in(step) for step in steps]


def no_change() -> PlanChange:
    """Return the change by a plan that replaces none."""
    return {"stale": [], "instead": {}, "dropped": {}, "drops_criterion": False, "unmentioned": []}


def revise(plan: Json, rules: Rules, renamed: Mapping[str, str]) -> tuple[Json, PlanChange]:
    """Return the approved plan with the changes of `plan`, and a description of them. Raises PlanError.

    `renamed` are old ids → new ids of different work.
    """
    approved, finished = rules.approved or {"steps": []}, rules.finished
    old = {step["id"]: step for step in approved["steps"]}
    written = {step["id"]: step for step in plan["steps"]}
    instead = _find_replacements(written, renamed)
    steps, criteria, problems = _read_drop(plan["drop"], approved, rules)
    if lost := [id for id in rules.failed if id not in (*written, *instead, *steps)]:
        replacing = {id for names in instead.values() for id in names}
        instead |= {id: [new for new in written if new not in old and new not in replacing] for id in lost}
        if not instead[lost[0]]:
            lead = f"say what becomes of {', '.join(lost)}, which failed"
            problems.append(f"{lead}: change it by its id, give a step that `replaces` it, or name it in `drop`")
    again = [id for id in instead if id in finished]
    stale = [*again, *(id for id in dependants(approved, again) if id in finished)]
    done = [id for id in old if id in finished and id not in stale]
    stays = [id for id in old if id not in (*done, *instead, *steps, *written)]
    order = _place_kept_steps([id for id in written if id not in done], stays, list(old), instead)
    finished_steps = (old[id] for id in done)
    whole = avoid_circles([*finished_steps, *(_rebase_needs(written.get(id) or old[id], instead) for id in order)])
    problems += [
        f"step {step['id']} needs {id}, which `drop` names: say what it needs now"
        for step in whole
        for id in step["depends_on"] or ()
        if id in steps
    ]
    if circle := find_circle(whole):
        lead = f"the steps {' → '.join(circle)} depend on each other"
        problems.append(f"{lead}; what was built on a step that is replaced is done after it")
    if problems:
        raise PlanError(problems)
    goal = _revise_goal(plan["done_when"], whole, criteria, rules)
    named = {fold_text(criterion["text"]) for criterion in (*plan["done_when"], *rules.required)}
    change: PlanChange = {
        "stale": stale,
        "instead": instead,
        "dropped": {**steps, **criteria},
        "drops_criterion": bool(criteria),
        "unmentioned": []
        if approved.get("done_when")
        else [each["text"] for each in goal if fold_text(each["text"]) not in named],
    }
    return {**plan, "steps": whole, "done_when": goal}, change


def _find_replacements(written: Mapping[str, Json], renamed: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ids of the new steps that replace each old step, in the order in which they are written."""
    instead: dict[str, list[str]] = {}
    for id, step in written.items():
        for old in (*(step["replaces"] or ()), *(name for name, new in renamed.items() if new == id)):
            if old != id and id not in instead.setdefault(old, []):
                instead[old].append(id)
    return instead


def _rebase_needs(step: Json, instead: Mapping[str, Sequence[str]]) -> Json:
    """Return the step with replaced dependencies updated."""
    if not (declared := step.get("depends_on")) or instead.keys().isdisjoint(declared):
        return step
    needs = [new for id in declared for new in instead.get(id, [id]) if new != step["id"]]
    return {**step, "depends_on": list(dict.fromkeys(needs))}


def _place_kept_steps(
    written: Sequence[str], stays: Sequence[str], old: Sequence[str], instead: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the ids as written, with each kept step after its former predecessor, else before its former successor."""
    order = list(written)
    for id in stays:
        at = old.index(id)
        before = (_places(other, order, instead) for other in reversed(old[:at]))
        after = (_places(other, order, instead) for other in old[at + 1 :])
        if places := next(filter(None, before), []):
            order.insert(max(places) + 1, id)
        else:
            order.insert(min(next(filter(None, after), [0])), id)
    return order


def _places(id: str, order: Sequence[str], instead: Mapping[str, Sequence[str]]) -> list[int]:
    return [order.index(new) for new in instead.get(id, [id]) if new in order]


def _read_drop(
    drop: Sequence[Mapping[str, str]], approved: Mapping[str, Any], rules: Rules
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return the dropped steps and criteria with their reasons, and those that cannot be dropped."""
    open_ids = [step["id"] for step in approved["steps"] if step["id"] not in rules.finished]
    texts = {fold_text(criterion["text"]): criterion["text"] for criterion in goal_criteria(approved)}
    steps, criteria, problems = dict[str, str](), dict[str, str](), list[str]()
    for entry in drop:
        what, why = entry["what"], entry["why"]
        if what in open_ids:
            steps[what] = why
        elif what in rules.finished:
            problems.append(f"drop: {what} is finished and stays; a step that does it again `replaces` it")
        elif (text := texts.get(fold_text(what))) is None:
            known = name_hint(what, [*open_ids, *texts.values()])
            problems.append(f"drop: {what[:80]!r} is no open step and no criterion of the goal{known}")
        elif rules.binding or text in [criterion["text"] for criterion in rules.required]:
            problems.append(
                f"drop: only the user can let “{text[:200]}” go, and nobody is asked: leave it out of `drop`"
            )
        else:
            criteria[text] = why
    return steps, criteria, problems


def goal_criteria(plan: Mapping[str, Any]) -> list[Json]:
    """Return the criteria of the goal; for a plan with one step, those of the step."""
    only = plan["steps"][0]["done_when"] if len(plan["steps"]) == 1 else []
    return list(plan.get("done_when") or only)


def _revise_goal(written: Sequence[Json], steps: Sequence[Json], let_go: Collection[str], rules: Rules) -> list[Json]:
    """Return the criteria of the goal: the approved ones without those dropped or now a step's, then the new ones."""
    approved = rules.approved or {"steps": []}
    of_steps = [] if approved.get("done_when") else [each for step in steps for each in step["done_when"]]
    required = {fold_text(criterion["text"]) for criterion in rules.required}
    new = {fold_text(criterion["text"]): criterion for criterion in written}
    kept = list[Json]()
    for criterion in goal_criteria(approved):
        text = fold_text(criterion["text"])
        instead = [each for each in of_steps if fold_text(each["text"]) == text and text not in required]
        at_step = any(covers(each, criterion) for each in of_steps) or not all(map(is_plain, instead))
        if criterion["text"] not in let_go and not at_step:
            kept.append(new.get(text, criterion) if is_plain(criterion) else criterion)
    words = {fold_text(criterion["text"]) for criterion in kept}
    return [*kept, *(criterion for text, criterion in new.items() if text not in words)]


def plan_changes(
    approved: Mapping[str, Any],
    plan: Mapping[str, Any],
    language: str = "en",
    reasons: Mapping[str, str] = MappingProxyType({}),
    done: Mapping[str, str] = MappingProxyType({}),
    *,
    numbered: bool = False,
) -> list[str]:
    """Return a line for everything that is new, gone, weaker, granted or reordered; [] if nothing needs consent.

    No consent is needed for the words of title and speech, the order of tools, fewer tools, or more criteria.
    `reasons` say why steps and criteria were dropped, if known, `done` what took effect in steps. With `numbered`,
    steps are named by their number, as people see them; those that are gone, by their number in the approved plan.
    Otherwise they are named by id.
    """
    names = {**step_numbers(approved), **step_numbers(plan)} if numbered else {}

    def speak(key: str, **values: Any) -> str:
        if "id" in values:
            values["id"] = names.get(values["id"], values["id"])
        if isinstance(steps := values.get("steps"), list):
            values["steps"] = ", ".join(str(names.get(id, id)) for id in steps)
        return say(language, "changed", key, **values)

    old = {step["id"]: step for step in approved["steps"]}
    new = {step["id"]: step for step in plan["steps"]}
    because = {what: f" ({why})" for what, why in reasons.items()}
    lines = [f"{line}{because.get(text, '')}" for text, line in _weaker_goal(approved, plan, speak)]
    for id, step in new.items():
        lines += (
            _describe_changed(old[id], step, partial(speak, id=id)) if id in old else [_describe_added(step, speak)]
        )
    for id in (id for id in old if id not in new):
        line = speak("ends" if id in done else "dropped", id=id, content=old[id]["content"])
        lines.append(line + because.get(id, "") + (f" ({done[id]})" if id in done else ""))
    lines += _describe_reordered(approved, plan, old.keys() & new.keys(), speak)
    lines += moved_tools(approved, plan, language)
    if plan.get("schedule") != approved.get("schedule"):
        none = speak("none")
        lines.append(speak("schedule", before=approved.get("schedule") or none, after=plan.get("schedule") or none))
    return lines


def tools_of(plan: Mapping[str, Any]) -> list[str]:
    """Return the tools that a plan names, in the order of its steps: to work with, to call, and for its checks."""
    names = list[str]()
    for step in plan["steps"]:
        names += [*(step.get("tools") or ()), *(call["tool"] for call in step.get("calls") or ())]
    criteria = [*(each for step in plan["steps"] for each in criteria_of(step)), *(plan.get("done_when") or ())]
    return list(dict.fromkeys([*names, *(each["check"]["tool"] for each in criteria if each.get("check"))]))


@dataclass(frozen=True)
class ShownTool:
    """What an approval says about a tool; None for what it does not say."""

    provider: str | None = None
    """As `KnownTool.provider`; "" if no server provided it."""
    effect: str | None = None

    def covers(self, now: "ShownTool") -> bool:
        """Return whether the approval is for the tool as it is now: provided likewise, with no greater effect."""
        return not (self.is_moved(now) or self.grows(now))

    def is_moved(self, now: "ShownTool") -> bool:
        """Return whether another server provides the tool now, or with other arguments."""
        return None not in (self.provider, now.provider) and self.provider != now.provider

    def grows(self, now: "ShownTool") -> bool:
        """Return whether the tool has a greater effect now."""
        if self.effect is None or now.effect is None:
            return False
        return EFFECTS.index(now.effect) > EFFECTS.index(self.effect)


def shown_tools(plan: Mapping[str, Any] | None) -> dict[str, ShownTool]:
    """Return what a plan says about the tools that it names."""
    if not plan or "steps" not in plan:
        return {}
    providers, effects = plan.get("providers") or {}, plan.get("effects")
    if effects is None:  # of an earlier version
        return {name: ShownTool(providers.get(name)) for name in tools_of(plan)}
    return {name: ShownTool(providers.get(name, ""), effects.get(name, "read")) for name in tools_of(plan)}


def moved_tools(before: Mapping[str, Any], after: Mapping[str, Any], language: str = "en") -> list[str]:
    """Return a line for each tool of both plans that is another one since: see `ShownTool.covers`."""
    if all(before.get(key) == after.get(key) for key in ("providers", "effects")):
        return []
    then = shown_tools(before)
    now = [(name, tool) for name, tool in shown_tools(after).items() if name in then]
    return [moved_line(name, then[name], tool, language) for name, tool in now if not then[name].covers(tool)]


def moved_line(tool: str, before: ShownTool, now: ShownTool, language: str) -> str:
    """Return how a tool differs from what an approval was for."""
    if not before.is_moved(now):
        return say(language, "changed", "grows", tool=tool, before=str(before.effect), after=str(now.effect))
    none = say(language, "changed", "none")
    was, server = server_of(before.provider or ""), server_of(now.provider or "")
    if was == server:
        return say(language, "changed", "takes", tool=tool, server=server)
    return say(language, "changed", "moved", tool=tool, before=was or none, after=server or none)


def _weaker_goal(approved: Mapping[str, Any], plan: Mapping[str, Any], speak: Speak) -> Iterator[tuple[str, str]]:
    """Yield the criteria of the goal that are gone or weaker, with their lines."""
    stays = any(step["id"] == approved["steps"][0]["id"] for step in plan["steps"])
    of_step = not approved.get("done_when")
    after = [*(plan.get("done_when") or ()), *(c for step in plan["steps"] if of_step for c in step["done_when"])]
    for criterion in () if of_step and stays else goal_criteria(approved):
        for line in _describe_weaker([criterion], after, partial(speak, whose=speak("goal"))):
            yield criterion["text"], line


def _describe_added(step: Mapping[str, Any], speak: Speak) -> str:
    tools = speak("with", tools=", ".join(step["tools"])) if step.get("tools") else ""
    return speak("added", id=step["id"], content=step["content"]) + tools


def _describe_changed(before: Mapping[str, Any], after: Mapping[str, Any], speak: Speak) -> Iterator[str]:
    if before["content"] != after["content"]:
        yield speak("says", content=after["content"])
    if gone := [call for call in before.get("calls") or () if call not in (after.get("calls") or ())]:
        yield speak("calls", calls=calls_text(gone))
    if more := [tool for tool in after.get("tools") or () if tool not in (before.get("tools") or ())]:
        yield speak("needs", tools=", ".join(more))
    if before.get("executor") != after.get("executor"):
        yield speak("executor", name=after.get("executor") or speak("default"))
    if _declared_needs(before) != _declared_needs(after):
        needs = after.get("depends_on")
        yield speak("depends", steps=speak("all") if needs is None else needs or speak("nothing"))
    yield from _describe_weaker(criteria_of(before), criteria_of(after), partial(speak, whose=speak("step")))


def _describe_weaker(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], speak: Speak
) -> Iterator[str]:
    """Yield a line for each criterion that no longer has to be proven."""
    for criterion in before:
        if not any(covers(each, criterion) for each in after):
            unjudged = any(covers(each, {**criterion, "judge": False}) for each in after)
            yield speak("unjudged" if unjudged else "unproven", text=criterion["text"])


def _declared_needs(step: Mapping[str, Any]) -> set[str] | None:
    return None if step.get("depends_on") is None else set(step["depends_on"])


def _describe_reordered(
    approved: Mapping[str, Any], plan: Mapping[str, Any], both: set[str], speak: Speak
) -> Iterator[str]:
    """Yield a line for each step without declared dependencies that no longer waits for the same steps."""
    needs, needed = needs_of(plan), needs_of(approved)
    for step in plan["steps"]:
        if step["id"] in both and step.get("depends_on") is None:
            now = set(needs[step["id"]])
            if lost := [id for id in needed[step["id"]] if id in both and id not in now]:
                yield speak("order", id=step["id"], steps=lost)


def hash_work(plan: Mapping[str, Any], finished: Collection[str]) -> str:
    """Return a hash of a plan's unfinished work: the same for the same work under other ids."""
    steps = [step for step in plan["steps"] if step["id"] not in finished]
    place = {step["id"]: number for number, step in enumerate(steps)}
    tools = [*sorted((plan.get("providers") or {}).items()), *sorted((plan.get("effects") or {}).items())]
    text = json.dumps([*(_without_ids(step, place) for step in steps), *tools], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _without_ids(step: Mapping[str, Any], place: Mapping[str, int]) -> list[Any]:
    """Return a step's work, dependencies and criteria without ids."""
    needs = step.get("depends_on")
    after = None if needs is None else sorted(str(place.get(need, need)) for need in needs)
    calls = [[call["tool"], call["arguments"]] for call in step.get("calls") or ()]
    proven = [
        [fold_text(each["text"]), each.get("check"), each.get("judge"), each.get("call")] for each in criteria_of(step)
    ]
    return [fold_text(step["content"]), sorted(step.get("tools") or ()), step.get("executor"), after, calls, proven]
