"""The form in which an answer is wanted as data: a JSON Schema, and in the caller's process perhaps a Python type."""

import copy
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any

from langchain_core.runnables import RunnableConfig
from pydantic import TypeAdapter, ValidationError

from donewhen.graph.tools.schemas import MOST_PROBLEMS, Schema, checked, for_model
from donewhen.state.errors import ConfigError, validation_problems
from donewhen.state.reading.decisions import control_tools
from donewhen.state.reading.extraction import extract

PRESENT = "__donewhen_output"
"""Where a call's configuration carries the form with its Python type; it is stored nowhere."""
OUTPUT_CHARS = 200_000
"""Of the data, as JSON."""
_OUTPUT = "the result as data; leave out or null what is not known, as far as the schema allows, and invent nothing"


class Form:
    """What the data must be. Raises ConfigError for a schema that cannot be used.

    With `python`, anything Pydantic makes a schema of (a model, a dataclass, `list[Offer]`), the data must be taken by
    that too, and `made` gives it as that.
    """

    def __init__(self, schema: Schema, python: Any = None) -> None:
        from donewhen.graph.tools.arguments import Arguments  # with jsonschema, which few runs need so early

        self.schema = schema
        self._adapter: TypeAdapter[Any] | None = None if python is None else TypeAdapter(python)
        if not schema:
            raise ConfigError("output_type: an empty schema says nothing; leave output_type out, or describe the data")
        try:
            checked(schema)
            inside: Schema = {"type": "object", "properties": {"output": _moved(schema)}, "required": ["output"]}
            self._shown: Schema = for_model({**inside, **{k: v for k, v in schema.items() if k == "$schema"}})
            self._arguments = Arguments(inside, closed=False)
        except ValueError as error:
            raise ConfigError(f"output_type: {error}") from None

    @classmethod
    def of(cls, wanted: Any) -> "Form":
        """The form that a JSON Schema (a dict) or a Python type asks for."""
        if isinstance(wanted, Mapping):
            return schema_form(dict(wanted))
        try:
            return cls(TypeAdapter(wanted).json_schema(), wanted)
        except ConfigError:
            raise
        except Exception as error:  # Pydantic has a dozen ways to say that there is no schema for it
            raise ConfigError(f"output_type: there is no JSON Schema of {wanted!r} ({error})") from None

    @cached_property
    def tools(self) -> dict[str, Schema]:
        """The control tools that deliver, with an argument `output`; the same objects each time."""
        made = {}
        for tool in copy.deepcopy(control_tools(("answer", "deliver"))):
            function, wanted = tool["function"], self._shown["properties"]["output"]
            about = {"description": _OUTPUT} if isinstance(wanted, dict) and "description" not in wanted else {}
            wanted = {**wanted, **about} if isinstance(wanted, dict) else wanted
            function["parameters"]["properties"]["output"] = wanted
            function["parameters"]["required"] = [*function["parameters"]["required"], "output"]
            made[function["name"]] = tool
        return made

    @property
    def text(self) -> str:
        """The schema as a model reads it."""
        return json.dumps(self._shown["properties"]["output"], ensure_ascii=False)

    def read(self, arguments: Mapping[str, Any], text: str = "") -> tuple[Any, list[str]]:
        """The data in the arguments of a call, or else in a text that is JSON; and what is wrong with it."""
        given = {"output": arguments["output"]} if "output" in arguments else _in(text)
        if given is None:
            return None, ["output is missing"]
        given, problems = self._arguments.read(given)
        if not problems and (size := len(json.dumps(given["output"], ensure_ascii=False))) > OUTPUT_CHARS:
            problems = [f"output has {size:,} characters; at most {OUTPUT_CHARS:,}"]
        return given["output"], problems or self._refused(given["output"])

    def _refused(self, value: Any) -> list[str]:
        if self._adapter is None:
            return []
        try:
            self._adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            return [f"output.{said}" for said in validation_problems(error)][:MOST_PROBLEMS]
        except Exception as error:  # of a validator that raises something of its own
            return [f"output: {type(error).__name__}: {error}"]
        return []

    def made(self, value: Any) -> Any:
        """The data as the type; plain JSON where there is none, or where it does not take it."""
        return (
            value if self._adapter is None or self._refused(value) else self._adapter.validate_json(json.dumps(value))
        )


def schema_form(schema: Schema) -> Form:
    """The form of a schema alone; the same object each time, so that what is made of it is made once."""
    try:
        return _form(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"output_type: the schema is not plain JSON ({error})") from None


@lru_cache(maxsize=64)
def _form(schema: str) -> Form:
    return Form(json.loads(schema))


def form_of(schema: Schema | None, config: RunnableConfig) -> Form | None:
    """The form that a run's state asks for, with the Python type if this process has it; None if it asks for none."""
    if not schema:
        return None
    present = (config.get("configurable") or {}).get(PRESENT)
    return present if isinstance(present, Form) and present.schema == schema else schema_form(schema)


def _in(text: str) -> dict[str, Any] | None:
    """The JSON that a text is, by itself or in one fence."""
    with suppress(ValueError, RecursionError):
        return {"output": json.loads(text)}
    found = extract(text, lambda value: True) if text.strip() else None
    if found is None or not found.complete or (text[: found.start] + text[found.end :]).strip(" \t\n`json"):
        return None
    return {"output": found.value}


def _moved(node: Any) -> Any:
    """A schema as it stands below `properties.output`: its references begin there."""
    if isinstance(node, list):
        return [_moved(item) for item in node]
    if not isinstance(node, dict):
        return node
    moved = {key: _moved(value) for key, value in node.items()}
    if isinstance(reference := node.get("$ref"), str) and reference.startswith("#"):
        moved["$ref"] = f"#/properties/output{reference[1:]}"
    return moved
