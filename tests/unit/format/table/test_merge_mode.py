"""Classes that merge records: which are known, by their whole name, and in which versions."""

from __future__ import annotations

import pytest

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.table.merge_mode import LEGACY_PAYLOAD_KEY, MERGE_MODE_KEY, PAYLOAD_KEY, merge_settings

HUDI = "org.apache.hudi.common.model."


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize(
    ("payload", "mode", "partial"),
    [
        ("DefaultHoodieRecordPayload", "EVENT_TIME_ORDERING", None),
        ("OverwriteWithLatestAvroPayload", "COMMIT_TIME_ORDERING", None),
        ("PartialUpdateAvroPayload", "EVENT_TIME_ORDERING", "IGNORE_DEFAULTS"),
    ],
)
def test_classes_of_hudi_say_the_mode_of_older_tables(
    version: int, payload: str, mode: str, partial: str | None
) -> None:
    found = merge_settings({PAYLOAD_KEY: HUDI + payload}, version, "table")
    assert (found.mode, found.partial) == (mode, partial)


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize(
    "payload",
    [
        "com.example.DefaultHoodieRecordPayload",
        "DefaultHoodieRecordPayload",
        HUDI + "more.DefaultHoodieRecordPayload",
        HUDI + "debezium.PostgresDebeziumAvroPayload",
        HUDI,
    ],
)
def test_a_class_of_somebody_else_is_refused_whatever_its_short_name(version: int, payload: str) -> None:
    with pytest.raises(UnsupportedTable, match=f"{PAYLOAD_KEY}={payload}"):
        merge_settings({PAYLOAD_KEY: payload, MERGE_MODE_KEY: "CUSTOM"}, version, "table")


@pytest.mark.parametrize("payload", ["AWSDmsAvroPayload", "debezium.PostgresDebeziumAvroPayload"])
def test_a_class_that_keys_have_replaced_adds_nothing_to_them(payload: str) -> None:
    keys = {MERGE_MODE_KEY: "EVENT_TIME_ORDERING"}
    assert merge_settings({**keys, LEGACY_PAYLOAD_KEY: HUDI + payload}, 9, "table") == merge_settings(keys, 9, "table")
