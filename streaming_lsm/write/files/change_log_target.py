"""Create the change logs (CDC logs) of one write or compaction.

See docs/format/03-native-logs.md, "CDC log schema".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.file_group.data_file import open_base
from streaming_lsm.file_group.file_system_view import BaseFile
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.column_versions import FileNames
from streaming_lsm.format.table.file_names import InlineLogName, LogFileName, LogKind, WriteToken
from streaming_lsm.merge.runs import Block
from streaming_lsm.merge.sorted_runs import SortedRun
from streaming_lsm.query.slices.key_order import HELD_BYTES, in_key_order
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.files.change_log_writer import ChangeLogWriter
from streaming_lsm.write.files.change_rows import ChangeRows
from streaming_lsm.write.files.prepare import prepare_data_file


@dataclass(frozen=True)
class ChangeLogTarget:
    """Creates the change logs of one instant; picklable, so that it can be sent to executors.

    Attributes:
        storage: the table's files.
        rows: computes the changes.
        native: whether the logs are native ones, and not inline ones.
        sorted_files: whether the table's files are sorted by record key, so that a key may repeat in a base file.
        codec: Parquet codec of native logs.
        spill_folder: a folder on a local disk to sort base files of other programs; None means the system's for
            temporary files.
        held_bytes: maximum bytes of rows in memory when these are sorted.
        file_names: names the columns of base files that were written before columns were renamed.
    """

    storage: Storage
    rows: ChangeRows
    native: bool
    sorted_files: bool
    codec: str
    spill_folder: str | None = None
    held_bytes: int = HELD_BYTES
    file_names: FileNames | None = None

    def create(
        self, partition: str, file_id: str, token: WriteToken, before: BaseFile | None, files: ExitStack
    ) -> ChangeLogWriter:
        """Create the change log of a new base file; its marker exists before it does.

        The base file before is read a second time, and only the columns that the log needs.

        Args:
            partition, file_id: the file group.
            token: write token of the new base file.
            before: the base file before; None if all rows are inserts.
            files: closes the base file, and removes the log unless it is finished.

        Raises:
            CorruptFileError: the base file is missing or damaged.
            Fenced: the instant takes no more files.
        """
        path = prepare_data_file(
            self.storage, self.rows.instant, partition, self._name(file_id, token), starts=before is None
        )
        source = "no base file" if before is None else before.path
        run = SortedRun(source, self._base_rows(before, files), trusted=True)
        writer = ChangeLogWriter(self.storage, path, self.rows, run, native=self.native, codec=self.codec)
        return files.enter_context(writer)

    def path_of(self, partition: str, file_id: str, token: WriteToken) -> str:
        """Return the path of a change log, relative to the table."""
        return file_path(partition, self._name(file_id, token))

    def _name(self, file_id: str, token: WriteToken) -> str:
        if self.native:
            return str(LogFileName(file_id, token, self.rows.instant, 1, LogKind.CDC))
        return str(InlineLogName(file_id, self.rows.instant, 1, token, cdc=True))

    def _base_rows(self, base: BaseFile | None, files: ExitStack) -> Iterator[pa.RecordBatch]:
        """Read the rows of a base file, ascending by key; one of another program may not be sorted."""
        if base is None:
            return iter(())
        opened = open_base(self.storage, base, files, self.file_names)
        batches = opened.batches(self.rows.base_columns)
        if opened.ascends(distinct=not self.sorted_files):
            return batches
        blocks = (Block(pa.Table.from_batches([batch])) for batch in batches)
        ordered = in_key_order(blocks, self.spill_folder, self.held_bytes)
        return (batch for block in ordered for batch in block.rows.to_batches())
