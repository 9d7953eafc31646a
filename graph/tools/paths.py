"""Hard constraints of a profile, as far as code can check them. Pure."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PATH_NAME = re.compile(r"(?:^|_)(?:path|file|filename|dir|directory|folder)s?$", re.IGNORECASE)


def paths_of(arguments: Mapping[str, Any]) -> Iterator[str]:
    """The values of arguments that are named like paths (`path`, `file`, `out_dir`, …), as they were written."""
    for name, value in arguments.items():
        if _PATH_NAME.search(name):
            yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str))


def path_problem(arguments: Mapping[str, Any], allowed: Sequence[str]) -> str | None:
    """Why a call with these arguments breaks `Profile.allowed_paths`; None if it does not, or all paths are allowed.

    Compares the written paths, `..` resolved; where a path really leads is for the tool to confine.
    """
    if not allowed:
        return None
    roots = [posixpath.normpath(path) for path in allowed]
    outside = [path for path in paths_of(arguments) if not any(_under(path, root) for root in roots)]
    return f"{', '.join(outside)[:200]} lies outside of {', '.join(allowed)}" if outside else None


def _under(path: str, root: str) -> bool:
    plain = posixpath.normpath(path)
    if root == ".":
        return not plain.startswith(("/", "..")) and "\0" not in plain
    return plain == root or plain.startswith(root.rstrip("/") + "/")
