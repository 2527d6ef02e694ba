"""The project's targets against the peers, each as a ratio of two systems' figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.bench.peers.figures import WriteFigures
from tests.bench.peers.systems import KAFKA, ROWS, TRICKLE

Figures = Mapping[tuple[str, str], WriteFigures]
"""By workload and system."""


@dataclass(frozen=True)
class Target:
    """One bound.

    Attributes:
        workload: letter of the workload.
        name: what is compared.
        ours, other: names of the systems.
        value: the figure that is compared.
        bound: of ours divided by the other's.
        least: whether the ratio has to be at least the bound, else at most.
    """

    workload: str
    name: str
    ours: str
    other: str
    value: Callable[[WriteFigures], float]
    bound: float
    least: bool = True

    def ratio(self, figures: Figures) -> float | None:
        """The ratio; None where one of the two was not measured."""
        ours, other = figures.get((self.workload, self.ours)), figures.get((self.workload, self.other))
        return self.value(ours) / self.value(other) if ours and other else None

    def reached(self, ratio: float) -> bool:
        """Whether the bound is kept."""
        return ratio >= self.bound if self.least else ratio <= self.bound


def _rate(figures: WriteFigures) -> float:
    return figures.rate.median


def _processor(figures: WriteFigures) -> float:
    return figures.processor.median


def _first(figures: WriteFigures) -> float:
    return figures.first.median


_SPARK_PEERS = ("hudi", "paimon", "paimon-compacting", "iceberg", "delta")
_PLAIN_PEERS = ("pypaimon", "pypaimon-native")

TARGETS = (
    Target(KAFKA, "rate", "lsm", "append", _rate, 1.4),
    Target(KAFKA, "processor time", "lsm", "append", _processor, 0.75, least=False),
    *(Target(KAFKA, "rate", "lsm", peer, _rate, 3) for peer in ("paimon", "paimon-compacting")),
    *(Target(KAFKA, "rate", "lsm", peer, _rate, 5) for peer in ("hudi", "iceberg", "delta")),
    Target(ROWS, "rate", "lsm", "append", _rate, 0.75),
    Target(ROWS, "rate", "lsm", "paimon", _rate, 2),
    Target(ROWS, "rate", "lsm", "hudi", _rate, 5),
    *(Target(ROWS, "rate", "lsm", peer, _rate, 2.5) for peer in ("iceberg", "delta")),
    *(Target(ROWS, "processor time", "lsm", peer, _processor, 1, least=False) for peer in _SPARK_PEERS),
    Target(ROWS, "rate", "lsm-table", "append", _rate, 2.5),
    *(Target(ROWS, "rate", "lsm-table", peer, _rate, 15) for peer in _PLAIN_PEERS),
    *(Target(ROWS, "processor time", "lsm-table", peer, _processor, 1, least=False) for peer in _PLAIN_PEERS),
    *(Target(TRICKLE, "batch, p50", "lsm", peer, lambda f: f.batch_50, 1, least=False) for peer in _SPARK_PEERS),
    *(Target(TRICKLE, "batch, p50", "lsm-table", peer, lambda f: f.batch_50, 1, least=False) for peer in _PLAIN_PEERS),
    *(Target(TRICKLE, "batch, p99", "lsm", peer, lambda f: f.batch_99, 1, least=False) for peer in _SPARK_PEERS),
    Target(ROWS, "first batch of a process", "lsm", "append", _first, 1.4, least=False),
)
"""All targets of writes that this comparison can tell; others are those of `make bench`."""

QUERY_TARGETS = {"hudi": 3.0, "paimon": 1.0}
"""How many times as fast as a peer each query of workload Q has to be."""
