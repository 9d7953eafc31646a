"""Runs that nobody watches: at a limit they deliver what there is, or stop; an answer is written whatever is left."""

from pathlib import Path
from typing import Any

import pytest

from donewhen.agent.cli.exits import Exit
from donewhen.state.errors import ModelError
from donewhen.testing import call, finish_step, submit_plan
from tests.kit.flows import FREE, play, steps
from tests.kit.screens.shell import one_object, scripted, user_in

FIRST = {"s1": [finish_step("ONE", "s1.result")]}
COUNTING = {
    "triage": [submit_plan([{"content": "Count the files", "tools": ["list_files"]}, "Write it down"])],
    "execute": [call("list_files"), finish_step("3 files", "s1.1")],
}


@pytest.mark.parametrize(
    ("policy", "words", "code"), [("deliver", ["One is done."], "out_of_budget"), ("stop", [], "stopped")]
)
@pytest.mark.parametrize("limit", [{"rounds": 1}, {"model_calls": 3}])
async def test_at_a_limit_it_delivers_or_stops(policy: str, words: list[str], code: str, limit: dict[str, int]) -> None:
    """D03: nobody is asked. `deliver` spends the call kept in reserve on the words, and audits them while there are
    calls; `stop` calls nobody any more."""
    model = steps(["one", "two"], FIRST, deliver=words)
    flow = await play(model, settings={**FREE, "limits": limit, "on_exhausted": policy})
    model.assert_exhausted()
    assert (flow.status, (flow.run.outcome or {})["code"], flow.pauses) == ("exhausted", code, [])
    audits = len(words) if "rounds" in limit else 0
    assert (flow.run.spent["model_calls"], len(model.audits)) == (2 + len(words) + audits, audits)
    assert flow.run.answer.startswith(words[0] if words else "Stopped at the budget: the limit")
    assert "- Not done (exhausted): two — the limit of" in flow.run.answer


BUSY = ModelError("busy", code="overloaded", retryable=True, retry_after=0)


async def test_when_even_the_reserve_is_gone_code_writes_the_answer() -> None:
    """D03, D02: the one call left for the words fails; no other is bought, and nothing that was done is lost."""
    model = steps(["one", "two"], {**FIRST, "s2": [finish_step("TWO", "s2.result")]}, deliver=[BUSY])
    flow = await play(model, settings={**FREE, "limits": {"model_calls": 4}, "verification": "grounded"})
    model.assert_exhausted()
    assert flow.run.spent["model_calls"] == len(model.requests) == 4
    assert (flow.status, flow.run.answer) == ("answered", "2 of 2 steps done.\n\n- Done: one — ONE\n- Done: two — TWO")


def test_the_command_delivers_where_nobody_can_be_asked(tmp_path: Path) -> None:
    """D03: without a terminal, with the plan approved beforehand; a person comes only if --on-exhausted says ask."""
    shell = user_in(tmp_path)
    with scripted(shell, **COUNTING, deliver=["There are 3."]):
        done = shell.run("--yes", "--limit", "rounds=2", "--limit", "questions=0", "--json")
    told: dict[str, Any] = one_object(done)
    assert (done.exit_code, told["status"]) == (Exit.PARTIAL, "exhausted")
    assert told["answer"].startswith("There are 3.\n\n- Not done (exhausted): Write it down")
