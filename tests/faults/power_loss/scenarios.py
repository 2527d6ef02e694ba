"""Calls of the library that are recorded: what they start from, and the rows that must be there after each.

A *lake* is the folder that is recorded; the table is its folder ``table``. Each call opens the table anew, as a process
does that was just started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, SchemaError, TableNotFound
from streaming_lsm.lock.markers import TEMP_FOLDER
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.faults.power_loss.recorder import Recorder, Recording
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.metadata_tables import ENABLED
from tests.support.service_tables import OPTIONS_OF_SERVICES
from tests.support.small_tables import SCHEMA, Row, rows

Options = Mapping[str, object]
Seen = Sequence[Row] | None
"""Rows of the table in order; None without a table."""

OPTIONS: Options = {**OPTIONS_OF_SERVICES, "lsm.writer.id": "query"}
RETAIN_ONE: Options = {"hoodie.clean.commits.retained": 1}
COPY_ON_WRITE: Options = {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}
INLINE_LOGS: Options = {"hoodie.write.table.version": 9, "hoodie.table.storage.layout": "default"}
NEW_PARTITION = 2
"""The batch that has the first row of another partition."""
EXTRA: Row = ("extra", "nl", 1, 1)


@dataclass(frozen=True)
class Call:
    """One call of the library.

    Attributes:
        run: made on a lake; made again after a power loss, unless it had returned.
        rows: of the table when it has returned.
    """

    run: Callable[[Path], object]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Scenario:
    """A lake, and calls that are recorded.

    Attributes:
        options: of the table and all its writers.
        prepare: makes the lake's files, which are durable before the first call.
        rows: of the table before the first call.
        calls: one after the other.
        counts_services: whether there are as many compactions and cleans after a power loss as without one.
    """

    options: Options
    prepare: Callable[[Path], None]
    rows: Seen
    calls: Sequence[Call]
    counts_services: bool = True

    def expected(self, returned: int) -> Seen:
        """The rows when so many calls have returned."""
        return self.calls[returned - 1].rows if returned else self.rows

    def record(self, lake: Path) -> Recording:
        """Make the lake, and record the calls."""
        lake.mkdir()
        self.prepare(lake)
        recorder = Recorder(lake)
        with recorder.running():
            for call in self.calls:
                recorder.returned(call.run(lake))
        return recorder.recording


def opened(lake: Path, options: Options) -> LsmTable:
    """The table, as a new process opens it."""
    return LsmTable(lake / "table", {**OPTIONS, **options})


def batch_rows(batch: int) -> list[Row]:
    """Six rows: of two partitions with two buckets each, half of them updates of the batch before; one of a third."""
    places = ("nl", "de", "nl", "de", "nl", "be" if batch >= NEW_PARTITION else "de")
    return [(f"k{batch * 3 + n}", places[n], batch, batch * 100 + n) for n in range(6)]


def rows_after(batches: int) -> list[Row]:
    """The rows of so many batches."""
    return sorted({(row[0], row[1]): row for batch in range(batches) for row in batch_rows(batch)}.values())


def creation(options: Options) -> Call:
    """Create the table, or find it created."""

    def run(lake: Path) -> object:
        with suppress(ConfigError):
            LsmTable.create(lake / "table", SCHEMA, {**OPTIONS, **options})
        opened(lake, options)
        return None

    return Call(run, [])


def upsert(options: Options, batch: int) -> Call:
    """Write a batch, or find it written."""
    return Call(lambda lake: _write(lake, options, batch_rows(batch), batch_id=batch), rows_after(batch + 1))


def _write(lake: Path, options: Options, values: Sequence[Row], batch_id: int | None = None) -> object:
    """Write rows under the names that the columns have; a rename that was decided may be completed by the write."""
    table = opened(lake, options)
    try:
        return table.upsert(rows(*values).rename_columns(table.schema.names), batch_id=batch_id)
    except SchemaError:
        return table.upsert(rows(*values).rename_columns(table.schema.names), batch_id=batch_id)


def write_extra(lake: Path, options: Options) -> None:
    """Write the row of another writer."""
    _write(lake, {**options, "lsm.writer.id": "other"}, [EXTRA])


def grown(options: Options, batches: int, *between: Callable[[LsmTable], object]) -> Callable[[Path], None]:
    """Make a table of so many batches; each of `between` is called after one of the last of them."""

    def prepare(lake: Path) -> None:
        LsmTable.create(lake / "table", SCHEMA, {**OPTIONS, **options})
        for batch in range(batches):
            upsert(options, batch).run(lake)
            if batch >= batches - len(between):
                between[batch - batches](opened(lake, options))

    return prepare


def first_batch(options: Options) -> Scenario:
    """Create a table and write its first batch."""
    return Scenario(options, lambda lake: None, None, [creation(options), upsert(options, 0)])


def next_batch(options: Options) -> Scenario:
    """Write a batch of four buckets into a table of two batches."""
    return Scenario(options, grown(options, 2), rows_after(2), [upsert(options, 2)])


def compaction(options: Options) -> Scenario:
    """Schedule a compaction and run it."""
    call = Call(lambda lake: opened(lake, options).compact(), rows_after(2))
    return Scenario(options, grown(options, 2), rows_after(2), [call])


def clean(options: Options) -> Scenario:
    """Schedule a clean of slices that a compaction has replaced, and run it."""
    retained = {**options, **RETAIN_ONE}
    call = Call(lambda lake: opened(lake, retained).clean(), rows_after(4))
    prepare = grown(retained, 4, LsmTable.compact, LsmTable.compact, lambda table: None)
    return Scenario(retained, prepare, rows_after(4), [call])


def archiving(options: Options) -> Scenario:
    """Write a batch, and archive what is older, after earlier writes were archived."""
    archives = {
        **options,
        **RETAIN_ONE,
        "hoodie.archive.automatic": True,
        "hoodie.keep.min.commits": 2,
        "hoodie.keep.max.commits": 3,
        "hoodie.metadata.compact.max.delta.commits": 2,
    }
    return Scenario(archives, grown(archives, 9), rows_after(9), [upsert(archives, 9)])


def rollback(options: Options) -> Scenario:
    """Write a batch after its writer died with data files written: roll back, and write again."""
    return _after_death(options, lambda calls: _last(calls, "create_or_close", ".parquet") + 1)


def completion(options: Options) -> Scenario:
    """Write a batch after its writer died when it had decided to complete it: complete it, write nothing."""
    return _after_death(options, lambda calls: _last(calls, "put_if_absent", DECISION_FOLDER) + 1)


def renaming(options: Options) -> Scenario:
    """Rename a column, or find it renamed, and write a batch."""

    def run(lake: Path) -> object:
        try:
            return opened(lake, options).rename_columns({"qty": "count"})
        except SchemaError:
            assert "count" in opened(lake, options).schema.names
            return None

    calls = [Call(run, rows_after(2)), upsert(options, 2)]
    return Scenario(options, grown(options, 2), rows_after(2), calls)


def _after_death(options: Options, point: Callable[[Sequence[tuple[str, str]]], int]) -> Scenario:
    def prepare(lake: Path) -> None:
        grown(options, 2)(lake)
        with TemporaryDirectory(dir=lake.parent) as other:
            calls = _calls_of_a_batch(Path(other), options)
        table = opened(lake, options)
        table.storage = FaultyStorage(table.storage, {point(calls): Fault.KILL_BEFORE})
        with suppress(Killed):
            table.upsert(rows(*batch_rows(2)), batch_id=2)
        assert list((lake / "table" / TEMP_FOLDER).iterdir()), "the writer died with its markers left"

    return Scenario(options, prepare, rows_after(2), [upsert(options, 2)])


def _calls_of_a_batch(lake: Path, options: Options) -> Sequence[tuple[str, str]]:
    grown(options, 2)(lake)
    table = opened(lake, options)
    table.storage = counting = FaultyStorage(table.storage)
    table.upsert(rows(*batch_rows(2)), batch_id=2)
    return counting.calls


def _last(calls: Sequence[tuple[str, str]], method: str, path: str) -> int:
    found = [number for number, call in enumerate(calls) if call[0] in method and path in call[1]]
    return found[-1]


def metadata_table_made() -> Scenario:
    """Write a batch that makes the metadata table."""
    return Scenario(ENABLED, grown({"hoodie.metadata.enable": False}, 2), rows_after(2), [upsert(ENABLED, 2)])


def metadata_table_dropped() -> Scenario:
    """Write a batch that drops the metadata table."""
    disabled = {"hoodie.metadata.enable": False}
    return Scenario(disabled, grown(ENABLED, 2), rows_after(2), [upsert(disabled, 2)])


def version_change() -> Scenario:
    """Downgrade a table to version 9, with inline logs, which rewrites its files and its properties."""

    def run(lake: Path) -> object:
        return opened(lake, {}).change_version(9, "default").config.version

    # A clean that was interrupted with all its files deleted stays pending: the change does not wait for it.
    return Scenario({}, grown({}, 2), rows_after(2), [Call(run, rows_after(2))], counts_services=False)


def seen_rows(lake: Path, options: Options) -> Seen:
    """What a reader sees of the table; raises any other error than that there is none."""
    try:
        table = opened(lake, options)
    except TableNotFound:
        return None
    found: pa.Table = table.scan().to_arrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())
