"""The order of a clustering, compared with Python's own comparison of rows and a bit-by-bit z-order."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.errors import SchemaError
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.services.clustering.cells import CellRows
from streaming_lsm.services.clustering.file_cut import FileCut
from streaming_lsm.services.clustering.row_order import RowOrder, ascending, count_not_after, order_of, quantiles
from streaming_lsm.services.clustering.rules import LINEAR, Z_ORDER
from streaming_lsm.services.clustering.sample import RowSample

VALUES: list[list[Any]] = [
    [True, False],
    [-3, 0, 7],
    [-1.5, 0.0, 2.5, float("inf")],
    ["", "a", "é", "zz"],
    [b"", b"\x00", b"\xff"],
    [Decimal("-1.10"), Decimal("0.00"), Decimal("3.30")],
    [datetime.date(1969, 1, 1), datetime.date(2026, 1, 1)],
    [datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)],
    [datetime.time(0), datetime.time(23, 59)],
]


def table_of(columns: list[list[Any]], draw: random.Random, count: int = 200) -> pa.Table:
    picked = {f"c{n}": [draw.choice([*values, None]) for _ in range(count)] for n, values in enumerate(columns)}
    return pa.table({RECORD_KEY: [f"k{n:03}" for n in draw.sample(range(count), count)], **picked})


def python_key(row: dict[str, Any], names: list[str]) -> tuple[object, ...]:
    return (
        *((row[name] is not None, row[name]) if row[name] is not None else (False,) for name in names),
        row[RECORD_KEY],
    )


def test_rows_of_every_type_are_in_the_order_of_python_with_nulls_first() -> None:
    draw = random.Random(1)
    for first in VALUES:
        table = table_of([first, draw.choice(VALUES)], draw)
        order = RowOrder.of(["c0", "c1"], LINEAR, table.schema)
        found = table.take(order_of(order.positions(table))).to_pylist()
        assert found == sorted(table.to_pylist(), key=lambda row: python_key(row, ["c0", "c1"]))


def test_cells_are_ranges_of_the_order_of_about_the_same_size() -> None:
    draw = random.Random(2)
    table = table_of([VALUES[3]], draw, 2000)  # few values: the record key cuts them
    order = RowOrder.of(["c0"], LINEAR, table.schema)
    positions = order.positions(table)
    bounds = quantiles(ascending(positions), 7)
    cells = count_not_after(bounds, positions)
    assert np.bincount(cells).tolist() == [250] * 8
    in_order = cells[np.asarray(order_of(positions))]
    assert (np.diff(in_order) >= 0).all()


def morton(ranks: list[int], bits: int) -> int:
    """The bits of all ranks in turn, the highest first."""
    text = "".join(format(rank, f"0{bits}b")[bit] for bit in range(bits) for rank in ranks)
    return int(text, 2)


@pytest.mark.parametrize("columns", [2, 3])
def test_a_z_order_interleaves_the_ranks_of_the_columns(columns: int) -> None:
    draw = random.Random(3)
    values = {f"c{n}": draw.sample(range(10**6), 4095) for n in range(columns)}
    table = pa.table({RECORD_KEY: [f"k{n}" for n in range(4095)], **values})
    order = RowOrder.of(list(values), Z_ORDER, table.schema).fitted(table)
    curve = order.positions(table).column("curve").to_pylist()
    ranks = {name: {value: rank for rank, value in enumerate(sorted(of), 1)} for name, of in values.items()}
    wanted = [morton([ranks[name][values[name][row]] for name in values], 12) for row in range(4095)]
    # A rank is the number of bounds that are not after the value: all values but one of the sample are bounds.
    assert np.argsort(curve).tolist() == np.argsort(wanted).tolist()


def test_a_range_of_a_z_order_is_narrow_in_each_column() -> None:
    draw = np.random.default_rng(4)
    x, y = draw.random(20_000) ** 3, draw.integers(0, 1000, 20_000)  # skewed
    table = pa.table({RECORD_KEY: [f"k{n}" for n in range(20_000)], "x": x, "y": y})
    order = RowOrder.of(["x", "y"], Z_ORDER, table.schema).fitted(table.slice(0, 5000))
    positions = order.positions(table)
    cells = count_not_after(quantiles(ascending(positions), 63), positions)
    for column in (np.argsort(np.argsort(x)) / 20_000, y / 1000):
        widths = [np.ptp(column[cells == cell]) for cell in range(64)]
        assert np.median(widths) < 0.2  # one by eight; by one column alone it would be 1 for the other


@pytest.mark.parametrize(
    ("names", "said"),
    [(["d"], "'d' of the clustering is not a column"), (["s"], "has no order"), (["a", "a"], "twice")],
)
def test_columns_without_an_order_are_refused(names: list[str], said: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("s", pa.list_(pa.int64()))])
    with pytest.raises(SchemaError, match=said):
        RowOrder.of(names, LINEAR, schema)


def test_a_sample_has_rows_from_everywhere_and_a_bounded_size() -> None:
    schema = pa.schema([("n", pa.int64())])
    sample = RowSample(schema, 500)
    for begin in range(0, 50_000, 1000):
        sample.add(pa.record_batch([pa.array(range(begin, begin + 1000))], schema=schema))
    found = sample.table().column("n").to_numpy()
    assert sample.rows == 50_000
    assert 400 < len(found) <= 1000
    assert len(set(found.tolist())) == len(found)
    assert np.histogram(found, 10, (0, 50_000))[0].min() > 20


@pytest.mark.parametrize("held_bytes", [1, 5000, 1 << 20])
def test_rows_come_back_by_cell_from_memory_and_from_spill_files(tmp_path: Path, held_bytes: int) -> None:
    draw = np.random.default_rng(5)
    given = [(draw.integers(0, 9, 300), draw.integers(0, 1000, 300)) for _ in range(6)]
    schema = pa.schema([("n", pa.int64())])
    with CellRows(schema, 10, str(tmp_path), held_bytes) as rows:
        for cells, values in given:
            rows.append(pa.table({"n": values}), cells)
        found = [pa.concat_tables([schema.empty_table(), *rows.of(cell)]).column("n").to_pylist() for cell in range(10)]
    cells, values = (np.concatenate(part) for part in zip(*given, strict=True))
    assert found == [values[cells == cell].tolist() for cell in range(10)]
    assert rows.counts.tolist() == [len(part) for part in found]


def test_files_are_cut_evenly_below_the_target_by_what_the_first_ones_measured() -> None:
    counts = np.full(80, 100, np.int64)
    cut = FileCut(target_bytes=20_000, row_bytes=40.0)  # twice too much
    chosen: list[range] = []
    for cells in cut.files(counts):
        chosen.append(cells)
        cut.measure(len(cells) * 100, len(cells) * 100 * 20)
    assert [cell for cells in chosen for cell in cells] == list(range(80))
    sizes = [len(cells) * 100 * 20 for cells in chosen]
    assert sizes[0] == 10_000
    assert all(16_000 <= size <= 20_000 for size in sizes[1:])
    assert list(FileCut(100, 1.0).files(np.zeros(3, np.int64))) == [range(3)]


def test_files_of_a_curve_are_boxes_and_large_ones_of_equal_values_are_cut_by_key() -> None:
    draw = np.random.default_rng(6)
    x, y = draw.integers(0, 1 << 20, 8192), draw.integers(0, 1 << 20, 8192)
    x[:2000], y[:2000] = 1 << 21, 1 << 21
    table = pa.table({RECORD_KEY: [f"k{n:05}" for n in range(8192)], "x": x, "y": y})
    order = RowOrder.of(["x", "y"], Z_ORDER, table.schema).fitted(table)
    cuts = order.cuts(table, 128)
    cells = cuts.cells_of(order.positions(table))
    counts = np.bincount(cells, minlength=cuts.cells)
    files = list(FileCut(500, 1.0).files(counts, cuts.boxes, cuts.box_count))
    of_file = np.full(cuts.cells, -1)
    for number, chosen in enumerate(files):
        of_file[chosen.start : chosen.stop] = number
    assert (of_file[cells] >= 0).all()
    assert max(np.bincount(of_file[cells])) <= 500
    boxes = [(x[rows], y[rows]) for n in range(len(files)) if len(rows := np.flatnonzero(of_file[cells] == n))]
    spread = [(a.min(), a.max(), b.min(), b.max()) for a, b in boxes if a.max() < 1 << 21]
    for one in spread:
        for other in spread:
            apart = one[1] < other[0] or other[1] < one[0] or one[3] < other[2] or other[3] < one[2]
            assert apart or one == other
