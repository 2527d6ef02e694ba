"""Read a file and verify it against the Hadoop checksum file (``.<name>.crc``) beside it, if there is one."""

from __future__ import annotations

from contextlib import suppress

from streaming_lsm.format.checksum_file import checksum_path, verify_checksums
from streaming_lsm.storage.base import Storage


def read_checked(storage: Storage, path: str) -> bytes:
    """Read a whole file and verify its checksum file; for formats without checksums of their own, as inline logs.

    Raises:
        CorruptFileError: a checksum differs.
        FileNotFoundError: the file is missing.
    """
    data = storage.read(path, None)
    with suppress(FileNotFoundError):
        verify_checksums(data, storage.read(checksum_path(path)), path)
    return data
