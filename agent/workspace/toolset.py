"""The workspace tools as LangChain tools: what each does to the world and which argument names its object."""

import asyncio
import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException, create_schema_from_function

from donewhen.agent.workspace.arithmetic import calculate
from donewhen.agent.workspace.checks import SCHEMA_ARGUMENTS, file_contains, file_exists, matches_schema
from donewhen.agent.workspace.commands import Programs, run_command
from donewhen.agent.workspace.data.query import describe_data, query_data
from donewhen.agent.workspace.files import (
    append_file,
    delete_file,
    edit_file,
    move_file,
    read_file,
    text_replaced,
    write_file,
)
from donewhen.agent.workspace.root import Missing, Root
from donewhen.agent.workspace.search import find_text, list_files
from donewhen.agent.workspace.walk import near_names
from donewhen.graph.tools.call import threaded
from donewhen.graph.tools.toolbox import EffectKind

GIVEN = ["root", "programs", "stop"]


def workspace_tools(root: str | Path, *, commands: Sequence[str] = (), write: bool = True) -> list[BaseTool]:
    """Tools confined to the folder `root`: find, read, tables, arithmetic, checks; writing unless `write=False`.

    `commands` are the programs run_command may start (names, or absolute paths); without any it does not exist.
    Metadata of a tool: `effect`, `target` (arguments that name its object), `check` (made for criteria) and `replaces`
    (what a call would write over).
    Raises ConfigError when the folder is missing or unreadable, or a program is not installed.
    """
    folder = Root(root)
    tools = [
        *(_tool(function, folder, "read") for function in (list_files, find_text, read_file)),
        _tool(describe_data, folder, "read"),
        _structured(query_data, (folder,), {"effect": "read"}, stoppable=True),
        *(_tool(function, folder, "read", check=True) for function in (file_exists, file_contains)),
        _tool(matches_schema, folder, "read", check=True, schema=SCHEMA_ARGUMENTS),
        _calculate(),
    ]
    if write:
        replaces = functools.partial(text_replaced, folder)
        tools.append(_tool(write_file, folder, "idempotent", artifact=True, replaces=replaces))
        tools.extend(_tool(function, folder, "write", artifact=True) for function in (append_file, edit_file))
        tools.append(_tool(move_file, folder, "write", target=["source", "destination"]))
        tools.append(_tool(delete_file, folder, "write"))
    if commands:
        tools.append(_run_command(folder, Programs(commands)))
    return tools


def _tool(
    function: Callable[..., Any],
    root: Root,
    effect: EffectKind,
    *,
    check: bool = False,
    artifact: bool = False,
    schema: dict[str, Any] | None = None,
    target: Sequence[str] = ("path",),
    replaces: Callable[..., Any] | None = None,
) -> BaseTool:
    metadata: dict[str, Any] = {"effect": effect, "targets": [*target], "paths": [*target], "check": check}
    metadata["replaces"] = replaces
    return _structured(function, (root,), metadata, artifact=artifact, schema=schema)


def _calculate() -> BaseTool:
    return _structured(calculate, (), {"effect": "read"})


def _run_command(root: Root, programs: Programs) -> BaseTool:
    metadata = {"effect": "write", "seconds": "timeout"}
    tool = _structured(run_command, (root, programs), metadata, stoppable=True)
    first, rest = tool.description.split(". ", 1)  # planners see the first sentence
    tool.description = f"{first}; allowed: {', '.join(sorted(programs.found))}. {rest}"
    return tool


def _structured(
    function: Callable[..., Any],
    given: tuple[Any, ...],
    metadata: dict[str, Any],
    *,
    artifact: bool = False,
    schema: dict[str, Any] | None = None,
    stoppable: bool = False,
) -> BaseTool:
    call = _told(functools.partial(function, *given), next((one for one in given if isinstance(one, Root)), None))
    return StructuredTool.from_function(
        call,
        _stoppable(call) if stoppable else None,
        name=function.__name__,
        description=" ".join((function.__doc__ or "").split()),
        args_schema=schema or create_schema_from_function(function.__name__, function, filter_args=GIVEN),
        response_format="content_and_artifact" if artifact else "content",
        metadata=metadata,
    )


def _told(call: Callable[..., Any], root: Root | None) -> Callable[..., Any]:
    """What the system refuses is for the model to read, like every other error of these tools."""

    def run(**arguments: Any) -> Any:
        try:
            try:
                return call(**arguments)
            except Missing as missing:
                near = near_names(root, missing.parts) if root else []
                hint = f"Did you mean {' or '.join(near)}?" if near else "list_files shows what there is."
                raise ToolException(f"{missing} {hint}") from None
        except OSError as error:
            raise ToolException(f"The system refused it: {error.strerror or error}.") from error

    return run


def _stoppable(call: Callable[..., Any]) -> Callable[..., Any]:
    """In a thread, as the synchronous call; but what it runs ends when the caller is cancelled."""

    async def run(**arguments: Any) -> Any:
        stop = threading.Event()
        work = asyncio.ensure_future(threaded(functools.partial(call, **arguments, stop=stop), "workspace"))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait({work})
            work.exception()
            raise

    return run
