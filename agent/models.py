"""Which chat model each role uses and how hard it thinks, and what its calls cost in US dollars."""

import math
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from langchain_core.language_models import BaseChatModel

from donewhen.agent.config import DEFAULT_MODEL, Config
from donewhen.agent.providers import (
    Level,
    Thinking,
    check_name,
    is_provider,
    make_model,
    needs_responses,
    thinking_fields,
)
from donewhen.state.errors import ConfigError
from donewhen.state.settings import ROLES, check_role

__all__ = ["ROLES", "ModelSource", "Thinking"]

_THINKING: Mapping[str, Level] = {
    "triage": "off",
    "plan": "medium",
    "execute": "low",
    "judge": "off",
    "deliver": "off",
}
NO_MODEL = (
    f"No model is set. Give one, as in Agent({DEFAULT_MODEL!r}), or set OPENAI_API_KEY or DONEWHEN_MODEL; "
    "the model 'demo' needs no key and shows how a run goes."
)


class ModelSource:
    """Gives the chat model of a role: `models("plan")`, or another by name: `models("plan", "openai:gpt-5")`.

    `model`: for all roles, a `provider:model` name or a LangChain chat model; None: `config.model`. `roles`: another
    model for a role. `thinking`: per role a level (off, low, medium, high) or fields of the model's class. Where
    nothing is said, OpenAI's models think a little while they execute, more while they plan, else not; models that
    their owner told how to think do as they are told, save for triage; other providers' models are left as they are.

    Making it needs no key, no network and no provider's library. Raises ConfigError: at once without any model or for
    an unknown role, level or provider; at the first call for a missing key or a model that cannot be told to think.
    """

    def __init__(
        self,
        model: str | BaseChatModel | None = None,
        roles: Mapping[str, str | BaseChatModel] | None = None,
        thinking: Mapping[str, Thinking] | None = None,
        config: Config | None = None,
    ) -> None:
        self._model = model
        self._roles = dict(roles or {})
        self._thinking: dict[str, Thinking] = dict(thinking or {})
        self._config = config or Config()
        self._named: dict[str, BaseChatModel] = {}
        self._made: dict[tuple[str, str | None], BaseChatModel] = {}
        if not (model or self._roles or self._config.model):
            raise ConfigError(NO_MODEL)
        for role in (*self._roles, *self._thinking):
            _check(role)
        every: list[Any] = [model, *self._roles.values()]
        for given in every:
            wraps = not isinstance(given, type) and callable(getattr(given, "bind_tools", None))  # with_fallbacks, bind
            if not (wraps or isinstance(given, str | None)):
                said = f"the class {given.__name__}" if isinstance(given, type) else f"of type {type(given).__name__}"
                raise ConfigError(f"a model is 'provider:model' or a LangChain chat model, not {said}")
        self.check(name for name in every if isinstance(name, str))
        for role, asked in self._thinking.items():
            if not isinstance(asked, Mapping) and asked not in get_args(Level):
                raise ConfigError(f"thinking[{role!r}] is {asked!r}; use off, low, medium, high, or fields to set.")
            if isinstance(given := self._roles.get(role, model), BaseChatModel):
                _asked_fields(given, role, asked)

    def __call__(self, role: str, name: str | None = None) -> BaseChatModel:
        """The model for `role`; `name` is used instead of whatever was set for it. Always the same object."""
        made = self._made.get((role, name))
        if made is None:
            _check(role)
            made = self._made[role, name] = self._make(role, name)
        return made

    def check(self, names: Iterable[str]) -> None:
        """ConfigError for a name of an unknown provider."""
        for name in names:
            check_name(name, bool(self._config.base_url))

    def _make(self, role: str, name: str | None) -> BaseChatModel:
        own = self._roles.get(role)
        chosen = name or own or self._model or self._config.model
        if not chosen:
            raise ConfigError(NO_MODEL)
        asked = self._thinking.get(role)
        if not isinstance(chosen, str):
            return _fitted(chosen, role, asked, keep=chosen is own or role != "triage")
        if chosen not in self._named:
            self._named[chosen] = make_model(chosen, self._config)
        return _fitted(self._named[chosen], role, asked, keep=False)


def _fitted(model: BaseChatModel, role: str, asked: Thinking | None, *, keep: bool) -> BaseChatModel:
    """A copy with the role's fields. `keep`: what the model's owner said about thinking stays, if nothing is asked."""
    said: Any = model
    openai = hasattr(said, "root_async_client")
    if asked is not None:
        fields = _asked_fields(model, role, asked)
    elif not openai or (keep and (said.reasoning_effort or said.reasoning)):
        fields = {}
    else:
        fields = thinking_fields(model, _THINKING[role]) or {}
    if openai and needs_responses(model) and said.use_responses_api is not False:
        # Stateless, because a transcript is cut and edited here, and the provider's copy of it would not be.
        fields = {"use_responses_api": True, **({"store": False} if said.store is None else {}), **fields}
    if "extra_body" in fields:
        fields["extra_body"] = _merged(said.extra_body, fields["extra_body"])
    if openai and "reasoning_effort" in fields and said.reasoning is not None:
        fields["reasoning"] = {**said.reasoning, "effort": fields.pop("reasoning_effort")}
    return model.model_copy(update=fields) if fields else model


def _asked_fields(model: BaseChatModel, role: str, asked: Thinking) -> dict[str, Any]:
    """What was asked for explicitly, as fields of the model. ConfigError if it cannot be told."""
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


def _merged(body: Mapping[str, Any] | None, change: Mapping[str, Any]) -> dict[str, Any]:
    """`body` with `change` laid over it, dictionary by dictionary."""
    result = dict(body or {})
    for key, value in change.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = _merged(result[key], value) if both else value
    return result


def _check(role: str) -> None:
    try:
        check_role(role)
    except ValueError as error:
        raise ConfigError(str(error)) from None


_MILLION = 1_000_000
_FREE = frozenset({"demo", "DemoModel"})
_DATE = re.compile(r"-20\d\d-?\d\d-?\d\d$")
_BEDROCK = re.compile(r"-v\d+:\d+$")
_RATES = frozenset({"input", "cached", "output"})
# LangChain's names of providers, where the price list calls them otherwise.
_PROVIDERS = {
    "azure_openai": "azure",
    "azure_ai": "azure",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "google_genai": "google",
    "google_vertexai": "google",
    "google_anthropic_vertex": "google",
    "mistralai": "mistral",
    "xai": "x-ai",
}


Price = Mapping[str, float]
"""US dollars per million tokens: `input`, `output`, and `cached` where it differs from `input`."""


class Prices:
    """Prices of models. `own` maps a model's name to its Price.

    A name may carry its provider (`openai:gpt-5-mini`) or a date; an own price for the bare name covers it too.
    Never asks the network. Raises ConfigError for a rate that is no price.
    """

    def __init__(self, own: Mapping[str, Price] | None = None) -> None:
        given = {name: _checked(name, rates) for name, rates in (own or {}).items()}
        # A model does not say whose it is: `openai:gpt-5-mini` answers as `gpt-5-mini`.
        bare = {name.partition(":")[2]: rates for name, rates in given.items() if is_provider(name.partition(":")[0])}
        self._own = {**bare, **given}

    def cost(self, model: str, usage: Mapping[str, float]) -> float | None:
        """US dollars for `usage` (ledger keys), or None when the price is unknown; the demo model costs 0.0."""
        given = max(0.0, usage.get("input_tokens", 0))
        cached = min(max(0.0, usage.get("cached_tokens", 0)), given)
        written = max(0.0, usage.get("output_tokens", 0))
        model = model.removeprefix("models/")  # Google's own way of writing names
        provider, _, bare = model.rpartition(":")
        undated = _DATE.sub("", bare)
        if rates := self._own.get(model) or self._own.get(bare) or self._own.get(undated):
            fresh, reread, output = rates["input"], rates.get("cached", rates["input"]), rates["output"]
            return ((given - cached) * fresh + cached * reread + written * output) / _MILLION
        if bare in _FREE:
            return 0.0
        names = [(bare, provider), (model, "")] + ([(model, "aws")] if _BEDROCK.search(model) else [])
        found = (_listed(name, whose, given, cached, written) for name, whose in dict.fromkeys(names))
        return next((cost for cost in found if cost is not None), None)


def _listed(model: str, provider: str, given: float, cached: float, written: float) -> float | None:
    from genai_prices import Usage, calc_price

    usage = Usage(input_tokens=int(given), cache_read_tokens=int(cached), output_tokens=int(written))
    if not provider and "/" in model:
        provider = "openrouter"
    try:
        price = calc_price(usage, model, provider_id=_PROVIDERS.get(provider, provider) or None)
    except (LookupError, ValueError):
        return None
    return float(price.total_price)


def _checked(name: str, rates: Price) -> Price:
    unknown = set(rates) - _RATES
    missing = {"input", "output"} - set(rates)
    wrong = {rate for rate, value in rates.items() if not _amount(value)}
    if unknown or missing or wrong:
        raise ConfigError(
            f"The price of {name!r} needs `input` and `output`, and may have `cached`, each in US dollars per million "
            f"tokens; check {', '.join(sorted(unknown | missing | wrong))}."
        )
    return dict(rates)


def _amount(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf
