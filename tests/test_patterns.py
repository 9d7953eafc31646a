"""Every regular expression of the package takes time in proportion to the text, whatever the text is made of."""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from typing import Any

import donewhen

SHORT, LONG = 1_200, 4_800
LEAST = 0.003
"""Seconds below which growth cannot be told from chance."""
COMMON = "\n\t a1é完"


def _patterns() -> dict[str, re.Pattern[str]]:
    """Return all that are bound to a name of a module or class, or stand in a collection that is, by that name."""
    left_out = ("__main__", "inspect", "temporal")  # programs, and what needs an environment of its own
    walked = (each.name for each in pkgutil.walk_packages(donewhen.__path__, "donewhen."))
    names = [name for name in walked if not name.rpartition(".")[2].startswith(left_out)]
    found: dict[str, re.Pattern[str]] = {}
    for name in names:
        for key, value in vars(importlib.import_module(name)).items():
            for each in _inside(value, name):
                found.setdefault(each.pattern, each)
                found[f"{name}.{key}"] = found.pop(each.pattern)
    return found


def _inside(value: Any, module: str, depth: int = 0) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern) or type(value).__name__ == "_LazyPattern":
        if isinstance(value.pattern, bytes):
            yield re.compile(value.pattern.decode("latin-1"), value.flags & (re.DOTALL | re.MULTILINE | re.IGNORECASE))
        else:
            yield re.compile(value.pattern, value.flags)
    elif isinstance(value, dict | list | tuple | frozenset) and depth < 3:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _inside(each, module, depth + 1)
    elif isinstance(value, type) and value.__module__ == module and depth < 2:
        yield from _inside(dict(vars(value)), module, depth + 1)


def _seconds(pattern: re.Pattern[str], text: str) -> float:
    began = time.process_time()
    for _ in pattern.finditer(text):
        pass
    return time.process_time() - began


def _grows(pattern: re.Pattern[str], character: str) -> bool:
    """Whether four times the text takes much more than four times as long, also where a bound of hundreds is passed."""
    if _seconds(pattern, character * SHORT) < LEAST:
        return False
    return all(_four_times(pattern, character, size) > 8 for size in (SHORT, LONG))


def _four_times(pattern: re.Pattern[str], character: str, size: int) -> float:
    """How much longer four times the text takes."""
    short, long = (min(_seconds(pattern, character * each) for _ in range(2)) for each in (size, 4 * size))
    return long / short


def test_no_pattern_is_worse_than_linear() -> None:
    """N36: of a text of any one character; what one of them does to a megabyte of newlines would hold up a worker."""
    slow = []
    for name, pattern in _patterns().items():
        own = [each for each in pattern.pattern if not each.isalnum() and not each.isspace()]
        slow += [(name, each) for each in dict.fromkeys([*COMMON, *own]) if _grows(pattern, each)]
    assert slow == []
