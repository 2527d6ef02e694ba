"""Write HFiles with the layout of Hudi 1.2 (docs/format/07-index-and-metadata.md, "HFile")."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from streaming_lsm.errors import RecordError
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.hfile.block import DATA, FILE_INFO, META, ROOT_INDEX, Codec, write_block
from streaming_lsm.format.hfile.reader import KEY_TAIL, SCHEMA_ENTRY
from streaming_lsm.format.hfile.trailer import Trailer, encode_file_info
from streaming_lsm.keys.bucket import java_string_hash

BLOCK_BYTES = 64 * 1024
"""Uncompressed size of a data block in bytes. Hudi's default is 1 MiB, but its reader up to 1.2 counts the checksums of
a block as content and drops as many bytes from the end of the cells: 4 for each 16 KiB on disk. With this size the
dropped bytes are fewer than those of the smallest cell."""

BLOOM_META = "bloomFilter"
COMPRESSIONS = {"gzip": Codec.GZIP, "none": Codec.NONE}

_CELL = struct.Struct(">iih")  # sizes of key and value; size of the row, which begins the key
_CELL_OVERHEAD = _CELL.size + len(KEY_TAIL) + 1
_POINTER = struct.Struct(">qi")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_ROW_LENGTH_BYTES = 2
_MAX_KEY_BYTES = 2**15 - 1
_MAX_VALUE_BYTES = 2**30


def write_hfile(
    entries: Iterable[tuple[bytes, bytes]],
    *,
    schema_json: str,
    created_ms: int,
    extra_info: Mapping[str, bytes] | None = None,
    block_bytes: int = BLOCK_BYTES,
    compression: str = "gzip",
    bloom: BloomFilter | None = None,
) -> bytes:
    """Encode an HFile.

    Args:
        entries: keys (UTF-8) and values, keys strictly ascending by their bytes.
        schema_json: Avro JSON of the values.
        created_ms: creation time in the file info, epoch milliseconds.
        extra_info: further entries of the file info, other than those of every file.
        block_bytes: limit of a data block's uncompressed size, exceeded only by single entries; see `BLOCK_BYTES`.
        compression: ``gzip`` or ``none``.
        bloom: bloom filter over the keys, for base files; adds the first and the last key to the file info.

    Raises:
        RecordError: an empty key, or a key or value too long for the format.
        ValueError: keys out of order, an unknown compression, or an entry of `extra_info` that the writer sets itself.
    """
    if compression not in COMPRESSIONS:
        raise ValueError(f"HFile compression {compression!r}: expected one of {', '.join(COMPRESSIONS)}")
    layout = _Layout(COMPRESSIONS[compression])
    for first_key, payload in _data_blocks(entries, block_bytes, layout):
        layout.add_data_block(first_key, payload)
    if bloom is not None:
        layout.add_meta_block(BLOOM_META, bloom.encode().encode())
    return layout.finish(_file_info(layout, schema_json, created_ms, bloom, extra_info or {}))


@dataclass(slots=True)
class _Layout:
    """Blocks written so far, and the values of the index, file info and trailer."""

    codec: Codec
    parts: list[bytes] = field(default_factory=list)
    offset: int = 0
    data_offsets: list[int] = field(default_factory=list)
    data_index: bytearray = field(default_factory=bytearray)
    meta_index: bytearray = field(default_factory=bytearray)
    metas: int = 0
    entries: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    first_key: bytes = b""
    last_key: bytes = b""

    def add(self, block: bytes) -> bytes:
        """Append a block; return its offset and size, encoded for an index."""
        pointer = _POINTER.pack(self.offset, len(block))
        self.parts.append(block)
        self.offset += len(block)
        return pointer

    def add_data_block(self, first_key: bytes, payload: bytes) -> None:
        previous = self.data_offsets[-1] if self.data_offsets else -1
        self.data_offsets.append(self.offset)
        pointer = self.add(write_block(DATA, payload, self.codec, previous))
        row = len(first_key).to_bytes(2, "big") + first_key
        self.data_index += pointer + _hadoop_varint(len(row)) + row

    def add_meta_block(self, name: str, content: bytes) -> None:
        pointer = self.add(write_block(META, content, self.codec))
        self.meta_index += pointer + _hadoop_varint(len(name.encode())) + name.encode()
        self.metas += 1

    def count(self, key: bytes, value: bytes) -> None:
        """Check an entry, and add it to the counts."""
        if not 1 <= len(key) <= _MAX_KEY_BYTES or len(value) > _MAX_VALUE_BYTES:
            raise RecordError(
                f"HFile entry {key!r:.80} of {len(key)} and {len(value)} bytes: a key has 1 to {_MAX_KEY_BYTES}, "
                f"a value up to {_MAX_VALUE_BYTES}; shorten it"
            )
        if key <= self.last_key:
            raise ValueError(f"HFile key {key!r:.80} after {self.last_key!r:.80}: keys must ascend")
        self.first_key, self.last_key = self.first_key or key, key
        self.entries += 1
        self.key_bytes += len(key)
        self.value_bytes += len(value)

    def finish(self, info: Mapping[str, bytes]) -> bytes:
        """Append the load-on-open section and the trailer; return the file."""
        load_on_open = self.offset
        self.add(write_block(ROOT_INDEX, bytes(self.data_index), self.codec))
        self.add(write_block(ROOT_INDEX, bytes(self.meta_index), self.codec))
        file_info = self.offset
        self.add(write_block(FILE_INFO, encode_file_info(info), self.codec))
        trailer = Trailer(
            file_info_offset=file_info,
            load_on_open_offset=load_on_open,
            uncompressed_bytes=self.key_bytes + self.value_bytes + self.entries * _CELL_OVERHEAD,
            data_index_count=len(self.data_offsets),
            meta_index_count=self.metas,
            entry_count=self.entries,
            index_levels=1,
            first_data_offset=self.data_offsets[0] if self.data_offsets else -1,
            last_data_offset=self.data_offsets[-1] if self.data_offsets else 0,
            codec=self.codec,
        )
        return b"".join([*self.parts, trailer.encode()])


def _data_blocks(
    entries: Iterable[tuple[bytes, bytes]], block_bytes: int, layout: _Layout
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the first key and the payload of each data block."""
    first_key, payload = b"", bytearray()
    for key, value in entries:
        layout.count(key, value)
        if payload and len(payload) + len(key) + len(value) + _CELL_OVERHEAD > block_bytes:
            yield first_key, bytes(payload)
            payload.clear()
        if not payload:
            first_key = key
        key_size = _ROW_LENGTH_BYTES + len(key) + len(KEY_TAIL)
        payload += _CELL.pack(key_size, len(value), len(key)) + key + KEY_TAIL + value + b"\x00"
    if payload:
        yield first_key, bytes(payload)


def _file_info(
    layout: _Layout, schema_json: str, created_ms: int, bloom: BloomFilter | None, extra: Mapping[str, bytes]
) -> dict[str, bytes]:
    count = max(layout.entries, 1)
    last = layout.last_key and len(layout.last_key).to_bytes(2, "big") + layout.last_key
    info = {"MAX_MEMSTORE_TS_KEY": _LONG.pack(0), SCHEMA_ENTRY: schema_json.encode()}
    if bloom is not None:
        info |= {"minRecordKey": layout.first_key, "maxRecordKey": layout.last_key}
        info["bloomFilterTypeCode"] = bloom.kind.encode()
    info |= {
        "hfile.LASTKEY": last,
        "hfile.AVG_KEY_LEN": _INT.pack(layout.key_bytes // count),
        "hfile.CREATE_TIME_TS": _LONG.pack(created_ms),
        "hfile.AVG_VALUE_LEN": _INT.pack(layout.value_bytes // count),
        "KEY_VALUE_VERSION": _INT.pack(1),
    }
    taken = info.keys() & extra.keys()
    if taken:
        raise ValueError(f"HFile info {', '.join(sorted(taken))}: the writer sets this entry itself")
    return _in_the_order_of_a_hash_map(info | dict(extra))


def _in_the_order_of_a_hash_map(info: dict[str, bytes]) -> dict[str, bytes]:
    """Sort entries by the iteration order of Java's HashMap, in which Hudi writes them.

    Readers do not need this order; it makes files identical to Hudi's, byte for byte.
    """
    capacity = 16
    while len(info) > capacity * 3 // 4:
        capacity *= 2
    hashes = java_string_hash(pa.array(list(info), pa.string())).view("uint32").tolist()
    bucket = {name: (number ^ number >> 16) & (capacity - 1) for name, number in zip(info, hashes, strict=True)}
    return {name: info[name] for name in sorted(info, key=bucket.__getitem__)}


def _hadoop_varint(value: int) -> bytes:
    """Encode a length like Hadoop's WritableUtils."""
    if value < 0x80:
        return bytes([value])
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([0x90 - len(digits)]) + digits
