"""Encode and decode the records of the metadata table's partition ``bloom_filters``: the bloom filters of base files.

See docs/format/07-index-and-metadata.md, "Bloom filters of the metadata table". A *filter* is one record: the text that
the footer of a base file has.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.metadata.hashes import file_hash, partition_hash
from streaming_lsm.format.metadata.parts import check_valid, decode_part, encode_part
from streaming_lsm.format.metadata.schema import RecordType

PARTITION = "bloom_filters"
FILE_ID = "bloom-filters-{:04d}-0"
"""File id of the file group of a number."""

FILTERS = pa.struct(
    [
        pa.field("type", pa.string(), nullable=False),
        pa.field("timestamp", pa.string(), nullable=False),
        pa.field("bloomFilter", pa.binary(), nullable=False),
        pa.field("isDeleted", pa.bool_(), nullable=False),
    ]
)
"""Filters, with the names of the record's fields: type code, instant of the file, base64 text, tombstone."""

_PART = "BloomFilterMetadata"


def filter_key(partition: str, file_name: str) -> str:
    """Return the key of the filter of a base file."""
    return partition_hash(partition) + file_hash(file_name)


def filter_row(kind: str, instant: str, text: bytes, *, is_deleted: bool = False) -> dict[str, object]:
    """Build a filter, a value of the type `FILTERS`; of a deleted file it is a tombstone."""
    return {"type": kind, "timestamp": instant, "bloomFilter": text, "isDeleted": is_deleted}


def decode_filters(cells: Cells, schema_json: str, source: str) -> pa.StructArray:
    """Decode filters.

    Args:
        cells: cells of an HFile of the partition.
        schema_json: the ``schema`` of the HFile.
        source: name of the file, for messages.

    Returns:
        The filters, of the type `FILTERS`.

    Raises:
        CorruptFileError: a record is damaged, or of another type.
        UnsupportedTable: a record is of an unknown type.
    """
    _, found = decode_part(cells, schema_json, _PART, FILTERS, (RecordType.BLOOM_FILTER,), source)
    check_valid(found, cells, _PART, source)
    filters: Any = found
    for field in FILTERS.fields:
        check_valid(filters.field(field.name), cells, f"{_PART}.{field.name}", source)
    return filters  # type: ignore[no-any-return]


def encode_filters(filters: pa.StructArray, file_name: str | None) -> pa.BinaryArray:
    """Encode filters, the values of HFile cells.

    Args:
        filters: of the type `FILTERS`.
        file_name: name of their base file; None in logs.
    """
    return encode_part(
        _PART, filters, pa.repeat(pa.scalar(RecordType.BLOOM_FILTER, pa.int32()), len(filters)), file_name
    )
