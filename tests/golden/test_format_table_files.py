"""Properties, partition metadata, file names and bloom filters of real tables."""

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.base_file_footer import base_file_footer, bloom_of_footer
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, parse_file_name
from streaming_lsm.format.table.partition_metadata import PartitionMetadata, parse_partition_metadata
from streaming_lsm.format.table.properties import PropertiesReader, table_checksum
from streaming_lsm.java_properties import parse_properties, print_properties
from tests.support.hudi_tables import FOLDER

DATA = Path(__file__).parent / "data" / "format"
PROPERTIES = sorted((DATA / "properties").iterdir())
FOOTERS: dict[str, dict[str, str | list[str]]] = json.loads((DATA / "base_footers.json").read_text("utf-8"))


@pytest.fixture(params=PROPERTIES, ids=lambda path: path.stem)
def properties(request: pytest.FixtureRequest) -> dict[str, str]:
    path: Path = request.param
    return parse_properties(path.read_bytes(), path.name)


def test_hudis_properties_survive_printing(properties: dict[str, str]) -> None:
    assert parse_properties(print_properties(properties, ["Updated"])) == properties


def test_the_checksum_is_the_one_hudi_wrote(properties: dict[str, str]) -> None:
    assert table_checksum(None, properties["hoodie.table.name"]) == properties["hoodie.table.checksum"]


def test_no_key_that_hudi_writes_counts_as_damage_of_another() -> None:
    keys: set[str] = set()
    for path in sorted(FOLDER.glob("*.tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.endswith("/hoodie.properties") else None
                keys |= parse_properties(file.read()).keys() if file else set()
    assert len(keys) > 30
    for key in keys:
        for value in ("", "v"):
            PropertiesReader({key: value}, "hoodie.properties").check_keys()


def test_the_settings_of_a_table_of_an_older_version_are_kept(properties: dict[str, str]) -> None:
    counted = {**properties, "lsm.bucket.index.num.buckets": "4"}
    config = TableConfig.from_properties(counted, "hoodie.properties")
    assert str(config.version) == properties["hoodie.table.version"]
    assert (config.storage_layout, config.timeline_layout) == ("default", 2)
    assert config.to_properties().items() >= counted.items()


def test_a_version_that_is_not_known_is_refused_by_name(properties: dict[str, str]) -> None:
    with pytest.raises(UnsupportedTable, match=r"hoodie\.table\.version=5"):
        TableConfig.from_properties({**properties, "hoodie.table.version": "5"}, "hoodie.properties")


def test_a_hudi_table_raised_to_version_10_keeps_every_key_and_value(properties: dict[str, str]) -> None:
    raised = properties | {
        "hoodie.table.version": "10",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.storage.layout": "lsm_tree",
        "hoodie.meta.fields.mode": "ALL",
        "lsm.bucket.index.num.buckets": "4",
    }
    for of_older_versions in ("hoodie.compaction.payload.class", "hoodie.record.merge.strategy.id"):
        raised.pop(of_older_versions, None)
    config = TableConfig.from_properties(raised, "hoodie.properties")
    assert config.to_properties().items() >= raised.items()
    assert config.ordering_fields == ("ts",)
    assert config.record_key_fields == tuple(raised["hoodie.table.recordkey.fields"].split(","))


def test_hudis_partition_metadata_is_read() -> None:
    found = {
        path.name: parse_partition_metadata(path.read_bytes(), path.name)
        for path in (DATA / "partition_metadata").iterdir()
    }
    assert found == {
        "v9_mor_avro": PartitionMetadata("20261121040120865", 1),
        "v9_mor_composite_utf8": PartitionMetadata("20261121033227551", 0),
    }


def test_of_all_files_of_a_table_only_data_files_have_data_file_names() -> None:
    names = (DATA / "file_names.txt").read_text("utf-8").split("\n")
    for name in filter(None, names):
        parsed = parse_file_name(name)
        if name.endswith((".parquet", ".hfile")):
            assert isinstance(parsed, BaseFileName), name
        elif ".log." in name and not name.endswith(".crc"):
            assert isinstance(parsed, InlineLogName), name
            assert parsed.cdc == name.endswith(".cdc")
        else:
            assert parsed is None, name
        assert parsed is None or str(parsed) == name


@pytest.mark.parametrize("file", sorted(FOOTERS))
def test_hudis_bloom_filter_holds_every_key_of_its_file_and_no_stranger(file: str) -> None:
    footer = FOOTERS[file]
    metadata = {
        b"org.apache.hudi.bloomfilter": str(footer["bloom"]).encode(),
        b"hoodie_bloom_filter_type_code": str(footer["type"]).encode(),
    }
    bloom = bloom_of_footer(metadata, file)
    assert bloom is not None
    assert bloom.contains(pa.array(footer["keys"], pa.string())).all()
    assert not bloom.contains([f"stranger-{number}".encode() for number in range(500)]).any()


@pytest.mark.parametrize("file", sorted(FOOTERS))
def test_a_bloom_filter_of_the_same_keys_has_hudis_bytes(file: str) -> None:
    footer = FOOTERS[file]
    entries = BloomFilter.decode(str(footer["bloom"])).keys_per_row
    ours = BloomFilter.build(pa.array(footer["keys"], pa.string()), entries, 1e-9, 100_000)
    assert ours.encode() == footer["bloom"]


@pytest.mark.parametrize("file", sorted(FOOTERS))
def test_a_base_file_footer_has_hudis_entries(file: str) -> None:
    footer = FOOTERS[file]
    keys = sorted(str(key).encode() for key in footer["keys"])
    entries = base_file_footer(
        "{}", keys[0].decode(), keys[-1].decode(), BloomFilter.decode(str(footer["bloom"]), "DYNAMIC_V0", file)
    )
    assert entries == {
        "parquet.avro.schema": "{}",
        "writer.model.name": "avro",
        "hoodie_min_record_key": footer["min"],
        "hoodie_max_record_key": footer["max"],
        "org.apache.hudi.bloomfilter": footer["bloom"],
        "hoodie_bloom_filter_type_code": "DYNAMIC_V0",
    }
