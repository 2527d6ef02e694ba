"""What the demo measures, and the plot of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import median

from streaming_lsm import LsmTable

_MB = 1 << 20


@dataclass
class Figures:
    """Measurements by batch number."""

    batch_s: list[float] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    live_bytes: list[int] = field(default_factory=list)
    read_s: list[float] = field(default_factory=list)
    timeline: list[int] = field(default_factory=list)
    amplification: list[float] = field(default_factory=list)

    def look(self, number: int, *, files: int, runs: int, live_bytes: int, read_s: float, timeline: int) -> None:
        """Add a measurement."""
        self.numbers.append(number)
        self.files.append(files)
        self.runs.append(runs)
        self.live_bytes.append(live_bytes)
        self.read_s.append(read_s)
        self.timeline.append(timeline)

    def summary(self) -> str:
        """The figures in one line."""
        return (
            f"{len(self.batch_s)} batches, median {median(self.batch_s):.2f} s; at most {max(self.files)} data files, "
            f"{max(self.runs)} sorted runs in a file group, {max(self.timeline)} files on the timeline; write "
            f"amplification {self.amplification[-1]:.1f}; snapshot read {median(self.read_s) * 1000:.0f} ms"
        )


def write_amplification(table: LsmTable) -> list[float]:
    """Bytes of all files written so far by those of the batches, after each write of the table.

    The first write, by far the largest, is left out.
    """
    sizes: list[tuple[int, int]] = []
    for write in table.timeline.every_write[1:]:
        commit = table.timeline.read_commit(write)
        size = sum(stat.total_bytes for stat in commit.stats)
        sizes.append((size, 0 if commit.compacted else size))
    return [
        every / max(1, batches)
        for every, batches in zip(
            accumulate(size for size, _ in sizes), accumulate(size for _, size in sizes), strict=True
        )
    ]


def plot(figures: Figures, table: LsmTable, path: Path) -> None:
    """Draw the panels."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figures.amplification = write_amplification(table)
    panels: dict[str, tuple[Sequence[float], Sequence[float]]] = {
        "data files": (figures.numbers, figures.files),
        "most sorted runs of a file group": (figures.numbers, figures.runs),
        "MiB of the latest file slices": (figures.numbers, [size / _MB for size in figures.live_bytes]),
        "write amplification": (range(len(figures.amplification)), figures.amplification),
        "snapshot read, ms": (figures.numbers, [1000 * seconds for seconds in figures.read_s]),
        "files on the timeline": (figures.numbers, figures.timeline),
    }
    figure, grid = pyplot.subplots(3, 2, figsize=(11, 10), layout="constrained")
    for axes, (title, (across, up)) in zip(grid.flat, panels.items(), strict=True):
        axes.plot(across, up, linewidth=1)
        axes.set_ylim(bottom=0)
        axes.set_title(title)
        axes.set_xlabel("batch" if title != "write amplification" else "commit")
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
