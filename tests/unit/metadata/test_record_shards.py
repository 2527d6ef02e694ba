"""File groups of the record index: their ids, their number, and which keys they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.metadata.record_index import parse_shard, shard_file_id, shards_of
from streaming_lsm.metadata.record_merging import split
from streaming_lsm.metadata.record_shards import ShardedKeys, Sizing, by_partition, sorted_keys

GIB = 1 << 30


@pytest.mark.parametrize(
    ("partition", "number", "file_id"),
    [
        (None, 4, "record-index-0004-0"),
        ("test", 12, "record-index-test-0012-0"),  # of Hudi's own tests
        ("", 0, "record-index--0000-0"),
        ("2026-11/day=1_a%", 12345, "record-index-2026%2D11%2Fday%3D1%5Fa%25-12345-0"),
    ],
)
def test_file_ids_are_those_of_hudi_and_say_partition_and_number(
    partition: str | None, number: int, file_id: str
) -> None:
    assert shard_file_id(number, partition) == file_id
    assert parse_shard(file_id) == (partition, number)


def test_other_file_ids_are_refused_and_so_are_gaps_and_two_forms() -> None:
    assert parse_shard("files-0000-0") is None
    assert by_partition([shard_file_id(1), shard_file_id(0)]) == {None: [shard_file_id(0), shard_file_id(1)]}
    for ids, why in (
        ([], "no file groups"),
        (["col-stats-0000-0"], "has the file group col-stats-0000-0"),
        ([shard_file_id(0), shard_file_id(2)], "no file group 1"),
        ([shard_file_id(0), shard_file_id(0, "a")], "partitioned"),
    ):
        with pytest.raises(CorruptFileError, match=why):
            by_partition(ids)


@pytest.mark.parametrize(
    ("sizing", "keys", "shards"),
    [
        (Sizing(10, 10_000, 2.0, GIB), 0, 10),
        (Sizing(10, 10_000, 2.0, GIB), 300_000_000, 26),  # 600 M keys of 48 bytes in file groups of 1 GiB
        (Sizing(1, 10, 2.0, GIB), 10**9, 10),
        (Sizing(7, 7, 2.0, 48), 10**6, 7),
        (Sizing(1, 100, 1.5, 480), 100, 15),
    ],
)
def test_the_number_of_file_groups_is_that_of_hudi(sizing: Sizing, keys: int, shards: int) -> None:
    assert sizing.shards(keys) == shards


@pytest.mark.parametrize(
    ("sizing", "keys", "before", "after"),
    [
        (Sizing(10, 10_000, 2.0, GIB), 223_000_000, 10, 10),
        (Sizing(10, 10_000, 2.0, GIB), 224_000_000, 10, 20),  # 20 is what Hudi would choose, too
        (Sizing(10, 10_000, 2.0, GIB), 300_000_000, 10, 30),  # 26 would do
        (Sizing(1, 35, 2.0, GIB), 10**9, 10, 30),
        (Sizing(1, 19, 2.0, GIB), 10**9, 10, 10),
        (Sizing(1, 5, 2.0, GIB), 10**9, 10, 10),
        (Sizing(1, 100, 1.0, 480), 101, 10, 10),
        (Sizing(7, 7, 2.0, 48), 10**6, 7, 7),
    ],
)
def test_it_gets_a_multiple_of_its_file_groups(sizing: Sizing, keys: int, before: int, after: int) -> None:
    assert sizing.grown(keys, before) == after


def test_the_keys_of_a_shard_go_to_those_that_take_its_place() -> None:
    keys = pa.array([f"k{n}" for n in range(2000)] + ["polygenelubricants", "Ǡ-größe-東京"])  # of the hash -2^31
    before, after = shards_of(keys, 7), shards_of(keys, 28)
    assert (after % 7 == before).all()
    texts: Any = keys.cast(pa.binary()).filter(pa.array(before == 3)).sort()
    ids = [shard_file_id(number) for number in range(28)]
    values = pa.array([bytes(5) + key for key in texts.to_pylist()], pa.binary())  # 5 meta columns, all null
    found = {new.group.file_id: new for new in split((texts, values), 3, 7, ids, "20260101120000000")}
    assert list(found) == [ids[number] for number in (3, 10, 17, 24)]
    assert pa.concat_arrays([new.keys for new in found.values()]).sort() == texts
    for number in (3, 10, 17, 24):
        assert set(shards_of(found[ids[number]].keys.cast(pa.string()), 28).tolist()) <= {number}
        assert found[ids[number]].keys == found[ids[number]].keys.sort()
        for key, value in zip(found[ids[number]].keys.to_pylist(), found[ids[number]].values.to_pylist(), strict=True):
            assert value.endswith(f"{ids[number]}_0-0-0_20260101120000000.hfile".encode() + key)


def test_keys_that_are_not_of_a_shard_are_told() -> None:
    keys: Any = pa.array([f"k{n}" for n in range(50)]).cast(pa.binary()).sort()
    with pytest.raises(CorruptFileError, match="keys in shard 1 that are not of it"):
        list(split((keys, keys), 1, 2, [shard_file_id(number) for number in range(4)], "20260101120000000"))


def test_each_key_is_in_one_shard_and_those_of_a_shard_ascend() -> None:
    rng = np.random.default_rng(0)
    groups = [pa.chunked_array([[f"k{n}" for n in part.tolist()]]) for part in np.array_split(rng.permutation(500), 4)]
    sharded = ShardedKeys(enumerate(groups), 3)
    seen = {}
    for shard in range(3):
        keys, numbers = sharded.sorted(shard)
        assert keys.to_pylist() == sorted(keys.to_pylist())
        seen |= dict(zip(keys.to_pylist(), numbers.tolist(), strict=True))
    assert seen == {key: number for number, keys in enumerate(groups) for key in keys.to_pylist()}


@pytest.mark.parametrize("keys", [["a", "b", "a"], ["a", ""], ["a", "x" * 40_000]])
def test_a_key_that_comes_twice_or_fits_no_hfile_is_refused(keys: list[str]) -> None:
    sharded = ShardedKeys([(0, pa.chunked_array([keys[:1]])), (1, pa.chunked_array([keys[1:]]))], 1)
    with pytest.raises(UnsupportedTable):
        sharded.sorted(0)


@pytest.mark.parametrize(("key", "told"), [("k" * 32_768, "'kkk.* of 32,768 bytes"), ("", "'' of 0 bytes")])
def test_a_key_that_no_hfile_takes_is_named(key: str, told: str) -> None:
    with pytest.raises(UnsupportedTable, match=f"record key {told} cannot be indexed"):
        sorted_keys(pa.array(["a", key, "b"], pa.string()))
