"""Upgrade and downgrade of a table, and the change to sorted files.

See docs/format/03-native-logs.md, "Version gating"; docs/format/08-decisions.md, "Rows" 13 and 22.

Whatever has to be rewritten is rewritten by compactions first, each an action of its own, so that a table is whole at
every moment. The properties change last, under the lock, once no file is left that the new version's readers do not
read. A run that dies is simply run again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import CommitConflict, ConfigError, UnsupportedTable
from streaming_lsm.file_group.data_file import open_base
from streaming_lsm.file_group.file_group import file_groups_in
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.file_group.lost_files import checked_slices
from streaming_lsm.format.actions.clean import decode_savepoint
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import LogFileName, parse_file_name
from streaming_lsm.format.table.properties import DEFAULT_LAYOUT, LSM_TREE, TABLE_VERSION, WRITE_VERSIONS
from streaming_lsm.format.table.upgrade import version_changes
from streaming_lsm.metadata.creation import INFLIGHT_KEY, PARTITIONS_KEY
from streaming_lsm.services.cleaning.planner import RetainedFiles
from streaming_lsm.services.cleaning.runner import Cleaner, retained_files
from streaming_lsm.services.compaction.runner import compact_slices, run_all
from streaming_lsm.services.context import Engine, ServiceContext
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_compactions

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 5
_METADATA_KEYS = (PARTITIONS_KEY, INFLIGHT_KEY)


@dataclass(frozen=True)
class VersionChange:
    """A change of a table's version or storage layout.

    Attributes:
        version: the version to be, one of `WRITE_VERSIONS`.
        layout: the storage layout to be; ``default`` below version 10.
    """

    version: int
    layout: str

    @staticmethod
    def of(table: TableConfig, version: int | None, layout: str | None) -> VersionChange:
        """The change that is asked for.

        Args:
            table: the table as it is.
            version: None for the same, or version 10 where `layout` is ``lsm_tree``.
            layout: None for the same where the version has it.

        Raises:
            ConfigError: the two contradict each other.
            UnsupportedTable: tables of the one or the other version cannot be changed.
        """
        if table.version not in WRITE_VERSIONS:
            raise UnsupportedTable(
                f"table {table.name!r} has version {table.version}, which is only read: `lsm copy` makes a new one"
            )
        target = version or (TABLE_VERSION if layout == LSM_TREE else table.version)
        if target not in WRITE_VERSIONS:
            known = ", ".join(map(str, WRITE_VERSIONS))
            raise UnsupportedTable(f"table {table.name!r} cannot be made version {target}; the versions are {known}")
        chosen = layout or (table.storage_layout if target >= TABLE_VERSION else DEFAULT_LAYOUT)
        if chosen == LSM_TREE and target < TABLE_VERSION:
            raise ConfigError(f"the {LSM_TREE} layout needs version {TABLE_VERSION}, not {target}")
        return VersionChange(target, chosen)

    def is_done(self, table: TableConfig) -> bool:
        """Whether the table is so already."""
        return (table.version, table.storage_layout) == (self.version, self.layout)


@dataclass(frozen=True)
class ChangePlan:
    """What a change has to do, for people to read first.

    Attributes:
        pending: compactions that wait, and are run first.
        rewrites: file groups that are compacted.
        obsolete: paths of files that have to be cleaned away, once nothing is left to be compacted.
        deleted: paths of the files there are now that the clean will have deleted: all but the newest states.
        drops_metadata: whether the metadata table goes.
        properties: keys that change, with their new values; None where a key goes.
    """

    pending: tuple[Instant, ...]
    rewrites: tuple[FileSlice, ...]
    obsolete: tuple[str, ...]
    deleted: tuple[str, ...]
    drops_metadata: bool
    properties: dict[str, str | None]

    @property
    def is_ready(self) -> bool:
        """Whether only the properties are left to change."""
        return not (self.pending or self.rewrites or self.obsolete)

    def lines(self) -> Iterator[str]:
        """One line for each step."""
        yield from (f"run {pending.file_name}" for pending in self.pending)
        yield from (f"compact {found.partition_path or '.'} {found.file_id}" for found in self.rewrites)
        yield from (f"clean away {path}" for path in self.deleted)
        if self.deleted:
            yield "states from before it can no longer be read: time travel and incremental reads begin there"
        if self.drops_metadata:
            yield "drop the metadata table"
        for key, value in sorted(self.properties.items()):
            yield f"remove {key}" if value is None else f"set {key}={value}"


def plan_change(context: ServiceContext, change: VersionChange) -> ChangePlan:
    """What there is to do now; nothing is changed."""
    return _plan(context, change, context.load_timeline())


def change_version(context: ServiceContext, change: VersionChange, engine: Engine) -> None:
    """Carry a change out, or go on with one that died.

    Raises:
        CommitConflict: another writer is at work, or adds files again and again.
        UnsupportedTable: a savepoint or a clustering holds files that the new version's readers do not read.
    """
    for _ in range(_ATTEMPTS):
        with context.new_transaction() as tx:
            _check_unchanged(context)
            plan = _plan(context, change, tx.timeline)
            if plan.is_ready:
                if change.version != context.config.version:
                    tx.drop_metadata_table("its files are of the version before")
                tx.update_properties(plan.properties)
                _LOG.info("%s has version %d, layout %s", context.storage.uri, change.version, change.layout)
                return
        _prepare(context, plan, engine)
    raise CommitConflict(
        f"{context.storage.uri}: other writers add files faster than they are compacted; stop them, and try again"
    )


def _check_unchanged(context: ServiceContext) -> None:
    """What is planned here goes by the table as it was opened."""
    source = f"{context.storage.uri}/{PROPERTIES_PATH}"
    found = TableConfig.from_properties(load_properties(context.storage), source)
    if (found.version, found.storage_layout) != (context.config.version, context.config.storage_layout):
        raise ConfigError(f"{source} was changed since the table was opened; open it again")


def _prepare(context: ServiceContext, plan: ChangePlan, engine: Engine) -> None:
    if plan.pending:
        run_all(context, plan.pending, engine)
    elif plan.rewrites:
        compact_slices(context, [(found.partition_path, found.file_id) for found in plan.rewrites], engine)
    else:
        cleaned = Cleaner(_keeping_one(context)).clean()
        if cleaned is None and context.storage.exists(plan.obsolete[0]):
            raise UnsupportedTable(
                f"{plan.obsolete[0]} in {context.storage.uri} cannot be cleaned away, and readers of the older version "
                "do not read it: delete the savepoint, or finish the service, that holds it"
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
    leaves_native = table.has_native_logs and change.version < TABLE_VERSION
    if leaves_native:
        rewrites = tuple(slice for slice in slices if any(log.is_native for log in slice.logs))
        obsolete = () if rewrites else tuple(_native_files(view))
    elif change.layout == LSM_TREE and not table.is_lsm_tree:
        rewrites = tuple(slice for slice in slices if not _is_sorted(context, slice))
    must_wait = leaves_native or bool(rewrites)
    if rewrites or obsolete:
        _check_free(context, timeline, leaves_native=leaves_native)
    pending = tuple(pending_compactions(timeline)) if must_wait else ()
    deleted = tuple(_left_behind(context, timeline, view, rewrites)) if leaves_native and (rewrites or obsolete) else ()
    return ChangePlan(pending, rewrites, obsolete, deleted, drops_metadata, differing)


def _left_behind(
    context: ServiceContext, timeline: Timeline, view: FileSystemView, rewrites: tuple[FileSlice, ...]
) -> Iterator[str]:
    """Paths of the files that nothing but older states needs, once what waits and `rewrites` have been compacted."""
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
    """Nothing on the timeline holds on to files that have to go."""
    held = next((pending for pending in timeline.pending if pending.action in ("logcompaction", "clustering")), None)
    if held is not None:
        raise UnsupportedTable(f"{held.path} is pending, which this release cannot carry out: finish it with Hudi")
    for instant in timeline.instants:
        if leaves_native and instant.action == "savepoint" and instant.is_completed:
            kept = decode_savepoint(context.storage.read(instant.path), instant.path)
            names = (parse_file_name(name, rfc103_names=True) for files in kept.values() for name in files)
            if any(isinstance(name, LogFileName) for name in names):
                raise UnsupportedTable(
                    f"{instant.path} keeps native logs, which readers of the older version do not read: delete it"
                )


def _native_files(view: FileSystemView) -> Iterator[str]:
    for entries in view.listings().values():
        for entry in entries:
            if isinstance(view.visible_name(entry), LogFileName):
                yield entry.path


def _is_sorted(context: ServiceContext, found: FileSlice) -> bool:
    """Whether a slice is one base file whose rows ascend by record key."""
    if found.logs or found.base is None:
        return False
    with ExitStack() as files:
        base = open_base(context.storage, found.base, files)
        if base.ascends() and not base.ascends(distinct=True):
            raise UnsupportedTable(
                f"{base.path}: a key is there twice, which readers of sorted files take for two versions of one row: "
                "delete or rename one of them before the table becomes lsm_tree"
            )
        return base.ascends()
