"""Present a folder of a storage as a storage: the metadata table lies inside the folder of its data table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import BinaryIO
from urllib.parse import quote

import pyarrow as pa

from streaming_lsm.storage.base import METADATA_BYTES, FileEntry, Listing, Names, Storage

_quoted = lru_cache(maxsize=64)(quote)


@dataclass(frozen=True, slots=True)
class Subfolder:
    """Delegate to a storage; paths of arguments and results are relative to `folder`."""

    storage: Storage
    folder: str

    @property
    def uri(self) -> str:
        return f"{self.storage.uri}/{_quoted(self.folder)}"

    @property
    def is_file_system(self) -> bool:
        return self.storage.is_file_system

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        return self.storage.read(self._path(path), most)

    def exists(self, path: str) -> bool:
        return self.storage.exists(self._path(path))

    def list(self, folder: str) -> Listing:
        return [self._relative(entry) for entry in self.storage.list(self._path(folder))]

    def names(self, folder: str) -> Names:
        return self.storage.names(self._path(folder))

    def folders(self, folder: str) -> Names:
        return self.storage.folders(self._path(folder))

    def walk(self, folder: str) -> Iterator[FileEntry]:
        return map(self._relative, self.storage.walk(self._path(folder)))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.storage.put_if_absent(self._path(path), data)

    def put_all_if_absent(self, files: Mapping[str, bytes]) -> None:
        self.storage.put_all_if_absent({self._path(path): data for path, data in files.items()})

    def replace(self, path: str, data: bytes) -> None:
        self.storage.replace(self._path(path), data)

    def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
        return self.storage.replace_if_unchanged(self._path(path), data, expected)

    def delete_if_unchanged(self, path: str, expected: bytes, *, reused: bool = False) -> bool:
        return self.storage.delete_if_unchanged(self._path(path), expected, reused=reused)

    def vacate(self, path: str, expected: bytes) -> bytes | None:
        return self.storage.vacate(self._path(path), expected)

    def delete_all_if_unchanged(self, folder: str, expected: Mapping[str, bytes], *, reused: bool = False) -> None:
        self.storage.delete_all_if_unchanged(self._path(folder), expected, reused=reused)

    def delete_if_unmodified(self, path: str, modified_ms: int) -> bool:
        return self.storage.delete_if_unmodified(self._path(path), modified_ms)

    def touch(self, path: str) -> None:
        self.storage.touch(self._path(path))

    def delete(self, path: str) -> None:
        self.storage.delete(self._path(path))

    def delete_files(self, paths: Iterable[str]) -> None:
        self.storage.delete_files(map(self._path, paths))

    def delete_folder(self, path: str) -> None:
        if not path:
            raise ValueError("the root of a storage cannot be deleted")
        self.storage.delete_folder(self._path(path))

    def delete_empty_folder(self, path: str) -> None:
        if not path:
            raise ValueError("the root of a storage cannot be deleted")
        self.storage.delete_empty_folder(self._path(path))

    def make_folder(self, path: str) -> None:
        self.storage.make_folder(self._path(path))

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self.storage.create(self._path(path))

    def open_input(self, path: str) -> pa.NativeFile:
        return self.storage.open_input(self._path(path))

    def sweep(self, folder: str) -> int:
        return self.storage.sweep(self._path(folder))

    def _path(self, path: str) -> str:
        return f"{self.folder}/{path}" if path else self.folder

    def _relative(self, entry: FileEntry) -> FileEntry:
        return replace(entry, path=entry.path.removeprefix(self.folder + "/"))
