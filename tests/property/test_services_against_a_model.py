"""Random writes with compactions planned and run, and cleans, between them: against a model and the oracle.

The model of a key is the fold of all its events in the order of their commits, whatever is compacted and when, in which
layout and kind of table: a compaction keeps deletes, so that an event that is older than a deleted row does not bring
the key back (docs/format/06-services.md, "Kept deletes"), and no base file repeats a key (docs/format/10-rules.md,
"Rule 11").
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm import LsmTable
from streaming_lsm.config import Options
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ReadOvertaken
from streaming_lsm.txn.planned_actions import pending_compactions
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.changes import SCHEMA, Event, batch, events, partition_of, shown
from tests.support.crash_points import random_cases

HYBRID = Options(
    {
        "hoodie.compaction.plan.generator": "HybridCompactionPlanGenerator",
        "lsm.compaction.small.base.bytes": 0,
        "lsm.compaction.log.share": 0.9,
    }
)
Shown = dict[str, tuple[int | None, int]]


@dataclass(frozen=True)
class Write:
    """A batch, and the method of the table that takes it."""

    way: str
    events: list[Event]


batches = st.lists(events(), min_size=1, max_size=6).map(lambda found: [event for part in found for event in part])
rows = batches.map(lambda found: [event for event in found if not event.delete]).filter(bool)
writes = st.one_of(
    st.builds(Write, st.just("upsert"), batches),
    st.builds(Write, st.sampled_from(["insert", "bulk_insert"]), batches | rows),
    st.builds(Write, st.just("insert_overwrite"), rows),
)
services = ["schedule", "run", "compact", "log", "hybrid", "clean"]
steps = st.lists(st.one_of(writes, writes, st.sampled_from(services)), max_size=14)
MERGED, COPIED = "MERGE_ON_READ", "COPY_ON_WRITE"
KINDS = {
    "event-time": ("lsm_tree", MERGED),
    "commit-time": ("lsm_tree", MERGED),
    "default-layout": ("default", MERGED),
    "default-layout-commit-time": ("default", MERGED),
    "copy-on-write": ("lsm_tree", COPIED),
    "copy-on-write-default-layout": ("default", COPIED),
}


@dataclass
class Model:
    """What a table holds."""

    event_time: bool
    state: dict[str, Event] = field(default_factory=dict)

    def take(self, write: Write) -> None:
        """Fold events by the pairwise rule; an overwrite forgets the partitions that it has rows of."""
        if write.way == "insert_overwrite":
            replaced = {partition_of(event.key) for event in write.events}
            self.state = {key: event for key, event in self.state.items() if partition_of(key) not in replaced}
        for new in write.events:
            old = self.state.get(new.key)
            ordered = self.event_time and old is not None and old.ts is not None and new.ts is not None
            if not (ordered and new.ts < old.ts):  # type: ignore[operator, union-attr]
                self.state[new.key] = new

    def shown(self) -> Shown:
        """The snapshot."""
        return {key: (event.ts, event.value) for key, event in self.state.items() if not event.delete}


def create(folder: Path, *, event_time: bool, layout: str, kind: str) -> LsmTable:
    ordering = {"hoodie.table.ordering.fields": "ts"} if event_time else {}
    options = {
        "hoodie.table.name": "model",
        "hoodie.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.parquet.bloom.filter.enabled": event_time,
        "hoodie.index.bloom.num_entries": 10,
        "hoodie.clean.automatic": False,
        "hoodie.clean.commits.retained": 2,
        "hoodie.table.storage.layout": layout,
        "hoodie.log.compaction.blocks.threshold": 2,
        "lsm.read.threads": 1,
        **ordering,
    }
    return LsmTable.create(folder / "table", SCHEMA, options)


def take(table: LsmTable, model: Model, step: str | Write) -> None:
    """One step, of the table and of the model."""
    if isinstance(step, Write):
        getattr(table, step.way)(batch(step.events))
        model.take(step)
    elif step == "clean":
        table.clean()
    elif step == "schedule":
        if not pending_compactions(table.timeline):
            table.services.schedule()
    elif step == "hybrid":
        LsmTable(table.path, table.options.merged(HYBRID)).compact()
    elif step == "log":
        table.services.compact(LocalEngine(1), log=True)
    elif step == "compact" or pending_compactions(table.timeline):
        table.services.compact(LocalEngine(1))


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=random_cases(25, 3), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(course=steps)
def test_rows_are_the_models_whatever_is_compacted_and_cleaned_when(kind: str, course: list[str | Write]) -> None:
    layout, table_type = KINDS[kind]
    event_time = "commit-time" not in kind
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "table")
        table = create(Path(folder), event_time=event_time, layout=layout, kind=table_type)
        model = Model(event_time)
        states: dict[str, Shown] = {}
        for step in course:
            take(table, model, step)
            assert shown(table.scan().to_arrow()) == model.shown()
            check_base_files(table, path)
            if isinstance(step, Write):
                states[table.timeline.completed_writes[-1].requested] = model.shown()
        if table.config.is_lsm_tree:
            assert validate(path) == []
        if states:
            assert shown(read_snapshot(path)) == model.shown()
        for time, state in states.items():
            check_time_travel(table, path, time, state)


def check_base_files(table: LsmTable, path: str) -> None:
    """Each key of a base file is there once."""
    for found in table.file_slices():
        if found.base is not None:
            keys = pq.read_table(f"{path}/{found.base.path}", columns=["_hoodie_record_key"], partitioning=None)
            assert len(keys.column(0).unique()) == len(keys)


def check_time_travel(table: LsmTable, path: str, time: str, state: Shown) -> None:
    """As of a write both readers agree, and see what was there then, or ours refuses what was cleaned."""
    try:
        found = shown(table.scan(as_of=time).to_arrow())
    except ReadOvertaken:
        assert time < table.timeline.earliest_retained
        return
    assert found == shown(read_snapshot(path, as_of=time)) == state
