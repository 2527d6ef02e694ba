"""What a table holds: the versions that are in the base files and logs of each file group.

An action that is completed adds base files and logs, or replaces file groups. What is visible of a file group as of a
time is its newest visible base file with the visible logs that were completed after the base file was requested
(docs/format/10-rules.md, "Rule 8"). Log compactions, cleans and archiving change no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.support.histories_model.columns import Names, Row
from tests.support.histories_model.kinds import RETAINED, TableKind
from tests.support.histories_model.merging import Version, Versions, combined, folded, merged, rows_of, version_of
from tests.support.histories_model.steps import Event, Way

Change = tuple[str, str, Version | None, Version | None]
"""Operation (i, u, d), requested time of the write, and the versions before and after it."""


@dataclass(frozen=True)
class Group:
    """A file group: its partition path, its bucket, and the write that made it."""

    partition: str
    bucket: int
    made: str

    @property
    def place(self) -> tuple[str, int]:
        return self.partition, self.bucket


@dataclass(frozen=True)
class Slice:
    """What is visible of a file group.

    Attributes:
        base: the versions of the base file, with the deletes that are kept beside it; None without a base file.
        logs: the versions of the logs, the oldest first.
    """

    base: Versions | None = None
    logs: tuple[Version, ...] = ()


@dataclass(frozen=True)
class Action:
    """A completed write or compaction.

    Attributes:
        bases, logs: the files that it made.
        replaced: the file groups that it replaced.
        is_compaction: whether it changed no rows.
        columns: the later columns that the table has after it.
        names: the names that columns have after it, by those that they have at first, if they differ.
        dropped: the columns that the table has no more after it.
    """

    requested: str
    completed: str
    bases: Mapping[Group, Versions] = field(default_factory=dict)
    logs: Mapping[Group, tuple[Version, ...]] = field(default_factory=dict)
    replaced: frozenset[Group] = frozenset()
    is_compaction: bool = False
    columns: frozenset[str] = frozenset()
    names: Names = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()

    @property
    def groups(self) -> list[Group]:
        """All file groups that it changed."""
        return list(dict.fromkeys([*self.bases, *self.logs, *self.replaced]))


@dataclass
class Model:
    """A table.

    Attributes:
        actions: what is completed, in order of completion.
        savepoints: requested times of the actions that are saved, the oldest first.
        has_plan: whether a compaction is scheduled.
        retained: requested time of the earliest action whose state cleans have kept.
        cleaned: requested times of the actions that were completed before the last clean.
        is_archived: whether actions may have been archived.
    """

    kind: TableKind
    actions: list[Action] = field(default_factory=list)
    savepoints: list[str] = field(default_factory=list)
    has_plan: bool = False
    retained: str = ""
    cleaned: frozenset[str] = frozenset()
    is_archived: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """The later columns that the table has now."""
        return self.columns_of(self.actions)

    def columns_of(self, actions: Collection[Action]) -> frozenset[str]:
        """The later columns that the table has if some actions are visible: those after the last completed one."""
        return max(actions, key=lambda action: action.completed).columns if actions else frozenset()

    @property
    def names(self) -> Names:
        """The names that columns have now, see `Action.names`."""
        return self.names_of(self.actions)

    def names_of(self, actions: Collection[Action]) -> Names:
        """The names that columns have if some actions are visible."""
        return max(actions, key=lambda action: action.completed).names if actions else {}

    @property
    def dropped(self) -> frozenset[str]:
        """The columns that the table has no more."""
        return self.dropped_of(self.actions)

    def dropped_of(self, actions: Collection[Action]) -> frozenset[str]:
        """The columns that are dropped if some actions are visible."""
        return max(actions, key=lambda action: action.completed).dropped if actions else frozenset()

    def has(self, column: str) -> bool:
        """Whether the table has a column now."""
        return column not in self.dropped and (column not in self.kind.later or column in self.columns)

    # --- what is done -----------------------------------------------------------------------------------------

    def write(
        self, way: Way, events: Iterable[Event], requested: str, completed: str, columns: Collection[str] = ()
    ) -> None:
        """Complete a batch that has some columns; those of a delete add none."""
        known = self.columns if way is Way.DELETE else self.columns | {n for n in self.kind.later if n in columns}
        versions: dict[tuple[str, int], list[Version]] = {}
        for event in events:
            found = version_of(event, self.kind, requested)
            versions.setdefault((found.partition, self.kind.bucket_of(found.key)), []).append(found)
        visible = self.slices(self.actions)
        partitions = {partition for partition, _ in versions}
        replaced = frozenset(
            group for group in visible if way.replaces and (way is Way.OVERWRITE_TABLE or group.partition in partitions)
        )
        live = {group.place: group for group in visible if group not in replaced}
        bases: dict[Group, Versions] = {}
        logs: dict[Group, tuple[Version, ...]] = {}
        for place, given in versions.items():
            group = live.get(place)
            found = given if self.kind.takes_winner else combined(self.kind, given)
            if way.replaces or not self.kind.is_merge_on_read or (group is None and self._is_bulk(way, found)):
                base = (visible[group].base if group else None) or {}
                rows = self._base_file(merged(self.kind, base, found))
                if rows or group:  # a bucket without files, of which nothing is kept, gets none
                    bases[group or Group(*place, requested)] = rows
            else:
                logs[group or Group(*place, requested)] = tuple(found)
        self.add(Action(requested, completed, bases, logs, replaced), columns=known)

    def delete_partition(self, path: str, requested: str, completed: str) -> None:
        """Complete the deletion of a partition."""
        replaced = frozenset(group for group in self.slices(self.actions) if group.partition == path)
        self.add(Action(requested, completed, replaced=replaced))

    def rename(self, column: str, name: str, requested: str, completed: str) -> None:
        """Complete the renaming of the column that has the name `column` at first."""
        names = {**self.names, column: name}
        self.add(Action(requested, completed), names={old: new for old, new in names.items() if old != new})

    def compact(
        self, requested: str, completed: str, chosen: Callable[[Slice], bool] = lambda found: bool(found.logs)
    ) -> None:
        """Complete a compaction that was planned at `requested`."""
        seen = self.slices([action for action in self.actions if action.completed < requested])
        bases = {
            group: self._base_file(merged(self.kind, found.base or {}, found.logs))
            for group, found in seen.items()
            if found.logs and chosen(found)
        }
        self.add(Action(requested, completed, bases, is_compaction=True))

    def drop(self, column: str, requested: str, completed: str) -> None:
        """Complete the drop of a column."""
        self.add(Action(requested, completed, dropped=frozenset({column})))

    def add(self, action: Action, *, columns: frozenset[str] | None = None, names: Names | None = None) -> None:
        """Add an action, after which the table has its columns and their names of before, unless others are given."""
        columns, names = self.columns if columns is None else columns, self.names if names is None else names
        self.actions.append(replace(action, columns=columns, names=names, dropped=self.dropped | action.dropped))

    def clean(self) -> None:
        """Retain the states of the last commits."""
        requested = sorted(action.requested for action in self.actions)
        if len(requested) > RETAINED:
            self.retained = max(self.retained, requested[-RETAINED])
        self.cleaned = frozenset(requested)

    def roll_back(self) -> None:
        """Undo the action that was completed last."""
        self.actions.pop()

    def restore(self) -> None:
        """Undo what was completed after the newest savepoint."""
        saved = self._action(self.savepoints[-1])
        self.actions = [action for action in self.actions if action.completed <= saved.completed]
        self.has_plan = False

    # --- what may be refused ----------------------------------------------------------------------------------

    @property
    def may_refuse_rollback(self) -> bool:
        """Whether the last action is saved, or its state of before is not kept, or a plan was made after it."""
        if not self.actions:
            return True
        last = self.actions[-1]
        is_saved = any(saved >= last.requested for saved in self.savepoints)
        return is_saved or self.has_plan or self.is_archived or last.requested in self.cleaned or bool(self.retained)

    @property
    def may_refuse_restore(self) -> bool:
        """Whether there is nothing to undo, or what would be is archived."""
        return self.is_archived or self._action(self.savepoints[-1]) is self.actions[-1]

    def is_readable(self, action: Action) -> bool:
        """Whether cleans have kept the state as of an action."""
        return action.requested >= self.retained or action.requested in self.savepoints

    # --- what is visible --------------------------------------------------------------------------------------

    def as_of(self, action: Action) -> list[Action]:
        """The actions that are visible as of the requested time of one (docs/format/10-rules.md, "Rule 7")."""
        if action.requested in self.savepoints:
            return self.completed_by(action)
        return [found for found in self.actions if found.requested <= action.requested]

    def completed_by(self, action: Action) -> list[Action]:
        """The actions that were completed by the completion of one."""
        return [found for found in self.actions if found.completed <= action.completed]

    def slices(self, actions: Collection[Action]) -> dict[Group, Slice]:
        """What is visible of each live file group."""
        groups = dict.fromkeys(group for action in actions for group in action.groups)
        gone = {group for action in actions for group in action.replaced}
        return {group: _slice(group, actions) for group in groups if group not in gone}

    def snapshot(self, actions: Collection[Action]) -> list[Version]:
        """The rows of a snapshot query."""
        found = self.slices(actions).values()
        return [row for part in found for row in rows_of(merged(self.kind, part.base or {}, part.logs))]

    def read_optimized(self, actions: Collection[Action]) -> list[Version]:
        """The rows of base files."""
        return [row for part in self.slices(actions).values() for row in rows_of(part.base or {})]

    def incremental(self, actions: Collection[Action], since: str) -> list[Version]:
        """The rows that actions completed after `since` have written (docs/format/10-rules.md, "Rule 1")."""
        written = {action.requested for action in actions if action.completed > since}
        if not self.kind.takes_winner:
            return [row for row in self.snapshot(actions) if row.written in written]
        found: list[Version] = []
        for part in self.slices(actions).values():
            base = {row.key: row for row in rows_of(part.base or {}) if row.written in written}
            logs = [version for version in part.logs if version.written in written]
            found += rows_of(merged(self.kind, base, logs))
        return found

    def changes(self, actions: Collection[Action], since: str) -> list[Change]:
        """The changes of rows by each write that was completed after `since`."""
        found: list[Change] = []
        for place, action in enumerate(self.actions):
            if action not in actions or action.completed <= since or action.is_compaction:
                continue
            before, after = (self.slices(self.actions[:end]) for end in (place, place + 1))
            for where in dict.fromkeys(group.place for group in action.groups):
                old, new = (
                    {
                        key: row
                        for group in states
                        if group.place == where
                        for key, row in self._rows(states[group]).items()
                    }
                    for states in (before, after)
                )
                found += _compared(action.requested, old, new, fills=not self.kind.takes_winner)
        return found

    def logged_changes(self, action: Action) -> list[Change]:
        """What the change logs of an action hold: the changes from each base file to the next.

        A first base file has no log, unless a compaction wrote it.
        """
        found: list[Change] = []
        place = self.actions.index(action)
        if not self.kind.captures_changes:
            return found
        fills = not self.kind.takes_winner
        for group, winners in action.bases.items():
            before = _slice(group, self.actions[:place]).base
            if before is None and not action.is_compaction:
                continue
            old, new = ({row.key: row for row in rows_of(part)} for part in (before or {}, winners))
            found += [("d", action.requested, old[key], None) for key in old if key not in new]
            for key, row in new.items():
                if key not in old:
                    found.append(("i", action.requested, None, row))
                elif row.written != old[key].written or (fills and repr(row.row) != repr(old[key].row)):
                    found.append(("u", action.requested, old[key], row))
        return found

    def _is_bulk(self, way: Way, versions: Iterable[Version]) -> bool:
        """Whether rows of a bucket without files go to a base file: those of a bulk insert that deletes nothing there.

        With ordering fields a delete without a value stays a delete, whatever row of its key follows.
        """
        found = list(versions)
        if not self.kind.takes_winner:
            return way is Way.BULK_INSERT and not any(version.is_delete for version in found)
        deletes = any(version.is_delete for version in folded(self.kind, {}, found).values())
        unordered = self.kind.is_ordered and any(version.orders_by_commit_time for version in found)
        return way is Way.BULK_INSERT and not deletes and not unordered

    def _rows(self, found: Slice | None) -> dict[str, Version]:
        return (
            {} if found is None else {row.key: row for row in rows_of(merged(self.kind, found.base or {}, found.logs))}
        )

    def _base_file(self, winners: Versions) -> dict[str, Version]:
        """What a new base file holds, with the deletes kept beside it (docs/format/06-services.md, "Kept deletes")."""
        return {
            key: version
            for key, version in winners.items()
            if not version.is_delete or (self.kind.keeps_deletes and version.ordering is not None)
        }

    def _action(self, requested: str) -> Action:
        (found,) = (action for action in self.actions if action.requested == requested)
        return found


def _slice(group: Group, actions: Collection[Action]) -> Slice:
    ordered = sorted(actions, key=lambda action: action.requested)
    based = [action for action in ordered if group in action.bases]
    begin = based[-1].requested if based else ""
    logs = [action.logs[group] for action in ordered if group in action.logs and action.completed >= begin]
    return Slice(based[-1].bases[group] if based else None, tuple(version for log in logs for version in log))


def _compared(written: str, old: Versions, new: Versions, *, fills: bool) -> list[Change]:
    """The changes between the rows of a file group; a row that lost the merge is none, unless it fills values."""
    found: list[Change] = [("d", written, old[key], None) for key in old if key not in new]
    for key, row in new.items():
        if key not in old:
            found.append(("i", written, None, row))
        elif row.written != old[key].written or (fills and repr(row.row) != repr(old[key].row)):
            found.append(("u", written, old[key], row))
    return found


def plain_rows(versions: Iterable[Version]) -> list[Row]:
    """The columns of rows, with those meta columns that the model knows."""
    return [
        {
            "_hoodie_commit_time": version.written,
            "_hoodie_record_key": version.key,
            "_hoodie_partition_path": version.partition,
            **(version.row or {}),
        }
        for version in versions
    ]
