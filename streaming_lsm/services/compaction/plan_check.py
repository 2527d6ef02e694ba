"""Find and check the file slices of a compaction plan, as plans may come from other programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.file_group.log_order import chain_of
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.actions.compaction_plan import FULL, LOG, CompactionOperation, CompactionPlan
from streaming_lsm.format.log.native_footer import Chain
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME
from streaming_lsm.services.compaction.planner import ReadLogFacts, live_logs
from streaming_lsm.services.context import is_data_folder
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.partition_folders import table_around


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """What an operation merges.

    Attributes:
        type: `FULL` or `LOG`.
        files: FULL: the slice with all its files; LOG: the logs to merge, in merge order, without the base file.
        chain: LOG: the log compactions among them, and among what these replaced.
    """

    type: str
    files: FileSlice
    chain: Chain | None = None


def planned_file_slices(
    view: FileSystemView, plan: CompactionPlan, planned: Instant, read_facts: ReadLogFacts
) -> list[PlannedSlice]:
    """Find the slice of each operation: the latest of its file group as of the compaction's instant.

    The new base file absorbs every log completed before that instant (docs/format/10-rules.md, "Rule 8"). A plan that
    leaves out a file would lose its rows, or bring deleted rows back. A log compaction takes adjacent logs only: what
    it leaves out comes before or after all of them in merge order.

    Args:
        view: the current view of the table.
        read_facts: reads what the headers say of the logs of a LOG operation's slice.

    Raises:
        CorruptFileError: an operation does not name exactly the files of the slice, a partition is not the table's, or
            a file group is named twice.
        UnsupportedTable: a partition holds files that this release cannot read.
    """
    path = planned.at(State.REQUESTED).path
    then = replace(view, timeline=view.timeline.completed_by(planned.requested))
    folders: dict[str, Mapping[str, FileSlice]] = {}
    found: dict[tuple[str, str], PlannedSlice] = {}
    for operation in plan.operations:
        partition = operation.partition_path
        if partition not in folders:
            folders[partition] = _slices(then, partition, path)
        group = (partition, operation.file_id)
        if group in found:
            raise _refused(path, f"names file group {operation.file_id} of partition {partition!r} twice")
        if operation.type == LOG:
            found[group] = _logs(then, operation, folders[partition], planned, read_facts)
        else:
            found[group] = PlannedSlice(FULL, _file_slice(then, operation, folders[partition], planned))
    return list(found.values())


def _slices(then: FileSystemView, partition: str, path: str) -> Mapping[str, FileSlice]:
    """List the latest slices of a partition by file id."""
    if not is_data_folder(partition) or table_around(then.storage, partition) is not None:
        raise _refused(path, f"names the partition {partition!r}, which is not a partition of the table")
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
    why = f"leaves out {left_out[0]!r} of the slice" if left_out else "names a log as base file, or a file twice"
    raise _refused(planned.at(State.REQUESTED).path, f"{why}, in file group {operation.file_id}")


def _logs(
    then: FileSystemView,
    operation: CompactionOperation,
    slices: Mapping[str, FileSlice],
    planned: Instant,
    read_facts: ReadLogFacts,
) -> PlannedSlice:
    """Find the logs of a LOG operation in merge order; plans of other programs name replaced ones, too."""
    path = planned.at(State.REQUESTED).path
    found = slices.get(operation.file_id, FileSlice(operation.partition_path, operation.file_id, None, ()))
    there, named = {str(log.name) for log in found.logs}, set(operation.logs)
    for name in operation.logs:
        if name not in there:
            raise _misfit(then, operation, name, planned)
    facts = read_facts(found.logs)
    live = live_logs(found.logs, facts, found.base_instant)
    places = [place for place, log in enumerate(live) if str(log.name) in named]
    if not places:
        raise _refused(path, f"names no log of file group {operation.file_id} that another log compaction has left")
    merged = live[places[0] : places[-1] + 1]
    instants = {log.name.instant for log in merged}
    whole = [log for log in live if log.name.instant in instants]
    left_out = next((str(log.name) for log in whole if str(log.name) not in named), None)
    if left_out is not None:
        raise _refused(
            path, f"leaves out {left_out!r}, which lies between the logs that it merges, in file group {found.file_id}"
        )
    covers = {log.name.instant: one.compacted for log, one in zip(found.logs, facts, strict=True) if one.compacted}
    return PlannedSlice(LOG, replace(found, base=None, logs=tuple(merged)), chain_of(instants, covers))


def _misfit(then: FileSystemView, operation: CompactionOperation, name: str, planned: Instant) -> CorruptFileError:
    """Build the error for a file that the plan names and the slice lacks."""
    path, parsed = planned.at(State.REQUESTED).path, parse_file_name(name, rfc103_names=True)
    if parsed is None or parsed.file_id != operation.file_id:
        return _refused(path, f"names {name!r}, which is not a file of file group {operation.file_id}")
    if then.timeline.completion_time(parsed.instant) is None:
        return _refused(path, f"names {name!r}, whose write was not completed before {planned.requested}")
    where = file_path(operation.partition_path, name)
    if then.storage.exists(where):
        return _refused(path, f"names {name!r}, which is not in the latest file slice before {planned.requested}")
    return CorruptFileError(
        f"{where}, which {path} is to merge, is gone: restore it, or delete the plan to cancel the compaction"
    )


def _refused(path: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{path} {why:.1000}: restore the plan, or delete it to cancel the compaction")
