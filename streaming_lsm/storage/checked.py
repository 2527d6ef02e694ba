"""Reading a file whose checksums, if there are any, are in a file beside it."""

from __future__ import annotations

from contextlib import suppress

from streaming_lsm.format.checksum_file import checksum_path, verify_checksums
from streaming_lsm.storage.base import Storage


def read_checked(storage: Storage, path: str) -> bytes:
    """A whole file without checksums of its own, such as an inline log, compared with those beside it.

    Raises:
        CorruptFileError: they differ.
        FileNotFoundError: no such file.
    """
    data = storage.read(path, None)
    with suppress(FileNotFoundError):
        verify_checksums(data, storage.read(checksum_path(path)), path)
    return data
