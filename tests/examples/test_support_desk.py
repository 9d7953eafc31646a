"""The code of the page about support desks: what a customer reads and answers, and what the operator."""

import ast
import asyncio
import re
from typing import Any

import pytest

from donewhen import Agent
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, give_up, submit_plan
from tests.kit.places import ROOT

NAMES: dict[str, Any] = {}
for block in re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "support-desk.md").read_text(), re.M | re.S):
    written = [node for node in ast.parse(block).body if not isinstance(node, ast.Expr | ast.Assert | ast.AsyncWith)]
    kept = [node for node in written if not isinstance(node, ast.Assign) or node.targets[0].id == "settings"]  # type: ignore[attr-defined]
    exec(compile(ast.Module(kept, []), "support-desk.md", "exec"), NAMES)


def refund(item: str) -> str:
    """Pay an item back."""
    return f"refunded {item}"


def desk_of(first: list[Any], second: list[Any]) -> Agent:
    """Return a desk that plans a step for each of these scripts, both at once; calls go to the operator."""
    work = {f"s{n}": [*each] for n, each in enumerate((first, second), 1) if each}
    tools = {id: ["refund"] if "refund" in str(script) else [] for id, script in work.items()}
    plan = [{"content": f"Do {id}", "tools": tools[id], "depends_on": []} for id in work]
    roles: Any = {"triage": [submit_plan(plan)], "execute": work, "deliver": ["Refunded, and it is red."]}
    settings = {**NAMES["settings"], "confirm": "never", "approvals": "each"}
    NAMES["desk"] = Agent(ScriptedModel(roles=roles, strict=False), [refund], storage="memory:", settings=settings)
    desk: Agent = NAMES["desk"]
    return desk


def pays(id: str) -> list[Any]:
    return [call("refund", item="lamp"), finish_step("refunded", (f"{id}.1", "refunded"))]


def asks(id: str) -> list[Any]:
    return [ask_user("Red or blue?"), finish_step("red", (f"{id}.1", "red"))]


@pytest.mark.parametrize("operator_first", [True, False])
async def test_a_customer_answers_their_own_question_beside_one_for_the_operator(operator_first: bool) -> None:
    """C02: in either order; the operator's is left open, and later words are kept for it."""
    desk = desk_of(pays("s1"), asks("s2")) if operator_first else desk_of(asks("s1"), pays("s2"))
    says = NAMES["says"]
    asked_first = await says("mira", "t", "The lamp broke, and I want it in another colour")
    assert asked_first.startswith("Red or blue?")
    assert await says("mira", "t", "red") == "A colleague looks at it."
    (asked,) = await desk.pending()
    assert asked["answered_by"] == "operator"
    assert "Your message is kept" in await says("mira", "t", "hello?")
    await desk.resume("t", "approve", by="operator:anna")
    run = await desk.get("t")
    assert run.receipt
    assert (run.status, [row["text"] for row in run.receipt["heard"]]) == ("completed", ["hello?"])


@pytest.mark.parametrize(("words", "status"), [("but only the shade", "answered"), ("Stop!", "cancelled")])
async def test_no_message_is_lost_while_the_desk_works(words: str, status: str) -> None:
    """C02: the second of two at once is heard, and the word for an end ends what works."""
    go_on = asyncio.Event()

    async def slow(*_: Any) -> Any:
        await go_on.wait()
        return finish_step("red", ("s1.1", "red"))

    desk, says = desk_of([ask_user("Red or blue?"), slow], []), NAMES["says"]
    await says("mira", "t", "Paint my lamp")
    first = asyncio.create_task(says("mira", "t", "red"))
    second = asyncio.create_task(says("mira", "t", words))
    await asyncio.wait([second], timeout=5)
    go_on.set()
    await asyncio.gather(first, second)
    run = await desk.get("t")
    assert run.receipt
    heard = [row["text"] for row in run.receipt["heard"]]
    assert (run.status, heard) == (status, [words] if status == "answered" else [])


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_customer_reads_what_was_done_before_it_failed(cancelled: bool) -> None:
    """N16: also of a run that was cancelled."""
    desk = desk_of([pays("s1")[0], give_up("No cable.")], asks("s2"))
    run = await desk.resume(await desk.start("The lamp broke", thread_id="t"), "approve", by="operator:anna")
    run = await desk.cancel(run) if cancelled else await desk.resume(run, "red")
    assert 'refund(item="lamp")' in NAMES["told"](run)
