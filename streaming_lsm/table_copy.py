"""A new table with the rows of another one, of any version that is read.

The source is read to its end before there is a target, so that one that is damaged leaves nothing behind. All rows are
one commit: a target without one is a copy that died, and is gone on with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.config import Options, resolve
from streaming_lsm.errors import ConfigError, TableNotFound, UnsupportedTable
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.merge_mode import PARTIAL_KEY
from streaming_lsm.format.table.properties import CDC_KEY
from streaming_lsm.read.scan import Scan
from streaming_lsm.readable_table import OptionValues, Path
from streaming_lsm.schema import table_schema
from streaming_lsm.table import LsmTable
from streaming_lsm.table_options import copied_options, new_table_config


@dataclass(frozen=True)
class TableCopy:
    """A copy to be made.

    Attributes:
        scan: the rows of the source, as of one moment.
        row_count: how many there are; all of them could be read.
        options: of the target.
        config: the target's settings.
        found: the target as a copy that died has left it, None when there is none.
        dropped: settings of the source that the target does not have.
        path: of the target.
    """

    scan: Scan
    row_count: int
    options: Options
    config: TableConfig
    found: LsmTable | None
    dropped: tuple[str, ...]
    path: Path

    def lines(self) -> Iterator[str]:
        """One line for each step, for people to read first."""
        made = f"version {self.config.version}, layout {self.config.storage_layout}, {self.config.num_buckets} buckets"
        yield f"{'go on with' if self.found else 'create'} {self.path}: {made}"
        yield f"write {self.row_count:,} rows in one commit"
        yield from (f"leave out {setting}" for setting in self.dropped)

    def run(self) -> LsmTable:
        """Make it; a few file slices and ``lsm.write.buffer.bytes`` of rows are in memory at a time."""
        target = self.found or LsmTable.create(self.path, self.scan.schema, self.options)
        target.bulk_insert(pa.RecordBatchReader.from_batches(self.scan.schema, self.scan.to_batches()))
        return target


def plan_copy(source: LsmTable, path: Path, options: OptionValues, properties: Path | None = None) -> TableCopy:
    """Read a table to its end, and look at what is to become its copy; nothing is changed.

    Args:
        path: of the new table.
        options: of the new table, over what the source has.
        properties: a Java properties file with such options.

    Raises:
        CorruptFileError: the source is damaged.
        UnsupportedTable: new tables cannot do what the source does.
        ConfigError: the options contradict each other, or `path` is a table with rows or with other settings.
    """
    if source.config.partial_mode:
        raise UnsupportedTable(
            f"{source.path}: {PARTIAL_KEY}={source.config.partial_mode}: later writes to a copy would not be merged "
            "like this; partial updates are read, not written"
        )
    given = resolve(options, properties)
    copied = Options(copied_options(source.config))
    if given.is_set(config.RECORD_KEY_FIELDS) or given.is_set(config.PARTITION_FIELDS):
        copied = copied.without(config.KEY_GENERATOR)  # which goes with the columns
    chosen = copied.merged(given)
    scan = source.scan()
    made = new_table_config(chosen, table_schema(scan.schema))
    found = _begun(path, chosen, made)
    row_count = sum(batch.num_rows for batch in scan.to_batches())
    dropped = (f"{CDC_KEY}=true",) if source.config.properties.get(CDC_KEY, "").strip().lower() == "true" else ()
    return TableCopy(
        scan=scan, row_count=row_count, options=chosen, config=made, found=found, dropped=dropped, path=path
    )


def _begun(path: Path, options: Options, made: TableConfig) -> LsmTable | None:
    """The empty table with these settings that a copy has left which died."""
    try:
        found = LsmTable(path, options)
    except TableNotFound:
        return None
    if found.config != made or found.timeline.completed_writes or found.file_slices():
        raise ConfigError(f"there is a table at {found.path} already, which is not an unfinished copy of this one")
    return found
