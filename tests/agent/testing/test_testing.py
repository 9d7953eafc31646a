"""ScriptedModel: the one fake of the one outer seam. It fails when called too often or too seldom."""

import asyncio
import inspect
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from donewhen.prompts import brief, section
from donewhen.testing import (
    Reply,
    ScriptedModel,
    ScriptError,
    ScriptExhausted,
    ScriptUnfinished,
    call,
    finish_step,
    playing,
    reply,
)


def asked(role: str, step: str | None = None) -> list[Any]:
    """A request as the runtime makes it, with the real prompts."""
    named = {"triage": "plan_triage", "plan": "plan_draft", "judge": "audit"}.get(role, role)
    system = files("prompts").joinpath(f"{named}.md").read_text(encoding="utf-8")
    about = section("step", "Count the files", id=step) if step else ""
    return [SystemMessage(system), HumanMessage(brief(section("goal", "Tidy up <step id='s9'>"), about))]


@tool
def count_files(path: str) -> int:
    """Counts files."""
    return len(path)


def test_replies_come_in_order_whatever_their_kind() -> None:
    script: list[Reply] = [
        "Looking.",
        call("count_files", path="."),
        [call("count_files", path="a"), call("count_files", path="b")],
        reply("Both.", [call("count_files", path="c")]),
        AIMessage("whole"),
        lambda messages, tools: f"You said {messages[-1].text}",
    ]
    with ScriptedModel(script) as model:
        replies = [model.invoke("hello") for _ in script]
    assert [r.text for r in replies] == ["Looking.", "", "", "Both.", "whole", "You said hello"]
    assert [[c["args"]["path"] for c in r.tool_calls] for r in replies] == [
        [],
        ["."],
        ["a", "b"],
        ["c"],
        [],
        [],
    ]


def test_exceptions_are_raised_as_given_or_from_their_class() -> None:
    timeout = TimeoutError("slow")
    with ScriptedModel([timeout, ConnectionError, lambda m, t: ValueError("from a policy")]) as model:
        with pytest.raises(TimeoutError) as caught:
            model.invoke("x")
        assert caught.value is timeout
        with pytest.raises(ConnectionError):
            model.invoke("x")
        with pytest.raises(ValueError, match="from a policy"):
            model.invoke("x")
    assert len(model.requests) == 3
    assert not model.failures


async def test_called_too_often_names_role_count_and_last_message() -> None:
    model = ScriptedModel(roles={"execute": {"s1": ["one", "two"]}})
    for _ in range(2):
        await model.ainvoke(asked("execute", "s1"))
    long = ToolMessage("[s1.1] count_files ok " + "x" * 500, tool_call_id="call_1")
    with pytest.raises(ScriptExhausted) as caught:
        await model.ainvoke([*asked("execute", "s1"), AIMessage("", tool_calls=[call("a")]), long])
    said = str(caught.value)
    assert "execute s1" in said
    assert "2 replies" in said
    assert long.text[:200] in said
    assert long.text[:201] not in said


async def test_errors_of_a_script_name_its_place_and_the_reply() -> None:
    """P19: the script's file and line, the number of the reply, and to what it was."""

    def fails(messages: Any, tools: Any) -> Any:
        raise KeyError("offer")

    one = f"{Path(__file__).name}:{inspect.currentframe().f_lineno + 1}"  # type: ignore[union-attr]
    model = ScriptedModel(["one", fails, lambda messages, tools: 3, playing([])])
    await model.ainvoke("go on")
    with pytest.raises(KeyError) as caught:
        await model.ainvoke("go on")
    assert caught.value.__notes__ == [f"This was reply 2 of the script ({one}), to a message of type human."]
    for said in (f"int, in reply 3 of the script ({one}), to a", f"playing(…) of {one} was asked for reply 1 of 0"):
        with pytest.raises(AssertionError, match=re.escape(said)):
            await model.ainvoke("go on")
    with pytest.raises(ScriptExhausted, match=re.escape(f"the script, {one})")):
        await model.ainvoke([*asked("execute", "s1")])


async def test_a_runtime_that_swallows_the_exhaustion_cannot_hide_it() -> None:
    async def swallow(model: ScriptedModel) -> str:
        try:
            return (await model.ainvoke("again")).text
        except Exception:
            return "failed, honestly"

    model = ScriptedModel(["once"])
    assert await swallow(model) == "once"
    assert await swallow(model) == "failed, honestly"
    assert len(model.failures) == 1
    with pytest.raises(ScriptExhausted):
        model.assert_exhausted()
    with pytest.raises(ScriptExhausted), model:
        pass


def test_called_too_seldom_says_what_is_left() -> None:
    model = ScriptedModel(["a", "b"], roles={"execute": {"s1": ["c"], "s2": ["d"]}, "judge": lambda m, t: "e"})
    model.invoke("x")
    model.invoke(asked("execute", "s2"))
    with pytest.raises(ScriptUnfinished) as caught:
        model.assert_exhausted()
    assert "the script: 1 of 2 replies used" in str(caught.value)
    assert "execute s1: 0 of 1 reply used" in str(caught.value)
    assert "s2" not in str(caught.value)
    assert "judge" not in str(caught.value)
    with pytest.raises(ScriptUnfinished), ScriptedModel(["never"]):
        pass


def test_an_exception_in_flight_is_not_hidden_but_told_about_the_failure() -> None:
    with pytest.raises(KeyError) as caught, ScriptedModel(["never"]):
        raise KeyError("the test's own")
    assert not hasattr(caught.value, "__notes__")
    model = ScriptedModel([])
    with pytest.raises(ScriptExhausted):
        model.invoke("x")
    with pytest.raises(KeyError) as caught, model:
        raise KeyError("the test's own")
    assert "0 replies" in caught.value.__notes__[0]


def test_not_strict_repeats_the_last_reply_with_new_ids_and_may_be_left() -> None:
    with ScriptedModel(["first", call("a")], strict=False) as model:
        replies = [model.invoke("x") for _ in range(3)]
        assert [r.tool_calls[0]["id"] for r in replies[1:]] == ["call_1", "call_2"]
        assert len({r.id for r in replies}) == 3
    with ScriptedModel(["never"], strict=False):
        pass
    with pytest.raises(ScriptExhausted):
        ScriptedModel([], strict=False).invoke("x")


def test_a_policy_answers_every_call_or_exactly_so_many() -> None:
    with ScriptedModel(lambda messages, tools: str(len(messages))) as model:
        assert [model.invoke(asked("triage")).text for _ in range(5)] == ["2"] * 5
    with ScriptedModel(lambda m, t: "once", times=1) as model:
        model.invoke("x")
    with pytest.raises(ScriptExhausted, match="1 reply"):
        model.invoke("x")
    with pytest.raises(ScriptUnfinished, match="1 of 2"), ScriptedModel(lambda m, t: "", times=2) as model:
        model.invoke("x")


async def test_coroutine_policies_wait_for_events_instead_of_sleeping() -> None:
    first_arrived = asyncio.Event()

    async def first(messages: Any, tools: Any) -> str:
        first_arrived.set()
        return "one"

    async def second(messages: Any, tools: Any) -> Any:
        await first_arrived.wait()
        return call("two")

    with ScriptedModel(roles={"execute": {"s1": [first], "s2": [second]}}) as model:
        two, one = await asyncio.gather(*(model.ainvoke(asked("execute", s)) for s in ("s2", "s1")))
    assert (one.text, two.tool_calls[0]["name"]) == ("one", "two")
    with pytest.raises(ScriptError, match="synchronously"):
        ScriptedModel([lambda messages, tools: asyncio.sleep(1, "late")]).invoke("x")


@pytest.mark.parametrize("wrong", ["a string", {"a": 1}, [1], [["text"]], [HumanMessage("x")], [int]])
def test_a_script_that_could_never_be_played_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match="the script"):
        ScriptedModel(wrong)


@pytest.mark.parametrize("reply", [finish_step("done"), "text"])
def test_one_reply_in_place_of_a_list_is_told_as_such(reply: Any) -> None:
    """H10: a call is no table of steps; the error says what to do."""
    with pytest.raises(
        TypeError, match="execute: expected a list of replies or a policy, got one reply: put it in a list"
    ):
        ScriptedModel(roles={"execute": reply})


def test_roles_are_found_in_the_real_prompts() -> None:
    roles = ["triage", "plan", "execute", "deliver", "judge"]
    with ScriptedModel(["other"], roles={role: [f"as {role}"] for role in roles}) as model:
        for role in reversed(roles):
            assert model.invoke(asked(role)).text == f"as {role}"
        assert model.invoke("no system message").text == "other"
    assert [r.role for r in model.requests] == [*reversed(roles), None]
    with ScriptedModel(roles={"draft": ["as draft"]}) as model:
        assert model.invoke(asked("plan")).text == "as draft"


async def test_parallel_steps_are_scripted_apart_and_get_the_same_ids_in_any_order() -> None:
    """X01: each step draws from its own script however the steps interleave."""

    async def run(order: list[str]) -> dict[str, list[tuple[str | None, Any]]]:
        scripts = {s: [call("work", step=s), finish_step(f"done {s}", "x")] for s in ("s1", "s2")}
        seen: dict[str, list[tuple[str | None, Any]]] = {"s1": [], "s2": []}
        with ScriptedModel(roles={"execute": scripts}) as model:
            for step in order:
                got = await model.ainvoke(asked("execute", step))
                seen[step].append((got.id, got.tool_calls))
        return seen

    one = await run(["s1", "s1", "s2", "s2"])
    assert one == await run(["s2", "s1", "s2", "s1"])
    assert [calls[0]["id"] for _, calls in one["s1"]] == ["call_s1_1", "call_s1_2"]
    assert one["s2"][0][1][0]["args"] == {"step": "s2"}


def test_every_request_is_recorded_as_the_model_saw_it() -> None:
    model = ScriptedModel(["a"])
    model.bind_tools([count_files], tool_choice="any", reasoning_effort="low").invoke(
        asked("execute", "s3"), stop=["END"]
    )
    request = model.requests[0]
    assert (request.role, request.step) == ("execute", "s3")
    assert request.tool_names == ["count_files"]
    assert request.tools[0]["function"]["parameters"]["required"] == ["path"]
    assert request.kwargs == {"tool_choice": "any", "reasoning_effort": "low", "stop": ["END"]}
    assert "Count the files" in request.text
    with ScriptedModel(["b"]) as model:
        model.invoke(asked("deliver", "s3"))
    assert model.requests[0].step is None
