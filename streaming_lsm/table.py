"""Read, write and maintain a table without Spark, through `LsmTable`; what maintains it is in `MaintainedTable`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from time import perf_counter

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.casts import fit_known
from streaming_lsm.config import Options, resolve
from streaming_lsm.decode.unknown_fields import UnknownFieldWarnings
from streaming_lsm.errors import ConfigError, Fenced, LsmError, SchemaError, UnsupportedTable, WriteConflict
from streaming_lsm.file_group.lost_files import recorded_files
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.format.table.key_generation import key_generator
from streaming_lsm.format.table.properties import HASH_FIELDS_KEY, NUM_BUCKETS_KEY
from streaming_lsm.index.base import Index
from streaming_lsm.index.bucket import index_of
from streaming_lsm.index.bucket_check import check_buckets
from streaming_lsm.index.live_file_groups import LiveFileGroups
from streaming_lsm.keys.generator import ALLOW, KeyGenerator
from streaming_lsm.maintained_table import MaintainedTable
from streaming_lsm.metadata.table import MetadataTable
from streaming_lsm.query.queries import QueryOptions
from streaming_lsm.readable_table import Filter, OptionValues, Path
from streaming_lsm.schema import IS_DELETED, table_schema, to_avro
from streaming_lsm.schema_evolution import ADD, SchemaRules, without_columns
from streaming_lsm.services.archiving.planner import ActiveCommits
from streaming_lsm.services.compaction.operation_choice import check_hybrid
from streaming_lsm.services.context import Engine
from streaming_lsm.services.ttl.planner import ExpiredPartitions
from streaming_lsm.storage.failures import names_failures
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.table_options import ambiguous_keys, create_table
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import BatchIdentity, WriterLedger
from streaming_lsm.txn.dropped_columns import dropped_columns, dropped_entry
from streaming_lsm.txn.locked_table import Beside
from streaming_lsm.txn.outcome import Outcome
from streaming_lsm.txn.retries import Attempt, write_with_retries
from streaming_lsm.txn.transaction import Transaction
from streaming_lsm.write.intake.batch_columns import columns_of, stored_columns
from streaming_lsm.write.intake.control_columns import evolved_columns
from streaming_lsm.write.intake.given_rows import Rows, arrow_of
from streaming_lsm.write.intake.tombstones import has_sources, open_deletes, topics_of
from streaming_lsm.write.large_base_files import warn_of_large_base_files
from streaming_lsm.write.numbers import NUMBERS_KEY, BatchNumbers, added
from streaming_lsm.write.partition_writer import CollectedRows, WriteResult, collect, discard_late, write_collected
from streaming_lsm.write.plan import (
    ALTER_SCHEMA,
    BULK_INSERT,
    DELETE,
    DELETE_PARTITION,
    INSERT,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
    REPLACING,
    UPSERT,
    DeadLetters,
    FileOptions,
    WritePlan,
    reduces_keys,
    write_action,
)
from streaming_lsm.write.shuffle.routing import Router, positions_by_task

_LOG = logging.getLogger(__name__)

_COMBINE = {
    UPSERT: config.COMBINE_UPSERT,
    INSERT: config.COMBINE_INSERT,
    BULK_INSERT: config.COMBINE_INSERT,
    INSERT_OVERWRITE: config.COMBINE_INSERT,
    INSERT_OVERWRITE_TABLE: config.COMBINE_INSERT,
    DELETE_PARTITION: config.COMBINE_DELETE,
    DELETE: config.COMBINE_DELETE,
    ALTER_SCHEMA: config.COMBINE_UPSERT,
}


class LsmTable(MaintainedTable):
    """Reads, writes and maintains a table of any supported version and layout.

    Attributes:
        path: the table's base path, as a URI.
        config: the table's config, from `hoodie.properties`.
        options: the options given when the table was opened.
        last_numbers: counts and times of the last write.
        runtime: clock, sleep, ids and process checks, which tests replace.
    """

    last_numbers: BatchNumbers | None = None

    def __init__(
        self, path: Path, options: OptionValues | Options | None = None, *, properties: Path | None = None
    ) -> None:
        """Open a table; see `ReadableTable`."""
        super().__init__(path, options, properties=properties)
        _check_services(self.options)
        self._groups = LiveFileGroups(self.config.num_buckets)
        self._committed: Timeline | None = None
        self._warnings = UnknownFieldWarnings()
        self._is_uncommitted = False
        self._buckets_stored = False

    @classmethod
    @names_failures
    def create(
        cls,
        path: Path,
        schema: pa.Schema,
        options: OptionValues | Options,
        *,
        properties: Path | None = None,
    ) -> LsmTable:
        """Create an empty table; if two processes create it at once, one of them gets a `ConfigError`.

        Args:
            path: a folder that is not a table yet.
            schema: the columns; meta columns among them are ignored.
            options: at least ``hoodie.table.name`` and ``hoodie.datasource.write.recordkey.field``.
            properties: a Java properties file with options.

        Raises:
            ConfigError: options are missing or contradict each other, or there is a table already.
            SchemaError: a column type that a Hudi table cannot hold.
        """
        chosen = options if isinstance(options, Options) else resolve(options, properties)
        _check_services(chosen)
        create_table(open_storage(path), chosen, table_schema(schema))
        return cls(path, chosen)

    def _forget(self) -> None:
        super()._forget()
        self._groups = LiveFileGroups(self.config.num_buckets)

    @cached_property
    def key_generator(self) -> KeyGenerator:
        """The generator of record keys and partition paths."""
        return key_generator(self.config, ambiguous_keys(self.options, self.config))

    # --- write ------------------------------------------------------------------------------------------------

    def upsert(self, rows: Rows, *, batch_id: int | None = None) -> Instant | None:
        """Insert rows, or update those of existing keys; rows with ``_hoodie_is_deleted`` delete their keys.

        Args:
            rows: all columns of the table, found by name: an Arrow table, batch or reader, a data frame of pandas or
                polars, a mapping of columns, or what else has an Arrow C stream. A reader of record batches is written
                by one task, which holds ``lsm.write.buffer.bytes`` of it in memory.
            batch_id: with the option ``lsm.writer.id``, a number that grows with each batch; a batch whose number
                is committed already is skipped.

        Returns:
            The completed instant; None if the batch was committed before.

        Raises:
            RecordError, SchemaError: the rows do not fit the table; nothing was written.
            CommitConflict: another writer holds the lock; retry when it has finished.
        """
        return self._write(UPSERT, rows, batch_id)

    def insert(self, rows: Rows, *, batch_id: int | None = None) -> Instant | None:
        """Insert rows; by default rows of one key are not combined before they are written. See `upsert`."""
        return self._write(INSERT, rows, batch_id)

    def bulk_insert(self, rows: Rows, *, batch_id: int | None = None) -> Instant | None:
        """Insert rows; those of empty buckets are written directly to sorted base files. See `upsert`."""
        return self._write(BULK_INSERT, rows, batch_id)

    @names_failures
    def delete(
        self, keys: Rows | None = None, *, where: Filter | None = None, batch_id: int | None = None
    ) -> Instant | None:
        """Delete by key, or the rows of a filter.

        Args:
            keys: the record key and partition columns. With the ordering columns a delete is ordered like a
                row; without them (or where they are null) it deletes every version committed before.
            where: see `filter` of `scan`, instead of `keys`. The rows for which it is true when the write begins are
                deleted; with ordering fields a greater version that another writer commits meanwhile stays.
            batch_id: see `upsert`.

        Returns:
            The completed instant; None if the batch was committed before, or no row is to be deleted.
        """
        if (keys is None) == (where is None):
            raise ConfigError("delete takes the keys of the rows, or where=, a filter: give one of them")
        return self._delete_where(where, batch_id) if keys is None else self._write(DELETE, keys, batch_id)

    def _delete_where(self, where: Filter | None, batch_id: int | None) -> Instant | None:
        table = self.config
        partition = (field.name for field in table.partition_fields)
        fields = (*table.record_key_fields, *partition, *table.ordering_fields)
        names = [*dict.fromkeys(name.partition(".")[0] for name in fields)]

        def rows() -> pa.Table | None:
            found = self._queries.snapshot(QueryOptions(names, where), None).to_arrow()
            return found if found.num_rows or batch_id is not None else None

        return self._write_batch(DELETE, pa.schema([self.schema.field(name) for name in names]), rows, batch_id)

    def insert_overwrite(self, rows: Rows, *, batch_id: int | None = None) -> Instant | None:
        """Replace the partitions that rows belong to by these rows; the other partitions stay. See `upsert`.

        A write of these partitions that is completed meanwhile is a conflict: the rows are written again.
        """
        return self._write(INSERT_OVERWRITE, rows, batch_id)

    def insert_overwrite_table(self, rows: Rows, *, batch_id: int | None = None) -> Instant | None:
        """Replace all rows of the table by these, in one commit; see `insert_overwrite`."""
        return self._write(INSERT_OVERWRITE_TABLE, rows, batch_id)

    @names_failures
    def delete_partitions(self, partitions: Sequence[str], *, batch_id: int | None = None) -> Instant | None:
        """Delete all rows of some partitions, in one commit; a clean deletes their files later.

        Args:
            partitions: partition paths, such as ``nl`` or ``country=nl``, as the table's folders are named.
            batch_id: see `upsert`.

        Raises:
            ConfigError: a partition has no rows; nothing was deleted.
        """
        self.prepare_write()
        identity = BatchIdentity.of_batch(self.options, batch_id)
        chosen = (partitions,) if isinstance(partitions, str) else tuple(dict.fromkeys(partitions))

        def write(attempt: Attempt) -> Instant | None:
            with self.transaction(identity, alone=attempt.alone, operation=DELETE_PARTITION) as tx:
                return None if tx.already_committed else self._delete_partitions(tx, chosen, attempt)

        completed = write_with_retries(self.options, self.runtime, write)
        if completed is not None:
            self.run_services()
        return completed

    @names_failures
    def drop_columns(self, columns: Sequence[str]) -> Instant:
        """Drop columns, or fields inside columns, in one commit, which writes no data file.

        Queries do not show them from then on, except as of a time before. Files keep their values until a compaction,
        or a write to a copy-on-write table, writes the rows anew. Columns of these names cannot be added again.

        Args:
            columns: full names: ``note``, ``address.street``, ``items.element.price``, ``prices.value.currency``.

        Raises:
            SchemaError: a column is not there, or the table needs it; nothing was dropped.
        """
        self.prepare_write()
        chosen = _names_to_drop(columns)

        def write(attempt: Attempt) -> Instant:
            with self.transaction(alone=attempt.alone, operation=ALTER_SCHEMA) as tx:
                left = self._schema_without(tx.timeline, chosen)
                plan = self.plan(tx, ALTER_SCHEMA, schema=left)
                plan = replace(plan.at(tx.begin(plan.action)), sole=True)
                return self.commit(tx, plan, WriteResult(()), attempt.number, dropped=chosen)

        completed = write_with_retries(self.options, self.runtime, write)
        self.run_services()
        return completed

    @names_failures
    def plan_drop_columns(self, columns: Sequence[str]) -> pa.Schema:
        """Return the columns that `drop_columns` would leave; raises as it does, and changes nothing."""
        return self._schema_without(self.timeline, _names_to_drop(columns))

    def _schema_without(self, timeline: Timeline, columns: Sequence[str]) -> pa.Schema:
        table = self.config
        marks = {IS_DELETED, self.rule.delete_field or IS_DELETED}
        partition = (part.name for part in table.partition_fields)
        needed = {*table.record_key_fields, *partition, *table.ordering_fields, *marks}
        return without_columns(self._queries.schema_at(timeline), columns, needed)

    @names_failures
    def expire_partitions(self) -> Instant | None:
        """Delete the partitions that have expired, by the options; those that others write meanwhile stay.

        Returns:
            The completed replacecommit; None if no partition has expired.
        """
        self.prepare_write()
        completed = self._expire_partitions()
        if completed is not None:
            self.run_services()
        return completed

    @names_failures
    def expired_partitions(self) -> ExpiredPartitions:
        """Select the partitions that `expire_partitions` would delete; lists the table, and changes nothing."""
        expiry = self.services.expiry
        survey = expiry.look()
        return expiry.none() if survey is None else expiry.select(survey.slices, survey.timeline)

    def _expire_partitions(self) -> Instant | None:
        expiry = self.services.expiry

        def write(attempt: Attempt) -> Instant | None:
            survey = expiry.look()
            expired = expiry.none() if survey is None else expiry.select(survey.slices, survey.timeline)
            expiry.record_first_writes()
            if survey is None or not expired:
                return None
            with self.transaction(alone=attempt.alone, operation=DELETE_PARTITION) as tx:
                expired = expiry.select(survey.at(self._context, tx.timeline), tx.timeline)
                if not expired:
                    return None
                completed = self._delete_partitions(tx, tuple(expired.since), attempt)
                expiry.deleted(expired)
                return completed

        return write_with_retries(self.options, self.runtime, write)

    def _delete_partitions(self, tx: Transaction, partitions: Sequence[str], attempt: Attempt) -> Instant:
        plan = self.plan(tx, DELETE_PARTITION)
        known = self._groups.ids_in(partitions)
        for unknown in (partition for partition in partitions if partition not in known):
            raise ConfigError(
                f"partition {unknown!r} of {self.path} has no file groups: give the paths of partitions as "
                "`LsmTable.file_slices` lists them; nothing was deleted"
            )
        plan = replace(plan.at(tx.begin(plan.action)), sole=True)
        return self.commit(tx, plan, WriteResult(()), attempt.number, deleted=known)

    def transaction(
        self,
        identity: BatchIdentity | None = None,
        beside: Beside | None = None,
        *,
        alone: bool = False,
        operation: str = UPSERT,
    ) -> Transaction:
        """Create a transaction, which loads the timeline, and begins and completes one action.

        Args:
            identity: the batch of a write; None for a write that cannot be a replay, and for services.
            beside: actions of other writers beside which this one may be made; by default those of a write, as the
                concurrency mode says.
            alone: whether other writes wait for this one, see `Transaction`.
            operation: the operation of a write, which says its action.

        Raises:
            UnsupportedTable: the table is read-only in this release.
        """
        self.config.check_changeable(self.path)
        return Transaction(
            self.storage,
            self.config,
            self.options,
            identity=identity,
            runtime=self.runtime,
            timelines=self._timelines,
            metadata=MetadataTable,
            beside=beside or self._beside_write,
            alone=alone,
            action=write_action(operation, self.config),
        )

    def _new_transaction(self, beside: Beside) -> Transaction:
        return self.transaction(beside=beside)

    @property
    def _is_non_blocking(self) -> bool:
        return self.options[config.CONCURRENCY_MODE] == config.NON_BLOCKING

    @property
    def _beside_write(self) -> Beside:
        single = self.options[config.CONCURRENCY_MODE] == config.SINGLE_WRITER
        return Beside.SERVICES if single else Beside.WRITES

    def upgrade_if_asked(self, batch: pa.Schema, operation: str) -> None:
        """Upgrade the table to ``hoodie.write.table.version``, if ``hoodie.write.auto.upgrade`` is set.

        Call it before `transaction`. The batch is checked first, so that a refused batch does not upgrade the table.

        Raises:
            LsmError: see `check_batch`, `plan` and `change_version`.
        """
        if not self.options.is_set(config.TABLE_VERSION) or self.options[config.TABLE_VERSION] <= self.config.version:
            return
        timeline = self.timeline
        self._check_takes_rows(timeline, LiveFileGroups(self.config.num_buckets))
        self.check_batch(batch, timeline, operation)
        self.config = self.change_version(self.options[config.TABLE_VERSION]).config
        self.__dict__.pop("services", None)

    def prepare_write(self) -> None:
        """Do what need not be done while the table's lock is held; call it before `transaction`.

        The live file groups are listed, once. If the write before this one failed, or this is the first one, the
        timeline is archived as far as it is due: a writer that fails again and again leaves a rollback each time, and
        archives nothing after its writes.
        """
        if self._groups.are_listed and not self._is_uncommitted:
            return
        # What fails here fails again under the lock, unless a dead writer's action was the cause.
        with suppress(LsmError, OSError):
            timeline = self._context.load_timeline()
            if not self._groups.are_listed:
                self._groups.refresh(self._context.view(timeline))
            self.services.archive_inline(timeline)
            self._is_uncommitted = False

    def plan(
        self,
        tx: Transaction,
        operation: str,
        *,
        schema: pa.Schema | None = None,
        arrival_fields: tuple[str, ...] = (),
        dead_letters: DeadLetters | None = None,
    ) -> WritePlan:
        """Plan a write: check the table and collect the settings that its tasks need.

        Args:
            tx: the transaction, before it begins the write.
            operation: the operation of the write.
            schema: the table's columns after it, as `check_batch` returns them; None for those that it has.
            arrival_fields: columns that order the events of the batch, unless the options name some.
            dead_letters: where events go that cannot be read; None fails the batch.

        Raises:
            ConfigError: the table's settings were changed since it was opened, or its buckets differ from those of the
                options.
            UnsupportedTable: this release does not write tables with these settings.
            TableNotFound: the table was removed.
        """
        self._is_uncommitted = True
        self._check_takes_rows(tx.timeline, self._groups)
        if self._only_options_say_buckets:
            self._store_buckets(tx)
        # What replaces file groups has none of its own: all rows go to new ones.
        is_replacing = operation in REPLACING
        merges = self.config.is_copy_on_write and not is_replacing
        return WritePlan(
            storage=self.storage,
            config=self.config,
            schema=self._queries.schema_at(tx.timeline) if schema is None else schema,
            keys=self.key_generator,
            rule=self.rule,
            operation=operation,
            combine=reduces_keys(operation, self.config, wanted=self.options[_COMBINE[operation]]),
            arrival_fields=self.options[config.ARRIVAL_FIELDS] or arrival_fields,
            files=FileOptions.of(self.options),
            file_ids={} if is_replacing else self._groups.file_ids,
            bases=self._groups.bases if merges else {},
            kept_deletes=self._groups.kept_deletes if merges else {},
            retention_seconds=self._retention_seconds if self.config.is_copy_on_write else 0,
            fills_missing=self.options[config.NULL_FOR_MISSING],
            dead_letters=dead_letters,
            open_deletes=tx.open_deletes,
            buffer_bytes=self.options[config.BUFFER_BYTES],
            spill_folder=self.options[config.SPILL_FOLDER],
            fixed_ids=self._is_non_blocking and not is_replacing,
            replaced=tx.timeline.replaced_groups,
            detect_early=self.options[config.EARLY_CONFLICTS] and not self._is_non_blocking,
        )

    @property
    def _retention_seconds(self) -> int:
        """How long deletes are kept: without ordering values, or without native logs, not at all."""
        keeps = self.rule.event_time and self.config.has_native_logs
        return self.options[config.TOMBSTONE_RETENTION] if keeps else 0

    def new_index(self) -> Index:
        """Create an index for one batch."""
        return index_of(self.config)

    def router(self, tasks: int) -> Router:
        """Build the router that spreads rows over `tasks` so that each file group is written by one task."""
        # Ambiguous keys are checked once, when the rows are collected.
        return Router(replace(self.key_generator, ambiguous=ALLOW), self.new_index(), tasks)

    def check_batch(self, batch: pa.Schema, timeline: Timeline, operation: str, *, relaxes: bool = True) -> pa.Schema:
        """Check the columns of a batch before anything is written, and return those of the table after it.

        Args:
            batch: the columns of the batch.
            timeline: the timeline before it.
            operation: the operation of the write.
            relaxes: whether columns become nullable that are nullable in the batch.

        Raises:
            SchemaError: a column is missing, unknown or of a type that does not fit.
        """
        schema, arrivals = self._queries.schema_at(timeline), self.options[config.ARRIVAL_FIELDS]
        rules = replace(self.schema_rules(timeline), relaxes=relaxes)
        return evolved_columns(batch, schema, arrivals, rules, keys_only=operation == DELETE)

    def columns_at(self, timeline: Timeline) -> pa.Schema:
        """Return the table's columns as of a timeline, without meta columns."""
        return self._queries.schema_at(timeline)

    def schema_rules(self, timeline: Timeline) -> SchemaRules:
        """Return the rules by which the table's columns follow those of a batch."""
        return SchemaRules(
            mode=self.options[config.SCHEMA_EVOLUTION] or ADD,
            fills_missing=self.options[config.NULL_FOR_MISSING],
            keys=frozenset(self.config.record_key_fields),
            partitions=frozenset(part.name for part in self.config.partition_fields),
            ordering=frozenset(self.rule.ordering_fields),
            dropped=dropped_columns(timeline),
        )

    def commit(
        self,
        tx: Transaction,
        plan: WritePlan,
        written: WriteResult,
        conflicts: int = 0,
        check: Callable[[WriterLedger], object] | None = None,
        *,
        deleted: Mapping[str, tuple[str, ...]] | None = None,
        dropped: Sequence[str] = (),
    ) -> Instant:
        """Remove the files of failed attempts and complete the write, which makes the batch visible to readers.

        Args:
            conflicts: attempts at the batch before this one, for its numbers.
            check: refuses the batch, by the ledger just before the commit, by raising an error.
            deleted: file ids of the partitions that a DELETE_PARTITION deletes.
            dropped: names of the columns that an ALTER_SCHEMA drops.

        Raises:
            LsmError: see `Transaction.complete`.
        """
        begun = perf_counter()
        still_open = open_deletes(plan.open_deletes, written.last_events)
        schema = to_avro(plan.schema, self.config.name)
        numbers = BatchNumbers.of(written.numbers, written.stats, self._groups.most_logs_with(written.stats))
        replaced = self._replaced(plan, written) if deleted is None else deleted
        outcome = Outcome(
            written.stats, plan.operation.upper(), schema, replaced, plan.operation == INSERT_OVERWRITE_TABLE,
            extra={NUMBERS_KEY: numbers.encode()}, open_deletes=still_open, topics=topics_of(written.last_events),
            sole=plan.sole,
        )  # fmt: skip
        tx.reconcile(outcome)
        self.services.expiry.begin_anew(replaced or {}, plan.instant)

        def extra(timeline: Timeline) -> Mapping[str, str]:
            if check is not None:
                check(tx.ledger)
            return {**self._files_after(timeline, outcome), **self._schema_after(timeline, plan, dropped)}

        completed = tx.complete(outcome, extra)
        self._committed, self._is_uncommitted = tx.timeline.with_latest(completed), False
        self.last_numbers = replace(
            numbers,
            commit_ms=round(1000 * (perf_counter() - begun)),
            wait_ms=tx.waited_ms,
            lock_ms=tx.held_ms,
            conflicts=conflicts,
        )
        _LOG.info("%s of %s: %s", completed.requested, self.config.name, self.last_numbers.line())
        warn_of_large_base_files(written.stats, self.config, self.options, self.path)
        return completed

    def _schema_after(self, timeline: Timeline, plan: WritePlan, dropped: Sequence[str]) -> Mapping[str, str]:
        """Add the changes that other commits made to the table's columns since the write was planned.

        Args:
            dropped: columns that the write drops.

        Raises:
            WriteConflict: they contradict those of this write.
        """
        newest = without_columns(self._queries.schema_at(timeline), dropped, lenient=True)
        rules = replace(self.schema_rules(timeline), mode=ADD, fills_missing=True)
        names = dropped_entry({*rules.dropped, *dropped}) if dropped else {}
        if newest.equals(plan.schema):
            return names
        try:
            merged = rules.evolved(newest, plan.schema)
        except SchemaError as error:
            raise WriteConflict(
                f"another write has changed the columns of {self.path} since this one began: {error}"
            ) from error
        return {**names, "schema": to_avro(merged, self.config.name)}

    def _replaced(self, plan: WritePlan, written: WriteResult) -> Mapping[str, tuple[str, ...]] | None:
        """Return the file groups that a write replaces, as they were when it began; None for other operations."""
        if plan.operation not in REPLACING:
            return None
        if plan.operation == INSERT_OVERWRITE_TABLE:
            return self._groups.ids_in()
        # A partition without file groups is replaced, too: what others write to it meanwhile is a conflict.
        partitions = sorted(written.partitions)
        return {**dict.fromkeys(partitions, ()), **self._groups.ids_in(partitions)}

    def _files_after(self, timeline: Timeline, outcome: Outcome) -> Mapping[str, str]:
        """Record the files of all latest slices after a write; `timeline` is the one just before it."""
        # A compaction may have been completed since the write began.
        self._groups.refresh(self._context.view(timeline))
        return recorded_files(timeline, self._groups.state_with(outcome.stats, outcome.replaced))

    @names_failures
    def run_services(self, engine: Engine | None = None) -> None:
        """Delete expired partitions, compact, clean and archive as the options say; errors are logged.

        Call it after the transaction of `commit` ended.
        """
        if self._committed is not None:
            written = self.last_numbers
            self.services.expire_inline(self._expire_partitions)
            self.last_numbers = written
            self.services.run_inline(self._committed, engine or self._engine)

    @names_failures
    def _write(self, operation: str, rows: Rows, batch_id: int | None) -> Instant | None:
        data = arrow_of(rows, lambda: self.schema)
        is_reader = isinstance(data, pa.RecordBatchReader)
        return self._write_batch(operation, columns_of(data), lambda: data, batch_id, once=is_reader)

    def _write_batch(
        self,
        operation: str,
        columns: pa.Schema,
        rows: Callable[[], pa.Table | pa.RecordBatchReader | None],
        batch_id: int | None,
        *,
        once: bool = False,
    ) -> Instant | None:
        """Write a batch, again as a whole if it conflicts with another write.

        Args:
            columns: those of the rows.
            rows: returns the rows when the write has begun; None for no write.
            once: whether they are given once, so that the batch cannot be written again.
        """
        self.upgrade_if_asked(columns, operation)
        self.prepare_write()
        identity = BatchIdentity.of_batch(self.options, batch_id)

        def write(attempt: Attempt) -> Instant | None:
            with self.transaction(identity, alone=attempt.alone, operation=operation) as tx:
                data = None if tx.already_committed else rows()
                if data is None:
                    return None
                schema = self.check_batch(columns, tx.timeline, operation)
                plan = self.plan(tx, operation, schema=schema)
                # From here on other writers may change the table.
                plan = replace(plan.at(tx.begin(plan.action)), sole=True)
                return self._write_here(tx, plan, data, attempt)

        completed = write(Attempt()) if once else write_with_retries(self.options, self.runtime, write)
        if completed is not None:
            self.run_services()
        return completed

    def _write_here(
        self, tx: Transaction, plan: WritePlan, data: pa.Table | pa.RecordBatchReader, attempt: Attempt
    ) -> Instant:
        """Write and commit rows with threads of this process."""
        parts: list[WriteResult] = []
        ignored: Counter[str] = Counter()
        try:
            tasks = self._collect(plan, data, ignored)
            parts.extend(self._engine.map(lambda task: write_collected(plan, *task), tasks))
        except BaseException:
            discard_late(plan, parts)
            raise
        self._warnings.warn_of(ignored)
        joined = WriteResult.joined(parts)
        joined = replace(joined, numbers=replace(joined.numbers, unknown_fields=added([ignored])))
        try:
            return self.commit(tx, plan, joined, attempt.number)
        except Fenced:  # nothing was published
            discard_late(plan, parts)
            raise

    def _collect(
        self, plan: WritePlan, data: pa.Table | pa.RecordBatchReader, ignored: Counter[str] | None = None
    ) -> list[tuple[CollectedRows, WriteToken]]:
        """Collect the rows of each task, cast to the table's types, as the text of a key depends on its type.

        Args:
            plan, data: the write, and its rows.
            ignored: receives the number of rows by column that is not stored.
        """

        def fitted(batch: pa.RecordBatch) -> pa.RecordBatch:
            stored, counts = stored_columns(batch, plan.schema, plan.arrival_fields)
            if ignored is not None:
                ignored.update(counts)
            return fit_known(stored, plan.schema)

        if isinstance(data, pa.RecordBatchReader):  # it may have more rows than fit in memory
            token = WriteToken(0, 0, 0)
            return [(collect(plan, map(fitted, data), token), token)]
        # A tombstone is interpreted by the event before it, so that one task must have all events.
        tasks = 1 if has_sources(data.schema) else min(self._engine.width, self.new_index().max_groups_per_partition)
        router = self.router(tasks)
        batches = [fitted(batch) for batch in data.to_batches()]
        routed = [(batch, list(positions_by_task(router.route(batch), tasks))) for batch in batches]

        def collect_task(task: int) -> tuple[CollectedRows, WriteToken]:
            mine = (batch.take(pa.array(positions[task], pa.int64())) for batch, positions in routed)
            token = WriteToken(task, 0, 0)
            return collect(plan, mine, token), token

        return list(self._engine.map(collect_task, range(tasks)))

    def _check_takes_rows(self, timeline: Timeline, groups: LiveFileGroups) -> None:
        """Check that the table accepts writes, see `plan`; `groups` is refreshed with the table's file groups."""
        self.config.check_writable(self.path)
        if self._is_non_blocking and self.config.is_copy_on_write:
            raise ConfigError(
                f"{config.CONCURRENCY_MODE.key}={config.NON_BLOCKING} needs a MERGE_ON_READ table, and {self.path} is "
                f"COPY_ON_WRITE: two writes of one file group would each replace its base file; use {config.OPTIMISTIC}"
            )
        if not self._timelines.is_config_checked:
            self._check_unchanged()
            self._timelines.is_config_checked = True
        view = self._context.view(timeline)
        groups.refresh(view)
        if self.config.is_copy_on_write and groups.have_rows_in_logs:
            raise UnsupportedTable(
                f"the table at {self.path} is COPY_ON_WRITE but has log files, whose rows a write would lose: "
                "set hoodie.table.type back to MERGE_ON_READ"
            )
        if self._only_options_say_buckets:
            check_buckets(self.config, view.slices(), self._queries.key_reader(timeline))

    def _check_unchanged(self) -> None:
        """Check that the stored config has not changed since the table was opened, which may be months ago."""
        if self._config_of(load_properties(self.storage)) != self.config:
            raise ConfigError(f"{self.path}/{PROPERTIES_PATH} was changed since the table was opened; open it again")

    @property
    def _only_options_say_buckets(self) -> bool:
        return NUM_BUCKETS_KEY not in self.config.properties and not self._buckets_stored

    def _store_buckets(self, tx: Transaction) -> None:
        """Store the bucket index in the table, for all later writers (docs/format/10-rules.md, "Rule 33")."""
        self._buckets_stored = True
        hashed = ",".join(self.config.hash_fields)
        tx.update_properties({NUM_BUCKETS_KEY: str(self.config.num_buckets), HASH_FIELDS_KEY: hashed})


def _check_services(options: Options) -> None:
    """Refuse limits of table services that contradict each other."""
    ActiveCommits.of(options)
    check_hybrid(options)


def _names_to_drop(columns: Sequence[str]) -> tuple[str, ...]:
    chosen = (columns,) if isinstance(columns, str) else tuple(dict.fromkeys(columns))
    if not chosen:
        raise ConfigError("drop_columns takes the names of columns: give one at least")
    return chosen
