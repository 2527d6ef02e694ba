"""Figures of a pair, from what its runs measured: medians over runs, their spread, percentiles over all batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tests.bench.peers.measures import percentile
from tests.bench.peers.results import Pair


@dataclass(frozen=True)
class Figure:
    """Median, lowest and highest of the runs."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure:
        """The figure of at least one value."""
        found = sorted(values)
        return cls(median(found), found[0], found[-1])


@dataclass(frozen=True)
class WriteFigures:
    """What a pair of the workloads S, K, B or E measured.

    Attributes:
        rate: rows a second, of all measured batches of a run.
        processor: processor seconds for a million rows.
        batch_50, batch_99: percentiles of the seconds of a batch.
        age_50, age_99: percentiles of the seconds from the end of a second until its rows are committed; of E only.
        batches: measured batches of a run.
        size: bytes of the table's folder.
        session: seconds until the system is ready to write.
        first: seconds of the process's first batch.
    """

    rate: Figure
    processor: Figure
    batch_50: float
    batch_99: float
    age_50: float | None
    age_99: float | None
    batches: Figure
    size: Figure
    session: Figure
    first: Figure


def write_figures(pair: Pair) -> WriteFigures:
    """Figures of a finished pair of S, K, B or E."""
    runs = pair.runs
    seconds = [each for run in runs for each in run["batch_seconds"]]
    ages = [each for run in runs for each in run.get("age_seconds", ())]
    return WriteFigures(
        rate=Figure.of(run["rows"] / sum(run["batch_seconds"]) for run in runs),
        processor=Figure.of(run["processor_seconds"] / run["rows"] * 1e6 for run in runs),
        batch_50=percentile(seconds, 0.5),
        batch_99=percentile(seconds, 0.99),
        age_50=percentile(ages, 0.5) if ages else None,
        age_99=percentile(ages, 0.99) if ages else None,
        batches=Figure.of(float(len(run["batch_seconds"])) for run in runs),
        size=Figure.of(float(run["bytes"]) for run in runs),
        session=Figure.of(run["session_seconds"] for run in runs),
        first=Figure.of(run["first_batch_seconds"] for run in runs),
    )


@dataclass(frozen=True)
class ReadFigures:
    """What a pair of the workload R measured.

    Attributes:
        snapshots: seconds of a snapshot, by number of logs (or ``compacted``) and reader; a text where there is none:
            why, or the error.
        first_spark: seconds of the first snapshot that the process reads by Spark; None without Spark.
        compaction: seconds of the compaction of 20 logs; a text where there is none.
        size: bytes after it.
    """

    snapshots: dict[tuple[str, str], Figure | str]
    first_spark: Figure | None
    compaction: Figure | str
    size: Figure | None


def read_figures(pair: Pair) -> ReadFigures:
    """Figures of a finished pair of R."""
    runs = pair.runs
    cells: dict[tuple[str, str], Figure | str] = {}
    for logs, readers in runs[0]["snapshots"].items():
        for reader in readers:
            cells[logs, reader] = _cell([run["snapshots"][logs][reader] for run in runs], "seconds")
    first = [run["snapshots"]["0"]["spark"].get("first_seconds") for run in runs]
    compactions = [run["compaction"] for run in runs]
    sizes = [found["bytes"] for found in compactions if "bytes" in found]
    return ReadFigures(
        snapshots=cells,
        first_spark=None if None in first else Figure.of(first),
        compaction=_cell(compactions, "seconds"),
        size=Figure.of(sizes) if sizes else None,
    )


def query_figures(pair: Pair) -> dict[str, tuple[Figure, int]]:
    """Seconds, and number of rows, of each query of a finished pair of Q."""
    found = {}
    for name, first in pair.runs[0]["queries"].items():
        seconds = Figure.of(median(run["queries"][name]["seconds"]) for run in pair.runs)
        found[name] = seconds, first["rows"]
    return found


def _cell(found: Sequence[dict[str, Any]], name: str) -> Figure | str:
    for each in found:
        if "error" in each:
            return f"failed: {each['error']}"
        if "none" in each:
            return str(each["none"])
    values = [each[name] for each in found]
    return Figure.of(median(value) if isinstance(value, list) else value for value in values)


def arrow_failures(pair: Pair) -> str:
    """What the reader without Spark failed with when the final state was checked; empty when it did not."""
    for run in pair.runs:
        for digest in run.get("digests", {}).get("arrow", ()):
            if not digest.partition(":")[0].isdigit():
                return str(digest)
    return ""
