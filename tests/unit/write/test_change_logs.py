"""Change logs of copy-on-write tables: a CDC query says the same with and without them, in all modes and versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ConfigError
from streaming_lsm.inspection.table_check import check_table
from streaming_lsm.query.change_log import read_change_log
from streaming_lsm.storage.local import LocalStorage
from tests.support.faulty_storage import Fault, FaultyStorage, Killed

NESTED = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        ("ts", pa.int64()),
        ("price", pa.decimal128(9, 2)),
        ("place", NESTED),
    ]
)
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
LAYOUTS = ((10, "lsm_tree"), (10, "default"), (9, "default"))
Change = tuple[str, str, Any, Any]


def _table(path: Path, mode: str | None, version: int = 10, layout: str = "lsm_tree", **options: object) -> LsmTable:
    captured = {"hoodie.table.cdc.enabled": True, "hoodie.table.cdc.supplemental.logging.mode": mode}
    return LsmTable.create(
        path,
        SCHEMA,
        {
            "hoodie.table.name": "t",
            "hoodie.write.table.version": version,
            "hoodie.table.storage.layout": layout,
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "day",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.bucket.index.num.buckets": 2,
            **(captured if mode else {}),
            **options,
        },
    )


def _batch(rng: np.random.Generator, step: int) -> pa.Table:
    numbers = rng.permutation(40)[:15]
    rows = [
        {
            "id": f"k{number}",
            "day": f"d{number % 2}",
            "ts": 10 * step + int(rng.integers(-15, 5)),
            "price": None if number % 5 == 0 else int(rng.integers(0, 99)),
            "place": None if number % 7 == 0 else {"a": int(number), "b": ["x", None]},
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _played(table: LsmTable, steps: int = 6) -> None:
    """Upserts with late rows, deletes, a write that changes nothing, and an overwrite."""
    rng = np.random.default_rng(5)
    for step in range(steps):
        rows = _batch(rng, step)
        table.upsert(rows)
        if step == 2:
            table.delete(rows.select(["id", "day"]).slice(0, 6))
        if step == 3:
            late = rows.set_column(2, SCHEMA.field("ts"), pa.array([-99] * len(rows), pa.int64()))
            table.upsert(late)  # loses to what is there
    everything = table.scan().to_arrow()
    table.delete(everything.filter(pa.compute.equal(everything.column("day"), "d1")).select(["id", "day"]))
    table.insert_overwrite(_batch(rng, steps))


def _changes(table: LsmTable) -> list[Change]:
    rows = table.changes("000").to_arrow().to_pylist()
    times = {write.requested: number for number, write in enumerate(table.timeline.completed_writes)}
    return sorted((str(times[row["ts_ms"]]), row["op"], *map(_image, (row["before"], row["after"]))) for row in rows)


def _image(row: dict[str, Any] | None) -> str:
    kept = None if row is None else {name: row[name] for name in SCHEMA.names}
    return json.dumps(kept, default=str)


def _logs(table: LsmTable) -> Iterator[tuple[str, int]]:
    for write in table.timeline.completed_writes:
        for stat in table.timeline.read_commit(write).stats:
            yield from stat.cdc_files


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("version", "layout"), LAYOUTS)
def test_changes_are_the_same_with_and_without_change_logs(
    tmp_path: Path, mode: str, version: int, layout: str
) -> None:
    captured = _table(tmp_path / "with", mode, version, layout, **{"hoodie.metadata.enable": True})
    inferred = _table(tmp_path / "without", None, version, layout)
    for table in (captured, inferred):
        _played(table)
    assert _changes(captured) == _changes(inferred)
    logs = list(_logs(captured))
    assert len(logs) > 20
    assert not list(_logs(inferred))
    assert all((tmp_path / "with" / path).stat().st_size == size for path, size in logs)
    assert check_table(captured, LocalEngine(1), lambda *_: None, quick=False).findings == ()


@pytest.mark.parametrize("version", [10, 9])
@pytest.mark.parametrize(
    ("mode", "columns"),
    [
        ("OP_KEY_ONLY", ["op", "record_key"]),
        ("DATA_BEFORE", ["op", "record_key", "before"]),
        ("DATA_BEFORE_AFTER", ["op", "ts_ms", "before", "after"]),
    ],
)
def test_a_change_log_has_the_columns_of_its_mode(tmp_path: Path, version: int, mode: str, columns: list[str]) -> None:
    table = _table(tmp_path, mode, version, "default")
    rows = _batch(np.random.default_rng(1), 1)
    table.upsert(rows)
    assert not list(_logs(table))  # new file groups have inserts only
    table.delete(rows.select(["id", "day"]).slice(0, 1))
    ((path, _),) = _logs(table)
    assert path.endswith(".cdc.parquet" if version == 10 else ".cdc")
    (batch,) = read_change_log(LocalStorage(tmp_path), path)
    assert batch.schema.names == columns
    assert batch.column("op").to_pylist() == ["d"]
    if "record_key" in columns:
        assert batch.column("record_key").to_pylist() == rows.column("id").to_pylist()[:1]
    if "before" in columns:
        assert batch.column("before").to_pylist() == rows.to_pylist()[:1]


def test_changes_of_a_table_with_both_images_need_no_older_base_file(tmp_path: Path) -> None:
    table = _table(tmp_path, "DATA_BEFORE_AFTER")
    rows = _batch(np.random.default_rng(1), 1)
    table.upsert(rows)
    begin = table.timeline.completed_writes[-1].completed or ""
    old = [path for path in tmp_path.rglob("*.parquet") if not path.is_relative_to(tmp_path / ".hoodie")]
    newer = rows.set_column(2, SCHEMA.field("ts"), pa.array([99] * len(rows), pa.int64()))
    table.upsert(newer)
    expected = table.changes(begin).to_arrow()
    for path in old:
        pq.read_table(path)
        path.write_bytes(b"damaged")
    assert table.changes(begin).to_arrow() == expected
    assert set(expected.column("op").to_pylist()) == {"u"}


def test_a_clean_deletes_change_logs_with_the_slices_they_are_of(tmp_path: Path) -> None:
    retained = {"hoodie.clean.automatic": False, "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"}
    table = _table(tmp_path, "DATA_BEFORE_AFTER", **retained, **{"hoodie.clean.fileversions.retained": 1})
    rng = np.random.default_rng(2)
    for step in range(4):
        table.upsert(_batch(rng, step))
    logs = [path for path, _ in _logs(table)]
    table.clean()
    left = [path for path in logs if (tmp_path / path).exists()]
    last = table.timeline.read_commit(table.timeline.completed_writes[-1])
    assert set(left) == {path for stat in last.stats for path, _ in stat.cdc_files}
    assert len(table.scan().to_arrow()) > 15


def _opened(table: LsmTable, storage: FaultyStorage) -> LsmTable:
    opened = LsmTable(Path(table.path.removeprefix("file://")))
    opened.storage = storage
    return opened


@pytest.mark.parametrize("version", [10, 9])
def test_no_change_log_of_a_killed_write_is_left(tmp_path: Path, version: int) -> None:
    def grown(path: Path) -> tuple[LsmTable, pa.Table]:
        table = _table(path, "DATA_BEFORE_AFTER", version, "default")
        rng = np.random.default_rng(3)
        table.upsert(_batch(rng, 1))
        return table, _batch(rng, 2)

    table, batch = grown(tmp_path / "counted")
    counting = FaultyStorage(LocalStorage(tmp_path / "counted"))
    _opened(table, counting).upsert(batch)
    expected = _changes(LsmTable(tmp_path / "counted"))
    for call in range(1, len(counting.calls) + 1, 17):
        root = tmp_path / str(call)
        killed, _ = grown(root)
        with suppress(Killed):
            _opened(killed, FaultyStorage(LocalStorage(root), {call: Fault.KILL_AFTER})).upsert(batch)
        after = LsmTable(root)
        after.upsert(batch)
        named = {path for path, _ in _logs(after)}
        files = (path.relative_to(root) for path in root.rglob("*.cdc*") if path.suffix != ".crc")
        found = {str(path) for path in files if ".hoodie" not in path.parts}
        assert found == named
        assert {change[1:] for change in _changes(after)} >= {change[1:] for change in expected}


def test_merge_on_read_tables_with_change_capture_cannot_be_created(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs hoodie\.datasource\.write\.table\.type=COPY_ON_WRITE"):
        _table(tmp_path, "DATA_BEFORE", **{"hoodie.datasource.write.table.type": "MERGE_ON_READ"})


def test_a_logging_mode_without_change_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set both or none"):
        _table(tmp_path, None, **{"hoodie.table.cdc.supplemental.logging.mode": "DATA_BEFORE"})
