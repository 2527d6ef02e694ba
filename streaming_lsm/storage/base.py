"""What the rest of the package may ask of the place where a table lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias

import pyarrow as pa


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """One file or folder as a listing shows it.

    Attributes:
        path: relative to the storage's root, with ``/`` between the parts.
        size: bytes; 0 for a folder.
        is_dir: whether it is a folder.
        modified_ms: last modification, milliseconds since the epoch.
        special: ``symbolic link``, ``named pipe`` or the like for what is no file or folder itself, else empty.
    """

    path: str
    size: int
    is_dir: bool
    modified_ms: int
    special: str = ""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


Listing: TypeAlias = list[FileEntry]

Names: TypeAlias = list[str]

METADATA_BYTES = 128 << 20
"""The largest file that is read whole; the metadata of a commit of 256,000 files takes about 90 MiB."""


class Storage(Protocol):
    """A folder tree that files are read from, created in and deleted from.

    Paths are relative to the root, with ``/`` between the parts; ``""`` is the root itself. Every method raises
    `ValueError` for a path that is not of this form, and `UnsupportedTable` for one that a symbolic link leads out
    of the root. What a method has changed when it returns survives the loss of power. Implementations can be
    pickled, so that executors use the same storage as the driver.
    """

    @property
    def uri(self) -> str:
        """The root as an absolute URI, escaped with ``%XX``, without a slash at its end."""
        ...

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        """The whole file.

        Args:
            path: the file.
            most: bytes that it may have; None for any number.

        Raises:
            FileNotFoundError: no such file.
            CorruptFileError: it is larger, so that it cannot be what it is read as; nothing of it was read.
            UnsupportedTable: a named pipe, socket or device, which a reader would wait for.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        ...

    def list(self, folder: str) -> Listing:
        """Files and folders directly in `folder`, sorted by path; none when the folder is missing."""
        ...

    def names(self, folder: str) -> Names:
        """Names of what `list` shows, sorted, without looking at each file."""
        ...

    def walk(self, folder: str) -> Iterator[FileEntry]:
        """All files below `folder`, at any depth, in the order of their paths' parts."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create a file whole or not at all; parent folders are made.

        Raises:
            FileExistsError: the file is there already; it was not changed.
            NotADirectoryError: a parent is a file; so too in the other methods that make folders.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Create or overwrite a file; a reader sees the old bytes or the new ones, never a mixture."""
        ...

    def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
        """Overwrite a file that holds `expected`; False when it holds something else or is missing.

        No other conditional call on the file comes between the comparison and the change.
        """
        ...

    def delete_if_unchanged(self, path: str, expected: bytes) -> bool:
        """Delete a file that holds `expected`; False when it holds something else or is missing."""
        ...

    def touch(self, path: str) -> None:
        """Set a file's time of modification to now.

        Raises:
            FileNotFoundError: no such file; it is not created.
        """
        ...

    def delete(self, path: str) -> bool:
        """Delete a file; False when it was not there."""
        ...

    def delete_folder(self, path: str) -> None:
        """Delete a folder and all that is in it; nothing happens when it is missing."""
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents where they are missing."""
        ...

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A new file to be written piece by piece; parent folders are made.

        The file has its final name from the start, so that a marker written before can name it. When the block
        ends normally the file is durable; when it raises the file is removed.

        Raises:
            FileExistsError: the file is there already.
        """
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """The file for reading at random positions.

        Raises:
            FileNotFoundError: no such file.
            UnsupportedTable: as in `read`.
        """
        ...

    def sweep(self, folder: str) -> int:
        """Remove what killed processes left half made by `put_if_absent` or `replace` directly in `folder`.

        Listings never show such leftovers; those of living processes are spared. Returns how many were removed.
        """
        ...
