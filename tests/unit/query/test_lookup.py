"""Look-ups by record key, compared with whole scans."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, CorruptFileError, SchemaError
from streaming_lsm.query.wanted_keys import Keys
from tests.support.small_tables import OPTIONS, SCHEMA, create, data_files, rows

LAYOUTS: dict[str, dict[str, object]] = {
    "lsm_tree": {"lsm.parquet.row.group.rows": 4},
    "without blooms": {"lsm.parquet.row.group.rows": 4, "lsm.parquet.key.bloom.filter.enabled": False},
    "default layout": {"hoodie.table.storage.layout": "default"},
    "inline logs": {"hoodie.write.table.version": 9},
    "copy on write": {"hoodie.datasource.write.table.type": "COPY_ON_WRITE", "lsm.parquet.row.group.rows": 4},
}


def _batch(rng: np.random.Generator, number: int, count: int = 40) -> pa.Table:
    ids = rng.integers(0, 120, count).tolist()
    return rows(*((f"k{key:03}", ("DE", "FR")[key % 2], int(rng.integers(1, 9)), number) for key in ids))


def _written(root: Path, seed: int, options: dict[str, object]) -> LsmTable:
    rng, table = np.random.default_rng(seed), create(root, **options)
    table.bulk_insert(_batch(rng, 0, 80))
    for number in range(1, 5):
        table.upsert(_batch(rng, number))
        table.delete(_batch(rng, number, 6).select(["id", "country", "ts"]))
        if number == seed % 4:
            table.compact()
    return table


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_lookup_returns_the_rows_of_a_scan_in_key_order(tmp_path: Path, layout: str, seed: int) -> None:
    table = _written(tmp_path, seed, LAYOUTS[layout])
    rng = np.random.default_rng(seed)
    everything = table.scan(meta=True).to_arrow()
    for count in (0, 1, 7, 130):
        keys = [f"k{number:03}" for number in rng.integers(0, 140, count)]
        wanted = everything.filter(pc.is_in(everything["_hoodie_record_key"], pa.array(keys, pa.string())))
        assert table.lookup(keys, meta=True).equals(wanted.sort_by("_hoodie_record_key").combine_chunks()) or (
            table.lookup(keys, meta=True).to_pylist() == wanted.sort_by("_hoodie_record_key").to_pylist()
        )


def test_each_commit_before_a_lookup_is_seen(tmp_path: Path) -> None:
    table, other = create(tmp_path), LsmTable(tmp_path)
    assert table.lookup(["a"]).num_rows == 0
    other.upsert(rows(("a", "DE", 1, 1), ("b", "DE", 1, 2)))
    assert table.get("a") == {"id": "a", "country": "DE", "ts": 1, "qty": 1}
    other.upsert(rows(("a", "DE", 2, 10)))
    assert table.lookup(["a"], ["qty"]).to_pylist() == [{"qty": 10}]
    other.compact()
    assert table.lookup(["b", "a"], ["id", "qty"]).to_pylist() == [{"id": "a", "qty": 10}, {"id": "b", "qty": 2}]
    other.delete(rows(("a", "DE", 3, 0)).select(["id", "country", "ts"]))
    assert table.get("a") is None


def test_a_lookup_as_of_a_time_returns_the_row_of_then(tmp_path: Path) -> None:
    table = create(tmp_path)
    first = table.upsert(rows(("a", "DE", 1, 1)))
    table.upsert(rows(("a", "DE", 2, 2)))
    assert first is not None
    found = table.get("a", ["qty"], as_of=first.requested)
    assert (found, table.get("a", ["qty"])) == ({"qty": 1}, {"qty": 2})


def test_a_key_in_two_partitions_has_two_rows(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "DE", 1, 1), ("a", "FR", 1, 2)))
    assert table.lookup(["a"], ["country"]).to_pylist() == [{"country": "DE"}, {"country": "FR"}]
    with pytest.raises(ConfigError, match="'a' has rows in 2 partitions"):
        table.get("a")


def test_values_of_the_key_columns_are_looked_up(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("line", pa.string()), ("ts", pa.int64())])
    values = pa.table({"id": [1, 2, 2], "line": ["x", "y", "z"], "ts": [1, 1, 1]}, schema=schema)
    one = LsmTable.create(tmp_path / "one", schema, {**OPTIONS, "hoodie.datasource.write.partitionpath.field": "line"})
    one.upsert(values)
    assert one.lookup([2, 7], ["line"]).to_pylist() == [{"line": "y"}, {"line": "z"}]
    assert one.lookup(["1"], ["line"]).to_pylist() == one.lookup(pa.array([1], pa.int8()), ["line"]).to_pylist()
    composite = {**OPTIONS, "hoodie.datasource.write.recordkey.field": "id,line"}
    del composite["hoodie.datasource.write.partitionpath.field"]
    both = LsmTable.create(tmp_path / "both", schema, composite)
    both.upsert(values)
    assert both.get({"id": 2, "line": "z"}) == {"id": 2, "line": "z", "ts": 1}
    assert both.lookup(values.slice(0, 2)).to_pylist() == values.slice(0, 2).to_pylist()
    assert both.get("id:1,line:x") == {"id": 1, "line": "x", "ts": 1}
    with pytest.raises(ConfigError, match="the record key has the columns id, line"):
        both.lookup([1])
    with pytest.raises(SchemaError, match="no column 'line', which the record key has; given are id"):
        both.lookup({"id": [1]})


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ("a", ConfigError, r"keys='a': give a list of record keys: \['a'\]"),
        (["a", None], ConfigError, "a key is null"),
        ([1, "a"], SchemaError, "expected a list of record keys"),
        ([2**70], SchemaError, "expected a list of record keys"),
        ({"id": [2**70]}, SchemaError, "which the values do not fit"),
    ],
)
def test_keys_that_are_none_are_refused(
    tmp_path: Path, keys: list[object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        create(tmp_path).lookup(keys)


def test_a_missing_file_is_named_when_its_rows_are_looked_up(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.bulk_insert(rows(*((f"k{number:03}", "DE", 1, number) for number in range(50))))
    assert table.lookup(["k007"]).num_rows == 1
    for path in data_files(tmp_path):
        (tmp_path / path).unlink()
    with pytest.raises(CorruptFileError, match=r"DE/.*parquet"):
        table.lookup(["k007"])


def test_few_row_groups_are_read(tmp_path: Path) -> None:
    table = create(tmp_path, **{"lsm.parquet.row.group.rows": 10, "hoodie.bucket.index.num.buckets": 1})
    table.bulk_insert(rows(*((f"k{number:03}", "DE", 1, number) for number in range(0, 200, 2))))
    for number in range(5):
        table.upsert(rows(*((f"k{key:03}", "DE", 2, number) for key in range(number * 2, 200, 20))))
    found = table._queries.lookup(table._wanted(["qty"], None, False), ["k044"], None).explain()
    assert (found.counts.files, found.counts.files_skipped) == (6, 4)
    absent = table._queries.lookup(table._wanted(["qty"], None, False), ["k045"], None).explain()
    assert absent.counts.files_skipped == 6


def test_a_copied_row_group_keeps_its_bloom_filter(tmp_path: Path) -> None:
    table = create(tmp_path, SCHEMA, **{"lsm.parquet.row.group.rows": 10, "hoodie.bucket.index.num.buckets": 1})
    table.bulk_insert(rows(*((f"k{number:03}", "DE", 1, number) for number in range(0, 200, 2))))
    table.upsert(rows(("k000", "DE", 2, 7)))
    table.compact()
    (file_slice,) = table.file_slices()
    assert not file_slice.logs
    every = [f"k{number:03}" for number in range(0, 200, 2)]
    assert table.lookup(every).equals(table.scan().to_arrow().sort_by("id")) or (
        table.lookup(every).to_pylist() == table.scan().to_arrow().sort_by("id").to_pylist()
    )
    absent = [f"k{number:03}" for number in range(1, 199, 2)]
    read = table._queries.lookup(table._wanted(["qty"], None, False), absent, None).explain().counts
    assert read.by_bloom >= read.row_groups - 3


@pytest.mark.parametrize("options", [{}, {"hoodie.datasource.write.recordkey.field": "id,country"}], ids=["one", "two"])
def test_rows_in_all_forms_are_keys(tmp_path: Path, options: dict[str, object]) -> None:
    table = create(tmp_path / "t", **options)
    table.upsert(rows(("a", "DE", 1, 1), ("b", "FR", 1, 2), ("c", "DE", 1, 3)))
    wanted = rows(("c", "DE", 1, 30), ("a", "DE", 1, 10), ("x", "DE", 1, 0))
    expected = table.scan(filter="country = 'DE'").to_arrow().sort_by("id")
    assert len(expected) == 2
    keys = create(tmp_path / "keys", **options)
    keys.upsert(wanted)
    forms: dict[str, Keys] = {
        "pandas": wanted.to_pandas(),
        "pandas with Arrow types": wanted.to_pandas(types_mapper=pd.ArrowDtype),
        "pandas with an index": wanted.to_pandas().set_index("qty"),
        "polars": polars.from_arrow(wanted),
        "polars categories": polars.from_arrow(wanted).with_columns(polars.col("id").cast(polars.Categorical)),
        "duckdb": duckdb.from_arrow(wanted),
        "scan": keys.scan(["country", "id"]),
        "table": wanted,
        "batch": wanted.to_batches()[0],
        "reader": wanted.to_reader(),
        "mapping": wanted.to_pydict(),
    }
    for form, given in forms.items():
        assert table.lookup(given).sort_by("id").equals(expected), form
        if form != "reader":
            assert table.explain_lookup(given).slices, form


def test_series_are_lists_of_keys(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "DE", 1, 1), ("b", "FR", 1, 2)))
    for keys in (pd.Series(["b", "x"]), polars.Series(["b", "x"]), np.array(["b", "x"]), pa.chunked_array([["b"]])):
        assert table.lookup(keys)["id"].to_pylist() == ["b"]


def test_rows_without_the_key_column_are_refused(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "DE", 1, 1)))
    for frame in (pd.DataFrame({"key": ["a"]}), polars.DataFrame({"key": ["a"]}), table.scan(["country"])):
        with pytest.raises(SchemaError, match="no column 'id'"):
            table.lookup(frame)
