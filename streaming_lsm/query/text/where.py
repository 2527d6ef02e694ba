"""Parse row filters from SQL, such as ``qty > 5 AND country IN ('DE', 'FR')``, into Arrow expressions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.errors import ConfigError, SchemaError

_COMPARE: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    |(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>==|!=|<>|<=|>=|[=<>(),.\[\]])
    |(?P<end>\Z))""",
    re.VERBOSE,
)
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None, "NONE": None}
_TYPED = ("DATE", "TIMESTAMP")
_CLOSING = {"(": ")", "[": "]"}
_MOST_FIELDS, _DEEPEST, _LONGEST = 1000, 150, 200
_WIDE, _WIDEST = 38, 76
"""Digits of Arrow's decimals."""
_EXAMPLE = "write for example: qty > 5 AND country = 'DE'"


def parse_where(text: str, schema: pa.Schema) -> pc.Expression:
    """Parse a filter: columns compared with values, joined by AND, OR, NOT and parentheses.

    Comparisons are ``= != < <= > >=``, ``[NOT] IN (…)``, ``[NOT] BETWEEN … AND …``, ``[NOT] LIKE``, ``ILIKE`` and ``IS
    [NOT] NULL``; a boolean column is a condition by itself. As in SQL a row with a null fits no comparison, nor its
    negation; ``= NULL``, and a NULL in a list, select nulls. Texts, dates, times and decimals are in quotes, which are
    doubled within a text; a time without a zone is UTC. Names with other signs are in backticks, fields of structs
    follow a dot.

    Args:
        text: the filter.
        schema: the columns that it may reference; a text in quotes is converted to its column's type, as is a number
            for a decimal column.

    Raises:
        ConfigError: the text is not such a filter; the message shows the part that cannot be parsed.
        SchemaError: a column is compared with a value of another type; the message names both.
    """
    return _Parser(text, schema).filter()


class _Parser:
    """Reads tokens from left to right, one ahead.

    A NOT is handed down to the comparisons: Arrow's test for membership is false for null, its negation true.
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text, self._columns, self._at, self._depth = text, pa.struct(list(schema)), 0, 0
        self._kind, self._token, self._from = "", "", 0
        self._next()

    def filter(self) -> pc.Expression:
        """Read the whole text."""
        found = self._any(is_negated=False)
        if self._kind != "end":
            raise self._fault("is not expected")
        return found

    def _any(self, *, is_negated: bool) -> pc.Expression:
        parts = [self._every(is_negated=is_negated)]
        while self._took("OR"):
            parts.append(self._every(is_negated=is_negated))
        return _joined(parts, operator.and_ if is_negated else operator.or_)

    def _every(self, *, is_negated: bool) -> pc.Expression:
        parts = [self._part(is_negated=is_negated)]
        while self._took("AND"):
            parts.append(self._part(is_negated=is_negated))
        return _joined(parts, operator.or_ if is_negated else operator.and_)

    def _part(self, *, is_negated: bool) -> pc.Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConfigError(f"filter {self._text[:_LONGEST]!r}: nested too deeply; {_EXAMPLE}")
        if self._took("NOT"):
            found = self._part(is_negated=not is_negated)
        elif self._took("("):
            found = self._any(is_negated=is_negated)
            self._need(")")
        else:
            found = self._condition(is_negated=is_negated)
        self._depth -= 1
        return found

    def _condition(self, *, is_negated: bool) -> pc.Expression:
        column = _Column(names := self._column(), self._type_of(names))
        field = column.field
        found = self._compared_by_sign(column)
        found = self._null_test(field) if found is None else found
        if found is not None:
            return ~found if is_negated else found
        if self._took("NOT"):
            found = self._worded(column, is_negated=not is_negated)
            if found is None:
                raise self._fault("is not expected")
            return found
        found = self._worded(column, is_negated=is_negated)
        if found is None:
            return ~field if is_negated else field
        return found

    def _compared_by_sign(self, column: _Column) -> pc.Expression | None:
        compare = _COMPARE.get(self._token) if self._kind == "sign" else None
        if compare is None:
            return None
        self._next()
        start, field, value = self._from, column.field, self._value()
        if value is None and compare in (operator.eq, operator.ne):
            return field.is_null() if compare is operator.eq else ~field.is_null()
        return self._built(start, column, lambda: compare(field, column.typed(value)))

    def _null_test(self, field: pc.Expression) -> pc.Expression | None:
        if not self._took("IS"):
            return None
        is_negated = self._took("NOT")
        if not (self._took("NULL") or self._took("NONE")):
            raise self._fault("is not NULL")
        return ~field.is_null() if is_negated else field.is_null()

    def _worded(self, column: _Column, *, is_negated: bool) -> pc.Expression | None:
        start, field = self._from, column.field
        if self._took("IN"):
            values = self._values()
            found = self._built(start, column, lambda: field.isin(column.typed_list(values)))
            return ~found & ~field.is_null() if is_negated else found
        if self._took("BETWEEN"):
            low = self._value()
            self._need("AND")
            high = self._value()
            found = self._built(start, column, lambda: (field >= column.typed(low)) & (field <= column.typed(high)))
            return ~found if is_negated else found
        for word in ("LIKE", "ILIKE"):
            if self._took(word):
                pattern = self._value()
                if not isinstance(pattern, str):
                    raise self._fault("does not follow a pattern in quotes")
                like: Any = partial(pc.match_like, field, pattern, ignore_case=word == "ILIKE")
                found = self._built(start, column, like)
                return ~found if is_negated else found
        return None

    def _column(self) -> list[str]:
        names = [self._name()]
        while self._took("."):
            names.append(self._name())
            if len(names) > _MOST_FIELDS:
                raise ConfigError(f"filter: column {names[0]} with {len(names)} fields: nested too deeply; {_EXAMPLE}")
        return names

    def _name(self) -> str:
        if self._kind not in ("name", "quoted") or (self._kind == "name" and self._token.upper() in _CONSTANTS):
            raise self._fault("is not a column; the column stands on the left")
        name = self._token if self._kind == "name" else self._token[1:-1].replace("``", "`")
        self._next()
        return name

    def _values(self) -> list[object]:
        closing = _CLOSING.get(self._token) if self._kind == "sign" else None
        if closing is None:
            raise self._fault("is not a list of values; write for example: country IN ('DE', 'FR')")
        self._next()
        values = [self._value()]
        while self._took(","):
            values.append(self._value())
        self._need(closing)
        return values

    def _value(self) -> object:
        if self._kind == "name" and self._token.upper() in _TYPED:
            self._next()
            if self._kind != "text":
                raise self._fault("is not a date or time in quotes")
        kind, token = self._kind, self._token
        value: object
        if kind == "text":
            value = token[1:-1].replace(token[0] * 2, token[0])
        elif kind == "number":
            try:
                value = Decimal(token) if set(token) & set(".eE") else int(token)
            except (ValueError, InvalidOperation):  # Python refuses thousands of digits
                raise self._fault("is too long a number") from None
        elif kind == "name" and token.upper() in _CONSTANTS:
            value = _CONSTANTS[token.upper()]
        else:
            raise self._fault("is not a value; write texts in quotes")
        self._next()
        return value

    def _built(self, start: int, column: _Column, build: Callable[[], pc.Expression]) -> pc.Expression:
        """Build a condition, and check that it fits its column, as Arrow's errors do not name that.

        Args:
            start: where the text of the condition begins, after its column and sign.
            column: the column.
            build: builds the condition.
        """
        try:
            found = build()
        except _Unfit as error:
            raise self._unfit(start, column) from error
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            shown = self._shown(start)
            raise ConfigError(f"filter: {shown!r} is not a value to compare with: {error}") from None
        if not column.takes(found):
            raise self._unfit(start, column)
        return found

    def _shown(self, start: int) -> str:
        return self._text[start : self._from].strip()[:_LONGEST]

    def _unfit(self, start: int, column: _Column) -> SchemaError:
        shown, name = self._shown(start), ".".join(column.names)
        advice = "LIKE is for texts" if shown.upper().startswith(("LIKE", "ILIKE")) else _advice(column.kind)
        return SchemaError(
            f"filter: column {name!r:.{_LONGEST}} has type {str(column.kind)[:_LONGEST]}, which does not fit {shown}: "
            f"{advice}"
        )

    def _type_of(self, names: Sequence[str]) -> pa.DataType | None:
        """Return the type of a column, or of a field in it; None if there is none."""
        found: Any = self._columns
        for name in names:
            place = found.get_field_index(name) if pa.types.is_struct(found) else -1
            if place < 0:
                return None
            found = found.field(place).type
        kind: pa.DataType = found
        return kind

    def _took(self, word: str) -> bool:
        """Skip a sign, or a word in any case, if it comes next."""
        found = self._kind in ("name", "sign") and self._token.upper() == word
        if found:
            self._next()
        return found

    def _need(self, word: str) -> None:
        if not self._took(word):
            raise self._fault(f"stands where {word} is expected")

    def _next(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self._kind, self._token, self._from = "other", self._text[self._at :].strip(), self._at
            raise self._fault("cannot be read")
        self._kind = found.lastgroup or ""
        self._token, self._from, self._at = found[self._kind], found.start(self._kind), found.end()

    def _fault(self, why: str) -> ConfigError:
        part = repr(self._token[:_LONGEST]) if self._token else "the end"
        return ConfigError(f"filter {self._text[:_LONGEST]!r}: {part} {why}; {_EXAMPLE}")


def _joined(
    parts: Sequence[pc.Expression], join: Callable[[pc.Expression, pc.Expression], pc.Expression]
) -> pc.Expression:
    """Join expressions as a balanced tree: Arrow evaluates recursively, and a long chain would exhaust its stack."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return join(_joined(parts[:middle], join), _joined(parts[middle:], join))


class _Unfit(Exception):
    """A value cannot be converted to the type of its column."""


@dataclass(frozen=True)
class _Column:
    """The column of a condition.

    Attributes:
        names: its name, then those of fields of structs.
        kind: its type; None if the table does not have it.
    """

    names: Sequence[str]
    kind: pa.DataType | None

    @property
    def field(self) -> pc.Expression:
        """The column in an expression."""
        return pc.field(*self.names)

    def takes(self, condition: pc.Expression) -> bool:
        """Tell whether Arrow can decide a condition of this column; a column that is missing is found later."""
        if self.kind is None:
            return True
        kind = self.kind
        for name in reversed(self.names[1:]):
            kind = pa.struct([(name, kind)])
        try:
            pa.schema([(self.names[0], kind)]).empty_table().filter(condition)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            return False
        return True

    def typed(self, value: object) -> Any:
        """Convert a text that is compared with a date, time or decimal, and a number compared with a decimal.

        Raises:
            _Unfit: the text is no such value.
        """
        kind = self.kind
        if kind is None or not (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):
            return _number(value)
        if isinstance(value, Decimal | int) and not isinstance(value, bool):
            return _as_decimal(Decimal(value), kind) if pa.types.is_decimal(kind) else _number(value)
        if not isinstance(value, str):
            return value
        scalar: Any = pa.scalar(value)
        try:
            if pa.types.is_timestamp(kind) and kind.tz and not _has_zone(value):
                scalar = pc.cast(scalar, pa.timestamp(kind.unit))
            return pc.cast(scalar, kind).as_py()
        except pa.ArrowException as error:
            raise _Unfit(str(error)) from None

    def typed_list(self, values: Sequence[object]) -> Any:
        """Convert the values of a list.

        Raises:
            _Unfit: see `typed`.
        """
        found = [self.typed(value) for value in values]
        if self.kind is None or not pa.types.is_decimal(self.kind):
            return found
        # A number that the column's type does not have equals no value of it.
        own = [value for value in found if not (isinstance(value, float) or _is_wider(value, self.kind))]
        return pa.array(own, self.kind)


def _number(value: object) -> object:
    """Return a number with a fraction or exponent as a float, as columns other than decimals are compared with it."""
    return float(value) if isinstance(value, Decimal) else value


def _as_decimal(value: Decimal, kind: Any) -> Any:
    """Return a number exactly, of the type of its column or of one that Arrow can compare with it; else as a float."""
    scale = max(0, -int(value.as_tuple().exponent))
    whole = max(0, value.adjusted() + 1)
    needed = max(whole, kind.precision - kind.scale) + max(scale, kind.scale)
    if needed > _WIDEST:
        return float(value)
    with suppress(pa.ArrowInvalid):
        return pa.scalar(value, kind)
    wide = pa.decimal128 if needed <= _WIDE else pa.decimal256
    return pa.scalar(value, wide(max(1, whole + scale), scale))


def _is_wider(value: object, kind: pa.DataType) -> bool:
    return isinstance(value, pa.Scalar) and value.type != kind


def _advice(kind: Any) -> str:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "write texts in quotes"
    if pa.types.is_boolean(kind):
        return "write TRUE or FALSE"
    if pa.types.is_temporal(kind):
        return "write a date or time in quotes, such as '2026-01-31' or '2026-01-31 10:00:00'"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "write numbers without quotes"
    return "compare it with a value of its type"


def _has_zone(text: str) -> bool:
    return text.endswith("Z") or "+" in text or "-" in text[10:]
