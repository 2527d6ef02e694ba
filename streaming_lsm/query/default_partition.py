"""Return null for the partition columns of rows in the default partition, as Hudi does.

Null, the empty text and the text `__HIVE_DEFAULT_PARTITION__` share one folder, and Hudi takes the value from the
folder's name. See docs/format/10-rules.md, "Rule 37".
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.errors import ConfigError
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.key_generation import key_generator
from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.keys.partition_path import DEFAULT_PARTITION


@dataclass(frozen=True)
class DefaultPartition:
    """Knows the columns that are null in the default partition, whatever the files have.

    Attributes:
        columns: name of each column, with the folder that makes it null and the folder's level in the partition path.
        levels: number of folders of a partition path; a path of another number has values with slashes.
    """

    columns: tuple[tuple[str, str, int], ...] = ()
    levels: int = 1

    @staticmethod
    def of(table: TableConfig, schema: pa.Schema) -> DefaultPartition:
        """Build it for a table with the columns `schema`; without columns if the key generator is not known."""
        try:
            generator = key_generator(table)
        except ConfigError:
            return DefaultPartition()
        fields = generator.partition_fields
        columns = tuple(
            (name, _folder(generator, name), level)
            for level, (name, _) in enumerate(fields)
            if is_null_there(generator, schema, name)
        )
        return DefaultPartition(columns, len(fields)) if columns else DefaultPartition()

    def nulls(self, partition_path: str) -> frozenset[str]:
        """Return the columns that are null in a partition."""
        folders = partition_path.split("/")
        if len(folders) != self.levels:
            return frozenset()
        return frozenset(name for name, folder, level in self.columns if folders[level] == folder)

    def without(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns whose statistics in the files tell about the rows that a query returns."""
        changed = {name for name, _, _ in self.columns}
        return pa.schema([field for field in schema if field.name not in changed])


def is_null_there(generator: KeyGenerator, schema: pa.Schema, name: str) -> bool:
    """Return whether a partition column is null in the default partition, whatever the files have.

    Null and some texts have one folder; a required column has no null. Beside a TIMESTAMP field no value is taken from
    the path.
    """
    field = schema.field(name) if name in schema.names else None
    is_of_path = all(kind != "TIMESTAMP" for _, kind in generator.partition_fields)
    return is_of_path and field is not None and field.nullable and pa.types.is_string(field.type)


def with_nulls(batch: pa.RecordBatch, names: frozenset[str]) -> pa.RecordBatch:
    """Replace the columns `names`, as far as a batch has them, by nulls."""
    for place, field in enumerate(batch.schema):
        if field.name in names:
            batch = batch.set_column(place, field, pa.nulls(batch.num_rows, field.type))
    return batch


def _folder(generator: KeyGenerator, name: str) -> str:
    return f"{name}={DEFAULT_PARTITION}" if generator.hive_style else DEFAULT_PARTITION
