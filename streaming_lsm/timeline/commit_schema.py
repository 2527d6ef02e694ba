"""Take the table's columns from the schema that a commit has in its extra metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.schema import META_COLUMNS


def without_meta_columns(schema: str, source: str) -> str:
    """Return the schema of a commit as Avro JSON without meta columns, which Hudi's ALTER TABLE stores, too.

    Args:
        schema: Avro JSON.
        source: the commit's file, for messages.

    Raises:
        CorruptFileError: the schema is not the JSON of a record.
    """
    record = _record(schema, source)
    fields = record.get("fields")
    if not isinstance(fields, list) or not any(_is_meta(field) for field in fields):
        return schema
    return json.dumps({**record, "fields": [field for field in fields if not _is_meta(field)]}, separators=(",", ":"))


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
