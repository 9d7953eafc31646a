"""Read, merge and confine settings from people, clients and storage."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, ValidationError

from donewhen.state.errors import ConfigError, validation_problems
from donewhen.state.ledger import Limits
from donewhen.state.settings import Profile, Settings, parse_moment
from donewhen.state.values import near

SettingsLike = Settings | Mapping[str, Any] | None
"""Settings as an instance, a mapping, or None."""


def read_settings(given: SettingsLike) -> Settings:
    """Return the settings in `given`; None means all defaults. Raises ConfigError for unknown names
    and invalid values.
    """
    if isinstance(given, Settings):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"settings are a Settings or a dict, not {type(given).__name__}")
    try:
        return Settings.model_validate(given or {})
    except ValidationError as error:
        raise ConfigError(f"settings: {'; '.join(_complaints(error))}") from None


def merge_settings(base: Settings, given: SettingsLike) -> Settings:
    """Return `base` updated with `given`, field by field; limits, profile and models by their own fields.

    Hard constraints only grow: tools forbidden by `base` stay forbidden, paths stay within its allowed ones, and its
    profile's language is kept. Raises ConfigError like `read_settings`, and for paths outside.
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
        within = _common_paths(base.profile.allowed_paths, said.allowed_paths)
        kept = {"language": base.profile.language} if base.profile.language else {}
        whole["profile"] |= {"forbidden_tools": list(forbidden), "allowed_paths": within, **kept}
    return read_settings(whole)


def _common_paths(base: list[str], given: list[str]) -> list[str]:
    """Return the paths that both allow; an empty list allows all."""
    if not base or not given:
        return base or given
    both = [path for path in given if any(PurePath(path).is_relative_to(each) for each in base)]
    both += [path for path in base if any(PurePath(path).is_relative_to(each) for each in given) and path not in both]
    if not both or any(".." in PurePath(path).parts for path in given):
        raise ConfigError(f"settings: profile.allowed_paths {given} lie outside of {base}, which this agent is kept to")
    return both


def _chain(*values: str) -> dict[str, frozenset[str]]:
    """Return the values from the least to the most careful, each with all that it covers."""
    return {value: frozenset(values[1 : place + 1]) for place, value in enumerate(values)}


CARE: dict[str, dict[str, frozenset[str]]] = {
    "confirm": {
        "never": frozenset(),
        "complex": frozenset({"complex plans"}),
        "writes": frozenset({"plans that write"}),
        "always": frozenset({"complex plans", "plans that write", "all other plans"}),
    },
    "approvals": _chain("never", "plan", "shown", "each"),
    "verification": _chain("claimed", "grounded", "audited", "judged"),
}
"""The values of a setting that each value covers; a value that covers more is more careful. Lower limits and earlier
deadlines are more careful.
"""
ALWAYS = ("confirm", "approvals")
"""Settings that no client can lower, even if the operator pinned nothing."""


def more_careful(name: str, pinned: str, asked: str) -> str:
    """Return the least careful value that covers everything either value covers."""
    values, wanted = CARE[name], CARE[name][pinned] | CARE[name][asked]
    return min((value for value in values if values[value] >= wanted), key=lambda value: len(values[value]))


def confine_settings(pinned: Settings, asked: Mapping[str, Any], *, models: bool) -> tuple[Settings, list[str]]:
    """Return the settings for a run whose client asked for `asked`, and the names that were not adopted.

    Settings in `pinned` are kept, but a client may ask for more care (see `CARE`) and for fewer tools and paths.
    `models` says whether it may choose models. Raises ConfigError for invalid values.
    """
    known, refused = known_settings(asked)
    wanted = read_settings({key: value for key, value in known.items() if value not in (None, "")})
    given = wanted.model_dump(exclude_unset=True)
    for key in list(given):
        least, value = getattr(pinned, key), getattr(wanted, key)
        bound = key in pinned.model_fields_set
        if key in CARE and (bound or key in ALWAYS):
            given[key] = more_careful(key, least, value)
            refused += [key] if CARE[key][value] < CARE[key][least] else []
        elif key in ("limits", "step_limits") and bound:
            most = least.model_dump(exclude_none=True)
            lower = {name: amount for name, amount in given[key].items() if _is_within(amount, most.get(name))}
            refused += [f"{key}.{name}" for name in given[key] if name not in lower]
            given[key] = lower
        elif key == "deadline" and bound and least and parse_moment(value) < parse_moment(least):
            continue
        elif key == "profile":
            hard = ("forbidden_tools", "allowed_paths")
            given[key] = {name: said for name, said in given[key].items() if not bound or name in hard}
        elif bound or (key in ("models", "max_tokens") and not models):
            refused.append(key)
            del given[key]
    return merge_settings(pinned, given), refused


def _is_within(amount: float | None, most: float | None) -> bool:
    return most is None or (amount is not None and amount <= most)


def known_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the known settings in `given`, and the unknown names; for data from elsewhere."""
    known = {key: value for key, value in given.items() if key in Settings.model_fields}
    return known, [str(key) for key in given if key not in Settings.model_fields]


def stored_settings(stored: Mapping[str, Any]) -> Settings:
    """Read stored settings, possibly of another version; unknown values become defaults."""
    known = known_settings(stored)[0]
    try:
        return Settings.model_validate(known)
    except ValidationError as error:
        unknown = {str(item["loc"][0]) for item in error.errors()}
        return Settings.model_validate({key: value for key, value in known.items() if key not in unknown})


def _complaints(error: ValidationError) -> Iterator[str]:
    for item, said in zip(error.errors(), validation_problems(error), strict=False):
        name = str(item["loc"][-1])
        if item["type"] == "extra_forbidden":
            parts: dict[str, type[BaseModel]] = {"limits": Limits, "step_limits": Limits, "profile": Profile}
            names = parts.get(str(item["loc"][0]), Settings).model_fields
            yield f"there is no {'.'.join(map(str, item['loc']))}{near(name, names)}"
        else:
            yield said
