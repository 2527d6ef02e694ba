"""Change logs and the services: savepoints, restores, rollbacks, archiving, verification and repair know them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.format.table.file_names import InlineLogName, LogFileName, WriteToken, parse_file_name
from streaming_lsm.inspection.file_check import DAMAGED, MISSING, UNCOMMITTED
from streaming_lsm.inspection.table_check import check_table
from tests.support.change_tables import MODES, change_logs, changes_of, created, image, random_batch
from tests.support.crash_points import combined

NOT_CLEANED = {"hoodie.clean.automatic": False}
KEPT = {**NOT_CLEANED, "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"}
ONE = {**KEPT, "hoodie.clean.fileversions.retained": 1}
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
VERSIONS = (10, 9)


Grown = Callable[..., LsmTable]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """Makes tables of two rounds of writes and, merge on read, compactions; the second one has change logs in each.

    Each kind of table is written once, and copied for each test.
    """

    @cache
    def template(table_type: str, version: int, mode: str) -> Path:
        more = {"hoodie.datasource.write.table.type": table_type, **NOT_CLEANED}
        path = tmp_path_factory.mktemp("template")
        table = created(path, mode, version, "default", **more)
        for step in range(2):
            _round(table, step)
        return path

    def copied(
        path: Path, table_type: str, version: int, mode: str = "DATA_BEFORE_AFTER", **options: object
    ) -> LsmTable:
        shutil.copytree(template(table_type, version, mode), path, dirs_exist_ok=True)
        return LsmTable(path, {**NOT_CLEANED, **options})

    return copied


def _round(table: LsmTable, step: int) -> None:
    table.upsert(random_batch(np.random.default_rng(step), step))
    table.upsert(random_batch(np.random.default_rng(10 + step), step))
    if not table.config.is_copy_on_write:
        table.compact()


def _stored(root: Path) -> set[str]:
    files = (path.relative_to(root) for path in root.rglob("*.cdc*") if path.suffix != ".crc")
    return {str(path) for path in files if ".hoodie" not in path.parts}


def _images(table: LsmTable, begin: str = "000") -> Counter[tuple[str, str, str]]:
    rows = table.changes(begin).to_arrow().to_pylist()
    return Counter((row["op"], image(row["before"]), image(row["after"])) for row in rows)


def _findings(table: LsmTable) -> dict[str, str]:
    return {
        found.path: found.kind for found in check_table(table, LocalEngine(1), lambda *_: None, quick=False).findings
    }


@pytest.mark.parametrize(("table_type", "version"), combined(0, TYPES, VERSIONS))
def test_a_savepoint_keeps_the_change_logs_of_its_slices(
    tmp_path: Path, grown: Grown, table_type: str, version: int
) -> None:
    table = grown(tmp_path, table_type, version, **ONE)
    saved = _stored(tmp_path)
    live = {file.base.path for file in table.file_slices() if file.base is not None}
    kept = {path for path in saved if any(_same_slice(path, base) for base in live)}
    assert kept
    table.savepoint(table.timeline.completed_writes[-1].requested)
    for step in range(2, 4):
        _round(table, step)
    table.clean()
    assert kept <= _stored(tmp_path)
    assert saved - kept == saved - _stored(tmp_path)
    assert _findings(table) == {}


def _same_slice(log: str, base: str) -> bool:
    file_id, _, instant = Path(base).stem.split("_")
    return file_id in log and instant in log


@pytest.mark.parametrize(("table_type", "version"), combined(1, TYPES, VERSIONS))
def test_a_restore_deletes_the_change_logs_after_its_savepoint(
    tmp_path: Path, grown: Grown, table_type: str, version: int
) -> None:
    table = grown(tmp_path, table_type, version)
    before, files, rows = changes_of(table), _stored(tmp_path), table.scan().to_arrow().sort_by("id")
    point = table.timeline.completed_writes[-1].requested
    table.savepoint(point)
    for step in range(2, 4):
        _round(table, step)
    assert _stored(tmp_path) > files
    table.restore(point)
    table = LsmTable(tmp_path)
    assert _stored(tmp_path) == files
    assert changes_of(table) == before
    assert table.scan().to_arrow().sort_by("id") == rows
    _round(table, 5)
    assert _findings(table) == {}


@pytest.mark.parametrize(("table_type", "version"), combined(0, TYPES, VERSIONS))
def test_a_rollback_deletes_the_change_logs_of_the_last_write(
    tmp_path: Path, grown: Grown, table_type: str, version: int
) -> None:
    table = grown(tmp_path, table_type, version)
    before, files = changes_of(table), _stored(tmp_path)
    table.upsert(random_batch(np.random.default_rng(7), 7))
    assert (_stored(tmp_path) > files) == (table_type == "COPY_ON_WRITE")
    table.rollback(table.timeline.completed_writes[-1].requested)
    assert _stored(tmp_path) == files
    assert changes_of(LsmTable(tmp_path)) == before


@pytest.mark.parametrize(("table_type", "mode"), combined(1, TYPES, MODES))
def test_changes_of_archived_writes_are_read(tmp_path: Path, grown: Grown, table_type: str, mode: str) -> None:
    bounds = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table = grown(tmp_path, table_type, 10, mode, **bounds, **{"hoodie.archive.automatic": False})
    for step in range(2, 4):
        _round(table, step)
    before = _images(table)
    assert table.archive()
    assert len(LsmTable(tmp_path).timeline.completed_writes) < 4
    assert _images(LsmTable(tmp_path)) == before
    assert _findings(LsmTable(tmp_path)) == {}


@pytest.mark.parametrize(("table_type", "version"), combined(1, TYPES, VERSIONS))
def test_a_check_names_lost_and_damaged_change_logs(
    tmp_path: Path, grown: Grown, table_type: str, version: int
) -> None:
    table = grown(tmp_path, table_type, version)
    last = table.timeline.read_commit(table.timeline.completed_writes[-1])
    lost, damaged, *_ = sorted(path for stat in last.stats for path, _ in stat.cdc_files)
    before = changes_of(table)
    (tmp_path / lost).unlink()
    content = (tmp_path / damaged).read_bytes()
    (tmp_path / damaged).write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    assert _findings(table) == {lost: MISSING, damaged: DAMAGED}
    (tmp_path / damaged).write_bytes(content)
    assert changes_of(LsmTable(tmp_path)) == before
    table.upsert(random_batch(np.random.default_rng(8), 8))  # writes and services go on without it
    if table_type == "MERGE_ON_READ":
        table.compact()
    assert _findings(table) == {lost: MISSING}  # of an older slice now


@pytest.mark.parametrize("version", [10, 9])
def test_a_check_lists_a_change_log_of_no_commit(tmp_path: Path, grown: Grown, version: int) -> None:
    table = grown(tmp_path, "MERGE_ON_READ", version)
    log = min(_stored(tmp_path))
    name = parse_file_name(Path(log).name)
    assert isinstance(name, LogFileName | InlineLogName)
    other = f"{Path(log).parent}/{replace(name, token=WriteToken(99, 0, 0))}"
    shutil.copy(tmp_path / log, tmp_path / other)
    assert _findings(table) == {other: UNCOMMITTED}
    assert changes_of(LsmTable(tmp_path)) == changes_of(table)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_repair_of_a_lost_timeline_keeps_the_change_logs(tmp_path: Path, grown: Grown, table_type: str) -> None:
    table = grown(tmp_path, table_type, 10)
    logs, rows = set(change_logs(table)), table.scan().to_arrow().sort_by("id")
    shutil.rmtree(tmp_path / ".hoodie/timeline")
    repaired = LsmTable(tmp_path)
    repaired.repair()
    table = LsmTable(tmp_path)
    assert table.scan().to_arrow().sort_by("id") == rows
    assert set(change_logs(table)) == logs
    assert _findings(table) == {}
