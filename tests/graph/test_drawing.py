"""What needs no model, key or network: drawing the graph, building, listing threads; and the first call's error."""

import asyncio
import subprocess
import sys

import pytest
from langchain_core.messages import HumanMessage

from donewhen import Agent, AgentOptions, Models, Run, Settings, build_graph
from donewhen.agent.config import read_config
from donewhen.agent.models import ModelSource
from donewhen.graph.build import build_graph as built
from donewhen.state.errors import ConfigError
from donewhen.testing import ScriptedModel, answer
from tests.kit.golden import matches
from tests.kit.places import ROOT

KEYLESS = {"DONEWHEN_MODEL": "openai:gpt-5.4-mini", "DONEWHEN_STORAGE": "memory:"}
NOWHERE = {**KEYLESS, "OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}


def test_the_drawing_is_as_it_was() -> None:
    """DESIGN 2: the graph with its subgraphs, every node and every edge; a missing annotation would lose edges here."""
    graph = build_graph(ScriptedModel()).compile()
    matches("graph.mmd", graph.get_graph(xray=1).draw_mermaid())


def test_every_edge_says_when_it_is_taken() -> None:
    """U7: Studio shows a label at each of them, in subgraphs too."""
    drawn = build_graph(ScriptedModel()).compile().get_graph(xray=1)
    silent = {(e.source, e.target) for e in drawn.edges if not e.data and ":" not in e.source + e.target}
    assert silent == set()
    inner = [e for e in drawn.edges if e.source.partition(":")[0] == e.target.partition(":")[0] in ("plan", "execute")]
    assert all(e.data for e in inner)


def test_without_credentials_everything_but_a_call_works() -> None:
    """P19: without a key, import, build, drawing and the listing of threads work; nothing is connected to."""
    agent = Agent(options=AgentOptions(config=read_config(KEYLESS)))
    assert "confirm" in agent.graph.get_graph(xray=1).draw_mermaid()
    assert asyncio.run(agent.threads()) == []
    assert agent.graph.get_context_jsonschema()["properties"]["confirm"]
    assert built is build_graph


def test_importing_reads_no_environment_and_no_provider() -> None:
    """P19: the import needs no key, and loads no provider's library before a model is used."""
    code = (
        "import sys; from donewhen import Agent, AgentOptions; from donewhen.agent.config import read_config; "
        f"Agent(options=AgentOptions(config=read_config({KEYLESS!r}))).graph.get_graph(xray=1).draw_mermaid(); "
        "sys.exit(any(name in sys.modules for name in ('openai', 'langchain_openai', 'anthropic')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={"PATH": "/usr/bin"}, check=False, timeout=60)
    assert done.returncode == 0


async def test_the_first_call_says_what_to_set() -> None:
    """P19: the first call gives one clear error with what to set, as the outcome and as the last message."""
    agent = Agent(options=AgentOptions(config=read_config(NOWHERE)), settings=Settings(model_retries=0))
    run = await agent.start("Hello", thread_id="t")
    assert isinstance(run, Run)
    assert run.outcome is not None
    assert (run.status, run.outcome["code"]) == ("failed", "model_error")
    assert "connection to the model failed" in run.answer
    assert "OPENAI_BASE_URL" in run.answer
    assert [info.status for info in await agent.threads()] == ["failed"]
    again = Agent("demo", storage=agent.storage)  # D04: the same thread takes the next request
    assert (await again.start("Hello", thread_id="t")).status == "answered"


async def test_a_graph_without_a_key_says_what_to_set() -> None:
    """P19: the compiled graph has no other way than its outcome; an Agent says it before it starts."""
    values = await build_graph(ModelSource(config=read_config(KEYLESS))).compile().ainvoke({"messages": "Hello"})
    assert (values["outcome"]["status"], values["outcome"]["code"]) == ("failed", "model_error")
    for word in ("There is no key for the model 'gpt-5.4-mini'", "Set OPENAI_API_KEY", "'demo'"):
        assert word in values["messages"][-1].text


def test_an_unknown_role_is_said_at_once() -> None:
    """P19: what can be known to be wrong before the first call is an error when the agent is made."""
    with pytest.raises(ConfigError, match="did you mean triage"):
        Agent(Models(roles={"triag": "demo"}), options=AgentOptions(config=read_config(KEYLESS)))


async def test_the_bare_graph_runs_without_an_agent() -> None:
    """DESIGN 9: `build_graph` is embedded with one's own model, without checkpointer, store, context or settings."""
    values = await build_graph(ScriptedModel([answer("Hi.")])).compile().ainvoke({"messages": [HumanMessage("Hello")]})
    assert values["outcome"]["status"] == "answered"
    assert values["messages"][-1].text == "Hi."
