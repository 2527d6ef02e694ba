"""Change logs of copy-on-write tables: a CDC query says the same with and without them, in all modes and versions."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ConfigError, CorruptFileError, ReadOvertaken
from streaming_lsm.inspection.table_check import check_table
from streaming_lsm.query.cdc.change_log import read_change_log
from streaming_lsm.query.cdc.changes import Changes
from streaming_lsm.storage.local import LocalStorage
from tests.support.change_tables import (
    LAYOUTS,
    MODES,
    SCHEMA,
    change_logs,
    changes_of,
    created,
    opened,
    played,
    random_batch,
)
from tests.support.crash_points import combined, sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed


@pytest.mark.parametrize(("mode", "table_format"), combined(1, MODES, LAYOUTS))
def test_changes_are_the_same_with_and_without_change_logs(
    tmp_path: Path, mode: str, table_format: tuple[int, str]
) -> None:
    version, layout = table_format
    captured = created(tmp_path / "with", mode, version, layout, **{"hoodie.metadata.enable": True})
    inferred = created(tmp_path / "without", None, version, layout)
    for table in (captured, inferred):
        played(table)
    assert changes_of(captured) == changes_of(inferred)
    logs = list(change_logs(captured))
    assert len(logs) > 20
    assert not list(change_logs(inferred))
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
    table = created(tmp_path, mode, version, "default")
    rows = random_batch(np.random.default_rng(1), 1)
    table.upsert(rows)
    assert not list(change_logs(table))  # new file groups have inserts only
    table.delete(rows.select(["id", "day"]).slice(0, 1))
    ((path, _),) = change_logs(table)
    assert path.endswith(".cdc.parquet" if version == 10 else ".cdc")
    (batch,) = read_change_log(LocalStorage(tmp_path), path)
    assert batch.schema.names == columns
    assert batch.column("op").to_pylist() == ["d"]
    if "record_key" in columns:
        assert batch.column("record_key").to_pylist() == rows.column("id").to_pylist()[:1]
    if "before" in columns:
        assert batch.column("before").to_pylist() == rows.to_pylist()[:1]


@pytest.mark.parametrize("version", [10, 9])
@pytest.mark.parametrize("mode", ["DATA_BEFORE", "DATA_BEFORE_AFTER"])
def test_changes_of_a_table_with_images_before_need_no_older_base_file(tmp_path: Path, mode: str, version: int) -> None:
    table = created(tmp_path, mode, version, "default")
    rows = random_batch(np.random.default_rng(1), 1)
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


@pytest.mark.parametrize(("mode", "version"), combined(1, MODES, (10, 9)))
def test_changes_are_worked_out_without_a_lost_log(
    tmp_path: Path, mode: str, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    table = created(tmp_path, mode, version, "default")
    played(table)
    before, (lost, *_) = changes_of(table), [path for path, _ in change_logs(table)]
    (tmp_path / lost).unlink()
    assert changes_of(LsmTable(tmp_path)) == before
    assert f"{lost} is missing" in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_changes_whose_logs_were_cleaned_are_refused(tmp_path: Path, mode: str) -> None:
    table = created(tmp_path, mode, **{"hoodie.clean.automatic": False, "hoodie.clean.commits.retained": 2})
    rng = np.random.default_rng(2)
    for step in range(5):
        table.upsert(random_batch(rng, step))
    table.clean()
    with pytest.raises(ReadOvertaken, match="were cleaned"):
        table.changes("000").to_arrow()
    last = table.timeline.completed_writes[-2].completed or ""
    assert table.changes(last).to_arrow().num_rows > 0


@pytest.mark.parametrize("mode", ["OP_KEY_ONLY", "DATA_BEFORE"])
def test_a_log_of_a_key_that_its_file_group_does_not_have_is_reported(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(tmp_path, mode)
    rows = random_batch(np.random.default_rng(1), 1)
    table.upsert(rows)
    table.upsert(rows)
    path, _ = next(change_logs(table))
    (batch,) = read_change_log(LocalStorage(tmp_path), path)
    keys = pa.array(["strange", *batch.column("record_key").to_pylist()[1:]])
    pq.write_table(pa.table(batch.to_pydict() | {"record_key": keys}, schema=batch.schema), tmp_path / path)
    with pytest.raises(CorruptFileError, match=f"{path} has .* bytes, and .*commit says"):
        table.changes("000").to_arrow()
    monkeypatch.setattr(Changes, "_check_size", lambda *_: None)  # a log of the size that was committed
    with pytest.raises(CorruptFileError, match=f"{path}: a change of record key 'strange'"):
        table.changes("000").to_arrow()


def test_a_clean_deletes_change_logs_with_the_slices_they_are_of(tmp_path: Path) -> None:
    retained = {"hoodie.clean.automatic": False, "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"}
    table = created(tmp_path, "DATA_BEFORE_AFTER", **retained, **{"hoodie.clean.fileversions.retained": 1})
    rng = np.random.default_rng(2)
    for step in range(4):
        table.upsert(random_batch(rng, step))
    logs = [path for path, _ in change_logs(table)]
    table.clean()
    left = [path for path in logs if (tmp_path / path).exists()]
    last = table.timeline.read_commit(table.timeline.completed_writes[-1])
    assert set(left) == {path for stat in last.stats for path, _ in stat.cdc_files}
    assert len(table.scan().to_arrow()) > 15


@pytest.mark.parametrize("version", [10, 9])
def test_no_change_log_of_a_killed_write_is_left(tmp_path: Path, version: int) -> None:
    table = created(tmp_path / "template", "DATA_BEFORE_AFTER", version, "default")
    rng = np.random.default_rng(3)
    table.upsert(random_batch(rng, 1))
    batch = random_batch(rng, 2)
    shutil.copytree(tmp_path / "template", tmp_path / "counted")
    table = LsmTable(tmp_path / "counted")
    counting = FaultyStorage(LocalStorage(tmp_path / "counted"))
    opened(table, counting).upsert(batch)
    expected = changes_of(LsmTable(tmp_path / "counted"))
    for call in sample(range(1, len(counting.calls) + 1, 17), version, 2):
        root = tmp_path / str(call)
        killed = LsmTable(shutil.copytree(tmp_path / "template", root))
        with suppress(Killed):
            opened(killed, FaultyStorage(LocalStorage(root), {call: Fault.KILL_AFTER})).upsert(batch)
        after = LsmTable(root)
        after.upsert(batch)
        named = {path for path, _ in change_logs(after)}
        files = (path.relative_to(root) for path in root.rglob("*.cdc*") if path.suffix != ".crc")
        found = {str(path) for path in files if ".hoodie" not in path.parts}
        assert found == named
        assert {change[1:] for change in changes_of(after)} >= {change[1:] for change in expected}


def test_a_logging_mode_without_change_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set both or none"):
        created(tmp_path, None, **{"hoodie.table.cdc.supplemental.logging.mode": "DATA_BEFORE"})


@pytest.mark.parametrize("version", [8, 9, 10])
def test_an_update_by_an_older_row_that_comes_back_is_a_change(tmp_path: Path, version: int) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.write.table.version": version,
    }
    table = LsmTable.create(tmp_path / "t", schema, options)
    table.upsert(pa.table([["k"], [10], [False]], schema=schema))
    table.compact()
    table.upsert(pa.table([["k"], [12], [False]], schema=schema))
    table.upsert(pa.table([["k", "k"], [None, 5], [True, False]], schema=schema))
    last = table.changes("000").to_arrow().to_pylist()[-1]
    (row,) = table.scan().to_arrow().to_pylist()
    assert (last["op"], last["before"]["ts"], last["after"]["ts"]) == ("u", 12, row["ts"])
