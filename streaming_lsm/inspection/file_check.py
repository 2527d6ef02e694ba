"""Check the content of one data file: its footer, its rows, their order, and the write stat of its commit."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.arrow.columns import strings
from streaming_lsm.errors import CorruptFileError, LsmError, SchemaError, UnsupportedTable
from streaming_lsm.file_group.data_file import DataFile, open_base, open_log
from streaming_lsm.file_group.file_system_view import BaseFile, LogFile
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.column_versions import FileNames
from streaming_lsm.format.log.inline_blocks import BlockType, read_blocks
from streaming_lsm.inspection.key_entry_check import KeyEntryCheck, damaged_entries
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.checked import read_checked

MISSING, DAMAGED, UNSORTED, COUNT, UNCOMMITTED = "missing", "damaged", "unsorted", "count", "uncommitted"
DOUBLED, INDEX = "doubled", "index"
"""Kinds of findings; see docs/reading.md, "Verify a table"."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or left over.

    Attributes:
        kind: one of the kinds above.
        path: the file, relative to the table; "" if the message alone names it.
        message: what was found, and what to do.
    """

    kind: str
    path: str
    message: str

    @property
    def is_damage(self) -> bool:
        """Whether rows are missing or may be wrong; files of no commit are harmless."""
        return self.kind != UNCOMMITTED


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """The result of one file.

    Attributes:
        rows: rows of its footer; 0 for an inline log.
        findings: what is wrong.
    """

    path: str
    rows: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class FileCheck:
    """Checks data files, each by itself.

    Attributes:
        storage: the table's files.
        rule: names the ordering fields, which delete logs must have.
        schema: the table's columns, meta columns included.
        is_sorted: whether the rows of every file ascend by record key, as the layout lsm_tree asks for.
        is_quick: whether only footers are read.
        file_names: names the columns of files that were written before columns were renamed.
    """

    storage: Storage
    rule: MergeRule
    schema: pa.Schema
    is_sorted: bool
    is_quick: bool
    file_names: FileNames | None = None

    def __call__(self, task: tuple[BaseFile | LogFile, WriteStat | None]) -> CheckedFile:
        """Check a file of a latest slice.

        Args:
            task: the file, and its write stat; None if its write is archived.

        Raises:
            StorageError: it cannot be read at present.
        """
        file, stat = task
        try:
            if isinstance(file, LogFile) and not file.is_native:
                self._check_blocks(file)
                return CheckedFile(file.path, 0, ())
            with ExitStack() as files:
                opened = self._open(file, files)
                found, entry = [*_by_stat(file, opened, stat), *_damaged(opened)], KeyEntryCheck.of(opened)
                if not self.is_quick and not self._reads_in_order(opened, entry):
                    found.append(_unsorted(opened))
                if entry.missing is not None:
                    found.append(_false(opened, entry.missing))
                return CheckedFile(file.path, opened.rows, tuple(found))
        except (CorruptFileError, SchemaError, UnsupportedTable) as error:
            return CheckedFile(file.path, 0, (Finding(DAMAGED, file.path, _named(error, file.path)),))

    def _open(self, file: BaseFile | LogFile, files: ExitStack) -> DataFile:
        if isinstance(file, BaseFile):
            return open_base(self.storage, file, files, self.file_names)
        return open_log(self.storage, file, self.rule, files, self.file_names)[0]

    def _check_blocks(self, log: LogFile) -> None:
        blocks = read_blocks(read_checked(self.storage, log.path), log.path)
        corrupt = next((block for block in blocks if block.type is BlockType.CORRUPT), None)
        if corrupt is not None:
            raise CorruptFileError(f"{log.path}: bytes from {corrupt.offset} on are no block; restore the file")

    def _reads_in_order(self, file: DataFile, entry: KeyEntryCheck) -> bool:
        """Read all rows, a batch at a time; returns whether they ascend by record key, if they must.

        Their keys are looked for in the file's key entry.

        A key may be there several times, in a base file, too: a merge folds its rows (docs/format/10-rules.md,
        "Rule 11"). What the footer declares of the order is not trusted.
        """
        there = set(file.columns)
        schema = pa.schema([field.with_nullable(True) for field in self.schema if field.name in there])
        last: pa.Array[Any] = pa.array([], pa.string())
        ascends = True
        for batch in file.batches(schema):
            keys = pa.concat_arrays([last, batch.column(RECORD_KEY)])
            if keys.null_count:
                raise CorruptFileError(f"{file.path}: a row has no record key; restore the file")
            ascends = ascends and not pc.any(pc.less(keys[1:], keys[:-1])).as_py()
            last = keys[-1:]
            entry.add(strings(batch.column(RECORD_KEY)))
        return ascends or not self.is_sorted


def _by_stat(file: BaseFile | LogFile, opened: DataFile, stat: WriteStat | None) -> list[Finding]:
    """Compare rows and bytes with the write stat; one of zero bytes was written for a file that does not exist."""
    if stat is None or not stat.total_bytes:
        return []
    said = stat.num_deletes if opened.is_delete else stat.num_writes
    what = [("rows", opened.rows, said), ("bytes", file.size, stat.total_bytes)]
    return [
        Finding(
            COUNT,
            file.path,
            f"{file.path} has {found:,} {unit}, and {expected:,} in its commit: it is not the file that was committed; "
            "restore it",
        )
        for unit, found, expected in what
        if found != expected
    ]


def _damaged(file: DataFile) -> list[Finding]:
    return [
        Finding(
            INDEX,
            file.path,
            f"{file.path}: the {name} in its footer is damaged, or of other rows: look-ups do without it; restore the "
            "file",
        )
        for name in damaged_entries(file)
    ]


def _false(file: DataFile, key: str) -> Finding:
    return Finding(
        INDEX,
        file.path,
        f"{file.path}: the key entry in its footer rules out the record key {key!r:.80}, which the file has: look-ups "
        "do not find it; restore the file, or compact the file group (`lsm compact`)",
    )


def _unsorted(file: DataFile) -> Finding:
    # An order that the footer declares is not looked at again by readers, here and elsewhere.
    told = (
        "queries trust its footer, which declares the order, and may return wrong rows: restore the file"
        if file.declared
        else "queries here sort them again, other readers may return wrong rows: compact the file group (`lsm compact`)"
    )
    return Finding(UNSORTED, file.path, f"{file.path}: the record keys do not ascend; {told}")


def _named(error: LsmError, path: str) -> str:
    text = str(error)
    return text if path in text else f"{path}: {text}"
