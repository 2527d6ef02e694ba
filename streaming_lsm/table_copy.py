"""Copy the rows of a table of any readable version into a new table.

The source is read to its end before the target is created, so that a damaged source leaves no target. All rows are
written in one commit; a target without a commit is that of an interrupted copy, which is resumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.config import Options, resolve
from streaming_lsm.errors import ConfigError, TableNotFound
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.properties import CDC_KEY
from streaming_lsm.query.scan import MapSlices, Scan
from streaming_lsm.readable_table import OptionValues, Path
from streaming_lsm.schema import table_schema
from streaming_lsm.table import LsmTable
from streaming_lsm.table_options import copied_options, new_table_config

_WRITER = "lsm copy"


@dataclass(frozen=True)
class TableCopy:
    """A planned copy.

    Attributes:
        scan: the snapshot of the source.
        row_count: number of its rows, all of which were read once.
        options: the target's options.
        config: the target's config.
        found: the empty target of an interrupted copy, None without one.
        dropped: settings of the source that the target does not have.
        path: the target's path.
    """

    scan: Scan
    row_count: int
    options: Options
    config: TableConfig
    found: LsmTable | None
    dropped: tuple[str, ...]
    path: Path

    def lines(self) -> Iterator[str]:
        """Describe each step in one line, for ``--dry-run``."""
        made = f"version {self.config.version}, layout {self.config.storage_layout}, {self.config.num_buckets} buckets"
        yield f"{'resume' if self.found else 'create'} {self.path}: {made}"
        yield f"write {self.row_count:,} {'row' if self.row_count == 1 else 'rows'} in one commit"
        yield from (f"leave out {setting}" for setting in self.dropped)

    def run(self) -> LsmTable:
        """Execute the copy; a few file slices and ``lsm.write.buffer.bytes`` of rows are in memory at a time."""
        target = self.found or LsmTable.create(self.path, self.scan.schema, self.options)
        # A batch with an identity, as an interrupted copy may have been decided: the transaction then completes it.
        target.options = target.options.merged(Options({config.WRITER_ID.key: _WRITER}))
        rows = pa.RecordBatchReader.from_batches(self.scan.schema, self.scan.to_batches())
        target.bulk_insert(rows, batch_id=0)
        return target


def plan_copy(
    source: LsmTable,
    path: Path,
    options: OptionValues,
    properties: Path | None = None,
    read: MapSlices | None = None,
) -> TableCopy:
    """Plan a copy: read the source to its end and check the target; nothing is changed.

    Args:
        path: the target's path.
        options: the target's options; others are taken from the source.
        properties: a Java properties file with further options of the target.
        read: maps a function over the file slices that are read; None for the source's own threads.

    Raises:
        CorruptFileError: the source is damaged.
        ConfigError: the options contradict each other, or `path` is a table with rows or with other settings.
    """
    given = resolve(options, properties)
    copied = Options(copied_options(source.config))
    if given.is_set(config.RECORD_KEY_FIELDS) or given.is_set(config.PARTITION_FIELDS):
        copied = copied.without(config.KEY_GENERATOR)  # it depends on the key and partition columns
    if given.is_set(config.CDC_ENABLED) and not given[config.CDC_ENABLED]:
        copied = copied.without(config.CDC_MODE)
    chosen = copied.merged(given)
    scan = source.scan() if read is None else replace(source.scan(), run=read)
    made = new_table_config(chosen, table_schema(scan.schema))
    found = _begun(path, chosen, made)
    row_count = sum(batch.num_rows for batch in scan.to_batches())
    dropped = (f"{CDC_KEY}=true",) if source.config.cdc_mode and not made.cdc_mode else ()
    return TableCopy(
        scan=scan, row_count=row_count, options=chosen, config=made, found=found, dropped=dropped, path=path
    )


def _begun(path: Path, options: Options, made: TableConfig) -> LsmTable | None:
    """Find the empty target, with these settings, of an interrupted copy; None if there is no table."""
    try:
        found = LsmTable(path, options)
    except TableNotFound:
        return None
    if found.config != made or found.timeline.completed_writes or found.file_slices():
        raise ConfigError(
            f"there is a table at {found.path} already, which is not an unfinished copy of this one; choose "
            "another path"
        )
    return found
