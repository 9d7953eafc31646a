"""Settings as people, clients and storages give them: read, merged, and held to what may be given."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, ValidationError

from donewhen.state.errors import ConfigError, validation_problems
from donewhen.state.ledger import Limits
from donewhen.state.settings import Profile, Settings
from donewhen.state.values import near

SettingsLike = Settings | Mapping[str, Any] | None
"""Settings as people give them."""


def read_settings(given: SettingsLike) -> Settings:
    """The settings in `given`, None for all defaults. Raises ConfigError for names and values that cannot be."""
    if isinstance(given, Settings):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"settings are a Settings or a dict, not {type(given).__name__}")
    try:
        return Settings.model_validate(given or {})
    except ValidationError as error:
        raise ConfigError(f"settings: {'; '.join(_complaints(error))}") from None


def merged(base: Settings, given: SettingsLike) -> Settings:
    """`base` with what `given` sets, field by field; limits, the profile and models by their own fields.

    Hard constraints only grow: tools that `base` forbids stay forbidden, paths stay within those it allows, and the
    language of its profile stays.
    Raises ConfigError as `read_settings`, and for paths outside.
    """
    if not given or not base.model_fields_set:
        return read_settings(given) if given else base
    change = read_settings(given).model_dump(exclude_unset=True)
    whole = base.model_dump(exclude_unset=True)
    for key, value in change.items():
        old = whole.get(key)
        joins = isinstance(old, dict) and isinstance(value, dict) and key != "output_schema"
        whole[key] = {**(old or {}), **value} if joins else value
    if "profile" in change:
        said = Profile.model_validate(change["profile"])
        forbidden = dict.fromkeys([*base.profile.forbidden_tools, *said.forbidden_tools])
        within = _within(base.profile.allowed_paths, said.allowed_paths)
        kept = {"language": base.profile.language} if base.profile.language else {}
        whole["profile"] |= {"forbidden_tools": list(forbidden), "allowed_paths": within, **kept}
    return read_settings(whole)


def _within(base: list[str], given: list[str]) -> list[str]:
    """The paths that both allow; an empty list allows all."""
    if not base or not given:
        return base or given
    both = [path for path in given if any(PurePath(path).is_relative_to(each) for each in base)]
    both += [path for path in base if any(PurePath(path).is_relative_to(each) for each in given) and path not in both]
    if not both or any(".." in PurePath(path).parts for path in given):
        raise ConfigError(f"settings: profile.allowed_paths {given} lie outside of {base}, which this agent is kept to")
    return both


_STRICT = {"confirm": ("never", "complex", "always"), "approvals": ("never", "plan", "outside", "each")}
"""From the least to the most that people are asked."""


def confined(pinned: Settings, asked: Mapping[str, Any], *, models: bool) -> tuple[dict[str, Any], list[str]]:
    """The settings of a run whose client asked for `asked`, as JSON, and the names that were not taken over.

    What `pinned` sets stays, but limits may be lower and tools and paths fewer; people are asked as often at least.
    `models`: whether a client may choose them.
    """
    given, refused = known_settings(asked)
    for key, order in _STRICT.items():
        least = getattr(pinned, key)
        if key in given and (given[key] not in order or order.index(given[key]) < order.index(least)):
            given[key] = least
            refused.append(key)
    free = {"confirm", "approvals", "limits", "step_limits", "profile"}
    fixed = (set(pinned.model_fields_set) | (set() if models else {"models", "max_tokens"})) - free
    refused += [key for key in given if key in fixed]
    given = {key: value for key, value in given.items() if key not in fixed and value not in (None, "")}
    for key in ("limits", "step_limits"):
        if key in pinned.model_fields_set and isinstance(given.get(key), Mapping):
            most = getattr(pinned, key).model_dump(exclude_none=True)
            rows = {name: value for name, value in given[key].items() if value is not None}
            lower = {name: value for name, value in rows.items() if name not in most or value < most[name]}
            refused += [f"{key}.{name}" for name in given[key] if name not in lower]
            given[key] = lower
    if "profile" in given and "profile" in pinned.model_fields_set:
        hard = {"forbidden_tools", "allowed_paths"}
        given["profile"] = {key: value for key, value in dict(given["profile"]).items() if key in hard}
    return merged(pinned, given).model_dump(mode="json"), refused


def known_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What of `given` names settings, and the names that do not; for what comes from elsewhere."""
    known = {key: value for key, value in given.items() if key in Settings.model_fields}
    return known, [str(key) for key in given if key not in Settings.model_fields]


def stored_settings(stored: Mapping[str, Any]) -> Settings:
    """Settings as they were stored, perhaps by a version that had others."""
    return Settings.model_validate(known_settings(stored)[0])


def _complaints(error: ValidationError) -> Iterator[str]:
    for item, said in zip(error.errors(), validation_problems(error), strict=False):
        name = str(item["loc"][-1])
        if item["type"] == "extra_forbidden":
            parts: dict[str, type[BaseModel]] = {"limits": Limits, "step_limits": Limits, "profile": Profile}
            names = parts.get(str(item["loc"][0]), Settings).model_fields
            yield f"there is no {'.'.join(map(str, item['loc']))}{near(name, names)}"
        else:
            yield said
