"""Expression indexes: they bound what the rows of each file have, and a query skips files by them, never a row."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.metadata.expression_index import TIME_FUNCTIONS, text_bounds, time_bounds
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.query.prune.expression import predicate_of
from streaming_lsm.query.prune.expression_index import implied
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import load_properties
from tests.support.metadata_tables import ENABLED, assert_settled

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("note", pa.string()),
    ]
)
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "expressed",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.metadata.compact.max.delta.commits": 9,
    "hoodie.clean.commits.retained": 1,
    "lsm.read.threads": 1,
    **ENABLED,
}
INDEXES = {
    "expr_index_year_of_at": ("year", "at"),
    "expr_index_month": ("month", "day"),
    "expr_index_day": ("day", "local"),
    "expr_index_hour": ("hour", "local"),
    "expr_index_note": ("lower", "note"),
}
NOTES = ["Plain", "plain", "ZEBRA", "été", "", None]


def batch(draw: random.Random, begin: datetime, count: int = 12) -> pa.Table:
    times = [begin + timedelta(hours=draw.randrange(30)) if draw.random() < 0.9 else None for _ in range(count)]
    rows = [
        {
            "id": f"k{draw.randrange(40):02d}",
            "part": draw.choice("ab"),
            "at": time,
            "day": time and time.date(),
            "local": time and time.replace(tzinfo=None),
            "note": draw.choice(NOTES),
        }
        for time in times
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def indexed(root: Path, **options: object) -> LsmTable:
    table = LsmTable.create(root, SCHEMA, {**OPTIONS, **options})
    draw = random.Random(1)
    table.upsert(batch(draw, datetime(2023, 12, 31, tzinfo=UTC)))
    for name, (function, column) in INDEXES.items():
        table.create_index(
            name,
            {"hoodie.metadata.index.expression.column": column, "hoodie.expression.index.function": function},
        )
    return table


FILTERS = [
    pc.field("at") < pa.scalar(datetime(2024, 6, 1, tzinfo=UTC)),
    pc.field("day") == pa.scalar(date(2024, 3, 15)),
    (pc.field("local") >= pa.scalar(datetime(2025, 7, 4, 1)))
    & (pc.field("local") < pa.scalar(datetime(2025, 7, 4, 9))),
    pc.field("day").isin([date(2024, 3, 16), date(2025, 7, 4)]),
    (pc.field("note") == "ZEBRA") | (pc.field("day") == pa.scalar(date(2024, 3, 15))),
    pc.field("note") == "absent",
    pc.field("at").is_null(),
    ~(pc.field("day") == pa.scalar(date(2024, 3, 15))),
]


@pytest.mark.parametrize(
    "kind", [{}, {"hoodie.table.type": "COPY_ON_WRITE", "hoodie.write.table.version": 9}], ids=["merge", "copy"]
)
def test_they_are_kept_by_each_action_and_no_filter_misses_a_row(kind: dict[str, object], tmp_path: Path) -> None:
    table, draw = indexed(tmp_path, **kind), random.Random(2)
    begins = [datetime(2024, 3, 15, tzinfo=UTC), datetime(2025, 7, 4, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC)]
    steps: list[Any] = [
        *(lambda begin=begin: table.upsert(batch(draw, begin)) for begin in begins),
        lambda: table.delete(batch(draw, begins[0], 5)),
        lambda: None if table.config.is_copy_on_write else table.compact(),
        lambda: table.insert_overwrite(batch(draw, begins[1], 4)),
        lambda: table.clean(),
        lambda: table.upsert(batch(draw, begins[0])),
        lambda: table.upsert(batch(draw, begins[1])),
    ]
    skipped: list[str] = []
    for number, step in enumerate(steps):
        step()
        if number % 3 != 2 and step is not steps[-1]:
            continue
        assert INDEXES.keys() <= set(
            load_properties(LocalStorage(tmp_path))["hoodie.table.metadata.partitions"].split(",")
        )
        assert_settled(tmp_path)
        checked = LsmTable(tmp_path, {"lsm.read.threads": 1}).check_indexes()
        assert checked.findings == ()
        assert checked.unchecked == {}
        rows = table.scan().to_arrow()
        reader = LsmTable(tmp_path, {"hoodie.metadata.enable": True})
        for where in FILTERS:
            scan = reader.scan(filter=where)
            assert sorted(map(str, scan.to_arrow().to_pylist())) == sorted(map(str, rows.filter(where).to_pylist()))
            skipped.append(str(scan.explain()))
    assert any("skipped by expr_index_" in text for text in skipped)


@pytest.mark.parametrize("kind", ["damaged", "wrong"])
def test_a_definition_of_another_time_is_found_and_the_index_is_built_again_in_its_form(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = indexed(tmp_path, **{"hoodie.metadata.compact.max.delta.commits": 99})
    table.upsert(batch(random.Random(3), datetime(2024, 5, 1, tzinfo=UTC)))
    path = ".hoodie/.index_defs/index.json"
    before = LocalStorage(tmp_path).read(path)
    told = json.loads(before)
    told["indexDefinitions"]["expr_index_month"]["indexFunction"] = "year"
    LocalStorage(tmp_path).replace_if_unchanged(path, json.dumps(told).encode(), before)
    if kind == "wrong":  # of an index that another program made it is not known which definition was its own
        marker = tmp_path / METADATA_TABLE / "expr_index_month" / ".hoodie_partition_metadata"
        marker.write_bytes(re.sub(rb"(?m)^lsm.index.definition=.*\n", b"", marker.read_bytes()))
    found = LsmTable(tmp_path).check_indexes("expr_index_month").findings
    if kind == "damaged":
        ended = LsmTable(tmp_path, ENABLED).scan(filter=pc.field("day") > date(2024, 6, 1))
        assert ended.explain().skipped.by_expression_index == 0
        assert '"indexFunction":"month"' in caplog.text
    assert {finding.kind for finding in found} == {kind}
    assert LsmTable(tmp_path).rebuild_indexes(["expr_index_month"]) == ["expr_index_month"]
    table.upsert(batch(random.Random(4), datetime(2024, 8, 1, tzinfo=UTC)))
    table.rollback()
    assert LsmTable(tmp_path).check_indexes().findings == ()
    states = {state.name: state for state in LsmTable(tmp_path).indexes()}
    assert states["expr_index_month"].definition["indexFunction"] == "year"


@pytest.mark.parametrize(
    ("function", "column", "why"),
    [
        ("hour", "day", "hour of column 'day', which is date32"),
        ("lower", "at", "lower of column 'at'"),
        ("year", "gone", "not in the table"),
        ("upper", "note", "expected one of year, month, day, hour, lower"),
        (None, "note", "no function of a column is named"),
    ],
)
def test_an_expression_that_cannot_be_kept_is_refused_and_leaves_nothing(
    function: str | None, column: str, why: str, tmp_path: Path
) -> None:
    table = LsmTable.create(tmp_path, SCHEMA, OPTIONS)
    table.upsert(batch(random.Random(1), datetime(2024, 1, 1, tzinfo=UTC)))
    form = {"hoodie.metadata.index.expression.column": column}
    with pytest.raises(UnsupportedTable, match=why):
        table.create_index("expr_index_x", form | ({"hoodie.expression.index.function": function} if function else {}))
    assert not (tmp_path / ".hoodie/metadata/expr_index_x").exists()
    table.upsert(batch(random.Random(2), datetime(2024, 1, 1, tzinfo=UTC)))
    assert_settled(tmp_path)


@pytest.mark.parametrize("function", TIME_FUNCTIONS)
def test_bounds_of_a_function_of_time_hold_in_every_zone(function: str) -> None:
    draw = random.Random(function)
    value = {"year": pc.year, "month": pc.month, "day": pc.day, "hour": pc.hour}[function]
    for _ in range(300):
        low = np.datetime64(draw.randrange(-(10**10), 10**10), "s")
        high = low + np.timedelta64(int(10 ** draw.uniform(0, 9)), "s")
        between = np.array([low, high, *(low + (high - low) * draw.randrange(9) // 8 for _ in range(9))])
        least, most = time_bounds(function, low, high, zoned=False)
        assert all(least <= found.as_py() <= most for found in value(pa.array(between, pa.timestamp("s"))))
        least, most = time_bounds(function, low, high, zoned=True)
        zone = draw.choice(["Pacific/Kiritimati", "Etc/GMT+12", "Asia/Kathmandu", "UTC"])
        moments = pa.array(between.astype("datetime64[us]"), pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
        assert all(least <= found.as_py() <= most for found in value(moments))


def test_what_programs_may_change_to_lower_case_otherwise_has_the_widest_bounds() -> None:
    assert [end.as_py() for end in text_bounds(pa.array(["B", "a", None]))] == ["a", "b"]
    assert [end.as_py() for end in text_bounds(pa.array(["B", "İ"]))] == ["", "\U0010ffff"]
    predicate = predicate_of(pc.field("note") == "İ")
    assert implied(predicate, "lower", "note", pa.string()) is None
