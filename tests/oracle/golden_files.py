"""Golden tables about which files count, what they are called and what is in them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from .build import Layout, TableBuilder
from .golden import FIELDS, Expect, at, golden, rows

HEAD = "id name ts"


@golden(Layout([*FIELDS, ("country", "string")], partition=("country",), hive=True))
def hive_partitions(table: TableBuilder) -> Expect:
    """Two hive-style partitions; the same key in both is two records."""
    head = "id name ts country"
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(head, ("a", "a1", 1, "NL"), ("b", "b1", 1, "NL"), ("a", "a1", 1, "DE")))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(head, ("a", "a2", 2, "NL"), ("c", "c2", 2, "DE")))
        write.deletes(rows("id ts country", ("b", 2, "NL")))
    german = rows(head, ("a", "a1", 1, "DE"), ("c", "c2", 2, "DE"))
    return Expect(german + rows(head, ("a", "a2", 2, "NL")))


@golden(Layout([*FIELDS, ("part", ["null", "string"])], partition=("part",), urlencode=True, buckets=1))
def partition_text(table: TableBuilder) -> Expect:
    """Partition folders: escaped characters, null and empty values, spaces, text beyond ASCII."""
    head = "id name ts part"
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(
            rows(
                head,
                ("a", "escaped", 1, "x/y=[1]*?%"),
                ("b", "space", 1, "new york"),
                ("c", "wide", 1, "東京"),
                ("d", "null", 1, None),
            )
        )
    return Expect(
        rows(
            head,
            ("d", "null", 1, None),
            ("b", "space", 1, "new york"),
            ("a", "escaped", 1, "x/y=[1]*?%"),
            ("c", "wide", 1, "東京"),
        )
    )


@golden(Layout([*FIELDS, ("part", "string")], partition=("part",), buckets=1))
def partition_glob(table: TableBuilder) -> Expect:
    """Folder names that look like globs are names."""
    head = "id name ts part"
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(head, ("a", "x", 1, "p[12]"), ("a", "y", 1, "p1"), ("a", "z", 1, "p2"), ("a", "w", 1, "'q'")))
    return Expect(rows(head, ("a", "w", 1, "'q'"), ("a", "y", 1, "p1"), ("a", "z", 1, "p2"), ("a", "x", 1, "p[12]")))


@golden(Layout([*FIELDS, ("year", "int"), ("country", "string")], partition=("year", "country"), hive=True, buckets=3))
def two_partition_columns(table: TableBuilder) -> Expect:
    """Two partition columns give nested folders; the complex generator writes keys as id:value."""
    head = "id name ts year country"
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(head, ("a", "a1", 1, 2025, "NL"), ("b,c", "b1", 1, 2025, "NL"), ("a", "a1", 1, 2026, "NL")))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(head, ("b,c", "b2", 2, 2025, "NL")))
    return Expect(rows(head, ("a", "a1", 1, 2025, "NL"), ("b,c", "b2", 2, 2025, "NL"), ("a", "a1", 1, 2026, "NL")))


@golden(Layout(FIELDS, buckets=1))
def compacted(table: TableBuilder) -> Expect:
    """Logs, a FULL compaction, logs after it; the covered logs are still there and do not count."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 10), ("b", "b1", 10), ("c", "c1", 10)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(HEAD, ("a", "a2", 11)))
        write.deletes(rows("id ts", ("b", 20)))
    with table.compaction(at(3), at(3, 500)) as write:
        kept = rows(HEAD, ("a", "a2", 11), ("c", "c1", 10))
        write.base([kept[0] | {"_hoodie_commit_time": at(2)}, kept[1] | {"_hoodie_commit_time": at(1)}])
    with table.deltacommit(at(4), at(4, 500)) as write:
        write.log(rows(HEAD, ("b", "its delete was dropped", 15), ("c", "c4", 10)))
    before = rows(HEAD, ("a", "a2", 11), ("c", "c1", 10))
    after = rows(HEAD, ("a", "a2", 11), ("b", "its delete was dropped", 15), ("c", "c4", 10))
    return Expect(after, {at(2): before, at(3): before, at(3, 499): before, at(4): after})


@golden(Layout(FIELDS, buckets=1))
def empty_base(table: TableBuilder) -> Expect:
    """A compaction that deletes every row leaves a base file without rows."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 10)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.deletes(rows("id ts", ("a", 11)))
    with table.compaction(at(3), at(3, 500)) as write:
        write.empty_base("", 0)
    return Expect([], {at(1): rows(HEAD, ("a", "a1", 10)), at(3): []})


@golden(Layout(FIELDS, ordering=(), mode="COMMIT_TIME_ORDERING", buckets=1))
def completion_order(table: TableBuilder) -> Expect:
    """A log that was requested before a base file and completed after it belongs on top of that base file."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 1), ("b", "b1", 1), ("c", "c1", 1)))
    with table.deltacommit(at(2), at(9)) as write:
        write.log(rows(HEAD, ("a", "long running", 1)))
        write.deletes(rows("id", ("b",)))
    with table.deltacommit(at(3), at(3, 500)) as write:
        write.log(rows(HEAD, ("a", "a3", 1), ("b", "b3", 1)))
    with table.compaction(at(4), at(4, 500)) as write:
        done = rows(HEAD, ("a", "a3", 1), ("b", "b3", 1), ("c", "c1", 1))
        write.base([row | {"_hoodie_commit_time": time} for row, time in zip(done, (at(3), at(3), at(1)), strict=True)])
    with table.deltacommit(at(5), at(5, 500)) as write:
        write.log(rows(HEAD, ("c", "c5", 1)))
    three = rows(HEAD, ("a", "a3", 1), ("b", "b3", 1), ("c", "c1", 1))
    end = rows(HEAD, ("a", "long running", 1), ("c", "c5", 1))
    five = rows(HEAD, ("a", "a3", 1), ("b", "b3", 1), ("c", "c5", 1))
    two = rows(HEAD, ("a", "long running", 1), ("c", "c1", 1))
    return Expect(end, {at(2): two, at(4): [three[0] | {"name": "long running"}, three[2]], at(6): five, at(9): end})


@golden(Layout(FIELDS, ordering=(), mode="COMMIT_TIME_ORDERING", buckets=1))
def requested_order(table: TableBuilder) -> Expect:
    """Within a slice logs merge by requested time, whatever order they completed in."""
    with table.deltacommit(at(1), at(5)) as write:
        write.log(rows(HEAD, ("a", "requested first", 1), ("b", "b1", 1)))
    with table.deltacommit(at(2), at(3)) as write:
        write.log(rows(HEAD, ("a", "requested last", 1)))
    last = rows(HEAD, ("a", "requested last", 1))
    return Expect(last + rows(HEAD, ("b", "b1", 1)), {at(3): last, at(4): last})


@golden(Layout(FIELDS, buckets=1))
def pending_write(table: TableBuilder) -> Expect:
    """The files of a pending deltacommit and of a pending compaction are not read."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 10)))
    with table.compaction(at(2), None) as write:
        write.base(rows("id name ts _hoodie_commit_time", ("a", "a1", 10, at(1))))
    with table.deltacommit(at(3), None) as write:
        write.log(rows(HEAD, ("a", "not yet", 99), ("b", "not yet", 99)))
        write.deletes(rows("id ts", ("a", 100)))
    return Expect(rows(HEAD, ("a", "a1", 10)), {at(3): rows(HEAD, ("a", "a1", 10))})


@golden(Layout(FIELDS, buckets=1))
def rolled_back_leftover(table: TableBuilder) -> Expect:
    """A log of a rolled back instant was left behind: readers pass over it, the validator does not."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 10)))
    with table.abandoned(at(2)) as write:
        write.log(rows(HEAD, ("a", "dead", 99)))
    table.rollback(at(3), at(3, 500), target=at(2))
    with table.deltacommit(at(4), at(4, 500)) as write:
        write.log(rows(HEAD, ("b", "b4", 1)))
    return Expect(rows(HEAD, ("a", "a1", 10), ("b", "b4", 1)), violations=("leftover.instant",))


@golden(Layout(FIELDS, ordering=(), mode="COMMIT_TIME_ORDERING", buckets=1))
def log_versions(table: TableBuilder) -> Expect:
    """Several flushes of one write: by version as a number, and the delete of a flush after its data."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        for version in range(1, 11):
            write.log(rows(HEAD, ("a", f"v{version}", 1), (f"k{version:02d}", "x", 1)), version)
        write.deletes(rows("id", ("k09",), ("k10",)), 9)
    kept = [row for number in range(1, 11) if number != 9 for row in rows(HEAD, (f"k{number:02d}", "x", 1))]
    return Expect(rows(HEAD, ("a", "v10", 1)) + kept)


@golden(Layout(FIELDS, ordering=(), mode="COMMIT_TIME_ORDERING", buckets=1))
def log_compaction(table: TableBuilder) -> Expect:
    """A log compaction stands at the newest instant that it covers; an uncovered log after that one merges on top."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 1), ("b", "b1", 1), ("c", "c1", 1)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(HEAD, ("b", "b2", 1)))
        write.deletes(rows("id", ("c",)))
    with table.deltacommit(at(3), at(6)) as write:
        write.log(rows(HEAD, ("a", "long running", 1), ("c", "c3", 1)))
    with table.logcompaction(at(4), at(4, 500), covers=[at(1), at(2)]) as write:
        a, b = rows(HEAD, ("a", "a1", 1), ("b", "b2", 1))
        write.log([a | {"_hoodie_commit_time": at(1)}, b | {"_hoodie_commit_time": at(2)}])
        write.deletes(rows("id", ("c",)))
    two = rows(HEAD, ("a", "a1", 1), ("b", "b2", 1))
    end = rows(HEAD, ("a", "long running", 1), ("b", "b2", 1), ("c", "c3", 1))
    return Expect(end, {at(2): two, at(4, 500): two, at(5): two, at(6): end})


@golden(Layout(FIELDS, buckets=1))
def log_compaction_chain(table: TableBuilder) -> Expect:
    """A log compaction takes an earlier one in; a delete before the row that survives it has the smaller version."""
    with table.deltacommit(at(1), at(1, 500), "BULK_INSERT") as write:
        write.base(rows(HEAD, ("a", "base", 50), ("b", "base", 50), ("c", "base", 50)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.deletes(rows("id ts", ("a", None), ("b", 60)))
    with table.deltacommit(at(3), at(3, 500)) as write:
        write.log(rows(HEAD, ("a", "a3", 7), ("b", "too old", 55)))
    with table.logcompaction(at(4), at(4, 500), covers=[at(2), at(3)]) as write:
        write.deletes(rows("id ts", ("a", None), ("b", 60)), version=1)
        write.log(rows("id name ts _hoodie_commit_time", ("a", "a3", 7, at(3))), version=2)
    with table.deltacommit(at(5), at(5, 500)) as write:
        write.log(rows(HEAD, ("a", "too old", 6), ("c", "c5", 51)))
    with table.logcompaction(at(6), at(6, 500), covers=[at(4), at(5)]) as write:
        write.deletes(rows("id ts", ("a", None), ("b", 60)), version=1)
        last = rows("id name ts _hoodie_commit_time", ("a", "a3", 7, at(3)), ("c", "c5", 51, at(5)))
        write.log(last, version=2)
    four = rows(HEAD, ("a", "a3", 7), ("c", "base", 50))
    end = rows(HEAD, ("a", "a3", 7), ("c", "c5", 51))
    return Expect(end, {at(3): four, at(4): four, at(5): end, at(6): end})


@golden(Layout(FIELDS, ordering=(), mode="COMMIT_TIME_ORDERING", buckets=1))
def log_compaction_of_log_compaction(table: TableBuilder) -> Expect:
    """Chains are resolved to the instants at their end: the second log compaction, too, stands before the late log."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 1), ("b", "b1", 1)))
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(HEAD, ("b", "b2", 1)))
    with table.deltacommit(at(3), at(7)) as write:
        write.log(rows(HEAD, ("a", "long running", 1)))
    a, b = rows("id name ts _hoodie_commit_time", ("a", "a1", 1, at(1)), ("b", "b2", 1, at(2)))
    with table.logcompaction(at(4), at(4, 500), covers=[at(1), at(2)]) as write:
        write.log([a, b])
    with table.logcompaction(at(5), at(5, 500), covers=[at(4)]) as write:
        write.log([a, b])
    before = rows(HEAD, ("a", "a1", 1), ("b", "b2", 1))
    return Expect(
        rows(HEAD, ("a", "long running", 1), ("b", "b2", 1)), {at(2): before, at(4, 500): before, at(6): before}
    )


KEYS = [("tenant", ["null", "string"]), ("seq", ["null", "string"]), ("name", ["null", "string"]), ("ts", "long")]


@golden(Layout(KEYS, key=("tenant", "seq"), buckets=4))
def composite_keys(table: TableBuilder) -> Expect:
    """Keys of two fields, with nulls, empty texts, commas and colons inside."""
    head = "tenant seq name ts"
    first = rows(
        head,
        (None, "1", "null", 1),
        ("", "1", "empty", 1),
        ("a,b:c", "x:1,y:2", "separators", 1),
        ("t", "1", "one", 1),
        ("t", "10", "ten", 1),
        ("t", "2", "two", 1),
        ("東京", "5", "wide", 1),
        ("\U0001f600", "5", "emoji", 1),
    )
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(first)
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows(head, ("t", "10", "ten again", 2)))
        write.deletes(rows("tenant seq ts", (None, "1", 1), ("a,b:c", "x:1,y:2", 0)))
    second = rows(head, ("t", "10", "ten again", 2))[0]
    # In the order of the key texts: __empty__, __null__ (deleted), a,b:c, then t with 1, 10 and 2, 東京, the emoji.
    end = [first[1], first[2], first[3], second, first[5], first[6], first[7]]
    return Expect(end)


@golden(Layout(KEYS, key=("tenant", "seq"), hash_fields=("seq",), buckets=4))
def hash_field(table: TableBuilder) -> Expect:
    """Buckets by one of two key fields."""
    data = rows("tenant seq name ts", *((f"t{n % 3}", f"{n}", "x", n) for n in range(9)))
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(data)
    return Expect(sorted(data, key=lambda row: f"tenant:{row['tenant']},seq:{row['seq']}"))


DECIMAL = {"type": "fixed", "name": "amount_fixed", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 4}
STRUCT = {
    "type": "record",
    "name": "place_record",
    "fields": [
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "zip", "type": ["null", "int"], "default": None},
    ],
}
TYPES = [
    ("id", "int"),
    ("ts", {"type": "long", "logicalType": "timestamp-micros"}),
    ("f_int", ["null", "int"]),
    ("f_long", ["null", "long"]),
    ("f_float", ["null", "float"]),
    ("f_double", ["null", "double"]),
    ("f_decimal", ["null", DECIMAL]),
    ("f_small", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]),
    ("f_string", ["null", "string"]),
    ("f_binary", ["null", "bytes"]),
    ("f_boolean", ["null", "boolean"]),
    ("f_date", ["null", {"type": "int", "logicalType": "date"}]),
    ("f_ts", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    ("f_ntz", ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]),
    ("f_list", ["null", {"type": "array", "items": ["null", "int"]}]),
    ("f_map", ["null", {"type": "map", "values": ["null", "double"]}]),
    ("f_struct", ["null", STRUCT]),
]


@golden(Layout(TYPES, buckets=2))
def all_types(table: TableBuilder) -> Expect:
    """Every column type, extreme values, and a row of nulls; integer keys sort as text; ordering by a timestamp."""
    head = [name for name, _ in TYPES]
    noon = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
    old = datetime(1960, 2, 29, 23, 59, 59, 999999, tzinfo=UTC)
    full = (
        2,
        noon,
        -(2**31),
        2**63 - 1,
        0.5,
        1e300,
        Decimal("-1234567890123456.7890"),
        Decimal("9999999.99"),
        "tab\tand 東京 \U0001f600",
        b"\x00\xff\x80",
        True,
        date(1969, 12, 31),
        old,
        datetime(2026, 3, 29, 2, 30, 0, 1),
        [1, None, 3],
        [("k", 1.5), ("null", None)],
        {"city": "Utrecht", "zip": None},
    )
    small = (
        10,
        old,
        0,
        -1,
        -0.25,
        0.1,
        Decimal("0.0001"),
        Decimal("0.00"),
        "",
        b"",
        False,
        date(9999, 12, 31),
        noon,
        datetime(1, 1, 1),
        [],
        [],
        {"city": "", "zip": 0},
    )
    nulls = (3, noon, *([None] * (len(head) - 2)))
    with table.deltacommit(at(1), at(1, 500), "BULK_INSERT") as write:
        write.base(rows(head, full, nulls, small))
    with table.deltacommit(at(2), at(2, 500)) as write:
        later = rows(head, (2, old, *nulls[2:]), (3, noon, *full[2:]))
        write.log(later)
        write.deletes(rows("id ts", (10, datetime(1960, 2, 29, 23, 59, 59, 999998, tzinfo=UTC))))
    # Keys are texts: "10" < "2" < "3".
    return Expect(rows(head, small, full) + later[1:], {at(1): rows(head, small, full, nulls)})


@golden(Layout([("id", "string"), ("qty", ["null", "int"]), ("ts", "long")], buckets=1))
def evolved(table: TableBuilder) -> Expect:
    """A column is added and another promoted from int to long; older files are read in the newest schema."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows("id qty ts", ("a", 1, 1), ("b", 2, 1)))
    table.fields = [("id", "string"), ("qty", ["null", "long"]), ("ts", "long"), ("note", ["null", "string"])]
    with table.deltacommit(at(2), at(2, 500)) as write:
        write.log(rows("id qty ts note", ("b", 2**40, 2, "big")))
    return Expect(
        rows("id qty ts note", ("a", 1, 1, None), ("b", 2**40, 2, "big")),
        {at(1): rows("id qty ts", ("a", 1, 1), ("b", 2, 1))},
    )


@golden(Layout(FIELDS, ordering=(), mode="COMMIT_TIME_ORDERING", buckets=1))
def archived(table: TableBuilder) -> Expect:
    """Two writes are in the history only; one of them completed after the base file's instant."""
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(HEAD, ("a", "a1", 1), ("b", "b1", 1)))
    with table.deltacommit(at(2), at(5)) as write:
        write.log(rows(HEAD, ("b", "long running", 1)))
    with table.compaction(at(3), at(4)) as write:
        kept = rows("id name ts _hoodie_commit_time", ("a", "a1", 1, at(1)), ("b", "b1", 1, at(1)))
        write.base(kept)
    with table.deltacommit(at(6), at(6, 500)) as write:
        write.log(rows(HEAD, ("c", "c6", 1)))
    table.archive([at(1), at(2), at(3)])
    five = rows(HEAD, ("a", "a1", 1), ("b", "long running", 1))
    return Expect(five + rows(HEAD, ("c", "c6", 1)), {at(5): five, at(6): five + rows(HEAD, ("c", "c6", 1))})


@golden(Layout([*FIELDS, ("country", "string")], partition=("country",), buckets=1))
def replaced_groups(table: TableBuilder) -> Expect:
    """An insert overwrite replaces the file group of one partition."""
    head = "id name ts country"
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log(rows(head, ("a", "a1", 1, "DE"), ("a", "a1", 1, "NL"), ("b", "b1", 1, "NL")))
    with table.replacecommit(at(2), at(2, 500), {"NL": [table.file_id("NL", 0)]}) as write:
        write.base(rows(head, ("c", "c2", 1, "NL")))
    german = rows(head, ("a", "a1", 1, "DE"))
    before = german + rows(head, ("a", "a1", 1, "NL"), ("b", "b1", 1, "NL"))
    return Expect(german + rows(head, ("c", "c2", 1, "NL")), {at(1): before, at(2, 499): before})
