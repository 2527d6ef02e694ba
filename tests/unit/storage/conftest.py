"""One S3 server for all tests of this folder, and each kind of storage by name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.uris import open_storage
from tests.support.s3_server import BUCKET, S3Server, s3_server


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
def s3_uri(server: S3Server) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def memory_uri() -> str:
    return f"memory://{uuid.uuid4().hex}/table"


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
