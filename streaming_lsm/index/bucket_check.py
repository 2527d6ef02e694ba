"""Check the number of buckets that a writer was given against the keys that a table stores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from streaming_lsm.arrow.columns import strings
from streaming_lsm.errors import ConfigError, UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.format.table.properties import INDEX_TYPE_KEY
from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.query.slices.slice_reader import SliceReader

_LEAST = 4
"""File groups from which on their ids tell: one of 40 random ids begins with eight digits, too."""
_LOOKED_AT = 16
"""File slices that are looked at: a wrong number of buckets shows in nearly every one of them."""


def check_no_buckets(table: TableConfig, file_ids: Sequence[str], path: str) -> None:
    """Check that the file groups of a table that only options say to have no buckets are none.

    Raises:
        ConfigError: all of several file ids begin with a bucket: a new file group would have none.
    """
    if len(file_ids) < _LEAST or INDEX_TYPE_KEY in table.properties:
        return
    with suppress(UnsupportedTable):
        numbers = [bucket_of(file_id) for file_id in file_ids]
        raise ConfigError(
            f"the file ids of {path}, such as {file_ids[0]}, begin with buckets, and hoodie.index.type is "
            f"{table.index_type}: set it to BUCKET, and hoodie.bucket.index.num.buckets to the number that the table "
            f"was written with, at least {max(numbers) + 1}"
        )


def check_buckets(table: TableConfig, slices: Sequence[FileSlice], reader: SliceReader) -> None:
    """Compare the buckets of stored keys with those of their file groups.

    See docs/format/07-index-and-metadata.md, "Simple bucket index".

    Args:
        table: with the number of buckets, and the hash fields, to be checked.
        slices: the latest slice of every file group.
        reader: reads the record key of a slice.

    Raises:
        ConfigError: keys are stored in other buckets; written so, they would be in the table twice.
    """
    for found in slices[:_LOOKED_AT]:
        lone = found if found.base is None else replace(found, logs=())
        batch = next(reader.read(lone), None)
        if batch is None:
            continue
        keys, stored = strings(batch.column(0)), bucket_of(found.file_id)
        buckets = bucket_ids(keys, table.record_key_fields, table.hash_fields, table.num_buckets)
        wrong = np.flatnonzero(buckets != stored)
        if len(wrong):
            raise ConfigError(
                f"key {keys[int(wrong[0])].as_py()!r} is stored in bucket {stored} of partition "
                f"{found.partition_path!r}; with hoodie.bucket.index.num.buckets={table.num_buckets} and "
                f"hoodie.bucket.index.hash.field={','.join(table.hash_fields)} it would be written to bucket "
                f"{buckets[wrong[0]]}: give the values that the table was written with"
            )
