"""Read what the names, footers and headers of data files say about the writes that made them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.file_group.data_file import open_base, open_log
from streaming_lsm.file_group.file_system_view import BaseFile, LogFile
from streaming_lsm.format.base_file_footer import AVRO_SCHEMA_KEY
from streaming_lsm.format.log.delete_block import decode_delete_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, LogBlock, read_blocks
from streaming_lsm.format.table.file_names import BaseFileName, DataFileName, LogFileName, LogKind, parse_file_name
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import COMMIT_TIME, META_COLUMNS, RECORD_KEY
from streaming_lsm.storage.base import FileEntry, Storage
from streaming_lsm.storage.checked import read_checked
from streaming_lsm.timeline.instant import FLAT_FOLDER
from streaming_lsm.timeline.partition_folders import partition_listings

_COUNT = struct.Struct(">ii")
_OPERATION = "_hoodie_operation"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A data file.

    Attributes:
        path: relative to the table.
        partition_path: the partition that it lies in.
        name: its parsed name.
        size: in bytes.
        rows: its rows but deletes.
        deletes: its deletes.
        schema: Avro JSON of its columns with meta columns; None if it does not say, or has partial rows.
        compacted: instants whose logs it replaces; empty unless a log compaction wrote it.
        keeps_deletes: whether it is a delete log of a full compaction.
        commits: of a base file the instants that wrote its rows.
    """

    path: str
    partition_path: str
    name: DataFileName
    size: int
    rows: int = 0
    deletes: int = 0
    schema: str | None = None
    compacted: tuple[str, ...] = ()
    keeps_deletes: bool = False
    commits: frozenset[str] = frozenset()

    @property
    def instant(self) -> str:
        """The instant of its name."""
        return self.name.instant

    @property
    def group(self) -> tuple[str, str]:
        """Partition path and file id."""
        return self.partition_path, self.name.file_id

    @property
    def is_base(self) -> bool:
        """Whether it is a base file."""
        return isinstance(self.name, BaseFileName)

    @property
    def is_change_log(self) -> bool:
        """Whether it is a change log."""
        return not isinstance(self.name, BaseFileName) and self.name.is_change_log

    @property
    def columns(self) -> str | None:
        """Avro JSON of its columns without meta columns."""
        if self.schema is None:
            return None
        record = json.loads(self.schema)
        fields = [column for column in record["fields"] if column["name"] not in (*META_COLUMNS, _OPERATION)]
        return json.dumps({**record, "fields": fields}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A data file by its name alone.

    Attributes:
        entry: its entry of the listing.
        partition_path: the partition that it lies in.
        name: its parsed name.
    """

    entry: FileEntry
    partition_path: str
    name: DataFileName

    @property
    def is_delete_log(self) -> bool:
        """Whether it is a native log of deletes."""
        return isinstance(self.name, LogFileName) and self.name.kind is LogKind.DELETES

    def unread(self) -> FoundFile:
        """Return what its name alone says."""
        return FoundFile(self.entry.path, self.partition_path, self.name, self.entry.size)


def list_data_files(storage: Storage) -> tuple[list[ListedFile], list[str]]:
    """List the data files of all partitions by path, and those in folders without partition metadata.

    Raises:
        UnsupportedTable: a link or special file is named as a data file.
    """
    partitions = partition_listings(storage)
    found = [
        ListedFile(entry, partition, name)
        for partition, entries in partitions.items()
        for entry in entries
        if not entry.is_dir and (name := parse_file_name(entry.name, rfc103_names=True)) is not None
    ]
    stray = [path for path in _outside(storage) if path.rpartition("/")[0] not in partitions]
    return sorted(found, key=lambda file: file.entry.path), sorted(stray)


def _outside(storage: Storage) -> Iterator[str]:
    """Yield the paths of all data files of the table, in whatever folder."""
    folders = [""]
    while folders:
        folder = folders.pop()
        entries = storage.list(folder)
        if folder and any(entry.name == FLAT_FOLDER for entry in entries):
            continue
        folders += [entry.path for entry in entries if entry.is_dir and entry.name != FLAT_FOLDER]
        names = (entry for entry in entries if not entry.is_dir)
        yield from (entry.path for entry in names if parse_file_name(entry.name, rfc103_names=True) is not None)


@dataclass(frozen=True)
class FileReader:
    """Reads the footers of data files; several may be read at a time.

    Attributes:
        storage: the table's files.
        rule: names the ordering fields, which delete logs must have.
    """

    storage: Storage
    rule: MergeRule

    def __call__(self, file: ListedFile) -> FoundFile | str:
        """Read one file.

        Returns:
            What it says, or why it cannot be read.
        """
        try:
            return self._read(file)
        except (CorruptFileError, UnsupportedTable) as error:
            return str(error)

    def _read(self, file: ListedFile) -> FoundFile:
        name, path, size = file.name, file.entry.path, file.entry.size
        if isinstance(name, BaseFileName):
            return self._base(file.partition_path, BaseFile(path, name, size))
        if name.is_change_log:
            return FoundFile(path, file.partition_path, name, size)
        if isinstance(name, LogFileName):
            return self._native(file.partition_path, LogFile(path, name, size))
        return self._inline(file.partition_path, LogFile(path, name, size))

    def _base(self, partition: str, base: BaseFile) -> FoundFile:
        if base.name.extension != "parquet":
            raise UnsupportedTable(f"{base.path}: data files in the format {base.name.extension} are not supported")
        times: set[str] = set()
        with ExitStack() as files:
            opened = open_base(self.storage, base, files)
            assert opened.opened is not None
            schema = (opened.opened.parquet.metadata.metadata or {}).get(AVRO_SCHEMA_KEY.encode())
            for batch in opened.batches(pa.schema([(RECORD_KEY, pa.string()), (COMMIT_TIME, pa.string())])):
                times.update(map(str, pc.unique(batch.column(COMMIT_TIME)).drop_null().to_pylist()))
        text = None if schema is None else schema.decode()
        return FoundFile(base.path, partition, base.name, base.size, opened.rows, schema=text, commits=frozenset(times))

    def _native(self, partition: str, log: LogFile) -> FoundFile:
        with ExitStack() as files:
            opened, header = open_log(self.storage, log, self.rule, files)
        return FoundFile(
            log.path,
            partition,
            log.name,
            log.size,
            rows=0 if log.is_delete else opened.rows,
            deletes=opened.rows if log.is_delete else 0,
            schema=None if header.is_partial else header.schema,
            compacted=header.compacted,
            keeps_deletes=bool(header.until) and not header.compacted,
        )

    def _inline(self, partition: str, log: LogFile) -> FoundFile:
        blocks = read_blocks(read_checked(self.storage, log.path), log.path)
        schemas = (block.header.get(Header.SCHEMA) for block in blocks if not block.is_partial)
        return FoundFile(
            log.path,
            partition,
            log.name,
            log.size,
            rows=sum(_ROWS[block.type](block, log.path) for block in blocks if block.type in _ROWS),
            deletes=sum(_deletes(block, log.path) for block in blocks if block.type is BlockType.DELETE),
            schema=next((schema for schema in schemas if schema), None),
            compacted=next((block.compacted for block in blocks if block.compacted), ()),
        )


def _avro_rows(block: LogBlock, path: str) -> int:
    if len(block.content) < _COUNT.size:
        raise CorruptFileError(f"{path}: a data block of only {len(block.content)} bytes; restore the file")
    return int(_COUNT.unpack_from(block.content)[1])


def _parquet_rows(block: LogBlock, path: str) -> int:
    try:
        return int(pq.read_metadata(pa.BufferReader(bytes(block.content))).num_rows)
    except pa.ArrowException as error:
        raise CorruptFileError(f"{path}: a Parquet block cannot be read ({error}); restore the file") from error


_ROWS: dict[BlockType, Callable[[LogBlock, str], int]] = {
    BlockType.AVRO_DATA: _avro_rows,
    BlockType.PARQUET_DATA: _parquet_rows,
}


def _deletes(block: LogBlock, path: str) -> int:
    return int(decode_delete_block(block.content, (), path).num_rows)
