"""The pytest fixture `replay`: a recorded run as a test. `pytest_plugins = ["donewhen.pytest_plugin"]` brings it.

It has no entry point, because pytest would then load it in every project and rewrite the asserts of the whole package.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function of a recording's path, beside the test, and of an agent's options; it returns the run."""

    def play(path: str | Path, **options: Any) -> Any:
        from donewhen import wait
        from donewhen.testing import Recording

        return wait(Recording.load(request.path.parent / path).replay(**options))

    return play
