"""The command `donewhen`, for people and for scripts: the answer goes to stdout, everything else to stderr."""


def main() -> None:
    """Entry point of the command; leaves the process with one of the codes of `agent.cli.result`."""
    import io
    import os
    import sys

    for name in ("stdin", "stdout", "stderr"):  # closed by the caller: what is opened next must not take its place
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115

    from donewhen.agent.imports import pause_collection
    from donewhen.state.errors import system_problem

    if problem := system_problem(sys.platform):
        print(f"donewhen: {problem}", file=sys.stderr)
        sys.exit(2)

    with pause_collection():
        from donewhen.agent.cli.app import app

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an answer that the terminal cannot write is still an answer

    app()
