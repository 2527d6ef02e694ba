"""Do the steps of a history to a table and to the model, and compare what queries show of both."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from streaming_lsm import LsmTable
from streaming_lsm.config import Options
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import CommitConflict, ConfigError, LsmError, ReadOvertaken, SchemaError
from streaming_lsm.query.cdc.changes import Changes
from streaming_lsm.query.scan import Scan
from streaming_lsm.timeline.instant import Instant
from tests.support.histories_model import queries
from tests.support.histories_model.columns import renamed
from tests.support.histories_model.model import Action, Model, Slice
from tests.support.histories_model.queries import Divergence, draw_question
from tests.support.histories_model.steps import DeletePartition, Drop, History, Rename, Service, Step, Way, Write

_HYBRID = Options(
    {
        "hoodie.compaction.plan.generator": "HybridCompactionPlanGenerator",
        "lsm.compaction.small.base.bytes": 0,
        "lsm.compaction.log.share": 1000,
    }
)


@dataclass
class Run:
    """A table beside its model.

    Attributes:
        asked: queries that were compared.
        refused: steps that the table refused, as it may.
        collect, collect_changes: run the queries; by default in Python.
    """

    history: History
    table: LsmTable
    model: Model
    asked: int = 0
    refused: list[str] = field(default_factory=list)
    collect: Callable[[Scan], pa.Table] = Scan.to_arrow
    collect_changes: Callable[[Changes], pa.Table] = Changes.to_arrow

    @classmethod
    def begin(cls, history: History, folder: Path) -> Run:
        """Create the table."""
        kind = history.kind
        return cls(history, LsmTable.create(folder, kind.first_schema, kind.all_options), Model(kind))

    def all_steps(self) -> None:
        """Do all steps, with queries between them and at the end."""
        for number, step in enumerate(self.history.steps):
            self.take(step)
            chance = random.Random(f"queries {self.history.seed} {number}")
            if chance.random() < 0.35:
                self.ask(queries.snapshot(self.model), chance)
            if chance.random() < 0.15:
                self.ask_of_kinds(chance, 1)
        chance = random.Random(f"queries {self.history.seed}")
        self.ask(queries.snapshot(self.model), chance)
        self.ask_of_kinds(chance, 4)

    # --- steps ------------------------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Do a step."""
        if isinstance(step, Write):
            self._write(step)
        elif isinstance(step, DeletePartition):
            self._delete_partition(step)
        elif isinstance(step, Rename):
            self._rename(step)
        elif isinstance(step, Drop):
            self._drop(step)
        else:
            self._services[step]()

    def _write(self, step: Write) -> None:
        kind = self.model.kind
        rows = pa.Table.from_pylist([event.row for event in step.events], kind.schema)
        if step.way is Way.DELETE:
            names = [*kind.keys, *kind.partitions, *kind.ordering]
            written = self.table.delete(rows.select(names))
        else:
            marks = pa.array([event.is_delete for event in step.events], pa.bool_())
            there = {*step.columns, *self.model.columns} - self.model.dropped
            given = [name for name in kind.schema.names if name in there]
            batch = rows.select(given).rename_columns(renamed(given, self.model.names))
            written = getattr(self.table, step.way.value)(batch.append_column("_lsm_delete", marks))
        self.model.write(step.way, step.events, *_times(written), step.columns)

    def _drop(self, step: Drop) -> None:
        if self.model.has(step.column):
            now = self.model.names.get(step.column, step.column)
            self.model.drop(step.column, *_times(self.table.drop_columns([now])))

    def _delete_partition(self, step: DeletePartition) -> None:
        groups = self.model.slices(self.model.actions)
        if not any(group.partition == step.path for group in groups):
            self._refuses("a partition without file groups", lambda: self.table.delete_partitions([step.path]))
            return
        self.model.delete_partition(step.path, *_times(self.table.delete_partitions([step.path])))

    def _rename(self, step: Rename) -> None:
        model = self.model
        now = model.names.get(step.column, step.column)
        if not model.has(step.column) or now == step.name:
            return
        rename = partial(self.table.rename_columns, {now: step.name})
        if step.name != step.column and step.name in model.kind.schema.names:
            self._refuses("the name of another column", rename, SchemaError)
        elif model.has_plan:
            self._refuses("a new name", rename, CommitConflict)
        else:
            model.rename(step.column, step.name, *_times(rename()))

    @property
    def _services(self) -> Mapping[Service, Callable[[], None]]:
        return {
            Service.COMPACT: self._compact,
            Service.LOG_COMPACT: self._compact_logs,
            Service.HYBRID: self._compact_some,
            Service.SCHEDULE: self._schedule,
            Service.CLEAN: self._clean,
            Service.ARCHIVE: self._archive,
            Service.ROLL_BACK: self._roll_back,
            Service.SAVE: self._save,
            Service.UNSAVE: self._unsave,
            Service.RESTORE: self._restore,
            Service.REOPEN: self._reopen,
        }

    def _compact(self) -> None:
        if not self.model.kind.is_merge_on_read:
            return
        done, _ = self.table.services.compact(LocalEngine(1))
        if done is None:
            if any(found.logs for found in self.model.slices(self.model.actions).values()):
                raise Divergence("compaction", "nothing was compacted, though file groups have logs")
            return
        self.model.compact(*_times(done))
        self.model.has_plan = False

    def _compact_logs(self) -> None:
        if self.model.kind.is_merge_on_read and not self.model.has_plan:
            if not self.model.kind.takes_winner:
                self._refuses("log compaction", lambda: self.table.services.compact(LocalEngine(1), log=True))
                return
            done, _ = self.table.services.compact(LocalEngine(1), log=True)
            self._log_compacted(done)

    def _log_compacted(self, done: Instant | None) -> None:
        if done is not None:
            self.model.add(Action(*_times(done), is_compaction=True))

    def _compact_some(self) -> None:
        if not self.model.kind.is_merge_on_read or self.model.has_plan:
            return
        other = LsmTable(self.table.path, self.table.options.merged(_HYBRID))
        done, _ = other.services.compact(LocalEngine(1))
        if done is not None:
            is_full = not self.model.kind.takes_winner
            self.model.compact(*_times(done), chosen=_has_logs if is_full else _has_no_base)

    def _schedule(self) -> None:
        if self.model.kind.is_merge_on_read and not self.model.has_plan:
            planned, _ = self.table.services.schedule()
            self.model.has_plan = planned is not None

    def _clean(self) -> None:
        self.table.clean()
        self.model.clean()

    def _archive(self) -> None:
        self.model.is_archived = bool(self.table.archive()) or self.model.is_archived

    def _roll_back(self) -> None:
        if self._may_refuse("rollback", self.model.may_refuse_rollback, self.table.rollback):
            self.model.roll_back()

    def _save(self) -> None:
        last = self.model.actions[-1] if self.model.actions else None
        may_refuse = last is None or last.requested in self.model.savepoints or not self.model.is_readable(last)
        if last is not None and self._may_refuse("savepoint", may_refuse, lambda: self.table.savepoint(last.requested)):
            self.model.savepoints.append(last.requested)

    def _unsave(self) -> None:
        if self.model.savepoints:
            self.table.delete_savepoint(self.model.savepoints.pop(0))

    def _restore(self) -> None:
        if self.model.savepoints and self._may_refuse(
            "restore", self.model.may_refuse_restore, lambda: self.table.restore(self.model.savepoints[-1])
        ):
            self.model.restore()

    def _reopen(self) -> None:
        self.table = LsmTable(self.table.path, self.history.kind.all_options)

    def _may_refuse(self, what: str, may_refuse: bool, call: Callable[[], object]) -> bool:
        """Do what may be refused, and return whether it was done."""
        try:
            call()
        except (ConfigError, ReadOvertaken) as refusal:
            if not may_refuse:
                raise Divergence(what, f"refused: {refusal}") from refusal
            self.refused.append(what)
            return False
        return True

    def _refuses(self, what: str, call: Callable[[], object], error: type[LsmError] = LsmError) -> None:
        try:
            call()
        except error:
            self.refused.append(what)
            return
        raise Divergence(what, "was not refused")

    # --- queries ----------------------------------------------------------------------------------------------

    def ask(self, query: queries.Query, chance: random.Random) -> None:
        """Compare a query with a random filter and projection."""
        question, explain = draw_question(chance, self.model, query.columns), chance.random() < 0.3
        query.check(self.table, self.model, question, explain=explain, collect=self.collect)
        self.asked += 1

    def ask_of_kinds(self, chance: random.Random, count: int) -> None:
        """Compare so many kinds of queries."""
        for ask in chance.sample(self._kinds, count):
            ask(chance)

    @property
    def _kinds(self) -> list[Callable[[random.Random], None]]:
        return [
            lambda chance: self.ask(queries.read_optimized(None, self.model), chance),
            self._ask_as_of,
            self._ask_read_optimized_as_of,
            self._ask_incremental,
            self._ask_changes,
            self._ask_history,
        ]

    def _ask_as_of(self, chance: random.Random) -> None:
        if self.model.actions:
            self.ask(queries.as_of(chance.choice(self.model.actions), self.model), chance)

    def _ask_read_optimized_as_of(self, chance: random.Random) -> None:
        if self.model.actions:
            self.ask(queries.read_optimized(chance.choice(self.model.actions), self.model), chance)

    def _ask_incremental(self, chance: random.Random) -> None:
        self.ask(queries.incremental(*self._range(chance), self.model), chance)

    def _ask_changes(self, chance: random.Random) -> None:
        queries.check_changes(self.table, self.model, *self._range(chance), collect=self.collect_changes)
        queries.check_change_logs(self.table, self.model)
        self.asked += 1

    def _ask_history(self, chance: random.Random) -> None:
        writes = [step for step in self.history.steps if isinstance(step, Write)]
        if writes and self.model.kind.has_native_logs:
            event = chance.choice(chance.choice(writes).events)
            queries.check_history(self.table, self.model, self.model.kind.key_of(event.row))
            self.asked += 1

    def _range(self, chance: random.Random) -> tuple[Action | None, Action | None]:
        """Two actions in order of completion, or None for the begin and end of all."""
        bounds = [None, *self.model.actions]
        places = sorted(chance.randrange(len(bounds)) for _ in range(2))
        begin, end = bounds[places[0]], bounds[places[1]]
        return begin, end if chance.random() < 0.5 else None


def _times(instant: Instant | None) -> tuple[str, str]:
    assert instant is not None
    assert instant.completed is not None
    return instant.requested, instant.completed


def _has_logs(found: Slice) -> bool:
    return bool(found.logs)


def _has_no_base(found: Slice) -> bool:
    return found.base is None
