"""Return the rows of a look-up in the order of their record keys."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.query.scan import Scan
from streaming_lsm.schema import RECORD_KEY


def read_lookup(scan: Scan) -> pa.Table:
    """Read the few rows of a look-up, several slices at a time, and sort them by record key.

    Rows of one key, in several partitions, are ordered by partition.
    """
    columns = tuple(dict.fromkeys([*scan.reader.columns, RECORD_KEY]))
    keyed = replace(scan, columns=(*scan.columns, RECORD_KEY), reader=replace(scan.reader, columns=columns))
    rows = keyed.to_arrow()
    return rows.take(pc.sort_indices(rows.column(len(scan.columns)))).select(range(len(scan.columns)))
