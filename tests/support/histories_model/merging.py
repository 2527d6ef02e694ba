"""Which version of a key wins, pair by pair (docs/format/05-merge.md, "Pairwise rule")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tests.support.histories_model.columns import Row
from tests.support.histories_model.kinds import TableKind
from tests.support.histories_model.steps import Event


@dataclass(frozen=True)
class Version:
    """What one write says of a key.

    Attributes:
        key: the record key.
        partition: the partition path.
        written: requested time of the write.
        ordering: the ordering values; None for a delete without any, and in tables without ordering fields.
        row: the columns; None for a delete.
    """

    key: str
    partition: str
    written: str
    ordering: tuple[object, ...] | None
    row: Row | None

    @property
    def is_delete(self) -> bool:
        return self.row is None

    @property
    def orders_by_commit_time(self) -> bool:
        """Whether it is a delete that removes all that is older."""
        return self.row is None and self.ordering is None


Versions = Mapping[str, Version]
"""The winner of each key."""


def version_of(event: Event, kind: TableKind, written: str) -> Version:
    """The version that an event of a batch is."""
    ordering = tuple(event.row[name] for name in kind.ordering)
    is_none = not ordering or all(value is None for value in ordering)
    if event.is_delete and len(ordering) == 1 and ordering[0] == 0:
        # docs/format/10-rules.md, "Rule 5"
        is_none = kind.schema.field(kind.ordering[0]).type == pa.int32()
    return Version(
        key=kind.key_of(event.row),
        partition=kind.partition_of(event.row),
        written=written,
        ordering=None if is_none else ordering,
        row=None if event.is_delete else event.row,
    )


def newer(old: Version, new: Version) -> Version:
    """Which of two versions wins, of which `new` is the later one."""
    if old.ordering is None or new.ordering is None:
        return new  # a delete that orders by commit time, or a table that does
    return new if new.ordering >= old.ordering else old  # type: ignore[operator]


def folded(older: Versions, versions: Iterable[Version]) -> dict[str, Version]:
    """Fold versions over the winners of before, from left to right."""
    winners = dict(older)
    for version in versions:
        winners[version.key] = newer(winners[version.key], version) if version.key in winners else version
    return winners


def merged(kind: TableKind, base: Versions, logs: Iterable[Version]) -> dict[str, Version]:
    """Merge the logs of a slice with its base file; deletes among the winners are kept.

    Up to version 9 the logs are folded among themselves first.
    """
    if kind.has_native_logs:
        return folded(base, logs)
    return folded(base, folded({}, logs).values())


def rows_of(versions: Versions) -> list[Version]:
    """Those that are rows."""
    return [version for version in versions.values() if not version.is_delete]
