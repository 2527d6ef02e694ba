"""Record the file-system operations that this process makes below a folder.

The calls of ``os`` that change files or make them durable are replaced while a recording runs, and the storage's own
class of open files. Arrow writes through these: the storage gives it no path. Other ways to change a file are errors if
they go through ``os``; the rest is found by comparing, at each fsync and at the end, the tree that the recording says
with the one that is there, byte by byte.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming_lsm.storage import local
from streaming_lsm.storage.local_files import NamedFile, durable_folders
from tests.faults.power_loss.disk import ROOT, Disk, read_tree
from tests.faults.power_loss.operations import Enter, Leave, Move, Operation, Returned, SyncFile, SyncFolder, Write
from tests.support.faulty_storage import Killed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_CREATING = os.O_CREAT | os.O_TRUNC
_NOT_MODELLED = ("truncate", "ftruncate", "symlink", "mkfifo", "mknod", "pwrite", "pwritev", "writev", "sendfile",
                 "copy_file_range", "posix_fallocate", "removedirs", "renames")  # fmt: skip
_Place = tuple[int, str]


@dataclass
class Recording:
    """What was on the disk, all of it durable, and the operations since.

    Attributes:
        start: the disk before.
        operations: in the order in which they were made.
    """

    start: Disk
    operations: list[Operation] = field(default_factory=list)

    def prefixes(self) -> Iterator[tuple[int, Disk]]:
        """The disk before the first operation, and after each; with the number of operations. It is changed later."""
        disk = self.start.copy()
        yield 0, disk
        for number, operation in enumerate(self.operations, 1):
            disk.apply(operation)
            yield number, disk

    def without(self, left_out: Callable[[Operation], bool]) -> Recording:
        """The recording of a program that does not make some of the calls."""
        return Recording(self.start, [operation for operation in self.operations if not left_out(operation)])


class Recorder:
    """Records the operations below a folder, and can kill the recorded process at one of them.

    Attributes:
        recording: what was recorded so far.
    """

    def __init__(self, root: Path) -> None:
        """Read the folder as it is, and take all of it for durable."""
        self._root = root
        self._mutex = threading.RLock()
        self._nodes: dict[tuple[int, int], int] = {}
        self._paths: dict[int, str] = {ROOT: ""}
        self._open: set[int] = set()
        self._kill_at: int | None = None
        self._dead = False
        self.recording = Recording(Disk())
        self._known(os.stat(root), ROOT)
        self._scan(root, ROOT)
        self._now = self.recording.start.copy()
        self.check_complete()

    @contextmanager
    def running(self, kill_at: int | None = None) -> Iterator[None]:
        """Record what this process does in the context.

        Args:
            kill_at: the number of operations, of all that are recorded, after which the process dies: the next one
                raises `Killed`, as do all that follow, none with an effect.
        """
        self._kill_at, self._dead = kill_at, False
        durable_folders.cache_clear()  # as of a process that was just started
        with pytest.MonkeyPatch.context() as patch:
            self._replace_calls(patch)
            yield
        for descriptor in list(self._open):  # the kernel closes the files of the dead
            with suppress(OSError):
                os.close(descriptor)
        self._open.clear()
        self.check_complete()

    def returned(self, value: object = None) -> None:
        """Record that a call of the library has returned."""
        self._record(Returned("", "", value))

    def check_complete(self) -> None:
        """Check that the recording, replayed, gives what is there; raises `AssertionError`."""
        said, there = self._now.visible(), read_tree(self._root)
        different = sorted(path for path in said.keys() | there.keys() if said.get(path, 0) != there.get(path, 0))
        assert different == [], f"not recorded: {different}"

    # --- calls of the system ------------------------------------------------------------------------------------

    def _replace_calls(self, patch: pytest.MonkeyPatch) -> None:
        opened, closed, linked, made = os.open, os.close, os.link, os.mkdir
        written, unlinked, removed, renamed, synced = os.write, os.unlink, os.rmdir, os.rename, os.fsync

        def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            with self._mutex:
                place = self._place(path, dir_fd) if flags & _CREATING else None
                if place is None:
                    return opened(path, flags, mode, dir_fd=dir_fd)
                assert flags & os.O_EXCL, f"{path} may be there already: not modelled"
                self._step()
                descriptor = opened(path, flags, mode, dir_fd=dir_fd)
                self._open.add(descriptor)
                self._entered(place, os.fstat(descriptor))
                return descriptor

        def close(descriptor: int) -> None:
            self._open.discard(descriptor)
            closed(descriptor)

        def write(descriptor: int, data: ReadableBuffer) -> int:
            with self._mutex:
                node = self._node(os.fstat(descriptor))
                if node is not None:
                    self._step()
                count = written(descriptor, data)
                if node is not None:
                    offset = os.lseek(descriptor, 0, os.SEEK_CUR) - count
                    self._record(Write(self._paths[node], _site(), node, offset, bytes(memoryview(data)[:count])))
                return count

        def fsync(descriptor: int) -> None:
            with self._mutex:
                status = os.fstat(descriptor)
                node = self._node(status)
                if node is None:
                    return synced(descriptor)
                self._step()
                synced(descriptor)
                kind = SyncFolder if stat.S_ISDIR(status.st_mode) else SyncFile
                self._record(kind(self._paths[node], _site(), node))
                self.check_complete()

        def link(source: Any, target: Any, **how: Any) -> None:
            with self._mutex:
                place = self._place(target, how.get("dst_dir_fd"))
                if place is not None:
                    self._step()
                linked(source, target, **how)
                if place is not None:
                    self._entered(place, os.lstat(target))

        def rename(source: Any, target: Any, **how: Any) -> None:
            with self._mutex:
                old, new = self._place(source, how.get("src_dir_fd")), self._place(target, how.get("dst_dir_fd"))
                if old is None and new is None:
                    return renamed(source, target, **how)
                node = self._node(os.lstat(source))
                if old is None or new is None or old[0] != new[0] or node is None:
                    raise AssertionError(f"{source} to {target}: not modelled")
                self._step()
                with suppress(FileNotFoundError):
                    self._forget(os.lstat(target))
                renamed(source, target, **how)
                self._paths[node] = self._path(new)
                self._record(Move(self._path(new), _site(), new[0], old[1], new[1], node))

        def unlink(path: Any, *, dir_fd: int | None = None) -> None:
            with self._mutex:
                place = self._place(path, dir_fd)
                if place is None:
                    return unlinked(path, dir_fd=dir_fd)
                self._step()
                status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
                unlinked(path, dir_fd=dir_fd)
                self._forget(status)
                self._record(Leave(self._path(place), _site(), *place))

        def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
            with self._mutex:
                place = self._place(path, dir_fd)
                if place is not None:
                    self._step()
                made(path, mode, dir_fd=dir_fd)
                if place is not None:
                    self._entered(place, os.stat(path, dir_fd=dir_fd))

        def rmdir(path: Any, *, dir_fd: int | None = None) -> None:
            with self._mutex:
                place = self._place(path, dir_fd)
                if place is None:
                    return removed(path, dir_fd=dir_fd)
                self._step()
                status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
                removed(path, dir_fd=dir_fd)
                self._nodes.pop((status.st_dev, status.st_ino), None)
                self._record(Leave(self._path(place), _site(), *place))

        calls: dict[str, Callable[..., Any]] = {
            "open": open_file, "close": close, "write": write, "fsync": fsync, "fdatasync": fsync, "link": link,
            "rename": rename, "replace": rename, "unlink": unlink, "remove": unlink, "mkdir": mkdir, "rmdir": rmdir,
        }  # fmt: skip
        for name, call in calls.items():
            patch.setattr(os, name, call)
        for name in _NOT_MODELLED:
            patch.setattr(os, name, _refuse(name))
        patch.setattr(local, "NamedFile", self._file_class())

    def _file_class(self) -> type[NamedFile]:
        recorder = self

        class RecordedFile(NamedFile):
            def __init__(self, path: str, mode: str) -> None:
                with recorder._mutex:
                    place = recorder._place(path, None)
                    if place is not None:
                        recorder._step()
                    super().__init__(path, mode)
                    if place is not None:
                        recorder._entered(place, os.fstat(self.fileno()))

            def write(self, data: ReadableBuffer, /) -> int:
                with recorder._mutex:
                    node = recorder._node(os.fstat(self.fileno()))
                    if node is not None:
                        recorder._step()
                    offset = self.tell()
                    count = super().write(data)
                    if node is not None:
                        content = bytes(memoryview(data).cast("B")[:count])
                        recorder._record(Write(recorder._paths[node], _site(), node, offset, content))
                    return count

        return RecordedFile

    # --- nodes --------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        if self._dead or len(self.recording.operations) == self._kill_at:
            self._dead = True
            raise Killed

    def _record(self, operation: Operation) -> None:
        self.recording.operations.append(operation)
        self._now.apply(operation)

    def _entered(self, place: _Place, status: os.stat_result) -> None:
        folder, name = place
        is_folder = stat.S_ISDIR(status.st_mode)
        # A linked file is known already; the number of a file that is gone may be used again.
        node = self._node(status) if status.st_nlink > 1 and not is_folder else None
        if node is None:
            node = self._known(status, len(self._paths))
        self._paths[node] = self._path(place)
        self._record(Enter(self._paths[node], _site(), folder, name, node, is_folder))

    def _place(self, path: Any, dir_fd: int | None) -> _Place | None:
        """The folder and the name of a path; None outside of the recorded folder."""
        parent, name = os.path.split(os.fspath(path))
        try:
            folder = os.stat(parent or ".", dir_fd=dir_fd) if parent or dir_fd is None else os.fstat(dir_fd)
        except OSError:
            return None
        node = self._node(folder)
        return None if node is None else (node, name)

    def _path(self, place: _Place) -> str:
        return f"{self._paths[place[0]]}/{place[1]}".lstrip("/")

    def _node(self, status: os.stat_result) -> int | None:
        return self._nodes.get((status.st_dev, status.st_ino))

    def _known(self, status: os.stat_result, node: int) -> int:
        self._nodes[(status.st_dev, status.st_ino)] = node
        return node

    def _forget(self, status: os.stat_result) -> None:
        if status.st_nlink == 1:
            self._nodes.pop((status.st_dev, status.st_ino), None)

    def _scan(self, folder: Path, node: int) -> None:
        start = self.recording.start
        for entry in os.scandir(folder):
            child = self._known(entry.stat(follow_symlinks=False), len(self._paths))
            self._paths[child] = self._path((node, entry.name))
            start.folders[node][entry.name] = child
            if entry.is_dir(follow_symlinks=False):
                start.folders[child] = {}
                self._scan(folder / entry.name, child)
            else:
                start.files[child] = Path(entry.path).read_bytes()


def _refuse(name: str) -> Callable[..., None]:
    def call(*args: object, **how: object) -> None:
        raise AssertionError(f"os.{name}{args}: not modelled")

    return call


def _site() -> str:
    """The outermost method of the local storage that is running."""
    found, frame = "", sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code.co_filename == local.__file__ and not frame.f_code.co_name.startswith("_"):
            found = frame.f_code.co_name
        frame = frame.f_back
    return found
