"""Schedules for tables that are restored: a service is stopped before it creates its inflight file, and goes on later.

A table is seldom restored while a service is stopped just there: drawn events hardly find it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.simulation.running import Result, run
from tests.support.simulation.schedule import Event, Kind, Schedule
from tests.support.simulation.simulate import simulate
from tests.support.simulation.work.workload import LEASE_MS, Service, draw_workload

_INFLIGHT = re.compile(r"\.hoodie/timeline/\d+\.(compaction|logcompaction|clean)\.inflight$")


class _Noting(Schedule):
    """Nothing happens; the calls that create inflight files of services are noted, as track and number."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def _event(self, track: str, call: int, method: str, path: str) -> None:
        if method == "put_if_absent" and _INFLIGHT.match(path):
            self.calls.append((track, call))


def simulate_undone_services(seed: int, most: int | None = None) -> Iterator[Result]:
    """Run the work of a seed, if it restores the table, twice for each inflight file of its services.

    The process is stopped just before it creates the file, for so long that others take it for dead; the second time,
    another one is started in its place at once.

    Args:
        most: inflight files that are taken, spread over all of them; None for each.
    """
    work = draw_workload(seed)
    if not any(step.does is Service.RESTORE for actor in work.actors for step in actor.steps):
        return
    noting = _Noting()
    run(seed, work, noting)
    distance = 1 if most is None else max(1, -(-len(noting.calls) // most))
    for track, call in noting.calls[seed % distance :: distance]:
        for kind in (Kind.STOP_BEFORE, Kind.REPLACE_BEFORE):
            yield simulate(seed, workload=work, events=[Event(track, call, kind, 1000 * 6 * LEASE_MS)])
