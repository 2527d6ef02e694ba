"""Values at the limits of their types: those read many at a time are what the exact reader reads, or bad."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from streaming_lsm.decode.decoder import Decoder
from streaming_lsm.decode.envelope import Envelope
from streaming_lsm.decode.exact_reader import ExactReader
from tests.support.event_columns import event_columns, kafka_messages


def read(kind: str, value: str, zone: str = "UTC") -> tuple[Any, str | None]:
    """The value of column ``x``, a JSON text, and the reason against it; it is read beside values that are null."""
    reader = Envelope(event_columns(f"id BIGINT, x {kind}"), ("id",))
    document = f'{{"id":1,"x":{value}}}'.encode()
    batch = kafka_messages([(b"k", document), *[(b"k", b'{"id":2,"x":null}')] * 3])
    rows = Decoder(reader, zone).decode(batch).to_pylist()
    assert [row["_lsm_bad"] for row in rows[1:]] == [None] * 3
    assert rows[0]["_lsm_bad"] == ExactReader(reader, zone).read(document, b"k").reason
    return rows[0]["x"], rows[0]["_lsm_bad"]


def refused(kind: str, value: str) -> bool:
    found, reason = read(kind, value)
    assert found is None or reason is None
    return reason is not None and reason.endswith(f"which is not {kind}")


@pytest.mark.parametrize("quote", ["", '"'], ids=["number", "text"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("DECIMAL(10,2)", "100000000"),
        ("DECIMAL(10,2)", "12676506002282294014967032055.06"),
        ("DECIMAL(5,5)", "1"),
        ("DECIMAL(5,5)", "396140812571321687967719.75298"),
        ("DECIMAL(18,18)", "324518553658426.826783156020576256"),
        ("DECIMAL(20,0)", "1298074214633716907132624082305024"),
        ("DECIMAL(38,2)", "24993289647786126570350277948429893475"),
        ("DECIMAL(38,10)", "34028236692093846346337460743.1768211586"),
        ("DECIMAL(38,10)", "141591367596474424652500377947"),
        ("DECIMAL(38,18)", "3506726053523378497364"),
        ("DECIMAL(38,30)", "29386524248"),
        ("DECIMAL(38,38)", "41"),
        ("DECIMAL(38,38)", "1.5e8"),
        ("DECIMAL(38,0)", "1" + "0" * 38),
        ("DECIMAL(38,0)", "170141183460469231731687303715884105728"),
    ],
)
def test_decimal_with_too_many_digits_before_the_point_is_bad(kind: str, value: str, quote: str) -> None:
    assert refused(kind, f"{quote}{value}{quote}")
    assert refused(kind, f"{quote}-{value}{quote}")


@pytest.mark.parametrize("quote", ["", '"'], ids=["number", "text"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("DECIMAL(10,2)", "99999999.99"),
        ("DECIMAL(5,5)", "0.99999"),
        ("DECIMAL(38,0)", "9" * 38),
        ("DECIMAL(38,18)", "9" * 20 + "." + "9" * 18),
        ("DECIMAL(38,38)", "0." + "9" * 38),
    ],
)
def test_largest_decimal_of_a_type_is_read(kind: str, value: str, quote: str) -> None:
    assert read(kind, f"{quote}{value}{quote}") == (Decimal(value), None)
    assert read(kind, f"{quote}-{value}{quote}") == (Decimal(f"-{value}"), None)


@pytest.mark.parametrize("value", ["1.8e308", "2e308", "-2e308", "-2147483647E+302", "1e309", "1e999", "9" * 310])
def test_number_too_large_for_a_double_is_bad(value: str) -> None:
    assert refused("DOUBLE", value)
    assert refused("DOUBLE", f'"{value}"')


@pytest.mark.parametrize("value", ["3.5e38", "-1e39", "1e308", "1e999"])
def test_number_too_large_for_a_float_is_bad(value: str) -> None:
    assert refused("FLOAT", value)
    assert refused("FLOAT", f'"{value}"')


@pytest.mark.parametrize("quote", ["", '"'], ids=["number", "text"])
@pytest.mark.parametrize("value", ["3.4028234663852886e38", "3.4028235e38", "3.4028235677973366e38"])
def test_number_that_rounds_to_the_largest_float_is_that_float(value: str, quote: str) -> None:
    assert read("FLOAT", f"{quote}{value}{quote}") == (3.4028234663852886e38, None)


@pytest.mark.parametrize(
    ("kind", "bits"), [("TINYINT", 8), ("SMALLINT", 16), ("INT", 32), ("BIGINT", 64)], ids=["8", "16", "32", "64"]
)
def test_whole_numbers_are_read_up_to_the_limits_of_their_type(kind: str, bits: int) -> None:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for value in (least, most):
        assert read(kind, str(value)) == read(kind, f'"{value}"') == (value, None)
    for value in (least - 1, most + 1, 10**30):
        assert refused(kind, str(value))
        assert refused(kind, f'"{value}"')


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("Europe/Berlin", "2037-07-01T12:00:00", datetime(2037, 7, 1, 10, tzinfo=UTC)),
        ("Europe/Berlin", "2038-01-01T12:00:00", datetime(2038, 1, 1, 11, tzinfo=UTC)),
        ("Europe/Berlin", "2038-07-01T12:00:00", datetime(2038, 7, 1, 10, tzinfo=UTC)),
        ("Europe/Berlin", "9999-07-01T12:00:00", datetime(9999, 7, 1, 10, tzinfo=UTC)),
        ("America/New_York", "2050-07-01T12:00:00", datetime(2050, 7, 1, 16, tzinfo=UTC)),
        ("Australia/Lord_Howe", "2050-07-01T12:00:00", datetime(2050, 7, 1, 1, 30, tzinfo=UTC)),
        ("Europe/Berlin", "2026-03-29T02:30:00", datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        ("Europe/Berlin", "2026-10-25T02:30:00", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
        ("Europe/Berlin", "2026-10-25T03:00:00", datetime(2026, 10, 25, 2, tzinfo=UTC)),
        ("Asia/Tokyo", "9999-07-01T12:00:00", datetime(9999, 7, 1, 3, tzinfo=UTC)),
    ],
)
def test_time_without_a_zone_is_read_by_the_rules_of_its_year(zone: str, text: str, expected: datetime) -> None:
    assert read("TIMESTAMP", f'"{text}"', zone) == (expected, None)
