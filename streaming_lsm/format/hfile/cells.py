"""Encode and decode the cells of an HFile's data blocks, all cells at once.

See docs/format/07-index-and-metadata.md, "HFile". A *cell* is an entry of a data block: the sizes of key and value, the
HBase key (the *row*, which is Hudi's key, and `KEY_TAIL`), the value, and a zero byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_lsm.arrow.buffers import bytes_of, gather, offsets_of, spans
from streaming_lsm.arrow.columns import Flags, Int64s, UInt8s, pc
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.block import corrupt

KEY_TAIL = b"\x00" + (2**63 - 1).to_bytes(8, "big") + b"\x04"
"""Suffix of an HBase key after the row: no family, the latest time, type Put."""

_HEAD = np.dtype([("key", ">i4"), ("value", ">i4"), ("row", ">i2")])
"""Sizes of key and value, and the size of the row, with which the key begins."""
_LOW_OF_KEY, _LOW_OF_ROW = 3, 9
"""Offsets of the lowest bytes of the sizes of key and row."""
_LENGTHS = struct.Struct(">ii")
_ROW = struct.Struct(">h")
_ONE_HEAD = struct.Struct(">iih")
_SMALLEST = _HEAD.itemsize + 1
MAX_ROW_BYTES = 2**15 - 1
"""Bytes of the longest row that a cell can have."""
_FEW_BYTES = 1 << 14
"""Bytes of cells that are followed one by one, which takes less time than to find them all at once."""
CELL_BYTES = _HEAD.itemsize + len(KEY_TAIL) + 1
"""Bytes of a cell without its row and its value."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of one or several data blocks, ascending by key.

    Attributes:
        data: uint8, the payloads of the blocks end to end.
        key_starts, key_ends: ranges of the keys in `data`, int64 (cells,).
        value_starts, value_ends: ranges of the values in `data`, int64 (cells,).
    """

    data: UInt8s
    key_starts: Int64s
    key_ends: Int64s
    value_starts: Int64s
    value_ends: Int64s

    def __len__(self) -> int:
        return len(self.key_starts)

    @property
    def keys(self) -> pa.BinaryArray:
        """The keys, copied out of the blocks."""
        return gather(self.data, self.key_starts, self.key_ends)

    @property
    def values(self) -> pa.BinaryArray:
        """The values, copied out of the blocks."""
        return gather(self.data, self.value_starts, self.value_ends)

    @property
    def content(self) -> memoryview:
        """The bytes of `data`."""
        return memoryview(self.data)  # type: ignore[arg-type]  # arrays have buffers

    @staticmethod
    def joined(parts: Sequence[Cells]) -> Cells:
        """Copy the keys and values of cells end to end."""
        keys, values = (
            pa.concat_arrays(column) for column in zip(*((part.keys, part.values) for part in parts), strict=True)
        )
        return Cells.of(keys, values)

    @staticmethod
    def of(keys: pa.BinaryArray, values: pa.BinaryArray) -> Cells:
        """Copy keys and values, both without nulls, end to end."""
        key_ends, key_bytes = bytes_of(keys)
        ends, value_bytes = bytes_of(values)
        value_ends: Int64s = ends.astype(np.int64) + len(key_bytes)
        return Cells(
            data=np.concatenate((key_bytes, value_bytes)),
            key_starts=key_ends[:-1].astype(np.int64),
            key_ends=key_ends[1:].astype(np.int64),
            value_starts=value_ends[:-1],
            value_ends=value_ends[1:],
        )

    def at(self, places: Int64s | Flags) -> Cells:
        """Return some of the cells, by their indices or flags."""
        return Cells(
            data=self.data,
            key_starts=self.key_starts[places],
            key_ends=self.key_ends[places],
            value_starts=self.value_starts[places],
            value_ends=self.value_ends[places],
        )


def encode_cells(keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.BinaryArray:
    """Encode cells.

    Args:
        keys: keys without nulls, each of at most 32,767 bytes.
        values: a value for each key, without nulls.
    """
    heads = np.empty(len(keys), _HEAD)
    rows = np.diff(offsets_of(keys))
    heads["key"] = rows + (_ROW.size + len(KEY_TAIL))
    heads["value"] = np.diff(offsets_of(values))
    heads["row"] = rows
    ends = np.arange(len(keys) + 1, dtype=np.int64) * _HEAD.itemsize
    found: pa.BinaryArray = pc.binary_join_element_wise(
        spans(ends, heads.view(np.uint8)), keys, KEY_TAIL, values, b"\0", b""
    )
    return found


def encode_cell(key: bytes, value: bytes) -> bytes:
    """Encode one cell; see `encode_cells`."""
    head = _ONE_HEAD.pack(_ROW.size + len(key) + len(KEY_TAIL), len(value), len(key))
    return b"".join((head, key, KEY_TAIL, value, b"\0"))


def decode_cells(data: UInt8s, blocks: Int64s, offsets: Int64s, source: str) -> Cells:
    """Find the cells of data blocks.

    The heads of cells are found by their form: two sizes, of which the first follows from the third. A value may hold
    bytes of that form; a head counts only if the cells from the first one on lead to it.

    Args:
        data: the payloads of the blocks end to end.
        blocks: start of each payload in `data`, int64 (blocks,), ascending from 0; none is empty.
        offsets: offset of each block in its file, int64 (blocks,), for messages.
        source: the file, for messages.

    Raises:
        CorruptFileError: a block is not filled by cells as Hudi writes them.
    """
    if len(data) <= _FEW_BYTES:
        return _followed(data, blocks, offsets, source)
    heads, ends = _heads_of_one_size(data)
    if not _is_chain(heads, ends, len(data)):
        heads, ends = _heads(data)
        if not _is_chain(heads, ends, len(data)):
            chain = _chain(heads, ends)
            heads, ends = heads[chain], ends[chain]
    stop = int(ends[-1]) if len(ends) and heads[0] == 0 else 0
    led = np.searchsorted(heads, blocks)
    broken = (led == len(heads)) | (heads[np.minimum(led, len(heads) - 1)] != blocks) if len(heads) else blocks >= 0
    if stop != len(data) or broken.any():
        raise _complaint(data, blocks, offsets, source)
    sizes = _sizes(data, heads) if len(heads) else np.zeros(0, _HEAD)
    key_starts = heads + _HEAD.itemsize
    return Cells(
        data=data,
        key_starts=key_starts,
        key_ends=key_starts + sizes["row"],
        value_starts=heads + _LENGTHS.size + sizes["key"],
        value_ends=ends - 1,
    )


def _followed(data: UInt8s, blocks: Int64s, offsets: Int64s, source: str) -> Cells:
    """Find the cells of few bytes; see `decode_cells`."""
    found: list[tuple[int, int, int, int]] = []
    for start, end, offset in zip(blocks.tolist(), [*blocks[1:].tolist(), len(data)], offsets.tolist(), strict=True):
        cells, why = _walk(data[start:end].tobytes(), start)
        if why:
            raise corrupt(source, offset, why)
        found += cells
    places: Int64s = np.array(found, np.int64).reshape(-1, 4)
    return Cells(data, places[:, 0], places[:, 1], places[:, 2], places[:, 3])


def find_cells(blocks: Iterable[tuple[bytes, bytes]]) -> Cells | None:
    """Find the cells of keys by the bytes of these, without the cells before them.

    A value could hold the bytes of a cell, but no value that Hudi or this package writes: the tail of a key has eight
    bytes that no text in UTF-8 has.

    Args:
        blocks: the keys, each with the payload of the block that may have it.

    Returns:
        Copies of the cells that were found, in the order of the keys; None if a block has to be followed from its first
        cell on.
    """
    cells: list[bytes] = []
    sizes: list[tuple[int, int]] = []
    for key, payload in blocks:
        if len(payload) < _SMALLEST:
            return None
        key_size, _, row_size = _ONE_HEAD.unpack_from(payload, 0)
        if key_size != _ROW.size + row_size + len(KEY_TAIL):
            return None
        if len(key) > MAX_ROW_BYTES:
            continue
        at = payload.find(_ROW.pack(len(key)) + key + KEY_TAIL, _LENGTHS.size)
        if at < 0:
            continue
        key_size, value_size = _LENGTHS.unpack_from(payload, at - _LENGTHS.size)
        end = at + key_size + value_size
        if key_size != _ROW.size + len(key) + len(KEY_TAIL) or value_size < 0 or end >= len(payload) or payload[end]:
            return None
        cells.append(payload[at:end])
        sizes.append((len(key), value_size))
    rows, values = np.array(sizes, np.int64).reshape(-1, 2).T
    keys = rows + (_ROW.size + len(KEY_TAIL))
    starts = np.cumsum(keys + values) - (keys + values)
    data = np.frombuffer(b"".join(cells), np.uint8)
    key_starts, value_starts = starts + _ROW.size, starts + keys
    return Cells(data, key_starts, key_starts + rows, value_starts, value_starts + values)


def _is_chain(heads: Int64s, ends: Int64s, size: int) -> bool:
    """Whether each cell begins where the one before it ends, from the first byte to the last."""
    return bool(len(heads) and heads[0] == 0 and ends[-1] == size and np.array_equal(heads[1:], ends[:-1]))


def _heads_of_one_size(data: UInt8s) -> tuple[Int64s, Int64s]:
    """Find cells with keys of the size of the first one's by the tails of their keys; see `_heads`."""
    row = int(_sizes(data, np.zeros(1, np.int64))["row"][0])
    if row < 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    tails: Int64s = np.flatnonzero(data[: len(data) - len(KEY_TAIL)] == KEY_TAIL[1]) - 1
    tails = tails[tails >= _HEAD.itemsize + row]
    tails = tails[_windows(data, len(KEY_TAIL))[tails] == np.void(KEY_TAIL)]
    heads = tails - (_HEAD.itemsize + row)
    sizes = _sizes(data, heads)
    ends = tails + len(KEY_TAIL) + 1 + sizes["value"]
    fits = (sizes["row"] == row) & (sizes["key"] == _ROW.size + row + len(KEY_TAIL))
    fits &= (sizes["value"] >= 0) & (ends <= len(data))
    heads, ends = heads[fits], ends[fits]
    whole = data[ends - 1] == 0
    return heads[whole], ends[whole]


def _heads(data: UInt8s) -> tuple[Int64s, Int64s]:
    """Find the positions at which a whole cell may begin, and where it ends, int64 each."""
    last = len(data) - _SMALLEST
    if last < 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # A key has less than 2^16 bytes: its size begins with two zero bytes.
    heads: Int64s = np.flatnonzero((data[: last + 1] == 0) & (data[1 : last + 2] == 0))
    more = data[heads + _LOW_OF_KEY] - data[heads + _LOW_OF_ROW]  # of one byte each, as a first sieve
    heads = heads[(more == _ROW.size + len(KEY_TAIL)) | (more == _ROW.size)]
    sizes = _sizes(data, heads)
    rows, keys = sizes["row"].astype(np.int64), sizes["key"].astype(np.int64)
    ends = heads + (_LENGTHS.size + 1) + keys + sizes["value"]
    surplus = keys - rows - _ROW.size
    fits = (rows >= 0) & (sizes["value"] >= 0) & ((surplus == 0) | (surplus == len(KEY_TAIL))) & (ends <= len(data))
    heads, ends, tails = heads[fits], ends[fits], (heads + _HEAD.itemsize + rows)[fits]
    # Every window of the tail's size lies within the data, as a value or the last zero byte follows a tail.
    is_tail = _windows(data, len(KEY_TAIL))[np.minimum(tails, len(data) - len(KEY_TAIL))] == np.void(KEY_TAIL)
    whole = (data[ends - 1] == 0) & (is_tail | (surplus[fits] == 0))
    return heads[whole], ends[whole]


def _sizes(data: UInt8s, heads: Int64s) -> NDArray[Any]:
    """Read the sizes at positions."""
    return np.ndarray((len(data) - _HEAD.itemsize + 1,), _HEAD, data, 0, (1,))[heads]


def _windows(data: UInt8s, size: int) -> NDArray[Any]:
    """View the bytes at each position as one value of `size` bytes."""
    return np.ndarray((max(len(data) - size + 1, 0),), f"V{size}", data, 0, (1,))


def _chain(heads: Int64s, ends: Int64s) -> Int64s:
    """Return the indices of the heads to which the cell at position 0 leads, by pointer doubling."""
    if not len(heads) or heads[0] != 0:
        return np.zeros(0, np.int64)
    dead = len(heads)
    after = np.searchsorted(heads, ends)
    after[(after < dead) & (heads[np.minimum(after, dead - 1)] != ends)] = dead
    jump = np.append(after, dead)
    path = np.zeros(1, np.int64)
    while path[-1] != dead:
        path = np.concatenate((path, jump[path]))
        jump = jump[jump]
    found: Int64s = path[path != dead]
    return found


def _complaint(data: UInt8s, blocks: Int64s, offsets: Int64s, source: str) -> CorruptFileError:
    """Tell what is wrong with the first cell that is not as it should be."""
    for start, end, offset in zip(blocks.tolist(), [*blocks[1:].tolist(), len(data)], offsets.tolist(), strict=True):
        _, why = _walk(data[start:end].tobytes(), start)
        if why:
            return corrupt(source, offset, why)
    raise AssertionError(f"{source}: cells that are sound one by one, and not together")


def _walk(payload: bytes, start: int) -> tuple[list[tuple[int, int, int, int]], str]:
    """Follow the cells of a block.

    Args:
        payload: of the block.
        start: its place in the data.

    Returns:
        Places in the data of each cell: of its key, the end of the key, its value, the end of the value; and what is
        wrong with the first cell that is not as it should be, "" if nothing is.
    """
    found: list[tuple[int, int, int, int]] = []
    at, end = 0, len(payload)
    while at < end:
        if end - at < _SMALLEST:
            return found, f"a data block ends within a cell, {end - at} bytes before its end"
        key_size, value_size = _LENGTHS.unpack_from(payload, at)
        at += _LENGTHS.size
        key_end = at + key_size
        row_end = at + _ROW.size + _ROW.unpack_from(payload, at)[0]
        if key_size < 0 or value_size < 0 or key_end + value_size >= end or not at + _ROW.size <= row_end <= key_end:
            return found, f"a cell of {key_size} and {value_size} bytes passes its block"
        after = key_end + value_size
        if payload[row_end:key_end] not in (KEY_TAIL, b"") or payload[after] != 0:
            return found, "a cell has a family, a time, a type or a version that Hudi never writes"
        found.append((start + at + _ROW.size, start + row_end, start + key_end, start + after))
        at = after + 1
    return found, ""
