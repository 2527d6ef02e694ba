"""Fetch the jars of this package's jar lists: Spark's Kafka source, and the broker of demo and tests.

``connector_jars_4.2.txt`` lists the Kafka source for Spark 4.2 and later versions, up to the next list.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from streaming_lsm.spark.jvm.jars import parse_jar_list, resolve_jars
from streaming_lsm.spark.jvm.java import Java
from streaming_lsm.spark.versions import SPARK, Version

CONNECTORS: tuple[Version, ...] = ((3, 5), (4, 0), (4, 1), (4, 2))
"""The versions of Spark from which on each list of the Kafka source is used."""


def connector_jars(java: Java | None = None) -> list[Path]:
    """Return the jars of the Kafka source for the installed Spark, fetched on first use (see `resolve_jars`)."""
    return _resolve(connector_list(SPARK), java)


def connector_list(spark: Version) -> str:
    """Return the name of the jar list of the Kafka source for a version of Spark."""
    major, minor = max(each for each in CONNECTORS if each <= spark)
    return f"connector_jars_{major}.{minor}.txt"


def broker_jars(java: Java | None = None) -> list[Path]:
    """Return the jars of a Kafka broker, fetched on first use (see `resolve_jars`)."""
    return _resolve("broker_jars.txt", java)


def _resolve(name: str, java: Java | None) -> list[Path]:
    text = files("streaming_lsm.kafka").joinpath(name).read_text(encoding="utf-8")
    return resolve_jars(parse_jar_list(text, name), java=java)


def main(arguments: list[str] | None = None) -> None:
    """Fetch both lists into the cache, for use without a network: ``python -m streaming_lsm.kafka.packaged``."""
    parser = argparse.ArgumentParser(prog="streaming_lsm.kafka.packaged", description=main.__doc__)
    text = "fetch the jars of Spark's Kafka source only, and print their paths as spark-submit --jars takes them"
    parser.add_argument("--connector", action="store_true", help=text)
    if parser.parse_args(arguments).connector:
        print(",".join(map(str, connector_jars())))
        return
    for jars in (connector_jars(), broker_jars()):
        print(f"{len(jars)} jars in {jars[0].parent}")


if __name__ == "__main__":
    main()
