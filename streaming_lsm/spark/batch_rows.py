"""Describe the rows of a micro-batch: columns of the table, or Kafka messages that the tasks decode."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming_lsm.decode.decoder import MESSAGE_COLUMNS, Decoder, Messages
from streaming_lsm.decode.envelope import Envelope
from streaming_lsm.errors import SchemaError


@dataclass(frozen=True)
class BatchRows:
    """Describes the rows of a micro-batch.

    Attributes:
        frame: what Spark hands to the tasks.
        schema: columns of the rows, decoded.
        messages: how the tasks decode; None if `frame` has the rows.
    """

    frame: DataFrame
    schema: pa.Schema
    messages: Messages | None = None

    @staticmethod
    def of_messages(batch: DataFrame, envelope: Envelope, zone: str) -> BatchRows:
        """Describe a batch of Spark's Kafka source; `zone` is that of timestamps that name none.

        Raises:
            SchemaError: a column of the Kafka source is missing.
        """
        missing = [name for name in MESSAGE_COLUMNS if name not in batch.columns]
        if missing:
            raise SchemaError(
                f"column {missing[0]!r} is missing: with an envelope the stream has the columns of Spark's Kafka "
                f"source, this one has {', '.join(batch.columns)}"
            )
        columns = [F.col(name) for name in MESSAGE_COLUMNS]
        if not envelope.format.is_debezium:
            # Only a tombstone is read by its key: the others need not travel.
            columns[0] = F.when(F.col("value").isNull(), F.col("key")).alias("key")
        return BatchRows(batch.select(*columns), Decoder(envelope, zone).schema, Messages(envelope, zone))

    def decoded_by(self, messages: Messages) -> BatchRows:
        """Return the same batch, decoded in another way."""
        return replace(self, schema=messages.decoder().schema, messages=messages)
