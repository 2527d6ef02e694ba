"""Remove events that the table cannot take from the batch: write them to a folder, or raise an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.arrow.columns import Flags, flags, pc
from streaming_lsm.errors import RecordError
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.keys.generator import ALLOW
from streaming_lsm.lock.heartbeat import check_still_inflight
from streaming_lsm.write.intake import control_columns
from streaming_lsm.write.intake.screening import invalid_rows
from streaming_lsm.write.intake.tombstones import events_before, repeated_tombstones
from streaming_lsm.write.plan import DeadLetters, WritePlan

_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "reason": pa.string(),
    "payload": pa.binary(),
}
SCHEMA = pa.schema(_TYPES)
_COLUMNS = (
    control_columns.TOPIC,
    control_columns.TOPIC_PARTITION,
    control_columns.OFFSET,
    control_columns.BAD,
    control_columns.PAYLOAD,
)


_FILE_BYTES = 8 << 20
"""Events that are held before they are written."""


def batch_folder(writer_id: str, batch_id: int) -> str:
    """Return the folder of one batch's dead letters, below the folder of all."""
    return f"{writer_id}/batch-{batch_id}"


def count_letters(letters: DeadLetters) -> int:
    """Count the dead letters of a batch from the files' footers."""
    count = 0
    for entry in letters.storage.list(letters.folder):
        if entry.name.endswith(".parquet"):
            with letters.storage.open_input(entry.path) as file:
                count += pq.read_metadata(file).num_rows
    return count


class DeadLetterBox:
    """Collects the events of one task that the table cannot take."""

    def __init__(self, plan: WritePlan, token: WriteToken) -> None:
        """Create an empty box for the task attempt `token`."""
        self._plan = plan
        self._task = token.task
        self._letters: list[pa.RecordBatch] = []
        self._bytes = 0
        self._files = 0
        self._count = 0

    def divert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Remove the events that the table cannot store from `batch`, and keep them for `post`.

        These are unreadable events; and, with a dead-letter folder or source columns, rows without a usable record key
        or partition value. A tombstone without a partition value that repeats the delete before it is dropped.

        Raises:
            RecordError: there are such events, and the plan has no dead-letter folder.
        """
        reasons = self._reasons(batch)
        if reasons.null_count == batch.num_rows:
            return batch
        bad = flags(pc.is_valid(reasons))
        kept = bad & ~self._repeated(batch)
        if kept.any():
            letters = _letters(batch.filter(pa.array(kept)), reasons.filter(pa.array(kept)), self._plan.schema)
            if self._plan.dead_letters is None:
                raise RecordError(_describe(letters))
            self._letters.append(letters)
            self._bytes += letters.nbytes
            if self._bytes >= _FILE_BYTES:
                self._write(self._plan.dead_letters)
        return batch.filter(pa.array(~bad))

    def _reasons(self, batch: pa.RecordBatch) -> pa.StringArray:
        """Find the reason why the table cannot store an event; null for events that it can."""
        index = batch.schema.get_field_index(control_columns.BAD)
        unread: pa.StringArray = pa.nulls(batch.num_rows, pa.string())
        if index >= 0:
            unread = pc.cast(batch.column(index), pa.string())
        elif self._plan.dead_letters is None:
            return unread
        read = pc.is_null(unread)
        # A filter copies: a batch without unreadable events is not filtered.
        rows = batch if unread.null_count == batch.num_rows else batch.filter(read)
        unplaced = invalid_rows(self._plan.keys, rows)
        reasons: pa.StringArray = unread if unplaced is None else pc.replace_with_mask(unread, read, unplaced)
        return reasons

    def _repeated(self, batch: pa.RecordBatch) -> Flags:
        """Flag tombstones that repeat the delete at the end of the previous batch; the envelope cannot decide these.

        Returns:
            bool (rows,).
        """
        repeated = np.zeros(batch.num_rows, np.bool_)
        unread, tombstone = (
            batch.schema.get_field_index(name) for name in (control_columns.BAD, control_columns.TOMBSTONE)
        )
        if min(unread, tombstone) < 0 or not self._plan.open_deletes:
            return repeated
        unplaced = flags(pc.is_valid(batch.column(unread))) & flags(batch.column(tombstone))
        if unplaced.any():
            rows = batch.filter(pa.array(unplaced))
            every = np.ones(rows.num_rows, np.bool_)
            keys = replace(self._plan.keys, ambiguous=ALLOW).record_keys(rows)
            before = events_before(self._plan.open_deletes)
            repeated[unplaced], _ = repeated_tombstones(rows, keys, ~every, every, before)
        return repeated

    @property
    def count(self) -> int:
        """Number of events written so far."""
        return self._count

    def post(self) -> int:
        """Write the events that are still held; returns the number of all dead letters of the task.

        Every attempt at this task gives its files the same names, and takes away what a longer attempt left.

        Raises:
            Fenced: the instant takes no more files: the letters would replace those of a later attempt at the batch.
        """
        target = self._plan.dead_letters
        if target is None or not self._count + len(self._letters):
            return 0
        if self._letters:
            self._write(target)
        check_still_inflight(self._plan.storage, self._plan.instant)
        number = self._files
        while target.storage.exists(path := self._path(target, number)):
            target.storage.delete(path)
            number += 1
        return self._count

    def _write(self, target: DeadLetters) -> None:
        check_still_inflight(self._plan.storage, self._plan.instant)
        table = pa.Table.from_batches(self._letters)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        target.storage.replace(self._path(target, self._files), sink.getvalue().to_pybytes())
        self._letters, self._bytes = [], 0
        self._files, self._count = self._files + 1, self._count + table.num_rows

    def _path(self, target: DeadLetters, number: int) -> str:
        return f"{target.folder}/part-{self._task:05d}{f'-{number}' if number else ''}.parquet"


def _letters(batch: pa.RecordBatch, reasons: pa.StringArray, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for name, field in zip(_COLUMNS, SCHEMA, strict=True):
        index = batch.schema.get_field_index(name)
        missing = pa.nulls(batch.num_rows, field.type)
        columns.append(missing if index < 0 else pc.cast(batch.column(index), field.type))
    columns[SCHEMA.get_field_index("reason")] = reasons
    payload = SCHEMA.get_field_index("payload")
    columns[payload] = pc.coalesce(columns[payload], _as_json(batch, schema))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _as_json(batch: pa.RecordBatch, schema: pa.Schema) -> pa.BinaryArray:
    """Encode decoded events, whose bytes are not in the batch, as JSON of their values; null for the others."""
    index = batch.schema.get_field_index(control_columns.BAD)
    read = [True] * batch.num_rows if index < 0 else pc.is_null(batch.column(index)).to_pylist()
    names = [name for name in schema.names if name in batch.schema.names]
    rows = zip(*(_values(batch.column(name)) for name in names), strict=True)
    texts = [_json(dict(zip(names, row, strict=True))) if one else None for row, one in zip(rows, read, strict=True)]
    return pa.array(texts, pa.binary())


def _values(column: pa.Array[Any]) -> list[object]:
    """Format values leniently, so that another bad column (year 10000) does not fail the dead letter."""
    try:
        return (pc.cast(column, pa.string()) if pa.types.is_temporal(column.type) else column).to_pylist()
    except (OverflowError, ValueError, pa.ArrowException):
        return ["(cannot be shown)"] * len(column)


def _json(row: Mapping[str, object]) -> bytes:
    return json.dumps(row, default=str, ensure_ascii=False).encode()


def _describe(letters: pa.RecordBatch) -> str:
    first = letters.slice(0, 1).to_pylist()[0]
    payload = (first["payload"] or b"")[:200]
    return (
        f"event at topic {first['topic']!r}, partition {first['partition']}, offset {first['offset']}: "
        f"{first['reason']}; payload {payload!r}. Correct the producer, or set lsm.on.bad.event=dead_letter "
        "and lsm.dead.letter.path to set such events aside"
    )
