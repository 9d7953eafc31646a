"""Which tools a model is offered, and `find_tools` for the rest: what a plan or a step names is never hidden."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from donewhen.graph.context import Deps
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.prompts import framed
from donewhen.state.graph_state import Json
from donewhen.state.records import FrozenCall, StepRecord
from donewhen.state.settings import Settings

FIND = "find_tools"
FOUND = 8
"""Tools that one `find_tools` finds."""


@dataclass(frozen=True)
class Offer:
    """What a model is shown of many tools."""

    bound: Sequence[str] = ()
    """Those that it can call, whose definitions it gets."""
    listed: Sequence[str] = ()
    """Those that a plan may name, in a line each."""
    more: int = 0
    """How many there are beside these."""

    def legal(self, names: Iterable[str]) -> tuple[str, ...]:
        """These control tools, and `find_tools` if there is more to be found."""
        return (*names, FIND) if self.more else tuple(names)


async def offered_to_plan(deps: Deps, settings: Settings, goal: str, planning: Mapping[str, Any]) -> Offer:
    """For planning: at most `Settings.tool_selection`, less two for `find_tools`; nearly half of them for looking."""
    toolbox, seen = deps.all_tools(settings), planning.get("found") or ()
    named = {name for step in (planning.get("proposal") or {}).get("steps", ()) for name in step.get("tools") or ()}
    reads, most = deps.reads(settings), settings.tool_selection
    if len(toolbox) <= most:
        return Offer(reads.names, [name for name in toolbox.names if name not in reads])
    bound = await deps.finder.chosen(goal, reads, max(most // 2 - 2, 1))
    shown = await deps.finder.chosen(goal, toolbox, max(most - 2, 1), {*bound, *named})
    new = [name for name in seen if name in toolbox and name not in shown]
    listed = [name for name in [*shown, *new] if name not in bound and name not in (set(new) & {*reads})]
    return Offer([*bound, *(name for name in new if name in reads)], listed, len(toolbox) - len(shown) - len(new))


async def offered_to_step(deps: Deps, settings: Settings, step: Json, record: StepRecord) -> Offer:
    """For a step: the tools it lists and those that read, or all if it lists none; of too many the likely ones.

    A step that lists `[]` writes text from what is known. Tools made for checks are the runtime's own. What was found
    comes last, so that nothing before it changes.
    """
    listed, toolbox = step.get("tools"), deps.tools_for(step.get("executor"), settings)
    if listed is not None and not listed:
        return Offer()
    work = [name for name in toolbox.names if not toolbox.checks(name) or name in (listed or ())]
    useful = [name for name in work if listed is None or name in listed or toolbox.effect(name) == "read"]
    if len(useful) <= settings.tool_selection:
        return Offer(useful)
    wanted = " ".join([step["content"], *(criterion["text"] for criterion in step.get("done_when") or ())])
    fit = await deps.finder.chosen(wanted, toolbox.subset(useful), settings.tool_selection - 1, listed or ())
    fit += [name for name in record.get("found") or () if name in toolbox and name not in fit]
    return Offer(fit, (), len(work) - len(fit))


async def found(deps: Deps, toolbox: Toolbox, call: FrozenCall, known: Collection[str], fence: str) -> Json:
    """What `find_tools` comes to: `text` for the model, and the `names` of what it is offered from now on."""
    rest = toolbox.subset([name for name in toolbox.names if name not in known and not toolbox.checks(name)])
    names = (await deps.finder.best(str(call["args"]["query"]), rest))[:FOUND]
    lines = [
        f"- {name} ({rest.effect(name)}): {rest.one_line(name)} "
        f"Arguments: {json.dumps(rest.schema(name).get('properties', {}), ensure_ascii=False)}"
        for name in names
    ]
    said = "These are offered to you from now on." if names else "You have been offered all tools that there are."
    shown = f"\n{framed('tool_output', chr(10).join(lines), fence)}" if lines else ""
    return {"text": f"{FIND} ok: {said}{shown}", "names": names}
