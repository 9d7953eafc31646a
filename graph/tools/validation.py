"""What a tool's own model (its `args_schema`) makes of a call's arguments: validators, normal forms, defaults.

They run before anybody is shown the call, so that what is shown is what the tool gets. When the call is made they run
again, in LangChain, and what they return then is compared with what was shown.
"""

import copy
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pydantic import AliasChoices, BaseModel, ValidationError, create_model

from donewhen.graph.tools.schema import MOST_PROBLEMS
from donewhen.state.values import Json, json_problem, same_json


class ReadArguments(NamedTuple):
    """The arguments of a call as they were read."""

    arguments: Any
    """As the tool gets them, in JSON."""
    problems: list[str]
    as_written: Json | None = None
    """As they were written, if validating `arguments` once more would change them; the call is made with these."""


class ArgumentsModel:
    """A tool's model of its arguments. `injected` are those that the runtime fills."""

    def __init__(self, schema: type[BaseModel], injected: Collection[str]) -> None:
        self._names = [name for name in schema.model_fields if name not in injected]
        optional: dict[str, Any] = dict.fromkeys(schema.model_fields.keys() & {*injected}, (Any, None))
        self._model: type[BaseModel] = (
            create_model(schema.__name__, __base__=schema, **optional) if optional else schema
        )

    def read(self, arguments: Json, *, defaults: bool) -> ReadArguments:
        """Return the arguments as validation leaves them, with the model's defaults if asked for."""
        try:
            valid = self._model.model_validate(copy.deepcopy(arguments))
        except ValidationError as error:
            return ReadArguments(arguments, _problems(error))
        except Exception as error:  # of a validator
            return ReadArguments(arguments, [f"they cannot be validated ({type(error).__name__}: {str(error)[:200]})"])
        shown = dict(arguments)
        for name, value in (self._dump(valid) or {}).items():
            key = self._key(name, arguments)
            if key in arguments:
                shown[key] = arguments[key] if same_json(value, arguments[key]) else value
            elif defaults and value is not None:
                shown[key] = value
        if json_problem(shown):
            return ReadArguments(arguments, [])
        again, unstable = self._try_again(shown), False
        for name in self._names:
            if (key := self._key(name, arguments)) not in shown or (again and _equal(again, valid, name)):
                continue
            if again and key in arguments and self._hides(name, again, valid):
                shown[key] = arguments[key]
            else:
                unstable = True
        return ReadArguments(shown, [], dict(arguments) if unstable else None)

    def changed(self, passed: Mapping[str, Any], shown: Mapping[str, Any]) -> list[str]:
        """Return the names of arguments that a tool would be passed in another form than was shown."""
        fields = {name: value for name, value in passed.items() if name in self._names}
        dumped, valid = self._dump(self._model.model_construct(**fields)) or {}, self._try_again(shown)
        return [
            name
            for name in fields
            if (key := self._key(name, shown)) in shown
            and name in dumped
            and not same_json(dumped[name], shown[key])
            and not (valid is not None and _equal(valid, self._model.model_construct(**fields), name))
        ]

    def _try_again(self, shown: Mapping[str, Any]) -> BaseModel | None:
        try:
            return self._model.model_validate(copy.deepcopy(dict(shown)))
        except Exception:  # what validation returned may be invalid to it
            return None

    def _dump(self, valid: BaseModel) -> Json | None:
        try:
            return valid.model_dump(mode="json", include={*self._names}, warnings=False)
        except Exception:  # of a type without JSON
            return None

    def _hides(self, name: str, again: BaseModel, valid: BaseModel) -> bool:
        """Return whether the JSON of a value does not tell it, such as that of a secret."""
        return same_json((self._dump(again) or {}).get(name), (self._dump(valid) or {}).get(name))

    def _key(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the key of a field in a call: its name, or the alias by which the model reads it."""
        alias = self._model.model_fields[name].validation_alias
        choices = [
            each for each in (alias.choices if isinstance(alias, AliasChoices) else [alias]) if isinstance(each, str)
        ]
        return next((key for key in (*choices, name) if key in arguments), choices[0] if choices else name)


def _equal(one: BaseModel, other: BaseModel, name: str) -> bool:
    try:
        return bool(getattr(one, name) == getattr(other, name))
    except Exception:  # an array of several values, or a field that is not there
        return False


def _problems(error: ValidationError) -> list[str]:
    lines = [
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}" if each["loc"] else str(each["msg"])
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    more = len(lines) - MOST_PROBLEMS
    return [*lines[:MOST_PROBLEMS], f"and {more} more problems"] if more > 0 else lines
