"""Plan the queries of a table: snapshot, read-optimized, incremental and CDC.

A plan is a `Scan`, or for CDC a `Changes`; rows are read when its batches are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.errors import SchemaError, TableNotFound, UnsupportedTable
from streaming_lsm.file_group.consistent_listing import list_file_slices
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.file_group.latest_slices import FileSlices
from streaming_lsm.format.column_versions import ColumnVersions, FileNames
from streaming_lsm.format.metadata.secondary_index import group_file_id
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.merge_mode import IGNORE_DEFAULTS
from streaming_lsm.format.table.properties import NUM_BUCKETS_KEY, STRAY_ROWS_KEY
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.metadata.column_ranges import column_ranges
from streaming_lsm.metadata.listing import ChoosePartitions
from streaming_lsm.metadata.partition_ranges import partition_ranges
from streaming_lsm.metadata.record_locations import record_locations
from streaming_lsm.metadata.shard_files import ShardFiles
from streaming_lsm.query.cdc.change_reader import ChangeReader
from streaming_lsm.query.cdc.changes import Changes
from streaming_lsm.query.columns import check_columns, filter_columns
from streaming_lsm.query.default_partition import DefaultPartition
from streaming_lsm.query.kept_files import BucketSlices, KeptFiles
from streaming_lsm.query.prune.expression import predicate_of
from streaming_lsm.query.prune.expression_index import expressed
from streaming_lsm.query.prune.file_groups import FileGroupPruner, SkippedSlices
from streaming_lsm.query.prune.file_ranges import ranged_files, read_partitions, read_slices
from streaming_lsm.query.prune.keys import possible_keys, wanted_keys
from streaming_lsm.query.prune.looked_up import KeyPruner
from streaming_lsm.query.prune.predicate import Predicate, columns_of
from streaming_lsm.query.prune.record_index import have_buckets, slices_of_keys
from streaming_lsm.query.prune.row_groups import RowGroupPruner
from streaming_lsm.query.prune.secondary_index import possible_keys_of_values
from streaming_lsm.query.range_files import files_of_range
from streaming_lsm.query.scan import MapSlices, Scan
from streaming_lsm.query.slices.log_parts import visible_blocks
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.query.text.where import parse_where
from streaming_lsm.query.wanted_keys import Keys, record_keys_of
from streaming_lsm.schema import COMMIT_TIME, META_COLUMNS, RECORD_KEY, from_avro, with_meta
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.schema_on_read import column_versions
from streaming_lsm.timeline.timeline import Timeline, limit_text
from streaming_lsm.txn.lost_completion import check_named_writes, first_archived

SNAPSHOT, READ_OPTIMIZED, INCREMENTAL, CDC = "snapshot", "read_optimized", "incremental", "cdc"
QUERY_TYPES = (SNAPSHOT, READ_OPTIMIZED, INCREMENTAL, CDC)


@dataclass(frozen=True)
class QueryOptions:
    """The projection and filter of a query.

    Attributes:
        columns: the columns of the result, in order; None for all of the table's.
        filter: keeps the rows for which this expression is true; a text is SQL, see `parse_where`.
        meta: whether to return the five meta columns, before the others.
    """

    columns: Sequence[str] | None = None
    filter: pc.Expression | str | None = None
    meta: bool = False

    def names(self, schema: pa.Schema) -> tuple[str, ...]:
        """List the columns of the result.

        Args:
            schema: columns of a data file, meta columns included.

        Raises:
            SchemaError: a column is not in the table, or given twice.
        """
        names = tuple(schema.names[len(META_COLUMNS) :]) if self.columns is None else _names(self.columns)
        if len(set(names)) < len(names):
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            raise SchemaError(f"column {twice!r} is given twice: name each column of the result once")
        if self.meta:
            names = META_COLUMNS + tuple(name for name in names if name not in META_COLUMNS)
        check_columns(names, schema)
        return names


@dataclass(frozen=True)
class Queries:
    """Plans the queries of one table.

    Attributes:
        storage: the table's files.
        config: the table's config, from `hoodie.properties`.
        rule: how records of one key merge.
        run: maps a function over slices in parallel and yields the results in order.
        width: number of slices that `run` reads in parallel.
        spill_folder: a folder on a local disk for slices of many files; None means the system's for temporary files.
        rfc103_names: whether logs under the names of RFC-103's first text are read.
        by_metadata: whether files are listed from the metadata table, if the table has one.
        skips_by_ranges: whether slices are skipped by the ranges of columns in the metadata table, if it has them.
        scan_share: share of keys from which a file of the record index is read whole; None to use no record index.
        timelines: cache of the table's timeline.
        shard_files: reads the files of the record index.
        kept: what look-ups keep of the table.
        check_config: raises `ConfigError` if the stored config differs from that of the queries.
    """

    storage: Storage
    config: TableConfig
    rule: MergeRule
    run: MapSlices
    width: int
    spill_folder: str | None = None
    rfc103_names: bool = False
    by_metadata: bool = False
    skips_by_ranges: bool = False
    scan_share: float | None = None
    timelines: TimelineCache = field(default_factory=TimelineCache)
    shard_files: ShardFiles = field(default_factory=ShardFiles)
    kept: KeptFiles = field(default_factory=KeptFiles)
    check_config: Callable[[], None] = lambda: None

    @property
    def timeline(self) -> Timeline:
        """The table's current timeline."""
        timeline = self.timelines.load(self.storage, self.config.timeline_layout)
        if self.timelines.may_be_anew:
            self.check_config()
            self.timelines.may_be_anew = False
        return timeline

    def timeline_at(self, moment: str | date | None) -> Timeline:
        """Load the timeline as of a time; None for now."""
        timeline = self.timeline.as_restored()
        return timeline if moment is None else timeline.as_of(moment, self.config.timeline_zone)

    def view(self, timeline: Timeline) -> FileSystemView:
        """Build the file system view of a timeline."""
        return FileSystemView(self.storage, timeline, self.rfc103_names, self.by_metadata)

    def schema_at(self, timeline: Timeline) -> pa.Schema:
        """Return the table's columns as of a timeline, without meta columns.

        Raises:
            TableNotFound: nothing was committed, and the table was created without a schema.
        """
        avro = timeline.table_schema() or self.config.create_schema or self.timeline.table_schema()
        if avro is None:
            raise TableNotFound(f"the table at {self.storage.uri} has no commit yet and was created without a schema")
        if self.rule.partial == IGNORE_DEFAULTS:
            _check_defaults(avro, self.storage.uri)
        return from_avro(avro, f"schema of {self.storage.uri}")

    def versions_at(self, timeline: Timeline) -> ColumnVersions | None:
        """Return the versions of the table's columns until a timeline; None if no column was changed by its id.

        Raises:
            CorruptFileError: see `column_versions`.
            UnsupportedTable: see `column_versions`, or a column that the table needs was renamed.
        """
        return column_versions(timeline, self.config.named_columns)

    def file_names_at(self, timeline: Timeline) -> FileNames | None:
        """Return under which names files have the columns as of a timeline; raises as `versions_at`."""
        versions = self.versions_at(timeline)
        return None if versions is None else versions.file_names

    def columns(self, wanted: QueryOptions, moment: str | date | None) -> pa.Schema:
        """Return the columns of a snapshot query; no folder but the timeline's is listed."""
        schema = with_meta(self.schema_at(self.timeline_at(moment)))
        return pa.schema([schema.field(name) for name in wanted.names(schema)])

    def slices(self, moment: str | date | None, wanted: QueryOptions | None = None) -> tuple[Timeline, FileSlices]:
        """List the latest slice of every file group as of a time, together with the timeline they were listed from.

        Args:
            moment: the time; None for now.
            wanted: has a filter, if slices in partitions without a row of it may be left out.
        """

        def look() -> FileSystemView:
            timeline = self.timeline_at(moment)
            return replace(self.view(timeline), choose=self._choice(timeline, wanted))

        return list_file_slices(look)

    def _file_groups(self, schema: pa.Schema) -> FileGroupPruner | None:
        """Build what skips file groups, after the timeline was loaded: whether rows stray is stored before a commit."""
        may_stray = bool(self.config.partition_fields) and NUM_BUCKETS_KEY not in self.config.properties
        strays = may_stray and load_properties(self.storage).get(STRAY_ROWS_KEY) == "true"
        return FileGroupPruner.of(self.config, schema, follows=not strays)

    def _choice(self, timeline: Timeline, wanted: QueryOptions | None) -> ChoosePartitions | None:
        """Return what tells the partitions that may have a row of a filter; None for all."""
        if wanted is None or wanted.filter is None or not self.by_metadata:
            return None
        schema = with_meta(self.schema_at(timeline))
        groups = self._file_groups(schema)
        if groups is None:
            return None
        predicate = groups.derived(predicate_of(_expression(wanted.filter, schema)))
        return lambda paths: groups.reads(paths, predicate)

    def snapshot(self, wanted: QueryOptions, moment: str | date | None) -> Scan:
        """Plan a snapshot query: all live rows as of a time."""
        timeline, slices = self.slices(moment, wanted)
        return self._scan(timeline, slices, wanted, looks_up=timeline.origin is None)

    def state(self, wanted: QueryOptions, until: str) -> Scan:
        """Plan a snapshot query of the writes that were completed by a time, under the columns that the table has now.

        Raises:
            ReadOvertaken: a clean deleted files of that state.
        """

        def look() -> FileSystemView:
            whole = self.timeline_at(None)
            if any((write.completed or "") > until for write in whole.completed_writes):
                whole.check_retained(until, until)
            return self.view(whole.completed_by(until))

        timeline, slices = list_file_slices(look)
        return self._scan(timeline, slices, wanted, shown=self.timeline_at(None))

    def read_optimized(self, wanted: QueryOptions, moment: str | date | None) -> Scan:
        """Plan a read-optimized query: the rows of base files only; slices without one are left out."""
        timeline, slices = self.slices(moment, wanted)
        return self._scan(timeline, slices.base_files(), wanted)

    def lookup(self, wanted: QueryOptions, keys: Keys, moment: str | date | None) -> Scan:
        """Plan a look-up: the live rows of some record keys as of a time, of all partitions.

        Args:
            wanted: without a filter.
            keys: see `record_keys_of`.
            moment: see `snapshot`.
        """
        timeline, found = self._buckets(moment)
        schema = self.schema_at(timeline)
        looked_up = record_keys_of(keys, self.config, schema)
        slices = found.slices_of(looked_up)
        located = None if found.by_bucket is not None else self._located(timeline, slices, slices, looked_up)
        partitions, by_bucket = len({one.partition_path for one in found.every}), len(found.every) - len(slices)
        by_index = 0 if located is None else len(slices) - len(located)
        slices = slices if located is None else located
        scan = self._scan(timeline, slices, replace(wanted, filter=None))
        skipped = SkippedSlices(by_bucket=by_bucket, by_record_index=by_index, partitions_read=partitions)
        reader = replace(scan.reader, pruner=KeyPruner(WantedKeys.of(looked_up)), footers=self.kept.footers)
        return replace(scan, reader=reader, skipped=skipped, filter=pc.field(RECORD_KEY).isin(looked_up))

    def _buckets(self, moment: str | date | None) -> tuple[Timeline, BucketSlices]:
        """List the latest slices by bucket; those of now again only if the timeline has changed."""
        kept = None if moment is not None else self.kept.of(self.timeline_at(None))
        if kept is not None:
            return kept
        timeline, slices = self.slices(moment)
        found = timeline, BucketSlices.of(self.config, slices)
        if timeline.origin is None:
            self.kept.latest = found
        return found

    def incremental(self, wanted: QueryOptions, begin: str | date, end: str | date | None) -> Scan:
        """Plan an incremental query: the rows as of `end` that writes completed after `begin` have written.

        See docs/format/10-rules.md, "Rule 1".
        """
        commits: list[str] = []

        def look() -> FileSystemView:
            timeline, commits[:] = self.timeline.as_restored().between(begin, end, self.config.timeline_zone)
            return self.view(timeline)

        timeline, slices = list_file_slices(look)
        found = frozenset(commits)
        # The files may fit without a write whose rows were compacted: its commit is missing from the range only.
        writes = [write for write in timeline.completed_writes if write.requested in found]
        archived = first_archived(timeline.whole, commits)
        check_named_writes(timeline.whole, [*archived, *writes], self._since(begin))
        newest = self.timeline
        if not self.rule.takes_winner:
            # The rows of a range alone lack what older ones add to them.
            return self._scan(timeline, slices, wanted, shown=newest, written=found)
        of_range = files_of_range(slices, timeline, self._since(begin), found)
        return self._scan(timeline, of_range, wanted, found, newest)

    def changes(self, begin: str | date, end: str | date | None) -> Changes:
        """Plan a CDC query: every change of a row by writes completed after `begin`, with the row before and after."""
        timeline = self.timeline.as_restored()
        until, commits = timeline.between(begin, end, self.config.timeline_zone)
        return Changes(
            timeline=timeline,
            until=until,
            since=self._since(begin),
            commits=tuple(commits),
            reader=self.change_reader(timeline, until),
            view=self.view,
        )

    def change_reader(self, timeline: Timeline, until: Timeline) -> ChangeReader:
        """Build a reader of changes, whose images have the columns that the table has as of `until`."""
        schema = with_meta(self.schema_at(until))
        return ChangeReader(schema, self._reader(timeline, schema, tuple(schema.names), until))

    def _since(self, begin: str | date) -> str:
        return limit_text(begin, self.config.timeline_zone)

    def key_reader(self, timeline: Timeline) -> SliceReader:
        """Build a reader of the record keys of slices."""
        return self.column_reader(timeline, ())

    def column_reader(self, timeline: Timeline, columns: tuple[str, ...]) -> SliceReader:
        """Build a reader of the record keys of slices, and of some of the table's columns."""
        return self._reader(timeline, with_meta(self.schema_at(timeline)), (RECORD_KEY, *columns))

    def _scan(
        self,
        timeline: Timeline,
        slices: Sequence[FileSlice],
        wanted: QueryOptions,
        commits: frozenset[str] | None = None,
        shown: Timeline | None = None,
        written: frozenset[str] | None = None,
        *,
        looks_up: bool = False,
    ) -> Scan:
        """Plan a scan.

        Args:
            timeline, slices, wanted: of the query.
            commits: the writes whose records take part in the merge; None for all.
            shown: the timeline that ends with the columns of the result; None for `timeline`.
            written: the writes whose rows are returned after the merge; None for all.
            looks_up: whether `slices` are all of the current state, which the record index tells.
        """
        shown = shown or timeline
        schema = with_meta(self.schema_at(shown))
        names = wanted.names(schema)
        filter = None if wanted.filter is None else _expression(wanted.filter, schema)
        if written is not None:
            of_writes = pc.field(COMMIT_TIME).isin(pa.array(sorted(written), pa.string()))
            filter = of_writes if filter is None else filter & of_writes
        needed = tuple(dict.fromkeys([*names, *filter_columns(filter, schema)]))
        slices = FileSlices.of(slices)
        if self.config.is_copy_on_write:
            slices = slices.without_kept()
        default_partition = DefaultPartition.of(self.config, schema)
        skipped, pruner = SkippedSlices(partitions_read=slices.partitions_used), None
        reader = self._reader(timeline, schema, needed, shown)
        if filter is not None:
            predicate, keys = predicate_of(filter), frozenset((RECORD_KEY,))
            groups = self._file_groups(schema)
            if groups is not None:
                predicate, keys = groups.derived(predicate), groups.keys.names
                every = slices
                slices, skipped = groups.prune(slices, predicate)
                if looks_up and not groups.keys.num_buckets:
                    slices, skipped = self._looked_up(timeline, slices, every, skipped, predicate, schema)
            told = default_partition.without(schema)
            # Where several writes appended to a log, a range may be that of some of its rows.
            if self.skips_by_ranges and reader.visible is None and reader.file_names is None:
                slices, skipped = self._in_range(timeline, slices, skipped, predicate, told)
            pruner = RowGroupPruner(predicate, keys, told, wanted_keys(predicate), self.rule.takes_winner)
        reader = replace(reader, threads=len(slices) < self.width, commits=commits, pruner=pruner)
        return Scan(slices, reader, names, filter, self.run, skipped, default_partition)

    def _looked_up(
        self,
        timeline: Timeline,
        slices: Sequence[FileSlice],
        every: Sequence[FileSlice],
        skipped: SkippedSlices,
        predicate: Predicate,
        schema: pa.Schema,
    ) -> tuple[Sequence[FileSlice], SkippedSlices]:
        """Leave out slices without a record key of a predicate, or without one of a row with a value of it."""
        keys, index = possible_keys(predicate), ""
        if keys is None and self._may_locate(timeline, slices, every):
            told = possible_keys_of_values(self.storage, timeline, predicate, schema, self.timelines)
            keys, index = told or (None, "")
        located = None if keys is None else self._located(timeline, slices, every, keys)
        if located is None:
            return slices, skipped
        count = len(slices) - len(located)
        if index:
            return located, replace(skipped, by_secondary_index=count, secondary_index=index)
        return located, replace(skipped, by_record_index=count)

    def _may_locate(self, timeline: Timeline, slices: Sequence[FileSlice], every: Sequence[FileSlice]) -> bool:
        """Return whether the record index may tell which slices have some keys; see `_located`."""
        return self.scan_share is not None and timeline.origin is None and len(slices) > 1 and not have_buckets(every)

    def _located(
        self, timeline: Timeline, slices: Sequence[FileSlice], every: Sequence[FileSlice], keys: pa.StringArray
    ) -> list[FileSlice] | None:
        """Leave out slices without any of some record keys, by the record index; None if it does not tell.

        Args:
            timeline: of the query, without restrictions; otherwise the index is not asked.
            slices: the slices to prune.
            every: all slices of the state.
            keys: the keys.
        """
        if self.scan_share is None or not self._may_locate(timeline, slices, every):
            return None
        found = record_locations(self.storage, timeline, keys, self.scan_share, self.timelines, self.shard_files)
        return None if found is None else slices_of_keys(slices, every, found)

    def _in_range(
        self,
        timeline: Timeline,
        slices: Sequence[FileSlice],
        skipped: SkippedSlices,
        predicate: Predicate,
        schema: pa.Schema,
    ) -> tuple[list[FileSlice], SkippedSlices]:
        """Leave out slices without a row of a predicate, by the ranges of the columns of `schema`.

        These are the ranges in partitions, where rows are those of files of the newest slices, and those in files.
        """
        # Older releases of Hudi count values of nested columns as nulls.
        flat = {field.name for field in schema if not pa.types.is_nested(field.type)}
        names = sorted(columns_of(predicate) & flat)
        if self.rule.takes_winner and timeline.origin is None:
            slices, skipped = self._in_partitions(timeline, slices, skipped, predicate, schema, names)
        slices, skipped = self._in_expressions(slices, skipped, predicate, schema)
        ranges = column_ranges(self.storage, self.timeline, ranged_files(slices), names)
        if not ranges:
            return list(slices), skipped
        read = read_slices(slices, predicate, schema, ranges, takes_winner=self.rule.takes_winner)
        left = [found for found, is_read in zip(slices, read.tolist(), strict=True) if is_read]
        return left, replace(skipped, by_ranges=len(slices) - len(left))

    def _in_expressions(
        self, slices: Sequence[FileSlice], skipped: SkippedSlices, predicate: Predicate, schema: pa.Schema
    ) -> tuple[Sequence[FileSlice], SkippedSlices]:
        """Leave out slices without a row of a predicate, by the ranges of expressions in their files."""
        before, names = len(slices), []
        for one in expressed(self.storage, predicate, schema):
            of_index = one.name, group_file_id(one.name)
            ranges = column_ranges(self.storage, self.timeline, ranged_files(slices), [one.column], *of_index)
            if ranges and one.checked.is_current(load_properties(self.storage)):
                how = one.predicate, one.schema, ranges
                read = read_slices(slices, *how, takes_winner=self.rule.takes_winner)
                if not read.all():
                    names.append(one.name)
                slices = [found for found, is_read in zip(slices, read.tolist(), strict=True) if is_read]
        return slices, replace(skipped, by_expression_index=before - len(slices), expression_indexes=tuple(names))

    def _in_partitions(
        self,
        timeline: Timeline,
        slices: Sequence[FileSlice],
        skipped: SkippedSlices,
        predicate: Predicate,
        schema: pa.Schema,
        names: Sequence[str],
    ) -> tuple[Sequence[FileSlice], SkippedSlices]:
        """Leave out slices in partitions without a row of a predicate, by the ranges of columns there."""
        partitions = {path: number for number, path in enumerate(dict.fromkeys(one.partition_path for one in slices))}
        ranges = partition_ranges(self.storage, timeline, list(partitions), names)
        if not ranges:
            return slices, skipped
        read = read_partitions(len(partitions), predicate, schema, ranges)
        left = [found for found in slices if read[partitions[found.partition_path]]]
        return left, replace(skipped, by_partition_ranges=len(slices) - len(left))

    def _reader(
        self,
        timeline: Timeline,
        schema: pa.Schema,
        columns: tuple[str, ...],
        shown: Timeline | None = None,
    ) -> SliceReader:
        return SliceReader(
            storage=self.storage,
            schema=schema,
            rule=self.rule,
            columns=columns,
            spill_folder=self.spill_folder,
            sorted_files=self.config.is_lsm_tree,
            visible=visible_blocks(self.config, timeline),
            skip_corrupt=self.config.timeline_layout == FLAT,
            file_names=self.file_names_at(shown or timeline),
        )


def _expression(filter: pc.Expression | str, schema: pa.Schema) -> pc.Expression:
    return parse_where(filter, schema) if isinstance(filter, str) else filter


def _names(columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str):
        raise SchemaError(f"columns={columns!r} is a text; give a list of column names: columns=[{columns!r}]")
    if not isinstance(columns, Iterable):
        raise SchemaError(f"columns={columns!r}: give a list of column names")
    return tuple(columns)


def _check_defaults(avro: str, uri: str) -> None:
    """Refuse column defaults other than null, as a value that equals its column's default counts as not sent."""
    for column in json.loads(avro)["fields"]:
        if column.get("default") is not None:
            raise UnsupportedTable(
                f"{uri}: column {column['name']!r} has the default {column['default']!r}: with the partial update mode "
                "IGNORE_DEFAULTS only null is supported as a default"
            )
