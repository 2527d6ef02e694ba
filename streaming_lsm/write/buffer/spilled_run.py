"""Write sorted runs of events to a local disk, and read them by file group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.storage.spill_file import SpillFile


class SpilledRun:
    """Stores one sorted run as compressed Arrow batches, each with rows of one file group.

    Attributes:
        bytes: its size on disk.
        close: frees the disk space; garbage collection does too.
    """

    def __init__(self, folder: str | None, schema: pa.Schema, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Write a run.

        Args:
            folder: folder of the file; None for the system's folder for temporary files.
            schema: the batches' columns.
            batches: code of the file group and rows, in the order of the codes and, within one, of the keys.

        Raises:
            StorageError: there is no room.
            ConfigError: the folder cannot be written to.
        """
        self._numbers: dict[int, list[int]] = {}
        self._file = SpillFile(folder, schema, self._noting(batches), advice=f"raise {config.BUFFER_BYTES.key}")
        self.bytes = self._file.bytes
        self.close = self._file.close

    def _noting(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        for number, (code, batch) in enumerate(batches):
            self._numbers.setdefault(code, []).append(number)
            yield batch

    @property
    def codes(self) -> Iterable[int]:
        """The file groups of which the run has rows."""
        return self._numbers

    def batches(self, code: int) -> Iterator[pa.RecordBatch]:
        """Read the rows of one file group, batch by batch."""
        for number in self._numbers.get(code, ()):
            yield self._file.batch(number)
