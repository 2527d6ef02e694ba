"""Compute the changes from one base file to the next: the rows of a change log (CDC log), by its logging mode.

A row whose commit time is not that of the row before is an insert or an update, and so is one that was filled from a
row that lost, which keeps its commit time; a key of the older base file that is not in the new one is a delete.
See docs/format/03-native-logs.md, "CDC log schema".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import Column, pc
from streaming_lsm.arrow.required_fields import cast_table, fill_required_fields
from streaming_lsm.format.table.properties import DATA_BEFORE, OP_KEY_ONLY
from streaming_lsm.query.cdc.compared_rows import compare_rows
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY, to_avro

OP, TIME, KEY, BEFORE, AFTER = "op", "ts_ms", "record_key", "before", "after"


@dataclass(frozen=True)
class ChangeRows:
    """The rows of the change logs of one write.

    Attributes:
        mode: supplemental logging mode, one of `properties.CDC_MODES`.
        instant: requested time of the write or compaction.
        table: name of the table.
        columns: the table's columns, without meta columns.
        compares: whether rows of one commit time may differ (`MergeRule.takes_winner`): then values are compared, too.
    """

    mode: str
    instant: str
    table: str
    columns: pa.Schema
    compares: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a change log."""
        image = pa.struct(self._image_fields)
        kinds = {OP: pa.string(), TIME: pa.string(), KEY: pa.string(), BEFORE: image, AFTER: image}
        return pa.schema([(name, kinds[name]) for name in self._names])

    @cached_property
    def avro(self) -> str:
        """Avro JSON of a change log; the second image refers to the record of the first."""
        if self.mode == OP_KEY_ONLY:
            texts = [{"name": name, "type": ["string", "null"]} for name in self._names]
            return json.dumps({"type": "record", "name": "Record", "fields": texts}, separators=(",", ":"))
        record = json.loads(to_avro(self.columns, self.table))
        kinds = {BEFORE: record, AFTER: f"{record['namespace']}.{record['name']}"}
        fields = [{"name": name, "type": ["null", kinds.get(name, "string")], "default": None} for name in self._names]
        change = {"type": "record", "name": "CDC", "namespace": record["namespace"], "fields": fields}
        return json.dumps(change, separators=(",", ":"))

    @cached_property
    def base_columns(self) -> pa.Schema:
        """The columns of the older base file that the changes need."""
        images = [] if self.mode == OP_KEY_ONLY and not self.compares else self._image_fields
        return pa.schema([pa.field(COMMIT_TIME, pa.string()), pa.field(RECORD_KEY, pa.string()), *images])

    @cached_property
    def _image_fields(self) -> list[pa.Field[Any]]:
        """Fields of an image; nullable, as Arrow counts the fields of a null image as nulls."""
        return [field.with_nullable(True) for field in self.columns]

    @property
    def _names(self) -> tuple[str, ...]:
        if self.mode == OP_KEY_ONLY:
            return (OP, KEY)
        return (OP, KEY, BEFORE) if self.mode == DATA_BEFORE else (OP, TIME, BEFORE, AFTER)

    def of(self, before: pa.Table, after: pa.Table | None) -> pa.Table:
        """Compare the rows of one key range; every key is wholly in it.

        Args:
            before: `base_columns` of the older base file's rows.
            after: rows of the new base file; None if there are none.
        """
        if after is None:
            return self._changes(pa.repeat("d", len(before)), before.column(RECORD_KEY), self._image(before), None)
        found = compare_rows(before, after, self.columns.names if self.compares else ())
        known = pc.is_valid(found.places)
        older, newer = self._image(before.take(found.places), known), self._image(found.written)
        upserts = self._changes(pc.if_else(known, "u", "i"), found.written.column(RECORD_KEY), older, newer)
        return pa.concat_tables([upserts, self.of(found.gone, None)])

    def _image(self, rows: pa.Table, known: Column | None = None) -> pa.StructArray | None:
        """Convert rows to structs, null where not `known`; None if the mode has no images."""
        if self.mode == OP_KEY_ONLY:
            return None
        columns = [column.combine_chunks() for column in cast_table(rows, pa.schema(self._image_fields)).columns]
        mask = None if known is None else pc.invert(known).combine_chunks()
        return pa.StructArray.from_arrays(columns, fields=self._image_fields, mask=mask)

    def _changes(
        self, ops: Column, keys: Column, before: pa.StructArray | None, after: pa.StructArray | None
    ) -> pa.Table:
        found = {OP: ops, TIME: pa.repeat(self.instant, len(ops)), KEY: keys, BEFORE: before, AFTER: after}
        columns = [
            fill_required_fields(pa.nulls(len(ops), field.type) if (column := found[field.name]) is None else column)
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)
