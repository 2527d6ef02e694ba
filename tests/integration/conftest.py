"""One Spark session and one Kafka broker for all tests of this folder: a JVM starts longer than most of them take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streaming_lsm import register
from streaming_lsm.kafka.broker import KafkaBroker
from streaming_lsm.kafka.packaged import broker_jars
from streaming_lsm.spark.jvm.java import find_java
from streaming_lsm.spark.session import local_session
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE
from tests.support.s3_server import S3Server


@pytest.fixture(scope="session")
def spark(object_server: S3Server) -> Iterator[SparkSession]:
    # The server comes first: Python workers have the environment of the JVM.
    session = local_session("tests", cores=2)
    if HAS_PYTHON_DATA_SOURCE:
        register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    java = find_java()
    with KafkaBroker(tmp_path_factory.mktemp("broker"), broker_jars(java), java) as running:
        yield running
