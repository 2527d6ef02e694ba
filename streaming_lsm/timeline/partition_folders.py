"""List the partition folders of a table.

A *partition* is a folder that holds partition metadata. A folder with a ``.hoodie`` of its own is another table, and is
skipped with all folders below it. Symbolic links to folders, and links and special files named as data files, are
refused.
"""

from __future__ import annotations

from collections.abc import Iterable

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


def listings_of(storage: Storage, partitions: Iterable[str]) -> dict[str, Listing]:
    """List some partitions by their paths; one that `partition_listings` would not find is left out.

    Raises:
        UnsupportedTable: see `refuse_special`.
    """
    found: dict[str, Listing] = {}
    tables: dict[str, bool] = {}
    for partition in partitions:
        if any(_is_table(storage, folder, tables) for folder in _folders(partition)):
            continue
        entries = storage.list(partition)
        for entry in entries:
            if entry.special:
                refuse_special(entry, storage.uri)
        if any(entry.name == PARTITION_METADATA_NAME for entry in entries):
            found[partition] = entries
    return found


def _is_table(storage: Storage, folder: str, known: dict[str, bool]) -> bool:
    if folder not in known:
        known[folder] = storage.exists(f"{folder}/{FLAT_FOLDER}")
    return known[folder]


def _folders(partition: str) -> list[str]:
    """Return a partition path and the folders around it, the outermost first."""
    parts = partition.split("/") if partition else []
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def refuse_special(entry: FileEntry, uri: str) -> None:
    """Refuse a link to a folder, and a link or special file named as a data file or partition metadata.

    A link may yield rows twice or make a listing endless; opening a named pipe blocks. Other entries are ignored.

    Args:
        uri: URI of the table, for the message.

    Raises:
        UnsupportedTable: the entry is such a link or special file.
    """
    named = entry.name == PARTITION_METADATA_NAME or parse_file_name(entry.name, rfc103_names=True) is not None
    if entry.special and (entry.is_dir or named):
        raise UnsupportedTable(
            f"{entry.path} in {uri} is a {entry.special}, which a table cannot hold: remove it, or put the file or "
            "folder itself in its place"
        )


def table_around(storage: Storage, partition: str) -> str | None:
    """Return the folder, relative to the table, of another table that contains the partition path, if there is one."""
    return next((folder for folder in _folders(partition) if storage.exists(f"{folder}/{FLAT_FOLDER}")), None)
