"""One S3 server for all tests; it is started by the first test that asks for it."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator

import pytest

from tests.support.s3_server import BUCKET, S3Server, s3_server


def pytest_collection_finish() -> None:
    """Leave out thousands of tests, and what they import, when garbage is collected: 5 % of the processor time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let the end of the process free them, of which C++ modules complain otherwise."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def object_server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
def s3_uri(object_server: S3Server) -> str:
    """A root of its own on the S3 server."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def memory_uri() -> str:
    """A root of its own in the memory of this process."""
    return f"memory://{uuid.uuid4().hex}/table"
