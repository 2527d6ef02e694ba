"""The file slices that a compaction plan names, looked up and checked: plans may come from anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.actions.compaction_plan import CompactionOperation, CompactionPlan
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME
from streaming_lsm.services.context import is_data_folder
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.partition_folders import table_around


def planned_file_slices(view: FileSystemView, plan: CompactionPlan, planned: Instant) -> list[FileSlice]:
    """One slice per operation: the latest of its file group when the compaction was planned, all its files included.

    The new base file stands for everything that was completed before the compaction's instant (docs/format/10-rules.md,
    "Rule 8"). A plan that left out a file would lose its rows, or bring deleted ones back.

    Args:
        view: the table as it is now.

    Raises:
        CorruptFileError: a plan does not name the very files of the slice; a partition is none of the table's; a file
            group is named twice.
        UnsupportedTable: a partition holds files that this release cannot read.
    """
    path = planned.at(State.REQUESTED).path
    then = replace(view, timeline=view.timeline.completed_by(planned.requested))
    folders: dict[str, Mapping[str, FileSlice]] = {}
    found: dict[tuple[str, str], FileSlice] = {}
    for operation in plan.operations:
        partition = operation.partition_path
        if partition not in folders:
            folders[partition] = _slices(then, partition, path)
        group = (partition, operation.file_id)
        if group in found:
            raise _refused(path, f"names file group {operation.file_id} of partition {partition!r} twice")
        found[group] = _file_slice(then, operation, folders[partition], planned)
    return list(found.values())


def _slices(then: FileSystemView, partition: str, path: str) -> Mapping[str, FileSlice]:
    """The latest slices of a partition by file id."""
    if not is_data_folder(partition) or table_around(then.storage, partition) is not None:
        raise _refused(path, f"names the partition {partition!r}, which is no folder of the table's data")
    entries = then.storage.list(partition)
    if not any(entry.name == PARTITION_METADATA_NAME for entry in entries):
        raise _refused(path, f"names the partition {partition!r}, which the table does not have")
    return {found.file_id: found for found in then.slices_in(partition, entries)}


def _file_slice(
    then: FileSystemView, operation: CompactionOperation, slices: Mapping[str, FileSlice], planned: Instant
) -> FileSlice:
    found = slices.get(operation.file_id, FileSlice(operation.partition_path, operation.file_id, None, ()))
    base, logs = str(found.base.name) if found.base else None, [str(log.name) for log in found.logs]
    if (operation.base_file, sorted(operation.logs)) == (base, sorted(logs)):
        return found
    there = {*logs, base}
    for name in operation.files:
        if name not in there:
            raise _misfit(then, operation, name, planned)
    left_out = sorted({name for name in there if name is not None}.difference(operation.files))
    why = f"leaves out {left_out[0]!r}, which was there" if left_out else "names a log as base file, or a file twice"
    raise _refused(planned.at(State.REQUESTED).path, f"{why}, in file group {operation.file_id}")


def _misfit(then: FileSystemView, operation: CompactionOperation, name: str, planned: Instant) -> CorruptFileError:
    """Why a file that the plan names is not of the slice."""
    path, parsed = planned.at(State.REQUESTED).path, parse_file_name(name, rfc103_names=True)
    if parsed is None or parsed.file_id != operation.file_id:
        return _refused(path, f"names {name!r}, which is no file of file group {operation.file_id}")
    if then.timeline.completion_time(parsed.instant) is None:
        return _refused(path, f"names {name!r}, whose write was not completed before {planned.requested}")
    where = file_path(operation.partition_path, name)
    if then.storage.exists(where):
        return _refused(path, f"names {name!r}, which is not in the latest file slice before {planned.requested}")
    return CorruptFileError(
        f"{where}, which {path} is to merge, is gone: restore it; or delete the plan, to give the compaction up"
    )


def _refused(path: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{path} {why}: restore the plan, or delete it to give the compaction up")
