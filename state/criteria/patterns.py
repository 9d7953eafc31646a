"""Refuse regular expressions and JSON paths of models that would exhaust memory or never end.

Counted repeats are expanded when a pattern is compiled, so nested ones multiply; every group keeps all its matches;
regular expressions within a path cannot be stopped. The problem is described so that it can be corrected.
"""

import re

from donewhen.state.pattern import pattern

PATTERN_CHARS = 500
PATTERN_SIZE = 10_000
"""The most elements of a pattern with its counted repeats expanded; about 300 bytes each."""
PATTERN_GROUPS = 5
PATH_CHARS = 500

_TOKEN = pattern(
    r"(?P<comment>\(\?\#[^)]*\))|\\.|\[\^?\]?(?:\\.|[^\]\\]){0,500}\]|\{(?P<least>[0-9]*)(?:,[0-9]*)?\}|.", re.DOTALL
)
_VERBOSE = pattern(r"\(\?[a-zA-Z0-9]*x")
_GROUP = pattern(r"\((?!\?)|\(\?P?<(?![=!])")


def pattern_problem(pattern: str, groups: int = PATTERN_GROUPS) -> str | None:
    """Return why this regular expression is refused, in words for its author; None if it is not.

    `groups` is the most capturing groups; for short texts more do no harm.
    """
    if _VERBOSE.search(pattern):
        return f"{pattern[:80]!r} has the flag x; write the pattern without it"
    if count_elements(pattern) > PATTERN_SIZE:
        return (
            f"{pattern[:80]!r} repeats too much: with its counted repeats written out it has more than "
            f"{PATTERN_SIZE:,} elements; use smaller counts, or * and +"
        )
    if len(_GROUP.findall(pattern)) > groups:
        return f"{pattern[:80]!r} has more than {groups} groups that capture; write (?:…) where none is needed"
    import regex  # 8 ms, for the few plans that have a pattern

    try:
        regex.compile(pattern)
    except regex.error as error:
        return f"{pattern[:80]!r} is not a regular expression: {error}"
    return None


def count_elements(pattern: str) -> int:
    """Return the number of elements of a pattern with its counted repeats expanded; linear, without compiling."""
    open_groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        text, least = token[0], token["least"]
        if least is not None:
            times = max(int(least or 0), 1)
            open_groups[-1] += last * (times - 1)
            last *= times
        elif text == "(":
            open_groups.append(1)
        elif text == ")":
            last = open_groups.pop()
            open_groups = open_groups or [0]
            open_groups[-1] += last
        elif not token["comment"]:
            open_groups[-1] += 1
            last = 1
    return sum(open_groups)


def path_problem(path: str) -> str | None:
    """Return why this JSON path is refused; None if it is not."""
    if len(path) > PATH_CHARS:
        return f"a path has at most {PATH_CHARS} characters; this one has {len(path):,}"
    if "=~" in path or "sub(" in path:
        return f"{path[:80]!r} holds a regular expression, which a path cannot; use matches"
    if path.count("..") > 1:
        return f"{path[:80]!r} is a path that descends with .. more than once; name the keys on the way"
    from jsonpath_ng.exceptions import JSONPathError  # 14 ms, for the few plans that have a path
    from jsonpath_ng.ext.parser import parse

    try:
        parse(path)
    except (JSONPathError, ValueError, AttributeError, TypeError) as error:
        return f"{path!r} is not a JSON path, such as $.rows or $[?(@.id=='a')].n: {error}"
    return None
