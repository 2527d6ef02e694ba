"""What pyarrow alone does to write sorted rows to a file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq


def write_rows(rows: pa.Table, path: str, dictionary: Sequence[str]) -> None:
    """Write one zstd file, with dictionaries for the columns of `dictionary`."""
    pq.write_table(rows, path, compression="zstd", use_dictionary=list(dictionary))
