"""Requests that are longer than their model reads: counted before they are sent, shortened, tried again, or ended."""

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from donewhen import Settings
from donewhen.graph.llm.history import compact_request, count_tokens, fits
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, answer, call, finish_step
from tests.kit.flows import one_step, play, requests, say_done

READ: dict[str, Any] = {"read": "read"}
FREE = {"confirm": "never", "promote_rounds": 90}


def read(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path} line {number}: nothing of note" for number in range(120))


def rounds(count: int) -> list[Any]:
    return [call("read", path=f"f{number}") for number in range(count)]


def within(model: ScriptedModel, most: int) -> list[bool]:
    """Of each request of the step, whether it was within so many tokens."""
    return [count_tokens(request.messages, request.tools) <= most for request in requests(model, "s1")]


async def test_a_long_step_is_shortened_to_the_settings_window() -> None:
    """M10: counted before it is sent; over the window the oldest rounds are a line each, the last result is there."""
    model = one_step([*rounds(12), finish_step("read", "s1.12")], tools=["read"])
    flow = await play(model, [read], effects=READ, settings={**FREE, "context_tokens": 8_000})
    model.assert_exhausted()
    assert flow.status == "completed"
    assert all(within(model, 8_000))
    last = requests(model, "s1")[-1]
    assert "Earlier rounds of this step" in last.text
    assert '[s1.1] read {"path":"f0"} ok' in last.text
    assert "f11 line 0" in last.text
    assert "f0 line 119" not in last.text


async def test_the_models_own_profile_is_its_window() -> None:
    """M10: LangChain's `max_input_tokens` counts where no setting says less; without either nothing is left out."""
    free = one_step([*rounds(12), finish_step("read", "s1.12")], tools=["read"])
    await play(free, [read], effects=READ, settings=FREE)
    assert not all(within(free, 8_000))
    model = one_step([*rounds(12), finish_step("read", "s1.12")], tools=["read"])
    model.profile = {"max_input_tokens": 8_000}
    flow = await play(model, [read], effects=READ, settings=FREE)
    assert flow.status == "completed"
    assert all(within(model, 8_000))


async def test_the_providers_no_leads_to_the_same() -> None:
    """M10, R01: a request that the provider finds too long is shortened and sent again, and so are the next ones."""
    refused = ModelError("This model's maximum context length is 6000 tokens", code="context_too_long")
    model = one_step([*rounds(10), refused, call("read", path="g"), finish_step("read", "s1.11")], tools=["read"])
    flow = await play(model, [read], effects=READ, settings=FREE)
    model.assert_exhausted()
    assert flow.status == "completed"
    sizes = [count_tokens(request.messages, request.tools) for request in requests(model, "s1")]
    assert sizes[11] < 0.65 * sizes[10]
    assert max(sizes[11:]) < 0.65 * sizes[10]
    assert flow.run.spent["model_calls"] == 15


async def test_what_cannot_be_shortened_ends_honestly() -> None:
    """M10: where the brief alone is too long, the run ends and says how long; nothing is sent, nothing is claimed."""
    model = ScriptedModel(roles={"triage": [answer("never")]})
    flow = await play(model, settings=Settings(context_tokens=1_000), goal="Do it. " * 2_000)
    assert model.requests == []
    assert flow.run.outcome is not None
    assert (flow.status, flow.run.outcome["code"]) == ("failed", "model_error")
    assert "the model takes 1,000" in flow.run.outcome["reason"]
    assert flow.run.spent.get("input_tokens", 0) == 0


async def test_a_small_window_cuts_observations_and_knows_it() -> None:
    """M10, V04: with little room an observation is shown in part: read on by `recall`, and marked as such."""
    work = [call("read", path="f"), finish_step("none", "s1.1")]
    model = one_step(work, done_when=["all lines were seen"], tools=["read"], deliver=say_done)
    flow = await play(model, [read], effects=READ, settings={**FREE, "context_tokens": 5_000, "on_failure": "deliver"})
    assert "characters left out; recall" in requests(model, "s1")[1].text
    assert flow.run.receipt["steps"][0]["criteria"][0]["evidence"] == [{"observation": "s1.1", "part": True}]


async def test_planning_is_not_told_of_recall() -> None:
    """X12: a planner has no `recall`; of what was cut it is told that a step can read it."""
    model = ScriptedModel(roles={"triage": [call("read", path="f"), answer("I saw a part of it.")]})
    await play(model, [read], effects=READ, settings={**FREE, "context_tokens": 5_000})
    shown = model.requests[1]
    assert "characters left out; a step can read them …" in shown.text
    assert "recall" not in shown.text
    assert "recall" not in str(shown.tools)


def test_the_last_round_is_cut_where_nothing_else_is_left() -> None:
    """M10, X14: calls and results stay pairs; results of one round that are too long together are cut in the middle."""
    calls = [{"name": "read", "args": {"path": str(n)}, "id": f"c{n}"} for n in range(4)]
    head = [SystemMessage("You work."), HumanMessage("The step.")]
    results = [ToolMessage(f"[s1.{n + 1}] read ok\n{'word ' * 4_000}", tool_call_id=f"c{n}") for n in range(4)]
    messages = [*head, AIMessage("", tool_calls=calls), *results]
    short = compact_request(messages, (), 4_000, "")
    assert short is not None
    assert fits(short, (), 4_000)
    assert [type(message) for message in short] == [type(message) for message in messages]
    assert 'recall(observation="s1.2"' in short[4].text
    assert compact_request(messages, (), 100, "") is None
