"""Write the log files of one flush: rows and deletes as one version, earlier deletes as the version before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType

import pyarrow as pa

from streaming_lsm.format.actions.commit import WriteStat, log_file_stat
from streaming_lsm.format.base_file_footer import AVRO_SCHEMA_KEY
from streaming_lsm.format.log.key_entries import ACCUMULATED_KEY, CoveredLog, KeyEntry, accumulated_text, own_footer
from streaming_lsm.format.log.native_footer import UNTIL_KEY, Chain, LogHeader
from streaming_lsm.format.table.file_names import LogFileName, LogKind
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.files.earlier_logs import EarlierLogs
from streaming_lsm.write.files.log_keys import LogKeys
from streaming_lsm.write.files.sorted_parquet_file import SortedParquetFile
from streaming_lsm.write.plan import FileOptions


@dataclass(frozen=True)
class OpenNativeLog:
    """Writes one open log file.

    Attributes:
        partition: its partition path.
        name: its name.
        file: its rows so far.
        footer: what its footer will say.
        updates: whether its rows count as updates.
        keys: its record keys so far; None if its footer has no key entry.
    """

    partition: str
    name: LogFileName
    file: SortedParquetFile
    footer: Mapping[str, str]
    updates: bool
    keys: LogKeys | None = None

    def append(self, rows: pa.Table) -> None:
        """Append rows, with their record key."""
        self.file.append(rows)
        if self.keys is not None:
            self.keys.add(rows.column(RECORD_KEY))

    @cached_property
    def entry(self) -> KeyEntry | None:
        """The key entry, once all rows were appended."""
        return None if self.keys is None else self.keys.entry()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the open row group, and of the keys that wait for the bloom filter."""
        return self.file.buffered_bytes + (0 if self.keys is None else self.keys.held_bytes)

    def finish(self, covered: Sequence[CoveredLog] = ()) -> WriteStat:
        """Make the file durable.

        Args:
            covered: the logs of the file group that its accumulated key entry covers.
        """
        footer = dict(self.footer)
        if self.entry is not None:
            footer |= own_footer(self.entry)
        if covered:
            footer[ACCUMULATED_KEY] = accumulated_text(covered)
        size, rows = self.file.finish(footer), self.file.rows
        if self.name.kind is LogKind.DELETES:
            return log_file_stat(self.partition, self.name, total_bytes=size, num_deletes=rows)
        updates = rows if self.updates else 0
        counts = {"num_inserts": rows - updates, "num_updates": updates}
        stat = log_file_stat(self.partition, self.name, total_bytes=size, **counts)
        return replace(stat, ranges=self.file.ranges)


@dataclass(frozen=True)
class NativeLogTarget:
    """Holds the properties that all native logs of one file group share.

    Attributes:
        storage: the table's files.
        partition: partition path.
        instant: the instant that writes.
        avro: Avro JSON of the rows, meta columns included.
        delete_avro: Avro JSON of the deletes.
        updates: whether rows count as updates.
        options: Parquet settings.
        create: creates the marker of a file and returns its path and name, by version and kind.
        compacted: the instants whose logs these replace, if a log compaction writes them.
        chain: the log compactions among these, and among what they replaced; None if it is not known.
        earlier: the committed logs of the file group, for accumulated key entries; None if none are written.
    """

    storage: Storage
    partition: str
    instant: str
    avro: str
    delete_avro: str
    updates: bool
    options: FileOptions
    create: Callable[[int, LogKind], tuple[str, LogFileName]]
    compacted: tuple[str, ...] = ()
    chain: Chain | None = None
    earlier: EarlierLogs | None = None

    def open(self, version: int, kind: LogKind) -> OpenNativeLog:
        """Create a log file; raises as `SortedParquetFile`."""
        path, name = self.create(version, kind)
        file = SortedParquetFile(self.storage, path, self.options, instant=self.instant)
        header = LogHeader(self.instant, self.avro, compacted=self.compacted, chain=self.chain).to_footer()
        footer = {key.decode(): value.decode() for key, value in header.items()}
        footer[AVRO_SCHEMA_KEY] = self.avro if kind is LogKind.DATA else self.delete_avro
        keys = None if self.options.log_keys is None else LogKeys(self.options.log_keys)
        return OpenNativeLog(self.partition, name, file, footer, self.updates, keys)


class NativeLogWriter:
    """Writes up to three log files in parallel until one of them is large enough.

    Then all are closed, and the next ones have a higher version (docs/format/01-table.md, "Native log names").
    Earlier deletes are written as the version before the rows, which they must not delete
    (docs/format/10-rules.md, "Rule 2"); it is reserved when the first block is known, as versions have no gaps.
    Leaving the context unfinished deletes the files.
    """

    def __init__(self, target: NativeLogTarget, version: int, *, has_earlier_deletes: bool) -> None:
        """Create a writer without open files.

        Args:
            target: what the files have in common.
            version: the first version to use.
            has_earlier_deletes: whether the first block has earlier deletes.
        """
        self._target, self._limit = target, target.options.log_bytes
        self._earlier_version = version if has_earlier_deletes else None
        self._version = version + has_earlier_deletes
        self._logs: dict[tuple[int, LogKind], OpenNativeLog] = {}
        self._periods: dict[int, int] = {}
        self._until: dict[int, str] = {}
        self._files = ExitStack()

    def __enter__(self) -> NativeLogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)

    @property
    def next_version(self) -> int:
        """The first version after those of this log."""
        return self._version + max(1, len(self._periods))

    @property
    def size(self) -> int:
        """Bytes of the largest file, what is still held included."""
        return max((log.file.size for log in self._logs.values()), default=0)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the files' open row groups."""
        return sum(log.buffered_bytes for log in self._logs.values())

    def takes(self, earlier_deletes: pa.Table) -> bool:
        """Test whether a block with these earlier deletes can be added; if not, it needs new log files."""
        return self.size < self._limit and (self._earlier_version is not None or not earlier_deletes.num_rows)

    def append(self, rows: pa.Table, deletes: pa.Table, earlier_deletes: pa.Table) -> None:
        """Add a block's rows (with meta columns), deletes and earlier deletes."""
        if earlier_deletes.num_rows:
            assert self._earlier_version is not None  # `takes` said so
            self._append(self._earlier_version, LogKind.DELETES, earlier_deletes)
        if rows.num_rows:
            self._append(self._version, LogKind.DATA, rows)
        if deletes.num_rows:
            self.append_deletes(deletes)

    def append_deletes(self, deletes: pa.Table, period: int = 0, until: str = "") -> None:
        """Add deletes; there is a file even if there are none.

        Those of each period are a version of their own, the first of them with the rows, as no two files of this writer
        have a key in common but that of the earlier deletes.

        Args:
            period: number of the period; see `Retention`.
            until: the time of the newest one, which the footer says (docs/format/06-services.md, "Kept deletes"); empty
                if it is the instant of this writer.
        """
        version = self._periods.setdefault(period, self._version + len(self._periods))
        self._append(version, LogKind.DELETES, deletes)
        self._until[version] = max(until, self._until.get(version, ""))

    def _append(self, version: int, kind: LogKind, rows: pa.Table) -> None:
        place = (version, kind)
        if place not in self._logs:
            self._logs[place] = self._target.open(version, kind)
            self._files.enter_context(self._logs[place].file)
        self._logs[place].append(rows)

    def finish(self) -> Iterator[WriteStat]:
        """Make the files durable, the oldest in merge order first; the newest has the accumulated key entry."""
        places = sorted(self._logs, key=lambda place: (place[0], place[1].rank))
        finished: list[CoveredLog] = []
        for place in places:
            log, until = self._logs[place], self._until.get(place[0], "") if place[1] is LogKind.DELETES else ""
            log = replace(log, footer={**log.footer, UNTIL_KEY: until}) if until else log
            earlier = self._target.earlier if place == places[-1] else None
            covered = [] if earlier is None else earlier.covered_by(finished)
            stat = log.finish(covered)
            if log.entry is not None:
                finished.append(CoveredLog(str(log.name), stat.total_bytes, log.entry))
                if self._target.earlier is not None:
                    self._target.earlier.known.put(stat.path, (finished[-1], *covered))
            yield stat
        self._files.close()
