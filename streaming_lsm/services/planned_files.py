"""The files that a compaction plan names, looked up and checked: plans may come from anybody."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.commit import file_path
from streaming_lsm.format.compaction_plan import CompactionOperation, CompactionPlan
from streaming_lsm.format.names import BaseFileName, DataFileName, LogFileName, LogKind, parse_file_name
from streaming_lsm.format.partition_metadata import PARTITION_METADATA_NAME
from streaming_lsm.read.file_view import METADATA_FOLDER, BaseFile, FileSlice, FileView, LogFile
from streaming_lsm.timeline.instant import Instant, State

Sizes = Mapping[str, int]


def planned_file_slices(view: FileView, plan: CompactionPlan, waiting: Instant) -> list[FileSlice]:
    """One slice per operation, with exactly the files that the plan names.

    Raises:
        CorruptFileError: a file is missing, belongs to another file group, or to a write that was not completed
            before the compaction; a partition is none of the table's; a file group is named twice.
    """
    path = waiting.at(State.REQUESTED).path
    folders: dict[str, Sizes] = {}
    found: dict[tuple[str, str], FileSlice] = {}
    for operation in plan.operations:
        partition = operation.partition_path
        if partition not in folders:
            folders[partition] = _sizes(view, partition, path)
        group = (partition, operation.file_id)
        if group in found:
            raise _refused(path, f"names file group {operation.file_id} of partition {partition!r} twice")
        found[group] = _file_slice(view, operation, folders[partition], waiting)
    return list(found.values())


def _sizes(view: FileView, partition: str, path: str) -> Sizes:
    """Sizes of the files of a partition by name."""
    parts = partition.split("/") if partition else []
    if any(part in ("", ".", "..") for part in parts) or parts[:1] == [METADATA_FOLDER]:
        raise _refused(path, f"names the partition {partition!r}, which is no folder of the table's data")
    sizes = {entry.name: entry.size for entry in view.storage.list(partition) if not entry.is_dir}
    if PARTITION_METADATA_NAME not in sizes:
        raise _refused(path, f"names the partition {partition!r}, which the table does not have")
    return sizes


def _file_slice(view: FileView, operation: CompactionOperation, sizes: Sizes, waiting: Instant) -> FileSlice:
    path, partition = waiting.at(State.REQUESTED).path, operation.partition_path

    def checked(name: str, is_fit: Callable[[DataFileName], bool]) -> tuple[str, DataFileName, int]:
        parsed = parse_file_name(name, rfc103_names=view.rfc103_names)
        if parsed is None or parsed.file_id != operation.file_id or not is_fit(parsed):
            raise _refused(path, f"names {name!r}, which is no file of file group {operation.file_id}")
        if not "" < (view.timeline.completion_time(parsed.instant) or "") < waiting.requested:
            raise _refused(path, f"names {name!r}, whose write was not completed before {waiting.requested}")
        if name not in sizes:
            raise CorruptFileError(
                f"{file_path(partition, name)}, which {path} is to merge, is gone: restore it; or delete the plan, "
                "to give the compaction up"
            )
        return file_path(partition, name), parsed, sizes[name]

    base = None
    if operation.base_file is not None:
        where, parsed, size = checked(operation.base_file, _is_base)
        assert isinstance(parsed, BaseFileName)
        base = BaseFile(where, parsed, size)
    logs = []
    for log in operation.logs:
        where, parsed, size = checked(log, _is_log)
        assert isinstance(parsed, LogFileName)
        logs.append(LogFile(where, parsed, size))
    ordered = tuple(sorted(logs, key=lambda log: log.name.sort_key))
    return FileSlice(partition, operation.file_id, base, ordered)


def _is_base(name: DataFileName) -> bool:
    return isinstance(name, BaseFileName) and name.extension == "parquet"


def _is_log(name: DataFileName) -> bool:
    return isinstance(name, LogFileName) and name.format == "parquet" and name.kind is not LogKind.CDC


def _refused(path: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{path} {why}: restore the plan, or delete it to give the compaction up")
