"""Cache what completed instants say about other actions and file groups, over all timelines of an open table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.column_versions import ColumnVersions
from streaming_lsm.timeline.archive import KnownHistory
from streaming_lsm.timeline.instant import Instant

if TYPE_CHECKING:
    from streaming_lsm.timeline.timeline import Timeline

K = TypeVar("K")
T = TypeVar("T")
ReplacedGroups = Mapping[str, Collection[str]]
"""File ids by partition path."""
CreatedFiles = Mapping[str, Sequence[str]]
"""Names of files by file id."""


@dataclass(frozen=True)
class InstantFacts:
    """Cache small facts by completed instant: requested and completion time identify its immutable content.

    A timeline shares the cache with the timelines that are derived from it, and with those loaded after it: a table
    with thousands of rollbacks or replacecommits reads each of them once.

    Attributes:
        undone: requested times of the actions that a rollback or restore undid.
        replaced: file groups that a replacecommit replaced.
        last_commit: content and metadata of the commit that was decoded last, nearly always the newest one. A commit of
            thousands of files takes long to decode, and each transaction needs the newest one.
        columns: versions of the table's columns as of the newest write that was asked for last.
        files: names of the files that a write of a metadata table has created, by file id, by partition.
        history: what was read of the archived timeline.
        inside: the timelines that were loaded last of tables inside this one, such as its metadata table, by URI.
    """

    undone: dict[Instant, tuple[str, ...]] = field(default_factory=dict)
    replaced: dict[Instant, ReplacedGroups] = field(default_factory=dict)
    last_commit: dict[bytes, CommitMetadata] = field(default_factory=dict)
    columns: dict[Instant, ColumnVersions] = field(default_factory=dict)
    files: dict[Instant, dict[str, CreatedFiles]] = field(default_factory=dict)
    history: KnownHistory = field(default_factory=KnownHistory)
    inside: dict[str, Timeline] = field(default_factory=dict)

    def decoded(self, data: bytes, decode: Callable[[], CommitMetadata]) -> CommitMetadata:
        """Return the metadata of a commit, decoded if `data` is not that of the last one."""
        found = self.last_commit.get(data)
        if found is None:
            found = decode()
            self.keep(data, found)
        return found

    def keep(self, data: bytes, commit: CommitMetadata) -> None:
        """Keep a commit as the last one."""
        self.last_commit.clear()
        self.last_commit[data] = commit

    def of_timeline(self, instants: Collection[Instant]) -> InstantFacts:
        """Return the cache for a newer timeline; facts of other instants are dropped once they are the majority."""
        if max(len(self.undone) + len(self.replaced), len(self.files)) <= 2 * len(instants):
            return self
        return InstantFacts(
            {instant: self.undone[instant] for instant in instants if instant in self.undone},
            {instant: self.replaced[instant] for instant in instants if instant in self.replaced},
            self.last_commit,
            self.columns,
            {instant: self.files[instant] for instant in instants if instant in self.files},
            self.history,
            self.inside,
        )


def cached(cache: dict[K, T], key: K, read: Callable[[K], T]) -> T:
    """Return a fact, read if it is not in `cache`."""
    if key not in cache:
        cache[key] = read(key)
    return cache[key]
