"""The work of a run, drawn from its seed: a table, and what writers, services and readers do with it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from streaming_lsm.config import (
    HEARTBEAT_MISSES,
    HEARTBEAT_MS,
    INDEX_TYPE,
    LOCK_WAIT_MS,
    SECONDARY_INDEX_COLUMN,
    SINGLE_WRITER_WAIT_MS,
    WRITER_ID,
)
from tests.support.metadata_tables import INDEXED, LOCATED_BY_PARTITION
from tests.support.simulation.work.batches import Batch, commuting_batch, drawn_batch, now_and_then_bulk, overwriting
from tests.support.simulation.work.indexes import (
    INDEX_TABLES,
    clustering_options,
    draw_index_type,
    draw_indexes,
    has_indexes,
)
from tests.support.simulation.work.modes import Mode, draw_mode, draw_options, options_of_mode
from tests.support.small_tables import OPTIONS

SEEDS = "v1 "
"""Changes what all seeds mean."""
LEASE_MS = 1000
_OVERWRITING = 0.4
"""Share of the tables of which partitions are overwritten, or deleted, too."""
_OVERWRITES = 0.3
"""Share of the batches that do so there."""
_SAVING = 0.3
"""Share of the tables with savepoints."""
_UNDOING = 0.25
"""Share of the tables of which completed writes are rolled back."""
_LOOKING_UP = 0.2
"""Share of the tables without buckets, of those whose writers block each other."""
_RESTORING = 0.4
"""Share of the tables with savepoints that are restored to one."""
_CLUSTERING = 0.6
"""Share of the tables without buckets that are clustered."""
_INDEXING = 0.5
"""Share of the tables with indexes of which a user creates and drops some."""


class Service(Enum):
    """What is done to a table beside writing."""

    COMPACT = "compact"
    SCHEDULE = "schedule a compaction"
    LOG_COMPACT = "compact logs"
    CLEAN = "clean"
    ARCHIVE = "archive"
    READ = "read"
    SAVE = "make a savepoint"
    UNSAVE = "delete a savepoint"
    ROLL_BACK = "roll the last write back"
    RESTORE = "restore a savepoint"
    REPLACE = "replace file groups"
    CLUSTER = "cluster"
    PLAN_CLUSTERING = "schedule a clustering"
    INDEX = "create an index"
    UNINDEX = "drop an index"


@dataclass(frozen=True)
class Step:
    """One thing that an actor does, after a pause."""

    pause_ms: int
    does: Batch | Service


@dataclass(frozen=True)
class ActorWork:
    """What one actor does.

    Attributes:
        name: unique.
        seat: actors of one seat are threads of one process.
        steps: in their order.
        options: of its table.
    """

    name: str
    seat: str
    steps: tuple[Step, ...]
    options: tuple[tuple[str, object], ...] = ()

    @property
    def identity(self) -> dict[str, object]:
        """The option with the writer id, if it writes."""
        batches = [step.does for step in self.steps if isinstance(step.does, Batch)]
        return {WRITER_ID.key: batches[0].writer_id} if batches else {}


@dataclass(frozen=True)
class Workload:
    """The work of one run.

    Attributes:
        mode: how its writers are kept apart.
        options: of the table, for everybody.
        actors: who does what.
        skews_ms: by host, how far its clock is ahead.
        server_times: whether the storage's clock gives the modification times, or that of the writing host.
        late_tasks: share of the tasks of which a second attempt runs elsewhere.
        on_objects: whether the table is in an object store.
    """

    mode: Mode
    options: Mapping[str, object]
    actors: tuple[ActorWork, ...]
    skews_ms: Mapping[str, int]
    server_times: bool
    late_tasks: float
    on_objects: bool = False

    @property
    def is_cow(self) -> bool:
        """Whether the table is copy-on-write."""
        return _is_cow(self.options)

    @property
    def is_indexed(self) -> bool:
        """Whether the metadata table has more than the list of files."""
        return has_indexes(self.options)

    @property
    def secondary_column(self) -> str:
        """The column of the secondary index; empty without one."""
        return str(self.options.get(SECONDARY_INDEX_COLUMN.key, ""))


HOSTS = ("east", "west", "north")
BASE: Mapping[str, object] = {
    **OPTIONS,
    "lsm.read.threads": 1,
    "hoodie.parquet.compression.codec": "uncompressed",
    "hoodie.clean.automatic": False,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
    "hoodie.archive.automatic": False,
    "hoodie.log.compaction.blocks.threshold": 2,
    "lsm.compaction.small.base.bytes": 0,
    "lsm.compaction.log.share": 4,
    "lsm.compaction.max.runs": 3,
    "hoodie.compact.inline.max.delta.commits": 2,
    HEARTBEAT_MS.key: LEASE_MS // 2,
    HEARTBEAT_MISSES.key: 2,
    LOCK_WAIT_MS.key: 10_000,
    SINGLE_WRITER_WAIT_MS.key: 10_000,
}
TABLES: Mapping[str, Mapping[str, object]] = {
    "native logs": {},
    "metadata table": {"hoodie.metadata.enable": True},
    "indexes": {**INDEXED, **LOCATED_BY_PARTITION, "hoodie.metadata.compact.max.delta.commits": 3},
    "copy on write": {"hoodie.table.type": "COPY_ON_WRITE"},
    "inline logs": {"hoodie.write.table.version": 9, "hoodie.table.storage.layout": "default"},
    "indexes, copy on write": {
        **INDEXED,
        **LOCATED_BY_PARTITION,
        "hoodie.metadata.compact.max.delta.commits": 3,
        "hoodie.table.type": "COPY_ON_WRITE",
    },
}
"""Options of the kinds of tables."""
_ON_OBJECTS = 0.3
_WEIGHTS = {"native logs": 6, "metadata table": 1, "indexes": 3, "copy on write": 2, "inline logs": 1}
"""How often a kind is drawn; the others are given by settings."""


@dataclass(frozen=True)
class Setting:
    """What is not drawn, but given.

    Attributes:
        table: the kind of table, one of `TABLES`.
        mode: how writers are kept apart.
        options: options of the table.
        on_objects: whether the table is in an object store.
        looks_up: whether the table has no buckets.
    """

    table: str | None = None
    mode: Mode | None = None
    options: tuple[tuple[str, object], ...] = ()
    on_objects: bool | None = None
    looks_up: bool | None = None

    def all_options(self) -> Mapping[str, object]:
        """Options of a table of this setting, without those that are drawn."""
        return {
            **BASE,
            **TABLES[self.table or ""],
            **options_of_mode(self.mode or Mode.SINGLE_WRITER),
            **dict(self.options),
        }


ANY = Setting()


def indexed_setting(seed: int) -> Setting:
    """Draw the setting of a table with all indexes: copy-on-write or merge-on-read, with buckets or without."""
    chance = random.Random(f"{SEEDS}{seed} indexed table")
    looks_up = chance.random() < 0.6
    return Setting("indexes, copy on write" if chance.random() < 0.35 else "indexes", looks_up=looks_up)


def draw_workload(seed: int, setting: Setting = ANY) -> Workload:
    """Draw the work of a seed.

    Args:
        setting: what is given of it.
    """
    # Numbers of its own, so that the seeds of a single writer are as they were before there were other modes.
    of_mode = random.Random(f"{SEEDS}{seed} mode")
    mode = setting.mode or draw_mode(of_mode)
    chance = random.Random(f"{SEEDS}{seed} workload")
    names = [name for name in TABLES if mode is not Mode.NON_BLOCKING or not _is_cow(TABLES[name])]
    (drawn,) = chance.choices(names, [_WEIGHTS.get(name, 0) for name in names])
    name = setting.table or drawn
    table = TABLES[name]
    if mode is Mode.NON_BLOCKING and (_is_cow(table) or setting.looks_up):
        mode = Mode.OPTIMISTIC
    shared = draw_options(of_mode, mode)
    is_skewed = chance.random() < 0.4
    skews = {host: chance.randint(-1_800_000, 1_800_000) if is_skewed else 0 for host in HOSTS}
    hurry_ms = chance.choice((10, 100, 400))
    is_mor = not _is_cow(table)
    # Many writers with a few services, or one with more of them.
    is_stream = is_mor and chance.random() < 0.3 and not mode.is_shared
    counts = (2, 2, 3) if mode.is_shared else (1, 2, 2, 3)
    actors = [_writer(chance, number, hurry_ms, mode) for number in range(1 if is_stream else chance.choice(counts))]
    if is_mor:
        services = (Service.COMPACT, Service.COMPACT, Service.SCHEDULE)
        count = 2 if is_stream else chance.choice((0, 1, 1))
        actors += [_service(chance, f"c{n}", services, hurry_ms, 2 * count) for n in range(count)]
    if not is_stream:
        actors += [_service(chance, f"x{n}", (Service.CLEAN,), hurry_ms, 2) for n in range(chance.choice((0, 1, 1)))]
        actors += [_service(chance, f"r{n}", (Service.READ,), hurry_ms, 2) for n in range(chance.choice((0, 1)))]
    if mode.is_shared and of_mode.random() < 0.25:
        actors.append(_service(of_mode, "p0", (Service.REPLACE,), hurry_ms, 1))
    of_archive = random.Random(f"{SEEDS}{seed} archive")
    actors += [
        _service(of_archive, f"a{n}", (Service.ARCHIVE,), 3 * hurry_ms, 2) for n in range(of_archive.choice((0, 1, 2)))
    ]
    actors = [_now_and_then_archiving(of_archive, actor) for actor in actors]
    of_logs = random.Random(f"{SEEDS}{seed} log compactions")
    if is_mor:
        actors += [
            _service(of_logs, f"l{n}", (Service.LOG_COMPACT,), hurry_ms, 2) for n in range(of_logs.choice((0, 0, 1)))
        ]
        actors = [_now_and_then_hybrid(of_logs, actor) for actor in actors]
    of_overwrites = random.Random(f"{SEEDS}{seed} overwrites")
    if of_overwrites.random() < _OVERWRITING:
        actors = [_now_and_then_overwriting(of_overwrites, actor) for actor in actors]
    of_savepoints = random.Random(f"{SEEDS}{seed} savepoints")
    if of_savepoints.random() < _SAVING:
        services = (Service.SAVE, Service.SAVE, Service.UNSAVE, Service.READ)
        actors += [
            _service(of_savepoints, f"s{n}", services, hurry_ms, 3) for n in range(of_savepoints.choice((1, 1, 2)))
        ]
        if of_savepoints.random() < _RESTORING:
            actors.append(_service(of_savepoints, "y0", (Service.RESTORE,), 2 * hurry_ms, 1))
    of_rollbacks = random.Random(f"{SEEDS}{seed} rollbacks")
    if of_rollbacks.random() < _UNDOING:
        actors.append(_service(of_rollbacks, "b0", (Service.ROLL_BACK,), hurry_ms, 1))
    late_tasks = chance.choice((0.0, 0.0, 0.3))
    options = {**BASE, **table, **shared, **dict(setting.options)}
    of_index = random.Random(f"{SEEDS}{seed} index")
    looks_up = mode is not Mode.NON_BLOCKING and of_index.random() < _LOOKING_UP
    if looks_up if setting.looks_up is None else setting.looks_up:
        options = {key: value for key, value in options.items() if "bucket" not in key}
        options[INDEX_TYPE.key] = draw_index_type(
            random.Random(f"{SEEDS}{seed} index type"), of_index.choice(("SIMPLE", "BLOOM"))
        )
        actors = [_without_bulk(actor) for actor in actors]
        of_clustering = random.Random(f"{SEEDS}{seed} clustering")
        if of_clustering.random() < _CLUSTERING:
            actors += _clustering(of_clustering, hurry_ms)
            options |= clustering_options(of_clustering)
    if name in INDEX_TABLES:
        options = draw_indexes(random.Random(f"{SEEDS}{seed} indexes"), options)
        of_making = random.Random(f"{SEEDS}{seed} index making")
        if of_making.random() < _INDEXING:
            services = (Service.INDEX, Service.INDEX, Service.INDEX, Service.UNINDEX)
            actors.append(_service(of_making, "i0", services, hurry_ms, 3))
    on_objects = setting.on_objects if setting.on_objects is not None else of_mode.random() < _ON_OBJECTS
    server_times = chance.random() < 0.5 or on_objects
    return Workload(mode, options, tuple(actors), skews, server_times, late_tasks, on_objects)


def _without_bulk(actor: ActorWork) -> ActorWork:
    """A bulk insert looks no key up, and would insert those that the table has once more."""
    steps = (
        replace(step, does=replace(step.does, is_bulk=False)) if isinstance(step.does, Batch) else step
        for step in actor.steps
    )
    return replace(actor, steps=tuple(steps))


def _is_cow(table: Mapping[str, object]) -> bool:
    return table.get("hoodie.table.type") == "COPY_ON_WRITE"


def _writer(chance: random.Random, number: int, hurry_ms: int, mode: Mode) -> ActorWork:
    name = f"w{number}"
    draw = commuting_batch if mode is Mode.NON_BLOCKING else drawn_batch
    steps = tuple(Step(chance.randint(0, hurry_ms), draw(chance, name, n)) for n in range(chance.randint(2, 5)))
    if mode.is_shared:
        steps = tuple(replace(step, does=now_and_then_bulk(chance, step.does)) for step in steps)
    inline = {"hoodie.compact.inline": True}
    options = {**(inline if chance.random() < 0.3 else {}), "hoodie.clean.automatic": chance.random() < 0.2}
    return ActorWork(name, name, steps, tuple(options.items()))


def _now_and_then_overwriting(chance: random.Random, actor: ActorWork) -> ActorWork:
    def changed(step: Step) -> Step:
        if not isinstance(step.does, Batch) or chance.random() >= _OVERWRITES:
            return step
        return replace(step, does=overwriting(chance, step.does))

    return replace(actor, steps=tuple(changed(step) for step in actor.steps))


def _now_and_then_archiving(chance: random.Random, actor: ActorWork) -> ActorWork:
    return replace(actor, options=(*actor.options, ("hoodie.archive.automatic", chance.random() < 0.3)))


def _now_and_then_hybrid(chance: random.Random, actor: ActorWork) -> ActorWork:
    hybrid = {"hoodie.compaction.plan.generator": "HybridCompactionPlanGenerator"} if chance.random() < 0.5 else {}
    return replace(actor, options=(*actor.options, *hybrid.items()))


def _clustering(chance: random.Random, hurry_ms: int) -> list[ActorWork]:
    """Draw who clusters the table; a plan that is made is run in the end, as writes of its file groups are refused."""
    services = (Service.CLUSTER, Service.CLUSTER, Service.PLAN_CLUSTERING)
    actors = [_service(chance, f"k{number}", services, hurry_ms, 2) for number in range(chance.choice((1, 1, 2)))]
    last = Step(chance.randint(0, hurry_ms), Service.CLUSTER)
    return [replace(actor, steps=(*actor.steps, last)) for actor in actors]


def _service(chance: random.Random, name: str, does: tuple[Service, ...], hurry_ms: int, count: int) -> ActorWork:
    pauses = [chance.randint(0, 3 * hurry_ms) for _ in range(count + chance.randint(0, 2))]
    steps = tuple(Step(pause_ms, chance.choice(does)) for pause_ms in pauses)
    seat = "w0" if chance.random() < 0.25 else name
    return ActorWork(name, seat, steps)
