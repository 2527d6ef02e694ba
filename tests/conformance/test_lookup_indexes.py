"""Tables without buckets: Hudi goes on with each index where this package has begun, and the other way round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.conformance.histories import ORDERS, REGIONS, History
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines

TURNS = "ours, hudi, ours"
OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": None,
}
Rows = dict[object, tuple[int, str]]


def _rows(turn: int, *, moves: bool) -> pa.Table:
    rng = np.random.default_rng(turn)
    numbers = rng.permutation(120)[:40]
    shift = turn // 2 if moves else 0
    return pa.table(
        {
            "id": [f"ord-{number:04d}" for number in numbers],
            "region": [REGIONS[(number + shift) % 2] for number in numbers],
            "qty": pa.array(rng.integers(0, 500, len(numbers)), pa.int32()),
            "price": np.round(rng.random(len(numbers)) * 1000, 2),
            "note": [f"n{turn}-{number}" for number in numbers],
            "ts": pa.array([100 + turn] * len(numbers), pa.int64()),
        },
        schema=ORDERS,
    )


@pytest.mark.parametrize("metadata", ["true", "false"], ids=["metadata_table", "no_metadata_table"])
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM"])
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("version", [9, 8])
def test_hudi_and_we_write_by_each_index_in_turn(
    hudi: Hudi, record: Record, tmp_path: Path, version: int, kind: str, index: str, metadata: str
) -> None:
    path, is_global = tmp_path / "turns", index.startswith("GLOBAL")
    history = History("lookups", ORDERS, {k: v for k, v in OPTIONS.items() if v is not None}, [])
    table = LsmTable.create(
        path,
        ORDERS,
        {
            "hoodie.table.name": "turns",
            "hoodie.write.table.version": version,
            "hoodie.datasource.write.table.type": kind,
            "hoodie.index.type": index,
            "hoodie.clean.automatic": False,
            **history.options,
        },
    )
    options = {**history.hudi_options(table), "hoodie.index.type": index, "hoodie.metadata.enable": metadata}
    for name in ("simple", "bloom"):
        options[f"hoodie.{name}.index.update.partition.path"] = "true"
    del options["hoodie.bucket.index.num.buckets"]
    model: Rows = {}
    for turn in range(8):
        record(f"v{version} {kind} {index}", TURNS, f"turn {turn + 1}")
        rows = _rows(turn, moves=is_global)
        if turn % 2:
            hudi.write(path, "upsert", rows, options)
            if turn == 5 and kind == "MERGE_ON_READ":
                assert hudi.compact(path, options)
        else:
            ours = LsmTable(path, {"hoodie.clean.automatic": False, "hoodie.metadata.enable": metadata})
            ours.upsert(rows)
            if turn == 4 and kind == "MERGE_ON_READ":
                ours.compact()
        _note(model, rows, is_global=is_global)
        if turn in (2, 3):
            gone = rows.slice(0, 5)
            if turn == 3:
                hudi.write(path, "delete", gone, options)
            else:
                LsmTable(path).delete(gone.select(["id", "region"]))
            for row in gone.to_pylist():
                del model[_identity(row, is_global=is_global)]
        _agree(hudi, path, model, is_global=is_global)


def _identity(row: dict[str, object], *, is_global: bool) -> object:
    return row["id"] if is_global else (row["id"], row["region"])


def _note(model: Rows, rows: pa.Table, *, is_global: bool) -> None:
    for row in rows.to_pylist():
        model[_identity(row, is_global=is_global)] = (row["qty"], row["region"])


def _agree(hudi: Hudi, path: Path, model: Rows, *, is_global: bool) -> None:
    """Both read the rows of the model, each once, in the partition of its region."""
    found = LsmTable(path).scan(meta=True).to_arrow()
    assert hudi.read(path) == to_lines(found)
    rows = found.to_pylist()
    assert all(row["_hoodie_partition_path"] == row["region"] for row in rows)
    shown = [(_identity(row, is_global=is_global), (row["qty"], row["region"])) for row in rows]
    assert len(shown) == len(dict(shown))
    assert dict(shown) == model
