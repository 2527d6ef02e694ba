"""A batch that cannot be written fails whole and says why, leaves nothing behind, and the next one works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streaming_lsm import LsmTable
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.spark.batch_writer import BatchResult
from streaming_lsm.timeline.clock import instant_text
from tests.oracle.validator import validate
from tests.support.lake import OrdersLake, data_files
from tests.support.orders import OPTIONS, final_rows, make_orders, rows_of, to_arrow
from tests.support.task_faults import CREATE, MIDDLE, Blow, Fault, struck

TWO_STAGES = {"lsm.write.shuffle.partitions": 2}


@contextmanager
def failing(lake: OrdersLake, message: str) -> Iterator[None]:
    """The stream fails with `message`; of the batch nothing is left."""
    before, files = LsmTable(lake.path).timeline.completed_writes, data_files(lake.path)
    with pytest.raises(StreamingQueryException, match=message):
        yield
    timeline = LsmTable(lake.path).timeline
    assert timeline.completed_writes == before
    assert timeline.pending == ()
    assert data_files(lake.path) == files
    assert validate(lake.path) == [], "a file that no commit lists"
    assert list(Path(lake.path).rglob("*.lsm-tmp")) == []


def test_a_log_file_that_is_gone_before_the_commit_fails_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    lake = OrdersLake(spark, tmp_path, TWO_STAGES)
    lake.produce(0)
    lake.run()
    lake.produce(1)

    def remove_one(batch: int, done: BatchResult) -> None:
        Path(lake.path, done.written.stats[1].path).unlink()

    gone = r"CorruptFileError: .* is gone since it was written: write it again"
    with failing(lake, gone), struck(tmp_path / "faults", [], afterwards=remove_one):
        lake.run()
    lake.run()
    lake.check(batches=2)


@pytest.mark.parametrize(("options", "point"), [(TWO_STAGES, MIDDLE), ({}, CREATE)], ids=["two-stages", "one-stage"])
def test_a_full_disk_fails_the_batch(
    spark: SparkSession, tmp_path: Path, options: dict[str, object], point: str
) -> None:
    lake = OrdersLake(spark, tmp_path, options)
    lake.produce(0)
    lake.run()
    lake.produce(1)
    full = Fault("full", 0, None, point, Blow.FULL, nth=2)
    message = r"StorageError: no room in file://.*No space left on device"
    with failing(lake, message), struck(tmp_path / "faults", [full]):
        lake.run()
    lake.run()
    lake.check(batches=2)


def test_a_file_larger_than_the_system_allows_fails_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    lake = OrdersLake(spark, tmp_path, TWO_STAGES)
    lake.produce(0)
    lake.run()
    lake.produce(1)
    message = r"StorageError: no room in file://.*File too large"
    with failing(lake, message), struck(tmp_path / "faults", [], file_bytes=lambda batch: 2000):
        lake.run()
    with struck(tmp_path / "faults", []):
        lake.run()
    lake.check(batches=2)


def test_no_room_to_spill_fails_the_batch_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    options = {"lsm.write.buffer.bytes": 1 << 20, "lsm.write.spill.folder": str(spill)}
    lake = OrdersLake(spark, tmp_path, {**TWO_STAGES, **options})
    lake.produce(0)
    lake.run()
    lake.produce(1, 2, count=20_000, keys=60_000)
    message = rf"StorageError: no room in {spill} .* sorted run \(File too large\)"
    with failing(lake, message), struck(tmp_path / "faults", [], file_bytes=lambda batch: 40_000):
        lake.run()
    assert list(spill.iterdir()) == []
    with struck(tmp_path / "faults", []):
        lake.run()
    lake.check(batches=2)
    assert list(spill.iterdir()) == []


def test_instants_grow_though_the_clock_is_set_back(tmp_path: Path) -> None:
    begin, hour = 1_795_000_000_000, 3_600_000
    clock = {"now": begin}
    table = LsmTable.create(tmp_path / "table", to_arrow([]).schema, OPTIONS)
    table.runtime = Runtime(clock=lambda: clock["now"])
    orders = []
    for number, now in enumerate([begin, begin - hour, begin - hour, begin + 1, begin - 10_000]):
        clock["now"] = now
        part = make_orders(100, seed=number)
        table.upsert(to_arrow(part))
        orders += part
    times = [time for write in table.timeline.completed_writes for time in (write.requested, write.completed or "")]
    assert times[0] == instant_text(begin, "UTC")
    assert times == sorted(set(times))
    assert len(times) == 10
    assert rows_of(table.scan().to_arrow()) == final_rows(orders)
    assert validate(tmp_path / "table") == []
