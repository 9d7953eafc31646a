"""The rules for plans, and all violations of them, with the offending name and near matches."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import Any

from donewhen.state.plan.order import find_circle
from donewhen.state.values import fold_text, name_hint

MOST_PROBLEMS = 20
"""The most problems reported for one plan."""
MOST_CRITERIA = 30
CONTENT_CHARS = 4000
_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_SUFFIX = re.compile(r"[a-z]|[-_].+")
RESERVED_IDS = frozenset({"p", "goal", "plan", "confirm", "deliver", "budget", "failure"})
PlannedStep = Mapping[str, Any]
NOT_UNASKED = "must not run unasked here, so it cannot check: make such a call in the step, and cite it"


@dataclass(frozen=True)
class Rules:
    """What a plan may refer to, and the bounds that it must keep."""

    tools: Collection[str] = ()
    executors: Collection[str] = ()
    executor_tools: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The tools of each executor ("" is the default one); an executor that is not listed has all tools."""
    executor: str | None = None
    """The executor of steps that name none."""
    checks: Mapping[str, Callable[[Any], Iterable[str]]] = field(default_factory=dict)
    """Read-only tools, each with a function that lists problems of its arguments."""
    read_call: Callable[[str, Any], tuple[Any, list[str]]] | None = None
    """Returns the coerced arguments of a tool, and their problems."""
    max_steps: int = 20
    content_chars: int = CONTENT_CHARS
    provider: Callable[[str], str] = lambda name: ""
    """Returns who provides a tool, as approvals are for it; "" if no server does."""
    effect: Callable[[str], str] = lambda name: "read"
    """Returns the effect of a tool, as approvals are for it."""
    forbidden: Collection[str] = ()
    finished: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Finished steps, id → `{content, …}`; a replan keeps them by id."""
    used: Collection[str] = ()
    """Ids of earlier steps, which are not assigned to new ones."""
    repeats: bool = True
    """True if a plan may have a schedule: the caller runs schedules, and no work of this request has begun."""
    zone: str | None = None
    """The user's time zone, for times of day that are written without one."""
    unfinished: Mapping[str, str] = field(default_factory=dict)
    """Started and unfinished steps, id → content; different work does not get their ids."""
    approved: Mapping[str, Any] | None = None
    """The approved plan that this one changes; None if the plan is written in full."""
    failed: Collection[str] = ()
    """Failed steps of the approved plan, which new steps replace."""
    required: Sequence[Mapping[str, Any]] = ()
    """Criteria of the goal that every plan has, as criteria of a plan are stored."""
    binding: bool = False
    """True if no criterion of the goal may be dropped, because nobody is asked."""

    @cached_property
    def known(self) -> list[str]:
        """Return the ids that a new step may refer to."""
        return list(dict.fromkeys([*self.finished, *(step["id"] for step in (self.approved or {}).get("steps", ()))]))


def broken_rules(steps: Sequence[PlannedStep], goal: Sequence[Mapping[str, Any]], rules: Rules) -> list[str]:
    """Return the problems of a plan's steps and the goal's criteria, at most 20 sentences."""
    ids = {step["id"] for step in steps}
    of_steps = chain.from_iterable(_check_step(step, ids, rules) for step in steps)
    calls = len(steps[0]["calls"] or ()) if len(steps) == 1 else 0  # the goal's criteria are those of the only step
    problems = chain(_check_criteria("the goal", goal, rules, calls), _check_ids(steps, rules), of_steps)
    if first_problems := list(islice(problems, MOST_PROBLEMS)):
        return first_problems
    return [f"the steps {' → '.join(circle)} depend on each other"] if (circle := find_circle(steps)) else []


def _check_step(step: PlannedStep, ids: Collection[str], rules: Rules) -> Iterator[str]:
    """Yield the problems of a step's content, needs, executor, tools and criteria; `ids` are those of all steps."""
    where, executor = f"step {step['id']}", step["executor"]
    if (length := len(step["content"])) > rules.content_chars:
        yield f"{where} has a content of {length:,} characters; at most {rules.content_chars:,}"
    for other in step["depends_on"] or ():
        if other == step["id"]:
            yield f"{where} depends on itself"
        elif other not in ids and other not in rules.known:
            yield f"{where} depends on {other[:60]!r}, which is not a step{name_hint(other, [*ids, *rules.known])}"
    if executor is not None and executor not in rules.executors:
        hint = name_hint(executor, rules.executors)
        yield f"{where} names the executor {executor[:60]!r}, which does not exist{hint}"
    own = rules.executor_tools.get(executor or "")
    for tool in step["tools"] or ():
        if tool in rules.forbidden:
            yield f"{where} lists the tool {tool!r}, which the profile forbids"
        elif tool not in rules.tools:
            yield f"{where} lists the tool {tool[:60]!r}, which does not exist{name_hint(tool, rules.tools)}"
        elif own is not None and tool not in own:
            who = f"its executor {executor!r}" if executor else "the default executor"
            yield f"{where} lists the tool {tool!r}, which {who} does not have{_executor_hint(tool, own, rules)}"
    if step.get("message") and not step["calls"]:
        yield f"{where} has a `message` and no `calls`: it is what the user is told once these succeeded"
    yield from _check_criteria(where, step["done_when"], rules, len(step["calls"] or ()))


def _check_ids(steps: Sequence[PlannedStep], rules: Rules) -> Iterator[str]:
    seen: set[str] = set()
    for step in steps:
        id = step["id"]
        if id in RESERVED_IDS:
            yield f"no step may have the id {id!r}, which has a meaning of its own here: use another, such as s1"
        elif not _ID.fullmatch(id):
            yield f"the step id {id[:50]!r} is not allowed: use a letter, then letters, digits, - or _, at most 40"
        if id in seen:
            yield f"two steps have the id {id!r}; ids are unique"
        seen.add(id)
        done = rules.finished.get(id)
        if done is not None and fold_text(done["content"]) != fold_text(step["content"]):
            yield (
                f"{id!r} is the id of a finished step, which stays as it is; give the new step another id, and "
                f"`replaces: [{id!r}]` if it does that work again"
            )
        elif id not in rules.known and not step.get("replaces") and (old := _find_like(id, rules)):
            yield (
                f"{id!r} looks like {old!r} done again: if it is, add `replaces: [{old!r}]`, so that what was built on "
                "it is built on this one; if it is other work, give it another id"
            )
        for old in step.get("replaces") or ():
            if old not in rules.known:
                hint = name_hint(old, rules.known)
                yield f"step {id} replaces {old[:60]!r}, which is no step of the approved plan{hint}"


def _find_like(id: str, rules: Rules) -> str | None:
    """Return the kept step whose id this one extends: s1b, s1_2, s1-redo for s1."""
    candidates = (old for old in rules.known if old not in rules.failed)
    return next((old for old in candidates if _SUFFIX.fullmatch(id.removeprefix(old)) and id.startswith(old)), None)


def _check_criteria(where: str, criteria: Sequence[Mapping[str, Any]], rules: Rules, calls: int) -> Iterator[str]:
    """Yield the problems of criteria; `calls` is the number of planned calls that they may name."""
    if len(criteria) > MOST_CRITERIA:
        yield f"{where} has {len(criteria):,} criteria; at most {MOST_CRITERIA}. Merge them or split the step"
    for number, criterion in enumerate(criteria, 1):
        if len(criterion["text"]) > CONTENT_CHARS:
            length = f"{len(criterion['text']):,} characters"
            yield f"{where} has a criterion {number} of {length}; at most {CONTENT_CHARS:,}"
        if (call := criterion.get("call") or 0) > calls:
            yield f"{where} has a criterion {number} that names call {call}; {calls or 'no'} calls are planned there"
        if check := criterion["check"]:
            yield from (f"{where}, criterion {number}: {problem}" for problem in _check_check(check, rules))


def read_calls(step: PlannedStep, rules: Rules) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a step's planned calls with coerced arguments, and the problems of those arguments."""
    calls, problems = list[dict[str, Any]](), list[str]()
    for call in step["calls"] or ():
        tool, arguments = call["tool"], call["arguments"]
        if rules.read_call is not None and tool in rules.tools and tool not in rules.forbidden:
            arguments, call_problems = rules.read_call(tool, arguments)
            problems += [f"step {step['id']}, its call of {tool}: {problem}" for problem in call_problems]
        calls.append({"tool": tool, "arguments": arguments})
    return calls, problems


def choose_executor(step: PlannedStep, rules: Rules) -> str | None:
    """Return the executor of a step that names none: the default, or the only one with the tools that the default
    lacks.

    If the default has no tools at all and there is one other, that one is chosen.
    """
    needed, own = set(step["tools"] or ()), rules.executor_tools.get(rules.executor or "")
    if own is not None and not own and step["tools"] is None and not rules.executor and len(rules.executors) == 1:
        return next(iter(rules.executors))
    if own is None or needed.issubset(own):
        return rules.executor
    able = [name for name, tools in rules.executor_tools.items() if name and needed.issubset(tools)]
    return able[0] if len(able) == 1 else rules.executor


def _executor_hint(tool: str, own: Collection[str], rules: Rules) -> str:
    """Return a hint at the executor that has a tool, else at the intended name."""
    having = [name for name, tools in rules.executor_tools.items() if name and tool in tools]
    return f"; give the step the executor {' or '.join(map(repr, having))}" if having else name_hint(tool, own)


def _check_check(check: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    tool = check["tool"]
    if tool in rules.checks:
        yield from (f"the check's arguments: {problem}" for problem in rules.checks[tool](check["arguments"]))
    elif tool in rules.forbidden:
        yield f"the check's tool {tool!r} is forbidden by the profile"
    else:
        why = "does not exist"
        if tool in rules.tools:
            why = NOT_UNASKED if rules.effect(tool) == "read" else "is not read-only, so it cannot check"
        yield f"the check's tool {tool[:60]!r} {why}{name_hint(tool, rules.checks)}"
