"""Which version of a key wins, pair by pair (docs/format/05-merge.md, "Pairwise rule", "Partial updates")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from tests.support.histories_model.columns import Row
from tests.support.histories_model.kinds import TableKind
from tests.support.histories_model.steps import Event
from tests.support.mixing_merger import mixed


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


def merged_pair(kind: TableKind, old: Version, new: Version) -> Version:
    """The outcome of two versions: the winner, or what is made of both."""
    winner = newer(old, new)
    loser = old if winner is new else new
    if kind.takes_winner or winner.row is None or loser.row is None:
        return winner
    filling = loser.row
    if kind.has_merger:
        return replace(winner, row={name: mixed(name, filling[name], value) for name, value in winner.row.items()})
    row = {name: value if kind.is_sent(name, value) else filling[name] for name, value in winner.row.items()}
    return replace(winner, row=row)


def combined(kind: TableKind, versions: Iterable[Version]) -> list[Version]:
    """What a batch writes of a file group where rows are made of several versions: those of a key are combined.

    A delete stays before the row that follows it: one without ordering values, and in native logs any.
    """
    winners: dict[str, Version] = {}
    earlier: dict[str, Version] = {}
    for version in versions:
        old = winners.get(version.key)
        new = version if old is None else merged_pair(kind, old, version)
        if version.is_delete and version.orders_by_commit_time:
            earlier.pop(version.key, None)
        if old is not None and old.is_delete and new is not old:
            is_unordered = old.orders_by_commit_time and kind.is_ordered
            keeps = is_unordered or (kind.has_native_logs and not new.is_delete)
            before = earlier.get(version.key)
            if keeps and not new.orders_by_commit_time and (before is None or not before.orders_by_commit_time):
                earlier[version.key] = old
        winners[version.key] = new
    found = []
    for key, winner in winners.items():
        before = earlier.get(key)
        if before is not None and (before.orders_by_commit_time or not winner.is_delete):
            found.append(before)
        found.append(winner)
    return found


def folded(kind: TableKind, older: Versions, versions: Iterable[Version]) -> dict[str, Version]:
    """Fold versions over the winners of before, from left to right."""
    winners = dict(older)
    for version in versions:
        old = winners.get(version.key)
        winners[version.key] = version if old is None else merged_pair(kind, old, version)
    return winners


def merged(kind: TableKind, base: Versions, logs: Iterable[Version]) -> dict[str, Version]:
    """Merge the logs of a slice with its base file; deletes among the winners are kept.

    Up to version 9 the logs are folded among themselves first, and with them partial rows of unsorted files.
    """
    if kind.folds_in_order:
        return folded(kind, base, logs)
    if not kind.has_native_logs:
        return folded(kind, base, folded(kind, {}, logs).values())
    deletes = [version for version in base.values() if version.is_delete]  # kept in logs of their own
    found = [*deletes, *logs]
    cleared = {version.key for version in found if version.orders_by_commit_time}
    rows = {version.key: version for version in base.values() if not version.is_delete and version.key not in cleared}
    return folded(kind, rows, folded(kind, {}, found).values())


def rows_of(versions: Versions) -> list[Version]:
    """Those that are rows."""
    return [version for version in versions.values() if not version.is_delete]
