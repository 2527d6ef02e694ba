"""The work of a run, drawn from its seed: a table, and what writers, services and readers do with it.

Keys are of two kinds, so that the rows at any moment follow from the order of the commits alone. Those with a changing
ordering value are never deleted; those that are deleted have one ordering value, of which the later write wins. (A
compaction forgets deletes, so that other late rows come back or not, depending on when it is made.)
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from streaming_lsm.config import HEARTBEAT_MISSES, HEARTBEAT_MS, LOCK_WAIT_MS, SINGLE_WRITER_WAIT_MS, WRITER_ID
from tests.support.small_tables import OPTIONS, Row

SEEDS = "v1 "
"""Changes what all seeds mean."""
LEASE_MS = 1000
_COUNTRIES = ("nl", "de")
_ORDERED = tuple((f"k{number}", _COUNTRIES[number % 2]) for number in range(8))
_DELETED = tuple((f"d{number}", _COUNTRIES[number % 2]) for number in range(4))
_ALWAYS = 50
"""The ordering value of keys that are deleted."""


class Mode(Enum):
    """How writers of one table are kept apart, by Hudi's names."""

    SINGLE_WRITER = "SINGLE_WRITER"


@dataclass(frozen=True)
class Batch:
    """A batch of one writer.

    Attributes:
        writer_id: the writer.
        number: its batch id.
        rows: upserted; each key at most once.
        deletes: keys to delete, if there are no rows.
    """

    writer_id: str
    number: int
    rows: tuple[Row, ...] = ()
    deletes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"batch {self.number} of {self.writer_id}"


class Service(Enum):
    """What is done to a table beside writing."""

    COMPACT = "compact"
    SCHEDULE = "schedule a compaction"
    CLEAN = "clean"
    READ = "read"


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
        options: of the table, for everybody.
        actors: who does what.
        skews_ms: by host, how far its clock is ahead.
        server_times: whether the storage's clock gives the modification times, or that of the writing host.
        late_tasks: share of the tasks of which a second attempt runs elsewhere.
    """

    options: Mapping[str, object]
    actors: tuple[ActorWork, ...]
    skews_ms: Mapping[str, int]
    server_times: bool
    late_tasks: float


HOSTS = ("east", "west", "north")
_BASE: Mapping[str, object] = {
    **OPTIONS,
    "lsm.read.threads": 1,
    "hoodie.parquet.compression.codec": "uncompressed",
    "hoodie.clean.automatic": False,
    "hoodie.clean.commits.retained": 3,
    HEARTBEAT_MS.key: LEASE_MS // 2,
    HEARTBEAT_MISSES.key: 2,
    LOCK_WAIT_MS.key: 10_000,
    SINGLE_WRITER_WAIT_MS.key: 10_000,
}
_TABLES: tuple[tuple[int, Mapping[str, object]], ...] = (
    (6, {}),
    (3, {"hoodie.metadata.enable": True}),
    (2, {"hoodie.table.type": "COPY_ON_WRITE"}),
    (1, {"hoodie.write.table.version": 9, "hoodie.table.storage.layout": "default"}),
)


def draw_workload(seed: int, mode: Mode = Mode.SINGLE_WRITER) -> Workload:
    """Draw the work of a seed."""
    chance = random.Random(f"{SEEDS}{seed} workload")
    (table,) = chance.choices([options for _, options in _TABLES], [weight for weight, _ in _TABLES])
    is_skewed = chance.random() < 0.4
    skews = {host: chance.randint(-1_800_000, 1_800_000) if is_skewed else 0 for host in HOSTS}
    hurry_ms = chance.choice((10, 100, 400))
    is_mor = table.get("hoodie.table.type") != "COPY_ON_WRITE"
    # Many writers with a few services, or one with more of them.
    is_stream = is_mor and chance.random() < 0.3
    actors = [_writer(chance, number, hurry_ms) for number in range(1 if is_stream else chance.choice((1, 2, 2, 3)))]
    if is_mor:
        services = (Service.COMPACT, Service.COMPACT, Service.SCHEDULE)
        count = 2 if is_stream else chance.choice((0, 1, 1))
        actors += [_service(chance, f"c{n}", services, hurry_ms, 2 * count) for n in range(count)]
    if not is_stream:
        actors += [_service(chance, f"x{n}", (Service.CLEAN,), hurry_ms, 2) for n in range(chance.choice((0, 1, 1)))]
        actors += [_service(chance, f"r{n}", (Service.READ,), hurry_ms, 2) for n in range(chance.choice((0, 1)))]
    late_tasks = chance.choice((0.0, 0.0, 0.3))
    return Workload({**_BASE, **table}, tuple(actors), skews, chance.random() < 0.5, late_tasks)


def _writer(chance: random.Random, number: int, hurry_ms: int) -> ActorWork:
    name = f"w{number}"
    steps = tuple(Step(chance.randint(0, hurry_ms), _batch(chance, name, n)) for n in range(chance.randint(2, 5)))
    inline = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 2}
    options = {**(inline if chance.random() < 0.3 else {}), "hoodie.clean.automatic": chance.random() < 0.2}
    return ActorWork(name, name, steps, tuple(options.items()))


def _batch(chance: random.Random, writer_id: str, number: int) -> Batch:
    if number and chance.random() < 0.2:
        return Batch(writer_id, number, deletes=tuple(chance.sample(_DELETED, chance.randint(1, 2))))
    keys = chance.sample(_ORDERED + _DELETED, chance.randint(1, 5))
    own = (int(writer_id.lstrip("w")) + 1) * 10_000 + number * 100
    return Batch(
        writer_id,
        number,
        tuple((*key, _ALWAYS if key in _DELETED else chance.randint(0, 99), own + n) for n, key in enumerate(keys)),
    )


def _service(chance: random.Random, name: str, does: tuple[Service, ...], hurry_ms: int, count: int) -> ActorWork:
    pauses = [chance.randint(0, 3 * hurry_ms) for _ in range(count + chance.randint(0, 2))]
    steps = tuple(Step(pause_ms, chance.choice(does)) for pause_ms in pauses)
    seat = "w0" if chance.random() < 0.25 else name
    return ActorWork(name, seat, steps)
