"""One change of columns after the other, by either writer: both readers show the rows of a model after each of them.

The model is a dictionary of rows by key. Each step states by hand what becomes of the values that are there.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines

Row = dict[str, Any]
Convert = Callable[[Any], Any]
D = decimal.Decimal


@dataclass(frozen=True)
class Step:
    """A change of the columns, made by a batch.

    Attributes:
        name: of the step.
        batch: the columns of the batch, in their order, less `id` and `ts`, which come first.
        values: of the batch, one row after the other.
        table: the columns of the table after it, where they differ from those of the batch.
        changed: what becomes of the values that were there; a column that is not named keeps them, or has nulls.
    """

    name: str
    batch: pa.Schema
    values: Sequence[tuple[Any, ...]]
    table: pa.Schema | None = None
    changed: Mapping[str, Convert] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return with_keys(self.table or self.batch)


def with_keys(schema: pa.Schema) -> pa.Schema:
    return pa.schema([("id", pa.string()), ("ts", pa.int64()), *schema])


def _inner(**kinds: pa.DataType) -> pa.StructType:
    return pa.struct(list(kinds.items()))


INT, LONG, FLOAT, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()
ONE, TWO = _inner(a=INT, b=TEXT), _inner(a=INT, b=TEXT, c=TEXT)
TWO_MIDDLE, WIDE = _inner(a=INT, c=TEXT, b=TEXT), _inner(a=LONG, b=TEXT, c=TEXT)


def _shape(*columns: tuple[str, Any]) -> pa.Schema:
    return pa.schema(list(columns))


def _more(value: Any) -> Any:
    """Add the field `c` to a struct, to the structs of a list, or to those of a map."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {**value, "c": None}
    if value and isinstance(value[0], tuple):
        return [(key, _more(inner)) for key, inner in value]
    return [_more(inner) for inner in value]


X, ST, LI, MA = ("x", INT), ("st", ONE), ("li", pa.list_(ONE)), ("ma", pa.map_(TEXT, ONE))
ST2, LI2, MA2 = ("st", TWO), ("li", pa.list_(TWO)), ("ma", pa.map_(TEXT, TWO))
ST3, LI3, MA3 = ("st", WIDE), ("li", pa.list_(WIDE)), ("ma", pa.map_(TEXT, WIDE))
END, MID = ("end", TEXT), ("mid", LONG)
A, AC, AW = {"a": 1, "b": "p"}, {"a": 2, "b": "q", "c": "r"}, {"a": 2**40, "b": None, "c": "s"}
OLD = (1, A, [A, None], [("k", A), ("l", None)])
NONE = (None, None, None, None)

SHAPES = [
    Step("first", _shape(X, ST, LI, MA), [OLD, NONE, (3, {"a": None, "b": None}, [], [])]),
    Step("column added at the end", _shape(X, ST, LI, MA, END), [(*OLD, "e"), (*NONE, None)]),
    Step(
        "column added between others",
        _shape(MID, X, ST, LI, MA, END),
        [(2**40, *OLD, "e"), (None, *NONE, "f")],
        _shape(X, ST, LI, MA, END, MID),
    ),
    Step(
        "columns in another order",
        _shape(END, MA, MID, LI, ST, X),
        [("e", [("k", A)], 7, [A], A, 8), (None,) * 6],
        _shape(X, ST, LI, MA, END, MID),
    ),
    Step(
        "field added to a struct, before another one",
        _shape(X, ("st", TWO_MIDDLE), LI, MA, END, MID),
        [(4, AC, [A], [("k", A)], "e", 1), (None,) * 6],
        _shape(X, ST2, LI, MA, END, MID),
        {"st": _more},
    ),
    Step(
        "field added to the structs of a list",
        _shape(X, ST2, LI2, MA, END, MID),
        [(5, AC, [AC, None], [("k", A)], "e", 1), (None,) * 6],
        changed={"li": _more},
    ),
    Step(
        "field added to the structs of a map",
        _shape(X, ST2, LI2, MA2, END, MID),
        [(6, AC, [AC], [("k", AC), ("l", None)], "e", 1), (None,) * 6],
        changed={"ma": _more},
    ),
    Step(
        "fields of structs widened",
        _shape(X, ST3, LI3, MA3, END, MID),
        [(7, AW, [AW, None], [("k", AW)], "e", 1), (None,) * 6],
    ),
]


def _java(value: float | None) -> str | None:
    """Return the text that Java prints of the floats and doubles below."""
    return {0.1: "0.1", 1e10: "1.0E10", 1e-5: "1.0E-5", None: None}[value]


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


TYPES = (
    ("i_l", INT, LONG, [1, 2**31 - 1], 2**40, lambda value: value),
    ("i_f", INT, FLOAT, [1, 2**24 + 1], 0.5, {None: None, 1: 1.0, 2**24 + 1: 2.0**24}.__getitem__),
    ("i_d", INT, DOUBLE, [1, 2**31 - 1], 0.1, _float),
    ("i_s", INT, TEXT, [1, -7], "x", _text),
    ("l_f", LONG, FLOAT, [1, 2**24 + 1], 0.5, {None: None, 1: 1.0, 2**24 + 1: 2.0**24}.__getitem__),
    ("l_d", LONG, DOUBLE, [1, 2**53 + 1], 0.1, _float),
    ("l_s", LONG, TEXT, [1, -(2**40)], "x", _text),
    ("f_d", FLOAT, DOUBLE, [0.1, -3e7], 0.1, lambda value: value),
    ("f_s", FLOAT, TEXT, [0.1, 1e10], "x", _java),
    ("d_s", DOUBLE, TEXT, [0.1, 1e-5], "x", _java),
    ("dec", pa.decimal128(9, 2), pa.decimal128(12, 3), [D("1.25"), D("-3.50")], D("12345678.125"),
     lambda value: None if value is None else value.quantize(D("0.001"))),
)  # fmt: skip
"""Name, type and wider type, two values, a value of the wider type, what becomes of a value."""

WIDENED = [
    Step(
        "first",
        _shape(*((name, kind) for name, kind, *_ in TYPES)),
        [
            tuple(old[0] for _, _, _, old, *_ in TYPES),
            tuple(old[1] for _, _, _, old, *_ in TYPES),
            (None,) * len(TYPES),
        ],
    ),
    Step(
        "types widened",
        _shape(*((name, wider) for name, _, wider, *_ in TYPES)),
        [tuple(new for *_, new, _ in TYPES), (None,) * len(TYPES)],
        changed={name: convert for name, *_, convert in TYPES},
    ),
]


def _required(*, nullable: bool) -> pa.Schema:
    return pa.schema(
        [
            pa.field("x", INT, nullable),
            pa.field("st", pa.struct([pa.field("a", INT, nullable), pa.field("b", TEXT)]), nullable),
            pa.field("li", pa.list_(pa.field("element", INT, nullable)), nullable),
            pa.field("ma", pa.map_(TEXT, pa.field("value", INT, nullable)), nullable),
        ]
    )


RELAXED = [
    Step("first", _required(nullable=False), [(1, {"a": 1, "b": None}, [1], [("k", 1)])] * 3),
    Step(
        "nulls where there were none",
        _required(nullable=True),
        [(None, {"a": None, "b": "x"}, [None, 2], [("k", None)]), (None,) * 4],
    ),
]

FAMILIES = pytest.mark.parametrize("steps", [SHAPES, WIDENED, RELAXED], ids=["shapes", "types", "nulls"])
KINDS = pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])


class Model:
    """The rows that are there, as plain values."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.schema = pa.schema([])

    def take(self, batch: Sequence[Row], schema: pa.Schema, changed: Mapping[str, Convert]) -> None:
        """Bring the rows that are there to `schema`, and put those of a batch over them."""
        for row in self.rows.values():
            for name in schema.names:
                row[name] = changed.get(name, lambda value: value)(row.get(name))
        self.rows |= {row["id"]: row for row in batch}
        self.schema = schema

    @property
    def lines(self) -> list[str]:
        return sorted(to_lines(pa.Table.from_pylist(list(self.rows.values()), self.schema)))


def plain(lines: list[str]) -> list[str]:
    """Rows of Hudi without its meta columns."""
    rows = ({name: value for name, value in json.loads(line).items() if name[:8] != "_hoodie_"} for line in lines)
    return sorted(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows)


class Writer(Protocol):
    """Writes a table at `path`, with the columns of the first batch."""

    def upsert(self, rows: pa.Table) -> None: ...
    def compact(self) -> None: ...


class OurWriter:
    """This package, without options but those of the table."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind = path, kind

    def upsert(self, rows: pa.Table) -> None:
        if not self._path.exists():
            LsmTable.create(self._path, rows.schema, {
                "hoodie.table.name": "evolved",
                "hoodie.datasource.write.recordkey.field": "id",
                "hoodie.table.ordering.fields": "ts",
                "hoodie.datasource.write.table.type": self._kind,
                "hoodie.write.table.version": 9,
                "hoodie.bucket.index.num.buckets": 1,
                "hoodie.compact.inline": False,
            }).bulk_insert(rows)  # fmt: skip
        else:
            LsmTable(self._path).upsert(rows)

    def compact(self) -> None:
        assert LsmTable(self._path).compact()


class HudiWriter:
    """Hudi without options for the evolution of columns.

    Spark reads every column of a file as nullable: a table with required columns is made by this package.
    """

    def __init__(self, hudi: Hudi, path: Path, kind: str) -> None:
        self._hudi, self._path, self._first = hudi, path, OurWriter(path, kind)
        self.options = {
            "hoodie.table.name": "evolved",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.partitionpath.field": "",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            "hoodie.datasource.write.table.type": kind,
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "1",
            "hoodie.metadata.enable": "false",
            "hoodie.compact.inline": "false",
        }

    def upsert(self, rows: pa.Table) -> None:
        if not all(column.nullable for column in rows.schema):
            self._first.upsert(rows)
        elif self._path.exists():
            self._hudi.write(self._path, "upsert", rows, self.options)
        else:
            self._hudi.write(self._path, "bulk_insert", rows, self.options, mode="overwrite")

    def compact(self) -> None:
        assert self._hudi.compact(self._path, {"hoodie.metadata.enable": "false"})


class Turns:
    """Both writers, by turns."""

    def __init__(self, *writers: Writer) -> None:
        self._writers = list(writers)

    def upsert(self, rows: pa.Table) -> None:
        self._writers.append(self._writers.pop(0))
        self._writers[-1].upsert(rows)

    def compact(self) -> None:
        self._writers[0].compact()


def check_steps(hudi: Hudi, record: Callable[[str], object], path: Path, writer: Writer, steps: Sequence[Step]) -> None:
    """Let `writer` do the steps, with a compaction at the end; compare both readers with the model after each."""
    model, moment, before = Model(), "", (pa.schema([]), [""])
    is_merged = None
    for number, step in enumerate(steps):
        record(step.name)
        keys = "abcdefghij"[number : number + len(step.values)]
        columns = with_keys(step.batch)
        batch = [
            dict(zip(columns.names, (key, number, *values), strict=True))
            for key, values in zip(keys, step.values, strict=True)
        ]
        writer.upsert(pa.Table.from_pylist(batch, columns))
        model.take(batch, step.schema, step.changed)
        check_rows(hudi, path, model)
        if moment:
            check_past(hudi, path, moment, *before)
        newest = LsmTable(path).timeline.completed_writes[-1]
        moment, before = newest.completed or "", (model.schema, model.lines)
        is_merged = LsmTable(path).config.is_copy_on_write
    if not is_merged:
        record("compacted")
        writer.compact()
        check_rows(hudi, path, model)
        check_past(hudi, path, moment, *before)


def check_rows(hudi: Hudi, path: Path, model: Model) -> None:
    found = LsmTable(path).scan().to_arrow()
    assert found.schema.names == model.schema.names
    assert LsmTable(path).schema.equals(model.schema)
    assert sorted(to_lines(found)) == model.lines
    assert plain(hudi.read(path)) == model.lines
    written = LsmTable(path).incremental("000").to_arrow()
    assert written.schema.names == model.schema.names
    assert sorted(to_lines(written)) == model.lines
    assert plain(hudi.read(path, "incremental", begin="000")) == model.lines
    shown = hudi.sql("SELECT * FROM {table} LIMIT 1", path)[0]
    assert [name for name in shown if name[:8] != "_hoodie_"] == model.schema.names


def check_past(hudi: Hudi, path: Path, moment: str, schema: pa.Schema, lines: list[str]) -> None:
    """Check a time before the last step, whose columns it has."""
    found = LsmTable(path).scan(as_of=moment).to_arrow()
    assert found.schema.names == schema.names
    assert sorted(to_lines(found)) == lines
    assert plain(hudi.read(path, "time_travel", as_of=moment)) == lines


@KINDS
@FAMILIES
def test_hudi_reads_what_we_write_across_each_step(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, steps: Sequence[Step]
) -> None:
    writer = OurWriter(tmp_path / "t", kind)
    check_steps(hudi, lambda step: record(f"v9 {kind}", "hudi reads ours", step), tmp_path / "t", writer, steps)


@KINDS
@FAMILIES
def test_we_read_what_hudi_writes_across_each_step(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, steps: Sequence[Step]
) -> None:
    writer = HudiWriter(hudi, tmp_path / "t", kind)
    check_steps(hudi, lambda step: record(f"v9 {kind}", "we read hudi's", step), tmp_path / "t", writer, steps)


@KINDS
@FAMILIES
def test_both_read_what_they_write_by_turns_across_each_step(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, steps: Sequence[Step]
) -> None:
    path = tmp_path / "t"
    writer = Turns(OurWriter(path, kind), HudiWriter(hudi, path, kind))
    check_steps(hudi, lambda step: record(f"v9 {kind}", "both, by turns", step), path, writer, steps)


def test_hudi_keeps_a_column_of_texts_that_gets_bytes(hudi: Hudi, tmp_path: Path) -> None:
    # Ours widens it to bytes, as Hudi's rules of compatible types allow: not every value is a text.
    writer = HudiWriter(hudi, tmp_path / "t", "MERGE_ON_READ")
    for ts, key, value, kind in ((0, "a", "x", TEXT), (1, "b", b"y", pa.binary())):
        writer.upsert(pa.table({"id": [key], "ts": pa.array([ts], LONG), "s": pa.array([value], kind)}))
    expected = [{"id": "a", "ts": 0, "s": "x"}, {"id": "b", "ts": 1, "s": "y"}]
    assert LsmTable(tmp_path / "t").scan().to_arrow().sort_by("id").to_pylist() == expected
    OurWriter(tmp_path / "u", "MERGE_ON_READ").upsert(pa.table({"id": ["a"], "ts": pa.array([0], LONG), "s": ["x"]}))
    LsmTable(tmp_path / "u").upsert(pa.table({"id": ["b"], "ts": pa.array([1], LONG), "s": [b"\xff"]}))
    found = plain(hudi.read(tmp_path / "u"))
    assert [json.loads(line)["s"] for line in found] == ["eA==", "/w=="]


def test_a_table_of_spark_sql_is_read_across_a_column_that_insert_adds(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    hudi.sql(
        "CREATE TABLE evolved_by_sql (id STRING, ts BIGINT, x INT NOT NULL) USING hudi "
        f"TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts', type = 'mor') LOCATION '{path}'"
    )
    hudi.sql("INSERT INTO evolved_by_sql SELECT 'a', 1L, 1")
    hudi.sql("ALTER TABLE evolved_by_sql ADD COLUMNS (y STRING)")
    hudi.sql("INSERT INTO evolved_by_sql SELECT 'b', 2L, 2, 'new'")
    hudi.sql("DROP TABLE evolved_by_sql")
    expected = [{"id": "a", "ts": 1, "x": 1, "y": None}, {"id": "b", "ts": 2, "x": 2, "y": "new"}]
    assert LsmTable(path).scan().to_arrow().sort_by("id").to_pylist() == expected
    assert [json.loads(line) for line in plain(hudi.read(path))] == expected
