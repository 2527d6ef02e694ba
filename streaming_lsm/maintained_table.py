"""Maintain a table without Spark: its services, savepoints, restores, rollbacks, repairs and versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.readable_table import OptionValues, ReadableTable
from streaming_lsm.services.context import Engine, ServiceContext
from streaming_lsm.services.indexes.changes import create_index, drop_index, rebuild_indexes
from streaming_lsm.services.indexes.check import IndexCheck, check_indexes
from streaming_lsm.services.indexes.inventory import IndexState, list_indexes
from streaming_lsm.services.repair.plan import RepairPlan
from streaming_lsm.services.repair.runner import propose_repair, repair
from streaming_lsm.services.restore import RestorePreview, preview_restore, restore
from streaming_lsm.services.rollback import RollbackPreview, preview_rollback, roll_back
from streaming_lsm.services.savepoints import (
    Savepoint,
    delete_savepoint,
    list_savepoints,
    make_savepoint,
    preview_savepoint,
)
from streaming_lsm.services.scheduler import TableServices
from streaming_lsm.services.survey import savepoints
from streaming_lsm.services.upgrade import ChangePlan, VersionChange, change_version, plan_change
from streaming_lsm.storage.failures import names_failures
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn.locked_table import Beside
from streaming_lsm.txn.transaction import Transaction


class MaintainedTable(ReadableTable):
    """Maintains a table of any supported version and layout; `LsmTable` writes it, too.

    Attributes:
        runtime: clock, sleep, ids and process checks, which tests replace.
    """

    runtime: Runtime = Runtime()

    def _new_transaction(self, beside: Beside) -> Transaction:
        """Create a transaction without a batch, see `LsmTable.transaction`."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Forget what is known of a timeline that was rebuilt."""
        self._timelines = TimelineCache()
        self.__dict__.pop("services", None)

    @cached_property
    def services(self) -> TableServices:
        """The compaction, clustering, cleaning and archiving services of the table."""
        return TableServices(self._context, self.runtime.clock)

    @property
    def _context(self) -> ServiceContext:
        return ServiceContext(
            storage=self.storage,
            config=self.config,
            options=self.options,
            rule=self.rule,
            new_transaction=self._new_transaction,
            timelines=self._timelines,
        )

    @names_failures
    def compact(self, engine: Engine | None = None) -> Instant | None:
        """Run all pending compactions; if none is pending, schedule one and run it.

        Returns:
            The last completed compaction, None if there was nothing to merge.
        """
        return self.services.compact(engine or self._engine)[0]

    @names_failures
    def cluster(self, engine: Engine | None = None) -> Instant | None:
        """Sort rows by the columns that the options say into new file groups, which replace those that they were in.

        Runs all pending clusterings; if none is pending, schedules one and runs it.

        Returns:
            The last completed clustering, None if there was nothing to cluster.

        Raises:
            UnsupportedTable: the table has a bucket index.
            SchemaError: a sort column is not there, or has no order.
        """
        return self.services.cluster(engine or self._engine)[0]

    @names_failures
    def clean(self) -> Instant | None:
        """Delete file slices that no retained commit needs; returns None if there was none."""
        return self.services.clean()

    @names_failures
    def archive(self) -> tuple[Instant, ...]:
        """Move completed actions that nothing needs any more into the history; returns them."""
        return self.services.archive()

    @names_failures
    def indexes(self) -> tuple[IndexState, ...]:
        """Describe the indexes of the table, the partitions of its metadata table, and those that it could have."""
        return list_indexes(self._context)

    @names_failures
    def create_index(self, name: str, form: OptionValues | Options | None = None) -> None:
        """Create an index of all rows and files of the table, while other writers go on.

        Args:
            name: a partition of the metadata table, such as ``record_index``; ``files`` for the metadata table itself.
            form: options of the index, such as its columns, beside those of this table.

        Raises:
            ConfigError: there is one, its name is not known, the options refuse it, or there is no metadata table.
            UnsupportedTable: it cannot be made for this table.
            CommitConflict: other writers held the lock for longer than the options say to wait; another process builds
                it; or the columns of the table changed meanwhile.
            Fenced: another writer took this one for dead.
        """
        create_index(self._context, name, form if isinstance(form, Options) else Options(form))

    @names_failures
    def drop_index(self, name: str) -> None:
        """Drop an index, ``files`` with all others; raises `ConfigError` if there is none, else as `create_index`."""
        drop_index(self._context, name)

    @names_failures
    def check_indexes(self, name: str | None = None) -> IndexCheck:
        """Compare the indexes of the table with its files; nothing is changed.

        Args:
            name: the only one to check; None for all.

        Raises:
            ConfigError: the table has no such index.
            CorruptFileError: a data file cannot be read.
        """
        return check_indexes(self._context, name)

    @names_failures
    def rebuild_indexes(self, names: Sequence[str]) -> list[str]:
        """Drop indexes and create them again in the form that they have, with those that need one of them.

        All others need ``files``, ``partition_stats`` needs ``column_stats``, and secondary indexes ``record_index``.

        Returns:
            The indexes that were created.

        Raises:
            ConfigError: there is no such index, or the options refuse it; nothing was changed.
            UnsupportedTable, CommitConflict, Fenced: see `create_index`; what was not created is dropped.
        """
        return rebuild_indexes(self._context, names)

    @property
    def savepoints(self) -> tuple[Savepoint, ...]:
        """The savepoints of the table, the oldest first."""
        return self._list_savepoints()

    @names_failures
    def _list_savepoints(self) -> tuple[Savepoint, ...]:
        timeline = self.timeline
        while True:
            try:
                return list_savepoints(timeline)
            except CorruptFileError:
                # Another process may have deleted a savepoint since the timeline was read.
                now = self.timeline
                if savepoints(now) == savepoints(timeline):
                    raise
                timeline = now

    @names_failures
    def plan_savepoint(self, instant: str | None = None) -> tuple[Instant, Mapping[str, tuple[str, ...]]]:
        """Return the write as of which `savepoint` would keep the table, and the names of its files by partition path.

        Raises as `savepoint` does, and changes nothing.
        """
        return preview_savepoint(self._context, instant)

    @names_failures
    def savepoint(self, instant: str | None = None, *, user: str = "", comment: str = "") -> Instant:
        """Keep the table as of a write: its files are neither cleaned nor its actions archived.

        Args:
            instant: requested time of a completed write on the timeline; None for the last one.
            user: who makes it, for the list of savepoints.
            comment: why.

        Returns:
            The completed savepoint.

        Raises:
            ConfigError: there is no such write, it is a savepoint already, or files of that state were cleaned.
            CommitConflict: a pending clean deletes files of that state; or another writer holds the lock.
        """
        return make_savepoint(self._context, instant, user, comment)

    @names_failures
    def delete_savepoint(self, instant: str) -> None:
        """Delete a savepoint, by the requested time of its write; raises `ConfigError` if there is none."""
        delete_savepoint(self._context, instant)

    @names_failures
    def plan_rollback(self, instant: str | None = None) -> RollbackPreview:
        """Return what `rollback` would undo; raises as it does, and changes nothing."""
        return preview_rollback(self._context, instant)

    @names_failures
    def rollback(self, instant: str | None = None) -> Instant:
        """Roll back the last completed write, which may be a compaction; its batch may be written again.

        Args:
            instant: its requested time, to be sure that it is the last one; None for the last one.

        Returns:
            The completed rollback, which cannot be undone.

        Raises:
            ConfigError: there is no such write, others were completed or planned after it, a savepoint keeps it, it is
                archived, or files that it superseded were cleaned; nothing was changed.
            CommitConflict: another writer was at work for longer than the options say to wait.
            Fenced: another writer took the lock, and finishes the rollback.
        """
        return roll_back(self._context, instant)

    @names_failures
    def plan_restore(self, instant: str) -> RestorePreview:
        """Return what `restore` would undo; raises as it does, and changes nothing."""
        return preview_restore(self._context, instant)

    @names_failures
    def restore(self, instant: str) -> Instant:
        """Undo everything that was completed after the write of a savepoint, and what is pending but for begun cleans.

        Args:
            instant: requested time of the write of the savepoint.

        Returns:
            The completed restore, which cannot be undone.

        Raises:
            ConfigError: there is no such savepoint, nothing to undo, a later savepoint, or an action that would be
                undone is archived; nothing was changed.
            CorruptFileError: a file of the savepoint is missing; nothing was changed.
            CommitConflict: another writer was at work for longer than the options say to wait.
            Fenced: another writer took the lock, and finishes the restore.
        """
        return restore(self._context, instant)

    @names_failures
    def plan_repair(self, engine: Engine | None = None) -> RepairPlan:
        """Return what `repair` would write; raises as it does but for files, and changes nothing."""
        return propose_repair(self._context, engine or self._engine)

    @names_failures
    def repair(self, engine: Engine | None = None) -> tuple[RepairPlan, int]:
        """Rebuild a lost timeline from the names and footers of data files, and drop the metadata table.

        What no data file says is in `RepairPlan.doubts` and `RepairPlan.limits`.

        Returns:
            What was written, and the number of rows of the table then.

        Raises:
            ConfigError: the timeline has completed writes; nothing was changed.
            CorruptFileError: a file cannot be placed; nothing was changed. Or the rows cannot be read afterwards.
            CommitConflict: others hold the lock, write the table, or have changed it; nothing was changed.
            Fenced: another process took the lock; run it again.
        """
        plan = repair(replace(self._context, runtime=self.runtime), engine or self._engine)
        self._forget()
        key = self.config.record_key_fields[:1] or None
        count = sum(batch.num_rows for batch in self.scan(key).to_batches()) if plan.instants else 0
        return plan, count

    @names_failures
    def plan_version(self, version: int | None = None, layout: str | None = None) -> ChangePlan:
        """Plan the steps of `change_version`; nothing is changed."""
        return plan_change(self._context, VersionChange.of(self.config, version, layout))

    @names_failures
    def change_version(
        self, version: int | None = None, layout: str | None = None, engine: Engine | None = None
    ) -> Self:
        """Upgrade or downgrade the table, or change its storage layout; an interrupted change is finished.

        Args:
            version: 8, 9 or 10; by default unchanged.
            layout: ``default`` or ``lsm_tree``; by default unchanged if the version has it.
            engine: rewrites file groups; by default threads.

        Returns:
            The table after the change; this object must not be used any more.

        Raises:
            ConfigError: version and layout contradict each other.
            UnsupportedTable: this change is not supported; nothing was changed.
            CommitConflict: another writer holds the lock.
        """
        change = VersionChange.of(self.config, version, layout)
        if not change.is_done(self.config):
            change_version(self._context, change, engine or self._engine)
        return type(self)(self.path, self.options.without(config.TABLE_VERSION, config.STORAGE_LAYOUT))
