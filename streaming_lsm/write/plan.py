"""Describe one batch to the tasks that write it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.file_group.file_system_view import BaseFile
from streaming_lsm.format.bloom import bits_per_key, bits_per_row
from streaming_lsm.format.column_versions import FileNames
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import BucketId, bucket_file_id, fixed_file_id
from streaming_lsm.format.table.properties import BLOOM_INDEXES, CURRENT_VERSION
from streaming_lsm.index.lookup_index import LookupPlan
from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import delete_log_schema
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.known_entries import KnownEntries

OpenDeletes = Mapping[str, str]
"""Record keys by source (topic and partition): the last event was a delete of the key; its tombstone may follow."""


UPSERT, INSERT, BULK_INSERT, DELETE = "upsert", "insert", "bulk_insert", "delete"
INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE = "insert_overwrite", "insert_overwrite_table"
DELETE_PARTITION = "delete_partition"
ALTER_SCHEMA = "alter_schema"
"""Hudi's name of a change of the columns that writes no rows."""
REPLACING = (INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE, DELETE_PARTITION)
"""Operations that replace file groups, as replacecommits."""
BASE_FILES = (BULK_INSERT, INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE)
"""Operations that write base files to new file groups of merge-on-read tables, too."""


@dataclass(frozen=True)
class BloomOptions:
    """Settings for the bloom filters of base files.

    See docs/format/07-index-and-metadata.md, "Bloom filter".

    Attributes:
        kind: ``SIMPLE`` or ``DYNAMIC_V0``.
        entries: number of keys that a simple filter, or a row of a dynamic one, is sized for at most.
        fpp: false positive probability.
        max_entries: number of keys up to which a dynamic filter adds rows.
    """

    kind: str
    entries: int
    fpp: float
    max_entries: int

    def __post_init__(self) -> None:
        """Check the settings on the driver, before a task writes a file."""
        bits_per_row(self.entries, self.fpp, self.kind)

    @staticmethod
    def of(options: Options) -> BloomOptions:
        """Read the settings from the options.

        Raises:
            ConfigError: the largest filter would need more than 2^31 - 1 bits a row.
        """
        return BloomOptions(
            kind=options[config.BLOOM_TYPE] or "DYNAMIC_V0",
            entries=options[config.BLOOM_ENTRIES],
            fpp=options[config.BLOOM_FPP],
            max_entries=options[config.BLOOM_MAX_ENTRIES],
        )


@dataclass(frozen=True)
class LogKeyOptions:
    """Settings for the key entries of native logs.

    See docs/format/03-native-logs.md, "Key entries".

    Attributes:
        fpp: false positive probability of a filter.
        most_bytes: most bytes of a filter, and of an accumulated entry; larger ones are not written.
    """

    fpp: float
    most_bytes: int

    @property
    def most_keys(self) -> int:
        """Keys whose filter takes at most `most_bytes` as text."""
        return int(self.most_bytes * 6 / bits_per_key(self.fpp))

    @staticmethod
    def of(options: Options) -> LogKeyOptions | None:
        """Read the settings from the options; None if logs have no key entries."""
        if not options[config.LOG_KEYS]:
            return None
        return LogKeyOptions(options[config.LOG_KEYS_FPP], options[config.LOG_KEYS_MAX_BYTES])


@dataclass(frozen=True)
class FileOptions:
    """Settings for writing data files.

    Attributes:
        codec: Parquet codec.
        row_group_rows: rows per row group.
        page_bytes: uncompressed bytes per page.
        bloom: bloom filter of base files; None writes none, as a bucket index reads none.
        key_bloom: whether row groups have Parquet's bloom filter of the record keys.
        log_keys: key entries of native logs; None writes none.
        row_group_bytes: bytes in memory at which a row group ends, however few rows it has.
        log_bytes: bytes at which a log file ends and the next version begins.
        group_bytes: bytes at which a new file group of a table without buckets ends and the next one begins.
        data_block_format: what a data block of an inline log holds, ``avro`` or ``parquet``.
        ranged: columns whose ranges the write stats tell, for the metadata table.
    """

    codec: str
    row_group_rows: int
    page_bytes: int
    bloom: BloomOptions | None = None
    key_bloom: bool = True
    log_keys: LogKeyOptions | None = None
    row_group_bytes: int = 128 << 20
    log_bytes: int = 1 << 30
    group_bytes: int = 120 << 20
    data_block_format: str = "avro"
    ranged: tuple[str, ...] = ()

    @staticmethod
    def of(options: Options, table: TableConfig | None = None) -> FileOptions:
        """Read the settings from the options; with a bloom index base files have bloom filters in any case."""
        blooms = options[config.BLOOM_ENABLED] or (table is not None and table.index_type in BLOOM_INDEXES)
        return FileOptions(
            codec=options[config.COMPRESSION] or "zstd",
            row_group_rows=options[config.ROW_GROUP_ROWS],
            page_bytes=options[config.PAGE_BYTES],
            bloom=BloomOptions.of(options) if blooms else None,
            key_bloom=options[config.KEY_BLOOM],
            log_keys=LogKeyOptions.of(options),
            log_bytes=options[config.LOG_MAX_BYTES],
            group_bytes=options[config.BASE_MAX_BYTES],
            data_block_format=options[config.DATA_BLOCK_FORMAT] or "avro",
        )


@dataclass(frozen=True)
class DeadLetters:
    """Names the folder of dead letters; each batch has a folder of its own in it."""

    storage: Storage
    folder: str


@dataclass(frozen=True)
class TaskFileGroups:
    """Lists the live file groups that one task writes.

    Attributes:
        file_ids: their ids by partition path and bucket.
        bases: their newest base files; only a copy-on-write table needs them.
        kept_deletes: paths of the deletes that were kept beside these, of the groups that have such.
        logs: see `WritePlan`.
    """

    file_ids: Mapping[BucketId, str] = field(default_factory=dict)
    bases: Mapping[BucketId, BaseFile] = field(default_factory=dict)
    kept_deletes: Mapping[BucketId, tuple[str, ...]] = field(default_factory=dict)
    logs: Mapping[BucketId, tuple[str, ...]] | None = None


def write_action(operation: str, table: TableConfig) -> str:
    """Return the action of a write operation on the timeline."""
    if operation in REPLACING:
        return "replacecommit"
    return "commit" if table.is_copy_on_write else "deltacommit"


def reduces_keys(operation: str, table: TableConfig, *, wanted: bool) -> bool:
    """Test whether the rows of one key in a batch are reduced to the winner before they are written.

    They are if that is `wanted`. In version 10 also by what writes base files: a reader of the default layout shows
    each row of a base file, so that repeated keys would mean one row in a layout and two in the other
    (docs/format/10-rules.md, "Rule 11"). Up to version 9 also by copy on write, where the rows of a batch are folded
    before they meet the base row (docs/format/05-merge.md, "Pairwise rule"), and by upserts without buckets, whose new
    keys go to base files.
    """
    if table.version >= CURRENT_VERSION:
        return wanted or operation in BASE_FILES
    return wanted or table.is_copy_on_write or (operation == UPSERT and not table.has_buckets)


@dataclass(frozen=True)
class WritePlan:
    """Describes one batch of one instant; frozen and picklable.

    Attributes:
        storage: the table's files.
        config: the table.
        schema: the table's columns, without meta columns.
        keys: record key and partition path of a row.
        rule: merge semantics, for the dedup before writing.
        operation: upsert, insert, bulk_insert, delete, or one of `REPLACING`.
        combine: whether rows of one key are reduced to the winner.
        arrival_fields: columns that order the events of the batch.
        files: Parquet settings.
        file_ids: live file groups by partition path and bucket.
        bases: the base files that the write merges with its rows: of a copy-on-write table all the newest ones.
        kept_deletes: paths of the deletes that were kept beside these, of the groups that have such.
        retention_seconds: how long a copy-on-write table keeps deletes beside its base files; 0 for not at all.
        fills_missing: whether columns that the rows lack are null.
        dead_letters: where unreadable events go; None fails the batch.
        open_deletes: deletes at the end of the batch before whose tombstone may come now.
        instant: requested time of the deltacommit; empty until it has begun.
        buffer_bytes: memory that one task may hold.
        spill_folder: where sorted runs go beyond that; None means the system's folder for temporary files.
        groups_follow: whether each task that writes receives its `TaskFileGroups` together with its rows, as the plan
            has none.
        fixed_ids: whether new file groups have ids on which several writers agree.
        replaced: requested times of the writes that replaced file groups, by partition path and file id.
        detect_early: whether tasks look for other writes of their file groups.
        sole: whether each task runs once, in the process that commits: then that looks for all whether the instant is
            still inflight.
        lookup: where the keys of a table without buckets are, and where new ones go.
        file_names: names the columns of files that were written before columns were renamed.
        columns_version: the `InternalSchema.version` before the batch; None if columns have no ids.
        may_stray: whether rows may stay in another partition than their partition columns name.
        logs: paths of the newest logs of the latest slices, the oldest first, for accumulated key entries; None if none
            are written.
        known: key entries of logs that the open table has written or read.
    """

    storage: Storage
    config: TableConfig
    schema: pa.Schema
    keys: KeyGenerator
    rule: MergeRule
    operation: str
    combine: bool
    arrival_fields: tuple[str, ...]
    files: FileOptions
    file_ids: Mapping[BucketId, str]
    bases: Mapping[BucketId, BaseFile] = field(default_factory=dict)
    kept_deletes: Mapping[BucketId, tuple[str, ...]] = field(default_factory=dict)
    retention_seconds: int = 0
    fills_missing: bool = False
    dead_letters: DeadLetters | None = None
    open_deletes: OpenDeletes = field(default_factory=dict)
    instant: str = ""
    buffer_bytes: int = 256 << 20
    spill_folder: str | None = None
    groups_follow: bool = False
    fixed_ids: bool = False
    replaced: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    detect_early: bool = False
    sole: bool = False
    lookup: LookupPlan | None = None
    file_names: FileNames | None = None
    columns_version: int | None = None
    may_stray: bool = False
    logs: Mapping[BucketId, tuple[str, ...]] | None = None
    known: KnownEntries = field(default_factory=KnownEntries, compare=False)

    def at(self, instant: str) -> WritePlan:
        """Set the instant, once the action has begun."""
        return replace(self, instant=instant)

    def without_groups(self, *, follow: bool = False) -> WritePlan:
        """Remove the file groups, for a task that writes no files or, with `follow`, receives its `TaskFileGroups`."""
        return replace(self, file_ids={}, bases={}, kept_deletes={}, logs=None, groups_follow=follow)

    def expecting(self, rows: int) -> WritePlan:
        """Set how many new rows a partition is expected to get, for tasks that each have a part of them."""
        if self.lookup is None:
            return self
        inserts = replace(self.lookup.inserts, rows=rows)
        return replace(self, lookup=replace(self.lookup, inserts=inserts))

    def settling(self, settles: bool) -> WritePlan:
        """Set whether a task finds the file groups of its rows, or the one to which it sends them."""
        if self.lookup is None:
            return self
        return replace(self, lookup=replace(self.lookup, settles=settles))

    def with_groups(self, groups: TaskFileGroups) -> WritePlan:
        """Set the file groups that the task writes."""
        return replace(
            self,
            file_ids=groups.file_ids,
            bases=groups.bases,
            kept_deletes=groups.kept_deletes,
            logs=groups.logs,
            groups_follow=False,
        )

    @property
    def reducing_rule(self) -> MergeRule | None:
        """The rule by which events can be left out before all of their key are known; None if all have to stay.

        Where the outcome is made of several records, each event may count.
        """
        return self.rule if self.combine and self.rule.takes_winner else None

    @property
    def action(self) -> str:
        """Action of the write on the timeline."""
        return write_action(self.operation, self.config)

    @property
    def delete_schema(self) -> pa.Schema:
        """Columns of this table's delete logs."""
        return delete_log_schema(self.schema, self.rule.ordering_fields)

    def file_id(self, group: BucketId, part: int = 0) -> str:
        """Return the id of the live file group, or make one that is the same in every attempt at this batch.

        With `fixed_ids` other writers that begin now make the same one (docs/format/01-table.md, "File ids, tokens,
        names").

        Args:
            group: partition path and number of the group.
            part: 0; more for the groups after it, of a new group without a bucket that has grown too large.
        """
        known = self.file_ids.get(group)
        if known is not None:
            return known
        partition, bucket = group
        if not self.config.has_buckets:
            return f"{self._unique(self.instant, partition, f'{bucket}.{part}')}-0"
        if not self.fixed_ids:
            return self._file_id_of(group, self.instant)
        replaced, file_id = self.replaced.get(partition, {}), fixed_file_id(bucket)
        while file_id in replaced:
            # The id of a replaced group cannot be used again; that of its successor follows from the replacement.
            file_id = self._file_id_of(group, replaced[file_id])
        return file_id

    def _file_id_of(self, group: BucketId, instant: str) -> str:
        partition, bucket = group
        return bucket_file_id(bucket, self._unique(instant, partition, str(bucket)))

    def _unique(self, instant: str, partition: str, name: str) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self.config.name}/{instant}/{partition}/{name}")

    def may_be_split(self, group: BucketId) -> bool:
        """Test whether rows of this file group may go to several new ones, as no bucket holds them together."""
        return not self.config.has_buckets and self.starts_group(group)

    def begins_with_base(self, group: BucketId) -> bool:
        """Test whether the first file of this file group is a base file.

        So it is where the operation writes base files, and without buckets also in a table with inline logs: Hudi's
        indexes look for keys in base files only.
        """
        inlined = not self.config.has_buckets and not self.config.has_native_logs
        return (self.operation in BASE_FILES or inlined) and self.starts_group(group)

    def starts_group(self, group: BucketId) -> bool:
        """Test whether the batch creates this file group."""
        return group not in self.file_ids
