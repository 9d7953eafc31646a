"""File patterns: `*.csv` by name anywhere below, `data/**/*.csv` by path, `{a,b}` for alternatives."""

import fnmatch
import re
from collections.abc import Callable

from langchain_core.tools import ToolException

from donewhen.agent.workspace.paths import Parts

MAX_PATTERN = 300
MAX_ALTERNATIVES = 64
BRACES = re.compile(r"\{([^{}]*)\}")


def path_matcher(pattern: str) -> Callable[[Parts], bool]:
    """A test for names relative to where the search starts; a pattern without `/` looks at the last name."""
    if not pattern.strip("/") or len(pattern) > MAX_PATTERN:
        raise ToolException(f"A pattern has 1 to {MAX_PATTERN} characters, such as '*.csv' or 'data/**/*.csv'.")
    alternatives = [_split(one) for one in _expand(pattern)]
    return lambda parts: any(_match(wanted, parts) for wanted in alternatives)


def _expand(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise ToolException(f"The pattern has more than {MAX_ALTERNATIVES} alternatives.")
        one = waiting.pop()
        braces = BRACES.search(one)
        if braces is None:
            done.append(one)
            continue
        waiting.extend(one[: braces.start()] + choice + one[braces.end() :] for choice in braces[1].split(","))
    return done


def _split(pattern: str) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if "/" not in pattern:
        names = ["**", *names]
    return [name for index, name in enumerate(names) if name != "**" or names[index - 1 : index] != ["**"]]


def _match(wanted: list[str], parts: Parts) -> bool:
    """Which prefixes of `wanted` fit the names so far: linear in names × pattern, whatever the pattern."""
    fits = {0}
    for name in parts:
        fits = _past_stars(wanted, fits)
        after = {at for at in fits if at < len(wanted) and wanted[at] == "**"}
        after |= {at + 1 for at in fits if at < len(wanted) and fnmatch.fnmatchcase(name, wanted[at])}
        fits = after
    return len(wanted) in fits or (wanted[-1:] == ["**"] and len(wanted) - 1 in fits)


def _past_stars(wanted: list[str], fits: set[int]) -> set[int]:
    return fits | {at + 1 for at in fits if at < len(wanted) and wanted[at] == "**"}
