"""The model of each role: made when used, thinking as the role needs, and clear words where something is missing."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI

from donewhen import Agent, ConfigError, Models
from donewhen.agent.config import Config
from donewhen.agent.models import ROLES, ModelSource
from donewhen.testing import ScriptedModel
from tests.kit.wire import WireServer

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


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
        models = ModelSource("openai:gpt-5-mini", config=Config(base_url=server.base_url))
        bodies = {role: await sent(models, server, role) for role in ROLES}
    assert {role: body["reasoning_effort"] for role, body in bodies.items()} == {
        "triage": "minimal",
        "plan": "medium",
        "execute": "low",
        "judge": "minimal",
        "deliver": "minimal",
    }
    assert all(body["model"] == "gpt-5-mini" for body in bodies.values())
    assert all(body["stream_options"] == {"include_usage": True} for body in bodies.values())


async def test_a_compatible_server_is_told_nothing_that_nobody_said() -> None:
    """K9: strict servers refuse unknown fields; what only this one knows is said by its user. No key is needed."""
    own = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
    with WireServer(["x"] * 2) as server:
        models = ModelSource(Models(thinking={"triage": own}), config=Config("qwen3:8b", base_url=server.base_url))
        triage, plan = [await sent(models, server, role) for role in ("triage", "plan")]
        assert server.requests[0].headers["authorization"]
    assert triage["model"] == "qwen3:8b"
    assert triage["chat_template_kwargs"] == {"enable_thinking": False}
    assert set(plan) == {"model", "messages", "stream", "stream_options", "tools"}


async def test_fields_of_one_s_own_are_sent_and_merged() -> None:
    """P03: `thinking` takes any field; an extra_body is laid over the model's own."""
    with WireServer(["x"] * 2) as server:
        own = ChatOpenAI(
            base_url=server.base_url,
            api_key="test",
            model="local",
            extra_body={"top_k": 20, "chat_template_kwargs": {"preserve": 1}},
        )
        body = {"enable_thinking": True, "chat_template_kwargs": {"more": 2}}
        models = ModelSource(Models(own, thinking={"plan": {"extra_body": body, "temperature": 0.5}}))
        triage, plan = [await sent(models, server, role) for role in ("triage", "plan")]
    assert (triage["top_k"], triage["chat_template_kwargs"]) == (20, {"preserve": 1})
    assert (plan["top_k"], plan["enable_thinking"], plan["temperature"]) == (20, True, 0.5)
    assert plan["chat_template_kwargs"] == {"preserve": 1, "more": 2}
    assert own.extra_body == {"top_k": 20, "chat_template_kwargs": {"preserve": 1}}


async def test_roles_and_names_choose_the_model() -> None:
    """P01, A3: one model per role; a name given with the call comes first."""
    with WireServer(["x"] * 3) as server:
        config = Config("unused", api_key="key", base_url=server.base_url)
        models = ModelSource(Models("main", {"judge": "strict"}), config=config)
        names = [await sent(models, server, *which) for which in (("plan",), ("judge",), ("judge", "openai:other"))]
    assert [body["model"] for body in names] == ["main", "strict", "other"]
    assert models("plan") is models("plan")


def test_another_kind_of_model_is_left_untouched() -> None:
    """P01"""
    given = ScriptedModel(["x"])
    assert all(ModelSource(given)(role) is given for role in ROLES)


@pytest.mark.parametrize("model", [ScriptedModel(["x"]), ChatOpenAI(model="qwen3-32b", api_key="test")], ids=type)
def test_thinking_that_nobody_can_be_told_is_an_error(model: BaseChatModel) -> None:
    """L10: an explicit level for a model that is not known to take one is never ignored; by name, at the first call."""
    with pytest.raises(ConfigError, match=r"thinking\['plan'\] is 'high'.*extra_body"):
        ModelSource(Models(model, thinking={"plan": "high"}))
    by_name = ModelSource(Models("local", thinking={"plan": "high"}), config=Config(base_url="http://127.0.0.1:1/v1"))
    assert by_name("triage")
    with pytest.raises(ConfigError, match="'local' is not known to take a level"):
        by_name("plan")


PROVIDERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("openai:gpt-5.4-mini", {"reasoning_effort": "none"}, {"reasoning_effort": "high"}),
    ("openai:gpt-5-mini", {"reasoning_effort": "minimal"}, {"reasoning_effort": "high"}),
    ("openai:o3", {"reasoning_effort": "low"}, {"reasoning_effort": "high"}),
    ("anthropic:claude-opus-4-6", {"reasoning_effort": None}, {"reasoning_effort": "high"}),
    ("anthropic:claude-sonnet-4-5", {"thinking": None}, {"thinking": {"type": "enabled", "budget_tokens": 24576}}),
    ("google_genai:gemini-3-flash-preview", {"reasoning_effort": "minimal"}, {"reasoning_effort": "high"}),
    ("google_genai:gemini-2.5-pro", {"thinking_budget": 0}, {"thinking_budget": 24576}),
    ("ollama:qwen3:8b", {"reasoning": False}, {"reasoning": True}),
]


@pytest.mark.parametrize(("name", "off", "high"), PROVIDERS)
def test_every_provider_is_told_in_its_own_words(
    name: str, off: Mapping[str, Any], high: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """L10: by LangChain's own parameters and profiles; what nobody asked for is left to the provider, save OpenAI's."""
    pytest.importorskip(f"langchain_{name.partition(':')[0]}")
    for variable in ("ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(variable, "test")
    models = ModelSource(Models(name, thinking={"triage": "off", "execute": "high"}), config=Config(api_key="test"))
    assert {key: getattr(models("triage"), key) for key in off} == off
    assert {key: getattr(models("execute"), key) for key in high} == high


def test_a_model_s_own_decision_is_kept_except_for_triage() -> None:
    """P01: triage never thinks because a shared model happens to; a model given for triage alone may."""
    own = ChatOpenAI(model="gpt-5-mini", api_key="test", reasoning_effort="high")
    shared = ModelSource(own)
    assert effort(shared("triage")) == "minimal"
    assert [effort(shared(role)) for role in ("plan", "execute", "judge")] == ["high"] * 3
    assert effort(ModelSource(Models(roles={"triage": own}))("triage")) == "high"
    assert effort(ModelSource(Models(own, thinking={"plan": "low"}))("plan")) == "low"
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
    assert bodies[0]["tools"][0]["name"] == "look"


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "ft:gpt-4o:org::id"])
def test_a_missing_key_is_told_at_the_first_call(name: str) -> None:
    """P19: with what to set; making the source needs no key."""
    models = ModelSource(name, config=Config())
    with pytest.raises(ConfigError, match=r"OPENAI_API_KEY.*OPENAI_BASE_URL.*demo"):
        models("triage")


def test_openrouter_is_asked_by_openai_s_protocol_with_its_own_key() -> None:
    """P19: its server and its key, whatever OPENAI_API_KEY is."""
    config = Config(api_key="other", variables={"OPENROUTER_API_KEY": "mine"})
    model: Any = ModelSource("openrouter:anthropic/claude-sonnet-4.6", config=config)("plan")
    assert (model.model_name, model.openai_api_base) == ("anthropic/claude-sonnet-4.6", "https://openrouter.ai/api/v1")
    assert model.openai_api_key.get_secret_value() == "mine"


@pytest.mark.parametrize(
    ("model", "connection", "says"),
    [
        (None, Config(), "DONEWHEN_MODEL"),
        (None, None, "DONEWHEN_MODEL"),
        ("mistralai:mistral-large", Config(), "pip install langchain langchain-mistralai"),
        ("anthopic:claude-sonnet-4-5", Config(), "Did you mean 'anthropic'"),
        ("nobody:x", Config(), "OPENAI_BASE_URL"),
        ("openai:", Config(api_key="key"), "no name"),
        ("openrouter:anthropic/claude-sonnet-4.6", Config(api_key="key"), "OPENROUTER_API_KEY"),
        ("x", Config(base_url="localhost:8000/v1"), "must begin with http"),
    ],
)
def test_what_is_wrong_is_named(model: str | None, connection: Config | None, says: str) -> None:
    """P19"""
    with pytest.raises(ConfigError, match=says):
        ModelSource(model, config=connection)("plan")


def test_wrong_roles_and_levels_are_told_at_once() -> None:
    """S5: roles, levels and providers, when the agent is made."""
    with pytest.raises(ConfigError, match="did you mean execute"):
        ModelSource(Models("openai:x", {"exceute": "y"}))
    with pytest.raises(ConfigError, match="off, low, medium, high"):
        ModelSource(Models("openai:x", thinking={"plan": "hard"}))  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="did you mean plan"):
        Agent(Models("demo", {"planner": "x"}), storage="memory:")
    for wrong in ({"models": {"planner": "x"}}, {"max_tokens": {"planner": 5}}):
        with pytest.raises(ConfigError, match="did you mean plan"):
            Agent("demo", storage="memory:", settings=wrong)
    for given in ({"model": "opnai:gpt-5"}, {"model": "demo", "settings": {"models": {"judge": "opnai:gpt-5"}}}):
        with pytest.raises(ConfigError, match="Did you mean 'openai'"):
            Agent(storage="memory:", **given)
    models = ModelSource(Models("openai:x", thinking={"plan": {"extra_boddy": {}}}), config=Config(api_key="key"))
    with pytest.raises(ConfigError, match="did you mean 'extra_body'"):
        models("plan")
    with pytest.raises(ConfigError, match="no role 'planer'; did you mean plan"):
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
    for name in [name for name in sys.modules if name.partition(".")[0] == "langchain"]:
        monkeypatch.delitem(sys.modules, name)  # of the tests' own dependencies
    monkeypatch.syspath_prepend(tmp_path)
    model = ModelSource("cohere:command-x")("plan")
    monkeypatch.delitem(sys.modules, "langchain.chat_models")
    monkeypatch.delitem(sys.modules, "langchain")
    assert getattr(model, "responses", None) == ["cohere", "command-x"]
    with pytest.raises(ConfigError, match="could not be set up") as caught:
        ModelSource("groq:x")("plan")
    assert "secret123" not in str(caught.value)
    monkeypatch.delitem(sys.modules, "langchain.chat_models")
    monkeypatch.delitem(sys.modules, "langchain")


def test_arguments_that_were_bound_to_a_model_are_its_own() -> None:
    """Q47: requests bind tools, and what was bound before would be lost; what has no field is refused by its name."""
    pytest.importorskip("langchain_openai")
    from langchain.chat_models import init_chat_model
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="m", api_key="k")  # type: ignore[arg-type]
    bound: Any = model.bind(temperature=0.1, seed=7).bind(stop=["ZZ"])
    made: Any = ModelSource(Models(bound, {"judge": bound.with_config(tags=["ours"])}))("plan")
    assert (made.temperature, made.seed, made.stop) == (0.1, 7, ["ZZ"])
    assert model.temperature != 0.1
    for given, said in (
        (model.bind(lucky=1), "has bound 'lucky', which is no field of ChatOpenAI: set it on ChatOpenAI"),
        (model.bind_tools([]), "pass them as Agent"),
        (init_chat_model(configurable_fields=("model",), model="openai:m"), "give 'provider:model', one for each role"),
    ):
        with pytest.raises(ConfigError, match=said):
            ModelSource(given)  # type: ignore[arg-type]
