"""What differs between the versions of PySpark, without running them; `make matrix` runs them."""

from __future__ import annotations

from importlib.resources import files
from types import SimpleNamespace

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.packaged import CONNECTORS, connector_list
from streaming_lsm.spark.jvm.jars import parse_jar_list
from streaming_lsm.spark.jvm.java import Releases
from streaming_lsm.spark.versions import Version, java_releases, parse_version, progress_of


@pytest.mark.parametrize(
    ("text", "version"), [("3.5.0", (3, 5)), ("4.1.0.dev3", (4, 1)), ("4.10", (4, 10)), ("5.0.0-preview1", (5, 0))]
)
def test_versions_are_told_by_their_first_two_numbers(text: str, version: Version) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["3.4.4", "2.4.8", "unknown"])
def test_older_versions_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=f"PySpark {text} is not supported: install 3.5 or later"):
        parse_version(text)


@pytest.mark.parametrize(
    ("spark", "releases"),
    [((3, 5), Releases(8, 17)), ((4, 0), Releases(17, 21)), ((4, 1), Releases(17, 21)), ((4, 3), Releases(17))],
)
def test_each_version_has_its_releases_of_java(spark: Version, releases: Releases) -> None:
    assert java_releases(spark) == releases


def test_progress_is_read_from_dicts_and_from_objects() -> None:
    assert progress_of({"batchId": 7}) == {"batchId": 7}
    assert progress_of(SimpleNamespace(json='{"batchId": 7}')) == {"batchId": 7}


@pytest.mark.parametrize(
    ("spark", "connector"),
    [((3, 5), "3.5"), ((4, 0), "4.0"), ((4, 1), "4.1"), ((4, 2), "4.2"), ((4, 3), "4.2"), ((5, 0), "4.2")],
)
def test_the_kafka_source_is_the_one_of_the_version(spark: Version, connector: str) -> None:
    assert connector_list(spark) == f"connector_jars_{connector}.txt"


@pytest.mark.parametrize("spark", CONNECTORS)
def test_each_list_of_the_kafka_source_names_its_version_and_scala(spark: Version) -> None:
    name = connector_list(spark)
    jars = parse_jar_list(files("streaming_lsm.kafka").joinpath(name).read_text(encoding="utf-8"), name)
    scala = "2.12" if spark < (4, 0) else "2.13"
    assert [jar.artifact for jar in jars] == [
        f"spark-sql-kafka-0-10_{scala}",
        f"spark-token-provider-kafka-0-10_{scala}",
        "kafka-clients",
        "commons-pool2",
    ]
    assert parse_version(jars[0].version) == spark
