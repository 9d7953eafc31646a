"""A workspace: an empty folder and its tools."""

from pathlib import Path

import pytest

from tests.kit.workspace import Tools, by_name


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Return the tools of the test's folder."""
    return by_name(tmp_path)
