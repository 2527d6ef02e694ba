"""What every table service works with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.file_system_view import METADATA_FOLDER, FileSystemView
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.transaction import Transaction

T = TypeVar("T")
R = TypeVar("R")

FileGroupId = tuple[str, str]
"""Partition path and file id."""


class Engine(Protocol):
    """Runs independent tasks: threads here, executors with Spark."""

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results in the order of `items`; a task and its items can be pickled."""
        ...


@dataclass(frozen=True)
class ServiceContext:
    """One table, as its services see it.

    Attributes:
        storage: the table's files.
        config: what is fixed for the table's life.
        options: what was asked for when it was opened.
        rule: how records of one key merge.
        new_transaction: a transaction of no batch; services change the table through nothing else.
        timelines: what the open table has loaded.
    """

    storage: Storage
    config: TableConfig
    options: Options
    rule: MergeRule
    new_transaction: Callable[[], Transaction]
    timelines: TimelineCache = field(default_factory=TimelineCache)

    def load_timeline(self) -> Timeline:
        """The table's actions as they are now."""
        return self.timelines.load(self.storage)

    def view(self, timeline: Timeline) -> FileSystemView:
        """The files that a timeline makes visible."""
        return FileSystemView(self.storage, timeline, self.options[config.READ_LEGACY_NAMES])


def is_data_folder(partition: str) -> bool:
    """Whether a plan's partition path can be one: plans may come from anybody."""
    parts = partition.split("/") if partition else []
    return "\0" not in partition and METADATA_FOLDER not in parts[:1] and not {"", ".", ".."}.intersection(parts)


def read_compaction_plan(storage: Storage, pending: Instant) -> CompactionPlan:
    """The plan of a pending compaction or log compaction.

    Raises:
        CorruptFileError: there is none, or it cannot be read.
    """
    path = pending.at(State.REQUESTED).path
    try:
        return CompactionPlan.decode(storage.read(path), path)
    except FileNotFoundError:
        raise CorruptFileError(f"{pending.path} has no plan {path}: restore the plan or delete the file") from None


def planned_slices(storage: Storage, timeline: Timeline) -> dict[FileGroupId, frozenset[str]]:
    """Names of the files that pending compactions of every kind are to merge, by file group."""
    planned: dict[FileGroupId, frozenset[str]] = {}
    for pending in timeline.pending:
        if pending.action in ("compaction", "logcompaction"):
            for operation in read_compaction_plan(storage, pending).operations:
                group = (operation.partition_path, operation.file_id)
                planned[group] = planned.get(group, frozenset()).union(operation.files)
    return planned
