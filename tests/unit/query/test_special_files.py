"""Links, named pipes and other special files in a table: refused by name, never followed and never waited for."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.metadata.listing import folder_listing
from tests.support.small_tables import OPTIONS, create, rows, shown

ROW = ("a", "nl", 1, 1)

Use = Callable[[LsmTable], object]
USES: dict[str, Use] = {
    "snapshot": shown,
    "read optimised": lambda table: shown(table, query_type="read_optimized"),
    "time travel": lambda table: shown(table, as_of=table.timeline.completed_writes[0].requested),
    "incremental": lambda table: table.incremental("000").to_arrow(),
    "changes": lambda table: table.changes("000").to_arrow(),
    "history": lambda table: table.history("a"),
    "write": lambda table: table.upsert(rows(ROW)),
    "compaction": lambda table: table.compact(),
    "clean": lambda table: table.clean(),
    "metadata listing": lambda table: folder_listing(table.storage, table.timeline),
}


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """End a test that waits for a named pipe."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError("still waiting after 20 s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def table_at(root: Path) -> Path:
    """A table of two log files; the path of the newer one."""
    table = create(root)
    table.upsert(rows(ROW))
    table.upsert(rows(("a", "nl", 2, 2)))
    return max((root / "nl").glob("*.log.parquet"))


def link_file(root: Path) -> str:
    log = table_at(root)
    # Another version of the same log: without the check its rows are read twice.
    link = log.with_name(log.name.replace("_1.log", "_2.log"))
    link.symlink_to(log)
    return f"nl/{link.name} in .* is a symbolic link"


def link_folder(root: Path) -> str:
    table_at(root)
    (root / "copy").symlink_to(root / "nl")
    return "copy in .* is a symbolic link"


def link_loop(root: Path) -> str:
    table_at(root)
    for name in ("x", "y"):
        (root / "nl" / name).symlink_to(root / "nl")
    return "nl/x in .* is a symbolic link"


def named_pipe(root: Path) -> str:
    log = table_at(root)
    pipe = log.with_name(log.name.replace("_1.log", "_2.log"))
    os.mkfifo(pipe)
    return f"nl/{pipe.name} in .* is a named pipe"


@pytest.mark.parametrize("make", [link_file, link_folder, link_loop, named_pipe])
@pytest.mark.parametrize("use", USES)
def test_what_could_be_taken_for_data_is_refused_by_name(tmp_path: Path, make: Callable[[Path], str], use: str) -> None:
    message = make(tmp_path)

    with pytest.raises(UnsupportedTable, match=f"{message}.*remove it"):
        USES[use](LsmTable(tmp_path, {"lsm.read.threads": 1}))


def test_a_named_pipe_on_the_timeline_is_refused_by_name(tmp_path: Path) -> None:
    table_at(tmp_path)
    commit = LsmTable(tmp_path).timeline.completed_writes[-1].path
    (tmp_path / commit).unlink()
    os.mkfifo(tmp_path / commit)

    with pytest.raises(UnsupportedTable, match=f"{commit} is a named pipe"):
        shown(LsmTable(tmp_path))


def test_links_and_pipes_that_stand_for_no_data_are_left_alone(tmp_path: Path) -> None:
    table_at(tmp_path)
    (tmp_path / "NOTES").symlink_to(tmp_path / "missing")
    os.mkfifo(tmp_path / "nl/queue")

    assert shown(LsmTable(tmp_path)) == [("a", "nl", 2, 2)]


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    # The path of a socket is limited to 107 bytes.
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def put_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def put_folder(path: Path) -> None:
    path.mkdir()


WRITES: dict[str, Use] = {
    "write": USES["write"],
    "compaction": USES["compaction"],
    "clean": USES["clean"],
    "version change": lambda table: table.change_version(9),
}


@pytest.mark.parametrize(("put", "kind"), [(put_pipe, "named pipe"), (put_socket, "socket")])
@pytest.mark.parametrize("use", WRITES)
def test_a_lock_that_is_a_special_file_is_refused_by_name(
    tmp_path: Path, put: Callable[[Path], None], kind: str, use: str
) -> None:
    table_at(tmp_path)
    put(tmp_path / ".hoodie/lock")

    with pytest.raises(UnsupportedTable, match=rf"\.hoodie/lock is a {kind}.*remove it"):
        WRITES[use](LsmTable(tmp_path))
    (tmp_path / ".hoodie/lock").unlink()
    WRITES[use](LsmTable(tmp_path))


@pytest.mark.parametrize("folder", [".hoodie", ".hoodie/timeline", "nl"])
@pytest.mark.parametrize("put", [put_pipe, put_socket, put_link_to_itself, put_folder])
def test_special_files_that_are_named_like_temporary_files_are_left_alone(
    tmp_path: Path, put: Callable[[Path], None], folder: str
) -> None:
    table_at(tmp_path)
    odd = tmp_path / folder / f".{'0' * 32}.lsm-tmp"
    put(odd)

    for use in WRITES.values():
        use(LsmTable(tmp_path))
    LsmTable(tmp_path).storage.sweep(folder)
    assert os.path.lexists(odd)
    assert shown(LsmTable(tmp_path)) == [("a", "nl", 2, 2)]


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "there")
    create(tmp_path / "here").upsert(rows(ROW))

    assert shown(LsmTable(tmp_path / "here", OPTIONS)) == [ROW]
