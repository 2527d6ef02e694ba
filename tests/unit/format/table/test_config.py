import dataclasses
import pickle

import pytest

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.properties import PartitionField, table_checksum

SOURCE = "t/.hoodie/hoodie.properties"
PLAIN = TableConfig(name="orders", record_key_fields=("order_id",), num_buckets=8)
FULL = TableConfig(
    name="orders",
    database="sales",
    record_key_fields=("tenant", "order_id"),
    partition_fields=(PartitionField("country"), PartitionField("day", "TIMESTAMP")),
    ordering_fields=("updated_at", "seq"),
    merge_mode="EVENT_TIME_ORDERING",
    key_generator="CUSTOM",
    hive_style=True,
    url_encode=True,
    timeline_zone="LOCAL",
    num_buckets=16,
    hash_fields=("order_id",),
    delete_field="op",
    delete_marker="d",
    timestamp_options={"hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS"},
    logical_timestamp=True,
    create_schema='{"type":"record","name":"r","fields":[]}',
)


def _with(**changes: str | None) -> dict[str, str]:
    """Properties of a good table with some keys set (`__` stands for a dot) or, for None, left out."""
    values: dict[str, str | None] = dict(FULL.to_properties())
    values |= {key.replace("__", "."): value for key, value in changes.items()}
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.parametrize("config", [PLAIN, FULL], ids=["plain", "full"])
def test_a_table_reads_back_from_its_properties(config: TableConfig) -> None:
    properties = config.to_properties()
    read = TableConfig.from_properties(properties, SOURCE)
    assert read == config
    assert read.properties == properties
    assert read.to_properties() == properties
    assert pickle.loads(pickle.dumps(read)) == config


def test_a_new_table_has_every_key_that_version_10_needs() -> None:
    assert PLAIN.to_properties() == {
        "hoodie.table.name": "orders",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": "10",
        "hoodie.table.initial.version": "10",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.checksum": table_checksum(None, "orders"),
        "hoodie.table.storage.layout": "lsm_tree",
        "hoodie.meta.fields.mode": "ALL",
        "hoodie.populate.meta.fields": "true",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.recordkey.fields": "order_id",
        "hoodie.table.partition.fields": "",
        "hoodie.table.keygenerator.type": "NON_PARTITION",
        "hoodie.table.partition_extractor_class": "org.apache.hudi.hive.NonPartitionedExtractor",
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.table.cdc.enabled": "false",
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.format": "native",
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "lsm.bucket.index.num.buckets": "8",
        "lsm.bucket.index.hash.field": "order_id",
    }


def test_only_a_custom_key_generator_prints_the_kind_of_partition_fields() -> None:
    assert FULL.to_properties()["hoodie.table.partition.fields"] == "country:SIMPLE,day:TIMESTAMP"
    timestamp = dataclasses.replace(
        FULL, key_generator="TIMESTAMP", partition_fields=(PartitionField("day", "TIMESTAMP"),)
    )
    properties = timestamp.to_properties()
    assert properties["hoodie.table.partition.fields"] == "day"
    assert TableConfig.from_properties(properties, SOURCE) == timestamp


def test_a_delete_column_is_kept_as_a_merge_property() -> None:
    properties = FULL.to_properties()
    assert properties["hoodie.record.merge.property.hoodie.payload.delete.field"] == "op"
    assert properties["hoodie.record.merge.property.hoodie.payload.delete.marker"] == "d"


def test_unknown_keys_survive() -> None:
    config = TableConfig.from_properties(_with(x__y="z", hoodie__table__metadata__partitions="files"), SOURCE)
    assert config.to_properties()["x.y"] == "z"
    assert config.metadata_partitions == ("files",)


def test_older_spellings_of_timestamp_options_are_read() -> None:
    properties = _with(hoodie__deltastreamer__keygen__timebased__timezone="GMT")
    options = TableConfig.from_properties(properties, SOURCE).timestamp_options
    assert options["hoodie.keygen.timebased.timezone"] == "GMT"


def test_hash_fields_default_to_the_record_key() -> None:
    config = TableConfig.from_properties(_with(**{"lsm__bucket__index__hash__field": None}), SOURCE)
    assert config.hash_fields == ("tenant", "order_id")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.version", "7"),
        ("hoodie.table.version", "11"),
        ("hoodie.table.storage.layout", "sorted"),
        ("hoodie.table.type", "APPEND_ONLY"),
        ("hoodie.table.base.file.format", "ORC"),
        ("hoodie.populate.meta.fields", "false"),
        ("hoodie.meta.fields.mode", "NONE"),
        ("hoodie.meta.fields.mode", "COMMIT_TIME_ONLY"),
        ("hoodie.table.recordkey.fields", ""),
        ("hoodie.table.recordkey.fields", None),
        ("hoodie.datasource.write.drop.partition.columns", "true"),
        ("hoodie.record.merge.mode", "CUSTOM"),
        ("hoodie.table.partial.update.mode", "KEEP_VALUES"),
        ("hoodie.bootstrap.base.path", "/elsewhere"),
        ("hoodie.compaction.payload.class", "org.example.Payload"),
        ("hoodie.compaction.payload.class", "org.apache.hudi.common.model.DefaultHoodieRecordPayload"),
        ("hoodie.table.legacy.payload.class", "org.example.Payload"),
        ("hoodie.table.legacy.payload.class", "org.example.PartialUpdateAvroPayload"),
        ("hoodie.table.legacy.payload.class", "PartialUpdateAvroPayload"),
        ("hoodie.table.multiple.base.file.formats.enable", "true"),
        ("hoodie.partition.metafile.use.base.format", "true"),
        ("hoodie.timeline.layout.version", "1"),
        ("hoodie.timeline.path", "elsewhere"),
        ("hoodie.table.format", "iceberg"),
        ("hoodie.table.keygenerator.type", "HOODIE_TABLE_METADATA"),
        ("hoodie.table.partition.fields", "country"),
        ("hoodie.table.partition.fields", "country:HASH"),
    ],
)
def test_what_is_not_supported_is_refused_by_file_key_and_value(key: str, value: str | None) -> None:
    with pytest.raises(UnsupportedTable) as raised:
        TableConfig.from_properties(_with(**{key: value}), SOURCE)
    expected = f"{SOURCE}: {key} is not set" if value is None else f"{SOURCE}: {key}={value}: "
    assert str(raised.value).startswith(expected)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.name", None),
        ("hoodie.table.version", None),
        ("hoodie.table.version", "ten"),
        ("hoodie.table.version", "\u0661\u0660"),
        ("hoodie.table.version", "9" * 5000),
        ("hoodie.table.checksum", None),
        ("hoodie.table.checksum", "1"),
        ("hoodie.table.keygenerator.type", None),
        ("hoodie.table.partition.fields", None),
        ("hoodie.record.merge.mode", None),
        ("hoodie.datasource.write.hive_style_partitioning", "yes"),
        ("hoodie.record.merge.property.hoodie.payload.delete.marker", None),
        ("hoodie.record.merge.property.hoodie.payload.delete.field", None),
        ("lsm.bucket.index.num.buckets", "0"),
        ("lsm.bucket.index.num.buckets", "100000001"),
        ("lsm.bucket.index.num.buckets", "many"),
        ("lsm.bucket.index.hash.field", "country"),
    ],
)
def test_missing_and_malformed_keys_are_reported_by_file_and_key(key: str, value: str | None) -> None:
    with pytest.raises(CorruptFileError) as raised:
        TableConfig.from_properties(_with(**{key: value}), SOURCE)
    assert str(raised.value).startswith(SOURCE)
    assert key.rpartition(".")[0] in str(raised.value)


def test_an_unpartitioned_table_of_spark_sql_states_no_partition_fields() -> None:
    properties = dict(PLAIN.to_properties())
    del properties["hoodie.table.partition.fields"]
    assert TableConfig.from_properties(properties, SOURCE).partition_fields == ()


@pytest.mark.parametrize(
    ("database", "name", "checksum"), [(None, "v9_mor_avro", "2081746915"), ("", "v9_mor_avro", "2081746915")]
)
def test_the_checksum_is_that_of_database_and_table(database: str | None, name: str, checksum: str) -> None:
    assert table_checksum(database, name) == checksum
    assert table_checksum("db", name) != checksum
