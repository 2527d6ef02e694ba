"""Keys, partition paths and buckets of rows that real Hudi wrote (extracts: ``data/keys/v*.json``)."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.keys.generator import KeyGenerator

TABLES = sorted((Path(__file__).parent / "data" / "keys").glob("v*.json"))
TYPES = {"integer": pa.int32(), "long": pa.int64(), "string": pa.string(), "date": pa.date32()}


def load(path: Path) -> tuple[dict, pa.RecordBatch, list[list[str]]]:
    table = json.loads(path.read_text(encoding="utf-8"))
    names = table["record_key_fields"] + table["partition_fields"]
    columns = []
    for place, name in enumerate(names):
        values = [row[place] for row in table["rows"]]
        if table["types"][name] == "date":
            values = [date.fromisoformat(value) for value in values]
        columns.append(pa.array(values, TYPES[table["types"][name]]))
    return table, pa.record_batch(columns, names), [row[len(names) :] for row in table["rows"]]


def generator(table: dict) -> KeyGenerator:
    return KeyGenerator.from_config(
        table["kind"],
        table["record_key_fields"],
        [(name, "SIMPLE") for name in table["partition_fields"]],
        hive_style=table["hive_style"],
        url_encode=table["url_encode"],
    )


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_record_keys_are_those_that_hudi_stored(path: Path) -> None:
    table, batch, stored = load(path)
    assert generator(table).record_keys(batch).to_pylist() == [key for key, _, _ in stored]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_partition_paths_are_those_that_hudi_stored(path: Path) -> None:
    table, batch, stored = load(path)
    assert generator(table).partition_paths(batch).to_pylist() == [partition for _, partition, _ in stored]


BUCKETED = [path for path in TABLES if json.loads(path.read_text(encoding="utf-8"))["num_buckets"]]


@pytest.mark.parametrize("path", BUCKETED, ids=lambda path: path.stem)
def test_rows_lie_in_the_bucket_that_is_computed_from_their_key(path: Path) -> None:
    table, _, stored = load(path)
    keys = pa.array([key for key, _, _ in stored])
    computed = bucket_ids(keys, table["record_key_fields"], table["hash_fields"], table["num_buckets"])
    assert computed.tolist() == [int(file_id[:8]) for _, _, file_id in stored]


def test_extracts_cover_composite_keys_hash_fields_and_hive_style() -> None:
    tables = [json.loads(path.read_text(encoding="utf-8")) for path in TABLES]
    assert len(BUCKETED) >= 8
    assert any(table["hash_fields"] for table in tables)
    assert any(table["hive_style"] for table in tables)
    assert any(len(table["record_key_fields"]) > 1 for table in tables)
