"""Indexes that are built while writers go on: at the end they have what the table has, whatever was done meanwhile.

Others work between two calls of the storage: while the builder lives, when it has died, and when it was taken for dead.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, Fenced, LockTimeout, LsmError
from streaming_lsm.lock.lock import LOCK_FILE
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.index_build import IndexBuild
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline
from tests.support.crash_points import EVERY_CALL, sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.interleaving import Driver, one_clock
from tests.support.metadata_tables import ENABLED, assert_settled
from tests.support.service_tables import OPTIONS_OF_SERVICES
from tests.support.writers import NO_WAIT, new_process
from tests.unit.metadata.test_record_index import KINDS, OPTIONS, schema_of, written

T = TypeVar("T")
INFLIGHT = "hoodie.table.metadata.partitions.inflight"
KEPT = {**OPTIONS, "hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.metadata.compact.max.delta.commits": 3}
BLOOMS = {"hoodie.parquet.bloom.filter.enabled": True}
LOOKED_UP = {key: value for key, value in KEPT.items() if "buckets" not in key} | BLOOMS
BY_PARTITION = "hoodie.metadata.record.level.index.enable"
OF_TABLE = dict.fromkeys(OPTIONS_OF_SERVICES)
"""Leaves them out: a table has its own."""
COLUMN = "hoodie.metadata.index.secondary.column"


EXPRESSION = (("hoodie.metadata.index.expression.column", "id"),)


@dataclass(frozen=True)
class Index:
    """An index that is built, those that it needs, and the options of its form."""

    name: str
    needs: tuple[str, ...] = ()
    form: tuple[tuple[str, object], ...] = ()


INDEXES = (
    Index("column_stats"),
    Index("partition_stats", ("column_stats",)),
    Index("bloom_filters"),
    Index("record_index"),
    Index("record_index", form=((BY_PARTITION, True),)),
    Index("secondary_index_n", ("record_index",), ((COLUMN, "n"),)),
    Index("expr_index_id", form=(*EXPRESSION, ("hoodie.expression.index.function", "lower"))),
)
IDS = [
    "column_stats",
    "partition_stats",
    "bloom_filters",
    "record_index",
    "record_index by partition",
    "secondary",
    "expression",
]
PARTS = range(6 if EVERY_CALL else 1)
"""All calls take longer than a test may."""
TABLES = ("version 10", "version 9", "copy on write", "commit time")


def table_of(root: Path, kind: str, index: Index) -> Path:
    """A table with a metadata table and some writes."""
    draw = random.Random(1)
    table = LsmTable.create(root, schema_of(kind), {**LOOKED_UP, **KINDS[kind]})
    table.runtime = new_process(clock=one_clock)
    for step in range(1, 4):
        table.upsert(written(draw, step, 20))
    for name in ("files", *index.needs):
        table.create_index(name)
    return root


def built(root: Path, index: Index, storage: Storage | None = None) -> LsmTable:
    table = LsmTable(root, {**NO_WAIT, "lsm.read.threads": 1})
    if storage is not None:
        table.storage = storage
    table.create_index(index.name, dict(index.form))
    return table


def others_work(root: Path, step: int) -> None:
    """Another writer writes, deletes, replaces, compacts and cleans; `LockTimeout` if the lock is held."""
    draw = random.Random(step)
    table = LsmTable(root, {**BLOOMS, **NO_WAIT, "hoodie.clean.commits.retained": 1})
    table.upsert(written(draw, 5 + step % 5, 15))
    table.delete(written(draw, 9, 5))
    if not table.config.is_copy_on_write:
        table.compact()
    # A key that is elsewhere, too, is not looked up by an overwrite.
    table.insert_overwrite(written(draw, 7, 3).set_column(0, "id", pa.array([f"o{step}.{row}" for row in range(3)])))
    table.upsert(written(draw, 8, 4).set_column(1, "part", pa.array(["new"] * 4)))
    table.clean()


def assert_built(root: Path, index: Index) -> None:
    """It is registered and nothing is left over; a further write keeps it right."""
    for again in (False, True):
        if again:
            LsmTable(root, BLOOMS).upsert(written(random.Random(3), 12, 9))
        properties = load_properties(LocalStorage(root))
        assert index.name in properties["hoodie.table.metadata.partitions"].split(",")
        assert properties.get(INFLIGHT, "") == ""
        assert Timeline.load(LocalStorage(root)).pending == ()
        assert_settled(root)
        checked = LsmTable(root, {"lsm.read.threads": 1}).check_indexes()
        assert checked.findings == ()
        assert checked.records[index.name]


def free_calls(calls: list[tuple[str, str]]) -> list[int]:
    """The calls of a builder before which it does not hold the lock, after its plan and before its end."""
    acquired = [at for at, call in enumerate(calls) if call == ("put_if_absent", LOCK_FILE)]
    released = [at for at, call in enumerate(calls) if call == ("vacate", LOCK_FILE)]
    planned = next(at for at, (_, path) in enumerate(calls) if path.endswith(".indexing.inflight"))
    begun = [at for at in released if at > planned][:-1]
    return [at for start in begun for at in range(start + 1, min(at for at in acquired if at > start))]


class Busy(FaultyStorage):
    """Lets others work just before one call; `was_free` unless the caller holds the lock then."""

    def __init__(self, inner: Storage, at: int | None, work: Callable[[], None]) -> None:
        super().__init__(inner)
        self._at, self._work, self.was_free = at, work, False

    def _call(self, name: str, path: str, effect: Callable[[], T]) -> T:
        if len(self.calls) == self._at:
            self._at = None
            with suppress(LockTimeout):
                self._work()
                self.was_free = True
        return super()._call(name, path, effect)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("number", "index"), list(enumerate(INDEXES)), ids=IDS)
def test_others_write_replace_compact_and_clean_at_a_call_of_the_builder(
    number: int, index: Index, part: int, tmp_path: Path
) -> None:
    kind = TABLES[number % len(TABLES)]
    template = table_of(tmp_path / "table", kind, index)
    counted = Busy(LocalStorage(shutil.copytree(template, tmp_path / "counted")), None, lambda: None)
    built(tmp_path / "counted", index, counted)
    assert_built(tmp_path / "counted", index)
    free = free_calls(counted.calls)
    # The last one is that before the last catch-up.
    for at in [*sample(free[:-1], 3 * number, 37), free[-1]][part :: len(PARTS)]:
        root = Path(shutil.copytree(template, tmp_path / f"at {at}"))
        storage = Busy(LocalStorage(root), at, lambda root=root, at=at: others_work(root, at))
        built(root, index, storage)
        assert storage.was_free
        assert_built(root, index)
        shutil.rmtree(root)


def test_a_writer_of_many_batches_is_caught_up_with(tmp_path: Path) -> None:
    index = INDEXES[3]
    root = table_of(tmp_path, "version 10", index)
    other, draw, steps = LsmTable(root, BLOOMS), random.Random(4), iter(range(4, 99))

    class Streamed(FaultyStorage):
        """Another writer commits a batch before each base file is written, and at each look at the timeline."""

        def _call(self, name: str, path: str, effect: Callable[[], T]) -> T:
            if path.startswith(f"{METADATA_TABLE}/record_index/") or (name, path) == ("list", TIMELINE_FOLDER):
                with suppress(LockTimeout):
                    other.upsert(written(draw, next(steps), 8))
            return super()._call(name, path, effect)

    other = LsmTable(root, {**BLOOMS, **NO_WAIT})
    built(root, index, Streamed(LocalStorage(root)))
    assert next(steps) > 8
    assert_built(root, index)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("fault", tuple(Fault), ids=lambda fault: fault.name)
def test_a_builder_that_dies_leaves_a_table_that_works_and_the_next_one_begins_anew(
    fault: Fault, part: int, tmp_path: Path
) -> None:
    number = list(Fault).index(fault)
    index, kind = INDEXES[(3, 5, 0, 4)[number]], TABLES[number]
    template = table_of(tmp_path / "table", kind, index)
    counted = FaultyStorage(LocalStorage(shutil.copytree(template, tmp_path / "counted")))
    built(tmp_path / "counted", index, counted)
    for at in sample(range(len(counted.calls)), 5 * number, 67)[part :: len(PARTS)]:
        root = Path(shutil.copytree(template, tmp_path / f"at {at}"))
        with suppress(Killed, OSError, LsmError):
            built(root, index, FaultyStorage(LocalStorage(root), {at: fault}))
        rows = sorted(str(row) for row in LsmTable(root).scan().to_arrow().to_pylist())
        others_work(root, at)
        assert sorted(str(row) for row in LsmTable(root).scan().to_arrow().to_pylist()) != rows
        assert Timeline.load(LocalStorage(root)).pending == ()
        properties = load_properties(LocalStorage(root))
        assert properties.get(INFLIGHT, "") == ""
        if index.name not in properties["hoodie.table.metadata.partitions"].split(","):
            assert not (root / METADATA_TABLE / index.name).exists()
            assert LsmTable(root).check_indexes().findings == ()
            built(root, index)
        assert_built(root, index)
        shutil.rmtree(root)


@pytest.mark.parametrize("part", PARTS)
def test_a_builder_that_was_taken_for_dead_changes_nothing_any_more(part: int, tmp_path: Path) -> None:
    index = INDEXES[3]
    template = table_of(tmp_path / "table", "version 10", index)

    def work(table: LsmTable) -> None:
        table.create_index(index.name)

    def taking_over(table: LsmTable) -> None:
        table.upsert(written(random.Random(2), 9, 9))
        table.create_index(index.name)

    calls = Driver(shutil.copytree(template, tmp_path / "counted"), work, **OF_TABLE).calls
    planned = next(at for at, (_, path) in enumerate(calls) if path.endswith(".indexing.inflight"))
    for at in sample(range(planned + 1, len(calls)), 7, 43)[part :: len(PARTS)]:
        root = Path(shutil.copytree(template, tmp_path / f"at {at}"))
        stopped = Driver(root, work, stop_at=at, **OF_TABLE)
        other = Driver(root, taking_over, **OF_TABLE)
        stopped.go_on()
        said = (type(stopped.error), type(other.error))
        assert said[0] in (Fenced, CommitConflict, type(None)), stopped.error
        if other.error is not None and stopped.error is not None:
            built(root, index)
        LsmTable(root, BLOOMS).upsert(written(random.Random(5), 10, 5))
        if index.name not in load_properties(LocalStorage(root))["hoodie.table.metadata.partitions"].split(","):
            built(root, index)
        assert_built(root, index)
        shutil.rmtree(root)


def test_a_builder_that_was_taken_for_dead_while_it_held_the_lock_is_fenced_though_its_files_were_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = INDEXES[0]
    template = table_of(tmp_path / "table", "copy on write", index)
    catch_up = IndexBuild.catch_up

    def overtaken(build: IndexBuild) -> None:
        catch_up(build)
        root = build._context.storage.uri.removeprefix("file://")
        LsmTable(root, {**BLOOMS, **NO_WAIT}).upsert(written(random.Random(77), 4, 20))

    def work(table: LsmTable) -> None:
        table.create_index(index.name)

    def taking_over(table: LsmTable) -> None:
        for step in range(9, 12):
            table.upsert(written(random.Random(5), step, 20))
        table.clean()

    monkeypatch.setattr(IndexBuild, "catch_up", overtaken)
    calls = Driver(shutil.copytree(template, tmp_path / "counted"), work, **OF_TABLE).calls
    locked = max(at for at, call in enumerate(calls) if call == ("put_if_absent", LOCK_FILE))
    reads = [at for at in range(locked + 1, len(calls)) if calls[at][1].endswith(".parquet")]
    for at in sample(reads, 0, 2):
        root = Path(shutil.copytree(template, tmp_path / f"at-{at}"))
        stopped = Driver(root, work, stop_at=at, **OF_TABLE)
        other = Driver(root, taking_over, **{**OF_TABLE, "hoodie.clean.commits.retained": 1})
        assert other.error is None
        stopped.go_on()
        assert isinstance(stopped.error, Fenced), stopped.error
        assert LsmTable(root, {"lsm.read.threads": 1}).check_indexes().findings == ()


def test_an_index_is_listed_while_it_is_built_and_its_builder_is_not_disturbed(tmp_path: Path) -> None:
    index = INDEXES[0]
    root = table_of(tmp_path, "version 10", index)
    seen: list[tuple[str, list[str]]] = []

    def look() -> None:
        table = LsmTable(root, NO_WAIT)
        listed = load_properties(LocalStorage(root)).get(INFLIGHT, "")
        seen.append((listed, [state.state for state in table.indexes() if state.name == index.name]))
        for change in (lambda: table.create_index(index.name), lambda: table.drop_index(index.name)):
            with pytest.raises(LsmError, match=r"is being built|has no index"):
                change()

    class Watched(FaultyStorage):
        def _call(self, name: str, path: str, effect: Callable[[], T]) -> T:
            if (
                not seen
                and (name, path) == ("list", TIMELINE_FOLDER)
                and load_properties(LocalStorage(root)).get(INFLIGHT)
            ):
                with suppress(LockTimeout):
                    look()
            return super()._call(name, path, effect)

    built(root, index, Watched(LocalStorage(root)))
    assert seen == [("column_stats", ["being built"])]
    assert_built(root, index)
    (action,) = [found for found in Timeline.load(LocalStorage(root)).instants if found.action == "indexing"]
    assert action.is_completed


@pytest.mark.parametrize("kind", TABLES)
def test_a_check_that_is_overtaken_by_writers_and_cleans_finds_nothing_wrong(kind: str, tmp_path: Path) -> None:
    template = table_of(tmp_path / "table", kind, INDEXES[1])
    checked = INDEXES[1:4] if kind == "version 9" else INDEXES[1:4] + INDEXES[5:]
    for index in checked:
        built(template, index)

    def check(root: Path, at: int | None) -> int:
        table = LsmTable(root, {"lsm.read.threads": 1})
        table.storage = storage = Busy(LocalStorage(root), at, lambda: others_work(root, at or 0))
        found = table.check_indexes()
        assert found.findings == (), at
        assert found.records.keys() == {"files", "column_stats", *(index.name for index in checked)}
        assert storage.was_free == (at is not None)
        return len(storage.calls)

    for at in sample(range(check(template, None)), 11 * TABLES.index(kind), 67):
        check(Path(shutil.copytree(template, tmp_path / f"at {at}")), at)
        shutil.rmtree(tmp_path / f"at {at}")


@pytest.mark.parametrize("written", [0, 3])
def test_a_build_is_refused_if_the_metadata_table_was_dropped_and_made_anew_meanwhile(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, object] = {**ENABLED, "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])

    def rows(first: int, count: int) -> pa.Table:
        return pa.table({"k": [f"k{first + n}" for n in range(count)], "v": [1] * count}, schema=schema)

    create = {
        "hoodie.table.name": "built",
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.index.type": "SIMPLE",
    }
    LsmTable.create(tmp_path, schema, {**options, **create}).upsert(rows(0, 30))
    original, puts = IndexBuild._put_base, []

    def put_base(build: IndexBuild, *arguments: Any) -> None:
        if len(puts) == written:
            LsmTable(tmp_path, options).drop_index("files")
            LsmTable(tmp_path, options).upsert(rows(100, 400))  # keys of each file group
        puts.append(arguments)
        original(build, *arguments)

    monkeypatch.setattr(IndexBuild, "_put_base", put_base)
    with pytest.raises(CommitConflict, match="was dropped while record_index was built"):
        LsmTable(tmp_path, options).create_index("record_index")
    monkeypatch.undo()
    assert not LsmTable(tmp_path).check_indexes().findings
    assert LsmTable(tmp_path, options).scan(filter="k = 'k3'").to_arrow().num_rows == 1
    LsmTable(tmp_path, options).create_index("record_index")
    assert not LsmTable(tmp_path).check_indexes().findings
