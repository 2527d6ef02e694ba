"""Fields that the table does not have are counted exactly, however the documents that have them are read."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.decode.decoder import Decoder
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.decode.unknown_fields import MOST_NAMES, UnknownFields, UnknownFieldWarnings, shown_name
from streaming_lsm.write.numbers import OTHER_FIELDS

PLACE: list[tuple[str, pa.DataType]] = [("lat", pa.float64()), ("lon", pa.float64())]
COLUMNS = pa.schema([("id", pa.string()), ("qty", pa.int32()), ("place", pa.struct(PLACE)), ("_event_lsn", pa.int64())])
MESSAGE = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)

Wrap = Callable[[dict[str, Any]], dict[str, Any] | None]


def flat(row: dict[str, Any]) -> dict[str, Any]:
    return row


def change(row: dict[str, Any]) -> dict[str, Any]:
    source = {"lsn": 5, "db": "shop", "snapshot": "false", "sequence": None}
    return {"before": {"id": row["id"]}, "after": row, "source": source, "transaction": None, "op": "u", "ts_ms": 1}


def wrapped_change(row: dict[str, Any]) -> dict[str, Any]:
    return {"schema": {"type": "struct", "fields": []}, "payload": change(row)}


FORMS: dict[str, tuple[EventFormat, Wrap]] = {
    "flat": (EventFormat.JSON, flat),
    "debezium": (EventFormat.DEBEZIUM, change),
    "debezium-in-a-wrapper": (EventFormat.DEBEZIUM, wrapped_change),
}
EVERY_FORM = pytest.mark.parametrize(("kind", "wrap"), FORMS.values(), ids=FORMS)


def decoded(kind: EventFormat, documents: Iterable[object], size: int = 500) -> tuple[pa.Table, Mapping[str, int]]:
    """Decode documents, `size` at a time; returns rows and counts."""
    values = [one if isinstance(one, bytes) else json.dumps(one, separators=(",", ":")).encode() for one in documents]
    decoder = Decoder(Envelope(COLUMNS, ("id",), format=kind))
    messages = pa.table(
        [[None] * len(values), values, ["t"] * len(values), [0] * len(values), range(len(values))], MESSAGE
    )
    parts = [decoder.decode(part) for part in messages.combine_chunks().to_batches(max_chunksize=size)]
    return pa.Table.from_batches(parts, decoder.schema), decoder.unknown_fields


def counted(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """Unknown fields of rows, found one by one."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(name for name, value in row.items() if name not in COLUMNS.names and value is not None)
        place = row.get("place") or {}
        found.update(
            f"place.{name}" for name, value in place.items() if name not in ("lat", "lon") and value is not None
        )
    return found


@EVERY_FORM
def test_documents_without_other_fields_count_none(kind: EventFormat, wrap: Wrap) -> None:
    rows, counts = decoded(kind, [wrap({"id": str(n), "qty": n, "place": {"lat": 1.5}}) for n in range(1200)])
    assert rows["_lsm_bad"].null_count == 1200
    assert counts == {}


@EVERY_FORM
@pytest.mark.parametrize("every", [1, 7, 1000], ids=["in-each", "in-some", "in-two-of-all"])
@pytest.mark.parametrize(
    "other",
    ["text", 5, 2.5, True, ["a", None], [], {"a": {"b": [1]}}, {}, 10**30],
    ids=["text", "whole", "fraction", "boolean", "array", "empty-array", "object", "empty-object", "huge"],
)
def test_a_field_of_any_type_is_counted_in_the_documents_that_have_it(
    kind: EventFormat, wrap: Wrap, every: int, other: object
) -> None:
    rows = [{"id": str(n), "qty": n, **({"extra": other} if n % every == 1 % every else {})} for n in range(1200)]
    table, counts = decoded(kind, map(wrap, rows))
    assert table["_lsm_bad"].null_count == 1200
    assert table["qty"].to_pylist() == list(range(1200))
    assert counts == counted(rows)
    assert counts["extra"] == len(range(1 % every, 1200, every))


@EVERY_FORM
def test_random_fields_are_counted_with_values_of_many_types_among_bad_events(kind: EventFormat, wrap: Wrap) -> None:
    chance = random.Random(4)
    values: list[Any] = ["x", "", 'quo"te\\', 1, -2.5, True, None, [], [1, "a"], {}, {"id": "inner", "qty": {}}]
    good: list[dict[str, Any]] = []
    documents: list[object] = []
    for number in range(3000):
        row: dict[str, Any] = {"id": str(number), "qty": number}
        for name in ("a", "b", "c d", 'e"', "ž", "Qty"):
            if chance.random() < 0.2:
                row[name] = chance.choice(values)
        if chance.random() < 0.3:
            row["place"] = {"lat": 1.0, **({"alt": 5} if chance.random() < 0.2 else {})}
        if chance.random() < 0.02:
            documents.append(chance.choice([wrap({**row, "qty": "many"}), b"{", b'{"id":', wrap({**row, "id": None})]))
            continue
        good.append(row)
        documents.append(wrap(row))
    table, counts = decoded(kind, documents)
    assert table["_lsm_bad"].null_count == len(good)
    assert counts == counted(good)
    assert set(counts) == {"a", "b", "c d", 'e"', "ž", "Qty", "place.alt"}


@EVERY_FORM
def test_the_same_is_counted_one_document_at_a_time(kind: EventFormat, wrap: Wrap) -> None:
    rows = [{"id": str(n), "extra": n % 2 or None, "place": {"alt": 1}} for n in range(20)]
    _, counts = decoded(kind, map(wrap, rows), size=1)
    assert counts == {"extra": 10, "place.alt": 20}


def test_deletes_and_bad_events_do_not_count() -> None:
    flagged = {"id": "a", "extra": 1, "_hoodie_is_deleted": True}
    _, counts = decoded(
        EventFormat.JSON, [flagged, {"id": "b", "extra": 1, "qty": "bad"}, {"id": None, "extra": 1}] * 30
    )
    assert counts == {}
    deleted = {"before": {"id": "a", "extra": 1}, "after": None, "op": "d"}
    _, counts = decoded(EventFormat.DEBEZIUM, [deleted, {**change({"id": "a"}), "op": "t"}] * 30)
    assert counts == {}


def test_fields_that_only_the_row_before_has_do_not_count() -> None:
    full = {**change({"id": "a", "now": 1}), "before": {"id": "a", "qty": 1, "then": 1}}
    _, counts = decoded(EventFormat.DEBEZIUM, [full] * 50)
    assert counts == {"now": 50}


def test_a_field_that_is_new_in_a_later_batch_is_counted_from_there() -> None:
    rows = [{"id": str(n), **({"new": n} if n >= 1000 else {})} for n in range(2000)]
    _, counts = decoded(EventFormat.JSON, rows, size=250)
    assert counts == {"new": 1000}


def test_a_repeated_field_counts_once() -> None:
    documents = [b'{"id":"a","extra":1,"extra":2}', b'{"id":"a","other":{"x":1,"x":2}}', b'{"id":"b"}'] * 20
    _, counts = decoded(EventFormat.JSON, documents)
    assert counts == {"extra": 20, "other": 20}


def test_names_that_are_values_elsewhere_are_counted_up_to_a_limit() -> None:
    rows = [{"id": str(n), f"user-{n}": n} for n in range(MOST_NAMES + 500)]
    _, counts = decoded(EventFormat.JSON, rows, size=100)
    assert len(counts) == MOST_NAMES + 1
    assert counts[OTHER_FIELDS] == 500


def test_a_document_that_is_too_large_for_a_scan_counts_as_having_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming_lsm.decode.unknown_fields._LARGEST_SCANNED", 100)
    rows = [{"id": str(n), "x": n, "y": "y" * (100 * (n % 10 == 0))} for n in range(50)]
    mixed = [{**row, "x": "text"} if number % 3 else row for number, row in enumerate(rows)]
    _, counts = decoded(EventFormat.JSON, mixed, size=10)
    assert counts[OTHER_FIELDS] == 5
    assert counts["x"] == counts["y"] == 45


def test_a_document_that_is_too_large_for_a_scan_counts_also_without_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming_lsm.decode.unknown_fields._LARGEST_SCANNED", 100)
    large = {"id": "large" * 30, "qty": 1}
    _, counts = decoded(EventFormat.JSON, [*({"id": "a", "x": n if n % 2 else "text"} for n in range(40)), large])
    assert counts == {"x": 40, OTHER_FIELDS: 1}
    _, counts = decoded(EventFormat.JSON, [*({"id": "a", "x": n} for n in range(40)), large])
    assert counts == {"x": 40}


@EVERY_FORM
@pytest.mark.parametrize("place", [1, 110, 133, 151])
def test_a_new_field_is_counted_beside_documents_that_were_read_without_it(
    kind: EventFormat, wrap: Wrap, place: int
) -> None:
    rows = [{"id": str(n), "qty": n, **({"coupon": "A"} if n == place else {})} for n in range(200)]
    large = [{"id": "y" * 600_000, "qty": n} for n in range(8)]
    table, counts = decoded(kind, map(wrap, rows + large))
    assert table["_lsm_bad"].null_count == len(rows) + len(large)
    assert counts == {"coupon": 1}


@EVERY_FORM
@pytest.mark.parametrize("rate", [0.05, 0.4])
def test_a_new_field_is_counted_among_bad_documents(kind: EventFormat, wrap: Wrap, rate: float) -> None:
    chance = random.Random(1)
    for count in [200] * 10:
        documents: list[object] = [wrap({"id": str(n), "qty": n}) for n in range(count)]
        for place in range(count):
            if chance.random() < rate:
                documents[place] = chance.choice([b'{"id":', b'{"id":nul}', *(wrap({"id": 1, "qty": x}) for x in "ab")])
        documents[chance.randrange(count // 2)] = wrap({"id": "7", "qty": 7, "coupon": "A"})
        _, counts = decoded(kind, documents, size=count)
        assert counts == {"coupon": 1}


HOSTILE = {
    '"\\ud800x"': "\\ud800x",
    '"x\\udfff"': "x\\udfff",
    '"a\\nbatch 9: 5 events -> 5 rows"': "a\\nbatch 9: 5 events -> 5 rows",
    '"\\u0000\\u001b[2J\\u2028"': "\\x00\\x1b[2J\\u2028",
    '"' + "k" * 200_000 + '"': "k" * 100 + "… (200,000 characters)",
    '"' + "\\n" * 50_000 + '"': "\\n" * 100 + "… (50,000 characters)",
}


@EVERY_FORM
@pytest.mark.parametrize("before", [0, 41], ids=["sampled", "not-sampled"])
@pytest.mark.parametrize(("written", "name"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_a_name_that_is_no_text_or_too_long_is_counted_under_one_that_can_be_printed(
    kind: EventFormat, wrap: Wrap, before: int, written: str, name: str
) -> None:
    good = json.dumps(wrap({"id": "a"}), separators=(",", ":"))
    bad = json.dumps(wrap({"id": "a", "NAME": 1, "u": {"NAME": 2}}), separators=(",", ":")).replace('"NAME"', written)
    documents = [good.encode()] * before + [bad.encode()] + [good.encode()] * 50
    for size, sent in ((500, documents), (1, documents[: before + 6])):
        table, counts = decoded(kind, sent, size)
        assert table["_lsm_bad"].null_count == len(sent)
        assert counts == {name: 1, "u": 1}
    assert name.isprintable()


def test_a_printable_name_stays_as_it_is() -> None:
    for name in ("", "a b", "ž😀", 'e"\\', "x" * 100):
        assert shown_name(name) == name
    assert shown_name("x" * 101) == "x" * 100 + "… (101 characters)"


def test_each_field_is_warned_of_once_and_none_after_the_first_hundred(caplog: pytest.LogCaptureFixture) -> None:
    warnings = UnknownFieldWarnings()
    for counts in ({"a": 1}, {"a": 5, "b": 1}, {"a": 1}, {f"user-{n}": 1 for n in range(150)}, {"c": 1}):
        warnings.warn_of(counts)
    first, second, last = (record.getMessage() for record in caplog.records)
    assert "no column for them: a; " in first
    assert "no column for them: b; " in second
    assert "user-" in last
    assert last.endswith("no warning names further ones")


def test_counts_of_tasks_are_added_up_by_name() -> None:
    every = UnknownFields()
    for counts in ({"a": 2, "b": 0}, {"a": 1, "c": 4}):
        every.add(counts)
    assert every.counts == {"a": 3, "c": 4}


def test_the_counts_do_not_change_what_is_decoded() -> None:
    rows = [{"id": str(n), "qty": n, "extra": n} for n in range(100)]
    plain, _ = decoded(EventFormat.JSON, [{"id": row["id"], "qty": row["qty"]} for row in rows])
    other, _ = decoded(EventFormat.JSON, rows)
    assert other.equals(plain)
