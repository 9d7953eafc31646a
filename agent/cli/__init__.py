"""The command `donewhen`, for people and for scripts: the answer goes to stdout, everything else to stderr."""


def main() -> None:
    """Entry point of the command; leaves the process with one of the codes of `agent.cli.exits`."""
    import io
    import sys

    from donewhen.agent.cli.app import app

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an answer that the terminal cannot write is still an answer

    app()
