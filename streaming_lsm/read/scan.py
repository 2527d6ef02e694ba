"""A snapshot of a table as Arrow data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.errors import SchemaError
from streaming_lsm.extras import missing_package
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.read.slice_reader import SliceReader
from streaming_lsm.storage.failures import named_failures

if TYPE_CHECKING:
    import pandas as pd

MapSlices = Callable[[Callable[[FileSlice], list[pa.RecordBatch]], Iterable[FileSlice]], Iterator[list[pa.RecordBatch]]]


@dataclass(frozen=True)
class Scan:
    """A snapshot read that has been described and not yet run.

    Attributes:
        slices: the file slices to read, in the order of the result.
        reader: reads one slice, with all columns that `columns` and `filter` need.
        columns: the columns of the result.
        filter: keeps the rows for which it is true, after the merge.
        run: runs the reading of slices, in order.
    """

    slices: Sequence[FileSlice]
    reader: SliceReader
    columns: tuple[str, ...]
    filter: pc.Expression | None
    run: MapSlices

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        return pa.schema([self.reader.schema.field(name) for name in self.columns])

    def check(self) -> None:
        """Find what is refused of the slices' logs, so that no row is returned before; see `SliceReader.check`.

        Whoever reads slice by slice calls it once before.
        """
        self.reader.check(self.slices)

    def read_slice(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """The rows of one slice, filtered and projected; ascending by record key in a table of sorted files."""
        for batch in self.reader.read(file_slice):
            if self.filter is not None:
                batch = batch.filter(self.filter)
            if batch.num_rows:
                yield batch.select(list(self.columns))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches slice by slice, by partition and file group; a few slices are held at a time."""
        with named_failures():
            self.check()
            for batches in self.run(lambda file_slice: list(self.read_slice(file_slice)), self.slices):
                yield from batches

    def to_arrow(self) -> pa.Table:
        """The whole result."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """The whole result.

        Raises:
            MissingPackage: pandas is not installed.
        """
        try:
            return self.to_arrow().to_pandas()
        except ModuleNotFoundError as error:
            raise missing_package("Scan.to_pandas", error) from None


def filter_columns(expression: pc.Expression | None, schema: pa.Schema) -> tuple[str, ...]:
    """The columns of `schema` that an expression mentions.

    Raises:
        SchemaError: it mentions another column, or compares a column with a value of another type.
    """
    if expression is None:
        return ()
    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(f"filter {expression} does not fit the columns {', '.join(schema.names)}: {error}") from None
    return tuple(name for name in schema.names if not _binds(expression, schema, name))


def _binds(expression: pc.Expression, schema: pa.Schema, without: str) -> bool:
    rest = pa.schema([field for field in schema if field.name != without])
    try:
        rest.empty_table().filter(expression)
    except pa.ArrowInvalid:
        return False
    return True
