"""Open the log files of the metadata table: HFiles, each of one instant.

See docs/format/07-index-and-metadata.md, "Metadata table". They are inline logs with one HFile block or, from table
version 10 on, native logs: HFiles with the block's header in their file info.
"""

from __future__ import annotations

from collections.abc import Iterator

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.log.inline_blocks import BlockType, LogBlock, read_blocks
from streaming_lsm.format.log.native_footer import LogHeader
from streaming_lsm.format.table.file_names import InlineLogName, LogFileName

LogName = InlineLogName | LogFileName

NO_DELETES = bytes.fromhex("00000003 00000001 00")
"""Content of the delete block that marks a new file group."""


def open_log(data: bytes, name: LogName, source: str) -> Iterator[tuple[str, HFile]]:
    """Yield the HFile of each block of a log, with its instant; only logs of table version 6 have several blocks.

    Raises:
        CorruptFileError: the log is damaged.
        UnsupportedTable: blocks of another kind, or those of a log compaction or a rollback.
    """
    if isinstance(name, LogFileName):
        file = HFile.open(data, source)
        info = {key.encode(): value for key, value in file.info.items()}
        header = LogHeader.from_footer(info, name, source)
        if header.compacted:
            raise UnsupportedTable(f"{source}: a log compaction wrote it, which is not read in a metadata table")
        yield name.instant, file
        return
    for block in read_blocks(data, source):
        if block.type is BlockType.CORRUPT:
            raise CorruptFileError(f"{source}: a damaged block at offset {block.offset}; drop the metadata table")
        if block.type is BlockType.HFILE_DATA and not block.compacted:
            yield block.instant, HFile.open(block.content, source)
        elif not _is_empty(block):
            raise UnsupportedTable(
                f"{source}: block of the type {block.type.name} at offset {block.offset}, which is not read here"
            )


def _is_empty(block: LogBlock) -> bool:
    return block.type is BlockType.DELETE and block.content == NO_DELETES
