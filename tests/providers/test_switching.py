"""A run that changes its model in the middle of a step: what one provider wrote is fit for every other."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent
from tests.kit.providers.forms import FORMS, SIGNATURE, Said, names_in, told
from tests.kit.providers.server import ProviderServer

STEP = {"content": "Look, ask how many, and order", "done_when": ["they are ordered"], "tools": ["look", "order"]}
SETTINGS = {"verification": "grounded", "model_retries": 0}
SIGNING = ("OpenAI Responses", "Anthropic", "Google", "OpenRouter")


def look(item: str) -> str:
    """Return the stock of an item."""
    return f"{item}: 12 in stock 😀"


def order(item: str, count: int) -> str:
    """Order an item."""
    return f"ordered {count} {item}, order A-17"


def think(body: Mapping[str, Any]) -> Said:
    """Look twice at once, ask a person, order, and finish."""
    names, seen = names_in(body), told(body)
    if "submit_plan" in names:
        return Said(calls=[("submit_plan", {"title": "Order", "steps": [STEP]})])
    if "finish_step" not in names:
        return Said("3 lamps were ordered.")
    if made := re.search(r"\[(s1\.\d+)\] order ok", seen):
        evidence = [{"observation": made[1], "quote": "ordered 3 lamp"}]
        proof = {"criterion": 1, "met": True, "evidence": evidence}
        return Said(calls=[("finish_step", {"result": "3 lamps were ordered.", "goal_check": [proof]})])
    if "three please" in seen:
        return Said("Well then.", [("order", {"item": "lamp", "count": 3}), ("look", {"item": "lamp"})])
    if "12 in stock" in seen:
        return Said("One question.", [("ask_user", {"question": "How many lamps?"})])
    return Said("I look.", [("look", {"item": "lamp"}), ("look", {"item": "desk"})])


@pytest.mark.parametrize("after", FORMS)
@pytest.mark.parametrize("before", FORMS)
async def test_another_model_goes_on_in_the_middle_of_a_step(before: str, after: str, tmp_path: Path) -> None:
    """R14 (Q42, Q43): calls, results, ids, thoughts and signatures of one provider never spoil the request to another;
    to the same model its own are given back, as it demands them."""
    first, second, tools = FORMS[before], FORMS[after], [look, order]
    more = {
        "effects": {"look": "read", "order": "write"},
        "settings": SETTINGS,
        "storage": f"sqlite:///{tmp_path}/runs",
    }
    with ProviderServer(first.serve(think)) as one, ProviderServer(second.serve(think)) as other:
        async with Agent(first.model(one.url), tools, **more) as agent:  # type: ignore[arg-type]
            run = await agent.resume(await agent.start("Order lamps"), "approve")
            assert run.pending, run.answer
            assert run.pending[0]["question"] == "How many lamps?"
        async with Agent(second.model(other.url), tools, **more) as agent:  # type: ignore[arg-type]
            run = await agent.resume(run, "three please")
            if run.status == "waiting":  # the count was not in the plan
                run = await agent.resume(run, "approve")
    assert (SIGNATURE in json.dumps(one.bodies)) == (before in SIGNING)
    assert SIGNATURE not in json.dumps(other.bodies[0])
    assert run.answer == "3 lamps were ordered."
    assert run.status == "completed"
