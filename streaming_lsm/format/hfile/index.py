"""Encode and decode the indexes of an HFile, which point to its blocks by key.

See docs/format/07-index-and-metadata.md, "HFile".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import bytes_of, gather
from streaming_lsm.arrow.columns import Int64s, flags, pc
from streaming_lsm.arrow.text_order import may_differ
from streaming_lsm.arrow.text_search import count_not_greater
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.block import corrupt
from streaming_lsm.format.hfile.cells import KEY_TAIL

MAX_LEVELS = 8
_ENTRY = struct.Struct(">qi")  # offset and size of a block
_ENTRIES = np.dtype([("offset", ">i8"), ("size", ">i4")])
_LONG = 0x80
"""First byte of a Hadoop VInt from which on it has further bytes."""
_ROW_SIZES = np.dtype(">i2")
# HBase appends the position of the middle key to a root index that points to other indexes.
_MIDDLE_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Pointer:
    """Index entry as it is written: the key, and where the block is."""

    key: bytes
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Pointers:
    """Entries of an index, ascending by offset and key.

    Attributes:
        keys: a key that is not greater than any of its block, and not less than any of earlier blocks, (blocks,).
        offsets, ends: offset of each block in the file, and of the byte after it, int64 (blocks,).
    """

    keys: pa.BinaryArray
    offsets: Int64s
    ends: Int64s

    def __len__(self) -> int:
        return len(self.offsets)


ReadIndex = Callable[[int, int, int], bytes]
"""Reads the payload of an index block, given its offset, its end, and the levels from it down to the data blocks."""


def data_blocks(root: bytes, count: int, levels: int, read: ReadIndex, source: str) -> Pointers:
    """Find all data blocks.

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
    leaves = list(_descend(root_entries(root, count, behind, source), levels, read, source))
    offsets, ends = (np.concatenate([getattr(leaf, name) for leaf in leaves]) for name in ("offsets", "ends"))
    keys: Any = pa.concat_arrays([leaf.keys for leaf in leaves])
    found = Pointers(_rows(keys, offsets, source), offsets, ends)
    late = found.offsets[1:] < found.ends[:-1]
    descends = flags(pc.less(found.keys[1:], found.keys[:-1])) if len(found) > 1 else late
    for place in np.flatnonzero(late | descends).tolist():
        if late[place] or out_of_order(found.keys[place].as_py(), found.keys[place + 1].as_py()):
            raise corrupt(source, int(offsets[place + 1]), "the index is out of order")
    return found


def _descend(entries: Pointers, levels: int, read: ReadIndex, source: str) -> Iterator[Pointers]:
    if levels == 1:
        yield entries
        return
    end = 0
    for offset, after in zip(entries.offsets.tolist(), entries.ends.tolist(), strict=True):
        if offset < end:
            raise corrupt(source, offset, "the index is out of order")
        end = after
        leaf = _leaf_entries(read(offset, after, levels), offset, source)
        yield from _descend(leaf, levels - 1, read, source)


def root_entries(payload: bytes, count: int, behind: int, source: str) -> Pointers:
    """Read the entries of a root or meta index, followed by `behind` bytes or none."""
    heads, begins, ends = _bounds(payload, count, source)
    left = len(payload) - int(ends[-1]) if count else len(payload)
    if left not in (0, behind):
        raise CorruptFileError(f"{source}: {left} bytes after an HFile index; restore the file")
    return _entries(payload, heads, begins, ends)


def _bounds(payload: bytes, count: int, source: str) -> tuple[Int64s, Int64s, Int64s]:
    """Return where the entries of a root index begin, and where their keys begin and end, int64 (count,) each."""
    heads: list[int] = []
    at, size = 0, _ENTRY.size
    # Nearly all keys are short: their lengths have one byte.
    for _ in range(count):
        heads.append(at)
        at += size
        if at >= len(payload) or payload[at] >= _LONG:
            return _bounds_of_any(payload, count, source)
        at += 1 + payload[at]
    if at > len(payload):
        return _bounds_of_any(payload, count, source)
    starts = np.array([*heads, at], np.int64)
    return starts[:-1], starts[:-1] + size + 1, starts[1:]


def _bounds_of_any(payload: bytes, count: int, source: str) -> tuple[Int64s, Int64s, Int64s]:
    at = 0
    found: list[tuple[int, int, int]] = []
    for _ in range(count):
        if len(payload) - at <= _ENTRY.size:
            raise CorruptFileError(f"{source}: HFile index ends within its {count} entries; restore the file")
        length, begin = _hadoop_varint(payload, at + _ENTRY.size, source)
        if length > len(payload) - begin:
            offset = _ENTRY.unpack_from(payload, at)[0]
            raise corrupt(source, offset, f"an index key of {length} bytes with only {len(payload) - begin} left")
        found.append((at, begin, begin + length))
        at = begin + length
    heads, begins, ends = np.array(found, np.int64).reshape(-1, 3).T
    return heads, begins, ends


def _leaf_entries(payload: bytes, offset: int, source: str) -> Pointers:
    """Read the entries of a leaf or intermediate index: count, starts of the entries, end of the last, entries."""
    count = int.from_bytes(payload[:4], "big")
    head = 4 * (count + 2)
    if len(payload) < head or count < 1:
        raise corrupt(source, offset, f"an index of {count} entries in {len(payload)} bytes")
    bounds = np.frombuffer(payload, ">i4", count + 1, 4).astype(np.int64)
    if bounds[0] != 0 or head + bounds[-1] != len(payload):
        raise corrupt(source, offset, "index entries do not fill their block")
    sizes = np.diff(bounds)
    if sizes.min() < _ENTRY.size:
        raise corrupt(source, offset, f"an index entry of {int(sizes.min())} bytes")
    starts = head + bounds
    return _entries(payload, starts[:-1], starts[:-1] + _ENTRY.size, starts[1:])


def _entries(payload: bytes, heads: Int64s, begins: Int64s, ends: Int64s) -> Pointers:
    """Read entries that begin at `heads`, with the keys from `begins` to `ends`."""
    data = np.frombuffer(payload, np.uint8)
    count = max(len(data) - _ENTRIES.itemsize + 1, 0)
    found = np.ndarray((count,), _ENTRIES, data, 0, (1,))[heads]
    offsets = found["offset"].astype(np.int64)
    return Pointers(gather(data, begins, ends), offsets, offsets + found["size"])


def encode_pointer(pointer: Pointer) -> bytes:
    """Encode an entry of a root or meta index, with its key as it is."""
    head = _ENTRY.pack(pointer.offset, pointer.size)
    return head + _encode_hadoop_varint(len(pointer.key)) + pointer.key


def row_key(key: bytes) -> bytes:
    """Return the key of a data block in an index that Hudi writes: without the suffix of HBase."""
    return len(key).to_bytes(2, "big") + key


def _rows(keys: pa.BinaryArray, offsets: Int64s, source: str) -> pa.BinaryArray:
    """Extract the rows of HBase keys; Hudi 1.2 writes no key suffix into the index."""
    bounds, data = bytes_of(keys)
    starts, ends = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
    short = ends - starts < _ROW_SIZES.itemsize
    if short.any():
        place = int(np.argmax(short))
        raise corrupt(source, int(offsets[place]), f"an index key of {int((ends - starts)[place])} bytes without a row")
    if not len(starts):
        return keys
    sizes = np.ndarray((len(data) - _ROW_SIZES.itemsize + 1,), _ROW_SIZES, data, 0, (1,))[starts].astype(np.int64)
    row_ends = starts + _ROW_SIZES.itemsize + sizes
    wrong = (sizes < 0) | ((row_ends != ends) & (row_ends + len(KEY_TAIL) != ends))
    if wrong.any():
        place = int(np.argmax(wrong))
        size, end = int((ends - starts)[place]), int((row_ends - starts)[place])
        raise corrupt(source, int(offsets[place]), f"an index key of {size} bytes with a row that ends at {end}")
    return gather(data, starts + _ROW_SIZES.itemsize, row_ends)


def _hadoop_varint(payload: bytes, at: int, source: str) -> tuple[int, int]:
    """Decode a length of Hadoop's WritableUtils; return it and the offset after it."""
    first = payload[at]
    if first < _LONG:
        return first, at + 1
    size = 0x90 - first
    if not 1 <= size <= 4 or len(payload) - at <= size:
        raise CorruptFileError(f"{source}: HFile index has a key length that begins with {first}; restore the file")
    return int.from_bytes(payload[at + 1 : at + 1 + size], "big"), at + 1 + size


def _encode_hadoop_varint(value: int) -> bytes:
    if value < _LONG:
        return bytes([value])
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([0x90 - len(digits)]) + digits


def blocks_of(starts: pa.BinaryArray, keys: pa.BinaryArray) -> tuple[Int64s, Int64s]:
    """Find the data blocks that may contain keys.

    Args:
        starts: the keys of the index, ascending by their bytes or as Java strings, which Hudi sorts.
        keys: the keys that are looked up.

    Returns:
        Pairs of a block and a key that it may contain: indices of blocks, ascending, and indices of keys, int64 each.
    """
    nth = np.arange(len(keys))
    blocks = _last_not_greater(starts, keys)
    odd = np.flatnonzero(may_differ(keys))
    if len(odd):
        utf16 = [pa.array([_utf16(key.as_py()) for key in some], pa.binary()) for some in (starts, keys.take(odd))]
        blocks, nth = np.append(blocks, _last_not_greater(*utf16)), np.append(nth, odd)
    order = np.argsort((blocks + 1).astype(np.min_scalar_type(len(starts))), kind="stable")  # quick for few bits
    order = order[np.searchsorted(blocks[order], 0) :]
    return blocks[order], nth[order]


def _last_not_greater(starts: pa.BinaryArray, keys: pa.BinaryArray) -> Int64s:
    """Return for each key the index of the last start that is not greater, or -1, int64 (keys,)."""
    count = count_not_greater(starts, keys)
    if count is not None:
        return count - 1
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
