"""Delete the files of a task that has failed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from streaming_lsm.storage.base import Storage


def discard_files(storage: Storage, paths: Iterable[str]) -> None:
    """Delete files, each of them whatever becomes of the others: a rollback that has listed the markers leaves them.

    Raises:
        OSError: some could not be deleted; the others were.
    """
    failed: OSError | None = None
    for path in paths:
        try:
            with suppress(FileNotFoundError):
                storage.delete(path)
        except OSError as error:
            failed = failed or error
    if failed is not None:
        raise failed
