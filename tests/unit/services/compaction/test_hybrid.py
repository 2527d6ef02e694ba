"""Hybrid compactions and log compactions: the rows of every query stay, and the sorted runs are few."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.services.compaction.planner import live_runs
from streaming_lsm.spark.sink import LsmSink
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.txn.planned_actions import pending_compactions
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.crash_points import random_cases, sample
from tests.support.service_tables import OPTIONS_OF_SERVICES
from tests.support.small_tables import create

HYBRID: dict[str, object] = {
    **OPTIONS_OF_SERVICES,
    "hoodie.compaction.plan.generator": "HybridCompactionPlanGenerator",
    "lsm.compaction.small.base.bytes": 0,
    "lsm.compaction.log.share": 0.9,
    "lsm.compaction.max.runs": 6,
    "hoodie.compact.inline.max.delta.commits": 3,
    "hoodie.log.compaction.blocks.threshold": 3,
    "hoodie.clean.commits.retained": 3,
}
COLUMNS = ["id", "ts", "qty"]
LAYOUTS: dict[str, dict[str, object]] = {
    "lsm_tree": {},
    "commit-time": {"hoodie.table.ordering.fields": None},
    "default": {"hoodie.table.storage.layout": "default"},
    "v9": {"hoodie.write.table.version": 9},
    "v8-commit-time": {"hoodie.write.table.version": 8, "hoodie.table.ordering.fields": None},
}
BASE_KEYS = 3000


@cache
def key(number: int) -> str:
    return f"{random.Random(number).getrandbits(128):032x}"


def table_rows(numbers: list[int], ts: list[int], qty: int) -> pa.Table:
    values = {"id": [key(number) for number in numbers], "country": ["nl"] * len(numbers), "ts": ts}
    return pa.table({**values, "qty": pa.array([qty + place for place in range(len(numbers))], pa.int32())})


def created(root: Path, **options: object) -> LsmTable:
    """A table of two file groups with base files of some 100 KiB."""
    table = create(root, **{**HYBRID, **options})
    table.bulk_insert(table_rows(list(range(BASE_KEYS)), [5] * BASE_KEYS, 0))
    return table


def with_options(table: LsmTable, **options: object) -> LsmTable:
    return LsmTable(table.path, table.options.merged(Options(options)))


def write(table: LsmTable, chance: random.Random, batch: int) -> Instant | None:
    """One batch: updates, late ones among them, or deletes with or without ordering values."""
    numbers = chance.sample(range(40), chance.randrange(1, 9))
    ts = [chance.randrange(0, 12) for _ in numbers]
    if chance.random() < 0.7:
        return table.upsert(table_rows(numbers, ts, 1000 * batch))
    gone = {"id": [key(number) for number in numbers], "country": ["nl"] * len(numbers)}
    ordered = "ts" in table.rule.ordering_fields and chance.random() < 0.5
    return table.delete(pa.table({**gone, "ts": ts} if ordered else gone))


def shown(table: LsmTable, **how: str) -> list[tuple[object, ...]]:
    found = table.scan(COLUMNS, **how).to_arrow()
    return sorted(zip(*(found.column(name).to_pylist() for name in COLUMNS), strict=True))


def queried(table: LsmTable, begin: str, end: str | None) -> list[str]:
    """The rows of an incremental and of a change query."""
    rows = table.incremental(begin, end, COLUMNS).to_arrow().to_pylist()
    changes = [row for batch in table.changes(begin, end).to_batches() for row in batch.to_pylist()]
    return sorted(map(str, [*rows, *changes]))


def oracle(table: LsmTable) -> list[tuple[object, ...]]:
    root = table.path.removeprefix("file://")
    if table.config.version < 10:  # which the oracle does not know
        return shown(table)
    if table.config.is_lsm_tree:
        assert validate(root) == []
    return sorted(tuple(row[name] for name in COLUMNS) for row in read_snapshot(root).to_pylist())


def compactions(table: LsmTable) -> Iterator[tuple[Instant, CompactionPlan]]:
    for done in table.timeline.every_write:
        planned = Instant(done.requested, "compaction", State.REQUESTED)
        if done.action == "commit" and table.storage.exists(planned.path):
            yield done, CompactionPlan.decode(table.storage.read(planned.path), planned.path)


def most_runs(table: LsmTable) -> int:
    facts = table.services._context.log_facts
    logs = [[log for log in found.logs if not found.is_kept(log)] for found in table.file_slices()]
    return max(len(live_runs(found, facts(found)).runs) for found in logs)


@pytest.mark.parametrize("layout", sample(list(LAYOUTS), 0, 2))
def test_hybrid_compactions_change_no_row_of_any_query_and_bound_the_runs(tmp_path: Path, layout: str) -> None:
    for seed in range(random_cases(6, 1)):
        chance, twin_chance = random.Random(seed), random.Random(seed)
        table = created(tmp_path / f"hybrid{seed}", **LAYOUTS[layout], **{"hoodie.compact.inline": True})
        twin = created(tmp_path / f"plain{seed}", **LAYOUTS[layout])
        states: list[tuple[Instant, list[tuple[object, ...]]]] = []
        for batch in range(random_cases(24, 24 if layout == "lsm_tree" else 12)):
            done, _ = write(table, chance, batch), write(twin, twin_chance, batch)
            assert most_runs(table) <= 6
            if done is not None and batch % 3 == 2:
                states.append((done, shown(twin)))
                assert shown(table) == states[-1][1], batch
        kinds = {operation.type for _, plan in compactions(table) for operation in plan.operations}
        assert "LOG" in kinds
        assert oracle(table) == shown(table)
        for done, rows in states:
            assert shown(table, as_of=done.completed or "") == rows
        table.compact()
        table.clean()
        assert shown(table) == shown(twin)
        assert oracle(table) == shown(twin)


@pytest.mark.parametrize("layout", sample(list(LAYOUTS), 1, 2))
def test_a_log_compaction_of_its_own_action_is_a_delta_commit_that_changes_no_row(tmp_path: Path, layout: str) -> None:
    chance = random.Random(3)
    table = created(tmp_path, **LAYOUTS[layout])
    states = [shown(table)]
    for batch in range(7):
        write(table, chance, batch)
        states.append(shown(table))
    before, writes = shown(table), table.timeline.completed_writes
    spans = [(writes[first].completed or "", writes[last].completed) for first, last in ((0, 3), (2, -1), (4, 5))]
    asked = [queried(table, *span) for span in spans]
    done, selection = table.services.compact(table._engine, log=True)
    assert done is not None
    assert selection is not None
    assert done.action == "deltacommit"
    commit = table.timeline.read_commit(done)
    assert (commit.operation_type, {bool(stat.log_version) for stat in commit.stats}) == ("LOG_COMPACT", {True})
    assert most_runs(table) == 1
    assert shown(table) == oracle(table) == before
    assert [queried(table, *span) for span in spans] == asked
    assert [shown(table, as_of=write.completed or "") for write in writes] == states
    for batch in range(7, 12):
        write(table, chance, batch)
    before = shown(table)
    assert table.services.compact(table._engine, log=True)[0] is not None
    assert most_runs(table) == 1
    assert shown(table) == oracle(table) == before
    table = LsmTable(
        table.path, table.options.merged(Options({"hoodie.compaction.plan.generator": "HoodieCompactionPlanGenerator"}))
    )
    assert table.compact() is not None
    assert shown(table) == oracle(table) == before
    assert most_runs(table) == 0


def test_inline_log_compactions_run_when_enough_delta_commits_were_completed(tmp_path: Path) -> None:
    table = created(tmp_path, **{"hoodie.log.compaction.inline": True, "hoodie.log.compaction.blocks.threshold": 4})
    chance = random.Random(5)
    for batch in range(13):
        write(table, chance, batch)
        assert most_runs(table) <= 7
    types = [table.timeline.read_commit(done).operation_type for done in table.timeline.every_write]
    assert types.count("LOG_COMPACT") >= 2


def test_a_pending_log_compaction_is_run_by_compactions_where_log_compactions_are_off(tmp_path: Path) -> None:
    """Its file groups are in no other plan, and archiving waits for it."""
    chance = random.Random(5)
    for number, run in enumerate(("compact", "inline")):
        table = created(tmp_path / run, **{"hoodie.compact.inline": bool(number)})
        for batch in range(3):
            write(table, chance, batch)
        other = with_options(table, **{"hoodie.compact.inline": False, "hoodie.log.compaction.blocks.threshold": 2})
        planned, _ = other.services.schedule(log=True)
        assert planned is not None
        if run == "compact":
            done = table.compact()
            assert done is not None
            assert done.requested == planned.requested
        else:
            write(table, chance, 3)
        assert pending_compactions(LsmTable(table.path).timeline) == ()


def test_a_pending_write_keeps_newer_logs_out_of_a_log_compaction(tmp_path: Path) -> None:
    table = created(tmp_path, **{"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"})
    chance = random.Random(9)
    for batch in range(4):
        write(table, chance, batch)
    with table.transaction() as pending:
        instant = pending.begin()
        later = LsmTable(table.path, table.options)
        for batch in range(4, 8):
            write(later, chance, batch)
        planned, _ = later.services.schedule()
        assert planned is not None
        plan = CompactionPlan.decode(later.storage.read(planned.path), planned.path)
        assert {operation.type for operation in plan.operations} == {"LOG"}
        merged = [name.split("_")[2] for operation in plan.operations for name in operation.logs]
        assert max(merged) < instant


@pytest.mark.parametrize("damage", ["missing", "foreign", "gap", "replaced", "none"])
def test_a_log_operation_that_does_not_fit_its_slice_is_refused_and_deletes_nothing(
    tmp_path: Path, damage: str
) -> None:
    table = created(tmp_path, **{"hoodie.bucket.index.num.buckets": 1})
    for batch in range(6):
        table.upsert(table_rows(list(range(batch, batch + 4)), [batch] * 4, batch))
        if batch == 2:
            assert table.services.compact(table._engine, log=True)[0] is not None
    planned, _ = table.services.schedule(log=True)
    assert planned is not None
    (operation,) = CompactionPlan.decode(table.storage.read(planned.path), planned.path, log=True).operations
    names, (found,) = operation.logs, table.file_slices()
    wrong: dict[str, tuple[str, ...]] = {
        "missing": (*names, names[0].replace("_1.log", "_9.log")),
        "foreign": (*names, names[0].replace(names[0][:8], "00000009")),
        "gap": (names[0], *names[2:]),
        "replaced": tuple(str(log.name) for log in found.logs if str(log.name) not in names),
        "none": (),
    }
    assert wrong["replaced"]
    before = shown(table)
    table.storage.replace(planned.path, CompactionPlan((replace(operation, logs=wrong[damage]),)).encode())
    with pytest.raises(CorruptFileError, match=planned.file_name):
        table.services.compact(table._engine, log=True)
    assert pending_compactions(table.timeline) == (planned,)
    assert shown(table) == before


class CountingStorage(LocalStorage):
    """Keeps the paths of the data files that are opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    def open_input(self, path: str) -> pa.NativeFile:
        self.opened += [path] if path.endswith(".parquet") else []
        return super().open_input(path)


def opened_by(table: LsmTable, query: Callable[[LsmTable], object]) -> list[str]:
    """The data files that a query of a newly opened table opens."""
    fresh = LsmTable(table.path, {"lsm.read.threads": 1})
    fresh.storage = storage = CountingStorage(Path(table.path.removeprefix("file://")))
    query(fresh)
    return storage.opened


def test_a_read_opens_the_live_files_only_however_many_logs_were_replaced(tmp_path: Path) -> None:
    options = {"hoodie.compact.inline": True, "hoodie.bucket.index.num.buckets": 1, "lsm.compaction.log.share": 9}
    table, chance = created(tmp_path, **options), random.Random(1)
    opens: list[int] = []
    for batch in range(random_cases(60, 36)):
        write(table, chance, batch)
        (found,) = table.file_slices()
        snapshot = opened_by(table, shown)
        assert len(snapshot) == len(set(snapshot))
        opens.append(len(snapshot))
    assert len(found.paths) > 40
    assert max(opens) <= 1 + 3 * 6
    assert shown(table) == oracle(table)
    last = table.timeline.completed_writes[-2]
    changed = opened_by(table, lambda fresh: fresh.incremental(last.completed or "", None, COLUMNS).to_arrow())
    assert len(changed) <= len(table.timeline.read_commit(table.timeline.completed_writes[-1]).stats) + 3 * 6
    assert len(opened_by(table, lambda fresh: fresh.history(key(1)))) <= 1 + 3 * 6


def test_the_files_of_a_slice_stay_below_a_bound_over_hundreds_of_commits(tmp_path: Path) -> None:
    options = {"hoodie.compact.inline": True, "hoodie.bucket.index.num.buckets": 1, "lsm.compaction.log.share": 99}
    table, chance = created(tmp_path, **options, **{"lsm.compaction.max.files": 20}), random.Random(2)
    most, bases = 0, set[str]()
    for batch in range(random_cases(400, 50)):
        write(table, chance, batch)
        (found,) = table.file_slices()
        newer = [log for log in found.logs if not found.is_kept(log)]
        most = max(most, len(newer))
        bases.add(found.base_instant)
    # Those of a log operation, and of the three commits until the next compaction, come on top.
    assert 20 < most <= 20 + 5 + 3 * 3
    assert 3 <= len(bases) <= 1 + batch // 10
    assert shown(table) == oracle(table)
    more = with_options(table, **{"lsm.compaction.max.files": 2, "hoodie.compact.inline": False})
    for later in range(3):
        write(more, chance, batch + later)
    (decision,) = more.services.preview_compaction().decisions
    assert decision.type == "FULL"
    assert decision.reason.endswith("log files, replaced ones included, more than 2")


def test_runs_that_the_commits_between_two_compactions_exceed_are_refused_before_a_table_is_written(
    tmp_path: Path,
) -> None:
    options = {**HYBRID, "lsm.compaction.max.runs": 3}
    message = r"lsm\.compaction\.max\.runs=3 .*hoodie\.compact\.inline\.max\.delta\.commits=3"
    with pytest.raises(ConfigError, match=message):
        created(tmp_path, **options)
    with pytest.raises(ConfigError, match=message):
        LsmSink(tmp_path, options)
    assert not list(tmp_path.iterdir())
    table = created(tmp_path)
    with pytest.raises(ConfigError, match=message):
        with_options(table, **{"lsm.compaction.max.runs": 3})
