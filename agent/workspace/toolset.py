"""The workspace tools as LangChain tools, with their effects and path arguments."""

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException, create_schema_from_function

from donewhen.agent.workspace.arithmetic import calculate
from donewhen.agent.workspace.box import BoxChoice, describe_box, find_box
from donewhen.agent.workspace.checks import SCHEMA_ARGUMENTS, file_contains, file_exists, matches_schema
from donewhen.agent.workspace.commands import command_succeeds, read_allow_list, run_command
from donewhen.agent.workspace.data.query import FileFacts, describe_data, only_column, plain_columns, query_data
from donewhen.agent.workspace.files import (
    Written,
    append_file,
    copy_file,
    delete_file,
    edit_file,
    move_file,
    read_file,
    replaced_text,
    write_file,
)
from donewhen.agent.workspace.root import MissingPath, Root
from donewhen.agent.workspace.search import find_text, list_files
from donewhen.agent.workspace.walk import near_names
from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.toolbox import EffectKind

RUNTIME_ARGUMENTS = ["root", "allowed", "facts", "box", "stop"]
PATH = ["path"]


def workspace_tools(
    root: str | Path,
    *,
    commands: Sequence[str] = (),
    write: bool = True,
    box: BoxChoice | str = "auto",
    network: bool = False,
    env: Sequence[str] = (),
) -> list[BaseTool]:
    """Return tools that only access the folder `root`: find, read, tables, arithmetic, checks, and writing if `write`.

    `commands` are the programs that run_command may start (names, or absolute paths); without any, there is no such
    tool. A person is asked about each call, unless its arguments are allowed too: `make test`. A `*` at the end allows
    all that begin like this, with every option, also those that write files or start programs. Where bubblewrap is
    installed and works, they run in a box: only `root` can be changed, the rest of the file system is read-only, and
    there is no network unless `network`. `box="required"` refuses to go without, "off" uses none. Programs have the
    system's PATH and a temporary HOME; `env` names the variables that they have of our environment, such as PATH, in
    which `commands` are then looked for first.

    The metadata of a tool has its `effect`, `targets` (the arguments that name its object), `check` (True if it is for
    criteria) and `replaces` (a function that returns what a call would replace).
    Raises ConfigError if the folder is missing or unreadable, a program is not installed, a variable
    is not set, or a required box impossible.
    """
    folder, facts = Root(root), FileFacts()
    tools = [
        *(_tool(function, folder, "read", PATH) for function in (list_files, find_text, read_file)),
        _tool(functools.partial(describe_data, facts=facts), folder, "read", PATH),
        _tool(functools.partial(query_data, facts=facts), folder, "read", identity=plain_columns, column=only_column),
        *(_tool(function, folder, "read", PATH, check=True) for function in (file_exists, file_contains)),
        _tool(matches_schema, folder, "read", PATH, schema=SCHEMA_ARGUMENTS, check=True),
        _tool(calculate, None, "read", calculates=True),
    ]
    if write:
        replaces = functools.partial(replaced_text, folder)
        tools.append(_tool(write_file, folder, "idempotent", PATH, replaces=replaces))
        tools.extend(_tool(function, folder, "write", PATH) for function in (append_file, edit_file, delete_file))
        tools.extend(_tool(function, folder, "write", ["source", "destination"]) for function in (copy_file, move_file))
    if commands:
        allowed = read_allow_list(commands, env)
        around = find_box(box, allowed.programs, network=network)
        run = functools.partial(run_command, allowed=allowed, box=around)
        if "git" not in allowed.programs:
            run = functools.partial(run, repository_programs=())
        conditions = functools.partial(describe_box, around, allowed.passed)
        if allowed.lines:
            succeeds = functools.partial(command_succeeds, allowed=allowed, box=around)
            tools.append(_tool(succeeds, folder, "read", seconds="timeout", check=True, acts_as="run_command"))
            tools[-1].description += f" Possible: {allowed.free}."
        how: dict[str, Any] = {"repeatable": True, "reads": ["."], "seconds": "timeout", "conditions": conditions}
        tools.append(_tool(run, folder, "write", asks=allowed.asks, allowed=allowed.allows, **how))
        first, rest = tools[-1].description.split(". ", 1)  # planners see the first sentence
        tools[-1].description = f"{first}; allowed: {allowed.describe()}. {conditions()} {rest}"
    return tools


def _tool(
    function: Callable[..., Any],
    root: Root | None,
    effect: EffectKind,
    paths: Sequence[str] = (),
    *,
    schema: dict[str, Any] | None = None,
    **metadata: Any,
) -> BaseTool:
    """Return the function as a tool of `root`; one that takes `stop` ends when its caller is cancelled."""
    about = getattr(function, "func", function)
    excluded = [*RUNTIME_ARGUMENTS, *getattr(function, "keywords", {})]
    call = _with_readable_errors(functools.partial(function, root) if root else function, root)
    return StructuredTool.from_function(
        call,
        _as_stoppable(call) if "stop" in inspect.signature(about).parameters else None,
        name=about.__name__,
        description=" ".join((about.__doc__ or "").split()),
        args_schema=schema or create_schema_from_function(about.__name__, about, filter_args=excluded),
        response_format="content_and_artifact" if about.__annotations__["return"] == Written else "content",
        metadata={"effect": effect, **(_path_metadata(effect, paths) if paths else {}), **metadata},
    )


def _path_metadata(effect: EffectKind, paths: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of a tool that works on paths in its folder; under an approved plan it does not ask."""
    free = {} if effect == "read" else {"asks": False}
    return {"targets": [*paths], "paths": [*paths], **free}


def _with_readable_errors(call: Callable[..., Any], root: Root | None) -> Callable[..., Any]:
    """Return the function with errors of the system turned into errors that the model can read."""

    def run(**arguments: Any) -> Any:
        try:
            try:
                return call(**arguments)
            except MissingPath as missing:
                near = near_names(root, missing.parts) if root else []
                hint = f"Did you mean {' or '.join(near)}?" if near else "list_files shows what there is."
                raise ToolException(f"{missing} {hint}") from None
        except OSError as error:
            raise ToolException(f"The system refused it: {error.strerror or error}.") from error

    return run


def _as_stoppable(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that runs the call in a thread, and stops it when its caller is cancelled."""

    async def run(**arguments: Any) -> Any:
        stop = threading.Event()
        work = asyncio.ensure_future(run_in_thread(functools.partial(call, **arguments, stop=stop)))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait({work})
            work.exception()
            raise

    return run
