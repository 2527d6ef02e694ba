"""One Spark session for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streaming_lsm.spark.session import local_session

# Compiling a new plan takes seconds and these tests have dozens of small ones; the jobs' own tests run compiled.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A local session that interprets its plans; pytest's end ends it."""
    session = local_session("tests", cores=1, settings={"spark.log.level": "ERROR"})
    for key, value in INTERPRETED.items():
        session.conf.set(key, value)
    yield session
    for key in INTERPRETED:
        session.conf.unset(key)
