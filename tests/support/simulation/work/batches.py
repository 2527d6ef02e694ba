"""Batches, drawn at random.

Keys are of two kinds, so that the rows at any moment follow from the order of the commits alone. Those with a changing
ordering value are never deleted; those that are deleted have one ordering value, of which the later write wins. (A
compaction keeps deletes only for a time, and other late rows are tested in `tests/property`.)
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from tests.support.small_tables import Row

T = TypeVar("T")
COUNTRIES = ("nl", "de-2026-11-0")
REPLACED = COUNTRIES[0]
"""The partition whose file groups another program replaces."""
_ORDERED = tuple((f"k{number}", COUNTRIES[number % 2]) for number in range(8))
_DELETED = tuple((f"d{number}", COUNTRIES[number % 2]) for number in range(4))
_BULK = 0.2
"""Share of the batches that are bulk inserted where several writers write at once."""
_ALWAYS = 50
"""The ordering value of keys that are deleted."""


class Overwrite(Enum):
    """What a batch replaces, by the method of the table that writes it."""

    PARTITIONS = "insert_overwrite"
    TABLE = "insert_overwrite_table"
    DELETED = "delete_partitions"


@dataclass(frozen=True)
class Batch:
    """A batch of one writer.

    Attributes:
        writer_id: the writer.
        number: its batch id.
        rows: upserted, or in the place of what is overwritten; each key at most once.
        deletes: keys to delete, if there are no rows.
        is_bulk: whether the rows are bulk inserted.
        overwrite: what it replaces; None for an upsert or delete.
        deleted: the partition that it deletes.
    """

    writer_id: str
    number: int
    rows: tuple[Row, ...] = ()
    deletes: tuple[tuple[str, str], ...] = ()
    is_bulk: bool = False
    overwrite: Overwrite | None = None
    deleted: str = ""

    @property
    def replaces(self) -> tuple[str, ...]:
        """The partitions that it replaces."""
        if self.overwrite is Overwrite.TABLE:
            return COUNTRIES
        if self.overwrite is Overwrite.DELETED:
            return (self.deleted,)
        return tuple({where: None for _, where, *_ in self.rows}) if self.overwrite else ()

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions that it changes."""
        keys = [*(where for _, where, *_ in self.rows), *(where for _, where in self.deletes)]
        return frozenset((*keys, *self.replaces))

    def __str__(self) -> str:
        what = f" ({self.overwrite.value})" if self.overwrite else ""
        return f"batch {self.number} of {self.writer_id}{what}"


def now_and_then_bulk(chance: random.Random, does: T) -> T:
    """Let an upsert be a bulk insert, now and then."""
    if not isinstance(does, Batch) or does.deletes or chance.random() >= _BULK:
        return does
    return replace(does, is_bulk=True)


def overwriting(chance: random.Random, batch: Batch) -> Batch:
    """Let a batch overwrite partitions or the table, or delete a partition."""
    kind = chance.choice((*Overwrite, Overwrite.PARTITIONS))
    if kind is Overwrite.DELETED or not batch.rows:
        return Batch(batch.writer_id, batch.number, overwrite=Overwrite.DELETED, deleted=chance.choice(COUNTRIES))
    if kind is Overwrite.TABLE:
        rows = batch.rows if chance.random() < 0.8 else ()
    else:
        rows = tuple(row for row in batch.rows if row[1] == batch.rows[0][1])
    return replace(batch, rows=rows, is_bulk=False, overwrite=kind)


def drawn_batch(chance: random.Random, writer_id: str, number: int) -> Batch:
    """Draw a batch of a writer beside which no other one writes, or with which it conflicts."""
    if number and chance.random() < 0.2:
        return Batch(writer_id, number, deletes=tuple(chance.sample(_DELETED, chance.randint(1, 2))))
    keys = chance.sample(_ORDERED + _DELETED, chance.randint(1, 5))
    own = (int(writer_id.lstrip("w")) + 1) * 10_000 + number * 100
    return Batch(
        writer_id,
        number,
        tuple((*key, _ALWAYS if key in _DELETED else chance.randint(0, 99), own + n) for n, key in enumerate(keys)),
    )


def commuting_batch(chance: random.Random, writer_id: str, number: int) -> Batch:
    """Draw a batch that gives the same rows before and after those of other writers.

    Ordering values differ between all batches, and a key that is deleted is of one writer.
    """
    deleted = tuple((f"{writer_id}{key}", where) for key, where in _DELETED)
    if number and chance.random() < 0.2:
        return Batch(writer_id, number, deletes=tuple(chance.sample(deleted, chance.randint(1, 2))))
    keys = chance.sample(_ORDERED + deleted, chance.randint(1, 5))
    writer = int(writer_id.lstrip("w"))
    own, rank = (writer + 1) * 10_000 + number * 100, 10 * writer + number
    return Batch(
        writer_id,
        number,
        tuple(
            (*key, _ALWAYS if key in deleted else 100 * chance.randint(0, 99) + rank, own + n)
            for n, key in enumerate(keys)
        ),
    )
