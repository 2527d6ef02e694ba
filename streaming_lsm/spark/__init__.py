"""Integrate the library with Spark: streaming sink, data source, task engine, query listener, session, Java, jars."""

from importlib.util import find_spec

from streaming_lsm.extras import missing_package

if find_spec("pyspark") is None:
    raise missing_package(__name__, ModuleNotFoundError(name="pyspark"))
