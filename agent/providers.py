"""Chat models made from `provider:model` names. What a provider's library needs is imported when it is used."""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from pydantic.fields import FieldInfo

from donewhen.agent.config import DEFAULT_MODEL, DEMO, Config
from donewhen.state.errors import ConfigError
from donewhen.state.secrets import redact

OPENAI_URL = "https://api.openai.com/v1"
TIMEOUT = 600.0
"""Seconds that a request may take; `Settings.model_seconds` ends a call sooner."""
_PACKAGES = {
    "anthropic": "langchain-anthropic",
    "azure_ai": "langchain-azure-ai",
    "azure_openai": "langchain-openai",
    "bedrock": "langchain-aws",
    "bedrock_converse": "langchain-aws",
    "cohere": "langchain-cohere",
    "deepseek": "langchain-deepseek",
    "fireworks": "langchain-fireworks",
    "google_genai": "langchain-google-genai",
    "google_vertexai": "langchain-google-vertexai",
    "groq": "langchain-groq",
    "huggingface": "langchain-huggingface",
    "ibm": "langchain-ibm",
    "litellm": "langchain-litellm",
    "mistralai": "langchain-mistralai",
    "nvidia": "langchain-nvidia-ai-endpoints",
    "ollama": "langchain-ollama",
    "openrouter": "langchain-openrouter",
    "perplexity": "langchain-perplexity",
    "together": "langchain-together",
    "upstage": "langchain-upstage",
    "xai": "langchain-xai",
}


_CLASSES = {
    "anthropic": "langchain_anthropic.ChatAnthropic",
    "google_genai": "langchain_google_genai.ChatGoogleGenerativeAI",
    "ollama": "langchain_ollama.ChatOllama",
}
"""Made without `langchain` itself."""
_BUDGETS = {"off": 0, "low": 2_048, "medium": 8_192, "high": 24_576}
"""Tokens of thought, for models that are told a number."""
Level = Literal["off", "low", "medium", "high"]
Thinking = Level | Mapping[str, Any]
"""A level, or the fields of the model's class to set for a role (`extra_body` is merged):
`{"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}`."""


def is_provider(name: str) -> bool:
    """Whether `name` may stand before the colon of a model's name."""
    return name == "openai" or name in _PACKAGES


def check_name(name: str, has_base_url: bool = False) -> None:
    """ConfigError, with a near match, for a name of an unknown provider."""
    _split(name, has_base_url)


def make_model(name: str, config: Config) -> BaseChatModel:
    """The model of this name: `provider:model`, `demo`, or a bare name, which is OpenAI's or the base URL's.

    Whether the provider offers the model shows at its first answer. Raises ConfigError, saying what to set or to
    install, for a missing key, an unknown provider, a missing package or a malformed base URL.
    """
    provider, bare = _split(name, config.base_url is not None)
    if provider == DEMO:
        from donewhen.agent.demo import DemoModel

        return DemoModel()
    if not bare.strip():
        raise ConfigError(f"The model {name!r} has no name after the colon; give one, such as {DEFAULT_MODEL!r}.")
    if provider == "openai":
        return _openai_model(bare, config.api_key, config.base_url)
    return _langchain_model(provider, bare)


def _split(name: str, has_base_url: bool) -> tuple[str, str]:
    """Provider and name. One's own server's models may hold a colon (`qwen3:8b`), and so do OpenAI's tuned ones."""
    provider, colon, bare = name.strip().partition(":")
    if provider == DEMO:
        return provider, bare
    if not colon:
        return "openai", provider
    if is_provider(provider):
        return provider, bare
    if has_base_url or provider == "ft":
        return "openai", name.strip()
    near = get_close_matches(provider, ["openai", *_PACKAGES], n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known are openai, demo, {', '.join(_PACKAGES)}."
    raise ConfigError(
        f"The model {name!r} names an unknown provider, {provider!r}. {hint} For a server that speaks OpenAI's "
        "protocol set OPENAI_BASE_URL; any other LangChain chat model can be passed as an object."
    )


def _openai_model(name: str, api_key: str | None, base_url: str | None) -> BaseChatModel:
    if not api_key and not base_url:
        raise ConfigError(
            f"There is no key for the model {name!r}. Set OPENAI_API_KEY; or OPENAI_BASE_URL for a server that needs "
            "no key; or use the model 'demo', which shows how a run goes without any."
        )
    if base_url and not base_url.startswith(("http://", "https://")):
        raise ConfigError(f"OPENAI_BASE_URL must begin with http:// or https://; it is {redact(base_url)!r}.")
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    # No retries, since the runtime repeats and counts.
    key = SecretStr(api_key or "none")
    return ChatOpenAI(
        model=name, api_key=key, base_url=base_url or OPENAI_URL, stream_usage=True, max_retries=0, timeout=TIMEOUT
    )


def _langchain_model(provider: str, name: str) -> BaseChatModel:
    """By the class of the provider's own package, or by `langchain`, which knows the rest."""
    module, _, kind = _CLASSES.get(provider, "").partition(".")
    package = _PACKAGES[provider]
    try:
        if kind:
            model = getattr(import_module(module), kind)(model=name)
        else:
            model = import_module("langchain.chat_models").init_chat_model(name, model_provider=provider)
    except ImportError:
        packages = package if kind else f"langchain {package}"
        raise ConfigError(
            f"The model '{provider}:{name}' needs what is not installed: pip install {packages}"
        ) from None
    except Exception as error:  # each library refuses missing keys in its own way
        raise ConfigError(f"The model '{provider}:{name}' could not be set up. {redact(str(error))[:500]}") from error
    if not isinstance(model, BaseChatModel):
        raise ConfigError(
            f"The model '{provider}:{name}' could not be set up: langchain made a {type(model).__name__}."
        )
    return model


# Thinking --------------------------------------------------------------------------------------------------------


def thinking_fields(model: BaseChatModel, level: Level) -> dict[str, Any] | None:
    """The fields that ask a model for a level of thinking; None if it is not known to take any.

    What it takes is what LangChain's own profile of the model says, and nothing else is guessed. Off is the least that
    a model knows.
    """
    fields, profile = type(model).model_fields, getattr(model, "profile", None) or {}
    if isinstance(fields.get("reasoning"), FieldInfo) and "num_predict" in fields:  # Ollama's
        return {"reasoning": level != "off"}
    thinks, levels = profile.get("reasoning_output"), list(profile.get("reasoning_effort_levels") or ())
    if thinks is False and level == "off":
        return {}
    if not thinks or "reasoning_effort" not in fields:
        return None
    if not levels and "thinking_budget" in fields:  # Google's before 3
        return {"thinking_budget": _BUDGETS[level]}
    if not levels and "thinking" in fields:  # Anthropic's before effort
        on = {"type": "enabled", "budget_tokens": _BUDGETS[level]}
        return {"thinking": None if level == "off" else on}
    known = levels or ["low", "medium", "high"]
    if level == "off" and "thinking" in fields:
        return {"reasoning_effort": None, "thinking": None}
    wanted = ("none", "minimal", "low") if level == "off" else (level,)
    found = next((each for each in wanted if each in known), None)
    return {"reasoning_effort": found} if found else None


def needs_responses(model: Any) -> bool:
    """Whether OpenAI takes tools together with thinking for this model on its Responses API only: those that may be
    told not to think."""
    levels = (model.profile or {}).get("reasoning_effort_levels") or ()
    return model.openai_api_base in (None, OPENAI_URL) and "none" in levels
