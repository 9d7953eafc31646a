"""Tools for checks of criteria: each succeeds, or fails with what it found instead."""

import json
import os
from collections.abc import Iterator
from typing import Annotated, Any

from langchain_core.tools import ToolException
from pydantic import Field

from donewhen.agent.workspace.files import FilePath, open_text
from donewhen.agent.workspace.root import Root
from donewhen.state.criteria import pattern_problem

CHUNK_CHARS = 65_536
SHOWN = 100
"""The most characters of the text looked for that an answer repeats."""
MAX_JSON_BYTES = 20_000_000
MAX_PROBLEMS = 5
PATTERN_GROUPS = 50
SCHEMA_SECONDS = 10.0
MAX_NESTING = 60
SCHEMA_ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "JSON file, relative to the workspace"},
        "schema": {
            "type": "object",
            "description": "JSON Schema (draft 2020-12); references only within itself",
        },
    },
    "required": ["path", "schema"],
    "additionalProperties": False,
}


def file_exists(root: Root, path: FilePath) -> str:
    """Succeeds when the file exists; fails otherwise. For checks."""
    with root.open(path) as file:
        size = os.fstat(file.fileno()).st_size
    return f"{path} exists, {size} bytes"


def file_contains(
    root: Root,
    path: FilePath,
    text: Annotated[str, Field(min_length=1, max_length=10_000, description="exact text, case included")],
) -> str:
    """Succeeds when this text stands somewhere in the text file; fails otherwise. For checks."""
    wanted = text.replace("\r\n", "\n")
    folded, shown = False, repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}…"
    with root.open(path) as file, open_text(file, path, newline=None) as content:
        for window in _overlapping_pieces(content, len(wanted)):
            if wanted in window:
                return f"{path} contains {shown}"
            folded = folded or wanted.casefold() in window.casefold()
    hint = "; it does in other capitals" if folded else ""
    raise ToolException(f"{path} does not contain {shown}{hint}.")


def matches_schema(root: Root, path: str, schema: dict[str, Any]) -> str:
    """Succeeds when the JSON file is valid under the JSON Schema; fails naming what is not. For checks."""
    # Imported here, because it takes 40 ms and most runs check no schema.
    import jsonschema
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    from donewhen.graph.tools.arguments import time_limit, validator_class

    _refuse_hostile(schema)
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = validator_class(jsonschema.Draft202012Validator)(schema, registry=Registry())
        with time_limit(SCHEMA_SECONDS):
            problems = sorted(validator.iter_errors(_read_json(root, path)), key=lambda error: error.json_path)
    except jsonschema.SchemaError as error:
        raise ToolException(f"The schema is not valid: {error.json_path}: {error.message[:300]}") from None
    except Unresolvable as error:
        raise ToolException(f"The schema refers to {error.ref!r}, which is not inside it.") from None
    except RecursionError:
        raise ToolException(f"{path} or the schema is nested too deeply.") from None
    except TimeoutError:
        raise ToolException("The schema takes too long to check; write a simpler one.") from None
    if not problems:
        return f"{path} matches the schema"
    listed = "; ".join(f"{error.json_path}: {error.message[:200]}" for error in problems[:MAX_PROBLEMS])
    more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
    raise ToolException(f"{path} does not match: {listed}{more}.")


def _overlapping_pieces(content: Any, overlap: int) -> Iterator[str]:
    """Yield the text in pieces that overlap, so that no match is cut in two and little is in memory."""
    tail = ""
    while chunk := content.read(CHUNK_CHARS):
        yield tail + chunk
        tail = (tail + chunk)[-overlap:]


def _read_json(root: Root, path: str) -> Any:
    with root.open(path) as file, open_text(file, path) as text:
        content = text.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        raise ToolException(f"{path} has more than {MAX_JSON_BYTES} characters, too many to check.")

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(content, parse_constant=refuse)
    except ValueError as error:
        raise ToolException(f"{path} is not JSON: {error}.") from None


def _refuse_hostile(schema: Any, depth: int = 0) -> None:
    """Raise ToolException for a schema that no time limit stops: endless nesting, or a pattern that exhausts memory."""
    if depth > MAX_NESTING:
        raise ToolException(f"The schema is nested more than {MAX_NESTING} deep.")
    if isinstance(schema, dict):
        keyed = schema.get("patternProperties")
        for source in [schema.get("pattern"), *(keyed if isinstance(keyed, dict) else ())]:
            if isinstance(source, str) and (problem := pattern_problem(source, groups=PATTERN_GROUPS)):
                raise ToolException(f"The schema is not valid: {problem}.")
    if isinstance(schema, dict | list):
        for value in schema.values() if isinstance(schema, dict) else schema:
            _refuse_hostile(value, depth + 1)
