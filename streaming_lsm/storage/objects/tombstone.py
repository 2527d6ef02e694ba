"""Represent a deleted file by an object that reads as absent.

Object stores have no dependable deletion by comparison: between a look at an object and its deletion another process
may replace it, and the deletion would take the new object. They do replace by version. So a deletion by comparison
replaces the object by a *tombstone*, which counts as absent everywhere in this package. There are two kinds:

- *Vacant*: the path is used again, as that of a lock. The tombstone stays; a later creation replaces it by version.
  Nothing is deleted, so that a process which was stopped cannot delete what others have created since.
- *Deleted*: the path is not used again. The process whose replacement took effect, and no other, deletes the tombstone
  with a single request, and a creation is refused until then. So the request finds the tombstone, however late it
  arrives. If that process dies before, the tombstone stays for good.
"""

from __future__ import annotations

import re
import uuid
from enum import Enum

TOMBSTONE_BYTES = 64
"""Size of a tombstone: a listing reads only objects of this size to see whether they are tombstones."""

_HEAD = b"#lsm.absent="
_FORM = re.compile(rb"#lsm\.absent=(vacant|deleted) [0-9a-f]{32} *\n")


class Tombstone(Enum):
    """Enumerate the kinds of tombstones."""

    VACANT = b"vacant"
    DELETED = b"deleted"

    def encode(self) -> bytes:
        """Encode a tombstone; each differs from all others."""
        line = _HEAD + self.value + b" " + uuid.uuid4().hex.encode()
        return line.ljust(TOMBSTONE_BYTES - 1) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Tombstone | None:
        """Return the kind of a tombstone; None for other content."""
        found = _FORM.fullmatch(data) if len(data) == TOMBSTONE_BYTES else None
        return None if found is None else cls(found[1])
