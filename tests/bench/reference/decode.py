"""What pyarrow alone does with JSON documents."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.json


def read_documents(values: Sequence[bytes], columns: pa.Schema) -> pa.Table:
    """Parse documents, one a line, on one thread; columns that the schema does not have are left out.

    Nothing is checked: not whether a document is on one line, has a column twice, or loses digits.
    """
    text = b"\n".join(values)
    read = pa.json.ReadOptions(use_threads=False, block_size=1 << 20)
    parse = pa.json.ParseOptions(explicit_schema=columns, unexpected_field_behavior="ignore")
    return pa.json.read_json(pa.BufferReader(text), read_options=read, parse_options=parse)
