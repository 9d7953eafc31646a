"""The graph compiled by somebody else, with nothing but a checkpointer: answers as clients send them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore
from langgraph.types import Command

from donewhen import Settings, build_graph
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from tests.kit.runs import config, said, scripted, step


def send() -> str:
    """Send it."""
    return "sent " * 5_000


def as_text(name: str = "confirm_plan", key: str = "edited_action") -> Any:
    """The plan's text with the second step renamed, as agent-chat-ui and its kin send it back."""

    def edited(shown: str) -> Any:
        return {
            "decisions": [{"type": "edit", key: {"name": name, "args": {"plan": shown.replace("on s2", "no more")}}}]
        }

    return edited


STEPS = [{"id": "s1", "content": "work on s1"}, {"id": "s2", "content": "work no more"}]
PLAN = {"title": "Two", "steps": STEPS}


def two_steps() -> ScriptedModel:
    return scripted(submit_plan([step("s1"), step("s2")], title="Two"), {"s1": [said("s1")], "s2": [said("s2")]})


async def answered(value: Any) -> dict[str, Any]:
    """What the graph returns for an answer to its plan of two steps, or to the text of it."""
    graph = build_graph(two_steps()).compile(checkpointer=InMemorySaver())
    out = await graph.ainvoke({"messages": "do it"}, config("t"))
    given = value(out["__interrupt__"][0].value["action_requests"][0]["args"]["plan"]) if callable(value) else value
    return dict(await graph.ainvoke(Command(resume=given), config("t")))


async def test_an_edit_cannot_say_that_a_step_is_done() -> None:
    """C02, C03: keys that no plan has are named, and nothing of the edit is taken."""
    forged = {**STEPS[0], "status": "done", "result": "forged"}
    out = await answered({"steps": [forged, STEPS[1]], "outcome": {"status": "completed"}})
    (pause,) = out["__interrupt__"]
    assert all(key in pause.value["problem"] for key in ("outcome", "status", "result"))
    assert not out.get("outcome")


@pytest.mark.parametrize(
    "value",
    [
        as_text(),
        lambda shown: f"```yaml\n{shown.replace('on s2', 'no more')}```",
        [{"type": "edit", "args": {"action": "confirm_plan", "args": {"plan": PLAN}}}],
        {"type": "approve", "plan": PLAN},
        {"plan": json.dumps(PLAN)},
        {"resume": {"type": "edit", "plan": PLAN}},
    ],
)
async def test_an_edit_in_every_shape(value: Any) -> None:
    """C02, C03: whole and as the edited text, wrapped as each client wraps it."""
    out = await answered(value)
    assert out["outcome"]["status"] == "answered"
    assert [each["content"] for each in out["plan"]["steps"]] == ["work on s1", "work no more"]
    (row,) = out["outcome"]["receipt"]["approvals"]
    assert (row["kind"], row["decision"]) == ("plan", "edit")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([{"op": "replace", "path": "/steps/1/content", "value": "x"}], "a JSON Patch is no answer"),
        ({"steps": [{"id": "s1", "content": "x"}] * 2}, "ids are unique"),
        ({"plan": {"steps": []}}, "at least one step"),
        ({"steps": STEPS, "limits": {"rouns": 9999}}, "“rouns” is no limit"),
        ({"steps": [{"content": "x", "depends_on": ["s7"]}]}, "'s7', which is not a step"),
        (as_text("send"), "of send, not"),
        ({"decisions": [{"type": "approve"}, {"type": "approve"}]}, "2 decisions"),
        ('```json\n{"type": "approve"\n```', "the JSON cannot be read"),
        ({"type": "approve", "id": "confirm.0"}, "stale"),
    ],
)
async def test_what_does_not_fit_keeps_the_pause(value: Any, why: str) -> None:
    """C02, C03, C04: nothing runs, the same plan waits under the same id; the reason stands where clients draw it."""
    out = await answered(value)
    (pause,) = out["__interrupt__"]
    assert why in pause.value["problem"]
    assert why in pause.value["action_requests"][0]["description"]
    assert [each["content"] for each in pause.value["plan"]["steps"]] == ["work on s1", "work on s2"]
    assert pause.value["id"] == f"confirm.{pause.value['revision']}"
    assert not out.get("todos")


async def test_a_plain_answer_delivered_twice_answers_the_next_question_too() -> None:
    """C06: what LangGraph alone cannot tell apart; ids can, and the second one is reported (C04)."""
    graph = build_graph(scripted([submit_plan([step("s1")])] * 2, deliver=())).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({"messages": "do it"}, config("t"))
    first = (await graph.ainvoke(Command(resume="change: make it shorter"), config("t")))["__interrupt__"][0]
    named = {"type": "approve", "id": "confirm.0123456789abcdef"}
    again = (await graph.ainvoke(Command(resume=named), config("t")))["__interrupt__"][0]
    assert "stale" in again.value["problem"]
    assert again.value["id"] == first.value["id"]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_store_without_async_methods(way: str) -> None:
    """N32: langgraph's SqliteStore refuses every async method; effects and long results are kept in it all the same."""
    with SqliteStore.from_conn_string(":memory:") as store:
        store.setup()
        model = scripted(submit_plan([step("s1", tools=["send"])]), {"s1": [call("send"), finish_step("sent", "s1.1")]})
        graph = build_graph(model, tools=[send]).compile(checkpointer=InMemorySaver(), store=store)
        run = getattr(graph, way)({"messages": "do it"}, config("t"), context=Settings(confirm="never"))
        out = await run if way == "ainvoke" else run
        assert out["outcome"]["status"] == "completed"
        assert store.search(("donewhen",))


IMPORTED = """
import asyncio, sys, threading
from importlib.abc import MetaPathFinder

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "jsonschema":
            print("loop" if threading.current_thread() is threading.main_thread() else "thread")

from donewhen import Settings, build_graph
from donewhen.testing import ScriptedModel, answer
graph = build_graph(ScriptedModel([answer("It is so.")])).compile()
sys.meta_path.insert(0, Finder())
given = {"messages": [{"role": "user", "content": "is it?"}]}
asyncio.run(graph.ainvoke(given, context=Settings(output_schema=OUTPUT)))
"""


@pytest.mark.parametrize("output", [None, {"type": "object", "patternProperties": {"a": {"type": "string"}}}])
def test_nothing_that_lists_files_is_imported_in_the_loop(output: Any) -> None:
    """Servers refuse blocking calls in their event loop; jsonschema lists files when it is imported (Python 3.13)."""
    script = IMPORTED.replace("OUTPUT", repr(output))
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert found.stdout.split() == ["thread"], found.stderr


async def test_a_model_by_role_or_by_a_name_of_the_settings_is_asked_in_place_of_the_first() -> None:
    """`models` of `build_graph` are used for their role, and for the name that `Settings.models` gives."""
    planner, worker = two_steps(), two_steps()
    models = {"plan": planner, "triage": planner, "small": worker}
    settings = Settings(confirm="never", models={"execute": "small"})
    graph = build_graph(ScriptedModel([]), models=models, settings=settings).compile(checkpointer=InMemorySaver())
    out = await graph.ainvoke({"messages": "do it"}, config("t"))
    assert {"execute"} <= {request.role for request in worker.requests}, out
    assert {"triage"} == {request.role for request in planner.requests}


def test_a_store_that_ends_before_its_checkpointer_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R02: two requests, one warning, also without any store, for a fork; none where both last or nothing writes."""

    class OwnSaver(SqliteSaver):
        """Named in the warning, which this process has not given before."""

    def look() -> str:
        """Look."""
        return "green"

    def warnings(*stores: Any, saver: Any, effect: Any = "write") -> list[str]:
        caplog.clear()
        for number, store in enumerate(stores):
            built = build_graph(ScriptedModel([answer("Hello.")]), [look], effects={"look": effect})
            built.compile(checkpointer=saver, store=store).invoke({"messages": "Hi"}, config(f"t{number}"))
        return [row.getMessage() for row in caplog.records if row.levelname == "WARNING"]

    with OwnSaver.from_conn_string(str(tmp_path / "runs.db")) as saver:
        with SqliteStore.from_conn_string(str(tmp_path / "store.db")) as store:
            store.setup()
            assert warnings(store, saver=saver) == []
        assert warnings(None, InMemoryStore(), saver=saver, effect="read") == []
        (said,) = warnings(InMemoryStore(), InMemoryStore(), saver=saver)
        assert "not kept as long as the checkpoints of OwnSaver" in said
        assert "InMemoryStore" in said
    assert warnings(InMemoryStore(), InMemoryStore(), saver=InMemorySaver()) == []
    (said,) = warnings(None, None, saver=InMemorySaver())
    assert "in a fork of the thread" in said
    assert warnings(None, saver=None) == []
