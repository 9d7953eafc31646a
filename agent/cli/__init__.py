"""A room: the command `donewhen`, for people and for scripts. The answer goes to stdout, everything else to stderr.

Without it, `[project.scripts]` goes, with typer, rich and prompt_toolkit; `Agent` does all that it does.
"""


def main() -> None:
    """Run the command and leave the process with one of the codes of `agent.cli.exits`."""
    import io
    import os
    import sys

    for name in ("stdin", "stdout", "stderr"):  # closed by the caller: the next opened file must not get its number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115

    if sys.platform == "win32":
        own = "In Python, Agent works here with your own tools and memory: or PostgreSQL as storage."
        print(f"donewhen: the command runs on Linux and macOS; on Windows, use WSL. {own}", file=sys.stderr)
        sys.exit(2)

    from donewhen.agent.cli.app import app

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an answer that the terminal cannot write is still an answer

    app()
