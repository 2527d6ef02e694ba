"""Which file group holds a bucket, and file groups that do not fit the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat, base_file_stat, log_file_stat
from streaming_lsm.format.actions.restore import RestoreMetadata
from streaming_lsm.format.table.file_names import BaseFileName, LogFileName, LogKind, WriteToken
from streaming_lsm.index.group_numbering import BucketNumbers
from streaming_lsm.index.live_file_groups import LiveFileGroups
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.timeline import Timeline
from tests.support.faulty_storage import Fault, FaultyStorage

TOKEN = WriteToken(0, 0, 0)


def file_id(bucket: int, rest: str = "a") -> str:
    return f"{bucket:08d}-{rest}-0"


def log(partition: str, group: str, instant: str, version: int = 1) -> WriteStat:
    return log_file_stat(partition, LogFileName(group, TOKEN, instant, version, LogKind.DATA), total_bytes=1)


def deletes(partition: str, group: str, instant: str) -> WriteStat:
    return log_file_stat(partition, LogFileName(group, TOKEN, instant, 1, LogKind.DELETES), total_bytes=1)


def base(partition: str, group: str, instant: str) -> WriteStat:
    return base_file_stat(partition, BaseFileName(group, "0-0-0", instant), total_bytes=1, num_writes=1)


def commit(root: Path, requested: str, completed: str, *stats: WriteStat, action: str = "deltacommit") -> None:
    """A commit on the timeline with its files, which hold nothing."""
    storage = LocalStorage(root)
    for stat in stats:
        storage.replace(stat.path, b"x")
        storage.replace("/".join(filter(None, [stat.partition_path, ".hoodie_partition_metadata"])), b"")
    metadata = CommitMetadata(stats, "UPSERT")
    storage.put_if_absent(f".hoodie/timeline/{requested}_{completed}.{action}", metadata.encode())


def view(root: Path) -> FileSystemView:
    storage = LocalStorage(root)
    return FileSystemView(storage, Timeline.load(storage))


def indexed(root: Path, buckets: int = 4) -> LiveFileGroups:
    index = LiveFileGroups(BucketNumbers(buckets))
    index.refresh(view(root))
    return index


@pytest.mark.parametrize("at_once", [True, False], ids=["listed", "followed"])
def test_groups_are_found_by_partition_and_bucket(tmp_path: Path, at_once: bool) -> None:
    index = LiveFileGroups(BucketNumbers(4))
    commit(tmp_path, "10", "11", log("x", file_id(0), "10"), log("y", file_id(0, "b"), "10"))
    if not at_once:
        index.refresh(view(tmp_path))
    commit(tmp_path, "20", "21", log("x", file_id(3), "20"), log("x", file_id(0), "20"))
    index.refresh(view(tmp_path))
    assert index.file_ids == {("x", 0): file_id(0), ("y", 0): file_id(0, "b"), ("x", 3): file_id(3)}
    assert index.bases == {}
    assert index.most_logs == 2


@pytest.mark.parametrize("at_once", [True, False], ids=["listed", "followed"])
def test_a_base_file_leaves_only_the_logs_that_were_completed_since(tmp_path: Path, at_once: bool) -> None:
    index = LiveFileGroups(BucketNumbers(4))
    group = file_id(1)
    for requested, completed in (("10", "11"), ("20", "21"), ("30", "41"), ("50", "51")):
        commit(tmp_path, requested, completed, log("", group, requested))
        if not at_once:
            index.refresh(view(tmp_path))
    commit(tmp_path, "40", "60", base("", group, "40"), action="commit")
    index.refresh(view(tmp_path))
    assert index.most_logs == 2
    assert index.bases["", 1].path == f"{group}_0-0-0_40.parquet"


@pytest.mark.parametrize("at_once", [True, False], ids=["listed", "followed"])
def test_kept_deletes_are_those_of_the_newest_base_file(tmp_path: Path, at_once: bool) -> None:
    index = LiveFileGroups(BucketNumbers(4))
    group = file_id(1)
    commit(tmp_path, "10", "11", deletes("", group, "10"), base("", group, "10"), action="commit")
    index.refresh(view(tmp_path))
    assert index.kept_deletes == {("", 1): (deletes("", group, "10").path,)}
    assert not index.have_rows_in_logs
    commit(tmp_path, "20", "21", base("", group, "20"), action="commit")
    if not at_once:
        index.refresh(view(tmp_path))
        assert index.kept_deletes == {}
    commit(tmp_path, "30", "31", deletes("", group, "30"))
    index.refresh(view(tmp_path))
    assert index.kept_deletes == {}
    assert index.have_rows_in_logs


def test_a_replaced_group_makes_room_for_another_of_its_bucket(tmp_path: Path) -> None:
    index = LiveFileGroups(BucketNumbers(4))
    commit(tmp_path, "10", "11", log("", file_id(1, "a"), "10"))
    index.refresh(view(tmp_path))
    new = base("", file_id(1, "b"), "20")
    LocalStorage(tmp_path).replace(new.path, b"x")
    replace = CommitMetadata((new,), "INSERT_OVERWRITE", replaced={"": (file_id(1, "a"),)})
    LocalStorage(tmp_path).put_if_absent(".hoodie/timeline/20_21.replacecommit", replace.encode())
    index.refresh(view(tmp_path))
    assert index.file_ids == {("", 1): file_id(1, "b")}


def test_a_bucket_beyond_the_count_is_refused_with_both_numbers(tmp_path: Path) -> None:
    commit(tmp_path, "10", "11", log("part", file_id(4), "10"))
    with pytest.raises(ConfigError, match=r"00000004-a-0.*'part'.*bucket 4.*is 4"):
        indexed(tmp_path)


@pytest.mark.parametrize("at_once", [True, False], ids=["listed", "followed"])
def test_two_groups_for_one_bucket_are_refused_with_both_ids(tmp_path: Path, at_once: bool) -> None:
    index = LiveFileGroups(BucketNumbers(4))
    commit(tmp_path, "10", "11", log("part", file_id(1, "a"), "10"))
    if not at_once:
        index.refresh(view(tmp_path))
    commit(tmp_path, "20", "21", log("part", file_id(1, "b"), "20"))
    with pytest.raises(UnsupportedTable, match=r"'part'.*bucket 1.*00000001-a-0.*00000001-b-0"):
        index.refresh(view(tmp_path))


def test_a_file_id_without_bucket_is_refused_by_name(tmp_path: Path) -> None:
    commit(tmp_path, "10", "11", log("", "1234-hash-0", "10"))
    with pytest.raises(UnsupportedTable, match="1234-hash"):
        indexed(tmp_path)


def test_a_write_that_was_undone_is_forgotten(tmp_path: Path) -> None:
    commit(tmp_path, "10", "11", log("", file_id(1), "10"))
    commit(tmp_path, "20", "21", base("", file_id(1), "20"), log("", file_id(2), "20"))
    index = indexed(tmp_path)
    assert set(index.bases) == {("", 1)}
    (tmp_path / ".hoodie/timeline/20_21.deltacommit").unlink()
    undone = RestoreMetadata("30", 0, (("20", "deltacommit"),))
    (tmp_path / ".hoodie/timeline/30_31.restore").write_bytes(undone.encode())
    index.refresh(view(tmp_path))
    assert index.file_ids == {("", 1): file_id(1)}
    assert index.bases == {}
    assert index.most_logs == 1


def test_a_write_that_was_archived_is_not_forgotten_and_nothing_is_listed(tmp_path: Path) -> None:
    options = {
        "hoodie.table.name": "archived",
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.bucket.index.num.buckets": 4,
        "hoodie.archive.automatic": False,
        "hoodie.clean.automatic": False,
        "hoodie.clean.commits.retained": 1,
        "hoodie.keep.min.commits": 2,
        "hoodie.keep.max.commits": 3,
    }
    rows = pa.table({"k": ["a"]})
    table = LsmTable.create(tmp_path, rows.schema, options)
    for _ in range(4):
        table.upsert(rows)
    index = indexed(tmp_path)
    table.clean()
    assert table.archive()
    table.upsert(rows)
    counting = FaultyStorage(LocalStorage(tmp_path))
    index.refresh(FileSystemView(counting, Timeline.load(counting)))
    assert [path for name, path in counting.calls if name == "list"] == [".hoodie/timeline"]
    assert index.most_logs == 5


def test_all_is_listed_when_a_write_vanished_that_the_history_lacks(
    tmp_path: Path,
) -> None:
    commit(tmp_path, "10", "11", log("", file_id(1), "10"))
    commit(tmp_path, "20", "21", log("", file_id(1), "20"))
    index = indexed(tmp_path)
    (tmp_path / ".hoodie/timeline/10_11.deltacommit").unlink()
    commit(tmp_path, "30", "31", log("", file_id(2), "30"))
    counting = FaultyStorage(LocalStorage(tmp_path))
    index.refresh(FileSystemView(counting, Timeline.load(counting)))
    listed = [path for name, path in counting.calls if name == "list"]
    assert listed == [".hoodie/timeline", ".hoodie/timeline/history", ""]
    assert index.most_logs == 2


def test_the_groups_of_writes_that_were_archived_since_the_table_was_empty_are_found(tmp_path: Path) -> None:
    index = indexed(tmp_path)
    commit(tmp_path, "10", "11", log("", file_id(1), "10"))
    commit(tmp_path, "20", "21", log("", file_id(2), "20"))
    (tmp_path / ".hoodie/timeline/10_11.deltacommit").unlink()
    index.refresh(view(tmp_path))
    assert index.file_ids == {("", 1): file_id(1), ("", 2): file_id(2)}


def test_a_refresh_that_fails_half_way_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    index = indexed(tmp_path)
    commit(tmp_path, "10", "11", log("", file_id(1), "10"))
    commit(tmp_path, "20", "21", log("", file_id(1), "20"))
    storage = LocalStorage(tmp_path)
    faulty = FaultyStorage(storage, {2: Fault.FAIL_BEFORE})
    with pytest.raises(OSError, match="injected"):
        index.refresh(FileSystemView(faulty, Timeline.load(faulty)))
    assert faulty.calls[2] == ("read", ".hoodie/timeline/20_21.deltacommit")
    index.refresh(view(tmp_path))
    assert index.most_logs == 2


def test_groups_that_were_followed_are_those_that_are_listed(tmp_path: Path) -> None:
    followed = LiveFileGroups(BucketNumbers(4))
    followed.refresh(view(tmp_path))
    before = followed.file_ids
    for number in range(10, 40):
        group = file_id(number % 3)
        made = base if number % 7 == 0 else log
        stats = (made("x", group, str(number)), log("y", file_id(3), str(number)))
        expected = followed.most_logs_with(stats) if made is log else None
        commit(tmp_path, str(number), f"{number}5", *stats)
        followed.refresh(view(tmp_path))
        listed = indexed(tmp_path)
        assert (followed.file_ids, followed.bases) == (listed.file_ids, listed.bases)
        assert followed.most_logs == listed.most_logs
        assert expected in (None, listed.most_logs)
    assert followed.most_logs_with([log("z", file_id(0), "90")]) == followed.most_logs == 30
    assert before == {}, "the file ids of an earlier batch do not change"
