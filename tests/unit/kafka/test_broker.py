"""The id of the demo's cluster; the broker itself runs in tests/integration."""

from __future__ import annotations

import uuid

from streaming_lsm.kafka.broker import cluster_id

DASHED = uuid.UUID(bytes=b"\xf8" * 16)
PLAIN = uuid.UUID(bytes=b"\x00\xf8" * 8)


def test_a_cluster_id_that_would_be_taken_for_an_option_is_drawn_again() -> None:
    drawn = iter([DASHED, DASHED, PLAIN])
    assert cluster_id(lambda: next(drawn)) == "APgA-AD4APgA-AD4APgA-A"


def test_no_cluster_id_begins_with_a_dash_and_each_is_22_characters() -> None:
    firsts = [uuid.UUID(bytes=bytes([first]) * 16) for first in range(256)]
    for one in firsts:
        drawn = iter([one, PLAIN])
        found = cluster_id(lambda drawn=drawn: next(drawn))  # type: ignore[misc]
        assert len(found) == 22
        assert not found.startswith("-")
