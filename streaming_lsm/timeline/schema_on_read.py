"""Refuse tables whose columns Hudi changed in a way that reading by name does not show.

See docs/format/01-table.md, "Schema-on-read".
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.internal_schema import (
    LATEST_SCHEMA_KEY,
    SCHEMA_FOLDER,
    InternalSchema,
    decode_history,
    history_name,
)
from streaming_lsm.schema import META_COLUMNS
from streaming_lsm.storage.base import Storage

_OPTION = "hoodie.schema.on.read.enable=true"


def schema_by_name(storage: Storage, extra: Mapping[str, str], source: str) -> str:
    """Return the schema of a commit as Avro JSON without meta columns, which Hudi's ALTER TABLE stores, too.

    Args:
        storage: the table's files.
        extra: the extra metadata of the commit; it has a ``schema``.
        source: the commit's file, for messages.

    Raises:
        CorruptFileError: the schema is not the JSON of a record; or the versions before it are missing.
        UnsupportedTable: a column was renamed, or dropped and added again, or its type was changed other than to a
            wider one, so that older files would show other values under its name.
    """
    record = _record(extra["schema"], source)
    latest = extra.get(LATEST_SCHEMA_KEY)
    if latest:
        _check_names(storage, InternalSchema.decode(latest, f"{source}: {LATEST_SCHEMA_KEY}"))
    fields = record.get("fields")
    if not isinstance(fields, list) or not any(_is_meta(field) for field in fields):
        return extra["schema"]
    return json.dumps({**record, "fields": [field for field in fields if not _is_meta(field)]}, separators=(",", ":"))


def check_writable_columns(extra: Mapping[str, str], source: str) -> None:
    """Refuse to write to a table whose columns have ids: a commit without them would make Hudi read by name.

    Args:
        extra: the extra metadata of the newest write.
        source: the file of the commit, for messages.

    Raises:
        UnsupportedTable: the commit has an internal schema.
    """
    if extra.get(LATEST_SCHEMA_KEY):
        raise UnsupportedTable(
            f"{source}: has {LATEST_SCHEMA_KEY}, the column ids of Hudi's schema-on-read, which this release does not "
            f"write: write to this table, and compact it, with Hudi and {_OPTION}, or copy it with `lsm copy`"
        )


def _check_names(storage: Storage, latest: InternalSchema) -> None:
    name = history_name(storage.names(SCHEMA_FOLDER), latest.version)
    if name is None:
        if latest.version:
            raise CorruptFileError(
                f"{storage.uri}/{SCHEMA_FOLDER}: no file has the columns as of {latest.version}, so that it is not "
                "known under which names older files have them; restore the folder"
            )
        return
    path = f"{SCHEMA_FOLDER}/{name}"
    history = decode_history(storage.read(path).decode("utf-8", "replace"), f"{storage.uri}/{path}")
    fault = latest.fault_of_names(version for version in history if version.version < latest.version)
    if fault:
        raise UnsupportedTable(
            f"{storage.uri}/{path}: {fault}, with Hudi's schema-on-read; this release reads columns by name, and would "
            f"show other values: read the table with Hudi and {_OPTION}, write its rows to a new table, and read that; "
            "or read it as of a time before the change"
        )


def _record(schema: str, source: str) -> Mapping[str, object]:
    try:
        record = parse_json(schema)
        if not isinstance(record, dict):
            raise ValueError(f"{schema:.80}")
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(
            f"{source}: the schema in its extra metadata is not the JSON of a record ({error}); restore the file"
        ) from None
    return record


def _is_meta(field: object) -> bool:
    return isinstance(field, dict) and field.get("name") in META_COLUMNS
