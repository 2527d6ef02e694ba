"""Which history files are merged, what is held of them, and how the newest history is found while others archive."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.history import ArchivedInstant, HistoryFile, Manifest
from streaming_lsm.storage.base import METADATA_BYTES
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.archive import HISTORY_FOLDER, VERSION_PATH, History, KnownHistory
from streaming_lsm.timeline.archiving import HistoryWriter, NewFile, mergeable

MIB = 1 << 20


def history_of(root: Path, *sizes: tuple[int, int]) -> History:
    """A history whose manifest names files of these levels and sizes, the oldest first; the files are not there."""
    names = [HistoryFile.name_of(f"{20 + 2 * n}", f"{21 + 2 * n}", level) for n, (level, _) in enumerate(sizes)]
    files = tuple(HistoryFile.of(name, size) for name, (_, size) in zip(names, sizes, strict=True))
    storage = LocalStorage(root)
    storage.put_if_absent(f"{HISTORY_FOLDER}/manifest_1", Manifest(files).encode())
    return History(storage)


def test_a_large_file_does_not_keep_those_after_it_from_being_merged(tmp_path: Path) -> None:
    history = history_of(tmp_path, (0, 31 * MIB), *[(0, 2 * MIB)] * 12)
    assert mergeable(history) == history.manifest.files[1:11]


def test_files_that_are_merged_have_no_other_file_between_them(tmp_path: Path) -> None:
    """A merged file whose range covers a younger one would be taken for older than what it has."""
    history = history_of(tmp_path, *[(0, MIB)] * 5, (0, 40 * MIB), *[(0, MIB)] * 4, (1, MIB), *[(0, MIB)] * 4)
    assert mergeable(history) == ()


def test_large_files_are_merged_as_far_as_they_fit(tmp_path: Path) -> None:
    history = history_of(tmp_path, *[(0, 20 * MIB)] * 2, *[(0, 9 * MIB)] * 9)
    assert mergeable(history) == history.manifest.files[1:3]
    assert mergeable(history_of(tmp_path / "large", *[(0, 20 * MIB)] * 20)) == ()


def archive(writer: HistoryWriter, begin: int, end: int, content: bytes = b"x") -> History:
    """Archive delta commits of these times."""
    times = [f"{20200101000000000 + number}" for number in range(begin, end)]
    return writer.add(writer.newest(), NewFile.of([ArchivedInstant(t, t, "deltacommit", content, None) for t in times]))


def test_commits_of_megabytes_are_in_row_groups_of_their_own(tmp_path: Path) -> None:
    writer = HistoryWriter(LocalStorage(tmp_path), lambda: None)
    for number in range(10):
        history = archive(writer, 3 * number, 3 * number + 3, b"%03d" % number * 2 * MIB)
    files = mergeable(history)
    merged = writer.add(history, NewFile.merged(history, files), merged=files)
    (file,) = merged.manifest.files
    metadata = pq.ParquetFile(tmp_path / HISTORY_FOLDER / file.name).metadata
    assert metadata.num_row_groups == 30
    assert merged.content(merged.writes()["20200101000000016"]) == b"005" * 2 * MIB


def test_a_long_lived_reader_forgets_files_that_were_merged(tmp_path: Path) -> None:
    writer, known = HistoryWriter(LocalStorage(tmp_path), lambda: None), KnownHistory()
    for number in range(60):
        history = archive(writer, 2 * number, 2 * number + 2)
        if files := mergeable(history):
            history = writer.add(history, NewFile.merged(history, files), merged=files)
            writer.delete_old_manifests(history)
        assert len(History(LocalStorage(tmp_path), known=known).writes()) == 2 * number + 2
        assert len(known.files) == len(history.manifest.files) < 20


class ArchivedBetween(LocalStorage):
    """A table that others archive before its first manifest is read."""

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        if path.endswith("manifest_1"):
            writer = HistoryWriter(LocalStorage(Path(self.uri.removeprefix("file://"))), lambda: None)
            for number in range(1, 6):
                history = archive(writer, 10 * number, 10 * number + 1)
            writer.delete_old_manifests(history)
        return super().read(path, most)


def test_a_manifest_that_is_deleted_before_it_is_read_is_an_old_one(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    archive(HistoryWriter(storage, lambda: None), 1, 2)
    assert History(ArchivedBetween(tmp_path)).number == 6
    (tmp_path / HISTORY_FOLDER / "manifest_6").unlink()
    with pytest.raises(CorruptFileError, match=r"manifest_6 in .* is gone"):
        _ = History(storage).number


@pytest.mark.parametrize("text", [b"", b"\0" * 3, b"-1", b"1_0", b"9" * 300])
def test_the_newest_manifest_is_the_largest_one_if_the_version_is_no_number(tmp_path: Path, text: bytes) -> None:
    """Hudi creates ``_version_`` and then writes it; its readers list the manifests if it cannot be parsed."""
    storage = LocalStorage(tmp_path)
    for number in range(1, 4):
        archive(HistoryWriter(storage, lambda: None), number, number + 1)
    (tmp_path / VERSION_PATH).write_bytes(text)
    assert History(storage).number == 3
    archive(HistoryWriter(storage, lambda: None), 4, 5)
    assert (tmp_path / VERSION_PATH).read_text() == "4"
    assert len(History(storage).writes()) == 4


@pytest.mark.parametrize("text", [b"1", b"3"])
def test_the_newest_manifest_is_the_largest_one_if_the_version_names_an_old_one_that_is_gone(
    tmp_path: Path, text: bytes
) -> None:
    """A torn write has left the first digit of 12 or so."""
    storage = LocalStorage(tmp_path)
    for number in range(1, 6):
        archive(HistoryWriter(storage, lambda: None), number, number + 1)
    for number in range(1, 4):
        (tmp_path / HISTORY_FOLDER / f"manifest_{number}").unlink()
    (tmp_path / VERSION_PATH).write_bytes(text)
    assert History(storage).number == 5
    archive(HistoryWriter(storage, lambda: None), 6, 7)
    assert (tmp_path / VERSION_PATH).read_text() == "6"
    (tmp_path / VERSION_PATH).write_bytes(b"66")
    with pytest.raises(CorruptFileError, match=r"manifest_66 in .* is gone.*_version_.*, if that is damaged"):
        _ = History(storage).number


def test_the_newest_clean_is_found_though_it_was_archived_before_writes_beside_it(tmp_path: Path) -> None:
    writer = HistoryWriter(LocalStorage(tmp_path), lambda: None)

    def add(*actions: tuple[int, str]) -> History:
        found = [ArchivedInstant(f"{2020 + time}", f"{2020 + time}", action, b"x", None) for time, action in actions]
        return writer.add(writer.newest(), NewFile.of(found))

    add((4, "clean"), (6, "clean"))
    history = add((1, "deltacommit"), (5, "commit"), (7, "deltacommit"), (8, "clean"), (9, "deltacommit"))
    newest = history.newest_clean()
    assert newest is not None
    assert newest.requested == "2028"
    assert add((10, "rollback"), (11, "rollback")).last_compaction() == "2025"
    assert history.newest_clean() == newest
