"""What a run may be given beside its goal or its answer: declared here once, for every verb that begins or continues
one.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig

from donewhen.agent.tools import Tools
from donewhen.state.channels import Json
from donewhen.state.settings import SettingsLike
from donewhen.state.values import name_hint


class Options(TypedDict, total=False):
    """What a run may be given whenever it begins or continues."""

    settings: SettingsLike
    """Override those of the agent, or of the start for the rest of the run, field by field; whatever the agent's
    profile forbids stays forbidden.
    """
    output_type: Any
    """A JSON Schema, or a Python type that Pydantic makes one of (a model, a dataclass, `list[Offer]`): `Run.output`
    has the result in this form, and the receipt the source of every value; without it a run is `partial` at best.
    `resume` takes that of the start, which makes `Run.output` an instance in this process too.
    """
    tools: Tools
    """Additional tools for this run; another process that continues it must pass them again."""
    config: RunnableConfig | None
    """LangGraph's configuration, such as callbacks and tags."""


class StartOptions(Options, total=False):
    """What a run may be given when it begins."""

    template: str | None
    """The name of a saved plan to use instead of planning. It is confirmed like any plan. Without a `goal` it has its
    own.
    """
    parameters: Mapping[str, Any] | None
    """The values for the template."""
    thread_id: str | None
    """The thread; None begins a new one."""
    request_id: str
    """Your id of the request, for clients that send twice: if the thread has a request with this id, nothing begins and
    its run is returned. Without a `thread_id` it names the thread too.
    """
    restart: bool
    """Close a request of the thread that is not finished."""
    metadata: Json | None
    """Your own data, returned by `info` and `threads`; never secrets."""
    owner: str
    """The owner of the thread."""
    context: Any
    """What the tools of this run read as `ToolRuntime.context`, such as who the customer is; no model is shown it. It
    is stored with the run, for whoever continues it, so it has to be JSON (a dict, a dataclass or a Pydantic model of
    plain values); never secrets.
    """


def check_options(kind: type, given: Mapping[str, Any]) -> None:
    """Raise TypeError, as Python does for an argument, for an option that a verb does not have."""
    for name in given:
        if name not in kind.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}{name_hint(name, kind.__annotations__)}")
