"""Find the writes that were completed after a compaction was planned, though they had begun before it.

Such a *late write* is not in the base files of the compaction: its logs belong on top of them, by its completion time
(docs/format/10-rules.md, "Rule 8"). Names do not tell it. A plan that is left does; else a write is late if a
compaction has no row of it, and lacks a key that it wrote last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.arrow.columns import flags
from streaming_lsm.file_group.data_file import open_base, open_log
from streaming_lsm.file_group.file_system_view import BaseFile, LogFile
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.format.table.file_names import BaseFileName, LogFileName
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import COMMIT_TIME, IS_DELETED, RECORD_KEY, from_avro
from streaming_lsm.services.repair.found_files import FoundFile
from streaming_lsm.storage.base import Storage

Group = tuple[str, str]
"""Partition path and file id."""

_TIMED = pa.schema([(RECORD_KEY, pa.string()), (COMMIT_TIME, pa.string())])


@dataclass
class LateWrites:
    """Hold what was found.

    Attributes:
        since: of each late write the last compaction that does not have it.
        doubtful: writes of which it cannot be told, each with the compaction.
    """

    since: dict[str, str] = field(default_factory=dict)
    doubtful: dict[str, str] = field(default_factory=dict)


def is_compacted(file: FoundFile) -> bool:
    """Return whether a base file of a merge-on-read table was written by a compaction, which keeps commit times."""
    return file.is_base and file.instant not in file.commits


@dataclass(frozen=True)
class LateWriteFinder:
    """Finds late writes in the files of a merge-on-read table.

    Attributes:
        storage: the table's files.
        rule: how records of one key merge.
        plans: plans of compactions that are left, by requested time.
        archived_deletes: delete logs of archived writes, which may have deleted rows that seem to be missing.
    """

    storage: Storage
    rule: MergeRule
    plans: Mapping[str, CompactionPlan]
    archived_deletes: Sequence[FoundFile] = ()

    def find(self, files: Iterable[FoundFile]) -> LateWrites:
        """Find them; keys are read only of logs of which no compaction has a row."""
        found, groups = LateWrites(), defaultdict(list)
        for file in (*files, *self.archived_deletes):
            if not file.is_change_log:
                groups[file.group].append(file)
        merged: dict[str, list[Group]] = defaultdict(list)
        seen: dict[str, set[str]] = defaultdict(set)
        for group, members in sorted(groups.items()):
            for file in members:
                if is_compacted(file):
                    merged[file.instant].append(group)
                    seen[file.instant] |= file.commits
        for instant in sorted(merged):
            for group in merged[instant]:
                self._look(found, group, groups[group], instant, frozenset(seen[instant]))
        return found

    @staticmethod
    def _base(files: Sequence[FoundFile], instant: str) -> FoundFile | None:
        return next((file for file in files if file.instant == instant and is_compacted(file)), None)

    def _look(
        self, found: LateWrites, group: Group, files: Sequence[FoundFile], instant: str, seen: frozenset[str]
    ) -> None:
        """Look at the logs of one file group that may have been merged by the compaction at `instant`."""
        base = self._base(files, instant)
        assert base is not None
        before = max((file.instant for file in files if file.is_base and file.instant < instant), default="")
        logs = [
            f for f in files if not f.is_base and before <= max(f.instant, found.since.get(f.instant, "")) < instant
        ]
        planned, archived = self._planned(group, instant), {log.instant for log in self.archived_deletes}
        if planned is not None:
            late = sorted({log.instant for log in logs if log.path.rpartition("/")[2] not in planned} - archived)
            found.since.update(dict.fromkeys(late, instant))
            return
        covered = {time for log in logs for time in log.compacted}
        unseen = sorted({log.instant for log in logs} - seen - covered - archived)
        unseen = [time for time in unseen if not any(log.compacted for log in logs if log.instant == time)]
        if not unseen:
            return
        keys = {log.path: self._read(log, base).column(0) for log in logs if isinstance(log.name, LogFileName)}
        stored = self._read(base, base)
        for time in unseen:
            verdict = self._is_late(time, base, logs, keys, stored)
            if verdict is None:
                found.doubtful[time] = instant
            elif verdict:
                found.since[time] = instant

    def _planned(self, group: Group, instant: str) -> frozenset[str] | None:
        plan = self.plans.get(instant)
        operations = [] if plan is None else [o for o in plan.operations if (o.partition_path, o.file_id) == group]
        return frozenset(operations[0].logs) if operations else None

    def _is_late(
        self,
        time: str,
        base: FoundFile,
        logs: Sequence[FoundFile],
        keys: Mapping[str, pa.ChunkedArray[Any]],
        stored: pa.Table,
    ) -> bool | None:
        """Return whether the compaction lacks a write; None if that cannot be told."""
        mine = [log for log in logs if log.instant == time]
        others = [log for log in logs if log.instant > time or (log.instant != time and log.deletes)]
        if any(log.path not in keys for log in (*mine, *others)) or (self.rule.event_time and base.schema is None):
            return None
        touched = _joined([keys[log.path] for log in others])
        deleted = _joined([keys[log.path] for log in others if log.deletes])
        verdicts = [self._verdict(log, self._read(log, base), stored, touched, deleted) for log in mine]
        return True if True in verdicts else None if None in verdicts else False

    def _verdict(
        self,
        log: FoundFile,
        rows: pa.Table,
        stored: pa.Table,
        touched: pa.ChunkedArray[Any],
        deleted: pa.ChunkedArray[Any],
    ) -> bool | None:
        """Return whether rows of a log would be in the base file, if they had been merged; None if it cannot be told.

        Args:
            rows: those of the log: key, commit time, ordering values.
            stored: those of the base file.
            touched: keys of later writes, and of all deletes, of others.
            deleted: keys of all deletes of others.
        """
        keys = rows.column(0)
        places = pc.index_in(keys, stored.column(0))
        absent, others = flags(pc.is_null(places)), flags(pc.is_in(keys, touched))
        # A row that is missing, and that no other file deletes or replaces, may be a delete itself.
        is_missing = bool(log.rows and (absent & ~others).any())
        if is_missing and not self._marks_deletes(log):
            return True
        there = pa.array(~absent)
        rows, held, others = rows.filter(there), stored.take(places.drop_null()), others[~absent]
        is_older = flags(pc.less(held.column(1), pa.scalar(log.instant)))
        above, equal = is_older & ~others, ~is_older | others
        ranks = self.rule.ranks(pa.concat_tables([rows, held]))
        if ranks is not None:
            mine, base = ranks[: len(rows)], ranks[len(rows) :]
            reset = flags(pc.is_in(rows.column(0), deleted))
            larger, same = mine > base, mine == base
            marks = self.rule.unordered_deletes(rows, np.full(len(rows), log.deletes > 0))
            above = np.where(marks, above, ~reset & (larger | (same & is_older)))
            equal = np.where(marks, equal, (reset & (larger | same)) | (same & ~is_older))
        if above.any():
            return True
        return None if equal.any() or is_missing or (log.rows and absent.any()) else False

    def _marks_deletes(self, log: FoundFile) -> bool:
        """Return whether rows of a data log may be deletes."""
        return self.rule.delete_field is not None or log.schema is None or f'"{IS_DELETED}"' in log.schema

    def _read(self, file: FoundFile, base: FoundFile) -> pa.Table:
        """Read the keys, commit times and ordering values of a file, these in the types of a base file."""
        names = self.rule.ordering_fields if base.schema is not None else ()
        types = from_avro(base.schema or "", base.path) if names else pa.schema([])
        schema = pa.schema([*_TIMED, *(types.field(name) for name in names)])
        with ExitStack() as files:
            if isinstance(file.name, BaseFileName):
                opened = open_base(self.storage, BaseFile(file.path, file.name, file.size), files)
            else:
                assert isinstance(file.name, LogFileName)
                opened, _ = open_log(self.storage, LogFile(file.path, file.name, file.size), self.rule, files)
            return pa.Table.from_batches(opened.batches(schema), schema)


def _joined(keys: Sequence[pa.ChunkedArray[Any]]) -> pa.ChunkedArray[Any]:
    return pa.chunked_array([chunk for each in keys for chunk in each.chunks], pa.string())
