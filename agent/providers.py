"""Chat models made from `provider:model` names. What a provider's library needs is imported when it is used."""

from difflib import get_close_matches
from importlib import import_module
from typing import Protocol

from langchain_core.language_models import BaseChatModel

from donewhen.agent.config import DEFAULT_MODEL, DEMO
from donewhen.state.errors import ConfigError
from donewhen.state.redaction import redact

OPENAI_URL = "https://api.openai.com/v1"
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


class Connection(Protocol):
    """Where OpenAI's protocol is spoken, and with which key; `agent.config.Config` is one."""

    @property
    def model(self) -> str | None:
        """`provider:model`, used where nobody names another."""

    @property
    def api_key(self) -> str | None:
        """None is fine for a server of one's own."""

    @property
    def base_url(self) -> str | None:
        """None: OpenAI's."""


def is_provider(name: str) -> bool:
    """Whether `name` may stand before the colon of a model's name."""
    return name == "openai" or name in _PACKAGES


def make_model(name: str, connection: Connection | None, timeout: float) -> BaseChatModel:
    """The model of this name: `provider:model`, `demo`, or a bare name, which is OpenAI's or the base URL's.

    Whether the provider offers the model shows at its first answer. Raises ConfigError, saying what to set or to
    install, for a missing key, an unknown provider, a missing package or a malformed base URL.
    """
    base_url = connection.base_url if connection else None
    provider, bare = _split(name, base_url is not None)
    if provider == DEMO:
        from donewhen.agent.demo import DemoModel

        return DemoModel()
    if not bare.strip():
        raise ConfigError(f"The model {name!r} has no name after the colon; give one, such as {DEFAULT_MODEL!r}.")
    if provider == "openai":
        return _openai_model(bare, connection.api_key if connection else None, base_url, timeout)
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


def _openai_model(name: str, api_key: str | None, base_url: str | None, timeout: float) -> BaseChatModel:
    if not api_key and not base_url:
        raise ConfigError(
            f"There is no key for the model {name!r}. Set OPENAI_API_KEY; or OPENAI_BASE_URL for a server that needs "
            "no key; or use the model 'demo', which shows how a run goes without any."
        )
    if base_url and not base_url.startswith(("http://", "https://")):
        raise ConfigError(f"OPENAI_BASE_URL must begin with http:// or https://; it is {redact(base_url)!r}.")
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    return ChatOpenAI(
        model=name,
        api_key=SecretStr(api_key or "none"),
        base_url=base_url or OPENAI_URL,
        stream_usage=True,
        max_retries=0,  # the runtime repeats and counts
        timeout=timeout,
        # A connection kept alive belongs to the event loop that opened it, and breaks the next `asyncio.run`.
        default_headers={"Connection": "close"},
    )


def _langchain_model(provider: str, name: str) -> BaseChatModel:
    package = _PACKAGES[provider]
    try:
        model = import_module("langchain.chat_models").init_chat_model(name, model_provider=provider)
    except ImportError:
        raise ConfigError(
            f"The model '{provider}:{name}' needs packages that are not installed: pip install langchain {package}"
        ) from None
    except Exception as error:  # each library refuses missing keys in its own way
        raise ConfigError(f"The model '{provider}:{name}' could not be set up. {redact(str(error))[:500]}") from error
    if not isinstance(model, BaseChatModel):
        raise ConfigError(
            f"The model '{provider}:{name}' could not be set up: langchain made a {type(model).__name__}."
        )
    return model
