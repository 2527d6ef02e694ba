"""Ranges of columns in files and partitions: as Hudi writes them, and as values of a table's types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.column_stats import (
    RANGES,
    bounds_of,
    decode_ranges,
    encode_range_rows,
    encode_ranges,
    range_key,
    range_rows,
)
from streaming_lsm.format.metadata.hashes import xxh64
from streaming_lsm.format.metadata.records import FilesRecord
from streaming_lsm.format.metadata.schema import metadata_schema
from tests.support.hfiles import written
from tests.support.metadata_records import ColumnStats, encode_record, read_records

FOLDER = Path(__file__).parents[3] / "golden" / "data" / "hfile"
MODEL = "org.apache.hudi.avro.model"
BASES = {"v9_partition_stats_base.hfile": "partition-stats-0000-0_5-773-1383_20261121033216832.hfile"}


@pytest.mark.parametrize(
    ("text", "seed", "expected"),
    [("", 0, 0xEF46DB3751D8E999), ("a", 0, 0xD24EC4F1A98C6E5B), ("abc", 0, 0x44BC2CF5AD770999)],
)
def test_published_values_of_the_hash(text: str, seed: int, expected: int) -> None:
    assert xxh64(text.encode(), seed) == expected


@pytest.mark.parametrize("name", ["v9_column_stats_log.hfile", "v9_partition_stats_base.hfile"])
def test_ranges_that_hudi_wrote_are_read_and_written_to_the_same_bytes(name: str) -> None:
    file = HFile.open((FOLDER / name).read_bytes(), name)
    of_partitions = name in BASES
    one_by_one = dict(read_records(file))
    count = 0
    for cells in file.cells():
        ranges = decode_ranges(cells, file.schema_json, name)
        assert encode_ranges(ranges, BASES.get(name), of_partitions=of_partitions) == cells.values
        assert encode_range_rows(range_rows(ranges), BASES.get(name), of_partitions=of_partitions) == cells.values
        many = pa.concat_arrays([ranges] * 1_000)
        at_once = encode_range_rows(range_rows(many), BASES.get(name), of_partitions=of_partitions)
        assert at_once == pa.concat_arrays([cells.values] * 1_000)
        for key, found in zip(cells.keys.cast(pa.string()).to_pylist(), ranges.to_pylist(), strict=True):
            assert key is not None
            record = one_by_one[key]
            assert isinstance(record, ColumnStats)
            where = (found["fileName"],) if of_partitions else ("", found["fileName"])
            assert key == range_key(found["columnName"], *where)
            assert (record.file_name, record.column_name, record.value_count, record.null_count) == (
                found["fileName"], found["columnName"], found["valueCount"], found["nullCount"],
            )  # fmt: skip
            for wrapped, expected in ((found["minValue"], record.min_value), (found["maxValue"], record.max_value)):
                chosen = {name: value for name, value in (wrapped or {}).items() if value is not None}
                assert chosen == ({} if expected is None else {expected[0].rpartition(".")[2]: expected[1]})
            count += 1
    assert count == len(one_by_one) > 10


def _ranges(rows: list[dict[str, Any]]) -> pa.StructArray:
    filled: list[dict[str, Any]] = [
        {"fileName": "f", "columnName": "c", "valueCount": 3, "nullCount": 1, "isDeleted": False} | row for row in rows
    ]
    found: Any = pa.array(filled, RANGES)
    return found  # type: ignore[no-any-return]


def _row(wrapper: str, low: object, high: object, ordinal: int | None, info: str | None = None) -> dict[str, Any]:
    kind = None if ordinal is None else {"typeOrdinal": ordinal, "additionalInfo": info}
    return {"minValue": {wrapper: {"value": low}}, "maxValue": {wrapper: {"value": high}}, "valueType": kind}


NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
DECIMALS = (Decimal("-1.23"), Decimal("12.34"))
MICROS = int(NOON.timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("row", "kind", "expected"),
    [
        (_row("BooleanWrapper", False, True, 2), pa.bool_(), (False, True)),
        (_row("IntWrapper", -3, 5, 3), pa.int32(), (-3, 5)),
        (_row("IntWrapper", -3, 5, 3), pa.int64(), (-3, 5)),
        (_row("IntWrapper", -3, 5, 3), pa.float64(), (-3.0, 5.0)),
        (_row("IntWrapper", -3, 5, 3), pa.string(), (None, None)),
        (_row("IntWrapper", -3, 5, 3), pa.decimal128(12, 1), (Decimal("-3.0"), Decimal("5.0"))),
        (_row("LongWrapper", -3, 2**40, 4), pa.int64(), (-3, 2**40)),
        (_row("LongWrapper", -3, 2**40, 4), pa.int32(), (-3, None)),
        (_row("LongWrapper", 0, 2**53 + 1, 4), pa.float64(), (0.0, None)),
        (_row("FloatWrapper", 0.5, 1.5, 5), pa.float32(), (0.5, 1.5)),
        (_row("FloatWrapper", 0.5, 1.5, 5), pa.float64(), (None, None)),
        (_row("DoubleWrapper", 0.1, 1e300, 6), pa.float64(), (0.1, 1e300)),
        (_row("DoubleWrapper", 0.1, float("nan"), 6), pa.float64(), (None, None)),
        (_row("StringWrapper", "a", "ü", 7), pa.string(), ("a", "ü")),
        (_row("StringWrapper", "a", "\U0001f600", 7), pa.string(), ("a", None)),
        (_row("StringWrapper", "\ue000", "\uffee", 7), pa.string(), (None, None)),
        (_row("BytesWrapper", b"\xff", b"\x40", 8), pa.binary(), (None, None)),
        (_row("BytesWrapper", b"\xff", b"\x40", None), pa.binary(), (None, None)),
        (_row("BytesWrapper", b"\xff\x85", b"\x04\xd2", 10, "9,2"), pa.decimal128(9, 2), DECIMALS),
        (_row("BytesWrapper", b"\xff\x85", b"\x04\xd2", 10, "9,2"), pa.decimal128(20, 4), DECIMALS),
        (_row("BytesWrapper", b"\x01", b"", 10, "9,2"), pa.decimal128(9, 2), (Decimal("0.01"), None)),
        (_row("BytesWrapper", b"\x01", b"\x02", 10, "99,2"), pa.decimal128(9, 2), (None, None)),
        (_row("BytesWrapper", b"\x01", b"\x02", 10, None), pa.decimal128(9, 2), (None, None)),
        (_row("IntWrapper", 0, 20_000, 12), pa.date32(), (date(1970, 1, 1), date(2024, 10, 4))),
        (_row("IntWrapper", 0, 20_000, 12), pa.int32(), (None, None)),
        (_row("LongWrapper", MICROS // 1000, MICROS // 1000, 15), pa.timestamp("us", "UTC"), (NOON, NOON)),
        (_row("LongWrapper", MICROS, MICROS, 16), pa.timestamp("us", "UTC"), (NOON, NOON)),
        (_row("LongWrapper", MICROS, MICROS, 16), pa.timestamp("us"), (None, None)),
        (_row("LongWrapper", MICROS, MICROS, 19), pa.timestamp("us"), (NOON.replace(tzinfo=None),) * 2),
        (_row("LongWrapper", 1, 2, 14), pa.int64(), (None, None)),
        (_row("IntWrapper", 1, 2, 99), pa.int32(), (None, None)),
        (_row("IntWrapper", 1, 2, None), pa.int32(), (1, 2)),
        (_row("DateWrapper", 0, 20_000, None), pa.date32(), (date(1970, 1, 1), date(2024, 10, 4))),
        (_row("TimestampMicrosWrapper", MICROS, MICROS, None), pa.timestamp("us", "UTC"), (NOON, NOON)),
        (_row("StringWrapper", "a", "b", None), pa.string(), ("a", "b")),
        (_row("DecimalWrapper", Decimal(1), Decimal(2), None), pa.decimal128(9, 2), (None, None)),
        ({"minValue": None, "maxValue": None, "valueType": {"typeOrdinal": 3}}, pa.int32(), (None, None)),
        ({"minValue": None, "maxValue": None, "valueType": None}, pa.int32(), (None, None)),
    ],
    ids=str,
)  # fmt: skip
def test_bounds_are_values_of_the_columns_type_or_unknown(
    row: dict[str, Any], kind: pa.DataType, expected: tuple[object, object]
) -> None:
    other = _row("StringWrapper", "x", "y", 7)
    low, high = bounds_of(_ranges([other, row]), kind)
    assert (low.type, high.type) == (kind, kind)
    assert (low[1].as_py(), high[1].as_py()) == expected
    alone = bounds_of(_ranges([row]), kind)
    assert tuple(bound[0].as_py() for bound in alone) == expected


def test_no_ranges_have_no_bounds() -> None:
    for kind in (pa.int32(), pa.decimal128(9, 2)):
        low, high = bounds_of(_ranges([]), kind)
        assert (len(low), len(high)) == (0, 0)


def test_records_of_another_type_are_refused() -> None:
    data = written([(b"k", encode_record(FilesRecord({})))], schema_json=metadata_schema(), created_ms=0)
    file = HFile.open(data, "f")
    with pytest.raises(CorruptFileError, match="b'k' of type 2 where records of type 3 or 6 belong"):
        [decode_ranges(cells, file.schema_json, "f") for cells in file.cells()]
