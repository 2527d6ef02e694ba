"""One Spark session for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.local_spark import interpreting_session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A local session, which parses DDL."""
    with interpreting_session() as session:
        yield session
