"""Run benchmarks: ``python -m tests.bench [name ...]`` runs ``tests/bench/bench_<name>.py``, all when none is named.

Prints a table; writes ``results.json`` and ``ratios.png`` to build/bench. A ratio holds within its run; the absolute
figures are those of the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa

from tests.bench.result import BYTES_READ, Result

HERE = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; returns 1 when a target was missed, else 0."""
    known = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(known)}")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="where JSON and plot go")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.names).difference(known))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    results: list[Result] = []
    print(HEADING, flush=True)
    for name in given.names or known:
        for result in importlib.import_module(f"tests.bench.bench_{name}").run():
            results.append(result)
            print(line(result), flush=True)
    given.folder.mkdir(parents=True, exist_ok=True)
    (given.folder / "results.json").write_text(json.dumps(as_json(results), indent=2) + "\n", encoding="utf-8")
    plot(results, given.folder / "ratios.png")
    print(f"{sum(result.reached for result in results)} of {len(results)} targets reached; {given.folder}")
    return 0 if all(result.reached for result in results) else 1


HEADING = (
    f"{'benchmark':44} {'ours':>10} {'reference':>10} {'our rate':>16} {'reference rate':>16} {'ratio':>6} "
    f"{'target':>7}      reference is"
)


def line(result: Result) -> str:
    """One row of the table."""
    ours, reference = median(result.ours), median(result.reference)
    shown = size_text if result.unit == BYTES_READ else time_text if result.timed else "{:,.2f}".format
    rates = [rate(result, seconds) if result.timed else result.unit for seconds in (ours, reference)]
    return (
        f"{result.name:44} {shown(ours):>10} {shown(reference):>10} {rates[0]:>16} "
        f"{rates[1]:>16} {result.ratio:6.2f} {sign(result):>1} {result.target:5.2f} "
        f"{'ok  ' if result.reached else 'MISS'} {result.note}"
    )


def sign(result: Result) -> str:
    """How the ratio has to compare to the target."""
    return "≥" if result.speed else "≤"


def time_text(seconds: float) -> str:
    """Seconds or milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def size_text(size: float) -> str:
    """Mebibytes."""
    return f"{size / 2**20:.1f} MiB"


def rate(result: Result, seconds: float) -> str:
    """Work per second, in thousands or millions where that reads better; nothing of what is no time."""
    if result.unit == BYTES_READ:
        return ""
    value = result.work / seconds
    for bound, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= bound:
            return f"{value / bound:.2f} {letter} {result.unit}/s"
    return f"{value:.2f} {result.unit}/s"


def as_json(results: Sequence[Result]) -> dict[str, object]:
    """Everything that was measured, and where."""
    return {
        "machine": {
            "cores": os.cpu_count(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
        },
        "results": [
            {
                "name": result.name,
                "ours_s": result.ours,
                "reference_s": result.reference,
                "work": result.work,
                "unit": result.unit,
                "ratio": round(result.ratio, 4),
                "target": result.target,
                "wanted": "at least" if result.speed else "at most",
                "reached": result.reached,
                "reference": result.note,
            }
            for result in results
        ],
    }


def plot(results: Sequence[Result], path: Path) -> None:
    """One bar per comparison, as a share of its target: past the line at 1 the target is reached."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    shares = [result.ratio / result.target if result.speed else result.target / result.ratio for result in results]
    figure, axes = pyplot.subplots(figsize=(9, 0.6 + 0.35 * len(results)), layout="constrained")
    names = [f"{result.name} ({result.ratio:.2f}, {sign(result)} {result.target:g})" for result in results]
    axes.barh(names, shares, color=["tab:green" if result.reached else "tab:red" for result in results])
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("share of the target")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
