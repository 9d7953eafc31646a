"""A tool of a step may ask a person by LangGraph's `interrupt`: the question is the run's, in words or as a form."""

import inspect
import itertools
import json
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step
from tests.kit.flows import Flow, one_step, play
from tests.kit.runs import last_seen

SIZE = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "enum": ["S", "M", "L"]},
        "count": {"type": "integer", "minimum": 1, "default": 1},
    },
    "required": ["size"],
}
FREE = {"confirm": "never", "approvals": "never"}
MADE: list[str] = []


@tool
def order(what: str) -> str:
    """Order something."""
    form = interrupt({"question": f"Which {what}?"}, response_schema=SIZE)
    if form is None:
        return "not ordered"
    gift = interrupt("Is it a gift?")
    MADE.append(what)
    return f"{form['count']} {what} in {form['size']}, gift: {gift}"


@tool
def look(what: str) -> str:
    """Look, and ask where."""
    return f"{what} is {interrupt({'question': f'Where is {what}?'})}"


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


@pytest.mark.parametrize("form", [{"size": "L", "count": 2}, '{"size": "L", "count": 2}', "size: L\ncount: 2"])
async def test_what_a_write_asks_is_answered_and_the_write_is_made_once(form: Any) -> None:
    """N42, X07: two questions of one call, the first a form; the model is told what was said, and may cite it."""
    model = one_step([call("order", what="shirt"), finish_step("ordered", "s1.3")])
    flow = await play(model, [order], effects={"order": "write"}, settings=FREE, answers=["XL", form, "yes, for Anna"])
    assert [pause["question"] for pause in flow.pauses] == ["Which shirt?", "Which shirt?", "Is it a gift?"]
    assert flow.pauses[0]["schema"] == SIZE
    assert "size" in flow.pauses[1]["problem"]
    assert (flow.status, MADE) == ("completed", ["shirt"])
    assert done(flow) == "2 shirt in L, gift: yes, for Anna"
    assert '“Is it a gift?”; they said "yes, for Anna"' in model.requests[-1].messages[-1].text


async def test_a_form_that_nobody_fills_is_declined() -> None:
    """N42: to decline is an answer: the tool goes on without the form."""
    model = one_step([call("order", what="shirt"), finish_step("nothing to do", "s1.2")])
    flow = await play(model, [order], effects={"order": "write"}, settings=FREE, answers=[{"type": "ignore"}])
    assert (flow.status, MADE, done(flow)) == ("completed", [], "not ordered")


async def test_reads_beside_each_other_ask_one_after_the_other() -> None:
    """N42: what did not ask is recorded at once; what asks is called again with its answer only."""
    calls: list[str] = []

    def count(what: str) -> str:
        """Count."""
        calls.append(what)
        return f"3 {what}"

    reply = [call("look", what="a"), call("count", what="b"), call("look", what="c")]
    model = one_step([reply, finish_step("ok", "s1.4")])
    flow = await play(model, [look, count], effects={"look": "read", "count": "read"}, answers=["here", "there"])
    assert [pause["question"] for pause in flow.pauses] == ["Where is a?", "Where is c?"]
    assert [entry["text"] for entry in flow.journal if entry["source"] == "tool"] == ["3 b", "a is here", "c is there"]
    assert (flow.status, calls) == ("completed", ["b"])


async def test_another_process_answers_what_a_tool_asked(tmp_path: Path) -> None:
    """N42: the question is in storage; nothing of the tool's call is held in memory."""
    storage = f"sqlite:///{tmp_path}/runs.db"
    script = [call("order", what="shirt"), finish_step("ordered", "s1.3")]
    async with Agent(one_step(script[:1]), [order], storage=storage, effects={"order": "write"}) as first:
        run = await first.start("Order a shirt", settings=FREE)
        assert run.pending[0]["question"] == "Which shirt?"
    executing = ScriptedModel(roles={"execute": script[1:]})
    async with Agent(executing, [order], storage=storage, effects={"order": "write"}) as second:
        run = await second.resume(run.thread_id, {"size": "M"})
        run = await second.resume(run.thread_id, "no")
    assert (run.status, MADE) == ("completed", ["shirt"])


def done(flow: Flow) -> str:
    """Return the result of the last call."""
    return [str(entry["text"]) for entry in flow.journal if entry["source"] == "tool"][-1]


class Address(BaseModel):
    """A typed form."""

    city: str


async def test_a_form_may_be_a_model() -> None:
    """N42: LangGraph's `response_schema` of a class; one field is answered by its value alone."""
    flow = await asked_by(lambda: interrupt("Where to?", response_schema=Address).city, "Bremen")
    assert (flow.status, done(flow)) == ("completed", "Bremen")


NESTED: dict[str, Any] = {"type": "string"}


for _ in range(400):
    NESTED = {"type": "object", "properties": {"a": NESTED}}


KEY = "sk-proj-" + "abcdEFGH1234567890" * 2
for _ in range(400):
    NESTED = {"type": "object", "properties": {"a": NESTED}}


@pytest.mark.parametrize("schema", [NESTED, {**SIZE, "required": 5}, {**SIZE, "type": "nothing"}])
async def test_a_schema_that_nobody_can_fill_is_asked_in_words(schema: dict[str, Any]) -> None:
    """N42: a server's schema cannot end the run; credentials in its words are shown to nobody."""
    flow = await asked_by(lambda: interrupt({"question": f"Where to, with {KEY}?", "schema": schema}), "Bremen")
    assert (flow.status, done(flow), "schema" in flow.pauses[0]) == ("completed", "Bremen", False)
    assert KEY not in str(flow.pauses) + str(flow.values)


async def test_options_and_forms_hold_no_credentials() -> None:
    """N42, X26: what a server puts into an option, a title or a default is shown as little as what it says."""
    room = {"type": "string", "title": f"Room ({KEY})", "enum": ["1", KEY], "default": KEY}
    form = {"type": "object", "required": ["room"], "properties": {"room": room}}

    def ask() -> str:
        which = interrupt({"question": "Which?", "options": ["this", KEY]})
        return f"{which} {interrupt('Where?', response_schema=form)}"

    flow = await asked_by(ask, "1", {"room": "1"})
    assert (flow.status, flow.pauses[0]["options"]) == ("completed", ["this", "[redacted]"])
    assert flow.pauses[1]["schema"]["properties"]["room"]["enum"] == ["1", "[redacted]"]
    assert KEY not in str(flow.pauses) + str(flow.values) + str(flow.events)


@pytest.mark.parametrize("fields", [["type", "text"], ["id", "name"], ["action"], ["answers"]])
async def test_fields_named_like_decisions_are_filled_and_cancel_cancels(fields: list[str]) -> None:
    """N42, C12: a form may have a field `id` or `type`; the button Cancel is no answer to it."""
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in fields}}
    filled = dict.fromkeys(fields, "later")
    form = filled if len(fields) > 1 else json.dumps(filled)
    flow = await asked_by(lambda: interrupt("Fill it in", response_schema=schema), form)
    assert (flow.status, done(flow)) == ("completed", str(filled))
    flow = await asked_by(lambda: interrupt("Fill it in", response_schema=schema), {"type": "cancel"})
    assert flow.status == "cancelled"


@pytest.mark.parametrize("saver", [None, True])
async def test_a_graph_that_a_tool_runs_asks_and_is_answered(saver: Any) -> None:
    """N42, X07: interrupts of a graph within a tool are questions as well, each answered once and in its turn."""

    class Wish(TypedDict):
        said: str

    def ask(state: Wish) -> Wish:
        return {"said": f"{interrupt('Which colour?')} {interrupt('Which size?')}"}

    within = StateGraph(Wish).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=saver)

    async def wish() -> str:
        first = interrupt("Really?")
        return f"{first}: {(await within.ainvoke({'said': ''}))['said']} {interrupt('When?')}"

    flow = await asked_by(wish, "yes, really", "red", "large", "on Monday")
    assert [pause["question"] for pause in flow.pauses] == ["Really?", "Which colour?", "Which size?", "When?"]
    assert (flow.status, done(flow)) == ("completed", "yes, really: red large on Monday")


async def test_a_tool_that_asks_without_end_is_given_up() -> None:
    """N42, C02, X24: where nobody is asked each question is a call of the budget; without a limit the run ends too."""
    numbers = itertools.count()
    flow = await asked_by(lambda: [interrupt(f"{n}?") for n in numbers], on_question="assume")
    assert "The tool asked 20 times and was given up." in [entry["text"] for entry in flow.journal]
    alone = {"on_question": "assume", "limits": {"tool_calls": 5}}
    flow = await asked_by(lambda: [interrupt(f"{n}?") for n in range(1000)], **alone)
    assert (flow.status, flow.run.spent["tool_calls"]) == ("exhausted", 5)


async def asked_by(ask: Any, *answers: Any, effect: str = "read", **settings: Any) -> Flow:
    """A step that calls a tool once, which asks so, and finishes on what it returned."""

    async def use(what: str) -> str:
        """Use something."""
        said = ask()
        return str(await said if inspect.isawaitable(said) else said)

    script = [call("use", what="x"), lambda messages, _: finish_step("done", last_seen(messages))]
    return await play(
        one_step(script), [use], effects={"use": effect}, settings={**FREE, **settings}, answers=list(answers)
    )
