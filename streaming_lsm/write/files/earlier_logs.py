"""Choose the committed logs that the accumulated key entry of a new log covers, and read their key entries.

The logs of a file group form *blocks*: a log, and the logs that its accumulated entry covers. A new log takes over the
blocks before it if its own becomes six times as large as the oldest of them, so that a log is written again once for
each six-fold growth of its block. A commit therefore costs the same in a slice of 20 logs and in one of 200. See
docs/format/03-native-logs.md, "Key entries".
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa

from streaming_lsm.errors import LsmError
from streaming_lsm.file_group.data_file import DataFile, FooterReader
from streaming_lsm.file_group.file_system_view import LogFile
from streaming_lsm.format.log.key_entries import CoveredLog, KeyEntry, covered_bytes
from streaming_lsm.format.log.native_footer import LogHeader
from streaming_lsm.format.table.file_names import LogFileName, parse_file_name
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.files.log_keys import LogKeys
from streaming_lsm.write.known_entries import KnownEntries
from streaming_lsm.write.plan import LogKeyOptions

_GROWTH = 6
"""Times the logs of a block that a log taking it over has in its own."""
_KEYS = pa.schema([(RECORD_KEY, pa.string())])


@dataclass(frozen=True)
class EarlierLogs:
    """The committed logs of a slice to which a log is added.

    Attributes:
        storage: the table's files.
        paths: of the logs, the oldest first; those that were compacted meanwhile do no harm.
        options: how filters are built, and how large an accumulated entry may be.
        known: the entries of logs that the same open table has written or read.
    """

    storage: Storage
    paths: Sequence[str]
    options: LogKeyOptions
    known: KnownEntries

    def covered_by(self, finished: Sequence[CoveredLog]) -> list[CoveredLog]:
        """Return the logs that the next log of the slice covers.

        A log that cannot be read ends the choice: an entry is a hint, for which no write fails.

        Args:
            finished: logs of the same write that were finished before.
        """
        seen = {log.name: log for log in finished}
        covered = dict(seen)
        size = sum(map(covered_bytes, finished))
        left = {path.rpartition("/")[2]: path for path in self.paths}
        for name in reversed(list(left)):
            if name in seen:
                continue
            block = self.known.of(left[name])
            if block is None:
                block = self._block(left[name])
                if block is None:
                    break
                self.known.put(left[name], block)
            added = [log for log in block if log.name in left and log.name not in seen]
            size += sum(map(covered_bytes, added))
            if len(added) > len(seen) + 1:
                break
            if size > self.options.most_bytes:
                # Of large logs, blocks of as many as there is room for.
                covered = covered if len(covered) > len(finished) else seen
                break
            seen |= {log.name: log for log in added}
            if added and len(seen) + 1 >= _GROWTH * len(added):
                covered = dict(seen)
        return list(covered.values())

    def _block(self, path: str) -> list[CoveredLog] | None:
        """Read a log's own entry and those that it covers; None if the log cannot be read.

        A log whose keys are not known has none, nor has a log of a log compaction: its header tells a reader what it
        replaced.
        """
        name = parse_file_name(path.rpartition("/")[2])
        if not isinstance(name, LogFileName):
            return None
        try:
            with ExitStack() as files:
                file, header = FooterReader(self.storage, partial=True).log(LogFile(path, name, 0), files)
                return self._entries(file, header)
        except (LsmError, OSError, pa.ArrowException):
            return None

    def _entries(self, file: DataFile, header: LogHeader) -> list[CoveredLog]:
        index = file.key_index
        assert file.opened is not None
        assert index is not None
        if header.compacted or header.chain is not None or header.is_partial:
            return []
        entry = index.own or self._of_rows(file)
        if entry is None:
            return []
        if entry.span is None:
            entry = replace(entry, span=file.key_range)
        own = CoveredLog(file.path.rpartition("/")[2], file.opened.source.size(), entry)
        return [own, *index.covered[0]]

    def _of_rows(self, file: DataFile) -> KeyEntry | None:
        """Build the entry of a log without one: of few rows from their keys, else from the statistics."""
        if file.rows > self.options.most_keys:
            return None if file.key_range is None else KeyEntry(file.rows, file.key_range, None)
        keys = (pa.chunked_array([batch.column(RECORD_KEY)]) for batch in file.batches(_KEYS))
        return LogKeys.entry_of(keys, self.options)
