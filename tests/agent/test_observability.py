"""What tracing tools and logs show of a run, with no code of ours in between; each in a process of its own."""

import json
import logging
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from donewhen import Agent, ConfigError
from donewhen.agent.logs import JsonLines, set_up
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from tests.kit.flows import play
from tests.kit.places import ROOT


@cache
def spans(tool: str) -> list[dict[str, Any]]:
    """All spans of one run and its resume."""
    command = [sys.executable, "-m", "tests.kit.traced", tool]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.strip().splitlines()[-1]))


TOOLS = pytest.mark.parametrize("tool", ["openinference", "opentelemetry", "langfuse", "langsmith"])


@TOOLS
def test_each_node_is_one_span_in_its_place(tool: str) -> None:
    """U11: no node twice, subgraphs by their names, models and tools below the node that asks them."""
    found = spans(tool)
    short = [(span["name"].split(" ")[-1], span["parent"].split(" ")[-1]) for span in found]
    for node in ("receive", "plan", "deliver", "goal_check", "triage"):
        assert sum(name == node for name, _ in short) == 1, (node, short)
    parents = {name.removesuffix(".chat"): parent for name, parent in short}
    assert parents["triage"] == "planning"
    assert parents["decide"] == "step"
    assert parents["look"] == "decide"
    assert parents["ScriptedModel"] in ("decide", "triage", "goal_check")
    assert [name.removesuffix(".chat") for name, _ in short].count("ScriptedModel") == 4
    assert all("LangGraph" not in name for name, _ in short)


@TOOLS
def test_model_spans_say_where_they_belong(tool: str) -> None:
    """U11: step, executor, role, round and attempt stand beside each model call; the session is the thread."""
    models = [span for span in spans(tool) if span["name"].startswith("ScriptedModel")]
    told = [json.dumps(span["attributes"]) for span in models]
    assert ["thread-1" in each for each in told] == [True] * 4
    for each, role, step in zip(
        told, ("triage", "execute", "execute", "judge"), ("plan", "s1", "s1", "s1"), strict=True
    ):
        for key, value in (("role", role), ("step", step), ("attempt", "1")):
            place = each.find(f"donewhen_{key}")
            assert place > 0
            assert value in each[place : place + 60]
    assert ["donewhen_round" in each for each in told] == [True] * 4
    assert ["scout" in each.partition("donewhen_executor")[2][:40] for each in told] == [False, True, True, False]


@pytest.mark.parametrize(("tool", "key"), [("langfuse", "session.id"), ("langsmith", "langsmith.metadata.session_id")])
def test_traces_are_grouped_by_the_thread(tool: str, key: str) -> None:
    """U11: Langfuse, and LangSmith by OpenTelemetry, join the traces of a run and its resume as one session."""
    roots = [span for span in spans(tool) if not span["parent"]]
    assert len(roots) == 2
    assert {span["attributes"].get(key) for span in roots} == {"thread-1"}


def test_langsmith_knows_kinds_and_cost() -> None:
    """U11: what LangSmith reads from its spans: chains, models with their tokens, tools with what they gave."""
    found = spans("langsmith")
    kinds = {span["name"]: span["attributes"]["langsmith.span.kind"] for span in found}
    assert (kinds["donewhen"], kinds["ScriptedModel"], kinds["look"]) == ("chain", "llm", "tool")
    models = [span["attributes"] for span in found if span["name"] == "ScriptedModel"]
    assert all(int(each["gen_ai.usage.input_tokens"]) > 0 for each in models)
    assert {span["attributes"].get("langsmith.metadata.thread_id") for span in found} == {"thread-1"}


async def test_logs_tell_what_runs_do(caplog: pytest.LogCaptureFixture) -> None:
    """U11: the standard library's logging, with the event's fields; speech is not in it."""
    caplog.set_level(logging.INFO, logger="donewhen.graph")
    flow = await play(ScriptedModel([answer("Hi.")]))
    told = [record.event["type"] for record in caplog.records]  # type: ignore[attr-defined]
    assert told == ["goal", "mode", "outcome"]
    assert flow.run.thread_id in caplog.records[0].getMessage()
    line = json.loads(JsonLines().format(caplog.records[-1]))
    assert (line["logger"], line["level"], line["status"]) == ("donewhen.graph", "info", "answered")


async def test_no_credential_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """U11: what a person wrote is stored as it is, but the log is for others; arguments and results too."""
    token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"

    def send(text: str) -> str:
        """Send."""
        return f"sent {token}"

    caplog.set_level(logging.DEBUG, logger="donewhen")
    plan = submit_plan([{"content": f"Send {token}", "done_when": "sent", "tools": ["send"]}])
    work = [call("send", text=token), finish_step(f"sent {token}", "s1.1")]
    model = ScriptedModel(roles={"triage": [plan], "execute": work}, strict=False)
    settings: Any = {"confirm": "never", "approvals": "never", "verification": "grounded"}
    async with Agent(model, [send], storage="memory:", settings=settings) as agent:
        run = await agent.start(f"send {token}")
    assert token in run.goal
    lines = [JsonLines().format(record) for record in caplog.records] + [
        record.getMessage() for record in caplog.records
    ]
    assert any("[redacted]" in line for line in lines)
    assert not [line for line in lines if token in line]


def test_logs_are_set_up_as_asked() -> None:
    """U11: DONEWHEN_LOG=json writes an object a line to stderr; what it cannot be is said."""
    code = "from donewhen.agent.logs import set_up; import logging; set_up('json:debug'); "
    code += "logging.getLogger('donewhen.graph').debug('hello')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stderr)["message"] == "hello"
    with pytest.raises(ConfigError, match="DONEWHEN_LOG"):
        set_up("loud")
