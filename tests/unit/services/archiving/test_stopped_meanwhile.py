"""Processes that are stopped while others complete, clean and archive: what they leave behind, and what they read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ReadOvertaken
from streaming_lsm.services.survey import is_continued
from tests.support.interleaving import Driver
from tests.support.service_tables import Model, assert_sound, put_savepoint
from tests.support.small_tables import Row, data_files, rows, shown
from tests.unit.services.archiving.test_runner import BY_HAND, archived, grow, made, reopened

ALL_BUT_ONE = {"hoodie.clean.commits.retained": 1}
OPTIONS = {**BY_HAND, **ALL_BUT_ONE}


def to_compact(root: Path) -> tuple[LsmTable, Model]:
    """A table with a pending compaction."""
    table, model = made(root, 5, **ALL_BUT_ONE)
    table.compact()
    grow(table, model, 5, 8)
    table.services.schedule()
    grow(table, model, 8, 12)
    return table, model


def to_clean(root: Path) -> tuple[LsmTable, Model]:
    """A table with file slices that nothing needs."""
    table, model = to_compact(root)
    table.compact()
    grow(table, model, 12, 16)
    return table, model


def archive_all(table: LsmTable) -> None:
    """Complete what is pending, write, compact, clean and archive, until nothing is left of what there was."""
    table.compact()
    for number in range(600, 608):
        table.upsert(rows((f"k{number % 7}", "nl", number, number)))
        if number == 602:
            table.compact()
            table.clean()
    while table.archive():
        pass


def compact(table: LsmTable) -> object:
    return table.compact()


def clean(table: LsmTable) -> object:
    return table.clean()


def stopped_at(root: Path, folder: Path, work: Callable[[LsmTable], object], call: str) -> Driver:
    """A driver that stands before its first call for a path with this text in it."""
    counted = Driver(shutil.copytree(root, folder / "counted"), work, **OPTIONS)
    assert counted.error is None
    return Driver(root, work, next(n for n, (_, path) in enumerate(counted.calls) if call in path), **OPTIONS)


@pytest.mark.parametrize(
    ("make", "work", "call"),
    [
        (to_compact, compact, ".0.run"),
        (to_compact, compact, ".parquet.marker"),
        (to_clean, clean, ".0.run"),
    ],
    ids=["a compaction before its run", "a task before its marker", "a clean before its run"],
)
def test_what_a_stopped_process_creates_for_an_archived_action_holds_up_nobody(
    tmp_path: Path, make: Callable[[Path], tuple[LsmTable, Model]], work: Callable[[LsmTable], object], call: str
) -> None:
    root = tmp_path / "t"
    make(root)
    stopped = stopped_at(root, tmp_path, work, call)
    assert Driver(root, archive_all, **OPTIONS).error is None
    expected = shown(LsmTable(root))
    stopped.go_on()
    assert stopped.error is not None
    assert shown(LsmTable(root)) == expected
    table, model = LsmTable(root, {**to_open(), **OPTIONS}), {row[0]: row for row in expected}
    grow(table, model, 700, 704)
    assert table.compact() is not None
    table.clean()
    grow(table, model, 704, 708)
    while table.archive():
        pass
    assert not table.timeline.pending
    assert len(table.timeline.completed_writes) <= 4
    assert_sound(table, model)


def to_open() -> dict[str, object]:
    return {"lsm.read.threads": 1, "hoodie.clean.automatic": False}


def test_a_reader_that_is_stopped_before_it_lists_the_files_looks_again(tmp_path: Path) -> None:
    """The clean that took its files is archived: the timeline does not tell of it."""
    root = tmp_path / "t"
    to_clean(root)
    stopped = stopped_at(root, tmp_path, shown, "nl")
    assert Driver(root, archive_all, **OPTIONS).error is None
    stopped.go_on()
    assert stopped.error is None
    assert stopped.result == shown(LsmTable(root))


def test_time_travel_over_an_archived_clean_is_refused_whatever_later_cleans_retained(tmp_path: Path) -> None:
    """A clean that retains more, and deletes what a savepoint kept, is not what the states before it need."""
    table, model = made(tmp_path, 0)
    states: dict[str, list[Row]] = {}

    def write(key: str, number: int) -> None:
        table.upsert(rows((key, "nl", number, number)))
        model[key] = (key, "nl", number, number)
        states[table.timeline.completed_writes[-1].requested] = sorted(model.values())

    for number in range(8):
        write(f"k{number % 2}", number)
    assert len({path.split("/")[-1][:8] for path in data_files(tmp_path)}) == 2
    kept = sorted(path.name for path in (tmp_path / "nl").iterdir() if "00000001" in path.name[:8])
    put_savepoint(table, table.timeline.completed_writes[4].requested, kept)
    table.compact()
    only = next(key for key in ("k0", "k1") if not in_group(tmp_path, write, key, "00000001"))
    for number in range(20, 24):
        write(only, number)
    table.compact()
    for number in range(30, 34):
        write(only, number)
    first = reopened(table, **ALL_BUT_ONE).clean()
    assert first is not None
    for path in (tmp_path / ".hoodie/timeline").glob("*savepoint*"):
        path.unlink()
    for number in range(40, 44):
        write(only, number)
    table.archive()
    assert first.of_action in archived(table)
    many = {"hoodie.clean.commits.retained": 10, "hoodie.keep.min.commits": 30, "hoodie.keep.max.commits": 31}
    second = reopened(table, **many).clean()
    assert second is not None
    for number in range(50, 58):
        write(only, number)
    table.archive()
    assert second.of_action in archived(table)
    read = 0
    for time, expected in states.items():
        try:
            assert shown(reopened(table), as_of=time) == expected
            read += 1
        except ReadOvertaken:
            continue
    assert read >= 12


def in_group(root: Path, write: Callable[[str, int], None], key: str, group: str) -> bool:
    """Write a key, and return whether a file group got a file by that."""
    before = data_files(root)
    write(key, 10)
    return any(group in path for path in data_files(root) - before)


def test_a_survey_of_the_table_holds_on_when_its_writes_are_archived(tmp_path: Path) -> None:
    """Else a table of many partitions would be listed with its lock, whenever a stream archives beside a job."""
    table, model = made(tmp_path, 12)
    before = reopened(table).timeline
    assert table.archive()
    grow(table, model, 12, 13)
    assert is_continued(before, reopened(table).timeline)
    grow(table, model, 13, 22)
    table.archive()
    # What others wrote, and archived, is not in the survey.
    assert not is_continued(before, reopened(table).timeline)


def test_a_survey_of_an_empty_table_does_not_hold_on_when_the_first_writes_are_archived(tmp_path: Path) -> None:
    table, model = made(tmp_path, 0)
    before = reopened(table).timeline
    grow(table, model, 0, 1)
    assert is_continued(before, reopened(table).timeline)
    grow(table, model, 1, 12)
    assert table.archive()
    assert not is_continued(before, reopened(table).timeline)


def test_a_process_that_saw_the_table_empty_writes_to_the_file_groups_of_archived_writes(tmp_path: Path) -> None:
    table, model = made(tmp_path, 0)
    early = reopened(table)
    with pytest.raises(RuntimeError, match="fails"):
        early.upsert(pa.RecordBatchReader.from_batches(rows().schema, _failing()))
    table.upsert(rows(("first", "de", 1, 1)))
    grow(table, model, 0, 12)
    assert table.archive()
    early.delete(pa.table({"id": ["first"], "country": ["de"]}))
    assert_sound(reopened(table), model)


def _failing() -> Iterator[pa.RecordBatch]:
    raise RuntimeError("fails")
    yield
