"""Placeholder."""

from __future__ import annotations

from dataclasses import dataclass

from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.services.compaction.task import CompactionTask


@dataclass(frozen=True)
class LogCompactionTask:
    """Placeholder."""

    full: CompactionTask

    def __call__(self, operation: tuple[int, FileSlice]) -> tuple[WriteStat, ...]:
        """Placeholder."""
        raise NotImplementedError
