"""Notice rows that are written to another partition than their partition columns name.

With a global index a row may stay in its partition when an event with another value updates it; see docs/indexes.md,
"Keys that change their partition".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streaming_lsm.errors import LsmError
from streaming_lsm.keys.dictionaries import texts_of
from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.write.buffer.dedup import FileGroupChanges
from streaming_lsm.write.plan import WritePlan


class StrayRows:
    """Looks at the rows of one task.

    Attributes:
        are_there: whether there was such a row.
    """

    def __init__(self, plan: WritePlan) -> None:
        """Begin; only a plan by whose index rows may stay has any."""
        self._keys: KeyGenerator | None = plan.keys if plan.may_stray else None
        self.are_there = False

    def watched(self, blocks: Iterable[FileGroupChanges]) -> Iterator[FileGroupChanges]:
        """Pass blocks on, after a look at their rows."""
        for block in blocks:
            if self._keys is not None and not self.are_there:
                self.are_there = _strays(self._keys, block)
            yield block


def _strays(keys: KeyGenerator, block: FileGroupChanges) -> bool:
    try:
        paths = {path for batch in block.rows.to_batches() for path in texts_of(keys.partition_paths(batch))}
    except LsmError:  # a partial update may lack the columns
        return True
    return not paths <= {block.group[0]}
