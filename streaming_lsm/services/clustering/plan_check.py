"""Find and check the file slices of a clustering plan, as plans may come from other programs."""

from __future__ import annotations

from collections.abc import Mapping

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.format.actions.clustering_plan import ClusteredSlice, ClusteringPlan
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME
from streaming_lsm.services.clustering.planner import clustered_slice
from streaming_lsm.services.context import is_data_folder
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.partition_folders import table_around


def planned_groups(view: FileSystemView, plan: ClusteringPlan, planned: Instant) -> list[list[FileSlice]]:
    """Find the slices of each input group: the latest ones of their file groups now, with exactly the planned files.

    A file group that was changed since would lose what was written to it: writers refuse to write to file groups of a
    pending plan (`streaming_lsm.txn.conflict`).

    Raises:
        CorruptFileError: a slice does not name exactly the files of a latest slice, a partition is not the table's, an
            input group has several partitions, or a file group is named twice.
        UnsupportedTable: a partition holds files that this release cannot read.
    """
    path = planned.at(State.REQUESTED).path
    folders: dict[str, Mapping[str, FileSlice]] = {}
    seen: set[tuple[str, str]] = set()
    found: list[list[FileSlice]] = []
    for group in plan.groups:
        if len({one.partition_path for one in group.slices}) != 1:
            raise _refused(path, "has an input group that is not of one partition")
        for one in group.slices:
            if one.partition_path not in folders:
                folders[one.partition_path] = _slices(view, one.partition_path, path)
            if (one.partition_path, one.file_id) in seen:
                raise _refused(path, f"names file group {one.file_id} of partition {one.partition_path!r} twice")
            seen.add((one.partition_path, one.file_id))
        found.append([_slice(folders[one.partition_path], one, path) for one in group.slices])
    return found


def _slices(view: FileSystemView, partition: str, path: str) -> Mapping[str, FileSlice]:
    """List the latest slices of a partition by file id."""
    if not is_data_folder(partition) or table_around(view.storage, partition) is not None:
        raise _refused(path, f"names the partition {partition!r}, which is not a partition of the table")
    entries = view.storage.list(partition)
    if not any(entry.name == PARTITION_METADATA_NAME for entry in entries):
        raise _refused(path, f"names the partition {partition!r}, which the table does not have")
    return {found.file_id: found for found in view.slices_in(partition, entries)}


def _slice(slices: Mapping[str, FileSlice], one: ClusteredSlice, path: str) -> FileSlice:
    found = slices.get(one.file_id)
    if found is None:
        raise _refused(path, f"names file group {one.file_id} of {one.partition_path!r}, which is gone or was replaced")
    there = clustered_slice(found)
    if (there.base_file, sorted(there.logs)) != (one.base_file, sorted(one.logs)):
        raise _refused(path, f"does not name the files of the latest slice of file group {one.file_id}")
    return found


def _refused(path: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{path} {why:.1000}: restore the plan, or delete it to cancel the clustering")
