"""Random events, cut into batches at random, against a dict: what a key's fold says is what a snapshot shows."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm import LsmTable
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate

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


def fold(stream: list[Event], *, event_time: bool) -> dict[str, tuple[int | None, int]]:
    """The pairwise rule, event by event."""
    state: dict[str, Event] = {}
    for new in stream:
        old = state.get(new.key)
        if event_time and old is not None and old.ts is not None and new.ts is not None and new.ts < old.ts:
            continue
        state[new.key] = new
    return {key: (event.ts, event.value) for key, event in state.items() if not event.delete}


def create(folder: Path, *, event_time: bool, combine: bool, buckets: int = 3) -> LsmTable:
    ordering = {"hoodie.table.ordering.fields": "ts"} if event_time else {}
    options = {
        "hoodie.table.name": "model",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.bucket.index.num.buckets": buckets,
        "hoodie.combine.before.upsert": combine,
        "hoodie.combine.before.insert": combine,
        "lsm.read.threads": 1,
        **ordering,
    }
    return LsmTable.create(folder / "table", SCHEMA, options)


def batch(part: list[Event]) -> pa.Table:
    rows = {
        "id": [event.key for event in part],
        "part": [PARTITIONS[KEYS.index(event.key) % len(PARTITIONS)] for event in part],
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


@pytest.mark.parametrize("event_time", [True, False], ids=["event-time", "commit-time"])
@pytest.mark.parametrize("combine", [True, False], ids=["combined", "repeated-keys"])
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams, places=cuts, ways=operations)
def test_a_snapshot_is_the_fold_of_all_events_however_they_are_cut(
    event_time: bool, combine: bool, stream: list[Event], places: list[int], ways: list[str]
) -> None:
    expected = fold(stream, event_time=event_time)
    with tempfile.TemporaryDirectory() as folder:
        table = create(Path(folder), event_time=event_time, combine=combine)
        for part, way in zip(cut(stream, places), ways, strict=False):
            getattr(table, way)(batch(part))
        assert shown(table.scan().to_arrow()) == expected
        path = str(Path(folder) / "table")
        assert shown(read_snapshot(path)) == expected
        assert validate(path) == []
