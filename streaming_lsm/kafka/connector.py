"""Give a session that is running already Spark's Kafka source."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming_lsm.kafka.packaged import connector_jars
from streaming_lsm.spark.session import add_jars

_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def provide_connector(spark: SparkSession) -> None:
    """Add the jars of this package's list to a session that was started without a Kafka source.

    Raises:
        ConfigError: the jars cannot be fetched.
    """
    if not _has_class(spark, _PROVIDER):
        add_jars(spark, connector_jars())


def _has_class(spark: SparkSession, name: str) -> bool:
    java: Any = spark.sparkContext._jvm
    try:
        java.java.lang.Class.forName(name, False, java.java.lang.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError:
        return False
    return True
