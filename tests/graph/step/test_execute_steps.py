"""Steps at work: what a model sees of them, how it decides, and how they end."""

from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, Executor
from donewhen.agent.workspace import workspace_tools
from donewhen.testing import ScriptedModel, ask_user, broken_call, call, finish_step, give_up, reply, submit_plan
from tests.kit.flows import last_told, one_step, play, requests, steps, unfenced

READ = {"look": "read", "total": "read"}


def look(what: str) -> str:
    """Look at something."""
    return f"{what} is green"


def total(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_a_step_sees_itself_the_goal_and_results_but_no_rounds_of_others() -> None:
    """X01"""
    plan = [
        {"content": "look at the apple", "tools": ["look"]},
        {"content": "look at the pear", "tools": ["look"], "depends_on": []},
        {"content": "weigh both", "depends_on": ["s1"]},
    ]
    model = steps(
        plan,
        {
            "s1": [call("look", what="apple"), finish_step("APPLE-RESULT", "s1.1")],
            "s2": [call("look", what="pear"), finish_step("PEAR-RESULT", "s2.1")],
            "s3": [finish_step("same", "s3.result")],
        },
    )
    flow = await play(model, [look], effects=READ, goal="Compare fruit")
    model.assert_exhausted()
    assert flow.status == "completed"
    seen = unfenced(requests(model, "s3")[0].text)
    assert "Compare fruit" in seen
    assert '<result step="s1">\nAPPLE-RESULT' in seen
    assert "PEAR-RESULT" not in seen
    assert '[s1.1] look {"what": "apple"} ok: apple is green' in seen
    assert "pear is green" not in seen
    assert "look at the pear" not in seen
    assert "weigh both" not in requests(model, "s1")[0].text


async def test_printed_calls_that_a_person_stops_come_back_in_one_message_too() -> None:
    """X02, X14, X15: what was done before the pause is told together with what is done after it."""

    def send(to: str) -> str:
        """Send a letter."""
        return f"sent to {to}"

    work = '[{"name": "look", "arguments": {"what": "a"}}, {"name": "send", "arguments": {"to": "Ann"}}]'
    model = one_step([work, finish_step("ok", "s1.2")])
    flow = await play(model, [look, send], effects=READ, answers=["approve"])
    assert flow.status == "completed"
    messages = requests(model, "s1")[-1].messages
    assert [m.type for m in messages] == ["system", "human", "ai", "human"]
    assert messages[-1].text.index("[s1.1] look ok") < messages[-1].text.index("[s1.2] send ok")


@pytest.mark.parametrize(("kind", "status"), [("blocked", "blocked"), ("failed", "failed"), ("replan", "failed")])
async def test_giving_up_ends_the_step_with_the_reason(kind: Any, status: str) -> None:
    """X02, X09: and what depends on it is blocked."""
    model = steps(["try", "use it"], {"s1": [give_up("no way in", kind)]}, deliver=["Sorry."])
    flow = await play(model, settings={"confirm": "never", "on_failure": "deliver"})
    assert flow.step("s1")["status"] == status
    assert flow.step("s1")["reason"] == "no way in"
    assert flow.step("s2")["status"] == "blocked"
    assert flow.step("s2")["reason"].startswith("needs “try”, which ")
    assert flow.status == "failed"


async def test_a_step_runs_with_the_executor_it_names() -> None:
    """X17: its profile, its model, its tools; names match exactly."""
    own = ScriptedModel(roles={"execute": [call("total", a=2, b=2), finish_step("4", "s1.1")]})
    executors = {
        "Adder[1]": Executor("adds", profile="You love sums.", model=own, tools=None),
        "adder": Executor("someone else"),
    }
    model = steps(
        [{"content": "add", "executor": "Adder[1]", "tools": ["total"]}, "say"], {"s2": [finish_step("x", "s2.result")]}
    )
    flow = await play(model, [look, total], effects=READ, executors=executors)
    own.assert_exhausted()
    model.assert_exhausted()
    assert flow.status == "completed"
    assert "You love sums." in own.requests[0].messages[0].text
    assert "You love sums." not in requests(model, "s2")[0].text


async def test_a_step_is_offered_reads_and_what_it_lists(tmp_path: Path) -> None:
    """K1: neither writes that the step does not list, nor tools that only decide checks."""

    def save(what: str) -> str:
        """Save."""
        return "saved"

    def drop(what: str) -> str:
        """Drop."""
        return "dropped"

    model = one_step([call("save", what="x"), finish_step("x", "s1.1")], tools=["save"])
    await play(model, [save, drop, *workspace_tools(tmp_path)], effects={"save": "write", "drop": "write"})
    offered = set(requests(model, "s1")[0].tool_names)
    assert {"save", "read_file", "find_text"} <= offered
    assert not offered & {"drop", "write_file", "delete_file", "file_exists", "file_contains", "matches_schema"}


async def test_what_only_an_executor_has_is_offered_to_nobody_else() -> None:
    """X17, X07: the planner sees whose it is; the default executor neither sees it nor gets past the plan with it."""
    from langchain_core.tools import StructuredTool

    secret = StructuredTool.from_function(total)
    plans = [submit_plan([{"content": "add", "tools": ["total"]}]), submit_plan([{"content": "look"}])]
    execute = {"s1": [call("total", a=1, b=1), call("look", what="it"), finish_step("seen", "s1.1")]}
    model = ScriptedModel(roles={"triage": plans, "execute": execute, "deliver": lambda *_: "Done."})
    hands = {name: Executor("adds", tools=(secret,)) for name in ("adder", "counter")}
    flow = await play(model, [look], effects=READ, executors=hands)
    model.assert_exhausted()
    assert "- adder: adds Its tools: total." in model.requests[0].text
    planned, called = (told["text"] for told in flow.told("correction"))
    assert "'total', which the default executor does not have; give the step the executor 'adder'" in planned
    assert "there is no tool 'total'" in called
    assert "total" not in requests(model, "s1")[0].tool_names


async def test_a_long_step_leaves_out_its_oldest_rounds_as_wholes_and_goes_on_with_the_rest() -> None:
    """X14, R09: a call and its result stay together, the latest stay, and the beginning is stable from round to round;
    what was left out is not stored again with what waits, and after each answer the prompt only grows."""
    rounds = [reply(f"{n}", [call("look", what=f"{n} " * 300)]) for n in range(40)]
    replies = [*rounds[:25], ask_user("Left?"), *rounds[25:], ask_user("Right?"), finish_step("ok", "s1.40")]
    model = one_step(replies, tools=["look"])
    settings = {"confirm": "never", "transcript_chars": 20_000, "step_limits": {"rounds": 100}, "mode": "step"}
    async with Agent(model, tools=[look], effects={"look": "read"}, storage="memory:", settings=settings) as agent:
        run = await agent.start("look around")
        while run.pending:
            stored = (await agent.graph.aget_state({"configurable": {"thread_id": run.thread_id}})).values
            [kept] = stored["transcripts"].values()
            before = requests(model, "s1")
            asked = before[-1].messages
            assert [m.text for m in kept[:-1]] == [m.text for m in asked[2:]]
            assert len(kept) < 30
            run = await agent.resume(run, "yes")
            after = requests(model, "s1")
            assert [m.text for m in after[len(before)].messages[: len(asked)]] == [m.text for m in asked]
    assert run.status == "completed"
    for request in after:
        calls = [c["id"] for m in request.messages for c in getattr(m, "tool_calls", ())]
        assert calls == [m.tool_call_id for m in request.messages if m.type == "tool"]
        assert sum(len(m.text) for m in request.messages[2:]) < 30_000
    assert len({request.messages[2].text for request in after[1:]}) < 40 / 3
    note = unfenced(after[-1].messages[2].text)
    assert note.startswith("Earlier rounds of this step")
    assert note.count("Earlier rounds of this step") == 1
    for words in ('[s1.20] look {"what":"19 19 19', " ok → 19 19 19", "you said: 19"):
        assert words in note
    model.assert_exhausted()


@pytest.mark.parametrize("room", [500_000, 2_000])
async def test_a_model_that_called_tools_prints_none_however_long_ago(room: int) -> None:
    """X14, F6: what it quotes is text, also when all that is left of its calls is the note of earlier rounds."""
    quoted = '{"action": "look", "arguments": {"what": "quoted"}}'
    words = [f"{'so ' * 1500}{n}" for n in range(2)]
    model = one_step([reply("", [call("look", what="a")]), *words, quoted, finish_step("ok", "s1.1")], tools=["look"])
    settings = {"confirm": "never", "transcript_chars": room, "mode": "step"}
    flow = await play(model, [look], effects=READ, settings=settings)
    assert flow.status == "completed"
    assert [entry["arguments"] for entry in flow.journal if entry["tool"] == "look"] == [{"what": "a"}]


@pytest.mark.parametrize(
    "illegal",
    [
        call("submit_plan", steps=["x"]),
        call("answer", text="hi"),
        broken_call("look", "{"),
        [ask_user("a?"), give_up("b")],
        "",
    ],
    ids=["plan", "answer", "broken", "two", "empty"],
)
async def test_anything_else_is_a_correction_that_lists_what_is_legal(illegal: Any) -> None:
    """X02, N71: and nothing that is not on offer, as `finish_task` is not in the last step."""
    model = one_step([illegal, finish_step("ok", "s1.result")])
    flow = await play(model, [look], effects=READ)
    assert flow.status == "answered"
    told = "\n".join(message.text for message in requests(model, "s1")[-1].messages[2:])
    assert told.count("Call one of these: ask_user, finish_step, give_up, or") == 1
    assert flow.run.spent["rounds"] == 2


async def test_what_a_model_is_told_to_do_is_no_reason_for_the_user() -> None:
    """N71, D01: why a step failed is said to the user, not what the model was to do about it."""
    claim = call("finish_step", result="no", goal_check=[{"criterion": 1, "met": False, "evidence": []}])
    model = one_step([claim] * 4, done_when=["it is green"])
    flow = await play(model, [look], effects=READ, settings={"confirm": "never", "on_failure": "deliver"})
    assert flow.status == "failed"
    assert "the model itself says that it is not met" in flow.step("s1")["reason"]
    assert "or give_up" in last_told(model)
    assert "give_up" not in flow.run.answer + flow.run.outcome["reason"]


async def test_the_executor_of_the_settings_works_on_what_names_nobody() -> None:
    """X17: shown in the plan, so that it is approved with it."""
    executors = {"adder": Executor("adds", profile="You love sums."), "other": Executor("else")}
    planned = [{"content": "add"}, {"content": "look", "executor": "other"}]
    model = steps(planned, {"s1": [finish_step("2", "s1.result")], "s2": [finish_step("x", "s2.result")]})
    flow = await play(model, executors=executors, settings={"confirm": "never", "executor": "adder"})
    assert flow.run.plan is not None
    assert [step["executor"] for step in flow.run.plan["steps"]] == ["adder", "other"]
    assert "You love sums." in requests(model, "s1")[0].text
