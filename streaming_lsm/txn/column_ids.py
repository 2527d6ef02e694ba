"""Carry the ids of columns on from commit to commit (docs/format/01-table.md, "Schema-on-read")."""

from __future__ import annotations

from collections.abc import Mapping

from streaming_lsm.errors import WriteConflict
from streaming_lsm.format.column_versions import ColumnVersions
from streaming_lsm.schema import from_avro
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.schema_on_read import column_versions
from streaming_lsm.timeline.timeline import Timeline


def columns_after(
    timeline: Timeline, instant: Instant, schema: str, renamed: Mapping[str, str], created: str | None
) -> ColumnVersions | None:
    """Return the versions of a table's columns as of a write; None if columns have no ids.

    Args:
        timeline: the timeline just before the write is completed.
        instant: the write.
        schema: the columns after it, as Avro JSON.
        renamed: the columns that it renames, see `ColumnChange`; with the first of them the ids begin.
        created: the columns at the creation of the table, if they are known.

    Raises:
        WriteConflict: the write changes columns, and its requested time does not tell which files have those of before:
            a later write has changed columns since it began, or has written files under the names that it changes.
    """
    before = column_versions(timeline)
    if before is None and not renamed:
        return None
    source = f"schema of {timeline.storage.uri}"
    if before is None:
        before = ColumnVersions.begun(from_avro(timeline.table_schema() or created or schema, source))
    after = before.after(int(instant.requested), renamed, from_avro(schema, source))
    if after is before:
        return after
    newest = max((write.requested for write in timeline.completed_writes), default="")
    if int(instant.requested) <= before.latest.version or (renamed and newest > instant.requested):
        raise WriteConflict(
            f"another write to {timeline.storage.uri} began after {instant.requested}, which changes columns, and was "
            "completed before it"
        )
    return after
