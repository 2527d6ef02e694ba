"""Measure the cases and compare them with the baseline: ``python -m tests.bench.check [name ...]``.

A processor that is shared slows both calls of a case, though not to the same degree. So the lowest ratio of three
passes is recorded, and a case that is too slow is measured again, twice at most and after all others, and its lowest
ratio counts: what other programs do to the machine passes, a change of the code stays. Returns 1 if a case is still too
slow. Record on an idle machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.bench.check.baseline import Baseline, Verdict, this_machine
from tests.bench.check.cases import CASES, Pair
from tests.bench.check.measure import Measured, measure

RECORDED = Path(__file__).parents[1] / "baseline.json"
PASSES, SECONDS = 3, 4.0
"""How often a case is measured at most, and for how many seconds of processor time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.check", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(CASES)}; all when none is given")
    parser.add_argument("--record", action="store_true", help="write the baseline: the lowest ratios of three passes")
    parser.add_argument("--baseline", type=Path, default=RECORDED, help="the file of recorded ratios")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="processor time for one case")
    given = parser.parse_args(arguments)
    strangers = sorted(set(given.names).difference(CASES))
    if strangers:
        parser.error(f"no case {', '.join(strangers)}; there are {', '.join(CASES)}")
    with _prepared(given.names or CASES) as pairs:
        if given.record:
            return _record(pairs, given.baseline, given.seconds)
        return _check(pairs, given.baseline, given.seconds)


@contextmanager
def _prepared(names: Iterable[str]) -> Iterator[dict[str, Pair]]:
    """Make the data of the cases, each in a folder of its own."""
    with ExitStack() as folders:
        yield {name: CASES[name](Path(folders.enter_context(tempfile.TemporaryDirectory()))) for name in names}


def _record(pairs: Mapping[str, Pair], path: Path, seconds: float) -> int:
    """Write the lowest ratios; recorded ratios of cases that were not measured stay."""
    passes = [{name: _measured(name, pair, seconds).ratio for name, pair in pairs.items()} for _ in range(PASSES)]
    found = {name: min(ratios[name] for ratios in passes) for name in pairs}
    kept = Baseline.load(path).ratios if path.exists() and len(pairs) < len(CASES) else {}
    ratios = {**kept, **found}
    Baseline(this_machine(), {name: ratios[name] for name in CASES if name in ratios}).save(path)
    print(f"recorded {len(found)} ratios in {path}")
    return 0


def _check(pairs: Mapping[str, Pair], path: Path, seconds: float) -> int:
    baseline = Baseline.load(path)
    differing = [name for name, value in this_machine().items() if baseline.machine.get(name) != value]
    if differing:
        print(f"note: the baseline is from another {', '.join(differing)}; ratios may differ for that alone")
    verdicts: dict[str, Verdict] = {}
    for _ in range(PASSES):
        for name in [name for name in pairs if name not in verdicts or verdicts[name].red]:
            found = baseline.verdict(name, _measured(name, pairs[name], seconds).ratio)
            verdicts[name] = min(found, verdicts.get(name, found), key=lambda verdict: verdict.ratio)
    for name, verdict in verdicts.items():
        recorded = "-" if verdict.recorded is None else f"{verdict.recorded:.2f}"
        print(f"{name:20} ratio {verdict.ratio:5.2f}, recorded {recorded:>5}  {verdict.words}")
    red = [verdict.name for verdict in verdicts.values() if verdict.red]
    gone = baseline.unknown(CASES)
    if gone:
        print(f"{path} has ratios of cases that do not exist: {', '.join(gone)}; record a new baseline")
    print(f"{len(verdicts) - len(red)} of {len(verdicts)} cases are as fast as recorded")
    return 1 if red or gone else 0


def _measured(name: str, pair: Pair, seconds: float) -> Measured:
    found = measure(pair, seconds)
    ours, reference = (1000 * median(taken) for taken in (found.ours, found.reference))
    print(f"{name:20} {ours:7.1f} ms, pyarrow {reference:7.1f} ms, {len(found.ours)} turns", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
