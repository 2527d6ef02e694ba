"""The file of checksums that Hadoop keeps beside a file on a local disk: ``.<name>.crc``.

Inline logs have no checksums of their own; Hudi goes by these where there are any, and so do we. The file is ``crc``
and a zero byte, the bytes that each checksum is of (int32, big-endian), and a CRC-32 for every such stretch.
"""

from __future__ import annotations

import struct
import zlib

from streaming_lsm.errors import CorruptFileError

_MAGIC = b"crc\0"
_STRETCH = 64 << 10
_MAX_STRETCH = 1 << 30


def checksum_path(path: str) -> str:
    """Where the checksums of a file are."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


class ChecksumFile:
    """The checksums of a file that is written piece by piece."""

    def __init__(self) -> None:
        """Of nothing yet."""
        self._sums: list[int] = []
        self._sum = self._filled = 0

    def update(self, data: bytes) -> None:
        """Take in the next bytes of the file."""
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
        """The content of the checksum file."""
        sums = [*self._sums, self._sum] if self._filled else self._sums
        return _MAGIC + struct.pack(f">i{len(sums)}I", _STRETCH, *sums)


def verify_checksums(data: bytes, checksums: bytes, source: str) -> None:
    """Compare a file with its checksums.

    Args:
        data: the whole file.
        checksums: the file beside it; one that is no such file is left aside, as Hadoop does.
        source: the file, for messages.

    Raises:
        CorruptFileError: they differ.
    """
    if len(checksums) < 8 or checksums[:4] != _MAGIC:
        return
    (stretch,) = struct.unpack_from(">i", checksums, 4)
    count = (len(checksums) - 8) // 4
    if not 1 <= stretch <= _MAX_STRETCH or count != -(-len(data) // stretch):
        raise CorruptFileError(f"{source}: {len(data)} bytes, which its checksum file is not of; restore both")
    view = memoryview(data)
    for number, expected in enumerate(struct.unpack_from(f">{count}I", checksums, 8)):
        if zlib.crc32(view[number * stretch : (number + 1) * stretch]) != expected:
            raise CorruptFileError(
                f"{source}: changed since it was written: the checksum of the bytes from {number * stretch} differs; "
                "restore the file"
            )
