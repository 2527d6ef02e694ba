"""Which file group holds a bucket, and file groups that do not fit the table."""

from __future__ import annotations

import pytest

from streaming_lsm.errors import ConfigError, CorruptFileError, UnsupportedTable
from streaming_lsm.index.bucket_index import BucketIndex


def file_id(bucket: int, rest: str = "a") -> str:
    return f"{bucket:08d}-{rest}-0"


def test_groups_are_found_by_partition_and_bucket() -> None:
    index = BucketIndex(4)
    index.add([("x", file_id(0)), ("y", file_id(0, "b")), ("x", file_id(3))])
    index.add([("x", file_id(0))])
    assert index.file_ids == {("x", 0): file_id(0), ("y", 0): file_id(0, "b"), ("x", 3): file_id(3)}


def test_what_is_handed_out_is_a_copy() -> None:
    index = BucketIndex(4)
    index.file_ids[("x", 0)] = file_id(0)
    assert index.file_ids == {}


def test_a_bucket_beyond_the_count_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"00000004-a-0.*'part'.*bucket 4.*is 4"):
        BucketIndex(4).add([("part", file_id(4))])


def test_two_groups_for_one_bucket_are_refused_with_both_ids() -> None:
    index = BucketIndex(4)
    index.add([("part", file_id(1, "a"))])
    with pytest.raises(UnsupportedTable, match=r"'part'.*bucket 1.*00000001-a-0.*00000001-b-0"):
        index.add([("part", file_id(1, "b"))])


def test_a_file_id_without_bucket_is_refused_by_name() -> None:
    with pytest.raises(CorruptFileError, match="1234-hash"):
        BucketIndex(4).add([("", "1234-hash-0")])
