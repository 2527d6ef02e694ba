"""Session zones: whatever name Spark accepts, messages are read many at a time as one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from streaming_lsm.decode.decoder import Decoder
from streaming_lsm.decode.envelope import Envelope
from streaming_lsm.decode.exact_reader import ExactReader
from streaming_lsm.decode.values.zones import fixed_offset, session_zone
from streaming_lsm.errors import ConfigError
from tests.support.event_columns import event_columns, kafka_messages
from tests.support.zone_names import FIXED, UTC_NAMES

READER = Envelope(event_columns("id BIGINT, at TIMESTAMP"), ("id",))
FAR_DAYS = ("0001-01-03T00:00:00", "1883-11-18T12:00:00", "1945-08-15T00:00:00", "2040-07-01T00:00:00")


def documents(texts: Sequence[str]) -> list[bytes]:
    return [f'{{"id":{nth},"at":"{text}"}}'.encode() for nth, text in enumerate(texts)]


def read_together(texts: Sequence[str], zone: str) -> list[int | None]:
    """Microseconds since 1970 of local times."""
    batch = Decoder(READER, zone).decode(kafka_messages([(None, one) for one in documents(texts)]))
    assert batch.column("_lsm_bad").null_count == len(texts)
    found: list[int | None] = batch.column("at").cast(pa.int64()).to_pylist()
    return found


def read_singly(texts: Sequence[str], zone: str) -> list[int | None]:
    reader = ExactReader(READER, zone)
    return [reader.read(one, None).values["at"] for one in documents(texts)]


def times_around_changes(zone: ZoneInfo) -> list[str]:
    """Local times before, in and after each change of clocks of three years, and two ordinary ones."""
    found = [datetime(2026, 1, 15, 12), datetime(2026, 7, 15, 12)]
    for year in (1999, 2019, 2026):
        before = datetime(year, 1, 1)
        for hours in range(1, 366 * 24):
            moment = datetime(year, 1, 1) + timedelta(hours=hours)
            if moment.replace(tzinfo=zone).utcoffset() != before.replace(tzinfo=zone).utcoffset():
                found += [moment + timedelta(minutes=minutes) for minutes in range(-180, 180, 15)]
            before = moment
    return [moment.isoformat() for moment in found]


@pytest.mark.parametrize("zone", [*UTC_NAMES, *FIXED])
def test_a_zone_of_a_fixed_offset_is_read_many_at_a_time_as_one_by_one(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["2026-05-05T10:00:00", *FAR_DAYS, "9999-12-30T23:59:59.999999"]
    expected = read_singly(texts, zone)
    monkeypatch.delattr(ExactReader, "read")
    assert read_together(texts, zone) == expected


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        ("PST", "America/Los_Angeles"),
        ("CNT", "America/St_Johns"),
        ("AET", "Australia/Sydney"),
        ("IST", "Asia/Kolkata"),
        ("EST", "-05:00"),
    ],
)
def test_a_short_name_of_a_zone_is_read_as_one_by_one_around_changes_of_clocks(zone: str, name: str) -> None:
    # All short names of Java are compared in tests/property/test_decoding_against_spark.py.
    changing = [] if fixed_offset(name) is not None else times_around_changes(ZoneInfo(name))
    texts = ["2026-05-05T10:00:00", *FAR_DAYS, *changing]
    found = read_together(texts, zone)
    assert found == read_singly(texts, zone) == read_singly(texts, name)


def test_each_spelling_of_an_offset_is_that_offset() -> None:
    texts = ["2026-05-05T10:00:00"]
    at_utc = read_singly(texts, "UTC")[0]
    assert at_utc is not None
    for zone, seconds in FIXED.items():
        assert read_together(texts, zone) == [at_utc - seconds * 10**6], zone
    for zone in UTC_NAMES:
        assert session_zone(zone) == "UTC"


@pytest.mark.parametrize(
    "zone",
    ["", "utc", "Europe/Atlantis", "XYZ", "+19:00", "+18:01", "-18:00:01", "+5:60", "UTC+", "8", "../UTC", "CEST"],
)
def test_a_zone_that_is_not_known_is_refused_by_name_before_a_message_is_read(zone: str) -> None:
    with pytest.raises(
        ConfigError, match=r"time zone '.*' is not known on this machine: set spark\.sql\.session\.time"
    ) as e:
        Decoder(READER, zone)
    assert repr(zone) in str(e.value)


def test_a_zone_that_only_python_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming_lsm.decode.values.zones._is_read_by_arrow", lambda _: False)
    with pytest.raises(ConfigError, match="time zone 'Asia/Kathmandu' is not known on this machine"):
        session_zone("Asia/Kathmandu")
