"""Batches that hold nothing good: the query says why, or sets every event aside, and goes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from streaming_lsm import Envelope, LsmSink
from streaming_lsm.config import resolve
from streaming_lsm.errors import MissingPackage, RecordError
from streaming_lsm.kafka.broker import KafkaBroker, create_topic
from streaming_lsm.kafka.table_commits import TableCommits
from tests.support.watched_stream import commits, put, rows, watched

POISON = [b"{", b'{"id":"a","qty":"many"}', b"\xff", b'{"qty":1}', b"null"]

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Absent())
"""
"""A module that Python imports as it starts: it hides another one."""


def checkpointed(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoint" / "commits").iterdir() if path.name.isdigit())


def test_a_batch_of_bad_events_alone_stops_the_query_by_the_first_one_or_is_set_aside_whole(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, "poison", 1)
    letters = {"lsm.on.bad.event": "dead_letter", "lsm.dead.letter.path": str(tmp_path / "dead")}
    at = {"subscribe": "poison"}
    # Also as the very first batch, of a table that is not there yet.
    put(broker, "poison", *POISON)
    said = r"^event at topic 'poison', partition 0, offset 0: the value is not a JSON object: \{"
    with watched(spark, tmp_path, broker.bootstrap_servers, **at) as watcher, pytest.raises(RecordError, match=said):
        list(watcher.reports(60))
    assert checkpointed(tmp_path) == []
    with watched(spark, tmp_path, broker.bootstrap_servers, **at, **letters) as watcher:
        (report,) = watcher.reports(60)
    assert (report.events, report.rows, report.deletes, report.dead_letters) == (5, 0, 0, 5)
    put(broker, "poison", {"id": "a", "qty": 1})
    for batch in (1, 2):
        with watched(spark, tmp_path, broker.bootstrap_servers, **at, **letters) as watcher:
            (report,) = watcher.reports(60)
        assert rows(tmp_path / "poison") == [{"id": "a", "qty": 1}]
        assert checkpointed(tmp_path)[-1] == str(batch)
        put(broker, "poison", *POISON)
    assert (report.events, report.rows, report.dead_letters) == (5, 0, 5)
    assert commits(tmp_path / "poison") == 3
    found = ds.dataset(sorted(map(str, (tmp_path / "dead").rglob("*.parquet")))).to_table()
    assert sorted(found.column("offset").to_pylist()) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_field_names_of_a_megabyte_and_such_as_are_no_text_are_committed_and_named_in_one_short_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id", "lsm.writer.id": "w"}
    sink = LsmSink(tmp_path / "t", options, envelope=Envelope(pa.schema([("id", pa.string())]), ("id",)))
    names = [*(f"{n}-" + "k" * 900_000 for n in range(30)), "\\ud800x", "a\\nbatch 9: 5 events"]
    values = [b'{"id":"%d","%s":1}' % (number, name.encode()) for number, name in enumerate(names)]
    columns = "key binary, value binary, topic string, partition int, offset long"
    sink(spark.createDataFrame([(b"", value, "t", 0, number) for number, value in enumerate(values)], columns), 0)
    assert len(rows(tmp_path / "t")) == len(names)
    commit = TableCommits(resolve({**options, "lsm.table.path": str(tmp_path / "t")}), "w").commit_of(0)
    assert commit is not None
    assert len(commit.unknown_fields) == len(names)
    assert {"\\ud800x", "a\\nbatch 9: 5 events"} <= commit.unknown_fields.keys()
    assert all(name.isprintable() and len(name) < 200 for name in commit.unknown_fields)
    numbers = sink.numbers(0)
    assert numbers is not None
    assert numbers.line().isprintable()
    (completed,) = (path for path in (tmp_path / "t/.hoodie/timeline").iterdir() if "_" in path.name)
    assert completed.stat().st_size < 50_000


@pytest.mark.parametrize("module", ["streaming_lsm", "pyarrow"])
def test_executors_without_a_package_are_told_with_the_way_to_ship_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT.format(module=module))
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id", "lsm.writer.id": "w"}
    sink = LsmSink(tmp_path / "table", options, envelope=Envelope(pa.schema([("id", pa.string())]), ("id",)))
    columns = "key binary, value binary, topic string, partition int, offset long"
    batch = spark.createDataFrame([(b"k", b'{"id":"a"}', "t", 0, 0)], columns)
    with monkeypatch.context() as changed:
        # Workers are started anew for another environment.
        changed.setitem(spark.sparkContext.environment, "PYTHONPATH", str(tmp_path))
        said = rf"^Spark's executors have no Python module '{module}': install .* --py-files .* \(docs/cluster\.md\)$"
        with pytest.raises(MissingPackage, match=said):
            sink(batch, 0)
    sink(batch, 0)
    assert rows(tmp_path / "table") == [{"id": "a"}]
