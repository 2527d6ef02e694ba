"""Null structs with required fields: Arrow counts the fields of a null struct as nulls, and refuses to cast them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable

STRUCT = pa.struct([pa.field("a", pa.int32(), nullable=False), ("b", pa.string())])
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("s", STRUCT), ("l", pa.list_(STRUCT))])
VALUE = {"a": 1, "b": "x"}
CAPTURED = {"hoodie.table.cdc.enabled": True}
TABLES: list[tuple[str, int, dict[str, Any]]] = [
    *(("COPY_ON_WRITE", version, others) for version in (10, 9) for others in ({}, CAPTURED)),
    *(("MERGE_ON_READ", version, {}) for version in (10, 9)),
]


def rows(keys: str, ts: int, value: object) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "ts": ts, "s": value, "l": [value]} for key in keys], SCHEMA)


@pytest.mark.parametrize(("kind", "version", "others"), TABLES)
def test_deletes_and_rows_with_null_structs_are_written_and_compacted(
    tmp_path: Path, kind: str, version: int, others: dict[str, Any]
) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.write.table.version": version,
        "hoodie.bucket.index.num.buckets": 1,
        **others,
    }
    table = LsmTable.create(tmp_path / "t", SCHEMA, options)
    table.upsert(rows("abc", 1, VALUE))
    table.delete(pa.table({"id": ["a"], "ts": pa.array([2], pa.int64())}))
    table.upsert(rows("bd", 3, None))
    if kind == "MERGE_ON_READ":
        table.compact()
        table.upsert(rows("e", 4, None))
        table.delete(pa.table({"id": ["d"], "ts": pa.array([5], pa.int64())}))
        table.compact()
    else:
        table.upsert(rows("e", 4, None))
        table.delete(pa.table({"id": ["d"], "ts": pa.array([5], pa.int64())}))
    found = {row["id"]: (row["s"], row["l"]) for row in table.scan().to_arrow().to_pylist()}
    assert found == {"b": (None, [None]), "c": (VALUE, [VALUE]), "e": (None, [None])}
    changes = [
        (row["op"], (row["after"] or row["before"])["id"]) for row in table.changes("000").to_arrow().to_pylist()
    ]
    assert sorted(changes) == sorted(
        [("i", "a"), ("i", "b"), ("i", "c"), ("d", "a"), ("u", "b"), ("i", "d"), ("i", "e"), ("d", "d")]
    )
