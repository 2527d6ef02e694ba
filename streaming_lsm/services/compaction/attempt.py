"""Name the files of one attempt at an operation of a compaction, and delete them if it fails.

Tasks are repeated while others run, a driver that dies leaves tasks that run beside those of the next run, and a task
may be stopped until the compaction is completed. So each attempt has names that no other one has: what it deletes is
its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from streaming_lsm.errors import Fenced
from streaming_lsm.format.checksum_file import checksum_path
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.lock.markers import marker_of
from streaming_lsm.services.compaction.target import CompactionTarget

_NUMBERS = 1 << 31


def _drawn() -> int:
    return secrets.randbelow(_NUMBERS)


def attempt_token(operation: int) -> WriteToken:
    """Return the write token of a new attempt, with a random attempt number.

    Args:
        operation: number of the operation in the plan.
    """
    return WriteToken(operation, 0, _drawn())


def discard(target: CompactionTarget, paths: Sequence[str], error: BaseException, *, inline: bool = False) -> None:
    """Delete the files of an attempt that has failed.

    Args:
        paths: the files that it has created, or was about to.
        error: why it failed. If the instant takes no more files, the markers are deleted, too: each file was made or
            refused by then, so that none comes after its deletion.
        inline: whether the files are inline logs, which have checksum files.
    """
    for path in paths:
        target.storage.delete(path)
        if inline:
            target.storage.delete(checksum_path(path))
        if isinstance(error, Fenced):
            target.storage.delete(marker_of(target.instant, path))
