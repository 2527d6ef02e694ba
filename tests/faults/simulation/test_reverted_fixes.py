"""The simulator finds the bugs that were mended, when what mended them is taken out.

``make test`` brings back some that an early seed finds, ``make faults`` all of them.
"""

from __future__ import annotations

import re

import pytest

from tests.faults.simulation.reverted_fixes import FIXES
from tests.support.crash_points import EVERY_CALL
from tests.support.simulation.simulate import simulate

_SEEDS = 1000
"""As many schedules as ``make faults`` runs."""
_OF_THE_REVERT = re.compile("(Type|Name|Attribute)Error")
_SOON = (
    "the ledger is read again when the lock is held",
    "the timeline is read again when the lock is held",
    "leases do not compare clocks",
)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fix", FIXES if EVERY_CALL else _SOON)
def test_a_mended_bug_is_found_when_it_is_brought_back(fix: str) -> None:
    with FIXES[fix]():
        violations = (simulate(seed).violation for seed in range(_SEEDS))
        found = next((violation for violation in violations if violation is not None), None)
    assert found is not None, f"no seed below {_SEEDS} finds that this is not so: {fix}"
    assert not _OF_THE_REVERT.search(str(found)), f"the code that was put back does not run: {found}"
