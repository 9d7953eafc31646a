"""Options shared by several commands, and how a command ends."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from donewhen.state.imports import pause_collection

if TYPE_CHECKING:
    from donewhen.agent.cli.archive import Archive

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
StorageUrl = Annotated[
    str | None,
    typer.Option(
        "--storage", metavar="URL", help="sqlite:///runs.db, a path, or postgresql://… [default: DONEWHEN_STORAGE]"
    ),
]
Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread id, or its beginning.")]
Detach = Annotated[bool, typer.Option("--detach", help="Leave it to `donewhen worker`, and print the thread's id.")]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Approve plans, and calls that cannot leave the folder; questions stay open."),
]
Events = Annotated[
    bool,
    typer.Option("--stream-json", help="One JSON object a line on stdout for every event; the last is the result."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the answer, and what you are asked.")]
Once = Annotated[
    bool,
    typer.Option(
        "--non-interactive",
        "-n",
        "--print",
        "-p",
        help="Ask nothing: print the answer, or stop where a person is needed.",
    ),
]
Confirm = Literal["always", "writes", "complex", "never"]
Approvals = Literal["plan", "shown", "each", "never"]
Exhausted = Literal["ask", "deliver", "stop"]
Unanswered = Literal["wait", "default", "assume", "abort"]
WhenBusy = Literal["refuse", "next_round"]
ModeOption = Literal["auto", "answer", "step", "plan"]
Proof = Literal["claimed", "grounded", "audited", "judged"]


class Lazy:
    """A module of the command, loaded on first use, so that `--help` is fast."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        with pause_collection():
            return getattr(import_module(f"donewhen.agent.cli.{self._name}"), name)


def end(command: Callable[[], int], json: bool = False) -> None:
    """Leave with the code of a command."""
    with pause_collection():
        from donewhen.agent.cli.result import run_guarded

    raise typer.Exit(run_guarded(command, json=json))


def at(storage: str | None, json: bool, command: Callable[["Archive"], int]) -> None:
    """Leave with the code of a command that reads a storage."""

    def run_command() -> int:
        with pause_collection():
            from donewhen.agent.cli.archive import Archive

        return command(Archive(storage, json))

    end(run_command, json)
