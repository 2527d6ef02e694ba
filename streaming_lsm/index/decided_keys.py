"""Decide by their ordering values which records and deletes of a write win, without the rows that they merge with.

See docs/format/05-merge.md, "Pairwise rule". A table here has record key and ordering fields of log records. The
records are those of the newest logs of a file slice, so that they win over older ones with an equal ordering value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, flags, int64s, pc
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import RECORD_KEY


def records_above(rule: MergeRule, records: pa.Table, deletes: pa.Table) -> Flags:
    """Flag the records that win over all older deletes of their key, bool (records,).

    Args:
        rule: in event-time mode.
        records: records.
        deletes: older deletes; those without an ordering value lose to each newer record.
    """
    keys: Any = records.column(RECORD_KEY).combine_chunks().dictionary_encode()
    codes = int64s(keys.indices)
    ordered = deletes.filter(pa.array(~rule.unordered_deletes(deletes, np.ones(len(deletes), np.bool_))))
    of_deletes: Any = pc.index_in(ordered.column(RECORD_KEY), value_set=keys.dictionary)
    competes = flags(pc.is_valid(of_deletes))
    if not competes.any():
        return np.ones(len(records), np.bool_)
    ordered = ordered.filter(pa.array(competes))
    names = list(rule.ordering_fields)
    ranks = rule.ranks(pa.concat_tables([records.select(names), ordered.select(names)]))
    assert ranks is not None
    highest = np.full(len(keys.dictionary), np.iinfo(np.int64).min)
    np.maximum.at(highest, int64s(of_deletes.drop_null()), ranks[len(records) :])
    above: Flags = ranks[: len(records)] >= highest[codes]
    return above


def deletes_above(rule: MergeRule, deletes: pa.Table, highest: pa.Scalar[Any] | None) -> Flags:
    """Flag the deletes that win over all older records, bool (deletes,).

    Args:
        rule: in event-time mode.
        deletes: deletes.
        highest: a value that no older record exceeds in the only ordering field; None if none is known.
    """
    wins = rule.unordered_deletes(deletes, np.ones(len(deletes), np.bool_))
    if highest is None or len(rule.ordering_fields) != 1:
        return wins
    name = rule.ordering_fields[0]
    values = deletes.column(name)
    limit: Any = pa.chunked_array([*values.chunks, pa.array([highest]).cast(values.type)])
    ranks = rule.ranks(pa.table({name: limit}))
    assert ranks is not None
    above: Flags = wins | (flags(pc.is_valid(values)) & (ranks[:-1] >= ranks[-1]))
    return above
