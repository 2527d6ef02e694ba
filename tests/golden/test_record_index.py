"""Record indexes that real Hudi wrote: keys are looked up by them, and by others that are damaged no row is lost."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.metadata.record_locations import RecordIndex
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.timeline import Timeline
from tests.support import hudi_tables

NAME = "v8_mor_mdt"
BUCKETS = {"v9_mor_mdt_full": 18, "v9_mor_mdt_types": 45}
"""Tables with a bucket index, of which Hudi indexes only keys that it inserted into base files, and how many."""
LOOKS_UP = {"hoodie.metadata.enable": True}
INDEX = ".hoodie/metadata/record_index"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hudi_tables.unpacked(NAME, tmp_path_factory.mktemp("tables"))


def keys_of(root: Path) -> pa.Table:
    return LsmTable(root).scan(meta=True).to_arrow().select(["_hoodie_record_key", "_hoodie_partition_path"])


@pytest.mark.parametrize("scan_share", [1e-9, 0.99])
def test_each_row_is_in_the_file_group_that_the_index_tells_and_absent_keys_have_none(
    root: Path, scan_share: float
) -> None:
    table, storage = LsmTable(root), LocalStorage(root)
    index = RecordIndex.open(storage, Timeline.load(storage), scan_share, TimelineCache())
    assert index is not None
    assert not index.is_partitioned
    rows = table.scan(meta=True).to_arrow()
    keys = pa.concat_arrays([rows["_hoodie_record_key"].combine_chunks(), pa.array(["absent", "", "é\U0001f600"])])
    found = index.locate(keys).to_pylist()
    assert [row["file_id"] for row in found[rows.num_rows :]] == [None] * 3
    groups = {(one.partition_path, one.file_id): table.scan(filter=None) for one in table.file_slices()}
    assert {(row["partition"], row["file_id"]) for row in found[: rows.num_rows]} == groups.keys()
    assert [row["partition"] for row in found[: rows.num_rows]] == rows["_hoodie_partition_path"].to_pylist()
    for row, one in zip(found, rows.to_pylist(), strict=False):
        # The file of a row is the base file that it came from, or the log: both have the id of the group.
        assert row["file_id"] in one["_hoodie_file_name"] or one["_hoodie_file_name"].startswith("0-")


def test_only_the_file_groups_of_the_keys_are_read(root: Path) -> None:
    plain, indexed = LsmTable(root), LsmTable(root, LOOKS_UP)
    slices = len(plain.file_slices())
    for key in keys_of(root)["_hoodie_record_key"].to_pylist()[::15]:
        told = indexed.explain_lookup([key])
        assert (told.slices, told.skipped.by_record_index) == (1, slices - 1)
        assert f"{slices - 1} skipped by record_index" in str(told)
        assert plain.explain_lookup([key]).slices == slices
        assert indexed.lookup([key], meta=True) == plain.lookup([key], meta=True)
        wanted = pc.field("_hoodie_record_key").isin([key, "absent"])
        assert indexed.scan(filter=wanted).to_arrow() == plain.scan(filter=wanted).to_arrow()
        assert indexed.scan(filter=wanted).explain().skipped.by_record_index == slices - 1
    assert indexed.explain_lookup(["absent", "gone"]).slices == 0
    assert indexed.lookup(["absent"]).num_rows == 0


@pytest.mark.parametrize("options", [{}, {"hoodie.enable.data.skipping": False, **LOOKS_UP}])
def test_the_index_is_not_read_if_the_options_say_so(root: Path, options: dict[str, object]) -> None:
    told = LsmTable(root, options).explain_lookup(["absent"])
    assert told.skipped.by_record_index == 0


def test_a_read_optimized_query_and_one_of_the_past_read_all_file_groups(root: Path) -> None:
    table = LsmTable(root, LOOKS_UP)
    wanted = pc.field("_hoodie_record_key") == "absent"
    first = table.timeline.completed_writes[0].requested
    for arguments in ({"query_type": "read_optimized"}, {"as_of": first}):
        told = table.scan(filter=wanted, **arguments).explain()  # type: ignore[arg-type]
        assert told.skipped.by_record_index == 0


@pytest.mark.parametrize("name", BUCKETS)
def test_the_incomplete_index_of_a_table_with_buckets_hides_no_row(tmp_path: Path, name: str) -> None:
    root = hudi_tables.unpacked(name, tmp_path)
    storage = LocalStorage(root)
    keys = keys_of(root)["_hoodie_record_key"]
    index = RecordIndex.open(storage, Timeline.load(storage), 0.5, TimelineCache())
    assert index is not None
    assert len(index.find(keys.combine_chunks()).keys) < len(keys)
    assert LsmTable(root, LOOKS_UP).lookup(keys).num_rows == len(keys)


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "emptied"])
def test_a_damaged_index_hides_no_row(
    root: Path, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = keys_of(root)["_hoodie_record_key"]
    whole = LsmTable(root).lookup(keys)
    told = 0
    for name in sorted(path.name for path in (root / INDEX).iterdir() if "record-index" in path.name):
        copy = shutil.copytree(root, tmp_path / name)
        path = copy / INDEX / name
        content = bytearray(path.read_bytes())
        if damage == "gone":
            path.unlink()
        else:
            content[len(content) // 20] ^= 0x10
            path.write_bytes({"flipped": content, "cut": content[:-7], "emptied": b""}[damage])
        with caplog.at_level(logging.WARNING):
            assert LsmTable(copy, LOOKS_UP).lookup(keys) == whole, name
        told += "no key is looked up" in caplog.text
        caplog.clear()
        shutil.rmtree(copy)
    assert told


def test_a_lost_file_group_is_noticed(root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "table")
    for path in (copy / INDEX).iterdir():
        if "record-index-0001-0" in path.name:
            path.unlink()
    keys = keys_of(root)["_hoodie_record_key"]
    assert LsmTable(copy, LOOKS_UP).lookup(keys) == LsmTable(root).lookup(keys)
    storage = LocalStorage(copy)
    with pytest.raises(CorruptFileError, match="record-index-0001-0 of record_index"):
        RecordIndex.open(storage, Timeline.load(storage), 0.5, TimelineCache())


def test_an_index_that_lacks_a_write_is_not_read(root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "table")
    storage = LocalStorage(copy)
    last = Timeline.load(storage).completed_writes[-1]
    for path in (copy / ".hoodie/metadata/.hoodie/timeline").glob(f"{last.requested}*"):
        path.unlink()
    with pytest.raises(CorruptFileError, match="fallen behind"):
        RecordIndex.open(storage, Timeline.load(storage), 0.5, TimelineCache())


def test_an_index_whose_base_files_are_of_a_later_state_is_not_used(tmp_path: Path) -> None:
    storage = LocalStorage(hudi_tables.unpacked("v9_mor_mdt_full", tmp_path))
    now = Timeline.load(storage)
    index = RecordIndex.open(storage, now, 0.5, TimelineCache())
    assert index is not None
    assert index.is_current(now)
    first = now.completed_by(now.completed_writes[0].completed or "")
    with pytest.raises(CorruptFileError, match="its action is not completed"):
        RecordIndex.open(storage, first, 0.5, TimelineCache())
    # Of what was completed after it was read, the base files may tell.
    assert not replace(index, data=first).is_current(now)
