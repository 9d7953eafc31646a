"""Choose the tools that a model is offered; `find_tools` finds the rest. Tools that a plan or step names always are."""

import copy
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from donewhen.graph.context import Deps
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.prompts import framed
from donewhen.state.reading.decisions import control_tools
from donewhen.state.records import FrozenCall
from donewhen.state.run import Json, Step
from donewhen.state.settings import Settings

FIND_TOOLS = "find_tools"
MOST_FOUND = 8
"""The most tools that one call of `find_tools` returns."""


@dataclass(frozen=True)
class Offer:
    """The part of many tools that a model is shown."""

    bound: Sequence[str] = ()
    """Tools that it can call, with their definitions."""
    listed: Sequence[str] = ()
    """Tools with a line each: a plan may name them, a step may find them."""
    more: int = 0
    """The number of further tools."""

    def legal(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return these control tools, with `find_tools` if there are further tools."""
        return (*names, FIND_TOOLS) if self.more else tuple(names)

    def definitions(self, controls: Collection[str], toolbox: Toolbox) -> list[Json]:
        """Return what a model is bound: these control tools, with the listed tools in `find_tools`, and its tools."""
        lines = "\n".join(f"- {name}: {toolbox[name].one_line}" for name in self.listed)
        instead = {FIND_TOOLS: _find_tools_among(lines)} if lines else {}
        return [*control_tools(controls, instead), *toolbox.openai(self.bound)]


@lru_cache(maxsize=256)
def _find_tools_among(lines: str) -> Json:
    """Return the definition of `find_tools` with these lines; the same object each time, as a prepared model needs."""
    tool: Json = copy.deepcopy(control_tools([FIND_TOOLS])[0])
    tool["function"]["description"] += f"\n{lines}"
    return tool


async def offer_for_planning(deps: Deps, settings: Settings, goal: str, planning: Mapping[str, Any]) -> Offer:
    """Offer tools to planning: `Settings.tool_selection` less two for `find_tools`; nearly half of them for looking."""
    toolbox, seen = deps.all_tools(settings), planning.get("found") or ()
    named = {name for step in (planning.get("proposal") or {}).get("steps", ()) for name in step.get("tools") or ()}
    reads, most = deps.reads(settings), settings.tool_selection
    if len(toolbox) <= most:
        return Offer([*reads], [name for name in toolbox if name not in reads])
    bound = await deps.finder.choose(goal, reads, max(most // 2 - 2, 1), _users_words(reads))
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
    if len(useful) > settings.tool_selection:
        wanted = " ".join([step["content"], *(criterion["text"] for criterion in step.get("done_when") or ())])
        needed = {*(listed or ()), *_users_words(toolbox)}
        fit = await deps.finder.choose(wanted, toolbox.subset(useful), settings.tool_selection - 1, needed)
        more = len(work) - len(fit)
    fit = [*fit, *(name for name in record.get("found") or () if name in toolbox and name not in fit)]
    return Offer(fit, others[: settings.tool_selection], more)


async def find_tools(deps: Deps, toolbox: Toolbox, call: FrozenCall, known: Collection[str], fence: str) -> Json:
    """Answer a `find_tools` call: return `text` for the model, and the `names` of tools to offer from now on."""
    rest = toolbox.subset([name for name in toolbox if name not in known and not toolbox[name].is_check])
    names = (await deps.finder.best(str(call["args"]["query"]), rest))[:MOST_FOUND]
    lines = [
        f"- {name} ({rest.effect(name)}): {rest[name].one_line} "
        f"Arguments: {json.dumps(rest[name].schema.get('properties', {}), ensure_ascii=False)}"
        for name in names
    ]
    said = "These are offered to you from now on." if names else "You have been offered all tools that there are."
    shown = f"\n{framed('tool_output', chr(10).join(lines), fence)}" if lines else ""
    return {"text": f"{FIND_TOOLS} ok: {said}{shown}", "names": names}
