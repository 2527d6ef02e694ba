"""Start the Spark session of tests that run many small plans."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from streaming_lsm.spark.session import local_session

# Compiling a new plan takes seconds and these tests have dozens of small ones; the jobs' own tests run compiled.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_INSTALLED = Path(__file__).parent / "installed"


@contextmanager
def interpreting_session() -> Iterator[SparkSession]:
    """Yield a local session that interprets its plans; it ends with the process."""
    # Spark's workers find what is installed for tests there.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_INSTALLED), *filter(None, [os.environ.get("PYTHONPATH")])])
    session = local_session("tests", cores=1, settings={"spark.log.level": "ERROR"})
    for key, value in _INTERPRETED.items():
        session.conf.set(key, value)
    yield session
    for key in _INTERPRETED:
        session.conf.unset(key)
