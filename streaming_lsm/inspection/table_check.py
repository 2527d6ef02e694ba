"""Check a whole table: committed files that are missing, the content of live files, and files of no commit.

*Live* are the files of the latest slices. Files of other slices are not read, as a clean may delete them at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import CommitConflict, CorruptFileError, UnsupportedTable
from streaming_lsm.file_group.consistent_listing import list_file_slices
from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice, FileSystemView, LogFile
from streaming_lsm.file_group.lost_files import lost_files
from streaming_lsm.format.actions.commit import WriteStat, file_path
from streaming_lsm.format.table.file_names import BucketId, bucket_of, parse_file_name
from streaming_lsm.inspection.change_log_check import change_log_findings
from streaming_lsm.inspection.file_check import DOUBLED, MISSING, UNCOMMITTED, CheckedFile, FileCheck, Finding
from streaming_lsm.readable_table import ReadableTable
from streaming_lsm.schema import with_meta
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.partition_folders import partition_listings
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.restore import refuse_beside_others
from streaming_lsm.txn.savepoint import check_savepoints

Progress = Callable[[int, int], None]
"""Takes the number of files that were read, and of all."""


@dataclass(frozen=True)
class TableCheck:
    """The result for a table.

    Attributes:
        files: number of live files that were checked.
        rows: their stored rows; inline logs do not count.
        findings: by path.
    """

    files: int
    rows: int
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged."""
        return not any(found.is_damage for found in self.findings)


def check_table(table: ReadableTable, engine: LocalEngine, progress: Progress, *, quick: bool) -> TableCheck:
    """Check a table; nothing is changed.

    Other processes may write, compact and clean meanwhile: damage is reported only of files that belong to the latest
    slices afterwards, too.

    Args:
        engine: reads files, several at a time.
        quick: whether only footers are read.

    Raises:
        CommitConflict: the table was changed while it was listed; try again.
        StorageError: a file cannot be read at present.
    """
    view, slices, lost = _listed(table)
    files = [file for found in slices for file in (*((found.base,) if found.base else ()), *found.logs)]
    stats = write_stats(view.timeline, {file.path for file in files})
    checked = list(_contents(table, engine, progress, [(file, stats.get(file.path)) for file in files], quick=quick))
    found = [*doubled_buckets(table, slices), *(finding for one in checked for finding in one.findings)]
    changes = list(change_log_findings(table, slices, quick=quick))
    if found or changes:
        _, current, lost = _listed(table)
        now = {path for one in current for path in one.paths}
        found = [finding for finding in found if finding.path in now]
        still = set(change_log_findings(table, current, quick=quick)) if changes else set()
        changes = [finding for finding in changes if finding in still]
    listed = [
        *lost,
        *found,
        *changes,
        *lost_services(view.timeline.whole),
        *lost_history(view.timeline.whole),
        *uncommitted(table, slices),
    ]
    every = sorted(listed, key=lambda finding: (finding.path, finding.kind))
    return TableCheck(len(checked), sum(one.rows for one in checked), tuple(every))


def _listed(table: ReadableTable) -> tuple[FileSystemView, Sequence[FileSlice], list[Finding]]:
    """List the latest slices, and what is missing from them."""
    seen: list[FileSystemView] = []

    def look() -> FileSystemView:
        seen.append(table.file_system_view())
        return seen[-1]

    try:
        _, slices = list_file_slices(look)
        return seen[-1], slices, []
    except CorruptFileError as error:
        if not seen:
            raise
        view, reason = seen[-1], str(error)
    slices = view.slices()
    groups = {(found.partition_path, found.file_id): found for found in slices}
    lost = [
        Finding(MISSING, one.path, f"{one.path} is gone, though {one.write.path} has committed it: restore the file")
        for one in lost_files(view, groups)
    ]
    # The first one explains more, for example that an instant file was lost.
    return view, slices, [Finding(MISSING, "", reason), *(one for one in lost if one.path not in reason)]


def _contents(
    table: ReadableTable,
    engine: LocalEngine,
    progress: Progress,
    files: Sequence[tuple[BaseFile | LogFile, WriteStat | None]],
    *,
    quick: bool,
) -> Iterator[CheckedFile]:
    if not files:
        return
    check = FileCheck(
        table.storage, table.rule, with_meta(table.schema), table.config.is_lsm_tree, quick, table.file_names
    )
    for count, checked in enumerate(engine.map(check, files)):
        progress(count + 1, len(files))
        yield checked


def write_stats(timeline: Timeline, paths: Collection[str]) -> dict[str, WriteStat]:
    """Collect the write stats of some files, from the writes that are not archived.

    A log that several writes append to, as in tables of version 6, has none that says its rows.
    """
    if timeline.layout == FLAT:
        return {}
    stats = (stat for write in timeline.completed_writes for stat in timeline.read_commit(write).stats)
    found = ((file_path(stat.partition_path, stat.file_name), stat) for stat in stats)
    return {path: stat for path, stat in found if path in paths}


def lost_services(timeline: Timeline) -> Iterator[Finding]:
    """List a savepoint and a restore whose completed instant files were lost."""
    for check in () if timeline.layout == FLAT else (check_savepoints, refuse_beside_others):
        try:
            check(timeline)
        except CommitConflict:  # a restore of another program runs
            continue
        except CorruptFileError as error:
            yield Finding(MISSING, "", str(error))


def lost_history(timeline: Timeline) -> Iterator[Finding]:
    """List a file of the history that is missing or damaged; it reads all of them."""
    try:
        timeline.history.check_files()
    except CorruptFileError as error:
        yield Finding(MISSING, "", str(error))


def doubled_buckets(table: ReadableTable, slices: Sequence[FileSlice]) -> Iterator[Finding]:
    """List the file groups whose buckets have an earlier live one: no write locates its keys in either."""
    if not table.config.num_buckets:
        return
    known: dict[BucketId, FileSlice] = {}
    for one in sorted(slices, key=lambda found: min(_instants(found), default="")):
        try:
            bucket = bucket_of(one.file_id)
        except UnsupportedTable:  # writes refuse the table by its name
            return
        first = known.setdefault((one.partition_path, bucket), one)
        if first is not one and one.paths:
            yield Finding(
                DOUBLED,
                one.paths[0],
                f"partition {one.partition_path!r} has two file groups for bucket {bucket}, {first.file_id} and "
                f"{one.file_id}: no write to it is possible, and rows that were replaced may be read. Restore the "
                "completed file of the action that replaced one of them, or the table to a savepoint from before",
            )


def _instants(found: FileSlice) -> Iterator[str]:
    names = [*((found.base.name,) if found.base else ()), *(log.name for log in found.logs)]
    return (name.instant for name in names)


def uncommitted(table: ReadableTable, slices: Sequence[FileSlice]) -> Iterator[Finding]:
    """List the data files that no completed write has committed, but for those of pending writes.

    A task that outlived its driver may leave one. They are only listed.
    """
    if table.config.timeline_layout == FLAT:
        return
    # The timeline is loaded after the folders were listed: a write that made a file before is on it.
    listings = partition_listings(table.storage)
    view = table.file_system_view()
    timeline, live = view.timeline.whole, {path for found in slices for path in found.paths}
    pending = {action.requested for action in timeline.pending}
    writes = {write.requested: write for write in timeline.completed_writes}
    for entry in (entry for _, entries in sorted(listings.items()) for entry in entries):
        name = None if entry.is_dir else parse_file_name(entry.name, rfc103_names=True)
        if name is None or name.instant in pending or entry.path in live:
            continue
        write = writes.get(name.instant)
        if write is None and not view.counts(name):
            yield _left(entry.path, f"the write at {name.instant} is not on the timeline")
        elif write is not None and entry.path not in timeline.read_commit(write).paths:
            yield _left(entry.path, f"{write.file_name} does not have it, as the file of an attempt that was repeated")


def _left(path: str, why: str) -> Finding:
    return Finding(
        UNCOMMITTED, path, f"{path}: a file of no commit: {why}; no query reads it, and it may be deleted by hand"
    )
