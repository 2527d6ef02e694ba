"""Define the context and the engine that all table services share, and read pending plans.

A table service is compaction, cleaning or a change of the table version. A plan is the content of a requested instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import CommitConflict, ConfigError, CorruptFileError, ReadOvertaken, UnsupportedTable
from streaming_lsm.file_group.file_system_view import METADATA_FOLDER, FileSystemView
from streaming_lsm.file_group.log_facts import LogFactsReader
from streaming_lsm.format.actions.clean import CleanPlan
from streaming_lsm.format.actions.clustering_plan import ClusteringPlan, clustered_groups
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import COMPACTIONS, LOG_COMPACTION
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.locked_table import Beside
from streaming_lsm.txn.recovery import find_living
from streaming_lsm.txn.transaction import Transaction

T = TypeVar("T")
R = TypeVar("R")

FileGroupId = tuple[str, str]
"""Partition path and file id."""


class EngineStopped(Exception):
    """An engine was told to stop, or lost its processes: what it runs is put back, and nothing further is begun."""


class Engine(Protocol):
    """Runs independent tasks, on threads of this process or on Spark's executors."""

    @property
    def width(self) -> int:
        """Number of tasks that run at a time."""
        ...

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Run a task for every item and yield the results in the order of `items`; both must be picklable."""
        ...


@dataclass(frozen=True)
class ServiceContext:
    """The table that services work on.

    Attributes:
        storage: the table's files.
        config: the table's config, from `hoodie.properties`.
        options: the options given when the table was opened.
        rule: how records of one key merge.
        new_transaction: creates a transaction without a batch, by the actions of others beside which it may be made;
            services change the table in transactions only.
        timelines: cache of the table's timeline.
        runtime: clock and process checks of looks at the table without its lock.
        log_facts: reads what the headers of logs say, and keeps it.
    """

    storage: Storage
    config: TableConfig
    options: Options
    rule: MergeRule
    new_transaction: Callable[[Beside], Transaction]
    timelines: TimelineCache = field(default_factory=TimelineCache)
    runtime: Runtime = field(default_factory=Runtime)
    log_facts: LogFactsReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Begin without the headers of any log."""
        object.__setattr__(self, "log_facts", LogFactsReader(self.storage, self.rule))

    def transaction(self) -> Transaction:
        """Create a transaction of a service, which shares no file with writes and other services.

        Logs of a write that is pending belong to the slice that is the newest when it is completed, as their completion
        times say (docs/format/10-rules.md, "Rule 8").
        """
        return self.new_transaction(Beside.ALL)

    def load_timeline(self) -> Timeline:
        """Load the table's current timeline.

        Raises:
            UnsupportedTable: the table is read-only in this release; its timeline may have another layout.
        """
        self.config.check_changeable(self.storage.uri)
        return self.timelines.load(self.storage)

    def run_elsewhere(self, timeline: Timeline) -> frozenset[str]:
        """Return the requested times of the pending actions that other living writers run, without the lock.

        An action may be taken or completed right after: its next run looks again while it holds the lock.
        """
        if not timeline.pending:
            return frozenset()
        lease_ms = self.options[config.HEARTBEAT_MS] * self.options[config.HEARTBEAT_MISSES]
        living = find_living(self.storage, timeline, self.storage.list(HEARTBEAT_FOLDER), self.runtime, lease_ms)
        return frozenset(pending.requested for pending in living)

    def check_unchanged(self) -> None:
        """Check that the table's settings are those with which it was opened, which may be months ago.

        Raises:
            ConfigError: they were changed, by an upgrade for example.
            TableNotFound: the table was removed.
        """
        source = f"{self.storage.uri}/{PROPERTIES_PATH}"
        found = TableConfig.from_properties(load_properties(self.storage), source)
        if not found.num_buckets:  # the options say the index
            own = self.config
            found = replace(found, num_buckets=own.num_buckets, hash_fields=own.hash_fields, index_type=own.index_type)
        if found != self.config:
            raise ConfigError(f"{source} was changed since the table was opened; open it again")

    def view(self, timeline: Timeline) -> FileSystemView:
        """Build the file system view of a timeline."""
        return FileSystemView(self.storage, timeline, self.options[config.READ_LEGACY_NAMES])


def is_data_folder(partition: str) -> bool:
    """Return whether a plan's partition path stays inside the table's data; plans may come from other programs."""
    parts = partition.split("/") if partition else []
    return "\0" not in partition and METADATA_FOLDER not in parts[:1] and not {"", ".", ".."}.intersection(parts)


def read_plan_file(storage: Storage, pending: Instant) -> bytes:
    """Read the content of a pending action's requested file.

    Raises:
        CommitConflict: the file was deleted since the timeline was loaded.
        CorruptFileError: the action is inflight and has no such file.
    """
    path = pending.at(State.REQUESTED).path
    try:
        return storage.read(path)
    except FileNotFoundError:
        if pending.state is State.REQUESTED:
            # The timeline had the file. A plan that is inflight is not cancelled any more.
            raise CommitConflict(
                f"{path} in {storage.uri} was cancelled, as its writer lost the lock while it scheduled the action, or "
                "finished by another writer: nothing was changed; try again"
            ) from None
        raise CorruptFileError(f"{pending.path} has no plan {path}: restore the plan or delete the file") from None


def read_compaction_plan(storage: Storage, pending: Instant) -> CompactionPlan:
    """Read the plan of a pending compaction or log compaction.

    Raises:
        CommitConflict: the plan was cancelled or finished since the timeline was loaded.
        CorruptFileError: the plan is missing or cannot be decoded.
    """
    decode = partial(CompactionPlan.decode, log=pending.action == LOG_COMPACTION)
    return decoded_plan(storage, pending, read_plan_file(storage, pending), decode)


def read_clean_plan(storage: Storage, pending: Instant) -> CleanPlan:
    """Read the plan of a pending clean; raises as `read_compaction_plan`."""
    return decoded_plan(storage, pending, read_plan_file(storage, pending), CleanPlan.decode)


def read_clustering_plan(storage: Storage, pending: Instant) -> ClusteringPlan:
    """Read the plan of a pending clustering; raises as `read_compaction_plan`."""
    return decoded_plan(storage, pending, read_plan_file(storage, pending), ClusteringPlan.decode)


def decoded_plan(storage: Storage, pending: Instant, data: bytes, decode: Callable[[bytes, str], T]) -> T:
    """Decode the plan of a pending action; `decode` takes the content and the path of its requested file.

    Raises:
        CorruptFileError: it cannot be decoded; the message says what to do.
    """
    path = pending.at(State.REQUESTED).path
    try:
        return decode(data, path)
    except CorruptFileError as error:
        reason = str(error).removeprefix(f"{path}: ").partition("; restore the file")[0]
        inflight = "" if pending.state is State.REQUESTED else f" and {pending.path}"
        raise CorruptFileError(
            f"{path} in {storage.uri} has no readable plan ({reason}): restore it, or delete it{inflight} to cancel "
            f"the {pending.action}"
        ) from error


def planned_slices(storage: Storage, timeline: Timeline) -> dict[FileGroupId, frozenset[str]]:
    """List the names of the files in pending compaction and log compaction plans, by file group."""
    planned: dict[FileGroupId, frozenset[str]] = {}
    for pending in timeline.pending:
        if pending.action in COMPACTIONS:
            for operation in read_compaction_plan(storage, pending).operations:
                group = (operation.partition_path, operation.file_id)
                planned[group] = planned.get(group, frozenset()).union(operation.files)
    return planned


def clustered_slices(storage: Storage, timeline: Timeline) -> frozenset[FileGroupId]:
    """List the file groups of pending clusterings.

    Raises:
        UnsupportedTable: one has no plan, so that its file groups are not known.
    """
    found: frozenset[FileGroupId] = frozenset()
    for pending in timeline.pending:
        if pending.action in ("clustering", "replacecommit"):
            path = pending.at(State.REQUESTED).path
            with suppress(FileNotFoundError):  # completed or cancelled since
                data = storage.read(path)
                if not data and pending.action == "clustering":
                    raise UnsupportedTable(f"{storage.uri}/{path} is pending without a plan: finish it with Hudi")
                found |= clustered_groups(data, path)
    return found


@contextmanager
def past_state() -> Iterator[None]:
    """Refuse what needs a past state that was cleaned, as it asks for what is not there.

    Raises:
        ConfigError: a clean deleted files of that state.
    """
    try:
        yield
    except ReadOvertaken as error:
        raise ConfigError(str(error)) from None
