"""The versions of one key, file by file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.query.history import read_history
from tests.oracle.writer import GOLDEN
from tests.support.small_tables import SCHEMA, create, data_files, rows


def test_columns_of_a_table_may_be_called_file_and_deleted(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("file", pa.string()), ("deleted", pa.int32())])
    table = create(tmp_path, schema)
    row = {"id": ["a"], "country": ["DE"], "ts": [1], "qty": [1], "file": ["mine"], "deleted": [7]}
    table.upsert(pa.table(row, schema=schema))
    (version,) = table.history("a").to_pylist()
    assert (version["file"], version["deleted"], version["_lsm_deleted"]) == ("mine", 7, False)
    assert {version["_lsm_file"]} == data_files(tmp_path)


def test_versions_have_the_types_of_the_table(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "DE", 1, 1)))
    (path,) = data_files(tmp_path)
    narrow(tmp_path / path)
    found = table.history("a")
    assert found.schema.field("ts").type == pa.int64()
    assert found["ts"].to_pylist() == [1]


def narrow(path: Path) -> None:
    """Give the ordering column a smaller type, as files from before a promotion have it."""
    metadata = pq.ParquetFile(path).metadata.metadata
    found = pq.read_table(path)
    place = found.schema.get_field_index("ts")
    found = found.set_column(place, "ts", found["ts"].cast(pa.int32()))
    with pq.ParquetWriter(path, found.schema) as writer:
        writer.write_table(found)
        writer.add_key_value_metadata(metadata)


def test_a_changelog_column_marks_deletes(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "DE", 1, 1)))
    (path,) = data_files(tmp_path)
    metadata = pq.ParquetFile(tmp_path / path).metadata.metadata
    found = pq.read_table(tmp_path / path).append_column("_hoodie_operation", pa.array(["D"]))
    with pq.ParquetWriter(tmp_path / path, found.schema) as writer:
        writer.write_table(found)
        writer.add_key_value_metadata(metadata)
    assert table.history("a")["_lsm_deleted"].to_pylist() == [True]


def test_a_key_is_found_in_the_slices_of_its_bucket(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.bucket.index.num.buckets": 4})
    table.upsert(rows(*((f"k{number}", "DE", 1, number) for number in range(20))))
    parts = {
        bucket: [found for found in table.file_slices() if bucket_of(found.file_id) == bucket] for bucket in range(4)
    }
    counts = [
        read_history(table.storage, part, table.schema, table.rule, "k7").num_rows for part in parts.values() if part
    ]
    assert sorted(counts) == [0] * (len(counts) - 1) + [1]


@pytest.mark.parametrize("name", sorted(name for name in GOLDEN if "compact" in name))
def test_files_that_a_log_compaction_stands_for_take_no_part(tmp_path: Path, name: str) -> None:
    table = LsmTable(GOLDEN[name](tmp_path).path)
    for row in table.scan(meta=True).to_arrow().to_pylist():
        found = table.history(row["_hoodie_record_key"])
        times = found["_hoodie_commit_seqno"].drop_null().to_pylist()
        assert row["_hoodie_commit_seqno"] in times
        assert len(set(times)) == len(times), "a version is shown twice"
