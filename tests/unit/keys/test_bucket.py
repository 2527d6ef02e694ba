from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.errors import ConfigError, RecordError
from streaming_lsm.keys import bucket
from streaming_lsm.keys.bucket import bucket_ids, java_string_hash

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def reference_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-le")
    for place in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[place : place + 2], "little")) & 0xFFFFFFFF
    return value


def reference_values(key: str, fields: list[str], hash_fields: list[str]) -> list[str | None]:
    """Format 10, rule 13, one key at a time."""
    if "," not in key or ":" not in key or not key.startswith(fields[0] + ":"):
        return [key]
    values, rest = [], key[len(fields[0]) + 1 :]
    for field in fields[1:]:
        value, mark, rest = rest.partition(f",{field}:")
        if not mark:
            return [key]
        values.append(value)
    values.append(rest)
    kept = [value for field, value in zip(fields, values, strict=True) if not hash_fields or field in hash_fields]
    return [{"__null__": None, "__empty__": ""}.get(value, value) for value in kept]


def reference_bucket(values: list[str | None], buckets: int) -> int:
    total = 1
    for value in values:
        total = (total * 31 + (0 if value is None else reference_hash(value))) & 0xFFFFFFFF
    return (total & 0x7FFFFFFF) % buckets


def signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


@settings(deadline=None)
@given(st.lists(st.none() | TEXTS, max_size=30), st.integers(0, 5))
def test_hash_equals_the_reference_on_any_text_and_slice(texts: list[str | None], start: int) -> None:
    array = pa.array(texts, pa.string())[start:]
    assert java_string_hash(array).tolist() == [signed(reference_hash(text or "")) for text in texts[start:]]


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=20))
def test_hash_does_not_depend_on_the_offset_width(texts: list[str]) -> None:
    narrow, wide = pa.array(texts, pa.string()), pa.array(texts, pa.large_string())
    assert java_string_hash(narrow).tolist() == java_string_hash(wide).tolist()


@pytest.mark.parametrize("units", [1, 2, 7])
def test_hash_does_not_depend_on_where_blocks_end(units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "a", "", "abcdef" * 5, "é🐝", "", "z" * 31, ""]
    monkeypatch.setattr(bucket, "_BLOCK_UNITS", units)
    assert java_string_hash(pa.array(texts)).tolist() == [signed(reference_hash(text)) for text in texts]


def test_hash_of_many_rows_crosses_blocks_correctly() -> None:
    texts = [f"key-{row:013d}" for row in range(20_000)]
    hashes = java_string_hash(pa.array(texts))
    for row in (0, 7709, 7710, 7711, 15_420, 19_999):
        assert hashes[row] == signed(reference_hash(texts[row]))


def test_text_that_is_not_utf8_is_refused_by_row() -> None:
    broken = pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())
    with pytest.raises(RecordError, match="row 1"):
        java_string_hash(broken)


PIECES = st.lists(
    st.sampled_from(["a", "b", ",", ":", ",b:", "c:", "é", "🐝", "\n", "__null__", "__empty__"]), max_size=5
)


@settings(deadline=None)
@given(
    st.lists(st.tuples(PIECES, PIECES, PIECES), min_size=1, max_size=12),
    st.sampled_from([[], ["a"], ["b"], ["a", "c"], ["c", "b"]]),
    st.integers(1, 300),
)
def test_composite_buckets_equal_the_reference(
    rows: list[tuple[list[str], ...]], chosen: list[str], count: int
) -> None:
    keys = ["a:{},b:{},c:{}".format(*("".join(pieces) for pieces in row)) for row in rows]
    expected = [reference_bucket(reference_values(key, ["a", "b", "c"], chosen), count) for key in keys]
    assert bucket_ids(pa.array(keys), ["a", "b", "c"], chosen, count).tolist() == expected


@settings(deadline=None)
@given(
    st.lists(PIECES.map("".join) | TEXTS, min_size=1, max_size=12),
    st.sampled_from([["a"], ["a", "b"], ["a", "b", "c"]]),
)
def test_any_key_text_equals_the_reference(keys: list[str], fields: list[str]) -> None:
    keys += [f"a:{key}" for key in keys]
    expected = [reference_bucket(reference_values(key, fields, []), 64) for key in keys]
    assert bucket_ids(pa.array(keys), fields, [], 64).tolist() == expected


def test_null_and_empty_parts_count_as_the_empty_text() -> None:
    keys = pa.array(["a:__null__,b:x", "a:__empty__,b:x"])
    assert bucket_ids(keys, ["a", "b"], [], 1000).tolist() == [reference_bucket(["", "x"], 1000)] * 2


def test_complex_key_of_one_field_hashes_its_value_only_if_it_has_a_comma() -> None:
    keys = pa.array(["id:a,b", "id:ab"])
    assert bucket_ids(keys, ["id"], [], 97).tolist() == [reference_bucket(["a,b"], 97), reference_bucket(["id:ab"], 97)]


def test_no_rows_give_no_buckets() -> None:
    empty = bucket_ids(pa.array([], pa.string()), ["a", "b"], [], 8)
    assert empty.dtype == np.int32
    assert len(empty) == 0


def test_hash_field_outside_the_key_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'other'"):
        bucket_ids(pa.array(["a"]), ["id"], ["other"], 4)


def test_no_buckets_are_refused() -> None:
    with pytest.raises(ConfigError, match="is 0"):
        bucket_ids(pa.array(["a"]), ["id"], [], 0)


def test_missing_key_is_refused_by_row() -> None:
    with pytest.raises(RecordError, match="row 1"):
        bucket_ids(pa.array(["a", None]), ["id"], [], 4)
