"""Encode and decode the keys and records of secondary indexes, partitions of the metadata table.

See docs/format/07-index-and-metadata.md, "Secondary index". An *entry* is a value of the indexed column, as text, with
the record key of a row that has it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, flags, pc
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.metadata.parts import check_valid, decode_part, encode_part
from streaming_lsm.format.metadata.record_index import shards_of
from streaming_lsm.format.metadata.schema import RecordType

PREFIX = "secondary_index_"
"""Prefix of the names of these partitions."""
_NULL, _SEPARATOR = "\0", "$"
_ESCAPED = ("\\", "$", "\0")
_ENTRY = r"(?s)^(?P<prefix>(?:[^\\$]|\\.)*\$)(?P<key>.*)$"
_PART = "SecondaryIndexMetadata"
_INFO = pa.struct([pa.field("isDeleted", pa.bool_(), nullable=False)])


def group_file_id(name: str) -> str:
    """Return the form of the file ids of an index, in which a number is filled."""
    return f"{name.replace('_', '-')}-{{:04d}}-0"


def escaped(texts: pa.StringArray) -> pa.StringArray:
    """Escape texts as they are in keys of entries; null becomes a null character."""
    found: Any = texts
    for character in _ESCAPED:
        found = pc.replace_substring(found, pattern=character, replacement=f"\\{character}")
    filled: pa.StringArray = pc.fill_null(found, _NULL)
    return filled


def entry_keys(values: pa.StringArray, record_keys: pa.StringArray) -> pa.StringArray:
    """Return the keys of entries.

    Args:
        values: values of the column as texts, null where it is null (n,).
        record_keys: the record keys (n,).
    """
    keys: pa.StringArray = pc.binary_join_element_wise(escaped(values), escaped(record_keys), _SEPARATOR)
    return keys


def prefixes(values: pa.StringArray) -> pa.StringArray:
    """Return how the keys of the entries of values begin; no other key begins so."""
    beginnings: pa.StringArray = pc.binary_join_element_wise(escaped(values), "", _SEPARATOR)
    return beginnings


def split_keys(keys: pa.StringArray, source: str) -> tuple[pa.StringArray, pa.StringArray]:
    """Split the keys of entries into how they begin, see `prefixes`, and the record key.

    Args:
        keys: keys (n,).
        source: name of the file, for messages.

    Returns:
        Their beginnings (n,), and the record keys (n,).

    Raises:
        CorruptFileError: a key has no separator.
    """
    found: Any = pc.extract_regex(keys, pattern=_ENTRY)
    if found.null_count:
        wrong = keys.filter(pc.is_null(found))[0].as_py()
        raise CorruptFileError(f"{source}: {wrong!r:.80} is no key of a secondary index; drop the index")
    record_keys = pc.replace_substring_regex(found.field("key"), pattern=r"(?s)\\(.)", replacement=r"\1")
    return found.field("prefix"), record_keys


def entry_shards(beginnings: pa.StringArray, shards: int) -> Int64s:
    """Return the file group of entries, int64 (n,), by Hudi's hash in index version V2.

    Args:
        beginnings: how the keys begin, see `prefixes` (n,).
        shards: file groups of the index.
    """
    return shards_of(beginnings, shards)


def encode_entries(count: int, file_name: str | None) -> pa.BinaryArray:
    """Encode the records of entries that are not deleted, the values of HFile cells.

    Args:
        count: how many.
        file_name: name of their base file; None in logs.
    """
    values = pa.StructArray.from_arrays([pa.repeat(pa.scalar(False), count)], fields=list(_INFO.fields))
    return encode_part(_PART, values, pa.repeat(pa.scalar(RecordType.SECONDARY_INDEX, pa.int32()), count), file_name)


def decode_entries(cells: Cells, schema_json: str, source: str) -> pa.BooleanArray:
    """Decode which entries in cells are deleted.

    Args:
        cells: cells of an HFile of an index, n.
        schema_json: the ``schema`` of the HFile.
        source: name of the file, for messages.

    Raises:
        CorruptFileError: a record is damaged, or of another type.
        UnsupportedTable: a record is of an unknown type.
    """
    _, found = decode_part(cells, schema_json, _PART, _INFO, (RecordType.SECONDARY_INDEX,), source)
    check_valid(found, cells, _PART, source)
    info: Any = found
    check_valid(info.field("isDeleted"), cells, f"{_PART}.isDeleted", source)
    deleted: pa.BooleanArray = pa.array(flags(info.field("isDeleted")))
    return deleted
