"""Decisions printed as JSON by models without tool calling: both forms of the protocol, and recorded replies."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool

from donewhen.graph.llm.reply import Decision, UnusableReply, read_reply
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.reading.decisions import EXECUTE, TRIAGE
from donewhen.testing import ScriptedModel
from tests.kit.flows import play


def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


TOOLBOX = Toolbox([StructuredTool.from_function(add)])


def reading(text: str, legal: Any = EXECUTE) -> Decision | UnusableReply:
    return read_reply(AIMessage(text), legal, TOOLBOX if legal is EXECUTE else None)


def decided(text: str, legal: Any = EXECUTE) -> tuple[str, Any]:
    """Kind and arguments; of calls, their names and arguments."""
    found = reading(text, legal)
    assert isinstance(found, Decision), found
    return found.kind, [(c["name"], c["args"]) for c in found.calls] if found.kind == "calls" else found.arguments


FINISH = {"result": "five", "goal_check": [{"criterion": 1, "met": True, "evidence": [{"observation": "s1.1"}]}]}
ADD = [("add", {"a": 2, "b": 3})]


@pytest.mark.parametrize(
    "written",
    [
        {"action": "add", "a": 2, "b": 3},
        {"action": "add", "arguments": {"a": 2, "b": 3}},
        {"action": "add", "action_input": {"a": 2, "b": 3}},
        {"action": "add", "args": '{"a": 2, "b": 3}'},
        {"name": "add", "arguments": {"a": 2, "b": 3}},
        {"name": "add", "arguments": '{"a": 2, "b": 3}'},
        {"tool": "add", "args": {"a": 2, "b": 3}},
        {"function": "add", "parameters": {"a": 2, "b": 3}},
        {"tool_call": {"name": "add", "arguments": {"a": 2, "b": 3}}},
        {"action": "tool_call", "tool_call": {"name": "add", "arguments": {"a": 2, "b": 3}}},
        {"action": "continue", "speak": "Adding.", "tool_call": {"name": "add", "args": {"a": 2, "b": 3}}},
        {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}]},
        [{"action": "add", "args": {"a": 2, "b": 3}}],
    ],
)
def test_a_printed_call_is_read(written: Any) -> None:
    """P10: every usual way of printing a call, alone, in prose, in a fence, after a thought."""
    text = json.dumps(written)
    for raw in (
        text,
        f"I will add them.\n{text}",
        f"```json\n{text}\n```",
        f"<think>maybe {{}} or [1]</think>\nAction:\n```\n{text}\n```\nObservation: 6",
        text.replace('"', "'") if "\\" not in text else text,
        f"<tool_call>{text}</tool_call>",
        f"The file holds {{'rows': many, 'name': ...}}.\n{text}",
    ):
        assert decided(raw) == ("calls", ADD), raw


@pytest.mark.parametrize(
    ("written", "legal", "kind", "arguments"),
    [
        ({"action": "finish_step", **FINISH}, EXECUTE, "finish_step", FINISH),
        ({"action": "finish", "arguments": FINISH}, EXECUTE, "finish_step", FINISH),
        ({"action": "done", "speak": "five"}, EXECUTE, "finish_task", {"result": "five", "reason": "five"}),
        ({"action": "ask_user", "question": "Which?"}, EXECUTE, "ask_user", {"question": "Which?"}),
        ({"action": "ask_user", "speak": "Which?", "plan_steps": None}, TRIAGE, "ask_user", {"question": "Which?"}),
        ({"action": "ask", "reason": "unclear"}, TRIAGE, "ask_user", {"question": "unclear", "reason": "unclear"}),
        ({"action": "Final Answer", "action_input": "42"}, TRIAGE, "answer", {"text": "42"}),
        ({"action": "answer", "speak": "Hello!", "complexity": "simple"}, TRIAGE, "answer", {"text": "Hello!"}),
        ({"action": "fail", "reason": "no"}, EXECUTE, "give_up", {"reason": "no", "kind": "failed"}),
        ({"action": "refuse", "reason": "r", "speak": "No"}, TRIAGE, "decline", {"reason": "r", "guidance": "No"}),
        ({"action": "finish_task", "result": "r", "reason": "w", "goal_check": []}, EXECUTE, "finish_task",
         {"result": "r", "reason": "w", "goal_check": []}),
    ],
)  # fmt: skip
def test_both_forms_of_a_decision_are_read(written: Any, legal: Any, kind: str, arguments: Any) -> None:
    """P10, X02: `{"action": …}` and the original protocol's form give the same decision."""
    assert decided(f"Well.\n{json.dumps(written)}", legal) == (kind, arguments)


def test_a_plan_in_the_original_form_is_read() -> None:
    """P10: speak, action, reason, complexity, need_thinking, plan_steps."""
    text = """好的。
    {"speak": "我来统计", "action": "plan", "reason": "needs tools", "complexity": "moderate", "need_thinking": false,
     "plan_steps": [{"content": "读取文件", "done_when": "读到内容"}], "goal_check": null, "tool_call": null}"""
    kind, arguments = decided(text, TRIAGE)
    assert kind == "submit_plan"
    assert arguments["steps"] == [{"content": "读取文件", "done_when": ["读到内容"]}]
    assert (arguments["complexity"], arguments["speak"]) == ("moderate", "我来统计")


@pytest.mark.parametrize(
    "text",
    [
        "As shown in [1] and [2], it is so.",
        'add takes {"a": 1} as arguments',
        "the list [1,2,3] has three",
        'config = {"name": "demo", "version": 2}',
        "{x} and {'a': 1}",
        '{"steps": ["a"]}',
    ],
)
def test_json_that_is_no_decision_is_never_one(text: str) -> None:
    """P10: ✗ `[1]` from a citation or `[1,2,3]` from an argument is never a decision."""
    assert reading(text) == Decision("speak", speech=text)


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "add", "args": {"a": 1',
        '{"action": "add", "args": {"a": 1}',
        '[{"action": "answer", "text": "a"}',
        '{"action": "finish_step", "result": "it is',
        '{"action": "add", "args": {"a": customer_id}}',
        'Now.\n{"action": "add", "a": ...}',
        '{"tool_call": {"name": "add", "arguments": "{\\"a\\": 1"}}',
        '{"tool_call": {"arguments": {"a": 1}}}',
        '{"action": "tool_call", "tool_call": []}',
        '{"action": "add", "action_input": "two and three"}',
    ],
)
def test_a_decision_gone_wrong_is_a_correction(text: str) -> None:
    """P10, F6: half a decision, a placeholder, a call without a name: nothing is guessed, the model writes it again."""
    found = reading(text)
    assert isinstance(found, UnusableReply)
    assert "{" not in found.speech
    assert '{"action": "<name>", "arguments": {…}}' in found.text(EXECUTE)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"action": "answer", "text": "Paris."', "answer"),
        ('```json\n{"action": "answer", "arguments": {"text": "Paris."}\n```', "answer"),
        ('{"action": "submit_plan", "title": "t", "steps": [{"content": "a"}]', "submit_plan"),
        ('{"action": "submit_plan", "title": "t", "steps": [{"content": "a", "done_when": ["x"]}', None),
        ('{"action": "submit_plan", "title": "t", "steps": [{"content": "a"', None),
        ('{"action": "answer", "text": "Par', None),
    ],
)
def test_a_decision_that_lacks_only_braces_is_read(text: str, kind: str | None) -> None:
    """P10: a truncated decision is read where nothing of it can be missing; a plan that may have had more steps is
    not, and neither is anything that the provider says was cut off."""
    found = reading(text, TRIAGE)
    assert (found.kind if isinstance(found, Decision) else None) == kind
    cut = read_reply(AIMessage(text, response_metadata={"finish_reason": "length"}), TRIAGE)
    assert isinstance(cut, UnusableReply)


def test_only_the_first_printed_decision_counts() -> None:
    """F6: what follows a printed call was written as if it had been carried out; it is neither done nor said."""
    text = '{"action": "add", "args": {"a": 2, "b": 3}}\nObservation: 6\n{"action": "finish_step", "result": "6"}'
    found = reading(text)
    assert isinstance(found, Decision)
    assert decided(text) == ("calls", ADD)
    assert found.speech == ""


class Printing(ScriptedModel):
    """A model that cannot call tools."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


async def test_a_model_without_tool_calling_does_a_whole_run() -> None:
    """P10: told what it can call and how to print it, such a model plans, calls tools, proves and delivers."""
    plan = {"action": "submit_plan", "title": "Sum", "steps": [{"content": "add", "tools": ["add"]}]}
    rounds = ['{"action": "add", "arguments": {"a": 2, "b": 3}}', json.dumps({"action": "finish_step", **FINISH})]
    model = Printing(
        roles={"triage": [f"Sure.\n{json.dumps(plan)}"], "execute": rounds},
    )
    flow = await play(model, [add], effects={"add": "read"})
    model.assert_exhausted()
    assert (flow.status, flow.run.answer) == ("completed", FINISH["result"])
    triage, first, second = model.requests
    assert "You cannot call tools here" in triage.text
    assert '{"name": "submit_plan"' in triage.text
    assert '{"name": "add"' in first.text
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[-1].text.startswith("[s1.1] add ok")


@pytest.mark.parametrize("name", ["reply", "ask", "done", "plan", "finish", "think", "say", "tool", "continue", "fail"])
def test_a_tool_keeps_its_own_name(name: str) -> None:
    """B7: a domain tool is called by its exact name, whatever else models mean by that word."""
    box = Toolbox([StructuredTool.from_function(add, name=name)])
    found = read_reply(AIMessage(json.dumps({"action": name, "args": {"a": 1}})), EXECUTE, box)
    assert isinstance(found, Decision)
    assert (found.kind, [(each["name"], each["args"]) for each in found.calls]) == ("calls", [(name, {"a": 1, "b": 0})])


def test_where_no_plan_is_expected_steps_are_text() -> None:
    """P06: an executor that prints a list of steps speaks."""
    assert decided(json.dumps([{"content": "look"}])) == ("speak", {})
