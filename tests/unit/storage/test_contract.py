"""What every storage promises: the local disk, the memory of the process, and a server of S3."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.uris import open_storage

RACERS = 100


def test_put_if_absent_creates_parents_and_the_file(storage: Storage) -> None:
    storage.put_if_absent("a/b/c", b"bytes")
    assert storage.read("a/b/c") == b"bytes"


def test_put_if_absent_never_changes_a_file_that_is_there(storage: Storage) -> None:
    storage.put_if_absent("f", b"first")
    with pytest.raises(FileExistsError):
        storage.put_if_absent("f", b"second")
    assert storage.read("f") == b"first"
    assert [entry.name for entry in storage.list("")] == ["f"]


def test_put_all_if_absent_creates_all_files_and_changes_none_that_is_there(storage: Storage) -> None:
    files = {f"a/{number % 3}/f{number}": b"x" * number for number in range(40)}
    storage.put_all_if_absent(files)
    assert {entry.path: storage.read(entry.path) for entry in storage.walk("a")} == files
    storage.put_all_if_absent({})
    with pytest.raises(FileExistsError):
        storage.put_all_if_absent({"a/0/new": b"new", "a/1/f1": b"other"})
    assert storage.read("a/1/f1") == b"x"


def racing(storage: Storage, attempt: Callable[[Storage, int], bool]) -> list[int]:
    """Numbers of the attempts that were successful, of a hundred at once, each with a storage of its own."""
    winners: list[int] = []
    barrier = threading.Barrier(RACERS)

    def race(number: int) -> None:
        own = open_storage(storage.uri)
        barrier.wait()
        if attempt(own, number):
            winners.append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return winners


def creates(storage: Storage, number: int) -> bool:
    try:
        storage.put_if_absent("folder/f", b"%d" % number)
    except FileExistsError:
        return False
    return True


def test_of_a_hundred_racing_creates_exactly_one_wins(storage: Storage) -> None:
    (winner,) = racing(storage, creates)
    assert storage.read("folder/f") == b"%d" % winner


def test_of_a_hundred_racing_creates_of_a_vacated_path_exactly_one_wins(storage: Storage) -> None:
    storage.put_if_absent("folder/f", b"before")
    assert storage.delete_if_unchanged("folder/f", b"before", reused=True)
    (winner,) = racing(storage, creates)
    assert storage.read("folder/f") == b"%d" % winner


def test_of_a_hundred_racing_creates_of_an_empty_file_exactly_one_wins(storage: Storage) -> None:
    def create(own: Storage, number: int) -> bool:
        try:
            own.put_if_absent("f", b"")
        except FileExistsError:
            return False
        return True

    assert len(racing(storage, create)) == 1


def test_of_a_hundred_racing_swaps_exactly_one_wins(storage: Storage) -> None:
    storage.put_if_absent("f", b"old")
    (winner,) = racing(storage, lambda own, number: own.replace_if_unchanged("f", b"%d" % number, b"old"))
    assert storage.read("f") == b"%d" % winner


def test_of_a_hundred_racing_deletions_exactly_one_wins(storage: Storage) -> None:
    storage.put_if_absent("f", b"old")
    assert len(racing(storage, lambda own, number: own.delete_if_unchanged("f", b"old", reused=number % 2 == 0))) == 1
    assert (storage.exists("f"), storage.names("")) == (False, [])


def test_replace_if_unchanged_changes_a_file_of_the_expected_content_only(storage: Storage) -> None:
    assert not storage.replace_if_unchanged("f", b"new", b"")
    storage.put_if_absent("f", b"old")
    assert not storage.replace_if_unchanged("f", b"new", b"other")
    assert storage.read("f") == b"old"
    assert storage.replace_if_unchanged("f", b"new", b"old")
    assert not storage.replace_if_unchanged("f", b"newer", b"old")
    assert storage.read("f") == b"new"


@pytest.mark.parametrize("reused", [False, True])
def test_a_file_that_was_deleted_by_comparison_is_absent_in_every_way(storage: Storage, reused: bool) -> None:
    storage.put_if_absent("a/f", b"content")
    storage.put_if_absent("a/g", b"other")
    assert not storage.delete_if_unchanged("a/f", b"other", reused=reused)
    assert storage.read("a/f") == b"content"
    assert storage.delete_if_unchanged("a/f", b"content", reused=reused)
    for missing in (storage.read, storage.touch, storage.open_input):
        with pytest.raises(FileNotFoundError):
            missing("a/f")
    assert not storage.exists("a/f")
    assert not storage.replace_if_unchanged("a/f", b"new", b"content")
    assert not storage.delete_if_unchanged("a/f", b"content", reused=reused)
    assert (storage.names("a"), [entry.path for entry in storage.walk("")]) == (["g"], ["a/g"])
    storage.put_if_absent("a/f", b"again")
    assert open_storage(storage.uri).read("a/f") == b"again"


def test_a_path_is_locked_and_released_many_times(storage: Storage) -> None:
    other = open_storage(storage.uri)
    for turn in range(4):
        content = b"%d" % turn
        storage.put_if_absent("lock", content)
        with pytest.raises(FileExistsError):
            other.put_if_absent("lock", b"other")
        storage.touch("lock")
        assert other.read("lock") == content
        assert storage.delete_if_unchanged("lock", content, reused=True)
        other.put_if_absent("lock", b"other")
        assert not storage.delete_if_unchanged("lock", content, reused=True)
        assert other.delete_if_unchanged("lock", b"other", reused=True)


def test_a_lock_that_another_one_took_after_its_release_can_be_renewed_by_any(storage: Storage) -> None:
    storage.put_if_absent("lock", b"mine")
    assert storage.delete_if_unchanged("lock", b"mine", reused=True)
    open_storage(storage.uri).put_if_absent("lock", b"other")
    storage.touch("lock")
    assert storage.read("lock") == b"other"


def test_an_empty_file_is_deleted_if_it_is_empty(storage: Storage) -> None:
    storage.put_if_absent("empty", b"")
    storage.put_if_absent("full", b"x")
    assert storage.delete_if_unchanged("empty", b"")
    assert not storage.delete_if_unchanged("full", b"")
    assert not storage.delete_if_unchanged("missing", b"")
    assert storage.names("") == ["full"]


@pytest.mark.parametrize("reused", [False, True])
def test_many_files_are_deleted_by_comparison(storage: Storage, reused: bool) -> None:
    for name in ("same", "other", "apart"):
        storage.put_if_absent(f"a/{name}", name.encode())
    storage.delete_all_if_unchanged("a", {"same": b"same", "other": b"before", "missing": b"x"}, reused=reused)
    assert storage.names("a") == ["apart", "other"]
    storage.delete_all_if_unchanged("missing", {"same": b"same"}, reused=reused)
    for name in ("", "..", "b/same"):
        with pytest.raises(ValueError, match=r"is not a (path|name)"):
            storage.delete_all_if_unchanged("a", {name: b""})


def test_what_a_vacated_path_leaves_is_replaced_if_nothing_was_created_since(storage: Storage) -> None:
    storage.put_if_absent("lock", b"first")
    assert storage.vacate("lock", b"other") is None
    trace = storage.vacate("lock", b"first")
    assert trace is not None
    assert not storage.exists("lock")
    assert bool(trace) is not storage.is_file_system
    if trace:
        assert storage.replace_if_unchanged("lock", b"second", trace)
        assert storage.read("lock") == b"second"
        again = storage.vacate("lock", b"second")
        assert again not in (None, trace)
        other = open_storage(storage.uri)
        other.put_if_absent("lock", b"third")
        assert other.vacate("lock", b"third")
        assert not storage.replace_if_unchanged("lock", b"fourth", again or b"")
        assert not storage.exists("lock")


def test_files_are_deleted_together_whether_they_are_there_or_not(storage: Storage) -> None:
    for path in ("a/f", "a/b/g", "h", "kept"):
        storage.put_if_absent(path, b"x")
    storage.delete_files(path for path in ("a/f", "missing", "a/b/g", "h"))
    assert [entry.path for entry in storage.walk("")] == ["kept"]
    storage.delete_files(())
    with pytest.raises(ValueError, match=r"\.\."):
        storage.delete_files(["../f"])


def test_touch_renews_the_time_of_modification_and_keeps_the_content(storage: Storage) -> None:
    storage.put_if_absent("f", b"content")
    before = storage.list("")[0].modified_ms
    for _ in range(30):
        time.sleep(0.1)
        storage.touch("f")
        if storage.list("")[0].modified_ms > before:
            break
    assert storage.list("")[0].modified_ms > before
    assert storage.read("f") == b"content"


def test_a_listing_has_files_with_sizes_and_folders(storage: Storage) -> None:
    for name in ("b", "a", ".hidden", "sub/f"):
        storage.put_if_absent(f"folder/{name}", b"xyz")
    entries = storage.list("folder")
    assert [(entry.path, entry.size, entry.is_dir) for entry in entries] == [
        ("folder/.hidden", 3, False),
        ("folder/a", 3, False),
        ("folder/b", 3, False),
        ("folder/sub", 0, True),
    ]
    now_ms = time.time() * 1000
    assert all(entry.is_dir or abs(entry.modified_ms - now_ms) < 600_000 for entry in entries)
    assert storage.names("folder") == [".hidden", "a", "b", "sub"]
    assert storage.folders("folder") == ["sub"]
    assert (storage.names("missing"), storage.list("missing"), storage.folders("missing")) == ([], [], [])


@pytest.mark.parametrize(
    "name", ["sp ace", "per%cent", "%20", "dt=1", "gr\u00f6\u00dfe", " ", "a:b", "a#b?c", "~*'\"<>&+;=@,"]
)
def test_a_name_is_kept_as_it_is(storage: Storage, name: str) -> None:
    storage.put_if_absent(f"{name}/{name}", b"bytes")
    assert [entry.path for entry in storage.walk("")] == [f"{name}/{name}"]
    assert storage.folders("") == storage.names(name) == [name]
    assert storage.read(f"{name}/{name}") == b"bytes"
    below = open_storage(storage.uri + "/" + quote(name))
    assert below.read(name) == b"bytes"
    assert open_storage(below.uri).uri == below.uri


def test_a_folder_is_there_while_a_file_is_below_it(storage: Storage) -> None:
    storage.put_if_absent("a/b/f", b"x")
    assert [storage.exists(path) for path in ("", "a", "a/b", "a/b/f", "a/b/f/g", "a/bb")] == [True] * 4 + [False] * 2
    storage.delete_empty_folder("a/b")
    assert storage.read("a/b/f") == b"x"
    assert storage.sweep("a") == 0


def test_a_file_that_is_larger_than_asked_for_is_not_read(storage: Storage) -> None:
    storage.put_if_absent("f", b"123456")
    assert storage.read("f", 6) == b"123456"
    with pytest.raises(CorruptFileError, match="6 bytes, 5 at most"):
        storage.read("f", 5)


def test_what_a_writer_says_of_its_position_is_true(storage: Storage) -> None:
    with storage.create("p/f") as file:
        for size in (3, 0, 7 << 20, 5 << 20):
            before = file.tell()
            assert file.write(bytes(size)) == size
            assert file.tell() == before + size
    assert storage.list("p")[0].size == 3 + (12 << 20)


def test_replace_overwrites_whole_files(storage: Storage) -> None:
    storage.replace("f", b"a long first text")
    storage.replace("f", b"short")
    assert storage.read("f") == b"short"


def test_create_refuses_a_file_that_is_there(storage: Storage) -> None:
    storage.put_if_absent("f", b"first")
    with pytest.raises(FileExistsError), storage.create("f"):
        pass
    assert storage.read("f") == b"first"


def test_create_removes_the_file_when_its_writer_fails(storage: Storage) -> None:
    def fail() -> None:
        with storage.create("f") as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not storage.exists("f")


def test_create_accepts_a_writer_that_closes_the_file(storage: Storage) -> None:
    with storage.create("f") as file:
        file.write(b"bytes")
        file.close()
    assert storage.read("f") == b"bytes"


def test_missing_files_are_told_apart_from_empty_ones(storage: Storage) -> None:
    storage.put_if_absent("empty", b"")
    assert storage.read("empty") == b""
    for missing in (storage.read, storage.touch, storage.open_input):
        with pytest.raises(FileNotFoundError):
            missing("missing")
    assert not storage.exists("missing")


def test_walk_yields_files_at_every_depth(storage: Storage) -> None:
    for path in ("x/2/f", "x/1/f", "x/f", "y/f"):
        storage.put_if_absent(path, b"")
    assert [entry.path for entry in storage.walk("x")] == ["x/1/f", "x/2/f", "x/f"]
    assert len(list(storage.walk(""))) == 4
    assert list(storage.walk("missing")) == []


def test_delete_bears_the_absence_of_the_file(storage: Storage) -> None:
    storage.put_if_absent("f", b"")
    for path in ("f", "f", "no/folder/f"):
        storage.delete(path)
    assert not storage.exists("f")


def test_delete_folder_takes_all_below_it_and_bears_its_absence(storage: Storage) -> None:
    storage.put_if_absent("a/b/f", b"")
    storage.put_if_absent("c", b"")
    storage.delete_folder("a")
    storage.delete_folder("a")
    assert [entry.path for entry in storage.walk("")] == ["c"]


def test_the_root_itself_cannot_be_deleted(storage: Storage) -> None:
    storage.put_if_absent("a/f", b"x")
    for delete in (storage.delete_folder, storage.delete_empty_folder):
        with pytest.raises(ValueError, match="root"):
            delete("")
    assert storage.exists("a")


def test_open_input_reads_at_any_position(storage: Storage) -> None:
    storage.put_if_absent("f", b"0123456789")
    with storage.open_input("f") as file:
        file.seek(7)
        assert file.read(2) == b"78"


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x", "a//b", "./a", "a/", "a\0b", "a/."])
def test_paths_that_are_not_plainly_inside_are_refused(storage: Storage, path: str) -> None:
    for method in (storage.read, storage.delete, storage.delete_folder, storage.make_folder, storage.exists):
        with pytest.raises(ValueError, match="not a path inside"):
            method(path)
    with pytest.raises(ValueError, match="not a path inside"):
        storage.put_if_absent(path, b"")


def test_a_storage_survives_pickling(storage: Storage) -> None:
    storage.put_if_absent("f", b"bytes")
    assert pickle.loads(pickle.dumps(storage)).read("f") == b"bytes"
