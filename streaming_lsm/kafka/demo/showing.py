"""Print the demo's table: rows, timeline, files before and after each compaction, and the versions of a key."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.actions.commit import count_deletes
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.table import LsmTable
from streaming_lsm.timeline.instant import Instant


def show_table(table: LsmTable, folder: Path) -> None:
    """Print rows, timeline, files, compactions and the history of a key; `folder` is that of the table."""
    rows = table.scan().to_arrow()
    print(f"\nThe table has {rows.num_rows:,} rows. Five of them:")
    _print_table(rows.slice(0, 5))
    print("\nTimeline:")
    for instant in table.timeline.every_write:
        stats = table.timeline.read_commit(instant).stats
        written, deleted = sum(stat.num_writes for stat in stats), count_deletes(stats)
        print(
            f"  {instant.requested} {instant.action:<12} completed {instant.completed}  "
            f"{len(stats):3} files, {written:6,} rows, {deleted:5,} deletes"
        )
    for before, compaction in compactions(table):
        print(f"\nCompaction {compaction.requested}: base and log files per bucket before")
        _print_files(table.file_slices(as_of=before.requested))
        print("and after")
        _print_files(table.file_slices(as_of=compaction.requested))
    print("\nBase and log files per bucket now:")
    _print_files(table.file_slices())
    _show_key(table)
    _show_log_file(table, folder)


def _show_key(table: LsmTable) -> None:
    """Print the history of the key with the most versions among the first four."""
    keys = [str(key) for key in table.scan(columns=["order_id"]).to_arrow()["order_id"].slice(0, 4).to_pylist()]
    histories = {key: table.history(key) for key in keys}
    key = max(histories, key=lambda name: histories[name].num_rows)
    print(f"\nVersions of {key} in the files, the oldest first:")
    _print_table(histories[key].select(["_hoodie_commit_time", "status", "qty", "updated_at", "_lsm_deleted"]))


def _show_log_file(table: LsmTable, folder: Path) -> None:
    """Query one log file with duckdb, as any Parquet tool reads native log files."""
    paths = [path for found in table.file_slices() for path in found.paths]
    path = max(paths, key=lambda name: name.endswith(".log.parquet"))
    file = str(folder / path).replace("'", "''")
    query = f"SELECT count(*), min(_hoodie_record_key), max(_hoodie_record_key), sum(amount) FROM '{file}'"
    with duckdb.connect() as connection:
        [(count, first, last, amount)] = connection.execute(query).fetchall()
    print(f"\nduckdb on one file ({path}): {count:,} rows, keys {first} to {last}, amounts {amount:,}")


def compactions(table: LsmTable) -> list[tuple[Instant, Instant]]:
    """Return each compaction of the table, with the write before it."""
    timeline = table.timeline
    return [
        (before, write)
        for before, write in itertools.pairwise(timeline.every_write)
        if timeline.read_commit(write).operation_type == "COMPACT"
    ]


def _print_files(slices: Sequence[FileSlice]) -> None:
    """Print the base file and the number of log files of each bucket."""
    for partition, found in itertools.groupby(slices, key=lambda file_slice: file_slice.partition_path):
        counts = [
            f"bucket {bucket_of(one.file_id)}: {'1 base' if one.base else 'no base'} + {len(one.logs)} logs"
            for one in found
        ]
        print(f"  {partition or '(unpartitioned)'}: {'  '.join(counts)}")


def _print_table(rows: pa.Table) -> None:
    """Print rows as aligned columns."""
    cells = [[str(name) for name in rows.column_names]]
    cells += [["" if value is None else str(value) for value in row.values()] for row in rows.to_pylist()]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
