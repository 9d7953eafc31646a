"""One chat model per role, made when first asked for, each with its own thinking and length of output."""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal, get_args

from langchain_core.language_models import BaseChatModel

from donewhen.agent.config import DEFAULT_MODEL
from donewhen.agent.providers import Connection, make_model
from donewhen.agent.thinking import Level, Thinking, merged, needs_responses, thinking_fields
from donewhen.state.errors import ConfigError

__all__ = ["ROLES", "ModelSource", "Role", "Thinking"]

Role = Literal["triage", "plan", "execute", "judge", "deliver"]
ROLES: tuple[str, ...] = get_args(Role)
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
_TRIAGE_TOKENS = 8192
"""Enough for a plan; only where thinking is really off, since thoughts would use it up."""


class ModelSource:
    """Gives the chat model of a role: `models("plan")`, or another by name: `models("plan", "openai:gpt-5")`.

    `model`: for all roles, a `provider:model` name or a LangChain chat model; None: `config.model`. `roles`: another
    model for a role. `thinking`: per role a level (off, low, medium, high) or fields of ChatOpenAI; by default triage,
    judge and deliver do not think, execute does a little, plan does. `max_tokens`: the most a role may write, thoughts
    included; by default the provider's most, and 8,192 for the triage of a model whose thinking is off.

    Making it needs no key, no network and no provider's library. Models of another class than ChatOpenAI are given
    out as they are. Raises ConfigError: at once without any model, or for an unknown role or level; at the first call
    for a missing key.
    """

    def __init__(
        self,
        model: str | BaseChatModel | None = None,
        roles: Mapping[str, str | BaseChatModel] | None = None,
        thinking: Mapping[str, Thinking] | None = None,
        config: Connection | None = None,
        *,
        max_tokens: Mapping[str, int] | None = None,
        timeout: float = 600.0,
    ) -> None:
        self._model = model
        self._roles = dict(roles or {})
        self._thinking: dict[str, Thinking] = dict(thinking or {})
        self._max_tokens = dict(max_tokens or {})
        self._connection = config
        self._timeout = timeout
        self._named: dict[str, BaseChatModel] = {}
        self._made: dict[tuple[str, str | None], BaseChatModel] = {}
        if not (model or self._roles or (config and config.model)):
            raise ConfigError(NO_MODEL)
        for role in (*self._roles, *self._thinking, *self._max_tokens):
            _check_role(role)
        for role, level in self._thinking.items():
            if not isinstance(level, Mapping) and level not in get_args(Level):
                raise ConfigError(f"thinking[{role!r}] is {level!r}; use off, low, medium, high, or fields to set.")

    def __call__(self, role: str, name: str | None = None) -> BaseChatModel:
        """The model for `role`; `name` is used instead of whatever was set for it. Always the same object."""
        made = self._made.get((role, name))
        if made is None:
            _check_role(role)
            made = self._made[role, name] = self._make(role, name)
        return made

    def _make(self, role: str, name: str | None) -> BaseChatModel:
        own = self._roles.get(role)
        chosen = name or own or self._model or (self._connection.model if self._connection else None)
        if not chosen:
            raise ConfigError(NO_MODEL)
        if not isinstance(chosen, str):
            return self._fitted(chosen, role, given="role" if chosen is own else "all")
        if chosen not in self._named:
            self._named[chosen] = make_model(chosen, self._connection, self._timeout)
        return self._fitted(self._named[chosen], role, given=None)

    def _fitted(self, model: BaseChatModel, role: str, given: Literal["role", "all", None]) -> BaseChatModel:
        """A copy with the role's fields. Over a model given as an object, only what is asked for and triage's go."""
        if not _is_chat_openai(model):
            return model
        said: Any = model
        asked = self._thinking.get(role)
        if isinstance(asked, Mapping):
            fields = _known_fields(role, asked, type(model))
        else:
            fields = thinking_fields(said.model_name, said.openai_api_base, asked or _THINKING[role])
            if asked is None and given and _says_itself(said, fields) and (given == "role" or role != "triage"):
                fields = {}
        fields = {**_routing(said), **fields, **self._length(said, role, fields)}
        if "extra_body" in fields:
            fields["extra_body"] = merged(said.extra_body, fields["extra_body"])
        if "reasoning_effort" in fields and said.reasoning is not None:
            fields["reasoning"] = {**said.reasoning, "effort": fields.pop("reasoning_effort")}
        return model.model_copy(update=fields) if fields else model

    def _length(self, model: Any, role: str, fields: Mapping[str, Any]) -> dict[str, int]:
        if role in self._max_tokens:
            return {"max_tokens": self._max_tokens[role]}
        quiet = fields.get("reasoning_effort") in ("none", "minimal") and model.model_name.startswith("gpt-")
        return {"max_tokens": _TRIAGE_TOKENS} if role == "triage" and quiet and model.max_tokens is None else {}


def _routing(model: Any) -> dict[str, Any]:
    """Stateless, because a transcript is cut and edited here, and the provider's copy of it would not be."""
    if not needs_responses(model.model_name, model.openai_api_base) or model.use_responses_api is False:
        return {}
    return {"use_responses_api": True, **({"store": False} if model.store is None else {})}


def _says_itself(model: Any, fields: Mapping[str, Any]) -> bool:
    """Whether the owner of this model has already decided how it thinks."""
    body = model.extra_body or {}
    return bool(model.reasoning_effort or model.reasoning or set(body) & set(fields.get("extra_body", {})))


def _known_fields(role: str, asked: Mapping[str, Any], kind: type[BaseChatModel]) -> dict[str, Any]:
    for name in asked:
        if name not in kind.model_fields:
            near = get_close_matches(name, kind.model_fields, n=1)
            raise ConfigError(
                f"thinking[{role!r}] sets {name!r}, which {kind.__name__} does not have"
                + (f"; did you mean {near[0]!r}?" if near else "; put what only the server knows into 'extra_body'.")
            )
    return dict(asked)


def _is_chat_openai(model: BaseChatModel) -> bool:
    """Without the import: whoever holds such a model has imported its library already."""
    library = sys.modules.get("langchain_openai")
    return library is not None and isinstance(model, library.ChatOpenAI)


def _check_role(role: str) -> None:
    if role not in ROLES:
        near = get_close_matches(role, ROLES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(ROLES)}."
        raise ConfigError(f"There is no role {role!r}; {hint}")
