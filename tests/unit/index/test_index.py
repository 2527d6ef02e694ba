"""File groups have dense numbers; partition path and bucket alone tell one from another."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.format.table.file_names import BucketId
from streaming_lsm.index.base import BucketIds, GroupNumbers
from streaming_lsm.index.bucket import BucketIndex
from streaming_lsm.keys.bucket import bucket_ids

ids = st.tuples(st.sampled_from(["", "nl", "de", "a/b"]), st.sampled_from([0, 1, 7, 255, 256, 10_000]))


@settings(deadline=None)
@given(st.lists(st.lists(ids)))
def test_each_file_group_keeps_one_number_and_they_are_dense(batches: list[list[BucketId]]) -> None:
    groups, seen = GroupNumbers(), dict[int, BucketId]()
    for batch in batches:
        for number, group in zip(groups.add(BucketIds.of(batch)).tolist(), batch, strict=True):
            assert seen.setdefault(number, group) == group
    assert sorted(seen) == list(range(len(groups))) == list(range(len(set(seen.values()))))
    assert [groups[number] for number in range(len(groups))] == [seen[number] for number in range(len(groups))]
    assert groups.add(groups.ids).tolist() == list(range(len(groups)))


@settings(deadline=None)
@given(st.lists(ids, min_size=1), st.data())
def test_taken_ids_carry_their_own_partitions_and_no_others(batch: list[BucketId], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(batch) - 1)))
    taken = pickle.loads(pickle.dumps(BucketIds.of(batch).take(np.array(places, np.int64))))
    found = [(taken.partitions[path], bucket) for path, bucket in zip(taken.partition, taken.bucket, strict=True)]
    assert found == [batch[place] for place in places]
    assert set(taken.partitions) == {batch[place][0] for place in places}


def test_rows_are_located_by_partition_and_bucket_whatever_the_dictionary() -> None:
    index = BucketIndex(("id",), ("id",), 4)
    keys = pa.array([f"k{number}" for number in range(40)])
    buckets = bucket_ids(keys, ("id",), ("id",), 4).tolist()
    for paths in (["nl", "de"], ["de", "unused", "nl"]):
        rows = [paths[-1] if number % 3 else paths[0] for number in range(40)]
        places = pa.array([paths.index(path) for path in rows], pa.int32())
        located = index.locate(keys, pa.DictionaryArray.from_arrays(places, pa.array(paths)))
        assert [index.groups[number] for number in located.tolist()] == list(zip(rows, buckets, strict=True))
    assert len(index.groups) == 8
