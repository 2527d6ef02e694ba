"""What must hold when all has come to its end."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from streaming_lsm.errors import CommitConflict, ReadOvertaken
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.lock.markers import TEMP_FOLDER
from streaming_lsm.timeline.action_kind import CLUSTERING, LOG_COMPACTION
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant
from streaming_lsm.timeline.timeline import Timeline
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.simulation.index_checks import check_indexes_at_rest
from tests.support.simulation.model.history import History, Published, Rows, Violation, is_replay
from tests.support.simulation.processes.actors import open_table, write
from tests.support.simulation.processes.reading import check_savepoint, rows_of
from tests.support.simulation.processes.table import SimulatedTable
from tests.support.simulation.work.batches import Batch
from tests.support.simulation.work.workload import HOSTS, LEASE_MS, Service, Workload
from tests.support.simulation.world import SimulatedProcess, World

_RETAINED = 2
_LOST_INFLIGHT = re.compile(
    r"timeline\.triple: \d+(: \{'requested': \['compaction'\], 'inflight': \[\], 'completed': \['commit'\]\}|"
    r" savepoint: \{'requested': \[\], 'inflight': \[\], 'completed': \['savepoint'\]\})$"
)
"""A process that reverts a dead run, or undoes a savepoint, and stops before the deletion of the inflight file, may
delete that of the next run: the file is empty, so that nothing tells them apart. Nothing reads it once the action is
completed.
"""

_OF_LATE_OBJECTS = ("leftover.markers", "stats.unlisted", "leftover.instant", "file.versions")


def settle(world: World) -> None:
    """Recover the table in a last process, when all others have ended; finish the services."""
    scheduler = world.scheduler
    world.tell("settles the table")
    process = SimulatedProcess(world, "settler", HOSTS[0])
    scheduler.current.life = process.life
    table = open_table(process)
    for _ in range(2):
        # What a dead writer of another host left is seen once, and again when its lease is over.
        with table.transaction():
            pass
        scheduler.pause(2 * LEASE_MS * 1000)
    if world.workload.options.get("hoodie.table.type") != "COPY_ON_WRITE":
        if any(pending.action == LOG_COMPACTION for pending in table.timeline.pending):
            _compact(table, log=True)
        _compact(table)
    if any(pending.action == CLUSTERING for pending in table.timeline.pending):
        _cluster(table)
    table.clean()
    table.archive()


def _compact(table: SimulatedTable, *, log: bool = False) -> None:
    with suppress(CommitConflict):
        table.services.compact(table._engine, log=log)
        return
    # The first run of a plan whose requested time another action had has cancelled it.
    table.services.compact(table._engine, log=log)


def _cluster(table: SimulatedTable) -> None:
    with suppress(CommitConflict):
        table.cluster()
        return
    table.cluster()


def check(world: World) -> None:
    """Check all that is promised of a table at rest; called by a task of the scheduler.

    Raises:
        Violation: a promise is broken.
    """
    process = SimulatedProcess(world, "checker", HOSTS[0])
    world.scheduler.current.life = process.life
    table, history = open_table(process), world.history
    _check_batches(world.workload, history)
    _check_timeline(table, history)
    _check_rows("snapshot", history.rows, rows_of(table))
    _check_time_travel(table, history)
    for saved in history.saved:
        check_savepoint(world, table, saved)
    _check_incremental(table, history)
    check_indexes_at_rest(world, table)
    _check_files(world, table)
    _check_oracle(world)
    _check_replays(process, world)


def _check_batches(workload: Workload, history: History) -> None:
    wanted = [step.does for actor in workload.actors for step in actor.steps if not isinstance(step.does, Service)]
    committed = history.committed
    for batch in wanted:
        may_be_missing = batch in history.declined or batch in history.undone_batches
        if committed.count(batch) != 1 and not (may_be_missing and batch not in committed):
            raise Violation("batch not once", f"{batch} is committed {committed.count(batch)} times")


def _check_timeline(table: SimulatedTable, history: History) -> None:
    timeline = table.timeline
    twice = timeline.history.writes().keys() & {write.requested for write in timeline.completed_writes}
    if twice:
        raise Violation("archived and active", str(sorted(twice)))
    found = sorted(((write.requested, write.completed) for write in all_writes(timeline)), key=lambda times: times[1])
    expected = [(one.requested, one.completed) for one in history.published]
    if found != expected:
        raise Violation("history changed", f"the timeline has {found}, published were {expected}")
    if table.timeline.pending:
        raise Violation("left pending", str([pending.path for pending in table.timeline.pending]))


def all_writes(timeline: Timeline) -> list[Instant]:
    """The completed writes of the history and of the active timeline."""
    return [*timeline.history.writes().values(), *timeline.completed_writes]


def _check_rows(what: str, expected: Rows, found: Rows) -> None:
    if found != expected:
        missing = sorted(set(expected.values()) - set(found.values()))
        extra = sorted(set(found.values()) - set(expected.values()))
        raise Violation("wrong rows", f"{what}: missing {missing}, not expected {extra}")


def _check_time_travel(table: SimulatedTable, history: History) -> None:
    """As of each commit, by its completion time, the rows are those of that moment; the last ones are retained."""
    retained = sorted(one.requested for one in history.published)[-_RETAINED:][:1]
    # A state is complete when the writes have completed that were requested until the earliest that is retained.
    since = max((one.completed for one in history.published if [one.requested] <= retained), default="")
    for one in history.published:
        _read_retained(
            partial(rows_of, table, as_of=one.completed),
            partial(_check_rows, f"as of {one.completed}", one.rows),
            must=one.completed >= since and not history.undone,
        )


def _read_retained(read: Callable[[], Rows], verify: Callable[[Rows], None], *, must: bool) -> None:
    try:
        found = read()
    except ReadOvertaken as error:
        if must or "were cleaned" not in str(error):
            raise Violation("not retained", str(error)[:120]) from error
        return
    verify(found)


def _check_incremental(table: SimulatedTable, history: History) -> None:
    """An incremental read from one commit to the next shows its rows; all of them together are the snapshot."""
    since = "000"
    for one in history.published:
        if one.attempt is None:
            continue
        _read_retained(
            partial(_incremental, table, since, one.completed),
            partial(_check_written, one),
            must=False,
        )
        since = one.completed
    _check_rows("incremental", history.rows, _incremental(table, "000", None))


def _check_written(one: Published, found: Rows) -> None:
    """The rows that were live after the write are found; those that lost to older ones may be, if they are in a log."""
    written = set(one.attempt.batch.rows if one.attempt else ())
    live = {row for row in written if one.rows.get(row[0]) == row}
    if not live <= set(found.values()) <= written:
        raise Violation("wrong rows", f"incremental to {one.completed}: {found}, live were {live}")


def _incremental(table: SimulatedTable, since: str, until: str | None) -> Rows:
    found = table.incremental(since, until, ["id", "country", "ts", "qty"]).to_arrow().to_pylist()
    return {row["id"]: tuple(row.values()) for row in found}


def _check_files(world: World, table: SimulatedTable) -> None:
    """After a clean there are the files that commits list, the timeline and the properties, and nothing else."""
    timeline = table.timeline
    listed = {path for write in all_writes(timeline) for path in timeline.read_commit(write).paths}
    for path in world.disk.paths():
        if path.startswith((".hoodie/metadata/", ".hoodie/.index_defs/")) or path == ".hoodie/hoodie.properties":
            continue
        folder, _, name = path.rpartition("/")
        checked = f"{folder}/{name.removeprefix('.').removesuffix('.crc')}"
        is_known = {path, checked} & listed or name == ".hoodie_partition_metadata"
        if is_late_object(world.workload, path):
            continue
        if not is_known and not path.startswith(TIMELINE_FOLDER + "/"):
            raise Violation("left over", path)


def is_late_object(workload: Workload, path: str) -> bool:
    """Whether a late task may have left a marker, which the next recovery deletes, or a data file.

    In an object store it looks once, at its end, whether its instant is open. One that is killed between its upload and
    that look leaves the file (docs/object-stores.md, "Files"), which is in nobody's way.
    """
    may_be = workload.on_objects and workload.late_tasks
    is_data = parse_file_name(path.rpartition("/")[2], rfc103_names=True) is not None
    return bool(may_be) and (path.startswith(TEMP_FOLDER) or (is_data and not path.startswith(".hoodie/")))


def _check_oracle(world: World) -> None:
    """The independent reader and validator, which know version 10, agree."""
    if "hoodie.write.table.version" in world.workload.options:
        return
    with tempfile.TemporaryDirectory(prefix="lsm-simulated-") as folder:
        world.disk.save(Path(folder))
        broken = [found for found in validate(folder) if not _LOST_INFLIGHT.match(found)]
        if world.workload.on_objects and world.workload.late_tasks:
            broken = [found for found in broken if not found.startswith(_OF_LATE_OBJECTS)]
        if broken:
            raise Violation("not valid", "; ".join(broken))
        if world.history.published:
            found = {row["id"]: tuple(row.values()) for row in read_snapshot(folder).to_pylist()}
            _check_rows("the oracle's snapshot", world.history.rows, found)


def _check_replays(process: SimulatedProcess, world: World) -> None:
    """A batch that is written again is skipped, unless it was undone."""
    committed, undone = world.history.committed, world.history.undone_batches
    for actor in world.workload.actors:
        wanted = (step.does for step in actor.steps if isinstance(step.does, Batch) and not step.does.deleted)
        batches = [batch for batch in wanted if batch in committed or batch in undone]
        if batches:
            table = open_table(process, **actor.identity)
            for batch in dict.fromkeys((batches[0], batches[-1])):
                is_skipped = write(table, batch) is None
                if is_skipped is not is_replay(batch, committed):
                    raise Violation("replay skipped" if is_skipped else "replay written", str(batch))
                committed = [*committed, batch]
