"""A storage that fails, loses answers or kills its process at numbered calls."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from functools import partial
from typing import BinaryIO, TypeVar

import pyarrow as pa

from streaming_lsm.storage.base import METADATA_BYTES, FileEntry, Listing, Names, Storage

T = TypeVar("T")


class Killed(BaseException):
    """The process is dead. Not an `Exception`: no handler of a live process may survive it."""


class Fault(Enum):
    """What happens at a call."""

    KILL_BEFORE = "the process dies before the effect"
    KILL_AFTER = "the process dies after the effect"
    FAIL_BEFORE = "an I/O error, without the effect"
    FAIL_AFTER = "an I/O error, though it took effect: the answer is lost"

    @property
    def kills(self) -> bool:
        """Whether the process dies."""
        return self in (Fault.KILL_BEFORE, Fault.KILL_AFTER)

    @property
    def takes_effect(self) -> bool:
        """Whether the call is done first."""
        return self in (Fault.KILL_AFTER, Fault.FAIL_AFTER)


class FaultyStorage:
    """Wraps a storage; calls are numbered from 0. After a kill every further call raises `Killed` without effect.

    Attributes:
        calls: name of the method and path of every call so far.
    """

    def __init__(self, inner: Storage, faults: Mapping[int, Fault] | None = None, error: int = errno.EIO) -> None:
        self._inner = inner
        self._faults = dict(faults or {})
        self._error = error
        self._dead = False
        self._abandoned: list[object] = []
        self.calls: list[tuple[str, str]] = []

    def kill(self) -> None:
        """The process dies between two calls."""
        self._dead = True

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
        return self._call("list", folder, lambda: self._inner.names(folder))

    def folders(self, folder: str) -> Names:
        return self._call("list", folder, lambda: self._inner.folders(folder))

    def walk(self, folder: str) -> Iterator[FileEntry]:
        return iter(self._call("walk", folder, lambda: tuple(self._inner.walk(folder))))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._call("put_if_absent", path, lambda: self._inner.put_if_absent(path, data))

    def put_all_if_absent(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self.put_if_absent(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._call("replace", path, lambda: self._inner.replace(path, data))

    def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
        return self._call("replace_if_unchanged", path, lambda: self._inner.replace_if_unchanged(path, data, expected))

    def delete_if_unchanged(self, path: str, expected: bytes, *, reused: bool = False) -> bool:
        effect = partial(self._inner.delete_if_unchanged, path, expected, reused=reused)
        return self._call("delete_if_unchanged", path, effect)

    def vacate(self, path: str, expected: bytes) -> bytes | None:
        return self._call("vacate", path, lambda: self._inner.vacate(path, expected))

    def delete_all_if_unchanged(self, folder: str, expected: Mapping[str, bytes], *, reused: bool = False) -> None:
        effect = partial(self._inner.delete_all_if_unchanged, folder, expected, reused=reused)
        self._call("delete_all_if_unchanged", folder, effect)

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
        self._call("delete_folder", path, lambda: self._inner.delete_folder(path))

    def delete_empty_folder(self, path: str) -> None:
        self._call("delete_empty_folder", path, lambda: self._inner.delete_empty_folder(path))

    def make_folder(self, path: str) -> None:
        self._call("make_folder", path, lambda: self._inner.make_folder(path))

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        manager = self._inner.create(path)
        opened: list[BinaryIO] = []
        try:
            self._call("create", path, lambda: opened.append(manager.__enter__()))
        except Killed:
            if opened:
                self._leave_torn(manager, opened[0])
            raise
        (file,) = opened
        try:
            yield file
            self._call("close", path, lambda: manager.__exit__(None, None, None))
        except Exception as error:
            manager.__exit__(type(error), error, error.__traceback__)
            raise
        except Killed:
            self._leave_torn(manager, file)
            raise

    def open_input(self, path: str) -> pa.NativeFile:
        return self._call("open_input", path, lambda: self._inner.open_input(path))

    def sweep(self, folder: str) -> int:
        return self._call("sweep", folder, lambda: self._inner.sweep(folder))

    def _call(self, name: str, path: str, effect: Callable[[], T]) -> T:
        if self._dead:
            raise Killed(name, path)
        fault = self._faults.get(len(self.calls))
        self.calls.append((name, path))
        if fault is None:
            return effect()
        if fault.takes_effect:
            effect()
        self._dead = fault.kills
        if fault.kills:
            raise Killed(name, path)
        raise OSError(self._error, f"injected: {fault.value}", path)

    def _leave_torn(self, manager: AbstractContextManager[BinaryIO], file: BinaryIO) -> None:
        # The inner storage would remove the file when its manager is closed or collected; the dead do neither.
        self._abandoned.append(manager)
        file.close()


class Interrupted(FaultyStorage):
    """Wraps a storage; right before one call something else happens, as if another process did it."""

    def __init__(self, inner: Storage, number: int, action: Callable[[], object]) -> None:
        """`action` is called before the call of this number, from 0."""
        super().__init__(inner)
        self._number, self._action = number, action

    def _call(self, name: str, path: str, effect: Callable[[], T]) -> T:
        if len(self.calls) == self._number:
            self._action()
        return super()._call(name, path, effect)
