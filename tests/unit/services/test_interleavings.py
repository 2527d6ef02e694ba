"""Two and three drivers whose storage calls interleave: what one was told is what the table holds.

A driver is stopped before a storage call, another one takes over and does something, the first goes on. Whatever the
call: either its work is in the table, or it was told that it is not. ``make faults`` stops at every call, ``make test``
at a part of them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import WRITER_ID
from streaming_lsm.errors import CommitConflict, CommitUnknown, Fenced
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.lock.markers import TEMP_FOLDER
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.planned_actions import pending_cleans
from tests.support.crash_points import EVERY_CALL, sample
from tests.support.faulty_storage import Killed
from tests.support.interleaving import Driver, Work
from tests.support.service_tables import Model, assert_sound, grow, grown, reopened
from tests.support.small_tables import Row, data_files, rows, shown

STEP = 1 if EVERY_CALL else 61
TURNS = 2 if EVERY_CALL else 1
RECOVERY_CALLS = 30
"""Storage calls after which a driver has recovered the table, and works."""
RETAINED = {"hoodie.clean.commits.retained": 1}

FIRST: Row = ("first", "nl", 9000, 1)
OTHER: Row = ("other", "nl", 9000, 2)
THIRD: Row = ("third", "de", 9000, 3)


@dataclass(frozen=True)
class Case:
    """A table, and what the driver that is stopped does to it.

    Attributes:
        work: of the first driver.
        adds: the row that it adds to the table.
        options: of the table.
        prepare: what is done to the table before.
        version: to which the work changes the table; None if it does not.
    """

    work: Work
    adds: Row | None = None
    options: tuple[tuple[str, object], ...] = ()
    prepare: Callable[[LsmTable, Model], None] = lambda table, model: None
    version: int | None = None


def write(row: Row, batch: int | None = None) -> Work:
    return lambda table: table.upsert(rows(row), batch_id=batch)


def compact(table: LsmTable) -> object:
    return table.compact()


def clean(table: LsmTable) -> object:
    return table.clean()


def only_enter(table: LsmTable) -> object:
    with table.transaction():
        return None


def schedule(table: LsmTable, model: Model) -> None:
    table.services.schedule()


def make_cleanable(table: LsmTable, model: Model) -> None:
    table.compact()
    for batch in (4, 5):
        grow(table, model, batch)
    table.compact()
    grow(table, model, 6)


def leave_dead_write(table: LsmTable, model: Model) -> None:
    """A driver dies when all its files are written."""
    root = Path(table.path.removeprefix("file://"))
    counted = Path(shutil.copytree(root, root.parent / "undecided"))
    driver = Driver(counted, write(FIRST))
    decided = next(number for number, (_, path) in enumerate(driver.calls) if path.startswith(f"{DECISION_FOLDER}/"))
    dead = Driver(root, write(FIRST), dies_at=decided)
    assert isinstance(dead.error, Killed)


COW = (("hoodie.table.type", "COPY_ON_WRITE"),)
METADATA = (("hoodie.metadata.enable", True),)
OLD = (("hoodie.write.table.version", 9), ("hoodie.table.storage.layout", "default"))

CASES = {
    "upsert": Case(write(FIRST), FIRST),
    "upsert-with-metadata-table": Case(write(FIRST), FIRST, METADATA),
    "upsert-copy-on-write": Case(write(FIRST), FIRST, COW),
    "compaction": Case(compact),
    "pending-compaction": Case(compact, prepare=schedule),
    "clean": Case(clean, prepare=make_cleanable),
    "rollback": Case(only_enter, prepare=leave_dead_write),
    "upgrade": Case(lambda table: table.change_version(10), options=OLD, version=10),
    "upgrade-to-lsm-tree": Case(lambda table: table.change_version(10, "lsm_tree"), options=OLD, version=10),
    "downgrade": Case(lambda table: table.change_version(9), version=9),
}
MEANWHILE: dict[str, Work] = {
    "upsert": write(OTHER),
    "compact": compact,
    "clean": clean,
    "enter": only_enter,
    "compact-and-clean": lambda table: [table.upsert(rows(OTHER)), table.compact(), table.clean()],
}
ADDED = {"upsert": OTHER, "compact-and-clean": OTHER}
SERVICES = [name for name, case in CASES.items() if case.version is None]
PAIRS = sample([(name, other) for other in ("upsert", "same") for name in SERVICES], 1, 4)


def template(case: Case, folder: Path) -> tuple[Path, Model]:
    root = folder / "template"
    table, model = grown(root, **dict(case.options))
    case.prepare(table, model)
    return root, model


def calls_of(case: Case, root: Path, folder: Path) -> list[tuple[str, str]]:
    driver = Driver(Path(shutil.copytree(root, folder / "counted")), case.work, **RETAINED)
    assert driver.error is None
    return driver.calls


def settled(driver: Driver, row: Row | None, model: Model) -> list[Model]:
    """The models that a table may have after a driver's work, by what the driver was told."""
    with_row = {**model, row[0]: row} if row else model
    if driver.error is None:
        return [with_row]
    if isinstance(driver.error, CommitUnknown):
        return [with_row, model]
    if isinstance(driver.error, Fenced | CommitConflict):
        return [model]
    raise driver.error


def acknowledged(driver: Driver) -> set[str]:
    """Requested times of the actions that a driver was told are completed."""
    results = driver.result if isinstance(driver.result, list) else [driver.result]
    return {result.requested for result in results if driver.error is None and isinstance(result, Instant)}


def assert_version_told(root: Path, case: Case, before: int, driver: Driver) -> None:
    """The table has the version that the driver was told: the new one, or by an error that it was not changed."""
    told = {before if case.version is None or driver.error else case.version}
    if isinstance(driver.error, CommitUnknown) and case.version is not None:
        told.add(case.version)
    assert LsmTable(root).config.version in told
    assert not isinstance(driver.result, LsmTable) or driver.result.config.version in told


def assert_logs_fit(table: LsmTable, root: Path) -> None:
    """No log is read of a kind that the table's version and layout do not have, and no native one is left below 10."""
    native = [name for name in data_files(root) if re.search(r"\.(log|deletes|cdc)\.parquet$", name)]
    assert table.config.version >= 10 or native == []
    logs = [log for found in table.file_slices() for log in found.logs]
    assert not table.config.is_lsm_tree or all(log.is_native for log in logs)


def assert_one_of(root: Path, models: list[Model], *drivers: Driver) -> None:
    """The next writer finds a sound table of one of these models, and leaves nothing of those before it."""
    table = reopened(LsmTable(root))
    with table.transaction():
        pass
    assert_logs_fit(table, root)
    completed = {instant.requested for instant in table.timeline.instants if instant.is_completed}
    assert set().union(*map(acknowledged, drivers)) <= completed
    if pending_cleans(table.timeline):
        table.clean()
    found = {row["id"] for row in table.scan(["id"]).to_arrow().to_pylist()}
    model = next((model for model in models if model.keys() == found), models[0])
    if table.config.is_lsm_tree and table.config.properties["hoodie.table.initial.version"] == "10":
        assert_sound(table, model)
    else:  # which the independent reader does not read, nor the inline logs from before an upgrade
        assert shown(table) == sorted(model.values())
    storage = LocalStorage(root)
    pending = {instant.requested for instant in table.timeline.pending}
    for folder in (DECISION_FOLDER, HEARTBEAT_FOLDER, TEMP_FOLDER):
        assert {name.partition(".")[0] for name in storage.names(folder)} <= pending
    grow(table, dict(model), 50)
    try:
        table.compact()
    except CommitConflict as error:  # a stopped driver scheduled it with the requested time of another one's write
        if "the plan was cancelled" not in str(error):
            raise
        table.compact()
    table.clean()


def runs(calls: list[tuple[str, str]], meanwhile: list[str]) -> Iterator[tuple[int, str]]:
    """Calls before which the first driver is stopped, each with what the second one does meanwhile.

    Those that replace hoodie.properties are always among them, while files are added to the table.
    """
    for number, call in enumerate(calls):
        for turn, name in enumerate(meanwhile):
            is_change = call == ("replace_if_unchanged", PROPERTIES_PATH) and name == "upsert"
            is_sampled = number % STEP == 0 and turn == (number // STEP) % len(meanwhile)
            if EVERY_CALL or is_sampled or is_change:
                yield number, name


@pytest.mark.timeout(3600 if EVERY_CALL else 300)
@pytest.mark.parametrize("name", CASES)
def test_a_stopped_driver_is_told_what_became_of_its_work(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    root, model = template(case, tmp_path)
    calls = calls_of(case, root, tmp_path)
    assert len(calls) > 20
    before = LsmTable(root).config.version
    for number, other in runs(calls, list(MEANWHILE)):
        path = Path(shutil.copytree(root, tmp_path / f"{number}-{other}"))
        first = Driver(path, case.work, number, **RETAINED)
        second = Driver(path, MEANWHILE[other], **RETAINED)
        first.go_on()
        models = [
            after_both
            for after_second in settled(second, ADDED.get(other), model)
            for after_both in settled(first, case.adds, after_second)
        ]
        print(f"{name}: stopped before call {number}, after {first.calls[number - 1]}; meanwhile: {other}")
        assert second.error is None  # it holds the lock from its start to its end
        assert_version_told(path, case, before, first)
        assert_one_of(path, models, first, second)
        shutil.rmtree(path)


@pytest.mark.timeout(3600 if EVERY_CALL else 300)
@pytest.mark.parametrize("name", ["upsert", "upsert-copy-on-write"])
def test_a_batch_that_is_replayed_meanwhile_takes_effect_once(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    work, identity = write(FIRST, 7), {WRITER_ID.key: "stream"}
    root, model = template(case, tmp_path)
    counted = Driver(Path(shutil.copytree(root, tmp_path / "counted")), work, **identity)
    for number in range(0, len(counted.calls), STEP):
        path = Path(shutil.copytree(root, tmp_path / str(number)))
        first = Driver(path, work, number, **identity)
        second = Driver(path, work, **identity)
        first.go_on()
        assert second.error is None
        assert first.error is None or isinstance(first.error, Fenced | CommitConflict)
        assert sum(driver.result is not None for driver in (first, second)) <= 1 or first.result == second.result
        assert_one_of(path, [{**model, FIRST[0]: FIRST}])
        shutil.rmtree(path)


@pytest.mark.timeout(3600 if EVERY_CALL else 300)
@pytest.mark.parametrize(
    "name", ["upsert", "upsert-with-metadata-table", "upsert-copy-on-write", "compaction", "clean", "rollback"]
)
def test_three_drivers_of_which_two_are_stopped_are_told_what_became_of_their_work(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    root, model = template(case, tmp_path)
    calls = calls_of(case, root, tmp_path)
    others = ["upsert", "compact", "clean", "enter"]  # of one step each: what it raises tells of that step
    for number, turn in product(range(0, len(calls), max(STEP, 3)), range(TURNS)):
        other, later = others[(number + turn) % len(others)], (number * 7 + turn * 13) % 90
        path = Path(shutil.copytree(root, tmp_path / f"{number}-{turn}"))
        first = Driver(path, case.work, number, **RETAINED)
        second = Driver(path, MEANWHILE[other], later, **RETAINED)
        third = Driver(path, write(THIRD), **RETAINED)
        print(f"{name}: stopped before {number}, {first.stands_at}; {other}: before {later}, {second.stands_at}")
        for driver in (first, second) if (number + turn) % 2 else (second, first):
            driver.go_on()
        models = [model]
        for driver, row in ((third, THIRD), (second, ADDED.get(other)), (first, case.adds)):
            models = [after for before in models for after in settled(driver, row, before)]
        assert_one_of(path, models, first, second, third)
        shutil.rmtree(path)


def around_decision(calls: list[tuple[str, str]]) -> list[int]:
    """The calls that create the last decision record, the completed file and what follows, or only the first."""
    decided = max(n for n, (call, path) in enumerate(calls) if call == "put_if_absent" and is_decision(path))
    return [decided, decided + 2, decided + 4] if EVERY_CALL else [decided]


def is_decision(path: str) -> bool:
    return path.startswith(f"{DECISION_FOLDER}/") and not path.endswith(".run")


@pytest.mark.timeout(3600 if EVERY_CALL else 300)
@pytest.mark.parametrize(("name", "other"), PAIRS)
def test_a_driver_that_resumes_while_the_next_one_recovers_is_told_what_became_of_its_work(
    tmp_path: Path, name: str, other: str
) -> None:
    """The second driver holds the lock, and is stopped while the first goes on to its end."""
    case = CASES[name]
    root, model = template(case, tmp_path)
    counted = Driver(Path(shutil.copytree(root, tmp_path / "counted")), case.work, **RETAINED)
    work, adds = (case.work, case.adds) if other == "same" else (MEANWHILE[other], ADDED[other])
    for number in around_decision(counted.calls):
        for later in count(1, 2 if EVERY_CALL else 5 if (name, other) == ("pending-compaction", "same") else 19):
            path = Path(shutil.copytree(root, tmp_path / f"{number}-{later}"))
            first = Driver(path, case.work, number, **RETAINED)
            second = Driver(path, work, later, **RETAINED)
            has_stopped = second.is_stopped
            print(f"{name}: stopped before {number}, {first.stands_at}; {other}: {later}, {second.stands_at}")
            first.go_on()
            second.go_on()
            # A look at the lock may find it free while the first one lives: then nothing was changed.
            assert second.error is None or isinstance(second.error, CommitConflict)
            models = [after for before in settled(first, case.adds, model) for after in settled(second, adds, before)]
            assert_one_of(path, models, first, second)
            shutil.rmtree(path)
            if not has_stopped or (later > RECOVERY_CALLS and not EVERY_CALL):
                break
