"""The scenarios by name, and which losses of them are tried: some in ``make test``, all in ``make faults``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tests.faults.power_loss import scenarios
from tests.faults.power_loss.losses import Loss, losses, one_of_each_kind
from tests.faults.power_loss.operations import Enter, Operation
from tests.faults.power_loss.recorder import Recorder, Recording
from tests.faults.power_loss.scenarios import COPY_ON_WRITE, INLINE_LOGS, Scenario
from tests.faults.power_loss.verdict import Judge
from tests.support.crash_points import EVERY_CALL, sample
from tests.support.faulty_storage import Killed
from tests.support.metadata_tables import ENABLED

PLAIN = {"hoodie.metadata.enable": False}

SCENARIOS: Mapping[str, Callable[[], Scenario]] = {
    "the first batch of a new table": lambda: scenarios.first_batch(PLAIN),
    "the first batch of a new table with a metadata table": lambda: scenarios.first_batch(ENABLED),
    "a batch": lambda: scenarios.next_batch(PLAIN),
    "a batch with a metadata table": lambda: scenarios.next_batch(ENABLED),
    "a batch, copy on write": lambda: scenarios.next_batch({**PLAIN, **COPY_ON_WRITE}),
    "a batch, inline logs": lambda: scenarios.next_batch({**PLAIN, **INLINE_LOGS}),
    "a compaction": lambda: scenarios.compaction(PLAIN),
    "a compaction with a metadata table": lambda: scenarios.compaction(ENABLED),
    "a clean": lambda: scenarios.clean(PLAIN),
    "a clean with a metadata table": lambda: scenarios.clean(ENABLED),
    "a batch and an archiving": lambda: scenarios.archiving(PLAIN),
    "a batch and an archiving with a metadata table": lambda: scenarios.archiving(ENABLED),
    "a rollback and a batch": lambda: scenarios.rollback(PLAIN),
    "a rollback and a batch with a metadata table": lambda: scenarios.rollback(ENABLED),
    "the completion of a decided batch": lambda: scenarios.completion(PLAIN),
    "the completion of a decided batch with a metadata table": lambda: scenarios.completion(ENABLED),
    "a column renamed": lambda: scenarios.renaming(PLAIN),
    "a metadata table made": scenarios.metadata_table_made,
    "a metadata table dropped": scenarios.metadata_table_dropped,
    "a version change": scenarios.version_change,
}
_STEP = 20
"""In ``make test`` one in so many kinds of losses is tried, and at most so many."""
_MOST = 3


def recorded(scenario: Scenario, lake: Path) -> tuple[Recording, Judge]:
    """Record a scenario, and delete its lake."""
    recording = scenario.record(lake)
    judge = Judge.of(scenario, recording, lake)
    shutil.rmtree(lake)
    return recording, judge


def recorded_with_kill(scenario: Scenario, lake: Path, done: int) -> tuple[Recording, Judge]:
    """Record a process that is killed in the first call, after so many operations, and another one that goes on."""
    lake.mkdir()
    scenario.prepare(lake)
    recorder = Recorder(lake)
    with recorder.running(kill_at=done), suppress(Killed):
        scenario.calls[0].run(lake)
    with recorder.running():
        for call in scenario.calls:
            recorder.returned(call.run(lake))
    judge = Judge.of(scenario, recorder.recording, lake)
    shutil.rmtree(lake)
    return recorder.recording, judge


def tried(recording: Recording, offset: int) -> Iterable[tuple[Loss, bool]]:
    """The losses that are tried, each with whether the interrupted call is made again at once, or after another write.

    Args:
        offset: which of the kinds comes first; scenarios have many kinds in common, so they take different ones.
    """
    found = losses(recording)
    chosen = found if EVERY_CALL else sample(one_of_each_kind(found), offset, _STEP)[:_MOST]
    return ((loss, bool((offset + number) % 2)) for number, loss in enumerate(chosen))


def places(recording: Recording, is_sought: Callable[[Operation], bool]) -> Iterator[int]:
    """The numbers of operations that are done when one of these was just made."""
    return (done for done, operation in enumerate(recording.operations, 1) if is_sought(operation))


def is_completed_file(operation: Operation) -> bool:
    """Whether the completed file of a write gets its name."""
    return isinstance(operation, Enter) and "/.hoodie/timeline/" in operation.path and operation.path.endswith("commit")
