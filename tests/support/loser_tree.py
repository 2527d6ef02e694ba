"""The k-way merge of Hudi's RFC as an executable specification: a loser tree, record by record.

See docs/format/05-merge.md, "Loser tree".

A *leaf* is a run with its next key. A *winner* is on the way to the root; a *loser* stays at the node where it lost. A
key is *new* until a record of it was popped, then the *same* for the other leaves that have it. A leaf whose record
was popped is advanced when all records of its key are popped. `first_same_key` is the node nearest to a winner's leaf
at which another leaf with its key lost: the next record of the key is there, so that no comparison is needed.

Nothing of the package is used: what it does to whole blocks must equal this one record at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum


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


class State(Enum):
    """The states of a leaf, as the RFC names them."""

    WINNER_WITH_NEW_KEY = "winner, new key"
    WINNER_WITH_SAME_KEY = "winner, same key"
    WINNER_POPPED = "winner, popped"
    LOSER_WITH_NEW_KEY = "loser, new key"
    LOSER_WITH_SAME_KEY = "loser, same key"
    LOSER_POPPED = "loser, popped"

    @property
    def wins(self) -> bool:
        """Whether the leaf is on the way to the root."""
        return self in (State.WINNER_WITH_NEW_KEY, State.WINNER_WITH_SAME_KEY, State.WINNER_POPPED)


@dataclass
class Leaf:
    """One run.

    Attributes:
        records: what comes after `following`.
        head: the next record; None at the end.
        following: the record after it.
        state: see `State`.
        first_same_key: see the module; -1 for none.
    """

    records: Iterator[Record]
    head: Record | None = None
    following: Record | None = None
    state: State = State.WINNER_WITH_NEW_KEY
    first_same_key: int = -1

    def advance(self) -> None:
        """Go to the first record of the next key."""
        self.step()
        self.state, self.first_same_key = State.WINNER_WITH_NEW_KEY, -1

    def step(self) -> None:
        """Go to the next record."""
        self.head, self.following = self.following, next(self.records, None)

    def found_same_key(self, node: int) -> None:
        """Note a node with the same key; the first one counts."""
        if self.first_same_key < 0:
            self.first_same_key = node


@dataclass
class LoserTree:
    """Records of sorted runs by key, then merge order: `tree[0]` is the winner, `tree[n]` the loser of match n.

    Attributes:
        runs: in merge order.
        comparisons: number of comparisons of keys so far.
        ties: number of comparisons of merge orders so far.
    """

    runs: Sequence[Sequence[Record]]
    comparisons: int = 0
    ties: int = 0
    leaves: list[Leaf] = field(init=False)
    tree: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Build the tree from the first record of each run."""
        self.leaves = [Leaf(iter(run)) for run in self.runs]
        self.tree = [-1] * max(1, len(self.leaves))
        for number in reversed(range(len(self.leaves))):
            self.leaves[number].step()
            self.leaves[number].advance()
            self._adjust(number)

    @property
    def held(self) -> int:
        """Number of records and node entries in memory."""
        records = (record for leaf in self.leaves for record in (leaf.head, leaf.following))
        return len(self.tree) + sum(record is not None for record in records)

    def groups(self) -> Iterator[Iterator[Record]]:
        """Iterate over the keys, ascending: the records of each in merge order, of one run in its order."""
        while self._next_key():
            yield self._records_of_key()

    def _next_key(self) -> bool:
        """Advance the leaves whose records were popped; False at the end of all runs."""
        while self.leaves and self.leaves[self.tree[0]].state is State.WINNER_POPPED:
            self.leaves[self.tree[0]].advance()
            self._adjust(self.tree[0])
        return bool(self.leaves) and self.leaves[self.tree[0]].head is not None

    def _records_of_key(self) -> Iterator[Record]:
        while (leaf := self.leaves[self.tree[0]]).state is not State.WINNER_POPPED:
            record = leaf.head
            assert record is not None
            yield record
            if leaf.following is not None and leaf.following.key == record.key:
                leaf.step()  # a key that repeats in one run: no other run's record of the key comes in between
            else:
                leaf.state = State.WINNER_POPPED
                self._adjust(self.tree[0])

    def _adjust(self, winner: int) -> None:
        """Replay the matches from a leaf to the root; a popped winner goes where the next record of its key is."""
        node = (winner + len(self.leaves)) // 2
        while node > 0:
            leaf = self.leaves[winner]
            if self.tree[node] < 0:  # the tree is being built
                leaf.state = State.LOSER_WITH_NEW_KEY
            elif leaf.state is State.WINNER_POPPED:
                if leaf.first_same_key < 0:
                    break
                node = leaf.first_same_key
                leaf.state = State.LOSER_POPPED
                self.leaves[self.tree[node]].state = State.WINNER_WITH_SAME_KEY
            else:
                self._match(node, self.tree[node], winner)
            if not leaf.state.wins:
                winner, self.tree[node] = self.tree[node], winner
            if winner < 0:
                break
            node //= 2
        self.tree[0] = winner

    def _match(self, node: int, loser: int, winner: int) -> None:
        old, new = self.leaves[loser], self.leaves[winner]
        if new.state is State.WINNER_WITH_NEW_KEY and old.state is State.LOSER_POPPED:
            old.state, old.first_same_key, new.state = State.WINNER_POPPED, -1, State.LOSER_WITH_NEW_KEY
        elif new.state is State.WINNER_WITH_NEW_KEY:
            assert old.state is State.LOSER_WITH_NEW_KEY
            order = self._compare(old, new)
            if order == 0:
                self._tie(node, loser, winner)
            elif order < 0:
                old.state, new.state = State.WINNER_WITH_NEW_KEY, State.LOSER_WITH_NEW_KEY
        elif old.state is State.LOSER_WITH_SAME_KEY:
            self._tie(node, loser, winner)

    def _compare(self, one: Leaf, other: Leaf) -> int:
        """Compare the next keys: negative if that of `one` is smaller; the end of a run comes after every key."""
        self.comparisons += 1
        if one.head is None or other.head is None:
            return 1 if one.head is None else -1
        return (one.head.key > other.head.key) - (one.head.key < other.head.key)

    def _tie(self, node: int, loser: int, winner: int) -> None:
        """Let the older run win; the other one has the same key as it."""
        self.ties += 1
        old, new = self.leaves[loser], self.leaves[winner]
        if winner < loser:
            old.state = State.LOSER_WITH_SAME_KEY
            new.found_same_key(node)
        else:
            old.state, new.state = new.state, State.LOSER_WITH_SAME_KEY
            old.found_same_key(node)


def merge(runs: Sequence[Sequence[Record]], *, event_time: bool, base: bool) -> Iterator[Record]:
    """Live records, ascending by key.

    Args:
        runs: in merge order, each ascending by key.
        event_time: the larger ordering value wins; else the later source does.
        base: whether the first run is a base file, whose rows are shown as they are when no log has their key.
    """
    of_base = {id(record) for run in runs[: int(base)] for record in run}
    for records in LoserTree(runs).groups():
        winner, untouched = None, True
        for record in records:
            untouched &= id(record) in of_base
            winner = record if winner is None else _pairwise(winner, record, event_time=event_time)
        if winner is not None and (untouched or not winner.delete):
            yield winner


def _pairwise(old: Record, new: Record, *, event_time: bool) -> Record:
    if not event_time or old.unordered_delete or new.unordered_delete:
        return new
    return new if new.ordering >= old.ordering else old
