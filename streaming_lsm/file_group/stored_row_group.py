"""Row groups of a base file that are copied into a new one as they are stored, without decoding their values.

A row group may be copied if no log of the slice has a key in its key range, if it has no key more than once, and if
the new file would have the same Parquet schema and codec. Its pages are compared with their checksums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.data_file import DataFile, OpenFile, key_ranges
from streaming_lsm.file_group.footer_fields import read_at
from streaming_lsm.format.parquet_row_groups import Chunk, StoredFooter
from streaming_lsm.format.parquet_thrift import Field
from streaming_lsm.schema import RECORD_KEY

_KEYS = pa.schema([(RECORD_KEY, pa.string())])
_FEW_LOGS = 4


@dataclass(frozen=True)
class StoredRowGroup:
    """One row group of an open file.

    Attributes:
        path: of the file, relative to the table.
        opened: the file.
        footer: its footer.
        number: of the row group in the file.
        first, last: its smallest and largest key.
    """

    path: str
    opened: OpenFile
    footer: StoredFooter
    number: int
    first: str
    last: str

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.opened.parquet.metadata.row_group(self.number).num_rows)

    @property
    def chunks(self) -> list[Chunk]:
        """The chunks of its columns."""
        return self.footer.chunks(self.number)

    def pages(self, chunk: Chunk) -> bytes:
        """Read the pages of a chunk.

        Raises:
            CorruptFileError: a page does not have its checksum.
        """
        try:
            return chunk.pages(self.read)
        except ValueError as error:
            raise CorruptFileError(f"{self.path}: damaged: {error}; restore the file") from error

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes of the file."""
        return _read_at(self.opened, offset, size)

    def keys(self) -> pa.ChunkedArray[Any]:
        """Read the record keys."""
        return self.opened.parquet.read_row_group(self.number, columns=[RECORD_KEY], use_threads=False).column(0)


@dataclass(frozen=True)
class CopyRules:
    """What row groups must have in common with a new file to be copied into it.

    Attributes:
        schema: the list of SchemaElement of the new file.
        codec: Parquet's number of its codec.
        group_rows: rows of its row groups; smaller than half of that are merged with the rows beside them.
    """

    schema: Field
    codec: int
    group_rows: int

    def groups(self, base: DataFile, logs: Sequence[DataFile]) -> list[StoredRowGroup]:
        """Find the row groups that may be copied, in their order.

        The keys of the logs are read, unless the logs are so many that few row groups can be without one.

        Args:
            base: the base file, whose keys ascend.
            logs: all logs that are merged with it.
        """
        is_other = base.commits is not None or base.names is not None
        if base.opened is None or is_other or sum(log.rows for log in logs) * _FEW_LOGS > base.rows:
            return []
        opened = base.opened
        size = int(opened.source.size())
        try:
            footer = StoredFooter.read(partial(_read_at, opened), size)
        except ValueError as error:
            raise CorruptFileError(f"{base.path}: its footer is damaged: {error}; restore the file") from error
        if footer.schema != self.schema:
            return []
        ranges = key_ranges(opened.parquet.metadata)
        free = self._alone(opened.parquet.metadata, ranges)
        for log in logs:
            free -= _touched(log, {number: ranges[number] for number in free})
        found = (StoredRowGroup(base.path, opened, footer, number, *ranges[number]) for number in sorted(free))
        return [group for group in found if self._fits(group)]

    def _alone(self, metadata: pq.FileMetaData, ranges: Sequence[tuple[str, str]]) -> set[int]:
        """Select row groups of a good size that share no key with those beside them."""
        rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        least = min(self.group_rows, max(rows, default=0)) / 2
        return {
            number
            for number, (first, last) in enumerate(ranges)
            if rows[number] >= least
            and (number == 0 or ranges[number - 1][1] < first)
            and (number + 1 == len(ranges) or last < ranges[number + 1][0])
        }

    def _fits(self, group: StoredRowGroup) -> bool:
        if any(chunk.codec != self.codec for chunk in group.chunks):
            return False
        keys = group.keys()
        return bool(pc.all(pc.greater(keys[1:], keys[:-1])).as_py()) and (str(keys[0]), str(keys[-1])) == (
            group.first,
            group.last,
        )


def _read_at(opened: OpenFile, offset: int, size: int) -> bytes:
    return read_at(opened.source, size, offset)


def _touched(log: DataFile, ranges: dict[int, tuple[str, str]]) -> set[int]:
    """Return which key ranges hold a key of the log."""
    return {number for keys in _key_batches(log) for number, span in ranges.items() if _holds(keys, *span)}


def _key_batches(log: DataFile) -> Iterator[pa.Array[Any]]:
    return (batch.column(RECORD_KEY) for batch in log.batches(_KEYS) if batch.num_rows)


def _holds(keys: pa.Array[Any], first: str, last: str) -> bool:
    """Return whether any of some ascending keys is in a range, ends included."""
    if str(keys[-1]) < first or str(keys[0]) > last:
        return False
    inside = pc.and_(pc.greater_equal(keys, pa.scalar(first)), pc.less_equal(keys, pa.scalar(last)))
    return bool(pc.any(inside).as_py())
