"""Tables whose columns were changed by ids, by Hudi's schema-on-read or by us: each shows what the other does.

Hudi without the option reads by name: the tests state what it shows then, so that a release that differs is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines
from tests.conformance.test_evolution_steps import OurWriter
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
    ours = LsmTable(path, {"hoodie.bucket.index.num.buckets": 1})
    record(f"v9 {kind} altered", "we write hudi's", "upsert with latest_schema")
    ours.upsert(at(rows, 9))
    assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
    for name, options in (("with", BY_ID), ("without", {"hoodie.schema.on.read.enable": "false"})):
        record(f"v9 {kind} altered", "we read hudi's", f"upsert {name} schema-on-read")
        hudi.write(path, "upsert", at(rows, 10), {**HUDI, "hoodie.datasource.write.table.type": kind, **options})
        assert to_lines(LsmTable(path).scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
    record(f"v9 {kind} altered", "we write hudi's", "without latest_schema in the newest write")
    ours.upsert(at(rows, 11))
    assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID) == hudi.read(path)


def at(rows: pa.Table, ts: int) -> pa.Table:
    """Return the rows with another time."""
    return rows.set_column(rows.schema.get_field_index("ts"), "ts", pa.array([ts] * len(rows), pa.int64()))


@pytest.fixture
def by_rows(hudi: Hudi) -> Iterator[None]:
    """Hudi's vectorized reader refuses nested columns whose fields were renamed."""
    hudi.sql(f"SET {VECTORIZED}=false")
    yield
    hudi.sql(f"RESET {VECTORIZED}")


@KINDS
@pytest.mark.parametrize(
    ("steps", "column", "by_name", "by_id"),
    [
        (("RENAME COLUMN n TO m",), "m", [None, None, None], [0, 1, 0]),
        (
            ("RENAME COLUMN notes.element.lines TO rows",),
            "notes",
            [[{"rows": None, "text": key}] for key in "abc"],
            [[{"rows": 2, "text": key}] for key in "abc"],
        ),
        (
            ("DROP COLUMN gone", "ADD COLUMNS (gone STRING)"),
            "gone",
            ["old a", "old b", "old c"],
            [None, None, None],
        ),
    ],
    ids=["renamed", "renamed inside", "added again"],
)
@pytest.mark.usefixtures("by_rows")
def test_columns_that_names_do_not_tell_are_read_and_written(
    hudi: Hudi,
    record: Record,
    path: Path,
    kind: str,
    steps: tuple[str, ...],
    column: str,
    by_name: list[Any],
    by_id: list[Any],
) -> None:
    record(f"v9 {kind} altered", "we read hudi's", steps[-1])
    for step in steps:
        hudi.sql(f"ALTER TABLE {{table}} {step}", path, ALTER)
    ours = LsmTable(path, {"hoodie.bucket.index.num.buckets": 1})
    assert [json.loads(line)[column] for line in hudi.read(path)] == by_name
    assert ours.scan([column]).to_arrow().column(0).to_pylist() == by_id
    assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
    record(f"v9 {kind} altered", "we write hudi's", f"upsert after {steps[-1]}")
    rows = ours.scan(filter="id = 'a'").to_arrow()
    ours.upsert(at(rows, 3))
    assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
    record(f"v9 {kind} altered", "we read hudi's", f"upsert after {steps[-1]} and ours")
    options = {**HUDI, "hoodie.datasource.write.table.type": kind}
    hudi.write(path, "upsert", at(rows, 4), options)
    assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
    if kind == "MERGE_ON_READ":
        record(f"v9 {kind} altered", "we write hudi's", f"compaction after {steps[-1]}")
        assert ours.compact() is not None
        # All files have the names of now.
        assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID) == hudi.read(path)


@KINDS
@pytest.mark.usefixtures("by_rows")
def test_columns_that_we_rename_have_their_values_in_hudi(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str
) -> None:
    path, writer = tmp_path / "ours", OurWriter(tmp_path / "ours", kind)
    options = {**HUDI, "hoodie.datasource.write.table.type": kind}
    writer.upsert(batch("abc", 1))
    writer.upsert(batch("c", 2))
    ours = LsmTable(path)
    before = ours.timeline.completed_writes[-1].completed or ""
    steps = ({"n": "m"}, {"note.lines": "rows", "notes.element.text": "words"}, {"named.value.lines": "l", "m": "k"})
    for number, names in enumerate(steps):
        record(f"v9 {kind} altered", "hudi reads ours", f"rename {', '.join(names)}")
        ours.rename_columns(names)
        shown = to_lines(ours.scan(meta=True).to_arrow())
        assert hudi.read(path, options=BY_ID) == shown
        assert [json.loads(line)["note"]["text"] for line in shown] == list("abc")
        rows = ours.scan(filter="id = 'a'").to_arrow()
        record(f"v9 {kind} altered", "hudi writes ours", f"upsert after {', '.join(names)}")
        hudi.write(path, "upsert", at(rows, 10 + number), {**options, "hoodie.table.name": "evolved"})
        assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
        ours.upsert(at(ours.scan(filter="id = 'b'").to_arrow(), 20 + number))
        assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
    assert {json.loads(line)["k"] for line in hudi.read(path, options=BY_ID)} == {0, 1}
    assert to_lines(ours.scan(as_of=before).to_arrow()) == to_lines(
        pa.concat_tables([batch("abc", 1).slice(0, 2), batch("c", 2)])
    )
    record(f"v9 {kind} altered", "hudi reads ours", "added, widened and dropped after renames")
    more = ours.scan(filter="id = 'c'").to_arrow()
    more = at(more, 30).append_column("more", pa.array(["x"]))
    ours.upsert(more.set_column(more.schema.get_field_index("f"), "f", pa.array([0.5], pa.float64())))
    ours.drop_columns(["gone"])
    assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
    if kind == "MERGE_ON_READ":
        assert ours.compact() is not None
        assert to_lines(ours.scan(meta=True).to_arrow()) == hudi.read(path, options=BY_ID)
