"""The bytes of single rows, of whole columns and of slices of them, and the cuts that they lead to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.write.buffer.row_sizes import cuts, row_sizes

ROW = 1  # no row counts as nothing
OFFSET = 4

STRINGS = (pa.array(["a", None, "äb", "", "x" * 50], pa.string()), [1, 0, 3, 0, 50])
BINARY = (pa.array([b"", b"abc", None], pa.binary()), [0, 3, 0])
LISTS = (pa.array([[1, 2], None, [], [3], [4, 5, 6]], pa.list_(pa.int64())), [16, 0, 0, 8, 24])
TEXTS = [["aa", None], None, ["b" * 9], []]
LISTS_OF_TEXT = (pa.array(TEXTS, pa.list_(pa.string())), [2 + 2 * OFFSET, 0, 9 + OFFSET, 0])
LISTS_OF_LISTS = (
    pa.array([[["a"], ["bb", "c"]], [], [["d" * 7]]], pa.list_(pa.list_(pa.string()))),
    [4 + 5 * OFFSET, 0, 7 + 2 * OFFSET],
)
MAPS = (
    pa.array([[("k", "v" * 10)], None, [], [("a", None), ("b", "c" * 5)]], pa.map_(pa.string(), pa.string())),
    [11 + 2 * OFFSET, 0, 0, 7 + 4 * OFFSET],
)
STRUCTS = (
    pa.array(
        [{"n": 1, "t": "x" * 10}, None, {"n": 2, "t": None}, {"n": 3, "t": "y"}],
        pa.struct([pa.field("n", pa.int64()), pa.field("t", pa.string())]),
    ),
    [18, 8, 8, 9],
)
LISTS_OF_STRUCTS = (
    pa.array([[{"t": "abc"}], [{"t": "d"}, {"t": "ef"}], []], pa.list_(pa.struct([pa.field("t", pa.string())]))),
    [3 + OFFSET, 3 + 2 * OFFSET, 0],
)
HAVE_OFFSETS = {
    "strings": STRINGS,
    "binary": BINARY,
    "lists": LISTS,
    "lists-of-text": LISTS_OF_TEXT,
    "lists-of-lists": LISTS_OF_LISTS,
    "maps": MAPS,
    "lists-of-structs": LISTS_OF_STRUCTS,
}
NESTED = {name: (values, [size + OFFSET for size in sizes]) for name, (values, sizes) in HAVE_OFFSETS.items()}
# A struct has no offsets itself; its text column has.
COLUMNS = {**NESTED, "structs": (STRUCTS[0], [size + OFFSET for size in STRUCTS[1]])}


def sizes_of(*columns: pa.Array[Any]) -> list[int]:
    return row_sizes(pa.record_batch(list(columns), names=[f"c{place}" for place in range(len(columns))])).tolist()


def close(found: list[int], expected: list[int], bits: int = 1) -> bool:
    """Whether sizes are the expected ones, or larger by the validity bits of each value, rounded up."""
    return all(size <= one <= size + bits for one, size in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_row_has_the_bytes_of_its_values(name: str) -> None:
    values, sizes = COLUMNS[name]
    expected = [size + ROW for size in sizes]
    assert close(sizes_of(values), expected)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_slice_has_the_sizes_of_the_same_rows_in_the_whole(name: str) -> None:
    values, _ = COLUMNS[name]
    whole = sizes_of(values)
    for begin in range(len(values)):
        for end in range(begin, len(values) + 1):
            part = values.slice(begin, end - begin)
            assert sizes_of(part) == sizes_of(pa.concat_arrays([part, part[:0]])) == whole[begin:end]


def test_a_slice_of_a_slice_is_sized_from_its_own_rows() -> None:
    texts = pa.array([["a" * place] for place in range(20)], pa.list_(pa.string()))
    assert sizes_of(texts[5:15][3:6]) == [ROW + 2 * OFFSET + place for place in (8, 9, 10)]


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (pa.bool_(), 1),
        (pa.int32(), 4),
        (pa.int64(), 8),
        (pa.float32(), 4),
        (pa.date32(), 4),
        (pa.timestamp("us", "UTC"), 8),
        (pa.decimal128(10, 2), 16),
    ],
    ids=str,
)
@pytest.mark.parametrize("nullable", [False, True], ids=["no-nulls", "nulls"])
def test_values_of_one_width_count_alike(kind: pa.DataType, size: int, nullable: bool) -> None:
    one = True if kind == pa.bool_() else 1
    column = pa.array([one, None if nullable else one] * 50, kind)
    for part in (column, column.slice(3, 50), column.slice(99)):
        assert close(sizes_of(part), [size + ROW] * len(part))


def test_a_list_of_many_booleans_is_not_free() -> None:
    assert sizes_of(pa.array([[True] * 10_000, []], pa.list_(pa.bool_())))[0] >= 1250


def test_bytes_below_a_null_count_as_they_are_held() -> None:
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 4], pa.int32()), pa.array([1, 2, 3, 4]), mask=pa.array([True, False])
    )
    assert sizes_of(hidden) == [16 + OFFSET + ROW] * 2


def test_rows_add_up_over_columns_and_chunks() -> None:
    texts = pa.chunked_array([["a", "bb"], [], ["c" * 30]], pa.string())
    numbers = pa.chunked_array([[1], [2, 3]], pa.int64())
    assert row_sizes(pa.table({"texts": texts, "numbers": numbers})).tolist() == [
        ROW + OFFSET + 8 + length for length in (1, 2, 30)
    ]


def test_a_table_without_rows_has_no_sizes() -> None:
    assert row_sizes(pa.schema([("a", pa.list_(pa.string()))]).empty_table()).tolist() == []
    assert row_sizes(pa.table({"a": pa.chunked_array([], pa.string())})).tolist() == []


def test_all_sizes_add_up_to_what_a_batch_holds() -> None:
    columns = [values.take(pa.array([0, 1, 2] * 1000)) for values, _ in COLUMNS.values()]
    batch = pa.record_batch(columns, names=list(COLUMNS))
    assert batch.nbytes * 0.95 < row_sizes(batch).sum() < batch.nbytes * 1.15


@pytest.mark.parametrize(
    ("sizes", "span", "limit", "expected"),
    [
        ([], (0, 0), 10, []),
        ([5, 5, 5], (0, 3), 10, [(0, 2), (2, 3)]),
        ([5, 5, 5], (0, 3), 9, [(0, 1), (1, 2), (2, 3)]),
        ([5, 5, 5], (0, 3), 15, [(0, 3)]),
        ([5, 5, 5], (0, 3), 1000, [(0, 3)]),
        ([5, 50, 5], (0, 3), 10, [(0, 1), (1, 2), (2, 3)]),
        ([50, 1, 1, 50], (0, 4), 10, [(0, 1), (1, 3), (3, 4)]),
        ([9, 1, 1, 9, 1], (1, 4), 10, [(1, 3), (3, 4)]),
        ([9, 1, 1, 9, 1], (2, 5), 10, [(2, 4), (4, 5)]),
        ([9, 1], (1, 1), 10, []),
        ([1, 1, 1], (0, 3), 0, [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_cuts_keep_to_the_limit_but_for_single_larger_rows(
    sizes: list[int], span: tuple[int, int], limit: int, expected: list[tuple[int, int]]
) -> None:
    assert list(cuts(np.cumsum(np.array(sizes, np.int64)), *span, limit)) == expected


def test_cuts_cover_every_row_once() -> None:
    sizes = np.random.default_rng(3).integers(1, 2000, 500)
    found = list(cuts(np.cumsum(sizes), 17, 483, 3000))
    assert [begin for begin, _ in found] == [17, *(end for _, end in found[:-1])]
    assert found[-1][1] == 483
    assert all(sizes[begin:end].sum() <= 3000 for begin, end in found)
    assert all(sizes[begin : end + 1].sum() > 3000 for begin, end in found[:-1])
