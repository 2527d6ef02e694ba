"""Write the micro-batches of a Structured Streaming query to a table, each as one deltacommit (`LsmSink`).

*Writer*: a query, identified by its query id or by ``lsm.writer.id``. *Batch identity*: writer and batch id, which are
stored in the commit; a batch that Spark replays is recognised by it. *Dead letters*: bad events written to a folder of
the batch instead of the table.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from streaming_lsm import config
from streaming_lsm.config import Options, resolve
from streaming_lsm.decode.column_types import sql_name
from streaming_lsm.decode.envelope import Envelope
from streaming_lsm.decode.unknown_fields import UnknownFieldWarnings
from streaming_lsm.errors import ConfigError, SchemaError, StorageError, TableNotFound
from streaming_lsm.services.compaction.operation_choice import check_hybrid
from streaming_lsm.spark.batch_rows import BatchRows
from streaming_lsm.spark.batch_size_history import BatchSizeHistory
from streaming_lsm.spark.batch_writer import write_batch
from streaming_lsm.spark.early_workers import start_workers
from streaming_lsm.spark.engine import SparkEngine
from streaming_lsm.spark.exchange_choice import check_exchange
from streaming_lsm.spark.versions import arrow_schema
from streaming_lsm.storage.failures import names_failures
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.table import LsmTable
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import BatchIdentity, WriterLedger
from streaming_lsm.txn.retries import Attempt, write_with_retries
from streaming_lsm.write.intake.control_columns import CONTROL_COLUMNS, OFFSET, ROW, TOPIC_PARTITION
from streaming_lsm.write.intake.dead_letters import batch_folder, count_letters
from streaming_lsm.write.intake.tombstones import topics_of
from streaming_lsm.write.numbers import BatchNumbers
from streaming_lsm.write.plan import REPLACING, DeadLetters

_LOG = logging.getLogger(__name__)
_REMEMBERED = 100
_QUERY_ID = "sql.streaming.queryId"


class LsmSink:
    """Writes micro-batches to a table, each exactly once.

    Use it as ``stream.writeStream.foreachBatch(LsmSink(path, options))``. The table is created from the first
    batch's columns when there is none. One sink serves one query.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Mapping[str, object] | None = None,
        *,
        properties: str | os.PathLike[str] | None = None,
        envelope: Envelope | None = None,
    ) -> None:
        """Resolve the options; nothing is read or written before the first batch.

        If a Spark session runs already, its Python workers start meanwhile.

        Args:
            path: the table's folder or ``file://`` URI.
            options: see docs/configuration.md; they override `properties`.
            properties: a Java properties file with options.
            envelope: how messages become rows, for a stream of Spark's Kafka source as it is; without it the stream
                has the table's columns.

        Raises:
            ConfigError: an option is unknown or malformed, dead letters are asked for without a folder, messages
                would overwrite partitions, or the limits of hybrid compactions contradict each other.
        """
        self._path = path
        self._options = resolve(options, properties)
        if envelope is not None and not self._options.is_set(config.ARRIVAL_FIELDS):
            # Messages of a key come in the order of their offsets.
            self._options = self._options.merged(resolve({config.ARRIVAL_FIELDS.key: (TOPIC_PARTITION, OFFSET)}))
        if envelope is not None and self._operation in REPLACING:
            raise ConfigError(
                f"{config.OPERATION.key}={self._operation} would replace a partition by the changes of one batch: "
                "write messages with upsert, and overwrite with rows"
            )
        check_hybrid(self._options)
        self._dead_letters = _dead_letter_path(self._options)
        self._envelope = envelope
        self._table: LsmTable | None = None
        self._numbers: dict[int, BatchNumbers] = {}
        self._size_history = BatchSizeHistory()
        self._warnings = UnknownFieldWarnings()
        start_workers()

    @names_failures
    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch atomically: all of its rows become visible, or none.

        Raises:
            LsmError: the batch, the options or the table are at fault. The query stops before its checkpoint
                advances, so that a restart reads the same batch again.
        """
        self._write_batch(batch, self._identity(batch, batch_id))

    def _write_batch(self, batch: DataFrame, identity: BatchIdentity | None) -> None:
        # 1. Open the table, load its timeline; complete or roll back the writes of dead writers, as was decided.
        rows = self._rows(batch)
        table = self._open(rows.schema)
        table.upgrade_if_asked(table.schema if self._follows_schemas else rows.schema, self._operation)
        engine = SparkEngine(batch.sparkSession)
        prepare = partial(table.prepare_write, engine)
        prepare()
        # A batch that conflicts with another write is written again as a whole.
        write = partial(self._write, table, rows, identity)
        write_with_retries(self._options, table.runtime, write, prepare)
        # 6. Run table services that are due; their failures are logged and do not fail the batch.
        table.run_services(engine)

    def _write(self, table: LsmTable, rows: BatchRows, identity: BatchIdentity | None, attempt: Attempt) -> None:
        with table.transaction(identity, alone=attempt.alone, operation=self._operation) as tx:
            # 2. Skip a committed batch: Spark replays it when the driver died before the checkpoint was written.
            if identity is not None:
                if tx.already_committed:
                    _report_replay(tx.ledger, identity)
                    return
                _report_new_writer(tx.ledger, identity)
            before = tx.timeline
            rows = self._with_columns_of(table, rows, before)
            schema = self._columns_after(table, rows, before)
            # 3. Begin the deltacommit.
            letters = self._dead_letters_of(identity)
            plan = table.plan(tx, self._operation, schema=schema, arrival_fields=(ROW,), dead_letters=letters)
            check_exchange(self._options[config.EXCHANGE] or "auto", plan)
            plan = plan.at(tx.begin(plan.action))
            # 4. Decode, bucket, repartition, sort, dedup and write, in one Spark action; once more if the schema of a
            # message changes the columns. The files of the first time are no part of the commit, which deletes them.
            while (done := write_batch(rows, table, plan, self._size_history)).changing_schemas:
                rows = _with_new_columns(rows, done.changing_schemas)
                plan = replace(plan, schema=self._columns_after(table, rows, before))
                self._dead_letters_of(identity)
            _check_letters(letters, done.written.numbers.dead_letters)
            topics = topics_of(done.written.last_events)
            self._warnings.warn_of(done.written.numbers.unknown_fields)
            # 5. Delete files of failed and speculative task attempts, decide to commit, and complete the deltacommit.
            # The topics are checked by the newest ledger: another query may have written one since this batch began.
            table.commit(tx, plan, done.written, attempt.number, lambda ledger: self._check_topics(ledger, topics))
            if identity is not None:
                self._remember(identity.batch_id, table)

    @property
    def _follows_schemas(self) -> bool:
        return self._envelope is not None and self._envelope.follows_schemas

    def _with_columns_of(self, table: LsmTable, rows: BatchRows, timeline: Timeline) -> BatchRows:
        """Decode messages to the table's columns, if these follow the schemas of messages."""
        if rows.messages is None or not self._follows_schemas:
            return rows
        # A message without a value is a bad event where the table needs one.
        rules = replace(table.schema_rules(timeline), relaxes=False)
        envelope = replace(rows.messages.envelope, columns=table.columns_at(timeline))
        return rows.decoded_by(replace(rows.messages, envelope=envelope, rules=rules))

    def _columns_after(self, table: LsmTable, rows: BatchRows, timeline: Timeline) -> pa.Schema:
        relaxes = rows.messages is None
        return table.check_batch(rows.schema, timeline, self._operation, relaxes=relaxes)

    def numbers(self, batch_id: int) -> BatchNumbers | None:
        """Return the counts and times of one of the last 100 batches; None when it was not written by this sink."""
        return self._numbers.get(batch_id)

    def _remember(self, batch_id: int, table: LsmTable) -> None:
        if table.last_numbers is not None:
            self._numbers[batch_id] = table.last_numbers
        for old in sorted(self._numbers)[:-_REMEMBERED]:
            del self._numbers[old]

    def _check_topics(self, ledger: WriterLedger, topics: frozenset[str]) -> None:
        """Refuse events of several topics: rows of one would replace rows of the other.

        Args:
            ledger: names the topics that were written before, also by other processes.
            topics: topics of the batch.

        Raises:
            ConfigError: there are several, and the options do not accept that.
        """
        if self._options[config.SHARE_TABLES]:
            return
        if len(topics) > 1:
            first, second, *_ = sorted(topics)
            raise ConfigError(
                f"the batch has events of topics {first!r} and {second!r}, and the table {self._path!s} is for one "
                "topic: give each topic a sink of its own, as jobs/kafka_to_lsm.py does (docs/kafka.md), or set "
                f"{config.SHARE_TABLES.key}=true if the rows of all are of one kind"
            )
        others = [topic for topic in ledger.topics if topic not in topics]
        if topics and others:
            raise ConfigError(
                f"the batch has events of topic {min(topics)!r}, and the table {self._path!s} has rows of topic "
                f"{others[0]!r}, which it would replace: give each topic a table, or, if the rows of both are of one "
                f"kind or the topic was changed on purpose, set {config.SHARE_TABLES.key}=true"
            )

    @property
    def _operation(self) -> str:
        return self._options[config.OPERATION] or "upsert"

    def _rows(self, batch: DataFrame) -> BatchRows:
        """Tell what the batch has: messages that the tasks decode, or rows."""
        if self._envelope is None:
            return BatchRows(batch, arrow_schema(batch.schema))
        zone = batch.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
        return BatchRows.of_messages(batch, self._envelope, zone)

    def _open(self, rows: pa.Schema) -> LsmTable:
        if self._table is None:
            try:
                self._table = LsmTable(self._path, self._options)
            except TableNotFound:
                self._table = self._create(rows)
        return self._table

    def _create(self, rows: pa.Schema) -> LsmTable:
        try:
            return LsmTable.create(self._path, self._new_schema(rows), self._options)
        except ConfigError as refused:
            # Another query may have created the table at the same time.
            try:
                return LsmTable(self._path, self._options)
            except TableNotFound:
                raise refused from None

    def _new_schema(self, rows: pa.Schema) -> pa.Schema:
        hidden = {*CONTROL_COLUMNS, *self._options[config.ARRIVAL_FIELDS]}
        return pa.schema([field for field in rows if field.name not in hidden])

    def _identity(self, batch: DataFrame, batch_id: int) -> BatchIdentity:
        """Identify the batch by writer and batch id. The query id stays the same over restarts from one checkpoint."""
        query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        writer = self._options[config.WRITER_ID] or query
        if not writer:
            raise ConfigError(
                f"the batch belongs to no streaming query: set {config.WRITER_ID.key}, by which a repeated batch id "
                "is recognised"
            )
        return BatchIdentity(writer, batch_id)

    def _dead_letters_of(self, identity: BatchIdentity | None) -> DeadLetters | None:
        """Return the batch's dead-letter folder, after deleting the files of an earlier attempt at the batch."""
        if self._dead_letters is None:
            return None
        if identity is None:
            raise ConfigError(f"{config.ON_BAD_EVENT.key}=dead_letter needs a batch id, which names the folder")
        storage = open_storage(self._dead_letters)
        folder = batch_folder(identity.writer_id, identity.batch_id)
        storage.delete_folder(folder)
        return DeadLetters(storage, folder)


@names_failures
def write_frame(
    rows: DataFrame,
    path: str | os.PathLike[str],
    options: Mapping[str, object] | None = None,
    *,
    batch_id: int | None = None,
) -> None:
    """Write a DataFrame to a table as one commit, as a batch of `LsmSink`; create the table if there is none.

    Args:
        rows: the table's columns. They are computed once, or twice where `LsmSink` reads a batch twice.
        path: the table's folder or URI.
        options: see docs/configuration.md; ``hoodie.datasource.write.operation`` chooses what the rows do.
        batch_id: with the option ``lsm.writer.id``, a number that grows with each batch; a batch whose number is
            committed already is skipped. Without it the rows are written whenever `write_frame` is called.

    Raises:
        LsmError: the rows, the options or the table are at fault; nothing was written.
    """
    sink = LsmSink(path, options)
    sink._write_batch(rows, BatchIdentity.of_batch(sink._options, batch_id))


def _with_new_columns(rows: BatchRows, changing: frozenset[int]) -> BatchRows:
    """Decode messages to the columns that the table has after the schemas of `changing`.

    Raises:
        SchemaError: these schemas change nothing, so that the batch would be read for ever.
    """
    assert rows.messages is not None
    found = rows.decoded_by(rows.messages.after(changing))
    new = [field for field in found.schema if field not in list(rows.schema)]
    if not new:
        named = ", ".join(map(str, sorted(changing)))
        raise SchemaError(f"schemas {named} are said to change the table's columns, and do not: set lsm.kafka.schema")
    named = ", ".join(f"{field.name} {sql_name(field.type)}" for field in new)
    _LOG.warning("the table gets columns by schemas of messages (%s): %s", ", ".join(map(str, sorted(changing))), named)
    return found


def _check_letters(letters: DeadLetters | None, written: int) -> None:
    """Check that the driver sees the dead letters that the tasks wrote.

    Raises:
        StorageError: it does not.
    """
    seen = 0 if letters is None or not written else count_letters(letters)
    if letters is not None and seen < written:
        raise StorageError(
            f"{written:,} dead letters were written by the tasks, and {seen:,} are in {letters.storage.uri}: driver "
            f"and executors need the same files under {config.DEAD_LETTER_PATH.key}, as on a network file system"
        )


def _report_replay(ledger: WriterLedger, identity: BatchIdentity) -> None:
    last = ledger.writers[identity.writer_id].batch_id
    if identity.batch_id == last:
        _LOG.info("batch %d of %s was committed before, nothing is written", last, identity.writer_id)
        return
    _LOG.warning(
        "batch %d of %s is not written, as batch %d was committed before: if the query has a new checkpoint, "
        "give it a new %s",
        *(identity.batch_id, identity.writer_id, last, config.WRITER_ID.key),
    )


def _report_new_writer(ledger: WriterLedger, identity: BatchIdentity) -> None:
    if ledger.writers and identity.writer_id not in ledger.writers:
        _LOG.warning(
            "%s writes to this table for the first time, which %s wrote before: if its checkpoint was lost, events "
            "are written again, and rows stay right by key",
            *(identity.writer_id, ", ".join(sorted(ledger.writers))),
        )


def _dead_letter_path(options: Options) -> str | None:
    if options[config.ON_BAD_EVENT] != "dead_letter":
        return None
    if options[config.DEAD_LETTER_PATH] is None:
        raise ConfigError(
            f"{config.ON_BAD_EVENT.key}=dead_letter needs {config.DEAD_LETTER_PATH.key}, a folder for the bad events"
        )
    return options[config.DEAD_LETTER_PATH]
