"""Parse row filters from SQL, such as ``qty > 5 AND country IN ('DE', 'FR')``, into Arrow expressions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.errors import ConfigError

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
        schema: the columns that it may reference; a text in quotes is converted to its column's type.

    Raises:
        ConfigError: the text is not such a filter; the message shows the part that cannot be parsed.
    """
    return _Parser(text, schema).filter()


class _Parser:
    """Reads tokens from left to right, one ahead.

    A NOT is handed down to the comparisons: Arrow's test for membership is false for null, its negation true.
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text, self._schema, self._at, self._depth = text, schema, 0, 0
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
        names = self._column()
        field, kind = pc.field(*names), self._type_of(names)
        found = self._compared_by_sign(field, kind)
        found = self._null_test(field) if found is None else found
        if found is not None:
            return ~found if is_negated else found
        if self._took("NOT"):
            found = self._worded(field, kind, is_negated=not is_negated)
            if found is None:
                raise self._fault("is not expected")
            return found
        found = self._worded(field, kind, is_negated=is_negated)
        if found is None:
            return ~field if is_negated else field
        return found

    def _compared_by_sign(self, field: pc.Expression, kind: pa.DataType | None) -> pc.Expression | None:
        compare = _COMPARE.get(self._token) if self._kind == "sign" else None
        if compare is None:
            return None
        self._next()
        start, value = self._from, self._value()
        if value is None and compare in (operator.eq, operator.ne):
            return field.is_null() if compare is operator.eq else ~field.is_null()
        return self._built(start, lambda: compare(field, _typed(value, kind)))

    def _null_test(self, field: pc.Expression) -> pc.Expression | None:
        if not self._took("IS"):
            return None
        is_negated = self._took("NOT")
        if not (self._took("NULL") or self._took("NONE")):
            raise self._fault("is not NULL")
        return ~field.is_null() if is_negated else field.is_null()

    def _worded(self, field: pc.Expression, kind: pa.DataType | None, *, is_negated: bool) -> pc.Expression | None:
        start = self._from
        if self._took("IN"):
            values = self._values()
            found = self._built(start, lambda: field.isin([_typed(value, kind) for value in values]))
            return ~found & ~field.is_null() if is_negated else found
        if self._took("BETWEEN"):
            low = self._value()
            self._need("AND")
            high = self._value()
            found = self._built(start, lambda: (field >= _typed(low, kind)) & (field <= _typed(high, kind)))
            return ~found if is_negated else found
        for word in ("LIKE", "ILIKE"):
            if self._took(word):
                pattern = self._value()
                if not isinstance(pattern, str):
                    raise self._fault("does not follow a pattern in quotes")
                found = pc.match_like(field, pattern, ignore_case=word == "ILIKE")
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
                value = float(token) if set(token) & set(".eE") else int(token)
            except ValueError:  # Python refuses thousands of digits
                raise self._fault("is too long a number") from None
        elif kind == "name" and token.upper() in _CONSTANTS:
            value = _CONSTANTS[token.upper()]
        else:
            raise self._fault("is not a value; write texts in quotes")
        self._next()
        return value

    def _built(self, start: int, build: Callable[[], pc.Expression]) -> pc.Expression:
        try:
            return build()
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            shown = self._text[start : self._from].strip()[:_LONGEST]
            raise ConfigError(f"filter: {shown!r} is not a value to compare with: {error}") from None

    def _type_of(self, names: Sequence[str]) -> pa.DataType | None:
        is_column = len(names) == 1 and names[0] in self._schema.names
        return self._schema.field(names[0]).type if is_column else None

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


def _typed(value: object, kind: pa.DataType | None) -> Any:
    """Convert a text that is compared with a date, time or decimal column to the column's type."""
    if not isinstance(value, str) or kind is None or not (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):
        return value
    scalar: Any = pa.scalar(value)
    if pa.types.is_timestamp(kind) and kind.tz and not _has_zone(value):
        scalar = pc.cast(scalar, pa.timestamp(kind.unit))
    return pc.cast(scalar, kind).as_py()


def _has_zone(text: str) -> bool:
    return text.endswith("Z") or "+" in text or "-" in text[10:]
