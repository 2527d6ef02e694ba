"""Read, write and maintain a table without Spark, through `LsmTable`; commits are in `WritableTable`, services in
`MaintainedTable`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from streaming_lsm.casts import fit_known
from streaming_lsm.column_change import ColumnChange
from streaming_lsm.config import Options, resolve
from streaming_lsm.errors import ConfigError, Fenced, SchemaError
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.given_rows import Rows, arrow_of
from streaming_lsm.query.queries import QueryOptions
from streaming_lsm.readable_table import Filter, OptionValues, Path
from streaming_lsm.schema import table_schema
from streaming_lsm.services.context import Engine
from streaming_lsm.services.ttl.planner import ExpiredPartitions
from streaming_lsm.storage.failures import names_failures
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.table_options import create_table
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import BatchIdentity
from streaming_lsm.txn.retries import Attempt, write_with_retries
from streaming_lsm.txn.transaction import Transaction
from streaming_lsm.writable_table import WritableTable, check_services
from streaming_lsm.write.intake.batch_columns import columns_of, stored_columns
from streaming_lsm.write.intake.tombstones import has_sources
from streaming_lsm.write.numbers import added
from streaming_lsm.write.partition_writer import CollectedRows, WriteResult, collect, discard_late, write_collected
from streaming_lsm.write.plan import (
    ALTER_SCHEMA,
    BULK_INSERT,
    DELETE,
    DELETE_PARTITION,
    INSERT,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
    UPSERT,
    WritePlan,
)
from streaming_lsm.write.shuffle.routing import positions_by_task

T = TypeVar("T")


class LsmTable(WritableTable):
    """Reads, writes and maintains a table of any supported version and layout.

    Attributes:
        path: the table's base path, as a URI.
        config: the table's config, from `hoodie.properties`.
        options: the options given when the table was opened.
        last_numbers: counts and times of the last write.
        runtime: clock, sleep, ids and process checks, which tests replace.
    """

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
        check_services(chosen)
        create_table(open_storage(path), chosen, table_schema(schema))
        return cls(path, chosen)

    def upsert(self, rows: Rows, *, batch_id: int | None = None) -> Instant | None:
        """Insert rows, or update those of existing keys; rows with ``_hoodie_is_deleted`` delete their keys.

        Args:
            rows: all columns of the table, found by name: an Arrow table, batch or reader, a data frame of pandas or
                polars, a mapping of columns, whose lists of numbers get the widths of the table's columns if they fit,
                or what else has an Arrow C stream. A reader of record batches is written by one task, which holds
                ``lsm.write.buffer.bytes`` of it in memory.
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

        completed = self._with_retries(write)
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
        return self._change_columns(ColumnChange(dropped=_names_to_drop(columns)))

    @names_failures
    def plan_drop_columns(self, columns: Sequence[str]) -> pa.Schema:
        """Return the columns that `drop_columns` would leave; raises as it does, and changes nothing."""
        return self._changed_columns(self.timeline, ColumnChange(dropped=_names_to_drop(columns)))

    @names_failures
    def rename_columns(self, names: Mapping[str, str]) -> Instant:
        """Rename columns, or fields inside columns, in one commit, which writes no data file.

        From then on the columns of the table have ids, as with Hudi's schema-on-read (docs/format/01-table.md,
        "Schema-on-read"): files keep the old names, and Hudi's readers need ``hoodie.schema.on.read.enable=true``.
        Columns with the old names cannot be added again.

        Args:
            names: the new name by the full name now: ``{"note": "remark", "items.element.price": "amount"}``.

        Raises:
            SchemaError: a column is not there, or the table needs its name; or a new name is malformed, reserved or
                taken; nothing was renamed.
            CommitConflict: a compaction is pending, whose files would have the old names.
        """
        return self._change_columns(ColumnChange(renamed=_names_to_rename(names)))

    @names_failures
    def plan_rename_columns(self, names: Mapping[str, str]) -> pa.Schema:
        """Return the columns that `rename_columns` would leave; raises as it does, and changes nothing."""
        return self._changed_columns(self.timeline, ColumnChange(renamed=_names_to_rename(names)))

    def _change_columns(self, change: ColumnChange) -> Instant:
        self.prepare_write()

        def write(attempt: Attempt) -> Instant:
            with self.transaction(alone=attempt.alone, operation=ALTER_SCHEMA) as tx:
                left = self._changed_columns(tx.timeline, change)
                plan = self.plan(tx, ALTER_SCHEMA, schema=left)
                plan = replace(plan.at(tx.begin(plan.action)), sole=True)
                return self.commit(tx, plan, WriteResult(()), attempt.number, change=change)

        completed = self._with_retries(write)
        self.run_services()
        return completed

    def _changed_columns(self, timeline: Timeline, change: ColumnChange) -> pa.Schema:
        """Return the columns after a change; raises as `drop_columns` and `rename_columns`."""
        after = change.applied(self._queries.schema_at(timeline), self.config.named_columns)
        self._check_new_names(timeline, change)
        self.check_change(change, timeline)
        return after

    def _check_new_names(self, timeline: Timeline, change: ColumnChange) -> None:
        """Refuse names under which files have the values of other columns; Hudi's readers by name would show them."""
        versions = self._queries.versions_at(timeline) if change.renamed else None
        gone = {name.lower() for name in self.schema_rules(timeline).dropped}
        for old, name in change.renamed.items():
            new = change.full_name(old)
            is_own = versions is not None and versions.had_name(old, name)
            if new.lower() in gone and not is_own:
                raise SchemaError(
                    f"column {old!r} cannot be renamed to {new!r}: older files have values of another column under "
                    "this name; choose another one"
                )

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

        return self._with_retries(write)

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

    def _with_retries(self, write: Callable[[Attempt], T]) -> T:
        return write_with_retries(self.options, self.runtime, write, self.prepare_write)

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

        completed = write(Attempt()) if once else self._with_retries(write)
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

        # A tombstone is interpreted by the event before it, so that one task must have all events.
        # Keys that are looked up are looked up together.
        most = self.most_groups_per_partition or 1
        tasks = 1 if has_sources(data.schema) else min(self._engine.width, most)
        # A reader may have more rows than fit in memory.
        if tasks == 1 or isinstance(data, pa.RecordBatchReader):
            batches = data if isinstance(data, pa.RecordBatchReader) else data.to_batches()
            token = WriteToken(0, 0, 0)
            return [(collect(plan, map(fitted, batches), token), token)]
        router = self.router(tasks)
        batches = [fitted(batch) for batch in data.to_batches()]
        routed = [(batch, list(positions_by_task(router.route(batch), tasks))) for batch in batches]

        def collect_task(task: int) -> tuple[CollectedRows, WriteToken]:
            mine = (batch.take(pa.array(positions[task], pa.int64())) for batch, positions in routed)
            token = WriteToken(task, 0, 0)
            return collect(plan, mine, token), token

        return list(self._engine.map(collect_task, range(tasks)))


def _names_to_drop(columns: Sequence[str]) -> tuple[str, ...]:
    chosen = (columns,) if isinstance(columns, str) else tuple(dict.fromkeys(columns))
    if not chosen:
        raise ConfigError("drop_columns takes the names of columns: give one at least")
    return chosen


def _names_to_rename(names: Mapping[str, str]) -> Mapping[str, str]:
    is_named = isinstance(names, Mapping) and all(isinstance(name, str) for pair in names.items() for name in pair)
    if not names or not is_named:
        raise ConfigError(
            f"rename_columns takes the new names of columns by their names now, as {{'note': 'remark'}}, not {names!r}"
        )
    return dict(names)
