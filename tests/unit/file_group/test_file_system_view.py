"""Which files of a table one timeline makes visible."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.timeline import Timeline
from tests.support.small_tables import create, data_files, rows, shown
from tests.support.writers import outcome

ONE_BUCKET = {"hoodie.bucket.index.num.buckets": 1}


def view(root: Path, *, rfc103_names: bool = False) -> FileSystemView:
    storage = LocalStorage(root)
    return FileSystemView(storage, Timeline.load(storage), rfc103_names)


def paths(root: Path, **how: bool) -> set[str]:
    return {path for found in view(root, **how).slices() for path in found.paths}


def test_partitions_are_the_folders_with_partition_metadata_at_any_depth(tmp_path: Path) -> None:
    table = create(tmp_path, **ONE_BUCKET)
    table.upsert(rows(("a", "x/y", 1, 1), ("b", "z", 1, 1), ("c", "x/y/deep", 1, 1)))
    (tmp_path / "z/not_a_partition").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden/.hoodie_partition_metadata").touch()
    (tmp_path / ".hoodie/.hoodie_partition_metadata").touch()
    assert view(tmp_path).partitions() == [".hidden", "x/y", "x/y/deep", "z"]
    assert [found.partition_path for found in view(tmp_path).slices()] == ["x/y", "x/y/deep", "z"]


def test_files_of_no_completed_write_and_foreign_files_are_not_seen(tmp_path: Path) -> None:
    table = create(tmp_path, **ONE_BUCKET)
    table.upsert(rows(("a", "DE", 1, 1)))
    (log,) = data_files(tmp_path)
    instant = table.timeline.completed_writes[0].requested
    newer = f"{int(instant) + 10**12:017d}"
    for name in (
        Path(log).name.replace(instant, newer),
        f"{Path(log).name.split('_')[0]}_0-0-0_{newer}.parquet",
        Path(log).name.replace(".log.", ".cdc."),
        f".{Path(log).name}.crc",
        "_SUCCESS",
        "notes.parquet.txt",
        "some.parquet",
    ):
        (tmp_path / "DE" / name).write_bytes(b"junk")
    assert paths(tmp_path) == {log}
    # A query refuses them: their write may have lost its instant files.
    with pytest.raises(CorruptFileError, match=f"is a file of the write at {newer}, which is not on the timeline"):
        shown(table)
    for path in (tmp_path / "DE").glob(f"*{newer}*"):
        path.unlink()
    assert shown(table) == [("a", "DE", 1, 1)]


def test_files_of_a_pending_write_are_not_seen(tmp_path: Path) -> None:
    table = create(tmp_path, **ONE_BUCKET)
    table.upsert(rows(("a", "DE", 1, 1)))
    before = paths(tmp_path)
    with table.transaction() as running:
        instant = running.begin()
        (log,) = before
        copy = tmp_path / log.replace(table.timeline.completed_writes[0].requested, instant)
        copy.write_bytes((tmp_path / log).read_bytes())
        assert paths(tmp_path) == before
        assert shown(table) == [("a", "DE", 1, 1)]
        copy.unlink()
        running.reconcile(outcome())
        running.complete(outcome(schema=table.config.create_schema or ""))


def test_a_slice_is_the_newest_base_file_and_all_later_logs(tmp_path: Path) -> None:
    table = create(tmp_path, **ONE_BUCKET)
    table.bulk_insert(rows(("a", "DE", 1, 1)))
    for number in range(3):
        table.upsert(rows(("a", "DE", 2 + number, 2)))
    (found,) = view(tmp_path).slices()
    assert found.base is not None
    instants = [write.requested for write in table.timeline.completed_writes]
    assert [found.base.name.instant, *(log.name.instant for log in found.logs)] == instants
    assert found.base.size == (tmp_path / found.base.path).stat().st_size


def test_names_of_the_first_text_are_seen_when_asked_for(tmp_path: Path) -> None:
    table = create(tmp_path, **ONE_BUCKET)
    table.upsert(rows(("a", "DE", 1, 1)))
    (log,) = data_files(tmp_path)
    older = log.replace(".log.parquet", ".parquet")
    (tmp_path / log).rename(tmp_path / older)
    assert paths(tmp_path, rfc103_names=True) == {older}
    with pytest.raises(UnsupportedTable, match=r"set lsm\.read\.rfc103\.names=true"):
        paths(tmp_path)


@pytest.mark.parametrize("attempt", ["0-0-99", "0-0-00"], ids=["later-in-the-listing", "earlier-in-the-listing"])
def test_of_two_base_files_of_one_instant_the_one_of_the_commit_counts(tmp_path: Path, attempt: str) -> None:
    table = create(tmp_path, **ONE_BUCKET, **{"hoodie.clean.automatic": False})
    table.upsert(rows(("a", "DE", 1, 1)))
    table.compact()
    (base,) = [path for path in data_files(tmp_path) if ".log." not in path]
    name = Path(base).name
    stray = name.replace(f"_{name.split('_')[1]}_", f"_{attempt}_")
    (tmp_path / "DE" / stray).write_bytes(b"PAR1")
    assert paths(tmp_path) == {base}
    assert shown(table) == [("a", "DE", 1, 1)]
