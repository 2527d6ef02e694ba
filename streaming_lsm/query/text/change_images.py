"""Give the images of changes one form for display, whichever files they come from."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.query.cdc.change_reader import AFTER, BEFORE
from streaming_lsm.schema import META_COLUMNS


def without_meta_columns(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Drop the meta columns from the images, as change logs do not have them."""
    for name in (BEFORE, AFTER):
        changes = changes.set_column(changes.schema.get_field_index(name), name, _image(changes.column(name)))
    return changes


def _image(image: Any) -> pa.StructArray:
    kept = [place for place, field in enumerate(image.type) if field.name not in META_COLUMNS]
    columns, fields = image.flatten(), [image.type.field(place) for place in kept]
    return pa.StructArray.from_arrays([columns[place] for place in kept], fields=fields, mask=pc.is_null(image))
