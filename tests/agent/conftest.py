"""A storage, for what is built on it; that all storages behave alike is for the storage suite to show."""

from pathlib import Path

import pytest

from donewhen.agent.storage import Storage, open_storage
from tests.kit.storage.cases import fresh_url, key_of


@pytest.fixture(params=["sqlite-sealed", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Return a new storage: a sealed file, and a server."""
    return open_storage(fresh_url(request.param, tmp_path), key=key_of(request.param))
