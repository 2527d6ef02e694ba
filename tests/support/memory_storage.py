"""A storage in memory, with a clock of its own: what `LocalStorage` promises, without a disk.

Folders and files are there as on a disk: a file that is open stays readable after its deletion, one that is being
created has its final name, and a deletion of a folder goes through its files one by one.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.storage.base import METADATA_BYTES, FileEntry, Listing, Names


@dataclass(eq=False)
class File:
    """A file: its content, and when it was changed last."""

    data: bytes
    modified_ms: int


class MemoryStorage:
    """Holds files and folders by their names, from the root on."""

    def __init__(self, uri: str = "file:///simulated/table", clock: Callable[[], int] = lambda: 0) -> None:
        """Begin empty; `clock` gives the modification times in milliseconds."""
        self._uri = uri
        self.clock = clock
        self._folders: dict[str, dict[str, File | None]] = {"": {}}
        """The entries of each folder: a file, or None for a folder."""

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def is_file_system(self) -> bool:
        return True

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        data = self._file(path).data
        if most is not None and len(data) > most:
            raise CorruptFileError(f"{self.uri}/{path}: {len(data)} bytes, {most} at most are expected")
        return data

    def exists(self, path: str) -> bool:
        return path in self._folders or self._found(path) is not None

    def list(self, folder: str) -> Listing:
        prefix = folder + "/" if folder else ""
        return sorted(_entry(prefix + name, file) for name, file in self._entries(folder).items())

    def names(self, folder: str) -> Names:
        return sorted(self._entries(folder))

    def folders(self, folder: str) -> Names:
        return sorted(name for name, file in self._entries(folder).items() if file is None)

    def walk(self, folder: str) -> Iterator[FileEntry]:
        for entry in self.list(folder):
            if entry.is_dir:
                yield from self.walk(entry.path)
            else:
                yield entry

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._refuse_existing(path)
        self._put(path, File(data, self.clock()))

    def put_all_if_absent(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self.put_if_absent(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._drop_checksum(path)
        self._put(path, File(data, self.clock()))

    def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
        self.make_folder(path.rpartition("/")[0])
        found = self._found(path)
        if found is None or found.data != expected:
            return False
        self.replace(path, data)
        return True

    def delete_if_unchanged(self, path: str, expected: bytes, *, reused: bool = False) -> bool:
        found = self._found(path)
        if found is None or found.data != expected:
            return False
        self.delete(path)
        return True

    def vacate(self, path: str, expected: bytes) -> bytes | None:
        return b"" if self.delete_if_unchanged(path, expected) else None

    def delete_all_if_unchanged(self, folder: str, expected: Mapping[str, bytes], *, reused: bool = False) -> None:
        for name, data in expected.items():
            self.delete_if_unchanged(f"{folder}/{name}", data)

    def delete_if_unmodified(self, path: str, modified_ms: int) -> bool:
        found = self._found(path)
        if found is None or found.modified_ms != modified_ms:
            return False
        self.delete(path)
        return True

    def touch(self, path: str) -> None:
        self._file(path).modified_ms = self.clock()

    def delete(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        if path in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if self._entries(folder).pop(name, None) is not None:
            self._drop_checksum(path)

    def delete_files(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_folder(self, path: str) -> None:
        for entry in self.list(path):
            if entry.is_dir:
                self.delete_folder(entry.path)
            else:
                self.delete(entry.path)
        self.delete_empty_folder(path)

    def delete_empty_folder(self, path: str) -> None:
        if not path:
            raise ValueError("the root of a storage cannot be deleted")
        if self._folders.get(path) == {}:
            del self._folders[path]
            folder, _, name = path.rpartition("/")
            del self._folders[folder][name]

    def make_folder(self, path: str) -> None:
        if self._found(path) is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if path not in self._folders:
            folder, _, name = path.rpartition("/")
            self.make_folder(folder)
            self._folders[folder][name] = None
            self._folders[path] = {}

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        opened = self.begin(path)
        try:
            yield opened.buffer
            opened.finish()
        except BaseException:
            opened.discard()
            raise

    def begin(self, path: str) -> NewFile:
        """Begin to create a file, which is there at once; for storages that let it be torn."""
        self._refuse_existing(path)
        file = File(b"", self.clock())
        self._put(path, file)
        return NewFile(self, path, file)

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._file(path).data)

    def sweep(self, folder: str) -> int:
        return 0

    def save(self, root: Path) -> None:
        """Write all of it to a folder of the disk, for programs that read files."""
        for folder, entries in self._folders.items():
            (root / folder).mkdir(parents=True, exist_ok=True)
            for name, file in entries.items():
                if file is not None:
                    (root / folder / name).write_bytes(file.data)

    def paths(self) -> Iterable[str]:
        """All files."""
        return (entry.path for entry in self.walk(""))

    def _drop_checksum(self, path: str) -> None:
        """Delete the checksum file that Hadoop keeps beside a local file."""
        folder, _, name = path.rpartition("/")
        self._entries(folder).pop(f".{name}.crc", None)

    def _entries(self, folder: str) -> dict[str, File | None]:
        if self._found(folder) is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        return self._folders.get(folder, {})

    def _found(self, path: str) -> File | None:
        folder, _, name = path.rpartition("/")
        return self._folders.get(folder, {}).get(name)

    def _file(self, path: str) -> File:
        found = self._found(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return found

    def _refuse_existing(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def _put(self, path: str, file: File) -> None:
        folder, _, name = path.rpartition("/")
        self.make_folder(folder)
        self._folders[folder][name] = file


class NewFile:
    """A file that is being written.

    Attributes:
        buffer: takes the content.
        is_finished: whether all of it is durable.
    """

    def __init__(self, storage: MemoryStorage, path: str, file: File) -> None:
        self._storage, self._path, self._file = storage, path, file
        self.buffer = _Unclosed()
        self.is_finished = False

    def finish(self) -> None:
        """All is written, and durable under its name.

        Raises:
            FileNotFoundError: it was deleted meanwhile.
        """
        self.tear(len(self.buffer.getvalue()))
        self.is_finished = True
        if not self._storage.exists(self._path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._path)

    def tear(self, size: int) -> None:
        """Only the first bytes have reached the disk."""
        self._file.data = self.buffer.getvalue()[:size]
        self._file.modified_ms = self._storage.clock()

    def discard(self) -> None:
        """Delete whatever has the name."""
        with suppress(FileNotFoundError):
            self._storage.delete(self._path)


class _Unclosed(io.BytesIO):
    """Keeps its content when a writer closes it."""

    def close(self) -> None:
        pass


def _entry(path: str, file: File | None) -> FileEntry:
    if file is None:
        return FileEntry(path, 0, is_dir=True, modified_ms=0)
    return FileEntry(path, len(file.data), is_dir=False, modified_ms=file.modified_ms)
