"""Options: precedence, spelling, values."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm import config
from streaming_lsm.cli.options_page import options_page
from streaming_lsm.config import OPTIONS, Options, environment_name, resolve
from streaming_lsm.errors import ConfigError
from streaming_lsm.hudi_options import family_of

ROOT = Path(__file__).parents[2]
NAME = "hoodie.table.name"
NAME_VARIABLE = "LSM_CONF_HOODIE_TABLE_NAME"


def properties_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "lsm.properties"
    path.write_text(text, encoding="latin-1")
    return path


def test_arguments_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = properties_file(
        tmp_path, f"{NAME}=of-file\nhoodie.database.name=of-file\nhoodie.bucket.index.num.buckets=3\n"
    )
    environment = {NAME_VARIABLE: "of-environment", "LSM_CONF_HOODIE_DATABASE_NAME": "of-environment", "HOME": "/"}
    found = resolve({NAME: "of-arguments"}, path, environment)
    assert found[config.TABLE_NAME] == "of-arguments"
    assert found[config.DATABASE_NAME] == "of-environment"
    assert found[config.NUM_BUCKETS] == 3
    assert found[config.READ_THREADS] == 0
    assert set(found) == {NAME, "hoodie.database.name", "hoodie.bucket.index.num.buckets"}
    assert len(found) == 3


def test_an_alias_is_overridden_by_the_key_it_stands_for(tmp_path: Path) -> None:
    path = properties_file(tmp_path, "hoodie.datasource.write.precombine.field=old\n")
    assert resolve({}, path, {})[config.ORDERING_FIELDS] == ("old",)
    assert resolve({"hoodie.table.ordering.fields": "new"}, path, {})[config.ORDERING_FIELDS] == ("new",)
    environment = {"LSM_CONF_HOODIE_TABLE_PRECOMBINE_FIELD": "other"}
    assert resolve({}, path, environment)[config.ORDERING_FIELDS] == ("other",)


def test_the_process_environment_counts_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME_VARIABLE, "orders")
    assert resolve()[config.TABLE_NAME] == "orders"


def test_no_two_keys_share_an_environment_variable() -> None:
    keys = [*OPTIONS, *(alias for option in OPTIONS.values() for alias in option.aliases)]
    assert len({environment_name(key) for key in keys}) == len(keys)
    assert environment_name("hoodie.parquet.page.size") == "LSM_CONF_HOODIE_PARQUET_PAGE_SIZE"


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("hoodie.table.nam", "'hoodie.table.name'"),
        ("hoodie.datasource.write.recordkey.fields", "'hoodie.datasource.write.recordkey.field'"),
        ("hoodie.combine.before.upsrt", "'hoodie.combine.before.upsert'"),
        ("lsm.tabel.path", "'lsm.table.path'"),
        ("hoodie.tabel.name", "'hoodie.table.name'"),
        ("lsm.kafka", "docs/configuration.md"),
        ("zzz", "docs/configuration.md"),
        ("", "docs/configuration.md"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key: str, nearest: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve({key: "x"}, None, {})
    assert repr(key) in str(refused.value)
    assert nearest in str(refused.value)
    if key:
        path = properties_file(tmp_path, f"{key}=x\n")
        with pytest.raises(ConfigError, match=r"lsm\.properties"):
            resolve({}, path, {})


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            "hoodie.datasource.hive_sync.enable",
            "an option of Hudi for Hive sync, which this release does not have: leave it",
        ),
        ("hoodie.meta.sync.client.tool.class", "an option of Hudi for catalog sync, which this release does not have"),
        ("hoodie.clustering.async.enabled", "this release does not have this option for clustering"),
        (
            "hoodie.commits.archival.batch",
            "an option of Hudi for archiving the timeline, which this release does not have",
        ),
        ("hoodie.embed.timeline.server", "an option of Hudi for the timeline server, which this release does not have"),
        ("hoodie.write.lock.zookeeper.url", "this release does not have this option for several writers"),
        ("hoodie.upsert.shuffle.parallelism", "an option of Hudi for shuffles, which this release does not have"),
        (
            "hoodie.metadata.index.expression.file.group.count",
            "this option for indexes of the metadata table; `lsm options`",
        ),
        ("hoodie.parquet.block.size", "this release does not have this option for Parquet files"),
        ("hoodie.bucket.index.max.num.buckets", "this release does not have this option for the bucket index"),
        ("hoodie.clean.trigger.max.commits", "this release does not have this option for cleaning"),
        ("hoodie.populate.meta.fields", "an option of Hudi for the choice of meta columns, which this release does"),
        ("hoodie.avro.schema", "an option of Hudi for schema evolution, which this release does not have"),
        ("hoodie.client.id", ": not an option of this release; `lsm options` prints those there are"),
    ],
)
def test_an_option_of_hudi_that_is_not_built_is_called_one_and_gets_no_far_fetched_hint(key: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{key}'") as refused:
        resolve({key: "x"}, None, {})
    assert said in str(refused.value)
    assert "did you mean" not in str(refused.value)


def test_the_names_of_earlier_releases_of_hudi_are_near_those_of_this_one() -> None:
    for last in ("policy", "commits.retained", "fileversions.retained"):
        with pytest.raises(ConfigError, match=f"did you mean 'hoodie.clean.{last}'"):
            Options({f"hoodie.cleaner.{last}": "1"})


def test_a_variable_of_an_option_of_hudi_that_is_not_built_is_called_one() -> None:
    with pytest.raises(ConfigError, match=r"SYNC_MODE names no option: an option of Hudi for Hive sync, which this"):
        resolve({}, None, {"LSM_CONF_HOODIE_DATASOURCE_HIVE_SYNC_MODE": "hms"})


def test_a_variable_of_no_option_and_no_family_says_where_the_options_are() -> None:
    with pytest.raises(ConfigError, match="CLIENT_ID names no option: not an option of this release; `lsm options`"):
        resolve({}, None, {"LSM_CONF_HOODIE_CLIENT_ID": "x"})


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("KAFKA_SASL_JAAS_CONFIG", "; `lsm options`"),
        ("LSM_KAFKA_TOPIC_ORDERS_TABLE_PATH", ""),
        ("KAFKA_BOOTSTRAP_SERVER", "; did you mean 'LSM_CONF_KAFKA_BOOTSTRAP_SERVERS'"),
    ],
)
def test_a_variable_of_a_key_of_the_kafka_client_says_where_such_keys_are_read(name: str, advice: str) -> None:
    said = rf"{name} names no option \(keys of the Kafka client and .* and from arguments, not .*environment\){advice}"
    with pytest.raises(ConfigError, match=said):
        resolve({}, None, {f"LSM_CONF_{name}": "x"})


def test_every_known_option_of_hudi_has_a_family_or_stands_alone() -> None:
    alone = {key for key in OPTIONS if key.startswith("hoodie.") and family_of(key) is None}
    assert alone == {
        "hoodie.database.name",
        "hoodie.datasource.query.type",
        "hoodie.datasource.query.incremental.format",
        "hoodie.datasource.streaming.startOffset",
    }


def test_an_unknown_variable_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"LSM_CONF_HOODIE_TABLE_NAM .*'LSM_CONF_HOODIE_TABLE_NAME'"):
        resolve({}, None, {"LSM_CONF_HOODIE_TABLE_NAM": "x"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.bucket.index.num.buckets", "0"),
        ("hoodie.bucket.index.num.buckets", "many"),
        ("hoodie.bucket.index.num.buckets", "1.5"),
        ("hoodie.bucket.index.num.buckets", True),
        ("hoodie.bucket.index.num.buckets", 1.5),
        ("hoodie.bucket.index.num.buckets", None),
        ("hoodie.combine.before.upsert", "yes"),
        ("hoodie.combine.before.upsert", 1),
        ("hoodie.index.bloom.fpp", "0"),
        ("hoodie.index.bloom.fpp", 1),
        ("hoodie.index.bloom.fpp", "nan"),
        ("hoodie.index.bloom.fpp", "small"),
        ("hoodie.index.bloom.fpp", True),
        ("hoodie.table.name", 5),
        ("hoodie.table.ordering.fields", 5),
        ("hoodie.table.ordering.fields", [1]),
        ("hoodie.record.merge.mode", "PAYLOAD"),
        ("hoodie.datasource.write.operation", "merge"),
        ("hoodie.datasource.write.table.type", "APPEND_ONLY"),
        ("hoodie.parquet.compression.codec", "brotli"),
    ],
)
def test_a_malformed_value_is_refused_with_key_and_value(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        Options({key: value})
    assert f"{key}={value!r}" in str(refused.value)


def test_values_are_read_as_their_types() -> None:
    found = Options(
        {
            "hoodie.combine.before.upsert": " FALSE ",
            "hoodie.combine.before.insert": True,
            "hoodie.bucket.index.num.buckets": "16",
            "hoodie.index.bloom.fpp": "0.01",
            "hoodie.datasource.write.recordkey.field": " id , other ,",
            "hoodie.table.ordering.fields": ["ts"],
            "hoodie.record.merge.mode": "event_time_ordering",
        }
    )
    assert found[config.COMBINE_UPSERT] is False
    assert found[config.COMBINE_INSERT] is True
    assert found[config.NUM_BUCKETS] == 16
    assert found[config.BLOOM_FPP] == 0.01
    assert found[config.RECORD_KEY_FIELDS] == ("id", "other")
    assert found["hoodie.table.ordering.fields"] == ("ts",)
    assert found[config.MERGE_MODE] == "EVENT_TIME_ORDERING"


def test_merging_keeps_what_the_other_does_not_set() -> None:
    merged = Options({NAME: "a", "lsm.read.threads": 2}).merged(Options({NAME: "b"}))
    assert (merged[config.TABLE_NAME], merged[config.READ_THREADS]) == ("b", 2)
    assert merged.is_set(config.READ_THREADS)
    assert not merged.is_set(config.NUM_BUCKETS)


def test_a_missing_or_broken_properties_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties cannot be read: No such file"):
        resolve({}, tmp_path / "none.properties", {})
    with pytest.raises(ConfigError, match=r"lsm\.properties"):
        resolve({}, properties_file(tmp_path, f"{NAME}=\\u12\n"), {})


def test_every_default_is_a_value_of_its_option() -> None:
    for option in OPTIONS.values():
        assert option.doc.endswith("."), option.key
        if option.default not in (None, ()):
            assert option.parse(option.default) == option.default, option.key


def test_the_configuration_page_is_up_to_date() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    assert page == options_page(), "run: lsm options > docs/configuration.md"


def test_the_configuration_page_shows_every_option() -> None:
    page = options_page()
    for option in OPTIONS.values():
        assert f"| `{option.key}` | {option.kind} |" in page
        assert all(f"`{alias}`" in page for alias in option.aliases)
    assert all(line.count("|") - line.count("\\|") == 5 for line in page.splitlines() if line.startswith("|"))
