"""Tables of very many data files: one partition is written for real, and its files are linked into the others.

The commits are real transactions, with the write stats of the linked files, so that timeline, file state and metadata
table are those of a table that was written file by file. Only the rows of a linked file say another partition.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from streaming_lsm import LsmTable
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.table.file_names import BaseFileName, bucket_file_id, parse_file_name
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME
from streaming_lsm.write.partition_writer import WriteResult
from streaming_lsm.write.plan import BULK_INSERT
from tests.bench.workload import KEY, ORDERING, orders

PARTITION = "part"
_KEYS_OF_A_GROUP = 20
_MOST_LINKS = 30_000
_OF_A_COMMIT = 50
"""Partitions of one commit."""


@dataclass(frozen=True)
class Shape:
    """How many files a table has: `partitions`, each with `groups` file groups of one base file."""

    partitions: int = 1_000
    groups: int = 100


def make_linked_table(folder: str, shape: Shape, options: dict[str, object]) -> LsmTable:
    """A partitioned table of linked base files, with three real upserts into a few of its partitions."""
    first, *others = (name_of(number) for number in range(shape.partitions))
    rows = rows_of(first, shape.groups * _KEYS_OF_A_GROUP, seed=0)
    given = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.datasource.write.partitionpath.field": PARTITION,
        "hoodie.table.ordering.fields": ORDERING,
        **options,
    }
    table = LsmTable.create(folder, rows.schema, given)
    table.bulk_insert(rows)
    newest = table.timeline.completed_writes[-1]
    stats = table.timeline.read_commit(newest).stats
    sources = _Sources(Path(folder), stats)
    for begin in range(0, len(others), _OF_A_COMMIT):
        _commit_links(table, sources, others[begin : begin + _OF_A_COMMIT], shape.groups)
    for number in range(1, 4):
        table.upsert(rows_of(name_of(number * 7 % shape.partitions), 50, seed=number))
    return table


def name_of(number: int) -> str:
    """Path of a partition."""
    return f"p{number:04d}"


def rows_of(partition: str, count: int, seed: int) -> pa.Table:
    """Rows of one partition."""
    found = orders(count, 2 * count, seed)
    return found.append_column(PARTITION, pa.repeat(pa.scalar(partition), count))


class _Sources:
    """The files of the real partition, copied when a file has as many links as a file system allows."""

    def __init__(self, root: Path, stats: Sequence[WriteStat]) -> None:
        self.root, self.stats = root, stats
        self._links = [root / stat.path for stat in stats]
        self._counts = [1] * len(stats)

    def link(self, number: int, target: Path) -> None:
        """Link a source file to a new name."""
        if self._counts[number] == _MOST_LINKS:
            shutil.copyfile(self._links[number], target)
            self._links[number], self._counts[number] = target, 1
        else:
            os.link(self._links[number], target)
            self._counts[number] += 1


def _commit_links(table: LsmTable, sources: _Sources, partitions: Sequence[str], groups: int) -> None:
    """Commit a file for each file group of some new partitions."""
    table.prepare_write()
    with table.transaction(operation=BULK_INSERT) as running:
        plan = table.plan(running, BULK_INSERT)
        plan = replace(plan.at(running.begin(plan.action)), sole=True)
        stats = tuple(
            stat
            for path in partitions
            for stat in _linked(sources, path, groups, plan.instant, plan.config.has_buckets)
        )
        table.commit(running, plan, WriteResult(stats))


def _linked(sources: _Sources, partition: str, groups: int, instant: str, has_buckets: bool) -> Iterator[WriteStat]:
    folder = sources.root / partition
    folder.mkdir()
    metadata = Path(sources.stats[0].partition_path) / PARTITION_METADATA_NAME
    shutil.copyfile(sources.root / metadata, folder / PARTITION_METADATA_NAME)
    chance = np.random.default_rng(int(partition.removeprefix("p")))
    for group in range(groups):
        number = group % len(sources.stats)
        source = sources.stats[number]
        name = parse_file_name(source.file_name)
        assert isinstance(name, BaseFileName)
        unique = uuid.UUID(bytes=chance.bytes(16), version=4)
        file_id = bucket_file_id(int(name.file_id[:8]), unique) if has_buckets else f"{unique}-0"
        linked = replace(name, file_id=file_id, instant=instant)
        sources.link(number, folder / str(linked))
        yield replace(source, partition_path=partition, file_id=file_id, path=f"{partition}/{linked}")
