"""The simulator finds the bugs that were mended, when what mended them is taken out.

``make test`` brings back some that an early seed finds, ``make faults`` all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest

from tests.faults.simulation.reverted_fixes import BY_INDEXED, FIXES
from tests.support.crash_points import EVERY_CALL
from tests.support.simulation.model.history import Violation
from tests.support.simulation.running import Result
from tests.support.simulation.simulate import simulate, simulate_indexed
from tests.support.simulation.undone_services import simulate_undone_services

_SEEDS = 1000
"""As many schedules as ``make faults`` runs."""
_OF_THE_REVERT = re.compile("(Type|Name|Attribute)Error")
_SOON = (
    "the ledger is read again when the lock is held",
    "the timeline is read again when the lock is held",
)
_BY_RESTORES = ("an inflight file that comes after a restore is deleted",)
"""Found by the schedules that stop services while the table is restored."""


def _violations(fix: str) -> Iterator[Violation]:
    """What the schedules of the seeds break, one after the other."""
    for seed in range(_SEEDS):
        for result in _results(fix, seed):
            if result.violation is not None:
                yield result.violation


def _results(fix: str, seed: int) -> Iterable[Result]:
    if fix in _BY_RESTORES:
        return simulate_undone_services(seed)
    return ((simulate_indexed if fix in BY_INDEXED else simulate)(seed),)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fix", FIXES if EVERY_CALL else _SOON)
def test_a_mended_bug_is_found_when_it_is_brought_back(fix: str) -> None:
    with FIXES[fix]():
        found = next(_violations(fix), None)
    assert found is not None, f"no seed below {_SEEDS} finds that this is not so: {fix}"
    assert not _OF_THE_REVERT.search(str(found)), f"the code that was put back does not run: {found}"
