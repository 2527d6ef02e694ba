"""The frame of inline blocks: round trips, damage, and what is refused (docs/format/04-inline-logs.md)."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest

from streaming_lsm.errors import CorruptFileError, LsmError, UnsupportedTable
from streaming_lsm.format.log.inline_blocks import (
    MAGIC,
    MIN_PEEK_BYTES,
    BlockType,
    Header,
    LogBlock,
    encode_block,
    peek,
    read_blocks,
)

HEADER = {Header.INSTANT_TIME: "20260101000000000", Header.SCHEMA: '{"type":"record"}'}
FILE = encode_block(BlockType.AVRO_DATA, HEADER, b"first") + encode_block(BlockType.DELETE, HEADER, b"second")


def _types(blocks: list[LogBlock]) -> list[BlockType]:
    return [block.type for block in blocks]


def test_blocks_come_back_in_file_order_with_header_and_content() -> None:
    first, second = read_blocks(FILE, "f")
    assert (first.type, dict(first.header), bytes(first.content), first.offset) == (
        BlockType.AVRO_DATA,
        HEADER,
        b"first",
        0,
    )
    assert (second.type, bytes(second.content)) == (BlockType.DELETE, b"second")
    assert FILE[second.offset : second.offset + 6] == MAGIC


def test_a_block_is_laid_out_as_the_format_says() -> None:
    block = encode_block(BlockType.COMMAND, {Header.INSTANT_TIME: "1"}, b"")
    size = 4 + 4 + (4 + 8 + 1) + 8 + 0 + 4 + 8
    expected = MAGIC + struct.pack(">qii", size, 1, 0) + struct.pack(">iii", 1, 0, 1) + b"1"
    assert block == expected + struct.pack(">qiq", 0, 0, size + 6)


def test_what_a_header_says_is_taken_apart() -> None:
    header = {
        Header.INSTANT_TIME: "5",
        Header.COMPACTED_BLOCK_TIMES: "1, 2,3",
        Header.IS_PARTIAL: "true",
    }
    (block,) = read_blocks(encode_block(BlockType.AVRO_DATA, header, b""), "f")
    assert (block.instant, block.compacted, block.is_partial, block.rolled_back) == ("5", ("1", "2", "3"), True, None)
    command = {Header.INSTANT_TIME: "9", Header.TARGET_INSTANT_TIME: "5", Header.COMMAND_BLOCK_TYPE: "0"}
    (block,) = read_blocks(encode_block(BlockType.COMMAND, command, b""), "f")
    assert block.rolled_back == "5"


def test_keys_that_are_not_known_are_left_out() -> None:
    block = encode_block(BlockType.AVRO_DATA, {**HEADER, 77: "new"}, b"x")  # type: ignore[dict-item]
    (found,) = read_blocks(block, "f")
    assert dict(found.header) == HEADER


@pytest.mark.parametrize("cut", range(1, len(FILE)))
def test_a_cut_file_has_a_corrupt_block_where_it_was_cut(cut: int) -> None:
    whole = len(FILE) // 2  # the two blocks are about equal: where the first one ends
    first_end = read_blocks(FILE, "f")[1].offset
    assert abs(first_end - whole) < 10
    if cut < len(MAGIC):
        with pytest.raises(CorruptFileError, match="does not begin with"):
            read_blocks(FILE[:cut], "f")
        return
    expected = [BlockType.CORRUPT] if cut < first_end else [BlockType.AVRO_DATA]
    if cut > first_end:
        expected = [BlockType.AVRO_DATA, BlockType.CORRUPT]
    assert _types(read_blocks(FILE[:cut], "f")) == expected


@pytest.mark.parametrize("tail", [b"\0", b"#HUD", b"what?"])
def test_a_tail_too_short_for_a_magic_leaves_the_block_before_it(tail: bytes) -> None:
    blocks = read_blocks(FILE + tail, "f")
    assert _types(blocks) == [BlockType.AVRO_DATA, BlockType.DELETE, BlockType.CORRUPT]
    assert bytes(blocks[2].content) == tail


def test_a_tail_as_long_as_a_magic_that_is_none_takes_the_block_before_it_along() -> None:
    assert _types(read_blocks(FILE + b"#HUDI?", "f")) == [BlockType.AVRO_DATA, BlockType.CORRUPT]


@pytest.mark.parametrize("read", [MIN_PEEK_BYTES, 60, len(FILE)])
def test_a_peek_says_what_a_block_is_and_where_its_content_begins(read: int) -> None:
    second = read_blocks(FILE, "f")[1].offset
    at = FILE.index(b"first")
    assert peek(FILE[:read], len(FILE), "f") == (BlockType.AVRO_DATA, second, at if read >= at else 0)
    assert peek(FILE[second : second + read], len(FILE) - second, "f") is not None
    assert peek(FILE[:read], second - 1, "f") is None
    assert peek(b"?" + FILE[1:read], len(FILE), "f") is None


def test_reading_goes_on_at_the_next_magic_after_a_damaged_block() -> None:
    third = encode_block(BlockType.PARQUET_DATA, HEADER, b"third")
    second = read_blocks(FILE, "f")[1].offset
    damaged = bytearray(FILE + third)
    damaged[second + 10] ^= 1  # the size of the second block
    blocks = read_blocks(bytes(damaged), "f")
    assert _types(blocks) == [BlockType.AVRO_DATA, BlockType.CORRUPT, BlockType.PARQUET_DATA]
    assert bytes(blocks[2].content) == b"third"


@pytest.mark.parametrize("place", range(len(FILE)))
def test_a_changed_byte_gives_a_named_error_or_blocks_of_the_same_bytes(place: int) -> None:
    changed = bytearray(FILE)
    changed[place] ^= 0x15
    with suppress(LsmError):
        blocks = read_blocks(bytes(changed), "the.log")
        assert sum(len(block.content) for block in blocks if block.type is not BlockType.CORRUPT) <= len(FILE)
        assert all(block.content.tobytes() in bytes(changed) for block in blocks)


@pytest.mark.parametrize(
    ("version", "kind", "why"), [(2, 3, "log format version 2"), (1, 2, "block type 2"), (1, 99, "block type 99")]
)
def test_other_versions_and_types_are_refused_by_name(version: int, kind: int, why: str) -> None:
    block = bytearray(encode_block(BlockType.AVRO_DATA, HEADER, b"x"))
    block[14:22] = struct.pack(">ii", version, kind)
    with pytest.raises(UnsupportedTable, match=why):
        read_blocks(bytes(block), "f")


def test_a_file_of_something_else_is_named() -> None:
    with pytest.raises(CorruptFileError, match="PAR1"):
        read_blocks(b"PAR1....PAR1", "f")
