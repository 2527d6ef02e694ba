"""Inline (version 1) logs: a file is a sequence of framed blocks (docs/format/04-inline-logs.md).

The frame has no checksum. What it has are two lengths around every block and a magic before it, and these are checked;
a changed byte inside a content is the business of whoever decodes the content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from streaming_lsm.errors import CorruptFileError, UnsupportedTable

MAGIC = b"#HUDI#"
BLOCK_VERSION = 1

_SIZE_BYTES = 8
_FRAME = len(MAGIC) + _SIZE_BYTES
MIN_PEEK_BYTES = _FRAME + 4 + 4 + 4 + 8 + 4 + 8
"""Bytes of the smallest block: frame, version, type, two empty maps, content length, reverse pointer."""
_MAX_ENTRIES = 64
_EMPTY = memoryview(b"")


class BlockType(IntEnum):
    """What a block holds; the ordinals on the wire."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class Header(IntEnum):
    """Keys of a block's header; the ordinals on the wire."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block of an inline log.

    Attributes:
        type: what it holds; `BlockType.CORRUPT` for bytes that are no block.
        header: its entries; those of unknown keys are left out.
        content: its bytes.
        offset: where it begins in the file.
    """

    type: BlockType
    header: Mapping[Header, str] = field(default_factory=dict)
    content: memoryview = _EMPTY
    offset: int = 0

    @property
    def instant(self) -> str:
        """The instant that wrote the block; empty where a block names none."""
        return self.header.get(Header.INSTANT_TIME, "")

    @property
    def compacted(self) -> tuple[str, ...]:
        """Instants that a log compaction's block stands for."""
        times = self.header.get(Header.COMPACTED_BLOCK_TIMES, "").split(",")
        return tuple(time.strip() for time in times if time.strip())

    @property
    def is_partial(self) -> bool:
        """Whether the rows have a part of the table's columns."""
        return self.header.get(Header.IS_PARTIAL, "").lower() == "true"

    @property
    def rolled_back(self) -> str | None:
        """The instant that a rollback block undoes; None for every other block."""
        is_rollback = self.type is BlockType.COMMAND and self.header.get(Header.COMMAND_BLOCK_TYPE) == "0"
        return self.header.get(Header.TARGET_INSTANT_TIME) if is_rollback else None


def read_blocks(data: bytes, source: str) -> list[LogBlock]:
    """All blocks of a file, in file order; damaged stretches are blocks of the type CORRUPT.

    A block counts when the length before it leads to the same length behind it, and to another block or the end of the
    file (docs/format/04-inline-logs.md, "Corruption"). What is too short for a magic is the end, as for Hudi: the block
    before it counts, and the rest is a damaged stretch by itself.

    Args:
        data: the whole file.
        source: its name, for messages.

    Raises:
        CorruptFileError: the file does not begin with a block, or an intact frame holds a malformed header.
        UnsupportedTable: a block of another version or of an unknown type.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise CorruptFileError(
            f"{source}: does not begin with {MAGIC.decode()}, as an inline log does (first bytes {data[:6]!r}); "
            "restore the file"
        )
    return list(_blocks(memoryview(data), data, source))


def peek(begin: bytes, left: int, where: str) -> tuple[BlockType, int, int] | None:
    """What a block is, from its first bytes.

    Args:
        begin: at least `MIN_PEEK_BYTES` of them, if the file has so many.
        left: bytes from here to the file's end.
        where: the block, for messages.

    Returns:
        Its type, its size, and where in it the content begins (0 where that is behind `begin`); None for what is no
        block, or not a whole one.

    Raises:
        UnsupportedTable: a block of another version or of an unknown type.
        CorruptFileError: its header is malformed.
    """
    if len(begin) < MIN_PEEK_BYTES or begin[: len(MAGIC)] != MAGIC:
        return None
    size = _FRAME + _long(begin, len(MAGIC))
    if not MIN_PEEK_BYTES <= size <= left:
        return None
    frame = memoryview(begin)[:size]
    kind = _kind(frame, where)
    try:
        _, at = _map(frame, _FRAME + 8, where)
    except CorruptFileError:
        if len(begin) >= size:
            raise
        return kind, size, 0
    return kind, size, at + 8


def _blocks(view: memoryview, data: bytes, source: str) -> Iterator[LogBlock]:
    at = 0
    while at < len(data):
        end = _block_end(data, at)
        if end is None:
            following = data.find(MAGIC, at + 1)
            end = len(data) if following < 0 else following
            yield LogBlock(BlockType.CORRUPT, {}, view[at:end], at)
        else:
            yield _block(view[at:end], at, source)
        at = end


def _block_end(data: bytes, at: int) -> int | None:
    """Where the block that begins at `at` ends; None when its frame does not hold."""
    if data[at : at + len(MAGIC)] != MAGIC or at + _FRAME > len(data):
        return None
    size = _long(data, at + len(MAGIC))
    end = at + _FRAME + size
    if end - at < MIN_PEEK_BYTES or end > len(data) or _long(data, end - 8) != size + len(MAGIC):
        return None
    return end if len(data) - end < len(MAGIC) or data[end : end + len(MAGIC)] == MAGIC else None


def _block(frame: memoryview, offset: int, source: str) -> LogBlock:
    where = f"{source}: block at offset {offset}"
    kind = _kind(frame, where)
    header, at = _map(frame, _FRAME + 8, where)
    if at + 8 > len(frame):
        raise _malformed(where, "its content has no length")
    length = _long(frame, at)
    if not 0 <= length <= len(frame) - at - 8:
        raise _malformed(where, f"its content has {length} bytes, the block {len(frame)}")
    content = frame[at + 8 : at + 8 + length]
    _, end = _map(frame, at + 8 + length, where)
    if end + 8 != len(frame):
        raise _malformed(where, f"{len(frame) - end - 8} bytes follow its footer")
    return LogBlock(kind, header, content, offset)


def _kind(frame: memoryview, where: str) -> BlockType:
    version, kind = struct.unpack_from(">ii", frame, _FRAME)
    if version != BLOCK_VERSION:
        raise UnsupportedTable(
            f"{where}: log format version {version}; inline logs of version {BLOCK_VERSION} are read"
        )
    if kind not in BlockType.__members__.values() or kind == BlockType.CORRUPT:
        raise UnsupportedTable(f"{where}: block type {kind} is not known to this release")
    return BlockType(kind)


def _map(frame: memoryview, at: int, where: str) -> tuple[dict[Header, str], int]:
    """The header or footer at `at`, and where it ends."""
    found: dict[Header, str] = {}
    if at + 4 > len(frame):
        raise _malformed(where, "its header is cut off")
    (count,) = struct.unpack_from(">i", frame, at)
    at += 4
    if not 0 <= count <= _MAX_ENTRIES:
        raise _malformed(where, f"its header has {count} entries")
    for _ in range(count):
        if at + 8 > len(frame):
            raise _malformed(where, "its header is cut off")
        key, length = struct.unpack_from(">ii", frame, at)
        at += 8
        if not 0 <= length <= len(frame) - at:
            raise _malformed(where, f"header entry {key} has {length} bytes")
        if key in Header.__members__.values():
            found[Header(key)] = _text(frame[at : at + length], where)
        at += length
    return found, at


def _text(value: memoryview, where: str) -> str:
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise _malformed(where, "a header entry is not UTF-8") from None


def _long(data: bytes | memoryview, at: int) -> int:
    (value,) = struct.unpack_from(">q", data, at)
    return int(value)


def _malformed(where: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{where}: {why}; restore the file")


def encode_block(kind: BlockType, header: Mapping[Header, str], content: bytes) -> bytes:
    """The bytes of one block.

    Args:
        kind: what `content` is.
        header: at least the instant and the schema for data and delete blocks.
        content: see docs/format/04-inline-logs.md, "Contents".
    """
    body = struct.pack(">ii", BLOCK_VERSION, kind) + _encoded(header)
    body += struct.pack(">q", len(content)) + content + _encoded({})
    size = len(body) + 8
    return MAGIC + struct.pack(">q", size) + body + struct.pack(">q", size + len(MAGIC))


def _encoded(header: Mapping[Header, str]) -> bytes:
    parts = [struct.pack(">i", len(header))]
    for key, value in header.items():
        text = value.encode()
        parts += [struct.pack(">ii", key, len(text)), text]
    return b"".join(parts)
