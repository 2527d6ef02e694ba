"""Two streaming queries write one table for two minutes, with an inline compaction and cleaning: neither dies.

Each query reads a folder that is filled while it runs. The keys of both overlap, and so do their buckets.
``LSM_QUERIES_SECONDS`` sets another time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streaming_lsm import LsmSink, LsmTable
from streaming_lsm.config import CONCURRENCY_MODE, NON_BLOCKING, OPTIMISTIC
from streaming_lsm.spark.session import local_session
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate

SECONDS = float(os.environ.get("LSM_QUERIES_SECONDS") or 120)
QUERIES = 2
SHARED = 500
"""Keys that both queries write again and again; the last in order wins."""
ROWS = 200
"""In each file."""
SCHEMA = pa.schema([("id", pa.string()), ("country", pa.string()), ("ts", pa.int64()), ("value", pa.int64())])
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "shared",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "country",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 4,
    "hoodie.compact.inline": True,
    "hoodie.clean.commits.retained": 4,
}
Row = tuple[str, str, int, int]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = local_session("two queries", cores=2, settings={"spark.log.level": "ERROR"})
    yield session
    session.stop()


def rows_of(query: int, number: int) -> list[Row]:
    """Rows of one file; the order of a shared key is unique to the row."""
    order = (number * QUERIES + query) * ROWS
    shared = [(f"shared-{(number * 37 + n) % SHARED}", "nl", order + n, number) for n in range(ROWS - 20)]
    return [*shared, *((f"own-{query}-{number}-{n}", "de", order + n, number) for n in range(20))]


def put(folder: Path, query: int, number: int) -> list[Row]:
    """Put a file into the folder that a query reads."""
    found = rows_of(query, number)
    columns = [pa.array(column, field.type) for column, field in zip(zip(*found, strict=True), SCHEMA, strict=True)]
    hidden = folder / f".{number}.tmp"
    pq.write_table(pa.table(columns, schema=SCHEMA), hidden)
    hidden.rename(folder / f"{number:06d}.parquet")
    return found


def started(spark: SparkSession, root: Path, query: int, options: dict[str, object]) -> StreamingQuery:
    """Start a query with a checkpoint and a folder of its own."""
    stream = spark.readStream.schema("id STRING, country STRING, ts LONG, value LONG").parquet(
        str(root / f"in-{query}")
    )
    writer = stream.writeStream.foreachBatch(LsmSink(root / "table", options))
    return writer.option("checkpointLocation", str(root / f"checkpoint-{query}")).start()


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("mode", [NON_BLOCKING, OPTIMISTIC])
def test_neither_of_two_queries_dies(
    spark: SparkSession, tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**OPTIONS, CONCURRENCY_MODE.key: mode}
    LsmTable.create(tmp_path / "table", SCHEMA, options)
    for query in range(QUERIES):
        (tmp_path / f"in-{query}").mkdir()
    queries = [started(spark, tmp_path, query, options) for query in range(QUERIES)]
    model: dict[str, Row] = {}
    end, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        for query in range(QUERIES):
            for row in put(tmp_path / f"in-{query}", query, number):
                model[row[0]] = max(row, model.get(row[0], row), key=lambda found: found[2])
        number += 1
        assert [query.isActive for query in queries] == [True] * QUERIES, [query.exception() for query in queries]
        time.sleep(0.5)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    batches = [progress.batchId + 1 for query in queries if (progress := query.lastProgress) is not None]
    with capsys.disabled():
        print(f"\n{mode}: {number} files and {batches} batches of each query in {SECONDS:.0f} s")
    table = LsmTable(tmp_path / "table")
    found = sorted(tuple(row.values()) for row in table.scan(list(SCHEMA.names)).to_arrow().to_pylist())
    assert found == sorted(model.values())
    assert sorted(tuple(row.values()) for row in read_snapshot(tmp_path / "table").to_pylist()) == found
    assert validate(tmp_path / "table") == []
