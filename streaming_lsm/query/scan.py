"""Scan file slices and return the merged rows as Arrow data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.errors import SchemaError
from streaming_lsm.extras import missing_package
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.query.default_partition import DefaultPartition, with_nulls
from streaming_lsm.query.prune.explanation import Explanation
from streaming_lsm.query.prune.file_groups import SkippedSlices
from streaming_lsm.query.prune.row_groups import RowGroupCounts
from streaming_lsm.query.slice_reader import SliceReader
from streaming_lsm.storage.failures import named_failures

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

_ABSENT = re.compile(r"No match for FieldRef\.Name\((.*?)\) in ")
"""What Arrow says of a column that is not there."""
_AHEAD_BYTES = 32 << 20
_AHEAD_RATIO = 32
"""Bytes of a slice's batches that are read ahead in memory: at least `_AHEAD_BYTES`, or so many times its files."""


class MapSlices(Protocol):
    """Maps a function over slices in parallel and yields the results in order."""

    def __call__(self, task: Callable[[FileSlice], T], items: Iterable[FileSlice], /) -> Iterator[T]:
        """Run the function for every slice."""
        ...


@dataclass(frozen=True)
class Scan:
    """A planned scan of file slices; nothing is read until its batches are.

    Attributes:
        slices: the file slices to read, in the order of the result.
        reader: reads one slice, with all columns that `columns` and `filter` need.
        columns: the columns of the result.
        filter: keeps the rows for which it is true, after the merge.
        run: maps a function over slices in parallel and yields the results in order.
        skipped: counts the slices that the filter leaves out; `slices` are the others.
        default_partition: the columns that are null in the default partition, before `filter` decides.
    """

    slices: Sequence[FileSlice]
    reader: SliceReader
    columns: tuple[str, ...]
    filter: pc.Expression | None
    run: MapSlices
    skipped: SkippedSlices = field(default_factory=SkippedSlices)
    default_partition: DefaultPartition = field(default_factory=DefaultPartition)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        return pa.schema([self.reader.schema.field(name) for name in self.columns])

    def check(self) -> None:
        """Check that the slices' logs are supported, before any row is returned; see `SliceReader.check`.

        Call it once before `read_slice`; `to_batches` calls it itself.
        """
        self.reader.check(self.slices)

    def explain(self) -> Explanation:
        """Tell what the scan reads and what it skips, and why; footers are read, but no rows.

        Raises:
            LsmError: a file cannot be opened, see `SliceReader.blocks`.
        """
        with named_failures():
            counts = sum((self.reader.prune(found) for found in self.slices), RowGroupCounts())
        return Explanation(len(self.slices), self.skipped, counts)

    def read_slice(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """Read one slice, filtered and projected; the rows ascend by record key in a table of sorted files."""
        nulls = self.default_partition.nulls(file_slice.partition_path)
        for batch in self.reader.read(file_slice):
            batch = with_nulls(batch, nulls) if nulls else batch
            if self.filter is not None:
                batch = batch.filter(self.filter)
            if batch.num_rows:
                yield batch.select(list(self.columns))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches slice by slice, ordered by partition and file group; few slices are held at once.

        Slices are read ahead in parallel. A slice whose rows take far more memory than its files, because they repeat
        large values, is held in part only.
        """
        with named_failures():
            self.check()
            for batches in self.run(self._begin, self.slices):
                yield from batches

    def _begin(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """Read the first batches of a slice, as a rule all; the others are read when the result is consumed."""
        most = max(_AHEAD_BYTES, _AHEAD_RATIO * file_slice.size)
        batches, ahead, held = self.read_slice(file_slice), [], 0
        for batch in batches:
            ahead.append(batch)
            held += batch.nbytes
            if held > most:
                break
        return chain(ahead, batches)

    def to_arrow(self) -> pa.Table:
        """Read the whole result."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the result as an Arrow C stream, by which polars, DuckDB, pandas and others read it batch by batch.

        Args:
            requested_schema: a capsule of the schema that the consumer asks for; None for that of the scan.
        """
        reader: Any = pa.RecordBatchReader.from_batches(self.schema, self.to_batches())
        return reader.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pd.DataFrame:
        """Read the whole result as a pandas data frame.

        Raises:
            MissingPackage: pandas is not installed.
        """
        try:
            return self.to_arrow().to_pandas()
        except ModuleNotFoundError as error:
            raise missing_package("Scan.to_pandas", error) from None


def filter_columns(expression: pc.Expression | None, schema: pa.Schema) -> tuple[str, ...]:
    """List the columns of `schema` that an expression references.

    Raises:
        SchemaError: the expression references another column, or compares a column with a value of another type.
    """
    if expression is None:
        return ()
    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        absent = _ABSENT.search(str(error))
        if absent:
            known = nearest_first(absent[1], schema)
            raise SchemaError(
                f"filter {expression}: column {absent[1]!r} is not in the table, which has {known}"
            ) from None
        raise SchemaError(f"filter {expression} does not fit the columns {', '.join(schema.names)}: {error}") from None
    return tuple(name for name in schema.names if not _binds(expression, schema, name))


def nearest_first(name: str, schema: pa.Schema) -> str:
    """List the columns of `schema`, those first whose names are like `name`."""
    near = get_close_matches(name, schema.names)
    return ", ".join([*near, *(other for other in schema.names if other not in near)])


def _binds(expression: pc.Expression, schema: pa.Schema, without: str) -> bool:
    rest = pa.schema([field for field in schema if field.name != without])
    try:
        rest.empty_table().filter(expression)
    except pa.ArrowInvalid:
        return False
    return True
