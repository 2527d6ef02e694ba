"""Whether the blocks of inline logs are of kinds that are read, found out before any of them is."""

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
"""Bytes read of each block: its header, with the schema in it, and the first of the content."""
_DELETE_PEEKED = 8


def check_kinds(storage: Storage, logs: Iterable[LogFile]) -> None:
    """Look at the begin of every block; native logs have none. What is damaged is left to whoever reads the rows.

    Raises:
        UnsupportedTable: a block of another version, of an unknown type, or with deletes that Java serialised.
    """
    for log in logs:
        if not log.is_native:
            with suppress(CorruptFileError, FileNotFoundError):
                _check_log(storage, log.path)


def _check_log(storage: Storage, path: str) -> None:
    try:
        _peek_at_log(storage, path)
    except UnsupportedTable:
        # It may be a changed byte, or what follows a write that died within the block.
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
    """Look at a log that is damaged, or seems to be: all of it is read, and only whole blocks count."""
    for block in read_blocks(read_checked(storage, path), path):
        if block.type is BlockType.DELETE:
            check_delete_version(block.content, f"{path}: block at offset {block.offset}")
