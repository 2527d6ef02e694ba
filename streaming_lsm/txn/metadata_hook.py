"""The metadata table as a transaction sees it, so that transactions need not import it."""

from __future__ import annotations

from typing import Protocol

from streaming_lsm.config import Options
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline


class MetadataHook(Protocol):
    """Keeps a metadata table up to date within one transaction; see `streaming_lsm.metadata.table.MetadataTable`."""

    @property
    def last_time(self) -> str:
        """The largest time of its timeline; ``""`` when there is none."""
        ...

    def open(self, data: Timeline) -> None:
        """Look what there is, and drop what cannot be kept; what belongs to no completed action is undone."""
        ...

    def run_services(self, data: Timeline, times: InstantSource) -> None:
        """Compact it when that is due; make one where one is wanted and there is none."""
        ...

    def record(self, action: Instant, data: bytes, times: InstantSource) -> None:
        """Write down what an action does to the files, just before its completed file is put."""
        ...

    def roll_back(self, action: Instant) -> None:
        """Take back what `record` wrote of an action that is about to be undone."""
        ...

    def drop(self, why: str) -> None:
        """Remove it, if there is one."""
        ...


class OpenMetadata(Protocol):
    """Makes the hook of one transaction, which holds `lock`."""

    def __call__(
        self, storage: Storage, options: Options, lock: TableLock, timelines: TimelineCache, /
    ) -> MetadataHook:
        """Return a hook that has not looked at the table yet."""
        ...
