"""Committed files that do not hold what they should: the error names the file, and other partitions stay readable."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError, LsmError, SchemaError, UnsupportedTable
from streaming_lsm.file_group.slice_files import open_slice
from tests.support.small_tables import create, data_files, rows, shown

HEADER = "hudi.log.format.metadata"


@pytest.fixture
def table(tmp_path: Path) -> LsmTable:
    found = create(tmp_path, **{"hoodie.bucket.index.num.buckets": 1})
    found.bulk_insert(rows(("a", "DE", 1, 1), ("b", "DE", 1, 2), ("x", "FR", 1, 3)))
    found.upsert(rows(("a", "DE", 2, 10), ("c", "DE", 2, 30)))
    found.delete(rows(("b", "DE", 2, 0)).select(["id", "country", "ts"]))
    return found


def file_of(root: Path, kind: str) -> Path:
    """The one file of partition DE whose name has `kind`: a base file, a data log or a delete log."""
    names = [path for path in data_files(root) if path.startswith("DE/")]
    (found,) = [path for path in names if (kind in path if kind else ".log." not in path and ".deletes." not in path)]
    return root / found


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table], order: object = None, **footer: str | None) -> None:
    """Replace a file by one with changed rows and footer entries (None: left out); `order`: what it says it has."""
    metadata = {k.decode(): v.decode() for k, v in pq.ParquetFile(path).metadata.metadata.items()}
    table = change(pq.read_table(path).replace_schema_metadata(None))
    path.unlink()
    with pq.ParquetWriter(path, table.schema, store_schema=False, sorting_columns=order) as writer:  # type: ignore[arg-type]
        writer.write_table(table)
        writer.add_key_value_metadata({k: v for k, v in {**metadata, **footer}.items() if v is not None})


def same(table: pa.Table) -> pa.Table:
    return table


def corrupt(table: LsmTable, path: Path, error: type[LsmError] = CorruptFileError) -> str:
    """Check that a scan names the file, and that the other partition is readable still."""
    with pytest.raises(error) as found:
        table.scan().to_arrow()
    assert path.name in str(found.value)
    others = [one for one in table.file_slices() if one.partition_path == "FR"]
    assert [batch.num_rows for one in others for batch in table.scan(["id"]).read_slice(one)] == [1]
    return str(found.value)


KINDS = pytest.mark.parametrize("kind", ["", ".log.", ".deletes."], ids=["base", "data-log", "delete-log"])


def test_the_untouched_table_is_read(table: LsmTable) -> None:
    assert [row[0] for row in shown(table)] == ["a", "c", "x"]


@KINDS
@pytest.mark.parametrize("size", [0, 3, 100, -1, -9])
def test_a_truncated_file_is_named(table: LsmTable, tmp_path: Path, kind: str, size: int) -> None:
    path = file_of(tmp_path, kind)
    path.write_bytes(path.read_bytes()[:size])
    corrupt(table, path)


@KINDS
def test_a_flipped_bit_in_a_page_is_noticed(table: LsmTable, tmp_path: Path, kind: str) -> None:
    path = file_of(tmp_path, kind)
    column = pq.ParquetFile(path).metadata.row_group(0).column(2 if kind != ".deletes." else 0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 4
    path.write_bytes(data)
    corrupt(table, path)


def test_no_flipped_byte_gives_wrong_rows_or_a_foreign_error(table: LsmTable, tmp_path: Path) -> None:
    path = file_of(tmp_path, ".log.")
    whole, expected = path.read_bytes(), table.scan().to_arrow()
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        found = rows_or_error(table)
        if isinstance(found, str):
            assert path.name in found, place
        else:
            assert found.equals(expected), place


def rows_or_error(table: LsmTable) -> pa.Table | str:
    try:
        return table.scan().to_arrow()
    except LsmError as error:
        return str(error)


@KINDS
def test_a_file_that_vanishes_before_it_is_read_is_named(table: LsmTable, tmp_path: Path, kind: str) -> None:
    path, scan = file_of(tmp_path, kind), table.scan()
    path.unlink()
    with pytest.raises(CorruptFileError, match=path.name):
        scan.to_arrow()


@KINDS
def test_a_file_that_is_no_parquet_is_named(table: LsmTable, tmp_path: Path, kind: str) -> None:
    path = file_of(tmp_path, kind)
    path.write_bytes(b"PAR1" + b"\xff" * 200 + b"PAR1")
    corrupt(table, path)


@pytest.mark.parametrize("kind", [".log.", ".deletes."])
def test_another_instant_in_the_footer_is_noticed(table: LsmTable, tmp_path: Path, kind: str) -> None:
    path = file_of(tmp_path, kind)
    header = json.loads(pq.ParquetFile(path).metadata.metadata[HEADER.encode()])
    rewrite(path, same, **{HEADER: json.dumps({**header, "INSTANT_TIME": "20200101000000000"})})
    assert "20200101000000000" in corrupt(table, path)


@pytest.mark.parametrize("kind", [".log.", ".deletes."])
def test_a_log_without_footer_or_schema_is_named(table: LsmTable, tmp_path: Path, kind: str) -> None:
    path = file_of(tmp_path, kind)
    rewrite(path, same, **{HEADER: None})
    assert "SCHEMA" in corrupt(table, path)


def test_a_newer_log_format_is_refused(table: LsmTable, tmp_path: Path) -> None:
    path = file_of(tmp_path, ".log.")
    header = json.loads(pq.ParquetFile(path).metadata.metadata[HEADER.encode()])
    rewrite(path, same, **{HEADER: json.dumps({**header, "VERSION": "3"})})
    corrupt(table, path, UnsupportedTable)


def test_an_unsorted_file_of_another_program_gives_the_same_rows(table: LsmTable, tmp_path: Path) -> None:
    before = sorted(map(str, table.scan(meta=True).to_arrow().to_pylist()))
    rewrite(file_of(tmp_path, ".log."), lambda found: found.take([1, 0]))
    assert sorted(map(str, table.scan(meta=True).to_arrow().to_pylist())) == before


def test_a_file_that_is_said_to_be_sorted_and_is_not_is_named(table: LsmTable, tmp_path: Path) -> None:
    path = file_of(tmp_path, ".log.")
    order = pq.SortingColumn.from_ordering(pq.read_schema(path), [("_hoodie_record_key", "ascending")])
    rewrite(path, lambda found: found.take([1, 0]), order)
    assert "ascend" in corrupt(table, path)


@KINDS
def test_a_file_without_record_keys_is_named(table: LsmTable, tmp_path: Path, kind: str) -> None:
    path = file_of(tmp_path, kind)
    rewrite(path, lambda found: found.rename_columns({"_hoodie_record_key": "other"}))
    assert "_hoodie_record_key" in corrupt(table, path)


def test_a_column_of_another_type_is_named(table: LsmTable, tmp_path: Path) -> None:
    path = file_of(tmp_path, ".log.")
    rewrite(path, lambda found: found.set_column(8, "qty", pa.array([[1], [2]])))
    assert "'qty'" in corrupt(table, path, SchemaError)


def test_a_column_that_an_older_file_lacks_is_null(table: LsmTable, tmp_path: Path) -> None:
    path = file_of(tmp_path, ".log.")
    header = json.loads(pq.ParquetFile(path).metadata.metadata[HEADER.encode()])
    schema = json.loads(header["SCHEMA"])
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "qty"]
    footer = {HEADER: json.dumps({**header, "SCHEMA": json.dumps(schema)})}
    rewrite(path, lambda found: found.drop_columns(["qty"]), **footer)
    assert table.scan(["id", "qty"], pc.field("id") == "c").to_arrow().to_pylist() == [{"id": "c", "qty": None}]


@pytest.mark.parametrize(("kind", "column"), [(".log.", "qty"), ("", "qty"), (".deletes.", "ts")])
def test_a_column_under_another_name_is_noticed(table: LsmTable, tmp_path: Path, kind: str, column: str) -> None:
    path = file_of(tmp_path, kind)
    rewrite(path, lambda found: found.rename_columns({column: "other"}))
    assert f"'{column}'" in corrupt(table, path)


def test_a_base_file_without_an_avro_schema_is_read(table: LsmTable, tmp_path: Path) -> None:
    rewrite(file_of(tmp_path, ""), same, **{"parquet.avro.schema": None})
    assert [row[0] for row in shown(table)] == ["a", "c", "x"]


def test_an_avro_schema_of_a_base_file_that_is_none_is_named(table: LsmTable, tmp_path: Path) -> None:
    path = file_of(tmp_path, "")
    rewrite(path, same, **{"parquet.avro.schema": "{"})
    assert "parquet.avro.schema" in corrupt(table, path)


@pytest.mark.parametrize(
    ("kind", "other", "column"),
    [(".log.", ".deletes.", "'_hoodie_commit_time'"), (".deletes.", ".log.", "'_hoodie_commit_time'")],
)
def test_a_log_under_the_name_of_the_other_kind_is_noticed(
    table: LsmTable, tmp_path: Path, kind: str, other: str, column: str
) -> None:
    path = file_of(tmp_path, kind)
    renamed = path.with_name(path.name.replace(kind, other))
    path.rename(renamed)
    for write in table.timeline.completed_writes:
        found = table.timeline.read_commit(write)
        stats = tuple(replace(s, path=s.path.replace(path.name, renamed.name)) for s in found.stats)
        table.storage.replace(write.path, replace(found, stats=stats).encode())
    assert column in corrupt(table, renamed)
    with pytest.raises(CorruptFileError, match=renamed.name):
        table.history("a")


def test_other_columns_of_a_delete_log_do_no_harm(table: LsmTable, tmp_path: Path) -> None:
    rewrite(file_of(tmp_path, ".deletes."), lambda found: found.append_column("note", pa.array(["x"])))
    assert [row[0] for row in shown(table)] == ["a", "c", "x"]


def test_a_log_with_a_part_of_the_columns_is_refused(table: LsmTable, tmp_path: Path) -> None:
    path = file_of(tmp_path, ".log.")
    header = json.loads(pq.ParquetFile(path).metadata.metadata[HEADER.encode()])
    rewrite(path, same, **{HEADER: json.dumps({**header, "IS_PARTIAL": "true"})})
    assert "IS_PARTIAL" in corrupt(table, path, UnsupportedTable)


def test_the_history_of_a_damaged_file_names_it(table: LsmTable, tmp_path: Path) -> None:
    path = file_of(tmp_path, ".log.")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CorruptFileError, match=path.name):
        table.history("a")


def test_rows_of_the_changelog_column_are_deletes(table: LsmTable, tmp_path: Path) -> None:
    path = file_of(tmp_path, ".log.")
    rewrite(path, lambda found: found.append_column("_hoodie_operation", pa.array(["D", "I"])))
    assert [row[0] for row in shown(table)] == ["c", "x"]


def test_batches_are_smaller_where_a_slice_has_many_files(table: LsmTable) -> None:
    for ts in range(3, 33):
        table.upsert(rows(("a", "DE", ts, ts)))
    held = []
    for found in table.file_slices():
        with ExitStack() as files:
            opened = open_slice(table.storage, found, table.rule, files)
            held.append((len(opened), sum(file.batch_rows for file in opened)))
    assert held == [(33, 131072 + 32 * (2**20 // 33)), (1, 131072)]
    assert shown(table)[0] == ("a", "DE", 32, 32)


@pytest.mark.parametrize("threads", [1, 8], ids=["fewer-threads-than-slices", "more-threads-than-slices"])
def test_the_rows_do_not_depend_on_the_number_of_threads(table: LsmTable, threads: int) -> None:
    other = LsmTable(table.path, {"lsm.read.threads": threads})
    assert shown(other) == shown(table) == [("a", "DE", 2, 10), ("c", "DE", 2, 30), ("x", "FR", 1, 3)]
