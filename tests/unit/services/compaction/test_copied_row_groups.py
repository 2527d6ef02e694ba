"""Compactions copy the row groups of a base file that no log has a key of, and merge the others."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.stored_row_group import StoredRowGroup
from streaming_lsm.write.files.base_file_writer import BaseFileWriter
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.crash_points import combined, random_cases
from tests.support.false_statistics import set_key_range

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("value", pa.string()),
        ("tags", pa.list_(pa.int32())),
        ("place", pa.struct([("x", pa.float64()), ("name", pa.string())])),
    ]
)
GROUP = 100


def create(path: Path, **options: object) -> LsmTable:
    chosen = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.bucket.index.num.buckets": 1,
        "hoodie.combine.before.insert": True,
        "lsm.parquet.row.group.rows": GROUP,
        "lsm.read.threads": 1,
        **options,
    }
    return LsmTable.create(path, SCHEMA, chosen)


def rows(numbers: list[int], ts: int, prefix: str = "k") -> pa.Table:
    values = {
        "id": [f"{prefix}{number:05d}" for number in numbers],
        "ts": [ts] * len(numbers),
        "value": [f"{ts}-{number}" for number in numbers],
        "tags": [[number, ts] if number % 3 else None for number in numbers],
        "place": [{"x": number / 2, "name": None if number % 5 else "ä"} for number in numbers],
    }
    return pa.table(values, schema=SCHEMA)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the row groups that were copied."""
    found: list[int] = []
    copy = BaseFileWriter.copy

    def noting(base: BaseFileWriter, group: StoredRowGroup) -> None:
        found.append(group.number)
        copy(base, group)

    monkeypatch.setattr(BaseFileWriter, "copy", noting)
    return found


def base_path(table: LsmTable, root: Path) -> Path:
    (found,) = table.file_slices()
    assert found.base is not None
    return root / found.base.path


def check(table: LsmTable, root: Path, before: pa.Table) -> None:
    """The rows are those before the compaction, for every reader, with the new file's name; the validator agrees."""
    after = table.scan(meta=True).to_arrow()
    name = after.schema.get_field_index("_hoodie_file_name")
    assert set(after.column(name).to_pylist()) == {base_path(table, root).name}
    assert after.remove_column(name).to_pylist() == before.remove_column(name).to_pylist()
    assert read_snapshot(root).to_pylist() == after.select(SCHEMA.names).to_pylist()
    assert validate(root) == []


TOUCHED = {
    # name: the rows that a log has, and the row groups that are copied
    "one": ([250], [0, 1, 3, 4, 5]),
    "both-ends": ([0, 599], [1, 2, 3, 4]),
    "neighbours": ([99, 100], [2, 3, 4, 5]),
    "behind-all": ([900], [0, 1, 2, 3, 4, 5]),
    "all": ([0, 100, 200, 300, 400, 500], []),
}


@pytest.mark.parametrize(("name", "codec"), combined(0, list(TOUCHED), ["zstd", "snappy", "uncompressed"]))
def test_row_groups_without_a_key_of_a_log_are_copied(tmp_path: Path, copied: list[int], name: str, codec: str) -> None:
    touched, expected = TOUCHED[name]
    table = create(tmp_path, **{"hoodie.parquet.compression.codec": codec})
    table.bulk_insert(rows(list(range(600)), 1))
    table.upsert(rows(touched, 2))
    before = table.scan(meta=True).to_arrow()
    table.compact()
    assert copied == expected
    check(table, tmp_path, before)


def test_a_copied_row_group_has_the_bytes_and_statistics_of_the_old_one_and_a_page_index(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.bulk_insert(rows(list(range(300)), 1))
    table.upsert(rows([0], 2))
    old = pq.ParquetFile(base_path(table, tmp_path)).metadata
    table.compact()
    new = pq.ParquetFile(base_path(table, tmp_path), page_checksum_verification=True)
    assert new.metadata.num_row_groups == 3
    for place in range(old.num_columns):
        one, other = (metadata.row_group(2).column(place) for metadata in (old, new.metadata))
        assert other.has_offset_index
        assert other.has_column_index
        if one.path_in_schema != "_hoodie_file_name":
            assert one.total_compressed_size == other.total_compressed_size
            assert one.statistics == other.statistics
    assert new.metadata.row_group(2).sorting_columns == old.row_group(2).sorting_columns
    assert new.read_row_group(2, columns=["_hoodie_record_key"]).column(0).to_pylist() == [
        f"k{number:05d}" for number in range(200, 300)
    ]


def test_compactions_one_after_the_other_give_the_rows_of_the_merge(tmp_path: Path, copied: list[int]) -> None:
    for seed in range(random_cases(40, 2)):
        chance, root = random.Random(seed), tmp_path / str(seed)
        table = create(root, **{"hoodie.parquet.bloom.filter.enabled": bool(seed % 2)})
        table.bulk_insert(rows(sorted(chance.sample(range(2000), 900)), 1))
        for ts in range(2, 6):
            begin = chance.randrange(1900)
            numbers = [chance.randrange(begin, min(2000, begin + 300)) for _ in range(chance.randrange(1, 90))]
            table.upsert(rows(numbers, ts))
            if chance.random() < 0.5:
                gone = sorted({chance.randrange(2000) for _ in range(3)})
                table.delete(pa.table({"id": [f"k{number:05d}" for number in gone]}))
            before = table.scan(meta=True).to_arrow()
            table.compact()
            check(table, root, before)
    assert len(copied) > 30


def test_keys_that_repeat_in_the_base_file_are_merged(
    tmp_path: Path, copied: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_lsm.writable_table.reduces_keys", lambda *_, **__: False)  # as another program
    table = create(tmp_path)
    table.bulk_insert(rows(sorted([*range(300), 150, 199, 200]), 1))
    table.upsert(rows([299], 2))
    before = table.scan(meta=True).to_arrow()
    assert before.num_rows == 300
    table.compact()
    assert copied == [0]
    check(table, tmp_path, before)


def test_another_codec_or_another_schema_copies_nothing(tmp_path: Path, copied: list[int]) -> None:
    table = create(tmp_path)
    table.bulk_insert(rows(list(range(300)), 1))
    table.upsert(rows([0], 2))
    before = table.scan(meta=True).to_arrow()
    table = LsmTable(tmp_path, {"hoodie.parquet.compression.codec": "snappy"})
    table.compact()
    assert copied == []
    check(table, tmp_path, before)


def test_many_logs_are_not_looked_through(tmp_path: Path, copied: list[int]) -> None:
    table = create(tmp_path)
    table.bulk_insert(rows(list(range(300)), 1))
    table.upsert(rows(list(range(100)), 2))
    table.compact()
    assert copied == []


def test_a_damaged_page_is_not_copied(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.parquet.compression.codec": "uncompressed"})
    table.bulk_insert(rows(list(range(300)), 1))
    table.upsert(rows([0], 2))
    path = base_path(table, tmp_path)
    content = bytearray(path.read_bytes())
    place = content.rindex(b"1-250")
    content[place] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match="checksum"):
        table.compact()


@pytest.mark.parametrize(
    ("number", "low", "high"),
    [(1, None, "k00150"), (3, "k00350", None), (0, None, "k00010"), (2, "k00210", None), (2, None, "k00290")],
    ids=["before-ends-early", "after-begins-late", "first-ends-early", "copied-begins-late", "copied-ends-early"],
)
def test_statistics_that_do_not_hold_lose_no_row(
    tmp_path: Path, number: int, low: str | None, high: str | None
) -> None:
    table = create(tmp_path)
    table.bulk_insert(rows(list(range(600)), 1))
    table.upsert(rows([120, 320, 599], 2))
    before = table.scan(meta=True).to_arrow()
    set_key_range(base_path(table, tmp_path), number, low, high)
    table.compact()
    check(table, tmp_path, before)


def test_row_groups_that_overlap_a_copied_one_against_their_statistics_are_an_error(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.bulk_insert(rows([*range(200), *range(300, 400)], 1))
    table.upsert(rows([150], 2))
    path = base_path(table, tmp_path)
    unsorted = pq.read_table(path, use_threads=False)
    keys = unsorted.column("_hoodie_record_key").to_pylist()
    keys[199] = "k00350"  # of the second row group, though the third begins with k00300
    column = unsorted.schema.get_field_index("_hoodie_record_key")
    unsorted = unsorted.set_column(column, unsorted.schema.field(column), pa.array(keys, pa.string()))
    stored = pq.ParquetFile(path)
    footer = {name: value for name, value in (stored.metadata.metadata or {}).items() if not name.startswith(b"ARROW")}
    path.chmod(0o644)
    pq.write_table(
        unsorted.replace_schema_metadata(footer),
        path,
        row_group_size=GROUP,
        compression="zstd",
        use_dictionary=False,
        sorting_columns=[pq.SortingColumn(column)],
        store_schema=False,
    )
    set_key_range(path, 1, None, "k00199")
    with pytest.raises(CorruptFileError, match=r"do not ascend|record keys from 'k00300' on"):
        table.compact()


def test_kept_deletes_do_not_keep_a_row_group_from_being_copied(tmp_path: Path, copied: list[int]) -> None:
    table = create(tmp_path)
    table.bulk_insert(rows(list(range(600)), 1))
    for number in range(50, 600, 100):
        table.delete(pa.table({"id": [f"k{number:05d}"], "ts": [5]}))
    table.compact()
    assert copied == []
    table.upsert(rows([120], 2))
    table.upsert(rows([150, 350], 3))  # late
    before = table.scan(meta=True).to_arrow()
    table.compact()
    assert copied == [0, 2, 4, 5]
    check(table, tmp_path, before)
    assert table.compact() is None
    table.upsert(rows([450], 4))
    assert f"k{450:05d}" not in table.scan(["id"]).to_arrow().column("id").to_pylist()
