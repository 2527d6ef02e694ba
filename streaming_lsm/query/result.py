"""Limit, count and read the results of queries, also as data frames of other libraries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from operator import index
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming_lsm.errors import ConfigError
from streaming_lsm.extras import missing_package

if TYPE_CHECKING:
    from typing import Self

    import duckdb
    import pandas as pd
    import polars


@dataclass(frozen=True)
class Result(ABC):
    """A planned query; nothing is read until its batches are.

    Attributes:
        most: number of rows after which `to_batches` ends; None for all.
    """

    most: int | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Schema of the result."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, `most` of them at most."""

    def limit(self, rows: int) -> Self:
        """Return a query that ends after some rows, which may be any; it reads no more of the files than it needs.

        Raises:
            ConfigError: `rows` is no number, or negative.
        """
        try:
            rows = index(rows)
        except TypeError:
            raise ConfigError(f"limit({rows!r:.100}): give a whole number of rows") from None
        if rows < 0:
            raise ConfigError(f"limit({rows}): the number of rows is negative")
        return replace(self, most=rows if self.most is None else min(rows, self.most))

    def count(self) -> int:
        """Count the rows."""
        return sum(batch.num_rows for batch in self.to_batches())

    def to_arrow(self) -> pa.Table:
        """Read the whole result."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the result as an Arrow C stream, by which polars, DuckDB, pandas and others read it batch by batch.

        Args:
            requested_schema: a capsule of the schema that the consumer asks for; None for that of the query.
        """
        reader: Any = pa.RecordBatchReader.from_batches(self.schema, self.to_batches())
        return reader.__arrow_c_stream__(requested_schema)

    def to_polars(self) -> polars.DataFrame:
        """Read the whole result as a polars data frame.

        Raises:
            MissingPackage: polars is not installed.
        """
        try:
            frame = import_module("polars").DataFrame
        except ModuleNotFoundError as error:
            raise missing_package(f"{type(self).__name__}.to_polars", error) from None
        # The rows are read first: polars would wrap the errors of a stream in its own.
        found: polars.DataFrame = frame(_Stream(self.to_arrow()))
        return found

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return the result as a DuckDB relation, which reads it batch by batch, each time that it is used.

        Args:
            connection: the connection; by default DuckDB's own.

        Raises:
            MissingPackage: DuckDB is not installed.
        """
        try:
            known = connection or import_module("duckdb").default_connection()
        except ModuleNotFoundError as error:
            raise missing_package(f"{type(self).__name__}.to_duckdb", error) from None
        relation: duckdb.DuckDBPyRelation = known.from_arrow(self)
        return relation

    def to_pandas(self) -> pd.DataFrame:
        """Read the whole result as a pandas data frame.

        Raises:
            MissingPackage: pandas is not installed.
        """
        try:
            return self.to_arrow().to_pandas()
        except ModuleNotFoundError as error:
            raise missing_package(f"{type(self).__name__}.to_pandas", error) from None


@dataclass(frozen=True)
class _Stream:
    """Rows in memory as an Arrow C stream and nothing else, so that a library takes them as it takes a query."""

    rows: pa.Table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: Any = self.rows
        return stream.__arrow_c_stream__(requested_schema)


def first_rows(batches: Iterable[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches until there are so many rows, and take no batch more than that needs; None for all."""
    if rows is None:
        yield from batches
    elif rows:
        for batch in batches:
            if rows <= batch.num_rows:
                yield batch.slice(0, rows)
                return
            rows -= batch.num_rows
            yield batch
