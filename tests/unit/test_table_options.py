"""What a new table gets, and options that contradict a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError, LsmError, SchemaError
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.properties import PartitionField
from streaming_lsm.schema import from_avro
from streaming_lsm.table_options import check_options, new_table_config

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("line", pa.int32()),
        ("country", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("seq", pa.int64()),
        ("at", pa.struct([("x", pa.int64())])),
    ]
)
KEY = "hoodie.datasource.write.recordkey.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
ORDERING = "hoodie.table.ordering.fields"
GENERATOR = "hoodie.datasource.write.keygenerator.type"
MODE = "hoodie.record.merge.mode"
BUCKETS = "hoodie.bucket.index.num.buckets"
HASH = "hoodie.bucket.index.hash.field"
DELETE_FIELD = "hoodie.payload.delete.field"
DELETE_MARKER = "hoodie.payload.delete.marker"
TIMES = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMICROSECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyyMM",
}
BASIC = {"hoodie.table.name": "orders", KEY: "id"}


def new(**options: object) -> TableConfig:
    return new_table_config(Options({**BASIC, **options}), SCHEMA)


@pytest.mark.parametrize(
    ("options", "generator", "partitions"),
    [
        ({}, "NON_PARTITION", ()),
        ({PARTITION: "country"}, "SIMPLE", (("country", "SIMPLE"),)),
        ({KEY: "id,line"}, "NON_PARTITION", ()),
        ({KEY: "id,line", PARTITION: "country"}, "COMPLEX", (("country", "SIMPLE"),)),
        ({PARTITION: "country,line"}, "COMPLEX", (("country", "SIMPLE"), ("line", "SIMPLE"))),
        ({PARTITION: "country", GENERATOR: "COMPLEX"}, "COMPLEX", (("country", "SIMPLE"),)),
        ({PARTITION: "ts", GENERATOR: "timestamp"}, "TIMESTAMP", (("ts", "TIMESTAMP"),)),
        ({PARTITION: "ts:timestamp,country"}, "CUSTOM", (("ts", "TIMESTAMP"), ("country", "SIMPLE"))),
    ],
    ids=str,
)
def test_the_key_generator_follows_from_the_columns(
    options: dict[str, object], generator: str, partitions: tuple[tuple[str, str], ...]
) -> None:
    found = new(**options)
    assert found.key_generator == generator
    assert found.partition_fields == tuple(PartitionField(*part) for part in partitions)


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "COMMIT_TIME_ORDERING"),
        ({ORDERING: "ts"}, "EVENT_TIME_ORDERING"),
        ({ORDERING: "ts,seq", MODE: "commit_time_ordering"}, "COMMIT_TIME_ORDERING"),
    ],
    ids=str,
)
def test_the_merge_mode_follows_from_the_ordering_fields(options: dict[str, object], mode: str) -> None:
    assert new(**options).merge_mode == mode


def test_what_is_chosen_is_kept() -> None:
    found = new(
        **{
            KEY: "id,line",
            BUCKETS: 7,
            HASH: "line",
            DELETE_FIELD: "country",
            DELETE_MARKER: "gone",
            "hoodie.database.name": "shop",
            **TIMES,
        }
    )
    assert (found.num_buckets, found.hash_fields, found.database) == (7, ("line",), "shop")
    assert (found.delete_field, found.delete_marker) == ("country", "gone")
    assert found.timestamp_options == TIMES
    assert from_avro(found.create_schema or "", "").equals(SCHEMA)
    assert new().hash_fields == ("id",)
    assert TableConfig.from_properties(found.to_properties(), "test") == found


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"hoodie.table.name": ""}, ConfigError, ["hoodie.table.name"]),
        ({KEY: ""}, ConfigError, [KEY]),
        ({KEY: "nope"}, SchemaError, [KEY, "'nope'"]),
        ({KEY: "id,id"}, ConfigError, [KEY, "'id'"]),
        ({PARTITION: "nope"}, SchemaError, [PARTITION, "'nope'"]),
        ({PARTITION: "country,country"}, ConfigError, [PARTITION, "'country'"]),
        ({PARTITION: "ts:DAILY"}, ConfigError, [PARTITION, "'ts:DAILY'", "TIMESTAMP"]),
        ({ORDERING: "nope"}, SchemaError, [ORDERING, "'nope'"]),
        ({ORDERING: "at.x"}, SchemaError, [ORDERING, "'at.x'"]),
        ({ORDERING: "at"}, SchemaError, [ORDERING, "'at'", "struct"]),
        ({MODE: "EVENT_TIME_ORDERING"}, ConfigError, [MODE, ORDERING]),
        ({HASH: "line"}, ConfigError, [HASH, "'line'"]),
        ({DELETE_FIELD: "country"}, ConfigError, [DELETE_FIELD, DELETE_MARKER]),
        ({DELETE_MARKER: "d"}, ConfigError, [DELETE_FIELD, DELETE_MARKER]),
        ({DELETE_FIELD: "nope", DELETE_MARKER: "d"}, SchemaError, [DELETE_FIELD, "'nope'"]),
        ({GENERATOR: "SIMPLE"}, ConfigError, ["SIMPLE", "'id'"]),
        ({GENERATOR: "NON_PARTITION", PARTITION: "country"}, ConfigError, ["NON_PARTITION", "'country'"]),
        ({GENERATOR: "CUSTOM", PARTITION: "country"}, ConfigError, ["CUSTOM", "'country'"]),
        ({GENERATOR: "COMPLEX", PARTITION: "ts:TIMESTAMP"}, ConfigError, ["COMPLEX", "'ts:TIMESTAMP'"]),
        ({GENERATOR: "TIMESTAMP", PARTITION: "ts"}, ConfigError, ["hoodie.keygen.timebased.timestamp.type"]),
        ({"hoodie.write.table.version": 7}, ConfigError, ["hoodie.write.table.version=7", "10"]),
        (
            {"hoodie.write.table.version": 9, "hoodie.table.storage.layout": "lsm_tree"},
            ConfigError,
            ["hoodie.table.storage.layout=lsm_tree", "9"],
        ),
        ({BUCKETS: 100_000_001}, ConfigError, [BUCKETS, "100000001"]),
    ],
    ids=str,
)
def test_a_table_that_could_not_work_is_refused_and_not_created(
    options: dict[str, object], error: type[LsmError], named: list[str], tmp_path: Path
) -> None:
    with pytest.raises(error) as refused:
        LsmTable.create(tmp_path / "table", SCHEMA, {**BASIC, **options})
    assert all(text in str(refused.value) for text in named)
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(
    ("created", "asked", "both"),
    [
        ({}, {"hoodie.table.name": "sales"}, ["sales", "orders"]),
        ({}, {"hoodie.database.name": "shop"}, ["shop", "created without it;"]),
        ({}, {KEY: "line"}, ["line", "id"]),
        ({}, {PARTITION: "country"}, ["country", "created with"]),
        ({PARTITION: "country"}, {PARTITION: "country:TIMESTAMP"}, ["country:TIMESTAMP", "with country;"]),
        ({ORDERING: "ts"}, {ORDERING: "seq"}, ["seq", "ts"]),
        ({ORDERING: "ts"}, {MODE: "COMMIT_TIME_ORDERING"}, ["COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"]),
        ({PARTITION: "country"}, {GENERATOR: "COMPLEX"}, ["COMPLEX", "SIMPLE"]),
        ({BUCKETS: 4}, {BUCKETS: 8}, ["=8", "with 4"]),
        ({KEY: "id,line", HASH: "id"}, {HASH: "line"}, ["line", "id"]),
        ({}, {"hoodie.write.table.version": 9}, ["9", "10"]),
        ({}, {"hoodie.datasource.write.hive_style_partitioning": True}, ["True", "False"]),
        ({}, {"hoodie.table.timeline.timezone": "LOCAL"}, ["LOCAL", "UTC"]),
        ({DELETE_FIELD: "country", DELETE_MARKER: "x"}, {DELETE_MARKER: "y"}, ["y", "with x"]),
        (
            {PARTITION: "ts", GENERATOR: "TIMESTAMP", **TIMES},
            {"hoodie.keygen.timebased.output.dateformat": "yyyy"},
            ["=yyyy", "with yyyyMM"],
        ),
    ],
    ids=str,
)
def test_an_option_that_contradicts_the_table_is_refused_with_both_values(
    created: dict[str, object], asked: dict[str, object], both: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_options(Options(asked), new(**created), "file:///orders")
    assert all(text in str(refused.value) for text in [*both, *asked, "file:///orders"])


@pytest.mark.parametrize(
    "options",
    [
        {PARTITION: "country", ORDERING: "ts,seq", BUCKETS: 3},
        {PARTITION: "country:SIMPLE", GENERATOR: "SIMPLE"},
        {PARTITION: "ts:TIMESTAMP,country", **TIMES},
        {PARTITION: "ts:timestamp,country:simple", **TIMES},
        {PARTITION: "ts:TIMESTAMP", GENERATOR: "TIMESTAMP", **TIMES},
        {PARTITION: "ts", GENERATOR: "TIMESTAMP", **TIMES},
        {KEY: "at.x,id", HASH: "id"},
        {DELETE_FIELD: "country", DELETE_MARKER: "gone"},
    ],
    ids=str,
)
def test_a_table_is_opened_with_the_options_it_was_created_with(options: dict[str, object], tmp_path: Path) -> None:
    created = LsmTable.create(tmp_path, SCHEMA, {**BASIC, **options})
    again = LsmTable(tmp_path, {**BASIC, **options})
    assert again.config == created.config
    assert LsmTable(tmp_path).config == created.config


def test_partition_columns_may_be_named_without_their_kind(tmp_path: Path) -> None:
    LsmTable.create(tmp_path, SCHEMA, {**BASIC, PARTITION: "ts", GENERATOR: "TIMESTAMP", **TIMES})
    LsmTable(tmp_path, {PARTITION: "ts"})
    LsmTable(tmp_path, {PARTITION: "ts:TIMESTAMP"})
    with pytest.raises(ConfigError, match="ts:SIMPLE"):
        LsmTable(tmp_path, {PARTITION: "ts:SIMPLE"})
