"""Holds what public methods are given against their annotations: a wrong kind is said before anything is done."""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin
from uuid import UUID

from typing_extensions import is_typeddict

from donewhen.state.errors import ConfigError

READ = ("goal", "tools", "settings", "model")
"""Read by rules of their own, which say more."""
Checked = TypeVar("Checked", bound=type)


def checked(kind: Checked) -> Checked:
    """The class; its public methods raise ConfigError for an argument of another kind than their annotation says."""
    for name, method in vars(kind).items():
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, _checked(method, kind.__name__ if name == "__init__" else name))
    return kind


def _checked(method: Callable[..., Any], called: str) -> Callable[..., Any]:
    known = inspect.signature(method).parameters
    wanted = {name: each.annotation for name, each in known.items() if each.annotation is not each.empty}

    def fitting(name: str, value: Any) -> Any:
        """The argument; a UUID is as good as its text, and None as leaving out what has a default."""
        value = str(value) if isinstance(value, UUID) else value
        if name not in wanted or name in READ or _fits(value, wanted[name]):
            return value
        if value is None and known[name].default is not inspect.Parameter.empty:
            return known[name].default
        said = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        takes = re.sub(r"[a-z_0-9.]+\.(?=[A-Z])", "", inspect.formatannotation(wanted[name]))
        raise ConfigError(f"{called}: {name} takes {takes}, not {said}")

    def check(given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        fits = [*map(fitting, known, given), *given[len(known) :]]
        return fits, {name: fitting(name, value) for name, value in named.items()}

    @wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        texts, called_with = check(given, named)
        return method(*texts, **called_with)

    @wraps(method)
    async def awaited(*given: Any, **named: Any) -> Any:
        texts, called_with = check(given, named)
        return await method(*texts, **called_with)

    return awaited if inspect.iscoroutinefunction(method) else call


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value is of the kind that an annotation names; what is in it is not looked at."""
    kind, parts = get_origin(wanted) or wanted, get_args(wanted)
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is Literal:
        return value in parts
    if kind in (None, Any) or not isinstance(kind, type):
        return value is None or kind is not None
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, dict if is_typeddict(kind) else kind)
