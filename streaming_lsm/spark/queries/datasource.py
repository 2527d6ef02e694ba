"""Implement ``spark.read.format("streaming_lsm")`` and ``CREATE TABLE … USING streaming_lsm``; PySpark 4.0 or later."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.types import StructField, StructType

from streaming_lsm.arrow.nullable import nullable_schema
from streaming_lsm.config import is_meant_for_option, with_own_case
from streaming_lsm.errors import ConfigError
from streaming_lsm.query.cdc.changes import Changes
from streaming_lsm.readable_table import ReadableTable
from streaming_lsm.spark.queries.readers import changes_reader, scan_reader
from streaming_lsm.spark.queries.stream_reader import LsmStreamReader
from streaming_lsm.spark.queries.worker_errors import tells_in_one_line
from streaming_lsm.spark.versions import SPARK, spark_schema
from streaming_lsm.storage.failures import names_failures

_LOG = logging.getLogger(__name__)
FORMAT = "streaming_lsm"
_PATH = "path"
_CREATED = "streaming_lsm"
"""Key of the metadata by which a table of Spark's catalog keeps its path and options."""
_OF_CATALOG = ("collation", "comment", "external", "is_managed_location", "location", "owner", "provider", "table_type")
"""Properties that Spark itself adds to the options of ``CREATE TABLE``."""
_OPTION = "option."


class LsmDataSource(DataSource):
    """Reads the table at ``load(path)``, by any query type.

    Options are those under "Read" in docs/configuration.md. A table of Spark's catalog has them in its schema: PySpark
    gives its properties to `schema` only, when the table is created. Properties cannot be told from options there: keys
    that are not like an option's are ignored.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @tells_in_one_line
    def schema(self) -> StructType:
        given = self._given
        if foreign := sorted(set(self._properties) - set(given)):
            _LOG.warning(
                "properties of the table that are no options of %s are ignored: %s", FORMAT, ", ".join(foreign)
            )
        found = spark_schema(nullable_schema(_table(given).result_schema))
        if "provider" not in self.options or not found.fields:
            return found
        first, *others = found.fields
        kept = StructField(first.name, first.dataType, first.nullable, {_CREATED: given})
        return StructType([kept, *others])

    @tells_in_one_line
    def reader(self, schema: StructType) -> DataSourceReader:
        table = _table(self._known(schema))
        columns = table.result_schema
        _check(schema, spark_schema(nullable_schema(columns)))
        # No conditions are taken over (`pushFilters`): Spark 4.2 keeps the reader of a data frame with the conditions
        # of its first query, and a second query without them would lack rows.
        query = table.query(None if schema.names == columns.names else schema.names)
        return changes_reader(query) if isinstance(query, Changes) else scan_reader(query)

    @names_failures  # with its traceback: PySpark fails once more when this fails, and the one line would be of that
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        table = _table(self._known(schema))
        stream = table.stream()
        _check(schema, spark_schema(stream.schema))
        stream = replace(stream, schema=pa.schema([stream.schema.field(name) for name in schema.names]))
        if SPARK < (4, 2):
            return LsmStreamReader(table, stream)
        from streaming_lsm.spark.queries.limited_stream_reader import LimitedStreamReader

        return LimitedStreamReader(table, stream)

    @tells_in_one_line
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        raise ConfigError(
            "PySpark would write each partition by itself, where a table needs the rows of a file group together: "
            "write with streaming_lsm.write_frame(df, path, options)"
        )

    def _known(self, schema: StructType) -> Mapping[str, str]:
        """Return the user's options, also those of a table of the catalog."""
        kept = (field.metadata[_CREATED] for field in schema if _CREATED in field.metadata)
        return self._given or next(kept, {})

    @property
    def _given(self) -> dict[str, str]:
        """The user's options; of a table of the catalog without the properties that are meant for others."""
        properties = self._properties
        if "provider" not in self.options:
            return properties
        return {key: value for key, value in properties.items() if key == _PATH or is_meant_for_option(key)}

    @property
    def _properties(self) -> dict[str, str]:
        """All options and properties but those that Spark adds."""
        given = dict(self.options.items())
        if "provider" not in given:
            return given
        return {key: value for key, value in given.items() if key not in _OF_CATALOG and not key.startswith(_OPTION)}


def _table(given: Mapping[str, str]) -> ReadableTable:
    path = given.get(_PATH)
    if not path:
        raise ConfigError('no table path; write spark.read.format("streaming_lsm").load("/path/of/table")')
    return ReadableTable(path, {with_own_case(key): value for key, value in given.items() if key != _PATH})


def _check(schema: StructType, known: StructType) -> None:
    """Check that the columns are some of the query's; those of a table of the catalog are as old as that table."""
    types = {field.name: field.dataType for field in known}
    for field in schema:
        if types.get(field.name) != field.dataType:
            has = types[field.name].simpleString() if field.name in types else "no such column"
            raise ConfigError(
                f"column {field.name!r} is to be read as {field.dataType.simpleString()}, and the table has {has}: "
                "leave spark.read.schema(…) out, and select and cast instead; create a table of Spark's catalog again"
            )
