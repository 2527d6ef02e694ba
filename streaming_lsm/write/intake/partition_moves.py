"""Settle events where a global index looks a key up in all partitions.

A key *moves* if its row is in one partition and the event that wins in another: then the row is deleted in the one and
inserted in the other, or, if rows do not move, updated where it is. See docs/indexes.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, pc
from streaming_lsm.index.base import no_places
from streaming_lsm.index.live_rows import ABSENT, FurtherRows
from streaming_lsm.index.lookup_index import LiveKeys, LookupIndex, pairs_of
from streaming_lsm.merge.fold import fold
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.query.wanted_keys import ascending_keys
from streaming_lsm.write.intake.event_shape import (
    ARRIVAL,
    CODE,
    FLAGS,
    codes,
    deleted_flags,
    event_keys,
    parts_of,
    with_column,
)


@dataclass(frozen=True)
class _Run:
    """Some events.

    Attributes:
        events: one chunk a column.
        keys: their record keys, ascending, each once.
        place: int64 (events,), places in `keys`.
        located: int64 (events,), partitions as the index numbers them.
        order: int64 (events,), events by key and arrival.
        last: int64 (keys,), the last event of each key.
    """

    events: pa.Table
    keys: pa.StringArray
    place: Int64s
    located: Int64s
    order: Int64s
    last: Int64s

    @staticmethod
    def of(events: pa.Table) -> _Run:
        found = event_keys(events)
        keys = ascending_keys(found)
        place = np.asarray(pc.index_in(found, value_set=keys), np.int64)
        names = [name for name in events.schema.names if name.startswith(ARRIVAL)]
        arrivals = [np.asarray(events.column(name), np.int64) for name in reversed(names)]
        order = np.lexsort([*arrivals, place]).astype(np.int64)
        last = order[np.searchsorted(place[order], np.arange(len(keys)), side="right") - 1]
        return _Run(events, keys, place, codes(events), order, last)

    def take(self, positions: Int64s, groups: Int64s) -> pa.Table:
        """Take events, and set their file groups."""
        return with_column(self.events.take(pa.array(positions, pa.int64())), CODE, pa.array(groups))


@dataclass(frozen=True)
class _Outcome:
    """The record that wins for each key, among its events and its row.

    Attributes:
        event: int64 (keys,), the event; `ABSENT` if the row wins.
        earlier: int64 (keys,), the last delete without an ordering value before it; `ABSENT` without one.
    """

    event: Int64s
    earlier: Int64s


class PartitionMoves:
    """Settles the events of one task, which has all events of its record keys."""

    def __init__(self, rule: MergeRule, index: LookupIndex, *, moves: bool) -> None:
        """Start the task.

        Args:
            rule: decides between the events of a key and its row; it takes winners if rows move.
            index: finds and numbers file groups.
            moves: whether rows move to the partition of the event that wins.
        """
        self._rule, self._index, self._moves = rule, index, moves

    def settled(self, events: pa.Table) -> Iterator[pa.Table]:
        """Find the file groups of all events of some keys; deletes of rows that move are added.

        Returns:
            See `Intake.settled`.

        Raises:
            CorruptFileError: a file of the table, in which keys are looked up, is missing or damaged.
        """
        if not events.num_rows:
            yield events
            return
        run = _Run.of(events)
        live = self._index.find_live(run.keys)
        outcome = self._outcome(run, live) if self._rule.takes_winner else None
        # A key without a row has an event that wins.
        decides = run.last if outcome is None else np.where(outcome.event == ABSENT, run.last, outcome.event)
        home = np.where(live.partition == ABSENT, run.located[decides], live.partition)
        if not self._moves or outcome is None:
            groups = self._groups(run, live, np.arange(len(run.place)), home[run.place])
            yield with_column(events, CODE, pa.array(groups))
            yield from _copied(run, live.further)
            return
        moving = np.zeros(len(run.keys), np.bool_)
        moving[run.place[run.located != home[run.place]]] = True
        stay = np.flatnonzero(~moving[run.place])
        of_stay = self._groups(run, live, stay, run.located[stay])
        moved = self._moved(run, live, outcome, moving)
        yield pa.concat_tables([run.take(stay, of_stay), *moved]).combine_chunks()
        yield from self._of_further_rows(run, live.further)

    def _groups(self, run: _Run, live: LiveKeys, positions: Int64s, partitions: Int64s) -> Int64s:
        """Find the file groups of events in given partitions: those of their live rows, or what the index finds."""
        place = run.place[positions]
        known = (live.group[place] != ABSENT) & (live.partition[place] == partitions)
        groups = np.where(known, live.group[place], ABSENT)
        rest = np.flatnonzero(~known)
        if len(rest):
            keys = run.keys.take(pa.array(place[rest], pa.int64()))
            groups[rest] = self._index.settle(keys, partitions[rest]).groups
        return groups

    def _outcome(self, run: _Run, live: LiveKeys) -> _Outcome:
        """Fold the events of each key on top of its row."""
        stored = np.flatnonzero(live.group != ABSENT)
        count, fields = len(stored), list(self._rule.ordering_fields)
        ordering = pa.concat_tables(
            [live.ordering.take(pa.array(stored, pa.int64())), run.events.select(fields).cast(live.ordering.schema)]
        )
        place = np.append(stored, run.place)
        by_arrival = np.append(np.arange(count), count + run.order)
        order = by_arrival[np.argsort(place[by_arrival], kind="stable")]
        starts = np.searchsorted(place[order], np.arange(len(run.keys)))
        deleted = np.append(np.zeros(count, np.bool_), deleted_flags(run.events))
        unordered, ranks = self._rule.unordered_deletes(ordering, deleted), self._rule.ranks(ordering)
        folded = fold(starts, unordered[order], None if ranks is None else ranks[order])
        winner = order[folded.winner]
        earlier = np.where(folded.unordered_delete == ABSENT, count + ABSENT, order[folded.unordered_delete])
        events = np.maximum(winner - count, ABSENT)
        return _Outcome(events, np.maximum(earlier - count, ABSENT))

    def _moved(self, run: _Run, live: LiveKeys, outcome: _Outcome, moving: Flags) -> list[pa.Table]:
        """Return the events of the keys that move."""
        keys = np.flatnonzero(moving & (outcome.event != ABSENT))
        events = outcome.event[keys]
        is_delete, lives = deleted_flags(run.events)[events], live.group[keys] != ABSENT
        stays = lives & (is_delete | (run.located[events] == live.partition[keys]))
        leaves = lives & ~stays
        inserted = ~stays & ~is_delete
        groups = self._groups(run, live, events[inserted], run.located[events[inserted]])
        earlier = keys[stays & (outcome.earlier[keys] != ABSENT)]
        return [
            run.take(outcome.earlier[earlier], live.group[earlier]),
            run.take(events[stays], live.group[keys[stays]]),
            _as_deletes(run.take(events[leaves], live.group[keys[leaves]]), self._rule),
            run.take(events[inserted], groups),
        ]

    def _of_further_rows(self, run: _Run, further: FurtherRows) -> Iterator[pa.Table]:
        """Yield the events of the further rows of keys, each of which is settled as if it was the only one.

        An event that wins updates the row, or deletes it if it is of another partition: there it is inserted anyway, as
        it wins over the row with the smallest ordering value, too. As many are yielded at a time as `run` has.
        """
        if not len(further.place):
            return
        nth, of_rows, live = self._as_keys(run, further)
        outcome = self._outcome(of_rows, live)
        won = outcome.event != ABSENT
        event, earlier = (np.append(nth, ABSENT)[found] for found in (outcome.event, outcome.earlier))
        deleted = won & deleted_flags(run.events)[event]
        stays = won & (deleted | (run.located[event] == further.partition))
        leaves = won & ~stays
        for found, rows in ((earlier, stays & (earlier != ABSENT)), (event, stays), (event, leaves)):
            places = np.flatnonzero(rows)
            for some in parts_of(len(places), len(run.place)):
                taken = run.take(found[places[some]], further.group[places[some]])
                yield (_as_deletes(taken, self._rule) if rows is leaves else taken).combine_chunks()

    def _as_keys(self, run: _Run, further: FurtherRows) -> tuple[Int64s, _Run, LiveKeys]:
        """Take each further row for a key of its own that has the events of its key.

        Returns:
            int64 (events,), the events of the run that these are; a run of what decides between them, and the rows.
        """
        rows, nth = pairs_of(run.place, further.place)
        arrival = np.empty(len(run.order), np.int64)
        arrival[run.order] = np.arange(len(run.order))
        order = np.lexsort((arrival[rows], nth)).astype(np.int64)
        last = order[np.searchsorted(nth[order], np.arange(len(further.place)), side="right") - 1]
        events = run.events.select([FLAGS, *self._rule.ordering_fields]).take(pa.array(rows, pa.int64()))
        keys = run.keys.take(pa.array(further.place, pa.int64()))
        of_rows = _Run(events.combine_chunks(), keys, nth, run.located[rows], order, last)
        nothing = further.take(no_places())
        return rows, of_rows, LiveKeys(further.partition, further.group, further.ordering, nothing)


def _copied(run: _Run, further: FurtherRows) -> Iterator[pa.Table]:
    """Yield a copy of each event for each further row of its key, as many at a time as there are events."""
    rows, nth = pairs_of(run.place, further.place)
    for some in parts_of(len(rows), len(run.place)):
        yield run.take(rows[some], further.group[nth[some]]).combine_chunks()


def _as_deletes(events: pa.Table, rule: MergeRule) -> pa.Table:
    """Make deletes without an ordering value of events: they delete whatever row is there."""
    marked = with_column(events, FLAGS, pa.array(np.ones(len(events), np.uint8)))
    for name in rule.ordering_fields:
        marked = with_column(marked, name, pa.nulls(len(events), marked.schema.field(name).type))
    return marked
