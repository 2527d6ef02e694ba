"""A row is cut out of a change only where it is the row; every document is read as the exact reader reads it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streaming_lsm.decode.decoder import Decoder
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.decode.exact_reader import ExactReader
from streaming_lsm.decode.json.cut import Cut, CutField, cut

COLUMNS = pa.schema([("id", pa.string()), ("qty", pa.int32()), ("place", pa.struct([("lat", pa.float64())]))])
ENVELOPE = Envelope(COLUMNS, ("id",), format=EventFormat.DEBEZIUM)
ROW = CutField("after", "source")


def change(number: int) -> bytes:
    row = b'{"id":"k%d","qty":1,"place":{"lat":1.5}%s}' % (number, b',"extra":5' if number % 3 == 0 else b"")
    return b'{"before":null,"after":%s,"source":{"db":"shop","tables":[{"a":1}]},"op":"u","ts_ms":5}' % row


HOSTILE = {
    "inside-before": b'{"before":{"id":"a","after":{"id":"b"},"source":{}},"op":"u"}',
    "inside-before-and-outside": b'{"before":{"id":"a","after":{"id":"b"},"source":{}},"op":"u","after":{"id":"c"}}',
    "twice": b'{"before":null,"after":{"id":"b"},"source":{},"after":{"id":"c"},"op":"u"}',
    "null-later": b'{"before":null,"after":{"id":"b"},"source":{},"after":null,"op":"u"}',
    "in-a-text": rb'{"before":null,"x":",\"after\":{\"id\":5},\"source\":{","after":{"id":"a"},"source":{},"op":"u"}',
    "text-that-ends-there": b'{"before":null,"x":"a,"after":{"id":"b"},"source":{}","op":"u"}',
    "two-sources": b'{"before":null,"after":{"id":"b"},"source":{},"source":{},"op":"u"}',
    "source-inside-the-row": b'{"before":null,"after":{"id":"b","x":1,"source":{"id":"c"}},"op":"u"}',
    "source-before": b'{"before":null,"x":1,"source":{},"after":{"id":"b"},"op":"u"}',
    "field-between": b'{"before":null,"after":{"id":"b"},"z":{"id":"c"},"source":{},"op":"u"}',
    "white-space": b'{"before":null,"after": {"id":"b"},"source":{},"op":"u"}',
    "null-and-text": b'{"before":{"id":"b"},"after":null,"source":{},"x":",\\"after\\":{","op":"d"}',
    "array": b'{"before":null,"after":[{"id":"b"}],"source":{},"op":"u"}',
    "unclosed": b'{"before":null,"after":{"id":"b","source":{},"op":"u"}',
    "closed-twice": b'{"before":null,"after":{"id":"b"}},"source":{},"op":"u"}',
    "not-json-inside": b'{"before":null,"after":{"id":nul},"source":{},"op":"u"}',
    "not-json-outside": b'{"before":null,"after":{"id":"b"},"source":{"x":nul},"op":"u"}',
    "the-wrong-type": b'{"before":null,"after":{"id":"b","qty":"many"},"source":{},"op":"u"}',
    "escaped-name": rb'{"before":null,"\u0061fter":{"id":"c"},"after":{"id":"b"},"source":{},"op":"u"}',
    "deleted": b'{"before":{"id":"b","x":1},"after":null,"source":{},"op":"d"}',
}


def decoded(values: list[bytes]) -> tuple[list[dict[str, object]], dict[str, int]]:
    count = len(values)
    columns = [pa.nulls(count, pa.binary()), pa.array(values, pa.binary()), pa.array(["t"] * count)]
    places = [pa.array([0] * count, pa.int32()), pa.array(range(count), pa.int64())]
    messages = pa.record_batch([*columns, *places], names=["key", "value", "topic", "partition", "offset"])
    decoder = Decoder(ENVELOPE)
    return decoder.decode(messages).to_pylist(), dict(decoder.unknown_fields)


@pytest.mark.parametrize("document", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("times", [1, 40])
def test_every_document_has_the_row_and_the_reason_of_the_exact_reader(document: bytes, times: int) -> None:
    event = ExactReader(ENVELOPE).read(document, None)
    good = [change(number) for number in range(600)]
    rows, counts = decoded([*good[:300], *[document] * times, *good[300:]])
    for row in rows[300 : 300 + times]:
        assert (row["_lsm_bad"], row["_lsm_delete"]) == (event.reason, event.delete)
        assert {name: row[name] for name in COLUMNS.names} == {name: event.values.get(name) for name in COLUMNS.names}
    others = [*rows[:300], *rows[300 + times :]]
    assert [row["id"] for row in others] == [f"k{number}" for number in range(600)]
    assert counts == {"extra": 200, **dict.fromkeys(event.unknown, times)}


def test_a_value_is_cut_out_with_the_objects_inside_it() -> None:
    null = b'{"before":{"id":"a"},"after":null,"source":{},"op":"d"}'
    found = cut(pa.array([b"skipped", change(0), null, change(1)], pa.binary())[1:], ROW, "mark")
    assert isinstance(found, Cut)
    assert found.values.to_pylist() == [
        b'{"id":"k0","qty":1,"place":{"lat":1.5},"extra":5}', b"{}", b'{"id":"k1","qty":1,"place":{"lat":1.5}}',
    ]  # fmt: skip
    rest = b'{"before":null,"after":"mark","source":{"db":"shop","tables":[{"a":1}]},"op":"u","ts_ms":5}'
    assert found.rests.to_pylist() == [rest, null, rest]
    assert found.has_value.tolist() == [True, False, True]
    assert cut(pa.array([change(0), b'{"op":"u"}'], pa.binary()), ROW, "mark") is None
