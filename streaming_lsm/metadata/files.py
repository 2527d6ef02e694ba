"""List the files of a table by its metadata table, in place of its folders."""

from __future__ import annotations

from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.metadata.files_partition import PARTITION
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.listed_files import ListedFiles
from streaming_lsm.metadata.listing import ChoosePartitions, listed_files
from streaming_lsm.metadata.state import check_newest_known, check_up_to_date
from streaming_lsm.metadata.unread import warn_unread
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline


def metadata_files(storage: Storage, layout: int, choose: ChoosePartitions | None = None) -> ListedFiles | None:
    """List the files of every partition path by the partition ``files`` of the metadata table.

    See docs/format/07-index-and-metadata.md, "Metadata table".

    Args:
        storage: the table.
        layout: its timeline layout.
        choose: the partitions whose files are listed; None for all.

    Returns:
        None if the folders are to be listed: the table has no such partition, or it cannot be read, or (checked in
        layout 2) it has fallen behind.
    """
    before = load_properties(storage)
    if PARTITION not in listed(before.get(PARTITIONS_KEY, "")):
        return None
    try:
        data = Timeline.load(storage, layout)
        found = listed_files(storage, data, choose)
        if layout != FLAT:
            metadata = Timeline.load(Subfolder(storage, METADATA_TABLE))
            check_up_to_date(metadata, data)
            check_newest_known(metadata, data)
    except (CorruptFileError, UnsupportedTable, TableNotFound, OSError) as error:
        warn_unread(storage, PARTITION, "folders are listed", error)
        return None
    # A metadata table that is dropped is removed from the properties first: its files may have been deleted during the
    # read. An empty listing means an empty table, or that the metadata table is gone.
    if not (found.partitions or found.left_out) or load_properties(storage) != before:
        return None
    return found
