"""Events that carry some columns only, from Debezium's envelopes to the rows that Spark reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import LsmSink, LsmTable, read
from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.settings import JobSettings

UNSENT = "__debezium_unavailable_value"
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "_event_lsn",
    "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
    "hoodie.bucket.index.num.buckets": 2,
    "lsm.writer.id": "w",
    "lsm.kafka.format": "debezium-json",
    "lsm.kafka.schema": "id STRING, qty INT, body STRING, raw BINARY, _event_lsn BIGINT",
    "subscribe": "t",
    "kafka.bootstrap.servers": "localhost:9092",
}


def _frame(spark: SparkSession, *events: tuple[int, dict[str, object]]) -> DataFrame:
    rows = []
    for offset, (lsn, row) in enumerate(events):
        value = {"before": None, "after": row, "op": "u", "source": {"lsn": lsn}}
        rows.append((b"k", json.dumps(value).encode(), "t", 0, 100 * lsn + offset))
    return spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset long")


def _sink(path: Path) -> LsmSink:
    settings = JobSettings.load(
        None, {**{key: str(value) for key, value in OPTIONS.items()}, "lsm.table.path": str(path)}
    )
    return LsmSink(path, settings.options, envelope=settings.envelope())


@pytest.mark.parametrize("compacts", [False, True])
def test_updates_without_their_large_values_keep_them(spark: SparkSession, tmp_path: Path, compacts: bool) -> None:
    sink = _sink(tmp_path / "t")
    sink(_frame(spark, (1, {"id": "a", "qty": 1, "body": "long", "raw": "bG9uZw=="}), (1, {"id": "b", "qty": 1})), 0)
    encoded = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    sink(_frame(spark, (2, {"id": "a", "qty": 2, "body": UNSENT, "raw": encoded})), 1)
    if compacts:
        assert LsmTable(tmp_path / "t").compact()
    # Two updates in one batch, of which the later one is sent without the text that the earlier one set.
    events = (3, {"id": "b", "qty": 3, "body": "new", "raw": encoded}), (4, {"id": "b", "qty": 4, "body": UNSENT})
    sink(_frame(spark, *events, (4, {"id": "a", "qty": 4, "body": UNSENT, "raw": encoded})), 2)
    names = ["id", "qty", "body", "raw"]
    known = [("a", 4, "long", b"long"), ("b", 4, "new", None)]
    ours = LsmTable(tmp_path / "t").scan(names).to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in ours) == known
    by_spark = read(spark, tmp_path / "t").select(*names).collect()
    assert sorted((row.id, row.qty, row.body, None if row.raw is None else bytes(row.raw)) for row in by_spark) == known


def test_a_placeholder_that_the_table_would_not_recognise_is_refused() -> None:
    options = {key: str(value) for key, value in OPTIONS.items()}
    settings = JobSettings.load(
        None, {**options, "lsm.kafka.debezium.unavailable.value": "hex:00ff", "lsm.table.path": "/t"}
    )
    with pytest.raises(
        ConfigError, match=r"unavailable.value='hex:00ff', but the table fills .*__debezium_unavailable"
    ):
        settings.envelope()
