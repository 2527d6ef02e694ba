"""Random events into a copy-on-write table: each batch is folded into what the batches before have left.

These are rows, and with ordering values the deletes that are kept beside them: the snapshot is the fold of all events,
as in a merge-on-read table whatever is compacted when (docs/format/06-services.md, "Kept deletes").
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm import LsmTable
from streaming_lsm.format.actions.commit import count_deletes
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.changes import SCHEMA, Event, batch, cut, cuts, operations, shown, streams
from tests.support.crash_points import random_cases

layouts = st.sampled_from(["lsm_tree", "default"])


def folded(state: dict[str, Event], part: list[Event], *, event_time: bool) -> dict[str, Event]:
    """The pairwise rule over one batch."""
    state = dict(state)
    for new in part:
        old = state.get(new.key)
        if event_time and old is not None and old.ts is not None and new.ts is not None and new.ts < old.ts:
            continue
        state[new.key] = new
    return state


def live(state: dict[str, Event]) -> dict[str, tuple[int | None, int]]:
    """What the table shows."""
    return {key: (event.ts, event.value) for key, event in state.items() if not event.delete}


def create(folder: Path, *, event_time: bool, kind: str = "COPY_ON_WRITE", **others: object) -> LsmTable:
    ordering = {"hoodie.table.ordering.fields": "ts"} if event_time else {}
    options = {
        "hoodie.table.name": "model",
        "hoodie.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.combine.before.insert": True,
        "lsm.read.threads": 1,
        **ordering,
        **others,
    }
    return LsmTable.create(folder / "table", SCHEMA, options)


@pytest.mark.parametrize("event_time", [True, False], ids=["event-time", "commit-time"])
@settings(
    max_examples=random_cases(40, 12), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(stream=streams, places=cuts, ways=operations)
def test_each_batch_is_folded_into_new_base_files(
    event_time: bool, stream: list[Event], places: list[int], ways: list[str]
) -> None:
    state: dict[str, Event] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "table")
        table = create(Path(folder), event_time=event_time)
        for part, way in zip(cut(stream, places), ways, strict=False):
            before = state
            state = folded(state, part, event_time=event_time)
            instant = getattr(table, way)(batch(part))
            assert instant.action == "commit"
            stats = table.timeline.read_commit(instant).stats
            assert sum(stat.num_inserts for stat in stats) == len(live(state).keys() - live(before).keys())
            assert count_deletes(stats) == len(live(before).keys() - live(state).keys())
        expected = live(state)
        if not event_time:
            assert not list(Path(path).rglob("*.deletes.parquet"))
        assert shown(table.scan().to_arrow()) == expected
        assert shown(read_snapshot(path)) == expected
        assert validate(path) == []
        assert not list(Path(path).rglob("*.log.parquet"))
        assert shown(pa.concat_tables(base_files(table))) == expected


def base_files(table: LsmTable) -> list[pa.Table]:
    """The base files of the latest slices, as readers see them that know no others."""
    root = Path(table.path.removeprefix("file://"))
    found = [pq.read_table(root / part.base.path, partitioning=None) for part in table.file_slices() if part.base]
    return [SCHEMA.empty_table(), *(rows.select(SCHEMA.names).cast(SCHEMA) for rows in found)]


@settings(
    max_examples=random_cases(25, 8), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(stream=streams, places=cuts, compacted=st.lists(st.booleans(), min_size=5, max_size=5), layout=layouts)
def test_it_shows_the_rows_of_a_merge_on_read_table_whatever_is_compacted_there_when(
    stream: list[Event], places: list[int], compacted: list[bool], layout: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        others = {"hoodie.table.storage.layout": layout}
        merged = create(Path(folder) / "cow", event_time=True, **others)
        logged = create(Path(folder) / "mor", event_time=True, kind="MERGE_ON_READ", **others)
        for part, is_compacted in zip(cut(stream, places), compacted, strict=False):
            merged.upsert(batch(part))
            logged.upsert(batch(part))
            if is_compacted:
                logged.compact()
            assert shown(merged.scan().to_arrow()) == shown(logged.scan().to_arrow())
