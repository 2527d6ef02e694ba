"""Columns that either writer drops: both readers leave them out, and show what comes back when Hudi adds one again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import SchemaError
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines
from tests.conformance.test_evolution_steps import KINDS, HudiWriter, OurWriter, plain
from tests.conformance.worker import Refused

NOTE = pa.struct([("a", pa.int32()), ("b", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("gone", pa.string()),
        ("note", NOTE),
        ("notes", pa.list_(NOTE)),
        ("named", pa.map_(pa.string(), NOTE)),
    ]
)
DROPS = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"


def batch(keys: str, ts: int, *without: str) -> pa.Table:
    note = {"a": ts, "b": "x"}
    rows = [
        {"id": key, "ts": ts, "gone": f"old {key}", "note": note, "notes": [note, None], "named": [("k", note)]}
        for key in keys
    ]
    return pa.Table.from_pylist(rows, SCHEMA).drop_columns(list(without))


def made(writer: OurWriter | HudiWriter) -> None:
    """A base file with three rows, and a log or a newer base file."""
    writer.upsert(batch("abc", 1))
    writer.upsert(batch("c", 2))


def shown(hudi: Hudi, path: Path) -> list[dict[str, Any]]:
    """The rows, which are the same for both readers."""
    found = plain(hudi.read(path))
    assert sorted(to_lines(LsmTable(path).scan().to_arrow())) == found
    return [json.loads(line) for line in found]


@KINDS
def test_hudi_reads_and_writes_our_table_without_the_columns_that_we_dropped(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str
) -> None:
    path, case = tmp_path / "t", f"v9 {kind} dropped"
    ours, theirs = OurWriter(path, kind), HudiWriter(hudi, path, kind)
    made(ours)
    before = LsmTable(path).timeline.completed_writes[-1].completed or ""
    record(case, "hudi reads ours", "column and fields dropped")
    LsmTable(path).drop_columns(["gone", "note.b", "notes.element.a", "named.value.b"])
    one, two = ({"note": {"a": ts}, "notes": [{"b": "x"}, None], "named": {"k": {"a": ts}}} for ts in (1, 2))
    rows = [{"id": "a", "ts": 1, **one}, {"id": "b", "ts": 1, **one}, {"id": "c", "ts": 2, **two}]
    assert shown(hudi, path) == rows
    past = [json.loads(line) for line in plain(hudi.read(path, "time_travel", as_of=before))]
    assert [row["gone"] for row in past] == ["old a", "old b", "old c"]
    assert [row["note"]["b"] for row in past] == ["x", "x", "x"]

    record(case, "hudi writes ours", "without the columns")
    new = LsmTable(path).scan(filter="id = 'a'").to_arrow()
    theirs.upsert(new.set_column(new.schema.get_field_index("ts"), "ts", pa.array([5])))
    rows[0]["ts"] = 5
    assert shown(hudi, path) == rows
    record(case, "we write on", "without the columns")
    with pytest.raises(SchemaError, match="'gone' was dropped"):
        LsmTable(path).upsert(new.append_column("gone", pa.array(["new"])))
    ours.upsert(new.set_column(new.schema.get_field_index("ts"), "ts", pa.array([6])))
    rows[0]["ts"] = 6
    assert shown(hudi, path) == rows
    if kind == "MERGE_ON_READ":
        record(case, "hudi compacts ours", "without the columns")
        theirs.compact()
        assert shown(hudi, path) == rows


@KINDS
def test_what_hudi_adds_again_has_its_old_values_in_both_readers(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str
) -> None:
    # Hudi matches columns by name, unless schema-on-read gives them ids.
    record(f"v9 {kind} dropped", "hudi writes ours", "the column again")
    path = tmp_path / "t"
    made(OurWriter(path, kind))
    LsmTable(path).drop_columns(["gone"])
    HudiWriter(hudi, path, kind).upsert(batch("d", 5))
    assert {row["id"]: row["gone"] for row in shown(hudi, path)} == {key: f"old {key}" for key in "abcd"}


@KINDS
def test_we_read_hudis_table_without_the_column_that_its_option_drops(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str
) -> None:
    path, case = tmp_path / "t", f"v9 {kind} dropped"
    writer = HudiWriter(hudi, path, kind)
    made(writer)
    record(case, "we read hudi's", "column dropped by the option")
    with pytest.raises(Refused, match="missing"):
        writer.upsert(batch("a", 3, "gone"))
    writer.options[DROPS] = "true"
    writer.upsert(batch("a", 3, "gone"))
    assert [(row["id"], row["ts"], "gone" in row) for row in shown(hudi, path)] == [
        ("a", 3, False),
        ("b", 1, False),
        ("c", 2, False),
    ]
    record(case, "we read hudi's", "the column again")
    del writer.options[DROPS]
    writer.upsert(batch("d", 4))
    # A copy-on-write table was written anew without the values.
    kept = kind == "MERGE_ON_READ"
    assert {row["id"]: row["gone"] for row in shown(hudi, path)} == {
        "a": None, "b": "old b" if kept else None, "c": "old c" if kept else None, "d": "old d",
    }  # fmt: skip
