"""Random change events for property tests, and what a table shows of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("value", pa.int32())])
CONTROLLED = pa.schema([*SCHEMA, ("_lsm_delete", pa.bool_())])
KEYS = ["a", "a\0", "ab", "b", "é", "\ue000", "\U00020000", "key-0123456789", "key-01234567890123456789", "z" * 70]


@dataclass(frozen=True)
class Event:
    """One change: an upsert, a delete with an ordering value, or (`ts` is None) one without."""

    key: str
    ts: int | None
    value: int
    delete: bool


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    delete = draw(st.booleans())
    bare = delete and draw(st.booleans())
    ts = None if bare else draw(st.integers(-3, 3))
    return [Event(draw(st.sampled_from(KEYS)), ts, draw(st.integers(0, 10**6)), delete)]


streams = st.lists(events(), min_size=1, max_size=40).map(lambda found: [event for part in found for event in part])
cuts = st.lists(st.integers(0, 40), max_size=4)
operations = st.lists(st.sampled_from(["upsert", "insert", "bulk_insert"]), min_size=5, max_size=5)
PARTITIONS = ["p0", ".hidden", " p0", "ä/ö"]


def partition_of(key: str) -> str:
    return PARTITIONS[KEYS.index(key) % len(PARTITIONS)]


def batch(part: list[Event]) -> pa.Table:
    rows = {
        "id": [event.key for event in part],
        "part": [partition_of(event.key) for event in part],
        "ts": [event.ts for event in part],
        "value": [event.value for event in part],
        "_lsm_delete": [event.delete for event in part],
    }
    return pa.table(rows, schema=CONTROLLED)


def cut(stream: list[Event], places: list[int]) -> list[list[Event]]:
    bounds = [0, *sorted(place for place in places if place < len(stream)), len(stream)]
    return [stream[begin:end] for begin, end in itertools.pairwise(bounds)]


def shown(table: pa.Table) -> dict[str, tuple[int | None, int]]:
    rows = table.to_pylist()
    found = {row["id"]: (row["ts"], row["value"]) for row in rows}
    assert len(found) == len(rows), "a key is shown twice"
    return found
