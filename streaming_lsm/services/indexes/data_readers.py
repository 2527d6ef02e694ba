"""Read data files so that their faults are told from those of the indexes that are compared with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from streaming_lsm.errors import CorruptFileError, ReadOvertaken
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.index.file_readers import FILE_READERS
from streaming_lsm.metadata.changed_keys import GroupKeys, KeysSince, ListedTable
from streaming_lsm.metadata.changed_values import RowValues
from streaming_lsm.metadata.partitions.base import FileReaders
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline


class DataFault(Exception):
    """A data file cannot be read, so that an index cannot be compared with it.

    Attributes:
        fault: the error.
    """

    def __init__(self, fault: CorruptFileError | ReadOvertaken) -> None:
        super().__init__(str(fault))
        self.fault = fault


class _DataKeys:
    """Reads record keys of data files; see `StoredKeys`."""

    def live(self, storage: Storage, now: ListedTable) -> Iterator[GroupKeys]:
        with _of_data():
            yield from FILE_READERS.keys.live(storage, now)

    def since(self, storage: Storage, before: ListedTable, now: ListedTable) -> Iterator[KeysSince]:
        with _of_data():
            yield from FILE_READERS.keys.since(storage, before, now)

    def changed(self, storage: Storage, data: Timeline, action: Instant, commit: CommitMetadata) -> Iterator[GroupKeys]:
        with _of_data():
            yield from FILE_READERS.keys.changed(storage, data, action, commit)


class _DataValues:
    """Reads values of columns in data files; see `StoredValues`."""

    def live(self, storage: Storage, now: ListedTable, column: str) -> Iterator[RowValues]:
        with _of_data():
            yield from FILE_READERS.values.live(storage, now, column)

    def since(self, storage: Storage, before: ListedTable, now: ListedTable, column: str) -> Iterator[RowValues]:
        with _of_data():
            yield from FILE_READERS.values.since(storage, before, now, column)

    def changed(
        self, storage: Storage, data: Timeline, action: Instant, commit: CommitMetadata, column: str
    ) -> Iterator[tuple[RowValues, RowValues]]:
        with _of_data():
            yield from FILE_READERS.values.changed(storage, data, action, commit, column)


@contextmanager
def _of_data() -> Iterator[None]:
    """Tell errors of data files from those of an index."""
    try:
        yield
    except (CorruptFileError, ReadOvertaken) as error:
        raise DataFault(error) from error


def _data_ranges(storage: Storage, path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    with _of_data():
        return FILE_READERS.ranges(storage, path, columns)


def _data_bloom(storage: Storage, path: str) -> tuple[str, bytes] | None:
    with _of_data():
        return FILE_READERS.bloom(storage, path)


def _data_expression(storage: Storage, path: str, function: str, column: str) -> list[dict[str, Any]]:
    with _of_data():
        return FILE_READERS.expression(storage, path, function, column)


DATA_READERS = FileReaders(
    ranges=_data_ranges, bloom=_data_bloom, keys=_DataKeys(), values=_DataValues(), expression=_data_expression
)
"""They raise `DataFault` in place of `CorruptFileError` and `ReadOvertaken`."""
