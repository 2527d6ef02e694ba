"""Encode and decode the indexes of an HFile, which point to its blocks by key.

See docs/format/07-index-and-metadata.md, "HFile".
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, pc
from streaming_lsm.arrow.text_order import may_differ
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.block import corrupt
from streaming_lsm.format.hfile.cells import KEY_TAIL

MAX_LEVELS = 8
_ENTRY = struct.Struct(">qi")  # offset and size of a block
# HBase appends the position of the middle key to a root index that points to other indexes.
_MIDDLE_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Pointer:
    """Index entry: `key` is not greater than any key of its block, and not less than any key of earlier blocks."""

    key: bytes
    offset: int
    size: int

    @property
    def end(self) -> int:
        """Offset of the byte after the block."""
        return self.offset + self.size


ReadIndex = Callable[[Pointer, int], bytes]
"""Reads the payload of an index block, given the number of levels from it down to the data blocks."""


def data_blocks(root: bytes, count: int, levels: int, read: ReadIndex, source: str) -> Iterator[Pointer]:
    """Yield the entries of all data blocks, in ascending order of offset and key.

    Args:
        root: payload of the root index.
        count: its entries.
        levels: 1 if the root index points to data blocks; more with intermediate indexes.
        read: reads the other indexes.
        source: the file, for messages.

    Raises:
        CorruptFileError: an index is damaged, or out of order.
    """
    if not 1 <= levels <= MAX_LEVELS:
        raise CorruptFileError(f"{source}: HFile has {levels} index levels; restore the file")
    behind = _MIDDLE_KEY_BYTES if levels > 1 else 0
    end, key = 0, b""
    for pointer in _descend(root_entries(root, count, behind, source), levels, read, source):
        start = _row(pointer.key, pointer.offset, source)
        if pointer.offset < end or out_of_order(key, start):
            raise corrupt(source, pointer.offset, "the index is out of order")
        end, key = pointer.end, start
        yield Pointer(start, pointer.offset, pointer.size)


def _descend(pointers: Iterator[Pointer], levels: int, read: ReadIndex, source: str) -> Iterator[Pointer]:
    if levels == 1:
        yield from pointers
        return
    for pointer in pointers:
        payload = read(pointer, levels)
        yield from _descend(_leaf_entries(payload, pointer.offset, source), levels - 1, read, source)


def root_entries(payload: bytes, count: int, behind: int, source: str) -> Iterator[Pointer]:
    """Yield the entries of a root or meta index, followed by `behind` bytes or none."""
    at = 0
    for _ in range(count):
        if len(payload) - at <= _ENTRY.size:
            raise CorruptFileError(f"{source}: HFile index ends within its {count} entries; restore the file")
        offset, size = _ENTRY.unpack_from(payload, at)
        length, at = _hadoop_varint(payload, at + _ENTRY.size, source)
        if length > len(payload) - at:
            raise corrupt(source, offset, f"an index key of {length} bytes with only {len(payload) - at} left")
        yield Pointer(payload[at : at + length], offset, size)
        at += length
    if len(payload) - at not in (0, behind):
        raise CorruptFileError(f"{source}: {len(payload) - at} bytes after an HFile index; restore the file")


def _leaf_entries(payload: bytes, offset: int, source: str) -> Iterator[Pointer]:
    """Yield the entries of a leaf or intermediate index: count, starts of the entries, end of the last, entries."""
    count = int.from_bytes(payload[:4], "big")
    head = 4 * (count + 2)
    if len(payload) < head or count < 1:
        raise corrupt(source, offset, f"an index of {count} entries in {len(payload)} bytes")
    starts = struct.unpack_from(f">{count + 1}i", payload, 4)
    if starts[0] != 0 or head + starts[-1] != len(payload):
        raise corrupt(source, offset, "index entries do not fill their block")
    for start, end in itertools.pairwise(starts):
        if end - start < _ENTRY.size:
            raise corrupt(source, offset, f"an index entry of {end - start} bytes")
        yield Pointer(payload[head + start + _ENTRY.size : head + end], *_ENTRY.unpack_from(payload, head + start))


def encode_pointer(pointer: Pointer) -> bytes:
    """Encode an entry of a root or meta index, with its key as it is."""
    head = _ENTRY.pack(pointer.offset, pointer.size)
    return head + _encode_hadoop_varint(len(pointer.key)) + pointer.key


def row_key(key: bytes) -> bytes:
    """Return the key of a data block in an index that Hudi writes: without the suffix of HBase."""
    return len(key).to_bytes(2, "big") + key


def _row(key: bytes, offset: int, source: str) -> bytes:
    """Extract the row of an HBase key; Hudi 1.2 writes no key suffix into the index."""
    end = 2 + int.from_bytes(key[:2], "big", signed=True)
    if len(key) < 2 or end < 2 or len(key) - end not in (0, len(KEY_TAIL)):
        raise corrupt(source, offset, f"an index key of {len(key)} bytes with a row that ends at {end}")
    return key[2:end]


def _hadoop_varint(payload: bytes, at: int, source: str) -> tuple[int, int]:
    """Decode a length of Hadoop's WritableUtils; return it and the offset after it."""
    first = payload[at]
    if first < 0x80:
        return first, at + 1
    size = 0x90 - first
    if not 1 <= size <= 4 or len(payload) - at <= size:
        raise CorruptFileError(f"{source}: HFile index has a key length that begins with {first}; restore the file")
    return int.from_bytes(payload[at + 1 : at + 1 + size], "big"), at + 1 + size


def _encode_hadoop_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes([value])
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([0x90 - len(digits)]) + digits


def blocks_of(first_keys: Sequence[bytes], keys: pa.BinaryArray) -> tuple[Int64s, Int64s]:
    """Find the data blocks that may contain keys.

    Args:
        first_keys: the keys of the index, ascending by their bytes or as Java strings, which Hudi sorts.
        keys: the keys that are looked up.

    Returns:
        Pairs of a block and a key that it may contain: indices of blocks, ascending, and indices of keys, int64 each.
    """
    starts: pa.BinaryArray = pa.array(first_keys, pa.binary())
    nth = np.arange(len(keys))
    blocks = _last_not_greater(starts, keys)
    odd = np.flatnonzero(may_differ(keys))
    if len(odd):
        utf16 = [pa.array([_utf16(key.as_py()) for key in some], pa.binary()) for some in (starts, keys.take(odd))]
        blocks, nth = np.append(blocks, _last_not_greater(*utf16)), np.append(nth, odd)
    order = np.argsort(blocks, kind="stable")
    order = order[np.searchsorted(blocks[order], 0) :]
    return blocks[order], nth[order]


def _last_not_greater(starts: pa.BinaryArray, keys: pa.BinaryArray) -> Int64s:
    """Return for each key the index of the last start that is not greater, or -1, int64 (keys,)."""
    order = np.asarray(pc.sort_indices(pa.concat_arrays([starts, keys])))  # stable: starts precede equal keys
    is_start = order < len(starts)
    found = np.empty(len(keys), np.int64)
    found[order[~is_start] - len(starts)] = np.cumsum(is_start)[~is_start] - 1
    return found


def out_of_order(key: bytes, following: bytes) -> bool:
    """Check whether keys descend in both orders: by bytes, and as Java strings, which Hudi sorts.

    The orders differ for characters beyond U+FFFF only.
    """
    return following < key and _utf16(following) < _utf16(key)


def _utf16(key: bytes) -> bytes:
    """Convert a key to UTF-16, which has the order of Java's strings."""
    return key.decode(errors="replace").encode("utf-16-be")
