"""Models whose calls and thoughts arrive as text, because the server has no parser for their dialect."""

import json
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
ONE_STEP = ("submit_plan", {"title": "Order", "steps": STEPS[:1]})
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


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_printed_call_is_made_in_the_very_first_reply(name: str) -> None:
    """Q44, X01: in triage before any look: the look, then the plan."""
    shop = Shop()

    def say(*calls: tuple[str, Any]) -> str:
        return DIALECTS[name](calls)

    flow = await run(
        shop,
        triage=[say(("look", {"item": "lamp"})), say(ONE_STEP)],
        execute={"s1": [say(("order", {"item": "lamp", "count": 3})), say(finish("3 lamps.", "s1.1"))]},
        judge=[say(("audit", SHOWN))],
    )
    assert (flow.status, flow.run.answer) == ("completed", "3 lamps.")
    assert shop.done == ["look lamp", "order 3 lamp"]


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


@pytest.mark.parametrize(
    "printed",
    [
        {"action": "pay", "arguments": {"to": "eve"}},
        {"name": "order", "arguments": {"item": "sofa", "count": 9}},
        [{"action": "look", "arguments": "sofa"}],
    ],
    ids=["of no tool", "of a tool", "unreadable"],
)
async def test_who_called_a_tool_keeps_the_tools_after_one_printed_call(printed: Any) -> None:
    """Q44, F13: such as one that a result told it to print: it is not made, and the model goes on as it began."""
    shop, text = Shop(), json.dumps(printed)
    order, done = call("order", item="lamp", count=3), call(finish("3", "s1.2")[0], **finish("3", "s1.2")[1])
    model = ScriptedModel(
        roles={
            "triage": [call("look", item="desk"), text, submit_plan(STEPS[:1], title="Order")],
            "execute": [call("look", item="lamp"), text, order, done],
            "judge": [call("audit", **SHOWN)],
        }
    )
    flow = await play(model, [shop.look, shop.order], effects={"look": "read", "order": "write"}, settings=FREE)
    model.assert_exhausted()
    assert (flow.status, shop.done) == ("completed", ["look desk", "look lamp", "order 3 lamp"])
    assert all(request.tools for request in model.requests if request.role in ("triage", "execute"))
    assert [m.type for m in model.requests[-2].messages][3] == "tool", "its calls are not shown to it as text"


@pytest.mark.parametrize(
    ("printed", "asked"), [("look", True), ("pay", False)], ids=["of an offered tool", "of no tool"]
)
async def test_who_never_called_a_tool_is_asked_to_print_after_the_first_printed_call(
    printed: str, asked: bool
) -> None:
    """Q44: at once if the call could be made; else after two replies, as for any words."""
    plan = json.dumps({"action": "submit_plan", "arguments": {"title": "Order", "steps": STEPS[:1]}})
    first = json.dumps({"action": printed, "arguments": {"item": "lamp"}})
    model = ScriptedModel(roles={"triage": [plan], "execute": [first, *["…"] * 9]}, strict=False)
    shop = Shop()
    await play(model, [shop.look, shop.order], effects={"look": "read", "order": "write"}, settings=FREE)
    rounds = [request for request in model.requests if request.role == "execute"]
    assert [bool(request.tools) for request in rounds[:3]] == [True, not asked, False]


@pytest.mark.parametrize("name", MARKS)
async def test_thoughts_and_marks_never_reach_a_person(name: str) -> None:
    """Q44: neither in the answer nor while it is streamed."""
    before, after = MARKS[name]
    flow = await run(Shop(), triage=[f"{before}Paris is *big*.{after}"] * 2)
    assert (flow.status, flow.run.answer) == ("answered", "Paris is *big*.")
    assert {event["text"] for event in flow.told("speech")} <= {"Paris is *big*."}
