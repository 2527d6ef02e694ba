"""Find record keys in data files, for the partition ``record_index`` of the metadata table.

See docs/format/07-index-and-metadata.md, "Record index". What a write has changed is told by its own files as far as
they decide it: a record of the newest log wins unless the merge looks at ordering values, or makes a row of several
records. The outcome of other keys is read from the merged file slices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.arrow.columns import pc, without
from streaming_lsm.file_group.data_file import open_log, open_parquet
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView, LogFile
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.index.changed_slices import added_logs, changed_slices, listed_entries, slices_of
from streaming_lsm.index.decided_keys import deletes_above, records_above
from streaming_lsm.merge.hash_merge import LogPart
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.table_rule import table_rule
from streaming_lsm.metadata.changed_keys import GroupKeys, KeysSince, ListedTable, Texts
from streaming_lsm.query.prune.looked_up import KeyPruner
from streaming_lsm.query.queries import Queries
from streaming_lsm.query.slices.log_parts import LogBlocks
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.query.wanted_keys import ascending_keys
from streaming_lsm.schema import RECORD_KEY, delete_log_schema
from streaming_lsm.storage.base import Storage
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

    def live(self, storage: Storage, now: ListedTable) -> Iterator[GroupKeys]:
        """Yield the keys of each file group."""
        state = _State.of(storage, now.data)
        for partition in sorted(now.files):
            for found in state.view.slices_in(partition, listed_entries(now.files, partition)):
                yield GroupKeys(partition, found.file_id, _base_instant(found), state.keys(found), _NONE)

    def since(self, storage: Storage, before: ListedTable, now: ListedTable) -> Iterator[KeysSince]:
        """Yield the keys of each file group whose newest slice has other files than before."""
        state = _State.of(storage, now.data)
        changed = changed_slices(_State.of(storage, before.data).view, before.files, state.view, now.files)
        for partition, file_id, old, new in changed:
            if new is None:
                yield KeysSince(GroupKeys(partition, file_id, "", _NONE, _NONE), is_whole=True)
                continue
            added = added_logs(old, new)
            if added is None:
                keys = GroupKeys(partition, file_id, _base_instant(new), state.keys(new), _NONE)
                yield KeysSince(keys, is_whole=True)
            else:
                yield KeysSince(_logged_keys(state, added, new, _base_instant(new)), is_whole=False)

    def changed(self, storage: Storage, data: Timeline, action: Instant, commit: CommitMetadata) -> Iterator[GroupKeys]:
        """Yield what a write changes: keys of each file group that it writes to, or replaces."""
        completed = action.completed_at(_LAST)
        before = _State.of(storage, data)
        after = _State.of(storage, data.with_latest(completed, {completed: commit}))
        written: dict[tuple[str, str], list[WriteStat]] = defaultdict(list)
        for stat in commit.stats:
            written[stat.partition_path, stat.file_id].append(stat)
        groups = {group for group, stats in written.items() if not after.updates_only(stats)} | commit.replaced_groups
        for partition, file_id, old, new in slices_of(storage, groups, before.view, after.view):
            if new is not None:
                found = _changed(before, after, old, new, action.requested)
                indexed: Any = [one.indexed_keys for one in written[partition, file_id] if one.indexed_keys is not None]
                yield replace(found, indexed=pa.chunked_array(indexed, pa.string()))
            elif old is not None:
                yield GroupKeys(partition, file_id, action.requested, _NONE, before.keys(old))


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

    @property
    def marks_deletes(self) -> bool:
        """Whether rows may be deletes by their columns."""
        return set(self.rule.columns(self.reader.schema)) > set(self.rule.ordering_fields)

    def logged(self, logs: Sequence[LogFile]) -> _Logged:
        """Read the record keys and ordering fields of logs."""
        names = dict.fromkeys([RECORD_KEY, *self.rule.columns(self.reader.schema)])
        schema = pa.schema([self.reader.schema.field(name).with_nullable(True) for name in names])
        return _Logged.of(self._parts(logs, schema), schema, self.rule)

    def _parts(self, logs: Sequence[LogFile], schema: pa.Schema) -> Iterator[LogPart]:
        reader = self.reader
        inline = [log for log in logs if not log.is_native]
        blocks = LogBlocks(
            reader.storage, schema, self.rule, adjacent=True, visible=reader.visible, file_names=reader.file_names
        )
        yield from blocks.parts(inline)
        for log in logs:
            if log.is_native:
                with ExitStack() as files:
                    file, _ = open_log(reader.storage, log, self.rule, files, reader.file_names)
                    wanted = delete_log_schema(schema, self.rule.ordering_fields) if file.is_delete else schema
                    yield LogPart(pa.Table.from_batches(file.batches(wanted), schema=wanted), file.is_delete)

    def highest(self, found: FileSlice) -> pa.Scalar[Any] | None:
        """Return a value that no row of a slice exceeds in the only ordering field, by the footers; None if unknown."""
        fields = self.rule.ordering_fields
        if len(fields) != 1 or not found.is_native or self.reader.file_names is not None:
            return None
        kind = self.reader.schema.field(fields[0]).type
        # The statistics of floats leave out NaN, and a null ranks as zero.
        if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
            return None
        limits: list[Any] = []
        for path in (path for path in found.paths if path not in {log.path for log in found.logs if log.is_delete}):
            with ExitStack() as files:
                limit = _highest(open_parquet(self.reader.storage, path, files).parquet.metadata, fields[0])
            if limit is None:
                return None
            limits.append(limit)
        return pa.scalar(max(limits), kind) if limits else None

    def updates_only(self, stats: Sequence[WriteStat]) -> bool:
        """Whether a write to a file group has one record for each key that the record index has there, and no others.

        A key with a row keeps one then.
        """
        if len(stats) != 1 or stats[0].log_version is None or stats[0].indexed_keys is None or stats[0].num_deletes:
            return False
        return self.rule.takes_winner and not self.marks_deletes and stats[0].num_writes == len(stats[0].indexed_keys)

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
        return GroupKeys(new.partition_path, new.file_id, instant, without(live, known), without(known, live))
    return _logged_keys(after, own, new, instant)


def _logged_keys(after: _State, own: Sequence[LogFile], new: FileSlice, instant: str) -> GroupKeys:
    """Return the keys of the records of some logs of a slice."""
    live, dead, unsure = _told(after, own, new)
    if len(unsure):
        found = after.keys(new, unsure)
        live = pa.chunked_array([*live.chunks, *found.chunks], pa.string())
        dead = pa.chunked_array([*dead.chunks, *without(pa.chunked_array([unsure]), found).chunks], pa.string())
    # A key may be in several logs.
    live, dead = (pa.chunked_array([pc.unique(keys)], pa.string()) for keys in (live, dead))
    return GroupKeys(new.partition_path, new.file_id, instant, live, dead)


def _told(after: _State, own: Sequence[LogFile], new: FileSlice) -> tuple[Texts, Texts, pa.StringArray]:
    """Return the keys of logs that are live, those that are not, and those of which only the merge tells."""
    logged = after.logged(own)
    records, deletes = logged.records, logged.deletes
    if not after.decides(own, new):
        return _NONE, _NONE, _joined(_keys(records), _keys(deletes))
    certain, lasting = np.ones(len(records), np.bool_), np.ones(len(deletes), np.bool_)
    if after.rule.event_time:
        others = [log for log in new.logs if log not in own]
        hiding = [log for log in others if log.is_delete or not log.is_native or after.marks_deletes]
        if hiding:
            certain = records_above(after.rule, records, after.logged(hiding).deletes)
        if len(deletes):
            lasting = deletes_above(after.rule, deletes, after.highest(replace(new, logs=tuple(others))))
    # Of a key with records and deletes in one write the merge tells which is the newer.
    both = _keys(records).filter(pc.is_in(_keys(records), value_set=_set(_keys(deletes))))
    unsure = _joined(
        both, *(_keys(table.filter(pa.array(~known))) for table, known in ((records, certain), (deletes, lasting)))
    )
    told = pa.chunked_array([unsure], pa.string())
    return without(_keys(records), told), without(_keys(deletes), told), unsure


@dataclass(frozen=True)
class _Logged:
    """Records and deletes of logs, by record key and ordering fields."""

    records: pa.Table
    deletes: pa.Table

    @staticmethod
    def of(parts: Iterable[LogPart], schema: pa.Schema, rule: MergeRule) -> _Logged:
        names = [RECORD_KEY, *rule.ordering_fields]
        kinds = pa.schema([schema.field(name) for name in names])
        records, deletes = [kinds.empty_table()], [kinds.empty_table()]
        for part in parts:
            rows = part.rows.select(names).cast(kinds)
            deleted = np.ones(len(rows), np.bool_) if part.deletes else rule.deletes(part.rows)
            records.append(rows.filter(pa.array(~deleted)) if deleted.any() else rows)
            deletes.append(rows.filter(pa.array(deleted)))
        return _Logged(pa.concat_tables(records), pa.concat_tables(deletes))


def _keys(table: pa.Table) -> Texts:
    found: Texts = table.column(RECORD_KEY)
    return found


def _joined(*parts: Texts) -> pa.StringArray:
    return ascending_keys(pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string()))


def _highest(metadata: pq.FileMetaData, column: str) -> Any:
    """Return the largest value of a column by the statistics of a file; None if it is not known, or a value is null."""
    limits: list[Any] = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        place = next(
            (place for place in range(group.num_columns) if group.column(place).path_in_schema == column), None
        )
        told: Any = None if place is None else group.column(place).statistics
        if told is None or not told.has_min_max or not told.has_null_count or told.null_count:
            return None
        limits.append(told.max)
    return max(limits, default=None)


def _set(keys: Texts) -> pa.Array[Any]:
    found: pa.Array[Any] = keys.combine_chunks()
    return found


def _base_instant(found: FileSlice) -> str:
    return found.base_instant or min(log.name.instant for log in found.logs)
