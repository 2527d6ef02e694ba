"""Draw the messages of a topic partition: flat documents, Debezium envelopes, their keys, and tombstones.

*Hostile*: any value in any column, members that are absent, repeated or unknown, and broken documents. *Natural*: as an
application or Debezium sends them: one style for each column, one form of all documents, and few odd values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from streaming_lsm.decode.column_types import CONNECT_DECIMAL, SEMANTIC_UNITS, Field, is_nested, is_timestamp, time_unit
from streaming_lsm.decode.envelope import DELETED_FLAGS, ENVELOPE_COLUMNS, Envelope, EventFormat
from tests.support.event_columns import Message
from tests.support.random_values import (
    Style,
    any_value,
    extreme_value,
    fitting_value,
    styles,
    text_in_string,
    text_of_object,
)

Row = dict[str, str]
"""The JSON text of each column's value."""

_PLAIN_KEYS = (
    b"7", b'"7"', b"x", b'"x"', b"", b" 7", b"\xff", b"7\n", b'"7"\n', b"{7", b"1.5", b'"a\nb"', b"null", b"[7]",
)  # fmt: skip
_NO_DOCUMENTS = (
    b"", b" ", b"\t", b"null", b" null\n", b"5", b"[]", b'"x"', b"\xef\xbb\xbf{}", b"\xed\xa0\x80", b"{}", b"NaN",
)  # fmt: skip
_SOURCE = [path[1] for path in ENVELOPE_COLUMNS.values() if len(path) > 1]
_TAILS = (b"x", b"}", b",", b"{}", b" ", b"\n", b"\0", b',"v":{"id":2}', b"}}", b"} }", b',"bad":"x"')


@dataclass
class Change:
    """Describes a message.

    Attributes:
        message: its key and value.
        row: the row of its value, which a tombstone may repeat.
        delete: whether it deletes the row.
    """

    message: Message
    row: Row
    delete: bool = False


def _with_tombstones(
    draw: Callable[[], Change],
    tombstone: Callable[[Row], Message],
    random: Random,
    count: int,
    odds: tuple[float, float],
) -> list[Message]:
    """Draw messages; `odds` are those of a tombstone after a delete, and after any other change."""
    found: list[Message] = []
    while len(found) < count:
        change = draw()
        found.append(change.message)
        if random.random() < odds[not change.delete]:
            found.append(tombstone(change.row))
    return found[:count]


@dataclass
class HostileMessages:
    """Draws hostile messages of an envelope."""

    random: Random
    envelope: Envelope

    def draw(self, count: int) -> list[Message]:
        """Draw consecutive messages of a topic partition."""
        one = self._flat if self.envelope.format is EventFormat.JSON else self._debezium
        return _with_tombstones(one, lambda row: (self._key(row), None), self.random, count, (0.4, 0.08))

    def _flat(self) -> Change:
        random = self.random
        row, document = self._row()
        if random.random() < 0.12:
            payload = random.choice((document, document, document, text_in_string(document), any_value(random)))
            schema = random.choice(("{}", "null", self._schema(), self._schema(), any_value(random)))
            document = text_of_object([("schema", schema), ("payload", payload)])
        return Change((self._key(row), self._broken(document)), row)

    def _row(self) -> tuple[Row, str]:
        """Draw a row and its document."""
        random, bad = self.random, self.random.choice((0.0, 0.0, 0.05, 0.3))
        row: Row = {}
        for column in self.envelope.columns:
            if random.random() < (0.04 if column.name in self.envelope.record_key else 0.15):
                continue
            fitting = fitting_value(random, column.type, unit=time_unit(column))
            row[column.name] = any_value(random) if random.random() < bad else fitting
        members = list(row.items())
        if row and random.random() < 0.004:
            members.append((random.choice(list(row)), extreme_value(random)))
        if row and random.random() < 0.05:
            members.append((random.choice(list(row)), any_value(random)))
        for name in (*DELETED_FLAGS, "ID", "schema", "payload", "op", "zz"):
            if name not in row and random.random() < 0.05:
                members.append((name, random.choice(("true", '"true"', '"TRUE"', "false", any_value(random)))))
        if random.random() < 0.2:
            random.shuffle(members)
        document = text_of_object(members, random.choice(("", "", " ", "\n\t")))
        return row, document.replace('"id":', '"\\u0069d":') if random.random() < 0.02 else document

    def _schema(self) -> str:
        names = (*SEMANTIC_UNITS, CONNECT_DECIMAL, "x")
        return _schema([(column.name, self.random.choice(names)) for column in self.envelope.columns])

    def _debezium(self) -> Change:
        random = self.random
        operation = random.choice(('"c"', '"u"', '"r"', '"d"', '"d"'))
        if random.random() < 0.12:
            operation = random.choice(('"t"', '"m"', "null", "5", '"D"', any_value(random)))
        members, rows = [("op", operation)], {}
        for side in ("before", "after"):
            if random.random() < 0.8:
                rows[side], document = self._row()
                members.append((side, document if random.random() < 0.95 else any_value(random)))
        if random.random() < 0.7:
            usual = [(name, fitting_value(random, pa.int64())) for name in random.sample(_SOURCE, 5)]
            members.append(("source", text_of_object(usual) if random.random() < 0.7 else any_value(random)))
        if random.random() < 0.3:
            members.append(("ts_ms", any_value(random)))
        if random.random() < 0.05:
            members.append((random.choice(("before", "after", "source", "op", "payload")), any_value(random)))
        document = text_of_object(members)
        if random.random() < 0.3:
            schema = random.choice((_sides(self._schema()), _sides(self._schema()), "{}", "null", any_value(random)))
            document = text_of_object([("schema", schema), ("payload", document)])
        row = rows.get("before" if operation == '"d"' else "after", {})
        return Change((self._key(row), self._broken(document)), row, operation == '"d"')

    def _key(self, row: Row) -> bytes | None:
        random, envelope = self.random, self.envelope
        chosen = random.random()
        if chosen < 0.1:
            return None
        if chosen < 0.25:
            return random.choice(_PLAIN_KEYS)
        if chosen < 0.4 and len(envelope.record_key) == 1:
            return _bytes(row.get(envelope.record_key[0], "x"))
        names = [*envelope.record_key, *(envelope.partition if random.random() < 0.5 else ())]
        members = [(name, row[name] if random.random() < 0.9 else any_value(random)) for name in names if name in row]
        document = text_of_object(members, random.choice(("", " ")))
        if random.random() < 0.3:
            document = text_of_object([("schema", random.choice(("{}", "5", "null"))), ("payload", document)])
        return self._broken(document)

    def _broken(self, document: str) -> bytes:
        """Break some documents: cut them, change a byte, add text."""
        random, text = self.random, _bytes(document)
        chosen = random.random()
        if chosen < 0.9 or not text:
            return text
        place = random.randrange(len(text))
        if chosen < 0.93:
            return text[:place]
        if chosen < 0.96:
            return text[:place] + bytes([random.randrange(256)]) + text[place + 1 :]
        if chosen < 0.97:
            return random.choice((b" ", b"\n", b"\t", b"\0", b"\xa0", b"\xef\xbb\xbf")) + text
        return text + random.choice(_TAILS) if chosen < 0.99 else random.choice(_NO_DOCUMENTS)


@dataclass
class NaturalMessages:
    """Draws natural messages of an envelope; all of one instance have one form."""

    random: Random
    envelope: Envelope
    _styles: dict[str, Style] = field(default_factory=dict)
    _semantics: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Choose the form."""
        random = self.random
        own = self.envelope.format is EventFormat.JSON and {"schema", "payload"} & set(self.envelope.columns.names)
        # Of the wrapped documents some have a later version of the schema, as in the days after a change of it.
        self._wrapped = 0.0 if own else random.choice((0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.8))
        self._changed = random.choice((0.0, 0.0, 0.3))
        self._space = random.choice(("", "", " ", "\n  "))
        self._odd = random.choice((0.0, 0.001, 0.004, 0.02))
        self._cut = random.choice((0.0, 0.0, 0.01))
        self._flag = random.choice(((), (), ("true", "false"), ('"true"', '"false"')))
        self._key_form = random.choice(("object", "wrapped", "plain"))
        self._placed = random.random() < 0.5
        self._operations = random.choice(("ccuurdd", "cu", "d"))
        for column in self.envelope.columns:
            if not is_nested(column.type):
                self._styles[column.name] = self._style(column)

    def _style(self, column: Field) -> Style:
        random = self.random
        unit, semantic = time_unit(column), None
        if self._wrapped and unit is None and is_timestamp(column.type) and random.random() < 0.6:
            semantic, unit = random.choice(list(SEMANTIC_UNITS.items()))
        elif self._wrapped and pa.types.is_decimal128(column.type) and random.random() < 0.05:
            semantic = CONNECT_DECIMAL
        self._semantics.append((column.name, semantic or "x"))
        every = styles(column.type, unit)
        return every[0] if random.random() < 0.85 else random.choice(every)

    def draw(self, count: int) -> list[Message]:
        """Draw consecutive messages of a topic partition."""
        one = self._flat if self.envelope.format is EventFormat.JSON else self._debezium
        return _with_tombstones(one, lambda row: (self._key(row), None), self.random, count, (0.6, 0.04))

    def _flat(self) -> Change:
        row, document = self._row(list(self.envelope.columns))
        if self.random.random() < self._wrapped:
            document = text_of_object([("schema", self._schema()), ("payload", document)])
        return Change((self._key(row), self._maybe_cut(document)), row)

    def _schema(self) -> str:
        later = self.random.random() < self._changed
        return _schema([*self._semantics, ("added", "x")] if later else self._semantics)

    def _row(self, columns: Sequence[Field]) -> tuple[Row, str]:
        """Draw a row and its document."""
        random = self.random
        row: Row = {}
        for column in columns:
            if random.random() < 0.01:
                continue
            row[column.name] = self._value(column)
            if random.random() < self._odd:
                row[column.name] = any_value(random) if random.random() < 0.5 else fitting_value(random, column.type)
        members = list(row.items())
        if random.random() < 0.1:
            members.append(("extra", any_value(random)))
        flagged = self._flag and self.envelope.format is EventFormat.JSON and "__deleted" not in row
        if flagged and random.random() < 0.3:
            members.append(("__deleted", random.choice(self._flag)))
        if members and random.random() < self._odd:
            members.append(random.choice(members))
        return row, text_of_object(members, self._space)

    def _value(self, column: Field) -> str:
        if is_nested(column.type):
            return fitting_value(self.random, column.type)
        return self._styles[column.name].draw(self.random, rarely=0.01)

    def _debezium(self) -> Change:
        random = self.random
        columns = [column for column in self.envelope.columns if column.name not in ENVELOPE_COLUMNS]
        operation = random.choice(self._operations)
        row, document = self._row(columns)
        other = "null" if operation == "c" or random.random() < 0.5 else self._row(columns)[1]
        before, after = (document, "null") if operation == "d" else (other, document)
        members = [("op", f'"{operation}"'), ("before", before), ("after", after), ("source", self._source())]
        document = text_of_object([*members, ("ts_ms", "5")])
        if random.random() < self._wrapped:
            document = text_of_object([("schema", _sides(self._schema())), ("payload", document)])
        return Change((self._key(row), self._maybe_cut(document)), row, operation == "d")

    def _source(self) -> str:
        random = self.random
        if random.random() < self._odd:
            return any_value(random)
        place = str(random.randrange(100))
        members = {"version": '"3.0"', "name": '"db"', "ts_ms": place, "snapshot": random.choice(("true", '"false"'))}
        members |= {"txId": random.choice(("7", "null")), "lsn": place, "xmin": "null", "file": '"bin.1"', "pos": place}
        return text_of_object([*members.items(), ("row", str(random.randrange(3)))])

    def _key(self, row: Row) -> bytes:
        names = [*self.envelope.record_key, *(self.envelope.partition if self._placed else ())]
        if self._key_form == "plain" and len(names) == 1:
            return _bytes(row.get(names[0], "1"))
        document = text_of_object([(name, row[name]) for name in dict.fromkeys(names) if name in row])
        if self._key_form == "wrapped":
            document = text_of_object([("schema", '{"type":"struct"}'), ("payload", document)])
        return _bytes(document)

    def _maybe_cut(self, document: str) -> bytes:
        text = _bytes(document)
        return text[: self.random.randrange(len(text))] if self.random.random() < self._cut else text


def _schema(names: Sequence[tuple[str, str]]) -> str:
    """Write a Connect schema of columns and the names of their types."""
    fields = ",".join(f'{{"type":"x","field":"{column}","name":"{name}"}}' for column, name in names)
    return f'{{"type":"struct","fields":[{fields}]}}'


def _sides(row: str) -> str:
    """Write the schema of an envelope of rows."""
    sides = ",".join(f'{{"field":"{side}",{row[1:]}' for side in ("before", "after"))
    return f'{{"type":"struct","fields":[{sides},{{"type":"string","field":"op"}}]}}'


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
