"""How fast a snapshot with ten logs on each slice is read, beside Hudi on the same cores in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.conformance.conftest import LOGS
from tests.conformance.environment import Environment
from tests.conformance.judge import Hudi
from tests.conformance.results import Record

BASE_ROWS, LOG_ROWS, LOGS_PER_SLICE, SLICES = 400_000, 40_000, 10, 4
AT_LEAST = {9: 1.0, 10: 3.0}
ROUNDS = 3


def _rows(rng: np.random.Generator, count: int, ts: int) -> pa.Table:
    keys = rng.permutation(BASE_ROWS)[:count]
    columns = {f"v{place}": pa.array(rng.integers(0, 1000, count)) for place in range(4)}
    texts = {f"s{place}": pa.array([f"text {number % 977}" for number in keys]) for place in range(3)}
    return pa.table(
        {
            "id": pa.array([f"customer-{number:09d}" for number in keys]),
            **columns,
            **texts,
            "price": rng.random(count),
            "ts": pa.array(np.full(count, ts), pa.int64()),
        }
    )


def _table(path: Path, version: int) -> LsmTable:
    rng = np.random.default_rng(1)
    base = _rows(rng, BASE_ROWS, 0)
    table = LsmTable.create(
        path,
        base.schema,
        {
            "hoodie.table.name": path.name,
            "hoodie.write.table.version": version,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.bucket.index.num.buckets": SLICES,
            "hoodie.clean.automatic": False,
        },
    )
    table.bulk_insert(base)
    for number in range(LOGS_PER_SLICE):
        table.upsert(_rows(rng, LOG_ROWS, 1 + number))
    assert {len(found.logs) for found in table.file_slices()} == {LOGS_PER_SLICE}
    return table


def _best(run: Callable[[], float]) -> float:
    return min(run() for _ in range(ROUNDS))


def test_a_snapshot_with_ten_logs_on_each_slice(
    judge_environment: Environment, record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {version: _table(tmp_path / f"v{version}", version) for version in AT_LEAST}
    with Hudi(judge_environment, LOGS / "hudi_speed.log", quick_start=False) as hudi:
        reference = _best(lambda: hudi.scan_seconds(tmp_path / "v9"))
    for version, at_least in AT_LEAST.items():
        line = record(f"v{version}, {LOGS_PER_SLICE} logs on a slice", "ours beside hudi", "rows/s")
        ours = _best(lambda table=tables[version]: _seconds(table))  # type: ignore[misc]
        ratio = reference / ours
        line.note = f"ours {BASE_ROWS / ours:,.0f}, hudi on v9 {BASE_ROWS / reference:,.0f}: {ratio:.2f} (≥ {at_least})"
        assert ratio >= at_least, line.note


def _seconds(table: LsmTable) -> float:
    begun = time.perf_counter()
    assert table.scan(meta=True).to_arrow().num_rows == BASE_ROWS
    return time.perf_counter() - begun
