"""Keep the records that an open table has logged to its metadata table, until a compaction merges them.

So a compaction opens few logs of small commits. A log is known by its path and by when its delta commit was completed:
an action of the table may be completed by another process, which writes a log of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.metadata.group_files import LogName, log_name
from streaming_lsm.format.metadata.schema import metadata_schema
from streaming_lsm.metadata.commit import NewRecords
from streaming_lsm.metadata.file_slices import MetadataFileSlice, StoredCells, completed_file
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

_KEPT_BYTES = 8 << 20


class LoggedRecords:
    """Records of logs, the newest ones up to a limit; of one open table."""

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        """Keep nothing yet.

        Args:
            most_bytes: limit of what is kept.
        """
        self._most_bytes = most_bytes
        self._kept: dict[tuple[str, str], NewRecords] = {}
        self._bytes = 0

    def __reduce__(self) -> tuple[type[LoggedRecords], tuple[int]]:
        """Leave what is kept behind: another process reads logs."""
        return LoggedRecords, (self._most_bytes,)

    def put(self, records: Iterable[NewRecords], commit: Instant, *, native: bool) -> None:
        """Keep the records of a delta commit, but for file groups of which it deletes records, too.

        Args:
            records: what it has logged.
            commit: the completed delta commit.
            native: whether its logs are native.
        """
        for new in records:
            if new.deleted is None and _size(new) <= self._most_bytes:
                path = f"{new.group.partition}/{log_name(new.group.file_id, commit.requested, native=native)}"
                self._kept[path, commit.completed or ""] = replace(
                    new, keys=_owned(new.keys), values=_owned(new.values)
                )
                self._bytes += _size(new)
        # Those that are left are of former slices if another process compacts the metadata table.
        while self._bytes > self._most_bytes:
            self._bytes -= _size(self._kept.pop(next(iter(self._kept))))

    def known_to(self, found: MetadataFileSlice, timeline: Timeline) -> MetadataFileSlice:
        """Return a slice of a timeline of the metadata table with the records of its logs that are kept."""
        return replace(found, known=self._known(found, timeline)) if self._kept else found

    def _known(self, found: MetadataFileSlice, timeline: Timeline) -> Mapping[LogName, StoredCells]:
        places = {log: completed_file(timeline, found.group.partition, log) for log in found.logs}
        return {log: _cells(self._kept[place], place[0]) for log, place in places.items() if place in self._kept}

    def forget_others(self, slices: Iterable[MetadataFileSlice], timeline: Timeline) -> None:
        """Forget the records of all logs that are not in some slices."""
        left = {completed_file(timeline, one.group.partition, log) for one in slices for log in one.logs}
        self._kept = {place: records for place, records in self._kept.items() if place in left}
        self._bytes = sum(map(_size, self._kept.values()))


def _size(records: NewRecords) -> int:
    return records.keys.nbytes + records.values.nbytes


def _owned(values: pa.BinaryArray) -> pa.BinaryArray:
    """Copy values that keep the larger buffers of others alive."""
    if values.get_total_buffer_size() <= 2 * values.nbytes:
        return values
    none: pa.BinaryArray = pa.array([], pa.binary())
    return pa.concat_arrays([none, values])


def _cells(records: NewRecords, path: str) -> StoredCells:
    return StoredCells(Cells.of(records.keys, records.values), metadata_schema(), path)
