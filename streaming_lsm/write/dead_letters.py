"""Events that could not be read: out of the batch, into a folder of their own or into an error."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.errors import RecordError
from streaming_lsm.format.names import WriteToken
from streaming_lsm.write import control
from streaming_lsm.write.plan import WritePlan

_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "reason": pa.string(),
    "payload": pa.binary(),
}
SCHEMA = pa.schema(_TYPES)
_COLUMNS = (control.TOPIC, control.TOPIC_PARTITION, control.OFFSET, control.BAD, control.PAYLOAD)


class DeadLetterBox:
    """Keeps one task's unreadable events apart."""

    def __init__(self, plan: WritePlan, token: WriteToken) -> None:
        """A box for the task attempt that `token` names."""
        self._plan = plan
        self._task = token.task
        self._letters: list[pa.RecordBatch] = []

    def divert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` without its unreadable events, which are kept for `post`.

        Raises:
            RecordError: there are some, and the plan has no dead-letter folder.
        """
        index = batch.schema.get_field_index(control.BAD)
        if index < 0 or batch.column(index).null_count == batch.num_rows:
            return batch
        bad = pc.is_valid(batch.column(index))
        letters = _letters(batch.filter(bad))
        if self._plan.dead_letters is None:
            raise RecordError(_describe(letters))
        self._letters.append(letters)
        return batch.filter(pc.invert(bad))

    def post(self) -> int:
        """Write the kept events as one file that every attempt at this task names alike; returns their number."""
        if not self._letters or self._plan.dead_letters is None:
            return 0
        table = pa.Table.from_batches(self._letters)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        target = self._plan.dead_letters
        target.storage.replace(f"{target.folder}/part-{self._task:05d}.parquet", sink.getvalue().to_pybytes())
        return table.num_rows


def _letters(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = []
    for name, field in zip(_COLUMNS, SCHEMA, strict=True):
        index = batch.schema.get_field_index(name)
        missing = pa.nulls(batch.num_rows, field.type)
        columns.append(missing if index < 0 else pc.cast(batch.column(index), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _describe(letters: pa.RecordBatch) -> str:
    first = letters.slice(0, 1).to_pylist()[0]
    payload = (first["payload"] or b"")[:200]
    return (
        f"event at topic {first['topic']!r}, partition {first['partition']}, offset {first['offset']}: "
        f"{first['reason']}; payload {payload!r}. Mend the producer, or set lsm.on.bad.event=dead_letter "
        "and lsm.dead.letter.path to set such events aside"
    )
