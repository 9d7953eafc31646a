"""Patterns that are compiled when they are first used."""

import pkgutil
from importlib import import_module

import donewhen.graph
import donewhen.state
from donewhen.state.pattern import pattern


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
