"""File state: number and hash sum of the files of all latest file slices, as a commit leaves them.

Each commit of this package records it under `FILES_KEY` of its extra metadata, together with the name of the completed
write before it. A reader that finds the same state needs no older commit to know that no file is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from streaming_lsm.errors import CorruptFileError

FILES_KEY = "lsm.files"
_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class FileState:
    """A set of files, by number and hash sum.

    Attributes:
        count: number of files.
        total: sum of the 64-bit hashes of their paths, modulo 2⁶⁴.
    """

    count: int = 0
    total: int = 0

    def changed(self, removed: Iterable[str], added: Iterable[str]) -> FileState:
        """The state without the paths `removed`, which are in it, and with `added`, which are not."""
        less, more = [_hash(path) for path in removed], [_hash(path) for path in added]
        return FileState(self.count - len(less) + len(more), (self.total - sum(less) + sum(more)) % _MODULUS)

    @staticmethod
    def of(paths: Iterable[str]) -> FileState:
        """The state of these files; each path is given once."""
        return FileState().changed((), paths)


@dataclass(frozen=True, slots=True)
class RecordedFiles:
    """What a commit records of the files of its table.

    Attributes:
        state: files of all latest slices once the commit is complete.
        after: name of the completed instant file of the write that was completed before it, "" for the first.
    """

    state: FileState
    after: str

    def encode(self) -> str:
        """As JSON."""
        return json.dumps({"count": self.state.count, "sum": f"{self.state.total:016x}", "after": self.after})

    @staticmethod
    def of(extra: Mapping[str, str], source: str) -> RecordedFiles | None:
        """Read it from a commit's extra metadata; None when it has none, as another program's commit.

        Raises:
            CorruptFileError: it is something else; the message names `source`.
        """
        text = extra.get(FILES_KEY)
        if text is None:
            return None
        try:
            fields = json.loads(text)
            return RecordedFiles(FileState(int(fields["count"]), int(fields["sum"], 16)), str(fields["after"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(f"{source}: {FILES_KEY}={text:.200}: {error!r}; restore the file") from None


def _hash(path: str) -> int:
    digest = blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
