"""Read the bloom filters of base files, for the partition ``bloom_filters`` of the metadata table."""

from __future__ import annotations

from contextlib import ExitStack

from streaming_lsm.file_group.data_file import open_parquet
from streaming_lsm.format.base_file_footer import bloom_of_footer
from streaming_lsm.storage.base import Storage


def stored_bloom(storage: Storage, path: str) -> tuple[str, bytes] | None:
    """Read the bloom filter of a base file.

    Args:
        storage: the table.
        path: of the base file.

    Returns:
        Type code and base64 text, as the footer has them; None if it has none.

    Raises:
        CorruptFileError: the file is missing, or it or its filter is damaged.
        StorageError: it cannot be opened at present.
        UnsupportedTable: the filter is of an unknown type.
    """
    with ExitStack() as files:
        metadata = open_parquet(storage, path, files).parquet.metadata.metadata
    bloom = bloom_of_footer(metadata, path)
    return None if bloom is None else (bloom.kind, bloom.encode().encode())
