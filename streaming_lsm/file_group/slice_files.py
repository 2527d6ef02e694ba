"""Open the files of a file slice that a read needs, in merge order.

Logs that a log compaction replaced are not opened, so that what a read costs grows with the sorted runs, not with the
commits since the base file was written. A replaced log may replace others itself: the header of a log compaction says
all of them (docs/format/06-services.md, "Log compaction"). Where another program's does not, one footer of each
replaced instant is read and closed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby

from streaming_lsm.file_group.data_file import (
    BATCH_BYTES,
    BATCH_ROWS,
    MAX_OPEN_FILES,
    DataFile,
    FooterReader,
    checked,
)
from streaming_lsm.file_group.file_system_view import FileSlice, LogFile
from streaming_lsm.file_group.key_search import KeySearch
from streaming_lsm.file_group.known_footers import KnownFooterReader, KnownFooters
from streaming_lsm.file_group.log_order import KnownInstants, is_of_commits, merge_order
from streaming_lsm.format.column_versions import FileNames
from streaming_lsm.format.log.native_footer import LogHeader
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.storage.base import Storage

_SLICE_ROWS = 1 << 20
_SLICE_BYTES = 256 << 20


def open_slice(
    storage: Storage,
    file_slice: FileSlice,
    rule: MergeRule,
    files: ExitStack,
    batch_bytes: int = BATCH_BYTES,
    commits: frozenset[str] | None = None,
    footers: KnownFooters | None = None,
    file_names: FileNames | None = None,
    search: KeySearch | None = None,
) -> list[DataFile]:
    """Open the files of a slice in merge order, the base file first, and check their footers.

    Fewer than `MAX_OPEN_FILES` stay open; if more are to be read, each is opened again when it is read.

    Args:
        rule: names the ordering fields, which delete logs must have.
        files: closes the files on exit.
        batch_bytes: approximate maximum bytes of a file's batch; less where many files are read.
        commits: instants whose rows take part, for an incremental read; None for all.
        footers: those that were read before, for look-ups: the files are opened when they are read.
        file_names: gives the columns the names that the table has now.
        search: leaves out logs that hold none of some keys, without a look at them; None to open all. Give none where
            `commits` are given.

    Raises:
        CorruptFileError: a file is missing or damaged, or its footer contradicts its name.
        UnsupportedTable: a log of a newer format, or one with partial rows.
        StorageError: a file cannot be opened at present.
    """
    with ExitStack() as held:
        kept, reads = _Kept(held), FooterReader(storage)
        reader = reads if footers is None else KnownFooterReader(reads, footers)
        opened: list[DataFile] = []
        if file_slice.base is not None:
            with ExitStack() as one:
                base = reader.base(file_slice.base, one).named(file_names)
                opened.append(replace(base, commits=commits, batch_bytes=batch_bytes))
                kept.add(one)
        known = KnownInstants()
        found = _read_logs(file_slice, reader, kept, known, commits, search)
        # An incremental read filters before it merges: what was left out replaces nothing.
        replaced = known.said if commits is None else None
        for file, header in merge_order(found, log_said, file_slice.base_instant, replaced):
            log = kept.sized(checked(file, header, rule, file_names), batch_bytes)
            opened.append(replace(log, commits=commits) if header.compacted and not log.is_delete else log)
        return kept.moved(opened, files)


def open_logs(
    storage: Storage, logs: Sequence[LogFile], rule: MergeRule, files: ExitStack, file_names: FileNames | None = None
) -> list[DataFile]:
    """Open adjacent logs of a slice, in the order given, and check their footers; raises as `open_slice`.

    Args:
        logs: in merge order. It cannot be found again without the logs that those of a log compaction replaced.
        rule: names the ordering fields, which delete logs must have.
        files: closes the files on exit.
        file_names: gives the columns the names that the table has now.
    """
    with ExitStack() as held:
        kept, reader, opened = _Kept(held), FooterReader(storage), list[DataFile]()
        for log in logs:
            with ExitStack() as one:
                opened.append(checked(*reader.log(log, one), rule, file_names))
                kept.add(one)
        return kept.moved([kept.sized(file, BATCH_BYTES) for file in opened], files)


def _read_logs(
    file_slice: FileSlice,
    reader: FooterReader | KnownFooterReader,
    kept: _Kept,
    known: KnownInstants,
    commits: frozenset[str] | None,
    search: KeySearch | None,
) -> list[tuple[DataFile, LogHeader]]:
    """Open the logs that take part, in the order of their names; what replaced a log is newer than it."""
    there = {log.name.instant for log in file_slice.logs}

    def takes_part(instant: str) -> bool:
        if commits is None:
            return instant not in known.covered
        return instant != file_slice.base_instant and is_of_commits(instant, known.said[instant], there, commits)

    found: dict[str, tuple[DataFile, LogHeader]] = {}
    for instant, logs in _newest_first(file_slice.logs):
        for log in logs:
            if instant in known.said and not takes_part(instant):
                break
            if search is not None and search.rules_out(log):
                known.learn(instant, (), None)  # an entry covers no log of a log compaction
                continue
            with ExitStack() as one:
                file, header = reader.log(log, one)
                if search is not None:
                    search.learn(file)
                known.learn(instant, header.compacted, header.chain)
                if takes_part(instant):
                    found[log.path] = file, header
                    kept.add(one)
    return [found[log.path] for log in file_slice.logs if log.path in found]


def _newest_first(logs: Sequence[LogFile]) -> Iterator[tuple[str, list[LogFile]]]:
    ordered = sorted(logs, key=lambda log: log.name.instant, reverse=True)
    return ((instant, list(found)) for instant, found in groupby(ordered, key=lambda log: log.name.instant))


def searched_slice(
    storage: Storage, file_slice: FileSlice, search: KeySearch, footers: KnownFooters | None = None
) -> FileSlice:
    """Leave out the native logs of a slice that hold none of some keys; logs of log compactions are kept.

    Raises:
        CorruptFileError: see `open_slice`.
        UnsupportedTable: a log of a newer format.
        StorageError: a file cannot be opened at present.
    """
    reads = FooterReader(storage, partial=True)
    reader = reads if footers is None else KnownFooterReader(reads, footers)
    left = set[str]()
    for log in reversed(file_slice.logs):
        if search.rules_out(log):
            continue
        with ExitStack() as one:
            file, header = reader.log(log, one)
            search.learn(file)
            if header.compacted or header.chain is not None or search.may_be_in(file):
                left.add(log.path)
            else:
                search.closed.append(file)
    return replace(file_slice, logs=tuple(log for log in file_slice.logs if log.path in left))


def log_said(log: tuple[DataFile, LogHeader]) -> tuple[str, tuple[str, ...]]:
    """Return what the header of an open log says, see `Said`."""
    return log[0].instant, log[1].compacted


@dataclass
class _Kept:
    """Keeps files open as long as they are few.

    Attributes:
        held: closes them.
        count: number of files that are to be read.
    """

    held: ExitStack
    count: int = field(default=0)

    @property
    def are_few(self) -> bool:
        """Whether all of them are open; one more is open while it is looked at."""
        return self.count < MAX_OPEN_FILES

    def add(self, one: ExitStack) -> None:
        """Take over a file, which `one` closes; if there are too many, all are closed."""
        self.count += 1
        if self.are_few:
            self.held.enter_context(one.pop_all())
        else:
            self.held.close()

    def sized(self, log: DataFile, batch_bytes: int) -> DataFile:
        """Limit the batches of a log.

        The batches of all logs share one limit, so that a slice of many takes no more memory than one of a few. The
        base file, by far the largest, ends most blocks of a merge: with smaller batches there would be more, smaller
        blocks.
        """
        share = max(1, min(self.count, MAX_OPEN_FILES))
        rows, size = min(BATCH_ROWS, _SLICE_ROWS // share), min(batch_bytes, _SLICE_BYTES // share)
        return replace(log, batch_rows=rows, batch_bytes=size)

    def moved(self, opened: Sequence[DataFile], files: ExitStack) -> list[DataFile]:
        """Hand the open files over to `files`; those of too many are opened again when they are read."""
        if not self.are_few:
            return [replace(file, opened=None) for file in opened]
        files.enter_context(self.held.pop_all())
        return list(opened)
