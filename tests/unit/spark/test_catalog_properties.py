"""Properties of tables of Spark's catalog, which the data source is given with its options, without a Spark session."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE
from tests.support.small_tables import create

pytestmark = pytest.mark.skipif(not HAS_PYTHON_DATA_SOURCE, reason="PySpark 4.0 introduced data sources in Python")


def schema_of(path: Path, **options: str) -> list[str]:
    from streaming_lsm.spark.queries.datasource import LsmDataSource

    return list(LsmDataSource({"path": str(path), **options}).schema().names)


def test_properties_that_are_no_options_are_ignored_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    create(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = schema_of(
            tmp_path, provider="streaming_lsm", team="a", **{"cost.center": "7", "lsm.read.columns": "id"}
        )
    assert found == ["id"]
    assert [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()] == [
        "properties of the table that are no options of streaming_lsm are ignored: cost.center, team"
    ]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("as.of.instnat", "did you mean 'as.of.instant'"),
        ("asof.instant", "did you mean 'as.of.instant'"),
        ("lsm.read.colums", "did you mean 'lsm.read.columns'"),
        ("hoodie.team", "not an option of this release"),
    ],
)
def test_a_misspelt_option_of_a_catalog_table_is_an_error(tmp_path: Path, key: str, says: str) -> None:
    create(tmp_path)
    with pytest.raises(ConfigError, match=says):
        schema_of(tmp_path, provider="streaming_lsm", **{key: "1"})


def test_an_unknown_option_of_a_reader_is_an_error(tmp_path: Path) -> None:
    create(tmp_path)
    with pytest.raises(ConfigError, match="unknown option 'team'"):
        schema_of(tmp_path, team="a")
