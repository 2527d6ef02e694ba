"""Cleaning real tables: what goes, what stays readable, and plans that are not to be trusted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, CorruptFileError, ReadOvertaken
from streaming_lsm.file_group.file_group import file_groups_in
from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.format.actions.clean import CleanMetadata, CleanPlan
from streaming_lsm.format.actions.compaction_plan import CompactionOperation, CompactionPlan
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.clock import system_clock
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.txn.planned_actions import pending_cleans
from tests.oracle.reader import read_snapshot
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.service_tables import (
    OPTIONS_OF_SERVICES,
    Model,
    assert_sound,
    cleans,
    compactions,
    grow,
    grown,
    put_savepoint,
    reopened,
)
from tests.support.small_tables import create, data_files, rows, shown

PENDING = (State.REQUESTED, State.INFLIGHT)
RETAINED = "hoodie.clean.commits.retained"
VERSIONS = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 2}


def layered(root: Path, compactions: int = 2, **options: object) -> tuple[LsmTable, Model]:
    """A table of a log-only slice and one slice per compaction, with logs on the last one."""
    table, model = grown(root, batches=2, **options)
    for batch in range(2, 2 + compactions):
        table.compact()
        grow(table, model, batch)
    return table, model


def record(table: LsmTable, clean: Instant) -> CleanMetadata:
    return CleanMetadata.decode(table.storage.read(clean.path), clean.path)


def test_old_slices_go_and_the_table_stays_as_it_was(tmp_path: Path) -> None:
    table, model = layered(tmp_path, **{RETAINED: 2})
    before = data_files(tmp_path)
    completed = table.clean()
    assert completed is not None
    assert_sound(table, model)
    gone = before - data_files(tmp_path)
    # The log-only slice of four logs, and the slice of the first compaction: two base files and three logs.
    assert len(gone) == 9
    found = record(table, completed)
    assert {f"nl/{name}" for name in found.files["nl"]} == gone
    assert found.earliest == table.timeline.completed_writes[-2].requested
    assert (found.policy, found.start) == ("KEEP_LATEST_COMMITS", completed.requested)
    inflight = Instant(completed.requested, "clean", State.INFLIGHT)
    assert table.storage.read(inflight.path) == b""


def test_states_of_retained_commits_stay_readable_and_older_ones_are_refused(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=0, **{RETAINED: 4})
    states: dict[str, list[tuple[str, str, int, int]]] = {}
    for batch in range(6):
        grow(table, model, batch)
        if batch % 2:
            table.compact()
        states[table.timeline.completed_writes[-1].requested] = sorted(model.values())
    table.clean()
    earliest = table.timeline.earliest_retained
    assert earliest == table.timeline.completed_writes[-4].requested
    readable = [time for time in states if time >= earliest]
    assert len(readable) == 2
    for time in readable:
        assert shown(table, as_of=time) == states[time]
        assert (
            sorted(tuple(row.values()) for row in read_snapshot(str(tmp_path), as_of=time).to_pylist())
            == (states[time])
        )
    for time in states.keys() - readable:
        with pytest.raises(ReadOvertaken, match=f"as of {time}.*cleaned.*{earliest}"):
            table.scan(as_of=time)
    with pytest.raises(ReadOvertaken, match="cleaned"):
        table.scan(as_of="2020-01-01")
    assert shown(table, as_of="2100-01-01") == sorted(model.values())


def test_a_time_before_the_last_older_write_was_completed_is_refused(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2, **{RETAINED: 1})
    table.services.schedule()
    grow(table, model, 2)
    between = table.timeline.last_time
    table.compact()
    grow(table, model, 3)
    # The compaction is older than the retained write, and took effect after `between`.
    assert table.clean() is not None
    with pytest.raises(ReadOvertaken, match="cleaned"):
        table.scan(as_of=between + "9" * (17 - len(between)))
    assert shown(table, as_of=table.timeline.last_time) == sorted(model.values())


def test_nothing_is_cleaned_while_all_commits_are_retained(tmp_path: Path) -> None:
    table, _ = layered(tmp_path, **{RETAINED: 20})
    before = table.timeline.instants
    assert table.clean() is None
    assert table.timeline.instants == before
    assert str(table.services.preview_clean()) == (
        "nothing to clean: the timeline has no more than the 20 commits to retain"
    )


def test_a_longer_retention_does_not_promise_what_an_earlier_clean_deleted(tmp_path: Path) -> None:
    table, model = layered(tmp_path, **{RETAINED: 1})
    table.clean()
    earliest = table.timeline.earliest_retained
    longer = reopened(table, **{RETAINED: 3})
    for batch in (4, 5):
        longer.compact()
        grow(longer, model, batch)
    assert longer.clean() is not None
    assert longer.timeline.earliest_retained >= earliest
    assert_sound(longer, model)


def test_slices_of_a_pending_compaction_stay(tmp_path: Path) -> None:
    table, model = layered(tmp_path, **{RETAINED: 1})
    waiting, _ = table.services.schedule()
    assert waiting is not None
    grow(table, model, 9)
    needed = {path for found in table.file_slices() for path in found.paths}
    table.clean()
    assert needed <= data_files(tmp_path)
    assert table.compact() is not None
    assert_sound(table, model)


def test_old_base_files_of_a_copy_on_write_table_go_as_it_is_written(tmp_path: Path) -> None:
    written = {"hoodie.table.type": "COPY_ON_WRITE", "hoodie.clean.automatic": True, RETAINED: 2}
    table, model = grown(tmp_path, batches=0, **written)
    for batch in range(7):
        table.upsert(rows(("a", "nl", batch, batch), ("b", "nl", batch, batch), ("c", "nl", batch, batch)))
    model.update({key: (key, "nl", 6, 6) for key in "abc"})
    assert len(cleans(table)) == 4
    # Of each group the two retained base files, and the one before them.
    assert len(data_files(tmp_path)) == 3 * len(table.file_slices())
    assert_sound(table, model)


def test_savepointed_slices_stay_and_can_be_read(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2, **{RETAINED: 1})
    saved = sorted(model.values())
    kept, time = data_files(tmp_path), table.timeline.completed_writes[-1].requested
    put_savepoint(table, time, [path.removeprefix("nl/") for path in kept])
    for batch in range(2, 5):
        table.compact()
        grow(table, model, batch)
    completed = table.clean()
    assert completed is not None
    assert kept <= data_files(tmp_path)
    assert record(table, completed).savepoints == (time,)
    assert shown(table, as_of=time) == saved
    assert shown(table) == sorted(model.values())


def test_by_versions_the_last_slices_of_each_group_stay(tmp_path: Path) -> None:
    table, model = layered(tmp_path, compactions=3, **VERSIONS)
    times = [write.requested for write in compactions(table)]
    assert table.clean() is not None
    assert {path.rpartition("_")[2].split(".")[0] for path in data_files(tmp_path) if "-0_" in path} >= set(times[-2:])
    assert not any(times[0] in path for path in data_files(tmp_path))
    assert_sound(table, model)
    with pytest.raises(ReadOvertaken, match="cleaned"):
        table.scan(as_of=times[0])
    assert shown(table, as_of=table.timeline.earliest_retained)
    assert table.clean() is None
    assert "no file group has more than the 2 slices" in str(table.services.preview_clean())


def test_another_writer_at_work_is_named(tmp_path: Path) -> None:
    table, _ = layered(tmp_path, **{RETAINED: 1})
    with table.transaction(), pytest.raises(CommitConflict, match="being changed by this process"):
        table.clean()


def test_files_of_writes_that_did_not_complete_are_not_cleaned(tmp_path: Path) -> None:
    table, _ = layered(tmp_path, **{RETAINED: 1})
    name = table.file_slices()[0].logs[0].name
    with table.transaction() as running:
        undone = running.begin()
    stray = tmp_path / "nl" / str(name).replace(name.instant, undone)
    stray.write_bytes(b"of nobody")
    table.clean()
    assert stray.exists()


@contextmanager
def still_running(table: LsmTable, write: Instant) -> Iterator[None]:
    """The write is not on the timeline for a while, and is completed after all that happens meanwhile."""
    files = table.timeline.read_commit(write).paths
    paths = [write.path, *(Instant(write.requested, write.action, state).path for state in PENDING), *files]
    data = {path: table.storage.read(path) for path in paths}
    for path in paths:
        table.storage.delete(path)
    yield
    for path in paths[1:]:
        table.storage.put_if_absent(path, data[path])
    late = str(int(table.timeline.last_time) + 1)
    table.storage.put_if_absent(write.completed_at(late).path, data[write.path])


def test_a_log_that_was_completed_after_a_compaction_stays_though_it_was_requested_before(tmp_path: Path) -> None:
    # As a writer's of another program, which does not wait for compactions.
    table = create(tmp_path, **{**OPTIONS_OF_SERVICES, "hoodie.bucket.index.num.buckets": 1, RETAINED: 1})
    table.upsert(rows(("a", "nl", 1, 1)))
    table.compact()
    late = table.upsert(rows(("b", "nl", 2, 2)))
    assert late is not None
    with still_running(table, late):
        table.upsert(rows(("a", "nl", 3, 3)))
        assert table.compact() is not None
    table = reopened(table, **{"hoodie.bucket.index.num.buckets": 1, RETAINED: 1})
    for number in (4, 5):
        table.upsert(rows(("a", "nl", number, number)))
    expected = [("a", "nl", 5, 5), ("b", "nl", 2, 2)]
    assert shown(table) == expected
    assert table.clean() is not None
    assert shown(table) == expected


# --- plans that wait ----------------------------------------------------------------------------------------------


def put_plan(table: LsmTable, partition: str, *files: str) -> Instant:
    with table.transaction() as tx:
        plan = CleanPlan(None, "", "KEEP_LATEST_COMMITS", {partition: files})
        return tx.schedule("clean", tx.new_time(), plan.encode())


def old_file(table: LsmTable) -> str:
    return table.services.preview_clean().files["nl"][0]


@pytest.mark.parametrize("spelling", ["{uri}/nl/{name}", "file:{root}/nl/{name}", "{root}/nl/{name}", "{name}"])
def test_a_plan_that_waits_is_carried_out_however_its_paths_are_spelt(tmp_path: Path, spelling: str) -> None:
    table, model = layered(tmp_path, **{RETAINED: 2})
    name = old_file(table)
    waiting = put_plan(table, "nl", spelling.format(uri=table.path, root=tmp_path, name=name))
    table.clean()
    first, second = cleans(table)
    assert first.requested == waiting.requested
    assert record(table, first).files == {"nl": (name,)}
    assert not (tmp_path / "nl" / name).exists()
    assert len(record(table, second).files["nl"]) == 8
    assert_sound(table, model)


def test_a_plan_made_before_the_table_was_moved_deletes_where_the_table_is_now(tmp_path: Path) -> None:
    table, model = layered(tmp_path, **{RETAINED: 2})
    name = old_file(table)
    put_plan(table, "nl", f"file:/moved/from/here/nl/{name}")
    table.clean()
    assert not (tmp_path / "nl" / name).exists()
    assert_sound(table, model)


def test_a_plan_that_waits_and_names_no_earliest_write_promises_nothing_that_was_deleted(tmp_path: Path) -> None:
    table, _ = layered(tmp_path, **{RETAINED: 1})
    assert table.clean() is not None
    earliest = table.timeline.earliest_retained
    put_plan(table, "nl")
    resumed = table.clean()
    assert resumed is not None
    assert record(table, resumed).earliest == earliest


def live(table: LsmTable) -> str:
    base = table.file_slices()[0].base
    assert base is not None
    return str(base.name)


HOSTILE: dict[str, Callable[[LsmTable], tuple[str, str]]] = {
    "live base file": lambda table: ("nl", f"{table.path}/nl/{live(table)}"),
    "live log": lambda table: ("nl", str(table.file_slices()[0].logs[0].name)),
    "partition outside": lambda table: ("../other", old_file(table)),
    "metadata folder": lambda table: (".hoodie/timeline", old_file(table)),
    "NUL in a partition": lambda table: ("nl\0", old_file(table)),
    "no data file": lambda table: ("", "hoodie.properties"),
    "partition metadata": lambda table: ("nl", ".hoodie_partition_metadata"),
    "path that climbs": lambda table: ("nl", f"{table.path}/nl/../../other/nl/{old_file(table)}"),
    "another table's file": lambda table: (
        "nl",
        "file:/other/nl/00000009-0000-0000-0000-000000000000-0_0-0-0_20200101000000000.parquet",
    ),
    "another partition's file": lambda table: ("nl", f"{table.path}/de/{old_file(table)}"),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_plan_is_refused_as_a_whole(tmp_path: Path, make: Callable[[LsmTable], tuple[str, str]]) -> None:
    other = tmp_path / "other" / "nl"
    table, model = layered(tmp_path / "table", **{RETAINED: 2})
    other.mkdir(parents=True)
    (other / old_file(table)).write_bytes(b"precious")
    partition, file = make(table)
    waiting = put_plan(
        table, partition, *([file] if partition != "nl" else [f"{table.path}/nl/{old_file(table)}", file])
    )
    before = data_files(tmp_path)
    with pytest.raises(CorruptFileError, match=f"{waiting.file_name} would delete"):
        table.clean()
    assert data_files(tmp_path) == before
    assert pending_cleans(table.timeline) == (waiting,)
    assert shown(table) == sorted(model.values())


def test_a_plan_that_names_files_of_a_pending_compaction_is_refused(tmp_path: Path) -> None:
    table, model = layered(tmp_path, **{RETAINED: 1})
    table.services.schedule()
    grow(table, model, 4)
    needed = table.file_slices()[0].logs[0].name
    put_plan(table, "nl", str(needed))
    with pytest.raises(CorruptFileError, match=str(needed)):
        table.clean()


def test_a_torn_plan_is_named_with_what_to_do(tmp_path: Path) -> None:
    table, _ = layered(tmp_path, **{RETAINED: 2})
    plan = tmp_path / put_plan(table, "nl", old_file(table)).path
    plan.chmod(0o644)
    plan.write_bytes(plan.read_bytes()[:-20])
    told = rf"{plan.name} in .* has no readable plan \(.*cut off.*\): restore it, or delete it to cancel the clean$"
    with pytest.raises(CorruptFileError, match=told):
        table.clean()
    with pytest.raises(CorruptFileError, match=told):
        table.savepoint(user="ann", comment="")


def test_a_clean_whose_plan_is_gone_is_named(tmp_path: Path) -> None:
    table, _ = layered(tmp_path, **{RETAINED: 1})
    table.storage.put_if_absent(".hoodie/timeline/20261121000000000.clean.inflight", b"")
    with pytest.raises(CorruptFileError, match="has no plan"):
        table.clean()


# --- beside savepoints, and as of a time --------------------------------------------------------------------------


def saved_in_between(root: Path) -> tuple[LsmTable, Model]:
    """Old slices before and after one that a savepoint keeps, each of a base file and logs."""
    table, model = grown(root, batches=2, **{RETAINED: 1})
    table.compact()
    grow(table, model, 2)
    kept = [path.rpartition("/")[2] for found in table.file_slices() for path in found.paths]
    put_savepoint(table, table.timeline.completed_writes[-1].requested, kept)
    for batch in range(3, 6):
        table.compact()
        grow(table, model, batch)
    return table, model


def test_a_clean_that_dies_at_any_deletion_beside_a_savepoint_is_finished_by_the_next(tmp_path: Path) -> None:
    prepared, model = saved_in_between(tmp_path / "template")
    shutil.copytree(tmp_path / "template", tmp_path / "unharmed")
    table = LsmTable(tmp_path / "unharmed", prepared.options)
    counting = FaultyStorage(table.storage)
    assert reopened(table, counting, **{RETAINED: 1}).clean() is not None
    deletions = [
        call for call, (name, path) in enumerate(counting.calls) if (name, path[:3]) == ("delete_files", "nl/")
    ]
    assert len(deletions) >= 9
    for call in sample(deletions, 1, 2):
        root = tmp_path / str(call)
        shutil.copytree(tmp_path / "template", root)
        table = LsmTable(root, prepared.options)
        with pytest.raises(Killed):
            reopened(table, FaultyStorage(LocalStorage(root), {call: Fault.KILL_BEFORE}), **{RETAINED: 1}).clean()
        assert shown(table) == sorted(model.values())
        assert reopened(table, **{RETAINED: 1}).clean() is not None
        assert len(data_files(root)) == len(data_files(tmp_path / "unharmed"))


def test_a_clean_that_deleted_a_base_file_before_its_logs_is_finished_too(tmp_path: Path) -> None:
    # Other programs delete in another order.
    table, model = saved_in_between(tmp_path)
    doomed = table.services.preview_clean().files["nl"]
    put_plan(table, "nl", *doomed)
    for name in doomed:
        if ".log." not in name and ".deletes." not in name:
            (tmp_path / "nl" / name).unlink()
    table.clean()
    assert not {f"nl/{name}" for name in doomed} & data_files(tmp_path)
    assert shown(table) == sorted(model.values())


def test_logs_are_deleted_before_the_base_files_below_them(tmp_path: Path) -> None:
    table, _ = layered(tmp_path, **{RETAINED: 1})
    counting = FaultyStorage(table.storage)
    reopened(table, counting, **{RETAINED: 1}).clean()
    deleted = [path for name, path in counting.calls if name == "delete_files" and path.startswith("nl/")]
    logs = [".log." in path or ".deletes." in path for path in deleted]
    assert logs == sorted(logs, reverse=True)
    assert len(set(logs)) == 2


def test_by_versions_the_state_of_the_write_that_made_slices_old_stays_readable(tmp_path: Path) -> None:
    table, model = grown(tmp_path, **{**VERSIONS, "hoodie.clean.fileversions.retained": 1})
    before = table.timeline.last_time
    compacted = table.compact()
    assert compacted is not None
    assert table.clean() is not None
    assert table.timeline.earliest_retained == compacted.requested
    assert shown(table, as_of=compacted.requested) == sorted(model.values())
    assert shown(table, as_of=compacted.completed) == sorted(model.values())
    for earlier in (before, table.timeline.completed_writes[-2].requested):
        with pytest.raises(ReadOvertaken, match=f"{compacted.requested}.*hoodie.clean.fileversions.retained"):
            table.scan(as_of=earlier)


def test_by_versions_every_group_counts_for_what_stays_readable(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=1, **{**VERSIONS, "hoodie.clean.fileversions.retained": 1})
    for operation in table.services.preview_compaction().operations:
        with table.transaction() as tx:
            tx.schedule("compaction", tx.new_time(), CompactionPlan((operation,)).encode())
    table.compact()
    first, last = compactions(table)
    grow(table, model, 1)
    table.clean()
    assert table.timeline.earliest_retained == last.requested
    with pytest.raises(ReadOvertaken, match="cleaned"):
        table.scan(as_of=first.requested)
    assert len(shown(table, as_of=last.requested)) == 8


def test_a_compaction_finished_after_a_clean_leaves_the_retained_states_readable_by_date(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2, **{RETAINED: 4})
    table.compact()
    grow(table, model, 2)
    waiting, _ = table.services.schedule()
    assert waiting is not None
    states = {}
    for batch in range(3, 9):
        grow(table, model, batch)
        states[table.timeline.last_time] = sorted(model.values())
    table.clean()
    earliest = table.timeline.earliest_retained
    assert waiting.requested < earliest
    table.compact()
    retained = [time for time in states if time >= earliest]
    assert len(retained) == 2
    for time in retained:
        assert shown(table, as_of=time) == states[time]


def test_a_preview_lists_each_folder_once(tmp_path: Path) -> None:
    table, _ = layered(tmp_path, **{RETAINED: 1})
    counting = FaultyStorage(table.storage)
    assert reopened(table, counting, **{RETAINED: 1}).services.preview_clean().count
    assert [path for name, path in counting.calls if name == "list" and ".hoodie" not in path] == ["", "nl"]


def test_slices_of_a_pending_log_compaction_stay(tmp_path: Path) -> None:
    table, _ = layered(tmp_path, **{RETAINED: 1})
    doomed = table.services.preview_clean().files["nl"]
    log = next(name for name in doomed if ".log." in name)
    operation = CompactionOperation("nl", log.partition("_")[0], "1", (log,))
    requested = ".hoodie/timeline/20991121000000000.logcompaction.requested"
    table.storage.put_if_absent(requested, CompactionPlan((operation,)).encode())
    assert log not in table.services.preview_clean().files["nl"]


def test_logs_from_before_the_first_base_file_are_one_slice(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    table.compact()
    view = FileSystemView(table.storage, table.timeline)
    groups = file_groups_in(view, "nl", table.storage.list("nl"))
    assert [len(group.slices) for group in groups] == [2, 2]
    for group in groups:
        first, second = group.slices
        assert len(first.files) == len(data_files(tmp_path) & {f"nl/{name}" for name in first.files}) > 1
        assert first.key == min(name.rpartition("_")[0].rpartition("_")[2] for name in first.files)
        assert len(second.files) == 1


def test_by_hours_the_states_of_these_hours_stay_readable_by_the_clock_of_the_table(tmp_path: Path) -> None:
    hours = {"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained": 2}
    table, _ = layered(tmp_path, **hours)
    before = data_files(tmp_path)
    assert table.clean() is None
    now_ms = system_clock()
    later = LsmTable(tmp_path, hours)
    later.runtime = Runtime(clock=lambda: now_ms + 3 * 3_600_000)
    assert later.clean() is None  # no write was completed in the last hours
    assert "no write was completed in the last 2 hours" in str(later.services.preview_clean())
    later.upsert(rows(("k9", "nl", 900, 9)))
    [completed] = later.timeline.completed_cleans  # made after the write
    found = record(later, completed)
    assert (found.policy, found.earliest) == (
        "KEEP_LATEST_BY_HOURS",
        later.timeline.completed_writes[-1].requested,
    )
    # The slice of the last compaction was the newest one two hours ago.
    assert len(before - data_files(tmp_path)) == 9
