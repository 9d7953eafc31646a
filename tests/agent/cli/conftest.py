"""A user of the command."""

from pathlib import Path

import pytest

from tests.kit.screens.shell import Shell, user_in


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a user with a folder of three files, and nothing configured."""
    return user_in(tmp_path)
