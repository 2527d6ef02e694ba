"""Encode and decode the blocks of inline (version 1) logs (docs/format/04-inline-logs.md, "Frame").

An inline log is a sequence of blocks. The *frame* of a block is a magic and a length before it and the same length
after it; these are checked here. There is no checksum, so an altered byte within the content is detected, if at all, by
the decoder of the content.
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
"""Size of the smallest block in bytes: frame, version, type, two empty maps, content length, reverse pointer."""
_MAX_ENTRIES = 64
_EMPTY = memoryview(b"")


class BlockType(IntEnum):
    """Type of a block; values are the ordinals in the file."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class Header(IntEnum):
    """Key of an entry in a block's header; values are the ordinals in the file."""

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
    """Block of an inline log.

    Attributes:
        type: type of the block; `BlockType.CORRUPT` for bytes that are not a block.
        header: entries of the header; unknown keys are dropped.
        content: bytes of the content.
        offset: offset of the block in the file.
    """

    type: BlockType
    header: Mapping[Header, str] = field(default_factory=dict)
    content: memoryview = _EMPTY
    offset: int = 0

    @property
    def instant(self) -> str:
        """Instant that wrote the block; empty if the header has none."""
        return self.header.get(Header.INSTANT_TIME, "")

    @property
    def compacted(self) -> tuple[str, ...]:
        """Instants whose blocks this block of a log compaction replaces."""
        times = self.header.get(Header.COMPACTED_BLOCK_TIMES, "").split(",")
        return tuple(time.strip() for time in times if time.strip())

    @property
    def is_partial(self) -> bool:
        """Whether the rows have only some of the table's columns."""
        return self.header.get(Header.IS_PARTIAL, "").lower() == "true"

    @property
    def rolled_back(self) -> str | None:
        """Instant that a rollback block rolls back; None for other blocks."""
        is_rollback = self.type is BlockType.COMMAND and self.header.get(Header.COMMAND_BLOCK_TYPE) == "0"
        return self.header.get(Header.TARGET_INSTANT_TIME) if is_rollback else None


def read_blocks(data: bytes, source: str) -> list[LogBlock]:
    """Decode all blocks of a file, in file order; damaged byte ranges become blocks of the type CORRUPT.

    A block is valid if the lengths before and after it are equal, and another block or the end of the file follows
    (docs/format/04-inline-logs.md, "Corruption"). A rest that is too short for a magic counts as the end of the file,
    as in Hudi: the block before it is valid, and the rest is a CORRUPT block.

    Args:
        data: the whole file.
        source: its name, for messages.

    Raises:
        CorruptFileError: the file does not begin with a block, or a block with a valid frame has a malformed header.
        UnsupportedTable: a block of another version or of an unknown type.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise CorruptFileError(
            f"{source}: does not begin with {MAGIC.decode()}, as an inline log does (first bytes {data[:6]!r}); "
            "restore the file"
        )
    return list(_blocks(memoryview(data), data, source))


def peek(begin: bytes, left: int, where: str) -> tuple[BlockType, int, int] | None:
    """Decode the type and size of a block from its first bytes.

    Args:
        begin: the first bytes, at least `MIN_PEEK_BYTES` unless the file ends before.
        left: bytes from the start of the block to the end of the file.
        where: the block, for messages.

    Returns:
        Its type, its size, and the offset of the content in the block (0 if beyond `begin`); None if there is no
        complete block.

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
    """Return the end of the block that begins at `at`; None if its frame is not valid."""
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
    """Decode the header or footer at `at`; return it and its end."""
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
    """Encode a block.

    Args:
        kind: type of the block.
        header: at least the instant and, for data and delete blocks, the schema.
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
