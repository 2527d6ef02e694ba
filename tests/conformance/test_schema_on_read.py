"""Tables whose columns Hudi changed with schema-on-read: we show what Hudi shows with the option, or refuse by name.

Hudi without the option reads by name: the tests state what it shows then, so that a release that differs is noticed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import UnsupportedTable
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines
from tests.conformance.test_evolved import HUDI as EVOLVED

NOTE = pa.struct([("lines", pa.int32()), ("text", pa.string())])
BY_ID = {"hoodie.schema.on.read.enable": "true"}
ALTER = {**BY_ID, "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
"""Without the second one Hudi refuses to rename and to drop, as the field is missing."""
HUDI = {**EVOLVED, "hoodie.table.name": "altered", **BY_ID}
VECTORIZED = "spark.sql.parquet.enableVectorizedReader"
KINDS = pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])


def batch(keys: str, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": list(keys),
            "ts": pa.array([ts] * len(keys), pa.int64()),
            "n": pa.array(range(len(keys)), pa.int32()),
            "f": pa.array([0.1] * len(keys), pa.float32()),
            "gone": [f"old {key}" for key in keys],
            "note": pa.array([{"lines": 1, "text": key} for key in keys], NOTE),
            "notes": pa.array([[{"lines": 2, "text": key}] for key in keys], pa.list_(NOTE)),
            "named": pa.array([[("k", {"lines": 3, "text": key})] for key in keys], pa.map_(pa.string(), NOTE)),
        }
    )


@pytest.fixture
def path(hudi: Hudi, tmp_path: Path, kind: str) -> Path:
    """A table of two writes of Hudi: a base file, then rows of a log, or of a newer base file."""
    options = {**HUDI, "hoodie.datasource.write.table.type": kind}
    hudi.write(tmp_path / "t", "bulk_insert", batch("abc", 1), options, mode="overwrite")
    hudi.write(tmp_path / "t", "upsert", batch("c", 2), options)
    return tmp_path / "t"


@KINDS
def test_what_names_suffice_for_is_read_after_each_step(hudi: Hudi, record: Record, path: Path, kind: str) -> None:
    for step in (
        "ADD COLUMNS (middle INT AFTER n)",
        "ADD COLUMNS (note.by STRING AFTER lines)",
        "ADD COLUMNS (notes.element.by STRING)",
        "ADD COLUMNS (named.value.by STRING)",
        "ALTER COLUMN n TYPE DOUBLE",
        "ALTER COLUMN f TYPE DOUBLE",
        "ALTER COLUMN note.lines AFTER text",
        "DROP COLUMN gone",
        "DROP COLUMN note.text",
    ):
        record(f"v9 {kind} altered", "we read hudi's", step)
        hudi.sql(f"ALTER TABLE {{table}} {step}", path, ALTER)
        found = LsmTable(path)
        assert to_lines(found.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
        before = found.timeline.completed_writes[1].completed or ""
        assert to_lines(found.scan(as_of=before).to_arrow()) == to_lines(
            pa.concat_tables([batch("abc", 1).slice(0, 2), batch("c", 2)])
        )
    rows = LsmTable(path).scan(filter="id = 'a'").to_arrow()
    rows = rows.set_column(rows.schema.get_field_index("ts"), "ts", pa.array([9], pa.int64()))
    for name, options in (("with", BY_ID), ("without", {"hoodie.schema.on.read.enable": "false"})):
        if name == "without":
            with pytest.raises(UnsupportedTable, match="latest_schema"):
                LsmTable(path, {"hoodie.bucket.index.num.buckets": 1}).upsert(rows)
        record(f"v9 {kind} altered", "we read hudi's", f"upsert {name} schema-on-read")
        hudi.write(path, "upsert", rows, {**HUDI, "hoodie.datasource.write.table.type": kind, **options})
        assert to_lines(LsmTable(path).scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
    record(f"v9 {kind} altered", "we write hudi's", "without latest_schema in the newest write")
    ours = LsmTable(path, {"hoodie.bucket.index.num.buckets": 1})
    ours.upsert(rows.set_column(rows.schema.get_field_index("ts"), "ts", pa.array([10], pa.int64())))
    assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID) == hudi.read(path)


@KINDS
@pytest.mark.parametrize(
    ("steps", "named", "column", "by_name", "by_id"),
    [
        (("RENAME COLUMN n TO m",), "'m' was renamed from 'n'", "m", [None, None, None], [0, 1, 0]),
        (
            ("RENAME COLUMN notes.element.lines TO rows",),
            "'notes.element.rows' was renamed from 'notes.element.lines'",
            "notes",
            [[{"rows": None, "text": key}] for key in "abc"],
            [[{"rows": 2, "text": key}] for key in "abc"],
        ),
        (
            ("DROP COLUMN gone", "ADD COLUMNS (gone STRING)"),
            "'gone' was dropped, and added again later",
            "gone",
            ["old a", "old b", "old c"],
            [None, None, None],
        ),
    ],
    ids=["renamed", "renamed inside", "added again"],
)
def test_what_names_do_not_tell_is_refused(
    hudi: Hudi,
    record: Record,
    path: Path,
    kind: str,
    steps: tuple[str, ...],
    named: str,
    column: str,
    by_name: list[Any],
    by_id: list[Any],
) -> None:
    record(f"v9 {kind} altered", "we read hudi's", steps[-1]).refuse(named)
    for step in steps:
        hudi.sql(f"ALTER TABLE {{table}} {step}", path, ALTER)
    assert [json.loads(line)[column] for line in hudi.read(path)] == by_name
    # Hudi's vectorized reader refuses nested columns whose fields were renamed.
    hudi.sql(f"SET {VECTORIZED}=false")
    try:
        assert [json.loads(line)[column] for line in hudi.read(path, options=BY_ID)] == by_id
    finally:
        hudi.sql(f"RESET {VECTORIZED}")
    with pytest.raises(UnsupportedTable, match=named):
        LsmTable(path).scan()
