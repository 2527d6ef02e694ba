"""Start the Spark session of tests that run many small plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from streaming_lsm.spark.session import local_session

# Compiling a new plan takes seconds and these tests have dozens of small ones; the jobs' own tests run compiled.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def interpreting_session() -> Iterator[SparkSession]:
    """Yield a local session that interprets its plans; it ends with the process."""
    session = local_session("tests", cores=1, settings={"spark.log.level": "ERROR"})
    for key, value in _INTERPRETED.items():
        session.conf.set(key, value)
    yield session
    for key in _INTERPRETED:
        session.conf.unset(key)
