"""Models whose calls and thoughts arrive as text, because the server has no parser for their dialect."""

from typing import Any

import pytest

from donewhen.testing import ScriptedModel, call, submit_plan
from tests.kit.flows import FREE, play
from tests.kit.providers.dialects import DIALECTS, MARKS, SEVERAL, Calls

STEPS = [
    {"content": "Order lamps", "done_when": ["they are ordered"], "tools": ["look", "order"]},
    {"content": "Say thanks", "done_when": ["thanks are said"]},
]
PLAN = ("submit_plan", {"title": "Order", "steps": STEPS})
SHOWN = {"sentences": [{"n": 1, "shown": "yes", "by": ["s1.2"]}], "goal": {"met": "yes", "missing": []}}


def finish(result: str, observation: str) -> tuple[str, dict[str, Any]]:
    proof = {"criterion": 1, "met": True, "evidence": [{"observation": observation, "quote": "lamp"}]}
    return "finish_step", {"result": result, "goal_check": [proof]}


class Shop:
    """Two tools, and what was done with them."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def look(self, item: str) -> str:
        """Return the stock of an item."""
        self.done.append(f"look {item}")
        return f"{item}: 12 in stock"

    def order(self, item: str, count: int) -> str:
        """Order an item."""
        self.done.append(f"order {count} {item}")
        return f"ordered {count} {item}, order A-17"


async def run(shop: Shop, **roles: Any) -> Any:
    model = ScriptedModel(roles=roles)
    flow = await play(model, [shop.look, shop.order], effects={"look": "read", "order": "write"}, settings=FREE)
    model.assert_exhausted()
    return flow


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_printed_call_is_made_wherever_it_is_printed(name: str) -> None:
    """Q44, X01: in triage after a native look, where the model is told to print; in a draft, step, answer and audit."""
    shop = Shop()

    def say(*calls: tuple[str, Any]) -> str:
        return DIALECTS[name](calls)

    lamps = ("order", {"item": "lamp", "count": 3})
    step = [("look", {"item": "chair"}), lamps, finish("3 lamps.", "s1.2")]
    flow = await run(
        shop,
        triage=[
            call("look", item="desk"),
            *[say(("look", {"item": "lamp"}))] * 2,
            submit_plan(["a"], need_thinking=True),
        ],
        plan=[say(PLAN)],
        execute={"s1": [*map(say, step)], "s2": [say(finish("Thanks for the lamp.", "s2.result"))]},
        deliver=[say(("look", {"item": "sofa"})), say(("deliver", {"text": "3 lamps were ordered."}))],
        judge=[say(("audit", SHOWN))],
    )
    assert (flow.status, flow.run.answer) == ("completed", "3 lamps were ordered.")
    assert shop.done == ["look desk", "look lamp", "look chair", "order 3 lamp"]
    assert flow.run.receipt["audit"]["sentences"][0]["shown"] == "yes"
    back = [event["id"] for event in flow.told("speech_restarted")]
    said = [event["text"] for event in flow.told("speech") if event["id"] not in back]
    assert not [text for text in said if "<" in text or '"' in text]


@pytest.mark.parametrize("name", SEVERAL)
async def test_several_printed_calls_are_all_made(name: str) -> None:
    """Q44: the second object of a text was dropped; in triage, and in a step."""
    shop = Shop()
    looks: Calls = [("look", {"item": "lamp"}), ("look", {"item": "desk"})]
    order = DIALECTS[name]([("order", {"item": "lamp", "count": 3}), ("order", {"item": "desk", "count": 1})])
    plan = DIALECTS[name]([("submit_plan", {"title": "Order", "steps": STEPS[:1]})])
    done = DIALECTS[name]([finish("3 lamps were ordered.", "s1.1")])
    judge = DIALECTS[name]([("audit", SHOWN)])
    flow = await run(shop, triage=[DIALECTS[name](looks), plan], execute={"s1": [order, done]}, judge=[judge])
    assert flow.status == "completed"
    assert sorted(shop.done[:2]) == ["look desk", "look lamp"]  # reads run side by side
    assert shop.done[2:] == ["order 3 lamp", "order 1 desk"]


@pytest.mark.parametrize("name", MARKS)
async def test_thoughts_and_marks_never_reach_a_person(name: str) -> None:
    """Q44: neither in the answer nor while it is streamed."""
    before, after = MARKS[name]
    flow = await run(Shop(), triage=[f"{before}Paris is *big*.{after}"] * 2)
    assert (flow.status, flow.run.answer) == ("answered", "Paris is *big*.")
    assert {event["text"] for event in flow.told("speech")} <= {"Paris is *big*."}
