"""Read the changes of one file group by one write, with the rows before and after.

A change log with both images is returned as recorded (docs/format/03-native-logs.md, "CDC log schema"). Of one with
record keys, the images that it lacks are filled from the file group as of just before and just after the write. Without
one, the rows of both states are compared; a written row that lost the merge is not a change.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import Column, pc
from streaming_lsm.arrow.required_fields import cast_column
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.data_file import open_log
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.format.column_versions import names_at
from streaming_lsm.query.cdc.change_log import read_change_log
from streaming_lsm.query.cdc.compared_rows import compare_rows
from streaming_lsm.query.columns import check_columns
from streaming_lsm.query.prune.looked_up import KeyPruner
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.query.wanted_keys import ascending_keys
from streaming_lsm.schema import META_COLUMNS, RECORD_KEY

OP, TIME, KEY, BEFORE, AFTER = "op", "ts_ms", "record_key", "before", "after"
_RECORDED = {OP, TIME, BEFORE, AFTER}
_KEYS = pa.schema([(RECORD_KEY, pa.string())])


@dataclass(frozen=True)
class GroupChanges:
    """The changes of one file group by one write, to be read from its change logs or from two states; picklable.

    Attributes:
        instant: requested time of the write.
        change_logs: change logs; without any, the two states are compared.
        before, after: the file group's slice in each state, None where it has none, or where the images are recorded.
        visible_before, visible_after: see `SliceReader.visible`.
    """

    instant: str
    change_logs: tuple[str, ...] = ()
    before: FileSlice | None = None
    after: FileSlice | None = None
    visible_before: Container[str] | None = None
    visible_after: Container[str] | None = None

    @property
    def size(self) -> int:
        """Bytes of the files of both states."""
        return sum(found.size for found in (self.before, self.after) if found is not None)


@dataclass(frozen=True)
class ChangeReader:
    """Reads changes of one table; picklable, so that it can be sent to executors.

    Attributes:
        table_schema: columns of a data file, meta columns included.
        slices: reads a slice with all these columns.
    """

    table_schema: pa.Schema
    slices: SliceReader

    @property
    def schema(self) -> pa.Schema:
        """``op`` (i, u, d), ``ts_ms`` (the write's instant as text), and the row ``before`` and ``after`` as structs.

        Meta columns are null in images that a change log records, as it does not have them.
        """
        image = pa.struct([field.with_nullable(True) for field in self.table_schema])
        return pa.schema([(OP, pa.string()), (TIME, pa.string()), (BEFORE, image), (AFTER, image)])

    def of_columns(self, names: Sequence[str]) -> ChangeReader:
        """Return the reader with some columns in its images, in the order given; the meta columns are among them.

        Raises:
            SchemaError: a column is not in the table.
        """
        check_columns(names, self.table_schema)
        schema = pa.schema([self.table_schema.field(name) for name in names])
        return ChangeReader(schema, replace(self.slices, columns=tuple(names)))

    def read(self, part: GroupChanges) -> Iterator[pa.RecordBatch]:
        """Yield the changes of one file group by one write, which are in memory at a time.

        Raises:
            CorruptFileError: a file is missing or damaged.
        """
        if not part.change_logs:
            yield from self._compared(part)
        for path in part.change_logs:
            batches = read_change_log(self.slices.storage, path)
            if batches:  # a native log without rows has none: nothing changed
                yield from self._of_log(part, path, self._named(part, pa.Table.from_batches(batches)))

    def _named(self, part: GroupChanges, rows: pa.Table) -> pa.Table:
        """Give the columns in the images of a change log the names that they have now."""
        names = names_at(self.slices.file_names, part.instant)
        if names is None:
            return rows
        for place, name in enumerate(rows.schema.names):
            if name in (BEFORE, AFTER):
                image: Any = rows.column(place).combine_chunks()
                rows = rows.set_column(place, name, names.image(image))
        return rows

    def _of_log(self, part: GroupChanges, path: str, rows: pa.Table) -> list[pa.RecordBatch]:
        """Convert the changes of a change log, and fill the images that it lacks."""
        ops, names = rows.column(OP), set(rows.schema.names)
        if names >= _RECORDED:
            before, after = (self._widened(rows.column(name).combine_chunks()) for name in (BEFORE, AFTER))
            return pa.table([ops, rows.column(TIME), before, after], schema=self.schema).to_batches()
        keys = rows.column(KEY)
        if BEFORE in names:
            older: Column = self._widened(rows.column(BEFORE).combine_chunks())
        else:
            older = self._looked_up(part.before, part.visible_before, keys, pc.not_equal(ops, "i"), path, BEFORE)
        newer = self._looked_up(part.after, part.visible_after, keys, pc.not_equal(ops, "d"), path, AFTER)
        return self._batches(part.instant, ops, older, newer)

    def _looked_up(
        self,
        found: FileSlice | None,
        visible: Container[str] | None,
        keys: Column,
        wanted: Column,
        path: str,
        state: str,
    ) -> Column:
        """Look up rows by the keys of a change log; the images are null where they are not wanted.

        Raises:
            CorruptFileError: the state has no row of a wanted key.
        """
        rows = self._rows(found, visible, keys.filter(wanted))
        place = pc.index_in(pc.if_else(wanted, keys, pa.scalar(None, keys.type)), value_set=rows.column(RECORD_KEY))
        known = pc.is_valid(place)
        lost = keys.filter(pc.and_not(wanted, known))
        if len(lost):
            raise CorruptFileError(
                f"{path}: a change of record key {lost[0].as_py()!r:.80}, of which the file group has no row {state} "
                "the write; restore the file, or delete it, so that the changes are worked out from base files and logs"
            )
        return self._image(rows.take(place), known)

    def _compared(self, part: GroupChanges) -> Iterator[pa.RecordBatch]:
        write = part.instant
        keys = self._written_keys(part)
        before = self._rows(part.before, part.visible_before, keys)
        after = self._rows(part.after, part.visible_after, keys)
        values = () if self.slices.rule.takes_winner else [n for n in after.schema.names if n not in META_COLUMNS]
        found = compare_rows(before, after, values)
        known = pc.is_valid(found.places)
        older = self._image(before.take(found.places), known)
        yield from self._batches(write, pc.if_else(known, "u", "i"), older, self._image(found.written))
        nothing = pa.nulls(len(found.gone), self.schema.field(AFTER).type)
        yield from self._batches(write, pa.repeat("d", len(found.gone)), self._image(found.gone), nothing)

    def _written_keys(self, part: GroupChanges) -> Column | None:
        """Read the record keys of the write's own logs, which alone it can have changed; None if it wrote others, too.

        Inline logs are not read for it: a merge of theirs reads all of them in any case.
        """
        before, after = part.before, part.after
        if before is None or after is None or before.base != after.base or not after.is_native:
            return None
        chunks: list[pa.Array[Any]] = [pa.array([], pa.string())]
        for log in after.logs:
            if log.name.instant == part.instant:
                with ExitStack() as files:
                    opened, _ = open_log(self.slices.storage, log, self.slices.rule, files)
                    chunks += [batch.column(0) for batch in opened.batches(_KEYS)]
        return pa.chunked_array(chunks)

    def _image(self, rows: pa.Table, known: Column | None = None) -> Column:
        """Convert rows to structs, null where not `known`."""
        columns = [column.combine_chunks() for column in rows.columns]
        mask = None if known is None else pc.invert(known).combine_chunks()
        return pa.StructArray.from_arrays(columns, fields=list(self.schema.field(BEFORE).type), mask=mask)

    def _batches(self, write: str, ops: Column, before: Column, after: Column) -> list[pa.RecordBatch]:
        times = pa.repeat(write, len(ops))
        return pa.table([ops, times, before, after], schema=self.schema).to_batches()

    def _rows(
        self, file_slice: FileSlice | None, visible: Container[str] | None, keys: Column | None = None
    ) -> pa.Table:
        """Read the rows of a slice, or those of some record keys."""
        reader = replace(self.slices, visible=visible)
        if keys is not None:
            wanted = ascending_keys(keys)
            reader = replace(reader, pruner=KeyPruner(WantedKeys.of(wanted)))
        batches = iter(()) if file_slice is None else reader.read(file_slice)
        if keys is not None:
            batches = (batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=wanted)) for batch in batches)
        return pa.Table.from_batches(batches, schema=reader.output_schema)

    def _widened(self, image: Any) -> pa.StructArray:
        """Cast an image of a change log to the table's current columns; those it lacks are null."""
        has = {field.name: place for place, field in enumerate(image.type)}
        fields = list(self.schema.field(BEFORE).type)
        columns: list[Any] = [
            cast_column(image.field(has[field.name]), field.type)
            if field.name in has
            else pa.nulls(len(image), field.type)
            for field in fields
        ]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pc.is_null(image))
