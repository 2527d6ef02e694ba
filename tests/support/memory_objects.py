"""An object store in memory, with a clock of its own: what `ObjectStorage` promises.

A folder is there while a file is below it, a file when it is complete; what a vacated path leaves shows whether a file
was created there since.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pyarrow as pa

from streaming_lsm.storage.base import Listing
from tests.support.memory_storage import File, MemoryStorage, NewFile


class MemoryObjects(MemoryStorage):
    """Holds objects by their names, from the root on."""

    _traces: dict[str, bytes]

    def __init__(self, *arguments: object) -> None:
        """Begin empty; see `MemoryStorage`."""
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._traces = {}
        self._numbers = count(1)

    @property
    def is_file_system(self) -> bool:
        return False

    def list(self, folder: str) -> Listing:
        return [] if self._found(folder) is not None else super().list(folder)

    def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
        if self._found(path) is None and expected and self._traces.get(path) == expected:
            self.put_if_absent(path, data)
            return True
        found = self._found(path)
        if found is None or found.data != expected:
            return False
        self.replace(path, data)
        return True

    def vacate(self, path: str, expected: bytes) -> bytes | None:
        if not self.delete_if_unchanged(path, expected):
            return None
        self._traces[path] = b"trace %d" % next(self._numbers)
        return self._traces[path]

    def delete(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        if self._found(path) is not None:
            del self._folders[folder][name]
            self._drop_empty(folder)

    def delete_folder(self, path: str) -> None:
        for entry in [*self.walk(path)]:
            self.delete(entry.path)

    def delete_empty_folder(self, path: str) -> None:
        """There are none."""

    def make_folder(self, path: str) -> None:
        """There are none without files."""

    def begin(self, path: str) -> NewFile:
        self._refuse_existing(path)
        return _Upload(self, path, File(b"", self.clock()))

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._file(path).data)

    def finish(self, path: str, file: File) -> None:
        """Create the object of an upload; raises `FileExistsError`."""
        self._refuse_existing(path)
        file.modified_ms = self.clock()
        self._put(path, file)

    def remove(self, path: str, file: File) -> None:
        """Delete an object, if it is that of an upload."""
        if self._found(path) is file:
            self.delete(path)

    def save(self, root: Path) -> None:
        super().save(root)
        # Other programs expect the folders of a table.
        for folder in (".hoodie/timeline/history", ".hoodie/.heartbeat", ".hoodie/.temp"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    def _refuse_existing(self, path: str) -> None:
        if self._found(path) is not None:
            raise FileExistsError(path)

    def _drop_checksum(self, path: str) -> None:
        """A store knows of none."""

    def _put(self, path: str, file: File) -> None:
        folder, _, name = path.rpartition("/")
        self._make(folder)
        self._traces.pop(path, None)
        self._folders[folder][name] = file

    def _make(self, folder: str) -> None:
        if folder not in self._folders:
            above, _, name = folder.rpartition("/")
            self._make(above)
            self._folders[above][name] = None
            self._folders[folder] = {}

    def _drop_empty(self, folder: str) -> None:
        while folder and not self._folders[folder]:
            del self._folders[folder]
            folder, _, name = folder.rpartition("/")
            del self._folders[folder][name]


class _Upload(NewFile):
    """An object that is being written."""

    def finish(self) -> None:
        assert isinstance(self._storage, MemoryObjects)
        self._file.data = self.buffer.getvalue()
        self._storage.finish(self._path, self._file)
        self.is_finished = True

    def tear(self, size: int) -> None:
        """Nothing of it is visible."""

    def discard(self) -> None:
        assert isinstance(self._storage, MemoryObjects)
        self._storage.remove(self._path, self._file)
