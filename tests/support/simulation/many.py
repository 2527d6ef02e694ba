"""Run many schedules, in as many processes as there are cores."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pyarrow as pa

from tests.support.simulation.simulate import Result, simulate


def run_many(seeds: Iterable[int]) -> Iterator[Result]:
    """Run the schedules of seeds; yields the results in their order, without the traces."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _begin) as pool:
        yield from pool.map(_simulate, seeds, chunksize=4)


def _begin() -> None:
    # The warnings of the package are what a schedule is about. One process has one core.
    logging.disable(logging.CRITICAL)
    pa.set_cpu_count(1)


def _simulate(seed: int) -> Result:
    return simulate(seed).without_trace()
