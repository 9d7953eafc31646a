"""The chat model of each role and its level of thinking. Provider libraries are imported when they are used."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableBinding
from pydantic.fields import FieldInfo

from donewhen.agent.config import DEFAULT_MODEL, DEMO, Config
from donewhen.state.errors import ConfigError
from donewhen.state.secrets import redact
from donewhen.state.settings import ROLES, check_role

__all__ = ["ROLES", "ModelSource", "Models", "Price", "Thinking"]

NO_MODEL = (
    f"No model is set. Give one, as in Agent({DEFAULT_MODEL!r}), or set OPENAI_API_KEY or DONEWHEN_MODEL; "
    "the model 'demo' needs no key and shows how a run goes."
)
OPENAI_URL = "https://api.openai.com/v1"
OPENROUTER_URL, OPENROUTER_KEY = "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"
"""OpenRouter speaks OpenAI's protocol, so its own LangChain package, which needs an older pydantic, is not used."""
TIMEOUT = 600.0
"""Seconds that one request may take. `Settings.model_seconds` can end a call sooner."""
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
    "openrouter": "langchain-openai",
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
"""Providers that do not need the package `langchain`."""
_EXTRAS = {"anthropic": "anthropic", "google_genai": "google", "ollama": "ollama"}
_BUDGETS = {"off": 0, "low": 2_048, "medium": 8_192, "high": 24_576}
"""Token budgets of thinking, for models that take a number."""
Level = Literal["off", "low", "medium", "high"]
Thinking = Level | Mapping[str, Any]
"""A level, or fields of the model's class to set for a role (`extra_body` is merged): `{"extra_body":
{"chat_template_kwargs": {"enable_thinking": True}}}`.
"""
_THINKING: Mapping[str, Level] = {
    "triage": "off",
    "plan": "medium",
    "execute": "low",
    "judge": "off",
    "deliver": "off",
}


Price = Mapping[str, float]
"""US dollars per million tokens: `input`, `output`; `cached` (default: as `input`), `cache_write` (1.25 × `input`)."""


@dataclass(frozen=True)
class Models:
    """The models of an agent, where one for everything is not enough."""

    model: str | BaseChatModel | None = None
    """The model of every role without one of its own: `provider:model`, or a LangChain chat model. None takes it from
    the environment.
    """
    roles: Mapping[str, str | BaseChatModel] = field(default_factory=dict)
    """Role (triage, plan, execute, judge, deliver) → model."""
    thinking: Mapping[str, Thinking] = field(default_factory=dict)
    """Role → how much its model thinks: off, low, medium, high, or fields of the model's class. By default OpenAI's
    models think a little while they execute, more while they plan, and otherwise not; a model object that already has
    settings for thinking keeps them in every role but triage, and other providers' models are not changed.
    """
    prices: Mapping[str, Price] = field(default_factory=dict)
    """Name of a model → US dollars per million tokens, `{"input": …, "output": …}`."""


class ModelSource:
    """Gives the chat model of a role: `models("plan")`, or another by name: `models("plan", "openai:gpt-5")`.

    Making it needs no key and no network, and imports no provider's library. It raises ConfigError without any model,
    for an unknown role, level or provider, and for a library that is not installed. `prepare` and the first call raise
    it for a missing key, and for a model that takes no level of thinking.
    """

    def __init__(self, models: Models | str | BaseChatModel | None = None, config: Config | None = None) -> None:
        models = models if isinstance(models, Models) else Models(models)
        self._model = model = models.model
        self._roles = dict(models.roles)
        self._thinking: dict[str, Thinking] = dict(models.thinking)
        self._config = config or Config()
        self._named: dict[str, BaseChatModel] = {}
        self._made: dict[tuple[str, str | None], BaseChatModel] = {}
        if not (model or self._roles or self._config.model):
            raise ConfigError(NO_MODEL)
        for role in (*self._roles, *self._thinking):
            _check_known_role(role)
        every: list[Any] = [model, *self._roles.values()]
        for candidate in every:
            wraps = not isinstance(candidate, type) and callable(
                getattr(candidate, "bind_tools", None)
            )  # with_fallbacks, bind
            if not (wraps or isinstance(candidate, str | None)):
                kind = (
                    f"the class {candidate.__name__}"
                    if isinstance(candidate, type)
                    else f"of type {type(candidate).__name__}"
                )
                raise ConfigError(f"a model is 'provider:model' or a LangChain chat model, not {kind}")
        self._model = model = _with_bound_fields(model)
        self._roles = {role: _with_bound_fields(each) for role, each in self._roles.items()}
        named = [*every, *([] if model else [self._config.model])]
        self.check(name for name in named if isinstance(name, str))
        for role, asked in self._thinking.items():
            if not isinstance(asked, Mapping) and asked not in get_args(Level):
                raise ConfigError(f"thinking[{role!r}] is {asked!r}; use off, low, medium, high, or fields to set.")
            if isinstance(candidate := self._roles.get(role, model), BaseChatModel):
                _requested_fields(candidate, role, asked)

    def __call__(self, role: str, name: str | None = None) -> BaseChatModel:
        """Return the model for `role`, or the one called `name`. Always the same object."""
        made = self._made.get((role, name))
        if made is None:
            _check_known_role(role)
            made = self._made[role, name] = self._make(role, name)
        return made

    def prepare(self, roles: Iterable[str], names: Mapping[str, str]) -> None:
        """Make the models of these roles that are set by name; `names` has the names in a run's settings, by role."""
        for role in roles:
            if isinstance(names.get(role) or self._roles.get(role) or self._model or self._config.model, str):
                self(role, names.get(role))

    def check(self, names: Iterable[str]) -> None:
        """Raise ConfigError for a name without a provider, with an unknown one, or whose library is not installed."""
        for name in names:
            provider, bare = _split_name(name, bool(self._config.base_url))
            own = provider in ("openai", "openrouter", DEMO)
            if not own and not _is_installed(_CLASSES.get(provider, "langchain").partition(".")[0]):
                raise ConfigError(_missing_library(provider, bare))

    def chosen(self, role: str, name: str | None = None) -> str | BaseChatModel | None:
        """Return `name`, or else the model that is set for `role`, by name or as an object; None if none is."""
        return name or self._roles.get(role) or self._model or self._config.model

    def _make(self, role: str, name: str | None) -> BaseChatModel:
        own, chosen = self._roles.get(role), self.chosen(role, name)
        if not chosen:
            raise ConfigError(NO_MODEL)
        asked = self._thinking.get(role)
        if not isinstance(chosen, str):
            return _fit(chosen, role, asked, keep=chosen is own or role != "triage")
        if chosen not in self._named:
            self._named[chosen] = make_model(chosen, self._config)
        return _fit(self._named[chosen], role, asked, keep=False)


def _with_bound_fields(wrapped: Any) -> Any:
    """Return the model with its bound arguments moved into its fields, because each request binds new arguments.

    Raises ConfigError for an argument that is no field, and for a model that each call chooses anew.
    """
    if type(wrapped).__name__ == "_ConfigurableModel":
        raise ConfigError(
            "a model of init_chat_model(configurable_fields=…) is chosen by each call, and a run makes many: give "
            "'provider:model', one for each role in Models(roles=…), or for a run in Settings.models"
        )
    if not isinstance(wrapped, RunnableBinding) or not wrapped.kwargs:
        return wrapped
    model: Any = _with_bound_fields(wrapped.bound)
    names = {key: name for name, field in type(model).model_fields.items() for key in (name, field.alias) if key}
    if unknown := [name for name in wrapped.kwargs if name not in names]:
        hint = "pass them as Agent(model, tools)" if unknown[0] == "tools" else f"set it on {type(model).__name__}"
        raise ConfigError(f"the model has bound {unknown[0]!r}, which is no field of {type(model).__name__}: {hint}")
    own = model.model_copy(update={names[name]: value for name, value in wrapped.kwargs.items()})
    return (
        wrapped.model_copy(update={"bound": own, "kwargs": {}}) if wrapped.config or wrapped.config_factories else own
    )


def _fit(model: BaseChatModel, role: str, asked: Thinking | None, *, keep: bool) -> BaseChatModel:
    """Return a copy with the role's fields. `keep`: the model's own settings for thinking stay if `asked` is None."""
    chat: Any = model
    is_openai = hasattr(chat, "root_async_client")
    if asked is not None:
        fields = _requested_fields(model, role, asked)
    elif not is_openai or (keep and (chat.reasoning_effort or chat.reasoning)):
        fields = {}
    else:
        fields = thinking_fields(model, _THINKING[role]) or {}
    if is_openai and needs_responses(model) and chat.use_responses_api is not False:
        # Not stored by the provider: transcripts are shortened and edited here, and its copy would not be.
        fields = {"use_responses_api": True, **({"store": False} if chat.store is None else {}), **fields}
    if "extra_body" in fields:
        fields["extra_body"] = _merge(chat.extra_body, fields["extra_body"])
    if is_openai and "reasoning_effort" in fields and chat.reasoning is not None:
        fields["reasoning"] = {**chat.reasoning, "effort": fields.pop("reasoning_effort")}
    return model.model_copy(update=fields) if fields else model


def _requested_fields(model: BaseChatModel, role: str, asked: Thinking) -> dict[str, Any]:
    """Return the explicitly requested fields of the model. Raises ConfigError if the model does not support them."""
    kind = type(model)
    if not isinstance(asked, Mapping):
        if (fields := thinking_fields(model, asked)) is None:
            name = getattr(model, "model_name", None) or getattr(model, "model", None) or kind.__name__
            raise ConfigError(
                f"thinking[{role!r}] is {asked!r}, but {name!r} is not known to take a level of thinking. Leave it "
                f"out, or give the fields of {kind.__name__} that its server takes, such as "
                "{'extra_body': {'chat_template_kwargs': {'enable_thinking': True}}}."
            )
        return fields
    for name in asked:
        if name not in kind.model_fields:
            near = get_close_matches(name, kind.model_fields, n=1)
            raise ConfigError(
                f"thinking[{role!r}] sets {name!r}, which {kind.__name__} does not have"
                + (f"; did you mean {near[0]!r}?" if near else "; put what only the server knows into 'extra_body'.")
            )
    return dict(asked)


def _merge(body: Mapping[str, Any] | None, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return `body` updated with `change`, dictionary by dictionary."""
    result = dict(body or {})
    for key, value in change.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = _merge(result[key], value) if both else value
    return result


def _check_known_role(role: str) -> None:
    try:
        check_role(role)
    except ValueError as error:
        raise ConfigError(str(error)) from None


# Models by name ---------------------------------------------------------------------------------------------------


def is_provider(name: str) -> bool:
    """Return whether `name` is a provider, as in the part of a model's name before the colon."""
    return name == "openai" or name in _PACKAGES


def make_model(name: str, config: Config) -> BaseChatModel:
    """Return the model of this name: `provider:model`, `demo`, or a bare name, for OpenAI or the base URL.

    Raises ConfigError, with what to do, for a missing key, an unknown provider, a missing package or a malformed base
    URL. That the provider lacks the model shows only when it is called.
    """
    provider, bare = _split_name(name, config.base_url is not None)
    if provider == DEMO:
        from donewhen.agent.demo import DemoModel

        return DemoModel()
    if not bare.strip():
        raise ConfigError(f"The model {name!r} has no name after the colon; give one, such as {DEFAULT_MODEL!r}.")
    if provider == "openai":
        return _openai_model(bare, config.api_key, config.base_url)
    if provider == "openrouter":
        if not (key := config.variables.get(OPENROUTER_KEY)):
            raise ConfigError(f"There is no key for the model {name!r}. Set {OPENROUTER_KEY}.")
        return _openai_model(bare, key, OPENROUTER_URL)
    return _langchain_model(provider, bare)


def _split_name(name: str, has_base_url: bool) -> tuple[str, str]:
    """Return provider and name. Names on local servers (`qwen3:8b`) and of OpenAI's tuned models may have a colon."""
    provider, colon, bare = name.strip().partition(":")
    if provider == DEMO:
        return provider, bare
    if not colon and not has_base_url:
        raise ConfigError(_name_without_provider(provider))
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


def _name_without_provider(name: str) -> str:
    provider, slash, bare = name.partition("/")
    if close := get_close_matches(name.lower(), [DEMO], n=1):
        hint = f"did you mean {close[0]!r}?"
    else:
        hint = f"write {f'{provider}:{bare}' if slash and is_provider(provider) else f'openai:{name}'!r}."
    return f"The model {name!r} names no provider; {hint} Names without one are for a server of OPENAI_BASE_URL."


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # `sys.modules` marks it as missing
        return False


def _missing_library(provider: str, name: str) -> str:
    extra = _EXTRAS.get(provider)
    packages = f"'donewhen[{extra}]'" if extra else " ".join(("langchain", _PACKAGES[provider]))
    return f"The model '{provider}:{name}' needs a package that is not installed: pip install {packages}"


def _openai_model(name: str, api_key: str | None, base_url: str | None) -> BaseChatModel:
    if not api_key and not base_url:
        raise ConfigError(
            f"There is no key for the model {name!r}. Set OPENAI_API_KEY; or OPENAI_BASE_URL for a server that needs "
            "no key; or use the model 'demo', which shows how a run goes without any."
        )
    if base_url and not base_url.startswith(("http://", "https://")):
        raise ConfigError(f"OPENAI_BASE_URL must begin with http:// or https://; it is {redact(base_url)!r}.")
    from pydantic import SecretStr

    from donewhen.agent.openai_chat import OpenAIChat

    # No retries, since the runtime repeats and counts.
    key = SecretStr(api_key or "none")
    return OpenAIChat(
        model=name, api_key=key, base_url=base_url or OPENAI_URL, stream_usage=True, max_retries=0, timeout=TIMEOUT
    )


def _langchain_model(provider: str, name: str) -> BaseChatModel:
    """Return a model of the provider's own package, or of `langchain`, which knows the other providers."""
    module, _, kind = _CLASSES.get(provider, "").partition(".")
    try:
        if kind:
            model = getattr(import_module(module), kind)(model=name)
        else:
            model = import_module("langchain.chat_models").init_chat_model(name, model_provider=provider)
    except ImportError:
        raise ConfigError(_missing_library(provider, name)) from None
    except Exception as error:  # each library refuses missing keys in its own way
        raise ConfigError(f"The model '{provider}:{name}' could not be set up. {redact(str(error))[:500]}") from error
    if not isinstance(model, BaseChatModel):
        raise ConfigError(
            f"The model '{provider}:{name}' could not be set up: langchain made a {type(model).__name__}."
        )
    return model


# Thinking --------------------------------------------------------------------------------------------------------


def thinking_fields(model: BaseChatModel, level: Level) -> dict[str, Any] | None:
    """Return the fields for a level of thinking; None if the model is not known to support any.

    Only LangChain's profile of the model decides. `off` is the lowest level that a model supports.
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
    supported = levels or ["low", "medium", "high"]
    if level == "off" and "thinking" in fields:
        return {"reasoning_effort": None, "thinking": None}
    wanted = ("none", "minimal", "low") if level == "off" else (level,)
    effort = next((each for each in wanted if each in supported), None)
    return {"reasoning_effort": effort} if effort else None


def needs_responses(model: Any) -> bool:
    """Return whether OpenAI accepts tools together with thinking for this model only on its Responses API.

    It does so for models whose thinking may be turned off.
    """
    levels = (model.profile or {}).get("reasoning_effort_levels") or ()
    return model.openai_api_base in (None, OPENAI_URL) and "none" in levels
