"""Order the candidates of a compaction and limit their number (docs/format/06-services.md, "Compaction")."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError
from streaming_lsm.format.actions.compaction_plan import CompactionOperation

BY_LOG_SIZE = "LogFileSizeBasedCompactionStrategy"
BY_LOG_NUMBER = "LogFileNumBasedCompactionStrategy"
BOUNDED = "BoundedIOCompactionStrategy"
UNBOUNDED = "UnBoundedCompactionStrategy"
BY_DAY = "DayBasedCompactionStrategy"
BY_REGEX = "PartitionRegexBasedCompactionStrategy"
_WITHOUT_LIMIT = frozenset({UNBOUNDED, BY_DAY, BY_REGEX})
_NO_LIMIT = 1 << 62

LOG_BYTES, READ_MB = "TOTAL_LOG_FILES_SIZE", "TOTAL_IO_READ_MB"
_LOG_FILES, _IO_MB = "TOTAL_LOG_FILES", "TOTAL_IO_MB"
_DAY = re.compile(r"([0-9]{4})[/-]([0-9]{2})[/-]([0-9]{2})")


@dataclass(frozen=True)
class CompactionStrategy:
    """Orders the candidates of a compaction and limits their number.

    Attributes:
        name: Hudi's name of the strategy.
        min_log_bytes: minimum log bytes of a slice for `BY_LOG_SIZE`.
        min_log_files: minimum number of logs of a slice for `BY_LOG_NUMBER`.
        io_mb: target sum of bytes read and written, in MiB, for the strategies of a limit; the operation that reaches
            it is the last.
        days: newest partitions that `BY_DAY` takes.
        partitions: pattern of the whole partition path for `BY_REGEX`.
    """

    name: str = BY_LOG_SIZE
    min_log_bytes: int = 0
    min_log_files: int = 0
    io_mb: int = 512_000
    days: int = 10
    partitions: str = ""

    @staticmethod
    def of(options: Options) -> CompactionStrategy:
        """Read the strategy from the options.

        Raises:
            ConfigError: the strategy needs a pattern of partitions, and none is given.
        """
        name, pattern = options[config.COMPACTION_STRATEGY] or BY_LOG_SIZE, options[config.COMPACTION_PARTITIONS]
        if name == BY_REGEX and not pattern:
            raise ConfigError(
                f"{config.COMPACTION_STRATEGY.key}={BY_REGEX} needs {config.COMPACTION_PARTITIONS.key}, a pattern of "
                "partition paths: set it"
            )
        return CompactionStrategy(
            name,
            options[config.COMPACTION_LOG_BYTES],
            options[config.COMPACTION_LOG_FILES],
            options[config.COMPACTION_IO_MB],
            options[config.COMPACTION_DAYS],
            pattern or "",
        )

    def choose(self, candidates: Iterable[CompactionOperation]) -> tuple[CompactionOperation, ...]:
        """Choose the operations of a plan, the most urgent first.

        Raises:
            ConfigError: a partition path holds no day, for `BY_DAY`.
        """
        if self.name == UNBOUNDED:
            return tuple(candidates)
        if self.name == BY_REGEX:
            pattern = re.compile(self.partitions)
            return tuple(operation for operation in candidates if pattern.fullmatch(operation.partition_path))
        if self.name == BY_DAY:
            return self._newest_days(list(candidates))
        return self._within_io(self._ranked(candidates))

    def cut(self, chosen: Sequence[CompactionOperation]) -> list[tuple[CompactionOperation, ...]]:
        """Cut the operations that a strategy without a limit chose into plans, each within the limit of this one."""
        plans, left = [], tuple(chosen)
        while left:
            plan = left if self.name in _WITHOUT_LIMIT else self._within_io(left)
            plans.append(plan)
            left = left[len(plan) :]
        return plans

    @property
    def without_limit(self) -> CompactionStrategy:
        """This strategy without the limit of bytes read and written."""
        return replace(self, io_mb=_NO_LIMIT)

    def _newest_days(self, candidates: Sequence[CompactionOperation]) -> tuple[CompactionOperation, ...]:
        """Choose the operations of the newest days that have any, the newest first."""
        days = {operation.partition_path: _day(operation.partition_path) for operation in candidates}
        newest = sorted(set(days.values()), reverse=True)[: self.days]
        chosen = (operation for operation in candidates if days[operation.partition_path] in newest)
        return tuple(sorted(chosen, key=lambda operation: days[operation.partition_path], reverse=True))

    def _ranked(self, candidates: Iterable[CompactionOperation]) -> list[CompactionOperation]:
        least = {BY_LOG_SIZE: (LOG_BYTES, self.min_log_bytes), BY_LOG_NUMBER: (_LOG_FILES, self.min_log_files)}
        if self.name not in least:
            return list(candidates)
        metric, minimum = least[self.name]
        large = [operation for operation in candidates if operation.metrics[metric] >= minimum]
        return sorted(large, key=lambda operation: -operation.metrics[metric])

    def _within_io(self, ranked: Sequence[CompactionOperation]) -> tuple[CompactionOperation, ...]:
        chosen, left = [], float(self.io_mb)
        for operation in ranked:
            chosen.append(operation)
            left -= operation.metrics[_IO_MB]
            if left <= 0:
                break
        return tuple(chosen)


def _day(partition: str) -> str:
    """Return the day of a partition path such as ``2026/11/23``, ``2026-11-23`` or ``day=2026-11-23``."""
    found = _DAY.fullmatch("/".join(part.rpartition("=")[2] for part in partition.split("/")))
    if found is None:
        raise ConfigError(
            f"{config.COMPACTION_STRATEGY.key}={BY_DAY} needs partition paths such as 2026/11/23, but the table has "
            f"{partition!r}: choose another strategy"
        )
    return "".join(found.groups())


def io_metrics(base_bytes: int, log_bytes: Sequence[int], *, is_log: bool = False) -> dict[str, float]:
    """Compute the metrics of an operation, by which strategies choose.

    Args:
        base_bytes: size of the base file; a LOG operation neither reads nor writes one.
        log_bytes: size of each log that is merged.
    """
    read_mb = ((0 if is_log else base_bytes) + sum(log_bytes)) >> 20
    # Hudi estimates the new base file by the size of the old one; a first one is estimated by the size of its logs.
    write_mb = (sum(log_bytes) if is_log else base_bytes or sum(log_bytes)) >> 20
    return {
        _LOG_FILES: float(len(log_bytes)),
        LOG_BYTES: float(sum(log_bytes)),
        READ_MB: float(read_mb),
        "TOTAL_IO_WRITE_MB": float(write_mb),
        _IO_MB: float(read_mb + write_mb),
    }
