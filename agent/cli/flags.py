"""Options that several commands have, and how a command ends."""

from collections.abc import Callable
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
StorageUrl = Annotated[
    str | None,
    typer.Option(
        "--storage", metavar="URL", help="sqlite:///runs.db, a path, or postgresql://… [default: DONEWHEN_STORAGE]"
    ),
]
Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread id, or its beginning.")]
Detach = Annotated[bool, typer.Option("--detach", help="Leave it to `donewhen worker`, and print the thread's id.")]


def end(command: Callable[[], int], json: bool) -> None:
    """Leave with the code of a command."""
    from donewhen.agent.cli.result import guarded

    raise typer.Exit(guarded(command, json=json))
