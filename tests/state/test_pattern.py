"""Patterns that are compiled when they are first used."""

import pkgutil
import re
from importlib import import_module

import pytest

import donewhen.graph
import donewhen.state
from donewhen.state.pattern import pattern


def test_it_is_a_pattern_in_all_that_it_does() -> None:
    """T (cold start): as `re.compile`, flags and all; nothing is compiled before the first use."""
    late, at_once = pattern(r"(?P<word>[a-z]+)\s*", re.IGNORECASE), re.compile(r"(?P<word>[a-z]+)\s*", re.IGNORECASE)
    assert list(vars(late)) == ["pattern", "_given"]
    assert late.pattern == at_once.pattern
    for _ in range(2):
        assert late.findall("One two") == at_once.findall("One two") == ["One", "two"]
        assert late.sub("x", "One two") == "xx"
        found = late.match("One two")
        assert found is not None
        assert found["word"] == "One"
        assert (late.flags, late.groups) == (at_once.flags, at_once.groups)


def test_a_wrong_one_is_no_pattern() -> None:
    """A mistake is seen when it is used, as one of `re`."""
    with pytest.raises(re.error):
        pattern("(").search("")


def test_every_pattern_is_one() -> None:
    """What `re.compile` would have said at the import."""
    kind, found = type(pattern("")), 0
    for package in (donewhen.state, donewhen.graph):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(import_module(module.name)).values():
                if isinstance(value, kind):
                    assert isinstance(value.flags, int)
                    found += 1
    assert found > 80
