"""Encode and decode commit metadata.

*Commit metadata* is the content of a completed commit, deltacommit or replacecommit; it has a *write stat* for each
file that the action wrote. See docs/format/02-timeline.md, "HoodieCommitMetadata".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro.container import AvroRecord, AvroValue, decode_record, encode_record, record_name
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, LogFileName

NO_COMMIT = "null"
"""`WriteStat.prev_commit` of the first base file of a file group."""

COMPACTING = ("COMPACT", "LOG_COMPACT")
"""Operations of compactions and log compactions."""
_COMMIT = "HoodieCommitMetadata"
_REPLACE = "HoodieReplaceCommitMetadata"

# Attribute of WriteStat -> field of HoodieWriteStat; a counter that is null or absent in a file is read as 0.
_COUNTERS = {
    "num_writes": "numWrites",
    "num_inserts": "numInserts",
    "num_updates": "numUpdateWrites",
    "num_deletes": "numDeletes",
    "total_bytes": "fileSizeInBytes",
    "log_records": "totalLogRecords",
    "log_blocks": "totalLogBlocks",
    "updated_records_compacted": "totalUpdatedRecordsCompacted",
    "log_files_compacted": "totalLogFilesCompacted",
    "log_bytes_compacted": "totalLogSizeCompacted",
    "log_read_ms": "totalLogReadTimeMs",
}
_RUNTIMES = {"scan_ms": "totalScanTime", "create_ms": "totalCreateTime", "upsert_ms": "totalUpsertTime"}


@dataclass(frozen=True, slots=True)
class WrittenRanges:
    """Ranges of columns in a file, as its writer found them.

    Attributes:
        columns: the columns that it looked for.
        rows: values of the type `RANGES` (`format/metadata/column_stats.py`) of those that the file has.
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class WriteStat:
    """Write stat of one file, with the values that Hudi records.

    See docs/format/02-timeline.md, "HoodieWriteStat"; docs/format/10-rules.md, "Rule 26", "Rule 27", "Rule 28".

    Attributes:
        path: ``<partition>/<name>``, relative to the table.
        prev_commit: of a log the instant that wrote it; of a base file the previous base instant, or `NO_COMMIT`.
        num_writes: rows in the file, flagged deletes included; in a data log the sum of inserts and updates.
        num_deletes: of a delete log its rows (other counts are 0); of a base file the keys that were removed.
        total_bytes: size of the file in bytes.
        log_version: version of a log; None for a base file.
        base_file: of a log the name of the slice's base file, or ""; None for a base file.
        prev_base_file: name of the base file that this one replaces.
        log_files: of a log its own name, after the names of older logs if listed; None for a base file.
        cdc_files: path and size of each change log written with the file.
        log_records, log_blocks, …: counts of the log data that a compaction read (0 otherwise).
        scan_ms, create_ms, upsert_ms: durations of the write in milliseconds.
        ranges: ranges of columns in the file, for the metadata table; not recorded. None if they are to be read.
        indexed_keys: written record keys that the record index locates in the file group already; not recorded. None if
            none are known.
    """

    partition_path: str
    file_id: str
    path: str
    prev_commit: str
    num_writes: int = 0
    num_inserts: int = 0
    num_updates: int = 0
    num_deletes: int = 0
    total_bytes: int = 0
    log_version: int | None = None
    base_file: str | None = None
    prev_base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    cdc_files: tuple[tuple[str, int], ...] = ()
    min_event_time: int | None = None
    max_event_time: int | None = None
    log_records: int = 0
    log_blocks: int = 0
    updated_records_compacted: int = 0
    log_files_compacted: int = 0
    log_bytes_compacted: int = 0
    log_read_ms: int = 0
    scan_ms: int = 0
    create_ms: int = 0
    upsert_ms: int = 0
    ranges: WrittenRanges | None = field(default=None, compare=False)
    indexed_keys: pa.StringArray | None = field(default=None, compare=False)

    @property
    def file_name(self) -> str:
        """Last component of the path."""
        return self.path.rpartition("/")[2]

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of all files of this stat: the file, and the change logs written with it."""
        return (self.path, *(path for path, _ in self.cdc_files))

    def to_avro(self) -> AvroRecord:
        """Convert to a HoodieWriteStat record."""
        record: AvroRecord = {avro: getattr(self, name) for name, avro in _COUNTERS.items()}
        runtimes: AvroRecord = {avro: getattr(self, name) for name, avro in _RUNTIMES.items()}
        is_log = self.log_version is not None
        return record | {
            "fileId": self.file_id,
            "path": self.path,
            "prevCommit": self.prev_commit,
            "partitionPath": self.partition_path,
            "totalWriteBytes": self.total_bytes,
            "totalWriteErrors": 0,
            "totalCorruptLogBlock": 0,
            "totalRollbackBlocks": 0,
            "logVersion": self.log_version,
            "logOffset": 0 if is_log else None,
            "baseFile": self.base_file,
            "logFiles": None if self.log_files is None else list(self.log_files),
            "cdcStats": dict(self.cdc_files) or None,
            "prevBaseFile": self.prev_base_file,
            "minEventTime": self.min_event_time,
            "maxEventTime": self.max_event_time,
            "runtimeStats": runtimes,
            "numUpdates": 0,
        }

    @classmethod
    def from_avro(cls, record: Mapping[str, AvroValue], partition: str = "") -> WriteStat:
        """Convert a decoded HoodieWriteStat record.

        Args:
            record: every field of the packaged schema.
            partition: key of the stat in the map of partitions, used if the record has no partition path.
        """
        runtimes = cast("Mapping[str, AvroValue]", record["runtimeStats"] or {})
        counters = {name: _number(record[avro]) for name, avro in _COUNTERS.items()}
        counters |= {name: _number(runtimes.get(avro)) for name, avro in _RUNTIMES.items()}
        stored = _text(record["partitionPath"])
        log_files = cast("list[str] | None", record["logFiles"])
        return cls(
            partition_path=partition if stored is None else stored,
            file_id=_text(record["fileId"]) or "",
            path=_text(record["path"]) or "",
            prev_commit=_text(record["prevCommit"]) or NO_COMMIT,
            log_version=cast("int | None", record["logVersion"]),
            base_file=_text(record["baseFile"]),
            prev_base_file=_text(record["prevBaseFile"]),
            log_files=None if log_files is None else tuple(log_files),
            cdc_files=tuple(cast("dict[str, int]", record["cdcStats"] or {}).items()),
            min_event_time=cast("int | None", record["minEventTime"]),
            max_event_time=cast("int | None", record["maxEventTime"]),
            ranges=None,
            indexed_keys=None,
            **counters,
        )


def base_file_stat(
    partition_path: str,
    name: BaseFileName,
    *,
    total_bytes: int,
    num_writes: int,
    num_inserts: int = 0,
    num_updates: int = 0,
    num_deletes: int = 0,
    previous: BaseFileName | None = None,
    create_ms: int = 0,
) -> WriteStat:
    """Create the write stat of a new base file.

    Args:
        num_writes: rows in the file.
        num_deletes: keys of the previous slice that the file does not contain.
        previous: base file of the previous slice; None for a new file group.
    """
    return WriteStat(
        partition_path=partition_path,
        file_id=name.file_id,
        path=file_path(partition_path, str(name)),
        prev_commit=NO_COMMIT if previous is None else previous.instant,
        num_writes=num_writes,
        num_inserts=num_inserts,
        num_updates=num_updates,
        num_deletes=num_deletes,
        total_bytes=total_bytes,
        prev_base_file=None if previous is None else str(previous),
        create_ms=create_ms,
    )


def log_file_stat(
    partition_path: str,
    name: LogFileName | InlineLogName,
    *,
    total_bytes: int,
    num_inserts: int = 0,
    num_updates: int = 0,
    num_deletes: int = 0,
    upsert_ms: int = 0,
) -> WriteStat:
    """Create the write stat of a log.

    A native log has inserts and updates, or only deletes; an inline log may have all three. Hudi counts a row of an
    upsert as an update even if its key is new (docs/format/09-hudi-1.2.md, "3. Timeline").
    """
    return WriteStat(
        partition_path=partition_path,
        file_id=name.file_id,
        path=file_path(partition_path, str(name)),
        prev_commit=name.instant,
        num_writes=num_inserts + num_updates,
        num_inserts=num_inserts,
        num_updates=num_updates,
        num_deletes=num_deletes,
        total_bytes=total_bytes,
        log_version=name.version,
        base_file="",
        log_files=(str(name),),
        upsert_ms=upsert_ms,
    )


def file_path(partition_path: str, name: str) -> str:
    """Return the path of a data file relative to the table; the partition path of an unpartitioned table is ""."""
    return f"{partition_path}/{name}" if partition_path else name


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Content of a completed commit, deltacommit or replacecommit.

    Attributes:
        stats: write stats of all files, grouped by partition.
        operation_type: Hudi's name of the write operation (``UPSERT``, ``DELETE``, …).
        extra: extra metadata: ``schema`` (Avro JSON of the table without meta columns) and keys of the writers.
        compacted: whether the action is a compaction.
        replaced: partition path -> replaced file ids of a replacecommit; None for other actions.
    """

    stats: tuple[WriteStat, ...]
    operation_type: str
    extra: Mapping[str, str] = field(default_factory=dict)
    compacted: bool = False
    replaced: Mapping[str, tuple[str, ...]] | None = None

    @property
    def keeps_rows(self) -> bool:
        """Whether its operation is a compaction or log compaction, which changes no row."""
        return self.operation_type in COMPACTING

    @property
    def file_groups(self) -> frozenset[tuple[str, str]]:
        """Partition path and file id of each file group that it wrote to."""
        return frozenset((stat.partition_path, stat.file_id) for stat in self.stats)

    @property
    def replaced_groups(self) -> frozenset[tuple[str, str]]:
        """Partition path and file id of each file group that it replaced."""
        replaced = self.replaced or {}
        return frozenset((partition, file_id) for partition, ids in replaced.items() for file_id in ids)

    @property
    def schema(self) -> str | None:
        """Avro JSON of the table's schema; None if this commit has none."""
        return self.extra.get("schema") or None

    @property
    def paths(self) -> frozenset[str]:
        """Paths of all files that the action wrote, change logs included."""
        return paths_of(self.stats)

    def as_decoded(self) -> CommitMetadata:
        """Return the content as it is decoded, without what writers told beside it."""
        if all(stat.ranges is None and stat.indexed_keys is None for stat in self.stats):
            return self
        return replace(self, stats=tuple(replace(stat, ranges=None, indexed_keys=None) for stat in self.stats))

    def encode(self) -> bytes:
        """Encode the completed file; the encoding of an inflight file is the same."""
        record: dict[str, object] = {
            "partitionToWriteStats": _by_partition(self.stats),
            "compacted": self.compacted,
            "extraMetadata": dict(self.extra),
            "version": None,
            "operationType": self.operation_type,
        }
        if self.replaced is None:
            return encode_record(_COMMIT, record)
        record["partitionToReplaceFileIds"] = {partition: list(ids) for partition, ids in self.replaced.items()}
        return encode_record(_REPLACE, record)

    @classmethod
    def decode(cls, data: bytes, source: str) -> CommitMetadata:
        """Decode a completed commit, deltacommit or replacecommit in Avro.

        Raises:
            CorruptFileError: the bytes are not such a record; the message names `source`.
        """
        name = record_name(data, source)
        if name not in (_COMMIT, _REPLACE):
            raise CorruptFileError(f"{source}: holds a {name:.80} instead of a {_COMMIT}; restore the file")
        record = decode_record(name, data, source)
        by_partition = cast("dict[str, list[AvroRecord]]", record["partitionToWriteStats"] or {})
        stats = [WriteStat.from_avro(stat, partition) for partition, listed in by_partition.items() for stat in listed]
        replaced = cast("dict[str, list[str]]", record.get("partitionToReplaceFileIds") or {})
        return cls(
            stats=tuple(stats),
            operation_type=_text(record["operationType"]) or "UNKNOWN",
            extra=cast("dict[str, str]", record["extraMetadata"] or {}),
            compacted=bool(record["compacted"]),
            replaced={key: tuple(ids) for key, ids in replaced.items()} if name == _REPLACE else None,
        )


def paths_of(stats: Iterable[WriteStat]) -> frozenset[str]:
    """Collect the paths of all files that `stats` name, change logs included."""
    return frozenset(path for stat in stats for path in stat.paths)


def count_deletes(stats: Iterable[WriteStat]) -> int:
    """Count the deletes of a write, but for those that it kept beside its base files, which may be of earlier writes.

    See docs/format/06-services.md, "Kept deletes".
    """
    found = list(stats)
    based = {(stat.partition_path, stat.file_id) for stat in found if stat.log_version is None}
    return sum(
        stat.num_deletes
        for stat in found
        if stat.log_version is None or (stat.partition_path, stat.file_id) not in based
    )


def _by_partition(stats: Iterable[WriteStat]) -> dict[str, list[AvroRecord]]:
    grouped: dict[str, list[AvroRecord]] = {}
    for stat in stats:
        grouped.setdefault(stat.partition_path, []).append(stat.to_avro())
    return grouped


def _number(value: AvroValue) -> int:
    return cast(int, value) if value is not None else 0


def _text(value: AvroValue) -> str | None:
    return cast("str | None", value)


def decode_json(data: bytes, source: str) -> CommitMetadata:
    """Decode a completed commit, deltacommit or replacecommit in JSON; the keys are the names of the Avro fields.

    Raises:
        CorruptFileError: the bytes are not such an object; the message names `source`.
    """
    try:
        record = parse_json(data, None)
        by_partition = record["partitionToWriteStats"]
        stats = [_stat(stat, partition) for partition, listed in by_partition.items() for stat in listed]
        replaced = record.get("partitionToReplaceFileIds")
        return CommitMetadata(
            stats=tuple(stats),
            operation_type=str(record.get("operationType") or "UNKNOWN"),
            extra={str(key): str(value) for key, value in (record.get("extraMetadata") or {}).items()},
            compacted=bool(record.get("compacted")),
            replaced=None if replaced is None else {key: tuple(map(str, ids)) for key, ids in replaced.items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise CorruptFileError(f"{source}: not the JSON of a commit ({reason:.200}); restore the file") from None


def _stat(stat: dict[str, AvroValue], partition: str) -> WriteStat:
    """Convert a write stat from JSON; fields that older releases did not write are null."""
    return WriteStat.from_avro(defaultdict(lambda: None, stat), partition)
