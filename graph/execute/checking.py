"""A criterion's check: a read-only call that the runtime makes itself. Whatever goes wrong with it is `unverified`."""

from dataclasses import dataclass

from donewhen.graph.calls.invoking import Site, invoke
from donewhen.graph.calls.observing import keep, noted, thread_of
from donewhen.graph.context import settings_of
from donewhen.graph.events import observed
from donewhen.graph.tools.effects import UNSURE, Outcome
from donewhen.graph.tools.paths import path_problem
from donewhen.state.ledger import add
from donewhen.state.proof.evidence import Verdict
from donewhen.state.proof.expect import meets
from donewhen.state.run import Json

UNDECIDED = (*UNSURE, "refused", "interrupt", "command")
"""Errors of the call that say nothing about the criterion."""


@dataclass(frozen=True)
class Check:
    """What a check came to: its observation if it could be run, the verdict, and why in words."""

    entry: Json | None
    verdict: Verdict
    said: str


async def run_check(check: Json, site: Site, number: int) -> Check:
    """Run a check as observation `number` of the step. The caller sees to it that the budget has a tool call."""
    settings, state = settings_of(site.runtime), site.state
    name, arguments = check["tool"], check["arguments"]
    toolbox = site.deps.all_tools(settings)
    tool = toolbox.get(name)
    if tool is None or toolbox.effect(name) != "read":
        return Check(None, "unverified", f"the check's tool {name} is not available as a read-only tool")
    if outside := path_problem(arguments, settings.profile.allowed_paths, tool):
        return Check(None, "unverified", f"the check may not run: {outside}")
    call: Json = {"id": "", "name": name, "args": arguments}
    outcome = await invoke(site, tool, call, "read", f"{state['step']['id']}.{number}")
    site.meters.clear()
    assert isinstance(outcome, Outcome), "a read is never in doubt"
    result = outcome.result
    site.spent = add(add(site.spent, outcome.spent), {"tool_calls": 1, "active_seconds": result.seconds})
    entry = noted(state, number, call, result, "read", toolbox.targets(name, arguments), "check")
    entry = await keep(site.runtime.store, thread_of(site.runtime), state.get("turn", 1), entry)
    observed(site.runtime, entry)
    if not result.ok and (result.error in UNDECIDED or check["expect"] != "ok"):
        return Check(entry, "unverified", f"the check {name} itself failed: {result.text[:200]!r}")
    met, said = meets(check["expect"], result.ok, result.text)
    return Check(entry, "passed" if met else "failed", f"the check {name} decided: {said}")
