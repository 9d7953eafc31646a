"""The form of a structured answer: a JSON Schema and, in the caller's process, a Python type."""

import copy
import json
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import cached_property, lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from donewhen.graph.tools.schema import MOST_PROBLEMS, Schema, check_schema, schema_for_model
from donewhen.state.errors import ConfigError, validation_problems
from donewhen.state.reading.decisions import control_tools
from donewhen.state.reading.extraction import extract

present_form: "ContextVar[OutputForm | None]" = ContextVar("present_form", default=None)
"""The form, with its Python type, of the run that works in this context; it is stored nowhere."""
OUTPUT_CHARS = 200_000
"""The most characters of the data as JSON."""
_OUTPUT_DESCRIPTION = (
    "the result as data; leave out or null what is not known, as far as the schema allows, and invent nothing"
)


class OutputForm:
    """The form of the data. Raises ConfigError for a schema that cannot be used.

    `python` is anything that Pydantic makes a schema of (a model, a dataclass, `list[Offer]`); the data must validate
    as that too, and `to_python` returns it as that.
    """

    def __init__(self, schema: Schema, python: Any = None) -> None:
        from donewhen.graph.tools.arguments import Arguments  # imports jsonschema, which few runs need so early

        self.schema = schema
        self._adapter: TypeAdapter[Any] | None = None if python is None else TypeAdapter(python)
        if not schema:
            raise ConfigError("output_type: an empty schema says nothing; leave output_type out, or describe the data")
        try:
            check_schema(schema)
            inside: Schema = {
                "type": "object",
                "properties": {"output": _move_references(schema)},
                "required": ["output"],
            }
            self._shown: Schema = schema_for_model({**inside, **{k: v for k, v in schema.items() if k == "$schema"}})
            self._arguments = Arguments(inside, closed=False)
        except ValueError as error:
            raise ConfigError(f"output_type: {error}") from None

    @classmethod
    def for_type(cls, wanted: Any) -> "OutputForm":
        """Return the form for a JSON Schema (a dict) or a Python type."""
        if isinstance(wanted, Mapping):
            return schema_form(dict(wanted))
        try:
            return cls(TypeAdapter(wanted).json_schema(), wanted)
        except ConfigError:
            raise
        except Exception as error:  # Pydantic raises many errors for a type without a schema
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"output_type: there is no JSON Schema of {wanted!r} ({reason})") from None

    @cached_property
    def tools(self) -> dict[str, Schema]:
        """The delivering control tools with an argument `output`; the same objects each time."""
        made = {}
        for tool in copy.deepcopy(control_tools(("answer", "deliver"))):
            function, wanted = tool["function"], self._shown["properties"]["output"]
            about = (
                {"description": _OUTPUT_DESCRIPTION} if isinstance(wanted, dict) and "description" not in wanted else {}
            )
            wanted = {**wanted, **about} if isinstance(wanted, dict) else wanted
            function["parameters"]["properties"]["output"] = wanted
            function["parameters"]["required"] = [*function["parameters"]["required"], "output"]
            made[function["name"]] = tool
        return made

    @property
    def text(self) -> str:
        """The schema as shown to the model."""
        return json.dumps(self._shown["properties"]["output"], ensure_ascii=False)

    def read(self, arguments: Mapping[str, Any], text: str = "") -> tuple[Any, list[str]]:
        """Return the data in a call's arguments, or in a text that is JSON, and its problems."""
        data = {"output": arguments["output"]} if "output" in arguments else _parse_data(text)
        if data is None:
            return None, ["output is missing"]
        data, problems = self._arguments.read(data)
        if not problems and (size := len(json.dumps(data["output"], ensure_ascii=False))) > OUTPUT_CHARS:
            problems = [f"output has {size:,} characters; at most {OUTPUT_CHARS:,}"]
        return data["output"], problems or self._type_problems(data["output"])

    def _type_problems(self, value: Any) -> list[str]:
        if self._adapter is None:
            return []
        try:
            self._adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            return [f"output.{problem}" for problem in validation_problems(error)][:MOST_PROBLEMS]
        except Exception as error:  # a validator may raise anything
            return [f"output: {type(error).__name__}: {error}"]
        return []

    def to_python(self, value: Any) -> Any:
        """Return the data as the Python type; as plain JSON if there is no type, or it refuses the data."""
        return (
            value
            if self._adapter is None or self._type_problems(value)
            else self._adapter.validate_json(json.dumps(value))
        )


def schema_form(schema: Schema) -> OutputForm:
    """Return the cached form of a schema without a Python type."""
    try:
        return _cached_form(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"output_type: the schema is not plain JSON ({error})") from None


@lru_cache(maxsize=64)
def _cached_form(schema: str) -> OutputForm:
    return OutputForm(json.loads(schema))


def form_of(schema: Schema | None) -> OutputForm | None:
    """Return the form that a run asks for, with the Python type if this process has it; None if it asks for none."""
    if not schema:
        return None
    present = present_form.get()
    return present if present and present.schema == schema else schema_form(schema)


def _parse_data(text: str) -> dict[str, Any] | None:
    """Parse a text that is JSON, alone or in one fence; None for any other text."""
    with suppress(ValueError, RecursionError):
        return {"output": json.loads(text)}
    extracted = extract(text, lambda value: True) if text.strip() else None
    if (
        extracted is None
        or not extracted.complete
        or (text[: extracted.start] + text[extracted.end :]).strip(" \t\n`json")
    ):
        return None
    return {"output": extracted.value}


def _move_references(node: Any) -> Any:
    """Rewrite the references of a schema that is moved below `properties.output`."""
    if isinstance(node, list):
        return [_move_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    moved = {key: _move_references(value) for key, value in node.items()}
    if isinstance(reference := node.get("$ref"), str) and reference.startswith("#"):
        moved["$ref"] = f"#/properties/output{reference[1:]}"
    return moved
