"""A record merger whose outcome depends on the order and the bracketing of what it merges.

`tests/support/installed` offers it as a package would.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

STRATEGY = "5d6f2a1e-8b3c-4c57-9a41-0f2b7e6d9c10"
MODULUS = 1009


class MixingMerger:
    """Mixes the numbers of `count` and `other`; keeps the older text where the newer one is null.

    A column that was renamed to ``count_1`` is `count` to it.
    """

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Merge pairs of rows."""
        columns = []
        for name in newer.schema.names:
            column = newer.column(name)
            first = name.partition("_")[0]
            if first in ("count", "other"):
                column = self._mixed(older.column(name), column)
            elif first == "text":
                column = pc.coalesce(column, older.column(name))
            columns.append(column)
        return pa.table(columns, newer.schema.names)

    @staticmethod
    def _mixed(older: pa.ChunkedArray, newer: pa.ChunkedArray) -> pa.Array:
        one, other = (np.asarray(pc.fill_null(side, 7)) for side in (older, newer))
        both = np.asarray(pc.is_null(older)) & np.asarray(pc.is_null(newer))
        return pa.array(np.mod(one * 2 + other, MODULUS), pa.int64(), mask=both)


def mixed(name: str, older: object, newer: object) -> object:
    """Merge one value, for a model."""
    if name in ("count", "other"):
        if older is None and newer is None:
            return None
        one, other = (7 if side is None else side for side in (older, newer))
        assert isinstance(one, int)
        assert isinstance(other, int)
        return (one * 2 + other) % MODULUS
    return older if name == "text" and newer is None else newer
