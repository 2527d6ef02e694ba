"""Sorted runs, and the key ranges in which they can be merged.

A run is the sequence of batches of one file, ascending by record key. A block holds the records of all runs below a
bound, the smallest of the last keys that the runs have loaded. All records of these keys are loaded, so that the block
can be folded at once. Memory is bounded by one batch per run (more only if one key fills whole batches).

Runs whose key ranges do not overlap may form a chain: one is loaded when the one before it has ended, so that the
number of runs at a time is that of overlapping key ranges, not of files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.arrow.columns import strings
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.schema import RECORD_KEY


@dataclass
class SortedRun:
    """The batches of one file, loaded one at a time.

    Attributes:
        source: the file's name in errors.
        batches: batches ascending by record key. A delete run has the key and ordering columns only.
        deletes: whether every record is a delete.
        base: whether this is the slice's base file.
        marks: a boolean column of a data run whose true rows are deletes. It is dropped from the output; columns other
            than the key and the ordering fields may be null in such rows.
        trusted: whether this process wrote the batches, so that their order is not checked.
        position: the place in merge order, for runs with a `successor`.
        successor: the run that takes this one's place when it has ended; all its keys are larger.
        successor_key: a key that is larger than all of this run, and not larger than any of the successor.
        least: a key that no key of this run may be below, as its file's statistics say; checked where it is given.
        time: of a delete run, the time of its records; those of a data run have it in their `_hoodie_commit_time`.
    """

    source: str
    batches: Iterator[pa.RecordBatch]
    deletes: bool = False
    base: bool = False
    marks: str | None = None
    trusted: bool = False
    position: int = 0
    successor: SortedRun | None = None
    successor_key: bytes | None = None
    least: bytes | None = None
    time: str = ""
    _repeats: bool = False
    _loaded: list[pa.RecordBatch] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    _bytes: int = 0
    _latest: int = 0
    _exhausted: bool = False

    def ready(self) -> bool:
        """Load a batch if none is loaded; False at the end of the file."""
        return bool(self._loaded) or self.load()

    def load(self) -> bool:
        """Load one more batch with rows; False at the end of the file."""
        for batch in self.batches:
            if batch.num_rows:
                if not self.trusted:
                    self._check_order(batch)
                self._loaded.append(batch)
                self._latest = batch.nbytes
                self._sizes.append(self._latest)
                self._bytes += self._latest
                self._check_range()
                return True
        self._exhausted = True
        return False

    def _check_order(self, batch: pa.RecordBatch) -> None:
        keys = batch.column(RECORD_KEY)
        if keys.null_count:
            raise CorruptFileError(f"{self.source}: a record without {RECORD_KEY}; restore the file")
        repeats = not pc.all(pc.greater(keys[1:], keys[:-1])).as_py()
        descends = repeats and pc.any(pc.less(keys[1:], keys[:-1])).as_py()
        if self._loaded:
            last, first = _key(self._loaded[-1], -1), _key(batch, 0)
            repeats, descends = repeats or first == last, descends or first < last
        if descends:
            raise CorruptFileError(
                f"{self.source}: record keys do not ascend, as files of an lsm_tree table must; restore the file"
            )
        self._repeats |= repeats

    @property
    def distinct(self) -> bool:
        """Whether every key loaded so far was unique; False for a trusted run, which is not checked."""
        return not self.trusted and not self._repeats

    def fill(self) -> bool:
        """Load batches while less than half a batch is left; False if nothing is left.

        Runs of similar size reach the ends of their batches at about the same key. Without loading ahead the bounds
        would be close together there and give one block of a few rows for each run. Bytes are compared rather than
        rows: after a batch of many small rows, many batches of few large rows would be loaded.
        """
        while not self._exhausted and 2 * self._bytes < self._latest:
            self.load()
        return bool(self._loaded)

    def bound(self) -> bytes | None:
        """Return a key before which all keys are loaded: the last one, or the successor's; None if no more follow."""
        return self.successor_key if self._exhausted else _key(self._loaded[-1], -1)

    def _check_range(self) -> None:
        """Check that the batch just loaded lies in the key range that the footers of a chain say."""
        if self.successor_key is not None and _key(self._loaded[-1], -1) >= self.successor_key:
            raise CorruptFileError(f"{self.source}: a record key is larger than its footer says; restore the file")
        if self.least is not None and _key(self._loaded[-1], 0) < self.least:
            raise CorruptFileError(f"{self.source}: a record key is smaller than its footer says; restore the file")

    def check_ended(self, end: bytes) -> None:
        """Check that a merge up to `end` left nothing of this run.

        Raises:
            CorruptFileError: it holds keys from `end` on, where its file's statistics say that there are none.
        """
        if self.ready():
            raise CorruptFileError(
                f"{self.source}: a row group holds record keys from {end.decode()!r} on, where its statistics say that "
                "the next one begins; restore the file"
            )

    def take_below(self, bound: bytes | None) -> list[pa.RecordBatch]:
        """Remove and return all loaded rows whose key is below `bound` (all of them without one).

        Batches ascend, so all but one are returned or kept whole. Kept batches are not scanned: when one key fills
        thousands of batches, that would make the merge quadratic.
        """
        whole = len(self._loaded) if bound is None else bisect_left(self._loaded, bound, key=partial(_key, row=-1))
        taken = self._loaded[:whole]
        cut = 0
        if bound is not None and whole < len(self._loaded):
            batch = self._loaded[whole]
            cut = bisect_left(range(batch.num_rows), bound, key=partial(_key_at, batch.column(RECORD_KEY)))
        if whole:
            self._bytes -= sum(self._sizes[:whole])
            del self._loaded[:whole], self._sizes[:whole]
        if cut:
            taken.append(batch.slice(0, cut))
            self._loaded[0] = batch.slice(cut)
            # In proportion: Arrow looks at each column to count the bytes of a slice.
            left = self._sizes[0] * (batch.num_rows - cut) // batch.num_rows
            self._bytes += left - self._sizes[0]
            self._sizes[0] = left
        return taken


def _key(batch: pa.RecordBatch, row: int) -> bytes:
    return _key_at(batch.column(RECORD_KEY), row)


def _key_at(keys: pa.Array[Any], row: int) -> bytes:
    return bytes(keys[row].as_buffer())


def aligned_blocks(
    runs: Sequence[SortedRun], end: bytes | None = None
) -> Iterator[list[tuple[SortedRun, list[pa.RecordBatch]]]]:
    """Cut the runs into key ranges that no key spans; each range is complete in all runs.

    Args:
        runs: runs with a key column; other columns are passed through.
        end: the key before which the ranges end; the runs keep what follows. None for all keys.

    Yields:
        The runs that have rows in the range, in the order given, each with its rows.
    """
    alive = _in_merge_order([found for run in runs if (found := _ready(run))])
    while alive:
        bounds = [bound for bound in (end, *(run.bound() for run in alive)) if bound is not None]
        bound = min(bounds, default=None)
        parts = [(run, batches) for run in alive if (batches := run.take_below(bound))]
        if parts:
            yield parts
        elif end is not None and bound == end:
            return
        else:  # one key fills all loaded rows: load more of the runs that end with it
            for run in alive:
                while run.bound() == bound and run.load():
                    pass
        left = [run if run.fill() else _ready(run.successor) for run in alive]
        changed = any(one is not other for one, other in zip(left, alive, strict=True))
        alive = [run for run in left if run]
        alive = _in_merge_order(alive) if changed else alive


def _ready(run: SortedRun | None) -> SortedRun | None:
    """Return the run, or the first of its successors, that has rows left."""
    while run is not None and not run.ready():
        run = run.successor
    return run


def _in_merge_order(runs: Sequence[SortedRun]) -> list[SortedRun]:
    return sorted(runs, key=lambda run: run.position)


def interleave_runs(runs: Sequence[SortedRun]) -> Iterator[pa.Table]:
    """Merge runs without folding: every row, ascending by key; rows of one key in the order of the runs.

    Args:
        runs: data runs of one schema.
    """
    for parts in aligned_blocks(runs):
        rows = pa.Table.from_batches([batch for _, batches in parts for batch in batches])
        if len(parts) > 1:
            keys = strings(rows.column(RECORD_KEY))
            rows = rows.take(pa.array(sort_keys(KeyWords.of(keys), runs=True).order, pa.int64()))
        yield rows
