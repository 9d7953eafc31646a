"""The model of each role: made when used, thinking as the role needs, and clear words where something is missing."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI

from donewhen.agent.models import ROLES, ModelSource
from donewhen.agent.thinking import Level, needs_responses, reasoning_effort, thinking_fields
from donewhen.state.errors import ConfigError
from donewhen.testing import ScriptedModel, WireServer

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@dataclass(frozen=True)
class Connection:
    model: str | None = None
    api_key: str | None = None
    base_url: str | None = None


async def sent(models: Any, server: WireServer, role: str, name: str | None = None) -> dict[str, Any]:
    """The body of the request that this role's model makes."""
    async for _ in models(role, name).bind_tools([TOOL]).astream("x"):
        pass
    body = server.requests[-1].body
    assert isinstance(body, dict)
    return body


async def test_triage_is_quick_and_the_plan_thinks_on_the_wire() -> None:
    """P01, P03: a reasoning model of OpenAI, thinking off and short in triage, on and unbounded in the draft."""
    with WireServer(["x"] * 5) as server:
        models = ModelSource("openai:gpt-5-mini", config=Connection(base_url=server.base_url))
        bodies = {role: await sent(models, server, role) for role in ROLES}
    assert {role: body["reasoning_effort"] for role, body in bodies.items()} == {
        "triage": "minimal",
        "plan": "medium",
        "execute": "low",
        "judge": "minimal",
        "deliver": "minimal",
    }
    assert bodies["triage"]["max_completion_tokens"] == 8192
    assert "max_completion_tokens" not in bodies["plan"]
    assert all(body["model"] == "gpt-5-mini" for body in bodies.values())
    assert all(body["stream_options"] == {"include_usage": True} for body in bodies.values())


async def test_a_compatible_server_is_told_to_think_or_not() -> None:
    """P01, P03: the switch of vLLM, SGLang and llama.cpp; no key is needed."""
    with WireServer(["x"] * 3) as server:
        models = ModelSource(config=Connection("qwen3:8b", None, server.base_url))
        triage, plan, execute = [await sent(models, server, role) for role in ("triage", "plan", "execute")]
        assert server.requests[0].headers["authorization"]
    assert triage["model"] == "qwen3:8b"
    assert triage["chat_template_kwargs"] == {"enable_thinking": False}
    assert plan["chat_template_kwargs"] == {"enable_thinking": True}
    assert "chat_template_kwargs" not in execute
    assert not any("reasoning_effort" in body for body in (triage, plan, execute))


async def test_fields_of_one_s_own_are_sent_and_merged() -> None:
    """P03: `thinking` takes any field; an extra_body is laid over the model's own; the length is per role."""
    with WireServer(["x"] * 4) as server:
        own = ChatOpenAI(
            base_url=server.base_url,
            api_key="test",
            model="local",
            extra_body={"top_k": 20, "chat_template_kwargs": {"preserve": 1}},
        )
        models = ModelSource(
            own,
            thinking={"plan": {"extra_body": {"enable_thinking": True}, "temperature": 0.5}, "execute": "high"},
            max_tokens={"plan": 9000},
        )
        triage, plan, execute, judge = [await sent(models, server, r) for r in ("triage", "plan", "execute", "judge")]
    off = {"preserve": 1, "enable_thinking": False}
    assert (triage["top_k"], triage["chat_template_kwargs"]) == (20, off)
    assert (plan["top_k"], plan["enable_thinking"], plan["temperature"]) == (20, True, 0.5)
    assert plan["chat_template_kwargs"] == {"preserve": 1}
    assert plan["max_completion_tokens"] == 9000
    assert "max_completion_tokens" not in triage
    assert execute["chat_template_kwargs"] == {"preserve": 1, "enable_thinking": True}
    assert judge["chat_template_kwargs"] == {"preserve": 1}, "what its owner set stays, save for triage"
    assert own.extra_body == {"top_k": 20, "chat_template_kwargs": {"preserve": 1}}


async def test_roles_and_names_choose_the_model() -> None:
    """P01: one model per role; a name given with the call comes first."""
    with WireServer(["x"] * 3) as server:
        models = ModelSource("main", {"judge": "strict"}, config=Connection("unused", "key", server.base_url))
        names = [await sent(models, server, *which) for which in (("plan",), ("judge",), ("judge", "openai:other"))]
    assert [body["model"] for body in names] == ["main", "strict", "other"]
    assert models("plan") is models("plan")
    assert models("plan") is not models("triage")


def test_another_kind_of_model_is_left_untouched() -> None:
    """P01"""
    given = ScriptedModel(["x"])
    models = ModelSource(given, thinking={"plan": "high"}, max_tokens={"plan": 5})
    assert all(models(role) is given for role in ROLES)


def test_a_model_s_own_decision_is_kept_except_for_triage() -> None:
    """P01: triage never thinks because a shared model happens to; a model given for triage alone may."""
    own = ChatOpenAI(model="gpt-5-mini", api_key="test", reasoning_effort="high")
    shared = ModelSource(own)
    assert effort(shared("triage")) == "minimal"
    assert [effort(shared(role)) for role in ("plan", "execute", "judge")] == ["high"] * 3
    assert effort(ModelSource(None, {"triage": own})("triage")) == "high"
    assert effort(ModelSource(own, thinking={"plan": "low"})("plan")) == "low"
    assert own.reasoning_effort == "high"


def effort(model: BaseChatModel) -> Any:
    return getattr(model, "reasoning_effort", "not ChatOpenAI")


async def test_new_openai_models_think_and_call_tools_on_the_responses_api() -> None:
    """P03: from GPT-5.2 on, chat completions refuses tools together with thinking."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(401, json={"error": {"message": "no"}})

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    own = ChatOpenAI(model="gpt-5.4-mini", api_key="test", http_async_client=client, max_retries=0)
    models = ModelSource(own)
    for role in ("triage", "plan"):
        with pytest.raises(Exception, match="no"):
            await models(role).bind_tools([TOOL]).ainvoke("x")
    bodies = [httpx2.Response(200, content=request.content).json() for request in seen]
    assert [request.url.path for request in seen] == ["/v1/responses"] * 2
    assert [body["reasoning"] for body in bodies] == [{"effort": "none"}, {"effort": "medium"}]
    assert [body["store"] for body in bodies] == [False, False]
    assert [body.get("max_output_tokens") for body in bodies] == [8192, None]
    assert bodies[0]["tools"][0]["name"] == "look"


EFFORTS: list[tuple[str, str | None, str | None]] = [
    ("gpt-5", "minimal", "medium"),
    ("openai/gpt-5-nano-2025-08-07", "minimal", "medium"),
    ("gpt-5.1", "none", "medium"),
    ("gpt-5.4-mini", "none", "medium"),
    ("gpt-5.1-codex-max", "low", "medium"),
    ("gpt-6-sol", "none", "medium"),
    ("gpt-6-astra", "low", "medium"),
    ("gpt-7-new", "low", "medium"),
    ("o3", "low", "medium"),
    ("o4-mini-2025-04-16", "low", "medium"),
    ("gpt-oss:20b", "low", "medium"),
    ("gpt-5-pro", None, None),
    ("gpt-5-chat-latest", None, None),
    ("o1-mini", None, None),
    ("gpt-4o-mini", None, None),
    ("gpt-4.1", None, None),
    ("qwen3:8b", None, None),
    ("olmo-3", None, None),
]


@pytest.mark.parametrize(("model", "off", "medium"), EFFORTS)
def test_reasoning_effort_by_family(model: str, off: str | None, medium: str | None) -> None:
    """P01, P03: off is the least a family accepts; models that do not reason get no parameter."""
    assert (reasoning_effort(model, "off"), reasoning_effort(model, "medium")) == (off, medium)


LOCAL = "http://127.0.0.1:8000/v1"
PLACES: list[tuple[str, str | None, Level, Mapping[str, Any]]] = [
    ("gpt-4o", None, "off", {}),
    ("my-deployment", "https://x.openai.azure.com/openai/v1", "off", {}),
    ("gpt-4o", LOCAL, "off", {}),
    ("claude-sonnet-4-5", "https://proxy.example.org/v1", "high", {}),
    ("qwen3-32b", LOCAL, "off", {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}),
    (
        "qwen3-32b",
        "https://gpu.example.org/v1",
        "high",
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
    ),
    ("qwen3-32b", LOCAL, "low", {}),
    ("qwen3:8b", "http://localhost:11434/v1", "off", {"reasoning_effort": "none"}),
    ("llama3.1", "http://localhost:11434/v1", "medium", {}),
    (
        "qwen-plus",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "off",
        {"extra_body": {"enable_thinking": False}},
    ),
    ("deepseek-chat", "https://api.deepseek.com", "off", {"extra_body": {"thinking": {"type": "disabled"}}}),
    ("glm-5", "https://api.z.ai/api/paas/v4", "high", {"extra_body": {"thinking": {"type": "enabled"}}}),
    ("qwen/qwen3-32b", "https://openrouter.ai/api/v1", "off", {"extra_body": {"reasoning": {"effort": "minimal"}}}),
    ("llama-3.3-70b-versatile", "https://api.groq.com/openai/v1", "off", {}),
    ("gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai", "off", {}),
    ("x", "http://[bad", "low", {}),
]


@pytest.mark.parametrize(("model", "base_url", "level", "fields"), PLACES)
def test_every_server_is_told_in_its_own_way(
    model: str, base_url: str | None, level: Level, fields: Mapping[str, Any]
) -> None:
    """P01, P03: and servers that refuse unknown fields get none."""
    assert thinking_fields(model, base_url, level) == fields


def test_which_models_need_the_responses_api() -> None:
    assert needs_responses("gpt-5.4-mini", None)
    assert needs_responses("gpt-6-sol", "https://api.openai.com/v1")
    assert not needs_responses("gpt-5.4-mini", LOCAL)
    assert not any(needs_responses(name, None) for name in ("gpt-5-mini", "gpt-5.1", "gpt-4o", "o3", "ft:gpt-4o:x"))


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "gpt-5-mini", "ft:gpt-4o:org::id"])
def test_a_missing_key_is_told_at_the_first_call(name: str) -> None:
    """P19: with what to set; making the source needs no key."""
    models = ModelSource(name, config=Connection())
    with pytest.raises(ConfigError, match=r"OPENAI_API_KEY.*OPENAI_BASE_URL.*demo"):
        models("triage")


@pytest.mark.parametrize(
    ("model", "connection", "says"),
    [
        (None, Connection(), "DONEWHEN_MODEL"),
        (None, None, "DONEWHEN_MODEL"),
        ("anthropic:claude-sonnet-4-5", Connection(), "pip install langchain langchain-anthropic"),
        ("anthopic:claude-sonnet-4-5", Connection(), "Did you mean 'anthropic'"),
        ("nobody:x", Connection(), "OPENAI_BASE_URL"),
        ("openai:", Connection(api_key="key"), "no name"),
        ("x", Connection(base_url="localhost:8000/v1"), "must begin with http"),
    ],
)
def test_what_is_wrong_is_named(model: str | None, connection: Connection | None, says: str) -> None:
    """P19"""
    with pytest.raises(ConfigError, match=says):
        ModelSource(model, config=connection)("plan")


def test_wrong_roles_and_levels_are_told_at_once() -> None:
    with pytest.raises(ConfigError, match="did you mean 'execute'"):
        ModelSource("x", {"exceute": "y"})
    with pytest.raises(ConfigError, match="off, low, medium, high"):
        ModelSource("x", thinking={"plan": "hard"})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="triage, plan, execute, judge, deliver"):
        ModelSource("x", max_tokens={"draft": 5})
    models = ModelSource("x", thinking={"plan": {"extra_boddy": {}}}, config=Connection(api_key="key"))
    with pytest.raises(ConfigError, match="did you mean 'extra_body'"):
        models("plan")
    with pytest.raises(ConfigError, match="no role 'planer'; did you mean 'plan'"):
        models("planer")


def test_other_providers_are_made_by_langchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P19: through init_chat_model, whose complaints become ours, without the key."""
    package = tmp_path / "langchain"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "chat_models.py").write_text(
        "from langchain_core.language_models import FakeListChatModel\n"
        "def init_chat_model(name, *, model_provider):\n"
        "    if model_provider == 'groq':\n"
        "        raise ValueError('api_key=secret123 is wrong')\n"
        "    return FakeListChatModel(responses=[model_provider, name])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = ModelSource("anthropic:claude-x")("plan")
    monkeypatch.delitem(sys.modules, "langchain.chat_models")
    monkeypatch.delitem(sys.modules, "langchain")
    assert getattr(model, "responses", None) == ["anthropic", "claude-x"]
    with pytest.raises(ConfigError, match="could not be set up") as caught:
        ModelSource("groq:x")("plan")
    assert "secret123" not in str(caught.value)
    monkeypatch.delitem(sys.modules, "langchain.chat_models")
    monkeypatch.delitem(sys.modules, "langchain")


async def test_a_connection_does_not_outlive_its_event_loop() -> None:
    """R01: the next `asyncio.run` of a script must not meet a connection of the last one."""
    with WireServer(["x"]) as server:
        await sent(ModelSource("local", config=Connection(base_url=server.base_url)), server, "plan")
        assert server.requests[0].headers["connection"] == "close"


def test_importing_costs_no_provider_s_library() -> None:
    """P19: import and construction work without credentials and without the libraries of providers."""
    code = (
        "import sys; from donewhen.agent.models import ModelSource; ModelSource('openai:gpt-5-mini'); "
        "print([name for name in ('langchain_openai', 'openai', 'genai_prices', 'langchain') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
