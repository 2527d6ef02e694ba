"""Convert Kafka messages to rows of a table: flat JSON rows, Debezium envelopes and tombstones.

*Event*: a message as a change of the table. *Bad event*: an event that cannot be read; its row has the reason in
``_lsm_bad``. *Tombstone*: a message without a value, which deletes the key in the message's key. *Unplaced tombstone*:
one whose message key does not give the partition. `Envelope.rows` is a projection: Spark column expressions only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.oracle.events.documents import (
    ENVELOPE_COLUMNS,
    UNAVAILABLE,
    UNAVAILABLE_TEXTS,
    DebeziumDocuments,
    Documents,
    FlatDocuments,
    shown,
)
from tests.oracle.events.keys import MessageKey
from tests.oracle.events.values import raw_type, typed

PAYLOAD_BYTES = 65_536
"""Number of bytes of a bad event's value that are kept."""


class EventFormat(StrEnum):
    """Names the format of message values."""

    JSON = "json"
    DEBEZIUM = "debezium-json"


@dataclass(frozen=True)
class Envelope:
    """Describes how messages are converted to rows of a table.

    Attributes:
        columns: the table's columns without Hudi's meta columns.
        record_key: record key columns.
        partition: partition columns; none for an unpartitioned table.
        ordering: ordering columns that an upsert must have; none when the later event wins.
        format: format of message values.
    """

    columns: T.StructType
    record_key: tuple[str, ...]
    partition: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    format: EventFormat = EventFormat.JSON

    def rows(self, events: DataFrame) -> DataFrame:
        """Convert messages.

        Args:
            events: columns ``key``, ``value`` (binary), ``topic``, ``partition``, ``offset``, as of Spark's Kafka
                source.

        Returns:
            One row for each event except tombstones that repeat the delete before them: the table's columns, then
            ``_lsm_delete`` and ``_lsm_tombstone`` (boolean), ``_lsm_bad`` (reason, null for a good event),
            ``_lsm_topic``, ``_lsm_partition``, ``_lsm_offset`` and ``_lsm_payload`` (the first `PAYLOAD_BYTES` of a bad
            event's value). The table's columns are null in bad events; a delete has only key, partition and ordering
            values. A bad event with ``_lsm_tombstone`` true is an unplaced tombstone that begins its topic partition;
            it has its record key.
        """
        return _Reader(self).convert(events)


class _Reader:
    """Builds the expressions of an envelope, over intermediate columns named ``_lsm_…``."""

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.fields = envelope.columns.fields
        flat = envelope.format is EventFormat.JSON
        kind: type[FlatDocuments] | type[DebeziumDocuments] = FlatDocuments if flat else DebeziumDocuments
        self.documents: Documents = kind(envelope.columns)
        self.in_key = [name for name in envelope.columns.names if name in (*envelope.record_key, *envelope.partition)]
        self.key = MessageKey(T.StructType([envelope.columns[name] for name in self.in_key]), envelope.record_key)
        self.identity = {*envelope.record_key, *envelope.partition, *envelope.ordering}
        by_key = F.col("_lsm_value").isNull() | ~self.documents.has_row()
        self._steps = [
            *self.documents.steps(),
            {"_lsm_by_key": by_key},
            *self.key.steps(F.col("_lsm_by_key")),
            {"_lsm_delete": self.is_delete(), "_lsm_raw": self.raw_row()},
            {"_lsm_typed": self.typed_row()},
            {"_lsm_bad": self.reason()},
        ]
        self._unplaced_tombstones = self.unplaced_tombstones() if self.drops_tombstones else None
        self._output = [*self.table_columns(), *self.control_columns()]

    def convert(self, events: DataFrame) -> DataFrame:
        """See `Envelope.rows`."""
        found = events.select(
            F.col("topic").alias("_lsm_topic"),
            F.col("partition").alias("_lsm_partition"),
            F.col("offset").alias("_lsm_offset"),
            F.col("value").alias("_lsm_value"),
            F.col("value").cast("string").alias("_lsm_text"),
            F.col("key").cast("string").alias("_lsm_key"),
        )
        for step in self._steps:
            found = found.withColumns(step)
        if self._unplaced_tombstones is not None:
            found = found.withColumns(self._unplaced_tombstones).where(~F.col("_lsm_follows"))
        return found.select(*self._output)

    def is_delete(self) -> Column:
        by_value = F.coalesce(self.documents.is_delete(), F.lit(False))
        return F.col("_lsm_value").isNull() | by_value

    def _raw(self, name: str) -> Column:
        by_value = self.documents.raw(name)
        if self.envelope.format is EventFormat.DEBEZIUM and name in ENVELOPE_COLUMNS:
            return by_value
        by_key = self.key.raw(name) if name in self.in_key else F.lit(None)
        return F.when(F.col("_lsm_by_key"), by_key).otherwise(by_value)

    def raw_row(self) -> Column:
        """Return the struct of the raw values."""
        return F.struct(*[self._raw(name).alias(name) for name in self.envelope.columns.names])

    def typed_row(self) -> Column:
        """Return the struct of the converted values, null where a raw value does not fit."""
        return F.struct(
            *[
                typed(F.col("_lsm_raw")[field.name], field, self.documents.semantic(field.name)).alias(field.name)
                for field in self.fields
            ]
        )

    def as_text(self, name: str) -> Column:
        by_key = self.key.as_text(name) if name in self.in_key else F.lit(None)
        return F.when(F.col("_lsm_by_key"), by_key).otherwise(self.documents.as_text(name))

    def reason(self) -> Column:
        by_key = F.col("_lsm_by_key")
        text = F.col("_lsm_text")
        return F.coalesce(
            F.when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8")),
            F.when(F.trim(text) == "", F.lit("the value is empty")),
            F.when(text.isNotNull(), self.documents.reason()),
            F.when(by_key, self.key.reason()),
            *[F.when(self._counts(field), self._wrong_type(field)) for field in self.fields],
            self._null_key(),
            *[self._unplaced(name) for name in self.envelope.partition if name not in self.envelope.record_key],
            F.when(~F.col("_lsm_delete"), F.coalesce(*self._missing(), self._unexplained())),
        )

    def _counts(self, field: T.StructField) -> Column:
        """Return whether a wrong value of the column makes the event bad; in deletes key, partition, ordering only."""
        return F.lit(True) if field.name in self.identity else ~F.col("_lsm_delete")

    def _wrong_type(self, field: T.StructField) -> Column:
        raw, value = F.col("_lsm_raw")[field.name], F.col("_lsm_typed")[field.name]
        begin = F.lit(f"column '{field.name}' holds '")
        end = F.lit(f"', which is not {field.dataType.simpleString().upper()}")
        said = F.concat(begin, shown(self.as_text(field.name)), end)
        unsent = F.lit(f"column '{field.name}' was not sent (unchanged large value): set REPLICA IDENTITY FULL")
        if isinstance(raw_type(field), T.StringType):
            said = F.concat(begin, shown(raw), end)
            wrong = F.when(raw.isNotNull() & value.isNull(), said)
            debezium = self.envelope.format is EventFormat.DEBEZIUM
            return F.coalesce(F.when(raw.isin(*UNAVAILABLE), unsent), wrong) if debezium else wrong
        misfit = raw.isNotNull() if isinstance(field.dataType, T.DecimalType) else F.lit(False)
        complained = F.coalesce(self.documents.complaint() | self.key.complaint(), F.lit(False))
        # A null raw value means that the field is null, absent, or of another type.
        unread = raw.isNull() & complained & self.as_text(field.name).isNotNull()
        wrong = F.when(value.isNull() & (misfit | unread), said)
        if self.envelope.format is not EventFormat.DEBEZIUM or isinstance(field.dataType, T.DecimalType):
            return wrong
        return F.coalesce(F.when(F.to_json(value).isin(*UNAVAILABLE, *UNAVAILABLE_TEXTS), unsent), wrong)

    def _null_key(self) -> Column:
        names = self.envelope.record_key
        empty = [F.coalesce(F.col("_lsm_typed")[name].cast("string") == "", F.lit(True)) for name in names]
        if len(names) == 1:
            return F.when(empty[0], F.lit(f"record key column '{names[0]}' is null or empty"))
        every = empty[0]
        for one in empty[1:]:
            every = every & one
        return F.when(every, F.lit(f"record key columns {', '.join(names)} are all null or empty"))

    def _unplaced(self, name: str) -> Column:
        unknown = F.col("_lsm_typed")[name].isNull()
        from_key = F.lit(
            f"a delete without a value is placed by its key, and the key has no partition column '{name}': "
            "only a table whose partition follows from the key, or without partitions, can take it"
        )
        told = F.coalesce(*[F.when(F.col("_lsm_raw")[other].isNotNull(), F.lit(True)) for other in self._facts(name)],
                          F.lit(False))  # fmt: skip
        bare = F.lit(f"the deleted row ('before') has nothing but its key, so partition column '{name}' is not known: "
                     "set REPLICA IDENTITY FULL")  # fmt: skip
        by_value = F.when(F.col("_lsm_delete") & unknown & ~told, bare)
        if self.envelope.format is EventFormat.JSON:
            unsaid = F.lit(f"the delete has no partition column '{name}'")
            by_value = F.when(F.col("_lsm_delete") & unknown & ~told, unsaid)
        return F.when(F.col("_lsm_by_key"), F.when(unknown, from_key)).otherwise(by_value)

    def _facts(self, name: str) -> list[str]:
        """Return columns whose presence shows that a delete has the whole row, so that a null `name` is its value."""
        debezium = self.envelope.format is EventFormat.DEBEZIUM
        passed_over = {*self.envelope.record_key, name, *(ENVELOPE_COLUMNS if debezium else ())}
        return [field.name for field in self.fields if field.name not in passed_over]

    def _unexplained(self) -> Column:
        """Return the reason for a wrong value inside a nested column, which Spark reads as null."""
        return F.when(self.documents.complaint(), F.lit("a value inside a nested field has not the declared type"))

    def _missing(self) -> list[Column]:
        value = F.col("_lsm_typed")
        reasons = {name: f"ordering column '{name}' is null" for name in self.envelope.ordering}
        for field in self.fields:
            if not field.nullable:
                reasons.setdefault(field.name, f"column '{field.name}' is null, declared NOT NULL")
        return [F.when(value[name].isNull(), F.lit(reason)) for name, reason in reasons.items()]

    @property
    def drops_tombstones(self) -> bool:
        """Whether message keys may lack the partition of tombstones that follow a delete."""
        outside = set(self.envelope.partition) - set(self.envelope.record_key)
        return self.envelope.format is EventFormat.DEBEZIUM and bool(outside)

    def unplaced_tombstones(self) -> dict[str, Column]:
        """Return flags of tombstones whose message key does not give their partition.

        ``_lsm_follows``: the tombstone repeats the delete right before it. ``_lsm_first``: it is the first event of its
        topic partition in the batch, so that only the sink knows the event before it.
        """
        value, names = F.col("_lsm_typed"), self.envelope.record_key
        key = F.struct(*[value[name].alias(name) for name in names])
        is_delete = F.col("_lsm_delete") & F.col("_lsm_value").isNotNull() & F.col("_lsm_bad").isNull()
        in_order = Window.partitionBy("_lsm_topic", "_lsm_partition").orderBy("_lsm_offset")
        before = F.lag(F.struct(is_delete.alias("deletes"), key.alias("key"))).over(in_order)
        unplaced = F.col("_lsm_value").isNull() & F.col("_lsm_bad").isNotNull() & self._null_key().isNull()
        repeats = F.coalesce(before["deletes"] & before["key"].eqNullSafe(key), F.lit(False))
        return {"_lsm_follows": unplaced & repeats, "_lsm_first": unplaced & before.isNull()}

    @property
    def _asks_sink(self) -> Column:
        """Return whether a bad event is a tombstone that may repeat the last delete of the batch before."""
        return F.col("_lsm_first") if self.drops_tombstones else F.lit(False)

    def table_columns(self) -> list[Column]:
        value, delete = F.col("_lsm_typed"), F.col("_lsm_delete")
        good = F.col("_lsm_bad").isNull()
        ordered = F.lit(True)
        for name in self.envelope.ordering:
            ordered = ordered & value[name].isNotNull()
        kept = {*self.envelope.partition, "_hoodie_is_deleted"}
        columns = []
        for field in self.fields:
            stays = good & ~delete
            if field.name in self.envelope.record_key:
                stays = good | self._asks_sink
            elif field.name in kept:
                stays = good
            elif field.name in self.envelope.ordering:
                # A delete has all of its ordering values or none, as a partly null tuple is not ordered.
                stays = good & (~delete | ordered)
            columns.append(F.when(stays, value[field.name]).alias(field.name))
        return columns

    def control_columns(self) -> list[Column]:
        bad = F.col("_lsm_bad").isNotNull()
        return [
            (F.col("_lsm_delete") & ~bad).alias("_lsm_delete"),
            ((F.col("_lsm_value").isNull() & ~bad) | self._asks_sink).alias("_lsm_tombstone"),
            F.col("_lsm_bad"),
            F.col("_lsm_topic"),
            F.col("_lsm_partition"),
            F.col("_lsm_offset"),
            F.when(bad, F.substring(F.col("_lsm_value"), 1, PAYLOAD_BYTES)).alias("_lsm_payload"),
        ]
