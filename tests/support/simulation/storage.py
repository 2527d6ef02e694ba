"""The storage as one simulated process has it: each call is a step, at which something may happen."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, Protocol, TypeVar

import pyarrow as pa

from streaming_lsm.storage.base import METADATA_BYTES, FileEntry, Listing, Names
from tests.support.faulty_storage import Killed
from tests.support.memory_storage import MemoryStorage, NewFile
from tests.support.simulation.schedule import Event, Kind

T = TypeVar("T")
INJECTED = "injected"


class Caller(Protocol):
    """The process that makes the calls."""

    def begin_call(self, method: str, path: str) -> Event | None:
        """Let the time of the call pass, and return what happens at it."""
        ...

    def befall(self, event: Event, *, is_over: bool) -> None:
        """Let an event happen, if it is of this side of the effect."""
        ...

    def end_call(self, method: str, path: str, answer: object, data: bytes | None) -> None:
        """The call has taken effect, or was refused."""
        ...

    def tear(self) -> float:
        """Which part of a file has reached the disk when the process dies."""
        ...


class SimulatedStorage:
    """Delegates to a storage in memory, call by call, as steps of a process."""

    def __init__(self, inner: MemoryStorage, caller: Caller) -> None:
        self._inner = inner
        self._caller = caller

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def is_file_system(self) -> bool:
        return self._inner.is_file_system

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        return self._call("read", path, lambda: self._inner.read(path, most))

    def exists(self, path: str) -> bool:
        return self._call("exists", path, lambda: self._inner.exists(path))

    def list(self, folder: str) -> Listing:
        return self._call("list", folder, lambda: self._inner.list(folder))

    def names(self, folder: str) -> Names:
        return self._call("names", folder, lambda: self._inner.names(folder))

    def folders(self, folder: str) -> Names:
        return self._call("folders", folder, lambda: self._inner.folders(folder))

    def walk(self, folder: str) -> Iterator[FileEntry]:
        for entry in self.list(folder):
            if entry.is_dir:
                yield from self.walk(entry.path)
            else:
                yield entry

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._call("put_if_absent", path, lambda: self._inner.put_if_absent(path, data), data)

    def put_all_if_absent(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self.put_if_absent(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._call("replace", path, lambda: self._inner.replace(path, data), data)

    def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
        return self._call(
            "replace_if_unchanged", path, lambda: self._inner.replace_if_unchanged(path, data, expected), data
        )

    def delete_if_unchanged(self, path: str, expected: bytes, *, reused: bool = False) -> bool:
        return self._call("delete_if_unchanged", path, lambda: self._inner.delete_if_unchanged(path, expected))

    def vacate(self, path: str, expected: bytes) -> bytes | None:
        return self._call("vacate", path, lambda: self._inner.vacate(path, expected))

    def delete_all_if_unchanged(self, folder: str, expected: Mapping[str, bytes], *, reused: bool = False) -> None:
        for name, data in expected.items():
            path = f"{folder}/{name}"
            self._call("delete_all_if_unchanged", path, partial(self._inner.delete_if_unchanged, path, data))

    def delete_if_unmodified(self, path: str, modified_ms: int) -> bool:
        effect = partial(self._inner.delete_if_unmodified, path, modified_ms)
        return self._call("delete_if_unmodified", path, effect)

    def touch(self, path: str) -> None:
        self._call("touch", path, lambda: self._inner.touch(path))

    def delete(self, path: str) -> None:
        self._call("delete", path, lambda: self._inner.delete(path))

    def delete_files(self, paths: Iterable[str]) -> None:
        files = tuple(paths)
        if self._inner.is_file_system:  # which deletes one after the other
            for path in files:
                self._call("delete_files", path, partial(self._inner.delete, path))
        else:
            self._call("delete_files", next(iter(files), ""), lambda: self._inner.delete_files(files))

    def delete_folder(self, path: str) -> None:
        if not self.is_file_system:
            for entry in self._call("walk", path, lambda: [*self._inner.walk(path)]):
                self._call("delete_folder", entry.path, partial(self._inner.delete, entry.path))
            return
        # One step for each file, as on a disk: others see a half of it, or create files in between.
        while True:
            for entry in self._inner.walk(path):
                self._call("delete_folder", entry.path, partial(self._inner.delete, entry.path))
            if self._call("delete_folder", path, lambda: self._delete_folders(path)):
                return

    def _delete_folders(self, path: str) -> bool:
        if any(True for _ in self._inner.walk(path)):
            return False
        self._inner.delete_folder(path)
        return True

    def delete_empty_folder(self, path: str) -> None:
        self._call("delete_empty_folder", path, lambda: self._inner.delete_empty_folder(path))

    def make_folder(self, path: str) -> None:
        self._call("make_folder", path, lambda: self._inner.make_folder(path))

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        opened: list[NewFile] = []
        try:
            self._call("create", path, lambda: opened.append(self._inner.begin(path)))
            yield opened[0].buffer
            self._close(path, opened[0])
        except Exception:
            # As the local storage does; the dead delete nothing.
            if opened:
                opened[0].discard()
            raise

    def _close(self, path: str, file: NewFile) -> None:
        data = file.buffer.getvalue()
        try:
            self._call("close", path, file.finish, data)
        except Killed:
            if not file.is_finished:
                file.tear(int(len(data) * self._caller.tear()))
            raise

    def open_input(self, path: str) -> pa.NativeFile:
        return self._call("open_input", path, lambda: self._inner.open_input(path))

    def sweep(self, folder: str) -> int:
        return self._call("sweep", folder, lambda: self._inner.sweep(folder))

    def _call(self, method: str, path: str, effect: Callable[[], T], data: bytes | None = None) -> T:
        caller = self._caller
        event = caller.begin_call(method, path)
        if event is not None:
            caller.befall(event, is_over=False)
        try:
            result = effect()
        except Exception as error:
            caller.end_call(method, path, error, data)
            raise
        caller.end_call(method, path, result, data)
        if event is not None:
            caller.befall(event, is_over=True)
            if event.kind is Kind.FAIL_AFTER:
                raise failure(event, path)
        return result


def failure(event: Event, path: str) -> OSError:
    """The error of a call that fails."""
    return OSError(errno.EIO, f"{INJECTED}: {event.kind.value}", path)
