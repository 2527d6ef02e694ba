"""One cluster for the tests of a module; executors that are killed are replaced by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.cluster import cluster


@pytest.fixture(scope="module")
def cluster_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def spark(cluster_folder: Path) -> Iterator[SparkSession]:
    with cluster(cluster_folder) as session:
        yield session
