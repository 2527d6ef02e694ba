"""Define the storage interface through which the rest of the package reads and writes the files of a table.

A *storage* is a folder tree with a root; an *entry* describes one file or folder of a listing. *Conditional* calls
change a file only if it is absent, or only if it holds expected bytes: concurrent writers are kept apart by them. They
need no more than an object store has: create if absent, replace by version, and reads of ranges. Folders and temporary
files are matters of a disk: an object store has none, and its calls on them do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias

import pyarrow as pa


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """Describe one file or folder of a listing.

    Attributes:
        path: relative to the storage's root, with ``/`` between the parts.
        size: bytes; 0 for a folder.
        is_dir: whether it is a folder.
        modified_ms: last modification, milliseconds since the epoch.
        special: kind of an entry that is neither a regular file nor a folder: ``symbolic link``, ``named pipe``,
            ``socket`` or ``device``; else empty.
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
"""Size limit of a file that is read as a whole; the metadata of a commit of 256,000 files takes about 90 MiB."""


class Storage(Protocol):
    """Read, create and delete files in a folder tree.

    Paths are relative to the root, with ``/`` between the parts; ``""`` is the root itself. Every method raises
    `ValueError` for a path that is not of this form, and `UnsupportedTable` for a path that a symbolic link leads out
    of the root. A change is durable when the method returns: it survives a power failure; `delete_folder` and `touch`
    excepted, whose effect may be lost. Implementations can be pickled, so that executors use the same storage as the
    driver.

    An object store refuses no path because a parent is a file.
    """

    @property
    def uri(self) -> str:
        """The root as an absolute URI, escaped with ``%XX``, without a slash at its end."""
        ...

    @property
    def is_file_system(self) -> bool:
        """Whether this is a file system: folders exist of their own, and a file is visible while it is written.

        In an object store a folder exists while a file is below it, and a file is visible when it is complete.
        """
        ...

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        """Read a whole file.

        Args:
            path: the file.
            most: size limit in bytes; None for no limit.

        Raises:
            FileNotFoundError: no such file.
            CorruptFileError: the file is larger than `most`; none of it was read.
            UnsupportedTable: the path is a named pipe, socket or device, on which a reader would block.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists at the path."""
        ...

    def list(self, folder: str) -> Listing:
        """List the files and folders directly in `folder`, sorted by path; an empty list if the folder is missing."""
        ...

    def names(self, folder: str) -> Names:
        """Return the sorted names of the entries of `list`, without a stat call for each file."""
        ...

    def folders(self, folder: str) -> Names:
        """Return the sorted names of the folders directly in `folder`, links excluded, without a stat call for each."""
        ...

    def walk(self, folder: str) -> Iterator[FileEntry]:
        """Yield all files below `folder`, at any depth, in the order of their paths' parts."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create a file atomically if it is absent; missing parent folders are created.

        Raises:
            FileExistsError: the file exists already; it was not changed, and is durable.
            NotADirectoryError: a parent is a file. The other methods that create folders raise it, too.
        """
        ...

    def put_all_if_absent(self, files: Mapping[str, bytes]) -> None:
        """Create files, given by path with their content, as `put_if_absent` creates each, in any order.

        A file system makes the names in a folder durable at once; an object store takes several requests at a time.

        Raises:
            FileExistsError: as in `put_if_absent`; others of the files may have been created.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Create or overwrite a file atomically: a reader sees the old content or the new one."""
        ...

    def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
        """Overwrite a file if its content is `expected` (compare-and-swap); return False if it differs or is missing.

        Comparison and change are one atomic step with respect to other conditional calls on the file.
        """
        ...

    def delete_if_unchanged(self, path: str, expected: bytes, *, reused: bool = False) -> bool:
        """Delete a file if its content is `expected`; return False if it differs or is missing.

        Comparison and deletion are one atomic step, except for an empty file: that is only deleted where no file at
        the path ever has content. An object store has no such step. It replaces the object, by version, by a tombstone
        that reads as absent (see `streaming_lsm.storage.objects.tombstone`).

        Args:
            path: the file.
            expected: its content.
            reused: whether the path may be created again, such as that of a lock: then a tombstone stays there. Else
                the process that made the tombstone deletes it, and nothing can be created at the path before that;
                if the process dies in between, never.
        """
        ...

    def vacate(self, path: str, expected: bytes) -> bytes | None:
        """Delete a file as `delete_if_unchanged` with `reused`, and return what it left behind.

        Returns:
            None if the content differs or the file is missing. Else what is at the path until a file is created there:
            `replace_if_unchanged` with it succeeds if none was created in between. Empty where nothing shows that, as
            in a file system.
        """
        ...

    def delete_all_if_unchanged(self, folder: str, expected: Mapping[str, bytes], *, reused: bool = False) -> None:
        """Delete the files directly in `folder` that have the content given by name, as `delete_if_unchanged` does."""
        ...

    def delete_if_unmodified(self, path: str, modified_ms: int) -> bool:
        """Delete a file of another program if it was last modified at that time; return False if not.

        For a file that every process creates with the same content, such as the empty lock file of Hudi. A file that
        the other program creates at the same time is put back.

        Raises:
            UnsupportedOperation: in an object store, which keeps no such files.
        """
        ...

    def touch(self, path: str) -> None:
        """Set a file's modification time to now.

        The content is not changed, even if another process replaces it at the same time.

        Raises:
            FileNotFoundError: the file is missing; it is not created.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete a file; do nothing if it is missing."""
        ...

    def delete_files(self, paths: Iterable[str]) -> None:
        """Delete files; those that are missing are passed over.

        A file system deletes them in their order, each durably before the next; S3 and Azure take one request for many,
        and may delete them in any order.
        """
        ...

    def delete_folder(self, path: str) -> None:
        """Delete a folder and its content; do nothing if it is missing."""
        ...

    def delete_empty_folder(self, path: str) -> None:
        """Delete a folder if it is empty, in one atomic step; do nothing if it has content or is missing.

        An object store has no empty folders.
        """
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its missing parents; do nothing on an object store."""
        ...

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Create a file and open it for writing; missing parent folders are created.

        The file has its final name from the start, so that a marker created before can name it. When the context
        ends normally, the file is durable; when it ends with an exception, the file is deleted. On an object store the
        file is visible when the context ends, as a whole.

        Raises:
            FileExistsError: the file exists already; an object store may raise it when the context ends.
        """
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for random access reads; of a large file on an object store only the ranges are fetched.

        Raises:
            FileNotFoundError: the file is missing.
            UnsupportedTable: as in `read`.
        """
        ...

    def sweep(self, folder: str) -> int:
        """Delete temporary files that `put_if_absent` or `replace` of killed processes left directly in `folder`.

        Listings omit temporary files; those of running processes are kept. What killed processes created or deleted
        directly in `folder` is durable afterwards. An object store has none: uploads
        that are not finished are invisible. Returns the number of deleted files.
        """
        ...
