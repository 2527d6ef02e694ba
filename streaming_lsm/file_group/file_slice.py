"""Represent the files of a file slice: a base file, if any, and the log files that it has not absorbed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, LogFileName, LogKind


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file: `path` relative to the table's root, `size` in bytes."""

    path: str
    name: BaseFileName
    size: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file: `path` relative to the table's root, `size` in bytes."""

    path: str
    name: LogFileName | InlineLogName
    size: int

    @property
    def is_native(self) -> bool:
        """Whether it is a native log, a Parquet file, rather than a sequence of inline blocks."""
        return isinstance(self.name, LogFileName)

    @property
    def is_delete(self) -> bool:
        """Whether it is a native delete log."""
        return isinstance(self.name, LogFileName) and self.name.kind is LogKind.DELETES


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A logical group of a base file, if any, and the log files on top of it: a file group as of an instant.

    Attributes:
        partition_path: relative folder; empty when the table is not partitioned.
        file_id: the file group.
        base: the newest visible base file.
        logs: visible logs that the base file has not absorbed, the oldest first (docs/format/01-table.md, "Order of log
            files").
    """

    partition_path: str
    file_id: str
    base: BaseFile | None
    logs: tuple[LogFile, ...]

    @property
    def is_native(self) -> bool:
        """Whether all logs are native."""
        return all(log.is_native for log in self.logs)

    @property
    def base_instant(self) -> str:
        """The instant of the base file; empty without one."""
        return self.base.name.instant if self.base else ""

    def is_kept(self, log: LogFile) -> bool:
        """Return whether a log holds deletes that were kept when the base file was written.

        See docs/format/06-services.md, "Kept deletes".
        """
        return log.is_delete and log.name.instant == self.base_instant

    def without_kept(self) -> FileSlice:
        """Return the slice without the deletes that were kept: no row of the base file has a key of theirs."""
        if not self.logs:
            return self
        return replace(self, logs=tuple(log for log in self.logs if not self.is_kept(log)))

    @property
    def is_base_only(self) -> bool:
        """Whether its rows are those of its base file: there are no logs but deletes that were kept with it."""
        return self.base is not None and not self.without_kept().logs

    @property
    def paths(self) -> tuple[str, ...]:
        """Relative paths of all files, the oldest first."""
        return (*((self.base.path,) if self.base else ()), *(log.path for log in self.logs))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return (self.base.size if self.base else 0) + sum(log.size for log in self.logs)
