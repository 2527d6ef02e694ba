"""Random messages, hostile and natural ones: the decoder against Spark's JSON functions, row by row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from streaming_lsm.decode.decoder import Decoder
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.decode.exact_reader import Event, ExactReader
from streaming_lsm.decode.values.zones import session_zone
from tests.oracle.events import expressions as oracle
from tests.oracle.events.documents import UNAVAILABLE
from tests.support.crash_points import EVERY_CALL
from tests.support.event_columns import JSON_FORMATS, Message, event_columns, kafka_messages
from tests.support.known_event_errors import KnownError, Row, known_errors, reprinted
from tests.support.local_spark import interpreting_session
from tests.support.random_messages import HostileMessages, NaturalMessages
from tests.support.zone_names import FIXED, UTC_NAMES

Place = tuple[str, int, int]
"""Topic, partition and offset."""

WIDE = (
    "id BIGINT, p STRING, s STRING, i INT, sm SMALLINT, t TINYINT, d DOUBLE, f FLOAT, dec DECIMAL(10,2), "
    "d38 DECIMAL(38,10), b BOOLEAN, dt DATE, ts TIMESTAMP, tu TIMESTAMP COMMENT 'micros', ntz TIMESTAMP_NTZ, "
    "bin BINARY, arr ARRAY<INT>, st STRUCT<a: INT, s: STRING, x: ARRAY<DOUBLE>>, _event_lsn BIGINT, "
    "_change_operation_type STRING"
)
NESTED = (
    "p STRING, id INT, m MAP<STRING, BIGINT>, mm MAP<STRING, STRUCT<a: INT, x: DATE>>, aa ARRAY<ARRAY<STRING>>, "
    "st STRUCT<a: SMALLINT, s: BINARY, x: DATE, id: FLOAT, zz: BOOLEAN>, dec DECIMAL(20,4)"
)
STRICT = (
    "id STRING, n INT, p DATE, whole DECIMAL(38,0), part DECIMAL(5,5), ms TIMESTAMP COMMENT 'millis', "
    "ns TIMESTAMP COMMENT 'nanos', v BIGINT NOT NULL, _hoodie_is_deleted BOOLEAN, _event_origin_ts_ms BIGINT, "
    "db_shard_source_partition STRING, _event_pos INT, s STRING NOT NULL"
)
UNWRAPPED = "payload STRING, schema INT, dec DECIMAL(12,6), s STRING, a ARRAY<DOUBLE>"
FLAGGED = (
    "id BIGINT, s STRING, _hoodie_is_deleted STRING, __deleted INT",
    "id BIGINT, d DOUBLE, _hoodie_is_deleted FLOAT, __deleted DATE",
)
"""Tables with columns of other types under the names of the flags of deletes."""
NATURAL = (40,) * 8 + (150,) * 8 + (1200,) * 2 if EVERY_CALL else (80,)
HOSTILE = (150,) * 6 if EVERY_CALL else (50,)
"""Messages of each stream."""


@dataclass(frozen=True)
class Case:
    """A table of events, and the session's zone."""

    ddl: str
    record_key: tuple[str, ...]
    partition: tuple[str, ...]
    ordering: tuple[str, ...]
    format: str
    zone: str = "UTC"

    def envelope(self) -> Envelope:
        columns = event_columns(self.ddl)
        return Envelope(columns, self.record_key, self.partition, self.ordering, EventFormat(self.format))

    def oracle(self) -> oracle.Envelope:
        columns = T.StructType.fromDDL(self.ddl)
        assert isinstance(columns, T.StructType)
        kind = oracle.EventFormat(self.format)
        return oracle.Envelope(columns, self.record_key, self.partition, self.ordering, kind)

    def __str__(self) -> str:
        parts = [self.format, *self.partition, *self.ordering, "by", *self.record_key, self.zone]
        if self.ddl in FLAGGED:
            parts.append(self.ddl.rpartition(" ")[2])
        return " ".join(parts)


def cases() -> Iterator[Case]:
    """Yield a wide table with and without partitions and ordering, and others; in the usual run fewer, in one zone."""
    zones = ("UTC", "Europe/Berlin")
    for kind in JSON_FORMATS:
        latest = "_event_lsn" if kind is EventFormat.DEBEZIUM else "tu"
        tables = [
            Case(WIDE, ("id",), partition, ordering, kind) for partition in ((), ("p",)) for ordering in ((), (latest,))
        ]
        tables.append(Case(NESTED, ("id", "p"), ("p",), (), kind))
        tables.append(Case(STRICT, ("id", "n"), ("p",), ("ms", "v"), kind))
        tables.append(Case(UNWRAPPED, ("payload",), (), ("schema",), kind))
        if kind is EventFormat.JSON:
            tables += [Case(ddl, ("id",), (), (), kind) for ddl in FLAGGED]
        for number, table in enumerate(tables):
            # Without all: the wide table with neither or both of partitions and ordering; few of the next formats.
            if not EVERY_CALL and number in ((1, 2) if kind is EventFormat.JSON else (1, 2, 4, 6)):
                continue
            for zone in zones if EVERY_CALL else zones[number % 2 :][:1]:
                yield replace(table, zone=zone)


@dataclass(frozen=True)
class Stream:
    """Messages of a topic, in two partitions, which one task decodes in two batches."""

    kind: str
    messages: dict[Place, Message]
    batches: tuple[pa.RecordBatch, pa.RecordBatch]

    @property
    def documents(self) -> int:
        """Number of messages with a value."""
        return sum(value is not None for _, value in self.messages.values())


def stream(random: Random, envelope: Envelope, topic: str, *, natural: bool, count: int) -> Stream:
    """Draw the messages of a topic; a tombstone begins the second batch."""
    draw = (NaturalMessages if natural else HostileMessages)(random, envelope).draw
    sequences = [draw(count // 2), draw(count // 2)]
    found: dict[Place, Message] = {}
    while any(sequences):
        partition = random.randrange(2)
        if sequences[partition]:
            found[topic, partition, 3 * len(found) + random.randrange(3)] = sequences[partition].pop(0)
    batch = kafka_messages(list(found.values()), sources=list(found))
    tombstones = [row for row, (_, value) in enumerate(found.values()) if value is None and row]
    cut = random.choice(tombstones or [len(found) // 2])
    return Stream("natural" if natural else "hostile", found, (batch.slice(0, cut), batch.slice(cut)))


@dataclass
class Totals:
    """Counts what was compared, and the differences by error of the oracle."""

    seen: Counter[str] = field(default_factory=Counter)
    known: Counter[KnownError] = field(default_factory=Counter)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A local session that interprets its plans."""
    with interpreting_session() as session:
        yield session
        session.conf.unset("spark.sql.session.timeZone")


@pytest.fixture(scope="module")
def totals() -> Totals:
    """Totals of all cases."""
    return Totals()


@pytest.fixture
def read_exactly(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Values of messages that were read one by one."""
    found: list[bytes] = []
    read = ExactReader.read

    def noted(reader: ExactReader, value: bytes | None, key: bytes | None) -> Event:
        if value is not None:
            found.append(value)
        return read(reader, value, key)

    monkeypatch.setattr(ExactReader, "read", noted)
    return found


def plain_rows(table: pa.Table) -> dict[Place, Row]:
    """Return rows by place; dates as days, timestamps as microseconds."""
    columns = [column.cast(_plain(column.type)) for column in table.columns]
    rows = pa.table(columns, names=table.schema.names).to_pylist()
    return {(row["_lsm_topic"], row["_lsm_partition"], row["_lsm_offset"]): row for row in rows}


def _plain(kind: Any) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _plain(one.type)) for one in kind.fields])
    known: pa.DataType = kind
    return known


def decoded(case: Case, batches: Sequence[pa.RecordBatch]) -> dict[Place, Row]:
    """Decode batches one after the other."""
    decoder = Decoder(case.envelope(), case.zone)
    return plain_rows(pa.Table.from_batches([decoder.decode(batch) for batch in batches]))


def compare(
    case: Case, sent: Stream, expected: Mapping[Place, Row], found: Mapping[Place, Row], known: Counter[KnownError]
) -> None:
    """Compare the rows of a stream; a difference must be a known error, which is counted."""
    wrong: list[tuple[int, str]] = []
    before: dict[int, set[KnownError]] = {}
    for place, message in sent.messages.items():
        theirs, ours, errors = expected.get(place), found.get(place), set[KnownError]()
        if repr(ours) != repr(theirs):
            rounded = decoded(case, [kafka_messages([reprinted(case.envelope(), message)], sources=[place])])[place]
            after_error = bool(before.get(place[1]))
            errors = known_errors(case.envelope(), message, theirs, ours, rounded, after_error=after_error)
            if not errors:
                wrong.append((sum(map(len, filter(None, message))), f"{message}\n{_difference(ours, theirs)}"))
        known.update(errors)
        before[place[1]] = errors
    assert not wrong, f"{len(wrong)} differences, the smallest one:\n{min(wrong)[1]}"


def _difference(ours: Row | None, theirs: Row | None) -> str:
    if ours is None or theirs is None:
        return f"{ours}, not {theirs}"
    return "\n".join(
        f"{name}: {one!r}, not {theirs[name]!r}" for name, one in ours.items() if repr(one) != repr(theirs[name])
    )


def drawn(case: Case) -> list[Stream]:
    """Draw the streams of a case, always the same ones."""
    random, envelope = Random(str(case)), case.envelope()
    return [
        *(stream(random, envelope, f"natural {n}", natural=True, count=count) for n, count in enumerate(NATURAL)),
        *(stream(random, envelope, f"hostile {n}", natural=False, count=count) for n, count in enumerate(HOSTILE)),
    ]


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_rows_are_those_of_sparks_json_functions(spark: SparkSession, case: Case, totals: Totals) -> None:
    streams = drawn(case)
    spark.conf.set("spark.sql.session.timeZone", case.zone)
    messages = pa.Table.from_batches([batch for sent in streams for batch in sent.batches])
    expected = plain_rows(case.oracle().rows(spark.createDataFrame(messages)).toArrow())
    for sent in streams:
        found = decoded(case, sent.batches)
        compare(case, sent, expected, found, totals.known)
        totals.seen[f"{sent.kind} documents"] += sent.documents
        totals.seen["tombstones"] += len(sent.messages) - sent.documents
        totals.seen["tombstones dropped"] += len(sent.messages) - len(found)
        totals.seen["bad events"] += sum(row["_lsm_bad"] is not None for row in found.values())


def test_placeholder_of_an_unchanged_value_is_found_in_any_column(spark: SparkSession) -> None:
    ddl = (
        "id BIGINT, s STRING, i INT, texts ARRAY<STRING>, ints ARRAY<INT>, reals ARRAY<DOUBLE>, bins ARRAY<BINARY>, "
        "m MAP<STRING, STRING>, st STRUCT<a: STRING>, dec DECIMAL(10,2)"
    )
    case = Case(ddl, ("id",), (), (), EventFormat.DEBEZIUM)
    forms = [*UNAVAILABLE, "__debezium_unavailable_value,", '["__debezium_unavailable_value",""]', "[95]", "{}", "null"]
    # Texts stand in quotes, and as they are where they are JSON.
    tokens = [json.dumps(form) for form in forms] + [form for form in forms if form[0] in "[{n"]
    rows = [(name, token) for name in case.envelope().columns.names[1:] for token in tokens]
    documents = [
        f'{{"op":"u","before":null,"after":{{"id":{nth},"{name}":{token}}}}}'.encode()
        for nth, (name, token) in enumerate(rows)
    ]
    batch = kafka_messages([(b"k", document) for document in documents])
    spark.conf.set("spark.sql.session.timeZone", case.zone)
    expected = plain_rows(case.oracle().rows(spark.createDataFrame(pa.Table.from_batches([batch]))).toArrow())
    found = decoded(case, [batch])
    different = [row for place, row in zip(found, rows, strict=True) if repr(found[place]) != repr(expected[place])]
    assert not different
    unsent = [row["_lsm_bad"] for row in found.values() if "was not sent" in str(row["_lsm_bad"])]
    assert len(unsent) > len(UNAVAILABLE)


def short_zones(spark: SparkSession) -> dict[str, str]:
    """Java's short names, and the zones that they stand for."""
    names = dict(cast(Any, spark.sparkContext._jvm).java.time.ZoneId.SHORT_IDS)
    # From Java 24 on these are regions, which have had the same offsets for decades.
    return names | {"EST": "-05:00", "HST": "-10:00", "MST": "-07:00"}


def test_short_names_of_zones_are_those_of_java(spark: SparkSession) -> None:
    short = short_zones(spark)
    assert len(short) >= 28
    assert {name: session_zone(name) for name in short} == short


def test_session_zones_are_those_of_spark(spark: SparkSession) -> None:
    case = Case("id BIGINT, at TIMESTAMP", ("id",), (), (), EventFormat.JSON)
    texts = [f"{day}T{hour:02}:30:00" for day in ("2026-03-08", "2026-07-01", "2026-11-01") for hour in range(4)]
    batch = kafka_messages([(None, f'{{"id":1,"at":"{text}"}}'.encode()) for text in texts])
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    different = []
    for zone in (*UTC_NAMES, *FIXED, *short_zones(spark)):
        spark.conf.set("spark.sql.session.timeZone", zone)
        times = frame.selectExpr("unix_micros(to_timestamp(get_json_object(string(value), '$.at'))) AS at").toArrow()
        ours = [row["at"] for row in decoded(replace(case, zone=zone), [batch]).values()]
        if times["at"].to_pylist() != ours:
            different.append(zone)
    assert not different


def test_about_half_of_the_natural_documents_are_read_many_at_a_time(
    totals: Totals, read_exactly: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the comparison above would be one of one reader only."""
    documents = 0
    for case in cases():
        for sent in drawn(case):
            if sent.kind == "natural":
                documents += sent.documents
                decoded(case, sent.batches)
    totals.seen["natural documents read many at a time"] = documents - len(read_exactly)
    if EVERY_CALL:
        with capsys.disabled():
            print("", *(f"{count:8,} {name}" for name, count in sorted(totals.seen.items())), sep="\n")
            print(*(f"{count:8,} differences: {error}" for error, count in totals.known.items()), sep="\n")
    assert 0.3 < len(read_exactly) / documents < 0.7
