"""Order rows by columns: lexicographically, or along a z-order curve over the ranks of their values.

Rows are compared by a *position*, a table of columns that are compared one after the other. Nulls come first, NaN comes
after all numbers, and rows that are equal in all columns are ordered by record key, so that no range of the order is
larger than a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.columns import Column, Flags, Int64s, pc
from streaming_lsm.errors import SchemaError
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.services.clustering.rules import Z_ORDER

_RANK_BITS = 12
_CURVE_BITS = 63
_CURVE = pa.schema([]).append(pa.field("curve", pa.uint64())).append(pa.field("key", pa.string()))


@dataclass(frozen=True)
class RowOrder:
    """The order of the rows of a clustering.

    Attributes:
        columns: by which rows are ordered; none for the record key alone.
        curve: whether along a z-order curve instead of by one column after the other.
        bounds: on a curve: positions by each column, ascending, by which values are ranked.
    """

    columns: tuple[str, ...]
    curve: bool = False
    bounds: tuple[pa.Table, ...] = ()

    @staticmethod
    def of(columns: Sequence[str], layout: str, schema: pa.Schema) -> RowOrder:
        """Check the columns, and build their order.

        Args:
            columns: names of columns.
            layout: `LINEAR` or `Z_ORDER`; by one column alone they are the same.
            schema: columns of a data file.

        Raises:
            SchemaError: a column is not there, given twice, or of a type without an order.
        """
        for name in columns:
            if name not in schema.names:
                raise SchemaError(f"the sort column {name!r} of the clustering is not a column of the table")
            if pa.types.is_nested(schema.field(name).type):
                raise SchemaError(f"the sort column {name!r} is of type {schema.field(name).type}, which has no order")
        if len(set(columns)) < len(columns):
            raise SchemaError(f"the sort columns {', '.join(columns)} name a column twice")
        return RowOrder(tuple(columns), layout == Z_ORDER and len(columns) > 1)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that positions are made from."""
        return tuple(dict.fromkeys([*self.columns, RECORD_KEY]))

    def fitted(self, sample: pa.Table) -> RowOrder:
        """Return the order with the ranks of a sample of the rows; on a curve it is needed for `positions`."""
        if not self.curve:
            return self
        most = (1 << min(_RANK_BITS, _CURVE_BITS // len(self.columns))) - 1
        ordered = (ascending(_by_columns(sample, (name,))) for name in self.columns)
        return replace(self, bounds=tuple(quantiles(one, most) for one in ordered))

    def positions(self, rows: pa.Table) -> pa.Table:
        """Return the positions of rows, which must have the columns `needed`."""
        key = _plain(rows.column(RECORD_KEY))
        if not self.curve:
            return _by_columns(rows, self.columns, key)
        ranks = [
            count_not_after(bounds, _by_columns(rows, (name,)))
            for name, bounds in zip(self.columns, self.bounds, strict=True)
        ]
        return pa.Table.from_arrays([pa.array(interleaved(ranks), pa.uint64()), key], schema=_CURVE)

    def cuts(self, sample: pa.Table, cells: int) -> Cuts:
        """Choose the bounds between cells.

        On a curve there are bounds where one of its highest bits changes, too: between two of these it fills a box.

        Args:
            sample: of the rows, with the columns `needed`.
            cells: number of cells of about the same number of rows.
        """
        positions = ascending(self.positions(sample))
        bounds = quantiles(positions, cells - 1)
        if not self.curve:
            return Cuts(bounds)
        bits = min((cells - 1).bit_length(), self._bits)
        steps = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(self._bits - bits)
        aligned = pa.Table.from_arrays([pa.array(steps), pa.repeat("", len(steps))], schema=_CURVE)
        bounds = ascending(pa.concat_tables([aligned, bounds.cast(_CURVE)]))
        begins = np.concatenate([np.zeros(1, np.uint64), np.asarray(bounds.column("curve"))])
        return Cuts(bounds, (begins >> np.uint64(self._bits - bits)).astype(np.int64), 1 << bits)

    @property
    def _bits(self) -> int:
        """Bits of a place on the curve."""
        return len(self.columns) * min(_RANK_BITS, _CURVE_BITS // len(self.columns))


@dataclass(frozen=True)
class Cuts:
    """Cut the order of rows into cells.

    Attributes:
        bounds: the positions between cells, ascending.
        boxes: int64 (cells,), on a curve: the number of the box that each cell is in, ascending; None on a line.
        box_count: number of boxes, a power of two.
    """

    bounds: pa.Table
    boxes: Int64s | None = None
    box_count: int = 1

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.bounds.num_rows + 1

    def cells_of(self, positions: pa.Table) -> Int64s:
        """Return the cell of each position, int64 (rows,)."""
        return count_not_after(self.bounds, positions)


def order_of(positions: pa.Table) -> pa.Array[Any]:
    """Return the numbers of the rows in ascending order of their positions, uint64 (rows,)."""
    keys = [(name, "ascending") for name in positions.column_names]
    found: pa.Array[Any] = pc.sort_indices(positions, sort_keys=keys)
    return found


def ascending(positions: pa.Table) -> pa.Table:
    """Sort positions."""
    return positions.take(order_of(positions))


def quantiles(positions: pa.Table, most: int) -> pa.Table:
    """Choose at most `most` of ascending positions that cut them into parts of the same number of rows."""
    rows = positions.num_rows
    places = np.unique(np.arange(1, most + 1, dtype=np.int64) * rows // (most + 1))
    return positions.take(pa.array(places[places < rows], pa.int64()))


def count_not_after(bounds: pa.Table, positions: pa.Table) -> Int64s:
    """Count for each position the bounds that are not after it, int64 (rows,)."""
    found = np.zeros(positions.num_rows, np.int64)
    if not bounds.num_rows:
        return found
    # The sort is stable: a bound comes before the positions that are equal to it.
    order = np.asarray(order_of(pa.concat_tables([bounds, positions])), np.int64)
    is_row: Flags = order >= bounds.num_rows
    found[order[is_row] - bounds.num_rows] = np.cumsum(~is_row)[is_row]
    return found


def interleaved(ranks: Sequence[Int64s]) -> npt.NDArray[np.uint64]:
    """Interleave the bits of the ranks of each row, those of the first column foremost: uint64 (rows,)."""
    count = len(ranks)
    curve = np.zeros(len(ranks[0]), np.uint64)
    for bit in range(min(_RANK_BITS, _CURVE_BITS // count)):
        for place, column in enumerate(ranks):
            value = (column >> bit & 1).astype(np.uint64)
            curve |= value << np.uint64(bit * count + count - 1 - place)
    return curve


def _by_columns(rows: pa.Table, names: Sequence[str], key: Column | None = None) -> pa.Table:
    """Return the positions by some columns, for each whether it is not null, and its value; and by a last one."""
    columns: list[Column] = []
    for name in names:
        values = _plain(rows.column(name))
        columns += [pc.is_valid(values), values]
    columns += [] if key is None else [key]
    return pa.Table.from_arrays(columns, names=[str(place) for place in range(len(columns))])


def _plain(column: Column) -> Column:
    """Return a column as its plain type: columns of one text may be dictionaries."""
    plain: Column = pc.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column
    return plain
