"""Parse the key of a Kafka message into the table's record key and partition columns, for messages without a value.

Three forms are read: a JSON object of the columns, the same in the ``payload`` of Kafka Connect's schema wrapper
(Debezium), and, for a table with one record key column, the plain text (or JSON string or number) of that column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.oracle.events.documents import parse_strictly, raw_struct, shown
from tests.oracle.events.values import raw_from_text


@dataclass(frozen=True)
class MessageKey:
    """Builds the column expressions that parse a message's key.

    Attributes:
        columns: the record key columns and the partition columns.
        record_key: names of the record key columns.
    """

    columns: T.StructType
    record_key: Sequence[str]

    @property
    def _wrapper(self) -> bool:
        return not {"schema", "payload"} & set(self.columns.names)

    def steps(self, wanted: Column) -> list[dict[str, Column]]:
        """Return the columns to add, one projection after another, that parse ``_lsm_key`` where `wanted` is true."""
        text = F.when(wanted, F.col("_lsm_key"))
        outer = T.StructType(list(raw_struct(self.columns).fields))
        for name in ("schema", "payload") if self._wrapper else ():
            outer = outer.add(name, "string")
        inner = F.when(_is_object(F.col("_lsm_key_body")), F.col("_lsm_key_body"))
        return [
            {"_lsm_key_doc": parse_strictly(F.when(_is_object(text), text), outer)},
            {"_lsm_key_body": self._body(F.col("_lsm_key_doc"), text)},
            {"_lsm_key_row": parse_strictly(inner, raw_struct(self.columns))},
        ]

    def _body(self, document: Column, text: Column) -> Column:
        if not self._wrapper:
            return text
        wrapped = document["v"]["schema"].isNotNull() & document["v"]["payload"].isNotNull()
        return F.when(wrapped, document["v"]["payload"]).otherwise(text)

    def reason(self) -> Column:
        """Return the reason why the parsed key has none of the forms; null when it has one."""
        body = F.col("_lsm_key_body")
        single = len(self.record_key) == 1
        message = "the key is not a JSON object" if single else "the key is not a JSON object of the record key columns"
        bad = F.when(_is_object(body), F.col("_lsm_key_row")["v"].isNull())
        return F.coalesce(
            F.when(F.col("_lsm_key").isNull(), F.lit("a delete without a value needs a key, and the key is null")),
            F.when(~F.is_valid_utf8(F.col("_lsm_key")), F.lit("the key is not UTF-8")),
            F.when(F.coalesce(bad, F.lit(not single)), F.concat(F.lit(f"{message}: "), shown(F.col("_lsm_key")))),
        )

    def complaint(self) -> Column:
        """Return whether a value of the key did not fit its column."""
        return F.col("_lsm_key_row")["bad"].isNotNull()

    def raw(self, name: str) -> Column:
        """Return the raw value of a column of `columns`; null when the key does not hold it."""
        body, field = F.col("_lsm_key_body"), self.columns[name]
        plain = raw_from_text(_unquoted(body), field) if list(self.record_key) == [name] else F.lit(None)
        return F.when(_is_object(body), F.col("_lsm_key_row")["v"][name]).otherwise(plain)

    def as_text(self, name: str) -> Column:
        """Return the value of a column as text, for messages."""
        body = F.col("_lsm_key_body")
        return F.when(_is_object(body), F.get_json_object(body, f"$['{name}']")).otherwise(_unquoted(body))


def _is_object(text: Column) -> Column:
    return F.ltrim(text).startswith("{")


def _unquoted(text: Column) -> Column:
    quoted = text.rlike('^".*"$')
    return F.coalesce(F.when(quoted, parse_strictly(text, T.StringType())["v"]), text)
