"""Tell in which figures a peer is better than this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tests.bench.peers.figures import Figure, ReadFigures, WriteFigures
from tests.bench.peers.systems import CHANGES, KAFKA, READS, ROWS, SYSTEMS, TRICKLE

OURS = {
    "lsm": ("hudi", "paimon", "paimon-compacting", "iceberg", "delta"),
    "lsm-table": ("pypaimon", "pypaimon-native"),
}
"""This package's systems, and the peers that each is compared with: with Spark, and without a JVM."""

Value = Callable[[WriteFigures], float]
_FIGURES: tuple[tuple[str, Value, bool], ...] = (
    ("rate", lambda found: found.rate.median, True),
    ("processor time", lambda found: found.processor.median, False),
    ("batch p50", lambda found: found.batch_50, False),
    ("batch p99", lambda found: found.batch_99, False),
    ("bytes on disk", lambda found: found.size.median, False),
    ("start", lambda found: found.session.median, False),
    ("first batch", lambda found: found.first.median, False),
)
"""Name and value of each figure of a write, and whether more is better."""
_TITLES = {system.name: system.title for system in SYSTEMS}


def where_peers_are_better(
    writes: Mapping[tuple[str, str], WriteFigures], reads: Mapping[str, ReadFigures]
) -> Iterator[str]:
    """Yield a line of a list for each figure in which a peer is better than this package's system of its kind.

    Args:
        writes: by workload and system.
        reads: by system.
    """
    for ours, peers in OURS.items():
        for letter in (ROWS, KAFKA, CHANGES, TRICKLE):
            if (letter, ours) in writes:
                for peer in peers:
                    if (letter, peer) in writes:
                        yield from _writes(letter, writes[letter, ours], writes[letter, peer], peer)
        if ours in reads:
            for peer in peers:
                if peer in reads:
                    yield from _reads(reads[ours], reads[peer], peer)


def _writes(letter: str, mine: WriteFigures, found: WriteFigures, peer: str) -> Iterator[str]:
    for name, value, more in _FIGURES:
        # The rows of E arrive at a rate that is given.
        if letter != TRICKLE or name != "rate":
            yield from _line(f"{letter}, {name}", peer, value(found), value(mine), more)
    if found.age_99 is not None and mine.age_99 is not None:
        yield from _line(f"{letter}, age p99", peer, found.age_99, mine.age_99, False)


def _reads(mine: ReadFigures, found: ReadFigures, peer: str) -> Iterator[str]:
    for (state, reader), cell in found.snapshots.items():
        which = f"snapshot by {reader.capitalize()}, {state}{' logs' if state.isdigit() else ''}"
        yield from _cell(which, peer, cell, mine.snapshots.get((state, reader)))
    yield from _cell("first read by Spark", peer, found.first_spark, mine.first_spark)
    yield from _cell("compaction", peer, found.compaction, mine.compaction)
    yield from _cell("bytes after compaction", peer, found.size, mine.size)


def _cell(name: str, peer: str, theirs: Figure | str | None, ours: Figure | str | None) -> Iterator[str]:
    if isinstance(theirs, Figure) and isinstance(ours, Figure):
        yield from _line(f"{READS}, {name}", peer, theirs.median, ours.median, False)


def _line(what: str, peer: str, theirs: float, ours: float, more: bool) -> Iterator[str]:
    if (theirs > ours) if more else (theirs < ours):
        yield f"- {what}: {_TITLES[peer]}, {theirs / ours:.2f} x ours"
