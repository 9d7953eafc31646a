"""The commands that need neither a storage nor an agent, and are there at once: version, skill and verify."""

import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from donewhen import ConfigError
from donewhen.agent.cli.exits import SCHEMA_VERSION, Exit, print_json, print_row
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


def verify_receipt_files(files: Sequence[Path], key: str | None, *, json: bool) -> Exit:
    """Check receipts, and name the file of each if there are several; the exit code is 1 if one does not hold."""
    from donewhen.receipts import verify_receipt

    rows, lines, many = list[dict[str, Any]](), list[str](), len(files) > 1
    for file in files:
        try:
            verification = verify_receipt(file.read_bytes(), key)
        except OSError as error:
            raise ConfigError(f"{str(file)!r} cannot be read: {error.strerror}") from None
        signed = f"signed with {verification.key}" if verification.key else "not signed, so anybody can have made it"
        whole = f"{verification.lines} lines, as they were written; {signed}"
        text = whole if verification.ok else verification.problem
        lines.append(f"{file}: {text}" if many else text)
        rows.append({**({"file": str(file)} if many else {}), **verification.to_dict()})
    if json and many:
        print_json([{"schema_version": SCHEMA_VERSION, **row} for row in rows])
    else:
        print_row(rows[0], lines, json=json)
    return Exit.COMPLETED if all(row["ok"] for row in rows) else Exit.FAILED
