"""Options that users write: wrong names and values are a ConfigError of one line, with a near match."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from donewhen.state.errors import ConfigError, validation_problems
from donewhen.state.values import name_hint

if TYPE_CHECKING:
    Options = BaseModel
else:

    class _OptionsType(type(BaseModel)):
        def __call__(cls, *args: Any, **fields: Any) -> Any:
            try:
                return super().__call__(*args, **fields)
            except ValidationError as error:
                raise ConfigError(f"{cls.__name__}: {'; '.join(option_problems(cls, error))}") from None

    class Options(BaseModel, metaclass=_OptionsType):
        """A model that raises ConfigError where it is called; `model_validate` raises ValidationError as usual."""


def option_problems(kind: type[BaseModel], error: ValidationError) -> Iterator[str]:
    """Yield each problem in a sentence."""
    for item, sentence in zip(error.errors(), validation_problems(error), strict=False):
        *path, name = map(str, item["loc"] or ("",))
        if item["type"] == "extra_forbidden":
            yield f"there is no {'.'.join((*path, name))}{name_hint(name, _fields_at(kind, path))}"
        else:
            yield sentence


def _fields_at(kind: type[BaseModel], path: list[str]) -> list[str]:
    for part in path:
        kind = (part in kind.model_fields and _model_in(kind.model_fields[part].annotation)) or kind
    return list(kind.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that is, or is part of, an annotation such as `Limits | None`."""
    if parts := get_args(annotation):
        return next(filter(None, map(_model_in, parts)), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
