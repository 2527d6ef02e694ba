"""Encode Arrow rows as Avro datums, all rows at once, and as the content of a data block.

See docs/format/04-inline-logs.md, "Contents".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import data_of, offsets_of, spans
from streaming_lsm.arrow.columns import pc
from streaming_lsm.casts import fit
from streaming_lsm.errors import SchemaError
from streaming_lsm.format.avro.record_reader import BLOCK_VERSION
from streaming_lsm.format.avro.schema_tree import record_plan
from streaming_lsm.format.avro.value_writer import encode_fields, joined

_HEAD = struct.Struct(">ii")
# Limits of a part, the rows encoded at a time, so that its pieces fit the CPU cache.
_PART_ROWS = 8192
_PART_BYTES = 1 << 26
_MAX_OFFSET = np.iinfo(np.int32).max


def encode_records(
    batch: pa.RecordBatch, schema_json: str, *, complete: bool = True
) -> pa.BinaryArray | pa.LargeBinaryArray:
    """Encode each row as an Avro datum without container.

    Args:
        batch: has every column of the schema, by name, in its type or a type that widens to it.
        schema_json: Avro JSON of the records.
        complete: False if the batch may lack columns, whose values are null then, and may have unions of several
            records, see `arrow_fields`.

    Returns:
        one datum per row; large_binary only if they have more than 2 GiB in total.

    Raises:
        SchemaError: the schema is malformed, or the batch does not fit it.
    """
    parts: list[Any] = list(_parts(batch, schema_json, complete=complete))
    if sum(part.nbytes for part in parts) > _MAX_OFFSET:
        parts = [part.cast(pa.large_binary()) for part in parts]
    found: pa.BinaryArray = pa.concat_arrays(parts) if parts else pa.array([], pa.binary())
    return found


def encode_data_block(batch: pa.RecordBatch, schema_json: str) -> bytes:
    """Encode the content of an Avro data block: version, count, and length-prefixed datums.

    See docs/format/04-inline-logs.md, "Contents".

    Raises:
        SchemaError: as `encode_records`.
    """
    pieces: list[Any] = [_HEAD.pack(BLOCK_VERSION, batch.num_rows)]
    for datums in _parts(batch, schema_json):
        lengths = np.diff(offsets_of(datums)).astype(">i4")
        heads = spans(np.arange(len(datums) + 1) * lengths.itemsize, lengths.view(np.uint8))
        pieces.append(data_of(pc.binary_join_element_wise(heads, datums, b""), 2))
    return b"".join(pieces)


def _parts(batch: pa.RecordBatch, schema_json: str, *, complete: bool = True) -> Iterator[pa.BinaryArray]:
    """Yield the datums part by part."""
    plan = record_plan(schema_json, "Avro schema", None if complete else batch.schema.names, unions=not complete)
    rows = fit(batch, plan.schema)
    step = max(1, min(_PART_ROWS, _PART_BYTES * len(batch) // max(batch.nbytes, 1)))
    for first in range(0, len(rows), step):
        part = rows.slice(first, step)
        try:
            columns = dict(zip(plan.places, part.columns, strict=True))
            values = [columns.get(place) for place in range(len(plan.fields))]
            yield joined(encode_fields(plan.fields, values, len(part)), len(part))
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            raise SchemaError(f"rows {first} to {first + len(part) - 1} are too large for Avro ({error})") from error
