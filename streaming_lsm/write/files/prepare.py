"""Prepare a data file: create its marker and the metadata file of its partition.

See docs/format/01-table.md, "Markers".
"""

from __future__ import annotations

from contextlib import suppress

from streaming_lsm.errors import ConfigError
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME, print_partition_metadata
from streaming_lsm.lock.markers import check_no_earlier_write, create_marker
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.partition_folders import table_around


def prepare_data_file(
    storage: Storage, instant: str, partition: str, file_name: str, *, detect_early: bool = False, starts: bool = True
) -> str:
    """Create the marker and the partition metadata of a new data file; returns its path relative to the table.

    Args:
        detect_early: whether to look for other writes of the file group.
        starts: whether the file is the first of its file group. Others are in a partition that was prepared before,
            which is not checked again where each look is a request.

    Raises:
        EarlyConflict: see `check_no_earlier_write`.
        Fenced: the instant takes no more files.
        ConfigError: the partition path leads into another table; its folders are not read as partitions.
    """
    is_new = starts or storage.is_file_system
    other = table_around(storage, partition) if is_new else None
    if other is not None:
        raise ConfigError(
            f"partition {partition!r} of {storage.uri} leads into {other!r}, a table of its own: change the partition "
            "value, or move that table"
        )
    create_marker(storage, instant, partition, file_name)
    if detect_early:
        check_no_earlier_write(storage, instant, partition, file_name)
    path = file_path(partition, PARTITION_METADATA_NAME)
    if is_new and not storage.exists(path):
        with suppress(FileExistsError):  # another task was first
            storage.put_if_absent(path, print_partition_metadata(instant, partition))
    return file_path(partition, file_name)
