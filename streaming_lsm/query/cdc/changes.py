"""Plan CDC queries: find what each write did to each file group, and from which files that is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import pyarrow as pa

from streaming_lsm.errors import CommitConflict, ConfigError, CorruptFileError, ReadOvertaken
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView, LogFile
from streaming_lsm.file_group.lost_files import check_files, check_group
from streaming_lsm.format.actions.commit import COMPACTING, CommitMetadata
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.query.cdc.change_log import recorded_columns
from streaming_lsm.query.cdc.change_reader import AFTER, BEFORE, KEY, OP, TIME, ChangeReader, GroupChanges
from streaming_lsm.query.result import Result, first_rows
from streaming_lsm.query.slices.log_kinds import check_kinds
from streaming_lsm.storage.base import FileEntry, Listing
from streaming_lsm.storage.failures import named_failures
from streaming_lsm.timeline.instant import FLAT, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.lost_completion import check_named_writes

_FileGroup = tuple[str, str]
"""Partition path and file id."""
_LOG = logging.getLogger(__name__)
_BUCKET_DIGITS = 8
"""Length of the bucket, with which the id of a file group begins."""
_REWRITES = (*COMPACTING, "CLUSTER")
"""Operations that rewrite rows without changing them.

Change logs of compactions are not read: they have the changes of the delta commits before once more
(docs/format/03-native-logs.md, "Which change logs are read").
"""


@dataclass
class _State:
    """The table just before or just after a write.

    Attributes:
        timeline: the timeline as of then.
        slices: those looked for so far.
    """

    timeline: Timeline
    slices: dict[_FileGroup, FileSlice | None] = field(default_factory=dict)

    @cached_property
    def visible(self) -> Container[str]:
        """The instants whose inline blocks are visible."""
        return self.timeline.visible()


@dataclass(frozen=True)
class Changes(Result):
    """A CDC query; nothing is read until its batches are.

    Attributes:
        timeline: the table's timeline.
        until: the timeline as of the end of the range.
        since: beginning of the range, excluded.
        commits: requested times of the queried writes, ordered by completion.
        reader: reads the changes of one file group by one write.
        view: returns the file system view of a timeline.
        most: see `Result`; `parts` lists all the same.
    """

    timeline: Timeline
    until: Timeline
    since: str
    commits: tuple[str, ...]
    reader: ChangeReader
    view: Callable[[Timeline], FileSystemView]

    def __repr__(self) -> str:
        limited = "" if self.most is None else f", most={self.most:,}"
        return f"changes of {len(self.commits):,} writes to {self.reader.slices.storage.uri}{limited}"

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result; see `ChangeReader.schema`."""
        return self.reader.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes write by write; the rows of one file group are in memory at a time.

        Raises:
            ConfigError: a write is archived.
            ReadOvertaken: a clean has deleted files of the state before or after a write.
            CorruptFileError: a committed file, or the completed instant file of a write, is missing.
            UnsupportedTable: a log has blocks of an unsupported kind.
        """
        with named_failures():
            yield from first_rows(chain.from_iterable(map(self.reader.read, self.parts())), self.most)

    def parts(self) -> Iterator[GroupChanges]:
        """List the file groups that the writes changed, write by write; the files of the table are listed once.

        Raises as `to_batches`.
        """
        try:
            yield from self._parts()
        except CommitConflict as error:
            raise ReadOvertaken(
                f"{error}; these changes were planned before: plan them again, and keep more states of the table for "
                "longer reads (hoodie.clean.commits.retained, hoodie.clean.hours.retained or "
                "hoodie.clean.fileversions.retained, by the cleaning policy)"
            ) from None

    def _parts(self) -> Iterator[GroupChanges]:
        writes = self._writes()
        self._check_files(writes)
        self._check_kinds()
        for write in writes:
            commit = self.timeline.read_commit(write)
            if commit.operation_type not in _REWRITES and not commit.compacted:
                yield from self._of_write(write, commit)

    def _check_files(self, writes: Iterable[Instant]) -> None:
        """Check for missing files and writes; each state is checked again for the file groups that are read from it."""
        view = self.view(self.until)
        listings = self._listings.items()
        check_files(view, (found for partition, entries in listings for found in view.slices_in(partition, entries)))
        check_named_writes(self.timeline, writes, self.since)

    def _check_kinds(self) -> None:
        """Check the block types of all visible logs before any change is yielded."""
        view = self.view(self.timeline)
        files = (file for entries in self._listings.values() for file in view.visible_files(entries))
        check_kinds(self.reader.slices.storage, (file for file in files if isinstance(file, LogFile)))

    def _writes(self) -> list[Instant]:
        """Find the queried writes on the active timeline and in the history; layout 1 keeps no write stats there."""
        found = {write.requested: write for write in self.timeline.completed_writes}
        archived = [time for time in self.commits if time not in found]
        if archived and self.timeline.layout == FLAT:
            raise ConfigError(
                f"the write at {archived[-1]} is archived, and its changes cannot be queried: begin at its completion "
                "time or later"
            )
        found |= {time: write for time in archived if (write := self.timeline.history.write(time)) is not None}
        return [found[time] for time in self.commits]

    def _of_write(self, write: Instant, commit: CommitMetadata) -> Iterator[GroupChanges]:
        logs: dict[_FileGroup, list[str]] = {}
        groups = dict.fromkeys((stat.partition_path, stat.file_id) for stat in commit.stats)
        for stat in commit.stats:
            for path, size in stat.cdc_files:
                self._check_size(path, size, write)
                logs.setdefault((stat.partition_path, stat.file_id), []).append(path)
        for partition, file_ids in (commit.replaced or {}).items():
            groups.update(dict.fromkeys((partition, file_id) for file_id in file_ids))
        before, after = _State(self.timeline.before(write)), _State(self.timeline.up_to(write))
        overwritten = _overwritten(commit)
        for group in [group for group in groups if group not in overwritten.values()]:
            recorded = tuple(logs.get(group, ()))
            needed = self._needed(write, recorded)
            changes = GroupChanges(write.requested, () if needed is None else recorded)
            if needed is None or BEFORE in needed:
                found, visible = self._slice(write, before, overwritten.get(group, group))
                changes = replace(changes, before=found, visible_before=visible)
            if needed is None or AFTER in needed:
                found, visible = self._slice(write, after, group)
                changes = replace(changes, after=found, visible_after=visible)
            yield changes

    def _check_size(self, path: str, size: int, write: Instant) -> None:
        stored = self._sizes.get(path, size)
        if size > 0 and stored != size:
            raise CorruptFileError(
                f"{path} has {stored:,} bytes, and {write.path} says {size:,}: restore the file, or delete it, so that "
                "the changes are worked out from base files and logs"
            )

    def _needed(self, write: Instant, logs: Sequence[str]) -> frozenset[str] | None:
        """Return the images that the change logs of a file group lack; None if they cannot be used.

        A lost log is no loss of changes: without it, they are worked out from the slices before and after.
        """
        needed: set[str] = set()
        for path in logs:
            try:
                columns = recorded_columns(self.reader.slices.storage, path)
            except FileNotFoundError:
                _LOG.warning("%s is missing: the changes by %s are worked out without it", path, write.path)
                return None
            if columns is not None:
                if not (columns >= {OP, TIME, BEFORE, AFTER} or columns >= {OP, KEY}):
                    return None
                needed |= {BEFORE, AFTER} - columns
        return frozenset(needed) if logs else None

    def _slice(
        self, write: Instant, state: _State, group: _FileGroup
    ) -> tuple[FileSlice | None, Container[str] | None]:
        """Find the slice of one file group just before or just after a write, and which blocks are visible there.

        Raises:
            ReadOvertaken: a clean has deleted files of that state.
        """
        if not state.slices:
            self.timeline.check_retained(f"changes by {write.path}", state.timeline.until or "")
        if group not in state.slices:
            found = self.view(state.timeline).slices_in(group[0], self._files_of_groups.get(group, []))
            state.slices[group] = found[0] if found else None
        there = state.slices[group]
        check_group(self.view(state.timeline), group, there)
        return there, state.visible if self.reader.slices.visible is not None else None

    @cached_property
    def _files_of_groups(self) -> Mapping[_FileGroup, Listing]:
        """The files of each file group."""
        found: dict[_FileGroup, list[FileEntry]] = {}
        for partition, entries in self._listings.items():
            for entry in entries:
                name = None if entry.is_dir else parse_file_name(entry.name, rfc103_names=True)
                if name is not None:
                    found.setdefault((partition, name.file_id), []).append(entry)
        return found

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        return {entry.path: entry.size for entries in self._listings.values() for entry in entries}

    @cached_property
    def _listings(self) -> Mapping[str, Listing]:
        """The listings of all partitions, taken once: the slices of every timeline are derived from them."""
        return self.view(self.timeline).listings()


def _overwritten(commit: CommitMetadata) -> dict[_FileGroup, _FileGroup]:
    """Map new file groups to those of the same bucket that the write replaced: a key in both was updated."""
    replaced = {
        (partition, file_id[:_BUCKET_DIGITS]): (partition, file_id) for partition, file_id in commit.replaced_groups
    }
    written = [(stat.partition_path, stat.file_id) for stat in commit.stats]
    places = {group: (group[0], group[1][:_BUCKET_DIGITS]) for group in written}
    return {group: replaced[place] for group, place in places.items() if place in replaced}
