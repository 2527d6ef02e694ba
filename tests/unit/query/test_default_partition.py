"""Rows in the default partition: a text partition column that may be null is null, as in Hudi."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable

NAME = "__HIVE_DEFAULT_PARTITION__"
SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("q", pa.int32()), ("ts", pa.int64())])
ROWS = [("a", None, 1), ("b", "", None), ("c", NAME, 3), ("d", "x", None), ("e", "", 5)]


def table_of(path: Path, schema: pa.Schema = SCHEMA, **options: object) -> LsmTable:
    chosen = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p,q",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.bucket.index.num.buckets": 1,
        **options,
    }
    table = LsmTable.create(path, schema, chosen)
    for ts in (1, 2):
        rows = [
            {"id": key, "p": p or ("" if not schema.field("p").nullable else p), "q": q, "ts": ts} for key, p, q in ROWS
        ]
        table.upsert(pa.Table.from_pylist(rows[: 6 - ts], schema))
    return table


def values(rows: pa.Table) -> Mapping[str, tuple[object, object]]:
    return {row["id"]: (row["p"], row["q"]) for row in rows.to_pylist()}


@pytest.fixture(params=[{}, {"hoodie.datasource.write.hive_style_partitioning": True}], ids=["plain", "hive style"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LsmTable:
    return table_of(tmp_path / "t", **request.param)


EXPECTED = {"a": (None, 1), "b": (None, None), "c": (None, 3), "d": ("x", None), "e": (None, 5)}


def test_text_of_the_default_partition_is_null_in_every_query_of_rows(table: LsmTable) -> None:
    assert values(table.scan().to_arrow()) == EXPECTED
    assert values(table.incremental("000").to_arrow()) == EXPECTED
    assert values(table.lookup(["id:b", "id:c"])) == {key: EXPECTED[key] for key in "bc"}
    table.compact()
    assert values(table.scan(query_type="read_optimized").to_arrow()) == EXPECTED


@pytest.mark.parametrize("compacted", [False, True])
def test_filters_decide_by_the_null_and_prune_by_it(table: LsmTable, compacted: bool) -> None:
    if compacted:
        table.compact()
    is_null, is_empty = pc.field("p").is_null(), pc.field("p") == ""
    assert sorted(values(table.scan(filter=is_null).to_arrow())) == ["a", "b", "c", "e"]
    assert values(table.scan(filter=is_null & pc.field("id").isin(["b"])).to_arrow()) == {"b": (None, None)}
    assert table.scan(filter=is_empty).explain().slices == 0
    assert table.scan(filter=is_null).explain().skipped.by_partition == 1


def test_changes_have_the_values_that_were_written(table: LsmTable) -> None:
    images = [row["after"] for row in table.changes("000").to_arrow().to_pylist() if row["op"] == "i"]
    assert {image["id"]: image["p"] for image in images} == {key: p for key, p, _ in ROWS}


def test_a_required_column_keeps_its_text(tmp_path: Path) -> None:
    required = SCHEMA.set(1, pa.field("p", pa.string(), nullable=False))
    table = table_of(tmp_path / "t", required)
    assert values(table.scan(filter=pc.field("p") == "").to_arrow()).keys() == {"a", "b", "e"}


def test_compaction_keeps_the_text_in_the_file(table: LsmTable) -> None:
    table.compact()
    images = [row["after"]["p"] for row in table.changes("000").to_arrow().to_pylist() if row["op"] == "i"]
    assert images.count("") == 2


def test_beside_a_time_the_texts_of_the_default_partition_are_those_of_the_files(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("at", pa.int64()), ("p", pa.string()), ("ts", pa.int64())])
    options = {
        "hoodie.datasource.write.partitionpath.field": "at:TIMESTAMP,p:SIMPLE",
        "hoodie.table.keygenerator.type": "CUSTOM",
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
    }
    table = LsmTable.create(
        tmp_path,
        schema,
        {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id",
         "hoodie.bucket.index.num.buckets": 1, **options},
    )  # fmt: skip
    given = {"a": None, "b": "", "c": NAME, "d": "x"}
    rows = [{"id": key, "at": 1_767_225_600, "p": text, "ts": 1} for key, text in given.items()]
    table.upsert(pa.Table.from_pylist(rows, schema))
    for condition, keys in {
        "p = ''": ["b"], f"p = '{NAME}'": ["c"], "p is null": ["a"], "p is not null": ["b", "c", "d"],
        "p <> 'x'": ["b", "c"], "p < 'a'": ["b", "c"],
    }.items():  # fmt: skip
        assert sorted(table.scan(["id"], condition).to_arrow()["id"].to_pylist()) == keys, condition
    table.delete(where="p = ''")
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == ["a", "c", "d"]
