"""`LsmTable`: operations, time travel, projection, replay, history, and what it takes for rows."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, ConfigError, SchemaError
from streaming_lsm.timeline.instant import Instant
from tests.oracle.validator import validate
from tests.support.small_tables import SCHEMA, create, data_files, rows, shown
from tests.support.writers import NO_WAIT, outcome

FIRST = rows(("a", "DE", 1, 10), ("b", "DE", 1, 20), ("c", "FR", 1, 30))
SECOND = rows(("a", "DE", 2, 11), ("d", "FR", 1, 40))


def done(instant: Instant | None) -> Instant:
    assert instant is not None
    assert instant.completed is not None
    return instant


def test_upserts_insert_and_update(tmp_path: Path) -> None:
    table = create(tmp_path)
    done(table.upsert(FIRST))
    done(table.upsert(SECOND))
    assert shown(table) == [("a", "DE", 2, 11), ("b", "DE", 1, 20), ("c", "FR", 1, 30), ("d", "FR", 1, 40)]
    assert table.schema.equals(SCHEMA)
    table.upsert(rows(("a", "DE", 1, 99)))
    assert shown(table)[0] == ("a", "DE", 2, 11)


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_reader_of_batches_is_one_commit_within_the_buffer(table_type: str, tmp_path: Path) -> None:
    size, count = 5_000, 12
    batches = (
        pa.record_batch(
            [[f"key-{place:03}-{row:05}" for row in range(size)], ["DE"] * size, [place] * size, [7] * size],
            schema=SCHEMA,
        )
        for place in range(count)
    )
    table = create(tmp_path, **{"lsm.write.buffer.bytes": 1 << 20, "hoodie.datasource.write.table.type": table_type})
    done(table.bulk_insert(pa.RecordBatchReader.from_batches(SCHEMA, batches)))
    assert table.last_numbers is not None
    assert table.last_numbers.spilled_bytes > 1 << 20
    found = table.scan().to_arrow()
    assert (found.num_rows, len(pc.unique(found["id"]))) == (size * count, size * count)
    assert len(table.timeline.completed_writes) == 1


def test_a_flagged_row_deletes_whether_or_not_the_table_has_the_flag(tmp_path: Path) -> None:
    flagged = FIRST.append_column("_hoodie_is_deleted", pa.array([False, True, None]))
    for number, schema in enumerate([SCHEMA, SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))]):
        table = create(tmp_path / str(number), schema)
        plain = FIRST if number == 0 else FIRST.append_column("_hoodie_is_deleted", pa.nulls(3, pa.bool_()))
        table.upsert(plain)
        table.upsert(flagged)
        assert [row[0] for row in shown(table)] == ["a", "c"]


def test_a_delete_with_an_ordering_value_spares_newer_rows_and_one_without_does_not(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(FIRST)
    keys = FIRST.select(["id", "country"])
    done(table.delete(keys.slice(0, 1).append_column("ts", pa.array([0]))))
    assert [row[0] for row in shown(table)] == ["a", "b", "c"]
    table.delete(keys.slice(0, 1).append_column("ts", pa.array([1])))
    table.delete(keys.slice(1, 1))
    assert [row[0] for row in shown(table)] == ["c"]
    table.upsert(rows(("a", "DE", 0, 1), ("b", "DE", 0, 2)))
    assert [row[0] for row in shown(table)] == ["b", "c"]


def test_insert_keeps_repeated_keys_in_the_file_and_the_snapshot_merges_them(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.bucket.index.num.buckets": 1})
    table.insert(rows(("a", "DE", 2, 1), ("a", "DE", 1, 2), ("b", "DE", 1, 3)))
    (path,) = data_files(tmp_path)
    assert pq.read_table(tmp_path / path)["id"].to_pylist() == ["a", "a", "b"]
    assert shown(table) == [("a", "DE", 2, 1), ("b", "DE", 1, 3)]


def test_bulk_insert_makes_sorted_base_files_and_then_logs(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.bucket.index.num.buckets": 1})
    done(table.bulk_insert(rows(("z", "DE", 1, 1), ("\ue000", "DE", 1, 2), ("\U00020000", "DE", 1, 3))))
    (base,) = data_files(tmp_path)
    assert base.startswith("DE/00000000-")
    assert ".log." not in base
    assert pq.read_table(tmp_path / base)["_hoodie_record_key"].to_pylist() == ["z", "\ue000", "\U00020000"]
    table.bulk_insert(rows(("z", "DE", 2, 9), ("new", "DE", 1, 4), ("x", "FR", 1, 5)))
    log, other = sorted(data_files(tmp_path) - {base})
    assert ".log." in log
    assert log.startswith("DE/" + Path(base).name.split("_")[0])
    assert ".log." not in other
    assert [(row[0], row[3]) for row in shown(table)] == [
        ("new", 4),
        ("x", 5),
        ("z", 9),
        ("\ue000", 2),
        ("\U00020000", 3),
    ]
    (base_slice, _) = table.file_slices()
    assert base_slice.paths == (base, log)


def test_a_bulk_insert_with_repeated_keys_shows_each_once(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.bulk_insert(rows(("a", "DE", 2, 1), ("a", "DE", 1, 2)))
    assert shown(table) == [("a", "DE", 2, 1)]


def test_a_batch_of_deletes_alone_and_an_empty_one_are_commits(tmp_path: Path) -> None:
    table = create(tmp_path)
    done(table.delete(FIRST.select(["id", "country"])))
    done(table.upsert(rows()))
    assert shown(table) == []
    assert len(table.timeline.completed_writes) == 2


def test_the_table_is_seen_as_of_each_commit(tmp_path: Path) -> None:
    table = create(tmp_path)
    first = done(table.upsert(FIRST))
    second = done(table.upsert(SECOND))
    assert shown(table, as_of=first.requested) == shown(table, as_of=first.completed)
    assert [row[3] for row in shown(table, as_of=first.requested)] == [10, 20, 30]
    assert [row[3] for row in shown(table, as_of=second.requested)] == [11, 20, 30, 40]
    assert shown(table, as_of="2000-01-01 00:00") == []
    assert len(shown(table, as_of="2999-01-01")) == 4
    with pytest.raises(ConfigError, match="'yesterday'"):
        table.scan(as_of="yesterday")


def test_projection_and_filter_are_applied_after_the_merge(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(FIRST)
    table.upsert(SECOND)
    found = table.scan(["qty", "id"], (pc.field("ts") > 1) | (pc.field("country") == "FR")).to_arrow()
    assert found.schema.names == ["qty", "id"]
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [
        {"qty": 11, "id": "a"},
        {"qty": 30, "id": "c"},
        {"qty": 40, "id": "d"},
    ]
    assert table.scan(filter=pc.field("qty") == 10).to_arrow().num_rows == 0
    by_meta = table.scan(["id"], pc.field("_hoodie_partition_path") == "DE", meta=True).to_arrow()
    assert by_meta.num_rows == 2
    assert len(by_meta.schema) == 6
    batches = list(table.scan(["id"]).to_batches())
    assert sum(batch.num_rows for batch in batches) == 4
    assert table.scan(["id"]).to_pandas().shape == (4, 1)
    with pytest.raises(SchemaError, match="'nope'"):
        table.scan(["nope"])


def test_a_replayed_batch_is_not_written_again(tmp_path: Path) -> None:
    create(tmp_path)
    table = LsmTable(tmp_path, {"lsm.writer.id": "job"})
    done(table.upsert(FIRST, batch_id=0))
    done(table.upsert(SECOND, batch_id=1))
    before = data_files(tmp_path)
    again = LsmTable(tmp_path, {"lsm.writer.id": "job"})
    assert again.upsert(SECOND, batch_id=1) is None
    assert again.upsert(FIRST, batch_id=0) is None
    assert data_files(tmp_path) == before
    other = LsmTable(tmp_path, {"lsm.writer.id": "other"})
    done(other.upsert(rows(("e", "DE", 1, 50)), batch_id=0))
    done(again.upsert(rows(("f", "DE", 1, 60)), batch_id=2))
    assert [row[0] for row in shown(table)] == ["a", "b", "c", "d", "e", "f"]


def test_a_batch_id_without_a_writer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lsm\.writer\.id"):
        create(tmp_path).upsert(FIRST, batch_id=0)


def test_a_second_writer_is_refused_and_does_not_disturb_the_first(tmp_path: Path) -> None:
    table = create(tmp_path)
    with table.transaction() as running:
        instant = running.begin()
        with pytest.raises(CommitConflict):
            LsmTable(tmp_path, NO_WAIT).upsert(FIRST)
        assert [pending.requested for pending in table.timeline.pending] == [instant]
        running.reconcile(outcome())
        done(running.complete(outcome(schema=table.config.create_schema or "")))
    done(table.upsert(FIRST))
    assert len(shown(table)) == 3


def test_two_handles_that_take_turns_write_to_the_same_file_groups(tmp_path: Path) -> None:
    one, other = create(tmp_path), LsmTable(tmp_path)
    for number in range(3):
        one.upsert(rows(("a", "DE", 2 * number, number), ("b", "DE", 2 * number, number)))
        other.upsert(rows(("a", "DE", 2 * number + 1, 10 + number), ("b", "DE", 2 * number + 1, 10 + number)))
    assert [row[3] for row in shown(one)] == [12, 12]
    assert all(len(found.logs) == 6 for found in one.file_slices())


def test_history_shows_every_version_of_a_key(tmp_path: Path) -> None:
    table = create(tmp_path)
    first = done(table.bulk_insert(FIRST))
    second = done(table.upsert(SECOND))
    third = done(table.delete(rows(("a", "DE", 3, 0)).select(["id", "country", "ts"])))
    found = table.history("a")
    versions = [(row["_hoodie_commit_time"], row["ts"], row["qty"], row["_lsm_deleted"]) for row in found.to_pylist()]
    assert versions == [
        (first.requested, 1, 10, False),
        (second.requested, 2, 11, False),
        (third.requested, 3, None, True),
    ]
    assert set(found["_lsm_file"].to_pylist()) <= data_files(tmp_path)
    assert table.history("nope").num_rows == 0


def dictionaries(table: pa.Table) -> pa.Table:
    return table.set_column(0, "id", table["id"].dictionary_encode()).set_column(
        1, "country", table["country"].cast(pa.large_string()).dictionary_encode()
    )


def cast(kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(0, "id", table["id"].cast(kind)).set_column(
        1, "country", table["country"].cast(kind)
    )


@pytest.mark.parametrize(
    "convert",
    [
        lambda table: table.to_batches()[0],
        lambda table: table.to_pandas(),
        lambda table: table.to_pandas().astype({"country": "category"}),
        lambda table: pl.from_arrow(table),
        lambda table: pl.from_arrow(table).with_columns(pl.col("id", "country").cast(pl.Categorical)),
        lambda table: duckdb.from_arrow(table),
        cast(pa.large_string()),
        cast(pa.string_view()),
        dictionaries,
        lambda table: table.select(["qty", "ts", "country", "id"]),
        lambda table: table.set_column(3, "qty", table["qty"].cast(pa.int8())),
    ],
    ids=[
        "record-batch",
        "pandas",
        "pandas-categories",
        "polars",
        "polars-categories",
        "duckdb",
        "large-strings",
        "string-views",
        "dictionaries",
        "other-order",
        "small-ints",
    ],
)
def test_rows_are_taken_in_every_form(tmp_path: Path, convert: Callable[[pa.Table], Any]) -> None:
    table = create(tmp_path)
    done(table.upsert(convert(FIRST)))
    assert shown(table) == [tuple(row.values()) for row in FIRST.to_pylist()]
    assert table.scan().to_arrow().schema.equals(SCHEMA)
    done(table.delete(convert(FIRST.slice(0, 1))))
    assert [row[0] for row in shown(table)] == ["b", "c"]


def test_a_column_of_untyped_nulls_fits_any_column(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(FIRST.set_column(3, "qty", pa.nulls(3)))
    assert table.scan(["qty"]).to_arrow()["qty"].null_count == 3


def test_a_keys_text_is_that_of_the_tables_type(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("us")), ("qty", pa.int32())])
    options = {
        "hoodie.datasource.write.recordkey.field": "at",
        "hoodie.datasource.write.partitionpath.field": None,
        "hoodie.table.ordering.fields": None,
    }
    table = create(tmp_path, schema, **options)
    moment = datetime.datetime(2026, 1, 1, 12)
    table.upsert(pa.table({"at": [moment], "qty": [1]}, schema=schema))
    table.upsert(
        pd.DataFrame({"at": pd.Series([moment], dtype="datetime64[ns]"), "qty": pd.Series([2], dtype="int32")})
    )
    found = table.scan(meta=True).to_arrow().to_pylist()
    assert [(row["_hoodie_record_key"], row["qty"]) for row in found] == [("1767268800000000", 2)]


def test_an_unpartitioned_table_lies_in_its_root(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.datasource.write.partitionpath.field": None})
    table.upsert(FIRST)
    assert all("/" not in path for path in data_files(tmp_path))
    assert len(shown(table)) == 3


def test_a_table_is_created_once(tmp_path: Path) -> None:
    create(tmp_path)
    with pytest.raises(ConfigError, match="there is a table at file://"):
        create(tmp_path)


def test_arrival_fields_decide_within_a_batch_and_are_not_stored(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.table.ordering.fields": None, "lsm.write.arrival.fields": "offset"})
    batch = rows(("a", "DE", 0, 1), ("a", "DE", 0, 2)).append_column("offset", pa.array([8, 7]))
    table.upsert(batch)
    assert shown(table) == [("a", "DE", 0, 1)]
    assert table.schema.equals(SCHEMA)


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_writer_of_a_table_that_was_removed_and_created_again_forgets_the_old_files(
    tmp_path: Path, kind: str
) -> None:
    """Its commit would record them, and no reader finds them in the new table."""
    root, options = tmp_path / "orders", {"hoodie.datasource.write.table.type": kind}
    table = create(root, **options)
    for ts in (1, 2):
        table.upsert(rows(("a", "nl", ts, 1), ("b", "nl", ts, 2), ("c", "nl", ts, 3)))
    shutil.rmtree(root)
    create(root, **options).upsert(rows(("d", "fr", 1, 1)))
    table.upsert(rows(("e", "de", 1, 1)))
    table.upsert(rows(("f", "nl", 1, 1), ("g", "fr", 1, 1), ("h", "fr", 1, 1)))
    written = [("d", "fr", 1, 1), ("e", "de", 1, 1), ("f", "nl", 1, 1), ("g", "fr", 1, 1), ("h", "fr", 1, 1)]
    assert shown(LsmTable(root)) == written
    assert validate(str(root)) == []
