"""Define the protocol by which a transaction updates the metadata table, so that `txn` does not import `metadata`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from streaming_lsm.config import Options
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.cache import KnownMetadata, TimelineCache
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline


class MetadataHook(Protocol):
    """Keep a metadata table up to date within one transaction; see `streaming_lsm.metadata.table.MetadataTable`."""

    @property
    def last_time(self) -> str:
        """The largest time of the metadata table's timeline; ``""`` without a metadata table."""
        ...

    @property
    def known(self) -> KnownMetadata | None:
        """Return what `resume` needs while nobody else changes the metadata table; None if it has to be opened."""
        ...

    @property
    def partitions(self) -> Sequence[str]:
        """Names of the partitions that are kept up to date; none without a metadata table."""
        ...

    @property
    def ranged_columns(self) -> Sequence[str]:
        """Columns whose ranges it records: files whose write stats do not tell them are read."""
        ...

    def open(self, data: Timeline, living: Collection[Instant] = ()) -> None:
        """Check the metadata table, undo delta commits without an action of the table, or drop what cannot be kept.

        Called whenever the lock was acquired: others may have changed the metadata table meanwhile.
        """
        ...

    def resume(self, known: KnownMetadata, data: Timeline) -> None:
        """Go on with what is known in place of `open`: nobody has held the lock since.

        Args:
            known: what the hook of the last transaction, or this one, knew.
            data: timeline of the data table, without pending actions of others.
        """
        ...

    def forget(self, data: Timeline, write: Instant, living: Collection[Instant] = ()) -> None:
        """Drop the partitions, other than ``files``, of which base files may have records of a completed write.

        Args:
            data: timeline of the data table.
            write: the write, which is about to be rolled back.
            living: see `open`.
        """
        ...

    def undo(self, data: Timeline, files: Iterable[str], living: Collection[Instant] = ()) -> None:
        """Undo the delta commit of a rolled back write, as `open` does, or drop the table if it lists its files still.

        Args:
            data: timeline of the data table, without the completed file of the write.
            files: paths of the files of the write.
            living: see `open`.
        """
        ...

    def run_services(self, data: Timeline, times: InstantSource) -> None:
        """Compact the metadata table if that is due; create it if it is wanted and missing."""
        ...

    def record(self, action: Instant, data: bytes, times: InstantSource, commit: CommitMetadata | None = None) -> None:
        """Commit the file changes of an action to the metadata table, just before the action is completed.

        Args:
            action: the running action.
            data: content of its completed file.
            times: instant times of the data table.
            commit: `data`, decoded, if it is at hand, with what the write stats tell beside.
        """
        ...

    def roll_back(self, action: Instant) -> None:
        """Undo the delta commit that `record` made for an action that is about to be undone."""
        ...

    def drop(self, why: str) -> None:
        """Delete the metadata table, if there is one, and log why."""
        ...

    def add_partition(self, name: str, options: Options, data: Timeline, times: InstantSource) -> None:
        """Create a partition of the metadata table, or the metadata table itself by the name ``files``.

        Args:
            name: the partition; nothing is done if it exists.
            options: options of the new partition, beside those of the writer.
            data: timeline of the data table.
            times: instant times of the data table.
        """
        ...

    def start_build(self, name: str, options: Options, indexing: Instant, verify: Callable[[], None]) -> None:
        """Begin to build a partition beside writers; the lock is held.

        Args:
            name: the partition.
            options: options of the new partition, beside those of the writer.
            indexing: the action that builds it.
            verify: raises `Fenced` if the action is not this process's any more.
        """
        ...

    def build(self, now: Callable[[], int]) -> None:
        """Read the table, and write base files of the partition; the lock is not held.

        Args:
            now: the clock's time, epoch milliseconds.
        """
        ...

    def announce_build(self) -> None:
        """List the partition among those that are being built; the lock is held."""
        ...

    def catch_up(self) -> None:
        """Read what was completed since, until little is left; the lock is not held."""
        ...

    def finish_build(self, data: Timeline, times: InstantSource) -> Mapping[str, str | None]:
        """Catch up for the last time, and complete the partition's delta commit; the lock is held.

        Returns:
            Changes of the table's properties for `register_build`.
        """
        ...

    def register_build(self, changes: Mapping[str, str | None]) -> None:
        """Register the partition, whose indexing action is completed; the lock is held."""
        ...

    def drop_partitions(self, names: Collection[str], why: str) -> None:
        """Drop partitions of the metadata table, all of it if ``files`` is among them, and log why."""
        ...


class OpenMetadata(Protocol):
    """Create the hook of one transaction, which holds `lock`."""

    def __call__(
        self, storage: Storage, options: Options, lock: TableLock, timelines: TimelineCache, /
    ) -> MetadataHook:
        """Return a hook that has not read the table yet."""
        ...
