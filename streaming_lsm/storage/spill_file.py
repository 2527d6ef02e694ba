"""Spill Arrow batches to an unlinked file on a local disk, whose space is freed however the process ends."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import IOBase
from typing import cast

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.errors import ConfigError, LsmError, StorageError
from streaming_lsm.storage.failures import no_more_files, no_room

# Arrow's threads slow down batches of this size. zstd halves the bytes and takes three times as long.
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


class SpillFile:
    """Hold compressed Arrow batches on disk, numbered from 0 in the order in which they were written.

    Attributes:
        bytes: size on disk.
        close: frees the disk space; garbage collection of this object does so, too.
    """

    def __init__(
        self, folder: str | None, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, advice: str = ""
    ) -> None:
        """Write the batches to an unlinked file.

        Args:
            folder: folder of the file; None for the system's folder of temporary files.
            schema: columns of the batches.
            batches: consumed one at a time.
            advice: remedy named by the error for a full disk, besides another folder.

        Raises:
            StorageError: the disk is full, or the limit on open files is reached.
            ConfigError: the folder is not writable.
        """
        self.bytes = 0
        self._count = 0
        self._folder = folder or tempfile.gettempdir()
        self._advice = advice
        self._file = self._nameless_file(folder)
        # Closed explicitly, because a file closed by garbage collection raises a ResourceWarning.
        self.close = weakref.finalize(self, _close, self._file)
        try:
            self._write(schema, batches)
        except OSError as error:
            self.close()
            if no_room(error):
                raise self._too_small(error) from error
            raise
        except BaseException:
            self.close()
            raise

    def _nameless_file(self, folder: str | None) -> IOBase:
        try:
            return cast(IOBase, tempfile.TemporaryFile(prefix="lsm-spill-", dir=folder))
        except OSError as error:
            raise self._refusal(error) from error

    def _write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        writer = pa.ipc.new_file(self._file, schema, options=_WRITE)
        for batch in batches:
            writer.write_batch(batch)
            self._count += 1
            self.bytes = self._file.tell()
        writer.close()
        self._file.flush()
        self.bytes = self._file.tell()
        self._reader = pa.ipc.open_file(self._file, options=_READ)

    def batch(self, number: int) -> pa.RecordBatch:
        """Read one batch."""
        return self._reader.get_batch(number)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Iterate over all batches, reading each one lazily."""
        return map(self.batch, range(self._count))

    def _refusal(self, error: OSError) -> LsmError:
        if no_room(error):
            return self._too_small(error)
        if no_more_files(error):
            return StorageError(
                f"no file can be made in {self._folder} ({error.strerror}): "
                f"raise the limit on open files (ulimit -n), or lower {config.READ_THREADS.key}"
            )
        return ConfigError(
            f"{config.SPILL_FOLDER.key}: no file can be made in {self._folder} "
            f"({error.strerror}); name a folder on a local disk that this process may write to"
        )

    def _too_small(self, error: OSError) -> StorageError:
        return StorageError(
            f"no room in {self._folder} after {self.bytes} bytes of a sorted run ({error.strerror}): free "
            f"some, or set {config.SPILL_FOLDER.key} to a larger disk{self._advice and ', or '}{self._advice}"
        )


def _close(file: IOBase) -> None:
    with suppress(OSError):  # buffered bytes that cannot be flushed are not needed any more
        file.close()
