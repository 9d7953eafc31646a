"""The commands that need neither a storage nor an agent, and are there at once: version, skill and verify."""

import importlib.resources
from pathlib import Path

from donewhen import ConfigError
from donewhen.agent.cli.exits import Exit, print_row
from donewhen.clients import installed_version

NOT_INSTALLED = "runs from its source folder, not installed"


def print_version() -> Exit:
    """Print the version, as `doctor` says it."""
    version = installed_version()
    print(NOT_INSTALLED if version == "0" else version)
    return Exit.COMPLETED


def print_skill() -> Exit:
    """Print the skill that comes with the package."""
    print(importlib.resources.files("donewhen").joinpath("skills", "donewhen", "SKILL.md").read_text("utf-8"), end="")
    return Exit.COMPLETED


def verify_receipt_file(file: Path, key: str | None, *, json: bool) -> Exit:
    """Check a receipt; the exit code is 1 if it does not hold."""
    from donewhen.receipts import verify_receipt

    try:
        verification = verify_receipt(file.read_bytes(), key)
    except OSError as error:
        raise ConfigError(f"{str(file)!r} cannot be read: {error.strerror}") from None
    signed = f"signed with {verification.key}" if verification.key else "not signed, so anybody can have made it"
    text = f"{verification.lines} lines, as they were written; {signed}" if verification.ok else verification.problem
    print_row(verification.to_dict(), [text], json=json)
    return Exit.COMPLETED if verification.ok else Exit.FAILED
