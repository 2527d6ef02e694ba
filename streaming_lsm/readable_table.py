"""Open a table and read it by every query type, without Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm import config
from streaming_lsm.arrow.nullable import nullable_schema
from streaming_lsm.config import Options, resolve
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ConfigError, TableNotFound, UnsupportedTable
from streaming_lsm.extras import missing_package
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.format.column_versions import FileNames
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.merge.record_merger import find_merger
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.table_rule import table_rule
from streaming_lsm.metadata.cache import MetadataCache
from streaming_lsm.query.cdc.changes import Changes
from streaming_lsm.query.history import read_history
from streaming_lsm.query.kept_files import KeptFiles
from streaming_lsm.query.lookup import read_lookup
from streaming_lsm.query.prune.explanation import Explanation
from streaming_lsm.query.queries import CDC, INCREMENTAL, READ_OPTIMIZED, SNAPSHOT, Queries, QueryOptions
from streaming_lsm.query.scan import Scan
from streaming_lsm.query.table_stream import TableStream
from streaming_lsm.query.wanted_keys import Keys
from streaming_lsm.storage.failures import names_failures
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.table_options import check_options, with_index
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Filter = pc.Expression | str
OptionValues = Mapping[str, object]
Path = str | os.PathLike[str]

_CONSISTENT_HASHING = ".hoodie/.bucket_index/consistent_hashing_metadata"


class ReadableTable:
    """Reads an open table by every query type; `LsmTable` writes it too.

    Attributes:
        config: the table's config, from `hoodie.properties`.
        options: the options given when the table was opened.
    """

    @names_failures
    def __init__(
        self, path: Path, options: OptionValues | Options | None = None, *, properties: Path | None = None
    ) -> None:
        """Open a table.

        Args:
            path: a folder or a ``file://`` URI.
            options: see docs/configuration.md; they override `properties`.
            properties: a Java properties file with options.

        Raises:
            TableNotFound: there is no table at `path`.
            UnsupportedTable: a version, layout or feature that this release does not support.
            ConfigError: an option is unknown, or contradicts the table.
        """
        self.options = options if isinstance(options, Options) else resolve(options, properties)
        self.storage = open_storage(path)
        try:
            properties_found = load_properties(self.storage)
        except NotADirectoryError:
            raise TableNotFound(f"{self.path} is a file; give the folder of a table") from None
        self.config = self._config_of(properties_found)
        if self.storage.names(_CONSISTENT_HASHING):
            raise UnsupportedTable(
                f"{self.path}: {_CONSISTENT_HASHING}: tables with consistent hashing are not supported"
            )
        check_options(self.options, self.config, self.path)
        if self.config.merge_strategy:
            find_merger(self.config.merge_strategy, self.path)
        self._engine = LocalEngine(self.options[config.READ_THREADS])
        self._timelines = TimelineCache()
        self._metadata_cache = MetadataCache()
        self._kept = KeptFiles()

    def __repr__(self) -> str:
        table = self.config
        layout = "lsm_tree, " if table.is_lsm_tree else ""
        return f"LsmTable({self.path!r}): table {table.name!r}, version {table.version}, {layout}{table.table_type}"

    @property
    def path(self) -> str:
        """The table's base path, as a URI."""
        return self.storage.uri

    @property
    @names_failures
    def timeline(self) -> Timeline:
        """The table's current timeline."""
        return self._timelines.load(self.storage, self.config.timeline_layout)

    @property
    @names_failures
    def schema(self) -> pa.Schema:
        """The table's columns, without meta columns, as of the latest commit."""
        return self._queries.schema_at(self.timeline)

    @property
    def file_names(self) -> FileNames | None:
        """The names under which files have the columns; None if no column was changed by its id."""
        return self._queries.file_names_at(self.timeline)

    @cached_property
    def rule(self) -> MergeRule:
        """How records of one key merge."""
        return table_rule(self.config)

    @names_failures
    def query(self, columns: Sequence[str] | None = None, filter: Filter | None = None) -> Scan | Changes:
        """Plan the query that the table's options describe, of any query type; see docs/configuration.md, "Read".

        Args:
            columns, filter: see `scan`; a CDC query takes neither.

        Raises:
            ConfigError: the options contradict each other; or see `scan`, `incremental` and `changes`.
            SchemaError: see `scan`.
        """
        given = self.options
        chosen, begin, end = given[config.QUERY_TYPE], given[config.READ_BEGIN], given[config.READ_END]
        is_cdc = given[config.INCREMENTAL_FORMAT] == CDC
        if chosen != INCREMENTAL:
            ranged = [option.key for option in (config.READ_BEGIN, config.READ_END) if given[option] is not None]
            ranged += [config.INCREMENTAL_FORMAT.key] if is_cdc else []
            if ranged:
                raise ConfigError(
                    f"{ranged[0]} is for incremental queries: set {config.QUERY_TYPE.key}={INCREMENTAL} or leave it out"
                )
            return self.scan(columns, filter)
        if given[config.AS_OF] is not None:
            raise ConfigError(
                f"{config.AS_OF.key} is for snapshots; set {config.READ_END.key} to end an incremental query"
            )
        if begin is None:
            raise ConfigError(f"an incremental query needs {config.READ_BEGIN.key}; 000 begins with the first write")
        if not is_cdc:
            return self.incremental(begin, end, columns, filter)
        if columns is not None or filter is not None or given[config.READ_COLUMNS]:
            raise ConfigError("a CDC query takes no columns and no filter: select from its result, after.name for one")
        return self.changes(begin, end)

    @names_failures
    def to_spark(
        self, spark: SparkSession, columns: Sequence[str] | None = None, filter: Filter | None = None
    ) -> DataFrame:
        """Return the query that the table's options describe as a DataFrame; see `streaming_lsm.read`.

        Raises:
            MissingPackage: PySpark is not installed.
        """
        try:
            found: DataFrame = import_module("streaming_lsm.spark.queries.reading").read_query(
                spark, self, columns, filter
            )
        except ModuleNotFoundError as error:
            raise missing_package("to_spark", error) from None
        return found

    @names_failures
    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        as_of: str | date | None = None,
        *,
        meta: bool = False,
        query_type: str | None = None,
    ) -> Scan:
        """Plan a snapshot or read-optimized query; `Scan.to_arrow`, `to_batches` or `to_pandas` runs it.

        Args:
            columns: the columns to return, in this order; by default those of the option ``lsm.read.columns``, or all.
            filter: keeps the rows for which this expression is true; a text is SQL: ``qty > 5 AND day IS NULL``.
            as_of: an instant, or a date and time such as ``2026-11-20 10:00``; by default the option
                ``as.of.instant``, else now.
            meta: whether to return the five meta columns, before the others.
            query_type: ``snapshot``, or ``read_optimized`` for the rows of base files only, as of the last compaction
                of each file group; by default the option ``hoodie.datasource.query.type``.

        Raises:
            SchemaError: a column is not in the table.
            ConfigError: `as_of` is not a time; or another query type.
            ReadOvertaken: the state of `as_of` was cleaned.
            CommitConflict: cleans deleted files during every attempt to list them; scan again.
        """
        wanted, moment = self._wanted(columns, filter, meta), self._moment(as_of)
        chosen = query_type or self.options[config.QUERY_TYPE]
        if chosen == READ_OPTIMIZED:
            return self._queries.read_optimized(wanted, moment)
        if chosen != SNAPSHOT:
            raise ConfigError(
                f"query type {chosen!r}: scan takes {SNAPSHOT} and {READ_OPTIMIZED}; call query, incremental or changes"
            )
        return self._queries.snapshot(wanted, moment)

    @names_failures
    def lookup(
        self,
        keys: Keys,
        columns: Sequence[str] | None = None,
        as_of: str | date | None = None,
        *,
        meta: bool = False,
    ) -> pa.Table:
        """Read the live rows of some record keys, in key order; of each file at most the row groups with one of them.

        An open table keeps its listing, while no action is added to the timeline, and the footers of its files. So a
        look-up returns what was committed when it began.

        Args:
            keys: texts are record keys as in ``_hoodie_record_key``, which has the value of the only key column; a list
                of other values are those of the only key column. Rows in any form that `upsert` takes, such as a data
                frame, a scan or a mapping of columns, give all key columns; their other columns are not looked at.
            columns, as_of, meta: see `scan`.

        Returns:
            A row for each key that has one, and for each partition that has it. Keys that the table does not have are
            left out.

        Raises:
            SchemaError: a value does not fit its key column, or a column is not in the table.
            ConfigError: a key is null, or the key has several columns of which only one is given; or see `scan`.
        """
        return read_lookup(self._queries.lookup(self._wanted(columns, None, meta), keys, self._moment(as_of)))

    @names_failures
    def explain_lookup(self, keys: Keys, as_of: str | date | None = None) -> Explanation:
        """Tell which slices, files and row groups a look-up reads and skips; see `lookup`, and `Scan.explain`."""
        return self._queries.lookup(self._wanted(None, None, meta=False), keys, self._moment(as_of)).explain()

    @names_failures
    def get(
        self,
        key: object,
        columns: Sequence[str] | None = None,
        as_of: str | date | None = None,
        *,
        meta: bool = False,
    ) -> dict[str, object] | None:
        """Read the row of one record key as a dictionary; None if the table does not have it.

        Args:
            key: a record key or the value of the only key column; a mapping of names to values gives all key columns.
            columns, as_of, meta: see `scan`.

        Raises:
            ConfigError: the key has a row in several partitions: `lookup` returns all of them; or see `lookup`.
            SchemaError: see `lookup`.
        """
        keys = {name: [value] for name, value in key.items()} if isinstance(key, Mapping) else [key]
        rows = self.lookup(keys, columns, as_of, meta=meta).to_pylist()
        if len(rows) > 1:
            raise ConfigError(
                f"key {key!r} has rows in {len(rows)} partitions of {self.path}: call lookup for all of them"
            )
        return rows[0] if rows else None

    @names_failures
    def incremental(
        self,
        begin: str | date,
        end: str | date | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        meta: bool = False,
    ) -> Scan:
        """Plan an incremental query: the rows that were written since a time.

        Args:
            begin: start of the range, excluded: a completion time, a date, or ``000`` for all writes. In tables up to
                version 6, which have no completion times, it is compared with requested times.
            end: end of the range, included; by default the latest write.
            columns, filter, meta: see `scan`.

        Returns:
            One row per key, the newest written in the range. Deletes yield no row; see `changes`.
        """
        return self._queries.incremental(self._wanted(columns, filter, meta), begin, end)

    @names_failures
    def changes(self, begin: str | date, end: str | date | None = None) -> Changes:
        """Plan a CDC query: every change of a row by the writes between `begin` and `end`; see `incremental`."""
        return self._queries.changes(begin, end)

    @names_failures
    def stream(self) -> TableStream:
        """Plan a stream of the rows or changes that writes make, as the options say; see `spark/stream_reader.py`.

        Raises:
            ConfigError: an option is for other queries; or CDC is asked for together with columns.
        """
        given = self.options
        for option in (config.AS_OF, config.READ_BEGIN, config.READ_END):
            if given[option] is not None:
                raise ConfigError(f"{option.key} is not for streams; {config.STREAM_START.key} says where they begin")
        if given[config.QUERY_TYPE] == READ_OPTIMIZED:
            raise ConfigError(f"{config.QUERY_TYPE.key}={READ_OPTIMIZED} cannot be streamed: leave it out")
        is_cdc = given[config.INCREMENTAL_FORMAT] == CDC
        if is_cdc and given[config.READ_COLUMNS]:
            raise ConfigError(f"{config.READ_COLUMNS.key} is not for CDC: select from its result, after.name for one")
        return TableStream(self._queries, nullable_schema(self.result_schema), is_cdc)

    @property
    @names_failures
    def result_schema(self) -> pa.Schema:
        """The columns of the query or stream that the options describe, not all of which are checked yet."""
        queries = self._queries
        if self.options[config.INCREMENTAL_FORMAT] == CDC:
            timeline = queries.timeline_at(None)
            return queries.change_reader(timeline, timeline).schema
        return queries.columns(self._wanted(None, None, meta=False), self._moment(None))

    @names_failures
    def file_slices(self, as_of: str | date | None = None) -> list[FileSlice]:
        """List the latest slice of every file group, ordered by partition and file id; raises as `scan`."""
        return list(self._queries.slices(self._moment(as_of))[1])

    @names_failures
    def file_system_view(self) -> FileSystemView:
        """Build the file system view of the current timeline; nothing is listed or checked yet."""
        return self._queries.view(self._queries.timeline_at(None))

    @names_failures
    def history(self, key: str) -> pa.Table:
        """Read all versions of one record key in the latest file slices, the oldest first.

        Args:
            key: the record key as in ``_hoodie_record_key``.

        Returns:
            The meta columns and the table's columns, then ``_lsm_file``, the file that stores a version, and
            ``_lsm_deleted``, whether the version deletes the key.

        Raises:
            UnsupportedTable: the key's file groups have inline logs.
        """
        timeline, latest = self._queries.slices(None)
        table, slices = self.config, list(latest)
        if table.num_buckets:
            (bucket,) = bucket_ids(pa.array([key]), table.record_key_fields, table.hash_fields, table.num_buckets)
            slices = [found for found in latest if bucket_of(found.file_id) == bucket]
        inline = [log.path for found in slices for log in found.logs if not log.is_native]
        if inline:
            raise UnsupportedTable(
                f"{inline[0]}: the history of a key is read from native logs only; call changes for inline logs"
            )
        queries = self._queries
        schema, file_names = queries.schema_at(timeline), queries.file_names_at(timeline)
        return read_history(self.storage, slices, schema, self.rule, key, file_names)

    @property
    def _queries(self) -> Queries:
        return Queries(
            storage=self.storage,
            config=self.config,
            rule=self.rule,
            run=self._engine.map,
            width=self._engine.width,
            spill_folder=self.options[config.SPILL_FOLDER],
            rfc103_names=self.options[config.READ_LEGACY_NAMES],
            by_metadata=self.options[config.METADATA_ENABLE],
            skips_by_ranges=self._skips,
            scan_share=self.options[config.RECORD_INDEX_SCAN_SHARE] if self._skips else None,
            timelines=self._timelines,
            shard_files=self._metadata_cache.shard_files,
            kept=self._kept,
            check_config=lambda: self._check_unchanged(may_get_buckets=True),
        )

    def _check_unchanged(self, *, may_get_buckets: bool = False) -> None:
        """Check that the stored config has not changed since the table was opened, which may be months ago.

        Args:
            may_get_buckets: whether a writer may have stored the bucket index since, if the table had none.
        """
        stored = self._config_of(load_properties(self.storage))
        if may_get_buckets and not self.config.num_buckets:
            stored = replace(stored, num_buckets=0, hash_fields=self.config.hash_fields)
        if stored != self.config:
            raise ConfigError(f"{self.path}/{PROPERTIES_PATH} was changed since the table was opened; open it again")

    @property
    def _skips(self) -> bool:
        """Whether the indexes of the metadata table are asked."""
        return self.options[config.METADATA_ENABLE] and self.options[config.DATA_SKIPPING]

    def _wanted(self, columns: Sequence[str] | None, filter: Filter | None, meta: bool) -> QueryOptions:
        names = (self.options[config.READ_COLUMNS] or None) if columns is None else columns
        return QueryOptions(names, filter, meta or self.options[config.READ_META])

    def _moment(self, as_of: str | date | None) -> str | date | None:
        return self.options[config.AS_OF] if as_of is None else as_of

    def _config_of(self, properties: Mapping[str, str]) -> TableConfig:
        """Build the table's config; the index, which Hudi does not store, is taken from the options."""
        found = TableConfig.from_properties(properties, f"{self.path}/{PROPERTIES_PATH}")
        return found if found.num_buckets else with_index(found, self.options)
