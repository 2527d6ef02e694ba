"""Read the files of the shards of a record index, and keep what does not change between the look-ups of an open table.

See docs/format/07-index-and-metadata.md, "Record index". Indexes of base files and locations of small logs are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.group_files import DeletedKeys, LogName, log_name, open_base, open_log
from streaming_lsm.format.metadata.record_index import LOCATIONS, PARTITION
from streaming_lsm.format.metadata.schema import metadata_schema
from streaming_lsm.format.table.file_names import BaseFileName
from streaming_lsm.metadata.commit import NewRecords
from streaming_lsm.metadata.file_slices import MetadataFileSlice, completed_file
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

_TEXTS = pa.dictionary(pa.int32(), pa.string())
LOCATED = pa.schema([("partition", _TEXTS), ("file_id", _TEXTS), ("instant_ms", pa.int64())])
"""Columns `LOCATIONS` of found keys, with texts as dictionaries."""

_SMALL_LOG = 1 << 14
"""Keys of a log up to which it is read whole, whatever keys are looked up."""
_KEPT_BYTES = 64 << 20


@dataclass(frozen=True)
class LoggedKeys:
    """Keys of a small log, or deleted ones.

    Attributes:
        source: the log, for messages.
        keys: the keys (n,).
        cells: the keys with their locations, which are decoded when they are asked for (n,); None if the log deletes
            the keys.
        schema_json: Avro JSON of the locations.
    """

    source: str
    keys: pa.BinaryArray
    cells: Cells | None
    schema_json: str = ""

    @staticmethod
    def of(file: DeletedKeys | HFile) -> LoggedKeys:
        """Read all keys.

        Raises:
            CorruptFileError: the file is damaged.
        """
        if isinstance(file, DeletedKeys):
            deleted: Any = file.keys.cast(pa.binary())
            return LoggedKeys(file.source, deleted, None)
        parts = list(file.cells())
        none: Any = pa.array([], pa.binary())
        cells = parts[0] if len(parts) == 1 else Cells.joined(parts) if parts else Cells.of(none, none)
        return LoggedKeys(file.source, cells.keys, cells, file.schema_json)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        cells = self.cells
        return self.keys.nbytes + (0 if cells is None else cells.data.nbytes + 4 * cells.key_starts.nbytes)


ShardFile = HFile | LoggedKeys
_Blocks = Sequence[tuple[str, ShardFile]]
"""Content of the blocks of a file, with their instants; that of a base file has an empty one."""


class ShardFiles:
    """Read the files of shards; of one open table.

    A file of a completed action does not change. A partition that is dropped and created again has files of the same
    names, but of other completion times.
    """

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        """Keep nothing yet.

        Args:
            most_bytes: limit of what is kept.
        """
        self._most_bytes = most_bytes
        self._kept: dict[tuple[str, str], _Blocks] = {}
        self._bytes = 0

    def __reduce__(self) -> tuple[type[ShardFiles], tuple[int]]:
        """Leave what is kept behind: a task of another process reads anew."""
        return ShardFiles, (self._most_bytes,)

    def forget_older(self, timeline: Timeline, slices: Iterable[MetadataFileSlice]) -> None:
        """Forget the files of other slices than `slices`."""
        left = {completed_file(timeline, one.group.partition, name) for one in slices for name in one.names}
        self._kept = {known: blocks for known, blocks in list(self._kept.items()) if known in left}
        self._bytes = sum(one.nbytes for blocks in self._kept.values() for _, one in blocks)

    def put(self, records: Iterable[NewRecords], commit: Instant, *, native: bool) -> None:
        """Keep what this open table has logged itself, so that the next look-up does not read it back.

        Nothing is kept for a table in which no key is looked up.

        Args:
            records: what a delta commit has logged.
            commit: the completed delta commit.
            native: whether its logs are native.
        """
        if not self._kept:
            return
        for new in records:
            # An inline log has deletes in a block of its own.
            if new.group.partition == PARTITION and new.deleted is None and len(new.keys) <= _SMALL_LOG:
                path = f"{PARTITION}/{log_name(new.group.file_id, commit.requested, native=native)}"
                cells = Cells.of(new.keys, new.values)
                logged = LoggedKeys(path, cells.keys, cells, metadata_schema())
                self._keep((path, commit.completed or ""), [(commit.requested, logged)])

    def read(
        self,
        found: MetadataFileSlice,
        metadata: Storage,
        timeline: Timeline,
        counts: Callable[[str], bool],
        large: Set[str],
    ) -> Iterator[ShardFile]:
        """Open the base file of a slice, and read its logs that count, in merge order.

        Args:
            found: the slice.
            metadata: storage of the metadata table.
            timeline: its timeline.
            counts: whether the log records of an instant are valid, see `counted_instants`.
            large: names of native logs of which only the blocks are read that may have a key.

        Raises:
            CorruptFileError, UnsupportedTable: a file cannot be read.
            FileNotFoundError: a file was deleted meanwhile.
        """
        for name in found.names:
            known = completed_file(timeline, found.group.partition, name)
            blocks = self._kept.get(known)
            if blocks is None:
                blocks = _read(metadata, known[0], name, is_open=isinstance(name, BaseFileName) or str(name) in large)
                # What an action wrote that is not completed yet may be written again.
                if all(not instant or counts(instant) for instant, _ in blocks):
                    self._keep(known, blocks)
            for instant, one in blocks:
                if instant and not counts(instant):
                    continue
                if isinstance(one, HFile) and one.is_closed:
                    yield one.reopened(metadata.open_input(known[0]))
                else:
                    yield one

    def _keep(self, known: tuple[str, str], blocks: _Blocks) -> None:
        size = sum(one.nbytes for _, one in blocks)
        if self._bytes + size <= self._most_bytes:
            self._kept[known] = [(instant, one.closed() if isinstance(one, HFile) else one) for instant, one in blocks]
            self._bytes += size


def _read(metadata: Storage, path: str, name: BaseFileName | LogName, *, is_open: bool) -> _Blocks:
    if isinstance(name, BaseFileName):
        return [("", open_base(metadata.open_input(path), name, path))]
    content = metadata.open_input(path) if is_open else metadata.read(path)
    return [
        (instant, file if isinstance(file, HFile) and file.entry_count > _SMALL_LOG else LoggedKeys.of(file))
        for instant, file in open_log(content, name, path)
    ]


def encoded(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join decoded locations, with their texts as dictionaries: few are distinct."""
    table = pa.Table.from_batches(parts, LOCATIONS)
    columns = [column.dictionary_encode() if pa.types.is_string(column.type) else column for column in table.columns]
    return whole(pa.Table.from_arrays(columns, schema=LOCATED))


def whole(table: pa.Table) -> pa.RecordBatch:
    """Join the batches of located keys."""
    batches = table.unify_dictionaries().combine_chunks().to_batches()
    return (
        batches[0]
        if batches
        else pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in LOCATED], LOCATED.names)
    )
