"""Describe how messages of a Kafka topic change the rows of a table.

*Event*: a message as a change of the table. *Bad event*: an event that cannot be read; the sink fails or writes it to
the dead letters (``lsm.on.bad.event``).

Effect of each event:

* A *flat row* is an upsert; with ``_hoodie_is_deleted`` (or ``__deleted``, as written by Debezium's
  ExtractNewRecordState) true it is a delete.
* A *Debezium envelope* with op c, r or u upserts ``after``; op d deletes the row in ``before``. Other operations are
  bad events. An update that changes the partition column leaves the row in its old partition, as with Hudi's bucket
  index: choose a column that does not change.
* A *tombstone* (null value) deletes the key in the message's key, independent of the ordering value of the stored row.
  Its partition must follow from the message's key. A tombstone right after the Debezium delete of the same key repeats
  it and is dropped.

A delete has the ordering value of its row. For Debezium an ordering column of the table comes from ``before``, so it
holds the value of the deleted version; on a tie the later event wins, so the delete removes that version and earlier
ones. A column of the database log's order, such as ``_event_lsn``, is the better choice (`ENVELOPE_COLUMNS`). A delete
without ordering value (Postgres without ``REPLICA IDENTITY FULL``) removes any version stored before it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from streaming_lsm.decode.column_types import check_column, is_nested
from streaming_lsm.decode.values.unavailable import PLACEHOLDER, unavailable
from streaming_lsm.errors import ConfigError
from streaming_lsm.schema_registry.sources import SchemaSource

DELETED_FLAGS = ("_hoodie_is_deleted", "__deleted")
"""Fields of a flat document that make it a delete: Hudi's, and that of Debezium's ExtractNewRecordState."""

ENVELOPE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "_change_operation_type": ("op",),
    "_upstream_event_processed_ts_ms": ("ts_ms",),
    "_event_origin_ts_ms": ("source", "ts_ms"),
    "db_shard_source_partition": ("source", "name"),
    "_event_tx_id": ("source", "txId"),
    "_event_lsn": ("source", "lsn"),
    "_event_xmin": ("source", "xmin"),
    "_event_bin_file": ("source", "file"),
    "_event_pos": ("source", "pos"),
    "_event_row": ("source", "row"),
}
"""Hudi's column names for Debezium's metadata, and the path of each in the envelope."""


class EventFormat(StrEnum):
    """Names the format of message values."""

    JSON = "json"
    DEBEZIUM = "debezium-json"
    AVRO = "avro"
    DEBEZIUM_AVRO = "debezium-avro"

    @property
    def is_debezium(self) -> bool:
        """Whether values are Debezium envelopes; else they are rows."""
        return self in (EventFormat.DEBEZIUM, EventFormat.DEBEZIUM_AVRO)

    @property
    def is_avro(self) -> bool:
        """Whether values are Avro with the id of a schema in front; else they are JSON."""
        return self in (EventFormat.AVRO, EventFormat.DEBEZIUM_AVRO)


def check_sources(kind: EventFormat, sources: Sequence[SchemaSource]) -> None:
    """Check that there is a source of schemas, if messages of a format need it.

    Raises:
        ConfigError: there is none.
    """
    if kind.is_avro and not sources:
        raise ConfigError(
            f"lsm.kafka.format={kind} needs the schemas of messages: set lsm.kafka.schema.registry.url, or "
            "lsm.kafka.schema.folder"
        )


@dataclass(frozen=True)
class Envelope:
    """Describes how messages are converted to rows of a table.

    Attributes:
        columns: the table's columns without Hudi's meta columns; the metadata ``comment`` of a TIMESTAMP names the unit
            of whole numbers (`column_types.TimeUnit`).
        record_key: record key columns.
        partition: partition columns; none for an unpartitioned table.
        ordering: ordering columns that an upsert must have; none when the later event wins.
        format: format of message values.
        schemas: where the schemas of Avro messages come from, in the order in which they are asked.
        unavailable: what Debezium sends for a large value that an update did not change (`unavailable`).
        fills_unavailable: whether the table fills such values of text and binary columns (partial update mode
            FILL_UNAVAILABLE); if not, and in other columns, an event with one is bad.
        follows_schemas: whether the table's columns follow the schemas of Avro messages, by ``lsm.schema.evolution``;
            `columns` are then those of a new table. If not, fields that are none of `columns` are counted.
    """

    columns: pa.Schema
    record_key: tuple[str, ...]
    partition: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    format: EventFormat = EventFormat.JSON
    schemas: tuple[SchemaSource, ...] = ()
    unavailable: str = PLACEHOLDER
    fills_unavailable: bool = False
    follows_schemas: bool = False

    def filled(self, name: str) -> pa.DataType | None:
        """Return the type of a column whose values the table fills where they were not sent; None for others."""
        fixed = (*self.record_key, *self.partition, *self.ordering)
        return self.columns.field(name).type if self.fills_unavailable and name not in fixed else None

    def __post_init__(self) -> None:
        """Check the columns.

        Raises:
            ConfigError: no columns, a duplicate or reserved name, a type that is not read, a key, partition or
                ordering column that is not declared, a malformed placeholder, Avro without a source of schemas, or
                columns that follow the schemas of another format.
        """
        check_sources(self.format, self.schemas)
        if self.follows_schemas and not self.format.is_avro:
            raise ConfigError(f"lsm.kafka.format={self.format}: only Avro messages have schemas that columns follow")
        unavailable(self.unavailable)
        names = self.columns.names
        if not names or not self.record_key:
            raise ConfigError("lsm.kafka.schema and hoodie.datasource.write.recordkey.field must both name columns")
        for name in sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"lsm.kafka.schema: column {name!r} is declared twice")
        for name in names:
            if name.startswith("_lsm_"):
                raise ConfigError(f"lsm.kafka.schema: column {name!r}: names with _lsm_ are reserved, rename it")
        for field in self.columns:
            check_column(field)
        for name in (*self.record_key, *self.partition, *self.ordering):
            self._check_role(name)

    def _check_role(self, name: str) -> None:
        names = self.columns.names
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            columns = "the newest schema or the table" if self.follows_schemas else "lsm.kafka.schema"
            raise ConfigError(
                f"{columns} has no column {name!r}, which is a key, partition or ordering column"
                + (f"; did you mean {near[0]!r}?" if near else "")
            )
        if is_nested(self.columns.field(name).type):
            raise ConfigError(f"column {name!r} is nested: choose another key, partition or ordering column")
