"""Write HFiles with the layout of Hudi 1.2 (docs/format/07-index-and-metadata.md, "HFile")."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import data_of, offsets_of
from streaming_lsm.arrow.columns import flags, pc
from streaming_lsm.errors import RecordError
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.hfile.block import DATA, FILE_INFO, META, ROOT_INDEX, Codec, write_block
from streaming_lsm.format.hfile.cells import CELL_BYTES, MAX_ROW_BYTES, encode_cell, encode_cells
from streaming_lsm.format.hfile.index import Pointer, encode_pointer, row_key
from streaming_lsm.format.hfile.reader import LAST_KEY, SCHEMA_ENTRY
from streaming_lsm.format.hfile.trailer import Trailer, encode_file_info
from streaming_lsm.keys.bucket import java_string_hash

BLOCK_BYTES = 16 * 1024
"""Uncompressed size of a data block in bytes. Hudi's default is 1 MiB, but its reader up to 1.2 counts the checksums of
a block as content and drops as many bytes from the end of the cells: 4 for each 16 KiB on disk. With this size the
dropped bytes are fewer than those of the smallest cell."""

BLOOM_META = "bloomFilter"
COMPRESSIONS = {"gzip": Codec.GZIP, "none": Codec.NONE}

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_MAX_VALUE_BYTES = 2**30
_PART_CELLS = 1 << 13
_FEW_CELLS = 256


def write_hfile(
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    *,
    schema_json: str,
    created_ms: int,
    extra_info: Mapping[str, bytes] | None = None,
    block_bytes: int = BLOCK_BYTES,
    compression: str = "gzip",
    bloom: BloomFilter | None = None,
    fast: bool = False,
) -> bytes:
    """Encode an HFile in memory; see `HFileWriter` for arguments and errors.

    Args:
        bloom: bloom filter over the keys, for base files; adds the first and the last key to the file info.
        fast: see `HFileWriter`.
    """
    found = io.BytesIO()
    writer = HFileWriter(found, block_bytes=block_bytes, compression=compression, fast=fast)
    writer.add(keys, values)
    writer.finish(schema_json=schema_json, created_ms=created_ms, extra_info=extra_info, bloom=bloom)
    return found.getvalue()


class HFileWriter:
    """Writes an HFile, block by block."""

    def __init__(
        self, file: BinaryIO, *, block_bytes: int = BLOCK_BYTES, compression: str = "gzip", fast: bool = False
    ) -> None:
        """Begin a file.

        Args:
            file: gets the bytes.
            block_bytes: limit of a data block's uncompressed size, exceeded only by single cells; see `BLOCK_BYTES`.
            compression: ``gzip`` or ``none``.
            fast: whether data blocks are compressed in a third of the time, and are a fifth larger.

        Raises:
            ValueError: an unknown compression.
        """
        if compression not in COMPRESSIONS:
            raise ValueError(f"HFile compression {compression!r}: expected one of {', '.join(COMPRESSIONS)}")
        self._file, self._block_bytes, self._codec = file, block_bytes, COMPRESSIONS[compression]
        self._level = zlib.Z_BEST_SPEED if fast else zlib.Z_DEFAULT_COMPRESSION
        self._offset = 0
        self._data: list[Pointer] = []
        self._metas: list[Pointer] = []
        self._entries = self._key_bytes = self._value_bytes = 0
        self._first_key = self._last_key = b""
        self._begun = b""
        self._begun_key = b""

    def add(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        """Append cells.

        Args:
            keys: keys (UTF-8) without nulls, strictly ascending by their bytes, also after those added before.
            values: a value for each key, without nulls.

        Raises:
            RecordError: an empty key, or a key or value too long for the format.
            ValueError: keys out of order.
        """
        if len(keys) <= _FEW_CELLS:
            self._add_few(keys.to_pylist(), values.to_pylist())
            return
        for first in range(0, len(keys), _PART_CELLS):
            self._add(keys.slice(first, _PART_CELLS), values.slice(first, _PART_CELLS))

    def _add_few(self, keys: list[Any], values: list[Any]) -> None:
        """Append cells one by one, which takes less time for few of them."""
        for key, value in zip(keys, values, strict=True):
            if not (0 < len(key) <= MAX_ROW_BYTES and len(value) <= _MAX_VALUE_BYTES):
                raise _too_long(key, len(key), len(value))
            if key <= self._last_key:
                raise _disordered(self._last_key, key)
            self._first_key, self._last_key = self._first_key or key, key
            cell = encode_cell(key, value)
            if self._begun and len(self._begun) + len(cell) > self._block_bytes:
                self._end_block()
            self._begun_key = self._begun_key if self._begun else key
            self._begun += cell
            self._key_bytes += len(key)
            self._value_bytes += len(value)
        self._entries += len(keys)

    def _add(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        self._check(keys, values)
        cells = encode_cells(keys, values)
        ends, data = offsets_of(cells)[1:], data_of(cells, 2)
        first, begin = 0, 0
        while first < len(keys):
            # Cells that fit the block that is begun; a cell that no block holds has one of its own.
            room = begin + self._block_bytes - len(self._begun)
            last = int(np.searchsorted(ends, room, "right"))
            if last <= first and not self._begun:
                last = first + 1
            if last > first:
                self._begun_key = self._begun_key if self._begun else keys[first].as_py()
                self._begun += data[begin : int(ends[last - 1])].tobytes()
                first, begin = last, int(ends[last - 1])
            if first < len(keys):
                self._end_block()

    def _check(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        key_bytes, value_bytes = (np.diff(offsets_of(column)) for column in (keys, values))
        wrong = (key_bytes < 1) | (key_bytes > MAX_ROW_BYTES) | (value_bytes > _MAX_VALUE_BYTES)
        if wrong.any():
            place = int(np.argmax(wrong))
            raise _too_long(keys[place].as_py(), key_bytes[place], value_bytes[place])
        before = pa.concat_arrays([pa.array([self._last_key], pa.binary()), keys.slice(0, len(keys) - 1)])
        descends = flags(pc.less_equal(keys, before))
        if descends.any():
            place = int(np.argmax(descends))
            raise _disordered(before[place].as_py(), keys[place].as_py())
        self._first_key, self._last_key = self._first_key or keys[0].as_py(), keys[-1].as_py()
        self._entries += len(keys)
        self._key_bytes += int(key_bytes.sum())
        self._value_bytes += int(value_bytes.sum())

    def finish(
        self,
        *,
        schema_json: str,
        created_ms: int,
        extra_info: Mapping[str, bytes] | None = None,
        bloom: BloomFilter | None = None,
    ) -> None:
        """Write the bloom filter, the indexes, the file info and the trailer.

        Args:
            schema_json: Avro JSON of the values.
            created_ms: creation time in the file info, epoch milliseconds.
            extra_info: further entries of the file info, other than those of every file.
            bloom: bloom filter over the keys, for base files; adds the first and the last key to the file info.

        Raises:
            ValueError: an entry of `extra_info` that the writer sets itself.
        """
        info = self._info(schema_json, created_ms, bloom, extra_info or {})
        if self._begun:
            self._end_block()
        if bloom is not None:
            content = bloom.encode().encode()
            self._metas.append(self._put(BLOOM_META.encode(), write_block(META, content, self._codec)))
        load_on_open = self._offset
        for pointers in (self._data, self._metas):
            payload = b"".join(map(encode_pointer, pointers))
            self._put(b"", write_block(ROOT_INDEX, payload, self._codec))
        file_info = self._put(b"", write_block(FILE_INFO, encode_file_info(info), self._codec)).offset
        trailer = Trailer(
            file_info_offset=file_info,
            load_on_open_offset=load_on_open,
            uncompressed_bytes=self._key_bytes + self._value_bytes + self._entries * CELL_BYTES,
            data_index_count=len(self._data),
            meta_index_count=len(self._metas),
            entry_count=self._entries,
            index_levels=1,
            first_data_offset=self._data[0].offset if self._data else -1,
            last_data_offset=self._data[-1].offset if self._data else 0,
            codec=self._codec,
        )
        self._file.write(trailer.encode())

    def _end_block(self) -> None:
        previous = self._data[-1].offset if self._data else -1
        block = write_block(DATA, self._begun, self._codec, previous, self._level)
        self._data.append(self._put(row_key(self._begun_key), block))
        self._begun = b""

    def _put(self, key: bytes, block: bytes) -> Pointer:
        pointer = Pointer(key, self._offset, len(block))
        self._file.write(block)
        self._offset += len(block)
        return pointer

    def _info(
        self, schema_json: str, created_ms: int, bloom: BloomFilter | None, extra: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        count = max(self._entries, 1)
        info = {"MAX_MEMSTORE_TS_KEY": _LONG.pack(0), SCHEMA_ENTRY: schema_json.encode()}
        if bloom is not None:
            info |= {"minRecordKey": self._first_key, "maxRecordKey": self._last_key}
            info["bloomFilterTypeCode"] = bloom.kind.encode()
        info |= {
            LAST_KEY: self._last_key and row_key(self._last_key),
            "hfile.AVG_KEY_LEN": _INT.pack(self._key_bytes // count),
            "hfile.CREATE_TIME_TS": _LONG.pack(created_ms),
            "hfile.AVG_VALUE_LEN": _INT.pack(self._value_bytes // count),
            "KEY_VALUE_VERSION": _INT.pack(1),
        }
        taken = info.keys() & extra.keys()
        if taken:
            raise ValueError(f"HFile info {', '.join(sorted(taken))}: the writer sets this entry itself")
        info |= extra
        return {name: info[name] for name in _in_the_order_of_a_hash_map(tuple(info))}


def _too_long(key: bytes, key_bytes: int, value_bytes: int) -> RecordError:
    return RecordError(
        f"HFile entry {key!r:.80} of {key_bytes} and {value_bytes} bytes: a key has 1 to {MAX_ROW_BYTES}, a value up "
        f"to {_MAX_VALUE_BYTES}; shorten it"
    )


def _disordered(former: bytes, key: bytes) -> ValueError:
    return ValueError(f"HFile key {key!r:.80} after {former!r:.80}: keys must ascend")


@functools.lru_cache(maxsize=16)
def _in_the_order_of_a_hash_map(names: tuple[str, ...]) -> tuple[str, ...]:
    """Sort names of entries by the iteration order of Java's HashMap, in which Hudi writes them.

    Readers do not need this order; it makes files identical to Hudi's, byte for byte.
    """
    capacity = 16
    while len(names) > capacity * 3 // 4:
        capacity *= 2
    hashes = java_string_hash(pa.array(names, pa.string())).view("uint32").tolist()
    bucket = {name: (number ^ number >> 16) & (capacity - 1) for name, number in zip(names, hashes, strict=True)}
    return tuple(sorted(names, key=bucket.__getitem__))
