"""Run many schedules, in as many processes as there are cores, and count which kinds of calls were struck by what."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pyarrow as pa

from streaming_lsm.errors import WriteConflict
from tests.support.simulation.running import Result
from tests.support.simulation.schedule import FAMILIES, Call
from tests.support.simulation.simulate import simulate, simulate_indexed
from tests.support.simulation.undone_services import simulate_undone_services
from tests.support.simulation.work.modes import Mode
from tests.support.simulation.work.workload import Setting, draw_workload


def run_many(seeds: Iterable[int], setting: Setting | None = None) -> Iterator[Result]:
    """Run the schedules of seeds; yields the results in their order, without the traces.

    Args:
        seeds: the seeds.
        setting: what is given of their workloads; None for workloads as the seeds say.
    """
    with _processes() as pool:
        yield from pool.map(partial(_simulate, setting=setting), seeds, chunksize=4)


def run_indexed(seeds: Iterable[int]) -> Iterator[Result]:
    """Run the schedules of seeds with tables that have all indexes, as `run_many`."""
    with _processes() as pool:
        yield from pool.map(_simulate_indexed, seeds, chunksize=4)


def run_undone_services(seeds: Iterable[int], most: int | None = None) -> Iterator[Result]:
    """Run the schedules of `simulate_undone_services` for all seeds, without the traces."""
    with _processes() as pool:
        for results in pool.map(partial(_simulate_undone_services, most=most), seeds, chunksize=4):
            yield from results


def _processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _begin)


def _begin() -> None:
    # The warnings of the package are what a schedule is about. One process has one core.
    logging.disable(logging.CRITICAL)
    pa.set_cpu_count(1)


def _simulate(seed: int, setting: Setting | None) -> Result:
    workload = None if setting is None else draw_workload(seed, setting)
    return simulate(seed, workload=workload).without_trace()


def _simulate_indexed(seed: int) -> Result:
    return simulate_indexed(seed).without_trace()


def _simulate_undone_services(seed: int, most: int | None) -> list[Result]:
    return [result.without_trace() for result in simulate_undone_services(seed, most)]


class Coverage:
    """What happened in many runs.

    Attributes:
        calls: how often each kind of call was made.
        struck: how often each kind of call was struck by each family of events.
        modes: how many runs each mode had.
        conflicts: how often which conflict was raised in which mode.
    """

    def __init__(self, results: Iterable[Result]) -> None:
        self.calls: Counter[Call] = Counter()
        self.struck: Counter[tuple[Call, str]] = Counter()
        self.modes: Counter[Mode] = Counter()
        self.conflicts: Counter[tuple[Mode, str]] = Counter()
        for result in results:
            mode = result.workload.mode
            self.modes[mode] += 1
            self.conflicts.update({(mode, kind): count for kind, count in result.conflicts.items()})
            self.calls.update(result.calls)
            for (method, kind, event), count in result.struck.items():
                self.struck[(method, kind), event.family] += count

    def missed(self, calls: Iterable[Call]) -> list[str]:
        """The calls that some family of events has never struck."""
        return [
            f"{method} {kind}: no {family.lower()}"
            for method, kind in sorted(calls)
            for family in FAMILIES
            if not self.struck[(method, kind), family]
        ]

    def missed_conflicts(self, conflicts: Iterable[tuple[Mode, type[WriteConflict]]]) -> list[str]:
        """The conflicts that were never raised."""
        return [
            f"{mode.name}: no {kind.__name__}" for mode, kind in conflicts if not self.conflicts[mode, kind.__name__]
        ]

    def summary(self) -> str:
        """Modes and conflicts in one line."""
        modes = ", ".join(f"{count} {mode.name}" for mode, count in sorted(self.modes.items(), key=str))
        raised = sorted(self.conflicts.items(), key=str)
        conflicts = ", ".join(f"{count} {kind} in {mode.name}" for (mode, kind), count in raised)
        return f"{modes}; {conflicts}"

    def table(self) -> str:
        """A line for each kind of call."""
        lines = [f"{'call':50s}{'made':>9s}" + "".join(f"{family.lower():>9s}" for family in FAMILIES)]
        for call, count in sorted(self.calls.items()):
            struck = "".join(f"{self.struck[call, family]:9d}" for family in FAMILIES)
            lines.append(f"{' '.join(call):50s}{count:9d}{struck}")
        return "\n".join(lines)
