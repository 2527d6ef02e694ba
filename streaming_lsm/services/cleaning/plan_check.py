"""Check the files of a clean plan before any is deleted, as plans may come from other programs."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.file_group import file_groups_in
from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.format.actions.clean import CleanPlan
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.services.cleaning.planner import RetainedFiles, deletable_files
from streaming_lsm.services.context import is_data_folder
from streaming_lsm.storage.uris import with_own_scheme
from streaming_lsm.timeline.partition_folders import table_around


def checked_files(
    view: FileSystemView, plan: CleanPlan, kept: RetainedFiles, source: str
) -> Mapping[str, tuple[str, ...]]:
    """Check a plan and return its file names by partition path, files that are deleted already included.

    Args:
        view: the current view of the table.
        kept: files of pending compactions and savepoints.
        source: path of the plan, for messages.

    Raises:
        CorruptFileError: a file is not a data file of the partition, or exists and is needed by readers, a pending
            compaction or a savepoint.
    """
    files: dict[str, tuple[str, ...]] = {}
    for partition, spelt in plan.files.items():
        if not is_data_folder(partition) or table_around(view.storage, partition) is not None:
            raise _refused(source, f"would delete files of {partition!r}, which is not a partition of the table")
        entries = view.storage.list(partition)
        there = {entry.name for entry in entries if not entry.is_dir}
        names = tuple(sorted({_name(view, partition, file, there, source) for file in spelt}))
        groups = file_groups_in(view, partition, entries)
        needed = there.intersection(names).difference(name for _, name in deletable_files(groups, kept))
        if needed:
            raise _refused(source, f"would delete {file_path(partition, min(needed))!r}, which is needed")
        files[partition] = names
    return files


def _name(view: FileSystemView, partition: str, file: str, there: set[str], source: str) -> str:
    """Return the file name of a path in the plan, which is a bare name or an absolute path in this table.

    Plans of a table that was moved since have its old root; then the file exists, or a write of this table has made it.
    """
    folder, _, name = file.rpartition("/")
    parsed = parse_file_name(name, rfc103_names=view.rfc103_names)
    if parsed is None:
        raise _refused(source, f"would delete {file!r}, which is not a data file")
    here = {_plain(folder), _plain(unquote(folder))} & {_plain(_root(view, partition)), ""}
    moved = _plain(folder).endswith(_plain(partition)) and ".." not in folder.split("/")
    if not here and not (moved and (name in there or view.timeline.is_write(parsed.instant))):
        raise _refused(source, f"would delete {file!r}, which is not in partition {partition!r} of {view.storage.uri}")
    return name


def _root(view: FileSystemView, partition: str) -> str:
    root = unquote(view.storage.uri)
    return f"{root}/{partition}" if partition else root


def _plain(folder: str) -> str:
    """Strip slashes and the scheme of a path: ``file:/a``, ``file:///a`` and ``/a`` are one folder, as any spelling."""
    return with_own_scheme(folder).removeprefix("file:").strip("/")


def _refused(source: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{source} {why:.1000}: nothing more was deleted; restore the plan, or delete it")
