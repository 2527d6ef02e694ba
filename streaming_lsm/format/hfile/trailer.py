"""Encode and decode the trailer and the file info of an HFile, protobuf messages at its end.

See docs/format/07-index-and-metadata.md, "HFile".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from streaming_lsm.errors import CorruptFileError, UnsupportedTable

TRAILER_BYTES = 4096

_MAGIC = b'TRABLK"$'
_INFO_MAGIC = b"PBUF"
_MAJOR = 3
_64_BITS = 2**64 - 1
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_COMPARATOR_FIELD, _ENCRYPTION_FIELD = 11, 13
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True, slots=True)
class Trailer:
    """Trailer of an HFile: offsets and counts of its parts.

    Attributes:
        file_info_offset: offset of the file info block.
        load_on_open_offset: offset of the root index, which is followed by the meta index and the file info.
        uncompressed_bytes: size of all data blocks (Hudi uses the field in which HBase has the size of the index).
        data_index_count, meta_index_count: entries of the root index and of the meta index.
        entry_count: entries of all data blocks.
        index_levels: 1 if the root index points to data blocks; more with intermediate indexes.
        first_data_offset, last_data_offset: offsets of the first and the last data block.
        codec: id of the compression codec.
    """

    file_info_offset: int
    load_on_open_offset: int
    uncompressed_bytes: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    index_levels: int
    first_data_offset: int
    last_data_offset: int
    codec: int

    @classmethod
    def decode(cls, data: memoryview, source: str) -> Trailer:
        """Decode the last `TRAILER_BYTES` of a file.

        Raises:
            CorruptFileError: the bytes are not a trailer, or required fields are missing.
            UnsupportedTable: another major version, or an encrypted file.
        """
        if len(data) < TRAILER_BYTES:
            raise _corrupt(source, f"{len(data)} bytes are less than a trailer")
        tail = bytes(data[-TRAILER_BYTES:])
        if not tail.startswith(_MAGIC):
            raise _corrupt(source, f"trailer begins with {tail[:8]!r}")
        if int.from_bytes(tail[-3:], "big") != _MAJOR:
            raise UnsupportedTable(f"{source}: HFile version {int.from_bytes(tail[-3:], 'big')}; only 3 is read")
        found = dict(_fields(_delimited(tail[len(_MAGIC) :], source)[0], source))
        if found.get(_ENCRYPTION_FIELD):
            raise UnsupportedTable(f"{source}: HFile is encrypted, which is not read; rewrite it without encryption")
        values = {name: value for name, n in _NUMBERS.items() if isinstance(value := found.get(n, 0), int)}
        if len(values) < len(_NUMBERS) or _REQUIRED - found.keys():
            raise _corrupt(source, f"trailer has the fields {sorted(found)}: some are missing or have other types")
        return cls(**values)

    def encode(self) -> bytes:
        """Encode the trailer like Hudi."""
        fields: dict[int, int | bytes] = {number: getattr(self, name) for name, number in _NUMBERS.items()}
        message = _message(sorted((fields | {_COMPARATOR_FIELD: _COMPARATOR}).items()))
        head = _MAGIC + _varint(len(message)) + message
        return head + bytes(TRAILER_BYTES - len(head) - 1) + bytes([_MAJOR])


_NUMBERS = {
    "file_info_offset": 1,
    "load_on_open_offset": 2,
    "uncompressed_bytes": 3,
    "data_index_count": 5,
    "meta_index_count": 6,
    "entry_count": 7,
    "index_levels": 8,
    "first_data_offset": 9,
    "last_data_offset": 10,
    "codec": 12,
}
_REQUIRED = {1, 2, 5, 6, 7, 8, 12}


def decode_file_info(payload: bytes, source: str) -> dict[str, bytes]:
    """Decode the names and values of a file info block.

    Raises:
        CorruptFileError: the payload is not exactly one file info message.
    """
    if not payload.startswith(_INFO_MAGIC):
        raise _corrupt(source, f"file info begins with {payload[:4]!r}")
    message, end = _delimited(payload[len(_INFO_MAGIC) :], source)
    if end != len(payload) - len(_INFO_MAGIC):
        raise _corrupt(source, "bytes follow the file info")
    info: dict[str, bytes] = {}
    for number, pair in _fields(message, source):
        if number != 1 or not isinstance(pair, bytes):
            raise _corrupt(source, f"file info has a field {number} of another type")
        entry = dict(_fields(pair, source))
        name, value = entry.get(1), entry.get(2)
        if not isinstance(name, bytes) or not isinstance(value, bytes):
            raise _corrupt(source, "file info has an entry without name or value")
        try:
            info[name.decode()] = value
        except UnicodeDecodeError:
            raise _corrupt(source, f"file info has the name {name!r:.80}") from None
    return info


def encode_file_info(info: Mapping[str, bytes]) -> bytes:
    """Encode the payload of a file info block, with entries in the given order."""
    pairs = [(1, _message([(1, name.encode()), (2, value)])) for name, value in info.items()]
    message = _message(pairs)
    return _INFO_MAGIC + _varint(len(message)) + message


def _corrupt(source: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{source}: HFile {why}; restore the file")


def _read_varint(data: bytes, at: int, source: str) -> tuple[int, int]:
    """Decode a varint of up to 64 bits; return it and the offset after it."""
    if at < len(data) and data[at] < 0x80:  # as nearly all are
        return data[at], at + 1
    value = 0
    for count, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value & _64_BITS, at + count + 1
    raise _corrupt(source, "has a varint of more than 64 bits")


def _delimited(data: bytes, source: str) -> tuple[bytes, int]:
    """Return a length-prefixed message and the offset after it."""
    size, at = _read_varint(data, 0, source)
    if size > len(data) - at:
        raise _corrupt(source, f"has a message of {size} bytes with only {len(data) - at} left")
    return data[at : at + size], at + size


def _fields(message: bytes, source: str) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field; fixed-size values as bytes."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at, source)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _read_varint(message, at, source)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _read_varint(message, at, source)
        elif wire in _FIXED_SIZES:
            size = _FIXED_SIZES[wire]
        else:
            raise _corrupt(source, f"has a field of wire type {wire}")
        if size > len(message) - at:
            raise _corrupt(source, f"has a field of {size} bytes with only {len(message) - at} left")
        yield number, message[at : at + size]
        at += size


def _message(fields: Sequence[tuple[int, int | bytes]]) -> bytes:
    encoded = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            encoded += _varint(number << 3 | _VARINT) + _varint(value & _64_BITS)
        else:
            encoded += _varint(number << 3 | _BYTES) + _varint(len(value)) + value
    return bytes(encoded)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
