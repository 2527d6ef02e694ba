"""The Kafka job's options."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming_lsm import config
from streaming_lsm.decode.envelope import EventFormat
from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.demo.order import SCHEMA
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.schema_registry.registry import SchemaRegistry
from streaming_lsm.schema_registry.sources import SchemaFolder

DEMO = Path(__file__).parents[3] / "conf" / "kafka_demo.properties"
NEEDED = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def test_arguments_override_the_file_and_client_keys_pass_through(tmp_path: Path) -> None:
    file = tmp_path / "job.properties"
    file.write_text("subscribe=one\nkafka.bootstrap.servers=a:1\nkafka.ssl.key=x\nmaxOffsetsPerTrigger=10\n")
    settings = JobSettings.load(file, {"subscribe": "two", "kafka.security.protocol": "SSL", "kafka.ssl.key": "y"})
    assert settings.source() == {
        "kafka.bootstrap.servers": "a:1", "subscribe": "two", "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10", "failOnDataLoss": "true", "kafka.ssl.key": "y", "kafka.security.protocol": "SSL",
        "kafka.fetch.max.wait.ms": "10", "kafka.max.poll.records": "5000",
    }  # fmt: skip


def test_unknown_option_is_refused_with_its_source_and_the_nearest_one(tmp_path: Path) -> None:
    file = tmp_path / "job.properties"
    file.write_text("lsm.kafka.shema=id INT\n")
    with pytest.raises(ConfigError, match=r"job\.properties.*did you mean 'lsm\.kafka\.schema'"):
        JobSettings.load(file, {})
    with pytest.raises(ConfigError, match=r"absent\.properties cannot be read"):
        JobSettings.load(tmp_path / "absent.properties", {})


def test_malformed_properties_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "job.properties"
    file.write_text("subscribe=\\u12\n")
    with pytest.raises(ConfigError, match=r"job\.properties.*u12"):
        JobSettings.load(file, {})


def test_missing_option_is_named() -> None:
    with pytest.raises(ConfigError, match="subscribe is not set"):
        JobSettings.load(None, {"kafka.bootstrap.servers": "a:1"}).source()
    with pytest.raises(ConfigError, match=r"lsm\.table\.path is not set"):
        JobSettings.load(None, NEEDED).need(config.TABLE_PATH)


REGISTRY = "lsm.kafka.schema.registry.url"


def test_schemas_come_from_the_folder_and_then_from_the_registry() -> None:
    user = {"lsm.kafka.schema.registry.basic.auth.user.info": "job:s3cret"}
    settings = JobSettings.load(
        None, {**NEEDED, **user, REGISTRY: "http://h:8081", "lsm.kafka.schema.folder": "/schemas"}
    )
    assert settings.schemas() == (SchemaFolder("/schemas"), SchemaRegistry("http://h:8081", "job:s3cret"))
    assert JobSettings.load(None, NEEDED).schemas() == ()


def test_avro_needs_schemas_and_a_registry_that_answers_before_spark_starts(tmp_path: Path) -> None:
    here = tmp_path / "1.avsc"
    here.touch()
    avro = {**NEEDED, "lsm.kafka.format": "avro"}
    with pytest.raises(ConfigError, match=r"lsm\.kafka\.format=avro needs .* set lsm\.kafka\.schema\.registry\.url"):
        JobSettings.load(None, avro).check_schemas()
    silent = JobSettings.load(None, {**avro, REGISTRY: "http://job:s3cret@127.0.0.1:1"})
    with pytest.raises(ConfigError, match=r"gives no answer within 0 s .http://127\.0\.0\.1:1/schemas/types: ") as told:
        silent.check_schemas(0.1)
    assert "s3cret" not in str(told.value)
    for wrong, said in (
        (tmp_path / "none", "there is no folder '.*/none': correct the path"),
        (here, "'.*' cannot be read as a folder"),
    ):
        with pytest.raises(ConfigError, match=f"lsm.kafka.schema.folder: {said}"):
            JobSettings.load(None, {**avro, "lsm.kafka.schema.folder": str(wrong)}).check_schemas()
    JobSettings.load(None, {**avro, "lsm.kafka.schema.folder": str(tmp_path)}).check_schemas()
    JobSettings.load(None, {**NEEDED, REGISTRY: "http://127.0.0.1:1"}).check_schemas()


def test_demo_properties_describe_the_demo_events(spark: SparkSession) -> None:
    settings = JobSettings.load(DEMO, NEEDED)
    assert settings.options[config.KAFKA_SCHEMA] == SCHEMA
    envelope = settings.envelope()
    assert (envelope.record_key, envelope.partition, envelope.ordering) == (
        ("order_id",),
        ("country",),
        ("updated_at",),
    )
    assert envelope.format is EventFormat.JSON
    assert envelope.unavailable == "__debezium_unavailable_value"


def test_placeholder_of_an_unchanged_value_is_that_of_the_connector(spark: SparkSession) -> None:
    options = {"lsm.kafka.schema": "id INT", "hoodie.datasource.write.recordkey.field": "id"}
    key = "lsm.kafka.debezium.unavailable.value"
    assert JobSettings.load(None, {**NEEDED, **options, key: "hex:676f6e65"}).envelope().unavailable == "hex:676f6e65"
    with pytest.raises(ConfigError, match=r"lsm\.kafka\.debezium\.unavailable\.value='hex:5'"):
        JobSettings.load(None, {**NEEDED, **options, key: "hex:5"}).envelope()


def test_columns_follow_schemas_where_none_are_declared_and_messages_are_avro() -> None:
    options = {
        **NEEDED, REGISTRY: "http://h:8081", "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day:SIMPLE", "hoodie.table.ordering.fields": "at",
    }  # fmt: skip
    columns = pa.schema({"id": pa.int64(), "day": pa.string(), "at": pa.int64()})
    for kind, declared, follows in (
        ("avro", {}, True),
        ("debezium-avro", {"lsm.kafka.schema": ""}, True),
        ("avro", {"lsm.kafka.schema": "id INT"}, False),
        ("debezium-json", {}, False),
    ):
        settings = JobSettings.load(None, {**options, "lsm.kafka.format": kind, **declared})
        assert settings.follows_schemas is follows
        assert settings.needed_columns == ("id", "day", "at")
        if follows:
            assert settings.envelope(columns).follows_schemas
        elif not declared:
            with pytest.raises(ConfigError, match=r"lsm\.kafka\.schema is not set: declare the columns, .* Only with"):
                settings.envelope()


@pytest.mark.parametrize("ddl", ["id NUMBER(1)", "id INT name STRING", "map<string,int>"])
def test_malformed_schema_is_refused(spark: SparkSession, ddl: str) -> None:
    options = {**NEEDED, "lsm.kafka.schema": ddl, "hoodie.datasource.write.recordkey.field": "id"}
    with pytest.raises(ConfigError, match=r"lsm\.kafka\.schema=.*(is not Spark DDL|names no columns)"):
        JobSettings.load(None, options).envelope()


def test_commit_time_tables_need_no_ordering_values_and_partition_kinds_are_no_names(spark: SparkSession) -> None:
    options = {
        "lsm.kafka.schema": "id INT, day STRING, at INT",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day:SIMPLE",
        "hoodie.table.ordering.fields": "at",
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    }
    envelope = JobSettings.load(None, {**NEEDED, **options}).envelope()
    assert (envelope.partition, envelope.ordering) == (("day",), ())


def test_client_keys_of_the_user_stay() -> None:
    settings = JobSettings.load(None, {**NEEDED, "kafka.fetch.max.wait.ms": "100"})
    assert settings.source()["kafka.fetch.max.wait.ms"] == "100"
