"""Committed files and completed instants that are gone: every reader, writer and service says so, and names them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, CorruptFileError, ReadOvertaken
from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.file_group.lost_files import check_files
from streaming_lsm.format.actions.clean import CleanMetadata, CleanPlan
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.actions.file_state import FILES_KEY, FileState, RecordedFiles
from streaming_lsm.format.actions.rollback import RollbackPlan
from streaming_lsm.services.compaction.planner import SliceRules, select_slices
from streaming_lsm.services.compaction.strategy import CompactionStrategy
from streaming_lsm.storage.base import METADATA_BYTES
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from tests.support.small_tables import create, data_files, rows, shown

OPTIONS: dict[str, object] = {"lsm.read.threads": 1, "hoodie.clean.automatic": False}
A, B = ("a", "nl", 1, 1), ("b", "nl", 1, 2)


def table_at(root: Path, **options: object) -> LsmTable:
    """A table of four writes: two rows, one of them deleted, a compaction, a row updated, and another deleted."""
    table = create(root, **{**OPTIONS, "hoodie.bucket.index.num.buckets": 1, **options})
    table.upsert(rows(A, B))
    delete(table, "a")
    table.compact()
    table.upsert(rows(("b", "nl", 2, 3), ("c", "nl", 1, 4)))
    delete(table, "c")
    return table


def delete(table: LsmTable, key: str) -> None:
    table.delete(pa.table({"id": [key], "country": ["nl"]}))


def opened(root: Path, **options: object) -> LsmTable:
    return LsmTable(root, {**OPTIONS, **options})


def foreign(root: Path) -> None:
    """Make the commits those of another program, which records no file states."""
    table = opened(root)
    for write in table.timeline.completed_writes:
        found = table.timeline.read_commit(write)
        extra = {key: value for key, value in found.extra.items() if key != FILES_KEY}
        bare = CommitMetadata(found.stats, found.operation_type, extra, found.compacted, found.replaced)
        table.storage.replace(write.path, bare.encode())


def last_delete_log(root: Path) -> Path:
    return max((root / "nl").glob("*.deletes.parquet"), key=lambda path: path.name.split("_")[2])


def last_base(root: Path) -> Path:
    bases = [path for path in (root / "nl").glob("*.parquet") if path.name.count(".") == 1]
    return max(bases, key=lambda path: path.name.split("_")[2])


Use = Callable[[LsmTable], object]
USES: dict[str, Use] = {
    "snapshot": shown,
    "read optimised": lambda table: shown(table, query_type="read_optimized"),
    "time travel": lambda table: shown(table, as_of=table.timeline.completed_writes[-1].requested),
    "incremental": lambda table: table.incremental("000").to_arrow(),
    "changes": lambda table: table.changes("000").to_arrow(),
    "history": lambda table: table.history("b"),
    "write": lambda table: table.upsert(rows(A)),
    "compaction": lambda table: table.compact(),
    "clean": lambda table: table.clean(),
    "version change": lambda table: table.change_version(9),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The table of `table_at` as this and another program leave it, to be copied."""
    folders = {program: tmp_path_factory.mktemp("tables") / program for program in ("ours", "another")}
    for folder in folders.values():
        table_at(folder)
    foreign(folders["another"])
    return folders


@pytest.mark.parametrize("program", ["ours", "another"])
@pytest.mark.parametrize("pick", [last_delete_log, last_base], ids=["delete log", "base file"])
@pytest.mark.parametrize("use", USES)
def test_a_committed_file_that_is_gone_is_named_with_its_commit(
    tmp_path: Path, tables: dict[str, Path], use: str, pick: Callable[[Path], Path], program: str
) -> None:
    shutil.copytree(tables[program], tmp_path, dirs_exist_ok=True)
    lost = pick(tmp_path)
    lost.unlink()
    before = data_files(tmp_path)
    commit = next(w for w in opened(tmp_path).timeline.completed_writes if w.requested in lost.name)

    with pytest.raises(CorruptFileError, match=f"nl/{lost.name} in .* is gone, though {commit.path} has committed it"):
        USES[use](opened(tmp_path))
    assert data_files(tmp_path) == before


@pytest.mark.parametrize("program", ["ours", "another"])
def test_a_file_group_that_is_gone_as_a_whole_is_not_begun_anew(tmp_path: Path, program: str) -> None:
    table_at(tmp_path)
    if program == "another":
        foreign(tmp_path)
    for path in (tmp_path / "nl").iterdir():
        path.unlink()
    (tmp_path / "nl").rmdir()

    for use in ("snapshot", "write", "changes"):
        with pytest.raises(CorruptFileError, match=r"nl/.* is gone"):
            USES[use](opened(tmp_path))
    assert data_files(tmp_path) == set()


def archived_and_lost(root: Path) -> LsmTable:
    """A table whose first write is archived, a file of which is gone."""
    table = create(root, **{**OPTIONS, "hoodie.bucket.index.num.buckets": 1})
    for row in (A, B, ("c", "nl", 1, 3)):
        table.upsert(rows(row))
    first = table.timeline.completed_writes[0]
    forget(root, first, pending=False)
    assert shown(opened(root)) == [A, B, ("c", "nl", 1, 3)]
    (lost,) = (path for path in (root / "nl").iterdir() if first.requested in path.name)
    lost.unlink()
    return opened(root)


@pytest.mark.parametrize("use", ["snapshot", "time travel", "write", "compaction", "clean"])
def test_a_file_of_an_archived_write_that_is_gone_is_missed(tmp_path: Path, use: str) -> None:
    table = archived_and_lost(tmp_path)
    before = data_files(tmp_path)

    with pytest.raises(CorruptFileError, match=r"1 data files of archived writes in .* are gone"):
        USES[use](table)
    assert data_files(tmp_path) == before


def test_a_past_state_whose_writes_are_all_archived_misses_its_files(tmp_path: Path) -> None:
    options = {"hoodie.keep.min.commits": 11, "hoodie.keep.max.commits": 12}
    table = create(tmp_path, **{**OPTIONS, "hoodie.bucket.index.num.buckets": 1, "hoodie.archive.automatic": False})
    written = [(f"k{number:02}", "nl", 1, number) for number in range(16)]
    states: list[str] = []
    for row in written:
        table.upsert(rows(row))
        states.append(table.timeline.completed_writes[-1].completed or "")
    assert len(opened(tmp_path, **options).archive()) == 5
    for number, state in enumerate(states):
        assert shown(opened(tmp_path), as_of=state) == written[: number + 1]
    second = next(path for path in (tmp_path / "nl").iterdir() if states[0] < path.name.split("_")[2] < states[1])
    second.unlink()

    assert shown(opened(tmp_path), as_of=states[0]) == written[:1]
    for state in states[1:5]:
        with pytest.raises(CorruptFileError, match=f"{second.name} in .* is gone"):
            shown(opened(tmp_path), as_of=state)


def test_a_file_of_a_file_group_that_was_begun_anew_is_missed_when_the_replacecommit_is_archived(
    tmp_path: Path,
) -> None:
    """Buckets of tables that several writers write at once have one file id for ever."""
    mode = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
    keep = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table = create(tmp_path, **{**OPTIONS, **mode, **keep, "hoodie.archive.automatic": False})
    table.upsert(rows(A))
    table.upsert(rows(("z", "de", 1, 1)))
    table.delete_partitions(["nl"])
    for number in range(3):
        table.upsert(rows(("z", "de", number, number)))
    assert table.clean() is not None
    assert table.archive()
    table.upsert(rows(B))
    anew = table.timeline.completed_writes[-1]
    for number in range(3, 9):
        table.upsert(rows(("z", "de", number, number)))
    table.archive()
    table = opened(tmp_path, **mode)
    assert table.timeline.is_archived(anew.requested)
    assert shown(table, as_of=anew.completed) == [B, ("z", "de", 2, 2)]
    (lost,) = (path for path in (tmp_path / "nl").iterdir() if anew.requested in path.name)
    lost.unlink()

    for time in (None, anew.completed):
        with pytest.raises(CorruptFileError, match=f"{lost.name} in .* is gone"):
            shown(opened(tmp_path, **mode), as_of=time)


def test_files_that_an_archived_clean_deleted_are_no_damage(tmp_path: Path) -> None:
    """Another program's clean by versions records no earliest write that is retained."""
    keep = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    by_versions = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    table = create(tmp_path, **{**OPTIONS, **keep, **by_versions, "hoodie.archive.automatic": False})
    state = ""
    for number in range(3):
        for row in (A, B):
            table.upsert(rows((row[0], row[1], number, number)))
        state = state or table.timeline.completed_writes[-1].completed or ""
        table.compact()
        done = table.clean()
        if done is not None:
            told = CleanMetadata.decode(table.storage.read(done.path), done.path)
            table.storage.replace(done.path, replace(told, earliest="", examined=None).encode())
    table = opened(tmp_path, **{**keep, **by_versions})
    with pytest.raises(ReadOvertaken, match="was cleaned: read a later state"):
        shown(table, as_of=state)
    assert table.archive()
    assert len(table.timeline.completed_cleans) == 1
    with pytest.raises(ReadOvertaken, match="was cleaned: read a later state"):
        shown(opened(tmp_path), as_of=state)


def test_files_of_archived_writes_are_not_missed_by_a_stale_record(tmp_path: Path) -> None:
    table = archived_and_lost(tmp_path)
    # Another program committed between the two last writes of this one.
    last = table.timeline.completed_writes[-1]
    other = Instant(f"{int(last.requested) - 2}", "deltacommit", State.REQUESTED)
    done = other.completed_at(f"{int(last.requested) - 1}")
    table.storage.put_if_absent(done.path, CommitMetadata((), "UPSERT").encode())

    assert shown(opened(tmp_path)) == [B, ("c", "nl", 1, 3)]


def test_partition_metadata_that_is_gone_is_named(tmp_path: Path) -> None:
    table_at(tmp_path)
    (tmp_path / "nl/.hoodie_partition_metadata").unlink()

    with pytest.raises(CorruptFileError, match=r"exists but is not listed: .*\.hoodie_partition_metadata"):
        shown(opened(tmp_path))


def test_a_plan_that_left_out_a_lost_file_is_not_carried_out(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    lost = last_delete_log(tmp_path)
    kept = lost.read_bytes()
    foreign(tmp_path)
    lost.unlink()
    plan = plan_without_checks(table)
    with pytest.raises(CorruptFileError, match=f"{lost.name} in .* is gone"):
        opened(tmp_path).compact()
    lost.write_bytes(kept)
    assert plan
    assert shown(opened(tmp_path)) == [("b", "nl", 2, 3)]


def plan_without_checks(table: LsmTable) -> Instant:
    """A compaction that another program planned from its folder listing."""
    with table.transaction() as tx:
        requested = tx.new_time()
        slices = FileSystemView(table.storage, tx.timeline).slices()
        chosen = select_slices(slices, (), tx.timeline.completion_time, requested, SliceRules(CompactionStrategy()))
        return tx.schedule("compaction", requested, chosen.plan.encode())


def test_tables_whose_old_files_were_cleaned_are_whole(tmp_path: Path) -> None:
    table = table_at(tmp_path, **{"hoodie.clean.commits.retained": 1})
    table.compact()
    table.upsert(rows(A))
    assert table.clean() is not None

    for again in (False, True):
        if again:
            foreign(tmp_path)
        assert shown(opened(tmp_path)) == [A, ("b", "nl", 2, 3)]
        opened(tmp_path).incremental("000").to_arrow()


def test_a_past_state_whose_files_were_cleaned_is_not_damage(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    first = table.timeline.completed_writes[0]
    lost = next(path for path in data_files(tmp_path) if first.requested in path)
    (tmp_path / lost).unlink()
    clean = Instant(table.timeline.last_time[:-1] + "99", "clean", State.REQUESTED)
    metadata = CleanMetadata(clean.requested, 1, "", "", "", {"nl": (lost.rpartition("/")[2],)})
    table.storage.put_if_absent(clean.completed_at(clean.requested + "1").path, metadata.encode())

    assert shown(opened(tmp_path)) == [("b", "nl", 2, 3)]
    with pytest.raises(ReadOvertaken, match="was cleaned"):
        shown(opened(tmp_path), as_of=first.requested)


def test_a_file_that_a_clean_takes_while_folders_are_listed_is_a_conflict_and_no_damage(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    view = FileSystemView(table.storage, table.timeline)
    slices = view.slices()
    (found,) = slices
    kept = [type(found)(found.partition_path, found.file_id, found.base, found.logs[:-1])]
    plan = CleanPlan(None, "", "", {"nl": (found.logs[-1].path,)})
    clean = Instant("9" * 17, "clean", State.REQUESTED)
    table.storage.put_if_absent(clean.path, plan.encode())

    with pytest.raises(CommitConflict, match="deleted while the table was listed"):
        check_files(view, kept)


def test_the_state_of_the_files_is_that_of_the_latest_slices_after_every_write(tmp_path: Path) -> None:
    table = create(tmp_path, **{**OPTIONS, "hoodie.clean.commits.retained": 1})
    other = opened(tmp_path)
    for batch in range(8):
        writer = other if batch == 5 else table
        writer.upsert(rows(*((f"k{n}", "nl" if n % 2 else "be", batch, n) for n in range(batch + 2))))
        if batch in (2, 4, 6):
            table.compact()
            table.clean()
        assert recorded(tmp_path).state == FileState.of(p for found in table.file_slices() for p in found.paths)
        assert recorded(tmp_path).after == by_completion(table)[-2:][0].file_name or batch == 0


def by_completion(table: LsmTable) -> list[Instant]:
    return sorted(table.timeline.completed_writes, key=lambda write: write.completed or "")


def recorded(root: Path) -> RecordedFiles:
    table = opened(root)
    newest = by_completion(table)[-1]
    found = RecordedFiles.of(table.timeline.read_commit(newest).extra, newest.path)
    assert found is not None
    return found


@pytest.mark.parametrize("commits", [5, 25])
def test_a_read_of_a_whole_table_opens_one_commit_however_many_there_are(tmp_path: Path, commits: int) -> None:
    table = create(tmp_path, **OPTIONS)
    for number in range(commits):
        table.upsert(rows(("a", "nl", number, number)))
    reader = opened(tmp_path)
    reader.storage = watched = CountingStorage(tmp_path)

    reader.scan()
    assert len([path for path in watched.paths if path.endswith("commit")]) <= 2


class CountingStorage(LocalStorage):
    """Remembers which files were read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.paths: list[str] = []

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        self.paths.append(path)
        return super().read(path, most)


# --- completed instants that are gone --------------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["snapshot", "incremental", "write", "compaction", "clean"])
@pytest.mark.parametrize("pending", [True, False], ids=["pending files left", "all files gone"])
def test_an_older_completed_instant_that_is_gone_is_named(tmp_path: Path, use: str, pending: bool) -> None:
    table = table_at(tmp_path)
    lost = table.timeline.completed_writes[-2]
    forget(tmp_path, lost, pending=pending)

    with pytest.raises(CorruptFileError, match=lost.requested):
        USES[use](opened(tmp_path))


@pytest.mark.parametrize("use", ["snapshot", "incremental", "write", "compaction", "clean"])
def test_the_newest_completed_instant_that_is_gone_is_not_rolled_back(tmp_path: Path, use: str) -> None:
    table = table_at(tmp_path)
    lost = table.timeline.completed_writes[-1]
    content = (tmp_path / lost.path).read_bytes()
    forget(tmp_path, lost, pending=True)

    with pytest.raises(CorruptFileError, match=f"{lost.requested}.*whose completed instant file is missing"):
        USES[use](opened(tmp_path))
    (tmp_path / lost.path).write_bytes(content)
    assert shown(opened(tmp_path)) == [("b", "nl", 2, 3)]


def reads_of(write: Instant, before: Instant) -> dict[str, Use]:
    """Every kind of read whose result contains a write; `before` is the write before it."""
    since, time = before.completed or "", write.completed or ""
    return {
        "snapshot": shown,
        "read optimised": lambda table: shown(table, query_type="read_optimized"),
        "as of the request": lambda table: shown(table, as_of=write.requested),
        "as of the completion": lambda table: shown(table, as_of=time),
        "incremental": lambda table: table.incremental(since).to_arrow(),
        "incremental with end": lambda table: table.incremental(since, end=time).to_arrow(),
        "changes": lambda table: table.changes(since).to_arrow(),
        "changes with end": lambda table: table.changes(since, end=time).to_arrow(),
        "history": lambda table: table.history("b"),
    }


@pytest.mark.parametrize("program", ["ours", "another"])
@pytest.mark.parametrize("pending", [True, False], ids=["pending files left", "all files gone"])
@pytest.mark.parametrize("place", [-1, -2], ids=["newest", "older"])
def test_every_read_that_would_contain_a_lost_write_names_it(
    tmp_path: Path, place: int, pending: bool, program: str
) -> None:
    writes = table_at(tmp_path).timeline.completed_writes
    if program == "another":
        foreign(tmp_path)
    forget(tmp_path, writes[place], pending=pending)

    for kind, read in reads_of(writes[place], writes[place - 1]).items():
        with pytest.raises(CorruptFileError, match=writes[place].requested):
            pytest.fail(f"{kind}: {read(opened(tmp_path))}")


@pytest.mark.parametrize("pending", [True, False], ids=["pending files left", "all files gone"])
def test_states_before_a_lost_write_can_be_read(tmp_path: Path, pending: bool) -> None:
    writes = table_at(tmp_path).timeline.completed_writes
    forget(tmp_path, writes[-1], pending=pending)

    table = opened(tmp_path)
    assert shown(table, as_of=writes[-2].requested) == [("b", "nl", 2, 3), ("c", "nl", 1, 4)]
    assert table.changes(writes[-3].completed or "", end=writes[-2].completed).to_arrow().num_rows == 2


@pytest.mark.parametrize("metadata", [False, True], ids=["folders", "metadata table"])
def test_the_newest_write_without_any_instant_file_is_missed_and_no_write_follows(
    tmp_path: Path, metadata: bool
) -> None:
    options = {"hoodie.metadata.enable": metadata}
    writes = table_at(tmp_path, **options).timeline.completed_writes
    forget(tmp_path, writes[-1], pending=False)
    before = data_files(tmp_path)

    uses = {**reads_of(writes[-1], writes[-2]), "write": USES["write"], "compaction": USES["compaction"]}
    for kind, use in uses.items():
        with pytest.raises(
            CorruptFileError, match=f"{writes[-1].requested}.*(instant files were lost|not on the timeline)"
        ):
            pytest.fail(f"{kind}: {use(opened(tmp_path, **options))}")
    assert data_files(tmp_path) == before


def test_a_file_of_a_write_that_began_after_the_timeline_was_loaded_is_not_missed(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    loaded = table.timeline
    table.upsert(rows(A))
    view = FileSystemView(table.storage, loaded)

    check_files(view, view.slices())
    assert view.unknown.keys() == {table.timeline.completed_writes[-1].requested}


def test_a_file_that_a_late_task_left_of_a_rolled_back_write_is_not_missed(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    with table.transaction() as running:
        undone = running.begin()
    newest = table.timeline.completed_writes[-1].requested
    log = last_delete_log(tmp_path)
    (tmp_path / "nl" / log.name.replace(newest, undone)).write_bytes(log.read_bytes())

    for use in ("snapshot", "time travel", "changes", "write", "clean"):
        USES[use](opened(tmp_path))


def test_a_file_that_a_late_task_left_is_not_missed_when_the_rollback_is_archived(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    newest, log = table.timeline.completed_writes[-1].requested, last_delete_log(tmp_path)
    late = (tmp_path / "nl" / log.name, log.read_bytes())
    undone = []
    for _ in range(5):
        with table.transaction() as running:
            undone.append(running.begin())
    archiving = opened(tmp_path, **{"hoodie.keep.max.commits": 12})
    assert "rollback" in {action.action for action in archiving.archive()}
    assert undone[0] > archiving.timeline.first
    assert undone[0] not in archiving.timeline.finished_rollbacks()
    Path(str(late[0]).replace(newest, undone[0])).write_bytes(late[1])

    for use in ("snapshot", "time travel", "changes", "write", "clean"):
        USES[use](opened(tmp_path))


@pytest.mark.parametrize("end", [False, True], ids=["until now", "with end"])
@pytest.mark.parametrize("kind", ["incremental", "changes"])
def test_a_lost_write_whose_rows_were_compacted_is_missed_by_reads_of_its_range(
    tmp_path: Path, kind: str, end: bool
) -> None:
    table = create(tmp_path, **{**OPTIONS, "hoodie.bucket.index.num.buckets": 1})
    table.upsert(rows(A))
    lost = table.upsert(rows(B))
    table.compact()
    last = table.upsert(rows(("c", "nl", 1, 4)))
    assert lost is not None
    assert last is not None
    forget(tmp_path, lost, pending=False)
    for path in (tmp_path / "nl").glob(f"*{lost.requested}*.parquet"):
        path.unlink()

    assert shown(opened(tmp_path)) == [A, B, ("c", "nl", 1, 4)]
    read = getattr(opened(tmp_path), kind)
    with pytest.raises(CorruptFileError, match=f"{lost.requested}.* is gone, which .* names as the write before it"):
        read("000", last.completed if end else None).to_arrow()


def test_a_lost_compaction_whose_old_files_were_cleaned_is_damage_to_a_snapshot(tmp_path: Path) -> None:
    table = table_at(tmp_path, **{"hoodie.clean.commits.retained": 1})
    lost = table.compact()
    table.upsert(rows(A))
    assert lost is not None
    assert table.clean() is not None
    table.upsert(rows(("d", "be", 1, 1)))
    forget(tmp_path, lost, pending=False)
    for path in (tmp_path / "nl").glob(f"*{lost.requested}*.parquet"):
        path.unlink()

    for use in ("snapshot", "incremental", "changes"):
        with pytest.raises(CorruptFileError, match="was cleaned, but the timeline has no compaction"):
            USES[use](opened(tmp_path))


def test_a_completed_write_that_another_program_is_taking_back_is_not_missed(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    newest = table.timeline.completed_writes[-1]
    forget(tmp_path, newest, pending=True)
    rollback = Instant(f"{int(table.timeline.last_time) + 99}", "rollback", State.REQUESTED)
    table.storage.put_if_absent(rollback.path, RollbackPlan(newest.requested, "deltacommit", ()).encode())

    assert shown(opened(tmp_path)) == [("b", "nl", 2, 3), ("c", "nl", 1, 4)]


def test_a_compaction_whose_completed_instant_is_gone_is_not_run_again(tmp_path: Path) -> None:
    table = create(tmp_path, **OPTIONS)
    table.upsert(rows(A))
    lost = table.compact()
    assert lost is not None
    forget(tmp_path, lost, pending=True)
    before = data_files(tmp_path)

    for use in ("snapshot", "compaction", "write"):
        with pytest.raises(CorruptFileError, match=f"{lost.requested}.*whose completed instant file is missing"):
            USES[use](opened(tmp_path))
    assert data_files(tmp_path) == before


@pytest.mark.parametrize("use", ["snapshot", "write"])
def test_the_newest_write_that_a_clean_names_is_missed(tmp_path: Path, use: str) -> None:
    table = table_at(tmp_path, **{"hoodie.clean.commits.retained": 1})
    lost = table.compact()
    assert table.clean() is not None
    assert lost is not None
    forget(tmp_path, lost, pending=False)

    with pytest.raises(CorruptFileError, match=f"write at {lost.requested} .* is gone"):
        USES[use](opened(tmp_path))


def test_the_newest_write_that_the_metadata_table_has_is_missed_before_that_is_dropped(tmp_path: Path) -> None:
    table = table_at(tmp_path, **{"hoodie.metadata.enable": True})
    forget(tmp_path, table.timeline.completed_writes[-1], pending=False)

    for _ in range(2):
        with pytest.raises(CorruptFileError, match="which is in the metadata table and not on the timeline"):
            opened(tmp_path).upsert(rows(A))


@pytest.mark.parametrize("use", [use for use in USES if use not in ("time travel", "history")])
def test_a_timeline_that_is_gone_as_a_whole_is_no_empty_table(tmp_path: Path, use: str) -> None:
    table_at(tmp_path)
    for path in (tmp_path / ".hoodie/timeline").glob("2*"):
        path.unlink()
    before = data_files(tmp_path)

    with pytest.raises(
        CorruptFileError, match=r"nl/.*parquet in .* not on the timeline .* its instant files were lost"
    ):
        USES[use](opened(tmp_path))
    assert data_files(tmp_path) == before


def test_files_of_the_first_write_that_failed_are_no_lost_timeline(tmp_path: Path) -> None:
    table = create(tmp_path, **OPTIONS)
    table.upsert(rows(A))
    (late,) = (tmp_path / "nl").glob("*.parquet")
    content = late.read_bytes()
    table.rollback()
    late.write_bytes(content)
    assert shown(opened(tmp_path)) == []


@pytest.mark.parametrize("mode", ["OPTIMISTIC_CONCURRENCY_CONTROL", "NON_BLOCKING_CONCURRENCY_CONTROL"])
@pytest.mark.parametrize("has_earlier", [False, True])
def test_as_of_a_write_that_began_before_others_and_ended_after_them_nothing_is_missing(
    tmp_path: Path, mode: str, *, has_earlier: bool
) -> None:
    """The file state of its commit has the files of the others, which time travel to its request does not show."""
    options = {**OPTIONS, "hoodie.write.concurrency.mode": mode}
    table = create(tmp_path, **options)
    earlier = [("d", "fr", 1, 4)] if has_earlier else []
    if earlier:
        table.upsert(rows(*earlier))

    class Slow(LsmTable):
        def commit(self, *given: Any, **named: Any) -> Instant:
            opened(tmp_path, **options).upsert(rows(("x", "de", 1, 1)))
            return super().commit(*given, **named)

    done = Slow(tmp_path, options).upsert(rows(A))
    assert done is not None
    assert shown(opened(tmp_path), as_of=done.requested) == sorted([A, *earlier])
    assert opened(tmp_path).savepoint(done.requested).requested == done.requested
    for lost in (tmp_path / "nl").glob("*.parquet"):
        lost.unlink()
    with pytest.raises(CorruptFileError, match=r"nl/.*parquet in .* is gone"):
        shown(opened(tmp_path), as_of=done.requested)


def forget(root: Path, write: Instant, *, pending: bool) -> None:
    """Remove a write's completed file, and its pending files too if they are not to stay."""
    (root / write.path).unlink()
    if not pending:
        for path in (root / ".hoodie/timeline").glob(f"{write.requested}.*"):
            path.unlink()
