"""Random histories of a table of some partitions: an incremental clean finds the files that a whole one finds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm import LsmTable
from streaming_lsm.config import Options
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ConfigError
from streaming_lsm.txn.planned_actions import pending_compactions
from tests.support.crash_points import random_cases
from tests.support.service_tables import OPTIONS_OF_SERVICES
from tests.support.small_tables import create, rows

WHOLE = Options({"hoodie.clean.incremental.enabled": False})
ONE_LOG = Options({"hoodie.log.compaction.blocks.threshold": 2})
KINDS: dict[str, dict[str, object]] = {
    "merge-on-read": {},
    "copy-on-write": {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"},
}
PARTS = ("be", "de", "nl")
Step = tuple[str, str]


VERSIONS = Options({"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 2})


def retained(commits: int) -> Options:
    """Another number of commits to retain, as of another process."""
    limits = {"hoodie.keep.min.commits": 7, "hoodie.keep.max.commits": 8}
    return Options({"hoodie.clean.commits.retained": commits, **limits})


def take(table: LsmTable, number: int, step: Step) -> None:
    """One step; one that the table refuses changes nothing."""
    name, part = step
    engine = LocalEngine(1)
    steps: dict[str, Callable[[], object]] = {
        "upsert": lambda: table.upsert(rows((f"k{number % 3}", part, number, number))),
        "upsert all": lambda: table.upsert(rows(*((f"k{number % 3}", p, number, number) for p in PARTS))),
        "bulk": lambda: table.bulk_insert(rows((f"b{number}", part, number, number))),
        "overwrite": lambda: table.insert_overwrite(rows((f"k{number % 3}", part, number, number))),
        "drop": lambda: table.delete_partitions([part]),
        "die": lambda: die(table, part),
        "compact": lambda: table.compact(),
        "schedule": lambda: table.services.schedule(),
        "schedule log": lambda: LsmTable(table.path, table.options.merged(ONE_LOG)).services.schedule(log=True),
        "cancel": lambda: cancel(table),
        "log": lambda: LsmTable(table.path, table.options.merged(ONE_LOG)).services.compact(engine, log=True),
        "clean": lambda: table.clean(),
        "clean most": lambda: LsmTable(table.path, table.options.merged(retained(1))).clean(),
        "clean less": lambda: LsmTable(table.path, table.options.merged(retained(6))).clean(),
        "clean versions": lambda: LsmTable(table.path, table.options.merged(VERSIONS)).clean(),
        "archive": lambda: table.archive(),
        "savepoint": lambda: table.savepoint(),
        "savepoint older": lambda: table.savepoint(table.timeline.completed_writes[-2].requested),
        "release": lambda: table.delete_savepoint(table.savepoints[number % len(table.savepoints)].instant.requested),
        "rollback": lambda: table.rollback(),
        "restore": lambda: table.restore(table.savepoints[-1].instant.requested),
    }
    with suppress(ConfigError, IndexError, ZeroDivisionError):
        steps[name]()


def die(table: LsmTable, part: str) -> None:
    """A write that is rolled back by the next one."""
    with suppress(KeyboardInterrupt), table.transaction() as tx:
        table.plan(tx, "upsert")
        tx.begin()
        raise KeyboardInterrupt


def cancel(table: LsmTable) -> None:
    """A user deletes the plan of a compaction that no run has begun."""
    for planned in pending_compactions(table.timeline)[:1]:
        table.storage.delete(planned.path)


NAMES = (
    *("upsert", "upsert", "upsert all", "bulk", "overwrite", "drop", "die", "compact", "compact", "schedule"),
    *("schedule log", "cancel", "log", "clean", "clean", "clean", "clean most", "clean less", "clean versions"),
    *("archive", "archive", "savepoint", "savepoint older", "release", "rollback", "restore"),
)
steps = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(PARTS)), min_size=8, max_size=30)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=random_cases(60, 10), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(course=steps)
def test_an_incremental_clean_finds_what_a_whole_one_finds(kind: str, course: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = {
            **OPTIONS_OF_SERVICES,
            **KINDS[kind],
            "hoodie.clean.commits.retained": 2,
            "hoodie.keep.min.commits": 3,
            "hoodie.keep.max.commits": 4,
            "hoodie.archive.automatic": False,
            "hoodie.bucket.index.num.buckets": 1,
        }
        table = create(Path(folder) / "table", **options)
        for number, step in enumerate([("upsert all", "nl"), *course]):
            take(table, number, step)
            found = LsmTable(table.path, table.options).services.preview_clean()
            whole = LsmTable(table.path, table.options.merged(WHOLE)).services.preview_clean()
            assert found.files == whole.files
