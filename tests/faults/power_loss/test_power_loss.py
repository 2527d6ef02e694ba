"""The power is lost at a moment of a commit, and the table is opened anew: nothing that was acknowledged is lost.

For every operation of a recording, and every permitted subset of what was not durable then. Some of them here, others
for each scenario, and half of the scenarios; with LSM_ALL_FAULTS=1 all. The interrupted call is made again at once and
after another write, in turns.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.power_loss.cases import SCENARIOS, recorded, tried
from tests.support.crash_points import EVERY_CALL, sample

pytestmark = pytest.mark.timeout(3600 if EVERY_CALL else 300)


@pytest.mark.parametrize("name", sample(list(SCENARIOS), 0, 2))
def test_what_is_acknowledged_is_there_and_the_rest_is_whole_or_absent(name: str, tmp_path: Path) -> None:
    recording, judge = recorded(SCENARIOS[name](), tmp_path / "lake")
    count = 0
    for loss, replayed_first in tried(recording, list(SCENARIOS).index(name)):
        judge.judge(loss, tmp_path / "lake", replayed_first=replayed_first)
        count += 1
    assert count > (40 if EVERY_CALL else 1)
