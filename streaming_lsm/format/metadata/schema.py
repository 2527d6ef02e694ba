"""Give the Avro schema of the metadata table's records.

See docs/format/07-index-and-metadata.md, "Metadata table". The meta columns come first; all are null except the file
name in base files. The ``key`` field is empty, because the HFile entry has the key.
"""

from __future__ import annotations

import functools
import json
from enum import IntEnum
from importlib import resources

from streaming_lsm.schema import META_COLUMNS


class RecordType(IntEnum):
    """Type of a record, the ``type`` field; determines which of the optional parts is filled."""

    ALL_PARTITIONS = 1
    FILES = 2
    COLUMN_STATS = 3
    BLOOM_FILTER = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7


@functools.cache
def metadata_schema(*, meta_columns: bool = True) -> str:
    """Return the Avro JSON of the records, the schema of Hudi 1.2 without comments.

    Args:
        meta_columns: whether the meta columns come first, as in the files.
    """
    text = resources.files("streaming_lsm.format").joinpath("schemas", "HoodieMetadataRecord.avsc").read_text("utf-8")
    schema = json.loads(text)
    if meta_columns:
        columns = [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS]
        schema["fields"] = columns + schema["fields"]
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
