"""Plan and commit the writes of a table: columns, file groups, transactions, and what a commit says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from time import perf_counter

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.column_change import NO_CHANGE, ColumnChange
from streaming_lsm.config import Options
from streaming_lsm.decode.unknown_fields import UnknownFieldWarnings
from streaming_lsm.errors import CommitConflict, ConfigError, LsmError, SchemaError, UnsupportedTable, WriteConflict
from streaming_lsm.file_group.lost_files import recorded_files
from streaming_lsm.format.table.key_generation import key_generator
from streaming_lsm.format.table.properties import HASH_FIELDS_KEY, NUM_BUCKETS_KEY, STRAY_ROWS_KEY
from streaming_lsm.index.bucket_check import check_buckets, check_no_buckets
from streaming_lsm.index.file_readers import FILE_READERS
from streaming_lsm.index.group_numbering import numbering_of
from streaming_lsm.index.insert_groups import FileSizes
from streaming_lsm.index.live_file_groups import LiveFileGroups
from streaming_lsm.index.lookup_index import LookupPlan
from streaming_lsm.index.lookup_planning import measured_row_bytes, merged_bases, merges_new_rows, plan_lookup
from streaming_lsm.index.table_index import index_of
from streaming_lsm.keys.generator import ALLOW, KeyGenerator
from streaming_lsm.maintained_table import MaintainedTable
from streaming_lsm.metadata.table import MetadataTable
from streaming_lsm.readable_table import OptionValues, Path
from streaming_lsm.schema import to_avro
from streaming_lsm.schema_evolution import ADD, SchemaRules
from streaming_lsm.services.archiving.planner import ActiveCommits
from streaming_lsm.services.compaction.operation_choice import check_hybrid
from streaming_lsm.services.context import Engine
from streaming_lsm.table_options import ambiguous_keys, index_options
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import BatchIdentity, WriterLedger
from streaming_lsm.txn.conflict import clustered_in_pending
from streaming_lsm.txn.dropped_columns import DROPPED_KEY, dropped_columns, dropped_entry
from streaming_lsm.txn.locked_table import Beside
from streaming_lsm.txn.outcome import Outcome
from streaming_lsm.txn.planned_actions import pending_rewrites
from streaming_lsm.txn.transaction import Transaction
from streaming_lsm.write.intake.control_columns import evolved_columns
from streaming_lsm.write.intake.tombstones import open_deletes, topics_of
from streaming_lsm.write.known_entries import KnownEntries
from streaming_lsm.write.large_base_files import warn_of_large_base_files
from streaming_lsm.write.numbers import NUMBERS_KEY, BatchNumbers
from streaming_lsm.write.partition_writer import WriteResult
from streaming_lsm.write.plan import (
    ALTER_SCHEMA,
    BASE_FILES,
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
from streaming_lsm.write.shuffle.routing import Router

_LOG = logging.getLogger("streaming_lsm.table")

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


class WritableTable(MaintainedTable):
    """Plans and commits the writes of a table; how rows come to its files is left to its subclass and to the sink.

    Attributes:
        last_numbers: counts and times of the last write.
    """

    last_numbers: BatchNumbers | None = None

    def __init__(
        self, path: Path, options: OptionValues | Options | None = None, *, properties: Path | None = None
    ) -> None:
        """Open a table; see `ReadableTable`."""
        super().__init__(path, options, properties=properties)
        self.options = Options(index_options(self.config, self.options)).merged(self.options)
        check_services(self.options)
        self._groups = LiveFileGroups(numbering_of(self.config))
        self._committed: Timeline | None = None
        self._known_entries = KnownEntries()
        self._warnings = UnknownFieldWarnings()
        self._is_uncommitted = False
        self._buckets_stored = False

    def _forget(self) -> None:
        super()._forget()
        self._groups = LiveFileGroups(numbering_of(self.config))

    @cached_property
    def key_generator(self) -> KeyGenerator:
        """The generator of record keys and partition paths."""
        return key_generator(self.config, ambiguous_keys(self.options, self.config))

    # --- write ------------------------------------------------------------------------------------------------

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
            metadata=partial(MetadataTable, readers=FILE_READERS, cache=self._metadata_cache),
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
        self._check_takes_rows(timeline, LiveFileGroups(numbering_of(self.config)))
        self.check_batch(batch, timeline, operation)
        self.config = self.change_version(self.options[config.TABLE_VERSION]).config
        self.__dict__.pop("services", None)

    def prepare_write(self, engine: Engine | None = None) -> None:
        """Do what need not be done while the table's lock is held; call it before `transaction`.

        The live file groups are listed, once. If the write before this one failed, or this is the first one, the
        timeline is archived as far as it is due: a writer that fails again and again leaves a rollback each time, and
        archives nothing after its writes. And with inline clustering those that are planned are run: one that a dead
        process has left refuses writes, after which it would be run.

        Args:
            engine: runs the clusterings; None for that of the table.
        """
        if self._groups.are_listed and not self._is_uncommitted:
            return
        # What fails here fails again under the lock, unless a dead writer's action was the cause.
        with suppress(LsmError, OSError):
            timeline = self._context.load_timeline()
            if not self._groups.are_listed:
                self._groups.refresh(self._context.view(timeline))
            self.services.archive_inline(timeline)
            self.services.finish_clusterings(timeline, engine or self._engine)
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
        lookup = self._lookup_plan(tx.timeline, operation)
        if merges:
            bases = self._groups.bases
        else:
            bases = merged_bases(self._groups, lookup) if lookup is not None and merges_new_rows(self.config) else {}
        versions = self._queries.versions_at(tx.timeline)
        return WritePlan(
            storage=self.storage,
            config=self.config,
            schema=self._queries.schema_at(tx.timeline) if schema is None else schema,
            keys=self.key_generator,
            rule=self.rule,
            operation=operation,
            combine=reduces_keys(operation, self.config, wanted=self.options[_COMBINE[operation]]),
            arrival_fields=self.options[config.ARRIVAL_FIELDS] or arrival_fields,
            files=replace(FileOptions.of(self.options, self.config), ranged=tuple(tx.ranged_columns)),
            file_ids={} if is_replacing else self._groups.file_ids,
            bases=bases,
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
            lookup=lookup,
            may_stray=bool(self.config.partition_fields) and lookup is not None and lookup.keeps_partitions,
            file_names=None if versions is None else versions.file_names,
            columns_version=None if versions is None else versions.latest.version,
            logs=self._groups.newest_logs if self._accumulates_keys and not is_replacing else None,
            known=self._known_entries,
        )

    def _lookup_plan(self, timeline: Timeline, operation: str) -> LookupPlan | None:
        """Plan where the keys of a batch are looked up, and where new ones go; None in a table with buckets."""
        if self.config.has_buckets:
            return None
        writes = timeline.completed_writes
        newest = timeline.read_commit(max(writes, key=lambda write: write.completed or "")).stats if writes else ()
        sizes = FileSizes(
            small_bytes=self.options[config.SMALL_FILE_BYTES],
            file_bytes=self.options[config.BASE_MAX_BYTES],
            row_bytes=measured_row_bytes(newest) or self.options[config.ROW_BYTES],
        )
        reader = self._queries.key_reader(timeline) if operation in (UPSERT, DELETE) else None
        return plan_lookup(
            self._groups,
            sizes,
            reader,
            self._engine.width,
            table=self.config,
            timeline=timeline,
            scan_share=self.options[config.RECORD_INDEX_SCAN_SHARE],
            timelines=self._timelines,
            shard_files=self._metadata_cache.shard_files,
            takes_filters=self.options[config.BLOOMS_OF_METADATA],
            fills=operation not in BASE_FILES,
            moves=self._moves_rows,
            clustered=clustered_in_pending(timeline),
        )

    @property
    def _moves_rows(self) -> bool:
        """Whether with a global index the row of a key moves to the partition of the event that wins.

        Raises:
            ConfigError: it would have to be merged with rows of another partition.
        """
        option = config.MOVES_ROWS.get(self.config.index_type)
        moves = option is not None and self.options[option]
        if option is not None and moves and not self.rule.takes_winner:
            raise ConfigError(
                f"{option.key}=true with partial updates or a record merger: a row would be merged across partitions; "
                f"set {option.key}=false to update it in the partition that it is in"
            )
        return moves

    @property
    def _accumulates_keys(self) -> bool:
        """Whether logs have accumulated key entries: with a bucket index, only if they are asked for."""
        asked = self.options[config.LOG_KEYS_ACCUMULATED]
        wanted = not self.config.has_buckets if asked is None else asked
        return wanted and self.options[config.LOG_KEYS] and self.config.has_native_logs

    @property
    def _retention_seconds(self) -> int:
        """Return how long deletes are kept: without ordering values, native logs or buckets, not at all."""
        keeps = self.rule.event_time and self.config.has_native_logs and self.config.has_buckets
        return self.options[config.TOMBSTONE_RETENTION] if keeps else 0

    @property
    def most_groups_per_partition(self) -> int | None:
        """Most file groups that a partition can have; None for any number."""
        return self.config.num_buckets if self.config.has_buckets else None

    def router(self, tasks: int) -> Router:
        """Build the router that spreads rows over `tasks` so that each file group is written by one task."""
        # Ambiguous keys are checked once, when the rows are collected.
        return Router(replace(self.key_generator, ambiguous=ALLOW), index_of(self.config), tasks)

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
        versions = self._queries.versions_at(timeline)
        return SchemaRules(
            mode=self.options[config.SCHEMA_EVOLUTION] or ADD,
            fills_missing=self.options[config.NULL_FOR_MISSING],
            keys=frozenset(self.config.record_key_fields),
            partitions=frozenset(part.name for part in self.config.partition_fields),
            ordering=frozenset(self.rule.ordering_fields),
            dropped=dropped_columns(timeline),
            renamed={} if versions is None else versions.former_names,
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
        change: ColumnChange = NO_CHANGE,
    ) -> Instant:
        """Remove the files of failed attempts and complete the write, which makes the batch visible to readers.

        Args:
            conflicts: attempts at the batch before this one, for its numbers.
            check: refuses the batch, by the ledger just before the commit, by raising an error.
            deleted: file ids of the partitions that a DELETE_PARTITION deletes.
            change: what an ALTER_SCHEMA does to the columns.

        Raises:
            LsmError: see `Transaction.complete`.
        """
        begun = perf_counter()
        still_open = open_deletes(plan.open_deletes, written.last_events)
        schema = to_avro(plan.schema, self.config.name)
        numbers = BatchNumbers.of(written.numbers, written.stats, self._groups.most_logs_with(written.stats))
        replaced = self._replaced(plan, written) if deleted is None else deleted
        names_slices = self.config.cdc_mode and not self.config.is_copy_on_write
        stats = self._groups.with_slices(written.stats) if names_slices else written.stats
        outcome = Outcome(
            stats, plan.operation.upper(), schema, replaced, plan.operation == INSERT_OVERWRITE_TABLE,
            extra={NUMBERS_KEY: numbers.encode()}, open_deletes=still_open, topics=topics_of(written.last_events),
            sole=plan.sole, renamed=change.renamed,
        )  # fmt: skip
        tx.reconcile(outcome)
        self.services.expiry.begin_anew(replaced or {}, plan.instant)

        def extra(timeline: Timeline) -> Mapping[str, str]:
            if check is not None:
                check(tx.ledger)
            # Read anew: the table may have been deleted, and created again with the same settings.
            if written.stray_rows and load_properties(self.storage).get(STRAY_ROWS_KEY) != "true":
                # Readers look for it after the timeline.
                tx.update_properties({STRAY_ROWS_KEY: "true"})
            return {**self._files_after(timeline, outcome), **self._schema_after(timeline, plan, change)}

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

    def check_change(self, change: ColumnChange, timeline: Timeline) -> None:
        """Check that columns may be changed now.

        Raises:
            CommitConflict: columns are renamed, and a compaction or clustering is pending, which may be run with the
                old names.
        """
        if change.renamed and (pending := pending_rewrites(timeline)):
            raise CommitConflict(
                f"{pending[0].path} in {self.path} is pending, and would write files with the old names of columns: "
                f"run the {pending[0].action}, then rename the columns again"
            )

    def _schema_after(self, timeline: Timeline, plan: WritePlan, change: ColumnChange) -> Mapping[str, str]:
        """Add the changes that other commits made to the table's columns since the write was planned.

        Raises:
            WriteConflict: they contradict those of this write.
        """
        rules = replace(self.schema_rules(timeline), mode=ADD, fills_missing=True)
        names = {DROPPED_KEY: "[]", **dropped_entry(change.gone_after(rules.dropped))} if change else {}
        self.check_change(change, timeline)
        try:
            newest = change.applied(self._queries.schema_at(timeline), lenient=True)
            versions = self._queries.versions_at(timeline)
            if versions is not None and versions.is_renamed_since(plan.columns_version):
                raise SchemaError("columns were renamed")
            if newest.equals(plan.schema):
                return names
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

    def _check_takes_rows(self, timeline: Timeline, groups: LiveFileGroups) -> None:
        """Check that the table accepts writes, see `plan`; `groups` is refreshed with the table's file groups."""
        self.config.check_writable(self.path)
        if self._is_non_blocking and not self.config.has_buckets:
            raise ConfigError(
                f"{config.CONCURRENCY_MODE.key}={config.NON_BLOCKING} needs a bucket index, and {self.path} has the "
                f"index {self.config.index_type}: two writers would each insert a new key; use {config.OPTIMISTIC}"
            )
        if self._is_non_blocking and self.config.is_copy_on_write:
            raise ConfigError(
                f"{config.CONCURRENCY_MODE.key}={config.NON_BLOCKING} needs a MERGE_ON_READ table, and {self.path} is "
                f"COPY_ON_WRITE: two writes of one file group would each replace its base file; use {config.OPTIMISTIC}"
            )
        if not self._timelines.is_config_checked:
            self._check_unchanged()
            self._timelines.is_config_checked, self._timelines.may_be_anew = True, False
        view = self._context.view(timeline)
        groups.refresh(view)
        if not self.config.has_buckets:
            check_no_buckets(self.config, list(groups.file_ids.values()), self.path)
        if self.config.is_copy_on_write and groups.have_rows_in_logs:
            raise UnsupportedTable(
                f"the table at {self.path} is COPY_ON_WRITE but has log files, whose rows a write would lose: "
                "set hoodie.table.type back to MERGE_ON_READ"
            )
        if self._only_options_say_buckets:
            check_buckets(self.config, view.slices(), self._queries.key_reader(timeline))

    @property
    def _only_options_say_buckets(self) -> bool:
        stored = NUM_BUCKETS_KEY in self.config.properties or self._buckets_stored
        return self.config.has_buckets and not stored

    def _store_buckets(self, tx: Transaction) -> None:
        """Store the bucket index in the table, for all later writers (docs/format/10-rules.md, "Rule 33")."""
        self._buckets_stored = True
        hashed = ",".join(self.config.hash_fields)
        tx.update_properties({NUM_BUCKETS_KEY: str(self.config.num_buckets), HASH_FIELDS_KEY: hashed})


def check_services(options: Options) -> None:
    """Refuse limits of table services that contradict each other."""
    ActiveCommits.of(options)
    check_hybrid(options)
