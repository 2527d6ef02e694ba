"""Change logs written here: Hudi's CDC query has our changes, in the three logging modes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.conformance.judge import Hudi

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("value", pa.int32())])
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")


def _rows(first: int, last: int, ts: int) -> pa.Table:
    return pa.table(
        [[f"k{key}" for key in range(first, last)], [ts] * (last - first), range(first, last)], schema=SCHEMA
    )


def _image(image: Any) -> str | None:
    found = json.loads(image) if isinstance(image, str) else image
    return None if found is None else json.dumps([found[name] for name in SCHEMA.names])


@pytest.mark.parametrize("mode", MODES)
def test_hudi_has_the_changes_of_our_change_logs(hudi: Hudi, tmp_path: Path, mode: str) -> None:
    table = LsmTable.create(
        tmp_path / "t",
        SCHEMA,
        {
            "hoodie.table.name": "t",
            "hoodie.write.table.version": 9,
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.bucket.index.num.buckets": 2,
            "hoodie.table.cdc.enabled": True,
            "hoodie.table.cdc.supplemental.logging.mode": mode,
        },
    )
    table.upsert(_rows(0, 20, 1))
    table.upsert(_rows(10, 30, 2))
    table.delete(_rows(0, 5, 3).select(["id"]))
    table.upsert(_rows(20, 22, 0))  # loses: the log has no rows
    table.insert_overwrite(_rows(40, 44, 4))
    ours = [
        (row["op"], _image(row["before"]), _image(row["after"])) for row in table.changes("000").to_arrow().to_pylist()
    ]
    found = [json.loads(line) for line in hudi.read(tmp_path / "t", "cdc", begin="000")]
    theirs = [(row["op"], _image(row["before"]), _image(row["after"])) for row in found]
    assert sorted(theirs, key=str) == sorted(ours, key=str)
