"""Messages are split into frame and datum, and grouped by schema, at the cost of their bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streaming_lsm.decode.avro.frames import Frames
from tests.support.avro_messages import framed


@pytest.mark.parametrize("ids", [1, 2, 500])
def test_messages_of_any_number_of_schemas_lie_together_by_schema(ids: int) -> None:
    messages = [framed(7 + n % ids, f"datum {n}".encode()) for n in range(1000)]
    messages[10], messages[11], messages[999] = b"", b"{}", b"\1\0\0\0\7x"
    frames = Frames.of(pa.array([b"before", *messages, b"behind"], pa.binary()).slice(1, 1000))
    groups, spanned = {}, 0
    for schema_id, places, datums in frames.by_schema():
        bounds = zip(datums.starts.tolist(), datums.ends.tolist(), strict=True)
        groups[schema_id] = dict(
            zip(places.tolist(), (datums.data[start:end].tobytes() for start, end in bounds), strict=True)
        )
        assert list(groups[schema_id]) == sorted(groups[schema_id])
        spanned += int(datums.ends.max() - datums.starts.min())
    good = [n for n in range(1000) if n not in (10, 11, 999)]
    assert groups == {7 + i: {n: f"datum {n}".encode() for n in good if n % ids == i} for i in range(ids)}
    # A reader copies what its datums span.
    assert spanned <= sum(map(len, messages))


def test_messages_without_a_frame_are_in_no_group() -> None:
    for messages in ([], [b"", b"{}"]):
        assert list(Frames.of(pa.array(messages, pa.binary())).by_schema()) == []
