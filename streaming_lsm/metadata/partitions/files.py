"""Keep the partition ``files`` of the metadata table up to date, without which there is no metadata table.

See docs/format/07-index-and-metadata.md, "Files payload".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streaming_lsm.format.metadata.files_partition import PARTITION, encode_files
from streaming_lsm.metadata.commit import NewRecords
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice
from streaming_lsm.metadata.listing import FILES, read_entries
from streaming_lsm.metadata.partitions.base import Encoded, RecordedAction
from streaming_lsm.storage.base import Storage


class FilesPartition:
    """The partition ``files``, of one file group; see `KeptPartition`."""

    name = PARTITION
    groups: Sequence[MetadataFileGroup] = (FILES,)
    columns: Sequence[str] = ()
    definition = None

    def records(self, action: RecordedAction) -> list[NewRecords]:
        """Return the records of the files that an action adds and deletes."""
        return [NewRecords(FILES, *encode_files(action.changes.records(), None))]

    def merged(
        self, found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], base_name: str
    ) -> Encoded:
        """Merge a slice: the files that exist, by partition."""
        return read_entries(found, metadata, counts).encode(base_name)
