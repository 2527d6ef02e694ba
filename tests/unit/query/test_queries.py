"""Read optimised, incremental and change queries of tables written here, of every version, against their own states."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, SchemaError

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("value", pa.int32())])
Rows = dict[str, tuple[int, int]]
KINDS = [
    (10, "lsm_tree", "MERGE_ON_READ"),
    (10, "default", "MERGE_ON_READ"),
    (9, "default", "MERGE_ON_READ"),
    (10, "lsm_tree", "COPY_ON_WRITE"),
    (8, "default", "COPY_ON_WRITE"),
]
BOTH = pytest.mark.parametrize(("version", "layout", "kind"), KINDS)


def _played(path: Path, version: int, layout: str, kind: str) -> tuple[LsmTable, list[str]]:
    """A table with updates, late rows, deletes and a compaction; and the completion times of its writes."""
    table = LsmTable.create(
        path,
        SCHEMA,
        {
            "hoodie.table.name": "t",
            "hoodie.write.table.version": version,
            "hoodie.table.storage.layout": layout,
            "hoodie.datasource.write.table.type": kind,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.bucket.index.num.buckets": 2,
            "hoodie.clean.automatic": False,
        },
    )
    rng = np.random.default_rng(version)
    for step in range(6):
        keys = [f"k{number}" for number in rng.permutation(12)[:6]]
        ts = [10 * step + int(rng.integers(-15, 5)) for _ in keys]
        table.upsert(pa.table([keys, ts, rng.integers(0, 99, 6).astype(np.int32)], schema=SCHEMA))
        if step in (2, 4):
            table.delete(pa.table({"id": [f"k{number}" for number in rng.permutation(12)[:2]]}))
        if step == 3 and kind == "MERGE_ON_READ":
            assert table.compact()
    writes = [write for write in table.timeline.completed_writes if not table.timeline.read_commit(write).compacted]
    return table, sorted(write.completed or "" for write in writes)


def _rows(table: pa.Table) -> Rows:
    found = {row["id"]: (row["ts"], row["value"]) for row in table.to_pylist()}
    assert len(found) == len(table)
    return found


def _state(table: LsmTable, moment: str) -> Rows:
    return _rows(table.scan(as_of=moment).to_arrow())


@BOTH
def test_changes_lead_from_one_state_to_the_next(tmp_path: Path, version: int, layout: str, kind: str) -> None:
    table, times = _played(tmp_path, version, layout, kind)
    requested = {write.completed: write.requested for write in table.timeline.completed_writes}
    state: Rows = {}
    for begin, end in zip(["000", *times[:-1]], times, strict=True):
        changes = table.changes(begin, end).to_arrow().to_pylist()
        for change in changes:
            assert change["ts_ms"] == requested[end]
            before, after = change["before"], change["after"]
            key = (before or after)["id"]
            assert (None if before is None else (before["ts"], before["value"])) == state.get(key)
            assert change["op"] == ("d" if after is None else "i" if before is None else "u")
            if after is None:
                del state[key]
            else:
                state[key] = (after["ts"], after["value"])
        assert state == _state(table, end)
        assert len(changes) == len({(change["before"] or change["after"])["id"] for change in changes})
    assert len(table.changes("000").to_arrow()) == sum(
        len(table.changes(begin, end).to_arrow()) for begin, end in zip(["000", *times[:-1]], times, strict=True)
    )


@BOTH
def test_incremental_rows_are_of_the_writes_in_question(tmp_path: Path, version: int, layout: str, kind: str) -> None:
    table, times = _played(tmp_path, version, layout, kind)
    requested = {write.completed: write.requested for write in table.timeline.completed_writes}
    assert _rows(table.incremental("000").to_arrow()) == _rows(table.scan().to_arrow())
    for first in range(len(times) - 1):
        for last in range(first + 1, len(times)):
            span = [requested[time] for time in times[first + 1 : last + 1]]
            found = table.incremental(times[first], times[last], meta=True).to_arrow().to_pylist()
            assert {row["_hoodie_commit_time"] for row in found} <= set(span)
            state = table.scan(as_of=times[last], meta=True).to_arrow().to_pylist()
            winners = {row["id"]: row for row in state if row["_hoodie_commit_time"] in span}
            shown = {row["id"]: row for row in found}
            assert all(shown[key]["value"] == row["value"] for key, row in winners.items())


@BOTH
def test_read_optimised_rows_are_those_of_the_last_compaction(
    tmp_path: Path, version: int, layout: str, kind: str
) -> None:
    table, times = _played(tmp_path, version, layout, kind)
    found = _rows(table.scan(query_type="read_optimized").to_arrow())
    if kind == "COPY_ON_WRITE":
        assert found == _rows(table.scan().to_arrow())
    else:
        compaction = next(w for w in table.timeline.completed_writes if table.timeline.read_commit(w).compacted)
        assert found == _state(table, max(time for time in times if time < compaction.requested))


def test_a_query_type_that_scan_does_not_have_is_named(tmp_path: Path) -> None:
    table, _ = _played(tmp_path, 10, "lsm_tree", "MERGE_ON_READ")
    with pytest.raises(ConfigError, match=r"'incremental'.*call query, incremental or changes"):
        table.scan(query_type="incremental")


def test_columns_that_the_table_does_not_have_are_named_with_the_nearest(tmp_path: Path) -> None:
    table, _ = _played(tmp_path, 10, "lsm_tree", "MERGE_ON_READ")
    with pytest.raises(SchemaError, match="column 'valeu' is not in the table, which has value, "):
        table.scan(columns=["valeu"])
    with pytest.raises(SchemaError, match="column 'valeu' is not in the table, which has value, "):
        table.scan(filter=pc.field("valeu") == 1)


def test_a_text_instead_of_a_list_of_columns_is_refused(tmp_path: Path) -> None:
    table, _ = _played(tmp_path, 10, "lsm_tree", "MERGE_ON_READ")
    for query in (table.scan, lambda columns: table.incremental("000", columns=columns)):
        with pytest.raises(SchemaError, match=r"columns='id' is a text; .* columns=\['id'\]"):
            query(columns="id")
    with pytest.raises(SchemaError, match="columns='id' is a text"):
        table.lookup(["a"], columns="id")


def test_other_libraries_read_a_scan_by_its_arrow_stream(tmp_path: Path) -> None:
    table, _ = _played(tmp_path, 10, "lsm_tree", "MERGE_ON_READ")
    scan = table.scan(columns=["id", "value"])
    expected = scan.to_arrow()
    assert pa.table(scan) == expected
    assert polars.DataFrame(scan).to_arrow().cast(expected.schema) == expected
    assert duckdb.sql("select count(*), count(distinct id) from scan").fetchall() == [(len(expected),) * 2]
    assert pa.table(table.scan(filter=pc.field("id") == "absent")).num_rows == 0
