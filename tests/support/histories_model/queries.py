"""Queries of a table and the rows that the model says they have."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm import LsmTable
from streaming_lsm.errors import ReadOvertaken
from streaming_lsm.query.cdc.change_log import read_change_log
from streaming_lsm.query.cdc.changes import Changes
from streaming_lsm.query.scan import Scan
from tests.support.histories_model.columns import Column, Names, Row, at_first, renamed
from tests.support.histories_model.filters import Filter, draw_filter, kept
from tests.support.histories_model.merging import Version
from tests.support.histories_model.model import Action, Change, Model, plain_rows

META = ("_hoodie_commit_time", "_hoodie_record_key", "_hoodie_partition_path")
"""The meta columns that the model knows."""
ALL = "000"
T = TypeVar("T")
Collect = Callable[[T], pa.Table]


class Divergence(AssertionError):
    """A query shows other rows than the model.

    Attributes:
        kind: which query, in a word or two.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True)
class Question:
    """The filter and projection of a query.

    Attributes:
        columns: of the result, in order, meta columns among them.
    """

    columns: tuple[str, ...]
    condition: Filter | None

    def __str__(self) -> str:
        return f"columns {', '.join(self.columns)} where {self.condition}"


def draw_question(chance: random.Random, model: Model, columns: Sequence[Column]) -> Question:
    """Draw a filter and a projection of some columns of a table."""
    kind = model.kind
    rows = plain_rows(model.snapshot(model.actions))
    meta = [Column(name, pa.string(), _value_of(name, rows)) for name in META[1:] if rows]
    condition = draw_filter(chance, [*columns, *meta], [*kind.keys, *kind.partitions])
    names = [column.name for column in columns] + [name for name in META if chance.random() < 0.3]
    columns = chance.sample(names, chance.randint(1, len(names))) if chance.random() < 0.5 else names
    return Question(tuple(columns), condition)


def _value_of(name: str, rows: Sequence[Row]) -> Callable[[random.Random], object]:
    return lambda chance: chance.choice(rows)[name]


@dataclass(frozen=True)
class Query:
    """A query of rows.

    Attributes:
        name: which, for people.
        plan: plans it for columns and a filter, by the names that the query shows.
        rows: what the model says.
        columns: those that the query may ask for.
        names: those that the query shows.
        may_refuse: whether files that it needs may have been cleaned.
    """

    name: str
    plan: Callable[[LsmTable, list[str], pc.Expression | None], Scan]
    rows: Callable[[Model], list[Version]]
    columns: Sequence[Column]
    names: Names
    may_refuse: bool = False

    def check(
        self, table: LsmTable, model: Model, question: Question, *, explain: bool, collect: Collect[Scan]
    ) -> None:
        """Compare the filtered scan, and the filtered rows of a whole one, with the model.

        Args:
            explain: whether to look at the explanation, too.
            collect: runs a scan.
        """
        everything = Question((*META, *(column.name for column in self.columns)), None)
        try:
            whole, scan = collect(self._planned(table, everything)), self._planned(table, question)
        except ReadOvertaken as refusal:
            if self.may_refuse:
                return
            raise Divergence(self.name, f"refused: {refusal}") from refusal
        whole = self._as_at_first(whole)
        known = plain_rows(self.rows(model))
        self._compare("all rows", whole, known, everything.columns, model)
        assert question.condition is not None
        condition = question.condition.expression()
        wanted = kept(question.condition, known)
        unpruned = whole.filter(condition).select(list(question.columns))
        self._compare(f"{question}, not pruned", unpruned, wanted, question.columns, model)
        self._compare(f"{question}, pruned", self._as_at_first(collect(scan)), wanted, question.columns, model)
        if explain and wanted and not scan.explain().slices:
            raise Divergence(self.name, f"{question}: there are rows, and no file slice is read by the explanation")

    def _planned(self, table: LsmTable, question: Question) -> Scan:
        condition = question.condition
        return self.plan(
            table,
            renamed(question.columns, self.names),
            None if condition is None else condition.expression(self.names),
        )

    def _as_at_first(self, found: pa.Table) -> pa.Table:
        """Give columns the names that the model has."""
        return found.rename_columns(at_first(found.schema.names, self.names))

    def _compare(self, what: str, found: pa.Table, known: list[Row], columns: Sequence[str], model: Model) -> None:
        if found.schema.names != list(columns):
            raise Divergence(self.name, f"{what}: the columns are {found.schema.names}")
        difference = differing(found.to_pylist(), as_arrow(known, columns, model))
        if difference:
            raise Divergence(self.name, f"{what}: {difference}")


def snapshot(model: Model) -> Query:
    """The rows now."""
    return Query(
        "snapshot",
        lambda table, columns, condition: table.scan(columns, condition),
        lambda model: model.snapshot(model.actions),
        _columns(model, model.actions),
        model.names,
    )


def as_of(action: Action, model: Model) -> Query:
    """The rows as of a write."""
    return Query(
        "snapshot as of a write",
        lambda table, columns, condition: table.scan(columns, condition, action.requested),
        lambda model: model.snapshot(model.as_of(action)),
        _columns(model, model.as_of(action)),
        model.names_of(model.as_of(action)),
        may_refuse=not model.is_readable(action),
    )


def read_optimized(action: Action | None, model: Model) -> Query:
    """The rows of base files, as of a write or now."""
    moment, visible = (action.requested, model.as_of(action)) if action else (None, model.actions)
    return Query(
        "read-optimized" if action is None else "read-optimized as of a write",
        lambda table, columns, condition: table.scan(columns, condition, moment, query_type="read_optimized"),
        lambda model: model.read_optimized(visible),
        _columns(model, visible),
        model.names_of(visible),
        may_refuse=action is not None and not model.is_readable(action),
    )


def incremental(begin: Action | None, end: Action | None, model: Model) -> Query:
    """The rows written between the completion of two writes."""
    since, until = _range(begin, end)
    return Query(
        "incremental",
        lambda table, columns, condition: table.incremental(since, until, columns, condition),
        lambda model: model.incremental(model.completed_by(end) if end else model.actions, since),
        _columns(model, model.actions),
        model.names,
        may_refuse=end is not None and not _is_kept(end, model),
    )


def check_changes(
    table: LsmTable, model: Model, begin: Action | None, end: Action | None, *, collect: Collect[Changes]
) -> None:
    """Compare the changes between the completion of two writes with the model."""
    since, until = _range(begin, end)
    first = next((action for action in model.actions if action.completed > since), None)
    try:
        found = collect(table.changes(since, until)).to_pylist()
    except ReadOvertaken as refusal:
        is_first_kept = first is None or _has_state_before(first, model)
        if not is_first_kept or not (end is None or _is_kept(end, model)):
            return
        raise Divergence("changes", f"refused: {refusal}") from refusal
    visible = model.completed_by(end) if end else model.actions
    # Change logs do not have the meta columns.
    meta = () if model.kind.captures_changes else META
    names = [*meta, *(column.name for column in _columns(model, visible))]
    known = _change_rows(model.changes(visible, since), names, model)
    shown = [_with_images(row, names, model.names_of(visible)) for row in found]
    difference = differing(shown, known)
    if difference:
        raise Divergence("changes", f"({since}, {until}]: {difference}")


def check_change_logs(table: LsmTable, model: Model) -> None:
    """Compare the operations and keys, or images, in the change logs of each action with the model."""
    actions = {action.requested: action for action in model.actions}
    for write in table.timeline.completed_writes:
        paths = [path for stat in table.timeline.read_commit(write).stats for path, _ in stat.cdc_files]
        if not all(table.storage.exists(path) for path in paths):  # cleaned
            continue
        action = actions[write.requested]
        batches = [batch for path in paths for batch in read_change_log(table.storage, path)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        known = model.logged_changes(action)
        if rows and "record_key" in rows[0]:
            shown = [{"op": row["op"], "key": row["record_key"]} for row in rows]
            wanted = [{"op": op, "key": found.key} for op, _, *sides in known if (found := sides[1] or sides[0])]
        else:
            # A compaction has the columns from before it was planned.
            images = batches[0].schema.field("after").type if rows else ()
            names = at_first([field.name for field in images], action.names)
            shown = [_with_images(row, names, action.names) for row in rows]
            wanted = _change_rows(known, names, model)
        difference = differing(shown, wanted)
        if difference:
            raise Divergence("change logs", f"of {write.path}: {difference}")


def check_history(table: LsmTable, model: Model, key: str) -> None:
    """Compare the versions of a key with those that the model knows; folded they give the rows of the snapshot."""
    found = table.history(key)
    rows = found.rename_columns(at_first(found.schema.names, model.names)).to_pylist()
    names = [*META, *(column.name for column in _columns(model, model.actions))]
    written = [
        version
        for action in model.actions
        for versions in (*action.logs.values(), *(base.values() for base in action.bases.values()))
        for version in versions
        if version.key == key and not version.is_delete
    ]
    known = list(map(repr, as_arrow(plain_rows(written), names, model)))
    newest = [repr({name: row[name] for name in names}) for row in rows if not row["_lsm_deleted"]]
    for row in newest:
        if row not in known:
            raise Divergence("history", f"of {key!r} has {row}, which was not written")
    current = [version for version in model.snapshot(model.actions) if version.key == key]
    told = {(row["_hoodie_commit_time"], row["_hoodie_partition_path"]) for row in rows if not row["_lsm_deleted"]}
    for version in current:
        if (version.written, version.partition) not in told:
            raise Divergence("history", f"of {key!r} lacks the row that a snapshot shows: {version}")


def _columns(model: Model, actions: Collection[Action]) -> list[Column]:
    """The columns of the table as of some actions."""
    there, gone = model.columns_of(actions), model.dropped_of(actions)
    return [
        column
        for column in model.kind.columns
        if column.name not in gone and (column.name in there or column.name not in model.kind.later)
    ]


def as_arrow(rows: Sequence[Row], columns: Sequence[str], model: Model) -> list[Row]:
    """The rows with these columns, as Arrow gives values to Python."""
    schema = pa.schema([pa.field(name, pa.string()) for name in META] + list(model.kind.schema))
    chosen = pa.schema([schema.field(name) for name in columns])
    return pa.Table.from_pylist([{name: row.get(name) for name in columns} for row in rows], chosen).to_pylist()


def differing(found: Sequence[Row], known: Sequence[Row]) -> str:
    """Tell in which rows two results differ, in any order; "" if in none. NaN equals itself here."""
    ours, theirs = sorted(map(repr, found)), sorted(map(repr, known))
    if ours == theirs:
        return ""
    more, fewer = _without(ours, theirs), _without(theirs, ours)
    lines = [f"{len(found)} rows instead of {len(known)}"]
    lines += [f"  not in the model: {row}" for row in more[:5]] + [f"  missing: {row}" for row in fewer[:5]]
    return "\n".join(lines)


def _without(rows: list[str], others: list[str]) -> list[str]:
    left = list(others)
    found = []
    for row in rows:
        if row in left:
            left.remove(row)
        else:
            found.append(row)
    return found


def _range(begin: Action | None, end: Action | None) -> tuple[str, str | None]:
    return begin.completed if begin else ALL, end.completed if end else None


def _is_kept(action: Action, model: Model) -> bool:
    """Whether the state of a completion time is kept; a savepoint keeps that of a requested time."""
    return action.requested >= model.retained


def _has_state_before(action: Action, model: Model) -> bool:
    place = model.actions.index(action)
    return not model.retained or (place > 0 and _is_kept(model.actions[place - 1], model))


def _change_rows(changes: Sequence[Change], names: Sequence[str], model: Model) -> list[Row]:
    sides = [[change[place] for change in changes] for place in (2, 3)]
    images = [iter(as_arrow(plain_rows([v for v in side if v is not None]), names, model)) for side in sides]
    return [
        {
            "op": op,
            "ts_ms": written,
            "before": None if before is None else next(images[0]),
            "after": None if after is None else next(images[1]),
        }
        for op, written, before, after in changes
    ]


def _with_images(change: Row, columns: Sequence[str], names: Names) -> Row:
    """A change with these columns, and those that the table should not have, by the names that they have at first."""
    return {**change, **{side: _image(change[side], columns, names) for side in ("before", "after")}}


def _image(image: object, columns: Sequence[str], names: Names) -> Row | None:
    if not isinstance(image, Mapping):
        return None
    shown = dict(zip(at_first(image, names), image.values(), strict=True))
    more = [name for name in shown if name not in columns and not name.startswith("_hoodie_")]
    return {name: shown[name] for name in (*columns, *more)}
