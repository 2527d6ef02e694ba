"""Find rows that cannot be stored: those without record key or with an unusable partition value.

The rules are those of the key generator. The whole batch is tried first; after an error distinct keys and partitions
are bisected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, pc
from streaming_lsm.errors import RecordError
from streaming_lsm.keys.dictionaries import codes_of
from streaming_lsm.keys.generator import KeyGenerator, key_column

# Where a row lay among the values that were tried says nothing about the event.
_ROW = re.compile(r"^row \d+(?:,| has)? |, row \d+(?=:)")

_Check = Callable[[pa.RecordBatch], object]


def invalid_rows(keys: KeyGenerator, batch: pa.RecordBatch) -> pa.StringArray | None:
    """Find the reason why rows cannot be stored.

    Returns:
        The reason per row, null for rows that have a place; None when all have.

    Raises:
        SchemaError: a key or partition column is missing or has a type without text.
    """
    no_key = _reasons(keys.record_keys, batch, keys.record_key_fields)
    no_partition = _reasons(keys.partition_paths, batch, [name for name, _ in keys.partition_fields])
    if no_key is None or no_partition is None:
        return no_partition if no_key is None else no_key
    both: pa.StringArray = pc.coalesce(no_key, no_partition)
    return both


def _reasons(check: _Check, batch: pa.RecordBatch, names: Sequence[str]) -> pa.StringArray | None:
    try:
        check(batch)
    except RecordError:
        pass
    else:
        return None
    first, of_row = _distinct([key_column(batch, name) for name in names])
    reasons: list[str | None] = [None] * len(first)
    for place, reason in _faults(check, batch.take(pa.array(first, pa.int64())), 0):
        reasons[place] = reason
    taken: pa.StringArray = pa.array(reasons, pa.string()).take(pa.array(of_row, pa.int64()))
    return taken


def _faults(check: _Check, rows: pa.RecordBatch, begin: int) -> Iterator[tuple[int, str]]:
    """Find position and reason of each row that `check` refuses; `begin` is the position of the first row."""
    try:
        check(rows)
    except RecordError as error:
        if rows.num_rows == 1:
            yield begin, _ROW.sub("", str(error))
            return
        half = rows.num_rows // 2
        yield from _faults(check, rows.slice(0, half), begin)
        yield from _faults(check, rows.slice(half), begin + half)


def _distinct(columns: Sequence[pa.Array[Any]]) -> tuple[Int64s, Int64s]:
    """Find the first row of each distinct tuple, and per row the number of its tuple; both int64."""
    of_row: Int64s = np.zeros(len(columns[0]), np.int64)
    first: Int64s = of_row[:1]
    for column in columns:
        plain = pc.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column
        encoded = pc.dictionary_encode(plain, null_encoding="encode")
        pairs = of_row * len(encoded.dictionary) + codes_of(encoded)
        _, first, of_row = np.unique(pairs, return_index=True, return_inverse=True)
    return first, of_row
