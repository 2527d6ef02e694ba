"""Read what the headers of logs say, by which a plan knows what log compactions have replaced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from streaming_lsm.file_group.data_file import open_log
from streaming_lsm.file_group.file_system_view import LogFile
from streaming_lsm.format.log.inline_blocks import read_blocks
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.checked import read_checked

_MOST_KEPT = 1 << 17


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What the header of a log says.

    Attributes:
        compacted: the instants whose logs it replaces; empty unless a log compaction wrote it.
        is_partial: whether its rows may be partial.
    """

    compacted: tuple[str, ...] = ()
    is_partial: bool = False


class LogFactsReader:
    """Reads the headers of logs and keeps what they say: no data file changes, and no name is used again."""

    def __init__(self, storage: Storage, rule: MergeRule) -> None:
        """Begin without any."""
        self._storage, self._rule = storage, rule
        self._kept: dict[str, LogFacts] = {}

    def __call__(self, logs: Sequence[LogFile]) -> Sequence[LogFacts]:
        """Read the headers of logs.

        Raises:
            CorruptFileError: a file is missing or damaged.
            UnsupportedTable: a file has a feature that is not supported.
        """
        unknown = [log for log in logs if log.path not in self._kept]
        if len(self._kept) + len(unknown) > _MOST_KEPT:
            self._kept = {}
            unknown = list(logs)
        self._kept.update({log.path: self._read(log) for log in unknown})
        return [self._kept[log.path] for log in logs]

    def _read(self, log: LogFile) -> LogFacts:
        if log.is_native:
            with ExitStack() as files:
                _, header = open_log(self._storage, log, self._rule, files)
            return LogFacts(header.compacted, header.is_partial)
        blocks = read_blocks(read_checked(self._storage, log.path), log.path)
        compacted = next((block.compacted for block in blocks if block.compacted), ())
        return LogFacts(compacted, any(block.is_partial for block in blocks))
