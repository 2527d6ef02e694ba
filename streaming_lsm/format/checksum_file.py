"""Write and verify checksum files, ``.<name>.crc``, which Hadoop keeps beside each file on a local disk.

Inline logs have no checksums; like Hudi, this package verifies the checksum file if there is one. Its content is
``crc`` and a zero byte, the length of a stretch in bytes (int32, big-endian), and the CRC-32 of each stretch.
"""

from __future__ import annotations

import struct
import zlib

from streaming_lsm.errors import CorruptFileError

_MAGIC = b"crc\0"
_STRETCH = 64 << 10
_MAX_STRETCH = 1 << 30


def checksum_path(path: str) -> str:
    """Return the path of a file's checksum file."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


class ChecksumFile:
    """Incremental checksums of a file."""

    def __init__(self) -> None:
        """Start with an empty file."""
        self._sums: list[int] = []
        self._sum = self._filled = 0

    def update(self, data: bytes) -> None:
        """Add the next bytes of the file."""
        view = memoryview(data)
        while view:
            part = view[: _STRETCH - self._filled]
            self._sum = zlib.crc32(part, self._sum)
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == _STRETCH:
                self._sums.append(self._sum)
                self._sum = self._filled = 0

    def encode(self) -> bytes:
        """Encode the checksum file."""
        sums = [*self._sums, self._sum] if self._filled else self._sums
        return _MAGIC + struct.pack(f">i{len(sums)}I", _STRETCH, *sums)


def verify_checksums(data: bytes, checksums: bytes, source: str) -> None:
    """Verify a file against its checksum file.

    Args:
        data: the whole file.
        checksums: content of the checksum file; ignored if it has another format, like in Hadoop.
        source: the file, for messages.

    Raises:
        CorruptFileError: a checksum differs.
    """
    if len(checksums) < 8 or checksums[:4] != _MAGIC:
        return
    (stretch,) = struct.unpack_from(">i", checksums, 4)
    count = (len(checksums) - 8) // 4
    if not 1 <= stretch <= _MAX_STRETCH or count != -(-len(data) // stretch):
        raise CorruptFileError(
            f"{source}: {len(data)} bytes, which do not match the length in its checksum file; restore both"
        )
    view = memoryview(data)
    for number, expected in enumerate(struct.unpack_from(f">{count}I", checksums, 8)):
        if zlib.crc32(view[number * stretch : (number + 1) * stretch]) != expected:
            raise CorruptFileError(
                f"{source}: changed since it was written: the checksum of the bytes from {number * stretch} differs; "
                "restore the file"
            )
