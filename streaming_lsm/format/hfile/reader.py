"""Read HFiles of version 3: sorted keys with values, the base file format of the metadata table.

See docs/format/07-index-and-metadata.md, "HFile".

The files are written by Hudi (one index level, checksum type NULL) or, in older tables, by HBase (CRC-32C, several
index levels). Input is not trusted: sizes are checked against the available bytes, and no block is read twice, so that
work and memory are bounded by the uncompressed size of the blocks.
"""

from __future__ import annotations

import bisect
import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.block import (
    DATA,
    FILE_INFO,
    INTERMEDIATE_INDEX,
    LEAF_INDEX,
    META,
    ROOT_INDEX,
    Codec,
    corrupt,
    read_block,
    supported_codec,
)
from streaming_lsm.format.hfile.trailer import TRAILER_BYTES, Trailer, decode_file_info

SCHEMA_ENTRY = "schema"
KEY_TAIL = b"\x00" + (2**63 - 1).to_bytes(8, "big") + b"\x04"
"""Suffix of an HBase key after the row: no family, the latest time, type Put."""

_ENTRY = struct.Struct(">qi")  # offset and size of a block
_LENGTHS = struct.Struct(">ii")  # of a cell's key and value
_ROW = struct.Struct(">h")
_MAX_LEVELS = 8
# HBase appends the position of the middle key to a root index that points to other indexes.
_MIDDLE_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class _Pointer:
    """Index entry: `key` is not greater than any key of its block, and not less than any key of earlier blocks."""

    key: bytes
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class HFile:
    """Open HFile whose trailer, indexes and file info have been read and checked.

    Attributes:
        source: name of the file, for messages.
        info: the file info, e.g. ``schema``, ``minRecordKey``.
        entry_count: number of entries according to the trailer, checked by `entries`.
    """

    source: str
    info: Mapping[str, bytes]
    entry_count: int
    _data: memoryview
    _codec: Codec
    _limit: int
    _blocks: tuple[_Pointer, ...]
    _metas: Mapping[bytes, _Pointer]

    @classmethod
    def open(cls, data: bytes | memoryview, source: str) -> HFile:
        """Read trailer, indexes and file info.

        Args:
            data: the whole file, or the content of an HFILE_DATA block.
            source: name of the file, for messages.

        Raises:
            CorruptFileError: the bytes are truncated or altered.
            UnsupportedTable: another version or codec, an encrypted file, or encoded blocks.
        """
        view = memoryview(data)
        trailer = Trailer.decode(view, source)
        codec, limit, end = supported_codec(trailer.codec, source), trailer.load_on_open_offset, len(view)
        end -= TRAILER_BYTES
        root = read_block(data=view, offset=limit, limit=end, magic=ROOT_INDEX, codec=codec, source=source)
        meta = read_block(data=view, offset=root.end, limit=end, magic=ROOT_INDEX, codec=codec, source=source)
        info = read_block(data=view, offset=meta.end, limit=end, magic=FILE_INFO, codec=codec, source=source)
        if info.end != end or meta.end != trailer.file_info_offset:
            raise corrupt(source, meta.end, "the file info is not where the trailer says, or does not end the file")
        index = _Index(view, codec, limit, source)
        metas = list(_root_entries(meta.payload, trailer.meta_index_count, 0, source))
        return cls(
            source=source,
            info=decode_file_info(info.payload, source),
            entry_count=trailer.entry_count,
            _data=view,
            _codec=codec,
            _limit=limit,
            _blocks=tuple(index.data_blocks(root.payload, trailer)),
            _metas={pointer.key: pointer for pointer in metas},
        )

    @property
    def schema_json(self) -> str:
        """Avro JSON of the values.

        Raises:
            CorruptFileError: the file has none.
        """
        try:
            return self.info[SCHEMA_ENTRY].decode()
        except (KeyError, UnicodeDecodeError):
            raise CorruptFileError(f"{self.source}: HFile has no readable schema entry; restore the file") from None

    def meta(self, name: str) -> bytes | None:
        """Read the content of a meta block, e.g. ``bloomFilter``; None if the file has no such block."""
        pointer = self._metas.get(name.encode())
        return None if pointer is None else self._payload(pointer, META)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in ascending order.

        Raises:
            CorruptFileError: a block is damaged, or, at the end, the number of entries differs from the trailer's.
        """
        last, count = b"", 0
        for pointer in self._blocks:
            for key, value in self._cells(pointer):
                if _out_of_order(last, key):
                    raise corrupt(self.source, pointer.offset, f"key {key!r:.80} follows {last!r:.80}")
                last, count = key, count + 1
                yield key, value
        if count != self.entry_count:
            raise CorruptFileError(
                f"{self.source}: HFile holds {count} entries instead of {self.entry_count}; restore the file"
            )

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Look up the values of keys; reads only the blocks that may contain them."""
        orders = [([order(pointer.key) for pointer in self._blocks], order) for order in (bytes, _utf16)]
        wanted: dict[int, set[bytes]] = {}
        for key in keys:
            for number in {bisect.bisect_right(starts, order(key)) - 1 for starts, order in orders}:
                wanted.setdefault(number, set()).add(key)
        wanted.pop(-1, None)
        found: dict[bytes, bytes] = {}
        for number in sorted(wanted):
            found.update((key, value) for key, value in self._cells(self._blocks[number]) if key in wanted[number])
        return found

    def _cells(self, pointer: _Pointer) -> Iterator[tuple[bytes, bytes]]:
        first = True
        for key, value in _cells(self._payload(pointer, DATA), pointer.offset, self.source):
            if first and key < pointer.key:
                raise corrupt(self.source, pointer.offset, f"key {key!r:.80} is less than its index entry")
            first = False
            yield key, value

    def _payload(self, pointer: _Pointer, magic: bytes) -> bytes:
        return _block_of(
            data=self._data, pointer=pointer, limit=self._limit, magic=magic, codec=self._codec, source=self.source
        )


@dataclass(frozen=True, slots=True)
class _Index:
    """Multi-level index, from the root index to the data blocks."""

    data: memoryview
    codec: Codec
    limit: int
    source: str

    def data_blocks(self, root: bytes, trailer: Trailer) -> Iterator[_Pointer]:
        """Yield the entries of all data blocks, in ascending order of offset and key."""
        levels = trailer.index_levels
        if not 1 <= levels <= _MAX_LEVELS:
            raise CorruptFileError(f"{self.source}: HFile has {levels} index levels; restore the file")
        behind = _MIDDLE_KEY_BYTES if levels > 1 else 0
        end, key = 0, b""
        for pointer in self._descend(_root_entries(root, trailer.data_index_count, behind, self.source), levels):
            start = _row(pointer.key, pointer.offset, self.source)
            if pointer.offset < end or _out_of_order(key, start):
                raise corrupt(self.source, pointer.offset, "the index is out of order")
            end, key = pointer.offset + pointer.size, start
            yield _Pointer(start, pointer.offset, pointer.size)

    def _descend(self, pointers: Iterator[_Pointer], levels: int) -> Iterator[_Pointer]:
        if levels == 1:
            yield from pointers
            return
        magic = LEAF_INDEX if levels == 2 else INTERMEDIATE_INDEX
        for pointer in pointers:
            payload = _block_of(
                data=self.data, pointer=pointer, limit=self.limit, magic=magic, codec=self.codec, source=self.source
            )
            yield from self._descend(_leaf_entries(payload, pointer.offset, self.source), levels - 1)


def _block_of(data: memoryview, pointer: _Pointer, limit: int, magic: bytes, codec: Codec, source: str) -> bytes:
    block = read_block(data=data, offset=pointer.offset, limit=limit, magic=magic, codec=codec, source=source)
    if block.end != pointer.offset + pointer.size:
        raise corrupt(source, pointer.offset, f"the index says {pointer.size} bytes for a block that ends elsewhere")
    return block.payload


def _root_entries(payload: bytes, count: int, behind: int, source: str) -> Iterator[_Pointer]:
    """Yield the entries of a root or meta index, followed by `behind` bytes or none."""
    at = 0
    for _ in range(count):
        if len(payload) - at <= _ENTRY.size:
            raise CorruptFileError(f"{source}: HFile index ends within its {count} entries; restore the file")
        offset, size = _ENTRY.unpack_from(payload, at)
        length, at = _hadoop_varint(payload, at + _ENTRY.size, source)
        if length > len(payload) - at:
            raise corrupt(source, offset, f"an index key of {length} bytes with only {len(payload) - at} left")
        yield _Pointer(payload[at : at + length], offset, size)
        at += length
    if len(payload) - at not in (0, behind):
        raise CorruptFileError(f"{source}: {len(payload) - at} bytes after an HFile index; restore the file")


def _leaf_entries(payload: bytes, offset: int, source: str) -> Iterator[_Pointer]:
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
        yield _Pointer(payload[head + start + _ENTRY.size : head + end], *_ENTRY.unpack_from(payload, head + start))


def _hadoop_varint(payload: bytes, at: int, source: str) -> tuple[int, int]:
    """Decode a length of Hadoop's WritableUtils; return it and the offset after it."""
    first = payload[at]
    if first < 0x80:
        return first, at + 1
    size = 0x90 - first
    if not 1 <= size <= 4 or len(payload) - at <= size:
        raise CorruptFileError(f"{source}: HFile index has a key length that begins with {first}; restore the file")
    return int.from_bytes(payload[at + 1 : at + 1 + size], "big"), at + 1 + size


def _row(key: bytes, offset: int, source: str) -> bytes:
    """Extract the row of an HBase key; Hudi 1.2 writes no key suffix into the index."""
    end = 2 + int.from_bytes(key[:2], "big", signed=True)
    if len(key) < 2 or end < 2 or len(key) - end not in (0, len(KEY_TAIL)):
        raise corrupt(source, offset, f"an index key of {len(key)} bytes with a row that ends at {end}")
    return key[2:end]


def _cells(payload: bytes, offset: int, source: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a data block."""
    at, end = 0, len(payload)
    while at < end:
        if end - at < _LENGTHS.size + _ROW.size + 1:
            raise corrupt(source, offset, f"a data block ends within a cell, {end - at} bytes before its end")
        key_size, value_size = _LENGTHS.unpack_from(payload, at)
        at += _LENGTHS.size
        key_end = at + key_size
        row_end = at + _ROW.size + _ROW.unpack_from(payload, at)[0]
        if key_size < 0 or value_size < 0 or key_end + value_size >= end or not at + _ROW.size <= row_end <= key_end:
            raise corrupt(source, offset, f"a cell of {key_size} and {value_size} bytes passes its block")
        after = key_end + value_size
        if payload[row_end:key_end] not in (KEY_TAIL, b"") or payload[after] != 0:
            raise corrupt(source, offset, "a cell has a family, a time, a type or a version that Hudi never writes")
        yield payload[at + _ROW.size : row_end], payload[key_end:after]
        at = after + 1


def _utf16(key: bytes) -> bytes:
    """Convert a key to UTF-16, which has the order of Java's strings."""
    return key.decode(errors="replace").encode("utf-16-be")


def _out_of_order(key: bytes, following: bytes) -> bool:
    """Check whether keys descend in both orders: by bytes, and as Java strings, which Hudi sorts.

    The orders differ for characters beyond U+FFFF only.
    """
    return following < key and _utf16(following) < _utf16(key)
