"""What the metadata table says of the files, and what the folders say."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.metadata.files_partition import FILE_GROUP
from streaming_lsm.format.metadata.group_files import log_name
from streaming_lsm.format.metadata.records import FilesRecord, MetadataFileInfo
from streaming_lsm.format.table.file_names import LogFileName, parse_file_name
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME, print_partition_metadata
from streaming_lsm.metadata import services
from streaming_lsm.metadata.column_ranges import column_ranges
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.files import metadata_files
from streaming_lsm.metadata.listing import folder_listing, listing_differences, metadata_listing
from streaming_lsm.storage.base import METADATA_BYTES, Names, Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH
from streaming_lsm.timeline.timeline import Timeline
from tests.support.faulty_storage import FaultyStorage
from tests.support.listed_files import decode_base, decode_log, encode_log
from tests.support.metadata_tables import assert_settled
from tests.support.writers import new_process, transaction
from tests.unit.metadata.test_table import METADATA, make, write, written

OPTIONS: dict[str, object] = {
    "hoodie.table.name": "listed",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "n",
    "hoodie.bucket.index.num.buckets": 1,
}
EVERY_SECOND = {"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 2}


class Busy(FaultyStorage):
    """Others write batches between a reader's look at the timeline and its look at the folder."""

    def __init__(self, inner: Storage, times: int, batches: Iterator[int]) -> None:
        super().__init__(inner)
        self._table = inner
        self._times = times
        self._batches = batches

    def names(self, folder: str) -> Names:
        if folder == f"{METADATA}/files" and self._times:
            self._times -= 1
            for _ in range(9):
                write(self._table, next(self._batches), EVERY_SECOND)
        return super().names(folder)


def test_a_reader_that_is_overtaken_by_compactions_and_a_clean_looks_again(tmp_path: Path) -> None:
    storage = make(tmp_path)
    batches = itertools.count()
    for _ in range(9):
        write(storage, next(batches), EVERY_SECOND)
    before = Timeline.load(storage)
    seen = folder_listing(storage, before)
    listed = metadata_listing(Busy(storage, 2, batches), before)
    assert all(seen[partition].items() <= listed[partition].items() for partition in seen)
    with pytest.raises(CorruptFileError, match="gone"):
        metadata_listing(Busy(storage, 3, batches), Timeline.load(storage))


class Vanishing(FaultyStorage):
    """A file goes between being listed and being read."""

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        if path.startswith(f"{METADATA}/files/"):
            raise FileNotFoundError(path)
        return super().read(path, most)


def test_a_file_that_goes_while_it_is_read_is_damage_in_the_end(tmp_path: Path) -> None:
    storage = written(tmp_path)
    vanishing = Vanishing(storage)
    with pytest.raises(CorruptFileError, match="was deleted while it was read"):
        metadata_listing(vanishing, Timeline.load(storage))
    assert vanishing.calls.count(("list", f"{METADATA}/files")) == 3


def test_the_empty_folder_of_a_write_that_was_rolled_back_is_no_difference(tmp_path: Path) -> None:
    storage = written(tmp_path)
    storage.put_if_absent(f"fr/{PARTITION_METADATA_NAME}", print_partition_metadata("0", "fr"))
    timeline = Timeline.load(storage)
    assert listing_differences(storage, timeline) == []
    name = f"00000003-0000-0000-0000-000000000000-0_0-0-0_{timeline.completed_writes[0].requested}.parquet"
    storage.put_if_absent(f"fr/{name}", b"")
    assert listing_differences(storage, timeline) == ["partition fr has files, but the metadata table does not list it"]


def clean(storage: Storage, names: tuple[str, ...]) -> Instant:
    with transaction(storage, new_process()) as running:
        waiting = running.schedule("clean", running.new_time(), b"")
        running.start(waiting)
        return running.complete_clean(CleanMetadata(waiting.requested, 0, "", "", "", {"nl": names}).encode())


def test_a_clean_tells_of_no_file_that_was_gone_when_the_metadata_table_was_made(tmp_path: Path) -> None:
    storage = written(tmp_path)
    listed = next(iter(metadata_listing(storage, Timeline.load(storage))["nl"]))
    cleaned = clean(storage, ("never_listed.parquet", listed))
    (log,) = (tmp_path / METADATA / "files").glob(f"*_{cleaned.requested}_*")
    name = parse_file_name(log.name)
    assert isinstance(name, LogFileName)
    (logged,) = decode_log(log.read_bytes(), name, log.name)
    assert logged.records == {"nl": FilesRecord({listed: MetadataFileInfo(0, is_deleted=True)})}
    cleaned = clean(storage, ("never_listed.parquet",))
    (log,) = (tmp_path / METADATA / "files").glob(f"*_{cleaned.requested}_*")
    assert b"never_listed" not in log.read_bytes()


def test_no_tombstone_outlives_a_compaction(tmp_path: Path) -> None:
    storage = written(tmp_path)
    newest = Timeline.load(storage).completed_writes[-1].requested
    (log,) = (tmp_path / METADATA / "files").glob(f"*_{newest}_*")
    records = {"nl": FilesRecord({"never_listed.parquet": MetadataFileInfo(0, is_deleted=True)})}
    log.write_bytes(encode_log(records, log_name(FILE_GROUP, newest, native=True), 1))
    write(storage, 1, {"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 1})
    *_, base = sorted(path for path in (tmp_path / METADATA / "files").iterdir() if ".log." not in path.name)
    assert len(decode_base(base.read_bytes(), base.name)["nl"].files) == 1


@pytest.mark.parametrize("lost", [METADATA_TABLE, f"{METADATA_TABLE}/{PROPERTIES_PATH}"])
def test_one_that_the_properties_name_and_that_is_missing_is_no_empty_table(tmp_path: Path, lost: str) -> None:
    storage = written(tmp_path)
    before = folder_listing(storage, Timeline.load(storage))
    assert before
    path = tmp_path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(CorruptFileError, match=r"hoodie\.properties: drop the metadata table"):
        metadata_listing(storage, Timeline.load(storage))
    assert metadata_files(storage, 2) is None
    write(storage, 3)
    assert_settled(tmp_path)


def test_the_history_of_the_metadata_table_is_read_once_by_an_open_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few files are as many: the logs of column_stats are merged once there are twenty, and those before are archived.
    monkeypatch.setattr(services, "_LARGE_BASE", 0)
    options = OPTIONS | EVERY_SECOND | {"hoodie.metadata.index.column.stats.enable": True}
    table = LsmTable.create(tmp_path, pa.schema([("id", pa.string()), ("n", pa.int64())]), options)
    for number in range(46):
        table.upsert(pa.table({"id": ["a"], "n": [number]}))
    watched = FaultyStorage(table.storage)
    data, history = Timeline.load(watched), f"{METADATA}/.hoodie/timeline/history/"
    files = [("", name) for name in folder_listing(table.storage, data)[""] if ".log." in name]
    reads = []
    for _ in range(3):
        before = len(watched.calls)
        assert column_ranges(watched, data, files, ["n"])
        data = Timeline.load(watched, previous=data)
        reads.append([path for _, path in watched.calls[before:] if path.startswith(history) and "parquet" in path])
    assert reads[0]
    assert reads[1:] == [[], []]


@pytest.mark.parametrize("version", [9, 10])
def test_a_data_file_that_is_lost_and_listed_is_named(tmp_path: Path, version: int) -> None:
    options = OPTIONS | EVERY_SECOND | {"hoodie.write.table.version": version}
    table = LsmTable.create(tmp_path, pa.schema([("id", pa.string()), ("n", pa.int64())]), options)
    table.upsert(pa.table({"id": ["a"], "n": [1]}))
    (log,) = table.file_slices()[0].logs
    (tmp_path / log.path).unlink()
    with pytest.raises(CorruptFileError, match=f"{log.path}: the file is missing though its instant is completed"):
        LsmTable(tmp_path, options).scan().to_arrow()
