"""Encode and decode the records of the metadata table one at a time, by fastavro: what the package does by columns.

See docs/format/07-index-and-metadata.md, "Metadata table". A value is the Avro encoding of a HoodieMetadataRecord
without a container; its ``key`` field is empty, because the HFile entry has the key. The meta columns come first; all
are null except the file name in base files. A *tombstone* is an entry that deletes a name.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import fastavro

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.avro.container import writer_schema
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.record_index import file_id_fields, file_id_of
from streaming_lsm.format.metadata.records import FilesRecord, MetadataFileInfo
from streaming_lsm.format.metadata.schema import RecordType, metadata_schema

Wrapped = tuple[str, dict[str, Any]]
"""Value in column statistics: full name of its wrapper record, and the wrapper."""

_UUID_ENCODING, _TEXT_ENCODING = 0, 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of one column in a file, or in a partition.

    Attributes:
        file_name: name of the file, or path of the partition if `of_partition`.
        value_type: ordinal and additional text of the column's type (index version 2 only).
    """

    file_name: str | None
    column_name: str | None
    min_value: Wrapped | None
    max_value: Wrapped | None
    value_count: int | None
    null_count: int | None
    total_size: int | None
    total_uncompressed_size: int | None
    is_deleted: bool
    is_tight_bound: bool = False
    value_type: tuple[int, str | None] | None = None
    of_partition: bool = False


@dataclass(frozen=True, slots=True)
class FileBloom:
    """Bloom filter of a base file, encoded as in the file's footer."""

    type: str
    timestamp: str
    bloom_filter: bytes
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """Location of a record in the record index.

    Attributes:
        partition: partition path, empty for an unpartitioned table.
        instant_ms: epoch milliseconds of the instant that first wrote the record.
        position: row of the record in its file; never set by Hudi's releases.
    """

    partition: str
    file_id: str
    instant_ms: int
    position: int | None = None


MetadataRecord = FilesRecord | ColumnStats | FileBloom | RecordLocation


@functools.cache
def _parsed_schema() -> Any:
    return fastavro.parse_schema(json.loads(metadata_schema()))


def read_records(hfile: HFile) -> Iterator[tuple[str, MetadataRecord]]:
    """Decode the keys and records of an HFile of the metadata table.

    Raises:
        CorruptFileError: the file, its schema or a record is damaged.
        UnsupportedTable: a record has a type that is not in `RecordType`.
    """
    schema = writer_schema(hfile.schema_json, hfile.source)
    for cells in hfile.cells():
        keys, values = (cast("list[bytes]", column.to_pylist()) for column in (cells.keys, cells.values))
        for key, value in zip(keys, values, strict=True):
            yield _text(key, hfile.source), _decode(value, schema, hfile.source)


def decode_record(value: bytes, schema_json: str, source: str) -> MetadataRecord:
    """Decode one value; for a whole file see `read_records`.

    Args:
        value: the value of an HFile entry.
        schema_json: the ``schema`` of the HFile.
        source: name of the file, for messages.

    Raises:
        CorruptFileError, UnsupportedTable: as `read_records`.
    """
    return _decode(value, writer_schema(schema_json, source), source)


def encode_record(record: MetadataRecord, file_name: str | None = None) -> bytes:
    """Encode a value in the schema of `metadata_schema`.

    Args:
        record: the record.
        file_name: name of its base file; None in logs.
    """
    fields: dict[str, object] = {"_hoodie_file_name": file_name, "key": "", "filesystemMetadata": None}
    encoded = io.BytesIO()
    fastavro.schemaless_writer(encoded, _parsed_schema(), fields | _part(record))
    return encoded.getvalue()


def _text(key: bytes, source: str) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise CorruptFileError(f"{source}: HFile key {key!r:.80} is not UTF-8; restore the file") from None


def _decode(value: bytes, schema: Any, source: str) -> MetadataRecord:
    stream = io.BytesIO(value)
    try:
        # Returns record names only for unions of several records, the wrappers of statistics.
        fields: Any = fastavro.schemaless_reader(
            stream, schema, None, return_record_name=True, return_record_name_override=True
        )
    except Exception as error:  # fastavro raises errors of many types on malformed input
        reason = f"{type(error).__name__}: {error}"
        raise CorruptFileError(f"{source}: metadata record cannot be decoded ({reason:.200}); restore it") from None
    if stream.tell() != len(value):
        raise CorruptFileError(f"{source}: {len(value) - stream.tell()} bytes after a metadata record; restore it")
    record = _Fields(fields, source)
    number = record.get("type", int)
    match number:
        case RecordType.ALL_PARTITIONS | RecordType.FILES:
            return _files(record, number == RecordType.ALL_PARTITIONS)
        case RecordType.COLUMN_STATS | RecordType.PARTITION_STATS:
            return _column_stats(record.part("ColumnStatsMetadata"), number == RecordType.PARTITION_STATS)
        case RecordType.BLOOM_FILTER:
            return _bloom(record.part("BloomFilterMetadata"))
        case RecordType.RECORD_INDEX:
            return _location(record.part("recordIndexMetadata"))
    raise UnsupportedTable(
        f"{source}: metadata record of type {number}; types 1 to {max(RecordType)} are read: "
        "drop the index that it belongs to"
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """Decoded record with type checks; the writer's schema may give its fields any type."""

    values: Mapping[str, object]
    source: str

    def get(self, name: str, kind: type[T]) -> T:
        value = self.values.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise CorruptFileError(
                f"{self.source}: field {name} of a metadata record is {value!r:.80}; restore the file"
            )
        return value

    def optional(self, name: str, kind: type[T]) -> T | None:
        return None if self.values.get(name) is None else self.get(name, kind)

    def part(self, name: str) -> _Fields:
        return _Fields(self.get(name, dict), self.source)


def _files(record: _Fields, all_partitions: bool) -> FilesRecord:
    found = record.optional("filesystemMetadata", dict) or {}
    entries = _Fields(found, record.source)
    parts = {name: entries.part(name) for name in found}
    files = {name: MetadataFileInfo(part.get("size", int), part.get("isDeleted", bool)) for name, part in parts.items()}
    return FilesRecord(files, all_partitions)


def _column_stats(part: _Fields, of_partition: bool) -> ColumnStats:
    value_type = None
    if part.values.get("valueType") is not None:
        of_type = part.part("valueType")
        value_type = (of_type.get("typeOrdinal", int), of_type.optional("additionalInfo", str))
    return ColumnStats(
        file_name=part.optional("fileName", str),
        column_name=part.optional("columnName", str),
        min_value=part.optional("minValue", tuple),
        max_value=part.optional("maxValue", tuple),
        value_count=part.optional("valueCount", int),
        null_count=part.optional("nullCount", int),
        total_size=part.optional("totalSize", int),
        total_uncompressed_size=part.optional("totalUncompressedSize", int),
        is_deleted=part.get("isDeleted", bool),
        is_tight_bound=part.optional("isTightBound", bool) or False,
        value_type=value_type,
        of_partition=of_partition,
    )


def _bloom(part: _Fields) -> FileBloom:
    content = part.get("bloomFilter", bytes)
    return FileBloom(part.get("type", str), part.get("timestamp", str), content, part.get("isDeleted", bool))


def _location(part: _Fields) -> RecordLocation:
    encoding = part.get("fileIdEncoding", int)
    if encoding == _TEXT_ENCODING:
        file_id = part.get("fileId", str)
    elif encoding == _UUID_ENCODING:
        high, low, index = (part.get(name, int) for name in ("fileIdHighBits", "fileIdLowBits", "fileIndex"))
        file_id = file_id_of(high, low, index)
    else:
        raise UnsupportedTable(f"{part.source}: file ids of encoding {encoding} in the record index; 0 and 1 are read")
    position = part.optional("position", int)
    return RecordLocation(part.get("partitionName", str), file_id, part.get("instantTime", int), position)


def _part(record: MetadataRecord) -> dict[str, object]:
    """Return the fields of the part that a record fills."""
    match record:
        case FilesRecord():
            number = RecordType.ALL_PARTITIONS if record.all_partitions else RecordType.FILES
            files = {name: {"size": at.size, "isDeleted": at.is_deleted} for name, at in record.files.items()}
            return {"type": number, "filesystemMetadata": files}
        case ColumnStats():
            number = RecordType.PARTITION_STATS if record.of_partition else RecordType.COLUMN_STATS
            return {"type": number, "ColumnStatsMetadata": _stats_fields(record)}
        case FileBloom():
            return {"type": RecordType.BLOOM_FILTER, "BloomFilterMetadata": _bloom_fields(record)}
        case RecordLocation():
            return {"type": RecordType.RECORD_INDEX, "recordIndexMetadata": _location_fields(record)}


def _bloom_fields(record: FileBloom) -> dict[str, object]:
    return {
        "type": record.type,
        "timestamp": record.timestamp,
        "bloomFilter": record.bloom_filter,
        "isDeleted": record.is_deleted,
    }


def _stats_fields(record: ColumnStats) -> dict[str, object]:
    ordinal, info = record.value_type or (None, None)
    return {
        "fileName": record.file_name,
        "columnName": record.column_name,
        "minValue": record.min_value,
        "maxValue": record.max_value,
        "valueCount": record.value_count,
        "nullCount": record.null_count,
        "totalSize": record.total_size,
        "totalUncompressedSize": record.total_uncompressed_size,
        "isDeleted": record.is_deleted,
        "isTightBound": record.is_tight_bound,
        "valueType": None if ordinal is None else {"typeOrdinal": ordinal, "additionalInfo": info},
    }


def _location_fields(record: RecordLocation) -> dict[str, object]:
    return {
        "partitionName": record.partition,
        "instantTime": record.instant_ms,
        "position": record.position,
        **file_id_fields(record.file_id),
    }
