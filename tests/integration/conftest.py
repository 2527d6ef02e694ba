"""One Spark session for all tests of this folder: starting a JVM takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streaming_lsm import register
from streaming_lsm.spark.session import local_session
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session("tests", cores=2)
    if HAS_PYTHON_DATA_SOURCE:
        register(session)
    yield session
    session.stop()
