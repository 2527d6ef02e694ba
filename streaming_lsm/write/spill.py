"""Sorted runs on a local disk, in files without a name: whatever ends the process, nothing is left of them."""

from __future__ import annotations

import errno
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import IOBase
from typing import cast

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.errors import ConfigError, StorageError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Threads of Arrow's own only slow down batches of this size. zstd halves the bytes for three times the time.
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


class SpilledRun:
    """One sorted run as compressed Arrow batches, none of which has rows of two file groups.

    Attributes:
        bytes: its size on disk.
    """

    def __init__(self, folder: str | None, schema: pa.Schema, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Write a run.

        Args:
            folder: where; None means the system's folder for temporary files.
            schema: the batches' columns.
            batches: code of the file group and rows, in the order of the codes and, within one, of the keys.

        Raises:
            StorageError: there is no room.
            ConfigError: the folder cannot be written to.
        """
        self.bytes = 0
        self._schema = schema
        self._numbers: dict[int, list[int]] = {}
        self._file = _nameless_file(folder)
        # Not left to the file's own end of life, which warns.
        self.close = weakref.finalize(self, _close, self._file)
        try:
            self._write(batches)
        except OSError as error:
            self.close()
            if no_room(error):
                raise _too_small(folder, self.bytes, error) from error
            raise

    def _write(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        writer = pa.ipc.new_file(self._file, self._schema, options=_WRITE)
        for number, (code, batch) in enumerate(batches):
            writer.write_batch(batch)
            self._numbers.setdefault(code, []).append(number)
            self.bytes = self._file.tell()
        writer.close()
        self._file.flush()
        self.bytes = self._file.tell()
        self._reader = pa.ipc.open_file(self._file, options=_READ)

    @property
    def codes(self) -> Iterable[int]:
        """The file groups of which the run has rows."""
        return self._numbers

    def batches(self, code: int) -> Iterator[pa.RecordBatch]:
        """The rows of one file group, read as they are asked for."""
        for number in self._numbers.get(code, ()):
            yield self._reader.get_batch(number)


def _nameless_file(folder: str | None) -> IOBase:
    try:
        return cast(IOBase, tempfile.TemporaryFile(prefix="lsm-spill-", dir=folder))
    except OSError as error:
        if no_room(error):
            raise _too_small(folder, 0, error) from error
        raise ConfigError(
            f"{config.SPILL_FOLDER.key}: no file can be made in {folder or tempfile.gettempdir()} "
            f"({error.strerror}); name a folder on a local disk that this process may write to"
        ) from error


def _close(file: IOBase) -> None:
    with suppress(OSError):  # what is still to be written does not matter any more
        file.close()


def no_room(error: OSError) -> bool:
    """Whether a write failed because the disk, a quota or a limit on file sizes is exhausted."""
    return error.errno in _NO_ROOM


def _too_small(folder: str | None, written: int, error: OSError) -> StorageError:
    return StorageError(
        f"no room in {folder or tempfile.gettempdir()} after {written} bytes of a sorted run ({error.strerror}): free "
        f"some, set {config.SPILL_FOLDER.key} to a larger disk, or raise {config.BUFFER_BYTES.key}"
    )
