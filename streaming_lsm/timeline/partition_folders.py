"""List the partition folders of a table: what of the folders below its root belongs to it.

A partition is a folder that holds partition metadata. A folder with a ``.hoodie`` of its own is another table, and is
passed over with all that is below it. Symbolic links and special files are refused where they could be taken for data.
"""

from __future__ import annotations

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME
from streaming_lsm.storage.base import FileEntry, Listing, Storage
from streaming_lsm.timeline.instant import FLAT_FOLDER


def partition_listings(storage: Storage) -> dict[str, Listing]:
    """List every partition by its path; each folder is listed once.

    Raises:
        UnsupportedTable: see `refuse_special`.
    """
    found: dict[str, Listing] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        entries = storage.list(folder)
        if folder and any(entry.name == FLAT_FOLDER for entry in entries):
            continue
        for entry in entries:
            if entry.special:
                refuse_special(entry, storage.uri)
            if entry.is_dir and entry.name != FLAT_FOLDER:
                folders.append(entry.path)
            elif entry.name == PARTITION_METADATA_NAME:
                found[folder] = entries
    return found


def refuse_special(entry: FileEntry, uri: str) -> None:
    """Refuse a link or special file that stands for a folder, a data file or partition metadata; others are ignored.

    A link shows rows twice or makes a listing endless; opening a named pipe waits for ever.

    Args:
        uri: of the table, for the message.

    Raises:
        UnsupportedTable: it is one.
    """
    named = entry.name == PARTITION_METADATA_NAME or parse_file_name(entry.name, rfc103_names=True) is not None
    if entry.special and (entry.is_dir or named):
        raise UnsupportedTable(
            f"{entry.path} in {uri} is a {entry.special}, which a table cannot hold: remove it, or put the file or "
            "folder itself in its place"
        )


def table_around(storage: Storage, partition: str) -> str | None:
    """The folder of another table that a partition path leads into, relative to the table; None when there is none."""
    parts = partition.split("/") if partition else []
    folders = ("/".join(parts[: count + 1]) for count in range(len(parts)))
    return next((folder for folder in folders if storage.exists(f"{folder}/{FLAT_FOLDER}")), None)
