"""A query that is stopped while it reads an index, which is dropped meanwhile and made again of another column."""

from __future__ import annotations

import uuid
from datetime import date

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.support.crash_points import sample
from tests.support.interleaving import Driver
from tests.support.service_tables import OPTIONS_OF_SERVICES

SCHEMA = pa.schema([("id", pa.string()), ("note", pa.string()), ("other", pa.string()), ("day", pa.date32())])
ROWS = [
    ("a", "Oslo", "Rome", date(2020, 5, 1)),
    ("b", "Rome", "Oslo", date(2020, 6, 1)),
    ("c", "Bern", "Oslo", date(2020, 7, 1)),
]
KEPT: dict[str, object] = {"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 1000}
OPTIONS: dict[str, object] = {
    **KEPT,
    "hoodie.table.name": "orders",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.index.type": "GLOBAL_SIMPLE",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.clean.automatic": False,
    "lsm.read.threads": 1,
}


def _secondary(column: str) -> dict[str, object]:
    return {"hoodie.metadata.index.secondary.column": column}


def _expression(function: str) -> dict[str, object]:
    return {"hoodie.metadata.index.expression.column": "day", "hoodie.expression.index.function": function}


@pytest.mark.parametrize(
    ("name", "first", "then", "wanted"),
    [
        ("secondary_index_one", _secondary("note"), _secondary("other"), "note = 'Oslo'"),
        ("expr_index_one", _expression("month"), _expression("year"), "day = DATE '2020-05-01'"),
    ],
    ids=["secondary", "expression"],
)
def test_a_query_believes_no_index_that_is_made_again_while_it_is_read(
    name: str, first: dict[str, object], then: dict[str, object], wanted: str
) -> None:
    def query(table: LsmTable) -> list[object]:
        scan = table.scan(["id"], filter=wanted)
        return [scan.to_arrow().column("id").to_pylist(), str(scan.explain())]

    def reading(stop_at: int | None = None) -> tuple[LsmTable, Driver]:
        uri = f"memory://{uuid.uuid4().hex}/table"
        table = LsmTable.create(uri, SCHEMA, OPTIONS)
        for row in ROWS:  # a file each
            table.insert(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True))], SCHEMA))
        table.create_index("record_index")
        table.create_index(name, first)
        left_out = dict.fromkeys(OPTIONS_OF_SERVICES.keys() - OPTIONS.keys())
        return table, Driver(uri, query, stop_at, **left_out, **KEPT)

    _, whole = reading()
    assert isinstance(whole.result, list), whole.error
    assert whole.result[0] == ["a"]
    assert f"skipped by {name}" in whole.result[1]
    of_index = [number for number, (_, path) in enumerate(whole.calls) if name in path or ".index_defs" in path]
    assert len(of_index) > 3
    for number in sample(range(of_index[0], min(of_index[-1], of_index[0] + 20) + 2), offset=0, step=2):
        table, stopped = reading(number)
        table.drop_index(name)
        table.create_index(name, then)
        stopped.go_on()
        assert isinstance(stopped.result, list), stopped.error
        assert stopped.result[0] == ["a"], (number, stopped.stands_at)
