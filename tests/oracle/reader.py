"""Snapshot and time travel: files picked by completion time, merged by SQL window functions.

Per key, number the records in merge order. Let c be the last delete that orders by commit time. What lies before c
does not count; of what comes after it the largest ordering value wins, ties go to the latest; with nothing after it the
delete itself stands. A winning delete gives no row, unless the key is in the base file alone (docs/format/05-merge.md;
docs/format/10-rules.md, "Rule 11"). In version 10 that is so in both layouts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from .avro_io import arrow_schema
from .column_ids import ColumnIds
from .table import META, OPERATION, Completed, DataFile, Table, database, literal_glob, open_table

KINDS = {"log": 0, "deletes": 1, "cdc": 2}
FOOTER = "hudi.log.format.metadata"
MARKER_FIELD = "hoodie.record.merge.property.hoodie.payload.delete.field"
MARKER_VALUE = "hoodie.record.merge.property.hoodie.payload.delete.marker"


class Unsupported(Exception):
    """The table uses something that the oracle does not read."""


@dataclass(frozen=True)
class Placed:
    """A file at its merge position within its file group."""

    file: DataFile
    group: int
    position: int


def read_snapshot(table_path: str | os.PathLike[str], as_of: str | None = None, with_meta: bool = False) -> pa.Table:
    """Read the live rows of a table, sorted by partition path and record key.

    Args:
        table_path: the table's folder.
        as_of: an instant (a requested time counts by requested times, else a completion time), or an ISO date text.
        with_meta: put the five meta columns in front.

    Returns:
        The columns of the newest commit's schema as of then, all nullable.
    """
    table = open_table(table_path)
    _refuse(table)
    writes = table.timeline.writes()
    point = _point(table, writes, as_of)
    visible = {instant: write for instant, write in writes.items() if point.sees(instant, write.completion)}
    schema = _table_schema(visible)
    if schema is None:
        return pa.table({name: pa.array([], pa.string()) for name in META} if with_meta else {})
    if with_meta:
        schema = pa.schema([pa.field(name, pa.string()) for name in META] + list(schema))
    with database().cursor() as con:
        con.execute("SET TimeZone = 'UTC'")
        files = table.data_files()
        times = _completion_times(table, files, writes, point)
        placed = _place(con, files, times, _replaced(visible))
        return _merge(con, table, placed, schema, ColumnIds(table.path, visible))


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return a table as Python rows; a map is a list of pairs."""
    return table.to_pylist()


def _refuse(table: Table) -> None:
    properties = table.properties
    expected = {
        "hoodie.table.version": "10",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.populate.meta.fields": "true",
    }
    for key, value in expected.items():
        if properties.get(key, value if key.startswith("hoodie.populate") else "") != value:
            raise Unsupported(f"{key}={properties.get(key)}")
    if properties.get("hoodie.table.storage.layout", "default") not in ("lsm_tree", "default"):
        raise Unsupported(f"hoodie.table.storage.layout={properties['hoodie.table.storage.layout']}")
    if table.merge_mode not in ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"):
        raise Unsupported(f"merge mode {table.merge_mode}")
    if "hoodie.table.partial.update.mode" in properties:
        raise Unsupported("partial updates")


# ---------------------------------------------------------------- which writes and files count


def instant_of(text: str, zone: str) -> tuple[str, bool]:
    """Turn a time travel value into 17 digits; the flag says whether it was a date text."""
    if text.isdigit() and len(text) >= 14:
        return (text + "999" if len(text) == 14 else text[:17]), False
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC if zone == "UTC" else None)
    return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}", True


@dataclass(frozen=True)
class AsOf:
    """The point of time travel: by requested times if the value is one of a completed write, else by completion."""

    limit: str | None
    by_request: bool

    def sees(self, instant: str, completion: str) -> bool:
        return self.limit is None or (instant if self.by_request else completion) <= self.limit


def _point(table: Table, writes: dict[str, Completed], as_of: str | None) -> AsOf:
    if as_of is None:
        return AsOf(None, False)
    value, is_date = instant_of(as_of, table.properties.get("hoodie.table.timeline.timezone", "LOCAL"))
    return AsOf(value, value in writes and not is_date)


def _table_schema(visible: dict[str, Completed]) -> pa.Schema | None:
    for instant in sorted(visible, reverse=True):
        text = (visible[instant].metadata().get("extraMetadata") or {}).get("schema")
        if text:
            return arrow_schema(json.loads(text))
    return None


def _completion_times(table: Table, files: list[DataFile], writes: dict[str, Completed], point: AsOf) -> dict[str, str]:
    """Return the completion times of visible instants; one that nobody knows of and that is older than the active
    timeline and the history completed when it was requested (docs/format/10-rules.md, "Rule 9", "Rule 10")."""
    times = {instant: write.completion for instant, write in writes.items()}
    archived = [action.instant for action in table.timeline.archived]
    for file in files:
        known = bool(archived) and min(archived) <= file.instant <= max(archived)
        if file.instant < table.timeline.first and file.instant not in table.timeline.pending and not known:
            times.setdefault(file.instant, file.instant)
    return {instant: time for instant, time in times.items() if point.sees(instant, time)}


def _replaced(visible: dict[str, Completed]) -> set[tuple[str, str]]:
    return {
        (partition, file_id)
        for write in visible.values()
        if write.action == "replacecommit" and not write.archived
        for partition, ids in (write.metadata().get("partitionToReplaceFileIds") or {}).items()
        for file_id in ids
    }


def _place(
    con: duckdb.DuckDBPyConnection, files: list[DataFile], times: dict[str, str], replaced: set[tuple[str, str]]
) -> list[Placed]:
    groups: dict[tuple[str, str], list[tuple[DataFile, str]]] = {}
    for file in files:
        completion = times.get(file.instant)
        if completion is None or file.group in replaced or file.kind == "cdc":
            continue
        if file.kind == "inline" or not file.name.endswith(".parquet"):
            raise Unsupported(f"file {file.relative}")
        groups.setdefault(file.group, []).append((file, completion))
    slices = [_newest_slice(members) for _, members in sorted(groups.items())]
    covers = _compacted_block_times(con, [file for files in slices for file in files if file.kind != "base"])
    placed: list[Placed] = []
    for number, files in enumerate(slices):
        placed += [Placed(file, number, at) for at, file in enumerate(_merge_order(files, covers))]
    return placed


def _newest_slice(members: list[tuple[DataFile, str]]) -> list[DataFile]:
    """Take the newest base file and the logs that completed at or after its instant.

    See docs/format/10-rules.md, "Rule 8".
    """
    bases = [file for file, _ in members if file.kind == "base"]
    newest = max((file.instant for file in bases), default="")
    base = [file for file in bases if file.instant == newest]
    if len(base) > 1:
        raise Unsupported(f"two base files in one slice: {[file.relative for file in base]}")
    return base + [file for file, completion in members if file.kind != "base" and completion >= newest]


def _compacted_block_times(con: duckdb.DuckDBPyConnection, logs: Sequence[DataFile]) -> dict[str, list[str]]:
    """Return, by path, the instants that a log compaction's file stands for."""
    if not logs:
        return {}
    paths = [literal_glob(file.path) for file in logs]
    rows = con.execute(
        "SELECT file_name, decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) = ?", [paths, FOOTER]
    ).fetchall()
    found = {name: json.loads(text).get("COMPACTED_BLOCK_TIMES", "") for name, text in rows}
    return {name: [time.strip() for time in text.split(",")] for name, text in found.items() if text}


def _merge_order(files: list[DataFile], covers: dict[str, list[str]]) -> list[DataFile]:
    """Order a slice's files; covered ones are dropped, their stand-in sorts at the newest of them.

    Deletes that a full compaction kept come right after its base file. See docs/format/10-rules.md, "Rule 3";
    docs/format/06-services.md, "Kept deletes".
    """
    base = {file.instant for file in files if file.kind == "base"}
    lists: dict[str, set[str]] = {}
    for file in files:
        for time in covers.get(str(file.path), []):
            lists.setdefault(file.instant, set()).add(time)

    def resolve(instant: str, seen: frozenset[str]) -> set[str]:
        if instant not in lists or instant in seen:
            return {instant}
        return set().union(*(resolve(time, seen | {instant}) for time in lists[instant]))

    def place(file: DataFile) -> tuple[Any, ...]:
        stands_for = covers.get(str(file.path))
        where = max(resolve(file.instant, frozenset())) if stands_for else file.instant
        kept = file.kind == "deletes" and file.instant in base
        return file.kind != "base", not kept, where, file.instant, file.version, KINDS.get(file.kind, -1), file.token

    covered = set().union(*lists.values())
    return sorted((f for f in files if f.kind == "base" or f.instant not in covered), key=place)


# ---------------------------------------------------------------- the merge


def sql_type(kind: pa.DataType) -> str:
    """Return the duckdb type that holds an Arrow type."""
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_struct(kind):
        return "STRUCT(" + ", ".join(f"{_quote(f.name)} {sql_type(f.type)}" for f in kind) + ")"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else "TIMESTAMP"
    if pa.types.is_fixed_size_binary(kind):
        return "BLOB"
    plain = {
        pa.bool_(): "BOOLEAN",
        pa.int32(): "INTEGER",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.binary(): "BLOB",
        pa.string(): "VARCHAR",
        pa.date32(): "DATE",
        pa.time32("ms"): "TIME",
        pa.time64("us"): "TIME",
    }
    return plain[kind]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _same_shape(con: duckdb.DuckDBPyConnection, files: Iterable[Placed], ids: ColumnIds) -> list[list[Placed]]:
    """Group files of equal Parquet schema and names of columns, so that one scan reads each group."""
    by_name = {str(one.file.path): one for one in files}
    paths = [literal_glob(one.file.path) for one in by_name.values()]
    shapes: dict[str, list[Any]] = {name: [] for name in by_name}
    for name, *columns in con.execute(
        "SELECT file_name, * EXCLUDE (file_name) FROM parquet_schema(?)", [paths]
    ).fetchall():
        shapes[name].append(columns)
    found: dict[tuple[bool, str, str], list[Placed]] = {}
    for name, shape in shapes.items():
        file = by_name[name].file
        key = file.kind == "deletes", repr(shape), repr(ids.names_in(file.instant))
        found.setdefault(key, []).append(by_name[name])
    return list(found.values())


def _delete_test(table: Table, columns: dict[str, str]) -> str:
    tests = ["false"]
    if columns.get("_hoodie_is_deleted") == "BOOLEAN":
        tests.append("coalesce(r._hoodie_is_deleted, false)")
    if OPERATION in columns:
        tests.append(f"coalesce(r.{OPERATION} IN ('D', '-U'), false)")
    name, marker = table.properties.get(MARKER_FIELD), table.properties.get(MARKER_VALUE)
    if name in columns and marker is not None:
        text = marker.replace("'", "''")
        tests.append(f"coalesce(CAST(r.{_quote(name or '')} AS VARCHAR) = '{text}', false)")
    return " OR ".join(tests)


def _ordering(table: Table, columns: dict[str, str], schema: pa.Schema) -> tuple[list[str], str]:
    """Return the ordering expressions, and the test for 'no value', which makes a delete order by commit time."""
    values: list[str] = []
    given: list[str] = []
    for name in table.ordering_fields:
        kind = schema.field(name).type
        value = f"CAST(r.{_quote(name)} AS {sql_type(kind)})" if name in columns else f"CAST(NULL AS {sql_type(kind)})"
        given.append(value)
        values.append(f"coalesce({value}, 0)" if _is_number(kind) else value)
    absent = " AND ".join(f"{value} IS NULL" for value in given) or "true"
    if len(given) == 1 and schema.field(table.ordering_fields[0]).type == pa.int32():
        absent = f"coalesce({given[0]}, 0) = 0"
    return values, absent


def _scan(con: duckdb.DuckDBPyConnection, table: Table, files: list[Placed], schema: pa.Schema, ids: ColumnIds) -> str:
    listed = ", ".join("'" + literal_glob(one.file.path).replace("'", "''") + "'" for one in files)
    source = (
        f"read_parquet([{listed}], filename = '__oracle_file', file_row_number = true,"
        " hive_partitioning = false, union_by_name = false)"
    )
    columns = {row[0]: row[1] for row in con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    deletes = files[0].file.kind == "deletes"
    order, absent = _ordering(table, columns, schema)
    pick = ["p.grp", "p.pos", "p.base", "p.part", "r.file_row_number AS row", "r._hoodie_record_key AS rkey"]
    pick.append(f"({'true' if deletes else _delete_test(table, columns)}) AS del")
    pick.append(f"({absent}) AS absent")
    pick += [f"{value} AS o{number}" for number, value in enumerate(order)]
    stored = ids.names_in(files[0].file.instant)
    for number, column in enumerate(schema):
        name = stored.get(column.name, column.name)
        value = f"r.{_quote(name)}" if name in columns and not deletes else "NULL"
        pick.append(f"CAST({value} AS {sql_type(column.type)}) AS c{number}")
    return f"SELECT {', '.join(pick)} FROM {source} r JOIN placed p ON p.file = r.__oracle_file"


def _merge(
    con: duckdb.DuckDBPyConnection, table: Table, placed: list[Placed], schema: pa.Schema, ids: ColumnIds
) -> pa.Table:
    if not placed:
        return schema.empty_table()
    con.execute("CREATE TEMP TABLE placed(file VARCHAR, grp INTEGER, pos INTEGER, base BOOLEAN, part VARCHAR)")
    con.executemany(
        "INSERT INTO placed VALUES (?, ?, ?, ?, ?)",
        [(str(p.file.path), p.group, p.position, p.file.kind == "base", p.file.partition) for p in placed],
    )
    shapes = _same_shape(con, placed, ids)
    records = " UNION ALL ".join(_scan(con, table, files, schema, ids) for files in shapes)
    con.execute(f"CREATE TEMP TABLE records AS {records}")
    if lost := con.execute("SELECT count(*) FROM records WHERE rkey IS NULL").fetchall()[0][0]:
        raise Unsupported(f"{lost} rows without a record key")
    best = "".join(f"o{number} DESC NULLS LAST, " for number in range(len(table.ordering_fields)))
    wanted = ", ".join(f"c{number}" for number in range(len(schema)))
    query = f"""
        WITH numbered AS (
            SELECT *, row_number() OVER (PARTITION BY grp, rkey ORDER BY pos, row) AS n FROM records
        ), cut AS (
            SELECT *,
                coalesce(max(CASE WHEN del AND absent THEN n END) OVER (PARTITION BY grp, rkey), 0) AS c,
                bool_and(base) OVER (PARTITION BY grp, rkey) AS base_only
            FROM numbered
        ), ranked AS (
            SELECT *, row_number() OVER (PARTITION BY grp, rkey ORDER BY (n = c), {best} n DESC) AS rank
            FROM cut WHERE n >= c
        )
        SELECT {wanted} FROM ranked WHERE rank = 1 AND (base_only OR NOT del)
        ORDER BY encode(part), encode(rkey)"""
    return _conform(con.sql(query).to_arrow_table(), schema)


def _conform(found: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for column, wanted in zip(found.columns, schema, strict=True):
        if pa.types.is_nested(wanted.type):
            columns.append(pa.chunked_array([pa.array(column.to_pylist(), type=wanted.type)]))
        else:
            columns.append(column.cast(wanted.type))
    return pa.table(columns, schema=schema)
