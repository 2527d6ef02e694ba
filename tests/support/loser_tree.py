"""A k-way merge by a tournament of losers, record by record: slow, and plain to check.

See docs/format/05-merge.md, "Loser tree".

Nothing of the package is used: what it does to whole blocks must come out as this does it one record at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    """One record of a run.

    Attributes:
        key: UTF-8 bytes of the record key.
        ordering: the ordering value; of no account in commit-time mode.
        delete: whether it deletes its key.
        unordered delete: whether it is a delete without ordering value.
        value: what makes it recognisable.
    """

    key: bytes
    ordering: int
    delete: bool
    unordered_delete: bool
    value: int


class LoserTree:
    """Records of sorted runs by (key, merge order): `tree[0]` is the champion, `tree[n]` the loser of match n."""

    def __init__(self, runs: Sequence[Sequence[Record]]) -> None:
        """Runs in merge order; those without a record take no part."""
        self._runs = [iter(run) for run in runs if run]
        self._records: list[Record | None] = [next(run) for run in self._runs]
        self._leaves = 1
        while self._leaves < len(self._runs):
            self._leaves *= 2
        self._winners = [-1] * (2 * self._leaves)
        self._tree = [-1] * self._leaves
        for leaf in range(len(self._runs)):
            self._winners[self._leaves + leaf] = leaf
        for node in range(self._leaves - 1, 0, -1):
            self._replay(node)
        self._tree[0] = self._winners[1]

    def _replay(self, node: int) -> None:
        left, right = self._winners[2 * node], self._winners[2 * node + 1]
        if self._wins(left, right):
            self._winners[node], self._tree[node] = left, right
        else:
            self._winners[node], self._tree[node] = right, left

    def _wins(self, left: int, right: int) -> bool:
        if left < 0 or right < 0:
            return right < 0
        one, other = self._records[left], self._records[right]
        assert one is not None
        assert other is not None
        return (one.key, left) <= (other.key, right)

    def pop(self) -> Record | None:
        """The smallest record that is left; None at the end."""
        champion = self._tree[0]
        if champion < 0:
            return None
        taken = self._records[champion]
        self._records[champion] = next(self._runs[champion], None)
        node = self._leaves + champion
        self._winners[node] = champion if self._records[champion] is not None else -1
        while node > 1:
            node //= 2
            self._replay(node)
        self._tree[0] = self._winners[1]
        return taken


def merge(runs: Sequence[Sequence[Record]], *, event_time: bool, base: bool) -> Iterator[Record]:
    """Live records, ascending by key.

    Args:
        runs: in merge order, each ascending by key.
        event_time: the larger ordering value wins; else the later source does.
        base: whether the first run is a base file, whose rows are shown as they are when no log has their key.
    """
    numbered = [[(record, base and place == 0) for record in run] for place, run in enumerate(runs)]
    of_base = {id(record): is_base for run in numbered for record, is_base in run}
    tree = LoserTree(runs)
    record = tree.pop()
    while record is not None:
        winner, untouched = record, of_base[id(record)]
        following = tree.pop()
        while following is not None and following.key == winner.key:
            untouched &= of_base[id(following)]
            winner = _pairwise(winner, following, event_time=event_time)
            following = tree.pop()
        if untouched or not winner.delete:
            yield winner
        record = following


def _pairwise(old: Record, new: Record, *, event_time: bool) -> Record:
    if not event_time or old.unordered_delete or new.unordered_delete:
        return new
    return new if new.ordering >= old.ordering else old
