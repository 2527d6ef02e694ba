"""Check the block types of inline logs before rows are read, so that an unsupported block fails a scan at its start."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.file_group.file_system_view import LogFile
from streaming_lsm.format.log.delete_block import check_delete_version
from streaming_lsm.format.log.inline_blocks import BlockType, peek, read_blocks
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.checked import read_checked

_PEEKED = 16 << 10
"""Bytes read of each block: its header, with the schema, and the first bytes of the content."""
_DELETE_PEEKED = 8


def check_kinds(storage: Storage, logs: Iterable[LogFile]) -> None:
    """Check the version and type of every inline block; damaged blocks are reported when their rows are read.

    Raises:
        UnsupportedTable: a block of another version, of an unknown type, or with Java-serialised deletes.
    """
    for log in logs:
        if not log.is_native:
            with suppress(CorruptFileError, FileNotFoundError):
                _check_log(storage, log.path)


def _check_log(storage: Storage, path: str) -> None:
    try:
        _peek_at_log(storage, path)
    except UnsupportedTable:
        # The bytes may be damaged, or follow the torn block of a failed write.
        _check_whole_blocks(storage, path)


def _peek_at_log(storage: Storage, path: str) -> None:
    with storage.open_input(path) as source:
        size, at = source.size(), 0
        while at < size:
            where = f"{path}: block at offset {at}"
            source.seek(at)
            begin = source.read(_PEEKED)
            found = peek(begin, size - at, where)
            if found is None:
                _check_whole_blocks(storage, path)
                return
            kind, length, content = found
            if kind is BlockType.DELETE:
                if not 0 < content <= len(begin) - _DELETE_PEEKED:
                    begin += source.read(length - len(begin))
                    _, _, content = peek(begin, size - at, where) or found
                check_delete_version(begin[content : content + _DELETE_PEEKED], where)
            at += length


def _check_whole_blocks(storage: Storage, path: str) -> None:
    """Check the whole blocks of a log that is damaged or seems to be; the file is read in full to find them."""
    for block in read_blocks(read_checked(storage, path), path):
        if block.type is BlockType.DELETE:
            check_delete_version(block.content, f"{path}: block at offset {block.offset}")
