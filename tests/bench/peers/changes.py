"""Debezium changes of a table of orders: which keys, operations and order of arrival.

*Late*: an event that arrives after events with higher positions in the database's log. An event that is followed by the
delete of its key is never late: a MERGE keeps no tombstone, and would bring the row back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.bench.peers.columns import CHANGE_COLUMNS, DOCUMENT_COLUMNS, LSN
from tests.bench.workload import KEY, ORDERING, orders, padded

ZIPF, DELETES, LATE = 0.99, 0.10, 0.05
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Changes:
    """Events by arrival.

    Attributes:
        rows: the columns of `CHANGE_COLUMNS`; of a delete those of the deleted row.
        operations: ``c``, ``u`` or ``d`` of each.
        keys: number of the key of each, int64.
    """

    rows: pa.Table
    operations: np.ndarray
    keys: np.ndarray

    def final(self) -> pa.Table:
        """The rows that a table has in the end: of each key the event with the highest position, if it is no delete."""
        positions = self.rows.column(LSN).to_numpy()
        order = np.lexsort((positions, self.keys))
        last = np.append(self.keys[order][1:] != self.keys[order][:-1], True)
        winners = order[last]
        return self.rows.take(pa.array(np.sort(winners[self.operations[winners] != "d"])))

    def documents(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield number of the key, key and envelope of each event."""
        rows, positions = self.rows.select(DOCUMENT_COLUMNS.names), self.rows.column(LSN).to_numpy().tolist()
        for number, operation, position, row in zip(
            self.keys.tolist(), self.operations.tolist(), positions, rows.to_pylist(), strict=True
        ):
            # Arrow's own cast of a decimal to a float adds digits.
            document = {**row, "price": float(row["price"])}
            yield number, row[KEY].encode(), _envelope(document, operation, position)


def changes(events: int, keys: int, seed: int) -> Changes:
    """Make `events` changes of at most `keys` orders, zipf 0.99; 10 % are deletes, and 5 % late.

    A late event arrives up to a quarter of all events later. The same arguments give the same changes.
    """
    chance = np.random.default_rng(seed)
    key = zipf(events, keys, chance)
    operations = _operations(key, chance)
    arrival = np.argsort(_arrival(key, operations == "d", chance), kind="stable")
    rows = document_rows(orders(events, keys, seed))
    names = pc.binary_join_element_wise("order", padded(key), "")
    rows = rows.set_column(rows.schema.get_field_index(KEY), KEY, names)
    rows = rows.append_column(LSN, pa.array(np.arange(events) + 1)).cast(CHANGE_COLUMNS.arrow)
    return Changes(rows.take(pa.array(arrival)), operations[arrival], key[arrival])


def document_rows(rows: pa.Table) -> pa.Table:
    """Orders with the types that they have in JSON: prices as decimals, times as microseconds."""
    for name, kind in (("created_at", pa.int64()), (ORDERING, pa.int64()), ("price", pa.decimal128(10, 2))):
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows.column(name).cast(kind))
    return rows


def zipf(events: int, keys: int, chance: np.random.Generator) -> np.ndarray:
    """Numbers of keys, int64; the k-th of them in an order by chance is drawn in proportion to k to the power -0.99."""
    shares = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -ZIPF)
    drawn = np.searchsorted(shares, chance.random(events) * shares[-1])
    return chance.permutation(keys).astype(np.int64)[np.minimum(drawn, keys - 1)]


def _operations(key: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Operation of each event, by position: a delete is of a row that is there, and a row that is not there is created.

    Events that follow one of their key are drawn; the second of two drawn in a row is no delete.
    """
    events = len(key)
    order = np.argsort(key, kind="stable")
    follows = np.append(False, key[order][1:] == key[order][:-1])
    share = follows.mean()
    wanted = (1 - np.sqrt(max(0.0, 1 - 4 * DELETES / share))) / 2 if share else 0.0
    drawn = follows & (chance.random(events) < wanted)
    deletes = drawn & ~np.append(False, drawn[:-1])
    creates = ~follows | np.append(False, deletes[:-1])
    found = np.empty(events, "U1")
    found[order] = np.where(deletes, "d", np.where(creates, "c", "u"))
    return found


def _arrival(key: np.ndarray, deletes: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Place of each event in the order of arrival, int64, with ties."""
    events = len(key)
    position = np.arange(events)
    delays = chance.integers(1, max(2, events // 4), events)
    may_wait = np.flatnonzero(_next_delete(key, deletes) > position + delays)
    late = chance.choice(may_wait, min(len(may_wait), round(LATE * events)), replace=False)
    place = position.copy()
    place[late] += delays[late]
    return place


def _next_delete(key: np.ndarray, deletes: np.ndarray) -> np.ndarray:
    """Position of the first delete of the same key after each event, or of the event itself; int64."""
    events = len(key)
    order = np.argsort(key, kind="stable")
    # Key and position as one number: the least one from here on is of this key, or of a later one.
    places = np.where(deletes[order], key[order] * events + order, _NEVER)
    following = np.minimum.accumulate(places[::-1])[::-1]
    found = np.empty(events, np.int64)
    found[order] = np.where(following // events == key[order], following % events, _NEVER)
    return found


def _envelope(row: dict[str, object], operation: str, position: int) -> bytes:
    text = json.dumps(row, separators=(",", ":"))
    before, after = (text, "null") if operation == "d" else ("null", text)
    return (
        f'{{"before":{before},"after":{after},"source":{{"version":"2.7","connector":"postgresql","name":"shop",'
        f'"ts_ms":1767225600000,"snapshot":"false","db":"shop","schema":"public","table":"orders","txId":{position},'
        f'"lsn":{position},"xmin":null}},"op":"{operation}","ts_ms":1767225600123}}'
    ).encode()
