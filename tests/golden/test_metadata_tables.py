"""Metadata tables that real Hudi wrote: they list what the folders hold, and our writers go on with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.log.inline_blocks import BlockType, read_blocks
from streaming_lsm.format.metadata.group_files import FIRST_INSTANT
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, parse_file_name
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileGroup, MetadataFileSlice
from streaming_lsm.metadata.listing import folder_listing, listing_differences, metadata_listing
from streaming_lsm.metadata.state import check_state
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline
from tests.support import hudi_tables
from tests.support.hfiles import entries_of
from tests.support.listed_files import decode_base, decode_log, encode_base, encode_log
from tests.support.metadata_tables import assert_settled

FILES = {
    "r015_mor_compaction": 28,
    "r102_mor_compaction": 8,
    "v8_mor_mdt": 10,
    "v9_cow_hive_mdt": 8,
    "v9_mor_compaction": 28,
    "v9_mor_log_compaction": 32,
    "v9_mor_mdt_full": 24,
    "v9_mor_mdt_types": 10,
}
KEPT = [name for name in FILES if not name.startswith("r015")]
WRITTEN = [name for name in FILES if name.startswith("v")]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for name in FILES:
        hudi_tables.unpacked(name, folder)
    return folder


@pytest.mark.parametrize("name", FILES)
def test_the_partition_files_lists_what_the_folders_hold(unpacked: Path, name: str) -> None:
    storage = LocalStorage(unpacked / name)
    timeline = Timeline.load(storage, 1 if name.startswith("r015") else 2)
    listing = metadata_listing(storage, timeline)
    assert listing_differences(storage, timeline) == []
    assert listing == folder_listing(storage, timeline)
    assert sum(map(len, listing.values())) == FILES[name]


@pytest.mark.parametrize("name", WRITTEN)
def test_our_base_files_and_logs_hold_the_same_entries(unpacked: Path, name: str) -> None:
    compared = 0
    for path in sorted((unpacked / name / ".hoodie/metadata/files").iterdir()):
        parsed, data = parse_file_name(path.name), path.read_bytes()
        if isinstance(parsed, BaseFileName) and parsed.instant != FIRST_INSTANT:
            theirs = HFile.open(data, path.name)
            ours = HFile.open(encode_base(decode_base(data, path.name), parsed, 1), path.name)
        elif isinstance(parsed, InlineLogName):
            (block,) = read_blocks(data, path.name)
            logged = [found.records for found in decode_log(data, parsed, path.name)]
            written = encode_log(logged[0] if logged else {}, parsed, 1)
            if block.type is BlockType.DELETE:
                assert written == data
                continue
            theirs = HFile.open(block.content, path.name)
            ours = HFile.open(read_blocks(written, path.name)[0].content, path.name)
        else:
            continue
        compared += 1
        assert entries_of(ours) == entries_of(theirs)
        assert_filter_of(ours, theirs)
        assert ours.info.keys() == theirs.info.keys()
        differing = {key for key in ours.info if ours.info[key] != theirs.info[key]}
        assert differing <= {"schema", "hfile.CREATE_TIME_TS"}
    assert compared > 3


def assert_filter_of(ours: HFile, theirs: HFile) -> None:
    """Our filter has all keys, and fewer bits; logs have none."""
    texts = [found.meta("bloomFilter") for found in (ours, theirs)]
    assert (texts[0] is None) == (texts[1] is None)
    if texts[0] and texts[1]:
        own, others = (BloomFilter.decode(text.decode()) for text in (texts[0], texts[1]))
        assert own.kind == others.kind
        assert own.bits < others.bits
        assert own.contains(pa.array([key.decode() for key, _ in entries_of(ours)])).all()


@pytest.mark.parametrize("name", KEPT)
def test_a_healthy_one_is_kept_and_one_that_lost_a_log_or_a_record_is_not(unpacked: Path, name: str) -> None:
    storage = LocalStorage(unpacked / name)
    metadata, data = Subfolder(storage, METADATA_TABLE), Timeline.load(storage)
    version = load_properties(storage)["hoodie.table.version"]
    own = Timeline.load(metadata)
    assert check_state(metadata, version, data, TimelineCache()) == (own, [])
    newest = MetadataFileSlice.newest(own, metadata.names("files"), MetadataFileGroup("files", "files-0000-0"))
    lost = [f"files/{found}" for found in (newest.base, *newest.logs) if found and ".log.1_0-0-0" not in str(found)]
    told = {action.requested for action in data.instants}
    lost += [found.path for found in own.completed_writes if found.requested in told][1:]
    assert len(lost) > 6
    for path in lost:
        content = metadata.read(path)
        metadata.delete(path)
        with pytest.raises(CorruptFileError, match=r"is gone|fallen behind"):
            check_state(metadata, version, data, TimelineCache())
        metadata.put_if_absent(path, content)


def some_rows(table: LsmTable) -> pa.Table:
    return table.scan().to_arrow().slice(0, 5)


@pytest.mark.parametrize(
    "name", ["r102_mor_compaction", "v9_mor_log_compaction", "v9_mor_compaction", "v9_mor_mdt_full"]
)
def test_our_writers_go_on_with_it(unpacked: Path, tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    shutil.copytree(unpacked / name, root)
    options = {
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.metadata.compact.max.delta.commits": 3,
        "hoodie.clean.commits.retained": 1,
    }
    expected = sorted(map(str, LsmTable(root).scan().to_arrow().to_pylist()))
    for _ in range(4):
        table = LsmTable(root, options)
        table.upsert(some_rows(table))
        if not table.config.is_copy_on_write:
            table.compact()
        table.clean()
        assert_settled(root)
    assert sorted(map(str, LsmTable(root).scan().to_arrow().to_pylist())) == expected
    indexes = ["column_stats", "partition_stats", "bloom_filters"] if name == "v9_mor_mdt_full" else []
    kept = sorted([".hoodie", "files", *indexes])
    assert sorted(path.name for path in (root / ".hoodie/metadata").iterdir()) == kept
    assert (root / ".hoodie/.index_defs").exists() == ("column_stats" in kept)
