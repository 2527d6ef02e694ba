"""Golden tables about which row wins."""

from __future__ import annotations

from datetime import date
from typing import Any

from .build import Layout, TableBuilder
from .golden import FIELDS, Expect, at, golden, rows

HEAD = "id name ts"


@golden(Layout(FIELDS))
def log_only(table: TableBuilder) -> Expect:
    """Two deltacommits of logs, no base file."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 10), ("b", "b1", 10), ("c", "c1", 10)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(HEAD, ("b", "b2", 11), ("c", "late", 9), ("d", "d2", 5)))
    first = rows(HEAD, ("a", "a1", 10), ("b", "b1", 10), ("c", "c1", 10))
    both = rows(HEAD, ("a", "a1", 10), ("b", "b2", 11), ("c", "c1", 10), ("d", "d2", 5))
    return Expect(
        both,
        {
            at(1): first,
            at(1, 499): [],
            at(1, 500): first,
            at(2): both,
            at(2, 1): first,
            at(2, 499): first,
            at(2, 500): both,
            "2026-11-20T10:00:02.499": first,
            "2026-11-20 10:00:02.500": both,
            "2026-11-20 10:00:03": both,
            "2026-11-20": [],
            "2026-11-20T11:00:02.499+01:00": first,
        },
    )


@golden(Layout(FIELDS))
def base_and_logs(table: TableBuilder) -> Expect:
    """Base files of a bulk insert, updated by logs; ties go to the later source."""
    with table.deltacommit(at(1), at(1, 500), "BULK_INSERT") as write:
        write.base(rows(HEAD, ("a", "a1", 10), ("b", "b1", 10), ("c", "c1", 10), ("e", "e1", 10)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(HEAD, ("a", "tie", 10), ("b", "late", 9), ("d", "d2", 1)))
    with table.deltacommit(at(3), at(3, 500)) as write:
        write.log(rows(HEAD, ("b", None, 12), ("d", "d3", 1)))
        write.deletes(rows("id ts", ("e", 10)))
    base = rows(HEAD, ("a", "a1", 10), ("b", "b1", 10), ("c", "c1", 10), ("e", "e1", 10))
    middle = rows(HEAD, ("a", "tie", 10), ("b", "b1", 10), ("c", "c1", 10), ("d", "d2", 1), ("e", "e1", 10))
    end = rows(HEAD, ("a", "tie", 10), ("b", None, 12), ("c", "c1", 10), ("d", "d3", 1))
    return Expect(end, {at(1): base, at(2): middle, at(3): end})


@golden(Layout(FIELDS, buckets=1))
def deletes_event_time(table: TableBuilder) -> Expect:
    """Deletes with a larger, equal and smaller ordering value, and with none; rows that come after them."""
    keys = ("equal", "larger", "none", "none_back", "none_base", "old_after", "smaller")
    with table.deltacommit(at(1), at(1, 500), "BULK_INSERT") as write:
        write.base(rows(HEAD, *((key, "base", 10) for key in keys)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        with_value = (("equal", 10), ("larger", 11), ("old_after", 20), ("smaller", 9), ("stranger", 7))
        without = (("none", None), ("none_back", None), ("none_base", None))
        write.deletes(rows("id ts", *with_value, *without))
    with table.deltacommit(at(3), at(3, 500)) as write:
        write.log(rows(HEAD, ("none_back", "older value", 1), ("old_after", "too old", 15), ("stranger", "older", 6)))
    with table.deltacommit(at(4), at(4, 500)) as write:
        write.log(rows(HEAD, ("none_base", "same flush", 99)))
        write.deletes(rows("id ts", ("none_base", None)))
    after_two = rows(HEAD, ("smaller", "base", 10))
    return Expect(
        rows(HEAD, ("none_back", "older value", 1), ("smaller", "base", 10)),
        {at(2): after_two, at(3): rows(HEAD, ("none_back", "older value", 1), ("smaller", "base", 10))},
    )


@golden(Layout(FIELDS, ordering=(), mode="COMMIT_TIME_ORDERING"))
def commit_time(table: TableBuilder) -> Expect:
    """COMMIT_TIME_ORDERING: the last source wins whatever ts says; a delete is the key alone."""
    with table.deltacommit(at(1), at(1, 500), "BULK_INSERT") as write:
        write.base(rows(HEAD, ("a", "a1", 100), ("b", "b1", 100), ("c", "c1", 100)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(HEAD, ("a", "a2", 1), ("d", "d2", 9)))
        write.deletes(rows("id", ("b",), ("d",)))
    with table.deltacommit(at(3), at(3, 500)) as write:
        write.log(rows(HEAD, ("b", "back", 0)))
    return Expect(
        rows(HEAD, ("a", "a2", 1), ("b", "back", 0), ("c", "c1", 100)),
        {at(2): rows(HEAD, ("a", "a2", 1), ("c", "c1", 100))},
    )


@golden(Layout(FIELDS, buckets=1, mode="COMMIT_TIME_ORDERING"))
def commit_time_with_ordering_field(table: TableBuilder) -> Expect:
    """COMMIT_TIME_ORDERING ignores ordering fields that are set; its delete logs hold the key only.

    See docs/format/10-rules.md, "Rule 20".
    """
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 100), ("b", "b1", 100)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(HEAD, ("a", "a2", 1)))
        write.deletes(rows("id", ("b",)))
    return Expect(rows(HEAD, ("a", "a2", 1)), {at(1): rows(HEAD, ("a", "a1", 100), ("b", "b1", 100))})


@golden(Layout([*FIELDS, ("_hoodie_is_deleted", ["null", "boolean"])], buckets=1))
def deleted_flag(table: TableBuilder) -> Expect:
    """Rows with _hoodie_is_deleted in data logs keep their ordering value."""
    head = "id name ts _hoodie_is_deleted"
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(head, ("a", "a1", 10, False), ("b", "b1", 10, None), ("c", "c1", 10, None)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(head, ("a", None, 10, True), ("b", None, 9, True), ("c", None, 50, True), ("d", None, 1, True)))
    with table.deltacommit(at(3), at(3, 500)) as write:
        write.log(rows(head, ("c", "older than its delete", 49, False), ("d", "d3", 1, False)))
    return Expect(rows(head, ("b", "b1", 10, None), ("d", "d3", 1, False)))


MARKED = {
    "hoodie.record.merge.property.hoodie.payload.delete.field": "op",
    "hoodie.record.merge.property.hoodie.payload.delete.marker": "d",
}


@golden(Layout([*FIELDS, ("op", ["null", "string"])], buckets=1, extra=MARKED))
def delete_marker(table: TableBuilder) -> Expect:
    """The delete marker column says which rows are deletes."""
    head = "id name ts op"
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(head, ("a", "a1", 10, "c"), ("b", "b1", 10, "c"), ("c", "c1", 10, None)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(head, ("a", None, 11, "d"), ("b", None, 9, "d"), ("c", "c2", 11, "D")))
    return Expect(rows(head, ("b", "b1", 10, "c"), ("c", "c2", 11, "D")))


@golden(Layout(FIELDS, buckets=1, operation_column=True))
def operation_column(table: TableBuilder) -> Expect:
    """_hoodie_operation D and -U are deletes, I and +U are not."""
    head = "id name ts _hoodie_operation"
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(head, ("a", "a1", 10, "I"), ("b", "b1", 10, "I"), ("c", "c1", 10, "I"), ("d", "d1", 10, "I")))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(head, ("a", "a1", 11, "D"), ("b", "b1", 11, "-U"), ("c", "c2", 11, "+U"), ("d", "d1", 9, "D")))
    return Expect(rows(HEAD, ("c", "c2", 11), ("d", "d1", 10)))


@golden(Layout(FIELDS, buckets=1))
def repeated_keys(table: TableBuilder) -> Expect:
    """Equal keys within one sorted log file are folded in file order, and again with what is older."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "first", 10), ("a", "largest", 12), ("a", "last", 11), ("b", "x", 5), ("b", "y", 5)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(HEAD, ("a", "p", 12), ("a", "q", 12), ("c", "one", 1), ("c", "two", 1)))
        write.deletes(rows("id ts", ("b", 4), ("b", 5), ("b", 3), ("c", 0)))
    first = rows(HEAD, ("a", "largest", 12), ("b", "y", 5))
    return Expect(rows(HEAD, ("a", "q", 12), ("c", "two", 1)), {at(1): first})


@golden(Layout([*FIELDS, ("_hoodie_is_deleted", ["null", "boolean"])], buckets=1))
def base_equal_keys(table: TableBuilder) -> Expect:
    """Equal keys in one base file are folded; a flag counts only where a log row meets the key.

    See docs/format/10-rules.md, "Rule 11".
    """
    head = "id name ts _hoodie_is_deleted"
    with table.deltacommit(at(1), at(1, 500), "BULK_INSERT") as write:
        write.base(
            rows(
                head,
                ("a", "small", 3, None),
                ("a", "large", 8, None),
                ("a", "middle", 5, None),
                ("b", "flagged, alone", 4, True),
                ("c", "flagged, met", 4, True),
                ("d", "row", 4, None),
                ("d", "flagged, larger", 6, True),
                ("e", "first", 2, None),
                ("e", "second", 2, None),
            )
        )
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(head, ("c", "too old", 3, None), ("e", "too old", 1, None)))
    kept = rows(head, ("a", "large", 8, None), ("b", "flagged, alone", 4, True))
    flagged = rows(head, ("d", "flagged, larger", 6, True))
    second = rows(head, ("e", "second", 2, None))
    return Expect(
        kept + flagged + second, {at(1): kept + rows(head, ("c", "flagged, met", 4, True)) + flagged + second}
    )


@golden(Layout([("id", "string"), ("name", ["null", "string"]), ("ts", "int")], buckets=1))
def int_ordering(table: TableBuilder) -> Expect:
    """In an INT ordering column a delete with the value 0 orders by commit time (docs/format/10-rules.md, "Rule 5")."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 10), ("b", "b1", 10), ("c", "c1", -5)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.deletes(rows("id ts", ("a", 0), ("b", 1), ("c", 0)))
    with table.deltacommit(at(3), at(3, 500)) as write:
        write.log(rows(HEAD, ("c", "anything newer", -9)))
    return Expect(rows(HEAD, ("b", "b1", 10), ("c", "anything newer", -9)), {at(2): rows(HEAD, ("b", "b1", 10))})


@golden(Layout(FIELDS, buckets=1))
def long_ordering_zero(table: TableBuilder) -> Expect:
    """In a LONG ordering column 0 is a value like any other."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 10), ("b", "b1", -1), ("c", "c1", 0)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.deletes(rows("id ts", ("a", 0), ("b", 0), ("c", 0)))
    with table.deltacommit(at(3), at(3, 500)) as write:
        write.log(rows(HEAD, ("b", "older than its delete", -1)))
    return Expect(rows(HEAD, ("a", "a1", 10)))


@golden(Layout([("id", "string"), ("name", ["null", "string"]), ("ts", ["null", "long"])], buckets=1))
def null_ordering(table: TableBuilder) -> Expect:
    """A null ordering value in a data row of a numeric column reads as 0."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "null", None), ("b", "minus", -1), ("c", "one", 1)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(HEAD, ("a", "minus", -1), ("b", "null", None), ("c", "null", None)))
    return Expect(rows(HEAD, ("a", "null", None), ("b", "null", None), ("c", "one", 1)))


@golden(
    Layout([("id", "string"), ("name", ["null", "string"]), ("ver", ["null", "string"])], ordering=["ver"], buckets=1)
)
def string_ordering(table: TableBuilder) -> Expect:
    """String ordering values compare by UTF-8 bytes; null in a data row is lower than all.

    See docs/format/10-rules.md, "Rule 12".
    """
    head = "id name ver"
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(
            rows(head, ("a", "nine", "9"), ("b", "plane two", "\U00020000"), ("c", "null", None), ("d", "empty", ""))
        )
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(head, ("a", "ten", "10"), ("b", "private", "\ue000"), ("c", "empty", ""), ("d", "null", None)))
    return Expect(
        rows(head, ("a", "nine", "9"), ("b", "plane two", "\U00020000"), ("c", "empty", ""), ("d", "empty", ""))
    )


TWO = [("id", "string"), ("name", ["null", "string"]), ("day", ["null", {"type": "int", "logicalType": "date"}])]


@golden(Layout([*TWO, ("seq", ["null", "int"])], ordering=("day", "seq"), buckets=1))
def two_ordering_fields(table: TableBuilder) -> Expect:
    """Two ordering fields compare as a tuple; a delete with all null orders by commit time, (day, 0) no.

    See docs/format/10-rules.md, "Rule 6".
    """
    one, two = date(2026, 1, 1), date(2026, 1, 2)
    head = "id name day seq"
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(
            rows(
                head,
                *((key, "old", one, 5) for key in ("bigger_day", "deleted", "kept", "none", "smaller_seq", "zero")),
            )
        )
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(head, ("bigger_day", "new", two, 1), ("smaller_seq", "new", one, 4)))
        write.deletes(rows("id day seq", ("deleted", one, 5), ("kept", one, 4), ("none", None, None), ("zero", one, 0)))
    with table.deltacommit(at(3), at(3, 500)) as write:
        write.log(rows(head, ("none", "back", date(1969, 1, 1), -1), ("deleted", "too old", one, 4)))
    return Expect(
        rows(
            head,
            ("bigger_day", "new", two, 1),
            ("kept", "old", one, 5),
            ("none", "back", date(1969, 1, 1), -1),
            ("smaller_seq", "old", one, 5),
            ("zero", "old", one, 5),
        )
    )


@golden(Layout(FIELDS, buckets=1))
def unicode_keys(table: TableBuilder) -> Expect:
    """U+E000 sorts before U+20000 by UTF-8 bytes (after it by UTF-16); the same order in base and logs."""
    keys = [
        "",
        "\x00",
        "a",
        "a\x00",
        "aa",
        "é",
        "東京",
        "\ud7ff",
        "\ue000",
        "\ufffd",
        "\U00010000",
        "\U00020000",
        "\U0010ffff",
    ]
    keys = sorted((f"k{key}" for key in keys), key=lambda key: key.encode("utf-8"))
    with table.deltacommit(at(1), at(1, 500), "BULK_INSERT") as write:
        write.base(rows(HEAD, *((key, "base", 1) for key in keys)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(HEAD, ("k\ue000", "log", 2), ("k\U00020000", "log", 2), ("k\U00010000", "late", 0)))
        write.deletes(rows("id ts", ("k\ufffd", 2), ("k\U0010ffff", 0)))
    end: list[dict[str, Any]] = []
    for key in keys:
        if key != "k\ufffd":
            name, ts = ("log", 2) if key in ("k\ue000", "k\U00020000") else ("base", 1)
            end += rows(HEAD, (key, name, ts))
    return Expect(end)
