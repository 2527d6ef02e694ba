from __future__ import annotations

import json

import pyarrow as pa
import pytest

from streaming_lsm.bounded_json import SMALL, parse_json
from streaming_lsm.schema import to_avro
from streaming_lsm.txn.batch_ledger import LastBatch, WriterLedger


@pytest.mark.parametrize("encode", [str, str.encode], ids=["text", "bytes"])
def test_json_of_a_normal_size_is_parsed_as_usual(encode: type[str]) -> None:
    assert parse_json(encode('{"a": [1, {"b": null}]}')) == {"a": [1, {"b": None}]}


@pytest.mark.parametrize("encode", [str, str.encode], ids=["text", "bytes"])
def test_json_that_is_longer_than_expected_is_refused(encode: type[str]) -> None:
    assert parse_json(encode('"aa"'), 4) == "aa"
    with pytest.raises(ValueError, match="JSON of 5 characters, 4 at most"):
        parse_json(encode('"aaa"'), 4)


@pytest.mark.parametrize("unit", ["[],", "{},", "1,", '"a",', "[[]],"])
def test_json_of_more_parts_than_its_length_explains_is_refused_whatever_the_limit_of_the_length(unit: str) -> None:
    text = "[" + unit * (2 * SMALL // len(unit)) + "1]"

    with pytest.raises(ValueError, match=r"parts in .* at most are expected"):
        parse_json(text.encode(), None)


def test_the_schema_of_10_000_columns_and_the_ledger_of_1_000_writers_are_parsed() -> None:
    schema = to_avro(
        pa.schema([(f"column_{number:05}", pa.timestamp("us", "UTC")) for number in range(10_000)]), "orders"
    )
    assert len(parse_json(schema)["fields"]) == 10_000

    deletes = {f"orders-{partition}": "k" * 100 for partition in range(20)}
    ledger = WriterLedger({f"{number:036}": LastBatch(number, 1_800_000_000_000, deletes) for number in range(1_000)})
    assert WriterLedger.decode(ledger.encode(), "x") == ledger


def test_json_of_the_stats_of_a_real_commit_may_be_long() -> None:
    stat = {"fileId": "0" * 38, "path": "nl/" + "0" * 70, "prevCommit": "null", "numWrites": 1, "numDeletes": 0}
    text = json.dumps({"partitionToWriteStats": {"nl": [stat] * 40_000}}, separators=(",", ":"))
    assert len(text) > SMALL

    assert len(parse_json(text, None)["partitionToWriteStats"]["nl"]) == 40_000
