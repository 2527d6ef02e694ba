"""Data, CDC and delete blocks that released Hudi wrote, read and written again (``data/avro``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro.record_reader import decode_data_block
from streaming_lsm.format.avro.record_writer import encode_data_block
from streaming_lsm.format.log.delete_block import decode_delete_block, encode_delete_block
from streaming_lsm.query.text.json_lines import json_lines

DATA = Path(__file__).parent / "data" / "avro"
TABLES = sorted(path.stem for path in DATA.glob("*.block"))
DELETES = [json.loads(line) for line in (DATA / "deletes.jsonl").read_text("utf-8").splitlines()]
TYPES: dict[str, pa.DataType] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "decimal": pa.decimal128(10, 2),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def block_of(table: str) -> tuple[str, bytes]:
    return (DATA / f"{table}.avsc").read_text("utf-8").strip(), (DATA / f"{table}.block").read_bytes()


@pytest.mark.parametrize("table", TABLES)
def test_the_rows_of_a_block_are_those_that_hudi_reads(table: str) -> None:
    batch = decode_data_block(*block_of(table), table)
    batch.validate(full=True)
    lines = json_lines(pa.Table.from_batches([batch]))
    key = repr
    expected = [json.loads(line) for line in (DATA / f"{table}.jsonl").read_text("utf-8").splitlines()]
    assert sorted((json.loads(line) for line in lines), key=key) == sorted(expected, key=key)


@pytest.mark.parametrize("table", TABLES)
def test_rows_are_written_in_the_bytes_that_hudi_wrote(table: str) -> None:
    schema, content = block_of(table)
    assert encode_data_block(decode_data_block(schema, content, table), schema) == content


@pytest.mark.parametrize("table", TABLES)
def test_a_block_that_was_cut_off_anywhere_is_corrupt(table: str) -> None:
    schema, content = block_of(table)
    for size in range(len(content)):
        with pytest.raises(CorruptFileError, match=table):
            decode_data_block(schema, content[:size], table)


def deletes_of(case: dict[str, Any]) -> pa.RecordBatch:
    fields = [pa.field(f"o{place}", TYPES[name]) for place, name in enumerate(case["ordering"])]
    return decode_delete_block(bytes.fromhex(case["content"]), fields, case["table"])


@pytest.mark.parametrize("case", DELETES, ids=lambda case: f"{case['table']}: {case['what']}")
def test_deletes_are_those_that_hudi_was_asked_for(case: dict[str, Any]) -> None:
    batch = deletes_of(case)
    rows = [json.loads(line) for line in json_lines(pa.Table.from_batches([batch]))]
    assert [[row[name] for name in batch.schema.names] for row in rows] == case["deletes"]


@pytest.mark.parametrize("case", DELETES, ids=lambda case: f"{case['table']}: {case['what']}")
def test_deletes_are_written_in_the_bytes_that_hudi_wrote(case: dict[str, Any]) -> None:
    keys, partitions, *ordering = deletes_of(case).columns
    written = encode_delete_block(keys, partitions, ordering)
    assert (written.hex() == case["content"]) != case.get("ours_differs", False)
