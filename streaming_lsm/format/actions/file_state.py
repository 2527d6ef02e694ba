"""Compute, encode and decode file states, which detect missing data files.

A *file state* is the number and hash sum of the files in all latest file slices after a commit. Each commit of this
package records it under `FILES_KEY` in its extra metadata, with the name of the previous completed write. If a listing
has the recorded state, no file is missing, and older commits need not be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.errors import CorruptFileError

FILES_KEY = "lsm.files"
_DIGEST_BYTES = 8
_MODULUS = 1 << 64
_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class FileState:
    """Number and hash sum of a set of files.

    Attributes:
        count: number of files.
        total: sum of the 64-bit hashes of their paths, modulo 2⁶⁴.
    """

    count: int = 0
    total: int = 0

    def changed(self, removed: Iterable[str], added: Iterable[str]) -> FileState:
        """Return the state after removing paths that it contains and adding paths that it does not contain."""
        less, more = [_hash(path) for path in removed], [_hash(path) for path in added]
        return FileState(self.count - len(less) + len(more), (self.total - sum(less) + sum(more)) % _MODULUS)

    @staticmethod
    def of(paths: Iterable[str]) -> FileState:
        """Compute the state of a set of distinct paths."""
        return FileState().changed((), paths)

    @staticmethod
    def of_encoded(paths: Sequence[bytes]) -> FileState:
        """Compute the state of a set of distinct paths in UTF-8."""
        digests = b"".join([blake2b(path, digest_size=_DIGEST_BYTES).digest() for path in paths])
        return FileState(len(paths), int(np.frombuffer(digests, ">u8").sum(dtype=np.uint64)))


@dataclass(frozen=True, slots=True)
class RecordedFiles:
    """File state that a commit records.

    Attributes:
        state: files of all latest slices after the commit.
        after: file name of the previous completed write's instant, "" for the first write.
    """

    state: FileState
    after: str

    def encode(self) -> str:
        """Encode as JSON."""
        return json.dumps({"count": self.state.count, "sum": f"{self.state.total:016x}", "after": self.after})

    @staticmethod
    def of(extra: Mapping[str, str], source: str) -> RecordedFiles | None:
        """Decode the entry of a commit's extra metadata; None if there is none, as in commits of other programs.

        Raises:
            CorruptFileError: the entry is malformed; the message names `source`.
        """
        text = extra.get(FILES_KEY)
        if text is None:
            return None
        try:
            fields = parse_json(text, _MOST)
            return RecordedFiles(FileState(int(fields["count"]), int(fields["sum"], 16)), str(fields["after"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptFileError(f"{source}: {FILES_KEY}={text:.200}: {error!r}; restore the file") from None


def _hash(path: str) -> int:
    digest = blake2b(path.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_BYTES).digest()
    return int.from_bytes(digest, "big")
