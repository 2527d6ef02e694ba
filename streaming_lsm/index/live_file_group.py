"""Hold the files of one live file group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice, LogFile
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, LogFileName, LogKind, parse_file_name


@dataclass(frozen=True, slots=True)
class LiveFileGroup:
    """Holds the files of a live file group's latest slice.

    Attributes:
        file_id: its id.
        base: its newest base file.
        logs: completion times and paths of the log files on top of it.
        log_sizes: the bytes of each.
    """

    file_id: str
    base: BaseFile | None = None
    logs: tuple[tuple[str, str], ...] = ()
    log_sizes: tuple[int, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of its files, relative to the table."""
        return (*((self.base.path,) if self.base else ()), *(path for _, path in self.logs))

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(self.log_sizes) + (0 if self.base is None else self.base.size)

    def as_slice(self, partition: str) -> FileSlice:
        """Return its files as a slice."""
        names = (parse_file_name(name) for name in self.log_names)
        found = zip(self.logs, names, self.log_sizes, strict=True)
        logs = (
            LogFile(path, name, size)
            for (_, path), name, size in found
            if isinstance(name, LogFileName | InlineLogName)
        )
        return FileSlice(partition, self.file_id, self.base, tuple(logs))

    @property
    def log_names(self) -> tuple[str, ...]:
        """Names of its logs, the oldest first."""
        return tuple(path.rpartition("/")[2] for _, path in self.logs)

    @property
    def base_instant(self) -> str:
        """Instant of its base file, or of its first log; empty without files."""
        if self.base is not None:
            return self.base.name.instant
        name = parse_file_name(self.log_names[0]) if self.logs else None
        return "" if name is None else name.instant

    @property
    def kept_deletes(self) -> tuple[str, ...]:
        """Paths of the logs of deletes that were kept when its base file was written, the oldest file first."""
        if self.base is None or not self.logs:
            return ()
        instant = self.base.name.instant
        return tuple(path for _, path in self.logs if f"_{instant}_" in path and _is_delete_log(path, instant))

    def with_file(self, stat: WriteStat, completed: str) -> LiveFileGroup:
        """Add a file of a write that was completed at `completed`."""
        name = parse_file_name(stat.file_name)
        base, logs, sizes = self.base, self.logs, self.log_sizes
        if not isinstance(name, BaseFileName):
            logs, sizes = (*logs, (completed, stat.path)), (*sizes, stat.total_bytes)
        elif base is None or base.name.instant < name.instant:
            # A base file absorbs what was completed before its instant (docs/format/10-rules.md, "Rule 8").
            base = BaseFile(stat.path, name, stat.total_bytes)
            left = [place for place, log in enumerate(logs) if log[0] >= name.instant]
            logs, sizes = tuple(logs[place] for place in left), tuple(sizes[place] for place in left)
        return LiveFileGroup(self.file_id, base, logs, sizes)

    def changed_paths(self, before: LiveFileGroup) -> tuple[Collection[str], Collection[str]]:
        """Return the paths that only `before` has, and those that only this group has.

        Paths that both have are not among them, so that a commit hashes only those that it changes.
        """
        kept = len(before.logs)
        if self.base == before.base and self.logs[:kept] == before.logs:
            return (), [path for _, path in self.logs[kept:]]
        old, new = frozenset(before.paths), frozenset(self.paths)
        return old - new, new - old


def _is_delete_log(path: str, instant: str) -> bool:
    name = parse_file_name(path.rpartition("/")[2])
    return isinstance(name, LogFileName) and name.kind is LogKind.DELETES and name.instant == instant
