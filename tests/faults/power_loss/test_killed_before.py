"""A writer is killed, another one goes on, and then the power is lost: what the second one acknowledged is not lost.

The second writer relies on what the first one created. The first one may have been killed before that was durable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.power_loss.cases import PLAIN, is_completed_file, places, recorded, recorded_with_kill
from tests.faults.power_loss.losses import losses
from tests.faults.power_loss.operations import Enter, Operation
from tests.faults.power_loss.scenarios import Scenario, first_batch, next_batch, rollback
from tests.support.crash_points import EVERY_CALL, sample

pytestmark = pytest.mark.timeout(3600 if EVERY_CALL else 300)


def is_new_partition(operation: Operation) -> bool:
    return isinstance(operation, Enter) and operation.path == "table/be"


def is_new_folder(operation: Operation) -> bool:
    return isinstance(operation, Enter) and operation.path in ("table", "table/.hoodie", "table/.hoodie/timeline")


@pytest.mark.parametrize(
    ("scenario", "is_last"),
    [
        pytest.param(next_batch(PLAIN), is_completed_file, id="the completed file of a batch"),
        pytest.param(next_batch(PLAIN), is_new_partition, id="the folder of a partition"),
        pytest.param(first_batch(PLAIN), is_new_folder, id="a folder of a new table"),
    ],
)
def test_what_a_killed_writer_created_last_is_durable_before_the_next_one_acknowledges_it(
    scenario: Scenario, is_last: Callable[[Operation], bool], tmp_path: Path
) -> None:
    unharmed, _ = recorded(scenario, tmp_path / "lake")
    moments = list(places(unharmed, is_last))
    assert moments
    for done in moments:
        recording, judge = recorded_with_kill(scenario, tmp_path / "lake", done)
        acknowledged = [loss for loss in losses(recording, since=done) if loss.returned]
        created = f"+{recording.operations[done - 1].path}"
        without_it = [loss for loss in acknowledged if created in re.split("[ ,;]", loss.what)]
        for loss in [*without_it[:3], *sample(acknowledged, done, 12)[: 4 if not EVERY_CALL else None]]:
            judge.judge(loss, tmp_path / "lake")


@pytest.mark.skipif(not EVERY_CALL, reason="thousands of trials: make faults")
@pytest.mark.parametrize("scenario", [next_batch(PLAIN), rollback(PLAIN)], ids=["a batch", "a rollback and a batch"])
def test_the_power_is_lost_after_a_writer_was_killed_anywhere_and_another_one_went_on(
    scenario: Scenario, tmp_path: Path
) -> None:
    unharmed, _ = recorded(scenario, tmp_path / "lake")
    for done in range(len(unharmed.operations)):
        recording, judge = recorded_with_kill(scenario, tmp_path / "lake", done)
        found = list(losses(recording, since=done))
        acknowledged = [loss for loss in found if loss.returned]
        for number, loss in enumerate([*sample(acknowledged, done, 2), *found[done % 40 :: 40]]):
            judge.judge(loss, tmp_path / "lake", replayed_first=bool(number % 2))
