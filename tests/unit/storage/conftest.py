"""Each kind of storage by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.uris import open_storage
from tests.support.s3_server import S3Server


@pytest.fixture
def server(object_server: S3Server) -> S3Server:
    return object_server


@pytest.fixture(params=["memory", "s3"])
def objects(request: pytest.FixtureRequest) -> Storage:
    """A storage of objects."""
    return open_storage(request.getfixturevalue(f"{request.param}_uri"))


@pytest.fixture(params=["local", "memory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Any storage."""
    if request.param == "local":
        return open_storage(tmp_path / "table")
    return open_storage(request.getfixturevalue(f"{request.param}_uri"))
