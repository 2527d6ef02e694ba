"""Check the key entries in the footer of a data file: look-ups that trust a false one do not find its rows.

See docs/format/03-native-logs.md, "Key entries".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.file_group.data_file import DataFile
from streaming_lsm.format.base_file_footer import BLOOM_KEY
from streaming_lsm.format.log.key_entries import ACCUMULATED_KEY, OWN_KEY, KeyEntry


@dataclass
class KeyEntryCheck:
    """Compares the own key entry of a file with its keys, a batch at a time.

    Attributes:
        entry: the entry; None without one.
        missing: a key that the entry rules out; None if there is none so far.
    """

    entry: KeyEntry | None
    missing: str | None = None

    @staticmethod
    def of(file: DataFile) -> KeyEntryCheck:
        """Begin with a file that is open."""
        return KeyEntryCheck(None if file.key_index is None else file.key_index.own)

    def add(self, keys: pa.StringArray) -> None:
        """Look for keys without nulls in the entry."""
        if self.entry is None or self.missing is not None or not len(keys):
            return
        held = pa.array([True] * len(keys)) if self.entry.bloom is None else pa.array(self.entry.bloom.contains(keys))
        if self.entry.span is not None:
            low, high = self.entry.span
            held = pc.and_(held, pc.and_(pc.greater_equal(keys, low), pc.less_equal(keys, high)))
        place = pc.index(held, False).as_py()
        self.missing = None if place < 0 else str(keys[place].as_py())


def damaged_entries(file: DataFile) -> Iterator[str]:
    """Return the names of the entries of a footer that readers leave out, as they are damaged or of other rows."""
    index = file.key_index
    if index is None:
        return
    footer = index.metadata.metadata or {}
    if index.own is None and (OWN_KEY.encode() in footer or BLOOM_KEY.encode() in footer):
        yield "key entry"
    if not index.covered[0] and ACCUMULATED_KEY.encode() in footer:
        yield "accumulated key entry"
