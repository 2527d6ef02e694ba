"""Encode and decode the records of the metadata table as columns, all records of a file at once.

See docs/format/07-index-and-metadata.md, "Metadata table". The *part* of a record is the field that its type fills: for
a record of the record index ``recordIndexMetadata``. All other fields but the type are null.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import Array, array_of, bytes_of, gather, nulls
from streaming_lsm.arrow.columns import Flags, Int64s, int64s, pc
from streaming_lsm.errors import CorruptFileError, SchemaError, UnsupportedTable
from streaming_lsm.format.avro.datum_writer import Write, record_writer
from streaming_lsm.format.avro.record_reader import decode_records
from streaming_lsm.format.avro.record_writer import encode_records
from streaming_lsm.format.avro.schema_tree import record_plan
from streaming_lsm.format.avro.value_writer import number
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.metadata.schema import RecordType, metadata_schema
from streaming_lsm.schema import META_COLUMNS

TYPE, _KEY, _FILE_NAME = "type", "key", "_hoodie_file_name"


def decode_part(
    cells: Cells, schema_json: str, part: str, kind: pa.DataType, types: tuple[int, ...], source: str
) -> tuple[Array, Array]:
    """Decode one part of records.

    Args:
        cells: cells of an HFile, n.
        schema_json: the ``schema`` of the HFile; it may lack fields of newer releases.
        part: the field.
        kind: its Arrow type; a field that the schema lacks is null.
        types: the record types that fill it.
        source: name of the file, for messages.

    Returns:
        The types of the records, int32 (n,), and their parts, of type `kind` (n,).

    Raises:
        CorruptFileError: a record is damaged, or of another type; or the schema has another type for the part.
        UnsupportedTable: a record is of a type that is not in `RecordType`.
    """
    try:
        found = decode_records(
            schema_json=schema_json,
            content=cells.content,
            starts=cells.value_starts,
            ends=cells.value_ends,
            source=source,
            columns=(TYPE, part),
            unions=True,
        )
    except SchemaError as error:
        raise CorruptFileError(f"{error}; restore the file") from error
    numbers, values = (_column(found, name, source) for name in (TYPE, part))
    wrong = ~np.isin(int64s(numbers), types)
    if wrong.any():
        number = int64s(numbers)[wrong][0]
        failure = CorruptFileError if number in list(RecordType) else UnsupportedTable
        raise failure(
            f"{source}: metadata record {_name(cells, wrong)} of type {number} where records of type "
            f"{' or '.join(map(str, types))} belong; drop the metadata table"
        )
    return numbers, _as_kind(values, kind, part, source)


def renamed_values(cells: Cells, old: str | None, new: str | None) -> pa.BinaryArray | None:
    """Put another file name into encoded records, without decoding the rest of them.

    Args:
        cells: have records in the schema of `metadata_schema`.
        old: name of the base file in which some of them are, the others are in logs; None if all are in logs.
        new: name of the base file to write; None for a log.

    Returns:
        The records; None if they do not begin as this package and Hudi write them.
    """
    sizes: Int64s = np.zeros(len(cells), np.int64)
    for before in {_first_bytes(name) for name in (None, old)}:
        sizes[_begins(cells, before)] = len(before)
    if not (sizes > 0).all() or not len(cells):
        return None
    rest = gather(cells.data, cells.value_starts + sizes, cells.value_ends)
    found: pa.BinaryArray = pc.binary_join_element_wise(pa.scalar(_first_bytes(new)), rest, b"")
    return found


def _begins(cells: Cells, beginning: bytes) -> Flags:
    """Flag the values that begin with some bytes, bool (cells,)."""
    size, starts = len(beginning), cells.value_starts
    found: Flags = cells.value_ends - starts >= size
    if found.any():
        windows: Any = np.ndarray((len(cells.data) - size + 1,), f"V{size}", cells.data, 0, (1,))
        found[found] = windows[starts[found]] == np.void(beginning)
    return found


def named_values(values: pa.BinaryArray, new: str) -> pa.BinaryArray:
    """Put a file name into records that are encoded for a log; see `renamed_values`."""
    ends, data = bytes_of(values)
    offsets = ends.astype(np.int64)
    rest = gather(data, offsets[:-1] + len(_first_bytes(None)), offsets[1:])
    found: pa.BinaryArray = pc.binary_join_element_wise(pa.scalar(_first_bytes(new)), rest, b"")
    return found


def _first_bytes(file_name: str | None) -> bytes:
    """Return the bytes of the meta columns, unions of null and a text: all null but the file name, the last one."""
    if file_name is None:
        return bytes(len(META_COLUMNS))
    text = file_name.encode()
    return bytes(len(META_COLUMNS) - 1) + b"\x02" + number(len(text)) + text


def names_file(value: bytes, file_name: str) -> bool | None:
    """Return whether an encoded record names a base file, None if it names none, as in logs and in some first files."""
    if value.startswith(_first_bytes(file_name)):
        return True
    return False if value.startswith(_first_bytes("")[:-1]) else None


def check_valid(values: Array, cells: Cells, part: str, source: str) -> None:
    """Check that a field is filled in every record.

    Raises:
        CorruptFileError: it is null in one.
    """
    if values.null_count:
        missing = ~np.asarray(pc.is_valid(values), np.bool_)
        raise CorruptFileError(f"{source}: metadata record {_name(cells, missing)} has no {part}; restore the file")


def encode_part(part: str, values: Any, types: Any, file_name: str | None) -> pa.BinaryArray:
    """Encode records that have one part.

    Args:
        part: the field.
        values: the parts, (n,), in the order of fields of `metadata_schema`.
        types: the types of the records, int32 (n,).
        file_name: name of their base file; None in logs.
    """
    count = len(values)
    name: Any = pa.nulls(count, pa.string()) if file_name is None else pa.repeat(pa.scalar(file_name), count)
    columns = {_FILE_NAME: name, _KEY: pa.repeat(pa.scalar(""), count), TYPE: types, part: values}
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    found: Any = encode_records(batch, metadata_schema(), complete=False)
    return found  # type: ignore[no-any-return]


def encode_rows(part: str, rows: Iterable[Any], types: Iterable[int], file_name: str | None) -> pa.BinaryArray:
    """Encode records that have one part, given as Python values, one after the other; see `datum_writer`.

    Args:
        part: the field.
        rows: the parts.
        types: the types of the records.
        file_name: name of their base file; None in logs.

    Raises:
        UnicodeEncodeError: a text is not UTF-8.
    """
    write, found = _record_writer(), []
    for row, kind in zip(rows, types, strict=True):
        out = bytearray()
        write({_FILE_NAME: file_name, _KEY: "", TYPE: kind, part: row}, out)
        found.append(bytes(out))
    return pa.array(found, pa.binary())


@functools.cache
def _record_writer() -> Write:
    plan = record_plan(metadata_schema(), "schema of the metadata table", unions=True)
    return record_writer(dict(zip(plan.schema.names, plan.fields, strict=True)))


def _column(found: pa.RecordBatch, name: str, source: str) -> Array:
    place = found.schema.get_field_index(name)
    if place < 0:
        raise CorruptFileError(f"{source}: the schema of its metadata records has no field {name}; restore the file")
    return found.column(place)


def _as_kind(values: Array, kind: pa.DataType, path: str, source: str) -> Array:
    """Return values with all fields of a type; those that the values lack are null."""
    has = values.type
    if has == kind:
        return values
    if not (pa.types.is_struct(has) and pa.types.is_struct(kind)):
        raise CorruptFileError(f"{source}: field {path} of a metadata record is of type {has}; restore the file")
    places = {field.name: place for place, field in enumerate(has.fields)}
    struct: Any = values
    children = [
        _as_kind(struct.field(places[field.name]), field.type, f"{path}.{field.name}", source)
        if field.name in places
        else nulls(len(values), field.type)
        for field in kind.fields
    ]
    valid: Flags = np.asarray(pc.is_valid(values), np.bool_)
    return array_of(kind, len(values), [np.packbits(valid, bitorder="little")], children)


def _name(cells: Cells, flags: Flags) -> str:
    key: bytes = cells.at(np.flatnonzero(flags)[:1]).keys[0].as_py()
    return f"{key!r:.80}"
