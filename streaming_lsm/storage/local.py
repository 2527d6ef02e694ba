"""Store a table in a folder of a local or mounted file system."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from streaming_lsm.errors import CorruptFileError, StorageError, UnsupportedTable
from streaming_lsm.storage.base import METADATA_BYTES, FileEntry, Listing, Names
from streaming_lsm.storage.failures import naming
from streaming_lsm.storage.local_files import (
    NamedFile,
    check_regular,
    drop_checksum,
    durable_folders,
    exclusive,
    has_content,
    open_at_once,
    special_kind,
    sync,
    unlink,
    unlink_if_unmodified,
)
from streaming_lsm.storage.paths import checked_name, checked_path
from streaming_lsm.storage.temporary_file import delete_abandoned, is_temporary, temporary_file, temporary_name


class LocalStorage:
    """Implement `Storage` on a folder of the local file system.

    `put_if_absent` writes a temporary file in the same folder, makes it durable, and hard-links it to its final name,
    which fails if the name exists; `os.rename` would overwrite. A file without content is created under its name.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Use the folder `root`, which need not exist yet; a symbolic link to the root itself is followed."""
        self._root = os.path.realpath(os.fspath(root))
        self._uri = Path(self._root).as_uri()
        self._folders = durable_folders(self._root)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_folders"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._folders = durable_folders(self._root)

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def is_file_system(self) -> bool:
        return True

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        full = self._inside(path)
        with naming(full), open(full, "rb", opener=open_at_once) as file:
            status = os.fstat(file.fileno())
            check_regular(path, status)
            size = status.st_size
            if most is not None and size > most:
                raise CorruptFileError(
                    f"{self.uri}/{path}: {size} bytes, {most} at most are expected: restore the file from a copy"
                )
            return file.read()

    def exists(self, path: str) -> bool:
        # `os.path.exists` would report a file that cannot be looked at as absent.
        try:
            os.stat(self._inside(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, folder: str) -> Listing:
        prefix = folder + "/" if folder else ""
        entries = []
        with suppress(FileNotFoundError), os.scandir(self._inside(folder)) as found:
            for item in found:
                if is_temporary(item.name):
                    continue
                # A file may be deleted between the listing and the stat call.
                with suppress(FileNotFoundError):
                    entries.append(_entry(prefix + item.name, item))
        return sorted(entries)

    def names(self, folder: str) -> Names:
        with suppress(FileNotFoundError):
            found = sorted(os.listdir(self._inside(folder)))
            # Folders of thousands of names are listed with each commit: only names that begin with a dot are matched.
            first, last = bisect_left(found, "."), bisect_left(found, "/")
            found[first:last] = [name for name in found[first:last] if not is_temporary(name)]
            return found
        return []

    def folders(self, folder: str) -> Names:
        with suppress(FileNotFoundError), os.scandir(self._inside(folder)) as found:
            return sorted(item.name for item in found if item.is_dir(follow_symlinks=False))
        return []

    def walk(self, folder: str) -> Iterator[FileEntry]:
        real = self._inside(folder)
        for entry in self.list(folder):
            if not entry.is_dir:
                yield entry
            elif self._inside(entry.path) == os.path.join(real, entry.name):
                # Symbolic links are not followed: inside the root they would yield files twice, or without end.
                yield from self.walk(entry.path)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._put([(path, data)])

    def put_all_if_absent(self, files: Mapping[str, bytes]) -> None:
        self._put(files.items())

    def _put(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Create files under their names, and then make the names durable, each folder's at once."""
        folders = dict[str, None]()
        try:
            for path, data in files:
                final = self._inside_parent(path)
                folders[os.path.dirname(final)] = None
                if data:
                    with self._written(path, data, final) as temporary:
                        os.link(temporary, final)
                else:
                    self._create_empty(final)
        except FileExistsError:
            # The process that created it may have been killed before it was durable, and the caller relies on it.
            for folder in folders:
                with suppress(FileNotFoundError):
                    sync(folder)
            raise
        for folder in folders:
            sync(folder)

    def _create_empty(self, final: str) -> None:
        """Create a file without content: all of it is its name, which is durable with its folder."""
        self._folders.create(os.path.dirname(final))
        with naming(final):
            os.close(os.open(final, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))

    def replace(self, path: str, data: bytes) -> None:
        # In turn with those who compare before they replace.
        with self._temporary(path, data) as (temporary, final), exclusive(os.path.dirname(final)):
            drop_checksum(final)
            os.replace(temporary, final)

    def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
        with self._temporary(path, data) as (temporary, final), exclusive(os.path.dirname(final)):
            if not has_content(final, expected):
                return False
            drop_checksum(final)
            os.replace(temporary, final)
        return True

    def delete_if_unchanged(self, path: str, expected: bytes, *, reused: bool = False) -> bool:  # noqa: ARG002
        full = self._inside_parent(path)
        folder = os.path.dirname(full)
        if not os.path.isdir(folder):
            return False
        with exclusive(folder):
            if not has_content(full, expected):
                return False
            self.delete(path)
        return True

    def vacate(self, path: str, expected: bytes) -> bytes | None:
        return b"" if self.delete_if_unchanged(path, expected, reused=True) else None

    def delete_all_if_unchanged(
        self,
        folder: str,
        expected: Mapping[str, bytes],
        *,
        reused: bool = False,  # noqa: ARG002
    ) -> None:
        full = self._inside(folder)
        for name in expected:
            checked_name(name)
        if not os.path.isdir(full):
            return
        with exclusive(full):
            for name, data in expected.items():
                path = os.path.join(full, name)
                if has_content(path, data):
                    unlink(path)
        # Once for all of them: a call per file would take minutes for the timeline of a large metadata table.
        sync(full)

    def delete_if_unmodified(self, path: str, modified_ms: int) -> bool:
        full = self._inside_parent(path)
        folder = os.path.dirname(full)
        if not os.path.isdir(folder):
            return False
        with exclusive(folder):
            if not unlink_if_unmodified(full, modified_ms, aside=os.path.join(folder, temporary_name())):
                return False
        sync(folder)
        return True

    def touch(self, path: str) -> None:
        os.utime(self._inside(path))

    def delete(self, path: str) -> None:
        full = self._inside_parent(path)
        if unlink(full):
            sync(os.path.dirname(full))

    def delete_files(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_folder(self, path: str) -> None:
        full = self._inside(path)
        if full == self._root:
            raise ValueError("the root of a storage cannot be deleted")
        # Another process may delete or write the same folder at the same time: retry until it is gone.
        for _ in range(100):
            try:
                shutil.rmtree(full)
            except FileNotFoundError:
                if not os.path.lexists(full):
                    return
            except OSError:
                if not os.path.isdir(full):
                    raise
            else:
                return
        shutil.rmtree(full)

    def delete_empty_folder(self, path: str) -> None:
        full = self._inside(path)
        if full == self._root:
            raise ValueError("the root of a storage cannot be deleted")
        try:
            os.rmdir(full)
            sync(os.path.dirname(full))
        except OSError as error:
            # The parent can be deleted by another process between the two calls.
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise

    def make_folder(self, path: str) -> None:
        self._folders.create(self._inside(path))

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        full = self._inside(path)
        folder = os.path.dirname(full)
        self._folders.create(folder)
        file = BufferedWriter(NamedFile(full, "xb"))
        try:
            yield file
            file.close()
            sync(full)
            sync(folder)
        except BaseException:
            with suppress(OSError):
                file.close()
            with suppress(FileNotFoundError):
                os.unlink(full)
            raise

    def open_input(self, path: str) -> pa.NativeFile:
        full = self._inside(path)
        check_regular(path, os.stat(full))
        return pa.OSFile(full, "rb")

    def sweep(self, folder: str) -> int:
        full = self._inside(folder)
        if not os.path.isdir(full):
            return 0
        deleted = delete_abandoned(full)
        sync(full)
        return deleted

    @contextmanager
    def _temporary(self, path: str, data: bytes) -> Iterator[tuple[str, str]]:
        """Write a temporary file, and make the names in its folder durable at the end."""
        final = self._inside_parent(path)
        with self._written(path, data, final) as temporary:
            yield temporary, final
        sync(os.path.dirname(final))

    @contextmanager
    def _written(self, path: str, data: bytes, final: str) -> Iterator[str]:
        """Write a temporary file in the folder of the full path that it is to get."""
        if len(data) > METADATA_BYTES:
            raise StorageError(
                f"{self.uri}/{path} would have {len(data)} bytes, more than the {METADATA_BYTES} that readers accept: "
                "write to fewer partitions and buckets at a time"
            )
        folder = os.path.dirname(final)
        self._folders.create(folder)
        with temporary_file(folder, data, final) as temporary:
            yield temporary

    def _inside(self, path: str) -> str:
        return self._checked(path, self._resolved(checked_path(path)))

    def _inside_parent(self, path: str) -> str:
        # Replacing or unlinking acts on the name itself: a symbolic link of that name is not followed.
        parent, _, name = checked_path(path).rpartition("/")
        if not name:
            raise ValueError("the root of a storage is not a file")
        return os.path.join(self._checked(path, self._resolved(parent)), name)

    def _resolved(self, path: str) -> str:
        # The root is resolved; only what is below it is looked at, with one call to the system for each part.
        if not path:
            return self._root
        full = self._root.rstrip("/")
        for part in path.split("/"):
            full = f"{full}/{part}"
            try:
                status = os.lstat(full)
            except OSError:  # absent, or unreadable: the call that follows says which
                return os.path.join(self._root, path)
            if stat.S_ISLNK(status.st_mode):
                return os.path.realpath(os.path.join(self._root, path))
        return full

    def _checked(self, path: str, real: str) -> str:
        if real != self._root and not real.startswith(self._root.rstrip("/") + "/"):
            raise UnsupportedTable(
                f"{path!r} in {self._root} is reached through a symbolic link to {real}, outside the table: "
                "replace the link by a folder"
            )
        return real


def _entry(path: str, item: os.DirEntry[str]) -> FileEntry:
    is_dir = item.is_dir()
    status = item.stat(follow_symlinks=not item.is_symlink() or is_dir)
    special = "symbolic link" if item.is_symlink() else special_kind(status)
    return FileEntry(path, 0 if is_dir else status.st_size, is_dir, status.st_mtime_ns // 1_000_000, special)
