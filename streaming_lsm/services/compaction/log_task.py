"""Execute one operation of a log compaction: merge adjacent logs of a file slice into fewer, larger logs.

The base file is neither read nor written. See docs/format/06-services.md, "Log compaction".
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from streaming_lsm.arrow.columns import pc
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.log.native_footer import Chain
from streaming_lsm.format.table.file_names import InlineLogName, LogFileName, LogKind, WriteToken
from streaming_lsm.lock.heartbeat import check_still_inflight
from streaming_lsm.merge.log_fold import FoldedLogs
from streaming_lsm.query.slices.log_reader import LogReader
from streaming_lsm.query.slices.slice_reader import LogCounts
from streaming_lsm.schema import COMMIT_TIME
from streaming_lsm.services.compaction.attempt import attempt_token, discard
from streaming_lsm.services.compaction.target import CompactionTarget, with_counts
from streaming_lsm.services.compaction.timed import Timed
from streaming_lsm.write.files.inline_log_writer import BlockOptions, InlineLogTarget, InlineLogWriter
from streaming_lsm.write.files.kept_deletes import Retention
from streaming_lsm.write.files.native_log_writer import NativeLogTarget, NativeLogWriter
from streaming_lsm.write.files.prepare import prepare_data_file


@dataclass(frozen=True)
class LogCompactionTask:
    """Merges logs of one log compaction; picklable, so that it can be sent to executors.

    Memory is bounded by one batch per open log and the open row groups of the new logs. The records of logs that are
    not sorted are held in memory, as in a query.

    Attributes:
        target: the table, and how its files are written.
        native_logs: whether the table's version has native logs; inline ones are written if not.
        retention: which deletes a full compaction would keep: the deletes of each of its periods are a file that says
            their time, from which the retention goes on. None if none are kept.
    """

    target: CompactionTarget
    native_logs: bool = True
    retention: Retention | None = None

    def __call__(self, operation: tuple[int, FileSlice], chain: Chain | None = None) -> tuple[WriteStat, ...]:
        """Write logs that replace those of a slice; at least one, so that readers leave the replaced ones out.

        Args:
            operation: its number in the plan, and a slice without a base file. Its logs are adjacent in merge order,
                with all logs of each instant, none of them replaced by another one. If native logs are written, they
                include either all inline logs of the file slice or none (see `fold_unsorted_logs`).
            chain: the log compactions among these logs, and among what they replaced, so that a reader need not open
                any of them; None if it is not known.

        Returns:
            The stats of the new logs, the oldest in merge order first. The first one has the counts of what was read.

        Raises:
            CorruptFileError: a file is missing or damaged, or its footer contradicts its name.
            UnsupportedTable: rows of the table are made of several records, or a log has partial rows.
            Fenced: the log compaction was completed or rolled back meanwhile; the new files are removed.
        """
        number, found = operation
        rule = self.target.rule
        if not rule.takes_winner:
            what = f"merge strategy {rule.strategy}" if rule.strategy else f"partial update mode {rule.partial}"
            raise UnsupportedTable(
                f"{self.target.storage.uri}: {what}: its logs cannot be merged without the base file; run a full "
                f"compaction of {_group(found)}"
            )
        if found.base is not None or not found.logs:
            raise ValueError(f"{_group(found)}: a log compaction merges logs only, and at least one")
        counts = LogCounts()
        reader = LogReader(
            storage=self.target.storage,
            schema=self.target.schema,
            rule=self.target.rule,
            spill_folder=self.target.spill_folder,
            sorted_files=self.target.sorted_files,
            inline=not self.native_logs,
            file_names=self.target.file_names,
        )
        merged = Timed(reader.blocks(found, counts))
        output = _Output(self.target, attempt_token(number), found, self.native_logs, self.retention, chain)
        try:
            keys, stats = output.write(merged)
            check_still_inflight(self.target.storage, self.target.instant)
        except BaseException as error:
            discard(self.target, output.paths, error, inline=not self.native_logs)
            raise
        first = with_counts(stats[0], found, counts, records=keys, waited_ms=merged.waited_ms)
        return (replace(first, upsert_ms=merged.age_ms), *stats[1:])


@dataclass
class _Output:
    """Writes the logs of one attempt."""

    target: CompactionTarget
    token: WriteToken
    found: FileSlice
    native_logs: bool
    retention: Retention | None
    chain: Chain | None
    paths: list[str] = field(default_factory=list)

    def write(self, blocks: Iterable[FoldedLogs]) -> tuple[int, list[WriteStat]]:
        """Write all blocks; returns the number of keys, and the stats of the files."""
        keys, version = 0, 1
        stats: list[WriteStat] = []
        log: NativeLogWriter | InlineLogWriter | None = None
        with ExitStack() as files:
            for block in blocks:
                keys += block.rows.num_rows + block.deletes.num_rows
                if log is not None and not log.takes(block.unordered_deletes):
                    stats += log.finish()
                    version, log = log.next_version, None
                if log is None:
                    log = self._begin(version, has_earlier_deletes=block.unordered_deletes.num_rows > 0)
                    files.push(log)
                self._append(log, block)
            stats += [] if log is None else log.finish()
            if not stats:
                stats += self._without_records(files)
        return keys, stats

    def _append(self, log: NativeLogWriter | InlineLogWriter, block: FoldedLogs) -> None:
        rows, names = block.rows.cast(self.target.schema), self.target.delete_schema.names
        if self.retention is None or not isinstance(log, NativeLogWriter):
            log.append(rows, block.deletes.select(names), block.unordered_deletes)
            return
        log.append(rows, block.deletes.select(names).slice(0, 0), block.unordered_deletes)
        for period, found in self.retention.of_all.by_period(block.deletes):
            log.append_deletes(found.select(names), period, str(pc.max(found.column(COMMIT_TIME)).as_py()))

    def _without_records(self, files: ExitStack) -> Iterable[WriteStat]:
        log = self._begin(1, has_earlier_deletes=False)
        files.push(log)
        log.append_deletes(self.target.delete_schema.empty_table())
        return log.finish()

    def _begin(self, version: int, *, has_earlier_deletes: bool) -> NativeLogWriter | InlineLogWriter:
        if self.native_logs:
            return NativeLogWriter(self._native(), version, has_earlier_deletes=has_earlier_deletes)
        return InlineLogWriter(self._inline(), version)

    def _native(self) -> NativeLogTarget:
        target = self.target

        def create(version: int, kind: LogKind) -> tuple[str, LogFileName]:
            name = LogFileName(self.found.file_id, self.token, target.instant, version, kind)
            return self._prepare(name), name

        return NativeLogTarget(
            storage=target.storage,
            partition=self.found.partition_path,
            instant=target.instant,
            avro=target.avro,
            delete_avro=target.delete_avro,
            updates=True,  # as Hudi counts the rows of a log compaction
            options=target.files,
            create=create,
            compacted=self._compacted,
            chain=self.chain,
        )

    def _inline(self) -> InlineLogTarget:
        target, files = self.target, self.target.files

        def create(version: int) -> tuple[str, InlineLogName]:
            name = InlineLogName(self.found.file_id, target.instant, version, self.token)
            return self._prepare(name), name

        return InlineLogTarget(
            storage=target.storage,
            partition=self.found.partition_path,
            instant=target.instant,
            schema=target.schema,
            avro=target.avro,
            updates=True,
            options=BlockOptions(files.data_block_format, files.codec, files.log_bytes),
            create=create,
            compacted=self._compacted,
        )

    @property
    def _compacted(self) -> tuple[str, ...]:
        """The instants of the merged logs, ascending (docs/format/10-rules.md, "Rule 21").

        A merged output of a log compaction is listed by its own instant: what that replaced follows from its footer.
        """
        return tuple(sorted(dict.fromkeys(log.name.instant for log in self.found.logs)))

    def _prepare(self, name: LogFileName | InlineLogName) -> str:
        target = self.target
        path = prepare_data_file(target.storage, target.instant, self.found.partition_path, str(name))
        self.paths.append(path)
        return path


def _group(found: FileSlice) -> str:
    return f"file group {found.file_id!r} of partition {found.partition_path!r}"
