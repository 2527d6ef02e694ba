"""Read and write HFile blocks: header, compressed payload, checksums.

See docs/format/07-index-and-metadata.md, "HFile".
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.hfile.crc32c import crc32c

DATA = b"DATABLK*"
META = b"METABLKc"
ROOT_INDEX = b"IDXROOT2"
LEAF_INDEX = b"IDXLEAF2"
INTERMEDIATE_INDEX = b"IDXINTE2"
FILE_INFO = b"FILEINF2"

HEADER = struct.Struct(">8siiqbii")
"""Magic, size on disk without this header, size of the payload uncompressed, offset of the previous block of its kind,
checksum type, bytes per checksum, size on disk with this header and without checksums."""

_NO_CHECKSUM, _CRC32, _CRC32C = 0, 1, 2
_BYTES_PER_CHECKSUM = 16384
_MAX_PAYLOAD = 128 << 20
"""Maximum bytes of an uncompressed block, as of a file under `.hoodie`; gzip can inflate a file to 1,000 times its
size. Blocks have 16 KiB, or one larger entry."""
_LEAST_BYTES_PER_CHECKSUM, _MAX_BYTES_PER_CHECKSUM = 128, 1 << 20
# Magic of encoded data blocks, an option of HBase that Hudi never sets; they are not supported.
_ENCODED_DATA = b"DATABLKE"


class Codec(IntEnum):
    """Compression codec of all blocks of a file; values are the ids in the trailer."""

    LZO = 0
    GZIP = 1
    NONE = 2
    SNAPPY = 3
    LZ4 = 4
    BZIP2 = 5
    ZSTD = 6


@dataclass(frozen=True, slots=True)
class Block:
    """Block of an HFile.

    Attributes:
        payload: uncompressed content.
        end: offset of the byte after the block.
    """

    payload: bytes
    end: int


def supported_codec(number: int, source: str) -> Codec:
    """Return the codec of an id in a trailer.

    Raises:
        UnsupportedTable: the codec is not GZIP or NONE, the codecs that Hudi 1.2 reads.
    """
    if number in (Codec.GZIP, Codec.NONE):
        return Codec(number)
    name = Codec(number).name if number in list(Codec) else f"number {number}"
    raise UnsupportedTable(f"{source}: HFile compressed with {name}; only GZIP and NONE are read: rewrite it with GZIP")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of a file from an offset on.

    Attributes:
        data: the bytes.
        start: offset of the first one in the file.
    """

    data: memoryview
    start: int

    def between(self, start: int, end: int) -> memoryview:
        """Return the bytes between two offsets in the file."""
        return self.data[start - self.start : end - self.start]


def read_block(stretch: Stretch, offset: int, limit: int, magic: bytes, codec: Codec, source: str) -> Block:
    """Read and check one block.

    Args:
        stretch: bytes of the file up to `limit`, or beyond.
        offset: start of the block in the file.
        limit: offset that the block must not exceed.
        magic: expected magic.

    Raises:
        CorruptFileError: another magic, sizes beyond the file, a wrong checksum, or a payload that is too large or does
            not uncompress to the size in the header.
        UnsupportedTable: an encoded data block.
    """
    if not stretch.start <= offset <= limit - HEADER.size:
        raise corrupt(source, offset, f"a block header passes offset {limit}")
    found, rest, size, _, checksum, per_checksum, stored = HEADER.unpack_from(stretch.data, offset - stretch.start)
    if found != magic:
        if (found, magic) == (_ENCODED_DATA, DATA):
            raise UnsupportedTable(f"{source}: data blocks are encoded (DATABLKE), which is not read; rewrite the file")
        raise corrupt(source, offset, f"block {found!r} where {magic!r} belongs")
    payload_end, end = offset + stored, offset + HEADER.size + rest
    if not (offset + HEADER.size <= payload_end <= end <= limit) or size < 0:
        raise corrupt(source, offset, f"block sizes {rest}, {size} and {stored} contradict each other or pass {limit}")
    if size > _MAX_PAYLOAD:
        raise corrupt(source, offset, f"a block of {size} bytes, more than the {_MAX_PAYLOAD} that are read")
    if checksum != _NO_CHECKSUM:
        kind = (checksum, per_checksum)
        _verify(stretch.between(offset, payload_end), bytes(stretch.between(payload_end, end)), kind, offset, source)
    packed = stretch.between(offset + HEADER.size, payload_end)
    return Block(_uncompressed(packed, size, codec, offset, source), end)


def write_block(
    magic: bytes, payload: bytes, codec: Codec, previous: int = -1, level: int = zlib.Z_DEFAULT_COMPRESSION
) -> bytes:
    """Encode a block like Hudi: checksum type NULL, and four zero bytes in place of each checksum."""
    packed = _gzip(payload, level) if codec is Codec.GZIP else payload
    stored = HEADER.size + len(packed)
    checksums = bytes(4 * -(-stored // _BYTES_PER_CHECKSUM))
    rest = len(packed) + len(checksums)
    header = HEADER.pack(magic, rest, len(payload), previous, _NO_CHECKSUM, _BYTES_PER_CHECKSUM, stored)
    return header + packed + checksums


def corrupt(source: str, offset: int, why: str) -> CorruptFileError:
    """Create the error for bytes at `offset` that violate the format."""
    return CorruptFileError(f"{source}: HFile at offset {offset}: {why}; restore the file")


def _verify(covered: memoryview, stored: bytes, kind: tuple[int, int], offset: int, source: str) -> None:
    """Verify the checksums, each of which covers the next piece of header and payload."""
    checksum, piece = kind
    if checksum not in (_CRC32, _CRC32C):
        raise corrupt(source, offset, f"checksum type {checksum}")
    if not _LEAST_BYTES_PER_CHECKSUM <= piece <= _MAX_BYTES_PER_CHECKSUM:
        raise corrupt(source, offset, f"{piece} bytes per checksum")
    if len(stored) != 4 * -(-len(covered) // piece):
        raise corrupt(source, offset, f"{len(stored)} bytes of checksums for {len(covered)} bytes")
    if checksum == _CRC32C:
        computed = crc32c(covered, piece)
    else:
        computed = np.array([zlib.crc32(covered[at : at + piece]) for at in range(0, len(covered), piece)], np.uint32)
    if computed.astype(">u4").tobytes() != stored:
        raise corrupt(source, offset, "the block's checksum does not fit its bytes")


def _uncompressed(packed: memoryview, size: int, codec: Codec, offset: int, source: str) -> bytes:
    if codec is Codec.NONE:
        payload = bytes(packed)
    else:
        stream = zlib.decompressobj(31)
        try:
            # One byte more than expected detects an oversized stream without uncompressing all of it.
            payload = stream.decompress(packed, size + 1)
        except zlib.error as error:
            raise corrupt(source, offset, f"the block does not uncompress ({error})") from None
        if not stream.eof or stream.unused_data:
            raise corrupt(source, offset, f"the compressed block is not one gzip stream of {size} bytes")
    if len(payload) != size:
        raise corrupt(source, offset, f"the block holds {len(payload)} bytes instead of {size}")
    return payload


def _gzip(payload: bytes, level: int) -> bytes:
    """Compress to a gzip stream with Java's header: no time, operating system unknown."""
    stream = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = stream.compress(payload) + stream.flush()
    tail = struct.pack("<II", zlib.crc32(payload), len(payload))
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + body + tail
