"""Upgrade and downgrade a table, and change its storage layout.

See docs/format/03-native-logs.md, "Version gating"; docs/format/08-decisions.md, "Rows" 13 and 22.

File groups that must be rewritten are compacted first, each compaction an action of its own, so that the table can be
read at every moment. The properties change last, under the lock, once every file is readable in the new version. An
interrupted change is finished by running it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import CommitConflict, ConfigError, UnsupportedTable
from streaming_lsm.file_group.data_file import open_base
from streaming_lsm.file_group.file_group import file_groups_in
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.file_group.lost_files import checked_slices
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.actions.savepoint import decode_savepoint
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import LogFileName, parse_file_name
from streaming_lsm.format.table.properties import CURRENT_VERSION, DEFAULT_LAYOUT, LSM_TREE, WRITE_VERSIONS
from streaming_lsm.format.table.upgrade import version_changes
from streaming_lsm.metadata.creation import INFLIGHT_KEY, PARTITIONS_KEY
from streaming_lsm.services.cleaning.planner import RetainedFiles
from streaming_lsm.services.cleaning.runner import Cleaner, retained_files
from streaming_lsm.services.compaction.runner import compact_slices, run_all
from streaming_lsm.services.context import Engine, ServiceContext
from streaming_lsm.services.survey import looked
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.locked_table import Beside
from streaming_lsm.txn.planned_actions import pending_compactions

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 5
_METADATA_KEYS = (PARTITIONS_KEY, INFLIGHT_KEY)


@dataclass(frozen=True)
class VersionChange:
    """A change of a table's version or storage layout.

    Attributes:
        version: the target version, one of `WRITE_VERSIONS`.
        layout: the target storage layout; ``default`` below version 10.
    """

    version: int
    layout: str

    @staticmethod
    def of(table: TableConfig, version: int | None, layout: str | None) -> VersionChange:
        """Build and check the requested change.

        Args:
            table: the table's current config.
            version: None for the current version, or for 10 if `layout` is ``lsm_tree``.
            layout: None for the current layout, if the target version has it.

        Raises:
            ConfigError: version and layout contradict each other.
            UnsupportedTable: the current or the target version cannot be changed.
        """
        if table.version not in WRITE_VERSIONS:
            raise UnsupportedTable(
                f"table {table.name!r} has version {table.version}, which is read-only here: make a new table of it "
                "with `lsm copy`"
            )
        target = version or (CURRENT_VERSION if layout == LSM_TREE else table.version)
        if target not in WRITE_VERSIONS:
            known = ", ".join(map(str, WRITE_VERSIONS))
            raise UnsupportedTable(f"table {table.name!r} cannot be changed to version {target}; choose one of {known}")
        chosen = layout or (table.storage_layout if target >= CURRENT_VERSION else DEFAULT_LAYOUT)
        if chosen == LSM_TREE and target < CURRENT_VERSION:
            raise ConfigError(f"the {LSM_TREE} layout needs version {CURRENT_VERSION}, not {target}")
        return VersionChange(target, chosen)

    def is_done(self, table: TableConfig) -> bool:
        """Return whether the table has this version and layout already."""
        return (table.version, table.storage_layout) == (self.version, self.layout)


@dataclass(frozen=True)
class ChangePlan:
    """The remaining steps of a version change, also shown by ``--dry-run``.

    Attributes:
        leaves_native: whether native logs, which the older version does not know, must go.
        pending: pending compactions, which are run first.
        rewrites: file slices that are compacted next.
        obsolete: paths of files that must be cleaned once no compaction is left.
        deleted: paths of the existing files that the whole change deletes: all but the latest slices.
        drops_metadata: whether the metadata table is dropped.
        properties: changed keys with their new values; None for a removed key.
    """

    leaves_native: bool
    pending: tuple[Instant, ...]
    rewrites: tuple[FileSlice, ...]
    obsolete: tuple[str, ...]
    deleted: tuple[str, ...]
    drops_metadata: bool
    properties: dict[str, str | None]

    @property
    def is_ready(self) -> bool:
        """Whether only the properties remain to be changed."""
        return not (self.pending or self.rewrites or self.obsolete)

    def lines(self) -> Iterator[str]:
        """Describe each step in one line."""
        yield from (f"run {pending.file_name}" for pending in self.pending)
        yield from (f"compact {found.partition_path or '.'} {found.file_id}" for found in self.rewrites)
        yield from (f"delete {path}" for path in self.deleted)
        if self.deleted:
            yield "time travel and incremental reads of states before this change are no longer possible"
        if self.drops_metadata:
            yield "drop the metadata table"
        for key, value in sorted(self.properties.items()):
            yield f"remove {key}" if value is None else f"set {key}={value}"


def plan_change(context: ServiceContext, change: VersionChange) -> ChangePlan:
    """Plan the remaining steps of a change; nothing is changed."""
    return looked(context, lambda timeline: _plan(context, change, timeline))


def change_version(context: ServiceContext, change: VersionChange, engine: Engine) -> None:
    """Execute a version change, or finish an interrupted one.

    Raises:
        CommitConflict: another writer holds the lock, or added files during every attempt.
        UnsupportedTable: a savepoint or a pending service keeps files that cannot be read in the new version.
    """
    for _ in range(_ATTEMPTS):
        with context.new_transaction(Beside.NOTHING) as tx:
            context.check_unchanged()
            plan = _plan(context, change, tx.timeline)
            if plan.is_ready:
                if change.version != context.config.version:
                    tx.drop_metadata_table("its files are of the version before")
                tx.update_properties(plan.properties)
                _LOG.info("%s has version %d, layout %s", context.storage.uri, change.version, change.layout)
                return
        _prepare(context, plan, engine)
    raise CommitConflict(
        f"{context.storage.uri}: other writers added files during {_ATTEMPTS} attempts; stop them and try again"
    )


def _prepare(context: ServiceContext, plan: ChangePlan, engine: Engine) -> None:
    if plan.pending:
        run_all(context, plan.pending, engine)
    elif plan.rewrites:
        groups = [(found.partition_path, found.file_id) for found in plan.rewrites]
        compact_slices(context, groups, engine, leaves_native=plan.leaves_native)
    else:
        cleaned = Cleaner(_keeping_one(context)).clean()
        if cleaned is None and context.storage.exists(plan.obsolete[0]):
            raise UnsupportedTable(
                f"{plan.obsolete[0]} in {context.storage.uri} cannot be cleaned and cannot be read in the older "
                "version: delete the savepoint, or finish the service, that keeps it"
            )


def _keeping_one(context: ServiceContext) -> ServiceContext:
    retention = Options({config.CLEAN_POLICY.key: "KEEP_LATEST_FILE_VERSIONS", config.CLEAN_VERSIONS.key: 1})
    return replace(context, options=context.options.merged(retention))


def _plan(context: ServiceContext, change: VersionChange, timeline: Timeline) -> ChangePlan:
    table, view = context.config, context.view(timeline)
    slices = checked_slices(view)
    properties = load_properties(context.storage)
    found = version_changes(properties, change.version, change.layout, f"{context.storage.uri}/{PROPERTIES_PATH}")
    differing = {key: value for key, value in found.items() if properties.get(key) != value}
    drops_metadata = change.version != table.version and any(properties.get(key) for key in _METADATA_KEYS)
    rewrites: tuple[FileSlice, ...] = ()
    obsolete: tuple[str, ...] = ()
    leaves_native = table.has_native_logs and change.version < CURRENT_VERSION
    if leaves_native:
        changed = _with_native_change_logs(view, slices) if table.cdc_mode else set()
        rewrites = tuple(found for found in slices if found in changed or any(log.is_native for log in found.logs))
        obsolete = () if rewrites else tuple(_native_files(view))
    elif change.layout == LSM_TREE and not table.is_lsm_tree:
        rewrites = tuple(slice for slice in slices if not _is_sorted(context, slice))
    must_wait = leaves_native or bool(rewrites)
    if rewrites or obsolete:
        _check_free(context, timeline, leaves_native=leaves_native)
    pending = tuple(pending_compactions(timeline)) if must_wait else ()
    deleted = tuple(_left_behind(context, timeline, view, rewrites)) if leaves_native and (rewrites or obsolete) else ()
    return ChangePlan(
        leaves_native=leaves_native,
        pending=pending,
        rewrites=rewrites,
        obsolete=obsolete,
        deleted=deleted,
        drops_metadata=drops_metadata,
        properties=differing,
    )


def _left_behind(
    context: ServiceContext, timeline: Timeline, view: FileSystemView, rewrites: tuple[FileSlice, ...]
) -> Iterator[str]:
    """List the files that only older states need once pending compactions and `rewrites` are completed."""
    kept = retained_files(context, timeline)
    compacted = {*kept.pending, *((found.partition_path, found.file_id) for found in rewrites)}
    saved = RetainedFiles({}, kept.savepoints)
    for partition, entries in sorted(view.listings().items()):
        for group in file_groups_in(view, partition, entries):
            whole = group.replaced is not None or (partition, group.file_id) in compacted
            for old in group.slices if whole else group.slices[:-1]:
                if not saved.holds(group, old):
                    yield from (file_path(partition, name) for name in old.files)


def _check_free(context: ServiceContext, timeline: Timeline, *, leaves_native: bool) -> None:
    """Refuse a change while a pending service or a savepoint keeps files that it must delete."""
    held = next((pending for pending in timeline.pending if pending.action == "clustering"), None)
    if held is not None:
        raise UnsupportedTable(f"{held.path} is pending: run it first (`lsm cluster`)")
    for instant in timeline.instants:
        if leaves_native and instant.action == "savepoint" and instant.is_completed:
            kept = decode_savepoint(context.storage.read(instant.path), instant.path)
            names = (parse_file_name(name, rfc103_names=True) for files in kept.values() for name in files)
            if any(isinstance(name, LogFileName) for name in names):
                raise UnsupportedTable(
                    f"{instant.path} keeps native logs, which cannot be read in the older version: delete the savepoint"
                )


def _native_files(view: FileSystemView) -> Iterator[str]:
    for entries in view.listings().values():
        for entry in entries:
            if isinstance(view.visible_name(entry), LogFileName):
                yield entry.path


def _with_native_change_logs(view: FileSystemView, slices: Iterable[FileSlice]) -> set[FileSlice]:
    """Return the latest slices that have native change logs, which a clean leaves there."""
    latest = {(found.partition_path, found.file_id): found for found in slices}
    found: set[FileSlice] = set()
    for partition, entries in view.listings().items():
        for entry in entries:
            name = view.visible_name(entry)
            if isinstance(name, LogFileName) and name.is_change_log:
                newest = latest.get((partition, name.file_id))
                if newest is not None and view.log_time(name) >= newest.base_instant:
                    found.add(newest)
    return found


def _is_sorted(context: ServiceContext, found: FileSlice) -> bool:
    """Return whether a slice is a base file whose rows ascend by record key, and deletes that were kept."""
    if found.base is None or not all(found.is_kept(log) for log in found.logs):
        return False
    with ExitStack() as files:
        base = open_base(context.storage, found.base, files)
        if base.ascends() and not base.ascends(distinct=True):
            raise UnsupportedTable(
                f"{base.path}: a record key occurs twice, and the lsm_tree layout would merge the two rows: delete or "
                "rename one of them before the change to lsm_tree"
            )
        return base.ascends()
