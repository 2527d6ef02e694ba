"""Find record keys in data files, for the partition ``record_index`` of the metadata table.

See docs/format/07-index-and-metadata.md, "Record index". What a write has changed is told by its own files as far as
they decide it: a record of the newest log wins unless the merge looks at ordering values, or makes a row of several
records. The outcome of other keys is read from the merged file slices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView, LogFile
from streaming_lsm.file_group.key_index import WantedKeys
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.merge.hash_merge import LogPart
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.table_rule import table_rule
from streaming_lsm.metadata.changed_keys import GroupKeys, Texts
from streaming_lsm.query.prune.looked_up import KeyPruner
from streaming_lsm.query.queries import Queries
from streaming_lsm.query.slices.log_parts import LogBlocks
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.query.wanted_keys import ascending_keys
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.base import FileEntry, Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline

_LAST = "9" * 17
"""A completion time after all others."""
_FEW = 10_000
"""Keys that are looked up in a slice; for more its keys are read."""
_NONE: Texts = pa.chunked_array([], pa.string())


class TableKeys:
    """Reads the record keys of tables; see `streaming_lsm.metadata.changed_keys.StoredKeys`."""

    def live(self, storage: Storage, data: Timeline, files: Mapping[str, Mapping[str, int]]) -> Iterator[GroupKeys]:
        """Yield the keys of each file group."""
        state = _State.of(storage, data)
        for partition, sizes in sorted(files.items()):
            folder = f"{partition}/" if partition else ""
            entries = [FileEntry(folder + name, size, is_dir=False, modified_ms=0) for name, size in sizes.items()]
            for found in state.view.slices_in(partition, entries):
                yield GroupKeys(partition, found.file_id, _base_instant(found), state.keys(found), _NONE)

    def changed(self, storage: Storage, data: Timeline, action: Instant, commit: CommitMetadata) -> Iterator[GroupKeys]:
        """Yield what a write changes: keys of each file group that it writes to, or replaces."""
        completed = action.completed_at(_LAST)
        before = _State.of(storage, data)
        after = _State.of(storage, data.with_latest(completed, {completed: commit}))
        written: dict[str, set[str]] = defaultdict(set)
        for stat in commit.stats:
            written[stat.partition_path].add(stat.file_id)
        replaced = commit.replaced or {}
        for partition in sorted({*written, *replaced}):
            entries = _files_of(storage, partition, written[partition].union(replaced.get(partition, ())))
            old = {one.file_id: one for one in before.view.slices_in(partition, entries)}
            new = {one.file_id: one for one in after.view.slices_in(partition, entries)}
            for file_id in sorted(written[partition] & new.keys()):
                yield _changed(before, after, old.get(file_id), new[file_id], action.requested)
            for file_id in sorted({*replaced.get(partition, ())} & old.keys()):
                keys = before.keys(old[file_id])
                yield GroupKeys(partition, file_id, action.requested, _NONE, keys)


@dataclass(frozen=True)
class _State:
    """The table as of a timeline.

    Attributes:
        view: its files.
        table: its config.
        rule: its merge rule.
        reader: reads the keys of a slice.
    """

    view: FileSystemView
    table: TableConfig
    rule: MergeRule
    reader: SliceReader

    @staticmethod
    def of(storage: Storage, timeline: Timeline) -> _State:
        table = TableConfig.from_properties(load_properties(storage), f"{storage.uri}/{PROPERTIES_PATH}")
        rule = table_rule(table)
        queries = Queries(storage, table, rule, map, 1)
        return _State(queries.view(timeline), table, rule, queries.key_reader(timeline))

    def keys(self, found: FileSlice, wanted: pa.StringArray | None = None) -> Texts:
        """Return the keys that have a row in a slice, of those that are wanted; None for all."""
        reader, found = self.reader, found.without_kept() if self.table.is_copy_on_write else found
        if wanted is not None and len(wanted) <= _FEW:
            reader = replace(reader, pruner=KeyPruner(WantedKeys.of(wanted)))
        reader.check([found])
        keys = pa.chunked_array([batch.column(0) for batch in reader.read(found)], pa.string())
        return keys if wanted is None else keys.filter(pc.is_in(keys, value_set=wanted))

    def parts(self, logs: Sequence[LogFile]) -> list[LogPart]:
        """Read the record keys of logs, and what tells deletes."""
        reader = self.reader
        names = dict.fromkeys([RECORD_KEY, *self.rule.columns(reader.schema)])
        schema = pa.schema([reader.schema.field(name).with_nullable(True) for name in names])
        blocks = LogBlocks(
            reader.storage, schema, self.rule, adjacent=True, visible=reader.visible, file_names=reader.file_names
        )
        return blocks.parts(logs)

    def decides(self, logs: Sequence[LogFile], found: FileSlice) -> bool:
        """Whether the records of logs decide whether a key is live, as long as no delete compares ordering values."""
        is_last = found.logs[len(found.logs) - len(logs) :] == tuple(logs)
        return self.rule.takes_winner and is_last


def _changed(before: _State, after: _State, old: FileSlice | None, new: FileSlice, instant: str) -> GroupKeys:
    """Return what a write changes in a file group."""
    own = [log for log in new.logs if log.name.instant == instant]
    if new.base is not None and new.base_instant == instant:
        live = after.keys(new)
        known = _NONE if old is None else before.keys(old)
        return GroupKeys(new.partition_path, new.file_id, instant, _without(live, known), _without(known, live))
    live, dead, unsure = _told(after, own, new)
    if len(unsure):
        found = after.keys(new, unsure)
        live = pa.chunked_array([*live.chunks, *found.chunks], pa.string())
        dead = pa.chunked_array([*dead.chunks, *_without(pa.chunked_array([unsure]), found).chunks], pa.string())
    return GroupKeys(new.partition_path, new.file_id, instant, live, dead)


def _told(after: _State, own: Sequence[LogFile], new: FileSlice) -> tuple[Texts, Texts, pa.StringArray]:
    """Return the keys of logs that are live, those that are not, and those of which only the merge tells."""
    records, deletes = _split(after, after.parts(own))
    if not after.decides(own, new):
        return _NONE, _NONE, ascending_keys(pa.chunked_array([*records.chunks, *deletes.chunks], pa.string()))
    if not after.rule.event_time:
        # Of a key with records and deletes in one write the merge tells which is the newer.
        both = ascending_keys(records.filter(pc.is_in(records, value_set=_set(deletes))))
        known = pa.chunked_array([both], pa.string())
        return _without(records, known), _without(deletes, known), both
    others = [log for log in new.logs if log not in own]
    hidden = _split(after, after.parts(others))[1] if others else _NONE
    unsure = records.filter(pc.is_in(records, value_set=_set(hidden)))
    doubtful = ascending_keys(pa.chunked_array([*unsure.chunks, *deletes.chunks], pa.string()))
    return _without(records, pa.chunked_array([doubtful], pa.string())), _NONE, doubtful


def _split(state: _State, parts: Sequence[LogPart]) -> tuple[Texts, Texts]:
    """Return the keys of records and those of deletes."""
    records: list[Any] = []
    deletes: list[Any] = []
    for part in parts:
        keys = part.rows.column(RECORD_KEY)
        deleted = np.ones(len(keys), np.bool_) if part.deletes else state.rule.deletes(part.rows)
        if not deleted.all():
            records += (keys.filter(pa.array(~deleted)) if deleted.any() else keys).chunks
        if deleted.any():
            deletes += keys.filter(pa.array(deleted)).chunks
    return pa.chunked_array(records, pa.string()), pa.chunked_array(deletes, pa.string())


def _without(keys: Texts, others: Texts) -> Texts:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=_set(others)))) if len(keys) and len(others) else keys


def _set(keys: Texts) -> pa.Array[Any]:
    found: pa.Array[Any] = keys.combine_chunks()
    return found


def _files_of(storage: Storage, partition: str, file_ids: Collection[str]) -> list[FileEntry]:
    """List the data files of some file groups of a partition."""
    parsed = ((entry, parse_file_name(entry.name)) for entry in storage.list(partition) if not entry.is_dir)
    return [entry for entry, name in parsed if name is not None and name.file_id in file_ids]


def _base_instant(found: FileSlice) -> str:
    return found.base_instant or min(log.name.instant for log in found.logs)
