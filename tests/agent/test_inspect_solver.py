"""DoneWhen as a solver of Inspect, with Inspect's mock model. Contract: X07, X24, B01."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="an environment of its own has it: make inspect")
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import use_tools
from inspect_ai.tool import Tool, ToolError, tool

from donewhen.inspect import donewhen_solver

Reply = tuple[str, dict[str, Any]]
SETTINGS = {"verification": "grounded"}


@tool
def stock() -> Tool:
    """The tool of the task."""

    async def execute(item: str) -> str:
        """Say how many of an item there are.

        Args:
          item: The item.
        """
        if item == "door":
            raise ToolError("there is no such item")
        return f"{item}: 12"

    return execute


@tool
def sell(sold: list[str]) -> Tool:
    """A tool that writes."""

    async def execute(item: str) -> str:
        """Sell an item.

        Args:
          item: The item.
        """
        sold.append(item)
        return f"sold a {item}"

    return execute


def play(
    reply: Callable[[str, list[str]], Reply], tmp_path: Path, samples: list[Sample], *tools: Tool, **more: Any
) -> EvalLog:
    """Evaluate the samples; a reply is made of the whole prompt and the names of the tools."""

    def answer(messages: Any, tools: Any, *_: Any) -> ModelOutput:
        name, arguments = reply("\n".join(each.text for each in messages), [each.name for each in tools])
        output = ModelOutput.for_tool_call("mockllm/model", name, arguments)
        output.usage = ModelUsage(input_tokens=100, output_tokens=10, total_tokens=110)
        return output

    solving = donewhen_solver(SETTINGS, effects={"stock": "read"})
    task = Task(dataset=samples, solver=[use_tools(*tools), solving], scorer=includes())
    model = get_model("mockllm/model", custom_outputs=answer)
    return eval(task, model=model, display="none", log_dir=str(tmp_path), score_display=False, **more)[0]


def counted(prompt: str, names: list[str]) -> Reply:
    """Look at the stock, then answer."""
    if "lamp: 12" in prompt:
        return "answer", {"text": "There are 12.", "evidence": [{"id": "p.1", "quote": "lamp: 12"}]}
    return "stock", {"item": "lamp"}


def test_a_sample_is_solved_with_the_tools_of_its_task(tmp_path: Path) -> None:
    """X07: two samples side by side, one of them with a system message: the answers are scored, and the receipt is in
    the sample's store.
    """
    chat = [ChatMessageSystem(content="Be brief."), ChatMessageUser(content="How many lamps?")]
    log = play(
        counted, tmp_path, [Sample(input="How many lamps?", target="12"), Sample(input=chat, target="12")], stock()
    )
    assert log.status == "success", log.error
    assert [sample.output.completion for sample in log.samples or ()] == ["There are 12.", "There are 12."]
    assert [sample.store["donewhen"]["status"] for sample in log.samples or ()] == ["completed", "completed"]
    assert log.samples
    assert [event.function for event in log.samples[0].events if event.event == "tool"] == ["stock"]


def test_a_plan_runs_without_people(tmp_path: Path) -> None:
    """X24: a task's tool that writes runs once, without a question, and the receipt says so."""
    sold: list[str] = []

    def reply(prompt: str, names: list[str]) -> Reply:
        if "submit_plan" in names:
            return "submit_plan", {"steps": [{"content": "Sell a lamp", "done_when": "sold", "tools": ["sell"]}]}
        if "sold a lamp" in prompt:
            shown = [{"criterion": 1, "met": True, "evidence": [{"observation": "s1.1", "quote": "sold a lamp"}]}]
            return "finish_step", {"result": "A lamp is sold.", "goal_check": shown}
        return "sell", {"item": "lamp"}

    log = play(reply, tmp_path, [Sample(input="Sell a lamp", target="sold")], sell(sold))
    assert log.samples
    assert not log.samples[0].error, log.samples[0].error.traceback
    found = log.samples[0].store["donewhen"]
    assert (sold, found["status"]) == (["lamp"], "completed"), found
    assert [row["tool"] for row in found["receipt"]["effects"]] == ["sell"]


def test_what_a_tool_refuses_is_told_to_the_model(tmp_path: Path) -> None:
    """X07: a ToolError of a task's tool is a result, and the run goes on."""

    def reply(prompt: str, names: list[str]) -> Reply:
        if "no such item" in prompt:
            return "answer", {
                "text": "There is none: no such item.",
                "evidence": [{"id": "p.1", "quote": "there is no such item"}],
            }
        return "stock", {"item": "door"}

    log = play(reply, tmp_path, [Sample(input="How many doors?", target="no such")], stock())
    assert log.samples
    assert "no such item" in log.samples[0].output.completion


@pytest.mark.parametrize("limit", [{"token_limit": 150}, {"message_limit": 1}])
def test_the_limits_of_an_evaluation_hold(limit: dict[str, int], tmp_path: Path) -> None:
    """B01: a limit of Inspect ends the sample, as with any solver."""
    asked: list[str] = []

    def reply(prompt: str, names: list[str]) -> Reply:
        asked.append(prompt)
        return "stock", {"item": f"lamp {len(asked)}"}

    log = play(reply, tmp_path, [Sample(input="How many lamps?", target="12")], stock(), **limit)
    assert log.samples
    assert log.samples[0].limit is not None
    assert len(asked) < 4


def test_a_model_that_fails_is_an_error_of_the_sample(tmp_path: Path) -> None:
    """X07: an outage is not scored as a wrong answer, so Inspect can try the sample again."""

    def reply(prompt: str, names: list[str]) -> Reply:
        raise RuntimeError("401 invalid api key")

    log = play(reply, tmp_path, [Sample(input="How many lamps?", target="12")], stock())
    assert log.status == "error"
    assert "401" in str(log.error and log.error.message)


def test_the_example_answers_its_question(capsys: pytest.CaptureFixture[str]) -> None:
    """X07: `with_inspect.py` plays a task of one sample."""
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "with_inspect.py"), run_name="__main__")
    assert capsys.readouterr().out == "accuracy: 1.0\nstatus: answered\n"
