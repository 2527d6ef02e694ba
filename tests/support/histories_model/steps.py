"""The steps of a history, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from tests.support.histories_model.columns import Row
from tests.support.histories_model.kinds import TableKind, draw_kind

T = TypeVar("T")


@dataclass(frozen=True)
class Event:
    """One change: a row, or the delete of its key; a delete without ordering values has None in their columns."""

    row: Row
    is_delete: bool = False


class Way(Enum):
    """The methods of a table that write a batch."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    OVERWRITE = "insert_overwrite"
    OVERWRITE_TABLE = "insert_overwrite_table"

    @property
    def replaces(self) -> bool:
        """Whether file groups are replaced."""
        return self in (Way.OVERWRITE, Way.OVERWRITE_TABLE)


@dataclass(frozen=True)
class Write:
    """A batch.

    Attributes:
        columns: those that the batch has, without those of the table that come later.
    """

    way: Way
    events: tuple[Event, ...]
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.way.value} of " + "; ".join(
            ("delete of " if event.is_delete else "") + str(dict(event.row)) for event in self.events
        )


@dataclass(frozen=True)
class DeletePartition:
    """The deletion of a partition, which may have no rows."""

    path: str


@dataclass(frozen=True)
class Rename:
    """The renaming of a column, which the table may not have yet.

    Attributes:
        column: the name that it has at first.
        name: the new one, which may be one that it had before. One that another column has at first is refused.
    """

    column: str
    name: str

    def __str__(self) -> str:
        return f"rename {self.column} to {self.name}"


class Service(Enum):
    """What is done to a table beside writing."""

    COMPACT = "compact"
    LOG_COMPACT = "compact logs"
    HYBRID = "compact file groups without base files, and logs of the others"
    SCHEDULE = "schedule a compaction"
    CLEAN = "clean"
    ARCHIVE = "archive"
    ROLL_BACK = "roll the last write back"
    SAVE = "make a savepoint"
    UNSAVE = "delete the oldest savepoint"
    RESTORE = "restore the newest savepoint"
    REOPEN = "open the table again"


@dataclass(frozen=True)
class Drop:
    """The drop of a column, which the table may not have yet or any more.

    Attributes:
        column: the name that it has at first.
    """

    column: str

    def __str__(self) -> str:
        return f"drop {self.column}"


Step = Write | DeletePartition | Rename | Drop | Service


@dataclass(frozen=True)
class History:
    """A table, and what is done to it.

    Attributes:
        seed: from which it was drawn, and queries are.
    """

    seed: int
    kind: TableKind
    steps: tuple[Step, ...]

    def without(self, step: int, events: tuple[Event, ...]) -> History:
        """The history with these events in a step that writes."""
        write = self.steps[step]
        assert isinstance(write, Write)
        steps = (*self.steps[:step], replace(write, events=events), *self.steps[step + 1 :])
        return replace(self, steps=steps)


_WAYS: Mapping[Way, int] = {
    Way.UPSERT: 10, Way.INSERT: 2, Way.BULK_INSERT: 2, Way.DELETE: 3, Way.OVERWRITE: 1, Way.OVERWRITE_TABLE: 1
}  # fmt: skip
_SERVICES: Mapping[Service, int] = {
    Service.COMPACT: 6,
    Service.LOG_COMPACT: 3,
    Service.HYBRID: 3,
    Service.SCHEDULE: 3,
    Service.CLEAN: 3,
    Service.ARCHIVE: 2,
    Service.ROLL_BACK: 3,
    Service.SAVE: 2,
    Service.UNSAVE: 1,
    Service.RESTORE: 2,
    Service.REOPEN: 1,
}


def draw_history(seed: int) -> History:
    """Draw a history of 4 to 10 steps, and renamings and drops of columns between them."""
    chance = random.Random(f"history {seed}")
    kind = draw_kind(chance)
    pool = _draw_pool(chance, kind)
    renaming = random.Random(f"renames {seed}")  # the other steps are those without it
    share = renaming.choice([0, 0, 0.25])
    dropping = random.Random(f"drops {seed}")
    drops = dropping.choice([0, 0, 0.15]) if kind.takes_winner else 0
    steps: list[Step] = [_write(chance, kind, pool, len(kind.later))]
    hidden = len(kind.later)
    for _ in range(chance.randint(3, 9)):
        hidden -= hidden > 0 and chance.random() < 0.4
        steps.append(_step(chance, kind, pool, hidden))
        if renaming.random() < share:
            steps.append(_rename(renaming, kind, steps))
        if dropping.random() < drops:
            steps.append(Drop(dropping.choice(kind.values)))
    return History(seed, kind, tuple(steps))


def _draw_pool(chance: random.Random, kind: TableKind) -> list[dict[str, object]]:
    """Draw the keys and partitions of the history: few partitions, as each file takes time."""
    where = [{column.name: column.draw(chance) for column in kind.columns} for _ in range(chance.choice([1, 2, 3]))]
    keys = [{column.name: column.draw(chance) for column in kind.columns} for _ in range(chance.choice([4, 12, 30]))]
    return [
        {**key, **{name: place[name] for name in kind.partitions}} for key in keys for place in [chance.choice(where)]
    ]


def _step(chance: random.Random, kind: TableKind, pool: list[dict[str, object]], hidden: int) -> Step:
    what = chance.random()
    if what < 0.5:
        return _write(chance, kind, pool, hidden)
    if what < 0.54:
        return DeletePartition(kind.partition_of(chance.choice(pool)))
    return _weighted(chance, _SERVICES)


def _rename(chance: random.Random, kind: TableKind, steps: Sequence[Step]) -> Rename:
    """Draw the renaming of a column that is often one that was renamed before, and is then often renamed back."""
    before = [step.column for step in steps if isinstance(step, Rename)]
    taken = [name for name in before if name not in kind.later]
    if taken and chance.random() < 0.2:
        name = chance.choice(taken)
        return Rename(chance.choice([column for column in kind.values if column != name]), name)
    column = chance.choice(before if before and chance.random() < 0.6 else kind.values)
    is_back = column in before and chance.random() < 0.4
    return Rename(column, column if is_back else f"{column}_{chance.randint(1, 4)}")


def _write(chance: random.Random, kind: TableKind, pool: list[dict[str, object]], hidden: int) -> Write:
    """Draw a batch without the last `hidden` columns, which are null in its rows."""
    way = _weighted(chance, _WAYS)
    count = chance.choice([1, 3, 10, 40])
    share = {Way.DELETE: 1.0, Way.UPSERT: 0.3, Way.INSERT: 0.15, Way.BULK_INSERT: 0.15}.get(way, 0.0)
    if not kind.has_native_logs and way is Way.BULK_INSERT:
        share = 0.0
    events = [_event(chance, kind, chance.choice(pool), share) for _ in range(count)]
    if way is Way.DELETE and chance.random() < 0.5:
        events = [replace(event, row={**event.row, **dict.fromkeys(kind.ordering)}) for event in events]
    if not kind.has_native_logs and (way.replaces or way is Way.BULK_INSERT):
        # Base files of these repeat keys, docs/format/10-rules.md, "Rule 11".
        events = list({(kind.partition_of(event.row), kind.key_of(event.row)): event for event in events}.values())
    columns = kind.columns[: len(kind.columns) - hidden]
    nulls = dict.fromkeys(kind.later[len(kind.later) - hidden :])
    events = [replace(event, row={**event.row, **nulls}) for event in events]
    return Write(way, tuple(events), tuple(column.name for column in columns))


def _event(chance: random.Random, kind: TableKind, identity: Row, share: float) -> Event:
    """An event of a row's key and partition; values are drawn, `share` is that of deletes."""
    fixed = {*kind.keys, *kind.partitions}
    row = {
        column.name: identity[column.name] if column.name in fixed else column.draw(chance) for column in kind.columns
    }
    is_delete = chance.random() < share
    if is_delete and chance.random() < 0.4:
        row |= dict.fromkeys(kind.ordering)
    return Event(row, is_delete)


def _weighted(chance: random.Random, weights: Mapping[T, int]) -> T:
    (drawn,) = chance.choices(list(weights), list(weights.values()))
    return drawn
