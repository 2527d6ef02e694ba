"""Implement `Storage` on an object store: a table is the objects whose keys begin with a prefix.

What a disk does with locks of the kernel and links is done here with versions of objects, see `conditional`. A rename
is not needed: a put is visible as a whole.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import UnsupportedOperation
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import quote

import obstore
import pyarrow as pa

from streaming_lsm.errors import ConfigError, StorageError
from streaming_lsm.storage.base import METADATA_BYTES, FileEntry, Listing, Names
from streaming_lsm.storage.objects.conditional import ConditionalObjects
from streaming_lsm.storage.objects.connection import MEMORY, connect
from streaming_lsm.storage.objects.failures import STORE_ERRORS, failure
from streaming_lsm.storage.objects.probe import PROBE_NAME, check_conditional_puts
from streaming_lsm.storage.objects.ranged_file import RangedFile
from streaming_lsm.storage.objects.tombstone import Tombstone
from streaming_lsm.storage.objects.upload import Upload
from streaming_lsm.storage.paths import checked_name, checked_path

if TYPE_CHECKING:
    from obstore import ObjectMeta

_THREADS = 8
_BATCH = 1000


class ObjectStorage:
    """Implement `Storage` on the objects of a container below a prefix.

    The first change of a process checks that the store honours conditional puts (see `probe`).
    """

    def __init__(self, scheme: str, container: str, prefix: str = "") -> None:
        """Use the objects below a prefix, which need not exist yet; nothing is sent.

        Args:
            scheme: see `connect`.
            container: see `connect`.
            prefix: begin of all keys, without a slash at its end; may be empty.

        Raises:
            ConfigError: the store cannot be connected to, or the prefix is not valid.
        """
        try:
            self._prefix = checked_path(prefix)
        except ValueError:
            raise ConfigError(f"{prefix!r} in {container}: write the path without empty parts, '.' and '..'") from None
        self._scheme, self._container = scheme, container
        self._connection = connect(scheme, container)
        self._objects = ConditionalObjects(self._connection, self._uri_of)

    def __repr__(self) -> str:
        return f"ObjectStorage({self.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        arguments = (self._scheme, self._container, self._prefix)
        return (_in_process, (os.getpid(), *arguments)) if self._scheme == MEMORY else (ObjectStorage, arguments)

    @property
    def uri(self) -> str:
        container = f"{self._scheme}://{quote(self._container, safe='@')}"
        return f"{container}/{quote(self._prefix)}" if self._prefix else container

    @property
    def is_file_system(self) -> bool:
        return False

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        found = self._objects.find(self._key(path), most)
        if found is None or found.is_absent:
            raise FileNotFoundError(errno.ENOENT, "no such object", f"{self.uri}/{path}")
        return found.data

    def exists(self, path: str) -> bool:
        if path and self._objects.find_size(self._key(path)) is not None:
            return True
        below = self._below(path)
        return any(self._entry(meta, below) is not None for meta in self._all(below))

    def list(self, folder: str) -> Listing:
        below = self._below(folder)
        try:
            found = obstore.list_with_delimiter(self._connection.store, below or None)
        except STORE_ERRORS as error:
            raise failure(f"{self.uri}/{folder}", error) from None
        entries = [entry for meta in found["objects"] if (entry := self._entry(meta, below)) is not None]
        for key in found["common_prefixes"]:
            entries.append(FileEntry(self._path(key.rstrip("/")), 0, is_dir=True, modified_ms=0))
        return sorted(entries)

    def names(self, folder: str) -> Names:
        return [entry.name for entry in self.list(folder)]

    def folders(self, folder: str) -> Names:
        return [entry.name for entry in self.list(folder) if entry.is_dir]

    def walk(self, folder: str) -> Iterator[FileEntry]:
        below = self._below(folder)
        entries = [entry for meta in self._all(below) if (entry := self._entry(meta, below)) is not None]
        yield from sorted(entries, key=lambda entry: entry.path.split("/"))

    def put_if_absent(self, path: str, data: bytes) -> None:
        key = self._changed_key(path, data)
        self._objects.create(key, data)

    def put_all_if_absent(self, files: Mapping[str, bytes]) -> None:
        keys = {self._changed_key(path, data): data for path, data in files.items()}
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._objects.create, keys.keys(), keys.values()))

    def replace(self, path: str, data: bytes) -> None:
        key = self._changed_key(path, data)
        self._objects.overwrite(key, data)

    def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
        key = self._changed_key(path, data)
        return self._objects.replace(key, data, expected)

    def delete_if_unchanged(self, path: str, expected: bytes, *, reused: bool = False) -> bool:
        return self._objects.delete(self._changed_key(path), expected, reused=reused) is not None

    def vacate(self, path: str, expected: bytes) -> bytes | None:
        return self._objects.delete(self._changed_key(path), expected, reused=True)

    def delete_all_if_unchanged(self, folder: str, expected: Mapping[str, bytes], *, reused: bool = False) -> None:
        below = f"{folder}/" if folder else ""
        keys = {self._changed_key(below + checked_name(name)): data for name, data in expected.items()}
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(lambda item: self._objects.delete(*item, reused=reused), keys.items()))

    def delete_if_unmodified(self, path: str, modified_ms: int) -> bool:  # noqa: ARG002
        raise UnsupportedOperation(f"{self.uri}/{path}: files like this are kept on file systems only")

    def touch(self, path: str) -> None:
        if not self._objects.renew(self._changed_key(path)):
            raise FileNotFoundError(errno.ENOENT, "no such object", f"{self.uri}/{path}")

    def delete(self, path: str) -> None:
        self._objects.remove([self._changed_key(path)])

    def delete_files(self, paths: Iterable[str]) -> None:
        self._remove([self._changed_key(path) for path in paths])

    def delete_folder(self, path: str) -> None:
        key = self._changed_key(path)
        self._remove([meta["path"] for meta in self._all(key)])

    def delete_empty_folder(self, path: str) -> None:
        self._key(path)

    def make_folder(self, path: str) -> None:
        self._below(path)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        key = self._changed_key(path)
        upload = Upload(self._connection, self._objects, key, f"{self.uri}/{path}")
        try:
            yield cast(BinaryIO, upload)
            upload.finish()
        except BaseException as error:
            upload.abort(type(error), error, error.__traceback__)
            raise

    def open_input(self, path: str) -> pa.NativeFile:
        uri = f"{self.uri}/{path}"
        file = RangedFile(self._connection, self._key(path), uri)
        if file.whole is not None and Tombstone.decode(file.whole) is not None:
            raise FileNotFoundError(errno.ENOENT, "no such object", uri)
        return pa.PythonFile(file, mode="r")

    def sweep(self, folder: str) -> int:
        self._below(folder)
        return 0

    def _all(self, below: str) -> Iterator[ObjectMeta]:
        """Yield all objects below a key, at any depth."""
        try:
            for chunk in obstore.list(self._connection.store, below or None):
                yield from chunk
        except STORE_ERRORS as error:
            raise failure(self._uri_of(below), error) from None

    def _remove(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), _BATCH):
            self._objects.remove(list(keys[first : first + _BATCH]))

    def _entry(self, meta: ObjectMeta, below: str) -> FileEntry | None:
        """Return the entry of a listed object; None for a tombstone, the probe, and a folder's own marker of Hadoop."""
        key, size = meta["path"], meta["size"]
        if key == below or key.rpartition("/")[2] == PROBE_NAME or self._objects.is_absent(key, size, meta["e_tag"]):
            return None
        modified_ms = int(meta["last_modified"].timestamp() * 1000)
        return FileEntry(self._path(key), size, is_dir=False, modified_ms=modified_ms)

    def _path(self, key: str) -> str:
        return key.removeprefix(f"{self._prefix}/") if self._prefix else key

    def _below(self, folder: str) -> str:
        """Return the key of a folder; empty for the root of a container."""
        checked_path(folder)
        return "/".join(part for part in (self._prefix, folder) if part)

    def _key(self, path: str) -> str:
        if not checked_path(path):
            raise ValueError("the root of a storage is not a file, and cannot be deleted")
        return self._below(path)

    def _changed_key(self, path: str, data: bytes = b"") -> str:
        """Return the key of an object that is about to be changed; the first time, the store is checked."""
        key = self._key(path)
        if len(data) > METADATA_BYTES:
            raise StorageError(
                f"{self.uri}/{path} would have {len(data)} bytes, more than the {METADATA_BYTES} that readers accept: "
                "write to fewer partitions and buckets at a time"
            )
        check_conditional_puts(self._connection, self._below(PROBE_NAME), self._uri_of(self._prefix))
        return key

    def _uri_of(self, key: str) -> str:
        return f"{self._scheme}://{self._container}/{key}"


def _in_process(process: int, scheme: str, container: str, prefix: str) -> ObjectStorage:
    if process != os.getpid():
        raise ConfigError(f"{scheme}://{container} is the memory of another process: executors need another storage")
    return ObjectStorage(scheme, container, prefix)
