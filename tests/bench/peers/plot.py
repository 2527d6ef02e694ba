"""Draw the plot of the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.bench.peers.figures import Figure, read_figures, write_figures
from tests.bench.peers.results import Pair
from tests.bench.peers.sizes import LOGS
from tests.bench.peers.systems import CHANGES, KAFKA, READS, ROWS, SYSTEMS, TRICKLE

Bars = list[tuple[str, Figure]]
_OURS = ("lsm", "lsm-table")


def bars(pairs: Mapping[tuple[str, str], Pair]) -> dict[str, Bars]:
    """Names of systems and figures of each panel; systems that were not measured, or failed, are left out."""
    panels: dict[str, Bars] = {}
    for letter in (ROWS, KAFKA, CHANGES):
        panels[f"{letter}: k rows/s"] = [
            (name, _scaled(write_figures(pair).rate, 1e-3)) for name, pair in _finished(pairs, letter)
        ]
    panels[f"{TRICKLE}: batch p50 to p99, s"] = [
        (name, Figure(found.batch_50, found.batch_50, found.batch_99))
        for name, pair in _finished(pairs, TRICKLE)
        for found in (write_figures(pair),)
    ]
    for reader in ("spark", "arrow"):
        cells = [
            (name, read_figures(pair).snapshots.get((str(max(LOGS)), reader))) for name, pair in _finished(pairs, READS)
        ]
        title = f"{READS}: snapshot by {reader.capitalize()}, {max(LOGS)} logs, s"
        panels[title] = [(name, cell) for name, cell in cells if isinstance(cell, Figure)]
    return panels


def plot(pairs: Mapping[tuple[str, str], Pair], path: Path) -> None:
    """Draw the panels; whiskers are the lowest and the highest run."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    panels = bars(pairs)
    figure, grid = pyplot.subplots(3, 2, figsize=(11, 11), layout="constrained")
    for axes, (title, found) in zip(grid.flat, panels.items(), strict=True):
        names = [name for name, _ in found]
        middle = [each.median for _, each in found]
        spread = [[each.median - each.low for _, each in found], [each.high - each.median for _, each in found]]
        colours = ["tab:green" if name in _OURS else "tab:gray" if name == "append" else "tab:blue" for name in names]
        axes.barh(names, middle, xerr=spread, color=colours, ecolor="black", capsize=2)
        axes.invert_yaxis()
        axes.set_title(title)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)


def _finished(pairs: Mapping[tuple[str, str], Pair], letter: str) -> list[tuple[str, Pair]]:
    found = [(system.name, pairs.get((letter, system.name))) for system in SYSTEMS]
    return [(name, pair) for name, pair in found if pair is not None and pair.finished]


def _scaled(figure: Figure, factor: float) -> Figure:
    return Figure(figure.median * factor, figure.low * factor, figure.high * factor)
