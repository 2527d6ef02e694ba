"""The rows that one task holds of a batch: collected as they come, handed over sorted by file group and key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.columns import Flags, Int64s, flags, int64s, strings
from streaming_lsm.errors import RecordError, SchemaError
from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.keys.dictionaries import codes_of
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.merge.fold import fold
from streaming_lsm.schema import fit
from streaming_lsm.write import control
from streaming_lsm.write.plan import DELETE, FileGroup, WritePlan
from streaming_lsm.write.tombstones import LastEvents, answered, last_events

Positions = Int64s


@dataclass(frozen=True)
class GroupRows:
    """What one batch does to one file group, every part ascending by record key.

    Attributes:
        group: partition path and bucket.
        keys: record keys of `rows`.
        rows: rows to store, with the table's columns.
        deletes: record key and ordering fields of the deletes that are newer than `rows`.
        wipes: the same for deletes without ordering that are older than a row or delete of the same key above.
    """

    group: FileGroup
    keys: pa.StringArray
    rows: pa.Table
    deletes: pa.Table
    wipes: pa.Table


@dataclass(frozen=True)
class _Part:
    """One arrived batch, column by column."""

    keys: pa.StringArray
    partitions: pa.DictionaryArray[Any, Any]
    buckets: npt.NDArray[np.int32]
    deleted: Flags
    tombstone: Flags
    answered: Flags
    arrival: tuple[Int64s, ...]
    rows: pa.RecordBatch


class RecordBuffer:
    """Collects batches, then sorts and deduplicates them in one go.

    Nothing is copied on arrival; all columns are gathered once, at the end, and only for rows that stay.
    """

    def __init__(self, plan: WritePlan) -> None:
        """An empty buffer for one task of `plan`."""
        self._plan = plan
        self._parts: list[_Part] = []
        self._seen: list[LastEvents] = []
        self._row_schema = pa.schema([field.with_nullable(True) for field in plan.schema])

    def append(self, batch: pa.RecordBatch) -> None:
        """Take in a batch with the table's columns and, optionally, control columns.

        Raises:
            RecordError: null or empty record key, null ordering value, unusable partition value.
            SchemaError: a column is missing or of another type.
        """
        if batch.num_rows == 0:
            return
        plan = self._plan
        deleted, tombstone = self._deleted(batch), _flags(batch, control.TOMBSTONE)
        keys = plan.keys.record_keys(batch)
        rows = self._fit(batch)
        self._check_values(rows, keys, deleted)
        self._seen.append(last_events(batch, keys, deleted, tombstone))
        self._parts.append(
            _Part(
                keys,
                plan.keys.partition_paths(batch),
                bucket_ids(keys, plan.config.record_key_fields, plan.config.hash_fields, plan.config.num_buckets),
                deleted,
                tombstone,
                answered(batch, keys, tombstone, plan.open_deletes),
                tuple(_arrival(batch, name) for name in plan.arrival_fields),
                rows,
            )
        )

    @property
    def last_events(self) -> list[LastEvents]:
        """The last event of each topic partition, batch by batch."""
        return self._seen

    def _deleted(self, batch: pa.RecordBatch) -> Flags:
        if self._plan.operation == DELETE:
            return np.ones(batch.num_rows, np.bool_)
        flagged = self._plan.rule.deletes(batch)
        return flagged | _flags(batch, control.DELETE) | _flags(batch, control.TOMBSTONE)

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The table's columns; a delete may lack all that neither key nor order needs."""
        missing = [field for field in self._row_schema if batch.schema.get_field_index(field.name) < 0]
        if self._plan.operation == DELETE:
            for field in missing:
                batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
        return fit(batch, self._row_schema)

    def _check_values(self, rows: pa.RecordBatch, keys: pa.StringArray, deleted: Flags) -> None:
        kept = pa.array(~deleted)
        required = {field.name for field in self._plan.schema if not field.nullable}
        for name in sorted(required.union(self._plan.rule.ordering_fields)):
            missing = pc.and_(pc.is_null(rows.column(name)), kept)
            if pc.any(missing).as_py():
                key = keys[pc.index(missing, True).as_py()].as_py()
                what = "ordering field" if name in self._plan.rule.ordering_fields else "required column"
                raise RecordError(f"{what} {name!r} is null in the row with key {key!r}; every upserted row needs it")
        self._check_delete_order(rows, keys, deleted)

    def _check_delete_order(self, rows: pa.RecordBatch, keys: pa.StringArray, deleted: Flags) -> None:
        nulls = [np.asarray(pc.is_null(rows.column(name))) for name in self._plan.rule.ordering_fields]
        if len(nulls) < 2:
            return
        partly = deleted & np.logical_or.reduce(nulls) & ~np.logical_and.reduce(nulls)
        if partly.any():
            key = keys[int(np.argmax(partly))].as_py()
            fields = ", ".join(self._plan.rule.ordering_fields)
            raise RecordError(f"the delete of key {key!r} has some of the ordering fields {fields}; give all or none")

    def drain(self) -> Iterator[GroupRows]:
        """Hand over everything by file group, and forget it."""
        parts, self._parts = self._parts, []
        if not parts:
            return
        rows = pa.Table.from_batches([part.rows for part in parts]).combine_chunks()
        keys = pa.concat_arrays([part.keys for part in parts])
        paths, partition = _unify([part.partitions for part in parts])
        buckets = self._plan.config.num_buckets
        code = partition.astype(np.int64) * buckets + np.concatenate([part.buckets for part in parts])
        sorted_rows = _sort(keys, code, parts)
        if not len(sorted_rows.order):
            return
        deleted = np.concatenate([part.deleted for part in parts])
        kept = self._keep(sorted_rows, rows, deleted)
        groups = np.unique(code[sorted_rows.order])
        parts_of = zip(_by_group(kept.rows, code, groups), _by_group(kept.wipes, code, groups), strict=True)
        for group_code, (of_group, wipes) in zip(groups.tolist(), parts_of, strict=True):
            group = (paths[group_code // buckets].as_py(), group_code % buckets)
            yield self._gather(group, _Kept(of_group, wipes), rows, keys, deleted)

    def _keep(self, found: _Sorted, rows: pa.Table, deleted: Flags) -> _Kept:
        """Rows that stay, in key order, after dedup by the merge rule (format 05, Dedup before write)."""
        rule, order = self._plan.rule, found.order
        ranks, wipes = rule.ranks(rows), rule.wipes(rows, deleted)
        folded = fold(found.starts, wipes[order], None if ranks is None else ranks[order])
        if self._plan.combine:
            return _Kept(order[folded.winner], order[folded.wipe[folded.wipe >= 0]])
        # Data and delete files of one flush have no order between them: a key with both is reduced all the same.
        some, every = (ufunc.reduceat(deleted[order], found.starts) for ufunc in (np.logical_or, np.logical_and))
        mixed = some & ~every
        ends = np.append(found.starts[1:], len(order))
        stays = np.repeat(~mixed, ends - found.starts)
        stays[folded.winner[mixed]] = True
        return _Kept(order[stays], order[folded.wipe[mixed & (folded.wipe >= 0)]])

    def _gather(self, group: FileGroup, kept: _Kept, rows: pa.Table, keys: pa.StringArray, deleted: Flags) -> GroupRows:
        is_delete = deleted[kept.rows]
        data = pa.array(kept.rows[~is_delete], pa.int64())
        return GroupRows(
            group,
            keys.take(data),
            rows.take(data).cast(self._plan.schema),
            self._delete_rows(kept.rows[is_delete], rows, keys),
            self._delete_rows(kept.wipes, rows, keys),
        )

    def _delete_rows(self, positions: Positions, rows: pa.Table, keys: pa.StringArray) -> pa.Table:
        taken = pa.array(positions, pa.int64())
        ordering = rows.select(self._plan.rule.ordering_fields).take(taken)
        return pa.table([keys.take(taken), *ordering.columns], schema=self._plan.delete_schema)


@dataclass(frozen=True)
class _Sorted:
    """Row numbers by file group, key and arrival; `starts` are positions where another key begins."""

    order: Positions
    starts: Positions


@dataclass(frozen=True)
class _Kept:
    rows: Positions
    wipes: Positions


def _by_group(rows: Positions, code: Int64s, groups: Int64s) -> list[Positions]:
    """`rows`, which lie in the order of the groups, cut where another group begins."""
    return np.split(rows, np.searchsorted(code[rows], groups[1:]))


def _sort(keys: pa.StringArray, code: Int64s, parts: list[_Part]) -> _Sorted:
    arrival = [np.concatenate(columns) for columns in zip(*(part.arrival for part in parts), strict=True)]
    by_key = sort_keys(KeyWords.of(keys), arrival)
    key_number = np.zeros(len(keys), np.int64)
    key_number[by_key.starts] = 1
    regroup = np.argsort(code[by_key.order], kind="stable")
    order, key_number = by_key.order[regroup], np.cumsum(key_number)[regroup]
    differs = _differs(key_number) | _differs(code[order])
    stays = ~_answered_tombstones(differs, order, parts)
    return _Sorted(order[stays], np.flatnonzero(_differs(np.cumsum(differs, dtype=np.int64)[stays])))


def _answered_tombstones(differs: Flags, order: Positions, parts: list[_Part]) -> Flags:
    """Tombstones that come right after the delete of their key, in this batch or at the end of the one before."""
    tombstone = np.concatenate([part.tombstone for part in parts])[order]
    deletes = np.concatenate([part.deleted for part in parts])[order] & ~tombstone
    repeats: Flags = differs & np.concatenate([part.answered for part in parts])[order]
    repeats[1:] |= tombstone[1:] & deletes[:-1] & ~differs[1:]
    return repeats


def _differs(values: Int64s) -> Flags:
    differs = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs


def _unify(partitions: list[pa.DictionaryArray[Any, Any]]) -> tuple[pa.StringArray, npt.NDArray[np.int32]]:
    unified = pa.concat_arrays(partitions)
    return strings(unified.dictionary), codes_of(unified)


def _flags(batch: pa.RecordBatch, name: str) -> Flags:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return np.zeros(batch.num_rows, np.bool_)
    return flags(batch.column(index))


def _arrival(batch: pa.RecordBatch, name: str) -> Int64s:
    index = batch.schema.get_field_index(name)
    if index < 0:
        raise SchemaError(f"arrival column {name!r} is missing; the batch has {', '.join(batch.schema.names)}")
    column = batch.column(index)
    if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type)):
        raise SchemaError(f"arrival column {name!r} must be a whole number or a timestamp without nulls")
    return int64s(column)
