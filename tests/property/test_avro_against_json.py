"""Random messages in Avro, encoded by fastavro: rows and reasons are those of the JSON messages that stand for them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.decode.avro.exact_events import ExactAvroReader
from streaming_lsm.decode.decoder import PAYLOAD_BYTES, Decoder
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.decode.exact_reader import Event
from tests.support.avro_messages import MemorySchemas
from tests.support.crash_points import EVERY_CALL
from tests.support.event_columns import event_columns, kafka_messages
from tests.support.random_avro import Twin, TwinMessages

WIDE = (
    "id BIGINT, p STRING, s STRING, i INT, sm SMALLINT, t TINYINT, d DOUBLE, f FLOAT, dec DECIMAL(10,2), "
    "d38 DECIMAL(38,10), whole DECIMAL(38,0), b BOOLEAN, dt DATE, ts TIMESTAMP, tu TIMESTAMP COMMENT 'micros', "
    "ntz TIMESTAMP_NTZ, bin BINARY, arr ARRAY<INT>, st STRUCT<a: INT, s: STRING, x: ARRAY<DOUBLE>>, "
    "m MAP<STRING, BIGINT>, _event_lsn BIGINT, _change_operation_type STRING"
)
NESTED = (
    "id INT, p STRING, mm MAP<STRING, STRUCT<a: SMALLINT, x: DATE>>, aa ARRAY<ARRAY<STRING>>, "
    "st STRUCT<a: SMALLINT, s: BINARY, x: DATE, f: FLOAT, zz: BOOLEAN, deep: STRUCT<m: MAP<STRING, DOUBLE>>>, v TINYINT"
)
STRICT = (
    "id STRING, n INT, p DATE, part DECIMAL(5,5), ms TIMESTAMP, v BIGINT NOT NULL, _hoodie_is_deleted BOOLEAN, "
    "_event_origin_ts_ms BIGINT, db_shard_source_partition STRING, _event_pos INT, _event_tx_id BIGINT, "
    "s STRING NOT NULL"
)
STREAMS, MESSAGES = (14, 80) if EVERY_CALL else (2, 40)
TWIN_FORMATS = {EventFormat.AVRO: EventFormat.JSON, EventFormat.DEBEZIUM_AVRO: EventFormat.DEBEZIUM}
ONE_BY_ONE = "one by one"
GENERIC = "a value inside a nested field has not the declared type"
NESTED_MISFIT = re.compile(r"column '\w+' holds '.*', which is not (ARRAY|MAP|STRUCT)<", re.DOTALL)
Place = tuple[str, int, int]
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A table of events, and the session's zone."""

    ddl: str
    record_key: tuple[str, ...]
    partition: tuple[str, ...]
    ordering: tuple[str, ...]
    format: EventFormat
    zone: str

    def envelope(self, schemas: MemorySchemas) -> Envelope:
        columns = event_columns(self.ddl)
        return Envelope(columns, self.record_key, self.partition, self.ordering, self.format, (schemas,))

    def __str__(self) -> str:
        return " ".join([self.format, *self.partition, *self.ordering, "by", *self.record_key, self.zone])


def cases() -> Iterator[Case]:
    for kind in TWIN_FORMATS:
        latest = "_event_lsn" if kind is EventFormat.DEBEZIUM_AVRO else "ts"
        yield Case(WIDE, ("id",), (), (), kind, "UTC")
        yield Case(WIDE, ("id",), ("p",), (latest,), kind, "Europe/Berlin")
        yield Case(NESTED, ("id", "p"), ("p",), (), kind, "UTC")
        yield Case(STRICT, ("id", "n"), ("p",), ("ms", "v"), kind, "America/New_York")


def plain(kind: Any) -> pa.DataType:
    """A type whose values print exactly."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, plain(one.type)) for one in kind.fields])
    known: pa.DataType = kind
    return known


def decoded(envelope: Envelope, zone: str, messages: dict[Place, Any], cut: int) -> dict[Place, Row]:
    """Decode messages in two batches, and return the rows by place."""
    decoder, batch = Decoder(envelope, zone), kafka_messages(list(messages.values()), sources=list(messages))
    table = pa.Table.from_batches([decoder.decode(batch.slice(0, cut)), decoder.decode(batch.slice(cut))])
    columns = [column.cast(plain(column.type)) for column in table.columns]
    rows = pa.table(columns, names=table.schema.names).to_pylist()
    return {(row["_lsm_topic"], row["_lsm_partition"], row["_lsm_offset"]): row for row in rows}


def placed(random: Random, twins: list[list[Twin]]) -> dict[Place, Twin]:
    """Spread the messages of two topic partitions over a batch."""
    found: dict[Place, Twin] = {}
    while any(twins):
        partition = random.randrange(2)
        if twins[partition]:
            found["t", partition, len(found)] = twins[partition].pop(0)
    return found


def wrong(twin: Twin, ours: Row | None, theirs: Row | None, seen: Counter[str]) -> bool:
    """Compare two rows."""
    if twin.unsure:
        seen["changed, good or bad"] += 1
        return False
    if ours is None or theirs is None:
        seen["tombstones dropped"] += ours is theirs
        return ours is not theirs
    reason, expected = ours["_lsm_bad"], theirs["_lsm_bad"]
    payloads = (ours.pop("_lsm_payload"), theirs.pop("_lsm_payload"))
    if reason is not None:
        value = twin.avro[1]
        if payloads[0] != (None if value is None else value[:PAYLOAD_BYTES]):
            return True
        seen["bad, changed" if twin.changed else f"bad: {re.sub(chr(39) + '.*' + chr(39), '…', reason)[:50]}"] += 1
        if twin.changed:
            return expected is None
        if expected is not None and reason != expected and NESTED_MISFIT.match(reason):
            seen["nested misfits"] += 1
            seen["nested misfits beside another reason"] += expected != GENERIC
            return False
    else:
        seen["good, changed" if twin.changed else "good"] += 1
    return repr(ours) != repr(theirs)


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """Counts of what was compared."""
    return Counter()


@pytest.fixture
def read_exactly(monkeypatch: pytest.MonkeyPatch, seen: Counter[str]) -> None:
    """Count the values of messages that were judged one by one."""
    events = ExactAvroReader.events

    def noted(reader: ExactAvroReader, values: pa.BinaryArray, keys: pa.BinaryArray) -> list[Event]:
        seen[ONE_BY_ONE] += len(values) - values.null_count
        return events(reader, values, keys)

    monkeypatch.setattr(ExactAvroReader, "events", noted)


@pytest.mark.parametrize("case", list(cases()), ids=str)
@pytest.mark.usefixtures("read_exactly")
def test_rows_and_reasons_are_those_of_json(case: Case, seen: Counter[str]) -> None:
    for number in range(STREAMS):
        random, schemas = Random(f"{case} {number}"), MemorySchemas()
        envelope = case.envelope(schemas)
        twins = TwinMessages(random, envelope, schemas)
        messages = placed(random, [twins.draw(MESSAGES), twins.draw(MESSAGES)])
        cut = random.randrange(1, len(messages))
        ours = decoded(envelope, case.zone, {place: twin.avro for place, twin in messages.items()}, cut)
        twin_envelope = replace(envelope, format=TWIN_FORMATS[case.format])
        theirs = decoded(twin_envelope, case.zone, {place: twin.json for place, twin in messages.items()}, cut)
        unsure = False
        for place, twin in messages.items():
            # After a message that may be a delete, a tombstone may repeat it.
            unsure = twin.unsure or (unsure and twin.avro[1] is None)
            if not (unsure and not twin.unsure):
                differ = wrong(twin, ours.get(place), theirs.get(place), seen)
                assert not differ, f"{twin}\n{ours.get(place)}\n{theirs.get(place)}\n{schemas.texts}"


def test_both_ways_of_reading_were_compared(seen: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    one_by_one = seen.pop(ONE_BY_ONE)
    total = sum(seen.values())
    if EVERY_CALL:
        with capsys.disabled():
            print(f"\n{total:8,} messages, {one_by_one:,} of them judged one by one")
            print(*(f"{count:8,} {name}" for name, count in sorted(seen.items())), sep="\n")
        assert total > 10_000
    assert seen["good"] > 0.5 * total
    assert 0.3 < one_by_one / total < 0.7
    assert seen["nested misfits beside another reason"] < 0.02 * total
